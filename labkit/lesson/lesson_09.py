"""Lesson 09, rollback: its questions, and the experiments that answer them."""

import torch

from .. import faults
from ..cache import Cache
from ..contract import check
from ..faults import samples
from ..faults.advice_rollback import undo
from ..faults.cache_faults import RewindsKeysOnly
from ..figures import Panel, who_wrote
from ..generate import shared
from ..keyvalues import AttentionState
from .card import Card
from .drive import Watched
from .exercise_09 import EXERCISE, best_after, model_of
from .judge import call, off
from .library import MISSING, installed
from .question import Option, Question, claim

__all__ = ["EXERCISE", "QUESTIONS", "calls", "explorer", "in_library", "kept", "left_of_draft", "moves_needed",
           "relatives", "saved", "undo"]

QUESTIONS = {
    "kept": Question("09.kept", "A look back at lesson 03. The cache holds the tokens 1, 2, 3, 4. The prompt is "
                                "1, 2, 7, 4, 5. How many cached tokens may be used?", (
        Option(2, "2", ""),
        Option(3, "3", "Token 4 stands at the same place in both, but behind a difference it has another past."),
        Option(4, "4", "That compares lengths. The third token is another one."),
        Option(0, "none", "The first two tokens agree, so their part of the cache is right."))),
    "undo": Question("09.undo", "h = a * h + u, 8 steps. Then they are undone: subtract u, divide by a, 8 times, in "
                                "float32. For a = 0.95, 0.5 and 0.1: where is the old h found again, to 3 digits?", (
        Option((True, True, True), "for all three", "On paper, yes. But each division by 0.1 makes the rounding "
                                                    "10 times larger, and there are eight."),
        Option((True, True, False), "for 0.95 and 0.5", ""),
        Option((True, False, False), "for 0.95 only", "Half of a float is exact, and 2 to the power of 8 is not much."),
        Option((False, False, False), "for none", "For a near 1 the rounding hardly grows."))),
    "traces": Question("09.traces", "A draft token was fed and is rejected. A program crops the keys and values. "
                                    "Where is a trace of it left?", (
        Option((), "nowhere", "In keys and values each token has a slot, so it can go. A state has no slots: each "
                              "token is mixed into all of it."),
        Option(("keys and values",), "in the keys and values", "There each token has a slot of its own; the slot is "
                                                               "cut off."),
        Option(("state",), "in the recurrent state", ""),
        Option(("keys and values", "state"), "in both", "A slot that is cut off is gone. Look at the other half."))),
    "crop": claim("09.crop", "To take tokens back, crop the cache.", "a common program", {
        "else": "It depends on the memory: for keys and values it is exact, for a recurrent state it does nothing.",
        "silently wrong": "For a hybrid it is. For a model of attention alone it is right, so: partly."}),
    "deepcopy": claim("09.deepcopy", "Make a deep copy of the cache before each draft.", "a common program",
                      "The copy holds every slot, so it goes back exactly. It costs memory: look at the bytes."),
    "select": Question("09.select", "Beam search keeps the best rows of a batch and drops the others. In a hybrid: "
                                    "which memories must be reordered with the rows?", (
        Option(("keys and values",), "keys and values", "So one library did it. The state of the wrong row went "
                                                        "on, and nothing was said."),
        Option(("keys and values", "state"), "keys and values, and the state", "Almost. The window holds the last "
                                                                               "inputs of a row: it belongs to it."),
        Option(("keys and values", "state", "window"), "keys and values, the state, and the window", ""),
        Option((), "none, the rows only change their number", "A row is its memory. A number without it is nothing."))),
}


def kept(cached, prompt):
    """How many cached tokens the lab's prefix rule uses."""
    model, cache, ids = samples.hybrid(0), Cache(), torch.tensor([prompt])
    with torch.no_grad():
        model(torch.tensor([cached]), cache)
    return shared(cache, ids, torch.ones_like(ids).bool())


def fields(states):
    """The parts of a hybrid's memory by name: lists of tensors with the batch first."""
    mixer = [state for state in states if not isinstance(state, AttentionState)]
    held = [state for state in states if isinstance(state, AttentionState)]
    return {"keys and values": [t for state in held for t in (state.keys, state.values)],
            "state": [state.recurrent for state in mixer], "window": [state.conv for state in mixer]}


@torch.no_grad()
def snapshots(tapes, fits, cache_class):
    """Feed 3 tokens, then one and a draft of 3; go back to the `fits` that are accepted; feed one more.

    tapes: (B, 8).
    """
    model, cache = model_of("hybrid"), cache_class()
    def now():
        return {name: [t.clone() for t in parts] for name, parts in fields(cache.states).items()}
    model(tapes[:, :3], cache.checkpoint())
    start = (cache if cache_class is RewindsKeysOnly else cache.checkpoint()).length
    model(tapes[:, 3:7], cache)
    seen = [now()]
    if cache_class is RewindsKeysOnly:
        cache.rewind(start + 1 + fits)
    else:
        cache.rewind(start)
        model(tapes[:, 3:4 + fits], cache)
    seen.append(now())
    model(tapes[:, 7:], cache)
    return [*seen, now()]


def traces(fits=1, cache_class=RewindsKeysOnly):
    """Which tokens of the tape move the memory, at three moments: (of the state, of each key slot); measured.

    Row j of a batch has token j changed, in all calls that feed it; the last row is unchanged. Letters: t text, a
    accepted, r rejected, n new.
    """
    tapes = torch.tensor([3, 9, 4, 11, 6, 2, 15, 8]).repeat(9, 1)                                   # (9, 8)
    tapes[range(8), range(8)] += 1
    kinds, state, keys = "tttt" + "a" * fits + "r" * (3 - fits) + "n", [], []
    for seen in snapshots(tapes, fits, cache_class):
        moved = torch.stack([off(part[:8], part[8:], 10).flatten(1).any(1) for part in seen["state"]]).any(0)   # (8,)
        state.append([kind if m else None for kind, m in zip(kinds, moved.tolist())])
        held = seen["keys and values"][0].transpose(1, 2).flatten(2)                                # (9, slots, H*D)
        wrote = off(held[:8], held[8:], 10).any(-1).mT.tolist()                                     # slots of 8
        keys.append([[kind for kind, m in zip(kinds, slot) if m][-1] for slot in wrote]             # the last to write
                    + [None] * (8 - len(wrote)))
    return state, keys


def picture(fits=1):
    """The key picture: what is left of a draft of which `fits` tokens are accepted: (Figure, sentence)."""
    slots, times = list("ABCD") + ["draft"] * 3 + ["E"], ["draft fed", "gone back", "E fed"]
    (state, keys), (good, _) = traces(fits), traces(fits, Cache)
    panels = [Panel("state, back to a checkpoint", slots, times, good),
              Panel("state, keys cropped", slots, times, state),
              Panel("keys and values, cropped", [f"slot {p}" for p in range(8)], times, keys)]
    marks = {(p, t, s) for p, panel in enumerate(panels) for t in (1, 2) for s in range(8)
             if panel.writers[t][s] == "r"}
    return who_wrote(panels, marks, {"t": "text", "a": "accepted", "r": "rejected", "n": "E, the next token"})


def explorer():
    """The key picture with its slider."""
    from ..widgets import Explorer
    return Explorer(picture, fits=("draft tokens accepted", 0, 3, 1))


def left_of_draft():
    """The memories in which a rejected token is left when the keys are cropped."""
    state, keys = traces(1)
    return tuple(name for name, rows in (("keys and values", keys), ("state", state)) if "r" in rows[1])


def calls(function, new=30, draft=4):
    """Write `new` tokens with drafts of which every seventh token is wrong: (model calls, calls of the plain loop)."""
    model, text = model_of("hybrid"), [3, 9, 4]
    truth = list(text)
    for _ in range(new + draft + 1):
        truth.append(best_after(model, tuple(truth)))
    watched, cache = Watched(model), Cache()
    with torch.no_grad():
        model(torch.tensor([text[:-1]]), cache)
        while len(text) < 3 + new:
            guess = [(t + (i % 7 == 0)) % 20 for i, t in enumerate(truth)][len(text):len(text) + draft]
            text += call(function, watched, cache, text[-1], guess)
    return (len(watched.fed), new) if text[:3 + new] == truth[:3 + new] else None


def saved(function):
    """The calls that a learner's function saves, as a Card."""
    if not EXERCISE.tried(function):
        return Card("not tried", "one_round is not tried yet: come back when the check is happy.")
    if any(EXERCISE.attempt(function, case).problem for case in EXERCISE.shown):
        return Card("wrong", "The check above has something to say: first the right text, then fewer calls.")
    found = calls(function)
    if not found:
        return Card("wrong", "The text differs from that of the plain loop.")
    says = f"The same 30 tokens in {found[0]} model calls; the plain loop needs {found[1]}"
    if found[0] >= found[1]:
        return Card("wrong", f"{says}: nothing is saved.", ["Feed last + draft as one chunk."])
    return Card("right", f"{says}.")


@torch.no_grad()
def moves_needed():
    """The memories of a hybrid that must move with the rows: leaving one in place gives a wrong answer."""
    model, ids, rows = model_of("hybrid"), torch.tensor([[3, 9, 4, 7], [5, 1, 8, 2]]), torch.tensor([1, 0])
    wanted, needed = model(ids.flip(0))[:, 3:], []
    for name in ("keys and values", "state", "window"):
        cache = Cache()
        model(ids[:, :3], cache)
        before = fields(cache.states)[name]
        cache.select(rows)
        for now, old in zip(fields(cache.states)[name], before):
            now.copy_(old)                                                          # this part stays where it was
        if (model(ids.flip(0)[:, 3:], cache) - wanted).abs().max() > 1e-6:
            needed.append(name)
    return tuple(needed)


def relatives(names=("rows-not-selected", "fork-is-the-same", "copy-without-clock")):
    """One line for each fault: the law that it breaks, and the smallest counterexample. Text."""
    lines = []
    for name in names:
        report = check(faults.get(name).subject(0), laws=("fork", "select", "rewind"))
        lines += [f"{name}: {faults.get(name).record.says}",
                  *(f"    {f.law}: {f.counterexample}  {f.strip}" for f in report.failed)]
    return "\n".join(lines)


def in_library():
    """Crop a cache of the installed transformers, one attention layer and one recurrent layer. Text."""
    if not (library := installed()):
        return MISSING
    from transformers.cache_utils import Cache as Cropped, DynamicLayer, LinearAttentionLayer
    cache, keys = Cropped(layers=[DynamicLayer(), LinearAttentionLayer()]), torch.zeros(1, 1, 5, 4)
    cache.layers[0].update(keys, keys)
    try:
        cache.crop(-2)
        said = "no error"
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    held = cache.layers[0].get_seq_length()
    return (f"transformers {library.__version__}, 5 tokens, crop(-2)\n{said}\n"
            f"The attention layer now holds {held} tokens."
            + " A call that raises has changed something: not atomic." * (said != "no error" and held != 5))
