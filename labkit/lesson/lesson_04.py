"""Lesson 04, dropped chunk: its questions, and the experiments that answer them."""

import torch

from .. import faults
from ..figures import influence
from .drive import drawn, feed
from .exercise import every_cut
from .exercise_04 import EXERCISE, Chunks
from .judge import strip
from .question import Option, Question, claim

__all__ = ["EXERCISE", "FAULTS", "LENGTHS", "QUESTIONS", "RIGHT", "caught", "chunk_in_library", "errors_after",
           "explorer", "harmless_lengths", "heals", "prove", "separating", "strip_of"]

FAULTS = {name: faults.get(name).subject(0).mixer
          for name in ("dropped-chunk", "looks-ahead", "history-lost", "one-step-size", "clamp-lost")}
RIGHT = faults.get("dropped-chunk").healthy(0).mixer
LENGTHS = {(True, 1, 63): "1 and 63, on a used cache", (True, 1, 64): "1 and 64, on a used cache",
           (False, 1, 2, 63, 64, 65): "1, 2, 63, 64 and 65, each at the start of a text",
           (True, 1, 2, 63, 64, 65): "1, 2, 63, 64 and 65, on a used cache"}

QUESTIONS = {
    "recap": Question("04.recap", "h starts at 0, a = 0.5. The inputs are 8, 0, 4. What is h after them?", (
        Option(6.0, "6", ""),
        Option(12.0, "12", "That is the plain sum. At each token the old h is first multiplied by a."),
        Option(4.0, "4", "That is the newest input alone. A part of the older ones is still there."),
        Option(3.0, "3", "The newest input is not multiplied: h = a * h + u."))),
    "chunk": Question("04.chunk", "The model reads 4 tokens (positions 0 to 3), then a chunk of 8 (positions 4 to 11). "
                                  "Which positions are right?", (
        Option("............", "all of them, up to rounding", "The shapes are right, and no error is raised. The "
                                                              "values are not: the chunk's branch makes one step "
                                                              "only."),
        Option("....XXXXXXXX", "0 to 3 only", "Nearly. The one step that is made is the right one for the chunk's "
                                              "first token, so position 4 is right too."),
        Option(".....XXXXXXX", "0 to 4", ""),
        Option("....XXX.....", "all but 4, 5 and 6", "That would be a lost window. Here tokens are lost, and behind a "
                                                     "recurrence an error stays."))),
    "harmless": Question("04.harmless", "At which chunk lengths are all three layers the same?", (
        Option((1,), "at 1 only", ""),
        Option((1, 2, 3), "below K = 4", "The window is not the point here: from 2 tokens on, one step is too few."),
        Option((), "at none", "Look at 1 again: for one token, one step is right."),
        Option((8,), "at 8, where the chunk is long enough", "A longer chunk loses more tokens, not fewer."))),
    "heal": Question("04.heal", "After the bad chunk the text goes on, one token at a time. This path is right. "
                                "What happens to the error?", (
        Option("at once", "it is gone with the first new token", "The new step is right, but it starts from a wrong "
                                                                 "h."),
        Option("fades", "it fades slowly", ""),
        Option("stays", "it stays as it is", "Each step multiplies the old h by a number below 1. The wrong part "
                                             "too."))),
    "separate": Question("04.separate", "Both “looks ahead” and “history lost” give ....XXXXXXXX on 4 + 8. "
                                        "Which experiment tells them apart?", (
        Option("one at a time", "feed the 8 tokens one at a time", "Both are right there."),
        Option("longer chunk", "use a longer chunk", "Both stay wrong at each position of the chunk."),
        Option("last input moved", "change only the last input, look at position 4", ""))),
    "all_after_first": claim("04.all_after_first", "The old code loses every token of the chunk but the first.",
                             "PR 46084", "It holds up to 5.4. From 5.5 to 5.12.1 the first token is wrong too: its "
                                         "window took in the whole chunk."),
    "transfer": Question("04.transfer", "A new layer has one path for 1 token and a fast one for 64 tokens or more. "
                                        "Which chunk lengths do you test?", tuple(
        Option(key, text, {False: "At the start of a text there is no past to forget, and nobody takes the wrong "
                                  "branch.",
                           True: "What lies between the two branches, and right at the border, is not tested."}[key[0]]
               if len(key) < 6 or not key[0] else "") for key, text in LENGTHS.items())),
}
MUTANTS = (("dropped-chunk", lambda n: 1 < n < 64), ("dropped-chunk", lambda n: n == 64),
           ("history-lost", lambda n: n >= 64), ("dropped-chunk", lambda n: n > 64 and n % 64))


@torch.no_grad()
def errors(mixer, sizes):
    """How far each output (L,) is from the right, uncut run."""
    x = drawn(1, sum(sizes), 8)
    return (feed(mixer, x, sizes)[0] - RIGHT(x)[0])[0].abs().amax(-1)


def wrong_positions(mixer, sizes):
    return errors(mixer, sizes) > 1e-9                                                              # (L,)


def strip_of(mixer, sizes):
    """'....XXXX': right and wrong positions of a mixer that reads pieces of these sizes."""
    return strip(wrong_positions(mixer, sizes)[None])


def harmless_lengths(names, longest=8):
    """Chunk lengths behind 4 tokens at which none of these faults gives a wrong output."""
    return tuple(n for n in range(1, longest + 1)
                 if not any(wrong_positions(FAULTS[name], (4, n)).any() for name in names))


def errors_after(mixer, tokens):
    """Errors of the tokens behind a chunk: 4 tokens, a chunk of 8, then `tokens` of them one at a time."""
    return errors(mixer, (4, 8) + (1,) * tokens)[12:]                                               # (tokens,)


def heals(after):
    """What a row of errors does: gone 'at once', 'fades' or 'stays'."""
    if after[0] < 1e-9:
        return "at once"
    return "fades" if after[-10:].max() < after[:10].max() / 10 else "stays"


def separating(one, other):
    """{experiment: does it tell the two faults apart?}, for the experiments of the question `separate`."""
    def last(mixer):
        x = drawn(1, 12, 8)
        moved = torch.cat([x[:, :-1], x[:, -1:] + 1], 1)
        return bool((feed(mixer, moved, (4, 8))[0] - feed(mixer, x, (4, 8))[0])[0, 4].abs().max() > 1e-9)
    experiments = {"one at a time": lambda mixer: strip_of(mixer, (4,) + (1,) * 8),
                   "longer chunk": lambda mixer: strip_of(mixer, (4, 16)), "last input moved": last}
    return {name: run(FAULTS[one]) != run(FAULTS[other]) for name, run in experiments.items()}


def caught(test):
    """How many of four faulty layers, wrong at some chunk lengths, a list of test lengths finds; by running them."""
    used, *lengths = test

    def finds(name, fault, n):
        def layer(x, state):
            return (FAULTS[name] if fault(x.shape[1]) else RIGHT)(x, state)
        return wrong_positions(layer, (3, n) if used else (n,)).any()
    return sum(any(finds(name, fault, n) for n in lengths) for name, fault in MUTANTS)


def explorer():
    """The key picture with its slider: the chunk's length."""
    from ..widgets import Explorer
    layers = (("right", RIGHT), ("dropped", FAULTS["dropped-chunk"]), ("looks ahead", FAULTS["looks-ahead"]))
    return Explorer(lambda chunk: influence([("uncut", RIGHT, (4 + chunk,)),
                                             *((name, layer, (4, chunk)) for name, layer in layers)]),
                    chunk=("chunk length", 1, 8, 8))


def prove(function, length=8):
    """Feed 8 tokens behind 3 earlier ones in every possible cut, for K = 1 to 4. Returns a Card."""
    cuts = [*every_cut(length), (length, 0), (0, length), (length // 2, 0, length - length // 2)]
    return EXERCISE.prove(function, [Chunks(kernel, 3, sizes) for sizes in cuts for kernel in range(1, 5)],
                          f"{len(cuts)} cuts of {length} tokens, K = 1 to 4")


def chunk_in_library(real):
    """Lines: the strip of the installed Mamba2 for a chunk on a used cache."""
    return [f"Mamba2: {real.chunk('mamba2')['strip']}",
            "(. right, X wrong; 9 tokens, a chunk of 5, then 3 one at a time)"]
