"""Exercise of lesson 07, copy_session, and the wrong answers that it knows."""

from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import torch

from ..faults import samples
from ..faults.different_depths import SharedRing
from ..streaming import StreamState
from .drive import drawn
from .exercise import Attempt, Exercise, Misstep, guarded
from .judge import NotTried, WrongForm, call, off, strip

RING = 4            # slots of each ring


@lru_cache(64)
def model_of(seed=0, layers=2):
    """A small stream model; a token for each frame, no convolution that looks back."""
    return samples.streaming(seed, kernel=1, context=RING, num_layers=layers).requires_grad_(False)


class Session:
    """One stream. Its rings are written in place, as in the source.

    .layers: a list of dicts of tensors, one dict a layer. .clock: tokens seen. .fingerprint(): a text that names sizes
    and weights of the model. .step(x): outputs for the next frames (B, L, channels).
    """

    def __init__(self, model, batch=1):
        self.model, self.clock = model, 0
        self.layers = [{"keys": ring.keys.clone(), "values": ring.values.clone()} for ring in model.start(batch).rings]

    def fingerprint(self):
        return self.model.fingerprint()

    def step(self, x):
        outputs = []
        for frame in x.mT.split(1, 2):                                                  # (B, channels, 1)
            rest = frame[..., :0]
            rings = tuple(SharedRing(**layer) for layer in self.layers)
            y, state = self.model.advance(frame, StreamState(self.clock, rest, rings, rest))
            self.clock = state.clock
            outputs.append(y.mT)
        return torch.cat(outputs, 1)

    def held(self):
        """A copy of all that it holds, for comparisons."""
        return self.clock, [{name: value.clone() for name, value in layer.items()} for layer in self.layers]


def unchanged(session, held):
    clock, layers = held
    return session.clock == clock and len(session.layers) == len(layers) and all(
        now.keys() == was.keys() and all(torch.equal(now[name], was[name]) for name in was)
        for now, was in zip(session.layers, layers))


# The right answer, and the faulty one that the lesson shows --------------------------------------------------------

def copy_session(dst, src):
    if dst.fingerprint() != src.fingerprint():
        raise ValueError("the sessions belong to different models; feed the frames again")
    dst.layers = [{name: value.clone() for name, value in layer.items()} for layer in src.layers]
    dst.clock = src.clock


def share(dst, src):
    """Faulty: checks the depth, then takes the source's own tensors."""
    if len(dst.layers) != len(src.layers):
        raise ValueError("cannot copy kv-caches as the transformers have different depths")
    dst.layers, dst.clock = [dict(layer) for layer in src.layers], src.clock


# The exercise ------------------------------------------------------------------------------------------------------

# A second object of the same weights is the same model, as its fingerprint says.
OTHERS = {"a session of the same model": lambda seed, layers, rows: Session(deepcopy(model_of(seed, layers)), rows),
          "a session of the same model, one row more": lambda seed, layers, rows: Session(model_of(seed, layers), rows + 1),
          "a session of other weights": lambda seed, layers, rows: Session(model_of(seed + 1, layers), rows),
          "a session of a deeper model": lambda seed, layers, rows: Session(model_of(seed, layers + 1), rows),
          "a session of a shallower model": lambda seed, layers, rows: Session(model_of(seed, layers - 1), rows)}
TWIN, ROWS, FOREIGN, DEEPER, SHALLOWER = OTHERS
DIFFERENT = FOREIGN, DEEPER, SHALLOWER


@dataclass(frozen=True)
class Copy:
    """One case. `before` frames of the source, a copy to a session that has seen `used`, then both go on in turns."""
    before: int
    to: str = TWIN
    used: int = 0
    turns: tuple[str, ...] = ("copy", "copy", "source", "source")
    seed: int = 0
    layers: int = 2
    rows: int = 1

    def __str__(self):
        used = f" that has seen {self.used} frames" if self.used else ""
        to = f", to {self.to}{used}" if used or self.to != TWIN else ""
        steps = ", ".join(f"{who} {len(list(run))}" for who, run in groupby(self.turns))
        sizes = f", {self.layers} layers" * (self.layers != 2) + f", {self.rows} rows" * (self.rows != 1)
        return f"a copy after {self.before} frames{sizes}{to}; steps: {steps}"

    def frames(self, length, salt):
        return drawn(self.rows, length, 3, seed=self.seed * 7 + salt)                   # (B, L, channels)

    def ready(self):
        """The source, the target, and what each of them is fed next: {"copy": (B, L, channels), "source": ...}."""
        src, dst = Session(model_of(self.seed, self.layers), self.rows), self.session(self.to)
        if self.before:
            src.step(self.frames(self.before, 0))
        if self.used:
            dst.step(self.frames(self.used, 1)[:1].expand(len(dst.layers[0]["keys"]), -1, -1))
        return src, dst, {"copy": self.frames(8, 2), "source": self.frames(8, 3)}

    def session(self, which):
        """A new session, one of OTHERS."""
        return OTHERS[which](self.seed, self.layers, self.rows)

    def wanted(self, coming):
        """The reference, made without any session: each text uncut."""
        model, past = model_of(self.seed, self.layers), self.frames(self.before, 0)
        return {who: model(torch.cat([past, x], 1).mT).mT[:, self.before:] for who, x in coming.items()}


@guarded
def attempt(function, case):
    src, dst, coming = case.ready()
    was_src, was_dst = src.held(), dst.held()
    try:
        call(function, dst, src)
    except ValueError as refusal:
        if case.to == TWIN:
            raise WrongForm(f"the copy is refused ({refusal}), although both belong to one model") from None
        return Attempt(None if unchanged(dst, was_dst) else "the copy is refused, but the target has changed")
    except Exception as error:
        if isinstance(error, NotTried) or case.to not in DIFFERENT:
            raise
        raise WrongForm(f"the copy is refused with {type(error).__name__} ({error}), it should be ValueError") from None
    if case.to not in DIFFERENT:                            # a copy of two other sessions must not disturb this one
        one, other = case.session(TWIN), case.session(TWIN)
        one.step(case.frames(3, 4))
        call(function, other, one)
    if not unchanged(src, was_src):
        return Attempt("the copy changes the source")
    wanted, bad, fed = case.wanted(coming), [], {"copy": 0, "source": 0}
    for who in case.turns:
        t, session = fed[who], {"copy": dst, "source": src}[who]
        fed[who] += 1
        try:
            y = session.step(coming[who][:, t:t + 1])                                   # (B, 1, channels)
        except Exception as error:
            return Attempt(f"the {who} cannot take its next frame: {type(error).__name__}: {error}".splitlines()[0])
        bad.append(bool(off(y, wanted[who][:, t:t + 1], wanted[who].abs().max(), ulps=1e6).any()))
    wrong = [who for who, each in zip(case.turns, bad) if each]
    says = {"copy": "the copy does not go on as the source would", "source": "the source is disturbed"}
    problem = says[wrong[0]] if wrong else None
    if case.to in DIFFERENT:
        problem = f"it was not refused, and {problem or 'the two belong to different models'}"
    return Attempt(problem, strip(torch.tensor([bad])))


FULL = Copy(6)


def small():
    """Fixed cases, simplest first."""
    yield from (Copy(before) for before in (0, 2, 6))
    yield from (Copy(before, turns=("source", "source", "copy", "source", "copy")) for before in (2, 6))
    yield from (Copy(6, used=3), Copy(0, used=3), Copy(5, layers=1), Copy(5, layers=3), Copy(5, rows=2))
    yield from (Copy(3, to, used) for to in (FOREIGN, DEEPER, SHALLOWER, ROWS) for used in (0, 2))


def fresh(draw):
    """8 random cases."""
    for _ in range(8):
        turns = tuple(draw.choice(("copy", "source")) for _ in range(draw.randint(2, 8)))
        yield Copy(draw.randint(0, 9), draw.choice((TWIN, TWIN, *OTHERS)), draw.randint(0, 5), turns,
                   draw.getrandbits(16), draw.randint(2, 3), draw.randint(1, 2))


def after_copy(function):
    """The two sessions after the call; a refusal gives None."""
    src, dst, _ = FULL.ready()
    try:
        call(function, dst, src)
    except ValueError:
        return None
    return src, dst


def shares(function):
    """Some tensor of the copy lies in the same memory as one of the source."""
    src, dst = after_copy(function)
    places = [{value.data_ptr() for layer in session.layers for value in layer.values()} for session in (src, dst)]
    return bool(places[0] & places[1])


def clock_stays(function):
    """All tensors are copied, the clock is not."""
    src, dst = after_copy(function)
    return dst.clock == 0 and unchanged(dst, (dst.clock, src.held()[1]))


def takes_foreign(function):
    """Right between sessions of one model; a session of other weights is taken too, and goes on wrongly."""
    problem = attempt(function, Copy(3, FOREIGN)).problem
    return attempt(function, FULL).problem is None and (problem or "").startswith("it was not refused")


def changes_then_checks(function):
    """A refused copy leaves the target changed."""
    problems = [attempt(function, Copy(3, to, 2)).problem or "" for to in (FOREIGN, DEEPER, SHALLOWER)]
    return any("has changed" in problem for problem in problems)


EXERCISE = Exercise(
    id="07.copy_session", solution=copy_session, attempt=attempt, small=small, fresh=fresh,
    shown=(Copy(2), FULL), proof="empty, half full and full rings, foreign sessions, and fresh random cases",
    missteps=(
        Misstep("the copy shares the source's memory", "Both sessions write to the same tensors. While the ring has "
                "free slots nobody notices: each writes a slot before it reads it. Clone every tensor.", shares),
        Misstep("two clocks disagree", "The tensors are copied, the clock is not. The copy looks for its past at the "
                "wrong positions, from its first step on.", clock_stays),
        Misstep("refused, but half done", "The copy is refused, and the target has changed all the same. Check "
                "everything first, then write.", changes_then_checks),
        Misstep("foreign weights are taken", "Depth and shapes agree, the weights do not. Keys of one model mean "
                "nothing to another. Compare fingerprint().", takes_foreign)),
    hints=(
        "Where to look: which things does a session carry from step to step? There are two kinds.",
        "What is missing: first compare the two fingerprints and raise. Then give dst tensors of its own, layer by "
        "layer and name by name, and the clock.",
        "Half a line:\n    dst.layers = [{name: value.clone() for ...} for layer in src.layers]"))
