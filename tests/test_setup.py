"""The set-up agrees with itself: packages and versions, Makefile, README, the hand-out, the doctor."""
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from rattler import MatchSpec

from labkit import __main__ as command
from labkit import doctor
from tools import browser, handout

ROOT = Path(__file__).resolve().parent.parent
CONDA_NAMES = {"torch": "pytorch-cpu", "matplotlib": "matplotlib-base", "playwright": "playwright-python"}
CONDA_ONLY = {"python", "pip", "editables"}     # pip and editables install labkit itself
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def requirements(project, *extras):
    """Return {name: SpecifierSet} of the dependencies, the build back-end and the extras."""
    lines = project["project"]["dependencies"] + project["build-system"]["requires"]
    for extra in extras:
        lines = lines + project["project"]["optional-dependencies"][extra]
    return {each.name.lower(): each.specifier for each in map(Requirement, lines)}


def conda_faults(text, wanted):
    """Return a line for each fault of an environment.yml: a line that conda cannot read, another name or version."""
    environment, faults, found = yaml.safe_load(text), [], {}
    if environment["channels"] != ["conda-forge", "nodefaults"]:
        faults.append(f"channels are {environment['channels']}")
    for line in environment["dependencies"]:
        try:
            spec = MatchSpec(line, strict=True)
        except Exception as error:      # rattler's own classes
            faults.append(f"{line}: {error}")
            continue
        found[spec.name.normalized] = str(spec.version or "")
    wanted = {CONDA_NAMES.get(name, name): specifier for name, specifier in wanted.items()}
    for name in sorted((wanted.keys() ^ found.keys()) - CONDA_ONLY):
        faults.append(f"{name} is in only one of the two files")
    for name in sorted(wanted.keys() & found.keys()):
        if SpecifierSet(found[name]) != wanted[name]:
            faults.append(f"{name}: {found[name]} here, {wanted[name]} in pyproject.toml")
    return faults


def lock_faults(text, wanted):
    """Return a line for each requirement that the lock does not satisfy, and each lock line that is not one pin."""
    pins, faults = {}, []
    for line in filter(None, (line.partition("#")[0].strip() for line in text.splitlines())):
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9._!]+)", line)
        if match is None:
            faults.append(f"not one exact pin: {line}")
        else:
            pins[re.sub(r"[-_.]+", "-", match[1].lower())] = match[2]
    for name, specifier in wanted.items():
        if name not in pins:
            faults.append(f"{name} is missing")
        elif pins[name] not in specifier:
            faults.append(f"{name}: {pins[name]} does not satisfy {specifier}")
    return faults


CONDA = (ROOT / "environment.yml").read_text(encoding="utf-8")
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")


def test_environment_agrees():
    assert conda_faults(CONDA, requirements(PROJECT, "real", "test")) == []


@pytest.mark.parametrize("right, wrong", [
    ("tqdm >=4.66,<5", "tqdm =>4.66"), ("tqdm >=4.66,<5", "tqdm >=4.67,<5"), ("pytorch-cpu >=2.13,<3", "pytorch-cpu=="),
    ("  - nbval >=0.11,<1\n", ""), ("  - pip\n", "  - pip\n  - pandas >=2\n"), ("- nodefaults", "- defaults"),
    ("matplotlib-base", "matplotlib")])
def test_environment_fault_is_found(right, wrong):
    assert right in CONDA
    assert conda_faults(CONDA.replace(right, wrong), requirements(PROJECT, "real", "test"))


def test_lock_satisfies_the_project():
    assert lock_faults(LOCK, requirements(PROJECT, *PROJECT["project"]["optional-dependencies"])) == []


@pytest.mark.parametrize("right, wrong", [("torch==2.13.0", "torch==2.12.0"), ("torch==2.13.0", "torch>=2.13.0"),
                                          ("torch==2.13.0", ""), ("torch==2.13.0", "torch @ https://example.org/t")])
def test_lock_fault_is_found(right, wrong):
    assert right in LOCK
    assert lock_faults(LOCK.replace(right, wrong), requirements(PROJECT))


def targets(makefile):
    return {name for line in re.findall(r"^([a-z ]+):(?!=)", makefile, re.M) for name in line.split()}


def test_readme_commands_exist():
    named = set(re.findall(r"^make ([a-z]+)", (ROOT / "README.md").read_text(encoding="utf-8"), re.M))
    assert {"lab", "test"} <= named <= targets((ROOT / "Makefile").read_text(encoding="utf-8"))


def test_a_missing_target_is_found():
    assert targets("lab: install\n\nA := b\ntest notebooks: x") == {"lab", "test", "notebooks"}


def test_ci_runs_make_test_and_nothing_else():
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    commands = [line for line in lines if line and not line.startswith("#")]
    assert commands == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', "make test"]


# ---- the doctor, with invented facts

GOOD = {"python": "3.12.1", "torch": "2.13.0+cpu", "ipywidgets": "8.1.9", "jupyterlab": "4.6.6", "matplotlib": "3.11.2",
        "extension": "5.0.16", "kernel": "/env/bin/python", "this": "/env/bin/python3.12"}


def test_doctor_accepts_what_fits():
    assert all(finding.fits for finding in doctor.judge(GOOD))


@pytest.mark.parametrize("name, value, point", [
    ("python", "3.10.14", "python"), ("torch", "2.12.1+cpu", "torch"), ("torch", "3.0.0", "torch"),
    ("torch", None, "torch"), ("ipywidgets", "7.7.1", "ipywidgets"), ("ipywidgets", "8.1.4", "ipywidgets"),
    ("jupyterlab", "3.6.1", "jupyterlab"), ("matplotlib", None, "matplotlib"),
    ("extension", None, "browser extension"), ("extension", "3.1.0", "browser extension"),
    ("kernel", None, "kernel"), ("kernel", "/usr/bin/python3", "kernel")])
def test_doctor_finds_what_does_not_fit(name, value, point):
    findings = doctor.judge({**GOOD, name: value})
    assert [finding.name for finding in findings if not finding.fits] == [point]
    text = "\n".join(doctor.report(findings))
    assert "what to do: " in text and "1 of 7 must be repaired" in text


def test_doctor_exit_code_and_notebook_line(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "facts", lambda: GOOD)
    assert doctor.main([]) == 0
    capsys.readouterr()
    doctor.check()
    assert capsys.readouterr().out == ("This machine fits: python, torch, ipywidgets, jupyterlab, matplotlib, "
                                       "browser extension, kernel.\n")
    monkeypatch.setattr(doctor, "facts", lambda: {**GOOD, "torch": None})
    assert doctor.main([]) == 1
    capsys.readouterr()
    doctor.check()
    assert "REPAIR  torch" in capsys.readouterr().out


def test_doctor_bounds_are_those_of_the_project():
    wanted = {**requirements(PROJECT), "python": SpecifierSet(PROJECT["project"]["requires-python"])}
    for name, (low, high) in doctor.BOUNDS.items():
        words = f">={'.'.join(map(str, low))}" + (f",<{'.'.join(map(str, high))}" if high else "")
        assert SpecifierSet(words) == wanted[name], name


def test_this_environment_fits():
    assert [finding for finding in doctor.judge(doctor.facts()) if not finding.fits] == []


@pytest.mark.parametrize("flags, code", [([], 0), (["-I", "-S"], 1)])      # -S: without the installed packages
def test_doctor_runs_where_labkit_cannot_be_imported(flags, code):
    script = str(ROOT / "labkit" / "doctor.py")
    ran = subprocess.run([sys.executable, *flags, script], capture_output=True, text=True)
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert ("REPAIR  torch: not installed" in ran.stdout) == bool(code)


def test_commands(monkeypatch, capsys):
    assert command.main([]) == 0 and "python -m labkit doctor" in capsys.readouterr().out
    assert command.main(["surgeon"]) == 2 and "no command 'surgeon'" in capsys.readouterr().err
    monkeypatch.setitem(command.COMMANDS, "later", ("labkit.later:main", "not written yet"))
    assert "later" not in command.available() and "doctor" in command.available()
    monkeypatch.setattr(doctor, "main", lambda argv: len(argv))
    assert command.main(["doctor", "a", "b"]) == 2


# ---- the hand-out

def lesson(text, output="3"):
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "source": text, "execution_count": 1,
            "outputs": [{"output_type": "stream", "name": "stdout", "text": output}]}
    return json.dumps({"cells": [cell], "metadata": {"widgets": {}}, "nbformat": 4, "nbformat_minor": 5})


@pytest.fixture
def folders(tmp_path):
    source, work = tmp_path / "notebooks", tmp_path / "work"
    source.mkdir()
    (source / "01.ipynb").write_text(lesson("x = 1"))
    handout.hand_out(source, work)
    return source, work


def test_handout_has_no_outputs(folders):
    notebook = json.loads((folders[1] / "01.ipynb").read_text())
    assert notebook["cells"][0]["outputs"] == [] and notebook["cells"][0]["execution_count"] is None
    assert notebook["cells"][0]["source"] == "x = 1" and "widgets" not in notebook["metadata"]


def test_unchanged_copy_follows_the_lesson(folders):
    source, work = folders
    assert handout.hand_out(source, work) == []
    (source / "01.ipynb").write_text(lesson("x = 1", output="4"))      # only an output differs
    assert handout.hand_out(source, work) == []
    (source / "01.ipynb").write_text(lesson("x = 2"))
    assert len(handout.hand_out(source, work)) == 1
    assert "x = 2" in (work / "01.ipynb").read_text() and len(list(work.glob("*.ipynb"))) == 1


def test_changed_copy_is_kept_and_the_new_lesson_stands_beside_it(folders):
    source, work = folders
    (work / "01.ipynb").write_text("mine")
    assert handout.hand_out(source, work) == []
    for text, name in [("x = 2", "01.new.ipynb"), ("x = 3", "01.new2.ipynb")]:
        (source / "01.ipynb").write_text(lesson(text))
        line, = handout.hand_out(source, work)
        assert name in line and "yours is kept" in line
        assert (work / "01.ipynb").read_text() == "mine" and text in (work / name).read_text()
        assert handout.hand_out(source, work) == []      # said once
    assert "x = 2" in (work / "01.new.ipynb").read_text()


@pytest.mark.parametrize("manifest", [None, "{broken", "[]"])
def test_without_a_manifest_nothing_is_overwritten(folders, manifest):
    source, work = folders
    (work / "01.ipynb").write_text("mine")
    (work / handout.MANIFEST).unlink() if manifest is None else (work / handout.MANIFEST).write_text(manifest)
    handout.hand_out(source, work)
    assert (work / "01.ipynb").read_text() == "mine" and "x = 1" in (work / "01.new.ipynb").read_text()


def test_nothing_to_hand_out_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="no lesson"):
        handout.hand_out(tmp_path, tmp_path / "work")


# ---- the browser

@pytest.mark.parametrize("ci, code", [("true", 1), ("", 0)])
def test_missing_browser_fails_only_in_ci(monkeypatch, capsys, ci, code):
    monkeypatch.setattr(browser, "find", lambda: None)
    monkeypatch.setattr(browser, "can_install", lambda: False)
    monkeypatch.setenv("CI", ci)
    assert browser.main() == code
    assert capsys.readouterr().out.count("\n") == 1


# ---- the README

def dead_links(text, root):
    """Return the local links and pictures of a text that do not exist below root."""
    return [link for link in re.findall(r"\]\(([^)#:]+)\)", text) if not (root / link).exists()]


def test_readme_links_exist_and_name_every_lesson():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert dead_links(text, ROOT) == []
    assert [path.name for path in (ROOT / "notebooks").glob("*.ipynb") if f"(notebooks/{path.name})" not in text] == []


def test_a_dead_link_is_found(tmp_path):
    (tmp_path / "there.md").touch()
    assert dead_links("[a](there.md) ![b](gone.png) [c](https://example.org) [d](#part)", tmp_path) == ["gone.png"]


def test_citation_is_complete():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["version"] == PROJECT["project"]["version"]
    assert citation["license"] == PROJECT["project"]["license"]
