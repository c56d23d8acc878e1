"""python -m labkit check: what it takes, what it says, what it returns."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.contract.command import main

ROOT = Path(__file__).resolve().parents[1]
MODULE = '''
import torch
from labkit.mixers import ShortConv

def mixer():
    return ShortConv(hidden_size=4)

def pair():
    def running_sum(x, state):
        y = x.cumsum(1) + (0 if state is None else state)
        return y, y[:, -1:]
    return running_sum, {"sample": lambda b, n, g: torch.randn(b, n, 2, generator=g, dtype=torch.float64)}

def forgetful():
    def no_state(x, state):
        return x.cumsum(1), None
    return no_state, {"sample": lambda b, n, g: torch.randn(b, n, 2, generator=g, dtype=torch.float64)}

value = 3
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    name = f"own_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


def test_preset(capsys, tmp_path):
    assert main(["mamba2", "--laws", "split,position", "--json", str(tmp_path / "new" / "report.json")]) == 0
    assert "2 laws hold" in capsys.readouterr().out
    assert [finding["verdict"] for finding in json.loads((tmp_path / "new" / "report.json").read_text())[0]["findings"]] \
        == ["holds", "holds"]


def test_own_factories(own, capsys):
    assert main([f"{own}:mixer", "--laws", "split,rows"]) == 0
    assert main([f"{own}:pair", "--laws", "split,rows"]) == 0
    assert "running_sum: 2 laws hold" in capsys.readouterr().out
    assert main([f"{own}:forgetful", "--laws", "split"]) == 1
    assert "prefill 1, then 1 token" in capsys.readouterr().out


@pytest.mark.parametrize("argv, says", [
    ([], "name one thing to check"), (["mamba2", "--transformers"], "name one thing to check"),
    (["mamba3"], "there is no preset 'mamba3'; there are short-conv"),
    (["mamba2", "--laws", "splits"], "no law is named splits; there are split"),
    (["no_such_module_here:f"], "there is no module 'no_such_module_here'"),
    (["mamba2", "--model", "jamba"], "belong to --transformers"),
    (["--transformers", "--processes", "0"], "give at least 1")])
def test_errors_are_one_clear_line(argv, says, capsys):
    assert main(argv) == 2
    told = capsys.readouterr()
    assert says in told.err and told.err.count("\n") == 1 and not told.out


def test_errors_of_own_modules(own, capsys):
    assert main([f"{own}:nothing"]) == 2 and "has no 'nothing'" in capsys.readouterr().err
    assert main([f"{own}:value"]) == 2 and "is of type int; give a function" in capsys.readouterr().err


def test_unknown_architecture(capsys):
    pytest.importorskip("transformers", reason="install the extra: pip install 'labkit[real]'")
    assert main(["transformers:nothing"]) == 2 and "no architecture 'nothing'" in capsys.readouterr().err
    assert main(["--transformers", "--model", "nothing"]) == 2 and "no architecture" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["--transformers"], ["transformers:mamba"]])
def test_without_transformers_one_plain_line(argv):
    code = ("import sys; sys.modules['transformers'] = None\n"
            f"from labkit.contract.command import main; sys.exit(main({argv}))")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr == "This needs transformers: pip install 'labkit[real]'\n"


def test_presets_need_no_transformers():
    code = ("import sys; sys.modules['transformers'] = None\n"
            "from labkit.contract.command import main; sys.exit(main(['short-conv', '--laws', 'causal']))")
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True).returncode == 0
