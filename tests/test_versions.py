"""The recorded outcomes are those of a run: the installed release is run again and compared."""

import json

import pytest

from labkit import versions


def coarse(outcome):
    """What does not depend on the machine: which error, which positions, how many tokens."""
    return {key: value for key, value in outcome.items() if key not in ("error", "scale", "message")}


@pytest.mark.parametrize("group", versions.GROUPS)
def test_the_installed_release_does_what_was_recorded(group):
    transformers = pytest.importorskip("transformers", reason="the cases run on the library itself")
    found = versions.run(group)
    assert found["transformers"] == transformers.__version__
    wanted = versions.recorded(group)[transformers.__version__]
    assert {case: coarse(outcome) for case, outcome in found["outcomes"].items()} == {
        case: coarse(outcome) for case, outcome in wanted.items()}


def test_the_story_of_the_covered_prompt():
    """Loud up to 5.2, silent from 5.3 on; and the chunk: the first token right, none right, all right."""
    prompt = {release: cases["full_prompt"] for release, cases in versions.recorded("cache-position").items()}
    assert prompt["4.46.1"]["message"] == prompt["5.2.0"]["message"] == (
        "index -1 is out of bounds for dimension 0 with size 0")
    assert all(each["right"] < each["of"] for release, each in prompt.items() if versions.since(release, "5.3.0"))
    chunk = {release: cases["chunk mamba2"]["strip"][9:14] for release, cases in versions.recorded("dropped-chunk").items()
             if versions.since(release, "4.53.3")}
    assert chunk["5.4.0"] == ".XXXX" and chunk["5.12.1"] == "XXXXX" and chunk["5.13.0"] == "....."


def test_outcomes_are_kept_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(versions, "path", lambda group: tmp_path / "real" / f"{group}.json")
    for release in ("5.10.0", "5.9.1", "4.57.6"):
        versions.keep("x", {"transformers": release, "outcomes": {"a": {"right": 1, "of": 8, "cache": 3}}})
    assert list(json.loads((tmp_path / "real" / "x.json").read_text())) == ["4.57.6", "5.9.1", "5.10.0"]
    assert "1 of 8 tokens right, cache 3" in versions.table("x", {"transformers": "1", "outcomes": {
        "a": {"right": 1, "of": 8, "cache": 3}, "b": {"raises": "E", "message": "no"}}})


def test_a_run_that_fails_says_why(tmp_path):
    (tmp_path / "transformers").mkdir()
    (tmp_path / "transformers" / "__init__.py").write_text("raise ImportError('this release is broken')")
    with pytest.raises(RuntimeError, match="this release is broken"):
        versions.run("cache-position", tmp_path)
