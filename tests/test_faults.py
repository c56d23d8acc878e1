"""Every fault is caught by its law, every right twin holds there, and the reported messages appear word for word."""

import pytest
import torch

from labkit import faults
from labkit.contract import check
from labkit.faults import samples
from labkit.faults.different_depths import GuardInTime

# one law that catches each fault; the others that do are measured, not listed
LAW = {"trusts-the-caller": "position", "refuses-gaps-only": "position", "missing-is-zeros": "position",
       "empty-cache": "position", "attention-not-reset": "reset", "rows-not-selected": "select",
       "rewinds-keys-only": "rewind", "foreign-weights": "foreign", "fork-is-the-same": "fork", "half-done": "atomic",
       "full-prompt-loud": "prefix", "full-prompt-hidden": "prefix", "full-prompt-refed": "prefix",
       "lengths-not-tokens": "prefix", "depth-only": "foreign", "copy-without-clock": "fork",
       "copy-shares-storage": "fork", "reset-forgets-a-field": "reset", "table-ends": "long", "guard-too-late": "split",
       "ring-off-by-one": "split", "looks-ahead": "causal", "padding-first-call": "padding",
       "no-tokens": "empty", "scale-per-batch": "rows", "state-on-the-model": "sessions", "window-not-saved": "move",
       "cache-is-full": "long", "order-of-sums": "repeat", "padding-continued": "padding",
       "padding-one-column": "padding", "padding-multiplied": "padding"}
LOUD = [name for name in faults.names() if faults.get(name).trigger]
CHECKED = [name for name in faults.names() if name != "expected-cpu"]       # on meta tensors: its trigger is the test


@pytest.mark.parametrize("name", CHECKED)
def test_caught_by_its_law_and_gone_with_its_cause(name):
    fault, law = faults.get(name), LAW.get(name, "split")
    report = check(fault.subject(0), laws=[law])
    assert report.failed, "the law does not see it"
    assert check(fault.healthy(0), laws=[law]).ok, "the right twin must hold where the fault fails"


@pytest.mark.parametrize("name", LOUD)
def test_messages_word_for_word(name):
    fault = faults.get(name)
    with pytest.raises(Exception) as caught:
        fault.trigger()
    assert str(caught.value) == fault.record.message and fault.record.loud


def test_the_catalogue_is_whole():
    assert len(faults.names()) >= 24
    incidents = {faults.get(name).record.incident for name in faults.names()}
    assert incidents == {"empty-cache", "cache-position", "expected-cpu", "dropped-chunk", "different-depths",
                         "padding-continued"}
    for name in faults.names():
        fault = faults.get(name)
        assert fault.record.id == name and fault.record.sources and fault.record.says
        assert "+" in fault.diff() and "-" in fault.diff()
        assert fault.record.loud == bool(fault.record.message)
    with pytest.raises(KeyError, match="there are"):
        faults.get("nothing")


def test_the_healthy_guard_speaks_at_construction():
    with pytest.raises(NotImplementedError, match="kv_cache_enabled=true is not supported"):
        GuardInTime(kv_cache_enabled=True, channels=3, hidden_size=8, num_layers=1, num_heads=2, context=4)


def test_expected_cpu_only_without_its_guard():
    """The right layer on the same device raises nothing."""
    samples.attention().to("meta")(torch.zeros(1, 3, 8, device="meta", dtype=torch.float64))
