"""Lesson 04: right answers pass, each named wrong answer is called by its name; the maps show what they are given."""
import random

import pytest
import torch
from matplotlib.text import Text

from labkit.faults import reclass, samples
from labkit.figures import influence
from labkit.figures.influence import measure
from labkit.lesson import exercise_04, progress
from labkit.lesson import lesson_04 as lesson
from labkit.mixers import Mamba2Mixer


@pytest.fixture(autouse=True)
def own_progress(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_PROGRESS", str(tmp_path / "progress.json"))


def convolved(x, window, weight):
    u, length = torch.cat([window, x], -1), x.shape[-1]
    return sum(weight[:, k, None] * u[..., k:k + length] for k in range(weight.shape[-1])), u[..., length:].clone()


def stacked(x, dt, window, h, weight, step):
    u, window = convolved(x, window, weight)
    y = []
    for one, size in zip(u.unbind(-1), dt.unbind(1)):
        out, h = step(one, size, h)
        y.append(out)
    return (torch.stack(y, 1) if y else torch.zeros_like(dt)), window, h


def token_by_token(x, dt, window, h, weight, step):
    y = torch.empty_like(dt)
    for t in range(x.shape[-1]):
        seen = torch.cat([window, x[..., t:t + 1]], -1)
        y[:, t], h = step((seen * weight).sum(-1), dt[:, t], h)
        window = seen[..., 1:].clone()
    return y, window, h


@pytest.mark.parametrize("answer", [stacked, token_by_token, exercise_04.chunk])
def test_right_answers_pass(answer):
    for _ in range(3):
        card = lesson.EXERCISE.check(answer)
        assert card.state == "right" and not any("remark" in line for line in card.lines)
    card = lesson.prove(answer)
    assert card.state == "right" and "524 runs" in repr(card)
    assert progress.get("exercises", "04.chunk") == {"state": "right", "tries": 3, "missteps": []}


# ---- wrong answers, as a learner would write them

def squeezed(x, dt, window, h, weight, step):
    if h.any():                                                                 # "decode"
        seen = torch.cat([window, x[..., :1]], -1)
        y, h = step((seen * weight).sum(-1), dt[:, 0], h)
        return y[:, None].repeat(1, dt.shape[1], 1), seen[..., 1:].clone(), h
    return stacked(x, dt, window, h, weight, step)


def only_first_filled(x, dt, window, h, weight, step):
    u, window = convolved(x, window, weight)
    y = torch.zeros_like(dt)
    if x.shape[-1]:
        y[:, 0], h = step(u[..., 0], dt[:, 0], h)
    return y, window, h


def rolled_in(x, dt, window, h, weight, step):
    u, window = convolved(x, window, weight)
    if not x.shape[-1]:
        return torch.zeros_like(dt), window, h
    y, h = step(u[..., -1], dt[:, 0], h)
    return y[:, None].expand(dt.shape).clone(), window, h


def rolled_in_with_the_last_dt(x, dt, window, h, weight, step):
    u, window = convolved(x, window, weight)
    y, h = step(u[..., -1], dt[:, -1], h)
    return y[:, None].expand(dt.shape).clone(), window, h


def first_dt(x, dt, window, h, weight, step):
    u, window = convolved(x, window, weight)
    y = [torch.zeros_like(h)[:, None][:, :0]]
    for t in range(x.shape[-1]):
        out, h = step(u[..., t], dt[:, 0], h)
        y.append(out[:, None])
    return torch.cat(y, 1), window, h


def same_h(x, dt, window, h, weight, step):
    u, window = convolved(x, window, weight)
    y, new = torch.zeros_like(dt), h
    for t in range(x.shape[-1]):
        y[:, t], new = step(u[..., t], dt[:, t], h)
    return y, window, new


def h_dropped(x, dt, window, h, weight, step):
    u, window = convolved(x, window, weight)
    y = torch.zeros_like(dt)
    for t in range(x.shape[-1]):
        y[:, t], _ = step(u[..., t], dt[:, t], h)
    return y, window, h


def fresh_h(x, dt, window, h, weight, step):
    return stacked(x, dt, window, h * 0, weight, step)


def fresh_h_in_chunks(x, dt, window, h, weight, step):
    return stacked(x, dt, window, torch.zeros_like(h) if x.shape[-1] > 1 else h, weight, step)


def raw(x, dt, window, h, weight, step):
    ys = []
    for t in range(x.shape[2]):
        y, h = step(x[:, :, t], dt[:, t], h)
        ys.append(y)
    return torch.stack(ys, 1) if ys else torch.zeros_like(dt), convolved(x, window, weight)[1], h


def last_dt(x, dt, window, h, weight, step):
    return exercise_04.chunk(x, dt[:, -1:].expand(dt.shape), window, h, weight, step)


def mean_dt(x, dt, window, h, weight, step):
    return exercise_04.chunk(x, dt.mean(1, keepdim=True).expand(dt.shape), window, h, weight, step)


NAMED = {"dropped chunk": [squeezed, only_first_filled], "looks ahead": [rolled_in, rolled_in_with_the_last_dt],
         "a later token's dt": [last_dt, mean_dt],
         "one dt for all tokens": [first_dt], "the state is not passed on": [same_h, h_dropped],
         "the convolution is left out": [raw],
         "the recurrent half is forgotten": [fresh_h, fresh_h_in_chunks],
         "the window is forgotten": [exercise_04.window_from_zero], "history lost": [exercise_04.all_from_zero],
         "the old window is returned": [exercise_04.keeps_the_old_window]}


def test_each_named_wrong_answer_has_a_case():
    assert set(NAMED) == {misstep.name for misstep in lesson.EXERCISE.missteps}


@pytest.mark.parametrize("name, answer", [(name, answer) for name, answers in NAMED.items() for answer in answers])
def test_wrong_answers_are_called_by_name_and_the_same_each_time(name, answer):
    cards = [lesson.EXERCISE.check(answer) for _ in range(2)]
    assert cards[0].headline == f"chunk: wrong: {name}" and repr(cards[0]) == repr(cards[1])
    assert "Simplest counterexample: K = " in repr(cards[0])
    assert lesson.prove(answer).state == "wrong"
    assert progress.get("exercises", "04.chunk")["missteps"] == [name]


@pytest.mark.parametrize("answer, uncut, cut, ones", [
    (squeezed, "............", ".....XXXXXXX", "............"), (rolled_in, None, "....XXXXXXXX", "............"),
    (first_dt, ".XXXXXXXXXXX", None, "............"), (same_h, ".XXXXXXXXXXX", None, "............"),
    (fresh_h_in_chunks, "............", "....XXXXXXXX", "............")])
def test_strips_show_the_signature(answer, uncut, cut, ones):
    strips = [lesson.EXERCISE.attempt(answer, case).strip for case in lesson.EXERCISE.shown]
    assert all(want in (None, found) for want, found in zip((uncut, cut, ones), strips))


@pytest.mark.parametrize("answer, says", [
    (lambda x, dt, w, h, k, step: None, "returns nothing (None)"),
    (lambda x, dt, w, h, k, step: stacked(x, dt, w, h, k, step)[:2], "a tuple of 2"),
    (lambda x, dt, w, h, k, step: (stacked(x, dt, w, h, k, step)[0].mT, w, h), "y has shape"),
    (lambda x, dt, w, h, k, step: (stacked(x, dt, w, h, k, step)[0], 0 * w, stacked(x, dt, w, h, k, step)[2]),
     "y is right, the next window is wrong"),
    (lambda x, dt, w, h, k, step: (*stacked(x, dt, w, h, k, step)[:2], h), "y is right, the next h is wrong"),
    (lambda x, dt, w, h, k, step: stacked(x, dt, w.flip(0), h, k, step), "y is wrong"),
    (lambda x, dt, w, h, k, step: stacked(x, dt * (1 + 1e-3), w, h, k, step), "y is wrong"),
    (lambda x, dt, w, h, k, step: (stacked(x, dt, w, h, k, step)[0].nan_to_num() * torch.nan, w, h), "y is wrong"),
])
def test_other_wrong_answers_get_an_honest_counterexample(answer, says):
    card = lesson.EXERCISE.check(answer)
    assert card.headline == "chunk: wrong" and says in repr(card)


def test_the_proof_sees_a_piece_of_0_tokens_as_the_check_does():
    def answer(x, dt, window, h, weight, step):
        if not x.shape[-1]:
            raise RuntimeError("stack expects a non-empty TensorList")
        return stacked(x, dt, window, h, weight, step)
    assert lesson.EXERCISE.check(answer).state == "crashed" and lesson.prove(answer).state == "wrong"


def test_stub_is_not_tried_and_a_crash_shows_the_learners_line():
    def answer(x, dt, window, h, weight, step):
        u, window = convolved(x, window, weight)
        return step(u, dt, h), window, h
    assert repr(lesson.EXERCISE.check(lambda *parts: NotImplemented)) == "chunk: not tried yet"
    assert lesson.prove(lambda *parts: NotImplemented).state == "not tried"
    assert progress.get("exercises", "04.chunk") == {}
    card = lesson.EXERCISE.check(answer)
    assert card.headline == "chunk: crashed: ValueError" and "step takes one token" in repr(card)
    assert "return step(u, dt, h), window, h" in repr(card)


def test_reference_equals_a_loop():
    for case in exercise_04.fresh(random.Random(3)):
        x, dt, weight, numbers = case.data()
        y, _, h = stacked(x, dt, torch.zeros(*x.shape[:2], case.kernel - 1).double(), torch.zeros_like(x[..., 0]) if
                          x.shape[-1] else torch.zeros(x.shape[:2]).double(), weight, exercise_04.stepper(numbers))
        wanted, h_at = exercise_04.reference(case)
        assert torch.allclose(y, wanted) and torch.allclose(h, h_at[:, -1])


def test_cases_cover_the_ground():
    fixed = list(exercise_04.small())
    assert str(fixed[0]) == "K = 2; from the start: 1" and {case.kernel for case in fixed} == {1, 2, 3, 4}
    assert {sum(case.sizes) for case in fixed} == set(range(10)) and {case.before for case in fixed} >= {0, 3}
    cases = [case for _ in range(20) for case in exercise_04.fresh(random.Random())]
    assert {case.kernel for case in cases} == {1, 2, 3, 4} and any(0 in case.sizes for case in cases)
    assert {case.batch for case in cases} == set(range(1, 6)) and len({case.dtype for case in cases}) == 2


# ---- what the questions rest on

def test_measured_results_fit_the_questions():
    faults, strip = lesson.FAULTS, lesson.strip_of
    assert strip(faults["dropped-chunk"], (4, 8)) == ".....XXXXXXX"
    assert strip(faults["looks-ahead"], (4, 8)) == strip(faults["history-lost"], (4, 8)) == "....XXXXXXXX"
    for name in ("dropped-chunk", "looks-ahead", "history-lost"):
        assert strip(faults[name], (4,) + (1,) * 8) == "." * 12
    assert all(strip(lesson.RIGHT, sizes) == "." * 12 for sizes in ((12,), (4, 8), (1,) * 12))
    assert lesson.harmless_lengths(["dropped-chunk", "looks-ahead"]) == (1,)
    assert lesson.harmless_lengths([]) == tuple(range(1, 9))
    assert lesson.separating("looks-ahead", "history-lost") == {
        "one at a time": False, "longer chunk": False, "last input moved": True}
    assert not any(lesson.separating("looks-ahead", "looks-ahead").values())
    assert [lesson.caught(lengths) for lengths in lesson.LENGTHS] == [1, 2, 0, 4]
    assert lesson.heals(lesson.errors_after(faults["dropped-chunk"], 60)) == "fades"
    assert lesson.heals(lesson.errors_after(lesson.RIGHT, 60)) == "at once"
    assert lesson.heals(torch.ones(60)) == "stays"


# ---- the influence map

def test_influence_equals_finite_differences():
    mixer, found = lesson.RIGHT, measure(lesson.RIGHT, (3, 2), seed=1)
    x = torch.randn(1, 5, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with torch.no_grad():
        for s in range(5):
            for_each = []
            for c in range(8):
                moved = x.clone()
                moved[0, s, c] += 1e-6
                for_each.append((mixer(moved)[0] - mixer(x)[0])[0] / 1e-6)                          # (L, C')
            assert torch.allclose(torch.stack(for_each).square().sum((0, 2)).sqrt(), found[:, s], rtol=1e-4, atol=1e-5)


def test_sentence_of_the_map_changes_with_the_model():
    def says(layer, sizes=(4, 8)):
        return influence([("uncut", lesson.RIGHT, (12,)), ("layer", layer, sizes)])[1]
    faults = lesson.FAULTS
    assert says(lesson.RIGHT) == "Layer, 4 + 8 tokens: the same map."
    assert "inputs at positions 5 to 10 move no later output" in says(faults["dropped-chunk"])
    assert "positions 4 to 10 depend on later inputs" in says(faults["looks-ahead"])
    assert "from output 4 on, nothing depends on the input at positions 0 to 3" in says(faults["history-lost"])
    assert "other strengths" in says(faults["one-step-size"])
    assert "the same map" in says(faults["dropped-chunk"], (4,) + (1,) * 8)


def test_map_of_a_plain_function():
    _, says = influence([("sum", lambda x, state: (x.cumsum(1), None), (5,)),
                         ("newest", lambda x, state: (x, None), (5,))])
    assert says == "Newest, 5 tokens uncut: the inputs at positions 0 to 3 move no later output."


def test_explorer_follows_its_slider():
    explorer = lesson.explorer()
    assert "Dropped, 4 + 8 tokens: the inputs at positions 5 to 10" in explorer.text()
    explorer.sliders["chunk"].value = 1
    assert explorer.text().count("the same map") == 3 and 'alt="Right' in explorer.html()


def test_the_right_class_passes_where_the_faulty_one_fails():
    same = reclass(samples.mamba2(0), Mamba2Mixer)
    assert lesson.strip_of(same, (4, 8)) == "............"
    assert lesson.errors(lesson.FAULTS["dropped-chunk"], (4, 8)).max() > 0.1
