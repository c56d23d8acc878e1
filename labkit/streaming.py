"""A streaming transformer in the manner of Mimi: frames in, frames out, any number at a time, without end.

    frames -> causal convolution with stride -> transformer over a bounded context -> its transpose -> frames

All that a stream carries is one frozen `StreamState`. `step` makes a new one and puts it in place at its end, `reset`
drops it, `copy_state` copies it as a whole: no field can be forgotten. There is one clock, and positions are computed
from it, never read from a table that ends.

| symbol | in code | shape |
|---|---|---|
| frames | x | (B, channels, L) |
| ring | state.rings[i], slot p % context holds the token at position p | (B, heads, context, head_dim) |
| clock | state.clock, tokens that the transformer has seen | int |

Source: the structure follows Mimi (huggingface/candle, models/mimi; kyutai-labs/moshi).
"""

from dataclasses import dataclass, fields, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cachefile import digest
from .errors import BatchError, ConfigError, DepthError, DeviceError, DtypeError, FingerprintError
from .mixers.attention import rotate


@dataclass(frozen=True, eq=False)
class Ring:
    """Keys and values of the last `context` tokens; a write makes a new ring."""

    keys: Tensor        # (B, heads, context, head_dim)
    values: Tensor      # (B, heads, context, head_dim)

    def positions(self, clock: int) -> Tensor:
        """The position in each slot when `clock` tokens have been written, (context,); below 0: never written."""
        slot, size = torch.arange(self.keys.shape[2], device=self.keys.device), self.keys.shape[2]
        return clock - 1 - (clock - 1 - slot) % size

    def write(self, k: Tensor, v: Tensor, clock: int) -> "Ring":
        """The ring after tokens clock, clock+1, …; k and v (B, heads, L, head_dim)."""
        size, length = self.keys.shape[2], k.shape[2]
        keep = min(length, size)                                            # of a long chunk only the end stays
        slots = torch.arange(clock + length - keep, clock + length, device=k.device) % size
        return Ring(self.keys.index_copy(2, slots, k[:, :, length - keep:]),
                    self.values.index_copy(2, slots, v[:, :, length - keep:]))


@dataclass(frozen=True, eq=False)
class StreamState:
    """Everything that one stream carries from step to step."""

    clock: int                  # tokens that the transformer has seen
    down: Tensor                # (B, channels, n) frames that the strided convolution still needs
    rings: tuple[Ring, ...]     # one per layer
    up: Tensor                  # (B, channels, kernel-stride) what earlier tokens add to the next frames

    def copy(self) -> "StreamState":
        """The same values in storage of their own."""
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        return StreamState(**{name: value if isinstance(value, int) else
                              value.clone() if isinstance(value, Tensor) else
                              tuple(Ring(ring.keys.clone(), ring.values.clone()) for ring in value)
                              for name, value in parts.items()})


class StreamingTransformer(nn.Module):
    """Encoder convolution, transformer and decoder convolution over one stream per row.

    Args:
        channels: of the frames.
        hidden_size: of the transformer.
        num_layers, num_heads: of the transformer.
        context: how many tokens a query sees, itself included.
        positions: "rotary", "sin" (added to the input) or "none".
        stride, kernel: of both convolutions; a token stands for `stride` frames.
        theta: base of the positions.

    Example:
        >>> stream = StreamingTransformer(channels=2, hidden_size=8, num_layers=2, num_heads=2, context=4)
        >>> x = torch.ones(1, 2, 12)
        >>> whole = stream(x)
        >>> parts = [stream.step(piece) for piece in x.split([5, 1, 0, 6], dim=2)]
        >>> torch.allclose(torch.cat(parts, 2), whole, atol=1e-6)
        True
    """

    def __init__(self, *, channels: int, hidden_size: int, num_layers: int, num_heads: int, context: int,
                 positions: str = "rotary", stride: int = 2, kernel: int = 4, theta: float = 10000.0):
        super().__init__()
        if positions not in ("rotary", "sin", "none"):
            raise ConfigError(f"positions={positions!r} was asked for; there are 'rotary', 'sin' and 'none'")
        if hidden_size % (2 * num_heads):
            raise ConfigError(f"hidden_size {hidden_size} cannot be cut into {num_heads} heads of even size")
        if not 1 <= stride <= kernel or context < 1:
            raise ConfigError(f"stride {stride}, kernel {kernel}, context {context}: the kernel is at least the "
                              "stride, both and the context are 1 or more")
        self.channels, self.context, self.positions, self.theta = channels, context, positions, theta
        self.stride, self.kernel, self.num_heads, self.hidden_size = stride, kernel, num_heads, hidden_size
        self.down = nn.Conv1d(channels, hidden_size, kernel, stride)
        self.layers = nn.ModuleList(StreamingLayer(self) for _ in range(num_layers))
        self.up = nn.ConvTranspose1d(hidden_size, channels, kernel, stride)
        self.state: StreamState | None = None

    def start(self, batch: int) -> StreamState:
        """The state of `batch` streams that have seen nothing: as many zero frames as make the convolution causal."""
        zeros = self.down.weight.new_zeros
        head = self.hidden_size // self.num_heads
        ring = Ring(zeros(batch, self.num_heads, self.context, head), zeros(batch, self.num_heads, self.context, head))
        overlap = self.kernel - self.stride
        return StreamState(0, zeros(batch, self.channels, overlap), (ring,) * len(self.layers),
                           zeros(batch, self.channels, overlap))

    def advance(self, x: Tensor, state: StreamState) -> tuple[Tensor, StreamState]:
        """Outputs (B, channels, stride * new tokens) for new frames, and the next state; a pure function."""
        u = torch.cat([state.down, x], dim=2)
        tokens = max(0, (u.shape[2] - self.kernel) // self.stride + 1)      # tokens that are complete by now
        rest = u[:, :, tokens * self.stride:].clone()
        if not tokens:
            return x[:, :, :0], replace(state, down=rest)
        h = self.down(u[:, :, :(tokens - 1) * self.stride + self.kernel]).mT            # (B, tokens, hidden_size)
        if self.positions == "sin":
            h = h + torch.cat(self.angles(state.clock, tokens, self.hidden_size, h), -1)
        rings = []
        for layer, ring in zip(self.layers, state.rings):
            h, ring = layer(h, ring, state.clock)
            rings.append(ring)
        y = F.conv_transpose1d(h.mT, self.up.weight, None, self.stride)     # (B, channels, stride*tokens + overlap)
        overlap, ready = state.up.shape[2], tokens * self.stride
        y = y + F.pad(state.up, (0, y.shape[2] - overlap))
        new = StreamState(state.clock + tokens, rest, tuple(rings), y[:, :, ready:].clone())
        return y[:, :, :ready] + self.up.bias[:, None], new

    def angles(self, clock: int, length: int, dim: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine of positions clock, clock+1, …, (length, dim/2) each, computed in float64."""
        turn = self.theta ** (-torch.arange(0, dim, 2, device=like.device, dtype=torch.float64) / dim)
        angle = torch.arange(clock, clock + length, device=like.device, dtype=torch.float64)[:, None] * turn
        return angle.cos().to(like.dtype), angle.sin().to(like.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """All outputs of a whole sequence (B, channels, L) at once; the stream is neither read nor moved."""
        self._check(x, None)
        return self.advance(x, self.start(x.shape[0]))[0]

    def step(self, x: Tensor) -> Tensor:
        """Outputs for the next frames (B, channels, L); L may be 0. A step that raises moves nothing.

        Raises:
            BatchError, DtypeError, DeviceError: x does not fit the stream or the weights.
        """
        self._check(x, self.state)
        y, self.state = self.advance(x, self.state or self.start(x.shape[0]))
        return y

    def reset(self) -> None:
        """A new stream; the number of rows is open again."""
        self.state = None

    def copy_state(self, source: "StreamingTransformer") -> None:
        """Go on exactly as `source` would; nothing is shared afterwards.

        Raises:
            DepthError, FingerprintError, DeviceError: the state of `source` means nothing to this model; nothing moves.
        """
        if len(self.layers) != len(source.layers):
            raise DepthError(f"the source has {len(source.layers)} layers, this model {len(self.layers)}; a state "
                             "belongs to one depth. Feed the frames again")
        if self.down.weight.device != source.down.weight.device:
            raise DeviceError(f"the source is on {source.down.weight.device}, this model on {self.down.weight.device}; "
                              "move one of them with .to(device)")
        if self.fingerprint() != source.fingerprint():
            raise FingerprintError("the source has other weights, sizes or options than this model; its state means "
                                   "nothing here. Load the same weights, or feed the frames again")
        self.state = None if source.state is None else source.state.copy()

    def fingerprint(self) -> str:
        """A hash of kinds, options, shapes and weights."""
        options = (type(self).__name__, self.context, self.positions, self.theta, self.stride, self.num_heads)
        return digest(repr(options), self.state_dict())

    def _check(self, x: Tensor, state: StreamState | None) -> None:
        weight = self.down.weight
        if x.dim() != 3 or x.shape[1] != self.channels:
            raise BatchError(f"frames are {tuple(x.shape)}, they must be (batch, {self.channels}, frames)")
        if x.device != weight.device:
            raise DeviceError(f"frames are on {x.device}, the weights on {weight.device}; move one of them")
        if x.dtype != weight.dtype:
            raise DtypeError(f"frames are {x.dtype}, the weights {weight.dtype}; cast one of them")
        if state is not None and (state.down.shape[0], state.down.dtype, state.down.device) != (
                x.shape[0], x.dtype, x.device):
            raise BatchError(f"the stream has {state.down.shape[0]} rows of {state.down.dtype} on {state.down.device}, "
                             f"the frames {x.shape[0]} rows of {x.dtype} on {x.device}; reset() starts a new stream")


class StreamingLayer(nn.Module):
    """Attention over the ring and an MLP, each behind a norm and beside a residual.

    Args:
        model: the transformer that it is part of, for its sizes.
    """

    def __init__(self, model: StreamingTransformer):
        super().__init__()
        size = model.hidden_size
        self.num_heads, self.context = model.num_heads, model.context
        self.angles = model.angles if model.positions == "rotary" else None
        self.attention_norm, self.mlp_norm = nn.LayerNorm(size), nn.LayerNorm(size)
        self.in_proj, self.out_proj = nn.Linear(size, 3 * size, bias=False), nn.Linear(size, size, bias=False)
        self.mlp = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))

    def forward(self, x: Tensor, ring: Ring, clock: int) -> tuple[Tensor, Ring]:
        """x (B, L, hidden_size) at positions clock, clock+1, …; returns the same shape, and the next ring."""
        length = x.shape[1]
        q, k, v = self.in_proj(self.attention_norm(x)).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        if self.angles is not None:
            cos, sin = (part.repeat(1, 2) for part in self.angles(clock, length, q.shape[-1], q))
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)                     # (B, heads, L, head_dim)
        query = torch.arange(clock, clock + length, device=x.device)
        at = torch.cat([ring.positions(clock), query])                          # (context + L,)
        sees = (at >= 0) & (at <= query[:, None]) & (at > query[:, None] - self.context)
        y = F.scaled_dot_product_attention(q, torch.cat([ring.keys, k], 2), torch.cat([ring.values, v], 2), sees)
        x = x + self.out_proj(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.mlp_norm(x)), ring.write(k, v, clock)
