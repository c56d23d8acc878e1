"""Attention: causal, with grouped heads, rotary positions or none, a sliding window or none (LlamaAttention).

    q, k = rotate(q_proj(input), position), rotate(k_proj(input), position)
    y_t  = softmax(q_t K^T / sqrt(head_dim)) V         over keys at positions (t - sliding_window, t]
    output = o_proj(y)

| symbol | in code | shape |
|---|---|---|
| q | q | (B, num_attention_heads, L, head_dim) |
| K, V | state.keys, state.values | (B, num_key_value_heads, T, head_dim) |
| position | seen + 0, 1, … | (B, L): the count of real tokens before it in its row |

Positions come from the state's own count, never from the caller, and the angles are computed, not read from a
table that ends.
Source: "RoFormer", section 3.2; transformers, models/llama, models/mistral, models/smollm3.
"""

import functools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import ConfigError
from ..keyvalues import AttentionState
from ..state import state_dtype
from .base import Mixer, check_config, check_option


class Attention(Mixer):
    """Self-attention over everything the row has seen, or over a sliding window of it.

    Args:
        hidden_size: channels of input and output.
        num_attention_heads: query heads.
        num_key_value_heads: key and value heads, shared by groups of query heads; as many unless given.
        head_dim: size of a head; hidden_size / num_attention_heads unless given.
        attention_bias: biases in all four projections.
        rope_theta: base of the rotary positions; None: this layer has no positions.
        sliding_window: how many tokens a query sees, itself included; None: all.
    """

    state_class = AttentionState
    model_types = ("llama", "mistral", "smollm3")
    honours = {"attention_dropout": (0.0,)}

    def __init__(self, *, hidden_size: int, num_attention_heads: int, num_key_value_heads: int | None = None,
                 head_dim: int | None = None, attention_bias: bool = False, rope_theta: float | None = 10000.0,
                 sliding_window: int | None = None):
        super().__init__()
        self.hidden_size, self.num_heads = hidden_size, num_attention_heads
        self.num_kv_heads = num_key_value_heads or num_attention_heads
        self.head_dim = head_dim or hidden_size // num_attention_heads
        self.rope_theta, self.sliding_window = rope_theta, sliding_window
        check_option(self.num_heads % self.num_kv_heads == 0, f"{self.num_heads} query heads cannot share "
                     f"{self.num_kv_heads} key/value heads")
        check_option(rope_theta is None or self.head_dim % 2 == 0, f"head_dim {self.head_dim} is odd; rotary "
                     "positions turn pairs")
        check_option(sliding_window is None or sliding_window >= 1, f"a sliding window of {sliding_window} was asked "
                     "for; it is 1 or more, or None")
        self.q_proj = nn.Linear(hidden_size, self.num_heads * self.head_dim, bias=attention_bias)
        self.k_proj = nn.Linear(hidden_size, self.num_kv_heads * self.head_dim, bias=attention_bias)
        self.v_proj = nn.Linear(hidden_size, self.num_kv_heads * self.head_dim, bias=attention_bias)
        self.o_proj = nn.Linear(self.num_heads * self.head_dim, hidden_size, bias=attention_bias)

    @classmethod
    def from_config(cls, config, layer_idx: int = 0) -> "Attention":
        """A layer of the shape that a transformers Llama, Mistral or SmolLM3 config describes, with new weights."""
        check_config(config, cls)
        rope = dict(config.rope_parameters)
        if rope.get("rope_type", "default") != "default" or rope.get("partial_rotary_factor", 1.0) != 1.0:
            raise ConfigError(f"Attention does not honour rope_parameters={rope}; it knows rope_type 'default' over "
                              "the whole head")
        rotary = getattr(config, "no_rope_layers", None)                        # SmolLM3: 0 marks a layer without
        kinds = getattr(config, "layer_types", None)
        slides = kinds[layer_idx] == "sliding_attention" if kinds else getattr(config, "use_sliding_window", True)
        window = getattr(config, "sliding_window", None) if slides else None
        return cls(hidden_size=config.hidden_size, num_attention_heads=config.num_attention_heads,
                   num_key_value_heads=config.num_key_value_heads, head_dim=getattr(config, "head_dim", None),
                   attention_bias=getattr(config, "attention_bias", False), sliding_window=window,
                   rope_theta=None if rotary is not None and not rotary[layer_idx] else rope["rope_theta"])

    def layout(self) -> dict:
        one = ((self.num_kv_heads, self.head_dim), self.k_proj.weight.dtype)            # per held token
        return {"keys": one, "values": one, "first": ((), torch.long), "seen": ((), torch.long)}

    def sizes(self, field: str, value: Tensor) -> tuple[int, ...]:
        return (value.shape[1], value.shape[3]) if field in ("keys", "values") else super().sizes(field, value)

    def start(self, batch: int) -> AttentionState:
        return AttentionState.empty(batch, self.num_kv_heads, self.head_dim, self.k_proj.weight, self.sliding_window)

    def mix(self, x: Tensor, state: AttentionState, counts: Tensor | None) -> tuple[Tensor, AttentionState]:
        length = x.shape[1]
        q, k, v = (proj(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)           # (B, heads, L, head_dim)
                   for proj in (self.q_proj, self.k_proj, self.v_proj))
        position = self.positions(state, length)                                        # (B, L)
        if self.rope_theta is not None:
            cos, sin = angles(position, self.head_dim, self.rope_theta, x.dtype)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        held = state.append(k, v, counts)
        keys, values, seen_mask = self.visible(held, position, counts is not None)
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=seen_mask, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).flatten(2)), held.bounded()

    def positions(self, state: AttentionState, length: int) -> Tensor:
        """Where the new tokens stand in their rows, (B, L)."""
        return state.seen[:, None] + torch.arange(length, device=state.seen.device)

    def visible(self, held: AttentionState, position: Tensor, padded: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys, values and the mask of what each query sees, (B or 1, 1, L, T) bool; None: everything."""
        keys, values, window, length = held.keys, held.values, self.sliding_window, position.shape[1]
        if padded or held.count is None:                                                # each row has its own positions
            at = held.first[:, None] + torch.arange(keys.shape[2], device=keys.device)  # (B, T)
            used = (at < held.seen[:, None])[:, None, :, None]                          # (B, 1, T, 1)
            keys, values = torch.where(used, keys, 0), torch.where(used, values, 0)
            query = torch.minimum(position, held.seen[:, None] - 1).clamp(min=0)        # padding repeats the last one
        else:
            if length == 1 and (window is None or held.count <= window):
                return keys, values, None
            at = torch.arange(held.count, device=keys.device)[None]                     # (1, T)
            query = torch.arange(held.count - length, held.count, device=keys.device)[None]
        behind = query[:, :, None] - at[:, None]                                        # (B or 1, L, T)
        sees = (behind >= 0) if window is None else (behind >= 0) & (behind < window)
        return keys, values, sees[:, None]


def angles(position: Tensor, dim: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosine and sine of each position's turn, (B, 1, L, dim), computed in at least float32."""
    wide = state_dtype(dtype)
    angle = (position[..., None].to(wide) * turns(dim, theta, wide, position.device)).repeat(1, 1, 2)[:, None]
    return angle.cos().to(dtype), angle.sin().to(dtype)


@functools.cache
def turns(dim: int, theta: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Each pair's angle per position, (dim/2,)."""
    with torch.inference_mode(False):
        return theta ** (-torch.arange(0, dim, 2, device=device, dtype=dtype) / dim)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (x_i, x_{i+dim/2}) by its angle; x (B, heads, L, dim)."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-high, low], dim=-1) * sin
