"""Held-out questions as a measure: does the model answer from the text, however the prompt is cut?"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from .cache import Cache
from .corpus import Example, question
from .tokenizer import tokenizer

CUTS = ("whole", "inside the fact", "behind the fact", "before the question", "one by one")
ANSWER = 3          # tokens: " A", colour, thing


def cut_sizes(example: Example, place: str) -> list[int]:
    """The pieces of a prompt, in tokens, for a place of CUTS."""
    found = tokenizer().encode(example.prompt)
    middle = (example.start + example.end) // 2
    ends = [end for _, end in found.offsets]
    column = {"inside the fact": sum(end <= middle for end in ends),
              "behind the fact": sum(end <= example.end for end in ends),
              "before the question": sum(end <= example.prompt.rindex(" What") for end in ends)}.get(place)
    if column is not None:
        return [column, len(ends) - column]
    return [len(ends)] if place == "whole" else [1] * len(ends)


def feed_pieces(model, ids: Tensor, sizes: Iterable[int], cache: Cache) -> Tensor:
    """Feed ids (B, L) in pieces through one cache; the logits of the last token, (B, vocab_size)."""
    for piece in ids.split(list(sizes), dim=1):
        logits = model(piece, cache)
    return logits[:, -1]


def greedy(model, logits: Tensor, cache: Cache, n: int) -> Tensor:
    """The n likeliest tokens (B, n) behind a cache, one after the other; logits (B, vocab_size) of its last token."""
    tokens = [logits.argmax(-1)]
    while len(tokens) < n:
        tokens.append(model(tokens[-1][:, None], cache)[:, -1].argmax(-1))
    return torch.stack(tokens, 1)


@torch.no_grad()
def answers(model, examples: list[Example], place: str = "whole", feed: Callable = feed_pieces) -> list[str]:
    """What the model says, three tokens each, greedily; examples of the same shape are fed together.

    Args:
        model: model(ids, cache) -> logits.
        examples: questions.
        place: where the prompt is cut, of CUTS.
        feed: feed(model, ids, sizes, cache) -> logits of the last token; a faulty driver may stand here.
    """
    said: list[str] = [""] * len(examples)
    groups: dict[tuple, list[int]] = {}
    prompts = [tokenizer().encode(example.prompt).ids for example in examples]
    for index, example in enumerate(examples):
        groups.setdefault(tuple(cut_sizes(example, place)), []).append(index)
    for sizes, members in groups.items():
        cache = Cache()
        logits = feed(model, torch.tensor([prompts[i] for i in members]), sizes, cache)
        for index, row in zip(members, greedy(model, logits, cache, ANSWER).tolist()):
            said[index] = tokenizer().decode(row)
    return said


def accuracy(model, n: int = 200, place: str = "whole", feed: Callable = feed_pieces, seed: int = 0, **options) -> float:
    """Share of n held-out questions answered word for word; options go to `corpus.question`."""
    examples = [question(10_000 * seed + i, **options) for i in range(n)]
    said = answers(model, examples, place, feed)
    return sum(answer == example.answer.rstrip(".") for answer, example in zip(said, examples)) / n
