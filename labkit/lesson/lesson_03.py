"""Lesson 03, cache position: its questions, and the experiments that answer them."""

import itertools

import torch

from ..cache import Cache
from ..corpus import question
from ..errors import CacheError
from ..faults import advice, get, samples
from ..figures import position_line
from ..generate import go_back
from ..price import driver
from ..tokenizer import tokenizer
from ..versions import recorded, since
from .card import Card
from .exercise_03 import EXERCISE, Texts
from .judge import call
from .question import Option, Question

__all__ = ["EXERCISE", "QUESTIONS", "SLICES", "clock", "covered_prompt", "error_text", "explorer",
           "fewest_fed", "foreign_prefix", "kept_by", "line_of", "picture", "prove", "releases", "right_fixes",
           "shared_tokens", "spans", "verdict_of", "wrong_lengths"]

# what two generations of the library make of a prompt's ids (n,) and m cached tokens: (kept, fed)
SLICES = {"arange(n)[m:]  (4.46 to 5.2)": lambda ids, m: (m, ids[torch.arange(len(ids))[m:]]),
          "ids[-(n-m):]  (5.3 and later)": lambda ids, m: (m, ids[-(len(ids) - m):])}

QUESTIONS = {
    "clock": Question("03.clock", "From lesson 02. A cache has seen 10 tokens. A call comes with one token at position "
                                  "8. What does a right cache do?", (
        Option("refuses", "it refuses", ""),
        Option("accepts", "it goes on at 10", "Then the caller and the cache disagree, and nobody hears of it."),
        Option("rewinds", "it goes back to 8", "Going back is another request. Some memories cannot do it."))),
    "slices": Question("03.slices", "n = 6 prompt tokens, 6 of them cached. How many columns have arange(6)[6:] and "
                                    "ids[:, -0:]?", (
        Option((0, 0), "0 and 0", "-0 is 0. A slice from 0 on is everything: the same trap as in lesson 01."),
        Option((0, 6), "0 and 6", ""),
        Option((6, 6), "6 and 6", "The first one starts behind the last element."),
        Option((1, 1), "1 and 1", "One would be right, but no slice here gives it."))),
    "newer": Question("03.newer", "A newer release raises no error on this call. Its 8 new tokens are …", (
        Option("right", "right: it is fixed", "The error is gone. Look at the tokens."),
        Option("silently wrong", "wrong, some or all of them", ""),
        Option("raises", "none: another error comes", "Not for this call. It returns tokens."))),
    "lengths": Question("03.lengths", "A prompt of 6 tokens. At which cached lengths (0 to 8) is at least one slice "
                                      "wrong?", (
        Option((6,), "at 6 only", "At 7 and 8 the cache holds more than the prompt, and no slice knows it."),
        Option((6, 7, 8), "at 6, 7 and 8", ""),
        Option((0, 6), "at 0 and 6", "At 0 nothing is cached, and both feed the whole prompt."),
        Option(tuple(range(1, 9)), "at all but 0", "From 1 to 5 both slices are right. That is the case people "
                                                   "test."))),
    "three": Question("03.three", "The report proposes three fixes: give cache_position by hand; save the model's "
                                  "cache_position; feed only new tokens. How many make the call right in every "
                                  "release?", tuple(Option(n, text, "") for n, text in (
        (3, "all three"), (2, "two"), (1, "one"), (0, "none"))), "None of them leaves one token to feed."),
    "again": Question("03.again", "The cache holds the tokens of “I have a dream”. The new prompt is “I have a "
                                  "dreamer”. It starts with the same letters. How many tokens can be kept?", (
        Option(4, "4: all of them", "The letters agree, the tokens do not: “dreamer” is one token of its own."),
        Option(3, "3", ""),
        Option(0, "0: the texts differ", "The first tokens agree. They can stay."))),
    "transfer": Question("03.transfer", "6 tokens are cached, the prompt is the first 4 of them. The model is "
                                        "recurrent (h = a*h + u). How many can be kept?", (
        Option(3, "3, and one is fed", "For keys and values, yes. h has no part for each token that could be cut off."),
        Option(4, "4", "Then nothing is left to feed. And h already holds tokens 4 and 5."),
        Option(6, "6", "h already holds two tokens that are not in the prompt."),
        Option(0, "0: start again", ""))),
}


def clock(tokens=10, position=8):
    """What a cache that has seen some tokens does with another position: 'refuses' or 'accepts'."""
    model, cache = samples.transformer(), Cache()
    model(torch.zeros(1, tokens, dtype=torch.long), cache)
    try:
        model(torch.zeros(1, 1, dtype=torch.long), cache, position=position)
    except CacheError as error:
        return "refuses", f"{type(error).__name__}: {error}"
    return "accepts", ""


@torch.no_grad()
def fewest_fed(n=6):
    """The fewest of the prompt's last tokens that must be fed again to know the next one; found by trying."""
    model, ids = samples.transformer(), torch.arange(n)[None]
    wanted = model(ids)[0, -1]
    for fed in range(n + 1):
        cache = Cache()
        model(ids, cache)
        logits = model(ids[:, n - fed:], cache.rewind(n - fed))[0]                              # (fed, vocab)
        if len(logits) and torch.allclose(logits[-1], wanted):
            return fed


def error_text():
    """The report's error, raised by the catalogue's port: 'IndexError: …'."""
    try:
        get("full-prompt-loud").trigger()
    except IndexError as error:
        return f"{type(error).__name__}: {error}"


def releases(case="full_prompt"):
    """{release: what happened} for a recorded call, from 4.46 on: an error, or how many new tokens are right."""
    return {release: found[case].get("raises") or f"{found[case]['right']} of {found[case]['of']} tokens right"
            for release, found in recorded("cache-position").items() if since(release, "4.46.1")}


def spans(outcomes):
    """Lines for neighbouring releases with the same error or verdict: '5.3.0 to 5.17.0: silently wrong'."""
    def say(release):
        verdict = verdict_of(outcomes[release])
        return outcomes[release] if verdict == "raises" else verdict
    for outcome, group in itertools.groupby(outcomes, key=say):
        first, *_, last = [*group] * 2
        yield f"{first if first == last else f'{first} to {last}'}: {outcome}"


def verdict_of(outcome):
    """'right', 'silently wrong' or 'raises' for one line of `releases`."""
    right, _, rest = outcome.partition(" of ")
    return "raises" if not rest else "right" if right == rest.split()[0] else "silently wrong"


def explorer(**cuts):
    """The key picture with its slider: the two slices of the library, or those given, for 0 to 8 cached tokens."""
    from ..widgets import Explorer
    return Explorer(lambda cached: position_line({**SLICES, **cuts}, 6, cached),
                    cached=("tokens in the cache", 0, 8, 6))


def line_of(function):
    """A learner's reuse(prompt, cached) in the form of SLICES; the cache holds the prompt and goes on behind it."""
    def cut(ids, cached):
        return call(function, ids.tolist(), list(range(cached)))
    return cut


def picture(function):
    """The key picture with the learner's own function as a third line."""
    if not EXERCISE.tried(function):
        return Card("not tried", "reuse is not tried yet: come back when the check has something to say.")
    return explorer(**{"your reuse": line_of(function)})


def wrong_lengths(cuts=SLICES, n=6, most=8):
    """Cached lengths at which a cut does not read each prompt token once, or feeds nothing."""
    def right(cut, cached):
        keep, fed = cut(torch.arange(n), cached)
        return len(fed) > 0 and [*range(keep), *map(int, fed)] == list(range(n))
    return tuple(m for m in range(most + 1) if not all(right(cut, m) for cut in cuts.values()))


def right_fixes(names=("manual", "saved", "new-tokens")):
    """(how many of these are right in every release, a line for each: what it says, what was measured, and why)."""
    cases = [advice.get(f"cache-position.{name}") for name in names]
    found = [case.run() for case in cases]
    return (sum(outcome.verdict == "right" for outcome in found),
            [f"“{case.says}” {outcome.evidence} {case.reason}" for case, outcome in zip(cases, found)])


def shared_tokens(before, after):
    """How many tokens of a cached text can be kept for another text."""
    cached, prompt = (tokenizer().encode(text).ids for text in (before, after))
    return EXERCISE.solution(prompt, cached)[0]


def kept_by(model, held=6, most=3):
    """How many of `held` cached tokens a model's states can go back to, at or below `most`."""
    cache = Cache()
    model(torch.zeros(1, held, dtype=torch.long), cache)
    return go_back(cache, most).length


def foreign_prefix(model):
    """A fault for `price`: the cache holds as many tokens of another text, and only lengths are compared."""
    other = torch.tensor(tokenizer().encode(" ".join(question(n).prompt for n in range(9000, 9004))).ids)

    def feed(model, ids, sizes, cache):
        keep = sizes[0]
        model(other[:keep].expand(len(ids), -1), cache)
        return model(ids[:, keep:], cache)[:, -1]
    return driver(feed)


def prove(function):
    """All prompts of 5 tokens with all cached texts of 0 to 6, over two ids. Returns a Card."""
    cases = [Texts(prompt, cached) for m in range(7) for cached in itertools.product((1, 2), repeat=m)
             for prompt in itertools.product((1, 2), repeat=5)]
    return EXERCISE.prove(function, cases, "prompts of 5 tokens, cached texts of 0 to 6")


def covered_prompt(real):
    """Lines: what the installed library makes of a prompt that the cache covers, as it is and after crop(-1)."""
    found = {name: getattr(real.CachePosition(), name)() for name in ("full_prompt", "crop_minus_1")}
    return [f"{name}: {each['right']} of {each['of']} new tokens right, no error." for name, each in found.items()]
