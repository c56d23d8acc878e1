"""Float64 all the way through a library that casts to lower precision inside."""

import torch
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
