"""Lesson 03: right answers pass, each named wrong answer is called by its name; the line shows what it is given."""
import os
import random

import pytest
from matplotlib.text import Text

from labkit import load
from labkit.corpus import question
from labkit.faults import samples
from labkit.figures import position_line
from labkit.figures.position_line import KINDS, kinds, measure
from labkit.lesson import exercise_03, progress
from labkit.lesson import lesson_03 as lesson
from labkit.recall import answers


@pytest.fixture(autouse=True)
def own_progress(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_PROGRESS", str(tmp_path / "progress.json"))


def with_zip(prompt, cached):
    keep = 0
    for mine, theirs in zip(prompt[:-1], cached):
        if mine != theirs:
            break
        keep += 1
    return keep, prompt[keep:]


def with_commonprefix(prompt, cached):
    keep = min(len(os.path.commonprefix([prompt, cached])), len(prompt) - 1)
    return keep, tuple(prompt[keep:])


@pytest.mark.parametrize("answer", [with_zip, with_commonprefix, exercise_03.reuse])
def test_right_answers_pass(answer):
    for _ in range(3):
        assert lesson.EXERCISE.check(answer).state == "right"
    assert lesson.prove(answer).state == "right"
    assert progress.get("exercises", "03.reuse") == {"state": "right", "tries": 3, "missteps": []}
    assert lesson.wrong_lengths({"own": lesson.line_of(answer)}) == ()


# ---- wrong answers, as a learner would write them

def behind_the_cache(prompt, cached):
    return min(len(cached), len(prompt)), prompt[len(cached):]


def compares_but_leaves_nothing(prompt, cached):
    keep = len(os.path.commonprefix([prompt, cached]))
    return keep, prompt[keep:]


def from_the_end(prompt, cached):
    keep = len(os.path.commonprefix([prompt, cached]))
    return keep, prompt[-(len(prompt) - keep):]


def by_length(prompt, cached):
    keep = min(len(prompt) - 1, len(cached))
    return keep, prompt[keep:]


def by_length_guarded(prompt, cached):
    keep = len(cached) if len(cached) < len(prompt) else len(prompt) - 1
    return keep, prompt[keep:]


def counts_matches(prompt, cached):
    keep = min(sum(a == b for a, b in zip(prompt, cached)), len(prompt) - 1)
    return keep, prompt[keep:]


def starts_again(prompt, cached):
    return 0, prompt


NAMED = {"empty work": [behind_the_cache, compares_but_leaves_nothing], "minus zero": [from_the_end],
         "lengths, not tokens": [by_length, by_length_guarded], "matches after the first difference": [counts_matches],
         "keeps nothing": [starts_again]}


def test_each_named_wrong_answer_has_a_case():
    assert set(NAMED) == {misstep.name for misstep in lesson.EXERCISE.missteps}


@pytest.mark.parametrize("name, answer", [(name, answer) for name, answers in NAMED.items() for answer in answers])
def test_wrong_answers_are_called_by_name_and_the_same_each_time(name, answer):
    cards = [lesson.EXERCISE.check(answer) for _ in range(2)]
    assert cards[0].headline == f"reuse: wrong: {name}" and repr(cards[0]) == repr(cards[1])
    assert "Simplest counterexample: prompt [" in repr(cards[0]) and lesson.prove(answer).state == "wrong"
    assert progress.get("exercises", "03.reuse")["missteps"] == [name]


def same_objects(prompt, cached):
    keep = 0
    while keep < min(len(prompt) - 1, len(cached)) and prompt[keep] is cached[keep]:
        keep += 1
    return keep, prompt[keep:]


def stops_at_zero(prompt, cached):
    keep = 0
    while keep < min(len(prompt) - 1, len(cached)) and prompt[keep] and prompt[keep] == cached[keep]:
        keep += 1
    return keep, prompt[keep:]


def one_too_many(prompt, cached):
    keep = min(with_zip(prompt, cached)[0] + 1, len(prompt) - 1, len(cached))
    return keep, prompt[keep:]


@pytest.mark.parametrize("answer, says", [
    (lambda prompt, cached: None, "returns nothing (None)"),
    (lambda prompt, cached: (1.0, prompt), "keep is a float"),
    (lambda prompt, cached: (0, None), "feed is nothing (None)"),
    (lambda prompt, cached: (0, prompt[:-1]), "feed is empty"),
    (lambda prompt, cached: (-1, prompt), "you keep -1 cached tokens"),
    (lambda prompt, cached: (with_zip(prompt, cached)[0], prompt[-1:]), "together they are not the prompt"),
    (lambda prompt, cached: with_zip(prompt, cached[:1]), "you keep 1, but 2 fit"),
    (same_objects, "prompt [0, 700, 0, 7], cached [0, 700, 0, 9]: you keep 1, but 3 fit"),
    (stops_at_zero, "prompt [0, 700, 0, 7], cached [0, 700, 0, 9]: you keep 0, but 3 fit"),
    (lambda prompt, cached: (with_zip(prompt, cached)[0], []), "feed is empty"),
    (lambda prompt, cached: (with_zip(prompt, cached)[0], prompt), "together they are not the prompt"),
    (one_too_many, "prompt [1, 1], cached [2]: you keep 1 cached tokens, but they are not"),
])
def test_other_wrong_answers_get_an_honest_counterexample(answer, says):
    card = lesson.EXERCISE.check(answer)
    assert card.headline == "reuse: wrong" and says in repr(card)


def test_stub_is_not_tried_and_a_crash_shows_the_learners_line():
    def answer(prompt, cached):
        keep = [a == b for a, b in zip(prompt, cached)].index(False)
        return keep, prompt[keep:]
    for stub in (lambda prompt, cached: NotImplemented,):
        assert repr(lesson.EXERCISE.check(stub)) == "reuse: not tried yet"
        assert lesson.prove(stub).state == lesson.picture(stub).state == "not tried"
    assert progress.get("exercises", "03.reuse") == {}
    card = lesson.EXERCISE.check(answer)
    assert card.headline == "reuse: crashed: ValueError" and ".index(False)" in repr(card)


def test_reference_equals_a_loop_and_cases_cover_the_ground():
    cases = [*exercise_03.small(), *(case for _ in range(20) for case in exercise_03.fresh(random.Random()))]
    assert all(exercise_03.longest(case) == with_zip(case.prompt, case.cached)[0] for case in cases)
    assert str(cases[0]) == "prompt [1], cached []" and {len(case.cached) for case in cases} >= set(range(6))


# ---- what the questions rest on

def test_measured_results_fit_the_questions():
    assert lesson.clock()[0] == "refuses" and lesson.clock(10, 10)[0] == "accepts"
    assert lesson.fewest_fed() == 1
    assert lesson.error_text() == "IndexError: index -1 is out of bounds for dimension 0 with size 0"
    assert lesson.wrong_lengths() == (6, 7, 8)
    assert lesson.wrong_lengths({"right": lesson.line_of(with_zip)}) == ()
    assert lesson.shared_tokens("I have a dream", "I have a dreamer") == 3
    assert lesson.kept_by(samples.transformer()) == 3 and lesson.kept_by(load("mamba2")) == 0
    assert [lesson.verdict_of(line) for line in ("IndexError", "1 of 8 tokens right", "8 of 8 tokens right")] == [
        "raises", "silently wrong", "right"]


def test_what_the_named_releases_do_was_recorded():
    found = {release: lesson.verdict_of(outcome) for release, outcome in lesson.releases().items()}
    assert set(map(found.get, ("4.46.1", "4.57.6", "5.2.0"))) == {"raises"}
    assert set(map(found.get, ("5.3.0", "5.17.0", "5.18.0", "5.23.0"))) == {"silently wrong"}
    assert {lesson.verdict_of(outcome) for outcome in lesson.releases("crop_minus_1").values()} == {"right"}
    assert list(lesson.spans({"1": "a", "2": "a", "3": "b", "4": "1 of 8", "5": "5 of 8"})) == [
        "1 to 2: a", "3: b", "4 to 5: silently wrong"]
    count, lines = lesson.right_fixes()
    assert count == 0 and len(lines) == 3


def test_faulty_drivers_are_faulty_and_then_right():
    model, examples = load("hybrid"), [question(i) for i in range(20)]
    right = answers(model, examples)
    with lesson.foreign_prefix(model) as feed:
        faulty = answers(model, examples, "behind the fact", feed)
    assert sum(a == b for a, b in zip(right, faulty)) < 5
    assert answers(model, examples, "behind the fact", feed) == right


# ---- the position line

def test_line_of_a_slice_and_its_sentence():
    loud, silent = lesson.SLICES.values()
    assert measure(loud, 6, 6) == (6, []) and measure(silent, 6, 6) == (6, [0, 1, 2, 3, 4, 5])
    assert measure(loud, 6, 4) == measure(silent, 6, 4) == (4, [4, 5])
    assert kinds(8, [2, 3, 4, 5], 6) == ["kept"] * 2 + ["twice"] * 4 + ["beyond"] * 2
    assert kinds(1, [3], 4) == ["kept", "lost", "lost", "fed"]
    _, says = position_line(lesson.SLICES, 6, 6)
    assert "6 kept, nothing is fed" in says and "6 fed (positions 0 to 5), 6 read twice" in says
    assert ": right" not in says
    _, says = position_line({"own": lesson.line_of(with_zip)}, 6, 6)
    assert says == "6 prompt tokens, 6 in the cache. own: 5 kept, 1 fed (position 5): right."


def test_kinds_differ_in_colour_and_in_hatch():
    _, colours, hatches = zip(*KINDS.values())
    assert len(set(colours)) == len(set(hatches)) == len(KINDS)


def test_explorer_follows_its_slider_and_shows_the_learners_line():
    explorer = lesson.explorer()
    assert "nothing is fed" in explorer.text()
    explorer.sliders["cached"].value = 3
    assert explorer.text().count(": right") == 2
    own = lesson.picture(with_zip)
    assert "your reuse: 5 kept, 1 fed (position 5): right" in own.text()
    assert "No picture:" in lesson.picture(lambda prompt, cached: 1).text()
