"""Exercise of lesson 03, reuse: how much of a cache fits a prompt, and what is left to feed."""

import itertools
from dataclasses import dataclass

from .exercise import Attempt, Exercise, Misstep, guarded
from .judge import WrongForm, a, call, want_parts


def reuse(prompt, cached):
    keep = 0
    while keep < min(len(prompt) - 1, len(cached)) and prompt[keep] == cached[keep]:
        keep += 1
    return keep, prompt[keep:]


@dataclass(frozen=True)
class Texts:
    """One case: the ids of a prompt, and those that a cache holds."""
    prompt: tuple[int, ...]
    cached: tuple[int, ...]

    def __str__(self):
        return f"prompt {list(self.prompt)}, cached {list(self.cached)}"


def answer(function, case):
    """(keep, feed) of a function, checked for its form."""
    keep, feed = want_parts(call(function, *map(own, (case.prompt, case.cached))), ("keep", "feed"))
    if isinstance(keep, bool) or not isinstance(keep, int):
        raise WrongForm(f"keep is {a(keep)}, it should be an int")
    if not isinstance(feed, (list, tuple)):
        raise WrongForm(f"feed is {a(feed)}, it should be a list of ids")
    return keep, list(feed)


def own(ids):
    """The same ids as objects of their own, as two tokenized texts have them."""
    return [int(str(token)) for token in ids]


def longest(case):
    """The reference, by trying every length: the longest common start that leaves something to feed."""
    return max(n for n in range(len(case.prompt)) if n <= len(case.cached) and case.prompt[:n] == case.cached[:n])


@guarded
def attempt(function, case):
    keep, feed = answer(function, case)
    wanted = longest(case)
    if not feed:
        return Attempt("feed is empty, so there are no logits for the next token")
    if keep < 0 or case.prompt[:keep] != case.cached[:keep] or keep > len(case.cached):
        return Attempt(f"you keep {keep} cached tokens, but they are not the prompt's first {keep}")
    if list(case.prompt[keep:]) != feed:
        return Attempt(f"you keep {keep} and feed {feed}: together they are not the prompt")
    return Attempt(None if keep == wanted else f"you keep {keep}, but {wanted} fit")


def small():
    """All prompts of 1 to 4 tokens and all cached texts of 0 to 5 over two ids, the shortest first."""
    sizes = sorted(itertools.product(range(1, 5), range(6)), key=sum)
    yield from (Texts(prompt, cached) for n, m in sizes for prompt in itertools.product((1, 2), repeat=n)
                for cached in itertools.product((1, 2), repeat=m))
    yield Texts((0, 700, 0, 7), (0, 700, 0, 9))


def fresh(draw):
    """40 random cases with a common start."""
    for _ in range(40):
        text = [draw.choice((0, draw.randrange(50_000))) for _ in range(draw.randint(1, 30))]
        cut = draw.randint(0, len(text))
        other = [draw.randrange(50_000) for _ in range(draw.randint(0, 9))]
        yield Texts(tuple(text), tuple(text[:cut] + other if draw.random() < .7 else text + other))


COVERED, FOREIGN = Texts((1, 2, 3, 4), (1, 2, 3, 4)), Texts((1, 9, 3, 4), (1, 2, 3))
LONGER, START = Texts((1, 2, 3, 4), (1, 2, 3, 4, 5)), Texts((1, 2, 3, 4), (1, 2))
AGAIN = Texts((1, 9, 3, 4), (1, 2, 3, 4))


def starts(function):
    """Is the answer right where the cache holds the start of the prompt?"""
    return answer(function, START) == (2, [3, 4])


EXERCISE = Exercise(
    id="03.reuse", solution=reuse, attempt=attempt, small=small, fresh=fresh, shown=(),
    proof="all prompts of 1 to 4 tokens with all cached texts of 0 to 5 over two ids, and fresh random ones",
    missteps=(
        Misstep("empty work", "When the cache covers the prompt, nothing is left to feed. This is the error of the "
                "report. The next token's logits come from feeding the last token: keep one less.",
                lambda f: starts(f) and answer(f, COVERED)[1] == []),
        Misstep("minus zero", "The whole prompt is fed on top of a full cache. A slice that starts at -0 starts at 0: "
                "the silent version of the fault. Count from the front.",
                lambda f: starts(f) and answer(f, COVERED)[0] > 0 and answer(f, COVERED)[1] == [1, 2, 3, 4]),
        Misstep("lengths, not tokens", "With the prompt 1 9 3 4 and the cache 1 2 3 you keep the 2 and the 3, which "
                "are tokens of another text. Compare the ids.", lambda f: answer(f, FOREIGN)[0] == 3),
        Misstep("matches after the first difference", "With the prompt 1 9 3 4 and the cache 1 2 3 the ids at position "
                "2 agree, but position 1 does not. Behind the first difference everything was computed from another "
                "text.",
                lambda f: answer(f, FOREIGN)[0] == 2 and answer(f, AGAIN)[0] == 3),
        Misstep("keeps nothing", "Every answer is right, and no token is saved. Keep the longest start that both "
                                 "share.",
                lambda f: all(answer(f, case) == (0, list(case.prompt)) for case in (COVERED, FOREIGN, LONGER, START))),
    ),
    hints=(
        "Where to look: go through both lists from the left. Where is the first position at which the ids differ? And "
        "what happens when there is none?",
        "What is missing: keep counts equal ids up to the first difference. It is never more than len(prompt) - 1, so "
        "that one token is left. feed is the prompt from keep on.",
        "Half a line:\n    while keep < min(len(prompt) - 1, ...) and prompt[keep] == cached[keep]:",
    ))
