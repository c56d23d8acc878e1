"""The catalogue of faults: each a small replacement of one step of right code, weights shared.

    fault = faults.get("dropped-chunk")
    print(fault.diff()); print(check(fault.subject()))
"""

from . import (cache_faults, cache_position, different_depths, dropped_chunk, empty_cache, expected_cpu,  # noqa: F401
               one_law_each, padding_continued)
from .base import CATALOGUE, Fault, Record, reclass

__all__ = ["Fault", "Record", "get", "names", "reclass"]


def names() -> tuple[str, ...]:
    """The ids of all faults."""
    return tuple(CATALOGUE)


def get(name: str) -> Fault:
    """The fault of that id.

    Raises:
        KeyError: there is none; the message lists those that there are.
    """
    if name not in CATALOGUE:
        raise KeyError(f"no fault is named {name!r}; there are {', '.join(CATALOGUE)}")
    return CATALOGUE[name]
