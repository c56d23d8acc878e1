"""Make the trained models in data/: `python -m labkit train [PRESET …] [--steps N] [--seed N]`.

Every batch is a function of the seed and the step, so an interrupted run goes on where it stopped and ends with the
same weights. Half of the loss stands on the answers: the model must use the text.
"""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from .corpus import training_text
from .files import data_folder
from .model import PRESETS, HybridLM
from .recall import accuracy
from .tokenizer import tokenizer

TRAINED = tuple(name for name in PRESETS if name != "short-conv")
LENGTH, RATE, WARM_UP, COOL_DOWN, ELSEWHERE = 128, 6e-3, 100, 400, 0.0
BATCH = 32
LEARNED = 0.9           # this accuracy on 50 questions starts the cool-down


def batch(seed: int, step: int, most: int = 7) -> tuple[Tensor, Tensor]:
    """Token ids (BATCH, L + 1), and the weight of each target in the loss (BATCH, L); the longest text sets L."""
    rng = random.Random(f"{seed} {step}")
    rows = []
    for _ in range(BATCH):
        parts = training_text(rng, rng.randint(min(4, most), most))
        found = tokenizer().encode_batch([part for part, _ in parts])
        ids = [token for part in found for token in part.ids]
        weights = [1.0 if follows else ELSEWHERE for part, (_, follows) in zip(found, parts) for _ in part.ids]
        rows.append((ids[:LENGTH + 1], weights[1:LENGTH + 1]))
    length = max(len(ids) for ids, _ in rows)
    return (torch.tensor([ids + [0] * (length - len(ids)) for ids, _ in rows]),
            torch.tensor([weights + [0.0] * (length - 1 - len(weights)) for _, weights in rows]))


def loss_of(model: HybridLM, ids: Tensor, weights: Tensor) -> Tensor:
    """Weighted mean cross entropy of the next token."""
    logits = model(ids[:, :-1])                                                     # (B, L, vocab_size)
    each = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    return (each * weights.flatten()).sum() / weights.sum()


def train(preset: str, steps: int = 5000, seed: int = 0, folder: Path | None = None, every: int = 100,
          rate: float = RATE) -> HybridLM:
    """Train one preset: until it answers nine of ten questions, and then a cool-down; `steps` at most.

    Args:
        preset: a name of TRAINED.
        steps: batches of 32 texts, at most.
        seed: of the weights and the texts.
        folder: where an interrupted run is kept and the curve is drawn; None: neither.
        every: steps between two measurements of accuracy, each of which is also a point to go on from.
        rate: the highest learning rate.
    """
    model = starting(HybridLM.preset(preset, vocab_size=tokenizer().get_vocab_size(), seed=seed), seed).train()
    optimizer = torch.optim.AdamW(model.parameters(), rate, betas=(0.9, 0.98), weight_decay=0.01)
    history: list[tuple[int, float, float]] = []                                    # step, loss, accuracy
    first, end = 0, steps
    kept = None if folder is None else folder / f"{preset}-{seed}.pt"
    if kept is not None and kept.exists():
        saved = torch.load(kept, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first, end, history = saved["step"], min(saved["end"], steps), saved["history"]
    bar = tqdm(range(first, steps), initial=first, total=steps, desc=preset, mininterval=5)
    for step in bar:
        if step >= end:
            break
        optimizer.param_groups[0]["lr"] = rate * min(1, (step + 1) / WARM_UP, (end - step) / COOL_DOWN)
        loss = loss_of(model, *batch(seed, step))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % every == 0 or step + 1 == end:
            history.append((step + 1, loss.item(), accuracy(model.eval(), 50)))
            model.train()
            bar.set_postfix(loss=f"{loss.item():.3f}", accuracy=f"{history[-1][2]:.2f}")
            if history[-1][2] >= LEARNED and end == steps:
                end = min(steps, step + 1 + COOL_DOWN)
            if kept is not None:
                kept.parent.mkdir(parents=True, exist_ok=True)
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1,
                            "end": end, "history": history}, kept)
    if folder is not None:
        curve(preset, history, folder / f"{preset}.png")
    return model.eval()


@torch.no_grad()
def starting(model: HybridLM, seed: int) -> HybridLM:
    """Weights to train from: layers that start small, and attention heads that start with a taste for distances."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if name.endswith(("out_proj.weight", "o_proj.weight", "linear_out.weight", "down.weight")):
            weight.mul_(0.5)
        elif name.endswith(("q_proj.bias", "k_proj.bias")):
            weight.normal_(generator=generator)
    return model


def curve(preset: str, history: Sequence[tuple[int, float, float]], path: Path) -> None:
    """Draw loss and accuracy against the step."""
    from matplotlib.figure import Figure
    figure = Figure(figsize=(6, 3), layout="constrained")
    left = figure.subplots()
    steps, losses, accuracies = zip(*history)
    left.plot(steps, losses, "o-", color="#0072b2", label="loss")
    left.set(xlabel="step", ylabel="loss", title=f"{preset}: training")
    right = left.twinx()
    right.plot(steps, accuracies, "s--", color="#d55e00", label="accuracy")
    right.set(ylabel="accuracy on 50 held-out questions", ylim=(0, 1.02))
    figure.legend(loc="outside lower center", ncols=2)
    figure.savefig(path, dpi=90)


def main(argv: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser("labkit train", description=__doc__.splitlines()[0])
    parser.add_argument("presets", nargs="*", metavar="PRESET", help=f"of {', '.join(TRAINED)}; all unless given")
    parser.add_argument("--steps", type=int, default=5000, help="at most, of 32 texts each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=data_folder(), help="where the models go")
    parser.add_argument("--work", type=Path, default=Path("build/training"), help="where an interrupted run goes on from")
    args = parser.parse_args(argv)
    for name in args.presets:
        if name not in TRAINED:
            parser.error(f"no preset is named {name!r}; there are {', '.join(TRAINED)}")
    for name in args.presets or TRAINED:
        model = train(name, args.steps, args.seed, args.work)
        model.save(args.out / f"{name}.safetensors")
        print(f"{name}: {accuracy(model, 400):.1%} of 400 held-out questions; {args.out / name}.safetensors")
    return 0
