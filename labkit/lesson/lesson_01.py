"""Lesson 01, the window: its questions, and the experiments that answer them."""

import torch
import torch.nn.functional as F

from ..figures.conv_window import ConvWindow, bad_positions, cut, kinds, trace
from .card import Card
from .exercise import every_cut
from .exercise_01 import EXERCISE, Pieces, feed, zeros_for_the_past
from .question import Option, Question, claim

__all__ = ["EXERCISE", "QUESTIONS", "columns_needed", "explorer", "feed", "harmless_lengths", "picture", "prove",
           "wrong_positions", "zeros_for_the_past"]

FIRST = "Only the first token of a chunk needs the past? Tap 0 looks K-1 tokens back, so K-1 tokens do."
QUESTIONS = {
    "by_hand": Question("01.by_hand", "Inputs 2, 5, 1, 3. Kernel 1, 10, 100 (tap 0 first). "
                                      "What is the output at token 3? (Tokens count from 0.)", (
        Option(513, "513", "The taps are reversed: the last tap, 100, meets the newest input, 3."),
        Option(152, "152", "That is the output at token 2. At token 3 the newest input is 3."),
        Option(300, "300", "The last tap alone gives 300. The two taps before it read 5 and 1."),
        Option(315, "315", ""))),
    "zeros": Question("01.zeros", "K = 4, two chunks of 6 tokens, and each chunk fills its past with zeros. "
                                  "Which positions of the second chunk (6 to 11) are wrong?", (
        Option((6,), "only 6", FIRST),
        Option((6, 7, 8), "6, 7 and 8", ""),
        Option((6, 7, 8, 9, 10, 11), "all of them", "The error does not travel: a convolution looks K-1 tokens back "
                                                    "and no further. From the fourth token on, the chunk is enough."),
        Option((), "none", "Zeros are not a neutral past. They claim that the earlier inputs were 0."))),
    "ones": Question("01.ones", "The same fault, the same 12 tokens, now in chunks of 1. "
                                "How many positions are wrong?", (
        Option(0, "none", "A chunk of 1 looks harmless, but each token now has no past at all."),
        Option(3, "3", "3 is the count for each later chunk, and a chunk of 1 has only one token to get wrong. "
                       "There are many more chunks now."),
        Option(11, "11", ""),
        Option(12, "all 12", "The first token is right: before it there really is nothing."))),
    "harmless": Question("01.harmless", "K = 4. Move the chunk length from 1 to 11. "
                                        "At which lengths are the missing cells harmless (no wrong position)?", (
        Option((), "at none of them", ""),
        Option((4, 5, 6, 7, 8, 9, 10, 11), "at every length from K on",
               "Long chunks have fewer bad cells, never none: each later chunk needs the inputs before it."),
        Option((6,), "at 6, where the chunks are equal", "Look again at 6: tokens 6, 7 and 8 have bad cells."),
        Option((1,), "at 1", "At 1 almost every position is wrong: no token sees any other."))),
    "left_pad": claim("01.left_pad", "The convolution needs K-1 inputs before the first one. So left-pad with zeros.",
                      "folk", "At the start of a text zeros are right. Before a later chunk they are silently wrong."),
    "dilation": Question("01.dilation", "A kernel of K = 4 taps with dilation 3 reads every third input. "
                                        "How many columns must its window hold?", (
        Option(3, "3", "That is K-1: right without dilation. The oldest tap now looks back farther."),
        Option(4, "4", "That is K. Not even without dilation are that many needed."),
        Option(9, "9", ""),
        Option(12, "12", "That is K times the dilation. Between 4 taps there are only 3 steps."))),
}


def explorer(function=zeros_for_the_past, name="past filled with zeros"):
    """The key picture with its sliders: a function beside the right one."""
    from ..widgets import Explorer
    return Explorer(ConvWindow(function, names=("window carried", name)), kernel=("kernel width K", 1, 4, 4),
                    chunk=("chunk length", 1, 11, 6), position=("token shown", 0, 11, 7))


def wrong_positions(conv, kernel, sizes):
    """Tokens at which a convolution reads wrong inputs when it is fed pieces of these sizes; measured."""
    return tuple(bad_positions(kinds(trace(conv, kernel, sizes), kernel, sizes)))


def harmless_lengths(conv, kernel, length=12):
    """Chunk lengths below `length` at which no position is wrong."""
    return tuple(n for n in range(1, length) if not wrong_positions(conv, kernel, cut(length, n)))


def columns_needed(kernel, dilation):
    """How far back one output reads, measured by its gradient: the number of columns that a window must hold."""
    x = torch.zeros(1, 1, kernel * dilation + 1, requires_grad=True)
    F.conv1d(x, torch.ones(1, 1, kernel), dilation=dilation)[..., -1].sum().backward()
    return x.shape[-1] - 1 - int(x.grad.flatten().nonzero()[0])


def picture(function):
    """The key picture of a learner's own function beside the right one."""
    if not EXERCISE.tried(function):
        return Card("not tried", "conv_chunk is not tried yet: come back when the check has something to say.")
    return explorer(function, "your conv_chunk")


def prove(function, length=8):
    """Feed `length` tokens in every possible cut, for K = 1 to 4. Returns a Card."""
    cuts = [*every_cut(length), (length, 0), (0, length), (length // 2, 0, length - length // 2)]
    return EXERCISE.prove(function, [Pieces(kernel, sizes, 2, 3) for sizes in cuts for kernel in range(1, 5)],
                          f"{len(cuts)} cuts of {length} tokens, K = 1 to 4")
