"""Cache: the states of one batch of sequences, and their one clock.

    cache = Cache()
    logits = model(ids, cache)          # the model starts where the cache stands; nothing else tells the position

A call works on new states and puts all of them here at its end, so a call that raises has changed nothing.
"""

import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from . import cachefile
from .errors import (BatchError, DepthError, DeviceError, EmptyCacheError, FingerprintError, PositionError,
                     RewindError)
from .state import State


class Cache:
    """What a model remembers of a batch of sequences.

    Attributes:
        states: one state per layer, or None where a layer has seen no real token.
        mask: (B, length) bool, which columns of each row were real; None while nothing has been fed.
        tokens: (B, length) int64, the ids that were fed, 0 at padding; None while nothing has been fed.
        checkpoints: the columns that `rewind` can return to exactly, whatever the layers.
    """

    def __init__(self):
        self.reset()

    def reset(self) -> "Cache":
        """Forget everything, the weights too: like a new cache, with the batch open. Returns this cache."""
        self.states: tuple[State | None, ...] = ()
        self.mask: Tensor | None = None
        self.tokens: Tensor | None = None
        self._kept: dict[int, tuple[State | None, ...]] = {}
        self._fingerprint: str | None = None
        self._model = lambda: None          # a weak reference to the model of the last call
        self._proven = False                # the weights were hashed anew since they were last met or loaded
        return self

    @property
    def length(self) -> int:
        """Columns fed so far: the only clock."""
        return 0 if self.mask is None else self.mask.shape[1]

    @property
    def lengths(self) -> Tensor | None:
        """(B,) real tokens of each row; None while the batch is open."""
        return None if self.mask is None else self.mask.sum(1)

    @property
    def batch(self) -> int | None:
        """How many rows; None while the batch is open."""
        return None if self.mask is None else self.mask.shape[0]

    @property
    def checkpoints(self) -> list[int]:
        return sorted(self._kept)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the states and the checkpoints hold, shared storage counted once."""
        storages = {}
        for state in (state for states in (self.states, *self._kept.values()) for state in states if state is not None):
            for tensor in state.tensors().values():
                storage = tensor.untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
        return sum(storages.values())

    def __repr__(self) -> str:
        return f"Cache(length={self.length}, batch={self.batch}, layers={len(self.states)})"

    # -- one call of a model ---------------------------------------------------------------------------------------

    def begin(self, model, ids: Tensor, position: int | None) -> tuple[tuple[State | None, ...], str]:
        """Check that a call fits this cache; returns each layer's state and the model's fingerprint, changes nothing.

        Raises:
            PositionError, BatchError, DeviceError, DepthError, FingerprintError: it does not fit.
        """
        self.check_position(position)
        self._check_batch(ids)
        if not ids.shape[1]:
            return self.states, ""
        fingerprint = model.fingerprint(anew=self.mask is None or not self._proven)
        if self.mask is None:
            return self.states or (None,) * len(model.layers), fingerprint
        if len(self.states) != len(model.layers):
            raise DepthError(f"this cache holds the states of {len(self.states)} layers, the model has "
                             f"{len(model.layers)}; use the model that filled it, or reset() and feed the text again")
        if self._fingerprint not in (None, fingerprint):
            raise FingerprintError("this cache was filled by other weights than the model has now; its states mean "
                                   "nothing to them. Use the model that filled it, or reset() and feed the text again")
        return self.states, fingerprint

    def commit(self, model, fingerprint: str, states: Iterable[State | None], tokens: Tensor, mask: Tensor) -> None:
        """Take the new states of all layers, and the columns (B, L) they add: the end of a call."""
        if self.mask is not None:
            tokens, mask = torch.cat([self.tokens, tokens], dim=1), torch.cat([self.mask, mask], dim=1)
        self.states, self.tokens, self.mask, self._fingerprint = tuple(states), tokens, mask, fingerprint
        self._model, self._proven = weakref.ref(model), True

    def _check_batch(self, ids: Tensor) -> None:
        if self.mask is None:
            return
        if ids.shape[0] != self.batch:
            raise BatchError(f"{ids.shape[0]} rows were given, but this cache holds {self.batch}; give one row per "
                             "sequence, select(rows) or repeat(n) the cache, or start a new one")
        if ids.device != self.mask.device:
            raise DeviceError(f"the token ids are on {ids.device}, this cache is on {self.mask.device}; "
                              "move the cache with .to(device=…)")

    def check_position(self, position: int | None) -> None:
        """Raise PositionError unless the position is None or the next one."""
        if position is not None and position != self.length:
            raise PositionError(self._position_message(position))

    def _position_message(self, position: int) -> str:
        length = self.length
        found = f"asked for position {position}, but this cache has seen {length} tokens. "
        if not isinstance(position, int) or isinstance(position, bool):
            return found + f"A position is an int, not a {type(position).__name__}."
        if position > length:
            missing = f"token {length}" if position == length + 1 else f"tokens {length} to {position - 1}"
            return found + f"Feed {missing} first, or fork() a cache that has length {position}."
        if position < 0:
            return found + f"Positions start at 0; the next one is {length}."
        return found + f"rewind({position}) first to feed this part again, or reset() for a new text."

    # -- copies and changes ----------------------------------------------------------------------------------------

    def fork(self) -> "Cache":
        """A new cache with the same past and a future of its own; the states are shared until either goes on."""
        twin = Cache()
        twin.__dict__.update(self.__dict__)
        twin._kept = dict(self._kept)
        return twin

    def select(self, rows: Sequence[int] | Tensor) -> "Cache":
        """Keep these rows, in this order; a row may come more than once. Returns this cache.

        Raises:
            EmptyCacheError: nothing has been fed yet, so there are no rows.
            BatchError: a row that is not there, or none at all.
        """
        if self.mask is None:
            raise EmptyCacheError("rows were asked for, but this cache is empty; feed a batch first")
        rows = torch.as_tensor(rows, device=self.mask.device)
        if rows.dim() != 1 or not len(rows) or rows.is_floating_point() or rows.dtype == torch.bool:
            raise BatchError(f"rows must be a list of at least one row number, got {rows.dtype} of "
                             f"{tuple(rows.shape)}")
        if int(rows.min()) < 0 or int(rows.max()) >= self.batch:
            raise BatchError(f"rows {rows.tolist()} were asked for, but this cache holds rows 0 to {self.batch - 1}")
        rows = rows.long()
        return self._replace(lambda state: state.select(rows), lambda columns: columns.index_select(0, rows))

    def repeat(self, n: int) -> "Cache":
        """Each row n times, copies next to each other, as for n samples or beams. Returns this cache."""
        if not isinstance(n, int) or n < 1:
            raise BatchError(f"{n!r} copies of each row were asked for; n is an int of 1 or more")
        if self.mask is None:
            raise EmptyCacheError("copies of rows were asked for, but this cache is empty; feed a batch first")
        return self.select(torch.arange(self.batch, device=self.mask.device).repeat_interleave(n))

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "Cache":
        """Move all states; recurrent values stay at least float32. Returns this cache.

        Another dtype means other weights, so the next call binds the cache to the weights it meets then.
        """
        device = None if device is None else torch.device(device)
        self._replace(lambda state: state.to(device, dtype), lambda columns: columns.to(device=device))
        if dtype is not None:
            self._fingerprint, self._model = None, lambda: None
        return self

    def _replace(self, change, change_columns) -> "Cache":
        """Apply a change to every state and to tokens and mask; nothing is taken before all of them are there."""
        def changed(states):
            return tuple(None if state is None else change(state) for state in states)
        states = changed(self.states)
        kept = {column: changed(held) for column, held in self._kept.items()}
        tokens, mask = (None if c is None else change_columns(c) for c in (self.tokens, self.mask))
        self.states, self._kept, self.tokens, self.mask = states, kept, tokens, mask
        return self

    # -- going back ------------------------------------------------------------------------------------------------

    def checkpoint(self, only: bool = False) -> "Cache":
        """Keep the present values, so that `rewind` can return to this column. Returns this cache.

        Args:
            only: let go of the columns kept before.
        """
        kept = {} if only else dict(self._kept)
        self._kept = {**kept, self.length: self.states} if self.length else kept
        return self

    def rewind(self, length: int) -> "Cache":
        """Go back to when `length` columns had been fed. Returns this cache.

        Exact at kept columns; elsewhere for layers that hold their whole past (attention), as long as every key
        that the next token sees is held.

        Raises:
            RewindError: a column that is not behind, or one that these states cannot go back to; nothing is changed.
        """
        if not isinstance(length, int) or isinstance(length, bool) or not 0 <= length <= self.length:
            raise RewindError(f"asked to rewind to column {length!r}, but this cache holds columns 0 to {self.length}")
        if length == self.length:
            return self
        if length == 0:
            states, tokens, mask = (), None, None
        else:
            states = self._kept.get(length) or self._shorter(length)
            tokens, mask = self.tokens[:, :length].clone(), self.mask[:, :length].clone()
        self.states, self.tokens, self.mask = states, tokens, mask
        self._kept = {column: states for column, states in self._kept.items() if column <= length}
        return self

    def _shorter(self, length: int) -> tuple[State | None, ...]:
        seen = self.mask[:, :length].sum(1)                                             # (B,)
        if torch.equal(seen, self.lengths):                                             # only padding lies between
            return self.states
        try:
            return tuple(None if state is None else state.rewind(seen) for state in self.states)
        except RewindError as error:
            nearest = max((column for column in self._kept if column < length), default=0)
            raise RewindError(
                f"asked to rewind from column {self.length} to {length}, but {error}. The nearest kept column is "
                f"{nearest}: rewind({nearest}) and feed columns {nearest} to {length - 1} again, or checkpoint() at "
                f"{length} next time") from None

    # -- files -----------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write states and checkpoints to a safetensors file, whole or not at all.

        Raises:
            FingerprintError: the model that filled this cache has other weights by now.
        """
        model = self._model()
        if model is not None and self._fingerprint not in (None, model.fingerprint(anew=True)):
            raise FingerprintError("the model's weights have changed since they filled this cache; a file would "
                                   "continue with neither. reset() and feed the text again")
        columns = {**self._kept, self.length: self.states}
        cachefile.write(path, columns, self.tokens, self.mask, self._fingerprint)

    @classmethod
    def load(cls, path: str | Path) -> "Cache":
        """Read a file of `save`.

        Raises:
            CacheFileError: missing, cut short, changed, or not a cache at all.
        """
        cache = cls()
        columns, cache.tokens, cache.mask, cache._fingerprint = cachefile.read(path)
        cache.states = columns.pop(cache.length, ())
        cache._kept = columns
        return cache
