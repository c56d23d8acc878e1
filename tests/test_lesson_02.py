"""Lesson 02: right answers pass, each named wrong answer is called by its name; the port behaves as the report says."""
import random

import pytest
import torch

from labkit import load
from labkit.corpus import question
from labkit.errors import PositionError
from labkit.faults.advice_empty_cache import Port, replays, text
from labkit.lesson import exercise_02, progress
from labkit.lesson import lesson_02 as lesson
from labkit.recall import answers


@pytest.fixture(autouse=True)
def own_progress(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_PROGRESS", str(tmp_path / "progress.json"))


def through(layers, x, states):
    new = []
    for i in range(len(layers)):
        x, state = layers[i](x, states[i])
        new.append(state)
    return x, new


def collects(layers, x, position, cache):
    if cache["length"] != position:
        raise PositionError(f"{position} is not {cache['length']}")
    y, new = through(layers, x, cache["states"])
    cache.update(states=new, length=cache["length"] + x.shape[1])
    return y


def puts_back(layers, x, position, cache):
    if cache["length"] != position:
        raise PositionError("wrong")
    kept, fed = list(cache["states"]), x.shape[1]
    try:
        for i, layer in enumerate(layers):
            x, cache["states"][i] = layer(x, cache["states"][i])
    except Exception:
        cache["states"] = kept
        raise
    cache["length"] += fed
    return x


@pytest.mark.parametrize("answer", [collects, puts_back, exercise_02.run_layers])
def test_right_answers_pass(answer):
    for _ in range(3):
        assert lesson.EXERCISE.check(answer).state == "right"
    assert lesson.prove(answer).state == "right" and lesson.retry(answer) == "right"
    assert progress.get("exercises", "02.run_layers") == {"state": "right", "tries": 3, "missteps": []}


# ---- wrong answers, as a learner would write them

def no_comparison(layers, x, position, cache):
    y, cache["states"] = through(layers, x, cache["states"])
    cache["length"] = position + x.shape[1]
    return y


def only_ahead(layers, x, position, cache):
    if position > cache["length"]:
        raise PositionError("ahead")
    return no_comparison(layers, x, cache["length"], cache)


def not_when_empty(layers, x, position, cache):
    if cache["length"] > 0 and position != cache["length"]:
        raise PositionError("wrong")
    y, cache["states"] = through(layers, x, [torch.zeros_like(x[:, 0]) if s is None else s for s in cache["states"]])
    cache["length"] = position + x.shape[1]
    return y


def counts_calls(layers, x, position, cache):
    if position != cache["length"]:
        raise PositionError("wrong")
    y, cache["states"] = through(layers, x, cache["states"])
    cache["length"] += 1
    return y


def stores_in_the_loop(layers, x, position, cache):
    if position != cache["length"]:
        raise PositionError("wrong")
    fed = x.shape[1]
    for i in range(len(layers)):
        x, cache["states"][i] = layers[i](x, cache["states"][i])
    cache["length"] += fed
    return x


def clock_first(layers, x, position, cache):
    if position != cache["length"]:
        raise PositionError("wrong")
    cache["length"] += x.shape[1]
    y, cache["states"] = through(layers, x, cache["states"])
    return y


def no_clock(layers, x, position, cache):
    if position != cache["length"]:
        raise PositionError("wrong")
    y, cache["states"] = through(layers, x, cache["states"])
    return y


def new_dict(layers, x, position, cache):
    cache = {"length": cache["length"], "states": list(cache["states"])}
    return exercise_02.run_layers(layers, x, position, cache)


NAMED = {"nothing is stored": [new_dict], "the clock stands still": [no_clock],
         "trusts the caller": [no_comparison], "catches gaps, not repeats": [only_ahead],
         "a loud fault made silent": [not_when_empty], "counts calls, not tokens": [counts_calls],
         "half done": [stores_in_the_loop, clock_first, exercise_02.writes_as_it_goes]}


def test_each_named_wrong_answer_has_a_case():
    assert set(NAMED) == {misstep.name for misstep in lesson.EXERCISE.missteps}


@pytest.mark.parametrize("name, answer", [(name, answer) for name, answers in NAMED.items() for answer in answers])
def test_wrong_answers_are_called_by_name_and_the_same_each_time(name, answer):
    cards = [lesson.EXERCISE.check(answer) for _ in range(2)]
    assert cards[0].headline == f"run_layers: wrong: {name}" and repr(cards[0]) == repr(cards[1])
    assert "Simplest counterexample: " in repr(cards[0]) and lesson.prove(answer).state == "wrong"
    assert progress.get("exercises", "02.run_layers")["missteps"] == [name]


def swallows(layers, x, position, cache):
    try:
        return collects(layers, x, position, cache)
    except exercise_02.LayerFailed:
        return x


def refuses_all_but_zero(layers, x, position, cache):
    if position:
        raise PositionError("no")
    return collects(layers, x, position, cache)


def tensor_clock(layers, x, position, cache):
    y = exercise_02.run_layers(layers, x, position, cache)
    cache["length"] = position + x
    return y


def three_layers(layers, x, position, cache):
    if position != cache["length"]:
        raise PositionError("wrong")
    states = [None] * 3
    for i in range(3):
        x, states[i] = layers[i](x, cache["states"][i])
    cache.update(length=position + x.shape[1], states=states)
    return x


def any_position_for_no_tokens(layers, x, position, cache):
    return exercise_02.run_layers(layers, x, position if x.shape[1] else cache["length"], cache)


def compares_late(layers, x, position, cache):
    y, new = through(layers, x, cache["states"])
    if position != cache["length"]:
        raise PositionError("wrong")
    cache.update(length=position + x.shape[1], states=new)
    return y


def returns_the_error(layers, x, position, cache):
    if position != cache["length"]:
        return PositionError("wrong")
    return exercise_02.run_layers(layers, x, position, cache)


def empties(layers, x, position, cache):
    try:
        return exercise_02.run_layers(layers, x, position, cache)
    except PositionError:
        raise
    except Exception:
        cache.update(length=0, states=[None] * len(layers))
        raise


def counts_rows(layers, x, position, cache):
    y = exercise_02.run_layers(layers, x, position, cache)
    cache["length"] = position + len(x)
    return y


def nothing_to_do(layers, x, position, cache):
    """Right: 0 tokens leave the cache as it is."""
    if position != cache["length"]:
        raise PositionError("wrong")
    return x if x.shape[1] == 0 else exercise_02.run_layers(layers, x, position, cache)


def test_no_tokens_may_leave_the_cache_alone():
    assert lesson.EXERCISE.check(nothing_to_do).state == lesson.prove(nothing_to_do).state == "right"


@pytest.mark.parametrize("answer, says", [
    (tensor_clock, "cache['length'] is a Tensor, it should be 1"), (three_layers, "1 layer: 2 tokens at position 0"),
    (any_position_for_no_tokens, "0 tokens at position 5, then 1 token at position 2: call 2 is accepted"),
    (compares_late, "call 2 passes the layer's error on, but it should raise PositionError"),
    (returns_the_error, "returns an error, which nobody needs to notice, but it should raise PositionError"),
    (empties, "afterwards cache['length'] is 0, it should be 2"), (counts_rows, "cache['length'] is 2, it should be 1")])
def test_rare_wrong_answers_get_no_wrong_name(answer, says):
    for _ in range(2):
        card = lesson.EXERCISE.check(answer)
        assert card.headline.split(":")[1] in (" wrong", " crashed") and says in repr(card), repr(card)
        assert card.headline in ("run_layers: wrong", "run_layers: crashed: IndexError")


@pytest.mark.parametrize("answer, says", [
    (lambda layers, x, position, cache: None, "the output is nothing (None), it should be a tensor"),
    (lambda layers, x, position, cache: collects(layers, x, position, cache)[:, -1:], "the output has shape"),
    (lambda layers, x, position, cache: collects(layers, x, position, cache) * 1.01, "returns a wrong output"),
    (lambda layers, x, position, cache: collects(layers[:1], x, position, cache), "does not hold the states that"),
    (swallows, "is accepted, but it should pass the layer's error on"),
    (refuses_all_but_zero, "raises PositionError, but it should be accepted"),
    (lambda layers, x, position, cache: through(layers, x, cache["states"])[0], "cache['length'] is 0, it should be 1"),
])
def test_other_wrong_answers_get_an_honest_counterexample(answer, says):
    card = lesson.EXERCISE.check(answer)
    assert card.state == "wrong" and says in repr(card)


def test_stub_is_not_tried_and_a_crash_shows_the_learners_line():
    def answer(layers, x, position, cache):
        if position != cache.length:
            raise PositionError("wrong")
    assert repr(lesson.EXERCISE.check(lambda *parts: NotImplemented)) == "run_layers: not tried yet"
    assert lesson.prove(lambda *parts: NotImplemented).state == "not tried"
    assert progress.get("exercises", "02.run_layers") == {}
    card = lesson.EXERCISE.check(answer)
    assert card.headline == "run_layers: crashed: AttributeError" and "if position != cache.length" in repr(card)


def test_another_error_for_a_wrong_position_is_not_a_position_error():
    def answer(layers, x, position, cache):
        if position != cache["length"]:
            raise ValueError("wrong position")
        return collects(layers, x, position, cache)
    card = lesson.EXERCISE.check(answer)
    assert card.headline == "run_layers: crashed: ValueError" and "wrong position" in repr(card)


def test_reference_equals_a_loop_and_cases_cover_the_ground():
    x, rates = torch.randn(2, 7, 3, dtype=torch.float64), [0.3, 0.9]
    y = x
    for a in rates:
        h, out = torch.zeros(2, 3, dtype=torch.float64), []
        for u in y.unbind(1):
            h = a * h + u
            out.append(h)
        y = torch.stack(out, 1)
    assert torch.allclose(exercise_02.reference(x, rates), y)
    cases = [case for _ in range(20) for case in exercise_02.fresh(random.Random())]
    assert {should for case in cases for should in case.expected()} == {"taken", "refused", "failed"}


# ---- the port, and what the questions rest on

def test_the_port_is_right_when_it_is_used_rightly():
    whole, port = Port()(text(12), 0), Port()
    parts = [port(text(8), 0), *(port(text(t + 1)[:, t:], t) for t in range(8, 12))]
    assert torch.allclose(torch.cat(parts, 1), whole)


def test_measured_results_fit_the_questions():
    assert lesson.window_sources(4, 2) == (1, 2) and lesson.window_sources(4, 5) == (0, 3)
    assert lesson.fresh_call() == "empty cache despite pos > 0" and lesson.fresh_call(0) == "right"
    lines = list(lesson.two_ways())
    assert [line.endswith("RuntimeError: empty cache despite pos > 0") for line in lines] == [True, False, True]
    assert lesson.noticed()[0] == () and "wrong" in lesson.noticed()[1]
    assert lesson.retry(exercise_02.writes_as_it_goes) == "wrong"
    assert sorted(replays().values())[-3:] == ["shape mismatch in broadcast_mul: a longer window than the kernel",
                                               "silently wrong", "silently wrong"]
    assert list(replays().values()).count("right") == 1


def test_relatives_are_each_seen_by_one_law():
    found = [line.strip() for line in list(lesson.relatives())[1::2]]
    assert found == ["position: silently wrong, atomic: holds"] * 3 + ["position: holds, atomic: silently wrong"]


def test_picture_changes_with_the_function():
    _, faulty = lesson.picture()
    _, right = lesson.picture(collects)
    assert "Writes as it goes: 3 wrong slots from “token 3 fails” on (layer 0)" in faulty
    assert right == "Whole or not at all: no wrong slot. Your run_layers: no wrong slot."


def test_the_faulty_driver_is_faulty_and_then_right():
    model, examples = load("mamba2"), [question(i) for i in range(20)]
    right = answers(model, examples)
    with lesson.missing_is_zeros(model) as feed:
        faulty = answers(model, examples, "inside the fact", feed)
    assert sum(a == b for a, b in zip(right, faulty)) < 8
    assert answers(model, examples, "inside the fact", feed) == right
