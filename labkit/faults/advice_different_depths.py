"""Advice about "different depths": what a copied stream needs, and what the report's recovery leaves behind.

`AsPorted` copies as the source does: it compares the number of layers and takes keys and values, not the position.
"""

from dataclasses import replace

import torch

from ..streaming import StreamingTransformer
from . import samples
from .advice import advise
from .base import reclass
from .different_depths import DepthOnly

FRAMES, FED = 12, 6


class AsPorted(DepthOnly):
    """The source's copy: depth is compared, the position stays what it was in the target."""

    def copy_state(self, source):
        clock = 0 if self.state is None else self.state.clock
        super().copy_state(source)
        self.state = replace(self.state, clock=clock)


class Zipped(AsPorted):
    """The same without the comparison: layer by layer, as long as both have one."""

    def copy_state(self, source):
        rings = list(self.start(1).rings)
        for i, (ring, _) in enumerate(zip(source.state.rings, rings)):
            rings[i] = ring
        self.state = replace(source.state, clock=0, rings=tuple(rings))


def frames(n=FRAMES, seed=0):
    """Frames (1, channels, n)."""
    return torch.randn(1, 3, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@torch.no_grad()
def copied(target, cls=AsPorted, used=0):
    """How a copy of a stream after FED frames goes on in `target`: 'right', 'wrong', or the error's text."""
    source, x = reclass(samples.streaming(), cls), frames()
    source.step(x[:, :, :FED])
    target = reclass(target, cls)
    if used:
        target.step(frames(used, seed=1))
    try:
        target.copy_state(source)
        y = target.step(x[:, :, FED:])
    except (ValueError, RuntimeError) as error:
        return str(error)
    return "right" if torch.allclose(y, samples.streaming()(x)[:, :, FED:]) else "wrong"


def share_of_right(outcomes):
    """The verdict on a rule that allows these situations: {name: outcome}."""
    right = sum(outcome == "right" for outcome in outcomes.values())
    verdict = "right" if right == len(outcomes) else "partly" if right else "wrong"
    return verdict, "; ".join(f"{name}: {outcome}" for name, outcome in outcomes.items()) + "."


def same_config():
    """Copies between models of one configuration."""
    return {"same weights, target at the same position": copied(samples.streaming(), used=FED),
            "same weights, new target": copied(samples.streaming()), "other weights": copied(samples.streaming(1))}


@advise("different-depths.trigger", "The copy is refused when the two models have different numbers of layers.",
        "right", "It is the only thing that is compared.")
def trigger():
    deeper, equal = copied(samples.streaming(num_layers=3)), copied(samples.streaming(1))
    return ("right" if "different depths" in deeper and "different depths" not in equal else "wrong",
            f"Three layers and two: {deeper}. Two and two: {'refused' if 'different depths' in equal else 'taken'}.")


@advise("different-depths.zip-truncates",
        "Without the check, copying layer by layer would leave layers out in silence.", "right",
        "Two lists of different lengths are paired up to the shorter one.")
def zip_truncates():
    outcome = copied(samples.streaming(num_layers=3), Zipped)
    return ("right" if outcome == "wrong" else "wrong",
            f"Copied without the check to three layers: {'no error, ' * (outcome == 'wrong')}{outcome}.")


@advise("different-depths.same-config", "Build both models from the same configuration, or compare a hash of it.",
        "partly", "It is needed and not enough: weights and position matter too.")
def config():
    return share_of_right(same_config())


@advise("different-depths.rebuild-and-copy", "Rebuild the target with the source's configuration, then copy.",
        "silently wrong", "The new target stands at position 0, the keys that it gets do not.")
def rebuild_and_copy():
    outcome = copied(samples.streaming())
    return ({"wrong": "silently wrong", "right": "right"}.get(outcome, "impossible"),
            f"The copy to the new target: {'no error, ' * (outcome == 'wrong')}{outcome}.")


@advise("different-depths.rerun-input", "Feed the input to the new model again instead of copying.", "right",
        "Then nothing is copied. It costs one pass over the input.")
@torch.no_grad()
def rerun_input():
    target, x = reclass(samples.streaming(1, num_layers=3), AsPorted), frames()
    target.step(x[:, :, :FED])
    same = torch.allclose(target.step(x[:, :, FED:]), samples.streaming(1, num_layers=3)(x)[:, :, FED:])
    return "right" if same else "wrong", f"A deeper model, fed again: {'right' if same else 'wrong'}."


@advise("different-depths.layers-len", "Compare layers_len() of both before the copy.", "impossible",
        "There is no such method, and in the source the field is private.")
def layers_len():
    found = hasattr(StreamingTransformer, "layers_len")
    public = [name for name in ("step", "reset", "copy_state", "layers_len") if hasattr(StreamingTransformer, name)]
    return "right" if found else "impossible", f"Methods of the port: {', '.join(public)}."


@advise("different-depths.depth-guard", "If the depths are equal, the copy is safe.", "wrong",
        "Depth says nothing of weights, position or memory that is shared.")
def depth_guard():
    unsafe = {name: outcome for name, outcome in same_config().items() if outcome == "wrong"}
    return "wrong" if unsafe else "right", f"Equal depths, no error, wrong all the same: {'; '.join(unsafe)}."


@advise("different-depths.log-depths", "Log the number of layers when a model is built.", "wrong",
        "The numbers are equal in every case that goes wrong without an error.")
def log_depths():
    source, targets = samples.streaming(), (samples.streaming(), samples.streaming(1), samples.streaming(num_layers=3))
    silent = [target for target in targets if copied(target) == "wrong"]
    told = [target for target in silent if len(target.layers) != len(source.layers)]
    return ("wrong" if silent and not told else "right",
            f"Targets whose copy is wrong without an error: {len(silent)}; told by the log: {len(told)}.")


@advise("different-depths.no-hot-swap", "Do not replace a model by one of another size while streams run.", "partly",
        "It avoids the error. A model of the same size is taken in silence.")
def no_hot_swap():
    size, weights = copied(samples.streaming(num_layers=3)), copied(samples.streaming(1))
    loud, silent = "different depths" in size, weights == "wrong"
    return ("partly" if loud and silent else "right" if loud else "wrong",
            f"Another size: {'refused' if loud else size}. The same size, other weights: {weights}, without an error.")
