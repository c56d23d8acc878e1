"""Lesson 08: right answers pass, each named wrong answer is called by its name, the cells measure what they say."""
import random
from types import SimpleNamespace

import pytest
import torch

from labkit import faults
from labkit.faults import advice, advice_padding_continued
from labkit.lesson import exercise_08, progress
from labkit.lesson import lesson_08 as lesson
from labkit.lesson.exercise_08 import EXERCISE, Ragged


@pytest.fixture(autouse=True)
def own_progress(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_PROGRESS", str(tmp_path / "progress.json"))


def take_where_real(u, a, mask, h):
    y = torch.empty_like(u)
    for t in range(u.shape[1]):
        h = torch.where(mask[:, t].unsqueeze(1), a[:, t] * h + u[:, t], h)
        y[:, t] = h
    return y, h


def row_by_row(u, a, mask, h):
    y, last = torch.zeros_like(u), h.clone()
    for b in range(u.shape[0]):
        for t in range(u.shape[1]):
            if mask[b, t]:
                last[b] = a[b, t] * last[b] + u[b, t]
                y[b, t] = last[b]
    return y, last


def packed(u, a, mask, h):
    order = (~mask).int().argsort(dim=1, stable=True)[..., None].expand(-1, -1, u.shape[2])
    real = mask.sum(1)
    y = torch.zeros_like(u)
    for t in range(int(real.max()) if mask.numel() else 0):
        new = a.gather(1, order)[:, t] * h + u.gather(1, order)[:, t]
        h = torch.where((real > t)[:, None], new, h)
        y.scatter_(1, order[:, t:t + 1], h[:, None])
    return y, h


@pytest.mark.parametrize("answer", [take_where_real, row_by_row, packed, exercise_08.scan])
def test_right_answers_pass(answer):
    for _ in range(3):                                                          # fresh random cases each time
        assert EXERCISE.check(answer).state == "right"
    assert lesson.prove(answer).ok and lesson.sides_wrong(answer) == ()
    assert progress.get("exercises", "08.scan") == {"state": "right", "tries": 3, "missteps": []}


# ---- wrong answers, written as a learner would, not as the lesson's own faulty functions

def loop(u, a, h, change):
    y = []
    for t in range(u.shape[1]):
        h = change(t, a[:, t] * h + u[:, t], h)
        y.append(h)
    return torch.stack(y, dim=1) if y else u.clone(), h


def times_mask(u, a, mask, h):
    return loop(u * mask.unsqueeze(-1).float(), a, h, lambda t, new, old: new)


def skip_the_column(u, a, mask, h):
    return loop(u, a, h, lambda t, new, old: new if bool(mask[:, t].all()) else old)


def fresh_only(u, a, mask, h):
    started = float(h.abs().sum()) > 0
    return loop(u, a, h, lambda t, new, old: new if started else torch.where(mask[:, t, None], new, old))


def fast_path(u, a, mask, h):
    if u.shape[1] == 1:
        h = a[:, 0] * h + u[:, 0]
        return h[:, None], h
    return take_where_real(u, a, mask, h)


def hide_outputs(u, a, mask, h):
    y, h = loop(u, a, h, lambda t, new, old: new)
    return y * mask[..., None], h


NAMED = {"the state decays under padding": [times_mask], "one row's padding stops the other rows": [skip_the_column],
         "a continued call ignores the mask": [fresh_only], "the one-column path ignores the mask": [fast_path],
         "the state takes in the padding": [hide_outputs, lambda u, a, mask, h: loop(u, a, h, lambda t, new, old: new)]}


def test_each_named_wrong_answer_has_a_case():
    assert set(NAMED) == {misstep.name for misstep in EXERCISE.missteps}


@pytest.mark.parametrize("name, answer", [(name, answer) for name, answers in NAMED.items() for answer in answers])
def test_wrong_answers_are_called_by_name_and_the_same_each_time(name, answer):
    cards = [EXERCISE.check(answer) for _ in range(2)]
    assert cards[0].headline == f"scan: wrong: {name}" and repr(cards[0]) == repr(cards[1])
    assert "Simplest counterexample: rows" in repr(cards[0])
    assert "padding" in [finding.law for finding in lesson.prove(answer).failed]


def test_strips_show_the_signature():
    lines = repr(EXERCISE.check(times_mask)).splitlines()
    assert [line.split()[-1] for line in lines if "rows xxxx__xx xxxxxxxx fed as 6+2" in line] == ["......XX"]
    assert any("rows __xxxxxx xxxxxxxx fed as 6+2 " in line and line.endswith("cannot see it") for line in lines)


@pytest.mark.parametrize("answer, says", [
    (lambda u, a, mask, h: None, "returns nothing (None)"),
    (lambda u, a, mask, h: take_where_real(u, a, mask, h)[0], "returns a Tensor, it should return y and the next h"),
    (lambda u, a, mask, h: (take_where_real(u, a, mask, h)[0], h), "the last h is wrong"),
    (lambda u, a, mask, h: (u, take_where_real(u, a, mask, h)[1]), "a real output is wrong"),
    (lambda u, a, mask, h: (u[:, 0], h), "y has 2 dimensions, it should have 3"),
    (lambda u, a, mask, h: tuple(t * (1 + 1e-4) for t in take_where_real(u, a, mask, h)), "a real output is wrong"),
    (lambda u, a, mask, h: take_where_real(u, a, mask.flip(0), h), "wrong"),
    (lambda u, a, mask, h: take_where_real(u, a, mask, torch.zeros_like(h)), "a real output is wrong")])
def test_other_wrong_answers_get_an_honest_counterexample(answer, says):
    card = EXERCISE.check(answer)
    assert card.headline == "scan: wrong" and says in repr(card)


def test_stub_is_not_tried_and_leaves_no_trace():
    def stub(u, a, mask, h):
        return NotImplemented
    assert repr(EXERCISE.check(stub)) == "scan: not tried yet" and lesson.prove(stub).state == "not tried"
    assert progress.get("exercises", "08.scan") == {}


def by_division(u, a, mask, h):
    a, u = torch.where(mask[..., None], a, 1), torch.where(mask[..., None], u, 0)
    grown = a.cumprod(1)
    y = grown * (h[:, None] + (u / grown).cumsum(1))
    return y, y[:, -1] if y.shape[1] else h


def test_a_decay_of_zero_and_a_wrong_form():
    assert "a = 0 in column 1" in repr(EXERCISE.check(by_division))
    for wrong in (lambda y, h: y, lambda y, h: (y.mT, h), lambda y, h: (y[:, :1], h), lambda y, h: (y.sum(-1), h)):
        answer = lambda *parts, wrong=wrong: wrong(*exercise_08.scan(*parts))                               # noqa: E731
        assert EXERCISE.check(answer).state == "wrong" and not lesson.prove(answer).ok


def test_a_crash_shows_the_learners_own_line():
    def answer(u, a, mask, h):
        return loop(u * mask, a, h, lambda t, new, old: new)                    # (B, L, D) * (B, L)
    card = EXERCISE.check(answer)
    assert card.headline == "scan: crashed: RuntimeError" and "return loop(u * mask, a, h" in repr(card)
    assert not lesson.prove(answer).ok


def test_reference_equals_the_lab_and_fresh_cases_cover_the_ground():
    cases = [case for _ in range(20) for case in exercise_08.fresh(random.Random())]
    assert {len(case.rows) for case in cases} == {2, 3, 4} and any(0 in case.sizes for case in cases)
    assert any("_" not in row for case in cases for row in case.rows)
    for case in cases[:40]:
        y, h = exercise_08.fed(packed, case)
        wanted, last = exercise_08.alone(*case.data())
        assert torch.allclose(y.double(), wanted, atol=1e-5) and torch.allclose(h.double(), last, atol=1e-5)
    assert str(Ragged(("_x", "xx"), (1, 1))) == "rows _x xx fed as 1+1"


# ---- the questions, answered by running

def test_measured_results():
    assert lesson.stale_position() == "raises" and lesson.left_of_h(0.5, 3) == 0.125
    assert lesson.sides_wrong(times_mask) == ("right", "middle") and len(lesson.sides_wrong(hide_outputs)) == 3
    assert lesson.harmful_lengths() == (1,) and lesson.harmful_lengths(4) == (1, 5)
    assert "4 of 15 wrong" in lesson.relatives() and len(lesson.relatives().splitlines()) == 12


def test_picture_changes_with_the_model(monkeypatch):
    right = lesson.draw(2)[1]
    assert right == "Alone: no wrong slot. Padded: no wrong slot."
    said = lesson.draw(1)[1]
    assert "Padded: 1" in said and "from “pad” on" in said and "padding" in said
    healthy = faults.get("padding-one-column").healthy(0)
    monkeypatch.setattr(lesson.faults, "get", lambda name: SimpleNamespace(subject=lambda seed: healthy))
    assert lesson.draw(1)[1] == right


def test_advice_follows_what_is_run(monkeypatch):
    assert {case.run().verdict for case in map(advice.get, ("padding-continued.fixed", "padding-continued.left"))} == {
        "partly"}
    monkeypatch.setattr(advice_padding_continued, "fault", lambda name: SimpleNamespace(
        subject=faults.get(name).healthy))
    assert advice.get("padding-continued.fixed").run().verdict == "right"
    assert advice.get("padding-continued.left").run().verdict == "right"


def test_the_library_cell_says_what_it_ran():
    said = lesson.in_library()
    assert said.startswith("transformers is not installed") or (
        "first call: left ok, right wrong, middle wrong" in said and len(said.splitlines()) == 7)
