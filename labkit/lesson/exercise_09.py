"""Exercise of lesson 09, one_round, and the wrong answers that it knows."""

import itertools
from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from ..cache import Cache
from ..faults import samples
from .drive import Watched
from .exercise import Attempt, Exercise, guarded, imitating
from .judge import WrongForm, a_list, call, off

MODELS = {"hybrid": samples.hybrid, "attention": samples.transformer}


# The right answer and the wrong ones -------------------------------------------------------------------------------

def one_round(model, cache, last, draft):
    start = cache.checkpoint().length
    best = model(torch.tensor([[last, *draft]]), cache)[0].argmax(-1).tolist()      # the token behind each of them
    fits = 0
    while fits < len(draft) and draft[fits] == best[fits]:
        fits += 1
    if fits < len(draft):                                                           # take the rest back
        cache.rewind(start)
        model(torch.tensor([[last, *draft[:fits]]]), cache)
    return best[:fits + 1]


def leaves(tokens, fits=None):
    """A faulty round: `tokens(last, draft, n, new)` is what it leaves in the cache, `new` what it returns.

    n: how many of the draft fit, as `fits(draft, best)` counts.
    """
    def wrong(model, cache, last, draft):
        best = model(torch.tensor([[last, *draft]]), cache.fork())[0].argmax(-1).tolist()
        first = next((i for i, pair in enumerate(zip(draft, best)) if pair[0] != pair[1]), len(draft))
        n = fits(draft, best) if fits else first
        model(torch.tensor([tokens(last, draft, n, best[n])]), cache)
        return best[:n + 1]
    return wrong


no_rewind = leaves(lambda last, draft, n, free: [last, *draft])
newest_too = leaves(lambda last, draft, n, free: [last, *draft[:n], free])
one_rejected = leaves(lambda last, draft, n, free: [last, *draft[:n + 1]])
one_short = leaves(lambda last, draft, n, free: [last, *draft[:n]][:n])
counts_matches = leaves(lambda last, draft, n, free: [last, *draft[:n]],
                        lambda draft, best: sum(x == y for x, y in zip(draft, best)))


def draft_only(model, cache, last, draft):
    """Faulty: the token that the model gives for free is not returned."""
    return one_round(model, cache, last, draft)[:-1]


# The exercise ------------------------------------------------------------------------------------------------------

@lru_cache
def model_of(kind):
    """A model with small embeddings. With others it says one token again and again, and a shifted answer looks right."""
    model = MODELS[kind](0).requires_grad_(False)
    model.embed.weight.mul_(0.1)
    return model


@lru_cache(10_000)
def best_after(model, text):
    """The greedy token behind a text, a tuple, from one call without a cache: the reference."""
    return int(model(torch.tensor([text]))[0, -1].argmax())


@lru_cache(10_000)
def text_of(kind, length, seed):
    """Token ids (length) whose next five greedy tokens all differ from the token before them, for the same reason."""
    model = model_of(kind)
    for trial in itertools.count(1000 * seed):
        draw = torch.Generator().manual_seed(trial)
        text = torch.randint(0, model.config.vocab_size, (length,), generator=draw).tolist()
        for _ in range(5):
            text.append(best_after(model, tuple(text)))
        if all(x != y for x, y in itertools.pairwise(text[-5:])):
            return text[:length]


@dataclass(frozen=True)
class Rounds:
    """One case: a model, and a draft for each round; in a draft r is the token the model would choose, x is another."""
    drafts: tuple[str, ...]
    kind: str = "hybrid"
    prompt: int = 3
    seed: int = 0

    def __str__(self):
        return f"{self.kind}, {self.prompt} tokens, drafts {' '.join(draft or '(empty)' for draft in self.drafts)}"

    def data(self):
        """A model, and the text so far as a list."""
        return model_of(self.kind), list(text_of(self.kind, self.prompt, self.seed))

    def draft(self, model, text, letters):
        tokens = []
        for letter in letters:
            token = best_after(model, (*text, *tokens))
            tokens.append(token if letter == "r" else (token + 1) % model.config.vocab_size)
        return tokens


def rounds(function, case):
    """Run the rounds; yields (text before, draft, new tokens as a list, cache, model, how many calls it took)."""
    model, text = case.data()
    cache = Cache()
    model(torch.tensor([text[:-1]], dtype=torch.long), cache)
    for letters in case.drafts:
        draft = case.draft(model, text, letters)
        watched = Watched(model)
        found = call(function, watched, cache, text[-1], list(draft))
        new = found.tolist() if isinstance(found, torch.Tensor) else found
        if not isinstance(new, (list, tuple)) or not all(isinstance(token, int) for token in new):
            raise WrongForm(f"the function returns {a_list(found)}, it should return a list of token ids")
        yield text, draft, list(new), cache, model, len(watched.fed)
        text = text + list(new)


@guarded
def attempt(function, case):
    """After each round: are the new tokens the greedy ones, and does the cache go on as the text does?"""
    marks, notes, problem = "", set(), None
    for number, (text, draft, new, cache, model, calls) in enumerate(rounds(function, case)):
        right = list(text)
        for _ in new:
            right.append(best_after(model, tuple(right)))
        marks += "".join(".X"[x != y] for x, y in zip(text + new, right))[len(text):] or "X"
        whole = model(torch.tensor([right]))[0, -1]                                 # (vocab,)
        if not new:
            problem = "no new token is returned"
        elif text + new != right:
            problem = "the new tokens are not those of the plain loop"
        elif cache.length != len(right) - 1:
            problem = f"the cache holds {cache.length} tokens; it should hold {len(right) - 1}"
        elif bool(off(model(torch.tensor([right[-1:]]), cache.fork())[0, -1], whole, 1e6).any()):
            problem = "the cache has the right length, and goes on with another text"
        if problem:
            return Attempt(f"round {number + 1}: {problem}", marks + "!" * (len(case.drafts) - number - 1))
        if len(new) <= len(draft) and draft[:len(new)] == new:
            notes.add("A remark: more of a draft could have been accepted. The output is right; it takes more calls.")
        if calls > 2:
            notes.add("A remark: a round makes more than two model calls. Feed last + draft as one chunk: one call.")
    return Attempt(None, marks, notes=tuple(notes))


def small():
    """Fixed cases, simplest first."""
    for kind in MODELS:
        yield from (Rounds(drafts, kind) for drafts in (
            ("",), ("r",), ("x",), ("rx",), ("xr",), ("rrr", "x"), ("xr", "rr"), ("rxr", "rrx"), ("x", "", "rr", "xx")))
    yield from (Rounds(("rx", "r"), kind, 1) for kind in MODELS)


def fresh(draw):
    """8 random cases."""
    for _ in range(8):
        drafts = ("".join(draw.choice("rrx") for _ in range(draw.randint(0, 4))) for _ in range(draw.randint(1, 4)))
        yield Rounds(tuple(drafts), draw.choice(tuple(MODELS)), draw.randint(1, 6), draw.getrandbits(32))


CASES = [Rounds((drafts,), kind, 4, seed) for kind in MODELS for seed, drafts in enumerate(("rrx", "x", "rxr", "rr"))]


def tokens_and_cache(function, case):
    _, _, new, cache, *_ = next(rounds(function, case))
    return new, None if cache.tokens is None else cache.tokens[0].tolist()


misstep = imitating(one_round, tokens_and_cache, CASES)
REJECTED = [replace(case, seed=case.seed + 9) for case in CASES if "x" in case.drafts[0]]
REJECTED_LATER, STARTS_RIGHT = ([case for case in some if case.drafts[0][0] == "r"] for some in (REJECTED, CASES))
EXERCISE = Exercise(
    id="09.one_round", solution=one_round, attempt=attempt, small=small, fresh=fresh,
    shown=(Rounds(("rrr", "x", "r")), Rounds(("rxr", "rrx")), Rounds(("rxr", "rrx"), "attention")),
    proof="a hybrid and an attention model, drafts that fit wholly, partly and not at all, and fresh random cases",
    missteps=(
        misstep("rejected tokens stay", "The new tokens are right, but the whole draft is still in the cache. The next "
                "round continues a text that nobody wrote.", no_rewind),
        misstep("the newest token is fed twice", "The cache already holds the newest token, and the next round feeds "
                "it again. The cache must end before it.", newest_too, cases=REJECTED),
        misstep("a rejected token is kept", "You go back one token too few: the first rejected token stays.",
                one_rejected, cases=REJECTED),
        misstep("an accepted token is missing", "You go back one token too far: the last accepted token is gone from "
                "the cache.", one_short, lambda function, case: (len((seen := tokens_and_cache(function, case))[0]),
                                                         len(seen[1])), REJECTED_LATER),
        misstep("matches after a mismatch are counted", "You count all places where draft and model agree. Behind the "
                "first mismatch the model read a wrong text: its word counts no more.", counts_matches,
                observe=lambda function, case: len(tokens_and_cache(function, case)[0])),
        misstep("the free token is thrown away", "The logits behind the last accepted token give one more token for "
                "free. Without it a round with no match brings nothing.", draft_only,
                lambda function, case: tokens_and_cache(function, case)[0], STARTS_RIGHT),
    ),
    hints=(
        "Where to look: the logits behind `last` judge draft[0], those behind draft[0] judge draft[1]. Where does the "
        "agreement end, and what does the cache hold then?",
        "What is missing: a checkpoint before the chunk. Count the draft tokens that fit, up to the first mismatch. Go "
        "back to the checkpoint, feed last and what fits. Return what fits and one token more.",
        "Half a line:\n    start = cache.checkpoint().length\n    best = model(...)[0].argmax(-1).tolist()\n"
        "    cache.rewind(start); model(torch.tensor([[last, *draft[:fits]]]), cache)",
    ))
