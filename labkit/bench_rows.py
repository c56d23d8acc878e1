"""The rows of `python -m labkit bench`: what is measured.

A row is a function sizes -> (labkit's call, transformers' call, the limit's call). Its docstring is the name of the
row and, behind the bar, which part of the work the limit is.
"""

from importlib.util import find_spec

import torch
import torch.nn.functional as F

from .keyvalues import AttentionState
from .mixers import Mamba2Mixer
from .mixers.scan import CHUNK, gated_delta_scan, linear_scan, selective_scan, ssd_scan

RIVAL = find_spec("transformers") is not None


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

    def rival():
        from transformers.models.mamba2.modeling_mamba2 import mamba2_chunk_scan
        return mamba2_chunk_scan(x, dt, A, b, c, chunk_size=256, initial_states=h, return_final_states=True)[0]
    return lambda: ssd_scan(x, dt, A, b, c, h)[0], rival, limit


def griffin_scan(sizes):
    """RG-LRU scan, {length} tokens (768 channels)|reading a and u, writing y, once"""
    a, u = torch.rand(1, sizes["length"], 768) / 2 + 0.5, torch.randn(1, sizes["length"], 768)
    h, y, reset = torch.zeros(1, 768), torch.empty_like(u), torch.zeros(1, sizes["length"], 1, dtype=torch.bool)

    def rival():
        from transformers.models.recurrent_gemma.modeling_recurrent_gemma import RecurrentGemmaRglru
        return RecurrentGemmaRglru._rnn_scan(None, u, a, reset, h)[0]
    return lambda: linear_scan(a, u, h)[0], rival, lambda: torch.add(a, u, out=y)


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

    def rival():
        from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule
        return torch_chunk_gated_delta_rule(q, k, v, g, beta, initial_state=h, output_final_state=True)[0]
    return lambda: gated_delta_scan(q * width ** -0.5, k, v, g, beta, h)[0], rival, limit


def mamba_scan(sizes):
    """Mamba scan, {length} tokens (1536 channels, state 16)|one exp2 for each decay"""
    length, wide, size = sizes["length"], 1536, 16
    x, dt, h = torch.randn(1, length, wide), torch.rand(1, length, wide) / 10, torch.zeros(1, wide, size)
    A = -torch.arange(1.0, size + 1).repeat(wide, 1)
    b, c, decay = torch.randn(1, length, size), torch.randn(1, length, size), torch.rand(size, wide)

    def limit():
        for _ in range(length):
            decay.exp2()

    def rival():
        from transformers.models.mamba.modeling_mamba import mamba_selective_scan
        return mamba_selective_scan(x.mT, dt.mT, A, b.mT, c.mT, return_last_state=True)[0].mT
    return lambda: selective_scan(x, dt, A, b, c, h)[0], rival, limit


def mamba2_layers(count, rival=True):
    """`count` Mamba2 layers of hidden size 768, each with its own weights: labkit's and, if wanted, transformers'."""
    mine = [Mamba2Mixer(hidden_size=768) for _ in range(count)]
    if not (rival and RIVAL):
        return mine, None, None
    from transformers import DynamicCache, Mamba2Config
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer as Rival
    config = Mamba2Config(hidden_size=768, num_heads=24, head_dim=64, n_groups=1, num_hidden_layers=count)
    rivals = [Rival(config, layer_idx=i) for i in range(count)]
    for layer, other in zip(mine, rivals):
        other.load_state_dict(layer.state_dict())
    return mine, rivals, DynamicCache(config=config)


def mamba2_prefill(sizes):
    """Mamba2 mixer, prefill of {length} (hidden size 768)|its two projections"""
    (mine,), rivals, cache = mamba2_layers(1)
    x, y = torch.randn(1, sizes["length"], 768), torch.randn(1, sizes["length"], mine.intermediate_size)

    def rival():
        cache.reset()
        return rivals[0](x, cache)
    return lambda: mine(x)[0], rival, lambda: (mine.in_proj(x), mine.out_proj(y))


def mamba2_decode(sizes):
    """{tokens} tokens, one by one, through 8 Mamba2 layers|their projections"""
    layers, rivals, cache = mamba2_layers(8)
    prompt, tokens = torch.randn(1, 8, 768), torch.randn(sizes["tokens"], 1, 1, 768)
    wide = torch.randn(1, 1, layers[0].intermediate_size)

    def feed(x, states):
        for i, layer in enumerate(layers):
            y, states[i] = layer(x, states[i])
            x = x + y
        return x

    def feed_rival(x):
        for layer in rivals:
            x = x + layer(x, cache)
        return x

    def mine():
        states = list(begun)
        return torch.cat([feed(x, states) for x in tokens])

    begun = [None] * 8
    feed(prompt, begun)
    if RIVAL:
        feed_rival(prompt)
    return (mine, lambda: torch.cat([feed_rival(x) for x in tokens]),
            lambda: [(layer.in_proj(x), layer.out_proj(wide)) for x in tokens for layer in layers])


def appends(sizes):
    """{appends} appends of keys and values, 4 heads of 64|writing each into a ready buffer"""
    count = sizes["appends"]
    rows = torch.randn(count, 1, 4, 1, 64)
    keys, values = torch.zeros(1, 4, count, 64), torch.zeros(1, 4, count, 64)

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


def prefill(mixer):
    """A row of the growth table: one prefill, without limit or rival."""
    def row(sizes):
        x = torch.randn(1, sizes["length"], mixer.hidden_size)
        return lambda: mixer(x)[0], None, None
    return row


ROWS = (mamba2_scan, griffin_scan, delta_scan, mamba_scan, mamba2_prefill, mamba2_decode, appends)
