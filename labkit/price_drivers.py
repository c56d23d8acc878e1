"""The price of faults outside the mixers: what a program does around the model, in its right and its faulty form.

Each driver feeds prompts as `recall.feed_pieces` does, with one more event in between: another conversation, a draft
that is taken back, a call that is tried again. `cache.__class__` and `model.__class__` choose right or faulty code.
"""

from collections.abc import Callable
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor

from . import faults
from .cache import Cache
from .errors import CacheError
from .model import HybridLM
from .price import driver
from .recall import feed_pieces

DRAFT = 4               # tokens that are fed and taken back


def halves(ids: Tensor, sizes) -> tuple[list[Tensor], Tensor]:
    """All pieces but the last, and the last."""
    *first, last = ids.split(list(sizes), dim=1)
    return first, last


def feed_all(model, pieces, cache: Cache) -> None:
    for piece in pieces:
        model(piece, cache)


def after_another_text(model, ids, sizes, cache):
    """A used cache is reset, then the prompt comes."""
    model(ids.roll(1, 0), cache)
    cache.reset()
    return feed_pieces(model, ids, sizes, cache)


def in_another_order(model, ids, sizes, cache):
    """The rows are fed in reverse order and put right before the last piece, as in a beam search."""
    first, last = halves(ids.flip(0), sizes)
    feed_all(model, first, cache)
    if first:
        cache.select(list(reversed(range(len(ids)))))
        last = last.flip(0)
    logits = model(last, cache)[:, -1]
    return logits if first else logits.flip(0)


def draft_taken_back(model, ids, sizes, cache):
    """Before the last piece a draft of other tokens is fed and rejected."""
    first, last = halves(ids, sizes)
    feed_all(model, first, cache)
    if first:
        length = cache.length
        if type(cache) is Cache:                            # a cache that crops keys only believes to need none
            cache.checkpoint()
        model(ids.roll(1, 0)[:, :DRAFT], cache)
        cache.rewind(length)
    return model(last, cache)[:, -1]


def two_branches(model, ids, sizes, cache):
    """Before the last piece a copy of the cache goes another way."""
    first, last = halves(ids, sizes)
    feed_all(model, first, cache)
    model(last.roll(1, 0), cache.fork())
    return model(last, cache)[:, -1]


def tried_again(model, ids, sizes, cache):
    """The answer to the first piece was lost on its way, so the caller sends the piece again; a refusal is fine."""
    first, last = halves(ids, sizes)
    for piece in first:
        position = cache.length
        for _ in range(2):
            try:
                model(piece, cache, position=position)
            except CacheError:
                pass
    return model(last, cache, position=sum(piece.shape[1] for piece in first))[:, -1]


def other_weights(model, ids, sizes, cache):
    """The first pieces went through a model of other weights; a refusal makes the program start again."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        other = HybridLM(model.config).eval()
    first, last = halves(ids, sizes)
    feed_all(other, first, cache)
    try:
        return model(last, cache)[:, -1]
    except CacheError:
        return feed_pieces(model, ids, sizes, cache.reset())


def crash_and_retry(model, ids, sizes, cache):
    """The last layer runs out of memory once, in the last piece; the call is made again."""
    first, last = halves(ids, sizes)
    feed_all(model, first, cache)
    hook = model.layers[-1].register_forward_pre_hook(lambda *_: 1 / 0)
    try:
        model(last, cache)
    except ZeroDivisionError:
        pass
    finally:
        hook.remove()
    return model(last, cache)[:, -1]


def fed_twice(model, ids, sizes, cache):
    """The cache holds the whole prompt, and the whole prompt is fed again."""
    feed_pieces(model, ids, sizes, cache)
    return model(ids, cache)[:, -1]


def fed_twice_behind(model, ids, sizes, cache):
    """As `fed_twice`, but the first new token still comes from the first time."""
    logits = feed_pieces(model, ids, sizes, cache)
    model(ids, cache)
    return logits


def prefix_by_length(model, ids, sizes, cache):
    """The cache holds as many tokens of another conversation; the last token alone is fed."""
    model(ids.roll(1, 0)[:, :-1], cache)
    return model(ids[:, -1:], cache)[:, -1]


def state_of_another(model, ids, sizes, cache):
    """Another conversation empties the model's only state and feeds its own text, then the last piece comes."""
    first, last = halves(ids, sizes)
    feed_all(model, [piece.roll(1, 0) for piece in first], cache)
    return model(last, cache)[:, -1]


def nothing_held(model, ids, sizes, cache):
    """The last piece comes to a cache that has seen nothing, and zeros are taken for the past."""
    return model(halves(ids, sizes)[1], cache)[:, -1]


def window_not_saved(model, ids, sizes, cache):
    """The cache was saved and loaded before the last piece, without the windows."""
    first, last = halves(ids, sizes)
    feed_all(model, first, cache)
    if first:
        cache.states = tuple(state.emptied("conv") for state in cache.states)
    return model(last, cache)[:, -1]


def by_class(name: str, use: Callable) -> Callable:
    """A fault of a cache or of a model: the driver is the same, the class is right or faulty."""
    @contextmanager
    def fault(model):
        subject = faults.get(name).subject(0)
        active = [subject.cache_class]
        model.__class__ = type(subject.model)

        def feed(model, ids, sizes, cache):
            cache.__class__ = active[0]
            return use(model, ids, sizes, cache)
        try:
            yield feed
        finally:
            active[0], model.__class__ = Cache, HybridLM
    return fault


def by_program(faulty: Callable, field: str | None = None) -> Callable:
    """A fault of the program around the model, where some layer's state has that field."""
    def fault(model):
        fits = field is None or any(field in layer.mixer.layout() for layer in model.layers)
        return driver(faulty) if fits else nullcontext()
    return fault


DRIVERS = {
    "attention-not-reset": by_class("attention-not-reset", after_another_text),
    "rows-not-selected": by_class("rows-not-selected", in_another_order),
    "rewinds-keys-only": by_class("rewinds-keys-only", draft_taken_back),
    "fork-is-the-same": by_class("fork-is-the-same", two_branches),
    "trusts-the-caller": by_class("trusts-the-caller", tried_again),
    "refuses-gaps-only": by_class("refuses-gaps-only", tried_again),
    "foreign-weights": by_class("foreign-weights", other_weights),
    "half-done": by_class("half-done", crash_and_retry),
    "full-prompt-refed": by_program(fed_twice),
    "full-prompt-hidden": by_program(fed_twice_behind),
    "lengths-not-tokens": by_program(prefix_by_length),
    "state-on-the-model": by_program(state_of_another),
    "missing-is-zeros": by_program(nothing_held),
    "window-not-saved": by_program(window_not_saved, "conv"),
}
