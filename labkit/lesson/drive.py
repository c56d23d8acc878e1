"""Drivers: what feeds a sequence piece by piece, to a layer or to a learner's function, and what watches a model."""

import torch

from .exercise import Attempt
from .judge import NotTried, WrongForm, call, off, strip, want_parts, want_tensor


def drawn(*shape, seed=0):
    """Normal numbers of this shape, float64; the same for the same seed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def feed(run, x, sizes, state=None, dim=1):
    """Feed x in pieces along `dim` to run(piece, state) -> (y, state); the outputs joined, and the last state."""
    outputs = []
    for piece in x.split(list(sizes), dim):
        y, state = run(piece, state)
        outputs.append(y)
    return torch.cat(outputs, dim), state


@torch.no_grad()
def fault_strip(name, sizes):
    """The strip of a faulty mixer of the catalogue that is fed pieces of these sizes, against its right twin, uncut."""
    from ..faults import get            # here: the drivers of exercises need no fault
    mixer = get(name).subject(0).mixer
    x = drawn(2, sum(sizes), mixer.hidden_size)                                             # (B, L, hidden_size)
    wanted = get(name).healthy(0).mixer(x)[0]
    return strip(off(feed(mixer, x, sizes)[0], wanted, wanted.abs().max(), ulps=1e6).any(-1))


def in_pieces(function, case, names, carried, given, wanted, more=(), start=0, tokens=-1):
    """Call a learner's function on piece after piece, each with what the last call returned: an Attempt.

    Every part of every result is compared, also with what it is after the last call; the first problem is named.

    Args:
        case: has `sizes` of the pieces and the `dtype` of all tensors.
        names: of the parts of a result: the output, then what goes into the next call.
        carried: what goes into the first call.
        given: given(begin, end, *carried) -> the tensors of one call, copied before each call.
        wanted: wanted(begin, end) -> (right tensor, scale of `off`) for each part; scale 0 asks for the same bits.
        more: further arguments of each call.
        start: tokens that were read before; they count as right.
        tokens: the dimension of the tokens in an output.
    """
    marks, end, notes, problem, error, returned = "." * start, start, set(), None, None, []
    for number, size in enumerate(case.sizes):
        begin, end = end, end + size
        where = f"piece {number + 1}: " if len(case.sizes) > 1 else ""
        originals = given(begin, end, *carried)
        copies = [part.clone() for part in originals]
        try:
            found = want_parts(call(function, *copies, *more), names)
            for name, part, (right, scale) in zip(names, found, wanted(begin, end)):
                want_tensor(part, name, right.shape, case.dtype)
                bad = off(part, right, scale)
                if name == names[0]:
                    marks += strip(bad.movedim(tokens, -1))
                if bad.any():
                    good = "" if name == names[0] else f"{names[0]} is right, "
                    problem = problem or f"{where}{good}{name} is wrong"
        except NotTried:
            raise
        except WrongForm as form:
            problem = problem or f"{where}{form}"
            break
        except Exception as raised:
            problem, error = problem or f"{where}the function raises {type(raised).__name__}", raised
            break
        notes.update(remarks(copies, originals, found[1]))
        returned += [(f"{where}{name}", part, part.clone()) for name, part in zip(names, found)]
        carried = [part.detach().clone() for part in found[1:]]
    changed = next((name for name, part, then in returned if not torch.equal(part, then)), None)
    if changed and not problem:
        problem = f"{changed} was right, but a later call has changed it: return a tensor of its own"
    return Attempt(problem, marks.ljust(start + sum(case.sizes), "!"), error, tuple(sorted(notes)))


def remarks(copies, originals, window):
    """What is worth a word although the values are right."""
    if not all(map(torch.equal, copies, originals)):
        yield ("A remark: your function changes one of its inputs. A later lesson continues twice from one window; "
               "copy first.")
    if window.untyped_storage().nbytes() > max(1, window.numel()) * window.element_size():
        yield ("A remark: your next window is a view, so it keeps a longer tensor in memory. "
               "Its values are right; .clone() frees the rest.")


class Watched:
    """A model that notes what it is fed, and passes everything on: `fed`, a list of ids for each call."""

    def __init__(self, model):
        self._model, self.fed = model, []

    def __call__(self, input_ids, *args, **kwargs):
        logits = self._model(input_ids, *args, **kwargs)
        self.fed.append(input_ids[0].tolist())
        return logits

    forward = __call__

    def __getattr__(self, name):
        return getattr(self._model, name)
