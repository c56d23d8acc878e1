"""Lesson 02, empty cache: its questions, and the experiments that answer them."""

import itertools

import torch

from .. import faults
from ..contract import check
from ..conv import causal_conv
from ..faults.advice_empty_cache import Port, judge, text
from ..figures import Panel, who_wrote
from ..price_drivers import DRIVERS
from .exercise_02 import EXERCISE, LAYERS, RATES, Calls, layer, play, reference, run_layers, writes_as_it_goes
from .judge import off
from .question import Option, Question, claim

__all__ = ["EXERCISE", "QUESTIONS", "first_call_at_5", "fresh_call", "missing_is_zeros", "noticed", "picture", "prove",
           "relatives", "retry", "two_ways", "window_sources"]

QUESTIONS = {
    "window": Question("02.window", "From lesson 01. K = 4, so the window holds 3 inputs. A chunk of 2 tokens comes. "
                                    "Where do the 3 inputs of the next window come from?", (
        Option((0, 3), "all from the chunk", "The chunk has only 2."),
        Option((1, 2), "1 from the old window, 2 from the chunk", ""),
        Option((3, 0), "all from the old window", "Then the window would never move."),
        Option((0, 2), "2 from the chunk and a zero", "A zero says that the input was 0. It was not."))),
    "fresh": Question("02.fresh", "A fresh model gets its first call: one token, position 5. What comes back?", (
        Option("silently wrong", "a poor answer", "This model is strict: it finds no state, and raises."),
        Option("right", "the same as at position 0", "The position chooses the branch, and this branch wants a state."),
        Option("empty cache despite pos > 0", "an error", ""))),
    "retry": Question("02.retry", "Of three layers, 0 to 2, layer 1 fails in a call with one token. The program makes "
                                  "the same call again, and it goes through. Is the answer right?", (
        Option("right", "yes: the first try did nothing", "It did something: the layers before the failure had moved."),
        Option("wrong", "no", ""),
        Option("refused", "there is no answer: the call is refused", "The position fits, so nobody refuses."))),
    "start_at_zero": claim("02.start_at_zero", "Let the first call start at position 0.", "the report",
                           "On a fresh model it is right. A used model is not reset by position 0 in all its layers."),
    "catch_and_replay": claim("02.catch_and_replay", "Catch the error, feed the prompt at position 0, and repeat the "
                                                     "call.",
                              "the report", "Only the situation of the report is mended. In the others the failed "
                              "call has left a trace, or the calls do not fit."),
    "transfer": Question("02.transfer", "Two requests use one model that keeps its state inside. Both have fed 3 "
                                        "tokens, then they take turns. Which check notices?", (
        Option(("position",), "the position: it does not fit", "Both have the same count, so the position fits."),
        Option(("shape",), "the shapes", "Same layers, same shapes."),
        Option(("finite",), "a look for NaN", "All numbers are fine. They belong to another text."),
        Option((), "none of these", ""))),
}


def window_sources(kernel, chunk):
    """How many columns of the next window come from the old window, and how many from the chunk; measured."""
    window = -torch.arange(1.0, kernel).expand(1, 1, -1)                                        # old inputs are below 0
    _, following = causal_conv(torch.arange(1.0, chunk + 1).expand(1, 1, -1), window, torch.ones(1, kernel))
    return int((following < 0).sum()), int((following > 0).sum())


def fresh_call(position=5):
    """What one token at a position does on a fresh port of the model: the error's text, or a verdict."""
    return judge([(text(position + 1)[:, -1:], position)], wanted=position + 1)


def two_ways():
    """Two rows of calls that end in the report's message: lines with type and text."""
    port = Port(limit=4)
    for words, model, n, position in (("fresh model: 1 token at position 5", Port(), 1, 5),
                                      ("5 tokens at position 0: too many", port, 5, 0),
                                      ("then 1 token at position 1", port, 1, 1)):
        try:
            model(text(n), position)
        except RuntimeError as error:
            yield f"{words:35} {type(error).__name__}: {error}"


def retry(function):
    """4 tokens; the last one fails in layer 1 of 0 to 2, then its call is made again: 'right', 'wrong' or 'refused'."""
    *_, (did, _, y, *_, wanted) = play(function, Calls(((3, 0, None), (1, 3, 1), (1, 3, None))))
    return did if did == "refused" else "wrong" if off(y, wanted, 8 + 8 * wanted.abs().sum()).any() else "right"


def watch(function, name, layers=LAYERS, fails=1):
    """A Panel: the tokens that each layer's state has taken in, call by call; call 3 fails, and is made again."""
    def watched(fail):
        def step(x, seen):
            if fail:
                raise MemoryError
            return x, (seen or ()) + tuple(x[0, :, 0].int().tolist())
        return step
    cache, rows = {"length": 0, "states": [None] * layers}, []
    for token, position, failing in ((1, 0, None), (2, 1, None), (3, 2, fails), (3, 2, None), (4, 3, None)):
        try:
            stack = [watched(i == failing) for i in range(layers)]
            function(stack, torch.full((1, 1, 1), float(token)), position, cache)
        except MemoryError:
            pass
        rows.append([None if not seen else f"{seen[-1]}" + " x2" * (seen.count(3) > 1) for seen in cache["states"]])
    times = ["token 1", "token 2", "token 3 fails", "token 3 again", "token 4"]
    return Panel(name, [f"layer {i}" for i in range(layers)], times, rows)


def picture(*functions):
    """The key picture: whole or not at all, beside each of these functions; none: the one that writes as it goes."""
    functions = functions or (writes_as_it_goes,)
    names = ["writes as it goes" if f is writes_as_it_goes else "your run_layers" for f in functions]
    return who_wrote([watch(run_layers, "whole or not at all"), *map(watch, functions, names)],
                     words={**{t: f"token {t}" for t in "1234"}, "3 x2": "token 3 twice",
                            "4 x2": "token 4 behind a doubled token 3"})


def noticed():
    """Two requests of equal length take turns on one cache: which checks notice?"""
    layers, cache = [layer(a) for a in RATES], {"length": 0, "states": [None] * LAYERS}
    first, second = torch.randn(2, 1, 4, 2, generator=torch.Generator().manual_seed(0))         # (B, L, C)
    run_layers(layers, first[:, :3], 0, cache)
    shapes = [state.shape for state in cache["states"]]
    try:
        y = run_layers(layers, second[:, 3:], 3, cache)         # the other request has fed 3 tokens too, elsewhere
    except ValueError:
        return ("position",), ""
    holds = {"shape": [state.shape for state in cache["states"]] == shapes, "finite": torch.isfinite(y).all()}
    wrong = not torch.allclose(y.double(), reference(second, RATES)[:, 3:], atol=1e-5)
    return (tuple(check for check in holds if not holds[check]),
            f"The answer to B is {'wrong: it continues A' if wrong else 'right'}.")


def relatives(names=("empty-cache", "missing-is-zeros", "refuses-gaps-only", "half-done"), laws=("position", "atomic")):
    """Two lines a fault: what it is, and what each law says."""
    for name in names:
        report = check(faults.get(name).subject(0), laws=laws)
        yield f"{name}: {faults.get(name).record.says}"
        yield "    " + ", ".join(f"{finding.law}: {finding.verdict}" for finding in report.findings)


missing_is_zeros = DRIVERS["missing-is-zeros"]      # for `price`: no state behind the cut, zeros are taken for it


def prove(function):
    """All rows of two calls, also behind a first one, with positions 0 to 3 and one failing layer or none."""
    calls = list(itertools.product((1, 2), range(4), (None, 1)))
    cases = ([Calls(row) for row in itertools.product(calls, repeat=2)] +
             [Calls(((2, 0, None), *row)) for row in itertools.product(calls, repeat=2)])
    return EXERCISE.prove(function, cases, "rows of calls, fitting and not, failing and not")


def first_call_at_5(real):
    """Lines: what the installed RecurrentGemma does with a first call at position 5."""
    ids = torch.arange(3, 9)[None]
    wanted = real.build("recurrent_gemma")(ids, use_cache=False).logits[:, -1]
    try:
        result = real.build("recurrent_gemma")(ids[:, 5:], position_ids=torch.tensor([[5]]), use_cache=True)
    except Exception as error:
        return [f"RecurrentGemma, first call at position 5: {type(error).__name__}: {error}"]
    same = torch.allclose(result.logits[:, -1], wanted)
    return [f"RecurrentGemma, first call at position 5: no error, {'the right' if same else 'another'} answer."]
