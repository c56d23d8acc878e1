"""The kill matrix, the names that `diagnose` gives, and the checker with each law taken away in turn."""

import dataclasses
import functools
from pathlib import Path

import pytest
import torch

from labkit import faults
from labkit.contract import LAWS, FunctionSubject, check
from labkit.contract.diagnose import diagnose, signatures
from labkit.contract.report import Report
from labkit.faults import kill_matrix

NAMED = [name for name in faults.names() if name != "expected-cpu"]         # that one lives on tensors without values


@functools.cache
def report(name):
    """All laws, on other weights and inputs than the stored signatures."""
    return check(faults.get(name).subject(3), seed=3)


def test_every_fault_has_a_signature():
    assert set(signatures()) == set(NAMED)


@pytest.mark.parametrize("name", NAMED)
def test_the_true_fault_is_named_alone_or_in_a_tie_of_three(name):
    found = diagnose(report(name))
    assert report(name).failed and name in found.names and len(found.names) <= 3, str(found)
    assert name in str(found)


def healthy():
    """One right twin of each kind: the others have the same class."""
    kinds = {}
    for name in NAMED:
        twin = faults.get(name).healthy
        subject = twin(3)
        inner = getattr(subject, "mixer", getattr(subject, "model", getattr(subject, "block", None)))
        options = getattr(inner, "sliding_window", None), getattr(inner, "config", None) and len(inner.layers)
        kinds.setdefault((type(subject).__name__, type(inner).__name__, options), (name, twin))
    return dict(kinds.values())


@pytest.mark.parametrize("name", healthy())
def test_no_law_catches_a_right_twin(name):
    assert check(healthy()[name](3), seed=3).ok


def test_the_page_shows_what_was_measured():
    made = kill_matrix.table({name: report(name) for name in NAMED})
    place = Path("build/kill_matrix.md")
    place.parent.mkdir(exist_ok=True)
    place.write_text(made, encoding="utf-8")
    assert made == kill_matrix.path().read_text(encoding="utf-8"), f"{place} is what runs now; put it into data/"


def without(report, law):
    """The report of a checker whose `law` finds nothing."""
    holds = dict(verdict="holds", counterexample="", strip="", message="", failures=())
    findings = tuple(dataclasses.replace(f, **holds) if f.law == law and f.verdict != "not supported" else f
                     for f in report.findings)
    return Report(report.subject, findings, report.sensitive, report.seed)


@pytest.mark.parametrize("law", LAWS)
def test_a_law_taken_away_lets_a_fault_through_or_loses_a_name(law):
    def lost(name):
        weaker = without(report(name), law)
        return not weaker.failed or name not in (found := diagnose(weaker).names) or len(found) > 3
    assert any(lost(name) for name in NAMED), f"nothing needs the law {law}"
    assert not any(lost(name) for name in NAMED if report(name)[law].verdict in ("holds", "not supported"))


def test_a_right_subject_has_no_fault():
    found = diagnose(check(faults.get("dropped-chunk").healthy(3), laws=["split", "rows", "causal"]))
    assert not found.names and "split, rows and causal hold" in str(found)


def test_a_subject_without_memory_proves_nothing():
    subject = FunctionSubject(lambda x, state: (x, state),
                              lambda b, n, g: torch.randn(b, n, 2, generator=g, dtype=torch.float64))
    found = diagnose(check(subject, laws=["split"]))
    assert not found.names and "nothing was proved" in str(found)


def test_a_plain_function_with_a_known_fault():
    """A learner's running sum that starts each longer chunk from nothing: history lost."""
    def running(x, state):
        start = 0 if state is None or x.shape[1] > 1 else state
        y = x.cumsum(1) + start
        return y, y[:, -1:] if x.shape[1] else state
    report = check(running, sample=lambda b, n, g: torch.randn(b, n, 2, generator=g, dtype=torch.float64))
    assert "history-lost" in diagnose(report).names
