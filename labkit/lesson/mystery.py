"""Cases with an unknown fault: outputs, experiments, suspects, and a score for name and evidence.

A case knows its culprit and shows only what experiments show. Each suspect of the catalogue can be run through the same
experiment, so what it would show is measured as well.
"""

import copy
import html
import random
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations

import torch

from .. import faults
from ..contract import MixerSubject
from ..contract.checker import compare
from ..contract.laws import LAWS, Lab, split_case
from ..figures.error_sizes import below
from ..figures.influence import measure, say
from ..figures.suspects import suspects as draw_suspects
from ..trained import load
from . import progress
from .card import Card
from .judge import strip
from .question import Option, Question

NOTHING = "no fault"
GROUPS = {"chunk": ("dropped-chunk", "looks-ahead", "history-lost", "one-step-size", "clamp-lost"),
          "half": ("conv-half-lost", "recurrent-half-lost", "history-lost"),
          "padding": ("padding-first-call", "padding-continued", "padding-one-column", "padding-multiplied")}
NOISE = ("conv-half-lost", "history-lost", "padding-continued", "padding-one-column")    # no cut finds the last two
ALIKE = ("conv-half-lost", "recurrent-half-lost", "history-lost", "looks-ahead")        # no cut tells them apart
OUTSIDE = ("cut", "swap", "pad", "fork", "reset")           # what anybody can do who only feeds a model
OFFERS = {"chunk": (*OUTSIDE, "zero", "influence"), "half": (*OUTSIDE, "zero"), "padding": OUTSIDE,
          "tie": ("cut", "swap", "fork", "reset")}          # no pad: padding faults look like no fault
MOST, LIMIT = 6, 1e-3       # experiments a case; the limit of the strips, as in lesson 01 section 2
MAPS = {"the same map": "same map", "the same cells": "same cells", "from output": "dark block"}


@dataclass(frozen=True)
class Seen:
    """What an experiment showed. outcome: in short, to be compared; lines: for the reader."""
    experiment: str
    outcome: str
    lines: tuple[str, ...]

    def __repr__(self):
        return "\n".join([self.experiment, *("  " + line for line in self.lines)])


@dataclass
class Case:
    """One case. suspects: names; offers: the experiments that can be done; preset: a trained model whose first layer
    is watched, instead of the catalogue's small one; the rest is hidden."""
    id: str
    suspects: tuple[str, ...]
    offers: tuple[str, ...]
    seed: int = 0
    dtype: torch.dtype = torch.float64
    preset: str = ""
    seen: dict = field(default_factory=dict)
    _culprit: str = field(default=NOTHING, repr=False)

    @property
    def title(self):
        return f"Case {self.id.replace('_', ' ')}"

    def run(self, kind, *details):
        """Do an experiment: run("cut", 4, 8), run("swap"), run("pad", "right"), run("fork"), run("reset"),
        run("zero", "conv") or run("influence")."""
        if kind not in self.offers:
            return Card("info", f"This case offers: {', '.join(self.offers)}.")
        if wrong := misread(kind, details):
            return Card("info", f"“{in_words(kind, details)}” is no experiment: {wrong}.")
        key = in_words(kind, details)
        if key not in self.seen and len(self.seen) == MOST:
            return Card("info", f"All {MOST} experiments are used. Name your suspect.")
        self.seen[key] = kind, details, (seen := self.shows(self._culprit, kind, *details))
        return seen

    def shows(self, suspect, kind, *details):
        """What a suspect shows in an experiment; measured."""
        base = suspect if suspect != NOTHING else next(name for name in self.suspects if name != NOTHING)
        return experiment(suspect, base, self.seed, self.dtype, self.preset, kind, details)

    def lineup(self):
        """The suspects, what each would have done, and what can be tried. Text."""
        lines = [f"{name}: {faults.get(name).record.says if name != NOTHING else 'nothing is wrong'}"
                 for name in self.suspects]
        return "\n".join([*lines, f"experiments: {', '.join(self.offers)}"])

    def foretell(self, suspect, kind, *details):
        """A Question: what will this experiment show if the suspect did it?"""
        outcomes = dict.fromkeys(self.shows(name, kind, *details).outcome for name in sorted(self.suspects))
        if len(outcomes) < 2:
            outcomes[f"something else than {next(iter(outcomes))}"] = None
        key = in_words(kind, details)
        return Question(f"10.{self.id}.{suspect}.{key}".replace(" ", "_"), f"If {suspect} is guilty, what will the "
                        f"experiment “{key}” show?", tuple(Option(o, o, "Another suspect would show that.")
                                                           for o in outcomes))

    def board(self):
        """Suspects by experiments: (Figure, sentence)."""
        return draw_suspects(self.suspects, [(key, seen.outcome, {name: self.shows(name, kind, *details).outcome
                                              for name in self.suspects})
                                             for key, (kind, details, seen) in self.seen.items()])

    def agreeing(self):
        """For each suspect the experiments whose result it would show as well."""
        return {name: [key for key, (kind, details, seen) in self.seen.items()
                       if self.shows(name, kind, *details).outcome == seen.outcome] for name in self.suspects}

    def accuse(self, *names, evidence):
        """Name the suspect, or both of a tie, and the experiment that ruled out the runner-up: a Card, the score."""
        evidence = evidence if isinstance(evidence, str) else in_words(evidence[0], evidence[1:])
        if unknown := set(names) - set(self.suspects):
            return Card("info", f"{', '.join(sorted(unknown))} is no suspect; there are {', '.join(self.suspects)}.")
        tied = self.tied()
        agree, others = self.agreeing(), [name for name in self.suspects if name not in names]
        left = [name for name in others if len(agree[name]) == len(self.seen)]
        second = [name for name in others if len(agree[name]) == max(len(agree[other]) for other in others)]
        named, proved = set(names) == tied, (evidence in self.seen and not left
                                             and any(evidence not in agree[name] for name in second))
        lines = [f"Name: {'right' if named else 'wrong'}.", f"Evidence: {'right' if proved else 'wrong'}: " + (
            f"“{evidence}” rules out {', '.join(n for n in second if evidence not in agree[n])}." if proved else
            'name an experiment of your list, for example evidence=("cut", 4, 8).' if not evidence else
            f"you have not done “{evidence}”." if evidence not in self.seen else
            "other suspects would show all the same results." if left else
            f"“{evidence}” does not rule out the runner-up, {' or '.join(second)}."),
            f"Experiments: {len(self.seen)} of {MOST}. Score: {named + proved} of 2."]
        if len(tied) > 1 and named:
            lines.append("A tie: nothing that this case offers tells them apart.")
        state = "right" if named and proved else "wrong"
        progress.put("exercises", f"10.case_{self.id}", state=state,
                     tries=progress.get("exercises", f"10.case_{self.id}").get("tries", 0) + 1)
        return Card(state, f"{self.title}: {', '.join(names)}", lines)

    def tied(self):
        """The culprit, and who shows the same in all that this case offers."""
        return {name for name in self.suspects if all(
            self.shows(name, *probe).outcome == self.shows(self._culprit, *probe).outcome for probe in self.probes())}

    def probes(self):
        """The experiments that are tried before a tie is called one."""
        some = {"cut": [("cut", 4, 8), ("cut", 4, 1, 7), ("cut", 1, 2)], "pad": [("pad", side) for side in SIDES],
                "zero": [("zero", "conv"), ("zero", "recurrent")]}
        return [probe for kind in self.offers for probe in some.get(kind, [(kind,)])]


SIDES = ("left", "right", "middle", "later", "one column")


class Investigation:
    """The experiments of one list, the board, and the verdict if one was given: one cell output."""

    def __init__(self, case, experiments, names=(), evidence=""):
        case.seen.clear()                               # the list counts, not what an earlier list held
        self.results = [case.run(*each) if isinstance(each, (tuple, list)) else unwritten(each) for each in experiments]
        self.board = case.board()
        names = (names,) if isinstance(names, str) else names
        self.card = case.accuse(*names, evidence=evidence) if names else Card(
            "not tried", f"{case.title}: no verdict yet. Suspects: {', '.join(case.suspects)}.")

    def __repr__(self):
        return "\n".join([*map(repr, self.results), self.board[1], repr(self.card)])

    def _repr_html_(self):
        from ..widgets.explorer import picture
        text = html.escape("\n".join(map(repr, self.results)))
        return f'<pre style="font-family:monospace">{text}</pre>{picture(*self.board)}{self.card._repr_html_()}'


def in_words(kind, details):
    return " ".join([kind, "+".join(map(str, details))]).strip()


def unwritten(text):
    """The answer to an experiment without its comma: ("fork") or ("cut 4 8")."""
    words = [word if word.isdigit() else f'"{word}"' for word in str(text).split()]
    right = f"({', '.join(words)}{',' * (len(words) == 1)})"
    return Card("info", f"“{text}” is no experiment: write {right}, with a comma.")


def misread(kind, details):
    """What is wrong with the details of an experiment, in words; None where nothing is."""
    if kind == "cut" and not (details and all(type(size) is int and 0 < size <= 40 for size in details)):
        return "a cut has the sizes of its pieces, 1 to 40 tokens each"
    known = {"pad": SIDES, "zero": ("conv", "recurrent")}.get(kind)
    if known and not (len(details) == 1 and details[0] in known):
        return f"say which: {', '.join(known)}"
    return f"{kind} takes no details" if details and kind not in ("cut", "pad", "zero") else None


def turn(names, seed, what, taken=()):
    """Whose turn it is: in len(names) seeds that follow each other each name comes once, in a drawn order.

    A name that is taken leaves its turn to the next one.
    """
    block, place = divmod(seed, len(names))
    order = random.Random(f"{what} {block}").sample(names, len(names))
    return next(name for name in order[place:] + order[:place] if name not in taken)


def cases(seed=0):
    """Three graded cases in order: one that is familiar, then two, in an order that the seed decides."""
    first = turn(GROUPS["chunk"], seed, "first")
    second = turn((*NOISE, NOTHING, NOTHING), seed, "noise", (first,))                  # one of three has no fault
    third = turn((*GROUPS["half"], NOTHING), seed, "half", (first, second))
    noise = dict(suspects=(*NOISE, NOTHING), dtype=torch.bfloat16, _culprit=second)
    half = dict(suspects=(*GROUPS["half"], NOTHING), _culprit=third)
    rest = random.Random(f"order {seed}").sample((half, noise), 2)
    return (Case("1", (*GROUPS["chunk"], NOTHING), OFFERS["chunk"], seed, _culprit=first),
            *(Case(name, offers=OFFERS["half"], seed=seed, **given) for name, given in zip("23", rest)))


def tie(seed=0):
    """A model behind a server: nobody can reach its state. Two faults that cut alike, or a padding fault and none."""
    draw, pair = random.Random(f"tie {seed}"), turn(tuple(combinations(ALIKE, 2)), seed, "tie")
    padding, other = draw.choice(GROUPS["padding"]), draw.choice(("dropped-chunk", "clamp-lost"))
    return Case("4", (*draw.sample((*pair, padding, other), 4), NOTHING), OFFERS["tie"], seed,
                _culprit=(*pair, padding, NOTHING)[turn(range(4), seed, "tied")])


def endless(seed):
    """A case by its number: a class that shares the number gets the same case."""
    draw = random.Random(f"endless {seed}")
    group = draw.choice(list(GROUPS))
    names = (*GROUPS[group], NOTHING)
    return Case(f"seed_{seed}", names, OFFERS[group], seed % 7, draw.choice((torch.float64, torch.bfloat16)),
                _culprit=draw.choice(names))


def answers(seed=0):
    """For instructors: who did it in each case that lesson 10 draws from a seed. Text."""
    return "\n".join(f"{case.title}: {', '.join(sorted(case.tied()))}"
                     for case in (*cases(seed), tie(seed), endless(seed)))


# The experiments ---------------------------------------------------------------------------------------------------

@cache
@torch.no_grad()
def experiment(suspect, base, seed, dtype, preset, kind, details):
    """Run one experiment on a suspect of the catalogue, or on its right twin; `base` says whose twin."""
    fault, key = faults.get(base), in_words(kind, details)
    right = load(preset).layers[0].mixer.double() if preset else fault.healthy(seed).mixer
    mixer = right if suspect == NOTHING else faults.reclass(right, type(fault.subject(seed).mixer))
    subject = MixerSubject(copy.deepcopy(mixer).to(dtype))
    if kind == "influence":
        with torch.enable_grad():
            found, wanted = (measure(one, (4, 4)) for one in (mixer, right))
        text = say(found, wanted)
        return Seen(key, next((short for start, short in MAPS.items() if text.startswith(start)), text), (text,))
    lab = Lab(subject, seed)
    if kind == "zero":
        return zero(lab, *details)
    law = {"swap": "rows", "fork": "fork", "reset": "reset", "pad": "padding"}.get(kind)
    case = split_case(lab, list(details), 2) if kind == "cut" else [
        case for case in LAWS[law](lab) if kind != "pad" or wanted_side(case.words, details)][0]
    found, wanted = case.run()
    own = rounding(lab, subject.mixer)
    outcome, lines = judge(found, wanted, own)
    if kind == "cut":
        outcome = coarse(compare(found, wanted, max(4 * own, 1e-8)), details)
        lines = (f"{'+'.join(map(str, details))}, then 1+1", *lines)
    return Seen(key, outcome, lines)


def wanted_side(words, details):
    """Does a case of the padding law feed padding as asked: a side in the first call, later, or one column a call?"""
    side, = details
    return words == {"later": "right padding in row 0, continued call after 4 tokens",
                     "one column": "middle padding in row 0, one column at a time after 4 tokens"}.get(
                         side, f"{side} padding in row 0, first call")


def rounding(lab, mixer):
    """The format's own error: an uncut run against the same weights in float64, relative to the largest output."""
    x = lab.draw(2, 14)
    exact = copy.deepcopy(mixer).double()(x.double())[0]                                    # (B, L, C)
    error = (mixer(x)[0].double() - exact).abs().max() / exact.abs().max()
    return max(error.item(), torch.finfo(x.dtype).eps)


def judge(found, wanted, own):
    """In short: 'same' or 'differs'; the strip by the fixed limit and the sizes of the errors."""
    scale = wanted.double().abs().max()
    error = ((found.double() - wanted.double()).abs().max() / scale).item()
    bad = ((found.double() - wanted.double()).abs() > LIMIT * scale).flatten(2).any(-1)                 # (B, L)
    return ("same" if error <= max(4 * own, 1e-8) else "differs",
            (f"{strip(bad)}  (X: apart by more than {LIMIT} of the largest output)",
             f"largest difference {share(error)}; an uncut run's own rounding {below(own)}"))


def share(error):
    """An error as a share of the largest output: a small one by its power of ten, a large one as it is."""
    return below(error) if error < 0.1 else f"{error:.1g} times the largest output"


def coarse(evidence, sizes):
    """For each piece behind the first: 'right', 'wrong' from its first token on, or 'first right' and then wrong."""
    strip = (evidence or {}).get("strip", "") or "." * (sum(sizes) + 2)
    pieces, at = [], sizes[0]
    for size in sizes[1:]:
        part = strip[at:at + size]
        pieces.append("right" if "X" not in part else "wrong" if part[0] == "X" else "first right")
        at += size
    return ", ".join(pieces) or ("right" if "X" not in strip else "wrong")


def zero(lab, name="conv"):
    """Is this field of the state read by a chunk? It is set to zero before one."""
    x, subject = lab.draw(2, 8), lab.subject
    _, state = subject.feed(x[:, :4], None)
    if name not in state.tensors():
        return Seen(f"zero {name}", "no such field", (f"the state has {', '.join(state.tensors())}",))
    found, wanted = (subject.feed(x[:, 4:], held)[0] for held in (state.emptied(name), state))
    outcome, lines = judge(found, wanted, 0.0)
    return Seen(f"zero {name}", {"same": "not read", "differs": "read"}[outcome], lines[:1])
