"""What one release of transformers does in the reported situations; run by `python -m labkit versions`.

This file stands alone: it needs torch and transformers, nothing of labkit, so that it runs beside any release.
`python real_cases.py` prints JSON: case -> outcome. Tiny random models at unit gain, float64, greedy.
"""

import inspect
import json
import sys
import warnings

import torch
import transformers

warnings.filterwarnings("ignore")
PROMPT, NEW = 6, 8                      # tokens of the prompt, tokens to generate
BEFORE, CHUNK = 9, 5                    # tokens fed first, then a chunk of several


def redraw(model):
    """Unit gain: with the library's small first weights a lost state hardly shows."""
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.double().named_parameters():
            noise = torch.randn(weight.shape, generator=draw, dtype=torch.float64)
            if "A_log" in name or "recurrent_param" in name:
                noise = noise * 0.5
            elif "dt" in name and weight.dim() == 1:
                noise = noise * 0.5 - 2
            elif "norm" in name or name.endswith(".D"):
                noise = 1 + 0.2 * noise
            else:
                noise = noise * (weight.shape[1:].numel() ** -0.5 if weight.dim() > 1 else 0.3)
            weight.copy_(noise)
    return model.eval()


def said(error):
    return {"raises": type(error).__name__, "message": " ".join(str(error).split())[:200]}


# cache-position ----------------------------------------------------------------------------------------------------

def llama():
    config = transformers.LlamaConfig(vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
                                      pad_token_id=0, bos_token_id=1, eos_token_id=None, attn_implementation="eager")
    torch.manual_seed(0)
    return redraw(transformers.LlamaForCausalLM(config))


class CachePosition:
    """A cache that holds the prompt, and the ways out that the report and the tracker propose."""

    def __init__(self):
        self.model = llama()
        draw = torch.Generator().manual_seed(1)
        self.ids, more = torch.randint(3, 50, (1, PROMPT + 1), generator=draw).split([PROMPT, 1], 1)
        self.longer = torch.cat([self.ids, more], 1)

    def cached(self, n=PROMPT):
        return self.model(self.ids[:, :n], past_key_values=transformers.DynamicCache(), use_cache=True)

    def uncached(self, ids, n=NEW):
        for _ in range(n):
            ids = torch.cat([ids, self.model(ids, use_cache=False).logits[:, -1:].argmax(-1)], 1)
        return ids

    def generate(self, ids, cache, wanted=None, n=NEW, **more):
        wanted = self.uncached(ids, n) if wanted is None else wanted
        found = self.model.generate(ids, attention_mask=torch.ones_like(ids), past_key_values=cache, max_new_tokens=n,
                                    do_sample=False, **more)
        same = (found[0, ids.shape[1]:] == wanted[0, ids.shape[1]:]).tolist()
        return {"right": sum(same), "of": n, "cache": int(cache.get_seq_length())}

    def full_prompt(self):
        return self.generate(self.ids, self.cached().past_key_values)

    def manual(self):
        return self.generate(self.ids, self.cached().past_key_values, cache_position=torch.arange(PROMPT))

    def saved(self):
        outputs = self.cached()
        return self.generate(self.ids, outputs.past_key_values, cache_position=outputs.cache_position)

    def new_tokens(self):
        cache = self.cached().past_key_values
        outputs = self.model.generate(self.ids, past_key_values=cache, max_new_tokens=NEW, do_sample=False)
        fresh = outputs[0][PROMPT:][None]
        return self.generate(fresh, outputs.past_key_values)

    def new_tokens_repaired(self):
        """The third proposal with its slips mended: one token uncached at first, the cache taken from the result."""
        wanted = self.uncached(self.ids, 2 * NEW)[0, PROMPT:]
        options = dict(max_new_tokens=NEW, do_sample=False, return_dict_in_generate=True)
        one = self.model.generate(self.ids, past_key_values=self.cached(PROMPT - 1).past_key_values, **options)
        fresh = one.sequences[:, PROMPT:]
        two = self.model.generate(fresh, past_key_values=one.past_key_values, **options)
        found = torch.cat([fresh[0], two.sequences[0, NEW:]])
        return {"right": int((found == wanted).sum()), "of": 2 * NEW}

    def one_more_token(self):
        return self.generate(self.longer, self.cached().past_key_values)

    def crop_n_minus_1(self):
        cache = self.cached().past_key_values
        cache.crop(PROMPT - 1)
        return self.generate(self.ids, cache)

    def crop_minus_1(self):
        cache = self.cached().past_key_values
        cache.crop(-1)
        return self.generate(self.ids, cache)

    def leave_one_uncached(self):
        return self.generate(self.ids, self.cached(PROMPT - 1).past_key_values)

    def all_ids_same_cache(self):
        cache = self.cached(PROMPT - 1).past_key_values
        first = self.model.generate(self.ids, past_key_values=cache, max_new_tokens=NEW, do_sample=False)
        return self.generate(first, cache)

    def caller_cache_changes(self):
        """A second, equal call with the cache that the first call was given."""
        cache = self.cached().past_key_values
        self.generate(self.longer, cache)
        return self.generate(self.longer, cache)

    def reset_then_again(self):
        """reset() and a new text: are old keys still attended to?"""
        cache = self.cached().past_key_values
        cache.reset()
        found = self.model(self.longer, past_key_values=cache, use_cache=True).logits
        wanted = self.model(self.longer, use_cache=False).logits
        return strip(found, wanted)


# dropped-chunk and its family --------------------------------------------------------------------------------------

BASE = dict(vocab_size=50, hidden_size=32, num_hidden_layers=2, pad_token_id=0, bos_token_id=1, eos_token_id=2)
HEADS = dict(num_attention_heads=4, num_key_value_heads=2, intermediate_size=48)
SSM2 = dict(mamba_d_state=8, mamba_n_heads=8, mamba_d_head=8, mamba_n_groups=1, mamba_expand=2, mamba_chunk_size=16)
MODELS = {
    "mamba2": dict(BASE, num_heads=8, head_dim=8, state_size=8, n_groups=2, chunk_size=16, expand=2),
    "mamba": dict(BASE, state_size=8), "falcon_mamba": dict(BASE, state_size=8),
    "bamba": dict(BASE, **HEADS, **SSM2, attn_layer_indices=[1]),
    "falcon_h1": dict(BASE, **HEADS, mamba_d_ssm=64, **{k: v for k, v in SSM2.items() if k != "mamba_expand"}),
    "granitemoehybrid": dict(BASE, **HEADS, **SSM2, layer_types=["mamba", "attention"], num_local_experts=0,
                             shared_intermediate_size=48),
    "jamba": dict(BASE, **HEADS, attn_layer_period=2, attn_layer_offset=1, num_experts=1, use_mamba_kernels=False,
                  mamba_d_state=8, mamba_dt_rank=4),
    "lfm2": dict(BASE, **HEADS, layer_types=["conv", "full_attention"], block_auto_adjust_ff_dim=False),
    "zamba2": {**BASE, **HEADS, "mamba_d_state": 8, "mamba_ngroups": 1, "n_mamba_heads": 8, "chunk_size": 16,
               "num_mem_blocks": 1, "attention_head_dim": 16, "attention_hidden_size": 64, "num_hidden_layers": 3,
               "num_key_value_heads": 4},
    "nemotron_h": dict(BASE, **HEADS, head_dim=8, mamba_num_heads=8, mamba_head_dim=8, ssm_state_size=8, n_groups=1,
                       chunk_size=16),
    "recurrent_gemma": dict(BASE, **HEADS, lru_width=32, attention_window_size=64, head_dim=8,
                            block_types=["recurrent", "attention"]),
}


# The order of layers, under the names of newer and of older releases.
ORDERS = {"zamba2": [{"layers_block_type": [kind, "hybrid", "hybrid"]} for kind in ("linear_attention", "mamba")],
          "nemotron_h": [{"layers_block_type": ["linear_attention", "full_attention"], "num_hidden_layers": None},
                         {"layers_block_type": ["mamba", "attention"]}, {"hybrid_override_pattern": "M*"}]}


def build(name):
    """The model, in the first order of layers that this release understands."""
    orders = ORDERS.get(name, [{}])
    for order in orders:
        try:
            config = transformers.AutoConfig.for_model(name, **{**MODELS[name], **order})
            torch.manual_seed(0)
            return redraw(transformers.AutoModelForCausalLM.from_config(config))
        except Exception:
            if order is orders[-1]:
                raise


def strip(found, wanted):
    """Which positions are right: {"strip": "....XX", "error", "scale"}; a letter a token."""
    wrong = (found - wanted).abs().amax((0, -1)) > 1e-4 * wanted.abs().max()
    return {"strip": "".join(".X"[bad] for bad in wrong.tolist()), "error": float(f"{(found - wanted).abs().max():.3g}"),
            "scale": float(f"{wanted.abs().max():.3g}")}


def fed(model, ids, sizes, mask=None):
    """Logits of ids fed in pieces through one cache, under whatever name this release gives it; mask (B, L) or None."""
    taken, kept, outputs, at = inspect.signature(model.forward).parameters, own_cache(model, len(ids)), [], 0
    if model.config.model_type == "recurrent_gemma" and (name := {"past_key_values", "cache"} & set(taken)):
        config = {"config": model.config} if "config" in inspect.signature(transformers.DynamicCache).parameters else {}
        kept = {name.pop(): transformers.DynamicCache(**config)}        # it gives none back
    positions = (torch.ones_like(ids) if mask is None else mask).cumsum(1).sub(1).clamp(min=0)
    for size in sizes:
        more = dict(kept)
        if "position_ids" in taken:
            more["position_ids"] = positions[:, at:at + size]
        if "cache_position" in taken or "cache_params" in taken and at:
            more["cache_position"] = torch.arange(at, at + size)
        if mask is not None:
            more["attention_mask"] = mask[:, :at + size]
        result = model(ids[:, at:at + size], use_cache=True, **more)
        outputs.append(result.logits)
        kept.update((name, getattr(result, name)) for name in ("cache", "past_key_values", "cache_params")
                    if getattr(result, name, None) is not None and (name in taken or name == "past_key_values"))
        at += size
    return torch.cat(outputs, 1)


def own_cache(model, batch):
    """The cache class that hybrid models of older releases want to be given; {} where there is none."""
    found = [cls for name, cls in vars(sys.modules[type(model).__module__]).items()
             if name.endswith("HybridMambaAttentionDynamicCache")]
    if not found:
        return {}
    more = {"devices": ["cpu"] * model.config.num_hidden_layers} if "Falcon" in found[0].__name__ else {}
    return {"past_key_values": found[0](model.config, batch, torch.float64, **more)}


def chunk(name):
    """Prefill, a chunk, then three tokens one at a time."""
    model = build(name)
    ids = torch.randint(3, 50, (2, BEFORE + CHUNK + 3), generator=torch.Generator().manual_seed(2))
    return strip(fed(model, ids, [BEFORE, CHUNK, 1, 1, 1]), build(name)(ids, use_cache=False).logits)


def decode(name):
    model = build(name)
    ids = torch.randint(3, 50, (2, BEFORE + CHUNK), generator=torch.Generator().manual_seed(2))
    return strip(fed(model, ids, [BEFORE] + [1] * CHUNK), build(name)(ids, use_cache=False).logits)


def padded(name):
    """The second row is padded on the left, past the first call and into the chunk; it is compared with itself alone."""
    ids = torch.randint(3, 50, (2, BEFORE + CHUNK + 2), generator=torch.Generator().manual_seed(2))
    mask = torch.ones_like(ids)
    mask[1, :BEFORE + 2] = 0
    found = fed(build(name), ids, [BEFORE, CHUNK, 1, 1], mask)[1:, mask[1].bool()]
    return strip(found, build(name)(ids[1:, mask[1].bool()], use_cache=False).logits)


def look_ahead():
    """Change the chunk's last token: which positions of the chunk move?"""
    model = build("mamba2")
    ids = torch.randint(3, 50, (2, BEFORE + CHUNK), generator=torch.Generator().manual_seed(2))
    other = torch.cat([ids[:, :-1], 3 + (ids[:, -1:] + 7) % 40], 1)
    return strip(*(fed(model, text, [BEFORE, CHUNK])[:, BEFORE:] for text in (ids, other)))


def cases():
    if "cache-position" in sys.argv:
        lab = CachePosition()
        yield from ((name, getattr(lab, name)) for name in vars(CachePosition) if name not in (
            "cached", "uncached", "generate") and not name.startswith("__"))
    else:
        yield "look_ahead", look_ahead
        for name in MODELS:
            yield f"chunk {name}", lambda name=name: chunk(name)
            yield f"decode {name}", lambda name=name: decode(name)
        for name in ("mamba2", "bamba", "lfm2"):
            yield f"padded {name}", lambda name=name: padded(name)


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    outcomes = {}
    for name, run in cases():
        try:
            outcomes[name] = run()
        except Exception as error:                      # a release may lack a model or refuse: that is the outcome
            outcomes[name] = said(error)
    print(json.dumps({"transformers": transformers.__version__, "outcomes": outcomes}))


if __name__ == "__main__":
    main()
