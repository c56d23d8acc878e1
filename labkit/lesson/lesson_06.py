"""Lesson 06, two caches: its questions, and the experiments that answer them."""

from contextlib import contextmanager

import torch

from .. import faults
from ..figures.conv_window import cut
from ..figures.error_map import error_map
from ..figures.who_wrote import Panel, who_wrote
from ..price import of_fault
from .drive import drawn, fault_strip
from .exercise import every_cut
from .exercise_06 import EXERCISE, Talk
from .question import Option, Question, claim

__all__ = ["EXERCISE", "QUESTIONS", "decode_between", "failing", "map_of_cuts", "prove", "stores", "strip_of"]

ORDERS = {"prefill + decode": (4, 1, 1, 1), "prefill + prefill": (4, 4),
          "prefill + decode + prefill": (4, 1, 1, 1, 1, 4)}
QUESTIONS = {
    "recall": Question("06.recall", "From lesson 03: ids holds 6 token ids, all of them cached, so n = 0 are left to "
                                    "feed. How many ids are in ids[-n:]?", (
        Option(0, "0", "Minus zero is zero, and ids[0:] is everything."),
        Option(1, "1", "One would be right to feed, but the slice does not know that."),
        Option(6, "6", ""))),
    "guard": Question("06.guard", "Now with the guard, as in the source. The tensors are not on the CPU. "
                                  "What happens?", (
        Option("Expected CPU", "“Expected CPU”", "The guard asks for the CPU first. The line with this message is "
                                                  "never reached."),
        Option("no error", "it runs", "The other branch needs a cache that this model never builds."),
        Option("other", "another error", ""))),
    "order": Question("06.order", "Chunks read one store, single tokens read the other. Which order gives a wrong "
                                  "answer?", (
        Option(("prefill + decode",), "prefill, then decode", "A single token reads the store that all writers fill."),
        Option(("prefill + prefill",), "prefill, then prefill", "Both chunks write and read the same store."),
        Option(("prefill + decode + prefill",), "prefill, then decode, then prefill", ""),
        Option(tuple(ORDERS), "each of them", "Two of the three are right, so two kinds of test saw nothing."))),
    "tensors": claim("06.tensors", "Write the store with tensor operations, for any device.", "the report",
                     "Two runs, two results: other devices work, and the order of section 2 is still wrong."),
    "tests": Question("06.tests", "Your tests feed 8 tokens in two chunks, and one by one. Both are green with "
                                  "two stores. Which cut do you add?", (
        Option((3, 3, 2), "3 + 3 + 2", "More chunks, but no single token between them."),
        Option((4, 1, 1, 1, 1), "4 + 1 + 1 + 1 + 1", "Nothing reads the short store after the single tokens."),
        Option((3, 1, 1, 3), "3 + 1 + 1 + 3", ""),
        Option((), "none of these, two tests are enough", "Run them: one of the three cuts is wrong."))),
}


def strip_of(sizes, name="two-writers"):
    """The pieces, and the strip of the layer with two stores with its cuts marked: '2+1+2   ..|.|.X'."""
    marks = iter(fault_strip(name, sizes))
    return f"{'+'.join(map(str, sizes)):16}" + "|".join("".join(next(marks) for _ in range(size)) for size in sizes)


def failing(cuts, name="two-writers"):
    """Which of these cuts give a wrong output; cuts is {name: sizes} or a list of sizes."""
    named = cuts if isinstance(cuts, dict) else {sizes: sizes for sizes in cuts}
    return tuple(key for key, sizes in named.items() if "X" in fault_strip(name, sizes))


def map_of_cuts():
    """The error map: every even cut of 12 tokens, and one that mixes chunks and single tokens."""
    cuts = [*(cut(12, n) for n in range(1, 12)), ORDERS["prefill + decode + prefill"]]
    titles = {"two-writers": "two stores", "top-left-mask": "mask at the oldest keys"}
    return error_map({title: {sizes: [mark == "X" for mark in fault_strip(name, sizes)] for sizes in cuts}
                      for name, title in titles.items()})


@torch.no_grad()
def stores(mixer=None, before=10, single=8, chunk=5):
    """The key picture: who wrote each slot of the two stores. Each slot is matched with the key of one token."""
    mixer = mixer or faults.get("two-writers").subject(0).mixer
    total, state, seen, fed = before + single + chunk, None, [], 0
    x = drawn(1, total, mixer.hidden_size)
    keys = mixer.k_proj(x)[0]                                                               # (T, H*D), no positions
    writer = "p" * before + "d" * single + "c" * chunk
    times = {before: f"prefill {before}", before + single // 2: f"{single // 2} decoded",
             before + single: f"{single} decoded", total: f"chunk of {chunk}"}
    for size in (before, *[1] * single, chunk):
        _, state = mixer(x[:, fed:fed + size], state)
        fed += size
        if fed in times:
            seen.append([slots(store, keys) for store in (getattr(state, "chunks", state),
                                                          getattr(state, "everything", state))])
    names = ("the store that chunks read", "the store that single tokens read")
    panels, marks = [], set()
    for p, title in enumerate(names):
        held = [row[p] for row in seen]
        marks |= {(p, t, s) for t, fed in enumerate(times) for s in range(fed) if s >= len(held[t]) or held[t][s] != s}
        panels.append(Panel(f"{title}: {len(held[-1])} filled", [str(s) for s in range(total)], list(times.values()),
                            [[*(writer[token] for token in row), *[None] * (total - len(row))] for row in held]))
    return who_wrote(panels, marks, {"p": "prefill", "d": "decode", "c": "the second chunk"})


def slots(store, keys):
    """Which token's key stands in each slot of a store."""
    held = store.keys[0].transpose(0, 1).flatten(1)                                         # (T', H*D)
    return torch.cdist(held, keys).argmin(1).tolist()


def prove(function):
    """Every cut of 8 tokens, each with a wrong position behind it. Returns a Card."""
    return EXERCISE.prove(function, [Talk(sizes, astray=True) for sizes in every_cut(8)])


@contextmanager
def decode_between(model):
    """Two stores, and a program that reads 8 tokens behind the cut one at a time, then the rest as a chunk."""
    def feed(model, ids, sizes, cache):
        single = min(8, sizes[-1] - 2)
        for part in ids.split([sizes[0], *[1] * single, sizes[-1] - single], 1):
            logits = model(part, cache)
        return logits[:, -1]
    with of_fault("two-writers")(model) as fits:
        yield feed if fits else None
