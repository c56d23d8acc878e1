"""What all mixers share: checks of the input, padding taken out, one path for every length.

    y, state = mixer(x, state=None, mask=None)

Padding may stand anywhere. The real tokens of each row are moved to the front (their order stays), the family's
`mix` computes them, and the outputs go back to where they came from; outputs at padding are zero. A family thus
only ever sees rows that end early: `counts` says how many of a row's columns are real.
"""

import inspect

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..conv import causal_conv
from ..errors import BatchError, ConfigError, DeviceError, DtypeError
from ..state import State

BLOCK = 1024        # tokens that a mixer works on at a time; more gives the same answer, slower

ACTIVATIONS = {"silu": F.silu, "swish": F.silu, "gelu": F.gelu, "relu": F.relu,
               "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh")}


class Mixer(nn.Module):
    """A layer that mixes tokens along the sequence and carries a state from call to call."""

    state_class: type[State]        # the state this family carries
    model_types: tuple[str, ...]    # values of `config.model_type` that `from_config` takes
    honours: dict[str, tuple] = {}  # fields of a config that are no arguments here -> the values that are honoured

    @classmethod
    def from_config(cls, config, layer_idx: int = 0) -> "Mixer":
        """A mixer of the shape that a transformers config of its family describes, with new weights.

        Every argument of the constructor is the config's field of that name; here all layers of a config are alike.

        Raises:
            ConfigError: the config is of another family, or asks for what this mixer would not do.
        """
        check_config(config, cls)
        return cls(**{name: getattr(config, name) for name in inspect.signature(cls).parameters})

    def layout(self) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """The state's fields: name -> (shape without the batch, dtype)."""
        raise NotImplementedError

    def start(self, batch: int) -> State:
        """The state of `batch` rows that have seen nothing: zeros."""
        device = next(self.parameters()).device
        return self.state_class(**{name: torch.zeros(batch, *shape, dtype=dtype, device=device)
                                   for name, (shape, dtype) in self.layout().items()})

    def mix(self, x: Tensor, state: State, counts: Tensor | None) -> tuple[Tensor, State]:
        """Outputs (B, L, hidden_size) and the next state; columns from counts[b] on are padding and hold zeros."""
        raise NotImplementedError

    def forward(self, x: Tensor, state: State | None = None, mask: Tensor | None = None
                ) -> tuple[Tensor, State | None]:
        """Mix the tokens of x, continuing from a state.

        Args:
            x: (B, L, hidden_size); L may be 0, 1 or many.
            state: what an earlier call returned for the same rows, or None: nothing seen.
            mask: (B, L) bool, False at padding, or None: all tokens are real.

        Returns:
            y: (B, L, hidden_size), zero at padding; and the next state. The given state keeps its values.

        Raises:
            BatchError, DtypeError, DeviceError: x, state and mask do not fit each other or the weights.
        """
        self._check(x, state, mask)
        if not x.shape[1]:
            return x, state
        if mask is None or bool(mask.all()):
            return self._blocks(x, state or self.start(x.shape[0]), None)
        counts = mask.sum(1)                                                    # (B,)
        length = int(counts.max())
        if not length:
            return torch.zeros_like(x), state
        order = torch.argsort((~mask).to(torch.int8), dim=1, stable=True)[:, :length]       # (B, L') real ones first
        real = torch.arange(length, device=x.device) < counts[:, None]          # (B, L')
        at = order[..., None].expand(-1, -1, x.shape[-1])                       # (B, L', hidden_size)
        front = torch.where(real[..., None], x.gather(1, at), 0)
        y, state = self._blocks(front, state or self.start(x.shape[0]), counts)
        return torch.zeros_like(x).scatter(1, at, torch.where(real[..., None], y, 0)), state

    def convolve(self, conv: nn.Conv1d, u: Tensor, window: Tensor, counts: Tensor | None) -> tuple[Tensor, Tensor]:
        """The causal convolution of u (B, L, C) behind a window: (B, L, C), and the next window (B, C, K-1)."""
        y, window = causal_conv(u.mT, window, conv.weight[:, 0], conv.bias, counts)
        return y.mT, window

    def _blocks(self, x: Tensor, state: State, counts: Tensor | None) -> tuple[Tensor, State]:
        """`mix` on at most BLOCK tokens at a time: memory stays bounded, and time grows as the length does."""
        outputs = []
        for start in range(0, x.shape[1], BLOCK):
            part = x[:, start:start + BLOCK].contiguous()       # a linear layer rounds other layouts in bf16 once more
            here = None if counts is None else (counts - start).clamp(0, part.shape[1])
            y, state = self.mix(part, state, here)
            outputs.append(y)
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1), state

    def _check(self, x: Tensor, state: State | None, mask: Tensor | None) -> None:
        weight = next(self.parameters())
        if x.dim() != 3 or x.shape[-1] != self.hidden_size:
            raise BatchError(f"x is {tuple(x.shape)}, but this {type(self).__name__} takes "
                             f"(batch, tokens, {self.hidden_size})")
        if x.device != weight.device:
            raise DeviceError(f"x is on {x.device}, the weights of this {type(self).__name__} on {weight.device}; "
                              "move one of them with .to(device)")
        if x.dtype != weight.dtype:
            raise DtypeError(f"x is {x.dtype}, the weights of this {type(self).__name__} are {weight.dtype}; "
                             f"cast x, or the mixer with .to({x.dtype})")
        if mask is not None:
            check_mask(mask, x)
        if state is not None:
            self._check_state(x, state)

    def _check_state(self, x: Tensor, state: State) -> None:
        name = type(self).__name__
        if type(state) is not self.state_class:
            raise BatchError(f"a {name} continues from a {self.state_class.__name__}, not from a "
                             f"{type(state).__name__}; give each layer its own state")
        for field, (shape, dtype) in self.layout().items():
            found = getattr(state, field)
            if found.device != x.device:
                raise DeviceError(f"the state of this {name} is on {found.device} ({field}), x is on {x.device}; "
                                  "move the state with .to(device=…)")
            if found.dtype != dtype:
                raise DtypeError(f"the state of this {name} holds {field} in {found.dtype}, it needs {dtype}; "
                                 "move the state with .to(dtype=…)")
            if found.shape[0] != x.shape[0]:
                raise BatchError(f"x has {x.shape[0]} rows, the state of this {name} has {found.shape[0]}; "
                                 "continue each batch with its own state, or state.select(rows) first")
            if self.sizes(field, found) != shape:
                raise BatchError(f"the state of this {name} holds {field} of {self.sizes(field, found)} a row, "
                                 f"it needs {shape}; it comes from a mixer of other sizes")

    def sizes(self, field: str, value: Tensor) -> tuple[int, ...]:
        """The shape of a state's field as `layout` gives it."""
        return tuple(value.shape[1:])


def check_mask(mask: Tensor, x: Tensor) -> None:
    """Raise unless mask is bool, on x's device and (B, L) for an x of (B, L, …)."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise DtypeError(f"the mask is {getattr(mask, 'dtype', type(mask).__name__)}, it must be torch.bool, "
                         "False at padding; for a mask of 0 and 1 use mask.bool()")
    if mask.shape != x.shape[:2]:
        raise BatchError(f"the mask is {tuple(mask.shape)}, the new tokens are {tuple(x.shape[:2])} (batch, tokens); "
                         "give one value per new token, not for the tokens already fed")
    if mask.device != x.device:
        raise DeviceError(f"the mask is on {mask.device}, the tokens are on {x.device}; move it with .to(device)")


def real_columns(x: Tensor, counts: Tensor | None) -> Tensor | None:
    """(B, L) bool, True at the first counts[b] columns of x (B, L, …); None when all are real."""
    return None if counts is None else torch.arange(x.shape[1], device=x.device) < counts[:, None]


def check_config(config, mixer: type[Mixer]) -> None:
    """Raise ConfigError where a transformers config asks for what a mixer of this class would not do."""
    if config.model_type not in mixer.model_types:
        raise ConfigError(f"{mixer.__name__}.from_config takes a config of {', '.join(mixer.model_types)}, not of "
                          f"{config.model_type}; build it with keyword arguments where the layer is the same")
    for field, values in mixer.honours.items():
        found = getattr(config, field, values[0])
        if found not in values:
            raise ConfigError(f"{mixer.__name__} does not honour {field}={found!r}; it knows "
                              f"{', '.join(map(repr, values))}")


def activation(name: str):
    """The function of that name, or ConfigError."""
    if name not in ACTIVATIONS:
        raise ConfigError(f"unknown activation {name!r}; known are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def check_option(ok: bool, message: str) -> None:
    """Raise ConfigError(message) unless ok: for constructor arguments."""
    if not ok:
        raise ConfigError(message)


def depthwise(channels: int, width: int, bias: bool) -> nn.Conv1d:
    """The parameters of a depthwise causal convolution, named and shaped as in transformers."""
    check_option(width >= 1, f"a convolution {width} wide was asked for; the width is 1 or more")
    return nn.Conv1d(channels, channels, width, groups=channels, bias=bias, padding=width - 1)
