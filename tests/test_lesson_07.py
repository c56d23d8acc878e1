"""Lesson 07: right copies pass, each named wrong copy is called by its name, and sharing shows only in a full ring."""
import copy
import random

import pytest
import torch

from labkit.faults import advice, samples
from labkit.lesson import exercise_07, progress
from labkit.lesson import lesson_07 as lesson


@pytest.fixture(autouse=True)
def own_progress(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_PROGRESS", str(tmp_path / "progress.json"))


def deep(dst, src):
    if src.fingerprint() != dst.fingerprint():
        raise ValueError("not the same model")
    dst.layers, dst.clock = copy.deepcopy(src.layers), src.clock


def in_place(dst, src):
    """Writes into the target's own tensors, and refuses another number of rows."""
    pairs = list(zip(dst.layers, src.layers))
    if dst.fingerprint() != src.fingerprint() or any(a[n].shape != b[n].shape for a, b in pairs for n in b):
        raise ValueError("they do not fit")
    for mine, theirs in pairs:
        for name in theirs:
            mine[name].copy_(theirs[name])
    dst.clock = src.clock


@pytest.mark.parametrize("answer", [deep, in_place, exercise_07.copy_session])
def test_right_answers_pass(answer):
    for _ in range(3):
        assert lesson.EXERCISE.check(answer).state == "right"
    assert lesson.prove(answer).state == "right"
    assert progress.get("exercises", "07.copy_session") == {"state": "right", "tries": 3, "missteps": []}


# ---- wrong answers, written as a learner would

def same_list(dst, src):
    dst.layers, dst.clock = src.layers, src.clock


def list_copied(dst, src):
    if dst.fingerprint() != src.fingerprint():
        raise ValueError
    dst.layers = [layer.copy() for layer in src.layers]
    dst.clock = src.clock


def tensors_only(dst, src):
    if dst.fingerprint() != src.fingerprint():
        raise ValueError
    dst.layers = copy.deepcopy(src.layers)


def shapes_only(dst, src):
    if len(dst.layers) != len(src.layers):
        raise ValueError
    for mine, theirs in zip(dst.layers, src.layers):
        if mine["keys"].shape[1:] != theirs["keys"].shape[1:]:
            raise ValueError
    dst.layers, dst.clock = copy.deepcopy(src.layers), src.clock


def unchecked(dst, src):
    dst.layers, dst.clock = copy.deepcopy(src.layers), src.clock


def checks_last(dst, src):
    unchecked(dst, src)
    if dst.fingerprint() != src.fingerprint():
        raise ValueError


def checks_each_layer(dst, src):
    if dst.model.fingerprint() == src.fingerprint():
        return unchecked(dst, src)
    for i, theirs in enumerate(src.layers):
        if i < len(dst.layers):
            dst.layers[i] = copy.deepcopy(theirs)
    raise ValueError


def takes_the_model_too(dst, src):
    dst.model, dst.layers, dst.clock = src.model, copy.deepcopy(src.layers), src.clock


NAMED = {"the copy shares the source's memory": [same_list, list_copied, exercise_07.share],
         "two clocks disagree": [tensors_only], "foreign weights are taken": [shapes_only, unchecked, takes_the_model_too],
         "refused, but half done": [checks_last, checks_each_layer]}


def test_each_named_wrong_answer_has_a_case():
    assert set(NAMED) == {misstep.name for misstep in lesson.EXERCISE.missteps}


@pytest.mark.parametrize("name, answer", [(name, answer) for name, answers in NAMED.items() for answer in answers])
def test_wrong_answers_are_called_by_name_and_the_same_each_time(name, answer):
    cards = [lesson.EXERCISE.check(answer) for _ in range(2)]
    assert cards[0].headline == f"copy_session: wrong: {name}" and repr(cards[0]) == repr(cards[1])
    assert "Simplest counterexample: a copy after " in repr(cards[0])
    assert ("it was not refused" in repr(cards[0])) == (name == "foreign weights are taken")


def test_strips_show_the_signature():
    text = repr(lesson.EXERCISE.check(list_copied))
    assert "a copy after 2 frames; steps: copy 2, source 2  .... cannot see it" in text and "..XX" in text
    assert "XX.." in repr(lesson.EXERCISE.check(tensors_only))
    assert lesson.prove(list_copied).state == lesson.prove(tensors_only).state == "wrong"


def wipes(dst, src):
    deep(dst, src)
    for layer in src.layers:
        layer["keys"].zero_()


def broadcasts(dst, src):
    if dst.fingerprint() != src.fingerprint():
        raise ValueError
    for mine, theirs in zip(dst.layers, src.layers):
        for name in mine:
            mine[name].copy_(theirs[name])
    dst.clock = src.clock


def keys_only(dst, src):
    values = [layer["values"].clone() for layer in dst.layers]
    deep(dst, src)
    for layer, old in zip(dst.layers, values):
        layer["values"] = old


def empty_is_nothing_to_copy(dst, src):
    if src.clock:
        deep(dst, src)


def two_layers(dst, src):
    deep(dst, src)
    dst.layers = dst.layers[:2]


def one_row(dst, src):
    deep(dst, src)
    for layer in dst.layers:
        layer["values"] = layer["values"][:1].clone()


def one_buffer():
    kept = {}

    def answer(dst, src):
        deep(dst, src)
        for i, layer in enumerate(dst.layers):
            where = (i, layer["keys"].shape)
            layer["keys"] = kept.setdefault(where, torch.empty_like(layer["keys"])).copy_(layer["keys"])
    return answer


def same_object(dst, src):
    if dst.model is not src.model:
        raise ValueError("another model")
    deep(dst, src)


def type_error(dst, src):
    if dst.fingerprint() != src.fingerprint():
        raise TypeError("another model")
    deep(dst, src)


def in_lists(dst, src):
    deep(dst, src)
    dst.layers = [list(layer.values()) for layer in dst.layers]


@pytest.mark.parametrize("answer, says", [
    (empty_is_nothing_to_copy, "a copy after 0 frames, to a session of the same model that has seen 3 frames"),
    (two_layers, "3 layers: "), (one_row, "2 rows; steps"), (one_buffer(), "the copy does not go on"),
    (same_object, "although both belong to one model"),
    (type_error, "the copy is refused with TypeError (another model), it should be ValueError"),
    (in_lists, "the copy cannot take its next frame: TypeError: ")])
def test_rare_wrong_answers_get_no_wrong_name(answer, says):
    for _ in range(2):
        card = lesson.EXERCISE.check(answer)
        assert card.headline == "copy_session: wrong" and says.replace("layers: ", "layers") in repr(card), repr(card)


@pytest.mark.parametrize("answer, says", [
    (lambda dst, src: None, "the copy does not go on as the source would"),
    (keys_only, "the copy does not go on as the source would"),
    (wipes, "the copy changes the source"),
    (broadcasts, "one row more; steps: copy 2, source 2: the copy cannot take its next frame"),
    (lambda dst, src: exec("raise ValueError('no')"), "the copy is refused (no), although both belong to one model")])
def test_other_wrong_answers_get_an_honest_counterexample(answer, says):
    card = lesson.EXERCISE.check(answer)
    assert card.headline == "copy_session: wrong" and says in repr(card)


def test_stub_is_not_tried_and_a_crash_shows_the_learners_line():
    assert repr(lesson.EXERCISE.check(lambda dst, src: NotImplemented)) == "copy_session: not tried yet"

    def answer(dst, src):
        dst.layers = src.layers.clone()
    card = lesson.EXERCISE.check(answer)
    assert card.headline == "copy_session: crashed: AttributeError" and "dst.layers = src.layers.clone()" in repr(card)


def test_a_session_equals_the_uncut_run():
    for case in exercise_07.fresh(random.Random(4)):
        model, x = exercise_07.model_of(case.seed, case.layers), case.frames(11, 5)
        session = exercise_07.Session(model, case.rows)
        assert torch.allclose(torch.cat([session.step(part) for part in x.split([4, 1, 6], 1)], 1), model(x.mT).mT)
        assert session.clock == 11


# ---- the experiments

def test_measured_results_fit_the_questions():
    assert [lesson.disturbed(before) for before in range(9)] == [False] * 3 + [True] * 6
    assert not any(lesson.disturbed(before, deep) for before in range(9))
    assert lesson.copied(samples.streaming()) == "wrong" and lesson.copied(samples.streaming(), used=6) == "right"
    assert lesson.loud() == ["value"]


def test_the_rings_follow_the_copy():
    shared, own = lesson.rings()[1], lesson.rings(deep)[1]
    assert "Ring of the source: 4 wrong slots" in shared and "written by the copy" in shared
    assert own == "Ring of the source: no wrong slot. Ring of the copy: no wrong slot."
    explorer = lesson.explorer()
    explorer.sliders["before"].value = 2
    assert explorer.sentence.startswith("Ring of the source: no wrong slot.")
    for before in range(9):
        explorer.sliders["before"].value = before
        wrong = not explorer.sentence.startswith("Ring of the source: no wrong slot.")
        assert wrong == lesson.disturbed(before), before


def test_each_reset_fault_has_its_own_test():
    lines = lesson.audit().splitlines()
    assert ["sees it" in line.split("soak")[0] for line in lines] == [True, False]
    assert [line.endswith("sees it") for line in lines] == [False, True]


def test_advice_would_say_otherwise_of_a_right_copy(monkeypatch):
    from labkit.faults import advice_different_depths as module
    from labkit.streaming import StreamingTransformer
    monkeypatch.setattr(module, "copied", lambda *args, **options: "right")
    assert advice.get("different-depths.rebuild-and-copy").run().verdict == "right"
    assert advice.get("different-depths.same-config").run().verdict == "right"
    assert advice.get("different-depths.depth-guard").run().verdict == "right"
    assert advice.get("different-depths.trigger").run().verdict == "wrong"
    monkeypatch.setattr(StreamingTransformer, "layers_len", lambda self: 2, raising=False)
    assert advice.get("different-depths.layers-len").run().verdict == "right"


def test_the_other_story_is_about_the_same_people():
    from labkit.tokenizer import tokenizer
    table = lesson.other_things()
    text = tokenizer().decode(table[tokenizer().encode("Ada keeps a red kite.").ids].tolist())
    assert text.startswith("Ada keeps a ") and "red" not in text and "kite" not in text and len(text.split()) == 5
