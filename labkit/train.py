"""Make the trained models in data/: `python -m labkit train [PRESET …] [--steps N] [--seed N]`.

Every batch is a function of the seed and the step, so an interrupted run goes on where it stopped and ends with the
same weights. The loss looks at the answers alone: the model must use the text.
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
from .mixers import GatedDeltaNet
from .mixers.mamba import first_dt
from .model import HybridLM
from .recall import accuracy
from .tokenizer import tokenizer

RECIPES = {             # preset: highest learning rate, texts a step, steps
    "mamba": (1e-2, 16, 3000), "mamba2": (1e-2, 16, 3000), "griffin": (6e-3, 16, 3000),
    "gated-delta": (1e-2, 16, 2500), "attention": (4e-3, 32, 2500), "hybrid": (6e-3, 16, 3000)}
TRAINED = ("mamba2", "hybrid")          # those whose weights are in data/
LENGTH, FACTS, WARM_UP, ELSEWHERE = 96, (3, 5), 100, 0.0


def batch(seed: int, step: int, texts: int) -> tuple[Tensor, Tensor]:
    """Token ids (texts, L + 1), and the weight of each target in the loss (texts, L); the longest text sets L."""
    rng = random.Random(f"{seed} {step}")
    rows = []
    for _ in range(texts):
        parts = training_text(rng, rng.randint(*FACTS))
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


def train(preset: str, steps: int | None = None, seed: int = 0, folder: Path | None = None, every: int = 100
          ) -> HybridLM:
    """Train one preset by its recipe; the learning rate falls evenly to 0.

    Args:
        preset: a name of RECIPES.
        steps: how many; those of the recipe unless given.
        seed: of the weights and the texts.
        folder: where an interrupted run is kept and the curve is drawn; None: neither.
        every: steps between two measurements of accuracy, each of which is also a point to go on from.
    """
    rate, texts, planned = RECIPES[preset]
    steps = steps or planned
    model = starting(HybridLM.preset(preset, vocab_size=tokenizer().get_vocab_size(), seed=seed), seed).train()
    optimizer = torch.optim.AdamW(model.parameters(), rate, betas=(0.9, 0.98), weight_decay=0.01)
    history: list[tuple[int, float, float]] = []                                    # step, loss, accuracy
    first = 0
    kept = None if folder is None else folder / f"{preset}-{seed}-{steps}.pt"
    if kept is not None and kept.exists():
        saved = torch.load(kept, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first, history = saved["step"], saved["history"]
    bar = tqdm(range(first, steps), initial=first, total=steps, desc=preset, mininterval=5)
    for step in bar:
        optimizer.param_groups[0]["lr"] = rate * min((step + 1) / WARM_UP, 1 - step / steps)
        loss = loss_of(model, *batch(seed, step, texts))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % every == 0 or step + 1 == steps:
            history.append((step + 1, loss.item(), accuracy(model.eval(), 50)))
            model.train()
            bar.set_postfix(loss=f"{loss.item():.3f}", accuracy=f"{history[-1][2]:.2f}")
            if kept is not None:
                kept.parent.mkdir(parents=True, exist_ok=True)
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1,
                            "history": history}, kept)
    if folder is not None:
        curve(preset, history, folder / f"{preset}.png")
    return model.eval()


@torch.no_grad()
def starting(model: HybridLM, seed: int) -> HybridLM:
    """Weights to train from: layers that start small, long memories, attention heads with a taste for distances."""
    generator = torch.Generator().manual_seed(seed)
    forgetful = {id(module.dt_bias) for module in model.modules() if isinstance(module, GatedDeltaNet)}
    for name, weight in model.named_parameters():
        if name.endswith(("out_proj.weight", "o_proj.weight", "linear_out.weight", "down.weight")):
            weight.mul_(0.5)
        elif name.endswith(("q_proj.bias", "k_proj.bias")):
            weight.normal_(generator=generator)
        elif id(weight) in forgetful:
            weight.copy_(first_dt(len(weight), 0.001, 0.1, 1e-4, generator))
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
    parser.add_argument("presets", nargs="*", metavar="PRESET", help=f"of {', '.join(RECIPES)}; all unless given")
    parser.add_argument("--steps", type=int, help="instead of the recipe's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=data_folder(), help="where the models go")
    parser.add_argument("--work", type=Path, default=Path("build/training"), help="where an interrupted run goes on from")
    args = parser.parse_args(argv)
    for name in args.presets:
        if name not in RECIPES:
            parser.error(f"no recipe is named {name!r}; there are {', '.join(RECIPES)}")
    for name in args.presets or RECIPES:
        model = train(name, args.steps, args.seed, args.work)
        model.save(args.out / f"{name}.safetensors")
        print(f"{name}: {accuracy(model, 400):.1%} of 400 held-out questions; {args.out / name}.safetensors")
    return 0
