"""Several conversations on one model: whatever the order, each equals a run of its own on a fresh model, uncached."""

import copy
import random

import pytest
import torch
from common import difference, redraw
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import Cache, HybridLM
from labkit.errors import RewindError
from labkit.model import PRESETS

VOCAB, MODELS = 12, {}


def make(name):
    """A small model that all tests of a preset share, so that what one leaves behind meets the next."""
    if name not in MODELS:
        hidden = 32 if name in ("mamba2", "hybrid") else 16
        MODELS[name] = redraw(HybridLM.preset(name, VOCAB, hidden_size=hidden), 5).double()
    return MODELS[name]


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


class Session:
    """A cache, and beside it every column that it was fed."""

    def __init__(self, rows):
        self.cache = Cache()
        self.ids, self.mask = torch.zeros(rows, 0, dtype=torch.long), torch.zeros(rows, 0, dtype=torch.bool)

    def feed(self, model, fresh, ids, mask):
        """Feed columns, and compare each row's logits with those of its real tokens alone, in one uncached run."""
        start = self.mask.sum(1).tolist()
        self.ids, self.mask = torch.cat([self.ids, ids], 1), torch.cat([self.mask, mask], 1)
        found = model(ids, self.cache, position=self.cache.length, mask=None if bool(mask.all()) else mask)
        assert torch.equal(self.cache.mask if self.cache.length else self.mask, self.mask)
        for row in range(len(ids)):
            wanted = fresh(self.ids[row][self.mask[row]][None])[0, start[row]:]
            assert difference(found[row][mask[row]], wanted) <= 1e-10

    def fork(self):
        twin = copy.copy(self)                              # the columns are never changed in place
        twin.cache = self.cache.fork()
        return twin

    def go_back(self, column):
        """Rewind, or a refusal that changes nothing; a kept column is never refused."""
        kept, length, states = self.cache.checkpoints, self.cache.length, self.cache.states
        try:
            self.cache.rewind(column)
            self.ids, self.mask = self.ids[:, :column], self.mask[:, :column]
        except RewindError:
            assert column not in (0, length, *kept)
            assert (self.cache.checkpoints, self.cache.length, self.cache.states) == (kept, length, states)


STEPS = ("begin", "feed", "feed", "feed", "feed padded", "long", "keep", "keep", "fork", "back", "back to kept", "file",
         "select", "reset", "drop")


@pytest.mark.parametrize("name", PRESETS)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 2 ** 32)), min_size=10, max_size=40))
def test_any_order_of_steps_on_one_model_equals_runs_of_their_own(name, steps, tmp_path_factory):
    model, path = make(name), tmp_path_factory.getbasetemp() / f"sessions-{name}"
    fresh, sessions = copy.deepcopy(model), [Session(2)]
    attributes = [set(vars(module)) for module in model.modules()]

    def columns(session, length, padded, rng):
        shape, source = (len(session.ids), length), torch.Generator().manual_seed(rng.randrange(2 ** 32))
        mask = torch.rand(shape, generator=source) > 0.4 if padded else torch.ones(shape, dtype=torch.bool)
        return torch.randint(0, VOCAB, shape, generator=source), mask

    for step, seed in steps:
        rng = random.Random(seed)
        session = rng.choice(sessions) if sessions else None
        if step == "begin" or session is None:
            sessions.append(Session(rng.randint(1, 3)))
        elif step in ("feed", "feed padded", "long"):
            length = rng.choice((30, 70)) if step == "long" else rng.choice((0, 1, 1, 1, 2, 3, 5))
            session.feed(model, fresh, *columns(session, length, step == "feed padded", rng))
        elif step == "keep":
            session.cache.checkpoint()
        elif step == "fork":
            sessions.append(session.fork())
        elif step == "back":
            session.go_back(rng.randint(0, session.cache.length))
        elif step == "back to kept":
            session.go_back(rng.choice([0, *session.cache.checkpoints]))
        elif step == "file":
            session.cache.save(path)
            session.cache = Cache.load(path)
        elif step == "select" and session.cache.length:
            rows = [rng.randrange(len(session.ids)) for _ in range(rng.randint(1, 3))]
            session.cache.select(rows)
            session.ids, session.mask = session.ids[rows], session.mask[rows]
        elif step == "reset":
            session.cache.reset()
            session.__dict__.update({**vars(Session(rng.randint(1, 3))), "cache": session.cache})
        elif step == "drop":
            sessions.remove(session)
    for session in sessions:                                # what a later step did to an earlier cache shows here
        session.feed(model, fresh, *columns(session, 2, False, random.Random(0)))
    assert [set(vars(module)) for module in model.modules()] == attributes, "a call left something on the model"
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), fresh.state_dict().values()))


def converse(model, text, cache, rng, others, path):
    """Two turns of a conversation, one model call at a time; `text` collects (token, said by the model)."""
    for turn in range(2):
        said = [rng.randrange(VOCAB) for _ in range(rng.randint(2, 6))]
        for start in range(0, len(said), 3):
            logits = model(torch.tensor([said[start:start + 3]]), cache)
            text.extend((token, False) for token in said[start:start + 3])
            yield
        for _ in range(3):
            token = logits[:, -1].argmax(-1)                                    # (1,)
            logits = model(token[:, None], cache)
            text.append((int(token), True))
            yield
        event = rng.choice(("nothing", "fork", "rewind", "file")) if turn == 0 else "the end"
        if event == "fork":                                # another conversation goes on from here in its own way
            others.append((list(text), cache.fork()))
        elif event == "rewind":
            column = cache.checkpoint(only=True).length
            for _ in range(2):
                model(torch.tensor([[rng.randrange(VOCAB) for _ in range(2)]]), cache)
                yield
            cache.rewind(column)
        elif event == "file":
            cache.save(path)
            cache = Cache.load(path)


@pytest.mark.parametrize("name", PRESETS)
def test_200_interleaved_conversations_answer_as_200_separate_runs(name, tmp_path):
    """A token is what a separate greedy run says when it is the best one behind all tokens before it, uncached."""
    model, rng, texts, forks, running = make(name), random.Random(name), [], [], []
    while len(texts) < 200 or running:
        while len(texts) < 200 and len(running) < 60:       # 60 at a time; a fork starts where it was taken
            text, cache = forks.pop() if forks else ([], Cache())
            texts.append(text)
            running.append(converse(model, text, cache, rng, forks, tmp_path / "cache"))
        one = rng.choice(running)
        if next(one, "over") == "over":
            running.remove(one)
    fresh = copy.deepcopy(model)
    for text in texts:
        ids = torch.tensor([[token for token, _ in text]])
        best = fresh(ids)[0, :-1].argmax(-1).tolist()
        answers = [(best[at], token) for at, (token, mine) in enumerate(text[1:]) if mine]
        assert len(answers) >= 6 and all(wanted == token for wanted, token in answers)
    assert len(texts) == 200 and len({tuple(text) for text in texts}) == 200
