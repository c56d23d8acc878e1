"""Lesson 07, copied state: its questions, and the experiments that answer them."""

import functools
from dataclasses import dataclass

import torch

from .. import faults
from ..corpus import COLOURS, THINGS
from ..faults.advice_different_depths import copied
from ..figures.who_wrote import Panel, who_wrote
from ..price_drivers import by_class, feed_all, halves
from ..streaming import StreamState
from ..tokenizer import tokenizer
from .exercise_07 import EXERCISE, RING, Copy, copy_session, model_of, share
from .question import Option, Question, claim

__all__ = ["EXERCISE", "QUESTIONS", "audit", "copied", "copy_session", "disturbed", "explorer", "loud", "prove",
           "rings", "share", "shared_copy"]

QUESTIONS = {
    "recall": Question("07.recall", "From lesson 02: a fresh port of the layer, which keeps its state inside, gets one "
                                    "token at position 5. What happens?", (
        Option("zeros", "it fills the past with zeros", "One relative does that. This port asks for its state first."),
        Option("raises", "an error", ""),
        Option("answer", "a right answer", "The layer has seen nothing. It cannot answer rightly."))),
    "copy": Question("07.copy", "A copy that shares its rings is stepped twice, then the source once. Is the source "
                                "disturbed? The ring has 4 slots. The copy is made after 2 frames, then after 6.", (
        Option((True, True), "both times", "After 2 frames the copy writes free slots, and the source writes over them "
                                           "before it reads."),
        Option((False, False), "never", "After 6 frames the ring is full. The copy writes over slots that the source "
                                        "still reads."),
        Option((False, True), "not after 2, but after 6", ""))),
    "from": Question("07.from", "Move the slider. What is the smallest number of frames before the copy at which the "
                                "source is disturbed?", (
        Option(1, "1", "With 1 frame the copy's two steps go to free slots."),
        Option(3, "3", ""),
        Option(4, "4, when the ring is full", "The copy takes two steps. The second one already meets a used slot when "
                                              "3 are filled."),
        Option(6, "6", "Look at fewer frames: it begins earlier."))),
    "recover": Question("07.recover", "The report's way out: build the target new, with as many layers and the "
                                      "same weights, then copy again. What do you get?", (
        Option("right", "a copy that goes on as the source would", "The keys are there, the clock is not. The target "
                                                                    "starts at position 0."),
        Option("raises", "the same error again", "The depths agree now, and nothing else is compared."),
        Option("wrong", "no error, and wrong outputs", ""))),
    "config": claim("07.config", "Build both models from the same configuration.", "the report", {
        "else": "Three situations are run: right in one of them.",
        "right": "Needed, and not enough: other weights are taken without a word."}),
    "len": claim("07.len", "Compare layers_len() of both before the copy.", "the report",
                 "There is no such method, so nobody has run this advice. Ask first whether all that it names exists."),
    "next": Question("07.next", "Next month a field is added to the state. Copy and reset were written before. What "
                                "makes them fail loudly?", (
        Option("by name", "a copy that assigns the fields one by one", "The new field is left behind in silence."),
        Option("test", "a test that compares right after the copy", "It passes: both start from the same new field, "
                                                                    "until somebody steps."),
        Option("value", "a state without defaults, built anew each time", ""))),
}


@torch.no_grad()
def disturbed(before, function=share, steps=2):
    """Is the source's next output wrong when a copy is made after `before` frames and stepped first?"""
    strip = EXERCISE.attempt(function, Copy(before, turns=("copy",) * steps + ("source",))).strip
    return strip[-1] == "X"


@torch.no_grad()
def rings(function=share, before=6, steps=2):
    """The key picture: whose frame is in each slot of both rings. Slots are matched with runs that share nothing."""
    case = Copy(before, turns=("copy",) * steps + ("source",))
    src, dst, coming = case.ready()
    function(dst, src)
    past, alone, keys = case.frames(before, 0), {}, {}
    for who, x in coming.items():                                       # each text in a run of its own
        model, state = model_of(case.seed), model_of(case.seed).start(1)
        for t, frame in enumerate(torch.cat([past, x[:, :steps + 1]], 1).mT.split(1, 2)):
            _, state = model.advance(frame, state)
            alone[who, t + 1] = state.rings[0].keys
            keys["h" if t < before else who[0], t, who] = state.rings[0].keys[0, :, t % RING]
    rows, marks, times = {"copy": [], "source": []}, set(), ["copied"]
    fed = {"copy": before, "source": before}
    for turn in (None, *case.turns):
        if turn:
            {"copy": dst, "source": src}[turn].step(coming[turn][:, fed[turn] - before][:, None])
            fed[turn] += 1
            times.append(f"{turn} steps")
        for p, (who, session) in enumerate((("source", src), ("copy", dst))):
            held = session.layers[0]["keys"][0]                         # (heads, slots, head_dim)
            rows[who].append([writer(held[:, slot], keys) for slot in range(RING)])
            if fed[who]:
                right = alone[who, fed[who]][0]
                marks |= {(p, len(times) - 1, slot) for slot in range(min(RING, fed[who]))
                          if not torch.allclose(held[:, slot], right[:, slot])}
    panels = [Panel(f"ring of the {who}", [f"slot {i}" for i in range(RING)], times, rows[who])
              for who in ("source", "copy")]
    return who_wrote(panels, marks, {"h": "the common past", "s": "the source", "c": "the copy"})


def explorer(function=share):
    """The key picture with a slider for the frames before the copy."""
    from ..widgets import Explorer
    return Explorer(lambda before: rings(function, before), before=("frames before the copy", 0, 8, 6))


def writer(key, keys):
    """Whose key it is; None for a slot of zeros."""
    return next((who for (who, _, _), known in keys.items() if torch.allclose(key, known)), None) if key.any() else None


def prove(function):
    """Copies after 0 to 9 frames, in several orders of steps. Returns a Card."""
    orders = [("copy",) * 3 + ("source",) * 2, ("source",) * 3 + ("copy",) * 2, ("copy", "source") * 3]
    return EXERCISE.prove(function, [Copy(before, turns=turns) for before in range(10) for turns in orders])


@torch.no_grad()
def audit(names=("reset-forgets-a-field", "table-ends")):
    """A line a fault: does a short test of the reset see it, does a soak (one long stream) see it?"""
    x, lines = Copy(0).frames(60, 4).mT, []
    for name in names:
        right = faults.get(name).healthy(0).model
        seen = []
        for before, fed in ((x[..., :5], x[..., 5:12]), (x[..., :0], x)):
            model, same = faults.get(name).subject(0).model, False
            model.step(before)
            model.reset()
            try:
                same = torch.allclose(torch.cat([model.step(frame) for frame in fed.split(1, 2)], 2), right(fed))
            except RuntimeError:
                pass
            seen.append("green" if same else "sees it")
        lines.append(f"{name:24}reset, then 7 frames: {seen[0]:10}soak of 60 frames: {seen[1]}")
    return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Wider(StreamState):
    """Next month's state."""

    gain: torch.Tensor


def loud():
    """Which of three habits fail when the state gets a field that they do not know."""
    src, dst, coming = Copy(3).ready()
    src.gain, state = torch.ones(1), model_of().start(1)

    def test():
        copy_session(dst, src)
        if not torch.equal(dst.step(coming["copy"]), src.step(coming["copy"])):
            raise AssertionError("the copy is wrong")
    habits = {"by name": lambda: copy_session(dst, src), "test": test,
              "value": lambda: Wider(state.clock, state.down, state.rings, state.up)}
    return [name for name, habit in habits.items() if fails(habit)]


def fails(action):
    try:
        action()
    except (AssertionError, AttributeError, TypeError):
        return True
    return False


@functools.cache
def other_things():
    """Token ids with each colour and each thing of the corpus moved on by one: another story about the same people."""
    table = torch.arange(tokenizer().get_vocab_size())
    for words in (COLOURS, THINGS):
        ids = [tokenizer().encode(f" {word}").ids for word in words]
        single = torch.tensor([each[0] for each in ids if len(each) == 1])
        table[single] = single.roll(1)
    return table


def feed_beside(model, ids, sizes, cache):
    """Before the last piece a copy of the session hears another story about the same people."""
    first, last = halves(ids, sizes)
    feed_all(model, first, cache)
    feed_all(model, [other_things()[piece] for piece in first], cache.fork())
    return model(last, cache)[:, -1]


shared_copy = by_class("fork-is-the-same", feed_beside)
