"""The rows of `python -m labkit bench`: what is measured.

A row is a function sizes -> (labkit's call, transformers' call, the limit's call). Its docstring is the name of the
row and, behind the bar, which part of the work the limit is. A row with `tokens` is told in tokens per second.
"""

from copy import deepcopy
from functools import partial
from importlib import import_module
from importlib.util import find_spec

import torch
import torch.nn.functional as F

from .cache import Cache
from .keyvalues import AttentionState
from .mixers import Mamba2Mixer
from .mixers.scan import CHUNK, gated_delta_scan, linear_scan, selective_scan, ssd_scan
from .model import HybridLM

RIVAL = find_spec("transformers") is not None


def rival_of(family):
    """transformers' module of a family."""
    return import_module(f"transformers.models.{family}.modeling_{family}")


def mamba2_scan(sizes):
    """Mamba2 scan, {length} tokens (24 heads of 64, state 128)|the matrix products of its chunks"""
    length, heads, width, size = sizes["length"], 24, 64, 128
    x, dt, A = torch.randn(1, length, heads, width), torch.rand(1, length, heads) / 10, -torch.arange(1.0, heads + 1)
    b, c, h = torch.randn(1, length, 1, size), torch.randn(1, length, 1, size), torch.zeros(1, heads, width, size)
    inner = torch.randn(heads, CHUNK, CHUNK)

    def limit():
        for start in range(0, length, CHUNK):
            xs, bs, cs = x[0, start:start + CHUNK], b[0, start:start + CHUNK, 0], c[0, start:start + CHUNK, 0]
            cs @ bs.T, inner @ xs.transpose(0, 1), cs @ h.view(-1, size).T, xs.flatten(1).T @ bs
    return (lambda: ssd_scan(x, dt, A, b, c, h)[0], lambda: rival_of("mamba2").mamba2_chunk_scan(
        x, dt, A, b, c, chunk_size=256, initial_states=h, return_final_states=True)[0], limit)


def griffin_scan(sizes):
    """RG-LRU scan, {length} tokens (768 channels)|reading a and u, writing y, once"""
    a, u = torch.rand(1, sizes["length"], 768) / 2 + 0.5, torch.randn(1, sizes["length"], 768)
    h, y, reset = torch.zeros(1, 768), torch.empty_like(u), torch.zeros(1, sizes["length"], 1, dtype=torch.bool)
    return (lambda: linear_scan(a, u, h)[0],
            lambda: rival_of("recurrent_gemma").RecurrentGemmaRglru._rnn_scan(None, u, a, reset, h)[0],
            lambda: torch.add(a, u, out=y))


def delta_scan(sizes):
    """gated delta scan, {length} tokens (4 key, 8 value heads of 128)|the matrix products of its chunks"""
    length, heads, shared, width = sizes["length"], 8, 2, 128
    q, k = (F.normalize(torch.randn(1, length, heads // shared, width), dim=-1) for _ in range(2))
    v, h = torch.randn(1, length, heads, width), torch.zeros(1, heads, width, width)
    g, beta = -torch.rand(1, length, heads), torch.rand(1, length, heads)
    inner = torch.randn(heads, CHUNK, CHUNK)

    def limit():
        for start in range(0, length, CHUNK):
            qs, ks, vs = (t[0, start:start + CHUNK].transpose(0, 1) for t in (q, k, v))
            qs @ ks.mT, ks @ ks.mT, inner @ vs
            for _ in range(shared):                 # h is read by k and q and written by k, for each value head
                qs @ h[0, ::shared], ks @ h[0, ::shared], ks.mT @ vs[::shared]
    return (lambda: gated_delta_scan(q * width ** -0.5, k, v, g, beta, h)[0],
            lambda: rival_of("qwen3_next").torch_chunk_gated_delta_rule(
                q, k, v, g, beta, initial_state=h, output_final_state=True)[0], limit)


def mamba_scan(sizes):
    """Mamba scan, {length} tokens (1536 channels, state 16)|one exp2 for each decay"""
    length, wide, size = sizes["length"], 1536, 16
    x, dt, h = torch.randn(1, length, wide), torch.rand(1, length, wide) / 10, torch.zeros(1, wide, size)
    A = -torch.arange(1.0, size + 1).repeat(wide, 1)
    b, c, (decay, out) = torch.randn(1, length, size), torch.randn(1, length, size), torch.rand(2, size, wide)
    return (lambda: selective_scan(x, dt, A, b, c, h)[0],
            lambda: rival_of("mamba").mamba_selective_scan(x.mT, dt.mT, A, b.mT, c.mT, return_last_state=True)[0].mT,
            lambda: [torch.exp2(decay, out=out) for _ in range(length)])


def mamba_gradient(sizes):
    """Mamba scan and gradient, {texts} texts (128 channels, state 32)|one exp2 for each decay, twice"""
    texts, length, wide, size = sizes["texts"], 128, 128, 32
    x, dt, h = torch.randn(texts, length, wide), torch.rand(texts, length, wide) / 10, torch.zeros(texts, wide, size)
    A = -torch.arange(1.0, size + 1).repeat(wide, 1)
    b, c, (decay, out) = torch.randn(texts, length, size), torch.randn(texts, length, size), torch.rand(2, texts, size, wide)
    inputs = [t.requires_grad_() for t in (x, dt, A, b, c)]

    def gradient(scan):
        with torch.enable_grad():
            return torch.autograd.grad(scan().sum(), inputs)[0]
    return (lambda: gradient(lambda: selective_scan(x, dt, A, b, c, h)[0]),
            lambda: gradient(lambda: rival_of("mamba").mamba_selective_scan(
                x.mT, dt.mT, A, b.mT, c.mT, return_last_state=True)[0]),
            lambda: [torch.exp2(decay, out=out) for _ in range(2 * length)])


def mamba2_layers(count, rival=True):
    """`count` Mamba2 layers of hidden size 768, each with its own weights: labkit's and, if wanted, transformers'."""
    mine = [Mamba2Mixer(hidden_size=768) for _ in range(count)]
    if not (rival and RIVAL):
        return mine, None, None
    from transformers import DynamicCache, Mamba2Config
    config = Mamba2Config(hidden_size=768, num_heads=24, head_dim=64, n_groups=1, num_hidden_layers=count)
    rivals = [rival_of("mamba2").Mamba2Mixer(config, layer_idx=i) for i in range(count)]
    for layer, other in zip(mine, rivals):
        other.load_state_dict(layer.state_dict())
    return mine, rivals, DynamicCache(config=config)


def mamba2_prefill(sizes):
    """Mamba2 mixer, prefill of {length} (hidden size 768)|its two projections"""
    (mine,), rivals, cache = mamba2_layers(1)
    x, y = torch.randn(1, sizes["length"], 768), torch.randn(1, sizes["length"], mine.intermediate_size)
    return (lambda: mine(x)[0], lambda: rivals[0](x, cache.reset() or cache),       # reset returns None
            lambda: (mine.in_proj(x), mine.out_proj(y)))


def mamba2_decode(sizes):
    """{tokens} tokens, one by one, through 8 Mamba2 layers|their projections"""
    layers, rivals, cache = mamba2_layers(8)
    prompt, tokens, states = torch.randn(1, 8, 768), torch.randn(sizes["tokens"], 1, 1, 768), [None] * 8
    wide = torch.randn(1, 1, layers[0].intermediate_size)

    def mine(x):
        for i, layer in enumerate(layers):
            y, states[i] = layer(x, states[i])
            x = x + y
        return x

    def rival(x):
        for layer in rivals:
            x = x + layer(x, cache)
        return x
    mine(prompt), RIVAL and rival(prompt)
    return (lambda: torch.cat([mine(x) for x in tokens]), lambda: torch.cat([rival(x) for x in tokens]),
            lambda: [(layer.in_proj(x), layer.out_proj(wide)) for x in tokens for layer in layers])


def appends(sizes):
    """{appends} appends of keys and values, 4 heads of 64|writing each into a ready buffer"""
    rows = torch.randn(sizes["appends"], 1, 4, 1, 64)
    keys, values = torch.zeros(2, 1, 4, sizes["appends"], 64)

    def mine():
        state = AttentionState.empty(1, 4, 64, rows)
        for row in rows:
            state = state.append(row, row)
        return state.keys

    def rival():
        from transformers import DynamicCache
        cache = DynamicCache()
        for row in rows:
            held, _ = cache.update(row, row, 0)
        return held

    def limit():
        for i, row in enumerate(rows):
            keys[:, :, i:i + 1], values[:, :, i:i + 1] = row, row
    return mine, rival, limit


# preset: its model in transformers, whose Mamba and Mamba2 have no MLPs, and what makes the sizes equal
DECODERS = {
    "short-conv": ("Lfm2", {"layer_types": ["conv", "conv", "full_attention"], "block_auto_adjust_ff_dim": False}),
    "mamba": ("Mamba", {"state_size": 32}),
    "mamba2": ("Mamba2", {"num_heads": 8, "state_size": 32, "n_groups": 1}),
    "griffin": ("RecurrentGemma", {"attention_window_size": 128, "lru_width": 64, "intermediate_size": 256}),
    "gated-delta": ("Qwen3Next", {"mlp_only_layers": [0, 1, 2, 3], "linear_num_key_heads": 2, "linear_key_head_dim": 16,
                                  "linear_num_value_heads": 4, "linear_value_head_dim": 16}),
    "attention": ("SmolLM3", {}),
    "hybrid": ("Bamba", {"attn_layer_indices": [1, 3], "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 32})}


def decode(preset, tokens=32):
    """A row: the preset writes tokens behind a prompt of 64, greedily."""
    def row(sizes):
        def writer(model, cache, name, copy):
            def feed(ids, cache):
                logits = model(ids, **{name: cache})
                return getattr(logits, "logits", logits)[:, -1:].argmax(-1)                 # (1, 1)

            def write():
                token, cache = first, copies.pop()
                for _ in range(tokens):
                    token = feed(token, cache)
            first = feed(torch.randint(512, (1, 64)), cache)
            copies = [copy(cache) for _ in range(sizes["repeats"] + 1)]                     # one for each turn
            return write
        model, x = HybridLM.preset(preset, 512), torch.randn(1, 1024)
        weights = [m.weight for m in model.modules() if isinstance(m, (torch.nn.Linear, torch.nn.Embedding))]
        return (writer(model, Cache(), "cache", Cache.fork),
                writer(*rival_model(preset, len(model.layers)), deepcopy) if RIVAL else None,
                lambda: [F.linear(x[:, :w.shape[1]], w) for _ in range(tokens) for w in weights])
    row.__doc__, row.tokens = f"decoding, {preset} beside {DECODERS[preset][0]}|one product with each matrix", tokens
    return row


def rival_model(preset, layers):
    """transformers' model of the same family and size, an empty cache, and how its forward names the cache."""
    import transformers
    name, options = DECODERS[preset]
    config = getattr(transformers, f"{name}Config")(**{
        "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": layers, "head_dim": 16,
        "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0, **options})
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    return (partial(model, use_cache=True), transformers.DynamicCache(config=config),
            "cache_params" if name.startswith("Mamba") else "past_key_values")


ROWS = (mamba2_scan, griffin_scan, delta_scan, mamba_scan, mamba_gradient, mamba2_prefill, mamba2_decode, appends,
        *map(decode, DECODERS))
