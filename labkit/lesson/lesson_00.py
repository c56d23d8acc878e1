"""Lesson 00, start here: its questions, and the experiments that answer them."""

import torch

from ..cache import Cache
from ..price import of_fault, price
from ..recall import feed_pieces, greedy
from ..trained import load
from .exercise_00 import EXERCISE, feed_in_pieces
from .question import Option, Question

__all__ = ["EXERCISE", "QUESTIONS", "costs", "distances", "kind_of", "seen_without_cache", "size_of", "two_answers"]

HIDDEN = "history-lost"         # a lesson keeps a secret until its name is earned: lesson 10
TEXT, ANSWER, TOKENS = ("Ada keeps a red kite.", " Ben sells a blue drum. What does Ada keep?"), "A red kite", 3
QUESTIONS = {
    "hidden": Question("00.hidden", "A trained model has a hidden fault. It reads a text about Ada's red kite, once in "
                                    "one piece and once in two. It is asked what Ada keeps. What does it say to the "
                                    "two pieces?", (
        Option("error", "nothing: there is an error", "There is no error. The program runs, and answers."),
        Option("right", "“A red kite”, as in one piece", "That is what it should say. Look at the second line."),
        Option("noise", "letters without a sense", "It would be easy to notice that. This answer reads well."),
        Option("other", "another answer, in good English", ""))),
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
                                "Which tokens move the logits at token 9? (Tokens count from 0.)", (
        Option((6, 7, 8, 9), "6 to 9", ""),
        Option(tuple(range(10)), "0 to 9", "Without a cache the earlier pieces are gone. Only the piece of "
                                            "token 9 is left."),
        Option((9,), "9 alone", "Within one piece the model reads all tokens up to 9. The third piece starts at 6."),
        Option(tuple(range(6, 12)), "6 to 11", "No token sees a later one: the model reads from left to right."))),
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


@torch.no_grad()
def two_answers(fault=None):
    """What a trained model with a hidden fault answers: (the text in one piece, the same text in two pieces)."""
    model, words, said = load("mamba2"), load.tokenizer(), []
    sizes = [len(words.encode(piece).ids) for piece in TEXT]
    ids = torch.tensor([words.encode("".join(TEXT)).ids])                                   # (1, L)
    with (fault or of_fault(HIDDEN))(model):
        for cut in ([ids.shape[1]], sizes):
            cache = Cache()
            tokens = greedy(model, feed_pieces(model, ids, cut, cache), cache, TOKENS)      # (1, TOKENS)
            said.append(words.decode(tokens[0].tolist()).strip())
    return tuple(said)


def kind_of(answer):
    """What an answer is: 'right', 'other' (an article and two words of the corpus) or 'noise'."""
    from ..corpus import COLOURS, THINGS
    article, colour, thing, *_ = [*answer.split(), "", "", ""]
    fluent = article == "A" and colour in COLOURS and thing in THINGS
    return "right" if answer == ANSWER else "other" if fluent else "noise"


def costs(n=200):
    """Rows of labkit.price: n questions to the model with the hidden fault, in one piece and in two."""
    return price("mamba2", n, ("whole", "behind the fact"), {"a hidden fault": of_fault(HIDDEN)})
