"""Lesson 01, the window: its questions, its exercise and the wrong answers it knows."""

import itertools
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from ..conv import causal_conv
from ..figures.conv_window import ConvWindow, bad_positions, cut, kinds, say_cut, trace
from .card import Card
from .exercise import Attempt, Exercise, Misstep, imitates, same
from .judge import NotTried, WrongForm, call, off, strip, want_parts, want_tensor
from .question import Option, Question, claim


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
    window, outputs = x.new_zeros(*x.shape[:2], weight.shape[-1] - 1), []           # (B, C, K-1)
    for piece in x.split(list(sizes), -1):
        y, window = conv(piece, window, weight)
        outputs.append(y)
    return torch.cat(outputs, -1)


def uncut(x, window, weight):
    """The reference, made without any window code: one convolution over the whole sequence, in float64."""
    u = F.pad(torch.cat([window, x], -1).double(), (0, 1))              # one column too many, so that L = 0 can run too
    return F.conv1d(u, weight.double()[:, None], groups=len(weight))[..., :x.shape[-1]]


def attempt(function, case):
    """Feed one sequence piece by piece with copies, and compare every output and every window."""
    x, window, weight = case.data()
    wanted, history, scale = uncut(x, window, weight), torch.cat([window, x], -1), weight.abs().sum() * 3
    bad, fed, notes, problem, error = torch.zeros(wanted.shape, dtype=torch.bool), 0, set(), None, None
    for number, piece in enumerate(x.split(list(case.sizes), -1)):
        end, given = fed + piece.shape[-1], (piece.clone(), window.clone(), weight.clone())
        where = f"piece {number + 1}: " if len(case.sizes) > 1 else ""
        try:
            y, following = want_parts(call(function, *given), ("y", "the next window"))
            want_tensor(y, "y", piece.shape, x.dtype)
            bad[..., fed:end] = off(y, wanted[..., fed:end], scale)
            if bad[..., fed:end].any():
                problem = problem or f"{where}y is wrong"
            fed = end
            want_tensor(following, "the next window", window.shape, x.dtype)
        except WrongForm as form:
            problem = problem or f"{where}{form}"
            break
        except NotTried:
            raise
        except Exception as raised:
            problem, error = problem or f"{where}the function raises {type(raised).__name__}", raised
            break
        if not torch.equal(following, history[..., end:end + case.kernel - 1]):
            problem = problem or f"{where}y is right, the next window is wrong"
        notes.update(remarks(given, (piece, window, weight), following))
        window = following.detach().clone()
    return Attempt(problem, strip(bad, fed), error, tuple(sorted(notes)))


def remarks(given, originals, following):
    """What is worth a word although the values are right."""
    if not all(map(torch.equal, given, originals)):
        yield "A remark: your function changes one of its inputs. A later lesson continues twice from one window; copy first."
    if following.untyped_storage().nbytes() > max(1, following.numel()) * following.element_size():
        yield ("A remark: your next window is a view, so it keeps a longer tensor in memory. "
               "Its values are right; .clone() frees the rest.")


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
        yield Pieces(draw.randint(1, 4), tuple(sizes), draw.randint(2, 5), draw.randint(1, 6),
                     draw.choice((torch.float32, torch.float64, torch.bfloat16)), draw.random() < .7, draw.getrandbits(32))


def one_call(function, case):
    """What one call returns on a case, for the named wrong answers."""
    y, following = call(function, *case.data())
    return y, following


ONE_CALL = [Pieces(kernel, (length,), 2, 3) for kernel in range(2, 5) for length in range(10)]
ALL_CALLS = ONE_CALL + [Pieces(1, (length,), 2, 3) for length in range(10)]


def from_chunk_alone(function):
    """y is right, and the next window is the same whatever the window was; for a long chunk that is right, so it passes."""
    for kernel, length in itertools.product((3, 4), (1, 6)):
        x, window, weight = Pieces(kernel, (length,), 2, 3).data()
        y, following = call(function, x.clone(), window.clone(), weight.clone())
        _, other = call(function, x.clone(), window + 1, weight.clone())
        if not same(y, conv_chunk(x, window, weight)[0]) or not same(following, other):
            return False
        if length == 6 and not same(following, x[..., 7 - kernel:]):
            return False
    return True


def wrong(name, says, *functions, observe=one_call, cases=ONE_CALL):
    """A Misstep that is any one of these faulty functions, by behaviour."""
    looks = [imitates(function, observe, cases, right=conv_chunk) for function in functions]
    return Misstep(name, says, lambda function: any(look(function) for look in looks))


EXERCISE = Exercise(
    id="01.conv_chunk", solution=conv_chunk, attempt=attempt, small=small, fresh=fresh,
    shown=tuple(Pieces(4, sizes, history=False) for sizes in ((12,), (6, 6), (6, 1, 5), (1,) * 12)),
    proof="K = 1 to 4, texts of 0 to 9 tokens, several cuts, pieces of 0 tokens, three dtypes, and fresh random cases",
    missteps=(
        wrong("the past is missing", "Each chunk starts from zeros, so its first K-1 outputs miss the earlier inputs. "
              "Zeros are not neutral: they say that the inputs before were 0.",
              zeros_for_the_past, observe=lambda function, case: one_call(function, case)[0]),
        Misstep("the next window comes from the chunk alone",
                "A chunk shorter than K-1 cannot fill the window by itself. The rest must come from the window that you "
                "were given: take the next window from window ++ x.", from_chunk_alone),
        wrong("the kernel is flipped", "Your first tap meets the newest input. Here the last tap does: "
              "y[t] = weight[0] * oldest + ... + weight[K-1] * newest.",
              flipped, observe=lambda function, case: one_call(function, case)[0]),
        wrong("one column too many", "You carry K columns. The newest tap meets the new input itself, "
              "so only K-1 earlier inputs are needed.", keeps_too_many),
        wrong("minus zero is zero", "For K = 1 your slice starts at -(K-1), which is -0, which is 0: the slice is "
              "everything, where it should be nothing. Count from the front: u[..., L:].", minus_zero, cases=ALL_CALLS),
    ),
    hints=(
        "Where to look: the output at the first token of x needs K-1 inputs that are not in x. Where are they?",
        "What is missing: put window and x together into one tensor u. Output t is a sum over K columns of u that "
        "starts at column t. The next window is the end of u, also when x is short.",
        "Half a line:\n    u = torch.cat([window, x], dim=-1)\n    y = sum(weight[:, k, None] * u[..., ...] for k in range(K))",
    ))


# The questions -----------------------------------------------------------------------------------------------------

FIRST = "Only the first token of a chunk needs the past? Tap 0 looks K-1 tokens back, so K-1 tokens do."
QUESTIONS = {
    "by_hand": Question("01.by_hand", "Inputs 2, 5, 1, 3. Kernel 1, 10, 100 (tap 0 first). What is the output at token 3?", (
        Option(513, "513", "The taps are reversed: the last tap, 100, meets the newest input, 3."),
        Option(152, "152", "That is the output at token 2. At token 3 the newest input is 3."),
        Option(300, "300", "The last tap alone gives 300. The two taps before it read 5 and 1."),
        Option(315, "315", ""))),
    "zeros": Question("01.zeros", "K = 4, two chunks of 6 tokens, and each chunk fills its past with zeros. "
                                  "Which positions of the second chunk (6 to 11) are wrong?", (
        Option((6,), "only 6", FIRST),
        Option((6, 7, 8), "6, 7 and 8", ""),
        Option((6, 7, 8, 9, 10, 11), "all of them", "The error does not travel: a convolution looks K-1 tokens back and "
                                                    "no further. From the fourth token on, the chunk is enough."),
        Option((), "none", "Zeros are not a neutral past. They claim that the earlier inputs were 0."))),
    "ones": Question("01.ones", "The same fault, the same 12 tokens, now in chunks of 1. How many positions are wrong?", (
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
    "left_pad": claim("01.left_pad", "The convolution needs K-1 inputs before the first one. So left-pad with zeros.", "folk", {
        "else": "Two runs, two results: at the start of a text zeros are right, before a later chunk they are wrong.",
        "silently wrong": "Close: before a later chunk it is silently wrong. But at the start of a text it is right."}),
    "long_chunks": claim("01.long_chunks", "Never use chunks shorter than K, then you need no window.", "folk", {
        "else": "No chunk length helps: every later chunk needs the K-1 inputs before it.",
        "silently wrong": "It does fail without an error. But as a rule it is not right for any length, so: wrong.",
        "partly": "It is not right in part: no length from K on gives right outputs."}),
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
    try:
        call(function, torch.zeros(1, 1, 1), torch.zeros(1, 1, 3), torch.zeros(1, 4))
    except NotTried:
        return Card("not tried", "conv_chunk is not tried yet: come back when the check has something to say.")
    except Exception:       # the picture says what it is, in place
        pass
    return explorer(function, "your conv_chunk")


def prove(function, length=8):
    """Feed `length` tokens in every possible cut, for K = 1 to 4. Returns a Card."""
    cuts = [tuple(len(run) for run in "".join("o" + "|" * bar for bar in (*bars, 0)).split("|"))
            for bars in itertools.product((0, 1), repeat=length - 1)]
    cases = [Pieces(kernel, sizes, 2, 3) for sizes in sorted(cuts, key=len) for kernel in range(1, 5)]
    try:
        failed = next((case for case in cases if attempt(function, case).problem), None)
    except NotTried:
        return Card("not tried", "Every cut: conv_chunk is not tried yet, so there is nothing to prove.")
    if failed:
        return Card("wrong", f"Every cut: it fails on {failed}.", ["Run the check above: it names the fault."])
    return Card("right", f"Every cut holds: {len(cuts)} cuts of {length} tokens, K = 1 to 4, {len(cases)} runs, one answer.")
