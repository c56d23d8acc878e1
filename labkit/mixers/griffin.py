"""GriffinBlock: the recurrent block of Griffin and RecurrentGemma (RecurrentGemmaRecurrentBlock in transformers).

    y, x = gelu(linear_y(input)), conv(linear_x(input))
    r_t, i_t = sigmoid(W_r x_t + b_r), sigmoid(W_i x_t + b_i)       block-diagonal, one block a head
    a_t = exp(-8 r_t softplus(recurrent_param))
    h_t = a_t h_{t-1} + sqrt(1 - a_t^2) i_t x_t                     a row's first token: h_t = i_t x_t
    output = linear_out(h * y)

| symbol | in code | shape |
|---|---|---|
| r, i | recurrent_gate, input_gate | (B, L, lru_width) |
| Lambda | rg_lru.recurrent_param | (lru_width,) |
| h | state.recurrent | (B, lru_width) |

A state that is started anew is replaced by zeros, never multiplied by zero: NaN * 0 is NaN.
Source: "Griffin", section 2.4 (transformers, models/recurrent_gemma).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..state import GriffinState, state_dtype
from .base import Mixer, activation, check_option, depthwise, real_columns
from .scan import linear_scan


class GriffinBlock(Mixer):
    """The recurrent block of Griffin.

    Args:
        hidden_size: channels of input and output.
        lru_width: channels of the recurrence; hidden_size unless given.
        num_attention_heads: blocks of the gates.
        conv1d_width: conv width K.
        hidden_activation: activation of the y branch.
    """

    state_class = GriffinState
    model_types = ("recurrent_gemma",)

    def __init__(self, *, hidden_size: int, lru_width: int | None = None, num_attention_heads: int = 1,
                 conv1d_width: int = 4, hidden_activation: str = "gelu_pytorch_tanh"):
        super().__init__()
        self.hidden_size, self.lru_width = hidden_size, lru_width or hidden_size
        self.act = activation(hidden_activation)
        self.linear_y = nn.Linear(hidden_size, self.lru_width)
        self.linear_x = nn.Linear(hidden_size, self.lru_width)
        self.linear_out = nn.Linear(self.lru_width, hidden_size)
        self.conv_1d = depthwise(self.lru_width, conv1d_width, bias=True)
        self.rg_lru = RGLRU(self.lru_width, num_attention_heads)

    def layout(self) -> dict:
        dtype = self.conv_1d.weight.dtype
        return {"conv": ((self.lru_width, self.conv_1d.kernel_size[0] - 1), dtype),
                "recurrent": ((self.lru_width,), state_dtype(dtype)), "seen": ((), torch.long)}

    def mix(self, x: Tensor, state: GriffinState, counts: Tensor | None) -> tuple[Tensor, GriffinState]:
        length, real = x.shape[1], real_columns(x, counts)
        y = self.act(self.linear_y(x))                                                  # (B, L, lru_width)
        x, window = self.convolve(self.conv_1d, self.linear_x(x), state.conv, counts)
        h, last = self.rg_lru(x, state.recurrent, state.seen == 0, real)                # (B, L, lru_width)
        seen = state.seen + (length if counts is None else counts)
        return self.linear_out(h.to(y.dtype) * y), GriffinState(window, last, seen)


class RGLRU(nn.Module):
    """The real-gated linear recurrent unit.

    Args:
        width: channels; heads: blocks of the gates.
    """

    def __init__(self, width: int, heads: int):
        super().__init__()
        check_option(width % heads == 0, f"lru_width {width} cannot be cut into {heads} blocks (num_attention_heads)")
        block = width // heads
        self.recurrent_param = nn.Parameter(torch.empty(width))
        self.input_gate_weight = nn.Parameter(torch.randn(heads, block, block) * block ** -0.5)
        self.input_gate_bias = nn.Parameter(torch.zeros(heads, block))
        self.recurrent_gate_weight = nn.Parameter(torch.randn(heads, block, block) * block ** -0.5)
        self.recurrent_gate_bias = nn.Parameter(torch.zeros(heads, block))
        with torch.no_grad():       # at r = 1, a^2 is even in [0.9^2, 0.999^2]
            square = torch.empty(width).uniform_(0.9 ** 2, 0.999 ** 2)
            self.recurrent_param.copy_(torch.log(torch.expm1(square.log() / -16)))

    def gate(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """sigmoid(W x + b) with block-diagonal W; x (B, L, width)."""
        blocks = x.unflatten(-1, bias.shape)                                            # (B, L, heads, block)
        return torch.sigmoid(torch.einsum("blhi,hij->blhj", blocks, weight) + bias).flatten(2)

    def forward(self, x: Tensor, h: Tensor, fresh: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        """All h_t (B, L, width) and the last; fresh (B,) marks rows whose first token comes now."""
        input_gate = self.gate(x, self.input_gate_weight, self.input_gate_bias)
        recurrent_gate = self.gate(x, self.recurrent_gate_weight, self.recurrent_gate_bias)
        decay = -8 * recurrent_gate.to(h.dtype) * F.softplus(self.recurrent_param.to(h.dtype))     # log a_t
        a = torch.exp(decay)                                                            # (B, L, width)
        strength = torch.sqrt((-torch.expm1(2 * decay)).clamp(min=torch.finfo(decay.dtype).tiny))
        u = (x * input_gate).to(h.dtype)
        first = fresh[:, None] & (torch.arange(x.shape[1], device=x.device) == 0)       # (B, L)
        a, u = torch.where(first[..., None], 0, a), torch.where(first[..., None], u, u * strength)
        h = torch.where(fresh[:, None], 0, h)
        if real is not None:
            a, u = torch.where(real[..., None], a, 1), torch.where(real[..., None], u, 0)
        return linear_scan(a, u, h)
