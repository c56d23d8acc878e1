"""The class table: what is in the files is in the table, and a file of no use is named, not lost."""

import csv
import json

import pytest

from labkit.__main__ import main
from labkit.lesson import report


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "collected"
    (place / "group").mkdir(parents=True)
    files = {"a": {"questions": {"01.zeros": {"guess": "a", "confidence": 3, "shown": "b"},
                                 "01.ones": {"guess": None, "shown": "c"}},
                   "exercises": {"01.conv_chunk": {"state": "right", "tries": 3, "missteps": ["minus zero is zero"]}}},
             "group/b": {"questions": {"01.zeros": {"guess": "b", "confidence": 1, "shown": "b"}}, "exercises": {}},
             "group/c": {"questions": {"01.zeros": {"guess": "a", "shown": "b"}, "77.gone": {"guess": "a", "shown": "a"}},
                         "exercises": {"01.conv_chunk": {"state": "wrong", "tries": 1, "missteps": ["minus zero is zero"]}}}}
    for name, data in files.items():
        (place / f"{name}.json").write_text(json.dumps({"version": 1, **data}))
    return place


def test_table_of_a_class(folder, capsys):
    assert main(["report", str(folder), "--out", "new/class"]) == 0
    assert "3 learners" in capsys.readouterr().out
    with open("new/class.csv", encoding="utf-8") as file:
        rows = {row["file"]: row for row in csv.DictReader(file)}
    assert rows["a"] == {"file": "a", "guesses": "1", "right": "0", "01.conv_chunk": "right (3)"}
    assert rows["group/b"]["right"] == "1" and rows["group/b"]["01.conv_chunk"] == ""
    page = (folder.parent / "new" / "class.html").read_text(encoding="utf-8")
    assert "only 6" in page and "<script" not in page and "http" not in page
    found = report.read(folder)[0]
    assert report.hard(found)[0] == ("01.zeros", 3, 1, "a) only 6") and report.hard(found)[-1][0] == "77.gone"
    assert report.missteps(found) == [("01.conv_chunk", "minus zero is zero", 2)]


def test_files_of_no_use_are_named(folder, capsys):
    (folder / "broken.json").write_text("{")
    (folder / "old.json").write_text('{"version": 0}')
    (folder / "<b>.json").write_text("[]")
    assert main(["report", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "not read: broken: it cannot be read (JSONDecodeError)" in out and "not read: old" in out
    page = (folder.parent / "class.html").read_text(encoding="utf-8")
    assert "&lt;b&gt;" in page and "<b>" not in page


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_nothing_to_read(tmp_path, name, capsys):
    (tmp_path / "empty").mkdir()
    assert main(["report", str(tmp_path / name), "--out", str(tmp_path / "class")]) == 2
    assert "labkit_progress.json" in capsys.readouterr().err and not (tmp_path / "class.html").exists()
