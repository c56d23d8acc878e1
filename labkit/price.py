"""The price of a silent fault: the share of questions that a trained model answers right, with and without it.

A fault is a function of the model: a context manager that puts the faulty step in place of the right one and takes it
away again. It gives the driver that feeds the prompts, or None where no layer of the model can have the fault.

    from labkit.price import price, table
    print(table(price("mamba2")))
"""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from . import faults
from .cache import Cache
from .corpus import question
from .files import data_folder
from .mixers.base import Mixer
from .recall import CUTS, accuracy, answers, feed_pieces
from .trained import load

CHEAP = 0.05            # a share of the questions: what costs less, costs little
PADDING = 4             # columns of padding that each piece of a padded prompt gets


@dataclass(frozen=True)
class Row:
    """One fault at one place of the cut. Shares of questions answered word for word.

    Attributes:
        preset, fault, place: the model, the fault, where the prompt was cut (of recall.CUTS).
        right: without the fault, before. faulty: with it. repaired: after it was taken away, fed in the same way.
        chance: a guess among the things of the text.
    """

    preset: str
    fault: str
    place: str
    right: float
    faulty: float
    repaired: float
    chance: float

    @property
    def lost(self) -> float:
        """What the fault costs."""
        return self.right - self.faulty

    @property
    def cheap(self) -> bool:
        """True where it costs little."""
        return self.lost < CHEAP


@contextmanager
def replaced(model, change: Callable, fits: Callable[[Mixer], bool], feed: Callable = feed_pieces
             ) -> Iterator[Callable | None]:
    """`change(forward, x, state, mask)` in place of `forward(x, state, mask)`, in every mixer that fits."""
    mixers = [layer.mixer for layer in model.layers if fits(layer.mixer)]
    for mixer in mixers:
        mixer.forward = partial(change, mixer.forward)
    try:
        yield feed if mixers else None
    finally:
        for mixer in mixers:
            del mixer.forward


def dropped_chunk(model):
    """A chunk on a used state goes through a one-token step: its first token is mixed, the rest is dropped."""
    def change(forward, x, state=None, mask=None):
        if state is None or x.shape[1] < 2:
            return forward(x, state, mask)
        y, state = forward(x[:, :1], state, None if mask is None else mask[:, :1])
        return y.expand(x.shape), state                                                 # (B, L, hidden_size)
    return replaced(model, change, lambda mixer: "conv" in mixer.layout())


def history_lost(*fields: str):
    """A fault: a chunk on a used state starts with zeros in these fields of the state."""
    def fault(model):
        def change(forward, x, state=None, mask=None):
            return forward(x, state if state is None or x.shape[1] < 2 else state.emptied(*fields), mask)
        return replaced(model, change, lambda mixer: set(fields) <= set(mixer.layout()))
    return fault


def stale_position(model):
    """The rotary positions of a chunk on a used state start at 0 again; its keys are appended as they should be."""
    def change(forward, x, state=None, mask=None):
        if state is None or x.shape[1] < 2:
            return forward(x, state, mask)
        y, held = forward(x, replace(state, first=state.first - state.seen, seen=torch.zeros_like(state.seen)), mask)
        return y, replace(held, first=held.first + state.seen, seen=held.seen + state.seen)
    return replaced(model, change, lambda mixer: getattr(mixer, "rope_theta", None) is not None)


def of_fault(name: str):
    """A silent mixer fault of the catalogue as a fault of a model: of_fault("clamp-lost")."""
    cls = type(faults.get(name).subject(0).mixer)
    feed = feed_padded if faults.get(name).record.incident == "padding-continued" else feed_pieces

    @contextmanager
    def fault(model):
        mixers = [layer.mixer for layer in model.layers if type(layer.mixer) is cls.__mro__[1]]
        for mixer in mixers:
            mixer.__class__ = cls
        try:
            yield feed if mixers else None
        finally:
            for mixer in mixers:
                mixer.__class__ = cls.__mro__[1]
    return fault


@contextmanager
def driver(faulty: Callable):
    """A fault of the program around the model: feed(model, ids, sizes, cache) -> logits, until the context ends."""
    drivers = [faulty]
    yield lambda *parts: drivers[-1](*parts)
    drivers.append(feed_pieces)


def padding_as_text(model):
    """Padding is mixed like real tokens; every piece of the prompt is padded, each row on another side."""
    return replaced(model, lambda forward, x, state=None, mask=None: forward(x, state), lambda mixer: True, feed_padded)


def feed_padded(model, ids: Tensor, sizes: Iterable[int], cache: Cache) -> Tensor:
    """As `recall.feed_pieces`, with PADDING columns around each piece: row 0 has all on the right."""
    row = torch.arange(len(ids))
    left = row % (PADDING + 1)                                                          # (B,)
    for piece in ids.split(list(sizes), dim=1):
        length = piece.shape[1]
        column = torch.arange(length + PADDING) - left[:, None]                         # (B, L + PADDING)
        logits = model(piece.gather(1, column.clamp(0, length - 1)), cache, mask=(column >= 0) & (column < length))
    return logits[row, left + length - 1]


FAULTS = {"dropped chunk": dropped_chunk, "conv half lost": history_lost("conv"),
          "recurrent half lost": history_lost("recurrent"), "both halves lost": history_lost("conv", "recurrent"),
          "stale position": stale_position, "padding as text": padding_as_text}


def price(preset: str, n: int = 200, places: Sequence[str] = CUTS[1:], faults: Mapping[str, Callable] = FAULTS,
          model=None) -> list[Row]:
    """Measure faults on a trained model; a fault that no layer of it can have gives no row.

    Args:
        preset: its name.
        n: held-out questions for each number.
        places: of the cut, of recall.CUTS.
        faults: name -> function of the model, see the top of this file.
        model: the model to ask; None: load(preset).
    """
    model = load(preset) if model is None else model
    chance = sum(question(seed).chance for seed in range(n)) / n
    right = {place: accuracy(model, n, place) for place in places}
    rows = []
    for name, fault in faults.items():
        for place in places:
            with fault(model) as feed:
                if feed is None:
                    break
                faulty = accuracy(model, n, place, feed)
            rows.append(Row(preset, name, place, right[place], faulty, accuracy(model, n, place, feed), chance))
    return rows


def first_wrong(preset: str, fault: Callable, place: str, n: int = 200) -> str:
    """The first of n held-out questions that the fault turns wrong, in words.

    Args:
        preset: the trained model.
        fault: a function of the model, as in FAULTS.
        place: of the cut, of recall.CUTS.
    """
    model = load(preset)
    for start in range(0, n, 20):
        examples = [question(i) for i in range(start, min(start + 20, n))]
        right = answers(model, examples, place)
        with fault(model) as feed:
            faulty = answers(model, examples, place, feed)
        for i, (example, before, after) in enumerate(zip(examples, right, faulty)):
            if before == example.answer.rstrip(".") != after:
                asked = textwrap.fill(f"Question {start + i}: “{example.prompt}”", 88)
                return f"{asked}\nRight: “{before.strip()}”. Faulty: “{after.strip()}”."
    return f"None of {n} questions turns wrong."


def scores() -> str:
    """The measured columns of the table in data/README.md, one line a trained model."""
    lines = []
    for path in sorted(data_folder().glob("*.safetensors")):
        model = load(path.stem)
        shares = f"{accuracy(model, 400):.1%} | {accuracy(model, 200, turns=3):.1%}".replace("%", " %")
        weights = sum(weight.numel() for weight in model.parameters())
        lines.append(f"| {path.stem} | {shares} | | | {weights} | {path.stat().st_size} |")
    return "\n".join(lines)


def table(rows: Sequence[Row]) -> str:
    """The rows as text, one line each; what costs less than 5 points in a hundred is marked."""
    lines = [f"{'preset':12}{'fault':32}{'cut':22}{'right':>7}{'faulty':>9}{'repaired':>10}{'chance':>8}"]
    for r in rows:
        cheap = "   costs little" if r.cheap else ""
        lines.append(f"{r.preset:12}{r.fault:32}{r.place:22}{r.right:7.1%}{r.faulty:9.1%}{r.repaired:10.1%}"
                     f"{r.chance:8.1%}{cheap}")
    return "\n".join(lines)
