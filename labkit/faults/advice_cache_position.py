"""Advice about the `cache_position` IndexError: a prompt that the cache covers wholly.

Each call was run in the named releases of transformers; `labkit.versions` keeps what happened. The verdict is taken
over all releases from 4.46, the first one with this error.
"""

from functools import partial

import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from ..tokenizer import tokenizer
from ..versions import recorded, since
from .advice import advise

RUNS, REPORT, ISSUE = "recorded runs of transformers", "the report", "huggingface/transformers issue 36151"


def over_releases(case: str) -> tuple[str, str]:
    """A verdict over the releases: does the call give the tokens of an uncached run?"""
    outcomes = {release: cases[case] for release, cases in recorded("cache-position").items() if since(release, "4.46.1")}
    if not outcomes:
        raise LookupError(f"no outcomes of {case} are recorded; run python -m labkit versions --keep")
    right = [release for release, each in outcomes.items() if each.get("right") == each.get("of", -1)]
    loud = [release for release, each in outcomes.items() if "raises" in each]
    verdict = ("right" if len(right) == len(outcomes) else "partly" if right else
               "impossible" if len(loud) == len(outcomes) else "silently wrong")
    errors = sorted({outcomes[release]["raises"] for release in loud})
    counts = {"right": len(right), f"an error ({', '.join(errors)})": len(loud),
              "wrong tokens without an error": len(outcomes) - len(right) - len(loud)}
    return verdict, (f"{len(outcomes)} releases: " + ", ".join(f"{what} in {n}" for what, n in counts.items() if n) + "."
                     + (f" Last right: {right[-1]}." if right and len(right) < len(outcomes) else ""))


@advise("cache-position.not-initialised", "cache_position is empty because the first call never set it up.", "wrong",
        "It is set up, with one position for each token of the prompt. What is left behind the cached ones is empty.")
def not_initialised():
    positions = torch.ones(6, dtype=torch.long).cumsum(0) - 1
    left = positions[6:]
    return ("wrong" if len(positions) == 6 and not len(left) else "right",
            f"{len(positions)} positions are made for 6 tokens; behind 6 cached ones {len(left)} are left.")


@advise("cache-position.add-space", "Add a space to the prompt, then the lengths fit.", "partly",
        "It adds one token, so one is left to feed. A tokenizer that drops spaces adds none, and the prompt is another.")
def add_space():
    words = Tokenizer(models.WordLevel({"I": 0, "have": 1, "a": 2, "dream": 3, "?": 4}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    more = {name: len(each.encode("I have a dream ").ids) - len(each.encode("I have a dream").ids)
            for name, each in (("this lab's tokenizer", tokenizer()), ("one that drops spaces", words))}
    verdict = "partly" if 0 in more.values() and over_releases("one_more_token")[0] == "right" and any(
        more.values()) else "right" if all(more.values()) else "wrong"
    return verdict, "Tokens that the space adds: " + ", ".join(f"{name} {n}" for name, n in more.items()) + "."


for name, case, says, verdict, reason, source in (
        ("manual", "manual", "Give generate a cache_position as long as the prompt.", "silently wrong",
         "Older releases overwrite it, newer ones refuse it. Where it is used, every cached token is fed again.",
         REPORT),
        ("saved", "saved", "Keep the cache_position that the model returns, and give it to generate.", "impossible",
         "No release returns one: outputs have no such field.", REPORT),
        ("new-tokens", "new_tokens", "Give generate only the new tokens, and take the cache from its result.",
         "impossible", "The first call still gives a covered prompt, and generate returns a tensor, which has no "
         "cache.", REPORT),
        ("new-tokens-repaired", "new_tokens_repaired", "The same, with its slips mended: one token uncached, the "
         "cache returned.", "silently wrong", "generate compares the ids with the cache by their number, so it "
         "wants all ids, not the new ones.", REPORT),
        ("crop-n-minus-1", "crop_n_minus_1", "cache.crop(N - 1) before the call, for N cached tokens.", "partly",
         "Right up to 5.19. From 5.20 on crop takes negative numbers only.", ISSUE),
        ("crop-minus-1", "crop_minus_1", "cache.crop(-1) before the call.", "right",
         "One token is left to feed. Keys and values can be cropped; a recurrent state cannot.", ISSUE),
        ("leave-one", "leave_one_uncached", "Cache all tokens of the prompt but the last one.", "right",
         "One token is left to feed. It works for a recurrent state too.", ISSUE)):
    advise(f"cache-position.{name}", says, verdict, reason, RUNS, source)(partial(over_releases, case))


@advise("cache-position.newer-release", "Update: newer releases raise no error on this call.", "silently wrong",
        "From 5.3 on the slice of no tokens became a slice of all tokens.", RUNS, "huggingface/transformers PR 44130")
def newer_release():
    newest = list(recorded("cache-position").values())[-1]["full_prompt"]
    verdict = "wrong" if "raises" in newest else "right" if newest["right"] == newest["of"] else "silently wrong"
    return verdict, f"The newest release run: {newest.get('right', 0)} of {newest.get('of', 0)} tokens right, no error."
