"""Tiny models of the installed transformers: which architectures carry state, and how each is built offline."""

import re
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path

import torch
from torch import nn

from .lift import Float64, redraw

STATEFUL = re.compile(r"conv_state|recurrent_state|ssm_state|linear_cache|rnn_state|LinearAttention|time_decay")
MODEL = re.compile(r"^class (\w+For(?:CausalLM|ConditionalGeneration))\(", re.M)
CONTROLS = ("llama", "mistral")
PLAIN = {"full_attention", "sliding_attention", "chunked_attention", "moe", "mlp", "dummy"}

# Small values for every config that has the field: more than one group, biases on, heads that share keys.
SMALL = dict(
    vocab_size=48, unpadded_vocab_size=48, vocab_size_per_layer_input=48, hidden_size=32, embedding_dim=32,
    intermediate_size=32, num_hidden_layers=2,
    moe_intermediate_size=16, shared_expert_intermediate_size=16, shared_intermediate_size=16,
    moe_shared_expert_intermediate_size=16, num_attention_heads=4, num_key_value_heads=2, head_dim=8, num_heads=4,
    attention_hidden_size=32, swa_num_attention_heads=4, swa_num_key_value_heads=2, swa_head_dim=8, block_size=8,
    max_position_embeddings=128, model_max_length=128, context_length=512, sliding_window=16, sliding_window_size=16,
    attention_window_size=16, state_size=4, mamba_d_state=4, ssm_state_size=4, time_step_rank=4, mamba_dt_rank=4,
    chunk_size=8, mamba_chunk_size=8, n_groups=2, mamba_n_groups=2, mamba_ngroups=2, mamba_n_heads=8, mamba_d_head=8,
    mamba_num_heads=8, mamba_head_dim=8, lru_width=32, linear_num_key_heads=2, linear_num_value_heads=4,
    linear_key_head_dim=6, linear_value_head_dim=8, linear_head_dim=8, linear_num_heads=4, use_bias=True,
    mamba_proj_bias=True, attention_bias=True, mlp_bias=True, conv_bias=True, projectors_bias=True,
    add_bias_linear=True, lm_head_bias=True, num_experts=4, num_local_experts=4, n_routed_experts=4,
    num_experts_per_tok=2, num_experts_per_token=2, num_expert_group=1, n_group=1, topk_group=1,
    first_k_dense_replace=1, router_hidden_size=16, kv_lora_rank=8, q_lora_rank=8, qk_rope_head_dim=4,
    qk_nope_head_dim=8, v_head_dim=8, d_rel=4, rel_extent=64,
    attention_chunk_size=8, index_topk=512, index_head_dim=8, index_n_heads=2, hc_lowrank=8, hc_count=2, hc_mult=2,
    pad_token_id=0,
    bos_token_id=1, eos_token_id=None, experts_implementation="eager")
# What these fields do not say.
SPECIAL = {
    "mamba2": dict(num_heads=8, head_dim=8), "xlstm": dict(hidden_size=128, embedding_dim=128),
    "zaya": dict(num_experts_per_tok=1), "gemma3n": dict(num_hidden_layers=4, num_kv_shared_layers=2),
    "falcon_h1": dict(mamba_d_ssm=64), "minimax": dict(sliding_window=None),
    "olmo_hybrid": dict(linear_num_value_heads=2), "inkling": dict(logits_mup_width_multiplier=1.0),
    "dots3_note": dict(num_key_value_heads=4, shared_experts_intermediate_size=16, **{
        f"swa_{name}": 8 for name in ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim")},
        swa_num_attention_heads=4, swa_num_key_value_heads=4, swa_head_dim=12, swa_qk_rope_head_dim=4),
    "glm5_next": dict(qk_rope_head_dim=0, head_dim=0, index_kpool=2),
    "bailing_hybrid": dict(layer_group_size=2), "nemotron_h": dict(num_hidden_layers=None),
    "zamba": dict(num_hidden_layers=3, attention_head_dim=16, attention_hidden_size=64, num_key_value_heads=4),
    "zamba2": dict(num_hidden_layers=3, attention_head_dim=16, attention_hidden_size=64, num_key_value_heads=4,
                   n_mamba_heads=8, num_mem_blocks=1),
    "deepseek_v4": dict(num_key_value_heads=1, o_groups=2, o_lora_rank=8, compress_rates={
        "compressed_sparse_attention": 2, "heavily_compressed_attention": 4}),
    "qwen4_exp": dict(indexer_n_heads=2, indexer_kv_heads=1, indexer_head_dim=8, indexer_budget=512, eos_token_id=2,
                      indexer_compress_ratio=2, ple_embed_dim=16, ngram_vocab_size_base=64, split_ngram_parts=1,
                      make_ngram_vocab_size_divisible_by=1, heads_per_ngram=2)}


def _both(field, *kinds):
    return [{field: list(kinds)}, {field: [kinds[1], kinds[0], *kinds[2:]]}]


# Ways to order the kinds of layers, where the default layer_types do not show them.
ORDERS = {
    "jamba": [dict(attn_layer_period=2, attn_layer_offset=1), dict(attn_layer_period=2, attn_layer_offset=0)],
    "bamba": [dict(attn_layer_indices=[1]), dict(attn_layer_indices=[0])],
    "zamba": _both("layers_block_type", "linear_attention", "hybrid", "hybrid"),
    "zamba2": _both("layers_block_type", "linear_attention", "hybrid", "hybrid"),
    "nemotron_h": _both("layers_block_type", "linear_attention", "full_attention", "moe", "mlp"),
    "recurrent_gemma": _both("block_types", "recurrent", "attention"),
    "granitemoehybrid": _both("layer_types", "linear_attention", "full_attention"),
    "gemma3n": _both("layer_types", *["sliding_attention", "full_attention"] * 2),
    "lfm2": _both("layer_types", "conv", "full_attention"), "lfm2_moe": _both("layer_types", "conv", "full_attention"),
    "zaya": _both("layer_types", "hybrid", "hybrid_sliding"),
    "qwen4_exp": [order | {"ple_layer_ids": [i + 1]} for i, order in
                  enumerate(_both("layer_types", "linear_attention", "indexed_attention"))]}
VISION = dict(depth=1, hidden_size=16, num_heads=2, intermediate_size=16, out_hidden_size=32,
              projection_intermediate_size=16)


class NotBuilt(Exception):
    """An architecture that cannot be built tiny; the text says why."""


@dataclass(frozen=True)
class Recipe:
    """How one tiny model is built, from transformers alone.

    Attributes:
        name: the architecture, a folder of transformers.models.
        label: what is special, such as the order of the layers.
        config, model: names of classes in transformers.models.NAME.
        options: of the config.
    """

    name: str
    label: str
    config: str
    model: str
    options: dict = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.name}, {self.label}" if self.label else self.name


@cache
def sources() -> dict[str, str]:
    """The modeling source of every architecture of the installed transformers."""
    import transformers
    root = Path(transformers.__file__).parent / "models"
    return {path.parent.name: path.read_text() for path in sorted(root.glob("*/modeling_*.py"))
            if path.stem == "modeling_" + path.parent.name}


def names() -> list[str]:
    """Architectures whose model keeps conv or recurrent state, or mixes other kinds of layers than plain attention."""
    found = []
    for name, source in sources().items():
        if MODEL.search(source) and (name in CONTROLS or STATEFUL.search(source)
                                     or "ForCausalLM(" in source and _mixes(set(_kinds(name)))):
            found.append(name)
    return sorted(found, key=lambda name: (name not in CONTROLS, name))


def _mixes(kinds: set[str]) -> bool:
    """True for kinds of layers beyond plain attention, and for full attention beside sliding or chunked."""
    return not kinds <= PLAIN or len(kinds & {"full_attention", "sliding_attention", "chunked_attention"}) > 1


def _kinds(name: str) -> list[str]:
    """The kinds of layers in the default config, first come first."""
    try:
        return list(dict.fromkeys(getattr(_config_class(name)(), "layer_types", None) or ()))
    except Exception:                                       # a config without defaults mixes nothing that we can see
        return []


def _config_class(name: str):
    from transformers import PreTrainedConfig
    module = import_module(f"transformers.models.{name}.configuration_{name}")
    found = [getattr(module, attribute) for attribute in module.__all__]
    found = [cls for cls in found if isinstance(cls, type) and issubclass(cls, PreTrainedConfig)]
    text = [cls for cls in found if "Text" in cls.__name__]
    return (text or found)[0]


def recipes(name: str) -> list[Recipe]:
    """The tiny models of one architecture: both orders of its layers, and a finite limit of the time step.

    Raises:
        NotBuilt: no model for text in this architecture, or its config refuses every attempt.
    """
    if name not in sources():
        raise NotBuilt(f"transformers has no architecture {name!r} with a modeling file")
    models = sorted(MODEL.findall(sources()[name]))         # …ForCausalLM before …ForConditionalGeneration
    if not models:
        raise NotBuilt("it has no causal language model")
    cls = _config_class(name)
    try:
        known = set(cls().to_dict()) | set(cls.__dataclass_fields__) | {"experts_implementation"}
    except Exception as error:
        raise NotBuilt(f"its config cannot be made from defaults: {error}") from error
    options = {key: value for key, value in SMALL.items() if key in known}
    if "kv_lora_rank" in known:                             # latent attention: no shared key heads
        options |= {"num_key_value_heads": 4, "head_dim": 4}
    if _mixes(plain := set(_kinds(name))) and plain <= PLAIN and "sliding_window" in known:
        options["sliding_window"] = 5                       # short, so that its end is reached
    orders = [options | order | SPECIAL.get(name, {}) for order in ORDERS.get(name) or _orders(name, known)]
    made = [("" if len(orders) == 1 else f"{_first(cls, order)} first", order) for order in orders]
    if "time_step_limit" in known:
        made.append(("finite time_step_limit", orders[0] | {"time_step_limit": (0.1, 0.4)}))
    biases = ("use_bias", "mamba_proj_bias", "add_bias_linear", "conv_bias")
    biases = {bias: False for bias in biases if options.get(bias)}
    if biases:                                              # they leak out of padding; most releases have none
        made.append(("no projection bias", orders[0] | biases))
    for window in ("sliding_window", "sliding_window_size", "attention_window_size"):
        if (orders[0].get(window) or 5) > 5 and (name == "mistral" or "sliding" in str(_kinds(name)) or window[0] == "a"):
            made.append(("short window", orders[0] | {window: 5}))
    config = cls.__name__
    if models[0].endswith("ForConditionalGeneration"):      # a text model in a model of several parts
        config = config.replace("Text", "")
        made = [(label, {"text_config": given, "vision_config": VISION, "experts_implementation": "eager"})
                for label, given in made]
    return [Recipe(name, label, config, models[0], given) for label, given in made]


def _orders(name: str, known: set) -> list[dict]:
    """One layer of each kind of the default config, in both orders."""
    kinds = _kinds(name)
    if "layer_types" not in known or not kinds:
        return [{}]
    given = {"num_hidden_layers": max(2, len(kinds))}
    if "mlp_layer_types" in known:
        given["mlp_layer_types"] = ["moe"] * 9 if name == "deepseek_v4" else ["dense"] + ["sparse"] * 8
        given["mlp_layer_types"] = given["mlp_layer_types"][:given["num_hidden_layers"]]
    if "indexer_types" in known:
        given["indexer_types"] = ["full"] * given["num_hidden_layers"]
    if len(kinds) == 1:
        return [given | {"layer_types": kinds * 2}]
    return [given | {"layer_types": order} for order in (kinds, kinds[::-1])]


def _first(cls, options: dict) -> str:
    """The kind of the first layer, as the config tells it."""
    try:
        config = cls(**options)
        kinds = getattr(config, "layer_types", None) or config.layers_block_type
    except Exception as error:
        raise NotBuilt(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}") from error
    return kinds[0].removesuffix("_attention")


def build(recipe: Recipe) -> nn.Module:
    """The model of a recipe: made in float64, buffers too, and weights drawn again.

    Raises:
        NotBuilt: the library refuses the tiny config.
    """
    configs = import_module(f"transformers.models.{recipe.name}.configuration_{recipe.name}")
    models = import_module(f"transformers.models.{recipe.name}.modeling_{recipe.name}")
    try:
        torch.manual_seed(0)
        torch.set_default_dtype(torch.float64)
        with Float64():
            model = getattr(models, recipe.model)(getattr(configs, recipe.config)(**recipe.options))
    except Exception as error:
        raise NotBuilt(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}") from error
    finally:
        torch.set_default_dtype(torch.float32)
    return redraw(model)
