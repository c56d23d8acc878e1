"""Exercise of lesson 04, chunk: a window, then one step a token, for any number of tokens."""

import itertools
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from ..conv import causal_conv as conv_chunk
from .drive import in_pieces
from .exercise import Exercise, Misstep, imitating, same
from .exercise_01 import uncut
from .judge import call


# The right answer and wrong ones -------------------------------------------------------------------------------------

def chunk(x, dt, window, h, weight, step):
    u, window = conv_chunk(x, window, weight)                                       # (B, C, L)
    y = torch.zeros_like(dt)                                                        # (B, L, C)
    for t in range(x.shape[-1]):
        y[:, t], h = step(u[..., t], dt[:, t], h)
    return y, window, h


def one_dt(x, dt, window, h, weight, step):
    """Faulty: the first token's dt for all."""
    return chunk(x, dt[:, :1].expand(dt.shape), window, h, weight, step)


def not_passed_on(x, dt, window, h, weight, step):
    """Faulty: each token starts from the same h."""
    return chunk(x, dt, window, h, weight, lambda u, dt, _: step(u, dt, h))


def raw_inputs(x, dt, window, h, weight, step):
    """Faulty: the steps take x, not the outputs of the convolution."""
    return chunk(x, dt, window, h, torch.eye(weight.shape[1])[-1].to(weight).expand_as(weight), step)


def h_from_zero(x, dt, window, h, weight, step):
    """Faulty: the recurrence starts from zeros."""
    return chunk(x, dt, window, torch.zeros_like(h), weight, step)


def window_from_zero(x, dt, window, h, weight, step):
    """Faulty: the convolution starts from zeros."""
    return chunk(x, dt, torch.zeros_like(window), h, weight, step)


def all_from_zero(x, dt, window, h, weight, step):
    """Faulty: both memories start from zeros."""
    return chunk(x, dt, torch.zeros_like(window), torch.zeros_like(h), weight, step)


def keeps_the_old_window(x, dt, window, h, weight, step):
    """Faulty: returns the window that it was given."""
    y, _, h = chunk(x, dt, window, h, weight, step)
    return y, window, h


# The exercise --------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Chunks:
    """One case: `before` tokens are read by a right layer, then pieces of these sizes by the learner's function."""
    kernel: int
    before: int
    sizes: tuple[int, ...]
    batch: int = 2
    channels: int = 3
    dtype: torch.dtype = torch.float32
    seed: int = 0

    def __str__(self):
        start = f"{self.before} tokens by a right layer, then by yours " if self.before else "from the start: "
        cut = " + ".join(map(str, self.sizes)) if len(set(self.sizes)) > 1 or len(self.sizes) < 3 else \
            f"{len(self.sizes)} times {self.sizes[0]}"
        alone = ", batch of 1" if self.batch == 1 else ""
        return f"K = {self.kernel}; {start}{cut}{alone}{'' if self.dtype == torch.float32 else ', float64'}"

    def data(self):
        """x (B, C, L), dt (B, L, C), weight (C, K), and three numbers a channel for the step, (3, C); float64."""
        draw, length = torch.Generator().manual_seed(self.seed), self.before + sum(self.sizes)

        def random(*shape):
            return torch.randn(*shape, generator=draw).to(self.dtype).double()
        x, weight = random(self.batch, self.channels, length), random(self.channels, self.kernel)
        return x, random(self.batch, length, self.channels).abs(), weight, 0.5 + random(3, self.channels).abs()


def stepper(numbers):
    """step(u, dt, h) -> (y, h) for one token: h = exp(-a*dt)*h + dt*b*u, y = h + c*u."""
    def step(u, dt, h):
        if not u.shape == dt.shape == h.shape:
            raise ValueError(f"step takes one token: u, dt and h are all (B, C). It got u {tuple(u.shape)}, "
                             f"dt {tuple(dt.shape)}, h {tuple(h.shape)}")
        a, b, c = numbers.to(u.dtype)
        h = torch.exp(-a * dt) * h + dt * b * u
        return h + c * u, h
    return step


def reference(case):
    """y (B, L, C) and h after 0, 1, 2, ... tokens (B, L+1, C), by sums over all earlier tokens, in float64."""
    x, dt, weight, (a, b, c) = case.data()
    u = uncut(x, x.new_zeros(*x.shape[:2], case.kernel - 1), weight).mT                         # (B, L, C)
    clock = F.pad(dt, (0, 0, 1, 0)).cumsum(1)                                                   # (B, L+1, C)
    decay = torch.exp(-a * (clock[:, :, None] - clock[:, None, 1:]).clamp(min=0))               # (B, L+1, L, C)
    earlier = torch.ones(clock.shape[1], dt.shape[1]).tril(-1)[..., None]                       # (L+1, L, 1)
    h = (decay * earlier * (dt * b * u)[:, None]).sum(2)                                        # (B, L+1, C)
    return h[:, 1:] + c * u, h


def attempt(function, case):
    """Feed the pieces with copies, and compare every output, window and h."""
    x, dt, weight, numbers = (part.to(case.dtype) for part in case.data())
    y, h_at = reference(case)
    scale, history = 8 + 8 * h_at.abs().max(), F.pad(x, (case.kernel - 1, 0))                   # (B, C, K-1+L)

    def window_at(t):
        return history[..., t:t + case.kernel - 1]                                              # (B, C, K-1)
    return in_pieces(
        function, case, ("y", "the next window", "the next h"),
        [window_at(case.before), h_at[:, case.before].to(case.dtype)],
        given=lambda begin, end, window, h: (x[..., begin:end], dt[:, begin:end], window, h, weight),
        wanted=lambda begin, end: ((y[:, begin:end], scale), (window_at(end), 0), (h_at[:, end], scale)),
        more=[stepper(numbers)], start=case.before, tokens=1)


def small():
    """Fixed cases, simplest first; K = 1, no token and float64 come last."""
    for length, kernel, before in itertools.product([*range(1, 10), 0], (2, 4, 1), (0, 3)):
        cuts = dict.fromkeys([(length,), (1, length - 1), (length // 2, 0, length - length // 2), (1,) * length])
        yield from (Chunks(kernel, before, sizes) for sizes in cuts if sizes and
                    (min(sizes) > 0 or min(sizes) == 0 and length in (0, 4, 9)))
    yield from (Chunks(3, 4, (5, 0, 3), dtype=torch.float64), Chunks(2, 2, (2, 1), batch=1, channels=1))


def fresh(draw):
    """16 random cases."""
    for _ in range(16):
        sizes = tuple(draw.randint(0, 4) for _ in range(draw.randint(1, 3)))
        yield Chunks(draw.randint(1, 4), draw.randint(0, 5), sizes, draw.randint(1, 5), draw.randint(1, 6),
                     draw.choice((torch.float32, torch.float64)), draw.getrandbits(32))


def one_call(function, case, change=None, of=("x", "dt")):
    """What the function returns for the whole of a case, with a window and an h that hold something.

    change: columns of these inputs, `of`, that get other numbers.
    """
    x, dt, weight, numbers = (part.to(case.dtype) for part in case.data())
    if change:
        x, dt = x.clone(), dt.clone()
        x[..., change] += "x" in of
        dt[:, change] += "dt" in of
    window = torch.ones(*x.shape[:2], case.kernel - 1)
    return call(function, x, dt, window, torch.ones_like(dt[:, 0]), weight, stepper(numbers))


def sees_later(of):
    """A `fits`: the first output moves when only the last x, or only the last dt, changes; of: "x" or "dt"."""
    def fits(function):
        first, moved = ([one_call(function, case, change, of)[0][:, 0] for case in CASES[1:]]
                        for change in (None, slice(-1, None)))
        shapes = all(y.shape == (case.batch, case.channels) for y, case in zip(first, CASES[1:]))
        return shapes and same(first, first) and not any(map(same, first, moved))
    return fits


def drops_the_rest(function):
    """The first output is right; later inputs and dts move no output and not the next h."""
    for case in CASES[1:]:
        (y, _, h), (y2, _, h2) = one_call(function, case), one_call(function, case, slice(1, None))
        if not same(y[:, 0], one_call(chunk, case)[0][:, 0]) or not same([y, h], [y2, h2]):
            return False
    return True


CASES = [Chunks(3, 0, (length,)) for length in (1, 2, 5, 8)]


misstep = imitating(chunk, lambda function, case: one_call(function, case)[0], CASES[1:])
EXERCISE = Exercise(
    id="04.chunk", solution=chunk, attempt=attempt, small=small, fresh=fresh,
    shown=(Chunks(3, 0, (12,)), Chunks(3, 4, (8,)), Chunks(3, 4, (1,) * 8)),
    proof="K = 1 to 4, chunks of 0 to 9 tokens, with and without earlier tokens, and fresh random cases",
    missteps=(
        Misstep("dropped chunk", "Your function makes one step, for the first token. The other tokens of the chunk "
                "move nothing: not their outputs, and not the memory. Make one step for each token.", drops_the_rest),
        Misstep("looks ahead", "Your first output moves when only the last input changes. Output t may read the "
                "convolution's column t, not the last one.", sees_later("x")),
        Misstep("a later token's dt", "Your first output moves when only the last dt changes. Each token has its own "
                "dt: dt[:, t].", sees_later("dt")),
        misstep("one dt for all tokens", "You use the first token's dt for the whole chunk. Each token has its own: "
                "dt[:, t].", one_dt),
        misstep("the state is not passed on", "Each token starts from the same h. The h that a step returns is the h "
                "that the next step takes.", not_passed_on),
        misstep("the convolution is left out", "You give step the raw input x[..., t]. It takes what conv_chunk makes "
                "of it: u[..., t].", raw_inputs),
        misstep("the recurrent half is forgotten", "Your window is right, but the recurrence starts from zeros. Start "
                "from the h that you were given.", h_from_zero),
        misstep("the window is forgotten", "Your h is right, but the convolution starts from zeros. Give conv_chunk the "
                "window that you were given.", window_from_zero),
        misstep("history lost", "Both memories start from zeros, so each chunk is read as the start of a text. Use the "
                "window and the h that you were given.", all_from_zero),
        misstep("the old window is returned", "Your outputs are right, but you return the window that you were given. "
                "The next chunk needs the one that conv_chunk returns.", keeps_the_old_window,
                lambda function, case: one_call(function, case)[:2]),
    ),
    hints=(
        "Where to look: how often do you call step in a chunk of 8 tokens? With which u, which dt and which h?",
        "What is missing: conv_chunk takes the whole chunk at once and gives u (B, C, L). Then go through the tokens "
        "in order: token t needs u[..., t] and dt[:, t], and the h that the token before it returned.",
        "Half a line:\n    for t in range(x.shape[-1]):\n        y[:, t], h = step(u[..., t], ..., ...)",
    ))
