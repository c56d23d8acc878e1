"""Exercise of lesson 06, attend: one store for all, and the wrong answers that it knows."""

import itertools
from dataclasses import dataclass, replace
from functools import cached_property

import torch
import torch.nn.functional as F

from ..figures.conv_window import say_cut
from .exercise import Attempt, Exercise, Misstep, guarded, imitating, same
from .judge import NotTried, WrongForm, call, off, strip, want_tensor


class Store:
    """Keys and values of one conversation, oldest first. `chunks` is the second store of the faulty version."""

    keys = values = None

    @property
    def length(self):
        return 0 if self.keys is None else self.keys.shape[2]

    def append(self, k, v):
        """Add k and v (B, H, L, D); returns all keys and all values, (B, H, T, D)."""
        self.keys = k if self.keys is None else torch.cat([self.keys, k], 2)
        self.values = v if self.values is None else torch.cat([self.values, v], 2)
        return self.keys, self.values

    @cached_property
    def chunks(self):
        return Store()


# The right answer and the wrong ones -------------------------------------------------------------------------------

def attend(q, k, v, store, position):
    if position != store.length:
        raise ValueError(f"position {position} was asked for, but the store holds {store.length} tokens")
    keys, values = store.append(k, v)                                                           # (B, H, T, D)
    length, held = q.shape[2], keys.shape[2]
    sees = torch.ones(length, held, dtype=torch.bool).tril(held - length)                       # (L, T)
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=sees)


def masked(mask):
    """Faulty: attend with another mask, mask(L, T) -> (L, T) bool."""
    def attend(q, k, v, store, position):
        keys, values = store.append(k, v)
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask(q.shape[2], keys.shape[2]))
    return attend


def all_seen(length, held):
    return torch.ones(length, held, dtype=torch.bool)


def top_left(length, held):
    return all_seen(length, held).tril()


def top_left_chunks(length, held):
    return top_left(length, held) if length > 1 else all_seen(length, held)


# The exercise ------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Talk:
    """One case: the pieces of one text; before and behind each, where `astray`, calls at wrong positions."""
    sizes: tuple[int, ...]
    astray: bool = False
    batch: int = 2
    heads: int = 2
    dim: int = 4
    dtype: torch.dtype = torch.float32
    seed: int = 0

    def __str__(self):
        alone = ", batch of 1" * (self.batch == 1)
        return f"{say_cut(self.sizes)}{', and wrong positions in between' * self.astray}{alone}"

    def data(self):
        """q, k, v, each (B, H, L, D)."""
        draw = torch.Generator().manual_seed(self.seed)
        shape = (3, self.batch, self.heads, sum(self.sizes), self.dim)
        return (2 * torch.randn(shape, generator=draw)).to(self.dtype)


def uncut(q, k, v):
    """The reference, made without any store: every query sees the keys up to its own token."""
    q, k, v = (part.double() for part in (q, k, v))
    scores = q @ k.mT / q.shape[-1] ** 0.5                                                      # (B, H, L, L)
    future = torch.arange(q.shape[2])[:, None] < torch.arange(q.shape[2])
    return scores.masked_fill(future, -torch.inf).softmax(-1) @ v


def feed(function, case):
    """The outputs (B, H, L, D) of all pieces, and the store."""
    data, store, outputs, fed = case.data(), Store(), [], 0
    for piece in data.split(list(case.sizes), 3):
        refuse(function, case, store)
        y = call(function, *piece.clone(), store, fed)
        want_tensor(y, "the result", piece.shape[1:], case.dtype)
        outputs.append(y)
        fed += piece.shape[3]
    refuse(function, case, store)
    return torch.cat(outputs, 2), store


def refuse(function, case, store):
    """Call at wrong positions, where the case is `astray`; raise WrongForm unless each is refused and adds nothing."""
    held = store.length, *(part if part is None else part.clone() for part in (store.keys, store.values))
    wrong = sorted({held[0] + 1, max(held[0] - 1, 0), 0} - {held[0]})
    for position, length in itertools.product(wrong if case.astray else (), (1, 0)):
        try:
            call(function, *case.data()[..., :length, :], store, position)
        except ValueError:
            if not same((store.length, store.keys, store.values), held):
                raise WrongForm("a call at a wrong position is refused, but the store holds its tokens all the same"
                                if store.length > held[0] else
                                "a call at a wrong position is refused, but it has changed the store") from None
        except NotTried:
            raise
        except Exception as error:
            raise WrongForm(f"a call at a wrong position raises {type(error).__name__} ({error}); it should raise "
                            "ValueError") from error
        else:
            tokens = "a call of 0 tokens at " * (length == 0)
            raise WrongForm(f"{tokens}position {position} is accepted, although the store has length {held[0]}")


@guarded
def attempt(function, case):
    y, store = feed(function, case)
    data = case.data()
    bad = off(y, uncut(*data), data[2].double().abs().sum(2, keepdim=True), ulps=16).any(1).any(-1)     # (B, L)
    problem = ("the result is not that of the uncut text" if bad.any() else
               None if store.length == y.shape[2] else
               f"the store has length {store.length}, it should be {y.shape[2]}")
    return Attempt(problem, strip(bad))


CUTS = ((12,), (4, 8), (1,) * 12, (4, 1, 1, 1, 1, 4), (2, 3))


def small():
    """Fixed cases, simplest first."""
    yield from (Talk(sizes) for sizes in ((1,), (2,), (1, 1), (2, 2), (2, 1, 2), (3, 0, 2), *CUTS))
    yield from (Talk((5, 1, 3), False, 3, 1, 6, dtype) for dtype in (torch.float64, torch.bfloat16))
    yield from (Talk((2, 1), batch=1), Talk((0, 2)))
    yield from (Talk(sizes, astray=True) for sizes in ((1,), (3, 2), (2, 0)))


def fresh(draw):
    """12 random cases."""
    for _ in range(12):
        sizes = tuple(draw.randint(0, 4) for _ in range(draw.randint(1, 6)))
        yield Talk((*sizes, draw.randint(1, 4)), True, draw.randint(1, 4), draw.randint(1, 3), draw.randint(1, 6),
                   draw.choice((torch.float32, torch.float64)), draw.getrandbits(32))


def decode_is_missed(function):
    """Right on every cut but the one with a chunk after single tokens; there the last chunk alone is wrong."""
    strips = {sizes: attempt(function, Talk(sizes)).strip for sizes in CUTS}
    return {sizes: marks for sizes, marks in strips.items() if "X" in marks} == {(4, 1, 1, 1, 1, 4): "........XXXX"}


def refused_late(function):
    """A refused call leaves its tokens in the store; the right call too, where the new length is compared."""
    case, store = Talk((3, 2)), Store()
    try:
        call(function, *case.data()[..., :3, :], store, 0)
    except ValueError:
        return store.length == 3
    return "all the same" in (attempt(function, replace(case, astray=True)).problem or "")


def takes_any_position(function):
    """The results are right; a call at a wrong position is taken."""
    return all(attempt(function, Talk(sizes)).problem is None for sizes in CUTS) and "is accepted" in (
        attempt(function, Talk((3, 2), astray=True)).problem or "")


misstep = imitating(attend, lambda function, case: feed(function, case)[0], [Talk(sizes) for sizes in CUTS])
EXERCISE = Exercise(
    id="06.attend", solution=attend, attempt=attempt, small=small, fresh=fresh, shown=tuple(map(Talk, CUTS[:4])),
    proof="sixteen cuts, three dtypes, pieces of 0 tokens, wrong positions, and fresh random cases",
    missteps=(
        Misstep("a second store, and a writer that does not fill it", "Only a chunk after single tokens fails: these "
                "tokens went into one store, the chunk reads the other. Keep one store, for all writers and readers.",
                decode_is_missed),
        misstep("no mask", "Each token sees the whole chunk, its own future too. Only the last row of a chunk is "
                "right.", masked(all_seen)),
        misstep("the mask is aligned to the oldest keys", "is_causal=True lets the first query see the first key only. "
                "With a past in the store the first query must see that past: shift the triangle by T - L.",
                masked(top_left)),
        misstep("the mask of chunks is aligned to the oldest keys", "Single tokens are right, so a decode test sees "
                "nothing. In a chunk the first query sees the first key only: shift the triangle by T - L.",
                masked(top_left_chunks)),
        Misstep("refused, but half done", "The tokens are stored before the position is checked, so a refused call "
                "leaves the store longer; and store.length is another number by then. Check first, then write.",
                refused_late),
        Misstep("a wrong position is taken", "The outputs of a whole text are right. A call that skips, repeats or "
                "comes too late is taken too: compare position with store.length and raise.", takes_any_position)),
    hints=(
        "Where to look: who writes to store.chunks, and who reads it? Does every token of the text get there?",
        "What is missing: first refuse a position that is not store.length. Then one append for all lengths. Query i "
        "of L sees the first T - L + i + 1 of T keys.",
        "Half a line:\n    sees = torch.ones(L, T, dtype=torch.bool).tril(T - L)"))
