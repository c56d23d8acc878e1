"""Lesson 05, history lost: its questions, and the experiments that answer them."""

from dataclasses import replace

import torch

from .. import faults
from ..figures.ablation import ablation
from .drive import drawn, fault_strip
from .exercise_05 import CASES, EXERCISE, HALVES, Probe, unread
from .question import Option, Question, claim

__all__ = ["EXERCISE", "QUESTIONS", "catalogue", "emptied_in_library", "errors", "marks", "picture", "prove",
           "relatives", "useless"]

LAYERS = {"right": (), "conv lost": ("conv",), "recurrent lost": ("recurrent",), "both lost": HALVES}
QUESTIONS = {
    "recall": Question("05.recall", "From lesson 04: the layer that drops a chunk gets 4 tokens, then a chunk "
                                    "of 8. How many of the 12 outputs are wrong?", (
        Option(0, "0", "The chunk goes through a step for one token. What its other tokens say is dropped."),
        Option(7, "7", ""),
        Option(8, "8", "The first token of the chunk is mixed as it should be. Only the others are dropped."),
        Option(1, "1", "The dropped tokens are missing from every later output too."))),
    "conv": Question("05.conv", "A Mamba2 layer with K = 4 gets 4 tokens, then a chunk of 8. The chunk starts with an "
                                "empty window; its recurrent state is right. How many of the 8 are wrong?", (
        Option(0, "0", "The window holds real inputs. Zeros in their place are seen."),
        Option(1, "1", "Tap 0 looks 3 tokens back, so the wrong window meets more than one token."),
        Option(3, "3", "3 wrong values leave the convolution. Behind it stands the recurrence: it remembers them."),
        Option(8, "8", ""))),
    "strip": Question("05.strip", "Now the recurrent half is lost and the window is right. How does its strip of right "
                                  "and wrong outputs differ from the strip of the lost window?", (
        Option("later", "its first wrong output comes later", "The first token of the chunk needs both halves."),
        Option("longer", "it has more wrong outputs", "The window's error passes into the recurrence. It lasts too."),
        Option("same", "not at all", ""))),
    "used": claim("05.used", "The layer writes its state into the cache after each call, so the state is used.", "folk",
                  "Writing is not reading. The field changes with each chunk, and no output of a chunk moves with it."),
    "proof": Question("05.proof", "In another layer, the tokens before the chunk do not move its outputs at all, also "
                                  "when the text is not cut. Your probe names both fields. What did you prove?", (
        Option("both", "the layer loses both halves", "It also names both in a layer that breaks no law. The control "
                                                      "fails: there is no past to lose."),
        Option("nothing", "nothing", ""),
        Option("right", "the layer is right", "It is, here. But the probe says the same about a faulty one."))),
}


@torch.no_grad()
def errors(lost, family="Mamba2", before=4, chunk=8, rows=16):
    """Error of each output of a chunk, (L,), divided by the largest right output; the mean of several rows."""
    with Probe(family, (), chunk, before, rows).ready() as (mixer, prefix, x):
        right = mixer(torch.cat([prefix, x], 1))[0][:, before:]                             # (B, L, hidden_size)
    with Probe(family, lost, chunk, before, rows).ready() as (mixer, prefix, x):
        y = mixer(x, mixer(prefix)[1])[0]
    return ((y - right).abs().amax(-1).mean(0) / right.abs().max()).tolist()


def marks(lost, family="Mamba2", **sizes):
    """The errors as a strip: . right, X wrong."""
    return "".join("X" if error > 1e-6 else "." for error in errors(lost, family, **sizes))


def catalogue(name, sizes=(4, 8)):
    """The strip of a fault of the catalogue, and what the probe finds in it."""
    mixer = faults.get(name).subject(0).mixer
    return fault_strip(name, sizes), unread(mixer, *drawn(2, sum(sizes), mixer.hidden_size).split(sizes, 1))


def relatives(names):
    """A line a fault: its strip, and what the probe says."""
    lines = [(name, *catalogue(name)) for name in names]
    return "\n".join(f"{name:22}{marked}   " + (f"does not read: {', '.join(found)}" if found else "reads all")
                     for name, marked, found in lines)


@torch.no_grad()
def picture():
    """The key picture: curves that fade alike, bars that tell the halves apart."""
    curves = {name: errors(lost, chunk=24) for name, lost in LAYERS.items() if lost}
    effects = {}
    for name, lost in LAYERS.items():
        with Probe("Mamba2", lost, 24, batch=16).ready() as (mixer, prefix, x):
            state = mixer(prefix)[1]
            y = mixer(x, state)[0]
            effects[name] = {}
            for half in HALVES:
                moved = mixer(x, state.emptied(half))[0]
                effects[name][half] = float((moved - y).abs().max() / y.abs().max())
    return ablation(curves, effects)


def prove(function):
    """The probe against gradients, on every family and pattern. Returns a Card."""
    return EXERCISE.prove(function, [replace(case, chunk=chunk, before=before) for case in CASES
                                     for chunk in (2, 6) for before in (1, 5)], "every family, every lost half")


def useless(before=4, chunk=6):
    """A layer without memory: what the probe finds, how many uncut outputs the prefix moves, how many a cut breaks."""
    with Probe("Mamba2", (), chunk, before).ready() as (mixer, prefix, x):
        mixer.conv1d.weight.data[..., :-1] = 0          # only the newest tap is left
        mixer.A_log.data[:] = 20                        # the state decays to nothing within a token
        uncut = [mixer(torch.cat([past, x], 1))[0][:, before:] for past in (prefix, prefix + 1)]
        cut = mixer(x, mixer(prefix)[1])[0]
        moved, wrong = ((other - uncut[0]).abs().amax((0, 2)) > 1e-9 for other in (uncut[1], cut))   # (L,)
        return unread(mixer, prefix, x), int(moved.sum()), int(wrong.sum())


def emptied_in_library(real):
    """Lines: do the outputs of the installed Mamba-1 move when the recurrent state in its cache is emptied?"""
    from transformers.models.mamba.modeling_mamba import MambaMixer
    torch.manual_seed(0)
    config = real.transformers.MambaConfig(hidden_size=8, state_size=4, num_hidden_layers=1)
    layer, x = MambaMixer(config, 0).eval(), torch.randn(1, 12, 8)
    for length in (1, 5):
        cache, emptied = (real.transformers.DynamicCache(config=config) for _ in "ab")
        _, _ = layer(x[:, :6], cache), layer(x[:, :6], emptied)
        emptied.update_recurrent_state(torch.zeros_like(emptied.get_recurrent_state(0)), 0)
        same = torch.equal(layer(x[:, 6:6 + length], cache), layer(x[:, 6:6 + length], emptied))
        yield f"a chunk of {length}: the emptied state is {'not read' if same else 'read'}"
