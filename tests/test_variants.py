"""Each lesson as learners use it: solved, without its deeper cells, each section alone, every cell twice."""

import inspect
import re
import textwrap
from importlib import import_module
from pathlib import Path

import nbformat
import pytest

from tools import build_notebooks as builder

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted((ROOT / "notebooks" / "source").glob("*.py"))
# What checks, proofs and the contract say of an answer that is not right; "a wrong position" alone says nothing.
BAD = re.compile(r": (wrong|crashed|not tried)|not tried yet|it fails on|[Ii]t raises|to say|differs|silently")
OWN = {"library", "progress"}           # what these cells say depends on the machine, or on what was done before


def tags(cell):
    return set(cell.metadata.get("tags", []))


def said(cell):
    """The texts of a cell's outputs, without pictures and widgets."""
    return [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.get("outputs", [])]


@pytest.fixture(params=LESSONS, ids=lambda path: path.stem)
def lesson(request):
    return request.param


def test_solved_and_without_deeper_cells(lesson):
    exercise = import_module(f"labkit.lesson.exercise_{lesson.stem[:2]}").EXERCISE
    notebook = builder.prepare(lesson)
    notebook.cells = [cell for cell in notebook.cells if "deeper" not in tags(cell)]
    for cell in notebook.cells:
        if "exercise" in tags(cell):
            assert f"def {exercise.name}(" in cell.source
            cell.source = textwrap.dedent(inspect.getsource(exercise.solution))
    builder.execute(notebook)
    checks = {cell.source: "".join(said(cell)) for cell in notebook.cells if "check" in tags(cell)}
    assert any(f"{exercise.name}: right" in text for text in checks.values()), checks
    assert not any(map(BAD.search, checks.values())), checks


def test_each_section_alone_and_every_cell_twice(lesson):
    """Sections from the last to the first, each in an empty namespace behind the set-up cells: the committed lines."""
    notebook = builder.prepare(lesson)
    sections, setup = [[]], [cell for cell in notebook.cells if "setup" in tags(cell)]
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            sections.append([])
        elif cell.cell_type == "code" and "setup" not in tags(cell):
            sections[-1].append(cell)
    order = []
    for section in filter(None, reversed(sections)):
        order.append(nbformat.v4.new_code_cell("%reset -f"))
        order += [nbformat.from_dict({**cell, "id": f"{cell.id}-{len(order)}-{i}"}) for i, cell in enumerate(setup)]
        for cell in section:
            order += [nbformat.from_dict({**cell, "id": f"{cell.id}-{time}"}) for time in ("one", "two")]
    committed = {cell.id: said(cell) for cell in
                 nbformat.read(ROOT / "notebooks" / f"{lesson.stem}.ipynb", as_version=4).cells}
    notebook.cells = order
    builder.execute(notebook)
    for cell in order:
        if cell.id.endswith(("-one", "-two")) and not OWN & tags(cell):
            assert said(cell) == committed[cell.id.rsplit("-", 1)[0]], f"{cell.id}: {cell.source}"


def test_the_instructor_knows_every_wrong_answer():
    page = (ROOT / "notebooks" / "instructor.md").read_text(encoding="utf-8")
    for path in LESSONS:
        exercise = import_module(f"labkit.lesson.exercise_{path.stem[:2]}").EXERCISE
        assert f"`{exercise.name}`" in page
        assert [misstep.name for misstep in exercise.missteps if misstep.name not in page] == []
