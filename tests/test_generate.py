"""Generation against the plain loop without a cache: prefixes, padding, stops, draws, guesses."""

import pytest
import torch
from common import redraw
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import Cache, HybridLM
from labkit.errors import BatchError
from labkit.generate import generate, pick, prefill, speculate, stream
from labkit.model import PRESETS

MODELS = {}


def make(name):
    if name not in MODELS:
        MODELS[name] = redraw(HybridLM.preset(name, vocab_size=12, hidden_size=16 if name != "mamba2" else 32), 3).double()
    return MODELS[name]


@torch.no_grad()
def plain(model, text, n):
    """The specification: one row, no cache, the whole text again for every token."""
    text = list(text)
    for _ in range(n):
        text.append(int(model(torch.tensor([text]))[0, -1].argmax()))
    return text[-n:]


def prompt(length=7, batch=1, seed=0):
    return torch.randint(0, 12, (batch, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", PRESETS)
def test_greedy_equals_the_plain_loop(name):
    model, ids = make(name), prompt(batch=3)
    found = generate(model, ids, max_new_tokens=6)
    assert found.tolist() == [plain(model, row, 6) for row in ids.tolist()]
    assert torch.equal(generate(model, ids, max_new_tokens=6, prefill_chunk=2), found)
    assert torch.equal(torch.stack(list(stream(model, ids, max_new_tokens=6)), 1), found)
    assert generate(model, ids, max_new_tokens=0).shape == (3, 0)


@pytest.mark.parametrize("name", PRESETS)
@torch.no_grad()
def test_any_cached_prefix_gives_the_uncached_answer(name):
    """Nothing, part, all but one, all, more, other tokens, a kept column on the way: always the same tokens."""
    model, ids = make(name), prompt(9)
    wanted, other = generate(model, ids, max_new_tokens=5), prompt(9, seed=5)
    texts = {"nothing": ids[:, :0], "part": ids[:, :4], "all but one": ids[:, :8], "all": ids,
             "more": torch.cat([ids, other], 1), "others": other, "others later": torch.cat([ids[:, :3], other], 1)}
    for label, text in texts.items():
        for kept in (None, 2, 5):
            cache = Cache()
            for piece in text.split([kept, text.shape[1] - kept] if kept and kept < text.shape[1] else [text.shape[1]], 1):
                model(piece, cache.checkpoint())
            length, states = cache.length, cache.states
            assert torch.equal(generate(model, ids, cache, max_new_tokens=5), wanted), (label, kept)
            assert cache.length == length and cache.states is states, "the caller's cache moved"


@torch.no_grad()
def test_a_prefix_is_reused_where_the_state_can_go_back(monkeypatch):
    fed = []
    for name, kept, expected in (("attention", False, 1), ("mamba2", False, 9), ("mamba2", True, 3)):
        model, ids, cache = make(name), prompt(9), Cache()
        model(ids[:, :6], cache)
        if kept:
            cache.checkpoint()
        model(ids[:, 6:], cache)
        with monkeypatch.context() as patch:
            forward = HybridLM.forward
            patch.setattr(HybridLM, "forward", lambda m, x, *a, **k: (fed.append(x.shape[1]), forward(m, x, *a, **k))[1])
            prefill(model, ids, cache)
        assert fed.pop() == expected and not fed


@pytest.mark.parametrize("name", PRESETS)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(data=st.data())
def test_padded_batches_equal_their_rows_alone(name, data):
    model, batch, length = make(name), 3, data.draw(st.integers(1, 8))
    ids = prompt(length, batch, seed=data.draw(st.integers(0, 99)))
    mask = torch.tensor(data.draw(st.lists(st.booleans(), min_size=batch * length, max_size=batch * length)))
    mask = mask.view(batch, length)
    mask[:, data.draw(st.integers(0, length - 1))] = True
    chunk = data.draw(st.sampled_from([None, 1, 3]))
    found = generate(model, ids, max_new_tokens=4, mask=mask, prefill_chunk=chunk)
    assert found.tolist() == [plain(model, row[m].tolist(), 4) for row, m in zip(ids, mask)]


@torch.no_grad()
def test_stopped_rows_rest_and_others_go_on():
    model, ids = make("hybrid"), prompt(5, 4)
    free = generate(model, ids, max_new_tokens=8)
    stop = int(free[0, 2])
    cache = Cache()
    found = generate(model, ids, cache, max_new_tokens=8, stop=[stop], update_cache=True)
    steps, fed = found.shape[1], []
    for row, wanted in zip(found.tolist(), free.tolist()):
        end = wanted.index(stop) if stop in wanted[:steps] else steps
        assert row[:end + 1] == wanted[:steps][:end + 1] and set(row[end:]) <= {stop}
        fed.append(5 + min(end, steps - 1))                # the stop token, and the newest token, are not fed
    assert cache.lengths.tolist() == fed and min(fed) < max(fed)


@pytest.mark.parametrize("name", PRESETS)
@torch.no_grad()
def test_an_updated_cache_continues_the_text(name):
    model, ids, cache = make(name), prompt(6), Cache()
    first = generate(model, ids, cache, max_new_tokens=4, update_cache=True)
    assert torch.equal(cache.tokens, torch.cat([ids, first[:, :-1]], 1))
    text = torch.cat([ids, first, prompt(3, seed=8)], 1)
    assert generate(model, text, cache, max_new_tokens=4)[0].tolist() == plain(model, text[0].tolist(), 4)


def test_draws_follow_seed_and_limits():
    model, ids = make("griffin"), prompt(6, 2)
    draw = lambda **o: generate(model, ids, max_new_tokens=8, **o)      # noqa: E731
    assert torch.equal(draw(temperature=2.0, seed=1), draw(temperature=2.0, seed=1))
    assert not torch.equal(draw(temperature=2.0, seed=1), draw(temperature=2.0, seed=2))
    assert torch.equal(draw(temperature=5.0, top_k=1, seed=1), draw())
    assert torch.equal(draw(temperature=5.0, top_p=1e-6, seed=1), draw())
    logits = torch.tensor([[0.0, 3.0, 1.0, 2.0]]).expand(4000, 4)
    source = torch.Generator().manual_seed(0)
    assert set(pick(logits, 1.0, 2, None, source).tolist()) == {1, 3}
    probability = logits[0].softmax(0)
    assert set(pick(logits, 1.0, None, float(probability[1] + probability[3]) - 0.01, source).tolist()) == {1, 3}
    share = torch.bincount(pick(logits, 1.0, None, None, source), minlength=4) / 4000
    assert (share - probability).abs().max() < 0.03


@pytest.mark.parametrize("name", PRESETS)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(data=st.data())
def test_speculation_gives_exactly_the_greedy_output(name, data):
    model, ids = make(name), prompt(data.draw(st.integers(1, 10)), seed=data.draw(st.integers(0, 99)))
    n, stop = data.draw(st.integers(1, 20)), data.draw(st.sampled_from([(), (3,), (0, 5, 7)]))
    cache = Cache()
    with torch.no_grad():
        model(ids[:, :data.draw(st.integers(0, ids.shape[1]))], cache)
    found = speculate(model, ids, cache, n, stop, draft=data.draw(st.integers(1, 6)), ngram=data.draw(st.integers(1, 3)))
    assert found.tokens.tolist() == generate(model, ids, max_new_tokens=n, stop=stop)[0].tolist()
    assert found.accepted <= found.proposed and found.calls < max(2, len(found.tokens))


def test_bad_options_are_named():
    model, ids = make("mamba2"), prompt()
    for options in (dict(max_new_tokens=-1), dict(temperature=-0.5), dict(top_k=0), dict(top_p=0.0), dict(top_p=1.5),
                    dict(prefill_chunk=0), dict(prefill_chunk=0, max_new_tokens=0), dict(stop=5), dict(stop=".")):
        with pytest.raises(ValueError, match=f"{next(iter(options))}=.*must be"):
            generate(model, ids, **options)
    for options in (dict(max_new_tokens=-1), dict(max_new_tokens=2.5), dict(draft=0), dict(ngram=0),
                    dict(stop=5)):
        with pytest.raises(ValueError, match=f"{next(iter(options))}=.*must be"):
            speculate(model, ids, **options)
    for chunk in (None, 2):                                 # a mask of the whole text and more, or for the new part alone
        for columns in (ids.shape[1] + 2, ids.shape[1] - 2):
            with pytest.raises(BatchError, match="one value per new token"):
                generate(model, ids, mask=torch.ones(1, columns, dtype=torch.bool), prefill_chunk=chunk)
    with pytest.raises(BatchError, match="row 1 of the prompt has no real token"):
        generate(model, prompt(3, 2), mask=torch.tensor([[True] * 3, [False] * 3]))
    with pytest.raises(BatchError, match="at least one token"):
        generate(model, ids[:, :0])
    for run in (generate, speculate):
        with pytest.raises(BatchError, match=r"\(batch, tokens\)"):
            run(model, ids[0], max_new_tokens=0)
    with pytest.raises(BatchError, match="speculate on one"):
        speculate(model, prompt(3, 2))
    cache = Cache()
    model(prompt(3, 2), cache)
    with pytest.raises(BatchError, match="1 rows, the cache 2"):
        generate(model, ids, cache)
