"""What all lessons share, and the rules that every lesson keeps."""
import json
import re
import subprocess
import sys
from pathlib import Path

import jupytext
import nbformat
import pytest
import torch
from nbclient import NotebookClient

from labkit import Cache
from labkit.lesson import Attempt, Exercise, Misstep, Option, Question, claim, exercise_00, lesson_00, progress
from labkit.lesson.ask import Ask, Hints
from labkit.lesson.exercise import imitates, same
from labkit.lesson.judge import NotTried, WrongForm, call, off, strip, want_parts, want_tensor

SOURCES = sorted((Path(__file__).resolve().parent.parent / "notebooks" / "source").glob("*.py"))


@pytest.fixture(autouse=True)
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_PROGRESS", str(tmp_path / "progress.json"))
    return tmp_path / "progress.json"


# ---- questions

QUESTION = Question("09.q", "How many?", (
    Option(1, "one", "not <one>"), Option(2, "two", ""), Option(3, "three", "too many")))


def test_without_a_guess_no_guess_is_stored(file):
    card = QUESTION.reveal(2, "Counted.")
    assert card.headline == "Result: b) two" and card.lines[0] == "Counted." and "no guess" in card.lines[1]
    assert json.loads(file.read_text())["questions"]["09.q"] == {"guess": None, "shown": "b"}
    assert repr(QUESTION.reveal(2, "Counted.")) == repr(card)


@pytest.mark.parametrize("letter, state, reply", [
    ("a", "wrong", "not <one>"), ("b", "right", None), ("c", "wrong", "too many")])
def test_a_guess_is_shown_beside_the_result(letter, state, reply):
    assert repr(QUESTION.guess(letter, 3)) == f"Stored: {letter}, sure. Now run the next cell."
    card = QUESTION.reveal(2)
    assert card.state == state and f"Your guess: {letter})" in repr(card) and f"(sure): {state}." in repr(card)
    assert card.lines[-1] == reply if reply else len(card.lines) == 1
    assert "<one>" not in card._repr_html_()
    assert progress.summary("09").lines[:2] == [f"Guesses before the result: 1. Right: {int(letter == 'b')}.",
                                                f"Sure: 1. Of these right: {int(letter == 'b')}."]


def test_the_right_option_is_computed_from_the_result():
    QUESTION.guess("b", 1)
    assert QUESTION.reveal(2).state == "right" and QUESTION.reveal(3).state == "wrong"
    with pytest.raises(LookupError, match="the result 4 fits 0 options"):
        QUESTION.reveal(4)


def test_a_guess_after_the_result_is_late():
    QUESTION.guess("a", 1)
    QUESTION.reveal(2)
    assert "Your first guess stays: a." in repr(QUESTION.guess("b", 3))
    assert "Your guess: a) one (a guess): wrong." in repr(QUESTION.reveal(2))


@pytest.mark.parametrize("letter, confidence, says", [("d", 1, "no option 'd'; choose one of a, b, c"),
                                                      ("a", 4, "confidence is 4; choose 1 [(]a guess[)]")])
def test_guesses_that_do_not_exist(letter, confidence, says):
    with pytest.raises(ValueError, match=says):
        QUESTION.guess(letter, confidence)


def test_the_widget_of_a_question():
    ask = QUESTION.ask()
    assert isinstance(ask, Ask) and ask.choice.value is None and ask.sure.value is None      # nothing preselected
    ask.button.click()
    assert "Choose one answer" in ask.reply.value and progress.get("questions", "09.q") == {}
    ask.choice.value, ask.sure.value = "c", 2
    assert ask.button.description == "Keep my guess: c, rather sure"
    ask.button.click()
    assert "Stored: c, rather sure." in ask.reply.value
    assert progress.get("questions", "09.q") == {"guess": "c", "confidence": 2}
    assert "Your guess is stored: c." in QUESTION.ask().reply.value
    data, _ = ask._repr_mimebundle_()
    assert data["text/plain"] == "How many?\n  a) one\n  b) two\n  c) three" and "b) two" in data["text/html"]


def test_a_claim_has_five_verdicts():
    advice = claim("09.c", "Do <this>.", "folk", {"else": "no", "partly": "almost"})
    advice.guess("b", 1)
    card = advice.reveal("silently wrong")
    assert card.headline == "Result: e) silently wrong: it gives wrong results without an error"
    assert card.lines[0] == "no" and card.lines[-1] == "almost"                     # the reason is for everybody
    assert "no" in claim("09.d", "Do.", "folk", "no").reveal("right").lines
    assert "&lt;this&gt;" in advice._repr_html_()


# ---- exercises

def double(n):
    return 2 * n


def attempt(function, case):
    try:
        found = call(function, case)
    except ZeroDivisionError as error:
        return Attempt("the function raises ZeroDivisionError", error=error)
    right = found == 2 * case
    return Attempt(None if right else f"{found}, it should be {2 * case}", "." if right else "X")


def exercise(*missteps):
    return Exercise("09.double", double, attempt, lambda: range(5), lambda draw: [draw.randint(5, 9)], (1, 2), missteps,
                    ("look", "missing", "half:\n    return 2 * ..."))


def test_states_and_what_is_stored(file):
    task = exercise(Misstep("squared", "You square.", imitates(lambda n: n * n, call, range(5), double)))
    assert task.check(lambda n: NotImplemented).state == "not tried" and not file.exists()
    wrong = task.check(lambda n: n ** 2)
    assert repr(wrong) == ("double: wrong: squared\n  You square.\n  Simplest counterexample: 1: 1, it should be 2\n"
                           "  Token by token (. right, X wrong, ! no answer):\n  1  X\n  2  . cannot see it")
    crashed = task.check(lambda n: n // 0)
    assert crashed.state == "crashed" and "crashed = task.check(lambda n: n // 0)" in repr(crashed)
    assert task.check(lambda n: n + 2).headline == "double: wrong"
    assert task.check(lambda n: n + n).state == "right"
    assert task.check(lambda n: n).state == "wrong"                             # right once stays right in the progress
    assert progress.get("exercises", "09.double") == {"state": "right", "tries": 5,
                                                      "missteps": ["squared", "crashed", "other"]}


def test_a_misstep_that_itself_fails_does_not_fit():
    assert exercise(Misstep("x", "x", lambda function: 1 / 0)).check(lambda n: n + 1).headline == "double: wrong"


def test_prints_of_the_learner_stay_out(capsys):
    assert exercise().check(lambda n: print("looking") or 2 * n).state == "right" and capsys.readouterr().out == ""


def test_not_implemented_deeper_down_is_a_crash():
    def deeper():
        raise NotImplementedError("no such kernel")
    with pytest.raises(NotImplementedError):
        call(lambda: deeper())

    def stub():
        raise NotImplementedError
    with pytest.raises(NotTried):
        call(stub)


def test_plain_calls_need_no_widgets():
    code = ("import sys; sys.modules['ipywidgets'] = None\n"
            "from labkit.lesson import lesson_01 as lesson\n"
            "q = lesson.QUESTIONS['dilation']; q.guess('c', 2)\n"
            "print(q.reveal(lesson.columns_needed(4, 3)).state, lesson.EXERCISE.hint(1).headline)\n"
            "print(lesson.EXERCISE.check(lambda x, w, k: NotImplemented))")
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout == "right Hint 1 of 3\nconv_chunk: not tried yet\n"


def test_hints_then_the_solution_with_a_difference():
    task = exercise()
    assert "opens after the last hint" in repr(task.solved())
    assert repr(task.hint(3)) == "Hint 3 of 3\n  half:\n      return 2 * ..."

    def double(n):
        return n * n
    lines = task.solved(double).lines
    assert ">-    return n * n" in lines and ">+    return 2 * n" in lines and "> def double(n):" in lines
    assert ">    return 2 * n" in task.solved().lines
    with pytest.raises(ValueError, match="there is no hint 4; ask for 1 to 3"):
        task.hint(4)


def test_in_a_real_kernel(file):
    """Own lines, the difference to the solution and the stub's state come from cells, not from files."""
    cells = ["from labkit.lesson import lesson_00 as lesson",
             "def feed_in_pieces(model, ids, sizes):\n    pieces = ids.cut(sizes)\n    return pieces",
             "print(lesson.EXERCISE.check(feed_in_pieces))",
             "_ = lesson.EXERCISE.hint(3)\nprint(lesson.EXERCISE.solved(feed_in_pieces))"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    crashed, solved = ("".join(output.get("text", "") for output in cell.outputs) for cell in notebook.cells[2:])
    assert "crashed: AttributeError" in crashed and "In your line 2:\n  pieces = ids.cut(sizes)\n" in crashed
    assert "-    return pieces" in solved and "+    cache = Cache()" in solved


def test_a_right_answer_opens_the_solution():
    task = exercise()
    task.check(double)
    assert "One right answer" in repr(task.solved(double))


def test_the_widget_of_the_hints():
    task = exercise()
    hints = task.help(double)
    assert isinstance(hints, Hints) and hints.text() == "3 hints, then the solution; none is shown yet."
    assert hints.view.value == "" and progress.get("exercises", "09.double") == {}
    seen = []
    for _ in range(4):
        hints.button.click()
        seen.append(hints.view.value.count("border-left"))
    assert seen == [1, 2, 3, 4] and "One right answer" in hints.view.value and hints.button.disabled


def test_form_is_checked_before_values():
    good = torch.zeros(2, 3)
    want_tensor(good, "y", (2, 3), torch.float32)
    for bad, says in ((3, "y is an int"), (good[0], "1 dimensions"), (good.T, "shape"), (good.double(), "float64")):
        with pytest.raises(WrongForm, match=says):
            want_tensor(bad, "y", (2, 3), torch.float32)
    with pytest.raises(WrongForm, match="returns a tuple of 1, it should return y and h"):
        want_parts((1,), ("y", "h"))


def test_off_and_strip():
    wanted = torch.tensor([[1.0, 2.0, 3.0]])
    found = torch.tensor([[1.0 + 1e-7, 2.1, torch.nan]])
    assert off(found, wanted, 3).tolist() == [[False, True, True]] and strip(off(found, wanted, 3), fed=2) == ".X!"
    sizes = torch.tensor([[1.0, 100.0, 1.0]])
    assert off(wanted + 5e-6, wanted, sizes).tolist() == [[True, False, True]]
    assert strip(torch.zeros(2, 3, 0, dtype=torch.bool)) == ""


def test_same():
    assert same((torch.ones(2), 3), (torch.ones(2) + 1e-6, 3)) and not same(torch.ones(2), torch.ones(3))
    assert not same(1, 1.0) and not same((1,), (1, 2)) and not same(torch.ones(1), 1.0)


# ---- progress

def test_progress_is_whole_or_not_at_all(file, monkeypatch):
    progress.put("questions", "x", guess="a")
    before = file.read_text()
    monkeypatch.setattr("os.fsync", lambda number: 1 / 0)            # all is written, and nothing is in place yet
    with pytest.raises(ZeroDivisionError):
        progress.put("questions", "x", guess="b")
    assert file.read_text() == before and [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize("content, why", [
    (b"{not json", "it cannot be read"), (b"\xff\xfe", "it cannot be read"), (b"[]", "not progress of version 1"),
    (b'{"version": 2}', "not progress of version 1"), (b'{"version": 1, "questions": {}}', "parts of it are missing"),
    (b'{"version": 1, "questions": {"a": 3}, "exercises": {}}', "parts of it are missing")])
def test_a_corrupt_file_is_kept_aside_and_said(file, capsys, content, why):
    file.write_bytes(content)
    progress.put("questions", "x", guess="a")
    said = capsys.readouterr().out
    assert why in said and "progress.unread1.json" in said
    assert file.with_name("progress.unread1.json").read_bytes() == content
    assert progress.get("questions", "x") == {"guess": "a"}
    file.write_bytes(content)
    assert progress.load()["questions"] == {} and file.with_name("progress.unread2.json").exists()


def test_a_folder_that_is_not_there_stops_nothing(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("LABKIT_PROGRESS", str(tmp_path / "none" / "p.json"))
    assert QUESTION.reveal(2).state == "info" and "not stored" in capsys.readouterr().out


def test_progress_is_in_the_current_folder_by_default(monkeypatch, tmp_path):
    monkeypatch.delenv("LABKIT_PROGRESS")
    monkeypatch.chdir(tmp_path)
    QUESTION.reveal(1)
    assert json.loads((tmp_path / "labkit_progress.json").read_text())["version"] == 1


# ---- lesson 00

def by_slices(model, ids, sizes):
    cache, start, logits = Cache(), 0, []
    for size in sizes:
        logits.append(model(ids[:, start:start + size], cache, position=start))
        start += size
    return torch.cat(logits, 1)


def skipping_empty(model, ids, sizes):
    cache, out, end = Cache(), torch.zeros(1, ids.shape[1], model.config.vocab_size), 0
    for size in sizes:
        if size:
            out[:, end:end + size] = model(ids[:, end:end + size], cache)
        end += size
    return out


def joins_what_is_there(model, ids, sizes):
    cache, ends = Cache(), torch.tensor(sizes).cumsum(0).tolist()
    return torch.cat([model(ids[:, end - n:end], cache) for n, end in zip(sizes, ends) if n], 1)


def one_cache_for_all(model, ids, sizes, cache=Cache()):
    return torch.cat([model(piece, cache) for piece in ids.split(sizes, 1)], 1)


@pytest.mark.parametrize("answer", [by_slices, skipping_empty, joins_what_is_there, exercise_00.feed_in_pieces])
def test_lesson_00_right_answers_pass(answer):
    assert lesson_00.EXERCISE.check(answer).state == "right"


def without_cache(model, ids, sizes):
    return torch.cat([model(piece) for piece in ids.split(sizes, 1)], 1)


def from_the_start(model, ids, sizes):
    cache, ends = Cache(), torch.tensor(sizes).cumsum(0).tolist()
    return torch.cat([model(ids[:, :end], cache) for end in ends], dim=1)


def reads_again(model, ids, sizes):
    ends = [sum(sizes[:i + 1]) for i in range(len(sizes))]
    return torch.cat([model(ids[:, :end])[:, end - size:] for end, size in zip(ends, sizes)], 1)


@pytest.mark.parametrize("answer, name", [
    (exercise_00.born_again, "born again"), (without_cache, "born again"),
    (from_the_start, "tokens are fed twice"),
    (lambda model, ids, sizes: (lambda cache: torch.cat([model(ids[:, :n], cache) for n in sizes], 1))(Cache()),
     "tokens are fed twice"), (reads_again, "tokens are fed twice"),
    (exercise_00.last_piece, "the outputs of earlier pieces are dropped"),
    (lambda model, ids, sizes: model(ids, Cache()), "the text is fed uncut")])
def test_lesson_00_wrong_answers_are_called_by_name(answer, name):
    cards = [lesson_00.EXERCISE.check(answer) for _ in range(2)]
    assert cards[0].headline == f"feed_in_pieces: wrong: {name}" and repr(cards[0]) == repr(cards[1])


def test_lesson_00_other_answers():
    check = lesson_00.EXERCISE.check
    assert check(lambda model, ids, sizes: NotImplemented).state == "not tried"
    assert "is a list, it should be a tensor" in repr(check(lambda model, ids, sizes: [model(ids)]))
    assert check(lambda model, ids, sizes: model(ids[0])).state == "crashed"
    assert check(lambda model, ids, sizes: exit()).headline == "feed_in_pieces: crashed: RuntimeError"
    for _ in range(2):
        assert check(one_cache_for_all).headline == "feed_in_pieces: wrong: the cache outlives the call"


def test_lesson_00_size_of_distances():
    assert [lesson_00.size_of(errors, 1.0) for errors in ([0, 0], [0, 1e-6], [0, .01, .5], [.5, .4])] == [
        "exact", "noise", "grows", "large"]


def test_lesson_00_hidden_fault_is_silent_and_its_name_is_kept():
    one, two = lesson_00.two_answers()
    assert (one, lesson_00.kind_of(one), lesson_00.kind_of(two)) == ("A red kite", "right", "other")
    assert lesson_00.kind_of("? A red") == lesson_00.kind_of("A kite red") == lesson_00.kind_of("") == "noise"
    whole, cut = lesson_00.costs(20)
    assert whole.faulty == whole.right > 0.8 and cut.faulty < 0.3 and cut.repaired == cut.right
    source = SOURCES[0].read_text(encoding="utf-8")
    assert lesson_00.HIDDEN not in source


# ---- rules for every lesson

def cells(path):
    return jupytext.read(path, fmt="py:percent").cells


def tagged(cell, tag):
    return tag in cell.metadata.get("tags", [])


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_lesson_keeps_its_size(path):
    code = [cell for cell in cells(path) if cell.cell_type == "code"]
    prose = " ".join(cell.source for cell in cells(path) if cell.cell_type == "markdown")
    words = re.findall(r"[A-Za-z0-9]\S*", prose)
    assert len(code) <= 30 and (700 <= len(words) <= 1300), (len(code), len(words))
    assert all(len(cell.source.splitlines()) <= 15 for cell in code if not tagged(cell, "exercise"))
    assert not re.search(r"\b(simply|just|obviously)\b", prose, re.I)
    assert tagged(code[0], "setup") and [tagged(cell, "setup") for cell in code].count(True) == 1
    assert any(tagged(cell, "exercise") for cell in code)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_each_cell_needs_only_the_setup_and_the_exercise(path):
    code = [cell for cell in cells(path) if cell.cell_type == "code"]
    start = {}
    for cell in code:
        if tagged(cell, "setup") or tagged(cell, "exercise"):
            exec(cell.source, start)
    for cell in code:                                       # so any cell, deeper ones too, can be skipped or run alone
        exec(cell.source, dict(start))
