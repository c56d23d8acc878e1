"""Two stores for one conversation, and an error that cannot happen: the quantized SmolLM3 of candle.

The reported "Expected CPU" stands behind a guard that already asks for the CPU. It appears only once the learner takes
the guard away. What does happen: two stores of keys and values, filled by different branches.
"""

from dataclasses import dataclass

import torch

from ..contract.subjects import MixerSubject
from ..keyvalues import AttentionState
from ..mixers import Attention
from ..state import State
from . import samples
from .base import Record, add_mixer_fault, add_steps, reclass


@dataclass(frozen=True, eq=False)
class TwoStores(State):
    """Keys and values twice: what chunks wrote, and what everybody wrote."""

    chunks: AttentionState
    everything: AttentionState

    def select(self, rows):
        return TwoStores(self.chunks.select(rows), self.everything.select(rows))

    def to(self, device=None, dtype=None):
        return TwoStores(self.chunks.to(device, dtype), self.everything.to(device, dtype))


class TwoWriters(Attention):
    """One-token calls write one store; longer calls write both and read the other one."""

    def start(self, batch):
        return TwoStores(super().start(batch), super().start(batch))

    def _check_state(self, x, state):
        super()._check_state(x, state.everything)

    def mix(self, x, state, counts):
        y, everything = super().mix(x, state.everything, counts)
        if x.shape[1] == 1:
            return y, TwoStores(state.chunks, everything)
        y, chunks = super().mix(x, state.chunks, counts)
        return y, TwoStores(chunks, everything)


class TopLeftMask(Attention):
    """A chunk's causal mask is aligned to the oldest keys instead of the newest ones."""

    def visible(self, held, position, padded):
        keys, values, sees = super().visible(held, position, padded)
        if sees is None or padded:
            return keys, values, sees
        return keys, values, torch.ones_like(sees).tril()


class GuardRemoved(Attention):
    """A write through the host's memory, behind a guard that asks for the CPU; here the guard is gone."""

    def mix(self, x, state, counts):
        y, state = super().mix(x, state, counts)
        if state.keys.device.type != "cpu":
            raise RuntimeError("Expected CPU")
        return y, state


def expected_cpu() -> None:
    """The guard is taken away, and the tensors are on another device: torch's meta device stands for it."""
    mixer = reclass(samples.attention(), GuardRemoved).to("meta")
    mixer(torch.zeros(1, 3, 8, device="meta", dtype=torch.float64))


INCIDENT = "expected-cpu"
SOURCE = "huggingface/candle candle-transformers/src/models/smol/quantized_smollm3.rs"
add_mixer_fault(Record(
    "two-writers", INCIDENT, "one-token calls write one store, chunks read another: a chunk after decoding misses the "
    "decoded tokens", (SOURCE, "huggingface/candle PR 3668"), "candle at 2a13b0f"), TwoWriters, samples.nope,
    steps=("start", "mix"))
add_mixer_fault(Record(
    "top-left-mask", INCIDENT, "the causal mask of a chunk starts at the oldest key",
    ("huggingface/candle PR 1517", "huggingface/transformers issue 27040"),
    "scaled_dot_product_attention(is_causal=True)"), TopLeftMask, samples.attention)
add_steps(Record(
    "expected-cpu", INCIDENT, "a write through host memory whose guard was taken away; with the guard the error "
    "cannot happen", (SOURCE,), "candle at 2a13b0f, unreachable as reported", "Expected CPU"),
    GuardRemoved, trigger=expected_cpu,
    subject=lambda seed=0: MixerSubject(reclass(samples.attention(seed).to("meta"), GuardRemoved)),
    healthy=lambda seed=0: MixerSubject(samples.attention(seed)))
