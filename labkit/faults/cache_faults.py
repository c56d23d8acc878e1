"""Faults of a cache: who owns the clock, what a reset, a selection or a rewind forgets."""

import torch

from ..cache import Cache
from ..contract.subjects import ModelSubject
from ..keyvalues import AttentionState
from ..mixers import Attention
from ..model import HybridLM
from . import samples
from .base import Record, add_mixer_fault, add_steps, reclass


class TrustsTheCaller(Cache):
    """No position is compared with the cache."""

    def begin(self, model, ids, position):
        return super().begin(model, ids, None)


class RefusesGapsOnly(Cache):
    """A position ahead is refused; a repeated or stale one is taken."""

    def begin(self, model, ids, position):
        return super().begin(model, ids, position if position is not None and position > self.length else None)


class AttentionNotReset(Cache):
    """A reset drops the recurrent states and keeps keys and values."""

    def reset(self):
        kept = tuple(s if isinstance(s, AttentionState) else None for s in getattr(self, "states", ()))
        super().reset()
        self.states = kept
        return self


class RecurrentNotSelected(Cache):
    """Rows of keys and values are reordered; rows of recurrent states stay where they were."""

    def select(self, rows):
        before = self.states
        super().select(rows)
        self.states = tuple(new if isinstance(new, AttentionState) else old.select(torch.arange(len(rows)) % old.batch)
                            for old, new in zip(before, self.states))
        return self


class RewindsKeysOnly(Cache):
    """Going back crops keys and values; recurrent states stay where they are."""

    def _shorter(self, length):
        seen = self.mask[:, :length].sum(1)
        return tuple(s.rewind(seen) if isinstance(s, AttentionState) else s for s in self.states)


class TakesForeignStates(Cache):
    """Only the number of layers is compared, not the weights."""

    def begin(self, model, ids, position):
        self._fingerprint = None
        return super().begin(model, ids, position)


class ForkIsTheSame(Cache):
    """A fork that is a second name for the same cache."""

    def fork(self):
        return self


class HalfDone(HybridLM):
    """Each layer's new state is put into the cache as soon as it is there."""

    def forward(self, input_ids, cache=None, *, position=None, mask=None):
        if not input_ids.shape[1]:
            return super().forward(input_ids, cache, position=position, mask=mask)
        self.check(input_ids, mask)
        cache = Cache() if cache is None else cache
        states, fingerprint = cache.begin(self, input_ids, position)
        x, new = self.embed(input_ids) * self.config.hidden_size ** 0.5, []
        for layer, state in zip(self.layers, states):
            x, state = layer(x, state, mask)
            new.append(state)
            cache.states = (*new, *states[len(new):])
        cache.commit(self, fingerprint, new, input_ids,
                     torch.ones_like(input_ids, dtype=torch.bool) if mask is None else mask)
        return torch.nn.functional.linear(self.norm(x), self.embed.weight)


class StalePosition(Attention):
    """Rotary positions start again with each chunk."""

    def positions(self, state, length):
        return super().positions(state, length) - (state.seen[:, None] if length > 1 else 0)


class WindowOffByOne(Attention):
    """A full ring shows one token too few to a query."""

    def visible(self, held, position, padded):
        keys, values, sees = super().visible(held, position, padded)
        if sees is None or self.sliding_window is None:
            return keys, values, sees
        oldest = sees.int().argmax(-1, keepdim=True)
        full = sees.sum(-1, keepdim=True) >= self.sliding_window
        return keys, values, sees & ~((torch.arange(sees.shape[-1]) == oldest) & full)


def cache_fault(name: str, incident: str, says: str, sources: tuple[str, ...], cls: type[Cache]) -> None:
    add_steps(Record(name, incident, says, sources), cls,
              subject=lambda seed=0: ModelSubject(samples.hybrid(seed), cls.__name__, cls),
              healthy=lambda seed=0: ModelSubject(samples.hybrid(seed)))


GEMMA = "huggingface/candle candle-transformers/src/models/recurrent_gemma.rs"
MIMI = "huggingface/candle candle-transformers/src/models/mimi/transformer.rs"
cache_fault("trusts-the-caller", "empty-cache", "the caller's position is never compared with what the cache holds",
            (GEMMA, "huggingface/candle issue 2685"), TrustsTheCaller)
cache_fault("refuses-gaps-only", "empty-cache", "a skipped position is refused, a repeated or stale one is taken",
            (GEMMA,), RefusesGapsOnly)
cache_fault("attention-not-reset", "empty-cache", "a used model starts again, but its keys and values stay",
            (GEMMA, "huggingface/candle PR 3447"), AttentionNotReset)
cache_fault("rows-not-selected", "padding-continued", "beams are reordered in keys and values, not in recurrent states",
            ("huggingface/transformers PR 46819", "huggingface/transformers issue 29730"), RecurrentNotSelected)
cache_fault("rewinds-keys-only", "cache-position", "a rewind crops keys and values and forgets the recurrent half",
            ("ggml-org/llama.cpp PR 20080", "vllm-project/vllm issue 53912"), RewindsKeysOnly)
cache_fault("foreign-weights", "different-depths", "a state of other weights is taken, if only the depth agrees",
            (MIMI, "huggingface/candle PR 3784"), TakesForeignStates)
cache_fault("fork-is-the-same", "different-depths", "a copy that shares what it writes to",
            ("huggingface/candle issue 3901",), ForkIsTheSame)
add_steps(Record("half-done", "empty-cache", "a call that raises leaves the layers before the failure one call ahead",
                 (GEMMA,)), HalfDone, subject=lambda seed=0: ModelSubject(reclass(samples.hybrid(seed), HalfDone)),
          healthy=lambda seed=0: ModelSubject(samples.hybrid(seed)))
add_mixer_fault(Record("stale-position", "cache-position", "the rotary positions of a chunk start again at 0", (MIMI,)),
                StalePosition, samples.attention)
add_mixer_fault(Record("window-off-by-one", "expected-cpu", "a full ring shows one token too few",
                       ("huggingface/transformers PR 47708", "ml-explore/mlx-lm issue 390")), WindowOffByOne,
                samples.sliding)
