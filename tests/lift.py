"""Float64 all the way through a library that casts to float32 inside."""

import torch
from torch.overrides import TorchFunctionMode


class Float64(TorchFunctionMode):
    """Within this mode `.float()` and every dtype argument float32 mean float64."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        def lift(value):
            return torch.float64 if value is torch.float32 else value
        return func(*map(lift, args), **{name: lift(value) for name, value in (kwargs or {}).items()})
