"""What the laws are asked about: one face for mixers, models, plain functions and other libraries' models.

A subject must have `start()`, `sample(B, L, generator)` and `feed(x, state, mask=None, position=None) -> (y, state)`.
What else it has is found by name: a law that needs what is not there is `not supported`.
"""

import copy
import inspect
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from ..cache import Cache
from ..generate import generate
from ..mixers import Mixer
from ..model import HybridLM


class Subject:
    """The least a subject has, and what follows from it.

    Attributes:
        name: for the report.
        reach: how many tokens the `long` law feeds; past every table, ring and window of the subject.
    """

    name, reach = "subject", 160

    def start(self):
        """The state of a new text."""
        return None

    def sample(self, batch: int, length: int, generator: torch.Generator) -> Tensor:
        """Random input, (B, L, …)."""
        raise NotImplementedError

    def feed(self, x: Tensor, state, mask: Tensor | None = None, position: int | None = None):
        """Outputs for x, and the state behind it."""
        raise NotImplementedError

    def faults(self, x: Tensor) -> list[tuple[str, Callable]]:
        """Calls that must raise: (in words, call(state)); x is good input for the state."""
        return [("a call with another number of rows", lambda state: self.feed(torch.cat([x, x]), state))]


class MixerSubject(Subject):
    """A labkit mixer: states are values, so a fork is the state itself."""

    def __init__(self, mixer: Mixer):
        self.mixer, self.name = mixer, type(mixer).__name__
        self.dtype = next(mixer.parameters()).dtype
        self.reach = max(160, 3 * (getattr(mixer, "sliding_window", None) or 0))

    def sample(self, batch, length, generator):
        return torch.randn(batch, length, self.mixer.hidden_size, generator=generator, dtype=torch.float64).to(self.dtype)

    def feed(self, x, state, mask=None):
        return self.mixer(x, state, mask)

    def fork(self, state):
        return state

    def select(self, state, rows: list[int]):
        return state.select(torch.tensor(rows))

    def reset(self, state):
        return None

    def move(self, state):
        return state.to(dtype=torch.float64).to(dtype=self.dtype)

    def faults(self, x):
        return [*super().faults(x), ("input of another dtype", lambda state: self.mixer(x.to(torch.float16), state)),
                ("input of another size", lambda state: self.mixer(x[..., 1:], state)),
                ("a mask of another length", lambda state: self.mixer(x, state, torch.ones(1, 99, dtype=torch.bool)))]


class ModelSubject(Subject):
    """A labkit model; its state is a `Cache`, or of another class of cache, which a call moves."""

    def __init__(self, model: HybridLM, name: str | None = None, cache_class: type[Cache] = Cache):
        self.model, self.name = model.eval(), name or "HybridLM of " + ", ".join(kind for kind, _ in model.config.layers)
        self.cache_class = cache_class
        windows = (getattr(layer.mixer, "sliding_window", None) or 0 for layer in model.layers)
        self.reach = max(160, 3 * max(windows))

    def start(self):
        return self.cache_class()

    def sample(self, batch, length, generator):
        return torch.randint(0, self.model.config.vocab_size, (batch, length), generator=generator)

    def feed(self, x, state, mask=None, position=None):
        return self.model(x, state, mask=mask, position=position), state

    def fork(self, state):
        return state.fork()

    def select(self, state, rows):
        return state.select(rows)

    def reset(self, state):
        return state.reset()

    def keep(self, state):
        return state.checkpoint()

    def rewind(self, state, length: int):
        return state.rewind(length)

    def length(self, state) -> int:
        return state.length

    def move(self, state):
        with tempfile.TemporaryDirectory() as folder:
            state.save(Path(folder) / "cache")
            return Cache.load(Path(folder) / "cache")

    def prefix(self, prompt: Tensor, state, n: int) -> Tensor:
        return generate(self.model, prompt, state, max_new_tokens=n)

    def others(self) -> list[tuple[str, "ModelSubject"]]:
        """Subjects that must refuse this one's states."""
        other = copy.deepcopy(self.model)
        with torch.no_grad():
            for weight in other.parameters():
                weight.mul_(1.25)
        deeper = copy.deepcopy(self.model)
        deeper.layers.append(copy.deepcopy(deeper.layers[-1]))
        return [("a model with other weights", ModelSubject(other)), ("a deeper model", ModelSubject(deeper))]

    def faults(self, x):
        """Bad input, and an exception inside each layer in turn, behind its new state."""
        def breaking(layer):
            def call(state):
                hook = layer.down.register_forward_pre_hook(lambda *_: 1 / 0)
                try:
                    return self.feed(x, state)
                finally:
                    hook.remove()
            return call
        layers = [(f"an exception in layer {i}", breaking(layer)) for i, layer in enumerate(self.model.layers)]
        return [*super().faults(x), ("a token outside the vocabulary", lambda state: self.feed(x + 10 ** 6, state)),
                *layers]


class FunctionSubject(Subject):
    """A plain function f(x, state) -> (y, state), such as a learner's; it may take mask and position too.

    Args:
        function: called with keywords for what it takes beyond x and state.
        sample: sample(B, L, generator) -> x.
        start: the state of a new text, or a function that makes it.
    """

    def __init__(self, function: Callable, sample: Callable, start=None, name: str | None = None):
        self.function, self._sample, self._start = function, sample, start
        self.name = name or getattr(function, "__name__", "function")
        taken = inspect.signature(function).parameters
        self.takes = {"mask", "position"} & set(taken)      # `has` asks here before it looks at feed

    def start(self):
        return self._start() if callable(self._start) else copy.deepcopy(self._start)

    def sample(self, batch, length, generator):
        return self._sample(batch, length, generator)

    def feed(self, x, state, mask=None, position=None):
        given = {"mask": mask, "position": position}
        return self.function(x, state, **{name: given[name] for name in self.takes if given[name] is not None})

    def fork(self, state):
        return copy.deepcopy(state)


def has(subject, feature: str) -> bool:
    """True where the subject can do this: a method of that name, or an argument of its `feed`."""
    if feature in ("mask", "position"):
        return feature in getattr(subject, "takes", inspect.signature(subject.feed).parameters)
    return callable(getattr(subject, feature, None))


def whole(subject, x: Tensor) -> Tensor:
    """The outputs of one call without any earlier state, or of the subject's own uncached run: the reference."""
    if has(subject, "uncached"):
        return subject.uncached(x)
    return subject.feed(x, subject.start())[0]


def subject_of(thing, **options) -> Subject:
    """The subject for a mixer, a model, a function, a transformers model, or a subject itself.

    Raises:
        TypeError: nothing of these kinds.
    """
    if all(hasattr(thing, name) for name in ("start", "sample", "feed")) and not isinstance(thing, nn.Module):
        return thing
    if isinstance(thing, Mixer):
        return MixerSubject(thing)
    if isinstance(thing, HybridLM):
        return ModelSubject(thing, **options)
    if type(thing).__module__.startswith("transformers.") or hasattr(thing, "generation_config"):
        from .transformers import subject               # here: it is a subject itself, and needs the library
        return subject(thing, **options)
    if callable(thing) and not isinstance(thing, nn.Module) and "sample" in options:
        return FunctionSubject(thing, **options)
    raise TypeError(f"cannot check a {type(thing).__name__}; give a labkit mixer or model, a function with sample=…, "
                    "a causal LM of transformers, or an object with start(), sample(B, L, generator), "
                    "feed(x, state)")
