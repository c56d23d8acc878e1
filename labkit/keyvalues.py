"""Keys and values that grow: one buffer, many readers, no reader ever sees a slot change.

A state is a window onto a buffer that doubles when it is full. Appending writes behind the last slot that any
living reader holds; where another reader could see the write (a fork went on, a checkpoint lies further on),
the buffer is copied first. Slots are compact: slot j of row b holds that row's token number first[b] + j,
whatever padding stood between. Where gradients are recorded, append concatenates and writes nothing.
"""

import weakref
from dataclasses import dataclass, field, fields

import torch
import torch.nn.functional as F
from torch import Tensor

from .errors import BatchError, RewindError
from .state import STATES, State

SMALLEST = 16           # slots of a new buffer


class Buffer:
    """Storage for keys and values, (B, num_kv_heads, capacity, D) each, and who reads it."""

    def __init__(self, keys: Tensor, values: Tensor):
        self.keys, self.values = keys, values
        self.written = 0                # slots that were ever written in any row; behind them nobody reads
        self.readers = weakref.WeakSet()

    @property
    def capacity(self) -> int:
        return self.keys.shape[2]

    def free_behind(self, reader: "AttentionState") -> bool:
        """True where no living reader but this one holds a slot behind its last token."""
        if reader.count == self.written:
            return True
        for other in self.readers:
            if other is reader:
                continue
            if other.count is not None and reader.count is not None:
                if other.count > reader.count:
                    return False
            elif bool((other.seen - other.first > reader.seen - reader.first).any()):
                return False
        return True


@dataclass(frozen=True, eq=False)
class AttentionState(State):
    """Keys and values of each row's real tokens, oldest first."""

    keys: Tensor        # (B, num_kv_heads, T, D), already rotated where the layer has rotary positions
    values: Tensor      # (B, num_kv_heads, T, D)
    first: Tensor       # (B,) int64: the position of slot 0, above 0 once a sliding window has let go of older keys
    seen: Tensor        # (B,) int64: real tokens of each row; slots from seen - first on are unused
    window: int | None = None       # the layer's sliding window: how many tokens a query sees, itself included
    count: int | None = field(default=None, repr=False)             # seen - first where all rows agree, else None
    buffer: Buffer | None = field(default=None, repr=False)

    def __post_init__(self):
        if self.buffer is not None:
            self.buffer.readers.add(self)

    @staticmethod
    def build(keys: Tensor, values: Tensor, first: Tensor, seen: Tensor, window: int | None = None) -> "AttentionState":
        """A state from its parts."""
        return AttentionState(keys, values, first, seen, window, common(seen - first))

    @staticmethod
    def empty(batch: int, heads: int, dim: int, like: Tensor, window: int | None = None) -> "AttentionState":
        """Nothing seen yet, in the dtype and on the device of `like`."""
        keys, zero = like.new_zeros(batch, heads, 0, dim), torch.zeros(batch, dtype=torch.long, device=like.device)
        return AttentionState(keys, keys.clone(), zero, zero, window, count=0)

    def tensors(self) -> dict[str, Tensor]:
        return {f.name: getattr(self, f.name) for f in fields(self)[:4]}

    def map(self, change) -> "AttentionState":
        return self.build(**{name: change(name, value) for name, value in self.tensors().items()}, window=self.window)

    def append(self, k: Tensor, v: Tensor, counts: Tensor | None = None) -> "AttentionState":
        """The state after new tokens; this one keeps its values.

        Args:
            k, v: (B, num_kv_heads, L, D).
            counts: (B,) how many of the L tokens are real, first ones first; None: all.

        Raises:
            BatchError: k and v do not fit the keys that are held.
        """
        held = self.keys.shape
        if k.shape != v.shape or k.shape[:2] != held[:2] or k.shape[3] != held[3]:
            raise BatchError(f"keys {tuple(k.shape)} and values {tuple(v.shape)} were given, but this state holds "
                             f"{tuple(held)} (batch, heads, tokens, head_dim); continue each batch with its own state")
        length, base = k.shape[2], self._slide(k.shape[2])
        seen = self.seen + (length if counts is None else counts)
        if base.count is None or counts is not None:
            return base._append_ragged(k, v, counts, seen)
        stop = base.count + length
        if torch.is_grad_enabled() and (k.requires_grad or v.requires_grad or base.keys.requires_grad):
            return AttentionState(torch.cat([base.keys, k], 2), torch.cat([base.values, v], 2), base.first, seen,
                                  self.window, stop)
        buffer = base._writable(stop)
        buffer.keys.narrow(2, base.count, length).copy_(k)
        buffer.values.narrow(2, base.count, length).copy_(v)
        buffer.written = stop
        return AttentionState(buffer.keys.narrow(2, 0, stop), buffer.values.narrow(2, 0, stop), base.first, seen,
                              self.window, stop, buffer)

    def _append_ragged(self, k, v, counts, seen) -> "AttentionState":
        """Append where rows hold, or get, different numbers of tokens: each row behind its own last one."""
        length = k.shape[2]
        held = self.seen - self.first                                                   # (B,)
        stop = int((seen - self.first).max())
        column = torch.arange(length, device=k.device)                                  # (L,)
        real = (column < (length if counts is None else counts[:, None])).expand(len(held), length)
        row, column = real.nonzero(as_tuple=True)                                       # (tokens,)
        at = (row, slice(None), held[row] + column)
        new_k, new_v = k.transpose(1, 2)[row, column], v.transpose(1, 2)[row, column]   # (tokens, heads, D)
        if torch.is_grad_enabled() and (k.requires_grad or v.requires_grad or self.keys.requires_grad):
            room = (0, 0, 0, max(0, stop - self.keys.shape[2]))
            keys, values = F.pad(self.keys, room).clone(), F.pad(self.values, room).clone()
            keys[at], values[at] = new_k, new_v
            return self.build(keys, values, self.first, seen, self.window)
        buffer = self._writable(stop)
        buffer.keys[at], buffer.values[at] = new_k, new_v
        buffer.written = max(buffer.written, stop)
        return AttentionState(buffer.keys[:, :, :stop], buffer.values[:, :, :stop], self.first, seen, self.window,
                              common(seen - self.first), buffer)

    def _writable(self, stop: int) -> Buffer:
        """A buffer with this state's values and room up to slot `stop` that nobody else reads there."""
        old = self.buffer
        if (old is not None and stop <= old.keys.shape[2] and old.free_behind(self)
                and not (old.keys.is_inference() and not torch.is_inference_mode_enabled())):
            return old
        held = self.keys.shape[2]
        capacity = max(SMALLEST, stop if old is None or stop <= old.capacity else 2 * stop)
        capacity = capacity if old is None else max(capacity, old.capacity)
        batch, heads, _, dim = self.keys.shape
        new = Buffer(self.keys.new_zeros(batch, heads, capacity, dim), self.values.new_zeros(batch, heads, capacity, dim))
        new.keys[:, :, :held], new.values[:, :, :held] = self.keys.detach(), self.values.detach()
        return new

    def _slide(self, length: int) -> "AttentionState":
        """Before `length` new tokens: let go of keys that no later query sees, once two windows are full."""
        held, window = self.keys.shape[2], self.window
        if window is None or held + length <= 2 * window or held < window:
            return self
        return self._last(window - 1)

    def _last(self, keep: int) -> "AttentionState":
        """Each row's last `keep` tokens at most, in storage of their own."""
        held = self.seen - self.first                                                   # (B,)
        drop = (held - keep).clamp(min=0)                                               # (B,)
        slots = min(keep, self.keys.shape[2])
        at = (drop[:, None] + torch.arange(slots, device=drop.device)).clamp(max=max(self.keys.shape[2] - 1, 0))
        at = at[:, None, :, None].expand(-1, self.keys.shape[1], -1, self.keys.shape[3])    # (B, heads, slots, D)
        return self.build(self.keys.gather(2, at), self.values.gather(2, at), self.first + drop, self.seen, self.window)

    def bounded(self) -> "AttentionState":
        """This state in at most two windows of storage, for keeping after a long chunk."""
        if self.window is None or self.keys.shape[2] <= 2 * self.window:
            return self
        return self._last(self.window - 1)

    def rewind(self, seen: Tensor) -> "AttentionState":
        """The state when each row had seen `seen` (B,) tokens.

        Raises:
            RewindError: keys that the next query would see are gone.
        """
        needed = (seen - ((self.window or 1) - 1)).clamp(min=0)
        if self.window is not None and bool((self.first > needed).any()):
            row = int((self.first > needed).nonzero()[0])
            raise RewindError(f"row {row} at {int(seen[row])} tokens needs the keys from {int(needed[row])} on, but "
                              f"the sliding window of {self.window} holds them from {int(self.first[row])} on")
        held = seen - self.first
        stop = max(int(held.max()), 0)
        return AttentionState(self.keys[:, :, :stop], self.values[:, :, :stop], self.first, seen, self.window,
                              common(held), self.buffer)


def common(counts: Tensor) -> int | None:
    """The one value of (B,) counts, or None where rows differ (or, on the meta device, hold no values)."""
    if counts.is_meta:
        return None
    low, high = (int(n) for n in torch.aminmax(counts))
    return low if low == high else None


STATES[AttentionState.__name__] = AttentionState
