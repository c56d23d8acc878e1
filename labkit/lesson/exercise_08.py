"""Exercise of lesson 08, scan, and the wrong answers that it knows."""

from dataclasses import dataclass

import torch

from .exercise import Attempt, Exercise, guarded, imitating
from .judge import call, off, strip, want_parts, want_tensor


# The right answer and the wrong ones -------------------------------------------------------------------------------

def scan(u, a, mask, h):
    real = mask[..., None]                                                          # (B, L, 1)
    a, u = torch.where(real, a, 1), torch.where(real, u, 0)                         # (B, L, D): h = 1 * h + 0
    y = []
    for t in range(u.shape[1]):
        h = a[:, t] * h + u[:, t]                                                   # (B, D)
        y.append(h)
    return torch.stack(y, 1) if y else u, h


def unmasked(u, a, mask, h):
    """Faulty: padding goes in like text."""
    return scan(u, a, torch.ones_like(mask), h)


def inputs_masked(u, a, mask, h):
    """Faulty: a padding column adds 0, but the state still decays."""
    return unmasked(torch.where(mask[..., None], u, 0), a, mask, h)


def all_or_none(u, a, mask, h):
    """Faulty: where one row is padded, all rows stand still."""
    return scan(u, a, mask.all(0).expand_as(mask), h)


def first_call_only(u, a, mask, h):
    """Faulty: with a state from an earlier call the mask is not looked at."""
    return (unmasked if h.any() else scan)(u, a, mask, h)


def chunks_only(u, a, mask, h):
    """Faulty: the path for one column does not look at the mask."""
    return (scan if u.shape[1] > 1 else unmasked)(u, a, mask, h)


# The exercise ------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Ragged:
    """One case: rows of x (a token) and _ (padding), the sizes of the calls, channels, a seed."""
    rows: tuple[str, ...]
    sizes: tuple[int, ...]
    channels: int = 2
    seed: int = 0
    forgets: int | None = None      # a column in which a is 0
    dtype: torch.dtype = torch.float32

    def __str__(self):
        zero = "" if self.forgets is None else f", a = 0 in column {self.forgets}"
        dtype = ", float64" * (self.dtype == torch.float64)
        return f"rows {' '.join(self.rows)} fed as {'+'.join(map(str, self.sizes))}{zero}{dtype}"

    def data(self):
        """u, a (B, L, D), mask (B, L)."""
        mask = torch.tensor([letter == "x" for row in self.rows for letter in row]).bool().view(len(self.rows), -1)
        draw = torch.Generator().manual_seed(self.seed)
        u = torch.randn(*mask.shape, self.channels, generator=draw)
        a = 0.3 + 0.6 * torch.rand(u.shape, generator=draw)
        if self.forgets is not None:
            a[:, self.forgets] = 0
        return u.to(self.dtype), a.to(self.dtype), mask


def alone(u, a, mask):
    """The reference: each row without its padding, one token after the other, in float64; 0 at padding. y, last h."""
    y, last = torch.zeros_like(u, dtype=torch.float64), torch.zeros(len(u), u.shape[2], dtype=torch.float64)
    for b in range(len(u)):
        for t in mask[b].nonzero().flatten().tolist():
            last[b] = a[b, t].double() * last[b] + u[b, t].double()
            y[b, t] = last[b]
    return y, last


def fed(function, case):
    """The outputs at real columns, 0 at padding, and the last state, of a function that is fed call after call."""
    (u, a, mask), outputs = case.data(), []
    h = u.new_zeros(len(u), case.channels)                                          # (B, D)
    for piece in torch.arange(u.shape[1]).split(list(case.sizes)):
        given = (u[:, piece], a[:, piece], mask[:, piece], h.clone())
        y, h = want_parts(call(function, *(t.clone() for t in given)), ("y", "the next h"))
        want_tensor(y, "y", given[0].shape, u.dtype)
        want_tensor(h, "the next h", given[3].shape, u.dtype)
        outputs.append(y)
    return torch.where(mask[..., None], torch.cat(outputs, 1), 0), h.detach()


@guarded
def attempt(function, case):
    """Compare each row with the same row alone; a column is wrong where a real output of any row is."""
    y, h = fed(function, case)
    wanted, last = alone(*case.data())
    bad = off(y, wanted, 10).any(-1)                                                # (B, L)
    problem = ("a real output is wrong" if bad.any() else "all real outputs are right, the last h is wrong"
               if off(h, last, 10).any() else None)
    return Attempt(problem, strip(bad))


SIDES = {"left": "__xxxx", "right": "xxxx__", "middle": "xx__xx"}
END = "xx"              # two tokens that follow: they read the state


def padded(side, sizes=(6,), before="", others=1):
    """The case with row 0 padded on this side, behind `before`, and full rows beside it."""
    row = before + SIDES[side] + END
    return Ragged((row, *["x" * len(row)] * others), (*([len(before)] if before else []), *sizes, len(END)))


def small():
    """Fixed cases, simplest first."""
    yield from (Ragged(("x",), (1,)), Ragged(("xxx",), (3,)), Ragged(("xx", "xx"), (1, 1)), Ragged(("x_",), (2,)))
    for others in (0, 1, 2):
        for side in SIDES:
            yield from (padded(side, sizes, before, others) for before in ("", "xxxx")
                        for sizes in ((6,), (2, 2, 2), (1,) * 6, (3, 0, 3)))
    yield from (Ragged(("____", "x__x", "xxxx"), (4,)), Ragged(("xxxx", "xx_x"), (4,), forgets=1),
                Ragged(("xxxx", "xx_x"), (2, 2), dtype=torch.float64))


def fresh(draw):
    """24 random cases."""
    for _ in range(24):
        sizes = [draw.randint(0, 3) for _ in range(draw.randint(1, 5))]
        rows = tuple("".join(draw.choice("xx_") for _ in range(sum(sizes))) for _ in range(draw.randint(2, 4)))
        forgets = draw.randrange(sum(sizes)) if sum(sizes) and draw.random() < .3 else None
        yield Ragged(rows, tuple(sizes), draw.randint(1, 4), draw.getrandbits(32), forgets,
                     draw.choice((torch.float32, torch.float64)))


CASES = [padded(side, sizes, before) for side in SIDES for before in ("", "xxxx") for sizes in ((6,), (2, 4), (1,) * 6)]


misstep = imitating(scan, fed, CASES)
EXERCISE = Exercise(
    id="08.scan", solution=scan, attempt=attempt, small=small, fresh=fresh,
    shown=(*map(padded, SIDES), padded("right", (6,), "xxxx"), padded("middle", (1,) * 6)),
    proof="1 to 4 rows, padding on every side, several cuts, calls of 0 columns, and fresh random cases",
    missteps=(
        misstep("the state decays under padding", "Padding adds nothing, but h is still multiplied by a. A padding "
                "column must leave h alone: there a has to be 1 as well.", inputs_masked),
        misstep("one row's padding stops the other rows", "Where one row is padded, other rows stand still, too. The "
                "mask belongs to a row: each row needs its own decision.", all_or_none),
        misstep("a continued call ignores the mask", "The first call is right. A call with an earlier state does not "
                "look at the mask.", first_call_only),
        misstep("the one-column path ignores the mask", "Calls of several columns are right. A call of one column does "
                "not look at the mask.", chunks_only),
        misstep("the state takes in the padding", "Padding goes into h like text. To hide the outputs at padding is "
                "too late: h is already touched. Or a column is real for all rows when it is real for one.", unmasked),
    ),
    hints=(
        "Where to look: write down h after a padding column. Which of u and a can still change it?",
        "What is missing: a padding column has to give h = 1 * h + 0, in its own row only. Or compute the new h, and "
        "take it only where the mask says so.",
        "Half a line:\n    real = mask[:, t, None]\n    h = torch.where(real, ..., h)",
    ))
