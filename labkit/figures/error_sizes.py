"""Error sizes: how far two answers are apart when both are right, and when one is faulty. All measured."""

import math

import torch
from matplotlib.figure import Figure

from ..conv import causal_conv


def measure(faulty, kernel=4, sizes=(6, 6), channels=64, seed=0):
    """Largest relative error of four programs against one float64 answer; a dict label -> float.

    'another order' adds the same products in another order, so it is right. bf16's own error is that of one uncut,
    right run in bfloat16. `faulty` is a conv(x, window, weight) -> (y, window), fed piece by piece in each dtype.
    """
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(1, channels, sum(sizes), generator=draw)         # float32
    weight = torch.randn(channels, kernel, generator=draw)

    def feed(conv, dtype, sizes):
        window, parts = torch.zeros(1, channels, kernel - 1, dtype=dtype), []
        for piece in x.to(dtype).split(list(sizes), dim=-1):
            y, window = conv(piece, window, weight.to(dtype))
            parts.append(y)
        return torch.cat(parts, dim=-1).double()                                                   # (1, C, L)
    exact = feed(causal_conv, torch.float64, [sum(sizes)])

    def error(y):
        return float((y - exact).abs().max() / exact.abs().max())
    return {
        "float32, right, another order": error(feed(other_order, torch.float32, sizes)),
        "bf16, right, uncut: bf16's own error": error(feed(causal_conv, torch.bfloat16, [sum(sizes)])),
        "bf16, right, cut": error(feed(other_order, torch.bfloat16, sizes)),
        "float32, faulty, cut": error(feed(faulty, torch.float32, sizes)),
        "bf16, faulty, cut": error(feed(faulty, torch.bfloat16, sizes)),
    }


def other_order(x, window, weight):
    """The right convolution, with the products added from the newest tap to the oldest."""
    y, _ = causal_conv(torch.cat([window, x], -1).flip(-1), torch.zeros_like(window), weight.flip(-1))
    return y[..., window.shape[-1]:].flip(-1), torch.cat([window, x], -1)[..., x.shape[-1]:]


def below(error):
    """The next power of ten above the error, as text: 'below 1e-7'."""
    return f"below 1e{math.floor(math.log10(error)) + 1}" if error else "exactly 0"


def above(error):
    """The next power of ten below the error, as text: 'above 1e-1'."""
    return f"above 1e{math.floor(math.log10(error))}" if error else "exactly 0"


def error_sizes(faulty, **options):
    """A chart of the errors that `measure` finds: (Figure, sentence)."""
    errors = measure(faulty, **options)
    figure = Figure((9.6, 2.9), dpi=100)
    ax = figure.add_axes((.33, .2, .64, .72))
    for row, (name, error) in enumerate(errors.items()):
        wrong = "faulty" in name
        ax.barh(row, math.log10(max(error, 1e-9)) + 9, left=-9, height=.62, fc="#D55E00" if wrong else "#56B4E9",
                ec="#333333", hatch="xxx" if wrong else "")
        ax.text(math.log10(max(error, 1e-9)) + .08, row, (above if wrong else below)(error), va="center", fontsize=10)
    ax.set(yticks=range(len(errors)), yticklabels=list(errors), xlim=(-9, 1.2), ylim=(len(errors) - .5, -.5),
           xticks=range(-8, 1, 2), xticklabels=[f"1e{n}" for n in range(-8, 1, 2)])
    ax.set_xlabel("largest error / largest output (each step to the right: 100 times more)", fontsize=9.5)
    ax.tick_params(labelsize=9.5)
    ax.spines[["top", "right"]].set_visible(False)
    rounding, own, cut, fault, low = errors.values()
    gap = math.floor(math.log10(fault)) - math.ceil(math.log10(rounding)) if fault and rounding else 0
    return figure, (
        f"float32: rounding stays {below(rounding)}, the faulty cut is {above(fault)}"
        + (f": more than 1e{gap} times as much. " if gap > 2 else ": no fault to see. ")
        + f"bf16: its own error is {below(own)}; the right cut stays {'within' if cut <= 4 * own else 'NOT within'} "
          f"4 times that, the faulty cut {'does not' if low > 4 * own else 'does too'}.")
