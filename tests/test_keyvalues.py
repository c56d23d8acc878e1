"""The key/value buffer: forks never disturb each other, a sole owner writes in place, the window bounds it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import BatchError, RewindError
from labkit.keyvalues import AttentionState, Buffer


def empty(batch=1, window=None):
    return AttentionState.empty(batch, 2, 3, torch.zeros(1), window)


def token(n, batch=1, length=1):
    """Keys of value n, n+1, …: the content names the token."""
    return (torch.arange(length) + float(n)).view(1, 1, length, 1).expand(batch, 2, length, 3)


def held(state, row=0):
    count = int(state.seen[row] - state.first[row])
    return state.keys[row, 0, :count, 0].tolist()


@pytest.fixture
def copies(monkeypatch):
    """How many buffers were made."""
    made = []
    init = Buffer.__init__
    monkeypatch.setattr(Buffer, "__init__", lambda self, *args: (made.append(1), init(self, *args))[1])
    return made


def test_appending_copies_only_when_the_buffer_doubles(copies):
    state = empty()
    for n in range(1000):
        state = state.append(token(n), token(n))
    assert held(state) == list(range(1000)) and torch.equal(state.keys, state.values)
    assert len(copies) <= 8


def test_verify_four_accept_two_a_thousand_times(copies):
    state, text = empty().append(token(0, length=3), token(0, length=3)), [0, 1, 2]
    for n in range(1000):
        tried = state.append(token(10 * n, length=4), token(10 * n, length=4))
        state = tried.rewind(tried.seen - 2)
        del tried
        text += [10 * n, 10 * n + 1]
    assert held(state) == text
    assert len(copies) <= 20


def test_a_fork_copies_once_and_both_go_on(copies):
    base = empty().append(token(0, length=5), token(0, length=5))
    made = len(copies)
    one = base.append(token(10), token(10))
    two = base.append(token(20), token(20))
    three = two.append(token(30), token(30))
    assert (held(base), held(one), held(two), held(three)) == (
        [0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 10], [0, 1, 2, 3, 4, 20], [0, 1, 2, 3, 4, 20, 30])
    assert len(copies) == made + 1


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_any_history_of_forks_rewinds_and_padding(data):
    """States live on while others append, rewind and slide; every one always holds what a list would."""
    window = data.draw(st.sampled_from([None, 2, 4]))
    living = [(empty(2, window), [[], []])]
    for n in range(data.draw(st.integers(5, 30))):
        index = data.draw(st.integers(0, len(living) - 1))
        state, texts = living[index]
        action = data.draw(st.sampled_from(["append", "fork", "rewind", "drop", "padded", "select"]))
        if action in ("append", "padded", "fork"):
            length = data.draw(st.integers(1, 5))
            counts = torch.tensor([data.draw(st.integers(0, length)) for _ in range(2)]) if action == "padded" else None
            new = state.append(token(100 * n, 2, length), token(100 * n, 2, length), counts).bounded()
            text = [t + [100 * n + i for i in range(length if counts is None else int(counts[r]))]
                    for r, t in enumerate(texts)]
            living.append((new, text)) if action == "fork" else living.__setitem__(index, (new, text))
        elif action == "rewind":
            seen = torch.tensor([data.draw(st.integers(0, len(t))) for t in texts])
            try:
                living[index] = state.rewind(seen), [t[:int(s)] for t, s in zip(texts, seen)]
            except RewindError:
                assert window is not None
        elif action == "select":
            rows = torch.tensor([data.draw(st.integers(0, 1)) for _ in range(2)])
            living[index] = state.select(rows), [texts[int(r)] for r in rows]
        elif len(living) > 1:
            del living[index]
        del state
        for state, texts in living:
            for row, text in enumerate(texts):
                found = held(state, row)
                needed = len(text) if window is None else min(len(text), window - 1)
                assert len(found) >= needed and found == text[len(text) - len(found):]
            assert window is None or state.keys.shape[2] <= 2 * window


def test_gradients_pass_and_nothing_is_written_in_place():
    base = empty().append(token(0, length=2), token(0, length=2))
    k = token(5, length=2).clone().requires_grad_()
    after = base.append(k, k)
    after.append(token(7), token(7)).keys.sum().backward()
    assert torch.equal(k.grad, torch.ones_like(k)) and held(base) == [0, 1]
    k.grad = None
    base.append(k, k, torch.tensor([1])).keys.sum().backward()
    assert k.grad[0, 0, :, 0].tolist() == [1, 0]


def test_a_buffer_of_inference_mode_serves_outside_it():
    with torch.inference_mode():
        state = empty().append(token(0), token(0))
    assert held(state.append(token(1), token(1))) == [0, 1]


def test_other_sizes_are_refused():
    with pytest.raises(BatchError, match=r"continue each batch"):
        empty(batch=2).append(token(0, batch=1), token(0, batch=1))
