"""Lesson 01: right answers pass, each named wrong answer is called by its name, whoever wrote it and however."""
import random

import re

import pytest
import torch
import torch.nn.functional as F

from labkit.lesson import exercise_01, progress
from labkit.lesson import lesson_01 as lesson


@pytest.fixture(autouse=True)
def own_progress(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_PROGRESS", str(tmp_path / "progress.json"))


def slices(x, window, weight):
    u, length = torch.cat([window, x], -1), x.shape[-1]
    return sum(weight[:, k, None] * u[..., k:k + length] for k in range(weight.shape[-1])), u[..., length:].clone()


def unfold(x, window, weight):
    u = torch.cat([window, x], -1)
    if not x.shape[-1]:
        return x, window
    return torch.einsum("bclk,ck->bcl", u.unfold(-1, weight.shape[-1], 1), weight), u[..., x.shape[-1]:].clone()


def conv1d(x, window, weight):
    if x.shape[-1] == 0:
        return torch.zeros_like(x), window.clone()
    u = torch.cat([window, x], -1)
    return F.conv1d(u, weight[:, None], groups=weight.shape[0]), u[..., u.shape[-1] - window.shape[-1]:].clone()


def loop(x, window, weight):
    y = []
    for t in range(x.shape[-1]):
        window = torch.cat([window, x[..., t:t + 1]], -1)
        y.append((window * weight).sum(-1))
        window = window[..., 1:].clone()
    return (torch.stack(y, -1) if y else torch.zeros_like(x)), window


@pytest.mark.parametrize("answer", [slices, unfold, conv1d, loop, exercise_01.conv_chunk])
def test_right_answers_pass(answer):
    for _ in range(3):                                                          # fresh random cases each time
        card = lesson.EXERCISE.check(answer)
        assert card.state == "right" and not any("remark" in line for line in card.lines)
    assert lesson.prove(answer).state == "right"
    assert progress.get("exercises", "01.conv_chunk") == {"state": "right", "tries": 3, "missteps": []}


def test_a_view_is_right_with_a_remark():
    card = lesson.EXERCISE.check(lambda x, w, k: (slices(x, w, k)[0], torch.cat([w, x], -1)[..., x.shape[-1]:]))
    assert card.state == "right" and "is a view" in repr(card)


def test_changing_an_input_is_seen_and_harms_nothing():
    def answer(x, window, weight):
        y, following = slices(x, window, weight)
        for thing in (x, window, weight):
            thing.fill_(7)
        return y, following
    card = lesson.EXERCISE.check(answer)
    assert card.state == "right" and "changes one of its inputs" in repr(card)
    assert lesson.EXERCISE.check(slices).state == "right"


# ---- wrong answers, written as a learner would, not as the lesson's own faulty functions

def other_zeros(x, window, weight):
    y = F.conv1d(F.pad(x, (weight.shape[1] - 1, 0)), weight[:, None], groups=len(weight)) if x.shape[-1] else x
    return y, torch.cat([window, x], -1)[..., x.shape[-1]:].clone()


def zeros_and_short_window(x, window, weight):
    y, _ = other_zeros(x, window, weight)
    return y, x[..., -(weight.shape[1] - 1):]


def end_of_chunk(x, window, weight):
    y, _ = loop(x, window, weight)
    return y, x[..., -(weight.shape[1] - 1):]


def end_of_chunk_unguarded(x, window, weight):
    u = torch.cat([window, x], -1)
    return F.conv1d(u, weight[:, None], groups=len(weight)), x[..., x.shape[-1] - window.shape[-1]:]


def true_convolution(x, window, weight):
    u, K, L = torch.cat([window, x], -1), weight.shape[1], x.shape[-1]
    y = sum((weight[:, k, None] * u[..., K - 1 - k:K - 1 - k + L] for k in range(K)), torch.zeros_like(x))
    return y, u[..., L:]


def end_of_chunk_padded(x, window, weight):
    n = weight.shape[1] - 1
    return loop(x, window, weight)[0], F.pad(x, (n, 0))[..., x.shape[-1]:]


def k_columns(x, window, weight):
    u = torch.cat([window, x], -1)
    return slices(x, window, weight)[0], u[..., max(0, u.shape[-1] - weight.shape[1]):]


def minus(x, window, weight):
    return loop(x, window, weight)[0], torch.cat([window, x], -1)[..., -(weight.shape[1] - 1):]


NAMED = {
    "the past is missing": [other_zeros, zeros_and_short_window, lesson.zeros_for_the_past],
    "the next window comes from the chunk alone": [end_of_chunk, end_of_chunk_unguarded, end_of_chunk_padded],
    "the kernel is flipped": [true_convolution, exercise_01.flipped],
    "one column too many": [k_columns, exercise_01.keeps_too_many],
    "minus zero is zero": [minus, exercise_01.minus_zero],
}


def test_each_named_wrong_answer_has_a_case():
    assert set(NAMED) == {misstep.name for misstep in lesson.EXERCISE.missteps}


@pytest.mark.parametrize("name, answer", [(name, answer) for name, answers in NAMED.items() for answer in answers])
def test_wrong_answers_are_called_by_name_and_the_same_each_time(name, answer):
    cards = [lesson.EXERCISE.check(answer) for _ in range(2)]
    assert cards[0].state == "wrong" and cards[0].headline == f"conv_chunk: wrong: {name}"
    assert repr(cards[0]) == repr(cards[1]) and cards[0]._repr_html_() == cards[1]._repr_html_()
    assert "Simplest counterexample: K =" in repr(cards[0])
    assert lesson.prove(answer).state == "wrong"
    assert progress.get("exercises", "01.conv_chunk")["missteps"] == [name]


def test_strips_show_the_signature():
    text = repr(lesson.EXERCISE.check(other_zeros))
    assert "6 + 6 tokens          ......XXX...\n" in text and "12 pieces of 1 token  .XXXXXXXXXXX" in text
    text = repr(lesson.EXERCISE.check(end_of_chunk))
    assert "6 + 6 tokens          ............ cannot see it" in text and ".......!!!!!" in text


@pytest.mark.parametrize("answer, says", [
    (lambda x, w, k: None, "returns nothing (None)"),
    (lambda x, w, k: x, "returns a Tensor, it should return y and the next window"),
    (lambda x, w, k: (x, w, k), "returns a tuple of 3"),
    (lambda x, w, k: (slices(x, w, k)[0].tolist(), w), "y is a list, it should be a tensor"),
    (lambda x, w, k: (slices(x, w, k)[0][0], w), "y has 2 dimensions, it should have 3"),
    (lambda x, w, k: (slices(x, w, k)[0].sum(1, keepdim=True), w), "y has shape (1, 1, 1), it should have (1, 2, 1)"),
    (lambda x, w, k: (slices(x, w, k)[0].double(), w), "y is float64, it should be float32"),
    (lambda x, w, k: (slices(x, w, k)[0] + 1, slices(x, w, k)[1]), "y is wrong"),
    (lambda x, w, k: (slices(x, w, k)[0] * torch.nan, slices(x, w, k)[1]), "y is wrong"),
    (lambda x, w, k: (slices(x, w, k)[0], slices(x, w, k)[1].flip(0)),
     "batch of 2: y is right, the next window is wrong"),
    (lambda x, w, k: (slices(x[:1], w[:1], k)[0].expand_as(x), slices(x, w, k)[1]), "batch of 2: y is wrong"),
    (lambda x, w, k: (slices(x, w, k)[0] * (1 + 1e-4), slices(x, w, k)[1]),
     "1 token uncut, earlier inputs in the window: y is wrong"),
    (lambda x, w, k: tuple(t.float() for t in slices(x, w, k)), "float64: piece 1: y is float32, it should be float64"),
])
def test_other_wrong_answers_get_an_honest_counterexample(answer, says):
    card = lesson.EXERCISE.check(answer)
    assert card.headline == "conv_chunk: wrong" and says in repr(card)


def test_a_fault_that_only_fresh_cases_can_see():
    def answer(x, window, weight):
        y, following = slices(x, window, weight)
        return (y + 1 if len(x) > 2 else y), following
    for _ in range(3):
        says = repr(lesson.EXERCISE.check(answer))
        assert re.search(r"a fresh random one is not: K = \d.* batch of [345].*: y is wrong", says)


def branches(x, window, weight):
    """Wrong where a text begins with a piece shorter than the window."""
    return slices(x, window, weight) if window.any() else (slices(x, window, weight)[0], F.pad(x, (9, 0))[..., :9][
        ..., 9 - window.shape[-1]:])


def shares_a_buffer():
    """Returns one tensor again and again."""
    kept = {}

    def answer(x, window, weight):
        y, following = slices(x, window, weight)
        if following.shape not in kept or kept[following.shape].dtype != following.dtype:
            kept[following.shape] = torch.empty_like(following)
        return y, kept[following.shape].copy_(following)
    return answer


def four_taps(x, window, weight):
    """Wrong for a kernel of more than four taps."""
    y, following = slices(x, window[..., -3:], weight[:, -4:])
    return y, torch.cat([window, x], -1)[..., x.shape[-1]:].clone()


@pytest.mark.parametrize("answer, says", [
    (branches, "the next window is wrong"), (shares_a_buffer(), "a later call has changed it"),
    (four_taps, "K = [56].*y is wrong")])
def test_faults_that_need_the_start_of_a_text_a_second_call_or_a_long_kernel(answer, says):
    for _ in range(3):
        card = lesson.EXERCISE.check(answer)
        assert card.state == "wrong" and re.search(says, repr(card))


def test_a_part_that_is_not_written_yet_is_no_stub():
    def answer(x, window, weight):
        if weight.shape[-1] == 1:
            raise NotImplementedError
        return slices(x, window, weight)
    card = lesson.EXERCISE.check(answer)
    assert card.state == "crashed" and "not written yet" in repr(card) and "K = 1" in repr(card)


def test_an_answer_that_changes_once_it_was_called_often():
    first, calls, often = next(iter(exercise_01.small())).data()[0], [], 10 ** 9

    def answer(x, window, weight):
        calls.extend([1] * torch.equal(x, first))
        y, following = slices(x, window, weight)
        return (y if len(calls) < often else y + 1), following
    assert lesson.EXERCISE.check(answer).state == "right"
    often, calls = len(calls), []
    assert "asked again at the end" in repr(lesson.EXERCISE.check(answer))


def test_stub_is_not_tried_and_leaves_no_trace():
    def raises(x, window, weight):
        raise NotImplementedError
    for stub in (lambda x, w, k: NotImplemented, raises):
        assert repr(lesson.EXERCISE.check(stub)) == "conv_chunk: not tried yet"
        assert lesson.prove(stub).state == lesson.picture(stub).state == "not tried"
    assert progress.get("exercises", "01.conv_chunk") == {}


def test_a_crash_shows_the_learners_own_line():
    def answer(x, window, weight):
        u = torch.cat([window, x], -1)
        return F.conv1d(u, weight[:, None], groups=len(weight)), u[..., x.shape[-1]:]   # raises on a piece of 0 tokens
    card = lesson.EXERCISE.check(answer)
    assert card.headline == "conv_chunk: crashed: RuntimeError"
    assert "return F.conv1d(u, weight[:, None], groups=len(weight)), u" in repr(card)
    assert "1 + 0 tokens, earlier inputs in the window: piece 2: the function raises" in repr(card)


def test_a_crash_beside_a_named_fault_is_said_after_it():
    card = lesson.EXERCISE.check(lambda x, w, k: (F.conv1d(torch.cat([w, x], -1), k[:, None], groups=len(k)),
                                                  minus(x, w, k)[1]))
    assert card.headline == "conv_chunk: wrong: minus zero is zero"
    assert card.lines[1].startswith("Simplest counterexample: K = 1, 1 token uncut")
    assert card.lines[2].startswith("And it crashes: K = 2, 1 + 0 tokens") and "the function raises" in card.lines[2]


def test_the_call_itself_can_be_wrong():
    assert "without brackets" in repr(lesson.EXERCISE.check((1, 2)))
    assert "crashed: TypeError" in repr(lesson.EXERCISE.check(lambda x: x))


def test_reference_equals_loops():
    for case in exercise_01.fresh(random.Random(3)):
        x, window, weight = (tensor.double() for tensor in case.data())
        assert torch.allclose(exercise_01.uncut(x, window, weight), loop(x, window, weight)[0])


def test_fixed_cases_cover_the_ground_and_start_simple():
    cases = list(exercise_01.small())
    assert {(sum(case.sizes), case.kernel) for case in cases} == {(n, k) for n in range(10) for k in range(1, 5)}
    assert str(cases[0]) == "K = 2, 1 token uncut, earlier inputs in the window" and len(set(cases)) == len(cases)
    assert {case.batch for case in cases} == {1, 2} and any(sum(case.sizes) > len(case.sizes) > 2 for case in cases)


def test_a_function_that_mostly_crashes_is_not_named_by_the_rest():
    def answer(x, window, weight):
        if x.shape[-1] != 9:
            raise RuntimeError("no")
        return exercise_01.flipped(x, window, weight)
    assert lesson.EXERCISE.check(answer).headline == "conv_chunk: crashed: RuntimeError"


def test_fresh_cases_are_new_and_cover_the_ground():
    cases = [case for _ in range(20) for case in exercise_01.fresh(random.Random())]
    assert {case.kernel for case in cases} == set(range(1, 7)) and {sum(case.sizes) for case in cases} == set(range(10))
    assert min(case.batch for case in cases) == 2 and len({case.dtype for case in cases}) == 3
    assert any(0 in case.sizes for case in cases) and len({case.seed for case in cases}) > 400


# ---- the questions, answered by running

def test_measured_results_fit_the_questions():
    faulty = lesson.zeros_for_the_past
    assert lesson.wrong_positions(faulty, 4, (6, 6)) == (6, 7, 8)
    assert len(lesson.wrong_positions(faulty, 4, (1,) * 12)) == 11
    assert lesson.harmless_lengths(faulty, 4) == ()
    assert lesson.harmless_lengths(slices, 4) == tuple(range(1, 12))
    assert [lesson.columns_needed(k, d) for k, d in ((4, 3), (4, 1), (1, 5), (2, 2))] == [9, 3, 0, 2]


def test_picture_of_the_learners_own_function():
    assert "Your conv_chunk: no position is wrong" in lesson.picture(slices).text()
    assert "Your conv_chunk: positions 6, 7, 8 are wrong" in lesson.picture(other_zeros).text()
    own = lesson.picture(end_of_chunk)
    own.sliders["chunk"].value = 1
    assert "No picture:" in own.text()
