"""What makes a check trustworthy: weights at unit gain, and float64 through a library that casts to less inside."""

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


class Float64(TorchFunctionMode):
    """Within this mode `.float()` and every floating dtype argument mean float64."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in (torch.Tensor.float, torch.Tensor.bfloat16, torch.Tensor.half):
            func = torch.Tensor.double
        if torch.dtype in map(type, args):
            args = [torch.float64 if type(a) is torch.dtype and a.is_floating_point else a for a in args]
        if torch.dtype in map(type, kwargs.values()):
            kwargs = {name: torch.float64 if type(a) is torch.dtype and a.is_floating_point else a
                      for name, a in kwargs.items()}
        return func(*args, **kwargs)


@torch.no_grad()
def redraw(module: nn.Module, seed: int = 0) -> nn.Module:
    """Weights at unit gain and nowhere zero, float64, eval; time steps of 0.05 to 0.3.

    With the small weights that training starts from, a lost state hardly shows.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, weight in module.named_parameters():
        draw = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
        leaf = name.rsplit(".", 1)[-1]
        if "A_log" in name or "decay" in name:
            draw = draw * 0.5
        elif "recurrent_param" in name or "dt" in name and weight.dim() == 1:
            draw = draw * 0.5 - 2
        elif "norm" in name or leaf == "D":
            draw = 1 + 0.2 * draw
        else:
            draw = draw * (weight.shape[-1] ** -0.5 if weight.dim() > 1 else 0.3)
        weight.copy_(draw)
    return module.double().eval()
