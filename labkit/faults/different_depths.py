"""Copies, resets and tables of a streaming transformer: Mimi in candle."""

import copy
from dataclasses import replace

import torch

from ..contract.subjects import Subject
from ..streaming import Ring, StreamingTransformer
from . import samples
from .base import Record, add_steps, reclass


class StreamSubject(Subject):
    """A streaming transformer with one token per frame; its state is a copy of the model with a stream of its own."""

    reach = 60

    def __init__(self, model: StreamingTransformer):
        self.model, self.name = model, type(model).__name__

    def start(self):
        return copy.copy(self.model)

    def sample(self, batch, length, generator):
        return torch.randn(batch, length, self.model.channels, generator=generator, dtype=torch.float64)

    def feed(self, x, state):
        return state.step(x.mT).mT, state

    def uncached(self, x):
        return self.model(x.mT).mT

    def fork(self, state):
        twin = copy.copy(self.model)
        twin.copy_state(state)
        return twin

    def reset(self, state):
        state.reset()
        return state

    def others(self):
        return [("a model with other weights", Receiver(reclass(samples.streaming(1), type(self.model)))),
                ("a deeper model", Receiver(reclass(samples.streaming(num_layers=3), type(self.model))))]


class Receiver(StreamSubject):
    """Another model that a state goes to: it is copied there."""

    def feed(self, x, state):
        return super().feed(x, self.fork(state))


class DepthOnly(StreamingTransformer):
    """Only the number of layers is compared."""

    def copy_state(self, source):
        if len(self.layers) != len(source.layers):
            raise ValueError("cannot copy kv-caches as the transformers have different depths")
        self.state = None if source.state is None else source.state.copy()


class CopyWithoutClock(StreamingTransformer):
    """Keys and values are copied, the position is not."""

    def copy_state(self, source):
        super().copy_state(source)
        self.state = replace(self.state, clock=0)


class SharedRing(Ring):
    """A ring that is written in place."""

    def write(self, k, v, clock):
        slots = torch.arange(clock, clock + k.shape[2]) % self.keys.shape[2]
        self.keys[:, :, slots], self.values[:, :, slots] = k, v
        return self


class CopySharesStorage(StreamingTransformer):
    """The copy's rings are the source's rings, and writes are in place."""

    def start(self, batch):
        state = super().start(batch)
        return replace(state, rings=tuple(SharedRing(r.keys.clone(), r.values.clone()) for r in state.rings))

    def copy_state(self, source):
        self.state = source.state


class ResetForgetsAField(StreamingTransformer):
    """A reset starts the transformer anew and forgets the convolution in front of it."""

    def reset(self):
        if self.state is not None:
            self.state = replace(self.start(self.state.down.shape[0]), down=self.state.down)


class TableEnds(StreamingTransformer):
    """Positions are read from a table of 32, and a reset does not start them again."""

    def angles(self, clock, length, dim, like):
        cos, sin = super().angles(0, 32, dim, like)
        if clock + length > 32:
            raise RuntimeError(f"narrow invalid args start + len > dim_len: [32, {dim // 2}], dim: 0, start: {clock}, "
                               f"len:{length}")
        return cos[clock:clock + length], sin[clock:clock + length]


class ShortRing(Ring):
    """A ring that never writes its last slot."""

    def write(self, k, v, clock):
        keep = min(k.shape[2], self.keys.shape[2] - 1)
        slots = torch.arange(clock + k.shape[2] - keep, clock + k.shape[2]) % (self.keys.shape[2] - 1)
        return ShortRing(self.keys.index_copy(2, slots, k[:, :, k.shape[2] - keep:]),
                         self.values.index_copy(2, slots, v[:, :, k.shape[2] - keep:]))


class RingOffByOne(StreamingTransformer):
    """Rings that count their slots one short."""

    def start(self, batch):
        state = super().start(batch)
        return replace(state, rings=tuple(ShortRing(ring.keys, ring.values) for ring in state.rings))


class GuardTooLate(StreamingTransformer):
    """Takes kv_repeat at construction, loads weights for it, and refuses at the first call."""

    kv_repeat = 2

    def advance(self, x, state):
        if self.kv_repeat != 1:
            raise NotImplementedError("only kv-repeat = 1 is supported")
        return super().advance(x, state)


class GuardInTime(StreamingTransformer):
    """The healthy form: what is not supported is refused at construction, before any weight is loaded."""

    def __init__(self, kv_cache_enabled: bool = False, **sizes):
        if kv_cache_enabled:
            raise NotImplementedError("kv_cache_enabled=true is not supported")
        super().__init__(**sizes)


def relayer(model: StreamingTransformer) -> StreamingTransformer:
    """Let the layers take their angles from this model's class."""
    for layer in model.layers:
        layer.angles = model.angles
    return model


def different_depths() -> None:
    """A state is copied between transformers of two and three layers."""
    reclass(samples.streaming(), DepthOnly).copy_state(samples.streaming(num_layers=3))


def guard_too_late() -> None:
    """A stream is started on a model that took its weights without a word."""
    reclass(samples.streaming(), GuardTooLate).step(torch.zeros(1, 3, 1, dtype=torch.float64))


def table_end() -> None:
    """33 tokens are streamed, one at a time."""
    model = relayer(reclass(samples.streaming(), TableEnds))
    for _ in range(33):
        model.step(torch.zeros(1, 3, 1, dtype=torch.float64))


INCIDENT, SOURCE = "different-depths", "huggingface/candle candle-transformers/src/models/mimi/transformer.rs"
for cls, name, says, message, trigger in (
        (DepthOnly, "depth-only", "a copy compares the number of layers and nothing else",
         "cannot copy kv-caches as the transformers have different depths", different_depths),
        (CopyWithoutClock, "copy-without-clock", "a copy takes keys and values, not the position", "", None),
        (CopySharesStorage, "copy-shares-storage", "a copy writes to the source's ring", "", None),
        (ResetForgetsAField, "reset-forgets-a-field", "a reset leaves the strided convolution as it was", "", None),
        (TableEnds, "table-ends", "the table of positions ends, here after 32 tokens",
         "narrow invalid args start + len > dim_len: [32, 2], dim: 0, start: 32, len:1", table_end),
        (RingOffByOne, "ring-off-by-one", "a ring counts its slots one short", "", None),
        (GuardTooLate, "guard-too-late", "a capability is refused at the first call, after all weights are loaded",
         "only kv-repeat = 1 is supported", guard_too_late)):
    add_steps(Record(name, INCIDENT, says, (SOURCE, "kyutai-labs/moshi"), "candle at 2a13b0f", message), cls,
              subject=lambda seed=0, cls=cls: StreamSubject(relayer(reclass(samples.streaming(seed), cls))),
              healthy=lambda seed=0: StreamSubject(samples.streaming(seed)), trigger=trigger)
