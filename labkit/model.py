"""HybridLM: a small language model whose layers may each mix tokens in another way.

    x = embed(ids) * sqrt(hidden_size);  x = x + mixer(norm(x));  x = x + mlp(norm(x));  logits = norm(x) @ embed^T

Nothing that a call learns lives on the model: all of it is in the `Cache`, so one model serves any number of
conversations.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save
from torch import Tensor, nn

from .cache import Cache
from .cachefile import digest
from .errors import BatchError, ConfigError, DeviceError, DtypeError
from .files import replacing
from .mixers import Attention, GatedDeltaNet, GriffinBlock, Mamba2Mixer, MambaMixer, ShortConv
from .mixers.base import check_mask

KINDS = {"short_conv": ShortConv, "mamba": MambaMixer, "mamba2": Mamba2Mixer, "griffin": GriffinBlock,
         "gated_delta": GatedDeltaNet, "attention": Attention}


@dataclass(frozen=True)
class ModelConfig:
    """What a HybridLM is made of.

    Attributes:
        vocab_size: tokens.
        hidden_size: channels between layers.
        layers: one entry a layer: (kind of mixer, its arguments without hidden_size).
        intermediate_size: channels of each MLP; twice hidden_size unless given.
        norm_eps: of all RMS norms.
    """

    vocab_size: int
    hidden_size: int
    layers: list[tuple[str, dict]] = field(default_factory=list)
    intermediate_size: int | None = None
    norm_eps: float = 1e-6


def presets(name: str, hidden: int = 64) -> list[tuple[str, dict]]:
    """The layers of a preset, see `PRESETS`."""
    short = ("short_conv", {"conv_L_cache": 3})
    mamba = ("mamba", {"state_size": 32})
    mamba2 = ("mamba2", {"head_dim": 16, "state_size": 32})
    griffin = ("griffin", {"num_attention_heads": 4})
    delta = ("gated_delta", {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
                             "linear_value_head_dim": 16})
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "attention_bias": True}
    full, nope = ("attention", heads), ("attention", {**heads, "rope_theta": None})
    local = ("attention", {**heads, "sliding_window": 128})
    local_nope = ("attention", {**heads, "sliding_window": 128, "rope_theta": None})
    return {"short-conv": [short, short, full], "mamba": [mamba] * 2, "mamba2": [mamba2] * 2,
            "griffin": [local, griffin, griffin, local_nope, griffin, griffin],
            "gated-delta": [delta, delta, delta, full],
            "attention": [full, full, full, nope], "hybrid": [mamba2, full, mamba2, full]}[name]


PRESETS = ("short-conv", "mamba", "mamba2", "griffin", "gated-delta", "attention", "hybrid")


class HybridLM(nn.Module):
    """A causal language model over a list of mixers.

    Args:
        config: its sizes and layers.

    Example:
        >>> model = HybridLM.preset("griffin", vocab_size=64, seed=0)
        >>> cache = Cache()
        >>> ids = torch.arange(7)[None]
        >>> with torch.no_grad():
        ...     whole = model(ids)
        ...     parts = [model(ids[:, :4], cache), model(ids[:, 4:], cache)]
        >>> torch.allclose(whole, torch.cat(parts, 1), atol=1e-5)
        True
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config, kind, options) for kind, options in config.layers)
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        nn.init.normal_(self.embed.weight, std=config.hidden_size ** -0.5)      # a tied head: logits of unit size
        for module in self.modules():
            if isinstance(module, nn.Linear):                                   # unit gain, so that states matter
                nn.init.normal_(module.weight, std=module.in_features ** -0.5)
        self._memo: tuple = (None, None)

    @classmethod
    def preset(cls, name: str, vocab_size: int = 64, seed: int = 0, hidden_size: int = 64) -> "HybridLM":
        """A model of one of `PRESETS` with random weights from a seed; torch's own seed is left alone.

        Raises:
            ConfigError: no preset of that name.
        """
        if name not in PRESETS:
            raise ConfigError(f"no preset is named {name!r}; there are {', '.join(PRESETS)}")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return cls(ModelConfig(vocab_size, hidden_size, presets(name))).eval()

    def forward(self, input_ids: Tensor, cache: Cache | None = None, *, position: int | None = None,
                mask: Tensor | None = None) -> Tensor:
        """Logits of the next token behind each token given.

        Args:
            input_ids: (B, L) integers; L may be 0.
            cache: what was fed before; it takes the new states when the call has succeeded, and stays as it was
                when the call raises. None: nothing was fed before, and nothing is kept.
            position: where the caller thinks these tokens stand; must be `cache.length`.
            mask: (B, L) bool, False at padding, which may stand anywhere; None: all tokens are real.

        Returns:
            (B, L, vocab_size). At padding the values mean nothing.

        Raises:
            CacheError: the call does not fit the cache, see labkit.errors.
            ValueError: a token id outside the vocabulary.
        """
        self.check(input_ids, mask)
        if cache is not None:
            states, fingerprint = cache.begin(self, input_ids, position)
        else:                                                                   # nothing was fed, nothing is kept
            states = (None,) * len(self.layers)
            Cache().check_position(position)
        if not input_ids.shape[1]:
            return self.embed.weight.new_zeros(*input_ids.shape, self.config.vocab_size)
        ids = input_ids if mask is None else torch.where(mask, input_ids, 0)
        x, new = self.embed(ids) * self.config.hidden_size ** 0.5, []           # (B, L, hidden_size)
        for layer, state in zip(self.layers, states):
            x, state = layer(x, state, mask)
            new.append(state)
        logits = F.linear(self.norm(x), self.embed.weight)                      # (B, L, vocab_size)
        if cache is not None:
            real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.clone()
            cache.commit(self, fingerprint, new, ids.long(), real)
        return logits

    def check(self, ids: Tensor, mask: Tensor | None = None) -> None:
        """Raise what `forward` would raise for these ids and this mask, cache apart."""
        weight = self.embed.weight
        if not isinstance(ids, Tensor) or ids.dtype not in (torch.int64, torch.int32):
            raise DtypeError(f"token ids must be a tensor of int64 or int32, got {getattr(ids, 'dtype', type(ids).__name__)}")
        if ids.dim() != 2 or not ids.shape[0]:
            raise BatchError(f"token ids are {tuple(ids.shape)}, they must be (batch, tokens) with at least one row; "
                             "for one text use ids[None]")
        if ids.device != weight.device:
            raise DeviceError(f"token ids are on {ids.device}, the model is on {weight.device}; move one of them "
                              "with .to(device)")
        if mask is not None:
            check_mask(mask, ids)
        if ids.is_meta:
            return
        wrong = (ids < 0) | (ids >= self.config.vocab_size)
        wrong = wrong if mask is None else wrong & mask
        if bool(wrong.any()):
            row, column = (int(n) for n in wrong.nonzero()[0])
            raise ValueError(f"token id {int(ids[row, column])} at row {row}, column {column} is outside the "
                             f"vocabulary of {self.config.vocab_size}")

    def fingerprint(self, anew: bool = False) -> str:
        """A hash of the configuration and of every weight, taken again when a weight's storage or version changes.

        Args:
            anew: take it in any case; writes through `.data` leave no other trace.
        """
        weights = dict(self.named_parameters())
        key = tuple((name, w.data_ptr(), w._version, w.dtype) for name, w in weights.items())
        if anew or key != self._memo[0]:
            self._memo = key, digest(json.dumps(asdict(self.config)), weights)
        return self._memo[1]

    def save(self, path: str | Path) -> None:
        """Write weights and configuration to a safetensors file, whole or not at all."""
        weights = {name: w.detach().contiguous() for name, w in self.state_dict().items()}
        with replacing(path) as file:
            file.write(save(weights, {"config": json.dumps(asdict(self.config))}))

    @classmethod
    def load(cls, path: str | Path) -> "HybridLM":
        """Read a file of `save`: a model for inference, in eval mode and without gradients.

        Raises:
            ConfigError: the file is not a model of this lab.
        """
        from safetensors import SafetensorError, safe_open
        try:
            with safe_open(path, "pt") as file:
                about = file.metadata() or {}
            weights = load_file(path)
            parts = json.loads(about["config"])
        except FileNotFoundError:
            raise ConfigError(f"there is no model at {path}") from None
        except (SafetensorError, KeyError, ValueError) as error:
            raise ConfigError(f"{path} is not a model saved by HybridLM.save: {error}") from None
        model = cls(ModelConfig(**{**parts, "layers": [tuple(layer) for layer in parts["layers"]]}))
        model.load_state_dict(weights)
        return model.to(next(iter(weights.values())).dtype).eval().requires_grad_(False)


class Layer(nn.Module):
    """A mixer and a gated MLP, each behind a norm and beside a residual."""

    def __init__(self, config: ModelConfig, kind: str, options: dict):
        super().__init__()
        if kind not in KINDS:
            raise ConfigError(f"no mixer is named {kind!r}; there are {', '.join(KINDS)}")
        inner = config.intermediate_size or 2 * config.hidden_size
        self.mixer_norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.mixer = KINDS[kind](hidden_size=config.hidden_size, **options)
        self.mlp_norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.gate_up = nn.Linear(config.hidden_size, 2 * inner, bias=False)
        self.down = nn.Linear(inner, config.hidden_size, bias=False)

    def forward(self, x, state, mask):
        y, state = self.mixer(self.mixer_norm(x), state, mask)
        x = x + y
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up), state
