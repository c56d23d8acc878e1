"""All laws hold on every right mixer, every preset and every trained model, in float64, alone and as rows of a batch."""

import copy

import pytest
from common import FAMILIES, build, redraw

from labkit import HybridLM, check, load
from labkit.model import PRESETS
from labkit.train import TRAINED

MIXERS = {"select", "reset", "fork", "foreign", "atomic", "move", "padding"}     # what a mixer can express, beside the rest


@pytest.mark.parametrize("family", FAMILIES)
def test_mixers(family):
    report = check(build(family))
    assert report.ok, report
    assert {f.law for f in report.findings if f.verdict == "not supported"} == {"rewind", "prefix", "position"}
    assert all(report[law].verdict == "holds" for law in MIXERS)


@pytest.mark.parametrize("name", PRESETS)
def test_presets(name):
    report = check(redraw(HybridLM.preset(name, 24, hidden_size=16), 1))
    assert report.ok and all(finding.verdict == "holds" for finding in report.findings), report


@pytest.mark.parametrize("name", TRAINED)
def test_trained_models(name):
    report = check(copy.deepcopy(load(name)).double())
    assert report.ok and all(finding.verdict == "holds" for finding in report.findings), report
