"""Lesson 00, start here: its questions, and the experiments that answer them."""

import torch

from .exercise_00 import EXERCISE, feed_in_pieces
from .question import Option, Question

__all__ = ["EXERCISE", "QUESTIONS", "distances", "seen_without_cache", "size_of"]

QUESTIONS = {
    "pieces": Question("00.pieces", "The same text in one piece, in 2, 7 and 21 pieces, always through one cache. "
                                    "How far are the logits apart?", (
        Option("exact", "exactly equal, to the last digit", "Almost: other sizes add in another order, so "
                                                            "the last digits differ."),
        Option("grows", "farther apart with each cut", "A cut costs nothing: the cache holds all that the model needs. "
                                                       "What you see is rounding."),
        Option("noise", "by rounding alone, however many cuts", ""),
        Option("large", "clearly apart as soon as it is cut", "A cache is more than a help for speed: with it, "
                                                       "nothing of the past is lost."))),
    "no_cache": Question("00.no_cache", "Now each piece is fed without a cache. What happens?", (
        Option("raises", "an error", "Nothing raises. No error does not mean no fault."),
        Option("same", "the same logits, only slower", "That would need the whole text in each call. Here each call "
                                                       "gets its piece alone."),
        Option("silent", "no error, and other logits", ""))),
    "sees": Question("00.sees", "A colleague feeds pieces of 5, 1 and 6 tokens and calls model(piece) each time. "
                                "Which tokens move the logits at token 9?", (
        Option((6, 7, 8, 9), "6 to 9", ""),
        Option(tuple(range(10)), "0 to 9", "Without a cache the earlier pieces are gone. Only the piece of "
                                            "token 9 is left."),
        Option((9,), "9 alone", "Within one piece the model reads all tokens up to 9. The third piece starts at 6."),
        Option(tuple(range(6, 12)), "6 to 11", "No token sees a later one. The model is causal."))),
}


def distances(model, ids, cuts):
    """Largest distance of the logits from those of the uncut text, for each list of sizes in `cuts`."""
    with torch.no_grad():
        whole = model(ids)                                                                  # (1, L, vocab)
        return [float((feed_in_pieces(model, ids, sizes) - whole).abs().max()) for sizes in cuts]


def size_of(errors, scale):
    """What a list of distances means: 'exact', 'noise', 'grows' or 'large'; `scale` is the size of the numbers."""
    if not any(errors):
        return "exact"
    if max(errors) < 1e-4 * scale:
        return "noise"
    return "grows" if errors == sorted(errors) and errors[0] < errors[-1] / 10 else "large"


def seen_without_cache(model, ids, sizes, token):
    """Tokens that move the logits at `token` when each piece is fed alone; found by changing one token at a time."""
    def logits(ids):
        with torch.no_grad():
            return torch.cat([model(piece) for piece in ids.split(sizes, dim=1)], 1)[0, token]     # (vocab,)
    right, moved = logits(ids), []
    for place in range(ids.shape[1]):
        other = ids.clone()
        other[0, place] = (ids[0, place] + 1) % model.config.vocab_size
        if not torch.equal(logits(other), right):
            moved.append(place)
    return tuple(moved)
