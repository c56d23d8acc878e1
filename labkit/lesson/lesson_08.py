"""Lesson 08, padding: its questions, and the experiments that answer them."""

import torch

from .. import faults
from ..cache import Cache
from ..contract import check
from ..contract.laws import PADDED_CALLS
from ..errors import PositionError
from ..faults.advice_padding_continued import broken as broken_calls
from ..figures.conv_window import cut
from ..figures.who_wrote import Panel, differences, who_wrote
from ..model import HybridLM
from .card import Card
from .drive import drawn
from .exercise_08 import EXERCISE, SIDES, attempt, inputs_masked, padded
from .judge import call, want_parts, want_tensor
from .library import MISSING, installed
from .question import Option, Question, claim

__all__ = ["EXERCISE", "QUESTIONS", "broken_calls", "explorer", "harmful_lengths", "in_library", "inputs_masked",
           "left_of_h", "prove", "relatives", "sides_wrong", "stale_position"]

LEFT_IS_LUCK = "On the left the state is still zero: a * 0 + 0 is 0. It is luck, and ends with the first real token."
QUESTIONS = {
    "clock": Question("08.clock", "A look back at lesson 02. A cache has seen 5 tokens. A call says: position 3. "
                                  "What must happen?", (
        Option("raises", "an error, and nothing has changed", ""),
        Option("changes", "an error, and the cache is cleared", "An error changes nothing: all or nothing. Else a "
                                                                "retry would meet another cache."),
        Option("takes", "the call is taken, and the cache goes back to 3", "A cache does not go back by itself. The "
               "caller's number and the clock disagree, and one of them is wrong."))),
    "sides": Question("08.sides", "A layer multiplies its inputs by the mask, so a padding column adds 0. "
                                  "Where does padding still do harm?", (
        Option(("left",), "on the left", LEFT_IS_LUCK),
        Option(("right", "middle"), "on the right and in the middle", ""),
        Option(("left", "right", "middle"), "on every side", LEFT_IS_LUCK),
        Option((), "nowhere: what is 0 adds nothing", "It adds nothing, but the state is multiplied by a in each "
                                                      "column, also in a padding column."))),
    "columns": Question("08.columns", "The same padding behind 4 real tokens, fed two columns at a time, then one "
                                      "column at a time. Code after the repair: which is right?", (
        Option((True, True), "both", "That was the hope. The path for one column is code of its own."),
        Option((True, False), "two at a time only", ""),
        Option((False, True), "one at a time only", "It is the other way round: the shortest chunk takes a path of its "
                                                    "own."),
        Option((False, False), "neither", "Chunks of two columns are repaired: their path looks at the mask."))),
    "lengths": Question("08.lengths", "Padding behind 2 real tokens, calls of 1 to 6 columns. "
                                      "At which lengths does padding write a slot?", (
        Option((1,), "at 1 only", ""),
        Option((1, 2), "at 1 and 2", "Look again at 2: the call with the two padding columns leaves all slots alone."),
        Option((2, 4, 6), "at the even ones", "Look at 1. An odd length alone is not the cause either."),
        Option((1, 2, 3, 4, 5, 6), "at all of them", "Only one path does not look at the mask, and it needs a call of "
                                                     "one column."))),
    "fixed": claim("08.fixed", "PR 47087 makes the mask count on continued calls. So padding is right now.",
                   "a merged repair", "Count the calls: fewer are wrong than before, and some are left."),
    "left": claim("08.left", "Pad on the left, then a recurrent layer needs no mask on later calls.",
                  "folk, made exact", {
        "else": "It depends on where the padding comes: in the first call it is harmless here, in a later one not.",
        "right": "True for padding that all comes in the first call. A long pad reaches into the second one."}),
    "eighth": Question("08.eighth", "h = a * h + u with a = 0.5. Three padding columns on the right go in with u = 0. "
                                    "How much of h is left?", (
        Option(1.0, "all of it", "Zeros are not harmless: each column multiplies h by a."),
        Option(0.5, "a half", "One column leaves a half. There are three."),
        Option(0.125, "an eighth", ""),
        Option(0.0, "nothing", "a is 0.5, not 0: each column leaves a half of what was there."))),
}


def stale_position():
    """Feed 5 tokens, then one at position 3: 'raises', 'changes' or 'takes'."""
    model, cache, ids = HybridLM.preset("mamba2", vocab_size=16, seed=0), Cache(), torch.arange(5)[None]      # (1, 5)
    with torch.no_grad():
        model(ids, cache)
        before = cache.fork()
        try:
            model(ids[:, 3:4], cache, position=3)
        except PositionError:
            return "raises" if cache.__dict__ == before.__dict__ else "changes"
    return "takes"


def sides_wrong(function):
    """The sides on which padding in a first call harms a row, measured against each row alone."""
    return tuple(side for side in SIDES if attempt(function, padded(side)).problem)


def writers(mixer, row, sizes, fed):
    """For each call, who wrote each slot of a layer's memory: the newest column whose input moves the slot; measured.

    row: one letter a column, "_" is padding. fed: the columns that reach the layer at all.
    """
    x, other = drawn(2, 1, len(row), mixer.hidden_size)                                                 # (1, L, D)
    real = torch.tensor([[letter != "_" for letter in row]])                                            # (1, L)

    def slots(x):
        state, seen = None, []
        for piece in torch.arange(len(row)).split(list(sizes)):
            piece = piece[[int(t) in fed for t in piece]]
            _, state = mixer(x[:, piece], state, real[:, piece])
            seen.append([*state.conv.unbind(-1), state.recurrent] if state else [])
        return seen
    right, wrote = slots(x), [[None] * mixer.conv1d.kernel_size[0] for _ in sizes]
    for t in fed:
        moved = slots(torch.where(torch.arange(len(row))[:, None] == t, other, x))
        for i, (now, was) in enumerate(zip(moved, right)):
            for s, pair in enumerate(zip(now, was)):
                if not torch.equal(*pair):      # a state holds traces of all columns: say so where padding is one
                    dirty = s == len(now) - 1 and "pad" in str(wrote[i][s]) and row[t] != "_"
                    wrote[i][s] = row[t].replace("_", "pad") + "+pad" * dirty
    return wrote


def alone_and_padded(chunk=1, before=2, name="padding-one-column"):
    """Two Panels: a row alone and the same row padded, in calls of `chunk` columns."""
    row = "ABCD"[:before] + "__" + "ABCD"[before:]
    sizes, mixer = cut(len(row), chunk), faults.get(name).subject(0).mixer
    calls = [" ".join(row[sum(sizes[:i]):sum(sizes[:i + 1])]) .replace("_", "pad") for i in range(len(sizes))]
    slots = [*(f"window {k}" for k in range(mixer.conv1d.kernel_size[0] - 1)), "state"]
    real = [t for t, letter in enumerate(row) if letter != "_"]
    return [Panel("alone", slots, calls, writers(mixer, row, sizes, real)),
            Panel("padded", slots, calls, writers(mixer, row, sizes, range(len(row))))]


def draw(chunk=1, before=2):
    """The key picture: (Figure, sentence); see `alone_and_padded`."""
    return who_wrote(alone_and_padded(chunk, before), words={"pad": "padding"})


def explorer():
    """The key picture with its sliders."""
    from ..widgets import Explorer
    return Explorer(draw, chunk=("columns per call", 1, 6, 1), before=("tokens before padding", 0, 4, 2))


def harmful_lengths(before=2):
    """Columns per call at which padding writes a slot."""
    return tuple(n for n in range(1, 7) if differences(alone_and_padded(n, before)))


def prove(function):
    """The contract on a learner's scan: a Report, or a Card where there is nothing to check yet."""
    def your_scan(x, state, mask=None):
        u, a = x.chunk(2, -1)                                                                           # (B, L, 3)
        mask = torch.ones(u.shape[:2], dtype=torch.bool) if mask is None else mask
        h = torch.zeros(len(u), 3, dtype=u.dtype) if state is None else state
        y, h = want_parts(call(function, u, a.sigmoid(), mask, h), ("y", "the next h"))
        want_tensor(y, "y", u.shape, u.dtype)
        want_tensor(h, "the next h", (len(u), 3), u.dtype)
        return y, h
    if not EXERCISE.tried(function):
        return Card("not tried", "The contract: scan is not tried yet, so there is nothing to prove.")

    def sample(batch, length, generator):
        return torch.randn(batch, length, 6, generator=generator, dtype=torch.float64)
    return check(your_scan, laws=("split", "rows", "padding", "fork"), sample=sample)


def relatives(names=("padding-first-call", "padding-continued", "padding-one-column", "padding-multiplied")):
    """One line for each padding fault of the catalogue: its smallest counterexample. Text."""
    lines = []
    for name in names:
        found = check(faults.get(name).subject(0), laws=["padding"])["padding"]
        lines += [f"{name}: {faults.get(name).record.says}",
                  f"    {len(found.failures)} of {found.cases} wrong, {found.verdict}",
                  f"    smallest: {found.counterexample}  {found.strip}"]
    return "\n".join(lines)


def left_of_h(a, columns):
    """The share of h that is left behind columns of zero input."""
    u = torch.zeros(1, columns, 1)
    return float(inputs_masked(u, torch.full_like(u, a), torch.zeros(1, columns).bool(), torch.ones(1, 1))[1])


def in_library(name="qwen3_next"):
    """The padding experiments on a tiny model of the installed transformers, a line for each kind of call. Text."""
    if not (library := installed()):
        return MISSING
    from ..contract import zoo
    from ..contract.transformers import subject
    wrong = check(subject(zoo.build(zoo.recipes(name)[0])), laws=["padding"])["padding"].failures
    lines = [f"transformers {library.__version__}, {name}"]
    for kind, before, _, sides in PADDED_CALLS:
        behind = f"{kind} after {before} tokens" if before else kind
        lines.append(f"{behind}: " + ", ".join(
            f"{side} {'wrong' if f'{side} padding in row 0, {behind}' in wrong else 'ok'}" for side in sides))
    return "\n".join(lines)
