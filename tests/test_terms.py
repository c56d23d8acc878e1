"""No technical term before the lesson that explains it: in the prose, the questions, the hints and the messages."""

import re
from importlib import import_module
from pathlib import Path

import jupytext
import pytest

SOURCES = {path.stem[:2]: path for path in sorted((Path(__file__).parents[1] / "notebooks" / "source").glob("*.py"))}
# Lesson -> its new terms, as regular expressions. Words that everyday English also needs (row, value, accept) are left
# out. Lesson 00 names the three memories, so window, state and keys may be named from there on.
TERMS = {
    "00": ("tokens?", "chunks?", "caches?", "logits"),
    "01": ("causal", "kernels?", "taps?", "depthwise", "float noise"),
    "02": ("recurrences?", "resets?", "clocks?", "all-or-nothing"),
    "03": ("prefix(?:es)?", "re-tokenisation"),
    "04": ("dt", "heads?", "state matrix", "dispatch", "influence maps?"),
    "05": ("probes?", "ablations?", "controls?", "memory length"),
    "06": ("masks?", "devices?", "dead code", "mask offsets?", "accidental guards?"),
    "07": ("ring buffers?", "alias(?:es)?", "fingerprints?", "soak"),
    "08": ("padding", "ragged", "contract"),
    "09": ("drafts?", "verify", "checkpoints?", "greedy", "hybrids?", "rejected"),
    "10": ("suspects?", "case files?"),
}


def said(number, source=None):
    """All that a learner of a lesson reads: (where, text)."""
    notebook = jupytext.reads(source or SOURCES[number].read_text(encoding="utf-8"), fmt="py:percent")
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            text = re.sub(r"(?m)^\| \d\d .*$", "", cell.source)          # the map of lesson 00 gives titles of lessons
            yield "the page", re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    lesson = import_module(f"labkit.lesson.lesson_{number}")
    for name, question in lesson.QUESTIONS.items():
        options = " ".join(f"{o.text} {o.reply}" for o in question.options)
        yield f"question {name}", f"{question.text} {question.reason} {options}"
    for misstep in lesson.EXERCISE.missteps:
        yield f"wrong answer {misstep.name}", f"{misstep.name} {misstep.says}"
    yield from ((f"hint {i}", hint.split("Half a line")[0]) for i, hint in enumerate(lesson.EXERCISE.hints, 1))


def early(number, source=None):
    """The terms of later lessons that a lesson uses, in words."""
    later = [(at, term) for at, terms in TERMS.items() if at > number for term in terms]
    return [f"{where}: “{found[0]}” is explained in lesson {at}" for where, text in said(number, source)
            for at, term in later if (found := re.search(rf"\b{term}\b", text, re.IGNORECASE))]


@pytest.mark.parametrize("number", SOURCES)
def test_no_term_before_its_lesson(number):
    assert early(number) == []


@pytest.mark.parametrize("number", TERMS)
def test_each_term_is_explained_in_its_lesson(number):
    """It stands in bold, or in the table of words."""
    text = SOURCES[number].read_text(encoding="utf-8")
    named = " ".join([*re.findall(r"\*\*(.+?)\*\*", text, re.DOTALL), *re.findall(r"(?m)^# \| ([^|]+) \|", text)])
    assert [term for term in TERMS[number] if not re.search(rf"\b{term}\b", named, re.IGNORECASE)] == []


def test_the_lint_finds_an_early_term():
    assert early("01", "# %% [markdown]\n# A checkpoint of the clock.\n")[:2] == [
        "the page: “clock” is explained in lesson 02", "the page: “checkpoint” is explained in lesson 09"]
    assert early("09", "# %% [markdown]\n# A checkpoint of the clock.\n") == []
