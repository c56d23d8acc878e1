"""An empty cache although the position is past 0: RecurrentGemma in candle, whose state lives on the model.

The caller's position chooses the branch, and nothing compares it with what the model holds. Two ways lead to the
error: a first call past 0, and an earlier call that failed before it reached this layer.
"""

import copy

import torch

from ..contract.subjects import Subject
from ..mixers import GriffinBlock
from . import samples
from .base import Record, add, reclass


class PositionChooses(GriffinBlock):
    """The block as ported: the state is an attribute, and `position` says whether it is used."""

    held = None

    def forward(self, x, state=None, mask=None, position=0):
        if position == 0:
            y, self.held = super().forward(x, None, mask)
        elif self.held is None:
            raise RuntimeError("empty cache despite pos > 0")
        else:
            y, self.held = super().forward(x, self.held, mask)
        return y, self


class MissingIsZeros(PositionChooses):
    """The silent relative of LFM2: where no state is held, zeros are taken for it."""

    def forward(self, x, state=None, mask=None, position=0):
        if self.held is None:
            self.held = self.start(x.shape[0])
        return super().forward(x, state, mask, position)


class PortSubject(Subject):
    """A block with its state inside: its state is the block, and the caller counts the tokens."""

    def __init__(self, block):
        self.block, self.name = block, type(block).__name__

    def start(self):
        block = copy.copy(self.block)
        block.held, block.fed = None, 0
        return block

    def sample(self, batch, length, generator):
        return torch.randn(batch, length, self.block.hidden_size, generator=generator, dtype=torch.float64)

    def feed(self, x, state, position=None):
        y, _ = state(x, position=state.fed if position is None else position)
        state.fed += x.shape[1]
        return y, state

    def fork(self, state):
        return copy.copy(state)


class Refuses(PortSubject):
    """The right caller: a position that is not the count of fed tokens is refused."""

    def feed(self, x, state, position=None):
        if position not in (None, state.fed):
            raise ValueError(f"asked for position {position}, but this block has seen {state.fed} tokens")
        return super().feed(x, state, position)


def first_call_past_zero() -> None:
    """One token at position 5, on a block that has seen nothing."""
    block = reclass(samples.griffin(), PositionChooses)
    block(torch.zeros(1, 1, 6, dtype=torch.float64), position=5)


INCIDENT, SOURCE = "empty-cache", "huggingface/candle candle-transformers/src/models/quantized_recurrent_gemma.rs"
for cls, name, says, message, trigger in (
        (PositionChooses, "empty-cache", "the caller's position says that a state is there; none is",
         "empty cache despite pos > 0", first_call_past_zero),
        (MissingIsZeros, "missing-is-zeros", "a missing state is taken to be zeros", "", None)):
    add(Record(name, INCIDENT, says, (SOURCE, "huggingface/candle PR 3447", "huggingface/candle PR 3709"),
               "candle at 2a13b0f", message), right=(Refuses.feed,), faulty=(cls.forward,),
        subject=lambda seed=0, cls=cls: PortSubject(reclass(samples.griffin(seed), cls)),
        healthy=lambda seed=0: Refuses(reclass(samples.griffin(seed), PositionChooses)), trigger=trigger)
