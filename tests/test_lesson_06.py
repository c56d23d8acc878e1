"""Lesson 06: right answers pass, each named wrong answer is called by its name, and no report is believed unrun."""
import random

import pytest
import torch
import torch.nn.functional as F
from common import text_sizes

from labkit.faults import advice, samples
from labkit.faults.advice_expected_cpu import Branches, outcome
from labkit.figures import error_map
from labkit.figures.error_map import label
from labkit.lesson import exercise_06, progress
from labkit.lesson import lesson_06 as lesson


@pytest.fixture(autouse=True)
def own_progress(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_PROGRESS", str(tmp_path / "progress.json"))


def by_hand(q, k, v, store, position):
    if store.length != position:
        raise ValueError("no")
    K, V = store.append(k, v)
    scores = q @ K.transpose(2, 3) * q.shape[-1] ** -0.5
    future = torch.arange(K.shape[2]) > torch.arange(position, position + q.shape[2])[:, None]
    return scores.masked_fill(future, float("-inf")).softmax(-1) @ V


def token_by_token(q, k, v, store, position):
    if position - store.length:
        raise ValueError("no")
    y = torch.zeros_like(q)
    for t in range(q.shape[2]):
        K, V = store.append(k[:, :, t:t + 1], v[:, :, t:t + 1])
        y[:, :, t:t + 1] = F.scaled_dot_product_attention(q[:, :, t:t + 1], K, V)
    return y


@pytest.mark.parametrize("answer", [by_hand, token_by_token, exercise_06.attend])
def test_right_answers_pass(answer):
    for _ in range(3):
        assert lesson.EXERCISE.check(answer).state == "right"
    assert lesson.prove(answer).state == "right"
    assert progress.get("exercises", "06.attend") == {"state": "right", "tries": 3, "missteps": []}


# ---- wrong answers, written as a learner would

def two_stores(q, k, v, store, position):
    K, V = store.append(k, v)
    if q.shape[2] != 1:
        K, V = store.chunks.append(k, v)
    L, T = q.shape[2], K.shape[2]
    return F.scaled_dot_product_attention(q, K, V, attn_mask=torch.ones(L, T).tril(T - L).bool())


def own_dict(q, k, v, store, position):
    """A second store of the learner's own, masked by position."""
    K, V = store.append(k, v)
    if q.shape[2] > 1:
        before = getattr(store, "mine", (k[:, :, :0], v[:, :, :0]))
        store.mine = K, V = torch.cat([before[0], k], 2), torch.cat([before[1], v], 2)
    sees = torch.arange(K.shape[2]) <= torch.arange(position, position + q.shape[2])[:, None]
    return F.scaled_dot_product_attention(q, K, V, attn_mask=sees)


def causal_flag(q, k, v, store, position):
    if position != store.length:
        raise ValueError("no")
    return F.scaled_dot_product_attention(q, *store.append(k, v), is_causal=True)


def causal_flag_for_chunks(q, k, v, store, position):
    return F.scaled_dot_product_attention(q, *store.append(k, v), is_causal=q.shape[2] > 1)


def unmasked(q, k, v, store, position):
    if position != store.length:
        raise ValueError("no")
    K, V = store.append(k, v)
    return (q @ K.mT / q.shape[-1] ** 0.5).softmax(-1) @ V


def append_first(q, k, v, store, position):
    K, V = store.append(k, v)
    if store.length - q.shape[2] != position:
        raise ValueError("no")
    L, T = q.shape[2], K.shape[2]
    return F.scaled_dot_product_attention(q, K, V, attn_mask=torch.ones(L, T).tril(T - L).bool())


def compares_late(q, k, v, store, position):
    K, V = store.append(k, v)
    if position != store.length:
        raise ValueError("no")
    return by_hand_scores(q, K, V)


def trusting(q, k, v, store, position):
    K, V = store.append(k, v)
    return by_hand_scores(q, K, V)


def by_hand_scores(q, K, V):
    L, T = q.shape[2], K.shape[2]
    return F.scaled_dot_product_attention(q, K, V, attn_mask=torch.ones(L, T).tril(T - L).bool())


NAMED = {"a second store, and a writer that does not fill it": [two_stores, own_dict],
         "no mask": [unmasked, exercise_06.masked(exercise_06.all_seen)],
         "the mask is aligned to the oldest keys": [causal_flag, exercise_06.masked(exercise_06.top_left)],
         "the mask of chunks is aligned to the oldest keys": [causal_flag_for_chunks,
                                                              exercise_06.masked(exercise_06.top_left_chunks)],
         "refused, but half done": [append_first, compares_late], "a wrong position is taken": [trusting]}


def test_each_named_wrong_answer_has_a_case():
    assert set(NAMED) == {misstep.name for misstep in lesson.EXERCISE.missteps}


@pytest.mark.parametrize("name, answer", [(name, answer) for name, answers in NAMED.items() for answer in answers])
def test_wrong_answers_are_called_by_name_and_the_same_each_time(name, answer):
    cards = [lesson.EXERCISE.check(answer) for _ in range(2)]
    assert cards[0].headline == f"attend: wrong: {name}" and repr(cards[0]) == repr(cards[1])
    assert "Simplest counterexample: " in repr(cards[0]) and lesson.prove(answer).state == "wrong"


def test_strips_show_the_signature():
    text = repr(lesson.EXERCISE.check(two_stores))
    assert "4 + 8 tokens                  ............ cannot see it" in text and "........XXXX" in text
    assert lesson.strip_of((2, 1, 2)) == "2+1+2           ..|.|XX"
    assert ".XXXXXXXXXXX" in repr(lesson.EXERCISE.check(causal_flag))


@pytest.mark.parametrize("answer, says", [
    (lambda q, k, v, s, p: None, "the result is nothing (None), it should be a tensor"),
    (lambda q, k, v, s, p: by_hand(q, k, v, s, p).sum(1), "has 3 dimensions, it should have 4"),
    (lambda q, k, v, s, p: by_hand(q, k, v, s, p).double(), "is float64, it should be float32"),
    (lambda q, k, v, s, p: by_hand(q, k, v, s, p) * 1.001, "not that of the uncut text"),
    (lambda q, k, v, s, p: by_hand(q, k, v, s, p).flip(0), "not that of the uncut text"),
    (lambda q, k, v, s, p: by_hand_scores(q, k, v), "the store has length 0, it should be 1")])
def test_other_wrong_answers_get_an_honest_counterexample(answer, says):
    card = lesson.EXERCISE.check(answer)
    assert card.headline == "attend: wrong" and says in repr(card)


def test_stub_is_not_tried_and_a_crash_shows_the_learners_line():
    assert repr(lesson.EXERCISE.check(lambda q, k, v, s, p: NotImplemented)) == "attend: not tried yet"

    def answer(q, k, v, store, position):
        keys, values = store.append(k)
        return q
    card = lesson.EXERCISE.check(answer)
    assert card.headline == "attend: crashed: TypeError" and "keys, values = store.append(k)" in repr(card)


def test_reference_equals_a_loop():
    for case in exercise_06.fresh(random.Random(2)):
        q, k, v = case.data().double()
        wanted = torch.stack([(q[:, :, t, None] @ k[:, :, :t + 1].mT / case.dim ** .5).softmax(-1) @ v[:, :, :t + 1]
                              for t in range(q.shape[2])], 2).squeeze(3)
        assert torch.allclose(exercise_06.uncut(*case.data()), wanted)


# ---- the experiments

def test_measured_results_fit_the_questions():
    assert lesson.failing(lesson.ORDERS) == ("prefill + decode + prefill",)
    assert outcome(Branches, "meta") == outcome(Branches, batch=2) == "'NoneType' object has no attribute 'append'"
    assert outcome(Branches) == "no error"


def test_the_map_follows_the_layers():
    assert lesson.map_of_cuts()[1].startswith("Two stores: wrong in 1 of 12 cuts; 4 + 4 x 1 + 4 (positions 8 to 11).")
    cuts = {(4, 8): [False] * 12, (1,) * 12: [False] * 12}
    assert error_map({"a layer": cuts})[1] == "A layer: right in all 2 cuts."
    assert [label(sizes) for sizes in ((5, 5, 2), (4, 8), (1,) * 4, (2, 1, 1, 1, 1, 3), (12,), (2, 3, 3, 1))] == [
        "chunks of 5", "4 + 8", "chunks of 1", "2 + 4 x 1 + 3", "12", "2 + 3 + 3 + 1"]


def test_the_stores_follow_the_layer():
    faulty, right = lesson.stores()[1], lesson.stores(samples.nope())[1]
    assert "15 filled: 25 wrong slots from “4 decoded” on" in faulty and "23 filled: no wrong slot." in faulty
    assert right.count("23 filled: no wrong slot.") == 2


def test_advice_would_say_otherwise_of_a_layer_with_one_store(monkeypatch):
    from labkit.faults import advice_expected_cpu
    from labkit.mixers import Attention
    monkeypatch.setattr(advice_expected_cpu, "order_is_right", lambda *args, **options: True)
    assert advice.get("expected-cpu.keep-on-cpu").run().verdict == "right"
    assert advice.get("expected-cpu.tensor-operations").run().verdict == "right"
    monkeypatch.setattr(advice_expected_cpu, "Branches", advice_expected_cpu.GuardRemoved)
    assert advice.get("expected-cpu.gpu").run().verdict == "right"
    monkeypatch.setattr(advice_expected_cpu, "GuardRemoved", Attention)
    assert advice.get("expected-cpu.needs-cpu-storage").run().verdict == "wrong"


def checked(q, k, v, store, position):
    if position != store.length:
        raise ValueError("another position")


def not_when_empty(q, k, v, store, position):
    if store.length:
        checked(q, k, v, store, position)
    return exercise_06.attend(q, k, v, store, store.length)


def not_for_nothing(q, k, v, store, position):
    if q.shape[2]:
        checked(q, k, v, store, position)
    return exercise_06.attend(q, k, v, store, store.length)


def cuts_the_keys_back(q, k, v, store, position):
    length = store.length
    y = exercise_06.attend(q, k, v, store, length)
    if position != length:
        store.keys = None if length == 0 else store.keys[:, :, :length]
        raise ValueError("another position")
    return y


def wipes(q, k, v, store, position):
    if position != store.length and store.length:
        store.keys = torch.zeros_like(store.keys)
    return exercise_06.attend(q, k, v, store, position)


def another_error(q, k, v, store, position):
    if position != store.length:
        raise IndexError("another position")
    return exercise_06.attend(q, k, v, store, position)


def drops_the_batch(q, k, v, store, position):
    y = exercise_06.attend(q, k, v, store, position)
    return y.squeeze(0)


def by_hand(q, k, v, store, position):
    checked(q, k, v, store, position)
    keys, values = store.append(k, v)
    scores = q @ keys.mT / q.shape[-1] ** 0.5
    sees = torch.ones(scores.shape[-2:]).tril(keys.shape[2] - q.shape[2]).bool()
    scores = scores.masked_fill(~sees, -torch.inf)
    return (scores - scores.max(-1, keepdim=True).values).softmax(-1) @ values


@pytest.mark.parametrize("answer, says", [
    (not_when_empty, "position 1 is accepted, although the store has length 0"),
    (not_for_nothing, "a call of 0 tokens at position 1 is accepted"), (cuts_the_keys_back, "has changed the store"),
    (wipes, "has changed the store"), (another_error, "raises IndexError (another position); it should raise ValueError"),
    (drops_the_batch, "batch of 1"), (by_hand, "0 + 2 tokens")])
def test_rare_wrong_answers_are_seen(answer, says):
    for _ in range(2):
        card = lesson.EXERCISE.check(answer)
        assert card.state in ("wrong", "crashed") and says in repr(card), repr(card)


def test_price_driver_is_right_without_the_fault():
    from labkit import Cache, HybridLM
    model = HybridLM.preset("attention", vocab_size=32, seed=0, hidden_size=32).requires_grad_(False)
    ids = torch.randint(0, 32, (2, 24), generator=torch.Generator().manual_seed(0))
    with lesson.decode_between(model) as feed:
        faulty = feed(model, ids, (8, 16), Cache())
    right = feed(model, ids, (8, 16), Cache())
    assert torch.allclose(right, model(ids)[:, -1], atol=1e-5)
    assert not torch.allclose(faulty, right, atol=1e-3)


def test_no_text_of_the_figures_is_smaller_than_nine_points():
    from labkit.lesson import lesson_05
    for figure, _ in (lesson.map_of_cuts(), lesson.stores(), lesson_05.picture()):
        sizes = text_sizes(figure)
        assert len(sizes) > 10 and min(sizes) >= 9
