"""Exercise of lesson 00, feed_in_pieces, and the wrong answers that it knows."""

import copy
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import torch

from ..cache import Cache
from ..figures.conv_window import say_cut
from ..model import HybridLM
from .drive import Watched
from .exercise import Attempt, Exercise, Misstep, guarded, imitating, same
from .judge import call, off, strip, want_tensor


# The right answer and the wrong ones -------------------------------------------------------------------------------

def feed_in_pieces(model, ids, sizes):
    cache = Cache()
    return torch.cat([model(piece, cache) for piece in ids.split(sizes, dim=1)], dim=1)  # (1, L, vocab)


def born_again(model, ids, sizes):
    """Faulty: a new cache for each piece."""
    return torch.cat([model(piece, Cache()) for piece in ids.split(sizes, dim=1)], dim=1)


def last_piece(model, ids, sizes):
    """Faulty: returns the outputs of the last piece alone."""
    cache = Cache()
    return [model(piece, cache) for piece in ids.split(sizes, dim=1)][-1]


# The exercise ------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Text:
    """One case: a preset, the sizes of the pieces, and the seed of the token ids."""
    preset: str
    sizes: tuple[int, ...]
    seed: int = 0

    def __str__(self):
        return f"{self.preset}, {say_cut(self.sizes)}"

    def data(self):
        """A model of the case's own, and ids (1, L)."""
        draw = torch.Generator().manual_seed(self.seed)
        return copy.deepcopy(model_of(self.preset)), torch.randint(0, 32, (1, sum(self.sizes)), generator=draw)


@lru_cache
def model_of(preset):
    return HybridLM.preset(preset, vocab_size=32, seed=0, hidden_size=32).requires_grad_(False)


@guarded
def attempt(function, case):
    """Feed the pieces of one text; compare the logits with the uncut text's, and what was fed with what was asked."""
    model, ids = case.data()
    wanted, watched = model(ids), Watched(model)                                            # (1, L, vocab)
    logits = call(function, watched, ids.clone(), list(case.sizes))
    want_tensor(logits, "the result", wanted.shape, wanted.dtype)
    bad = off(logits, wanted, wanted.abs().amax().item() if wanted.numel() else 1, ulps=1000).any(-1)       # (1, L)
    fed, asked = [len(piece) for piece in watched.fed if piece], [size for size in case.sizes if size]
    problem = ("the logits are not those of the uncut text" if bad.any()
               else f"the model was fed {fed} tokens, it should be {asked}" if fed != asked else None)
    return Attempt(problem, strip(bad))


def small():
    """Fixed cases, simplest first."""
    for preset in ("griffin", "mamba2", "short-conv"):
        yield from (Text(preset, sizes) for sizes in ((1,), (2,), (1, 1), (2, 1), (1, 2), (1, 0, 2), (3, 3), (1,) * 5))


def fresh(draw):
    """12 random cases of at least one token."""
    for _ in range(12):
        sizes = [draw.randint(0, 4) for _ in range(draw.randint(1, 5))]
        sizes[draw.randrange(len(sizes))] += 1
        yield Text(draw.choice(("griffin", "mamba2", "short-conv", "attention")), tuple(sizes), draw.getrandbits(32))


CASES = [Text("griffin", sizes) for sizes in ((2, 3), (1, 1, 4), (5, 1), (3, 0, 2))]


def logits_of(function, case):
    model, ids = case.data()
    return call(function, model, ids, list(case.sizes))


def feeds_twice(function):
    """Some tokens reach the model more than once."""
    def twice(case):
        watched = Watched(case.data()[0])
        with suppress(Exception):       # what was fed before counts
            call(function, watched, torch.arange(sum(case.sizes))[None], list(case.sizes))
        read = sum(watched.fed, [])
        return len(read) > len(set(read))
    return any(map(twice, CASES))


def remembers(function):
    """The same text, given twice, gets different logits."""
    return not same(*(logits_of(function, CASES[0]) for _ in range(2)))


def feeds_uncut(function):
    """The whole text goes in at once, so nothing is carried from piece to piece."""
    model, ids = CASES[0].data()
    watched = Watched(model)
    call(function, watched, ids, list(CASES[0].sizes))
    return watched.fed == ids.tolist()


misstep = imitating(feed_in_pieces, logits_of, CASES)
EXERCISE = Exercise(
    id="00.feed_in_pieces", solution=feed_in_pieces, attempt=attempt, small=small, fresh=fresh,
    shown=(Text("griffin", (3, 3)), Text("griffin", (1, 4, 1))),
    proof="three kinds of layers, several cuts, pieces of 0 tokens, and fresh random cases",
    missteps=(
        Misstep("tokens are fed twice", "The model gets some tokens again. A cache already holds them: feed each token "
                "once, the new piece alone. Does each slice start where the last one ended?", feeds_twice),
        Misstep("the text is fed uncut", "The logits are right, but the whole text went in at once. "
                "Feed piece after piece, as `sizes` says.", feeds_uncut),
        misstep("born again", "Each piece starts with an empty cache, so it has no past. The first piece is right; the "
                "others are read as new texts. Make one cache, before the loop.", born_again),
        Misstep("the cache outlives the call", "The same text, given twice, gets different logits: the cache of the "
                "first call is used again. A text starts with an empty cache; make it inside the function.", remembers),
        misstep("the outputs of earlier pieces are dropped", "You return what the last piece gave. Keep the logits of "
                "each piece and join them along the tokens.", last_piece),
    ),
    hints=(
        "Where to look: how often is a cache made in your function? How often is each token fed?",
        "What is missing: one cache before the loop; in the loop one piece of ids goes in with that cache; "
        "its logits are kept. After the loop the logits are joined along dim 1.",
        "Half a line:\n    cache = Cache()\n    for piece in ids.split(sizes, dim=1): ... model(piece, cache) ...",
    ))
