"""Exercises: a check that judges behaviour, named wrong answers, hints in steps, and the solution at the end.

A check has four states: not tried, crashed, wrong, right. It runs fixed cases from simple to large, so the first
failure is the simplest counterexample, then fresh random ones, new at every run. The same answer gets the same lines
each time, unless only a fresh case sees its fault.
"""

import functools
import inspect
import itertools
import random
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from . import progress
from .card import Card, diff
from .judge import NotTried, WrongForm, own_line


@dataclass(frozen=True)
class Attempt:
    """One case, run. problem: None when right, else one sentence. strip: right and wrong tokens, '....XXX.'"""
    problem: str | None = None
    strip: str = ""
    error: Exception | None = None      # what the learner's function raised
    notes: tuple[str, ...] = ()         # remarks about an answer that is right


@dataclass(frozen=True)
class Misstep:
    """A named wrong answer, known by what it does.

    fits(function) -> bool may call the function; see `imitates`. An exception in it counts as "does not fit".
    """
    name: str
    says: str
    fits: Callable


@dataclass(frozen=True)
class Exercise:
    """Data of one exercise.

    attempt(function, case) -> Attempt: give the function copies, raise NotTried through (`judge.call` does).
    small(): fixed cases, simplest first. fresh(random.Random): new cases. shown: the cases whose strips are printed.
    str(case) is read by learners: "K = 2, pieces 1 + 1".
    """
    id: str
    solution: Callable
    attempt: Callable
    small: Callable[[], Iterable]
    fresh: Callable[[random.Random], Iterable]
    shown: tuple
    missteps: tuple[Misstep, ...]
    hints: tuple[str, ...]
    proof: str = "every fixed case and every fresh random case"

    @property
    def name(self):
        return self.solution.__name__

    def check(self, function):
        """Judge a function; returns a Card and stores the state."""
        card, misstep = self._verdict(function)
        if card.state != "not tried":
            stored = progress.get("exercises", self.id)
            seen = stored.get("missteps", [])
            state = "right" if stored.get("state") == "right" else card.state
            progress.put("exercises", self.id, state=state, tries=stored.get("tries", 0) + 1,
                         missteps=seen + [misstep] * (misstep is not None and misstep not in seen))
        return card

    def first_failure(self, function):
        """(where, Attempt): which case fails first, in words. Without a failure: ("", Attempt with all notes).

        The first case comes again at the end: what a function keeps for itself must not change its answers.
        """
        fixed, notes = [*self.small(), *self.shown], set()
        fresh = self.fresh(random.Random())                     # seeded by the system: nobody can prepare for these
        for start, cases in (("Simplest counterexample: ", fixed),
                             ("All fixed cases are right, a fresh random one is not: ", fresh),
                             ("Right at first, but not when it is asked again at the end: ", fixed[:1])):
            for case in cases:
                attempt = self.answer(function, case)
                if attempt.problem:
                    return f"{start}{case}: {attempt.problem}", attempt
                notes.update(attempt.notes)
        return "", Attempt(notes=tuple(sorted(notes)))

    def answer(self, function, case):
        """The Attempt of a function that is more than the stub: what it leaves out in one case is a problem there."""
        try:
            return self.attempt(function, case)
        except NotTried as stub:
            return Attempt("the function says that this part is not written yet", error=stub.__cause__)

    def _verdict(self, function):
        if not callable(function):
            return Card("wrong", f"{self.name}: wrong", [f"Give the check the function itself: check({self.name}), "
                                                         "without brackets after the name."]), None
        if not self.tried(function):
            return Card("not tried", f"{self.name}: not tried yet"), None
        where, attempt = self.first_failure(function)
        if attempt.problem is None:
            return Card("right", f"{self.name}: right", [f"It holds on {self.proof}.", *attempt.notes]), None
        if attempt.error is not None:
            where += f": {attempt.error}" * bool(str(attempt.error))
        evidence = [where, *self._strips(function)]
        for misstep in self.missteps:
            if _fits(misstep, function):
                if attempt.error is not None and (quiet := self._quiet(function)):
                    evidence[:1] = [quiet, where.replace("Simplest counterexample", "And it crashes")]
                return Card("wrong", f"{self.name}: wrong: {misstep.name}", [misstep.says, *evidence]), misstep.name
        if attempt.error is not None:
            line = own_line(attempt.error, function)
            return Card("crashed", f"{self.name}: crashed: {type(attempt.error).__name__}", [
                f"In your line {line[0]}:" if line else "",
                f">{line[1]}" if line else "", *evidence]), "crashed"
        return Card("wrong", f"{self.name}: wrong", evidence), "other"

    def _quiet(self, function):
        """The simplest counterexample without a crash, which shows a named fault; None when each failure crashes."""
        found = ((case, self.answer(function, case)) for case in self.small())
        return next((f"Simplest counterexample: {case}: {each.problem}" for case, each in found
                     if each.problem and each.error is None), None)

    def _strips(self, function):
        """Lines that show which tokens are right in each shown case; none when no case gives any answer."""
        attempts = {str(case): self.answer(function, case) for case in self.shown}
        strips = {case: each.strip or "!" * (each.error is not None) for case, each in attempts.items()}
        marks = set("".join(strips.values()))
        if not marks & {".", "X"}:
            return []
        if marks == {"."}:
            return [f"Every token is right on: {'; '.join(strips)}."]
        width = max(map(len, strips))
        lines = (f">{name:{width}}  {strip}{' cannot see it' * (set(strip) == {'.'})}"
                 for name, strip in strips.items())
        return ["Token by token (. right, X wrong, ! no answer):", *lines]

    def tried(self, function):
        """Is the function more than the stub?"""
        try:
            self.attempt(function, next(iter(self.small())))
        except NotTried:
            return False
        return True

    def prove(self, function, cases, which=""):
        """Run many cases, for example every cut of a text; returns a Card. which: what they are, in words."""
        if not self.tried(function):
            return Card("not tried", f"Proof: {self.name} is not tried yet, so there is nothing to prove.")
        failed = next((case for case in cases if self.answer(function, case).problem), None)
        if failed:
            return Card("wrong", f"Proof: it fails on {failed}.", ["The check above shows a smallest case."])
        return Card("right", f"Proof: all {len(cases)} runs are right{which and ': '}{which}.")

    def hint(self, number):
        """Hint 1, 2 or 3: where to look, what is missing, half a line.

        Raises:
            ValueError: there is no such hint.
        """
        if number not in range(1, len(self.hints) + 1):
            raise ValueError(f"there is no hint {number!r}; ask for 1 to {len(self.hints)}")
        progress.put("exercises", self.id, hints=max(number, progress.get("exercises", self.id).get("hints", 0)))
        return Card("info", f"Hint {number} of {len(self.hints)}", [">" + line if line.startswith("    ") else line
                                                                    for line in self.hints[number - 1].split("\n")])

    def help(self, answer=None):
        """A button that gives the hints one at a time, then the solution beside your answer."""
        from .ask import Hints
        return Hints(self, answer)

    def solved(self, answer=None):
        """The solution, and the difference to your own version. It opens after the last hint or a right answer."""
        stored = progress.get("exercises", self.id)
        if stored.get("state") != "right" and stored.get("hints", 0) < len(self.hints):
            return Card("info", "The solution opens after the last hint, or after a right answer.")
        solution, own = source(self.solution), source(answer)
        lines = diff(own, solution, f"your {self.name}", f"a right {self.name}") if own else []
        return Card("info", "One right answer; there are others." + (
            " Lines with - are yours, lines with + are new." if lines else ""),
            lines or [">" + line for line in solution.splitlines()])


def guarded(judge):
    """An `attempt` from judge(function, case) -> Attempt: what the learner's function raises becomes the problem."""
    @functools.wraps(judge)
    def attempt(function, case):
        try:
            return judge(function, case)
        except NotTried:
            raise
        except WrongForm as form:
            return Attempt(str(form))
        except Exception as error:
            return Attempt(f"the function raises {type(error).__name__}", error=error)
    return attempt


def every_cut(length):
    """All ways to cut `length` tokens into pieces, few pieces first; every_cut(2) is [(2,), (1, 1)]."""
    cuts = [tuple(len(run) for run in "".join("o" + "|" * bar for bar in (*bars, 0)).split("|"))
            for bars in itertools.product((0, 1), repeat=length - 1)]
    return sorted(cuts, key=len)


def source(function):
    """The text of a function, or '' where Python cannot find it."""
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return ""


def imitates(wrong, observe, cases, right):
    """A `fits` for Misstep: the function does what `wrong` does, on every case on which it returns.

    observe(function, case) gives what to compare; `right` is a right function. At least half of the cases must return,
    and on one of them at least the two must differ from the right answer.
    """
    def look(function, case):
        try:
            return observe(function, case)
        except NotTried:
            raise
        except Exception:
            return None

    def fits(function):
        pairs = [(seen, case) for case in cases if (seen := look(function, case)) is not None]
        return (2 * len(pairs) >= len(cases) and all(same(seen, look(wrong, case)) for seen, case in pairs)
                and not all(same(seen, look(right, case)) for seen, case in pairs))
    return fits


def imitating(right, observe, cases):
    """A maker of Missteps: misstep(name, says, wrong) fits what does as the function `wrong` does; see `imitates`."""
    def misstep(name, says, wrong, observe=observe, cases=cases):
        return Misstep(name, says, imitates(wrong, observe, cases, right))
    return misstep


def same(a, b):
    """Equal up to float noise: tensors, numbers, lists and tuples of them."""
    import torch
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.shape == b.shape
                and torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-4))
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def _fits(misstep, function):
    try:
        return bool(misstep.fits(function))
    except Exception:
        return False
