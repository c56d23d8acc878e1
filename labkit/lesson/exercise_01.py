"""Exercise of lesson 01, conv_chunk, and the wrong answers that it knows."""

import itertools
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from ..figures.conv_window import say_cut
from . import drive
from .drive import in_pieces
from .exercise import Exercise, Misstep, imitating, same
from .judge import call


# The right answer and the wrong ones -------------------------------------------------------------------------------

def conv_chunk(x, window, weight):
    u = torch.cat([window, x], dim=-1)                                              # (B, C, K-1+L)
    taps, length = weight.shape[-1], x.shape[-1]
    y = sum(weight[:, k, None] * u[..., k:k + length] for k in range(taps))         # (B, C, L)
    return y, u[..., length:].clone()                                               # (B, C, K-1)


def zeros_for_the_past(x, window, weight):
    """Faulty: each chunk starts as if nothing came before it."""
    return conv_chunk(x, torch.zeros_like(window), weight)


def flipped(x, window, weight):
    """Faulty: the first tap meets the newest input."""
    return conv_chunk(x, window, weight.flip(-1))


def keeps_too_many(x, window, weight):
    """Faulty: carries K columns."""
    return conv_chunk(x, window, weight)[0], torch.cat([window, x], dim=-1)[..., -weight.shape[-1]:].clone()


def minus_zero(x, window, weight):
    """Faulty for K = 1: [-0:] is the whole tensor."""
    return conv_chunk(x, window, weight)[0], torch.cat([window, x], dim=-1)[..., -(weight.shape[-1] - 1):].clone()


# The exercise ------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Pieces:
    """One case: a sequence, its cut, and a kernel. `history`: the first window holds earlier inputs, not zeros."""
    kernel: int
    sizes: tuple[int, ...]
    batch: int = 1
    channels: int = 2
    dtype: torch.dtype = torch.float32
    history: bool = True
    seed: int = 0

    def __str__(self):
        many = f", batch of {self.batch}" if self.batch > 1 else ""
        dtype = "" if self.dtype == torch.float32 else f", {str(self.dtype).removeprefix('torch.')}"
        past = ", earlier inputs in the window" if self.history else ""
        return f"K = {self.kernel}, {say_cut(self.sizes)}{past}{many}{dtype}"

    def data(self):
        """x (B, C, L), window (B, C, K-1), weight (C, K)."""
        draw = torch.Generator().manual_seed(self.seed)
        window, x = (torch.randn(self.batch, self.channels, n, generator=draw).to(self.dtype)
                     for n in (self.kernel - 1, sum(self.sizes)))
        weight = torch.randn(self.channels, self.kernel, generator=draw).to(self.dtype)
        return x, window if self.history else torch.zeros_like(window), weight


def feed(conv, x, weight, sizes):
    """Outputs (B, C, L) of a convolution that is fed x in pieces of these sizes, from the start of a text."""
    start = x.new_zeros(*x.shape[:2], weight.shape[-1] - 1)                         # (B, C, K-1)
    return drive.feed(lambda piece, window: conv(piece, window, weight), x, sizes, start, -1)[0]


def uncut(x, window, weight):
    """The reference, made without any window code: one convolution over the whole sequence, in float64."""
    u = F.pad(torch.cat([window, x], -1).double(), (0, 1))              # one column too many, so that L = 0 can run too
    return F.conv1d(u, weight.double()[:, None], groups=len(weight))[..., :x.shape[-1]]


def attempt(function, case):
    """Feed one sequence piece by piece with copies, and compare every output and every window."""
    x, window, weight = case.data()
    y, scale = uncut(x, window, weight), uncut(x.abs(), window.abs(), weight.abs())                     # (B, C, L)
    history = torch.cat([window, x], -1)                                                                # (B, C, K-1+L)
    return in_pieces(
        function, case, ("y", "the next window"), [window],
        given=lambda begin, end, window: (x[..., begin:end], window, weight),
        wanted=lambda begin, end: ((y[..., begin:end], scale[..., begin:end]),
                                   (history[..., end:end + case.kernel - 1], 0)))


def small():
    """Fixed cases, simplest first: length, kernel, batch, then the cut. The edges K = 1 and L = 0 come after the
    others: where there is a window and a token, a fault is easier to read. Other dtypes come last."""
    for length, kernel, batch in itertools.product([*range(1, 10), 0], (2, 3, 4, 1), (1, 2)):
        cuts = dict.fromkeys([(length,), *((a, length - a) for a in range(1, length)), (1,) * length,
                              (length, 0), (length // 2, 0, length - length // 2)])
        yield from (Pieces(kernel, sizes, batch, channels=batch + 1) for sizes in cuts if sizes)
    for dtype, kernel in itertools.product((torch.float64, torch.bfloat16), range(1, 5)):
        yield Pieces(kernel, (5, 0, 1, 3), 2, 3, dtype)


def fresh(draw):
    """24 random cases."""
    for _ in range(24):
        rest, sizes = draw.randint(0, 9), []
        while rest or not sizes:
            sizes.append(draw.randint(0, rest))
            rest -= sizes[-1]
        dtype = draw.choice((torch.float32, torch.float64, torch.bfloat16))
        yield Pieces(draw.randint(1, 6), tuple(sizes), draw.randint(2, 5), draw.randint(1, 6), dtype,
                     history=draw.random() < .7, seed=draw.getrandbits(32))


def one_call(function, case):
    """What one call returns on a case, for the named wrong answers."""
    return call(function, *case.data())


ONE_CALL = [Pieces(kernel, (length,), 2, 3) for kernel in range(2, 5) for length in range(10)]
ALL_CALLS = ONE_CALL + [Pieces(1, (length,), 2, 3) for length in range(10)]


def from_chunk_alone(function):
    """y is right, and the next window is the same whatever the window was, which is right for a long chunk alone."""
    for kernel, length in itertools.product((3, 4), (1, 6)):
        x, window, weight = Pieces(kernel, (length,), 2, 3).data()
        y, following = call(function, x.clone(), window.clone(), weight.clone())
        _, other = call(function, x.clone(), window + 1, weight.clone())
        if not same(y, conv_chunk(x, window, weight)[0]) or not same(following, other):
            return False
        if length == 6 and not same(following, x[..., 7 - kernel:]):
            return False
    return True


def outputs(function, case):
    return one_call(function, case)[0]


misstep = imitating(conv_chunk, one_call, ONE_CALL)
EXERCISE = Exercise(
    id="01.conv_chunk", solution=conv_chunk, attempt=attempt, small=small, fresh=fresh,
    shown=tuple(Pieces(4, sizes, history=False) for sizes in ((12,), (6, 6), (6, 1, 5), (1,) * 12)),
    proof="K = 1 to 4, texts of 0 to 9 tokens, several cuts, pieces of 0 tokens, three dtypes, and fresh random cases",
    missteps=(
        misstep("the past is missing", "Each chunk starts from zeros, so its first K-1 outputs miss the earlier "
                "inputs. Zeros are not neutral: they say that the inputs before were 0.",
                zeros_for_the_past, outputs),
        Misstep("the next window comes from the chunk alone",
                "A chunk shorter than K-1 cannot fill the window by itself. The rest must come from the window that "
                "you were given: take the next window from window ++ x.", from_chunk_alone),
        misstep("the kernel is flipped", "Your first tap meets the newest input. Here the last tap does: "
                "y[t] = weight[0] * oldest + ... + weight[K-1] * newest.",
                flipped, outputs),
        misstep("one column too many", "You carry K columns. The newest tap meets the new input itself, "
                "so only K-1 earlier inputs are needed.", keeps_too_many),
        misstep("minus zero is zero", "For K = 1 your slice starts at -(K-1), which is -0, which is 0: the slice is "
                "everything, where it should be nothing. Count from the front: u[..., L:].",
                minus_zero, cases=ALL_CALLS),
    ),
    hints=(
        "Where to look: the output at the first token of x needs K-1 inputs that are not in x. Where are they?",
        "What is missing: put window and x together into one tensor u. Output t is a sum over K columns of u that "
        "starts at column t. The next window is the end of u, also when x is short.",
        "Half a line:\n    u = torch.cat([window, x], dim=-1)\n"
        "    y = sum(weight[:, k, None] * u[..., ...] for k in range(K))",
    ))
