"""What is said about lost history: the Mamba family of transformers."""

import torch

from . import get
from .advice import advise

# Largest error of a chunk of 5 tokens on a used cache, of logits near 1, in the releases after the change.
# Recorded: tiny random models at unit gain in float64; below 1e-6 is right.
FIVE = {"bamba": (0.0, 0.0, 0.0), "falcon_h1": (0.0, 0.0, 0.0), "granitemoehybrid": (0.0, 0.0, 0.0),
        "zamba2": (9.6, 9.6, 0.0), "nemotron_h": (1.6, float("nan"), 0.0)}
RELEASES = ("5.13.0", "5.14.1", "5.15.1")


@advise("history-lost.five-models", "The change repairs a chunk on a used cache in five models.", "partly",
        "Two of the five also keep a path of their own, which a later release removed.",
        "recorded runs of transformers", "huggingface/transformers PR 46741")
def five_models():
    right = [[name for name, errors in FIVE.items() if errors[i] < 1e-6] for i in range(len(RELEASES))]
    verdict = "right" if len(right[0]) == len(FIVE) else "partly" if right[0] else "wrong"
    counts = ", ".join(f"{len(names)} of {len(FIVE)} in {release}" for names, release in zip(right, RELEASES))
    return verdict, f"Right, by recorded runs: {counts}."


@advise("history-lost.cached-so-used",
        "The layer writes its state into the cache after each call, so the state is used.", "wrong",
        "A field can be written at the end of a call that never read it.", source="folk")
@torch.no_grad()
def cached_so_used():
    mixer = get("recurrent-half-lost").subject(0).mixer
    x = torch.randn(1, 9, mixer.hidden_size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    prefix, chunk = x.split((4, 5), 1)
    before = mixer(prefix)[1]
    y, after = mixer(chunk, before)
    emptied = before.map(lambda name, value: torch.zeros_like(value) if name == "recurrent" else value)
    written = not torch.equal(before.recurrent, after.recurrent)
    moved = float((mixer(chunk, emptied)[0] - y).abs().max())
    return ("wrong" if written and not moved else "right",
            f"The chunk changes the recurrent state: {'yes' if written else 'no'}. "
            f"An output moves when that state is emptied before the chunk: {'yes' if moved else 'no'}.")
