"""States as values: what one mixer remembers of the tokens it has seen.

A state is frozen: a mixer returns a new one and never changes the one it was given, so a fork is a second
reference. `None` means "nothing seen". Letters as in `labkit`: B batch, C channels, K conv width, H heads,
P head_dim, N state size, D head_dim of attention, T keys held.
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from .errors import RewindError


def state_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of recurrent states and of the arithmetic around them: at least float32."""
    return dtype if dtype == torch.float64 else torch.float32


@dataclass(frozen=True, eq=False)
class State:
    """What every state can do. Fields are tensors with the batch first."""

    def tensors(self) -> dict[str, Tensor]:
        """The fields by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def batch(self) -> int:
        """How many rows."""
        return next(iter(self.tensors().values())).shape[0]

    def map(self, change) -> "State":
        """A new state with `change(name, tensor)` for every field."""
        return type(self)(**{name: change(name, value) for name, value in self.tensors().items()})

    def emptied(self, *names: str) -> "State":
        """The same state with zeros in the fields of these names."""
        return self.map(lambda name, value: torch.zeros_like(value) if name in names else value)

    def select(self, rows: Tensor) -> "State":
        """Rows in another order, fewer or repeated; rows is (B',) int64."""
        return self.map(lambda name, value: value.index_select(0, rows))

    def to(self, device: torch.device | None = None, dtype: torch.dtype | None = None) -> "State":
        """On another device or in another dtype; recurrent values stay at least float32, counts stay integers."""
        def move(name, value):
            kind = value.dtype if dtype is None or not value.is_floating_point() else dtype
            return value.to(device=device, dtype=state_dtype(kind) if name == "recurrent" else kind)
        return self.map(move)

    def rewind(self, seen: Tensor) -> "State":
        """The state when each row had seen `seen` (B,) tokens; recurrent states cannot, they keep no past."""
        raise RewindError(f"a {type(self).__name__} holds only its newest value and cannot go back")


@dataclass(frozen=True, eq=False)
class ShortConvState(State):
    conv: Tensor        # (B, hidden_size, K-1)  the last K-1 inputs of the convolution


@dataclass(frozen=True, eq=False)
class MambaState(State):
    conv: Tensor        # (B, intermediate_size, K-1)
    recurrent: Tensor   # (B, intermediate_size, N)


@dataclass(frozen=True, eq=False)
class Mamba2State(State):
    conv: Tensor        # (B, intermediate_size + 2*n_groups*N, K-1)  inputs of x, B and C together
    recurrent: Tensor   # (B, num_heads, P, N)


@dataclass(frozen=True, eq=False)
class GriffinState(State):
    conv: Tensor        # (B, lru_width, K-1)
    recurrent: Tensor   # (B, lru_width)
    seen: Tensor        # (B,) int64: real tokens of each row; a row's first token enters at full strength


@dataclass(frozen=True, eq=False)
class GatedDeltaState(State):
    conv: Tensor        # (B, 2*key_dim + value_dim, K-1)  inputs of q, k and v together
    recurrent: Tensor   # (B, num_v_heads, head_k_dim, head_v_dim)


STATES = {cls.__name__: cls for cls in (ShortConvState, MambaState, Mamba2State, GriffinState, GatedDeltaState)}

