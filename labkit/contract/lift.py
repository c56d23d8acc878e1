"""Float64 all the way through a library that casts to lower precision inside."""

import torch
from torch.overrides import TorchFunctionMode


class Float64(TorchFunctionMode):
    """Within this mode `.float()` and every floating dtype argument mean float64."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (torch.Tensor.float, torch.Tensor.bfloat16, torch.Tensor.half):
            func = torch.Tensor.double

        def lift(value):
            return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value
        return func(*map(lift, args), **{name: lift(value) for name, value in (kwargs or {}).items()})
