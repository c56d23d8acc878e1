"""From the pattern of broken laws to the name of a likely fault.

Each fault of the catalogue has a signature: what the contract says of it. A report is compared with all of them on the
laws that both could express. The first wrong position alone does not tell faults apart, so counterexamples, strips and
the laws that hold count too. Faults that cannot be told apart are named together.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .report import Report

SIGNATURES = Path(__file__).parent.parent / "faults" / "signatures.json"
FAILS = ("silently wrong", "raises")


@dataclass(frozen=True)
class Diagnosis:
    """The likely faults and why.

    Attributes:
        names: ids of the catalogue that fit best, all of them when they cannot be told apart; empty: no fault.
        evidence: the observations, in words.
        agreement: share of what was compared that agrees.
    """

    names: tuple[str, ...]
    evidence: str
    agreement: float

    def __str__(self) -> str:
        if not self.names:
            return f"no fault found: {self.evidence}"
        return f"likely {' or '.join(self.names)} ({self.agreement:.0%} of the evidence agrees): {self.evidence}"


def signature(report: Report) -> dict[str, list]:
    """What counts of a report: law -> [verdict, smallest counterexample, strip, kind of error].

    The prefix law compares greedy tokens, and which of them turn out wrong is luck: its strip does not count.
    """
    return {f.law: [f.verdict, f.counterexample, "" if f.law == "prefix" else f.strip,
                    f.message.split(":")[0] if f.verdict == "raises" else ""]
            for f in report.findings if f.verdict != "not supported"}


@cache
def signatures() -> dict[str, dict[str, list]]:
    """The signatures of the catalogue, as `write_signatures` measured them."""
    return json.loads(SIGNATURES.read_text())


def write_signatures() -> None:
    """Measure the signature of every fault and store them; run this when a fault or a law changes."""
    from .. import faults
    from .checker import check
    found = {name: signature(check(faults.get(name).subject(0))) for name in faults.names()
             if faults.get(name).record.incident != "expected-cpu" or not faults.get(name).record.loud}
    SIGNATURES.write_text(json.dumps(found, indent=1) + "\n")


def diagnose(report: Report) -> Diagnosis:
    """Name the likely fault behind a report.

    Example:
        >>> from labkit import faults
        >>> from labkit.contract import check
        >>> print(diagnose(check(faults.get("conv-half-lost").healthy(0), laws=["split", "causal"])))
        no fault found: split and causal hold
    """
    if not report.sensitive:
        return Diagnosis((), "nothing was proved, because the past does not move the outputs", 0.0)
    if not report.failed:
        return Diagnosis((), f"{in_words([f.law for f in report.findings if f.verdict == 'holds'])} hold", 1.0)
    mine = signature(report)
    scores = {name: agreement(mine, other) for name, other in signatures().items()}
    best = max(scores.values())
    names = tuple(name for name, score in scores.items() if score > best - 1e-9)
    held = [f.law for f in report.findings if f.verdict == "holds"]
    evidence = "; ".join(f"{f.law}: {f.counterexample}{f' [{f.strip}]' if f.strip else ''}" for f in report.failed[:3])
    return Diagnosis(names, f"{evidence}; {in_words(held)} hold" if held else evidence, best)


def agreement(mine: dict[str, list], other: dict[str, list]) -> float:
    """How far two signatures agree, 0 to 1; a law that fails in one of them weighs more than one that holds in both.

    A law that only one of them could express counts against them where it fails there.
    """
    got, total = 0.0, 2.0 * sum(side[law][0] in FAILS for side, another in ((mine, other), (other, mine))
                                for law in side.keys() - another.keys())
    for law in mine.keys() & other.keys():
        fails = mine[law][0] in FAILS, other[law][0] in FAILS
        weight = 4.0 if any(fails) else 0.5
        total += weight
        if mine[law][0] == other[law][0]:
            parts = [a == b for a, b in zip(mine[law][1:], other[law][1:])] if all(fails) else [True]
            got += weight * (0.5 + 0.5 * sum(parts) / len(parts))
    return got / total if total else 0.0


def in_words(laws: list[str]) -> str:
    """a, b and c."""
    return laws[0] if len(laws) == 1 else ", ".join(laws[:-1]) + " and " + laws[-1] if laws else "no law"
