"""The contract on models of transformers: expected verdicts, counterexamples as scripts, the page."""

import json
import re
import subprocess
import sys

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="install the extra: pip install 'labkit[real]'")
from labkit.contract import check, matrix, zoo  # noqa: E402
from labkit.contract.transformers import subject  # noqa: E402
from labkit.files import data_folder  # noqa: E402
from tools import confirm_matrix  # noqa: E402


def recipe(name: str, label: str = "") -> zoo.Recipe:
    found = [recipe for recipe in zoo.recipes(name) if label in recipe.label]
    return found[0]


def verdicts(name: str, laws: list[str], label: str = "", **options) -> dict[str, str]:
    asked = subject(zoo.build(recipe(name, label)), **options)
    asked.bound = 1e-11                 # float64 all the way: a right path agrees to rounding, no cast is left
    report = check(asked, laws=laws)
    assert report.sensitive
    return {finding.law: finding.verdict for finding in report.findings}


CONTROL = ["split", "causal", "rows", "padding", "fork", "sessions", "select", "reset", "repeat"]


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_controls_hold(name):
    assert set(verdicts(name, CONTROL).values()) == {"holds"}
    assert verdicts(name, ["prefix", "move"]) == {"prefix": "silently wrong", "move": "not supported"}


def test_known_verdicts_of_split():
    wrong, right = {"split": "silently wrong"}, {"split": "holds"}
    assert verdicts("mamba", ["split"]) == wrong
    assert verdicts("mamba2", ["split"]) == right
    assert verdicts("mamba2", ["split"], "finite") == wrong
    assert verdicts("qwen3_next", ["split"]) == right
    assert verdicts("qwen3_next", ["split"], positions=False) == right
    assert verdicts("recurrent_gemma", ["split"]) == wrong


def test_state_on_the_modules_shows():
    model = subject(zoo.build(recipe("recurrent_gemma")))
    report = check(model, laws=["fork", "sessions", "reset", "causal"])
    assert model.holds_state
    assert [f.verdict for f in report.findings] == ["silently wrong"] * 3 + ["holds"]
    assert not subject(zoo.build(recipe("mamba"))).holds_state


def test_padding_column_by_column_is_lost_in_linear_models():
    failures = check(subject(zoo.build(recipe("qwen3_next"))), laws=["padding"])["padding"].failures
    assert "left padding in row 0, first call" not in failures
    assert "left padding in row 0, one column at a time, from the start" in failures


def test_going_back():
    assert verdicts("mistral", ["rewind"], "short window", recording=True) == {"rewind": "holds"}
    assert verdicts("mamba2", ["rewind"]) == {"rewind": "holds"}                        # a clear refusal
    assert verdicts("mamba2", ["rewind"], recording=True) == {"rewind": "silently wrong"}


def test_a_model_without_memory_proves_nothing():
    model = zoo.build(recipe("llama"))
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
    report = check(subject(model), laws=["split"])
    assert not report.sensitive and not report.ok and "nothing was proved" in report.sentence


def test_a_model_of_the_library_as_it_is():
    report = check(zoo.build(recipe("llama")).float(), laws=["rows"])
    assert report.ok and report.subject == "LlamaForCausalLM"


def test_not_a_causal_lm():
    with pytest.raises(TypeError, match="Linear.forward takes none of past_key_values"):
        subject(torch.nn.Linear(2, 2))
    with pytest.raises(zoo.NotBuilt, match="no architecture 'nothing'"):
        zoo.recipes("nothing")


def test_discovery_finds_the_families():
    assert {"llama", "mistral", "mamba", "mamba2", "jamba", "bamba", "zamba", "zamba2", "falcon_h1", "lfm2", "rwkv",
            "xlstm", "minimax", "qwen3_next", "recurrent_gemma", "nemotron_h", "granitemoehybrid"} <= set(zoo.names())


@pytest.fixture(scope="module")
def rows():
    return [matrix.row(recipe("mamba")), {"name": "x", "title": "x", "problem": "no config"}]


def test_smallest_counterexample(rows):
    cell = rows[0]["cells"]["split"]
    assert cell["counterexample"] == "prefill 1, then a chunk of 2" and cell["position"] == 1 and cell["error"] > 0.01


def test_scripts_reproduce_the_errors(rows, tmp_path):
    for column in ("split", "padding"):
        cell = rows[0]["cells"][column]
        (tmp_path / "case.py").write_text(cell["script"])
        assert "labkit" not in cell["script"]
        done = subprocess.run([sys.executable, "case.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        error, scale = map(float, re.search(r"largest error (\S+) of (\S+)", done.stdout).groups())
        assert error > 1e-3 * scale and error == pytest.approx(cell["error"], rel=1e-3)


def test_recorded_matrix_is_what_is_measured(rows):
    """data/real_library/contract.txt: a model of each kind is asked again; the command writes the others the same way."""
    recorded = (data_folder() / "real_library" / "contract.txt").read_text().splitlines()
    head = f"transformers {transformers.__version__}, torch "
    if not recorded[0].startswith(head):
        pytest.fail(f"{recorded[0]!r} was measured with another release; run: python -m labkit check --transformers "
                    "--processes 2 > data/real_library/contract.txt")
    measured = [rows[0], *(matrix.row(recipe(name)) for name in ("llama", "mamba2", "gemma3n"))]
    for line in matrix.to_text(measured).splitlines():
        if line.startswith(tuple(row["title"] for row in measured)):
            assert line.split() in [other.split() for other in recorded]
    assert {recipe.title for name in zoo.names() for recipe in built(name)} == {
        line[:line.index("  ")] for line in recorded if re.search(r" (ok|X|!|-) +(ok|X|!|-) ", line)}


def built(name):
    try:
        return zoo.recipes(name)
    except zoo.NotBuilt:
        return []


def test_confirm_tells_a_right_script_from_a_wrong_one(rows):
    row = {**rows[0], "cells": {"split": rows[0]["cells"]["split"]}}
    assert [right for *_, right, _ in confirm_matrix.of_row(row)] == [True]
    harmless = row["cells"]["split"]["script"].replace("errors, scales =", "feed = lambda *a, **k: None; errors, scales =")
    assert [right for *_, right, _ in confirm_matrix.of_row(
        {**row, "cells": {"split": row["cells"]["split"] | {"script": harmless}}})] == [False]


def test_page_and_text_and_json(rows):
    page, text = matrix.to_html(rows), matrix.to_text(rows)
    assert "http" not in page and "<script" not in page and "<link" not in page and "src=" not in page
    for mark, colour in (("X", "#f6c7b6"), ("ok", "#d5f0e3"), ("-", "#eeeeee")):
        assert re.search(f'background:{colour}"><a href="#[^"]+" title="[^"]+">{mark}</a>', page)
    targets = set(re.findall(r'href="#([^"]+)"', page))
    assert targets == set(re.findall(r'section id="([^"]+)"', page))
    assert "prefill 1, then a chunk of 2" in page and "no config" in page
    assert re.search(r"^mamba +X +- +ok", text, re.M) and "not built: x: no config" in text
    assert json.loads(matrix.to_json(rows))["rows"][0]["cells"]["split"]["verdict"] == "silently wrong"
