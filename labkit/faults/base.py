"""What a fault is: a small replacement of one step of a right class, its record, and how to make it happen."""

import copy
import difflib
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from ..contract.subjects import MixerSubject, Subject


@dataclass(frozen=True)
class Record:
    """The facts about a fault.

    Attributes:
        id: its name in the catalogue.
        incident: the public incident that it belongs to.
        says: what differs from the right code, in a sentence.
        sources: repository and number, or repository and file.
        versions: where it was seen.
        message: the exact text of the error, where it is loud.
    """

    id: str
    incident: str
    says: str
    sources: tuple[str, ...]
    versions: str = ""
    message: str = ""

    @property
    def loud(self) -> bool:
        """An error is raised; otherwise answers are wrong and nothing is said."""
        return bool(self.message)


@dataclass(frozen=True)
class Fault:
    """A fault of the catalogue.

    Attributes:
        record: what is known about it.
        right, faulty: the source that is right, and the replacement.
        subject: subject(seed) -> the faulty thing, for the contract.
        healthy: healthy(seed) -> the right thing with the same weights.
        trigger: runs the calls that end in the record's message; None for silent faults.
    """

    record: Record
    right: tuple
    faulty: tuple
    subject: Callable[[int], Subject]
    healthy: Callable[[int], Subject]
    trigger: Callable | None = None

    def diff(self) -> str:
        """The unified difference between the right and the faulty source."""
        old, new = ("\n".join(map(source_of, parts)).splitlines(keepends=True) for parts in (self.right, self.faulty))
        return "".join(difflib.unified_diff(old, new, "right", self.record.id))


def source_of(part) -> str:
    """The source of a class, function or method, without indentation."""
    return textwrap.dedent(inspect.getsource(part))


def reclass(module: nn.Module, cls: type) -> nn.Module:
    """The same module, weights shared, as an instance of a subclass that replaces some of its steps."""
    clone = copy.copy(module)
    clone.__class__ = cls
    return clone


CATALOGUE: dict[str, Fault] = {}


def add(record: Record, **parts) -> Fault:
    """Put a fault into the catalogue."""
    CATALOGUE[record.id] = Fault(record, **parts)
    return CATALOGUE[record.id]


def add_steps(record: Record, cls: type, steps: tuple[str, ...] = (), **parts) -> Fault:
    """A fault that replaces steps of the class that `cls` extends: these, or all the methods that `cls` has itself."""
    steps = steps or [name for name, part in vars(cls).items() if inspect.isfunction(part)]
    return add(record, right=tuple(getattr(cls.__mro__[1], step) for step in steps),
               faulty=tuple(vars(cls)[step] for step in steps), **parts)


def add_mixer_fault(record: Record, cls: type, make: Callable, **parts) -> Fault:
    """A fault that replaces steps of a mixer; make(seed) -> the right mixer."""
    return add_steps(record, cls, subject=lambda seed=0: MixerSubject(reclass(make(seed), cls)),
                     healthy=lambda seed=0: MixerSubject(make(seed)), **parts)
