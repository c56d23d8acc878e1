"""A prompt that the cache covers wholly: `generate` of transformers with a DynamicCache, three generations of it.

The logits behind the last prompt token are not kept, so at least one token must be fed. Nothing is left to feed.
"""

import torch

from ..contract.subjects import ModelSubject
from ..generate import generate
from . import samples
from .base import Record, add


class FullPromptLoud(ModelSubject):
    """4.46 to 5.2: the positions still to be fed are an empty range, and its last one is asked for."""

    def prefix(self, prompt, state, n):
        past = self.length(state)
        cache_position = (torch.ones(prompt.shape[1], dtype=torch.long).cumsum(0) - 1)[past:]
        if past and cache_position[-1] >= prompt.shape[1]:
            raise NotImplementedError("not reached by a prompt that is no longer than the text")
        return super().prefix(prompt, state, n)


class FullPromptRefed(ModelSubject):
    """5.18 and later: `ids[:, -0:]` is the whole prompt, and it is fed again on top of the cache."""

    def prefix(self, prompt, state, n):
        left = prompt.shape[1] - self.length(state)
        return continued(self.model, prompt[:, -left:], state, n)


class FullPromptHidden(ModelSubject):
    """5.3 to 5.17: fed again too, and a mask as long as the text hides the newest slots: the new tokens."""

    def prefix(self, prompt, state, n):
        left = prompt.shape[1] - self.length(state)
        first = super().prefix(prompt, self.start(), 1)
        later = continued(self.model, torch.cat([prompt[:, -left:], first], 1), state, n)
        return torch.cat([first, later[:, 1:]], 1)


class LengthsNotTokens(ModelSubject):
    """As many tokens as the cache holds are taken for the same tokens."""

    def prefix(self, prompt, state, n):
        keep = min(self.length(state), prompt.shape[1] - 1)
        work = state.fork().rewind(keep) if keep < self.length(state) else state.fork()
        return continued(self.model, prompt[:, keep:], work, n)


def continued(model, ids, cache, n):
    """Greedy tokens behind whatever the cache holds and these ids."""
    logits, new = model(ids, cache)[:, -1], []
    for _ in range(n):
        new.append(logits.argmax(-1))
        logits = model(new[-1][:, None], cache)[:, -1]
    return torch.stack(new, 1)


def full_prompt() -> None:
    """The prompt is fed, then generated from with the same cache."""
    subject = FullPromptLoud(samples.transformer())
    prompt, cache = torch.arange(6)[None], subject.start()
    subject.feed(prompt, cache)
    subject.prefix(prompt, cache, 4)


INCIDENT, SOURCES = "cache-position", ("huggingface/transformers issue 36151", "huggingface/transformers issue 38727")
for cls, name, says, versions, message in (
        (FullPromptLoud, "full-prompt-loud", "the last of no positions is asked for", "4.46.1 to 5.2.0",
         "index -1 is out of bounds for dimension 0 with size 0"),
        (FullPromptHidden, "full-prompt-hidden", "the whole prompt is fed again; the first new token is right, the "
         "others are not", "5.3.0 to 5.17.0", ""),
        (FullPromptRefed, "full-prompt-refed", "the whole prompt is fed again and every copy is attended to",
         "5.18.0 to 5.24.0", ""),
        (LengthsNotTokens, "lengths-not-tokens", "a cached prefix of other tokens is taken by its length", "all", "")):
    add(Record(name, INCIDENT, says, SOURCES, versions, message), right=(generate, ModelSubject.prefix),
        faulty=(cls.prefix,), subject=lambda seed=0, cls=cls: cls(samples.transformer(seed)),
        healthy=lambda seed=0: ModelSubject(samples.transformer(seed)), trigger=full_prompt if message else None)
