"""Lesson 09: right answers pass, each named wrong answer is called by its name, the cells measure what they say."""
import random

import pytest
import torch

from labkit.cache import Cache
from labkit.faults import advice, advice_rollback
from labkit.faults.cache_faults import RewindsKeysOnly
from labkit.generate import generate
from labkit.lesson import exercise_09, progress
from labkit.lesson import lesson_09 as lesson
from labkit.lesson.exercise_09 import EXERCISE, Rounds


@pytest.fixture(autouse=True)
def own_progress(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_PROGRESS", str(tmp_path / "progress.json"))


def choices(model, cache, last, draft):
    logits = model(torch.tensor([[last] + draft]), cache)
    return [int(token) for token in logits[0].argmax(dim=-1)]


def agreeing(draft, best):
    n = 0
    for guess, choice in zip(draft, best):
        if guess != choice:
            break
        n += 1
    return n


def with_a_fork(model, cache, last, draft):
    best = choices(model, cache.fork(), last, draft)
    n = agreeing(draft, best)
    model(torch.tensor([[last] + draft[:n]]), cache)
    return draft[:n] + [best[n]]


def with_a_checkpoint(model, cache, last, draft):
    cache.checkpoint()
    before = cache.length
    best = choices(model, cache, last, draft)
    n = agreeing(draft, best)
    if n != len(draft):
        cache.rewind(before)
        model(torch.tensor([[last] + draft[:n]]), cache)
    return torch.tensor(best[:n + 1])


@pytest.mark.parametrize("answer", [with_a_fork, with_a_checkpoint])
def test_right_answers_pass(answer):
    for _ in range(3):                                                          # fresh random cases each time
        card = EXERCISE.check(answer)
        assert card.state == "right" and "remark" not in repr(card)
    assert lesson.saved(answer).state == "right"
    assert progress.get("exercises", "09.one_round") == {"state": "right", "tries": 3, "missteps": []}


def test_one_token_a_round_is_right_with_a_remark():
    card = EXERCISE.check(lambda model, cache, last, draft: with_a_fork(model, cache, last, []))
    assert card.state == "right" and "more of a draft could have been accepted" in repr(card)


# ---- wrong answers, written as a learner would, not as the lesson's own faulty functions

def stays(model, cache, last, draft):
    best = choices(model, cache, last, draft)
    n = agreeing(draft, best)
    return draft[:n] + [best[n]]


def after(wrong):
    """Right tokens, and in the cache what wrong(last, draft, n, free token) says."""
    def answer(model, cache, last, draft):
        best = choices(model, cache.fork(), last, draft)
        n = agreeing(draft, best)
        tokens = wrong(last, draft, n, best[n])
        if tokens:
            model(torch.tensor([tokens]), cache)
        return draft[:n] + [best[n]]
    return answer


def all_matches(model, cache, last, draft):
    best = choices(model, cache.fork(), last, draft)
    n = sum(a == b for a, b in zip(best, draft))
    model(torch.tensor([[last] + draft[:n]]), cache)
    return draft[:n] + best[n:n + 1]


def only_the_draft(model, cache, last, draft):
    best = choices(model, cache.fork(), last, draft)
    n = agreeing(draft, best)
    model(torch.tensor([[last] + draft[:n]]), cache)
    return draft[:n]


NAMED = {"rejected tokens stay": stays,
         "the newest token is fed twice": after(lambda last, draft, n, free: [last, *draft[:n], free]),
         "a rejected token is kept": after(lambda last, draft, n, free: [last, *draft[:n + 1]]),
         "an accepted token is missing": after(lambda last, draft, n, free: [last, *draft[:n]][:-1]),
         "matches after a mismatch are counted": all_matches, "the free token is thrown away": only_the_draft}


def test_each_named_wrong_answer_has_a_case():
    assert set(NAMED) == {misstep.name for misstep in EXERCISE.missteps}


def test_a_free_token_that_is_returned_alone_or_not_at_all():
    card = EXERCISE.check(lambda *given: only_the_draft(*given) or choices(given[0], Cache(), given[2], [])[:1])
    assert card.headline == "one_round: wrong: the free token is thrown away"


@pytest.mark.parametrize("name", NAMED)
def test_wrong_answers_are_called_by_name(name):
    card = EXERCISE.check(NAMED[name])
    assert card.headline == f"one_round: wrong: {name}" and "Simplest counterexample:" in repr(card)
    assert lesson.saved(NAMED[name]).state == "wrong"


@pytest.mark.parametrize("answer, says", [
    (lambda model, cache, last, draft: None, "returns nothing (None), it should return a list of token ids"),
    (lambda model, cache, last, draft: 3, "returns an int"),
    (lambda model, cache, last, draft: with_a_fork(model, cache.fork(), last, draft), "the cache holds 2 tokens"),
    (lambda model, cache, last, draft: [last], "round 1:"),
    (after(lambda last, draft, n, free: [free, *draft[:n]]), "goes on with another text"),
    (lambda model, cache, last, draft: with_a_fork(model, cache, draft[0] if draft else last, draft), "round 1:")])
def test_other_wrong_answers_get_an_honest_counterexample(answer, says):
    card = EXERCISE.check(answer)
    assert card.headline == "one_round: wrong" and says in repr(card)


def test_stub_and_crash():
    assert repr(EXERCISE.check(lambda *given: NotImplemented)) == "one_round: not tried yet"
    assert lesson.saved(lambda *given: NotImplemented).state == "not tried"
    assert progress.get("exercises", "09.one_round") == {}

    def answer(model, cache, last, draft):
        start = cache.length
        best = choices(model, cache, last, draft)
        n = agreeing(draft, best)
        cache.rewind(start + 1 + n)                                             # no checkpoint: a hybrid refuses
        return best[:n + 1]
    card = EXERCISE.check(answer)
    assert card.headline == "one_round: crashed: RewindError" and "cache.rewind(start + 1 + n)" in repr(card)
    assert "Every token is right" not in repr(card) and repr(card).count("  !") == 2      # attention alone answers


def test_reference_is_the_plain_loop_and_fresh_cases_cover_the_ground():
    model, text = Rounds(("r",)).data()
    greedy = generate(model, torch.tensor([text]), max_new_tokens=5)[0].tolist()
    for token in greedy:
        assert exercise_09.best_after(model, tuple(text)) == token
        text = text + [token]
    cases = [case for _ in range(30) for case in exercise_09.fresh(random.Random())]
    assert {case.kind for case in cases} == {"hybrid", "attention"} and any("" in case.drafts for case in cases)
    assert any("xr" in draft for case in cases for draft in case.drafts)


# ---- the questions, answered by running

def test_measured_results():
    assert lesson.kept([1, 2, 3, 4], [1, 2, 7, 4, 5]) == 2 and lesson.kept([1, 2], [1, 2, 3]) == 2
    assert [lesson.undo(a) < 1e-3 for a in (0.95, 0.5, 0.1)] == [True, True, False]
    assert lesson.left_of_draft() == ("state",) and lesson.moves_needed() == ("keys and values", "state", "window")
    found, plain = lesson.calls(with_a_checkpoint)
    assert plain == 30 and found < 15 and lesson.calls(all_matches) is None
    assert len([line for line in lesson.relatives().splitlines() if line.startswith("    ")]) >= 3


def test_picture_changes_with_the_model():
    assert "State, keys cropped: 4 wrong slots" in lesson.picture(1)[1]
    assert "State, back to a checkpoint: no wrong slot" in lesson.picture(1)[1]
    assert "wrong slots" not in lesson.picture(3)[1]                            # nothing is rejected
    state, keys = lesson.traces(1, Cache)
    assert state[0] == list("ttttarr") + [None] and state[2] == [*"tttta", None, None, "n"] and keys[2][5] == "n"
    assert lesson.traces(1, RewindsKeysOnly)[0][2] == list("ttttarrn")


def test_advice_follows_what_is_run(monkeypatch):
    assert advice.get("rollback.crop").run().verdict == "partly"
    monkeypatch.setattr(advice_rollback, "RewindsKeysOnly", Cache)
    assert advice.get("rollback.crop").run().verdict == "right"
    monkeypatch.setattr(advice_rollback, "with_states", lambda cache, states: cache)
    assert advice.get("rollback.deepcopy").run().verdict == "right"             # forks share nothing that is changed
    monkeypatch.setattr(advice_rollback, "undo", lambda a: 1.0)
    assert advice.get("rollback.divide").run().verdict == "silently wrong"


def test_the_library_cell_says_what_it_ran():
    said = lesson.in_library()
    assert said.startswith("transformers is not installed") or (
        "RuntimeError: `crop` was called" in said and "holds 3 tokens" in said)
