"""Exercise of lesson 00, feed_in_pieces, and the wrong answers that it knows."""

import copy
from dataclasses import dataclass
from functools import lru_cache

import torch

from ..cache import Cache
from ..figures.conv_window import say_cut
from ..model import HybridLM
from .exercise import Attempt, Exercise, Misstep, imitates
from .judge import NotTried, WrongForm, call, off, strip, want_tensor


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


def from_the_start(model, ids, sizes):
    """Faulty: each call feeds the text from its first token on."""
    cache, ends = Cache(), torch.tensor(sizes).cumsum(0).tolist()
    return torch.cat([model(ids[:, :end], cache) for end in ends], dim=1)


# The exercise ------------------------------------------------------------------------------------------------------

class Watched:
    """A model that notes the pieces it is fed and their sizes, and passes everything on."""

    def __init__(self, model):
        self._model, self.fed, self.read = model, [], []

    def __call__(self, input_ids, *args, **kwargs):
        logits = self._model(input_ids, *args, **kwargs)
        self.fed.append(input_ids.shape[1])
        self.read += input_ids[0].tolist()
        return logits

    forward = __call__

    def __getattr__(self, name):
        return getattr(self._model, name)


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


def attempt(function, case):
    """Feed the pieces of one text; compare the logits with the uncut text's, and what was fed with what was asked."""
    model, ids = case.data()
    wanted, watched = model(ids), Watched(model)                                            # (1, L, vocab)
    try:
        logits = call(function, watched, ids.clone(), list(case.sizes))
        want_tensor(logits, "the result", wanted.shape, wanted.dtype)
    except NotTried:
        raise
    except WrongForm as form:
        return Attempt(str(form))
    except Exception as error:
        return Attempt(f"the function raises {type(error).__name__}", error=error)
    bad = off(logits, wanted, wanted.abs().amax().item() if wanted.numel() else 1, ulps=1000).any(-1)       # (1, L)
    fed, asked = ([size for size in sizes if size] for sizes in (watched.fed, case.sizes))
    problem = ("the logits are not those of the uncut text" if bad.any()
               else f"the model was fed {fed} tokens, it should be {asked}" if fed != asked else None)
    return Attempt(problem, strip(bad))


def small():
    """Fixed cases, simplest first."""
    for preset in ("griffin", "mamba2", "short-conv"):
        yield from (Text(preset, sizes) for sizes in ((1,), (2,), (1, 1), (2, 1), (1, 2), (1, 0, 2), (3, 3), (1,) * 5))


def fresh(draw):
    """12 random cases."""
    for _ in range(12):
        yield Text(draw.choice(("griffin", "mamba2", "short-conv", "attention")),
                   tuple(draw.randint(0, 4) for _ in range(draw.randint(1, 5))), draw.getrandbits(32))


CASES = [Text("griffin", sizes) for sizes in ((2, 3), (1, 1, 4), (5, 1), (3, 0, 2))]


def logits_of(function, case):
    model, ids = case.data()
    return call(function, model, ids, list(case.sizes))


def feeds_twice(function):
    """Some tokens reach the model more than once."""
    def twice(case):
        model, ids = case.data()
        watched = Watched(model)
        try:
            call(function, watched, torch.arange(ids.shape[1])[None], list(case.sizes))
        except NotTried:
            raise
        except Exception:       # what was fed before counts
            pass
        return len(watched.read) > len(set(watched.read))
    return any(map(twice, CASES))


def feeds_uncut(function):
    """The whole text goes in at once, so nothing is carried from piece to piece."""
    model, ids = CASES[0].data()
    watched = Watched(model)
    call(function, watched, ids, list(CASES[0].sizes))
    return watched.fed == [ids.shape[1]]


EXERCISE = Exercise(
    id="00.feed_in_pieces", solution=feed_in_pieces, attempt=attempt, small=small, fresh=fresh,
    shown=(Text("griffin", (3, 3)), Text("griffin", (1, 4, 1))),
    proof="three kinds of layers, several cuts, pieces of 0 tokens, and fresh random cases",
    missteps=(
        Misstep("tokens are fed twice", "The model gets some tokens again. A cache already holds them: feed each token "
                "once, the new piece alone. Does each slice start where the last one ended?", feeds_twice),
        Misstep("the text is fed uncut", "The logits are right, but the whole text went in at once. "
                "Feed piece after piece, as `sizes` says.", feeds_uncut),
        Misstep("born again", "Each piece starts with an empty cache, so it has no past. The first piece is right; the "
                "others are read as new texts. Make one cache, before the loop.",
                imitates(born_again, logits_of, CASES, right=feed_in_pieces)),
        Misstep("the outputs of earlier pieces are dropped", "You return what the last piece gave. Keep the logits of "
                "each piece and join them along the tokens.",
                imitates(last_piece, logits_of, CASES, right=feed_in_pieces)),
    ),
    hints=(
        "Where to look: how often is a cache made in your function? How often is each token fed?",
        "What is missing: one cache before the loop; in the loop one piece of ids goes in with that cache; "
        "its logits are kept. After the loop the logits are joined along dim 1.",
        "Half a line:\n    cache = Cache()\n    for piece in ids.split(sizes, dim=1): ... model(piece, cache) ...",
    ))
