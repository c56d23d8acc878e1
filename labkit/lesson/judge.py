"""Calling a learner's function safely, and saying where two results differ."""

import contextlib
import io
import linecache
import traceback

import torch


class NotTried(Exception):
    """The function is still the stub."""


class WrongForm(Exception):
    """The result has the wrong type, rank, shape or dtype; the message says what was found and what is wanted."""


def call(function, *args):
    """function(*args). The stub raises NotTried; what the function prints is dropped.

    Give it copies: it may change its arguments. A NotImplementedError from deeper down, in torch, is a crash.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            result = function(*args)
    except NotImplementedError as error:
        if traceback.extract_tb(error.__traceback__)[-1].name != getattr(function, "__name__", None):
            raise
        raise NotTried from error
    except SystemExit as error:
        raise RuntimeError("the function leaves Python: SystemExit") from error
    if result is NotImplemented:
        raise NotTried
    return result


def want_tensor(found, name, shape, dtype):
    """Raise WrongForm unless `found` is a tensor of this shape and dtype."""
    if not isinstance(found, torch.Tensor):
        raise WrongForm(f"{name} is {a(found)}, it should be a tensor")
    if found.dim() != len(shape):
        raise WrongForm(f"{name} has {found.dim()} dimensions, it should have {len(shape)}")
    if tuple(found.shape) != tuple(shape):
        raise WrongForm(f"{name} has shape {tuple(found.shape)}, it should have {tuple(shape)}")
    if found.dtype != dtype:
        raise WrongForm(f"{name} is {plain(found.dtype)}, it should be {plain(dtype)}, like the input")


def want_parts(found, names):
    """Raise WrongForm unless `found` is a tuple or list with one part for each name; returns it as a tuple."""
    if not isinstance(found, (tuple, list)) or len(found) != len(names):
        count = f" of {len(found)}" if isinstance(found, (tuple, list)) else ""
        raise WrongForm(f"the function returns {a(found)}{count}, it should return {' and '.join(names)}")
    return tuple(found)


def a(thing):
    """'nothing (None)', 'a tuple', 'an int': the type of a value, for a sentence."""
    name = type(thing).__name__
    return "nothing (None)" if thing is None else f"a{'n' * (name[0].lower() in 'aeio')} {name}"


def a_list(thing):
    """As `a`, and of a list or tuple also what it holds: 'a list of Tensor'."""
    return f"{a(thing)} of {type(thing[0]).__name__}" if isinstance(thing, (list, tuple)) and thing else a(thing)


def plain(dtype):
    return str(dtype).removeprefix("torch.")


def off(found, wanted, scale, ulps=8):
    """Where `found` is farther from `wanted` than rounding explains, as a bool tensor.

    The limit is `ulps` units of rounding of found's own dtype, at the size `scale`: a number, or a tensor like wanted
    that holds the sum of the sizes of what was added. NaN is always off.
    """
    limit = ulps * torch.finfo(found.dtype).eps * scale
    return ~((found.double() - wanted.double()).abs() <= limit)


def strip(bad, fed=None):
    """'....XXX.': a letter a token; `bad` (..., L) bool. Tokens from `fed` on were never answered: '!'."""
    columns = bad.flatten(0, -2).any(0).tolist()
    fed = len(columns) if fed is None else fed
    return "".join("!" if t >= fed else "X" if wrong else "." for t, wrong in enumerate(columns))


def own_line(error, function):
    """The line of the learner's own code that raised, as (number, text); None when no line is theirs."""
    code = getattr(function, "__code__", None)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if code and frame.filename == code.co_filename:
            return frame.lineno, linecache.getline(frame.filename, frame.lineno).strip() or (frame.line or "").strip()
    return None
