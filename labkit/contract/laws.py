"""The laws: what must hold for every state, each as cases that can be run, compared and made smaller.

A law is a generator of cases. A case says in words what it does, and runs it: it returns what was found and what was
wanted, position by position. The checker compares, and shrinks the first case that fails.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .subjects import has, whole

REFUSALS = (ValueError, NotImplementedError)        # errors that say no; anything else is a crash


class NotSupported(Exception):
    """The subject cannot express a law; the text says what it lacks."""


class WrongShape(Exception):
    """The subject gave outputs for another number of rows or tokens than it was fed; the text says which."""


@dataclass(frozen=True)
class Case:
    """One experiment.

    Attributes:
        words: what is done, for the report.
        run: () -> (found, wanted), tensors (B, L, …) of the positions compared; or raises.
        size: small cases are better counterexamples.
        refusal: an error of REFUSALS is as good as the right answer.
        must_refuse: only an error is right; `run` returns None when the call was accepted.
    """

    words: str
    run: Callable
    size: tuple = ()
    refusal: bool = False
    must_refuse: bool = False


@dataclass
class Lab:
    """What the laws draw from: the subject, a seed, sizes."""

    subject: object
    seed: int
    batch: int = 3

    def draw(self, batch: int, length: int, salt: int = 0) -> Tensor:
        """Random input, the same for the same arguments."""
        return self.subject.sample(batch, length, torch.Generator().manual_seed(self.seed + 7919 * salt + length))

    def need(self, *features: str) -> None:
        """Raise NotSupported unless the subject has all of these."""
        missing = [feature for feature in features if not has(self.subject, feature)]
        if missing:
            raise NotSupported(f"the subject has no {' and no '.join(missing)}")

    def feed(self, x: Tensor, cuts, state=None, mask: Tensor | None = None):
        """Feed x in pieces; the joined outputs and the last state."""
        outputs, at = [], 0
        state = self.subject.start() if state is None else state
        for size in cuts:
            given = {} if mask is None else {"mask": mask[:, at:at + size]}
            y, state = self.subject.feed(x[:, at:at + size], state, **given)
            if y.shape[:2] != (len(x), size):
                raise WrongShape(f"outputs {tuple(y.shape)} for {len(x)} rows of {size}")
            outputs.append(y)
            at += size
        return torch.cat(outputs, 1), state

    def alone(self, x: Tensor, cuts) -> Tensor:
        """Outputs of the same pieces with nothing else around them: what most laws compare with.

        So each law is about its own operation: a subject that is wrong at a cut fails `split`, and not `fork` too.
        """
        getattr(self.subject, "fresh", int)()
        return self.feed(x, cuts)[0]


def split(lab: Lab) -> Iterator[Case]:
    """Any cut of the sequence gives the same outputs and the same state."""
    rng, length = random.Random(lab.seed), 10
    cuts = [[a, b] for a in range(1, 6) for b in range(1, 6)]                   # smallest first: these are the answers
    cuts += [[a, length - a] for a in range(1, length)] + [[1] * length, [4, 1, 1, 1, 3], [5, 1, 4], [2, 2, 2, 2, 2]]
    cuts += [[70], [1, 69], [66, 1, 3], [65, 5]]
    for _ in range(6):
        parts, left = [], rng.randint(4, 24)
        while left:
            parts.append(rng.randint(1, left))
            left -= parts[-1]
        cuts.append(parts)
    for parts in cuts:
        for batch in (1, lab.batch) if sum(parts) <= 6 or max(parts) == 1 else (lab.batch,):
            yield split_case(lab, parts, batch)


def split_case(lab: Lab, parts: list[int], batch: int) -> Case:
    """Feed in these pieces, then two more tokens one by one, which read the state."""
    def run():
        x = lab.draw(batch, sum(parts) + 2)
        return lab.feed(x, [*parts, 1, 1])[0], whole(lab.subject, x)
    first, *later = parts
    words = f"prefill {first}" + "".join(f", then {'1 token' if n == 1 else f'a chunk of {n}'}" for n in later)
    rows = "" if batch == 1 else f" ({batch} rows)"
    return Case(words + rows, run, (sum(parts), len(parts), batch, max(parts)))


def empty(lab: Lab) -> Iterator[Case]:
    """Zero new tokens change nothing."""
    for parts in ([0, 1, 4], [1, 0, 0, 1, 4], [4, 0, 0, 1, 4], [3, 0, 0, 1, 6], [5, 0, 5]):
        def run(parts=parts):
            x = lab.draw(2, sum(parts))
            return lab.feed(x, parts)[0], whole(lab.subject, x)
        yield Case(f"feed {', then '.join(str(n or 'none') for n in parts)}", run, (sum(parts),))


def causal(lab: Lab) -> Iterator[Case]:
    """Output t does not depend on later inputs, in a first chunk or a later one."""
    for before, chunk in ((0, 2), (0, 6), (1, 2), (3, 5), (4, 2)):
        for changed in sorted({chunk - 1, chunk // 2}):
            if not changed:
                continue

            def run(before=before, chunk=chunk, changed=changed):
                x = lab.draw(2, before + chunk)
                y = torch.cat([x[:, :before + changed], lab.draw(2, before + chunk, 1)[:, before + changed:]], 1)
                cuts = [before, chunk] if before else [chunk]
                return lab.alone(y, cuts)[:, :before + changed], lab.alone(x, cuts)[:, :before + changed]
            where = f"a chunk of {chunk}" + (f" after {before}" if before else "")
            yield Case(f"{where}: change its inputs from position {changed} on", run, (before + chunk, chunk - changed))


def rows(lab: Lab) -> Iterator[Case]:
    """A batch equals its rows alone."""
    for parts in ([5], [3, 1, 1], [1, 4], [2, 3, 1]):
        def run(parts=parts):
            x = lab.draw(lab.batch, sum(parts))
            return lab.feed(x, parts)[0], torch.cat([lab.alone(x[i:i + 1], parts) for i in range(lab.batch)])
        yield Case(f"{lab.batch} rows fed as {parts}, against each alone", run, (sum(parts),))


PADDINGS = {"left": (0, 0, 1, 1, 1, 1), "right": (1, 1, 1, 1, 0, 0), "middle": (1, 1, 0, 0, 1, 1),
            "much left": (0, 0, 0, 0, 1, 1)}
PADDED_CALLS = (("first call", 0, [6], ("left", "right", "middle", "much left")),
                ("two calls", 0, [3, 3], ("left", "much left")),
                ("continued call", 4, [6], ("left", "right", "middle")),
                ("one column at a time", 4, [1] * 6, ("left", "middle")),
                ("two columns at a time", 4, [2] * 3, ("left", "middle")),
                ("one column at a time, from the start", 0, [1] * 6, ("left", "right")))


def padding(lab: Lab) -> Iterator[Case]:
    """Padding before, after or between changes no real output, on the first call and on a continued one."""
    lab.need("mask")
    for calls, before, parts, sides in PADDED_CALLS:
        for side in sides:
            pattern = PADDINGS[side]

            def run(before=before, parts=parts, pattern=pattern):
                x = lab.draw(2, before + 6 + 2)
                mask = torch.ones(2, before + 8, dtype=torch.bool)
                mask[0, before:before + 6] = torch.tensor(pattern, dtype=torch.bool)
                cuts = [*([before] if before else []), *parts, 1, 1]
                found = lab.feed(x, cuts, mask=mask)[0]
                wanted = found.clone()
                for row in range(2):
                    real = [int(piece.sum()) for piece in mask[row].split(cuts)]
                    wanted[row, mask[row]] = lab.alone(x[row:row + 1, mask[row]], [n for n in real if n])[0]
                real = mask.view(*mask.shape, *[1] * (found.dim() - 2))
                return torch.where(real, found, 0), torch.where(real, wanted, 0)
            yield Case(f"{side} padding in row 0, {calls}" + (f" after {before} tokens" if before else ""), run,
                       (len(parts), before))


def fork(lab: Lab) -> Iterator[Case]:
    """Continuing twice from one state gives the same; a state that was handed over is never changed."""
    lab.need("fork")
    for before, other, after in ((1, 1, 1), (3, 1, 1), (3, 1, 4), (5, 3, 2), (12, 8, 1), (40, 8, 2), (90, 20, 3)):
        def run(before=before, other=other, after=after):
            x, y = lab.draw(2, before + after), lab.draw(2, before + other, 1)
            _, state = lab.feed(x, [before])
            twin = lab.subject.fork(state)
            lab.feed(y[:, before:], [other], twin)                              # the other branch goes its own way
            second = lab.subject.fork(state)
            found = torch.cat([lab.feed(x[:, before:], [after], state)[0], lab.feed(x[:, before:], [after], second)[0]])
            return found, lab.alone(x, [before, after])[:, before:].repeat(2, *[1] * (found.dim() - 1))
        yield Case(f"prefill {before}, fork, feed {other} other tokens to the fork, then {after} to the source", run,
                   (before, other, after))


def sessions(lab: Lab) -> Iterator[Case]:
    """Two conversations interleaved on one model equal the two alone."""
    for parts in ([2, 1], [3, 1, 1], [1, 3], [4, 2, 1, 3]):
        def run(parts=parts):
            texts, states, at = [lab.draw(2, sum(parts), 1), lab.draw(2, sum(parts), 2)], [None, None], 0
            outputs = [[], []]
            for size in parts:
                for i in (0, 1):
                    state = lab.subject.start() if states[i] is None and not at else states[i]
                    y, states[i] = lab.subject.feed(texts[i][:, at:at + size], state)
                    outputs[i].append(y)
                at += size
            return torch.cat([torch.cat(y, 1) for y in outputs]), torch.cat([lab.alone(x, parts) for x in texts])
        yield Case(f"two texts in turns, fed as {parts}", run, (sum(parts),))


def select(lab: Lab) -> Iterator[Case]:
    """Reordering, dropping or repeating rows commutes with feeding."""
    lab.need("select")
    for chosen in ([1, 0, 2], [2], [0, 0, 1], [2, 1]):
        for before, after in ((4, 1), (3, 3), (1, 4)):
            def run(chosen=chosen, before=before, after=after):
                x = lab.draw(3, before + after)
                _, state = lab.feed(x, [before])
                state = lab.subject.select(state, chosen)
                found = lab.feed(x[chosen][:, before:], [after], state)[0]
                return found, lab.alone(x, [before, after])[chosen][:, before:]
            yield Case(f"prefill {before}, select rows {chosen}, feed {after}", run, (before + after, len(chosen)))


def rewind(lab: Lab) -> Iterator[Case]:
    """Going back and feeding again equals never having gone; or a clear refusal, with nothing changed."""
    lab.need("rewind")
    for before, gone, after in ((3, 1, 1), (4, 1, 3), (4, 3, 2), (6, 4, 1), (12, 6, 2)):
        for kept in (False, True):
            if kept and not has(lab.subject, "keep"):
                continue

            def run(before=before, gone=gone, after=after, kept=kept):
                x, y = lab.draw(2, before + after), lab.draw(2, before + gone, 1)
                _, state = lab.feed(x, [before])
                state = lab.subject.keep(state) if kept else state
                _, state = lab.feed(y[:, before:], [gone], state)
                try:
                    state = lab.subject.rewind(state, before)
                except REFUSALS:                            # refused: the state must go on from where it was
                    z = torch.cat([x[:, :before], y[:, before:], x[:, before:]], 1)
                    found = lab.feed(x[:, before:], [after], state)[0]
                    return found, lab.alone(z, [before, gone, after])[:, before + gone:]
                return lab.feed(x[:, before:], [after], state)[0], lab.alone(x, [before, after])[:, before:]
            yield Case(f"prefill {before}{', keep it' if kept else ''}, feed {gone} tokens, go back, feed {after} others",
                       run, (before, gone, after))


def reset(lab: Lab) -> Iterator[Case]:
    """A reset session equals a new one, also with another number of rows."""
    lab.need("reset")
    for before, batch, parts in ((2, 2, [1]), (5, 2, [1]), (4, 2, [3, 1]), (5, 2, [1, 1, 4]), (3, 3, [4]), (40, 2, [3])):
        def run(before=before, batch=batch, parts=parts):
            _, state = lab.feed(lab.draw(2, before, 1), [before])
            state = lab.subject.reset(state)
            x = lab.draw(batch, sum(parts))
            return lab.feed(x, parts, state)[0], lab.alone(x, parts)
        yield Case(f"feed {before} tokens of 2 rows, reset, feed {batch} rows as {parts}", run, (before, sum(parts), batch))


def prefix(lab: Lab) -> Iterator[Case]:
    """A cached prefix that covers all, nearly all or more of the prompt, or other tokens, gives the uncached answer."""
    lab.need("prefix")
    n, new = 6, 6
    for size, (label, cached) in enumerate((
            ("the whole prompt", (n, 0)), ("all but one token", (n - 1, 0)), ("half the prompt", (3, 0)),
            ("the prompt and 2 more tokens", (n, 2)), ("other tokens", (0, n)),
            ("3 tokens of the prompt, then others", (3, 2)))):
        for which in range(3 if size < 3 else 1):                    # a wrong state may give the right tokens by chance
            def run(cached=cached, which=which):
                prompt, other = lab.draw(1, n, 2 * which), lab.draw(1, n, 2 * which + 1)
                text = torch.cat([prompt[:, :cached[0]], other[:, :cached[1]]], 1)
                _, state = lab.feed(text, [text.shape[1]])
                found = lab.subject.prefix(prompt, state, new)
                wanted = lab.subject.prefix(prompt, lab.subject.start(), new)
                return found[..., None].double(), wanted[..., None].double()
            yield Case(f"generate from prompt {which + 1} of {n} tokens; the cache holds {label}", run, (size, which),
                       refusal=True)


def position(lab: Lab) -> Iterator[Case]:
    """A skipped, repeated or stale position is refused."""
    lab.need("position")
    for fed, asked, label in ((0, 5, "a first token at 5"), (4, 7, "skipped"), (4, 3, "repeated"), (4, 0, "started again"),
                              (4, 5, "one skipped")):
        for new in (1, 3):
            def run(fed=fed, asked=asked, new=new):
                x = lab.draw(2, fed + new)
                state = lab.feed(x, [fed])[1] if fed else lab.subject.start()
                lab.subject.feed(x[:, fed:], state, position=asked)
            yield Case(f"{fed} tokens fed, then {new} at position {asked} ({label})", run, (fed, new), must_refuse=True)


def foreign(lab: Lab) -> Iterator[Case]:
    """A state of other weights, another depth or another number of rows is refused."""
    others = lab.subject.others() if has(lab.subject, "others") else []
    if not others and not has(lab.subject, "faults"):
        raise NotSupported("the subject names no other models that should refuse its states")
    for label, other in others:
        def run(other=other):
            x = lab.draw(2, 5)
            other.feed(x[:, 4:], lab.feed(x[:, :4], [4])[1])
        yield Case(f"the state goes to {label}", run, must_refuse=True)

    def more_rows():
        x = lab.draw(2, 5)
        lab.subject.feed(torch.cat([x, x])[:, 4:], lab.feed(x[:, :4], [4])[1])
    yield Case("2 rows were fed, 4 come next", more_rows, must_refuse=True)


def atomic(lab: Lab) -> Iterator[Case]:
    """A call that raises leaves the state as it was."""
    lab.need("faults")
    for fed, new in ((4, 1), (4, 3)):
        for i, (label, _) in enumerate(lab.subject.faults(lab.draw(2, fed + new)[:, fed:])):
            def run(fed=fed, new=new, i=i):
                x = lab.draw(2, fed + new)
                _, state = lab.feed(x, [fed])
                try:
                    lab.subject.faults(x[:, fed:])[i][1](state)
                except Exception:
                    return lab.feed(x[:, fed:], [new], state)[0], lab.alone(x, [fed, new])[:, fed:]
                raise NotSupported("a call that should raise did not")
            yield Case(f"{fed} tokens fed; {label}; then {new} good", run, (fed, new))


def move(lab: Lab) -> Iterator[Case]:
    """Saving and loading, or moving there and back, keeps the answers."""
    lab.need("move")
    for before, after in ((1, 1), (4, 1), (3, 4), (40, 3)):
        def run(before=before, after=after):
            x = lab.draw(2, before + after)
            _, state = lab.feed(x, [before])
            found = lab.feed(x[:, before:], [after], lab.subject.move(state))[0]
            return found, lab.alone(x, [before, after])[:, before:]
        yield Case(f"prefill {before}, move the state, feed {after}", run, (before, after))


def long(lab: Lab) -> Iterator[Case]:
    """Past the end of a table, a ring or a window the answers stay right, or a clear refusal."""
    reach = getattr(lab.subject, "reach", 160)
    for size in (1, 7, 16, 50):
        def run(size=size):
            x = lab.draw(1, reach)
            cuts = [min(size, reach - at) for at in range(0, reach, size)]
            return lab.feed(x, cuts)[0], whole(lab.subject, x)
        yield Case(f"{reach} tokens in pieces of {size}", run, (reach, size), refusal=True)


def repeat(lab: Lab) -> Iterator[Case]:
    """The same call twice gives the same bits."""
    for parts in ([5], [3, 2], [3, 1, 1]):
        def run(parts=parts):
            x = lab.draw(2, sum(parts))
            one, two = lab.feed(x, parts)[0], lab.feed(x, parts)[0]
            return torch.where((one == two) | (one != one) & (two != two), one, float("inf")), one
        yield Case(f"the same text twice, fed as {parts}", run, (sum(parts),))


LAWS = {law.__name__: law for law in (split, empty, causal, rows, padding, fork, sessions, select, rewind, reset, prefix,
                                      position, foreign, atomic, move, long, repeat)}
