"""Tiny models of the installed transformers: which architectures carry state, and how each is built offline."""

import re
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path

import torch
from torch import nn

from .lift import Float64

STATEFUL = re.compile(r"conv_state|recurrent_state|ssm_state|linear_cache|rnn_state|LinearAttention|time_decay")
CAUSAL = re.compile(r"^class (\w+ForCausalLM)\(", re.M)
CONDITIONAL = re.compile(r"^class (\w+ForConditionalGeneration)\(", re.M)
CONTROLS = ("llama", "mistral")
PLAIN = {"full_attention", "sliding_attention", "chunked_attention", "moe", "mlp", "dummy"}

# Small values for every config that has the field: more than one group, biases on, heads that share keys.
SMALL = dict(
    vocab_size=48, hidden_size=32, embedding_dim=32, intermediate_size=32, moe_intermediate_size=16, num_hidden_layers=2,
    shared_expert_intermediate_size=16, shared_intermediate_size=16, moe_shared_expert_intermediate_size=16,
    attention_hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=8, swa_num_attention_heads=4,
    swa_num_key_value_heads=2, swa_head_dim=8, num_heads=4, max_position_embeddings=128, model_max_length=128,
    state_size=4, mamba_d_state=4, ssm_state_size=4, time_step_rank=4, mamba_dt_rank=4, chunk_size=8, mamba_chunk_size=8,
    n_groups=2, mamba_n_groups=2, mamba_ngroups=2, mamba_n_heads=8, mamba_d_head=8, mamba_num_heads=8, mamba_head_dim=8,
    use_bias=True, mamba_proj_bias=True, attention_bias=True, mlp_bias=True, conv_bias=True, projectors_bias=True,
    add_bias_linear=True, lm_head_bias=True, num_experts=4, num_local_experts=4, n_routed_experts=4, num_experts_per_tok=2,
    num_experts_per_token=2, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6,
    linear_value_head_dim=8, linear_head_dim=8, linear_num_heads=4, kv_lora_rank=8, q_lora_rank=8, qk_rope_head_dim=4,
    qk_nope_head_dim=8, v_head_dim=8, num_expert_group=1, n_group=1, topk_group=1, first_k_dense_replace=1, block_size=8,
    sliding_window=16, sliding_window_size=16, attention_window_size=16, lru_width=32, d_rel=4, rel_extent=64,
    index_topk=512, index_head_dim=8, index_n_heads=2, router_hidden_size=16, hc_lowrank=8, hc_count=2, hc_mult=2,
    context_length=512, unpadded_vocab_size=48, pad_token_id=0, bos_token_id=1, eos_token_id=None,
    experts_implementation="eager")

HYBRID = "layers_block_type"


def _both(field, *kinds):
    return [{field: list(kinds)}, {field: [kinds[1], kinds[0], *kinds[2:]]}]


# What the fields above do not say: overrides, and the ways to order the kinds of layers.
SPECIAL = {
    "mamba2": dict(num_heads=8, head_dim=8), "llama": dict(head_dim=8), "xlstm": dict(hidden_size=128, embedding_dim=128), "zaya": dict(num_experts_per_tok=1),
    "falcon_h1": dict(mamba_d_ssm=64), "olmo_hybrid": dict(linear_num_value_heads=2),
    "zamba": dict(attention_head_dim=16, attention_hidden_size=64, num_key_value_heads=4),
    "glm5_next": dict(qk_rope_head_dim=0, head_dim=0),
    "zamba2": dict(num_key_value_heads=4, attention_hidden_size=64, attention_head_dim=16, n_mamba_heads=8, num_mem_blocks=1),
    "deepseek_v4": dict(num_key_value_heads=1, o_groups=2, o_lora_rank=8, mlp_layer_types=["moe", "moe"], compress_rates={
        "compressed_sparse_attention": 2, "heavily_compressed_attention": 4}),
    "inkling": dict(logits_mup_width_multiplier=1.0), "dots3_note": dict(num_key_value_heads=4),
    "nemotron_h": dict(num_hidden_layers=None), "minimax": dict(sliding_window=None),
    "bailing_hybrid": dict(layer_group_size=2),
    "qwen4_exp": dict(indexer_n_heads=2, indexer_kv_heads=1, indexer_head_dim=8, indexer_budget=512,
                      indexer_compress_ratio=2, ple_embed_dim=16, eos_token_id=2, ngram_vocab_size_base=64, split_ngram_parts=1,
                      make_ngram_vocab_size_divisible_by=1, heads_per_ngram=2),
}
ORDERS = {
    "jamba": [dict(attn_layer_period=2, attn_layer_offset=1), dict(attn_layer_period=2, attn_layer_offset=0)],
    "bamba": [dict(attn_layer_indices=[1]), dict(attn_layer_indices=[0])],
    "zamba": _both(HYBRID, "linear_attention", "hybrid", "hybrid"),
    "zamba2": _both(HYBRID, "linear_attention", "hybrid", "hybrid"),
    "recurrent_gemma": _both("block_types", "recurrent", "attention"),
    "granitemoehybrid": _both("layer_types", "linear_attention", "full_attention"),
    "lfm2": _both("layer_types", "conv", "full_attention"), "lfm2_moe": _both("layer_types", "conv", "full_attention"),
    "qwen4_exp": [order | {"ple_layer_ids": [i + 1]} for i, order in
                  enumerate(_both("layer_types", "linear_attention", "indexed_attention"))],
    "zaya": _both("layer_types", "hybrid", "hybrid_sliding"),
    "nemotron_h": [{HYBRID: ["linear_attention", "mlp", "full_attention", "moe"]},
                   {HYBRID: ["full_attention", "moe", "linear_attention", "mlp"]}],
}
VISION = dict(depth=1, hidden_size=16, num_heads=2, intermediate_size=16, out_hidden_size=32, projection_intermediate_size=16)


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
        if not (CAUSAL.search(source) or CONDITIONAL.search(source) and STATEFUL.search(source)):
            continue
        if STATEFUL.search(source) or name in CONTROLS or not set(_kinds(name)) <= PLAIN:
            found.append(name)
    return sorted(found, key=lambda name: (name not in CONTROLS, name))


def _kinds(name: str) -> list[str]:
    """The kinds of layers in the default config, first come first."""
    try:
        config = _config_class(name)()
        return list(dict.fromkeys(getattr(config, "layer_types", None) or ()))
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
    model = CAUSAL.search(sources()[name]) or CONDITIONAL.search(sources()[name])
    if not model:
        raise NotBuilt("it has no causal language model")
    cls = _config_class(name)
    try:
        known = set(cls().to_dict()) | set(cls.__dataclass_fields__) | {"experts_implementation"}
    except Exception as error:
        raise NotBuilt(f"its config cannot be made from defaults: {error}") from error
    options = {key: value for key, value in SMALL.items() if key in known}
    if "kv_lora_rank" in known:                             # latent attention: no shared key heads
        options |= {"num_key_value_heads": 4, "head_dim": 4}
    for kinds in (order.get(HYBRID) for order in ORDERS.get(name, ())):
        options |= {"num_hidden_layers": len(kinds)} if kinds else {}
    options |= SPECIAL.get(name, {})
    made = []
    for order in ORDERS.get(name) or _orders(_kinds(name), known):
        made.append(Recipe(name, _label(order), cls.__name__, model[1], order | options if name == "deepseek_v4" else options | order))
    if "time_step_limit" in known:
        made.append(Recipe(name, "finite time_step_limit", cls.__name__, model[1],
                           made[0].options | {"time_step_limit": (0.1, 0.4)}))
    if (window := next((key for key in ("sliding_window", "sliding_window_size", "attention_window_size")
                        if options.get(key)), None)) and any("sliding" in str(value) or key == "attention_window_size"
                                                             or name == "mistral" for key, value in options.items()):
        made.append(Recipe(name, "short window", cls.__name__, model[1], made[0].options | {window: 5}))
    if model[1].endswith("ForConditionalGeneration"):
        made = [replace(recipe, config=recipe.config.replace("Text", ""), options={
            "text_config": recipe.options, "vision_config": VISION, "experts_implementation": "eager"}) for recipe in made]
    return made


def _orders(kinds: list[str], known: set) -> list[dict]:
    if "layer_types" not in known or len(kinds) < 1:
        return [{}]
    extra = {"num_hidden_layers": len(kinds)} if len(kinds) > 1 else {"num_hidden_layers": 2}
    kinds = kinds if len(kinds) > 1 else kinds * 2
    mlp = {"mlp_layer_types": (["dense"] + ["sparse"] * len(kinds))[:len(kinds)]} if "mlp_layer_types" in known else {}
    if "index_kpool" in known:
        mlp |= {"index_kpool": 2, "indexer_types": ["full"] * len(kinds)}
    return [dict(layer_types=order, **extra, **mlp) for order in ([kinds] if len(set(kinds)) < 2 else [kinds, kinds[::-1]])]


def _label(order: dict) -> str:
    for kinds in (order.get("layer_types"), order.get(HYBRID), order.get("block_types")):
        if kinds and len(set(kinds)) > 1:
            return f"{kinds[0].split('_attention')[0]} first"
    return {"attn_layer_offset": {1: "linear first", 0: "full first"}.get(order.get("attn_layer_offset")),
            "attn_layer_indices": "full first" if order.get("attn_layer_indices") == [0] else "linear first"}.get(
                next((key for key in order if key in ("attn_layer_offset", "attn_layer_indices")), ""), "")


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


@torch.no_grad()
def redraw(model):
    """Weights at unit gain and nowhere zero, float64, eval: a lost state then shows at full size."""
    generator = torch.Generator().manual_seed(0)
    for name, weight in model.named_parameters():
        draw = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
        if "A_log" in name or "decay" in name:
            draw = draw * 0.5
        elif "recurrent_param" in name or "dt" in name and weight.dim() == 1:
            draw = draw * 0.5 - 2                           # time steps of 0.05 to 0.3
        elif "norm" in name or name.endswith(".D"):
            draw = 1 + 0.2 * draw
        elif weight.dim() > 1:
            draw = draw * weight.shape[-1] ** -0.5
        else:
            draw = draw * 0.3
        weight.copy_(draw)
    return model.double().eval()
