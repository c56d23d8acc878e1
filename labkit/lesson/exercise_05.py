"""Exercise of lesson 05, unread, and the wrong answers that it knows."""

import dataclasses
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from types import SimpleNamespace

import torch

from ..faults import samples
from ..price import history_lost
from .exercise import Attempt, Exercise, guarded, imitating
from .judge import WrongForm, a_list, call

FAMILIES = {"Mamba2": samples.mamba2, "Mamba": samples.mamba, "Griffin": samples.griffin,
            "ShortConv": samples.short_conv}
HALVES = ("conv", "recurrent")


# The right answer and the wrong ones -------------------------------------------------------------------------------

def unread(mixer, prefix, chunk):
    _, state = mixer(prefix)
    y, _ = mixer(chunk, state)                                                      # (B, L, hidden_size)
    found = []
    for name in state.tensors():
        zeroed = dataclasses.replace(state, **{name: torch.zeros_like(getattr(state, name))})
        if torch.equal(mixer(chunk, zeroed)[0], y):
            found.append(name)
    return found


def one_token(mixer, prefix, chunk):
    """Faulty: probes with the first token of the chunk."""
    return unread(mixer, prefix, chunk[:, :1])


def no_history(mixer, prefix, chunk):
    """Faulty: the state is that of a fresh text."""
    return [name for name in HALVES if name in mixer.start(len(chunk)).tensors()]


def both_at_once(mixer, prefix, chunk):
    """Faulty: one experiment for two questions."""
    _, state = mixer(prefix)
    same = torch.equal(mixer(chunk, state.emptied(*HALVES))[0], mixer(chunk, state)[0])
    return [name for name in HALVES if name in state.tensors()] if same else []


def inverted(mixer, prefix, chunk):
    """Faulty: names the fields that are read."""
    read = unread(mixer, prefix, chunk)
    return [name for name in HALVES if name in mixer.start(len(chunk)).tensors() and name not in read]


def written_state(mixer, prefix, chunk):
    """Faulty: compares the field behind the chunk, not the outputs."""
    _, state = mixer(prefix)
    after = mixer(chunk, state)[1]
    return [name for name, value in state.tensors().items() if name in HALVES and torch.equal(getattr(mixer(
        chunk, replace(state, **{name: torch.zeros_like(value)}))[1], name), getattr(after, name))]


def last_output(mixer, prefix, chunk):
    """Faulty: looks at the last output only."""
    _, state = mixer(prefix)
    y = mixer(chunk, state)[0][:, -1]
    return [name for name in HALVES if name in state.tensors()
            and torch.allclose(mixer(chunk, state.emptied(name))[0][:, -1], y)]


# The exercise ------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Probe:
    """One case: a family, the halves of its state that a chunk does not read, and sizes."""
    family: str
    lost: tuple[str, ...] = ()
    chunk: int = 5
    before: int = 4
    batch: int = 2
    seed: int = 0

    def __str__(self):
        does = f"that does not read {' and '.join(self.lost)}" if self.lost else "that reads all of its state"
        before = f"{self.before} token{'s' * (self.before > 1)}"
        return f"a {self.family} layer {does}, {before}, then a chunk of {self.chunk}"

    @contextmanager
    def ready(self):
        """The mixer, a prefix and a chunk, (B, L, hidden_size)."""
        mixer, draw = FAMILIES[self.family](self.seed), torch.Generator().manual_seed(self.seed)
        parts = (torch.randn(self.batch, n, mixer.hidden_size, generator=draw, dtype=torch.float64)
                 for n in (self.before, self.chunk))
        with history_lost(*self.lost)(SimpleNamespace(layers=[SimpleNamespace(mixer=mixer)])):
            yield mixer, *parts


def by_gradient(mixer, prefix, chunk):
    """The reference, made without any zeroing: the fields to which no output of the chunk has a gradient."""
    state = mixer(prefix)[1].map(lambda name, value: value.detach().requires_grad_() if name in HALVES else value)
    leaves = {name: value for name, value in state.tensors().items() if name in HALVES}
    grads = torch.autograd.grad(mixer(chunk, state)[0].sum(), list(leaves.values()), allow_unused=True)
    return [name for name, grad in zip(leaves, grads) if grad is None or not grad.any()]


def names(function, case):
    """What the function finds in a case, sorted."""
    with case.ready() as (mixer, prefix, chunk):
        found = call(function, mixer, prefix, chunk)
    if not isinstance(found, (list, tuple, set, frozenset)) or not all(isinstance(name, str) for name in found):
        raise WrongForm(f"the function returns {a_list(found)}, it should return a list of names")
    return sorted(set(found))


@guarded
def attempt(function, case):
    found = names(function, case)
    with case.ready() as parts:
        wanted = sorted(by_gradient(*parts))
    says = [" and ".join(each) or "nothing" for each in (found, wanted)]
    return Attempt(None if found == wanted else f"you name {says[0]}, it should be {says[1]}")


def patterns(family):
    """The subsets of halves that a family can lose."""
    return [(), ("conv",)] if family == "ShortConv" else [(), *((half,) for half in HALVES), HALVES]


CASES = [Probe(family, lost) for family in FAMILIES for lost in patterns(family)]


def small():
    """Fixed cases, simplest first. A chunk of one token comes last: the faults do not touch it."""
    yield from CASES
    yield from (replace(case, chunk=n, before=m) for (n, m), case in product(((2, 1), (9, 3), (1, 4)), CASES))


def fresh(draw):
    """12 random cases."""
    for _ in range(12):
        family = draw.choice(list(FAMILIES))
        yield Probe(family, draw.choice(patterns(family)), draw.randint(1, 9), draw.randint(1, 9), draw.randint(2, 4),
                    draw.getrandbits(31))


misstep = imitating(unread, names, CASES)
EXERCISE = Exercise(
    id="05.unread", solution=unread, attempt=attempt, small=small, fresh=fresh, shown=(),
    proof="four families, every pattern of lost halves, several sizes, and fresh random cases",
    missteps=(
        misstep("the probe takes the other path", "It finds nothing in any layer. Do you feed one token? It goes "
                "through the path that is right: feed the whole chunk. Or do you compare with another run? Compare "
                "with the same chunk behind the unchanged state.", one_token),
        misstep("no control: the state was zero already", "It accuses every half, also in a right layer. Zeros in "
                "place of zeros change nothing. Feed the prefix first.", no_history),
        misstep("two changes in one experiment", "You find a field only where both are lost: one read field hides the "
                "other. Zero one field, compare with the unchanged state, put it back.", both_at_once),
        misstep("the condition is turned round", "You name the fields that are read. A field is unread when no output "
                "moves.", inverted),
        misstep("written is not read", "You compare what the chunk writes into the state. A chunk can write a field "
                "that it never read, and the other way round. Compare the outputs.", written_state),
        misstep("looked after the effect had passed", "In a ShortConv the window moves only the first outputs "
                "of a chunk. You look at the end, or some output that stays is enough for you. Compare all "
                "outputs.", last_output)),
    hints=(
        "Where to look: only a state that holds something can be missed. Which call makes such a state?",
        "What is missing: feed the prefix, keep its state, feed the chunk behind it. Then for each field: the same "
        "chunk behind the state with this field at zero. No output moves? Nobody reads the field.",
        "Half a line:\n    zeroed = dataclasses.replace(state, **{name: torch.zeros_like(...)})\n"
        "    if torch.equal(mixer(chunk, zeroed)[0], y): ..."))
