"""What is said about lost history: the Mamba family of transformers."""

import torch

from ..versions import recorded
from . import get
from .advice import advise

FIVE, RELEASES = ("bamba", "falcon_h1", "granitemoehybrid", "zamba2", "nemotron_h"), ("5.13.0", "5.14.1", "5.15.1")


@advise("history-lost.five-models", "The change repairs a chunk on a used cache in five models.", "partly",
        "Two of the five also keep a path of their own, which a later release removed.",
        "recorded runs of transformers", "huggingface/transformers PR 46741")
def five_models():
    found = recorded("dropped-chunk")
    right = {release: [name for name in FIVE if "X" not in found[release][f"chunk {name}"].get("strip", "X")]
             for release in RELEASES}
    verdict = "right" if len(right["5.13.0"]) == len(FIVE) else "partly" if right["5.13.0"] else "wrong"
    counts = ", ".join(f"{len(names)} of {len(FIVE)} in {release}" for release, names in right.items())
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
    written = not torch.equal(before.recurrent, after.recurrent)
    moved = float((mixer(chunk, before.emptied("recurrent"))[0] - y).abs().max())
    return ("wrong" if written and not moved else "right",
            f"The chunk changes the recurrent state: {'yes' if written else 'no'}. "
            f"An output moves when that state is emptied before the chunk: {'yes' if moved else 'no'}.")
