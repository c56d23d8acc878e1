"""Mamba2: a state space with one decay per head and a matrix state (Mamba2Mixer in transformers).

    z, (x, B, C), dt = in_proj(input)           (x, B, C) = silu(conv(x, B, C)), all in one convolution
    dt  = clamp(softplus(dt + dt_bias), time_step_limit),  A = -exp(A_log)
    h_t = exp(dt_t A) h_{t-1} + dt_t x_t B_t^T
    y_t = h_t C_t + D x_t                       output = out_proj(norm(y * silu(z))), RMS norm per group

| symbol | in code | shape |
|---|---|---|
| Delta | dt | (B, L, num_heads) |
| A | -exp(A_log) | (num_heads,) |
| B, C | b, c | (B, L, n_groups, N) |
| h | state.recurrent | (B, num_heads, head_dim, N) |

Source: "Transformers are SSMs", sections 6 and 7 (state-spaces/mamba; transformers, models/mamba2).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..state import Mamba2State, state_dtype
from .base import Mixer, activation, check_option, depthwise, real_columns
from .mamba import first_dt
from .scan import ssd_scan


class Mamba2Mixer(Mixer):
    """The mixer of Mamba2.

    Args:
        hidden_size: channels of input and output.
        num_heads, head_dim: heads; num_heads * head_dim is expand * hidden_size.
        state_size: N.
        n_groups: groups of heads that share B, C and the norm.
        conv_kernel: conv width K.
        use_bias, use_conv_bias: biases of the two projections, of the convolution.
        hidden_act: activation behind the convolution.
        layer_norm_epsilon: of the gated norm.
        time_step_limit: (low, high) of dt, at every call.
        time_step_min, time_step_max, time_step_floor: range of the first dt.
    """

    state_class = Mamba2State
    model_types = ("mamba2",)

    def __init__(self, *, hidden_size: int, num_heads: int | None = None, head_dim: int = 64, expand: float = 2,
                 state_size: int = 128, n_groups: int = 1, conv_kernel: int = 4, use_bias: bool = False,
                 use_conv_bias: bool = True, hidden_act: str = "silu", layer_norm_epsilon: float = 1e-5,
                 time_step_limit: tuple[float, float] = (0.0, float("inf")), time_step_min: float = 0.001,
                 time_step_max: float = 0.1, time_step_floor: float = 1e-4):
        super().__init__()
        inner = int(expand * hidden_size)
        num_heads = num_heads or inner // head_dim
        check_option(num_heads * head_dim == inner, f"{num_heads} heads of {head_dim} do not make up "
                     f"expand * hidden_size = {inner}")
        check_option(num_heads % n_groups == 0, f"{num_heads} heads cannot be shared out to {n_groups} groups")
        self.hidden_size, self.intermediate_size, self.state_size = hidden_size, inner, state_size
        self.num_heads, self.head_dim, self.n_groups = num_heads, head_dim, n_groups
        self.time_step_limit = tuple(float(limit) for limit in time_step_limit)
        self.act = activation(hidden_act)
        self.conv_dim = inner + 2 * n_groups * state_size
        self.conv1d = depthwise(self.conv_dim, conv_kernel, use_conv_bias)
        self.in_proj = nn.Linear(hidden_size, inner + self.conv_dim + num_heads, bias=use_bias)
        self.dt_bias = nn.Parameter(first_dt(num_heads, time_step_min, time_step_max, time_step_floor))
        self.A_log = nn.Parameter(torch.arange(1.0, num_heads + 1).log())
        self.D = nn.Parameter(torch.ones(num_heads))
        self.norm = GatedGroupNorm(inner, n_groups, layer_norm_epsilon)
        self.out_proj = nn.Linear(inner, hidden_size, bias=use_bias)

    def layout(self) -> dict:
        dtype = self.conv1d.weight.dtype
        return {"conv": ((self.conv_dim, self.conv1d.kernel_size[0] - 1), dtype),
                "recurrent": ((self.num_heads, self.head_dim, self.state_size), state_dtype(dtype))}

    def mix(self, x: Tensor, state: Mamba2State, counts: Tensor | None) -> tuple[Tensor, Mamba2State]:
        batch, length = x.shape[:2]
        wide, real = state.recurrent.dtype, real_columns(x, counts)
        z, xbc, dt = self.in_proj(x).split([self.intermediate_size, self.conv_dim, self.num_heads], dim=-1)
        xbc, window = self.convolve(self.conv1d, xbc, state.conv, counts)
        groups = self.n_groups * self.state_size
        x, b, c = self.act(xbc).to(wide).split([self.intermediate_size, groups, groups], dim=-1)
        x = x.reshape(batch, length, self.num_heads, self.head_dim)                     # (B, L, H, P)
        b = b.reshape(batch, length, self.n_groups, self.state_size)                    # (B, L, G, N)
        c = c.reshape(batch, length, self.n_groups, self.state_size)
        dt = self.step_size(dt.to(wide))                                                # (B, L, H)
        dt = dt if real is None else torch.where(real[..., None], dt, 0)
        y, h = self.scan(x, dt, b, c, state.recurrent)                                  # (B, L, H, P)
        y = torch.addcmul(y, x, self.D.to(wide)[:, None]).flatten(2)                    # (B, L, intermediate_size)
        return self.out_proj(self.norm(y, z).to(z.dtype)), Mamba2State(window, h)

    def step_size(self, dt: Tensor) -> Tensor:
        """Delta from its projection, (B, L, H)."""
        return F.softplus(dt + self.dt_bias.to(dt.dtype)).clamp(*self.time_step_limit)

    def scan(self, x: Tensor, dt: Tensor, b: Tensor, c: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """The recurrence from h on: y (B, L, H, P) and the last h."""
        return ssd_scan(x, dt, -torch.exp(self.A_log.to(h.dtype)), b, c, h)


class GatedGroupNorm(nn.Module):
    """Gate first, then RMS norm over each group of channels.

    Args:
        size: channels; groups: how many groups they form; eps: added to the mean square.
    """

    def __init__(self, size: int, groups: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.groups, self.eps = groups, eps

    def forward(self, y: Tensor, gate: Tensor) -> Tensor:
        """y (…, size) in at least float32, gate (…, size); returns (…, size) in y's dtype."""
        y = (y * F.silu(gate.to(y.dtype))).unflatten(-1, (self.groups, -1))             # (…, G, size/G)
        y = F.rms_norm(y, y.shape[-1:], eps=self.eps).flatten(-2)
        return y * self.weight.to(y.dtype)
