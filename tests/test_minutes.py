"""What the pages say about time is what the rule of tools/minutes.py finds, and no core takes more than 25 minutes."""
import re
from pathlib import Path

import pytest

from tools.minutes import minutes, of_cell

PROJECT = Path(__file__).parents[1]
LESSONS = [f"{number:02}" for number in range(11)]


@pytest.fixture(scope="module")
def found():
    return {lesson: tuple(round(each) for each in minutes(lesson)) for lesson in LESSONS}


def short(core, deeper):
    return f"{core} + {deeper}" if deeper else str(core)


def test_the_rule_counts_words_pictures_predictions_and_exercises():
    def code(source, *tags, **outputs):
        return {"cell_type": "code", "metadata": {"tags": list(tags)}, "source": source,
                "outputs": [{"data": {"text/html": outputs["page"], "text/plain": "x"}}] if outputs else []}
    assert of_cell({"cell_type": "markdown", "metadata": {}, "source": "word " * 150}) == pytest.approx(1)
    assert of_cell(code("x", page="<p>" + "word " * 200 + "</p><details>more</details><img src='a b c'>")) == pytest.approx(1.8)
    assert [of_cell(code("q.ask()", "predict")), of_cell(code("q.reveal(1)")), of_cell(code("def f(): ...", "exercise")),
            of_cell(code("progress", "progress"))] == pytest.approx([1, 0, 6.3, 0])


def test_no_core_takes_longer_than_25_minutes(found):
    assert max(core for core, _ in found.values()) <= 25, found


@pytest.mark.parametrize("lesson", LESSONS)
def test_each_page_says_its_minutes(lesson, found):
    core, deeper = found[lesson]
    source = " ".join(next((PROJECT / "notebooks/source").glob(f"{lesson}_*.py")).read_text().replace("\n# ", " ").split())
    says = re.search(r"It takes about (\d+) minutes(?:; the cells that say \*\*deeper\*\* (\d+) more)?", source)
    assert (int(says[1]), int(says[2] or 0)) == (core, deeper)


def test_the_tables_say_the_same(found):
    readme, start = (PROJECT / "README.md").read_text(), (PROJECT / "notebooks/source/00_start_here.py").read_text()
    assert re.findall(r"(?m)^\| \[(\d\d)_.*\| ([\d +]+) \|$", readme) == [(n, short(*found[n])) for n in LESSONS]
    assert re.findall(r"(?m)^# \| (\d\d) .*\| ([\d +]+) \|$", start) == [(n, short(*found[n])) for n in LESSONS]


def test_the_sums_of_the_instructors_page(found):
    page = (PROJECT / "notebooks/instructor.md").read_text()
    sums = re.findall(r"((?:\d\d, )*\d\d) \((\d+)\)", page)
    assert len(sums) >= 6
    for lessons, total in sums:
        assert sum(found[lesson][0] for lesson in lessons.split(", ")) == int(total), lessons
