"""Advice about the dropped chunk: what the repair of the Mamba2 mixer says about itself.

Not judged: that the CUDA path crashed or mixed up tensors. It needs a GPU; its own author did not run it.
"""

import itertools

import torch

from ..conv import causal_conv
from ..versions import recorded, since
from .advice import advise

PULL, RUNS = "huggingface/transformers PR 46084", "recorded runs of transformers"
BEFORE, CHUNK = 9, 5            # as labkit.real_cases feeds it


def strips(case: str, first: str = "4.53.3", end: str = "5.13.0") -> dict[str, str]:
    """Which positions were right, release by release, from `first` to before `end`; the releases that ran it."""
    found = {release: cases[case]["strip"] for release, cases in recorded("dropped-chunk").items()
             if since(release, first) and not since(release, end) and "strip" in cases.get(case, {})}
    if not found:
        raise LookupError(f"no outcomes of {case} from {first} on are recorded; run python -m labkit versions --keep")
    return found


@advise("dropped-chunk.all-after-first", "The old code drops all tokens of the chunk after its first one.", "partly",
        "True up to 5.4. From 5.5 to 5.12.1, the releases just before the repair, even the first one is wrong: the "
        "window took in the whole chunk.", RUNS, PULL)
def all_after_first():
    chunks = {release: strip[BEFORE:BEFORE + CHUNK] for release, strip in strips("chunk mamba2").items()}
    fits = [release for release, strip in chunks.items() if strip == "." + "X" * (CHUNK - 1)]
    verdict = "right" if len(fits) == len(chunks) else "partly" if fits else "wrong"
    groups = [(strip, [*group]) for strip, group in itertools.groupby(chunks, key=chunks.get)]
    return verdict, f"A chunk of {CHUNK} tokens on a used cache (. right, X wrong): " + "; ".join(
        f"{strip} in {group[0]} to {group[-1]}" for strip, group in groups) + "."


@advise("dropped-chunk.state-ignored", "The old code ignores the cached recurrent state and starts from zeros.", "wrong",
        "The chunk went through the one-token step, and that step does read the state: its first token is right.", RUNS,
        PULL)
def state_ignored():
    first = {release: strip[BEFORE] for release, strip in strips("chunk mamba2", end="5.5.0").items()}
    verdict = "wrong" if "." in first.values() else "right"
    return verdict, f"First token of the chunk right in {list(first.values()).count('.')} of {len(first)} releases to 5.4."


@advise("dropped-chunk.last-k-minus-1", "The cached window holds the last K-1 entries.", "partly",
        "The library keeps K of them. K-1 are needed: the extra one drops out before the sum.", "torch", PULL)
def last_k_minus_1():
    torch.manual_seed(0)
    x, weight = torch.randn(1, 3, 12, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)     # (B, C, L), (C, K)
    wanted = causal_conv(x, torch.zeros(1, 3, 3).double(), weight)[0][..., 6:]
    same = [bool((causal_conv(x[..., 6 - n:], torch.zeros(1, 3, 3).double(), weight)[0][..., n:] - wanted).abs().max()
                 < 1e-12) for n in (2, 3, 4)]
    verdict = "partly" if same == [False, True, True] else "wrong"
    return verdict, "K = 4. Right outputs with 2, 3, 4 columns kept: " + ", ".join("yes" if ok else "no" for ok in same) + "."


@advise("dropped-chunk.fixes-seq-len", "It repairs use_cache with more than one token.", "partly",
        "Chunks of Mamba2 are right from 5.13. Texts of unequal length in one batch stayed wrong until 5.15, and the other "
        "models of the family needed repairs of their own.", RUNS, PULL)
def fixes_seq_len():
    cases = {"chunk mamba2": "a plain chunk of Mamba2", "padded mamba2": "texts of unequal length",
             "chunk jamba": "a chunk of the related Jamba"}
    found = {case: recorded("dropped-chunk")["5.13.0"][case] for case in cases}
    right = {case: "strip" in each and "X" not in each["strip"] for case, each in found.items()}
    verdict = "right" if all(right.values()) else "partly" if right["chunk mamba2"] else "wrong"
    words = {case: "right" if right[case] else each.get("raises", "wrong") for case, each in found.items()}
    return verdict, "In 5.13.0: " + "; ".join(f"{cases[case]}: {word}" for case, word in words.items()) + "."


@advise("dropped-chunk.base-first", "Repair the base model first; the related ones can wait.", "silently wrong",
        "Nothing warns of the others: years of releases answer, without an error, from chunks without their history.",
        RUNS, PULL)
def base_first():
    newest = list(recorded("dropped-chunk"))[-1]
    wrong = [case.split()[1] for case, found in recorded("dropped-chunk")[newest].items()
             if case.startswith("chunk") and "X" in found.get("strip", "")]
    return ("silently wrong" if wrong else "right"), f"Chunks without an error and wrong in {newest}: {', '.join(wrong)}."
