"""What the public reports say, executed: each claim and each proposed fix is a small case that is run and judged.

    case = advice.get("dropped-chunk.all-after-first")
    outcome = case.run()                        # outcome.verdict, outcome.evidence
"""

import functools
import pkgutil
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

VERDICTS = ("right", "partly", "wrong", "impossible", "silently wrong")


@dataclass(frozen=True)
class Outcome:
    """What a run showed.

    Attributes:
        verdict: one of VERDICTS, decided by what was measured.
        evidence: what was measured, in a sentence or two.
    """

    verdict: str
    evidence: str


@dataclass(frozen=True)
class Advice:
    """One claim or fix of a public report.

    Attributes:
        id: incident and a short name, "cache-position.crop".
        says: the claim, in our words.
        verdict: what a run gives; a test runs every case and compares.
        reason: why.
        where: what it runs on: "a port in Python", "transformers", "recorded runs of transformers".
        source: repository and number, or the report.
        measure: runs the case: () -> (verdict, evidence).
    """

    id: str
    says: str
    verdict: str
    reason: str
    where: str
    source: str
    measure: Callable[[], tuple[str, str]]

    @property
    def incident(self) -> str:
        return self.id.split(".")[0]

    def run(self) -> Outcome:
        """Run the case.

        Raises:
            ModuleNotFoundError: it runs on transformers, which is not installed.
        """
        return Outcome(*self.measure())


ADVICE: dict[str, Advice] = {}


def advise(id: str, says: str, verdict: str, reason: str, where: str = "a port in Python", source: str = "the report"):
    """Put the decorated function, () -> (verdict, evidence), into the list of advice."""
    def add(measure):
        ADVICE[id] = Advice(id, says, verdict, reason, where, source, measure)
        return measure
    return add


@functools.cache
def load_all() -> None:
    """Import every file advice_*.py beside this one, once: each fills the list."""
    package = __name__.rpartition(".")[0]
    for found in pkgutil.iter_modules(import_module(package).__path__):
        if found.name.startswith("advice_"):
            import_module(f"{package}.{found.name}")


def get(id: str) -> Advice:
    """The advice of that id.

    Raises:
        KeyError: there is none; the message lists those that there are.
    """
    load_all()
    if id not in ADVICE:
        raise KeyError(f"no advice is named {id!r}; there is {', '.join(ADVICE)}")
    return ADVICE[id]


def judged(*ids: str) -> str:
    """A paragraph for each claim, 88 columns wide: what it says, the verdict of a run, what was measured, and why."""
    def say(case):
        found = case.run()
        return textwrap.fill(f"“{case.says}” Verdict: {found.verdict}. {found.evidence} {case.reason}", 88)
    return "\n\n".join(say(get(id)) for id in ids)


def of(incident: str) -> list[Advice]:
    """All advice about an incident."""
    load_all()
    return [each for each in ADVICE.values() if each.incident == incident]


def incidents() -> tuple[str, ...]:
    """The incidents and topics with advice, first come first."""
    load_all()
    return tuple(dict.fromkeys(each.incident for each in ADVICE.values()))
