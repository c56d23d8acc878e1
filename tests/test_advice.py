"""Every claim and every proposed fix of the reports is run, and gives the verdict that stands beside it."""

import pytest

from labkit.faults import advice
from labkit.versions import GROUPS, recorded, words

CASES = [each.id for incident in advice.incidents() for each in advice.of(incident)]


@pytest.mark.parametrize("id", CASES)
def test_the_run_gives_the_verdict(id):
    case = advice.get(id)
    if case.where == "transformers":
        pytest.importorskip("transformers", reason="this advice is about the library itself")
    outcome = case.run()
    assert outcome.verdict == case.verdict, outcome.evidence
    assert outcome.verdict in advice.VERDICTS and outcome.evidence and case.reason and case.says


def test_all_reports_are_judged():
    assert {"empty-cache", "cache-position", "expected-cpu", "dropped-chunk", "different-depths"} <= set(
        advice.incidents())
    assert set(advice.VERDICTS) == {advice.get(id).verdict for id in CASES}
    with pytest.raises(KeyError, match="there is"):
        advice.get("nothing")


def test_no_proposed_fix_makes_the_failing_call_right():
    fixes = [advice.get(f"cache-position.{name}") for name in ("manual", "saved", "new-tokens")]
    assert {fix.run().verdict for fix in fixes} <= {"impossible", "silently wrong"}


@pytest.mark.parametrize("group", GROUPS)
def test_recorded_outcomes_are_whole(group):
    found = recorded(group)
    assert len(found) >= 15
    cases = set(found[next(iter(found))])
    assert all(set(outcomes) == cases for outcomes in found.values())
    assert all(words(outcome) for outcomes in found.values() for outcome in outcomes.values())
