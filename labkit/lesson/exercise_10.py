"""Exercise of lesson 10, smallest_failure, and the wrong answers that it knows."""

from collections.abc import Callable
from dataclasses import dataclass

from .exercise import Attempt, Exercise, Misstep, guarded, imitating
from .judge import WrongForm, a_list, call


# The right answer and the wrong ones -------------------------------------------------------------------------------

def smallest_failure(agrees, n):
    for total in range(2, n + 1):
        for first in range(1, total):
            if not agrees([first, total - first]):
                return [first, total - first]
    return None


def first_in_order(agrees, n):
    """Faulty: tries all second pieces of a first piece before the next first piece."""
    cuts = ([a, b] for a in range(1, n) for b in range(1, n + 1 - a))
    return next((cut for cut in cuts if not agrees(cut)), None)


def last_failure(agrees, n):
    """Faulty: goes on after the first failure and returns the last."""
    cuts = [[a, total - a] for total in range(2, n + 1) for a in range(1, total)]
    return next((cut for cut in reversed(cuts) if not agrees(cut)), None)


def stops_early(agrees, n):
    """Faulty: never tries the cuts of n tokens."""
    return smallest_failure(agrees, n - 1)


# The exercise ------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Fails:
    """One case: a model in words, and which cuts it gets wrong: fails(a, b)."""
    words: str
    fails: Callable
    n: int = 9

    def __str__(self):
        return f"a model that is wrong {self.words}, n = {self.n}"

    def asked(self, function):
        """What the function returns, and the cuts that it asked about."""
        cuts = []

        def agrees(cut):
            sizes = list(cut)
            if len(sizes) != 2 or min(sizes) < 1 or sum(sizes) > self.n:
                raise WrongForm(f"agrees was asked about {sizes}; two pieces of 1 or more, at most {self.n} together")
            cuts.append(sizes)
            return not self.fails(*sizes)
        found = call(function, agrees, self.n)
        if found is not None and not (isinstance(found, (list, tuple)) and [*map(type, found)] == [int, int]):
            raise WrongForm(f"the function returns {a_list(found)}, it should return [a, b] or None")
        return None if found is None else list(found), cuts


@guarded
def attempt(function, case):
    """Is it a cut that fails, and does no shorter one fail?"""
    found, _ = case.asked(function)
    least = min((x + y for x in range(1, case.n) for y in range(1, case.n + 1 - x) if case.fails(x, y)), default=None)
    if found is None:
        return Attempt(None if least is None else f"None is returned, but a cut of {least} tokens fails")
    if least is None:
        return Attempt(f"{found} is returned, but no cut fails")
    if sum(found) > case.n or min(found) < 1 or not case.fails(*found):
        return Attempt(f"{found} is returned, but that cut is right")
    return Attempt(f"{found} fails, but a cut of {least} tokens does too" if sum(found) > least else None)


ANY, SHORT, BOTH = (Fails("in every chunk of 2 or more", lambda a, b: b > 1),
                    Fails("in chunks of 6 or more, and in 2 + 3", lambda a, b: b > 5 or (a, b) == (2, 3)),
                    Fails("when both pieces have 3 or more", lambda a, b: a > 2 and b > 2))


def only(*cuts):
    """A model that is wrong at these cuts alone, of which the first is the smallest by tokens, and by nothing else."""
    return Fails(f"at {' and '.join(f'{a} + {b}' for a, b in cuts)} only", lambda a, b: (a, b) in cuts)


NOWHERE = Fails("nowhere", lambda a, b: False)
FIXED = (ANY, SHORT, BOTH, NOWHERE, Fails("after 4 tokens", lambda a, b: a > 3, 7),
         Fails("one token at a time", lambda a, b: b == 1, 5), Fails("in chunks of 4 only", lambda a, b: b == 4, 5),
         only((1, 4), (3, 3)), only((2, 3), (1, 5)), only((1, 3), (4, 1)), only((4, 5)))


def fresh(draw):
    """12 random cases: some cuts fail."""
    for _ in range(12):
        n = draw.randint(2, 9)
        cuts = {(a, b) for a in range(1, n) for b in range(1, n + 1 - a) if draw.random() < draw.choice((0.05, 0.3))}
        yield Fails("at random cuts", lambda a, b, cuts=cuts: (a, b) in cuts, n)


def asks_only(kind):
    """The function goes on asking, and only about cuts of one kind, where no cut fails."""
    def fits(function):
        _, cuts = NOWHERE.asked(function)
        return len(cuts) > 2 and all(kind(*cut) for cut in cuts)
    return fits


misstep = imitating(smallest_failure, lambda function, case: case.asked(function)[0] or [], FIXED)
EXERCISE = Exercise(
    id="10.smallest_failure", solution=smallest_failure, attempt=attempt, small=lambda: FIXED, fresh=fresh, shown=(),
    proof="models that are wrong in chunks, after a while, one token at a time or nowhere, and fresh random cases",
    missteps=(
        Misstep("only chunks of 1 are tried", "You feed one token behind the first piece, as a model that writes does. "
                "A fault of chunks cannot show there.", asks_only(lambda a, b: b == 1)),
        Misstep("only halves are tried", "You cut in the middle. One cut of each length is not all cuts.",
                asks_only(lambda a, b: abs(a - b) < 2)),
        misstep("the first piece is looped over before the total", "Smallest means fewest tokens. With the first piece "
                "in the outer loop, [1, 6] comes before [2, 3].", first_in_order),
        misstep("the last failure is returned", "Go from short to long and stop at the first failure.", last_failure),
        misstep("cuts of n tokens are not tried", "range(2, n) ends at n - 1. A failing cut may have n tokens.",
                stops_early),
    ),
    hints=(
        "Where to look: in which order do you meet the cuts? Which number has to grow slowest?",
        "What is missing: an outer loop over the total number of tokens, 2 to n; an inner one over the first piece.",
        "Half a line:\n    for total in range(2, n + 1):\n        for first in range(1, total): ...",
    ))
