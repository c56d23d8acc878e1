"""GatedDeltaNet: a key-value memory that forgets and corrects (Qwen3NextGatedDeltaNet in transformers).

    q, k, v, z, b, a = in_proj_qkvz(input), in_proj_ba(input)       q, k, v = silu(conv(q, k, v)), one convolution
    q, k   = q / |q| / sqrt(head_k_dim),  k / |k|
    beta   = sigmoid(b),  g = -exp(A_log) softplus(a + dt_bias)
    S_t    = exp(g_t) S_{t-1};  S_t += k_t (beta_t (v_t - S_t^T k_t))^T
    o_t    = S_t^T q_t                                              output = out_proj(norm(o) * silu(z)) per head

| symbol | in code | shape |
|---|---|---|
| q, k | q, k | (B, L, num_k_heads, head_k_dim) |
| v, z | v, z | (B, L, num_v_heads, head_v_dim) |
| beta, g | beta, g | (B, L, num_v_heads) |
| S | state.recurrent | (B, num_v_heads, head_k_dim, head_v_dim) |

Source: "Gated Delta Networks", sections 2 and 3 (fla-org/flash-linear-attention; transformers, models/qwen3_next).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..state import GatedDeltaState, state_dtype
from .base import Mixer, check_option, depthwise, real_columns
from .scan import gated_delta_scan


class GatedDeltaNet(Mixer):
    """The linear-attention mixer of Qwen3-Next.

    Args:
        hidden_size: channels of input and output.
        linear_num_key_heads, linear_num_value_heads: heads; value heads are a multiple of key heads.
        linear_key_head_dim, linear_value_head_dim: their sizes.
        linear_conv_kernel_dim: conv width K.
        rms_norm_eps: of the norm over each value head.
    """

    state_class = GatedDeltaState
    model_types = ("qwen3_next",)
    honours = {"hidden_act": ("silu", "swish")}

    def __init__(self, *, hidden_size: int, linear_num_key_heads: int = 16, linear_num_value_heads: int = 32,
                 linear_key_head_dim: int = 128, linear_value_head_dim: int = 128, linear_conv_kernel_dim: int = 4,
                 rms_norm_eps: float = 1e-6):
        super().__init__()
        check_option(linear_num_value_heads % linear_num_key_heads == 0, f"{linear_num_value_heads} value heads "
                     f"cannot be shared out to {linear_num_key_heads} key heads")
        self.hidden_size, self.eps = hidden_size, rms_norm_eps
        self.num_k_heads, self.num_v_heads = linear_num_key_heads, linear_num_value_heads
        self.head_k_dim, self.head_v_dim = linear_key_head_dim, linear_value_head_dim
        self.key_dim, self.value_dim = self.num_k_heads * self.head_k_dim, self.num_v_heads * self.head_v_dim
        self.conv1d = depthwise(2 * self.key_dim + self.value_dim, linear_conv_kernel_dim, bias=False)
        self.in_proj_qkvz = nn.Linear(hidden_size, 2 * (self.key_dim + self.value_dim), bias=False)
        self.in_proj_ba = nn.Linear(hidden_size, 2 * self.num_v_heads, bias=False)
        self.dt_bias = nn.Parameter(torch.ones(self.num_v_heads))
        self.A_log = nn.Parameter(torch.empty(self.num_v_heads).uniform_(0.01, 16).log())
        self.norm = nn.RMSNorm(self.head_v_dim, eps=rms_norm_eps)
        self.out_proj = nn.Linear(self.value_dim, hidden_size, bias=False)

    def layout(self) -> dict:
        dtype = self.conv1d.weight.dtype
        return {"conv": ((2 * self.key_dim + self.value_dim, self.conv1d.kernel_size[0] - 1), dtype),
                "recurrent": ((self.num_v_heads, self.head_k_dim, self.head_v_dim), state_dtype(dtype))}

    def mix(self, x: Tensor, state: GatedDeltaState, counts: Tensor | None) -> tuple[Tensor, GatedDeltaState]:
        wide, real = state.recurrent.dtype, real_columns(x, counts)
        ratio = self.num_v_heads // self.num_k_heads
        # the projections are laid out key head by key head: [q, k, v of its value heads, z of its value heads]
        qkvz = self.in_proj_qkvz(x).unflatten(-1, (self.num_k_heads, -1))
        q, k, v, z = qkvz.split([self.head_k_dim] * 2 + [ratio * self.head_v_dim] * 2, dim=-1)
        b, a = self.in_proj_ba(x).unflatten(-1, (self.num_k_heads, -1)).split([ratio] * 2, dim=-1)
        qkv = torch.cat([q.flatten(2), k.flatten(2), v.flatten(2)], dim=-1)             # (B, L, 2*key_dim + value_dim)
        qkv, window = self.convolve(self.conv1d, qkv, state.conv, counts)
        q, k, v = F.silu(qkv).to(wide).split([self.key_dim, self.key_dim, self.value_dim], dim=-1)
        q, k = q.unflatten(-1, (self.num_k_heads, -1)), k.unflatten(-1, (self.num_k_heads, -1))
        v = v.unflatten(-1, (self.num_v_heads, -1))                                     # (B, L, HV, DV)
        q, k = unit(q) * self.head_k_dim ** -0.5, unit(k)                               # (B, L, HK, DK)
        beta = torch.sigmoid(b.flatten(2).to(wide))                                     # (B, L, HV)
        g = -torch.exp(self.A_log.to(wide)) * F.softplus(a.flatten(2).to(wide) + self.dt_bias.to(wide))
        if real is not None:
            beta, g = torch.where(real[..., None], beta, 0), torch.where(real[..., None], g, 0)
        o, s = gated_delta_scan(q, k, v, g, beta, state.recurrent)                      # (B, L, HV, DV)
        o = F.rms_norm(o, o.shape[-1:], self.norm.weight.to(wide), self.eps)
        o = (o.flatten(2) * F.silu(z.flatten(2).to(wide))).to(x.dtype)                  # (B, L, value_dim)
        return self.out_proj(o), GatedDeltaState(window, s)


def unit(x: Tensor) -> Tensor:
    """x at length 1 along its last axis; 1e-6 under the root, as in the kernels of this family."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)
