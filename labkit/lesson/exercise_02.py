"""Exercise of lesson 02, run_layers: a call that fits the clock, whole or not at all."""

from dataclasses import dataclass

import torch

from ..errors import PositionError
from .exercise import Attempt, Exercise, Misstep, same
from .judge import NotTried, WrongForm, a, call, off, want_tensor

LAYERS, RATES = 3, (0.3, 0.5, 0.7)         # how many, and what each keeps of its state at a token


# The right answer and a wrong one ------------------------------------------------------------------------------------

def run_layers(layers, x, position, cache):
    if position != cache["length"]:
        raise PositionError(f"asked for {position}, but {cache['length']} tokens are seen")
    states = []
    for layer, state in zip(layers, cache["states"]):
        x, state = layer(x, state)
        states.append(state)
    cache["states"], cache["length"] = states, position + x.shape[1]
    return x


def writes_as_it_goes(layers, x, position, cache):
    """Faulty: each state is stored as soon as it is there."""
    if position != cache["length"]:
        raise PositionError(f"asked for {position}, but {cache['length']} tokens are seen")
    for i, layer in enumerate(layers):
        x, cache["states"][i] = layer(x, cache["states"][i])
    cache["length"] += x.shape[1]
    return x


# The exercise --------------------------------------------------------------------------------------------------------

class LayerFailed(Exception):
    """What a layer raises in the check."""


@dataclass(frozen=True)
class Calls:
    """One case: calls (tokens, position, layer that fails or None), one after the other on one cache."""
    calls: tuple[tuple[int, int, int | None], ...]
    layers: int = LAYERS
    batch: int = 2
    channels: int = 3
    seed: int = 0

    def __str__(self):
        few = "" if self.layers == LAYERS else f"{self.layers} layer{'s' * (self.layers != 1)}: "
        return few + ", then ".join(f"{n} token{'s' * (n != 1)} at position {position}" + (
            "" if fails is None else f" (layer {fails} fails)") for n, position, fails in self.calls)

    def expected(self):
        """What each call should do, counted without any layer: 'refused', 'failed' or 'taken'."""
        length, outcomes = 0, []
        for n, position, fails in self.calls:
            outcomes.append("refused" if position != length else "taken" if fails is None else "failed")
            length += n * (outcomes[-1] == "taken")
        return outcomes


def layer(a, fails=False):
    """One recurrent layer, h = a*h + u: layer(x (B, L, C), h (B, C) or None) -> (y, h). None: nothing seen."""
    def step(x, h):
        if fails:
            raise LayerFailed("this layer fails, as it would without memory")
        h, outputs = torch.zeros_like(x[:, :1, :].sum(1)) if h is None else h, []
        for u in x.unbind(1):
            h = a * h + u
            outputs.append(h)
        return (torch.stack(outputs, 1) if outputs else x), h
    return step


def reference(x, rates):
    """All layers over the whole text (B, L, C), each by one sum over earlier tokens, in float64."""
    ago = torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1])
    for a in rates:
        x = torch.where(ago >= 0, a ** ago.clamp(min=0).double(), 0.0) @ x.double()
    return x


def play(function, case):
    """For each call: (what it did, should do, y or None, the error, the cache, what is wrong with it, the right y)."""
    draw = torch.Generator().manual_seed(case.seed)
    rates, states = (*RATES, 0.9)[:case.layers], []
    cache = {"length": 0, "states": [None] * case.layers}
    x = torch.zeros(case.batch, 0, case.channels)                                               # fed so far, (B, L, C)
    for (n, position, fails), should in zip(case.calls, case.expected()):
        new = torch.randn(case.batch, n, case.channels, generator=draw)                         # (B, L, C)
        layers, y, error = [layer(a, fails=i == fails) for i, a in enumerate(rates)], None, None
        before = cache["length"], list(cache["states"])
        try:
            y, did = call(function, layers, new.clone(), position, cache), "taken"
        except NotTried:
            raise
        except Exception as raised:
            did, error = {PositionError: "refused", LayerFailed: "failed"}.get(type(raised), "crashed"), raised
        if isinstance(y, Exception):
            did = "returned"
        if should == "taken":
            x, hidden, states = torch.cat([x, new], 1), new, []
            for one, state in zip([layer(a) for a in rates], before[1]):
                hidden, state = one(hidden, state)
                states.append(state)
        right = [before[1]] * (should != "taken" or n == 0) + [states] * (should == "taken")    # 0 tokens: either will do
        wanted = reference(x, rates)[:, x.shape[1] - n:]
        yield did, should, y, error, dict(cache), off_cache(cache, x.shape[1], right), wanted


def off_cache(cache, length, right):
    """What differs from this length and from each right list of states, in words; "" when nothing does."""
    found = cache.get("length")
    if type(found) is not int or found != length:
        return f"cache['length'] is {found if type(found) is int else a(found)}, it should be {length}"
    held = any(same(cache.get("states"), states) for states in right)
    return "" if held else "cache['states'] does not hold the states that it should"


def attempt(function, case):
    says = {"taken": "is accepted", "refused": "raises PositionError", "failed": "passes the layer's error on",
            "returned": "returns an error, which nobody needs to notice"}
    for number, (did, should, y, error, _, left, wanted) in enumerate(play(function, case), 1):
        which = f"call {number} " if len(case.calls) > 1 else "it "
        if did == "crashed":
            aim = f", but it should {SHOULD[should]}" * (should != "taken")
            return Attempt(f"{which}raises {type(error).__name__}{aim}", error=error)
        if did != should:
            return Attempt(f"{which}{says[did]}, but it should {SHOULD[should]}")
        if did == "taken":
            try:
                want_tensor(y, "the output", wanted.shape, torch.float32)
            except WrongForm as form:
                return Attempt(f"{which}{form}".replace("it the", "the"))
            if off(y, wanted, 8 + 8 * wanted.abs().sum()).any():
                return Attempt(f"{which}returns a wrong output")
        if left:
            return Attempt(f"{which}{says[did]}, and afterwards {left}")
    return Attempt()


SHOULD = {"taken": "be accepted", "refused": "raise PositionError", "failed": "pass the layer's error on"}
FRESH, SKIP, REPEAT, RESTART = (Calls(calls) for calls in (
    ((1, 5, None),), ((3, 0, None), (1, 5, None)), ((3, 0, None), (1, 2, None)), ((3, 0, None), (1, 0, None))))
SINGLE = Calls(tuple((1, t, None) for t in range(3)))
LEGAL, CRASH = Calls(((5, 0, None), (3, 5, None), (4, 8, None))), Calls(((2, 0, None), (1, 2, 2)))


def small():
    """Fixed cases, simplest first."""
    yield from (Calls(((n, 0, None),)) for n in (1, 3, 0))
    yield from (LEGAL, FRESH, SKIP, REPEAT, RESTART)
    yield from (Calls(((2, 0, None), (1, 2, fails), (1, 2, None), (2, 3, None))) for fails in range(LAYERS))
    yield from (Calls(((1, 0, 1), (1, 0, None))), Calls(((3, 0, None), (2, -1, None))), CRASH)
    yield from (Calls(((2, 0, None), call, (1, 2, None))) for call in ((0, 2, None), (0, 5, None), (1, 5, 0)))
    yield from (Calls(((2, 0, None), (1, 2, layers - 1), (1, 2, None)), layers) for layers in (1, 2, 4))


def fresh(draw):
    """16 random rows of calls; most of them fit."""
    for _ in range(16):
        length, calls, layers = 0, [], draw.randint(1, 4)
        for _ in range(draw.randint(1, 5)):
            n, position = draw.randint(0, 4), length if draw.random() < .7 else draw.randint(0, length + 2)
            calls.append((n, position, draw.randrange(layers) if n and draw.random() < .3 else None))
            length += n * (position == length and calls[-1][2] is None)
        yield Calls(tuple(calls), layers, draw.randint(2, 4), draw.randint(1, 4), draw.getrandbits(32))


def takes(function, case):
    """Is the last call of a case accepted?"""
    return outcomes(function, case)[-1] == "taken"


def outcomes(function, case):
    return [did for did, *_ in play(function, case)]


def accepted(function):
    return [takes(function, case) for case in (FRESH, SKIP, REPEAT, RESTART)]


def counts_calls(function):
    return set(outcomes(function, SINGLE)) == {"taken"} and outcomes(function, LEGAL)[:2] == ["taken", "refused"]


def after_first(function):
    """What an accepted first call leaves in the cache: (length, is there a state)."""
    (did, _, y, _, cache, *_), = play(function, Calls(LEGAL.calls[:1]))
    return (cache["length"], cache["states"] != [None] * LAYERS) if did == "taken" and y is not None else (None, None)


def half_done(function):
    """Does a call that fails leave something else than what was there before it, and than an empty cache?"""
    (*_, before, _), (*_, cache, left, _) = play(function, CRASH)
    return not before and bool(left) and (cache["length"] > 0 or cache["states"] != [None] * LAYERS)


EXERCISE = Exercise(
    id="02.run_layers", solution=run_layers, attempt=attempt, small=small, fresh=fresh, shown=(),
    proof="fitting calls, skipped, repeated and stale positions, layers that fail, and fresh random rows of calls",
    missteps=(
        Misstep("trusts the caller", "A first call at position 5, a skipped, a repeated and a stale position are all "
                "accepted. The caller's position proves nothing: compare it with cache['length'].",
                lambda f: accepted(f) == [True] * 4),
        Misstep("catches gaps, not repeats", "A skipped position is refused, a repeated or stale one is accepted. "
                "Only one position fits: the next one.", lambda f: accepted(f) == [False, False, True, True]),
        Misstep("a loud fault made silent", "You refuse wrong positions, but not on an empty cache: a first call at "
                "position 5 is accepted, and zeros stand for five tokens that nobody fed.",
                lambda f: accepted(f) == [True, False, False, False]),
        Misstep("counts calls, not tokens", "5 tokens, then 3, then 4 are refused, although they fit. The clock goes "
                "on by the number of tokens, x.shape[1], not by one.", counts_calls),
        Misstep("the clock stands still", "The states move on, cache['length'] does not, so no call fits behind the "
                "first one. Add the number of tokens to it, x.shape[1].", lambda f: after_first(f) == (0, True)),
        Misstep("nothing is stored", "After a call the cache is as it was before. A new dict or list of your own does not "
                "reach the caller: write into cache['length'] and cache['states'].",
                lambda f: after_first(f) == (0, False)),
        Misstep("half done", "When a layer fails, the layers before it have moved and the others have not. The same "
                "call again gives them the token twice. Collect the new states, and store all of them at the end.",
                half_done),
    ),
    hints=(
        "Where to look: which number in the cache says how many tokens it has seen? And at which line can a layer "
        "raise?",
        "What is missing: compare position with cache['length'] before anything runs. Put new states into a list of "
        "your own. Write to the cache once, after the last layer.",
        "Half a line:\n    if position != ...:\n        raise PositionError(...)\n    states = []\n"
        "    for layer, state in zip(layers, cache['states']):",
    ))
