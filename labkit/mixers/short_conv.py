"""ShortConv: a gated short convolution, the smallest mixer with a state (Lfm2ShortConv in transformers).

    b, c, x = in_proj(input)
    y       = out_proj(c * conv(b * x))

| symbol | in code | shape |
|---|---|---|
| b, c, x | b, c, x | (B, L, hidden_size) |
| window | state.conv, holds b * x | (B, hidden_size, K-1) |

Source: LFM2 (transformers, models/lfm2).
"""

from torch import Tensor, nn

from ..state import ShortConvState
from .base import Mixer, depthwise


class ShortConv(Mixer):
    """A gated causal convolution.

    Args:
        hidden_size: channels.
        conv_L_cache: conv width K.
        conv_bias: biases in the convolution and both projections.
    """

    state_class = ShortConvState
    model_types = ("lfm2", "lfm2_moe")

    def __init__(self, *, hidden_size: int, conv_L_cache: int = 3, conv_bias: bool = False):
        super().__init__()
        self.hidden_size = hidden_size
        self.conv = depthwise(hidden_size, conv_L_cache, conv_bias)
        self.in_proj = nn.Linear(hidden_size, 3 * hidden_size, bias=conv_bias)
        self.out_proj = nn.Linear(hidden_size, hidden_size, bias=conv_bias)

    def layout(self) -> dict:
        return {"conv": ((self.hidden_size, self.conv.kernel_size[0] - 1), self.conv.weight.dtype)}

    def mix(self, x: Tensor, state: ShortConvState, counts: Tensor | None) -> tuple[Tensor, ShortConvState]:
        b, c, x = self.in_proj(x).chunk(3, dim=-1)                                                  # (B, L, hidden_size)
        y, window = self.convolve(self.conv, b * x, state.conv, counts)
        return self.out_proj(c * y), ShortConvState(window)
