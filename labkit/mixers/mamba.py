"""Mamba: a selective state space, one small state per channel (MambaMixer in transformers).

    x, z     = in_proj(input)                   x = silu(conv(x))
    dt, B, C = x_proj(x)                        dt = softplus(dt_proj(dt)),  A = -exp(A_log)
    h_t      = exp(dt_t A) h_{t-1} + dt_t x_t B_t
    y_t      = C_t h_t + D x_t                  output = out_proj(y * silu(z))

| symbol | in code | shape |
|---|---|---|
| Delta | dt | (B, L, intermediate_size) |
| A | -exp(A_log) | (intermediate_size, N) |
| B, C | b, c | (B, L, N) |
| h | state.recurrent | (B, intermediate_size, N) |

Source: "Mamba", section 3.2, algorithm 2 (state-spaces/mamba; transformers, models/mamba).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..state import MambaState, state_dtype
from .base import Mixer, activation, depthwise, real_columns
from .scan import selective_scan


class MambaMixer(Mixer):
    """The mixer of Mamba.

    Args:
        hidden_size: channels of input and output.
        intermediate_size: channels inside; expand * hidden_size unless given.
        state_size: N.
        conv_kernel: conv width K.
        time_step_rank: rank of dt; hidden_size / 16, rounded up, unless given.
        use_bias, use_conv_bias: biases of the two outer projections, of the convolution.
        hidden_act: activation behind the convolution.
        time_step_min, time_step_max, time_step_floor: range of the first dt.
    """

    state_class = MambaState
    model_types = ("mamba",)

    def __init__(self, *, hidden_size: int, intermediate_size: int | None = None, expand: float = 2,
                 state_size: int = 16, conv_kernel: int = 4, time_step_rank: int | None = None, use_bias: bool = False,
                 use_conv_bias: bool = True, hidden_act: str = "silu", time_step_min: float = 0.001,
                 time_step_max: float = 0.1, time_step_floor: float = 1e-4):
        super().__init__()
        self.hidden_size, self.state_size = hidden_size, state_size
        self.intermediate_size = intermediate_size or int(expand * hidden_size)
        self.time_step_rank = time_step_rank or math.ceil(hidden_size / 16)
        self.act = activation(hidden_act)
        self.conv1d = depthwise(self.intermediate_size, conv_kernel, use_conv_bias)
        self.in_proj = nn.Linear(hidden_size, 2 * self.intermediate_size, bias=use_bias)
        self.x_proj = nn.Linear(self.intermediate_size, self.time_step_rank + 2 * state_size, bias=False)
        self.dt_proj = nn.Linear(self.time_step_rank, self.intermediate_size)
        self.A_log = nn.Parameter(torch.arange(1.0, state_size + 1).log().repeat(self.intermediate_size, 1))
        self.D = nn.Parameter(torch.ones(self.intermediate_size))
        self.out_proj = nn.Linear(self.intermediate_size, hidden_size, bias=use_bias)
        with torch.no_grad():
            self.dt_proj.bias.copy_(first_dt(self.intermediate_size, time_step_min, time_step_max, time_step_floor))

    def layout(self) -> dict:
        dtype = self.conv1d.weight.dtype
        return {"conv": ((self.intermediate_size, self.conv1d.kernel_size[0] - 1), dtype),
                "recurrent": ((self.intermediate_size, self.state_size), state_dtype(dtype))}

    def mix(self, x: Tensor, state: MambaState, counts: Tensor | None) -> tuple[Tensor, MambaState]:
        wide, real = state.recurrent.dtype, real_columns(x, counts)
        x, z = self.in_proj(x).chunk(2, dim=-1)                                         # (B, L, intermediate_size)
        x, window = self.convolve(self.conv1d, x, state.conv, counts)
        x = self.act(x)
        dt, b, c = self.x_proj(x).split([self.time_step_rank, self.state_size, self.state_size], dim=-1)
        dt = F.softplus(F.linear(dt, self.dt_proj.weight).to(wide) + self.dt_proj.bias.to(wide))
        dt = dt if real is None else torch.where(real[..., None], dt, 0)                # (B, L, intermediate_size)
        A = -torch.exp(self.A_log.to(wide))                                             # (intermediate_size, N)
        y, h = selective_scan(x.to(wide), dt, A, b.to(wide), c.to(wide), state.recurrent)
        y = (y + self.D.to(wide) * x) * F.silu(z.to(wide))                              # (B, L, intermediate_size)
        return self.out_proj(y.to(z.dtype)), MambaState(window, h)


def first_dt(size: int, low: float, high: float, floor: float, generator: torch.Generator | None = None) -> Tensor:
    """Biases (size,) whose softplus is spread evenly in the logarithm between low and high (Mamba, section 3.6)."""
    dt = torch.exp(torch.rand(size, generator=generator) * (math.log(high) - math.log(low)) + math.log(low)).clamp(min=floor)
    return dt + torch.log(-torch.expm1(-dt))
