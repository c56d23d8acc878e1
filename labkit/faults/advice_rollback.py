"""Advice about taking tokens back, executed on ports."""

import copy

import torch

from ..cache import Cache
from ..contract import ModelSubject, check
from . import samples
from .advice import advise
from .cache_faults import RewindsKeysOnly


@advise("rollback.crop", "To take tokens back, crop the cache", "partly",
        "keys and values are cropped exactly; a recurrent state holds no past to crop",
        source="ggml-org/llama.cpp PR 20080")
def crop():
    found = {name: check(ModelSubject(make(0), cache_class=RewindsKeysOnly), laws=["rewind"])["rewind"]
             for name, make in (("attention", samples.transformer), ("hybrid", samples.hybrid))}
    right = [name for name, finding in found.items() if finding.verdict == "holds"]
    return ("right" if len(right) == 2 else "partly" if right else "silently wrong",
            " ".join(f"{name} model: {len(finding.failures)} of {finding.cases} experiments are wrong."
                     for name, finding in found.items()))


@advise("rollback.deepcopy", "Make a deep copy of the cache before each draft", "right",
        "every slot is saved; it costs the memory and the time of the whole cache, each round",
        source="huggingface/transformers issue 38727")
@torch.no_grad()
def deepcopy():
    model, text = samples.hybrid(0), torch.arange(12)[None] % 20                    # (1, 12)
    cache = Cache()
    model(text[:, :8], cache)
    copied, plain, kept = copy.deepcopy(cache.states), cache.fork(), cache.fork().checkpoint()
    before = kept.nbytes - plain.nbytes
    for one in (plain, kept):
        model(text[:, :4], one)                                                     # the draft
    found, wanted = model(text[:, 8:], with_states(cache, copied)), model(text)[:, 8:]
    error = ((found - wanted).abs().max() / wanted.abs().max()).item()
    extra = sum(t.untyped_storage().nbytes() for state in copied for t in state.tensors().values())
    return ("right" if error < 1e-8 else "silently wrong",
            f"Continued from the copy: {'equal to' if error < 1e-8 else 'different from'} the text without a draft. "
            f"Bytes taken before the draft: by the copy {extra}, by a checkpoint {before}; behind it: {extra} and "
            f"{kept.nbytes - plain.nbytes}.")


def with_states(cache: Cache, states) -> Cache:
    cache = cache.fork()
    cache.states = states
    return cache


@advise("rollback.divide", "A recurrent state can go back: subtract the input and divide by a", "partly",
        "each division by a enlarges the rounding by 1/a", source="folk")
def divide():
    errors = {a: undo(a) for a in (0.95, 0.5, 0.1)}
    good = [a for a, error in errors.items() if error < 1e-3]
    return ("right" if len(good) == len(errors) else "partly" if good else "silently wrong",
            "Eight steps undone in float32: " + ", ".join(f"a = {a}: {'below 1e-3' if a in good else 'above 1e-3'}"
                                                          for a in errors) + " of the value.")


def undo(a: float, steps: int = 8, channels: int = 64) -> float:
    """The largest error, relative to the largest value, of h when `steps` steps are undone by division in float32."""
    draw = torch.Generator().manual_seed(0)
    u, start = torch.randn(steps, channels, generator=draw), torch.randn(channels, generator=draw)
    h = start
    for t in range(steps):
        h = a * h + u[t]
    for t in reversed(range(steps)):
        h = (h - u[t]) / a
    return ((h - start).abs().max() / start.abs().max()).item()
