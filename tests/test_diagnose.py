"""The likely fault is named from the pattern of broken laws, on other weights and inputs than the stored signatures."""

import pytest
import torch

from labkit import faults
from labkit.contract import FunctionSubject, check
from labkit.contract.diagnose import diagnose, signatures

NAMED = [name for name in faults.names() if name != "expected-cpu"]         # that one lives on tensors without values


def test_every_fault_has_a_signature():
    assert set(signatures()) == set(NAMED)


@pytest.mark.parametrize("name", NAMED)
def test_the_true_fault_is_named_alone_or_in_a_tie_of_three(name):
    found = diagnose(check(faults.get(name).subject(3), seed=3))
    assert name in found.names and len(found.names) <= 3, str(found)
    assert name in str(found)


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
