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
BATCH, LENGTH, RATE, WARM_UP, ELSEWHERE = 32, 128, 3e-3, 100, 0.1


def batch(seed: int, step: int, most: int = 7) -> tuple[Tensor, Tensor]:
    """Token ids (BATCH, LENGTH + 1), and the weight of each target in the loss (BATCH, LENGTH)."""
    rng = random.Random(f"{seed} {step}")
    texts = [training_text(rng, rng.randint(min(4, most), most)) for _ in range(BATCH)]
    ids, weights = torch.zeros(BATCH, LENGTH + 1, dtype=torch.long), torch.zeros(BATCH, LENGTH)
    ask, stop = (tokenizer().token_to_id(sign) for sign in "?.")
    for row, found in enumerate(tokenizer().encode_batch(texts)):
        part = torch.tensor(found.ids[:LENGTH + 1])
        ids[row, :len(part)] = part
        inside, flags = False, []
        for token in part.tolist():
            flags.append(inside)
            inside = token == ask or (inside and token != stop)
        answer = torch.tensor(flags[1:])
        weights[row, :len(part) - 1] = torch.where(answer, 1.0, ELSEWHERE)
    return ids, weights


def loss_of(model: HybridLM, ids: Tensor, weights: Tensor) -> Tensor:
    """Weighted mean cross entropy of the next token."""
    logits = model(ids[:, :-1])                                                     # (B, L, vocab_size)
    each = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    return (each * weights.flatten()).sum() / weights.sum()


def train(preset: str, steps: int = 1500, seed: int = 0, folder: Path | None = None, every: int = 100) -> HybridLM:
    """Train one preset.

    Args:
        preset: a name of TRAINED.
        steps: batches of 32 texts.
        seed: of the weights and the texts.
        folder: where an interrupted run is kept and the curve is drawn; None: neither.
        every: steps between two measurements of accuracy, each of which is also a point to go on from.
    """
    model = HybridLM.preset(preset, vocab_size=tokenizer().get_vocab_size(), seed=seed).train()
    optimizer = torch.optim.AdamW(model.parameters(), RATE, betas=(0.9, 0.98), weight_decay=0.01)
    plan = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=min(0.5, WARM_UP / steps))
    history: list[tuple[int, float, float]] = []                                    # step, loss, accuracy
    kept = None if folder is None else folder / f"{preset}-{seed}-{steps}.pt"
    first = 0
    if kept is not None and kept.exists():
        saved = torch.load(kept, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        plan.load_state_dict(saved["plan"])
        first, history = saved["step"], saved["history"]
    bar = tqdm(range(first, steps), initial=first, total=steps, desc=preset)
    for step in bar:
        loss = loss_of(model, *batch(seed, step))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        plan.step()
        if (step + 1) % every == 0 or step + 1 == steps:
            history.append((step + 1, loss.item(), accuracy(model.eval(), 50)))
            model.train()
            bar.set_postfix(loss=f"{loss.item():.3f}", accuracy=f"{history[-1][2]:.2f}")
            if kept is not None:
                kept.parent.mkdir(parents=True, exist_ok=True)
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                            "plan": plan.state_dict(), "step": step + 1, "history": history}, kept)
    if folder is not None:
        curve(preset, history, folder / f"{preset}.png")
    return model.eval()


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
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=data_folder(), help="where the models go")
    args = parser.parse_args(argv)
    for name in args.presets:
        if name not in TRAINED:
            parser.error(f"no preset is named {name!r}; there are {', '.join(TRAINED)}")
    for name in args.presets or TRAINED:
        model = train(name, args.steps, args.seed, args.out / "training")
        model.save(args.out / f"{name}.safetensors")
        print(f"{name}: {accuracy(model, 400):.1%} of 400 held-out questions; {args.out / name}.safetensors")
    return 0
