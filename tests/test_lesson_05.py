"""Lesson 05: right probes pass, each named wrong probe is called by its name, and the picture follows the layers."""
import random
from dataclasses import replace

import pytest
import torch

from labkit.faults import advice, advice_history_lost
from labkit.figures.ablation import ablation
from labkit.lesson import exercise_05, progress
from labkit.lesson import lesson_05 as lesson


@pytest.fixture(autouse=True)
def own_progress(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_PROGRESS", str(tmp_path / "progress.json"))


def fields(state):
    return [name for name in ("conv", "recurrent") if hasattr(state, name)]


def zeroes(mixer, prefix, chunk):
    y, state = mixer(prefix)
    right, names = mixer(chunk, state)[0], set()
    for name in fields(state):
        changed = replace(state, **{name: getattr(state, name) * 0})
        if (mixer(chunk, changed)[0] - right).abs().max() < 1e-9:
            names.add(name)
    return names


def other_values(mixer, prefix, chunk):
    """Not zeros: the state of another text."""
    state, foreign = mixer(prefix)[1], mixer(prefix.flip(1) * 2 + 1)[1]
    right = mixer(chunk, state)[0]
    return tuple(name for name in fields(state)
                 if torch.allclose(mixer(chunk, replace(state, **{name: getattr(foreign, name)}))[0], right))


def gradients(mixer, prefix, chunk):
    return exercise_05.by_gradient(mixer, prefix, chunk)


@pytest.mark.parametrize("answer", [zeroes, other_values, gradients, exercise_05.unread])
def test_right_answers_pass(answer):
    for _ in range(3):
        assert lesson.EXERCISE.check(answer).state == "right"
    assert lesson.prove(answer).state == "right"
    assert progress.get("exercises", "05.unread") == {"state": "right", "tries": 3, "missteps": []}


# ---- wrong answers, written as a learner would

def first_of_chunk(mixer, prefix, chunk):
    return zeroes(mixer, prefix, chunk[:, 0:1])


def decode(mixer, prefix, chunk):
    _, state = mixer(torch.cat([prefix, chunk[:, :-1]], 1))
    return zeroes(mixer, torch.cat([prefix, chunk[:, :-1]], 1), chunk[:, -1:])


def fresh_state(mixer, prefix, chunk):
    state = mixer.start(chunk.shape[0])
    right, names = mixer(chunk, state)[0], []
    for name in fields(state):
        zeroed = replace(state, **{name: torch.zeros_like(getattr(state, name))})
        if torch.equal(mixer(chunk, zeroed)[0], right):
            names.append(name)
    return names


def all_at_once(mixer, prefix, chunk):
    state = mixer(prefix)[1]
    empty = replace(state, **{name: torch.zeros_like(getattr(state, name)) for name in fields(state)})
    return fields(state) if torch.allclose(mixer(chunk, empty)[0], mixer(chunk, state)[0]) else []


def end_of_chunk(mixer, prefix, chunk):
    state, names = mixer(prefix)[1], []
    for name in fields(state):
        zeroed = replace(state, **{name: torch.zeros_like(getattr(state, name))})
        if torch.equal(mixer(chunk, zeroed)[0][:, -1], mixer(chunk, state)[0][:, -1]):
            names.append(name)
    return names


def compares_states(mixer, prefix, chunk):
    state, names = mixer(prefix)[1], []
    for name in fields(state):
        zeroed = replace(state, **{name: torch.zeros_like(getattr(state, name))})
        if torch.allclose(mixer(chunk, zeroed)[1].tensors()[name], mixer(chunk, state)[1].tensors()[name], atol=0):
            names.append(name)
    return names


def names_what_is_read(mixer, prefix, chunk):
    state, names = mixer(prefix)[1], []
    for name in fields(state):
        zeroed = replace(state, **{name: torch.zeros_like(getattr(state, name))})
        if not torch.equal(mixer(chunk, zeroed)[0], mixer(chunk, state)[0]):
            names.append(name)
    return names


NAMED = {"written is not read": [compares_states, exercise_05.written_state],
         "the condition is turned round": [names_what_is_read, exercise_05.inverted],
         "the probe takes the other path": [first_of_chunk, decode, exercise_05.one_token],
         "no control: the state was zero already": [fresh_state, exercise_05.no_history],
         "two changes in one experiment": [all_at_once, exercise_05.both_at_once],
         "looked after the effect had passed": [end_of_chunk, exercise_05.last_output]}


def test_each_named_wrong_answer_has_a_case():
    assert set(NAMED) == {misstep.name for misstep in lesson.EXERCISE.missteps}


@pytest.mark.parametrize("name, answer", [(name, answer) for name, answers in NAMED.items() for answer in answers])
def test_wrong_answers_are_called_by_name_and_the_same_each_time(name, answer):
    cards = [lesson.EXERCISE.check(answer) for _ in range(2)]
    assert cards[0].headline == f"unread: wrong: {name}" and repr(cards[0]) == repr(cards[1])
    assert "Simplest counterexample: a " in repr(cards[0]) and lesson.prove(answer).state == "wrong"


@pytest.mark.parametrize("answer, says", [
    (lambda m, p, c: None, "returns nothing (None), it should return a list of names"),
    (lambda m, p, c: "conv", "returns a str"),
    (lambda m, p, c: [1], "returns a list"),
    (lambda m, p, c: ["conv"], "you name conv, it should be nothing"),
    (lambda m, p, c: ["window"], "you name window, it should be nothing"),
    (lambda m, p, c: zeroes(m, p[:1], c[:1]) if len(p) < 3 else [], "a fresh random one is not")])
def test_other_wrong_answers_get_an_honest_counterexample(answer, says):
    card = lesson.EXERCISE.check(answer)
    assert card.headline == "unread: wrong" and says in repr(card)


def test_stub_is_not_tried_and_a_crash_shows_the_learners_line():
    assert repr(lesson.EXERCISE.check(lambda m, p, c: NotImplemented)) == "unread: not tried yet"
    assert lesson.prove(lambda m, p, c: NotImplemented).state == "not tried"

    def answer(mixer, prefix, chunk):
        _, state = mixer(prefix)
        return [name for name in state if not state[name].any()]
    card = lesson.EXERCISE.check(answer)
    assert card.headline == "unread: crashed: TypeError" and "return [name for name in state" in repr(card)


def test_reference_follows_the_layers():
    for case in exercise_05.fresh(random.Random(5)):
        with case.ready() as parts:
            wanted = case.lost if case.chunk > 1 else ()
            assert exercise_05.by_gradient(*parts) == list(wanted)


# ---- the experiments

def test_measured_results_fit_the_questions():
    for family in ("Mamba2", "Mamba", "Griffin"):
        assert lesson.marks(("conv",), family) == lesson.marks(("recurrent",), family) == "X" * 8
    assert lesson.marks(("conv",), "ShortConv") == "XX......" and lesson.marks(()) == "." * 8
    assert [lesson.catalogue(f"{half}-half-lost")[1] for half in exercise_05.HALVES] == [["conv"], ["recurrent"]]
    assert lesson.catalogue("dropped-chunk")[0] == ".....XXXXXXX"
    found, moved, wrong = lesson.useless()
    assert (sorted(found), moved, wrong) == (["conv", "recurrent"], 0, 0)


def test_sentence_of_the_picture_changes_with_the_layers(monkeypatch):
    faulty = lesson.picture()[1]
    assert faulty.startswith("All 3 curves start at the same token, 0; wrong outputs of 24: 24, 24, 24.")
    assert "Right: every field is read. Conv lost: conv not read. Recurrent lost: recurrent not read." in faulty
    monkeypatch.setattr(lesson, "LAYERS", {"right": (), "a copy": (), "another": ()})
    right = ablation({"a copy": lesson.errors(())}, {"right": {"conv": .4}, "a copy": {"conv": .3}})[1]
    assert right == "No output of the 8 is wrong. Right: every field is read. A copy: every field is read."
    assert "The first wrong token: a 1, b 0." in ablation({"a": [0, 1], "b": [1, 1]}, {"c": {"conv": 0.}})[1]


@pytest.mark.parametrize("strip, verdict", [("....", "right"), (".XXX", "wrong")])
def test_recorded_advice_follows_the_records(monkeypatch, strip, verdict):
    runs = {f"chunk {name}": {"strip": strip} for name in advice_history_lost.FIVE}
    monkeypatch.setattr(advice_history_lost, "recorded", lambda name: dict.fromkeys(advice_history_lost.RELEASES, runs))
    assert advice.get("history-lost.five-models").run().verdict == verdict
