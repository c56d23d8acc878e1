"""Make the trained models in data/: `python -m labkit train [PRESET …] [--steps N] [--seed N]`.

Every batch is a function of the seed and the step, so an interrupted run goes on where it stopped and ends with the
same weights. The loss looks at the answers alone: the model must use the text.
"""

import argparse
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from .corpus import training_text
from .files import data_folder, replacing
from .mixers import Attention, GatedDeltaNet, Mamba2Mixer, MambaMixer
from .mixers.attention import angles, rotate
from .mixers.mamba import first_dt
from .model import HybridLM
from .recall import accuracy
from .tokenizer import tokenizer


@dataclass(frozen=True)
class Recipe:
    """How one preset is trained.

    Attributes:
        rate: the highest learning rate. steps: how many. texts: in each of them.
        fewest: people in a text, in the first LATE of the steps and after them. most: of them, later in the run.
        alike, colours: see `training_text`.
    """

    rate: float
    steps: int
    texts: int = 32
    fewest: tuple[int, int] = (2, 3)
    most: int = 6
    alike: float = 0.5
    colours: int = 1


RECIPES = {
    "mamba": Recipe(1e-2, 1500, texts=64), "mamba2": Recipe(1e-2, 3000, fewest=(2, 2), most=5, colours=2),
    "griffin": Recipe(4e-3, 3000, fewest=(2, 2), most=5, colours=2), "hybrid": Recipe(6e-3, 3000),
    "attention": Recipe(4e-3, 5000, fewest=(1, 3), alike=0.0),
    "gated-delta": Recipe(8e-3, 3500, fewest=(1, 3), alike=0.0)}
TRAINED = tuple(RECIPES)                # those whose weights are in data/
AGAIN, WARM_UP = 0.6, 100               # a chance (`training_text`), steps of a rising rate
LATE = 0.4                              # share of the steps


def span(recipe: Recipe, done: float) -> tuple[int, int]:
    """The fewest and the most people of a text when this share of the steps is done.

    Few come first: weights that cannot find a fact among two do not learn to find it among six. Five are reached after
    three eighths of the run, six after a quarter of it.
    """
    return recipe.fewest[done >= LATE], min(recipe.most, 2 + int((8 if recipe.most < 6 else 16) * done))


def batch(seed: int, step: int, recipe: Recipe = Recipe(0, 1), done: float = 1.0) -> tuple[Tensor, Tensor]:
    """Token ids (texts, L + 1), and the weight of each target in the loss (texts, L); L is at most 20 a person + 20.

    All texts of a batch tell of the same number of people, see `span`. In half of them a fact may be asked again.
    """
    rng, room = random.Random(f"{seed} {step}"), 20 * recipe.most + 20
    rows, people = [], rng.randint(*span(recipe, done))
    for _ in range(recipe.texts):
        parts = training_text(rng, people, rng.choice((0.0, AGAIN)), recipe.alike, recipe.colours)
        found = tokenizer().encode_batch([part for part, _ in parts])
        ids = [token for part in found for token in part.ids]
        weights = [float(follows) for part, (_, follows) in zip(found, parts) for _ in part.ids]
        rows.append((ids[:room + 1], weights[1:room + 1]))
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
    """Train one preset by its recipe; the learning rate falls evenly to 0, and texts of few facts come first.

    Args:
        preset: a name of RECIPES.
        steps: how many; those of the recipe unless given.
        seed: of the weights and the texts.
        folder: where an interrupted run is kept (`kept_at`) and the curve is drawn; None: neither.
        every: steps between two measurements of accuracy, each of which is also a point to go on from.

    Raises:
        ValueError: no recipe of that name, less than one step, or what was kept is damaged or of another recipe.
    """
    if preset not in RECIPES:
        raise ValueError(f"no recipe is named {preset!r}; there are {', '.join(RECIPES)}")
    recipe = RECIPES[preset]
    steps = recipe.steps if steps is None else steps
    if steps < 1:
        raise ValueError(f"{steps} steps were asked for; there must be at least one")
    model = starting(HybridLM.preset(preset, vocab_size=tokenizer().get_vocab_size(), seed=seed), seed).train()
    optimizer = torch.optim.AdamW(model.parameters(), recipe.rate, betas=(0.9, 0.98), weight_decay=0.01)
    history: list[tuple[int, float, float]] = []                                    # step, loss, accuracy
    first = 0
    kept = None if folder is None else kept_at(folder, preset, seed, steps)
    if kept is not None and kept.exists():
        saved = unfinished(kept, recipe)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first, history = saved["step"], saved["history"]
    bar = tqdm(range(first, steps), initial=first, total=steps, desc=preset, mininterval=5)
    for step in bar:
        optimizer.param_groups[0]["lr"] = recipe.rate * min((step + 1) / WARM_UP, 1 - step / steps)
        loss = loss_of(model, *batch(seed, step, recipe, step / steps))
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
                with replacing(kept) as file:
                    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1,
                                "history": history, "recipe": asdict(recipe)}, file)
    if folder is not None:
        curve(preset, history, folder / f"{preset}.png")
    return model.eval()


def kept_at(folder: Path, preset: str, seed: int, steps: int | None = None) -> Path:
    """The file of an interrupted run; `train` goes on from it, and `main` removes it when the model is saved."""
    return folder / f"{preset}-{seed}-{RECIPES[preset].steps if steps is None else steps}.pt"


def unfinished(path: Path, recipe: Recipe) -> dict:
    """What an interrupted run of this recipe kept."""
    try:
        saved = torch.load(path, weights_only=True)
        other = saved["recipe"] != asdict(recipe)
    except Exception as error:              # torch names no kind of its own: KeyError, RuntimeError, UnpicklingError, …
        raise ValueError(f"{path} should hold an interrupted run, but it cannot be read ({type(error).__name__}); "
                         "remove it to train from the start") from error
    if other:
        raise ValueError(f"{path} is of a run with another recipe; remove it to train from the start")
    return saved


@torch.no_grad()
def starting(model: HybridLM, seed: int) -> HybridLM:
    """Weights to train from: layers that start small, memories of many lengths, first heads that look at a distance.

    The gated delta rule and RG-LRU start with memories that are long and alike. With those, what stood three tokens ago
    is blurred, and finding a fact by its name is not learned in the time.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if name.endswith(("out_proj.weight", "o_proj.weight", "linear_out.weight", "down.weight")):
            weight.mul_(0.5)
        elif name.endswith("recurrent_param"):
            weight.copy_(torch.linspace(-4.5, 1, len(weight)))
    mixers = [layer.mixer for layer in model.layers]
    for mixer in mixers:
        if isinstance(mixer, (MambaMixer, Mamba2Mixer)):
            mixer.A_log.copy_(torch.linspace(-3.5, 0, mixer.A_log.shape[-1]).expand_as(mixer.A_log))
        if isinstance(mixer, GatedDeltaNet):
            mixer.dt_bias.copy_(first_dt(len(mixer.dt_bias), 0.001, 0.1, 1e-4, generator))
    attention = [mixer for mixer in mixers if isinstance(mixer, Attention)]
    for mixer in attention:
        mixer.q_proj.bias.zero_()
        mixer.k_proj.bias.zero_()
    if len(attention) > 1:                      # one looks at the neighbours, a later one finds by what they are
        look_back(attention[0], generator)
    return model


def look_back(mixer: Attention, generator: torch.Generator, gain: float = 4.0) -> None:
    """Biases of query and key with which head i looks at the token i + 1 before: one turned against the other.

    Only the two quickest turns are used: the slow ones hardly tell neighbours apart.
    """
    dim, shared = mixer.head_dim, mixer.num_heads // mixer.num_kv_heads
    quick = torch.arange(dim) % (dim // 2) < 2
    keys = torch.randn(mixer.num_kv_heads, dim, generator=generator) * quick
    keys *= (gain * dim) ** 0.5 / keys.norm(dim=-1, keepdim=True)
    far = torch.arange(1, mixer.num_heads + 1)
    cos, sin = angles(-far[None], dim, mixer.rope_theta, keys.dtype)                    # (1, 1, heads, dim)
    mixer.q_proj.bias.copy_(rotate(keys.repeat_interleave(shared, 0), cos[0, 0], sin[0, 0]).flatten())
    mixer.k_proj.bias.copy_(keys.flatten())


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
    if args.steps is not None and args.steps < 1:
        parser.error(f"--steps {args.steps} was asked for; there must be at least one")
    args.out.mkdir(parents=True, exist_ok=True)             # before the minutes of training, not after them
    for name in args.presets or RECIPES:
        try:
            model = train(name, args.steps, args.seed, args.work)
        except ValueError as error:
            parser.error(str(error))
        model.save(args.out / f"{name}.safetensors")
        kept_at(args.work, name, args.seed, args.steps).unlink()
        print(f"{name}: {accuracy(model, 400):.1%} of 400 held-out questions; {args.out / name}.safetensors")
    return 0
