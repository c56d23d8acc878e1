"""Exercise of lesson 02, run_layers: a call that fits the clock, whole or not at all."""

from dataclasses import dataclass

import torch

from ..errors import PositionError
from .exercise import Attempt, Exercise, Misstep, same
from .judge import NotTried, WrongForm, call, off, want_tensor

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
    batch: int = 2
    channels: int = 3
    seed: int = 0

    def __str__(self):
        return ", then ".join(f"{n} token{'s' * (n != 1)} at position {position}" + (
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
    """For each call: (what it did, should do, y or None, the error, what is wrong with the cache, or "")."""
    draw = torch.Generator().manual_seed(case.seed)
    cache, states = {"length": 0, "states": [None] * LAYERS}, [None] * LAYERS
    x = torch.zeros(case.batch, 0, case.channels)                                               # fed so far, (B, L, C)
    for (n, position, fails), should in zip(case.calls, case.expected()):
        new = torch.randn(case.batch, n, case.channels, generator=draw)                         # (B, L, C)
        layers, y, error = [layer(a, fails=i == fails) for i, a in enumerate(RATES)], None, None
        before = cache["length"], list(cache["states"])
        try:
            y, did = call(function, layers, new.clone(), position, cache), "taken"
        except NotTried:
            raise
        except Exception as raised:
            did, error = {PositionError: "refused", LayerFailed: "failed"}.get(type(raised), "crashed"), raised
        if should == "taken":
            x, hidden, states = torch.cat([x, new], 1), new, []
            for one, state in zip([layer(a) for a in RATES], before[1]):
                hidden, state = one(hidden, state)
                states.append(state)
        wanted = (x.shape[1], states) if should == "taken" else before
        yield did, should, y, error, off_cache(cache, *wanted), reference(x, RATES)[:, x.shape[1] - n:]


def off_cache(cache, length, states):
    """What differs from this length and these states (in values), in words; "" when nothing does."""
    if cache.get("length") != length:
        return f"cache['length'] is {cache.get('length')}, it should be {length}"
    held = same(cache.get("states"), states)
    return "" if held else "cache['states'] does not hold the states that it should"


def attempt(function, case):
    says = {"taken": "is accepted", "refused": "raises PositionError", "failed": "passes the layer's error on"}
    for number, (did, should, y, error, left, wanted) in enumerate(play(function, case), 1):
        which = f"call {number} " if len(case.calls) > 1 else "it "
        if did == "crashed":
            return Attempt(f"{which}raises {type(error).__name__}", error=error)
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
    yield Calls(((2, 0, None), (0, 2, None), (1, 2, None)))


def fresh(draw):
    """16 random rows of calls; most of them fit."""
    for _ in range(16):
        length, calls = 0, []
        for _ in range(draw.randint(1, 5)):
            n, position = draw.randint(1, 4), length if draw.random() < .7 else draw.randint(0, length + 2)
            calls.append((n, position, draw.randrange(LAYERS) if draw.random() < .3 else None))
            length += n * (position == length and calls[-1][2] is None)
        yield Calls(tuple(calls), draw.randint(2, 4), draw.randint(1, 4), draw.getrandbits(32))


def takes(function, case):
    """Is the last call of a case accepted?"""
    return [did for did, *_ in play(function, case)][-1] == "taken"


def accepted(function):
    return [takes(function, case) for case in (FRESH, SKIP, REPEAT, RESTART)]


def counts_calls(function):
    return takes(function, SINGLE) and takes(function, Calls(LEGAL.calls[:1])) and not takes(function, LEGAL)


def stands_still(function):
    """Is a first call accepted, its states stored, and the length left at 0?"""
    (did, _, y, _, left, _), = play(function, Calls(LEGAL.calls[:1]))
    return did == "taken" and y is not None and left.startswith("cache['length'] is 0")


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
                "first one. Add the number of tokens to it, x.shape[1].", stands_still),
        Misstep("half done", "When a layer fails, the layers before it have moved and the others have not. The same "
                "call again gives them the token twice. Collect the new states, and store all of them at the end.",
                lambda f: [not left for *_, left, _ in play(f, CRASH)] == [True, False]),
    ),
    hints=(
        "Where to look: which number in the cache says how many tokens it has seen? And at which line can a layer "
        "raise?",
        "What is missing: compare position with cache['length'] before anything runs. Put new states into a list of "
        "your own. Write to the cache once, after the last layer.",
        "Half a line:\n    if position != ...:\n        raise PositionError(...)\n    states = []\n"
        "    for layer, state in zip(layers, cache['states']):",
    ))
