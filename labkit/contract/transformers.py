"""A causal LM of transformers as a subject of the contract; `transformers` itself is needed only here.

The state of a session is the library's cache object, which every call changes. A fork is therefore a deep copy of it,
as a user of the library would make one. Models that keep state on their modules (`holds_state`) show in `sessions`,
`fork` and `reset` what that means: one model can lead one conversation. The user can copy the whole model.
"""

import copy
import inspect
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from .laws import NotSupported
from .lift import Float64
from .subjects import Subject

NEEDED = "This needs transformers: pip install 'labkit[real]'"
CACHE_NAMES = ("past_key_values", "cache_params", "state", "cache")


@dataclass(frozen=True)
class Session:
    """One conversation: the library's cache, the text that it has seen, its column mask, a name for scripts."""

    cache: object
    text: Tensor | None = None                              # (B, T)
    mask: Tensor | None = None                              # (B, T) bool; None: no padding so far
    name: str = "a"

    @property
    def length(self) -> int:
        return 0 if self.text is None else self.text.shape[1]


class CausalLM(Subject):
    """A transformers causal LM, run in float64 with the library's inner casts lifted.

    Args:
        model: with its weights as they are to be checked; a float64 copy is made.
        positions: pass explicit position ids, where the model takes them; False leaves them to the library.
        recording: let the cache record its past from the start, as the library asks of who wants to go back.
    """

    bound = 1e-5        # of the largest wanted value: buffers made in float32 leave 1e-6, a real fault 1e-3 and more

    role, logging = "model", False

    def __init__(self, model: nn.Module, name: str | None = None, positions: bool = True, recording: bool = False):
        from transformers import DynamicCache
        taken = inspect.signature(model.forward).parameters
        self.name = name or type(model).__name__
        self.argument = next((name for name in CACHE_NAMES if name in taken), None)
        if self.argument is None:
            raise TypeError(f"{type(model).__name__}.forward takes none of {', '.join(CACHE_NAMES)}; "
                            "give a causal LM of transformers")
        self.positions = positions and "position_ids" in taken
        self.takes = {"mask" if "attention_mask" in taken else "", "position" if self.positions else ""}
        self.model = copy.deepcopy(model).double().eval()
        if getattr(self.model, "generation_config", None) is not None:
            self.model.generation_config.eos_token_id = None
        self.pristine = [(module, dict(vars(module))) for module in self.model.modules()]
        self.config = model.config.get_text_config(decoder=True)
        self.reference, self.known = copy.deepcopy(self.model), {}
        self.log, self.names, self.recording, self.makes_cache = None, 0, False, None
        before = _held(self.model)
        probe = self.call(self.model, torch.zeros(1, 2, dtype=torch.long), use_cache=True)
        self.holds_state = bool(_held(self.model) - before)
        self.fresh()
        cache = getattr(probe, self.argument, None)
        self.makes_cache = DynamicCache if cache is None or type(cache) is DynamicCache else None
        self.recording = recording
        window = getattr(self.config, "sliding_window", None) or 0
        table = getattr(self.config, "max_position_embeddings", None) or 0
        self.reach = max(160, 3 * window, table + 32 if table <= 1024 else 0)

    def fresh(self) -> None:
        """Put back what the modules held, for those models that keep state on them."""
        for module, held in self.pristine:
            vars(module).clear()
            vars(module).update(held)
        self.logging = self.log is not None and not self.log    # a script shows what comes before the comparison

    @staticmethod
    @torch.no_grad()
    def call(model, x: Tensor, **arguments):
        with Float64():
            return model(x, **arguments)

    def start(self) -> Session:
        self.names += 1
        cache = self.makes_cache(config=self.model.config) if self.makes_cache else None
        if self.recording:
            if not hasattr(cache, "activate_past_recording"):
                raise NotSupported("its cache cannot record its past")
            cache.activate_past_recording()
        return self.note("start", Session(cache, name=f"s{self.names}"))

    def note(self, kind: str, session: Session, *details):
        """Remember an operation for the script of a counterexample."""
        if self.logging:
            self.log.append((kind, session, *details))
        return session

    def sample(self, batch, length, generator):
        return torch.randint(3, self.config.vocab_size, (batch, length), generator=generator)

    def feed(self, x, state, mask=None, position=None):
        length = state.length
        text = x
        if state.text is not None:                          # a faulty call may bring another number of rows
            text = torch.cat([state.text[torch.arange(len(x)) % len(state.text)], x], 1)
        if mask is not None or state.mask is not None:
            old = torch.ones(len(x), length, dtype=torch.bool) if state.mask is None else state.mask
            mask = torch.cat([old, torch.ones_like(x, dtype=torch.bool) if mask is None else mask], 1)
        now = replace(state, text=text, mask=mask)
        self.note("feed", now, x, position, self.role)
        output = self.call(self.model, x, use_cache=True, **self.arguments(x, length, mask, position, state.cache))
        if self.logging:
            self.log[-1] = ("fed", *self.log[-1][1:])       # it did not raise
        cache = getattr(output, self.argument, None)
        return output.logits, now if cache is None else replace(now, cache=cache)

    def arguments(self, x: Tensor, length: int, mask: Tensor | None, position: int | None, cache) -> dict:
        """What `generate` passes: the cache, the mask of the whole text, positions counted over real tokens."""
        given = {self.argument: cache}
        if mask is not None:
            given["attention_mask"] = mask.long()
        if self.positions and mask is not None and position is None:
            given["position_ids"] = (mask.long().cumsum(1) - 1).masked_fill(~mask, 0)[:, length:]
        elif self.positions:
            first = length if position is None else position
            given["position_ids"] = torch.arange(first, first + x.shape[1]).expand(len(x), -1)
        return given

    def uncached(self, x: Tensor) -> Tensor:
        """Logits of one call without a cache, with explicit positions: the reference."""
        key = x.shape, x.numpy().tobytes()
        if key not in self.known:
            given = {"position_ids": torch.arange(x.shape[1]).expand(len(x), -1)} if self.positions else {}
            self.known[key] = self.call(self.reference, x, use_cache=False, **given).logits
        return self.known[key]

    def fork(self, state: Session) -> Session:
        self.names += 1
        new = replace(state, cache=copy.deepcopy(state.cache), name=f"s{self.names}")
        self.note("fork", new, state)
        return new

    def select(self, state: Session, rows: list[int]) -> Session:
        method = next((name for name in ("reorder_cache", "batch_select_indices") if hasattr(state.cache, name)), None)
        if method is None:
            raise NotSupported("its cache has no reorder_cache and no batch_select_indices")
        new = replace(state, text=state.text[rows], mask=None if state.mask is None else state.mask[rows])
        self.note("do", new, f"{method}(torch.tensor({rows}))")
        getattr(state.cache, method)(torch.tensor(rows))
        return new

    def rewind(self, state: Session, length: int) -> Session:
        if not hasattr(state.cache, "crop"):
            raise NotSupported("its cache has no crop")
        new = replace(state, text=state.text[:, :length], mask=None if state.mask is None else state.mask[:, :length])
        self.note("do", new, f"crop({length - state.length})")
        try:
            state.cache.crop(length - state.length)
        except RuntimeError as error:                       # the library's way to refuse
            if self.logging:
                self.log[-1] = ("try", state, self.log[-1][2])
            raise NotImplementedError(str(error)) from error
        return new

    def reset(self, state: Session) -> Session:
        if not hasattr(state.cache, "reset"):
            raise NotSupported("its cache has no reset")
        state.cache.reset()
        return self.note("do", replace(state, text=None, mask=None), "reset()")

    def prefix(self, prompt: Tensor, state: Session, n: int) -> Tensor:
        """n greedy tokens by generate with this cache; from an empty session, by n calls without a cache."""
        if not state.length:
            text = prompt
            for _ in range(n):
                text = torch.cat([text, self.uncached(text)[:, -1:].argmax(-1)], 1)
            return text[:, prompt.shape[1]:]
        self.note("generate", state, prompt, n)
        given = {self.argument: copy.deepcopy(state.cache), "attention_mask": torch.ones_like(prompt)}
        with Float64(), torch.no_grad():
            text = self.model.generate(prompt, max_new_tokens=n, do_sample=False, pad_token_id=0, **given)
        return text[:, prompt.shape[1]:]

    def others(self) -> list[tuple[str, "CausalLM"]]:
        other = copy.copy(self)
        other.role = "other"
        other.model = copy.deepcopy(self.reference)
        with torch.no_grad():
            for weight in other.model.parameters():
                weight.mul_(1.25)
        return [("a model with other weights", other)]

    def faults(self, x):
        return [*super().faults(x),
                ("a token outside the vocabulary", lambda state: self.feed(x + 10 ** 6, state))]


def _held(model: nn.Module) -> set:
    """Tensors that modules hold outside their parameters and buffers."""
    return {(name, key, id(value)) for name, module in model.named_modules() for key, value in vars(module).items()
            if isinstance(value, Tensor)}


def subject(model: nn.Module, name: str | None = None, positions: bool = True, recording: bool = False) -> CausalLM:
    """The subject of a transformers causal LM, for `labkit.contract.check`.

    Raises:
        ImportError: transformers is not installed.
        TypeError: the model takes no cache.

    Example (with transformers installed):
        check(subject(LlamaForCausalLM(config)))
    """
    try:
        import transformers  # noqa: F401
    except ImportError as error:
        raise ImportError(NEEDED) from error
    return CausalLM(model, name, positions, recording)
