"""The specification: each mixer as a plain loop over the real tokens of one row, written from the equations.

Every reference takes a mixer (for its weights) and x (L, hidden_size) of one row, and returns y (L, hidden_size) and
the last values of the state by name. No chunk, no batch, no mask: the caller drops padding before.
"""

import math

import torch
import torch.nn.functional as F


def windows(u, width):
    """u (L, C) with width-1 zero rows in front: (L, C, width), the inputs of each step's taps; and the last window."""
    u = torch.cat([u.new_zeros(width - 1, u.shape[1]), u])
    steps = torch.stack([u[t:t + width].T for t in range(len(u) - width + 1)])
    return steps, u[len(u) - width + 1:].T


def conv(layer, u):
    taps = layer.weight[:, 0]
    steps, window = windows(u, taps.shape[1])
    y = (steps * taps).sum(-1)
    return (y if layer.bias is None else y + layer.bias), window


def short_conv(m, x):
    b, c, v = m.in_proj(x).chunk(3, -1)
    y, window = conv(m.conv, b * v)
    return m.out_proj(c * y), {"conv": window}


def mamba(m, x):
    u, z = m.in_proj(x).chunk(2, -1)
    u, window = conv(m.conv1d, u)
    u = m.act(u)
    dt, b, c = m.x_proj(u).split([m.time_step_rank, m.state_size, m.state_size], -1)
    dt, A, h, ys = F.softplus(m.dt_proj(dt)), -m.A_log.exp(), u.new_zeros(m.A_log.shape), []
    for t in range(len(x)):
        h = torch.exp(dt[t, :, None] * A) * h + (dt[t] * u[t])[:, None] * b[t]
        ys.append(h @ c[t] + m.D * u[t])
    return m.out_proj(torch.stack(ys) * F.silu(z)), {"conv": window, "recurrent": h}


def mamba2(m, x):
    inner, groups = m.intermediate_size, m.n_groups * m.state_size
    z, u, dt = m.in_proj(x).split([inner, inner + 2 * groups, m.num_heads], -1)
    u, window = conv(m.conv1d, u)
    u, b, c = m.act(u).split([inner, groups, groups], -1)
    dt = F.softplus(dt + m.dt_bias).clamp(*m.time_step_limit)
    h, ys = u.new_zeros(m.num_heads, m.head_dim, m.state_size), []
    for t in range(len(x)):
        out = []
        for head in range(m.num_heads):
            group = head // (m.num_heads // m.n_groups)
            bt, ct = (v[t].view(m.n_groups, -1)[group] for v in (b, c))
            xt, d = u[t].view(m.num_heads, -1)[head], dt[t, head]
            new = torch.exp(-d * m.A_log[head].exp()) * h[head] + d * torch.outer(xt, bt)
            h = torch.cat([h[:head], new[None], h[head + 1:]])
            out.append(new @ ct + m.D[head] * xt)
        y = torch.cat(out) * F.silu(z[t])
        y = torch.cat([part / (part.square().mean() + m.norm.eps).sqrt() for part in y.chunk(m.n_groups)])
        ys.append(y * m.norm.weight)
    return m.out_proj(torch.stack(ys)), {"conv": window, "recurrent": h}


def griffin(m, x):
    y, u = m.act(m.linear_y(x)), m.linear_x(x)
    u, window = conv(m.conv_1d, u)
    h, hs, lru = u.new_zeros(m.lru_width), [], m.rg_lru

    def gate(ut, weight, bias):
        return torch.sigmoid(torch.cat([part @ w for part, w in zip(ut.chunk(len(weight)), weight)]) + bias.flatten())
    for t in range(len(x)):
        i = gate(u[t], lru.input_gate_weight, lru.input_gate_bias)
        r = gate(u[t], lru.recurrent_gate_weight, lru.recurrent_gate_bias)
        a = torch.exp(-8 * r * F.softplus(lru.recurrent_param))
        h = i * u[t] if t == 0 else a * h + (1 - a * a).sqrt() * i * u[t]
        hs.append(h)
    return m.linear_out(torch.stack(hs) * y), {"conv": window, "recurrent": h, "seen": torch.tensor(len(x))}


def gated_delta(m, x):
    ratio, hk, dk, dv = m.num_v_heads // m.num_k_heads, m.num_k_heads, m.head_k_dim, m.head_v_dim
    rows = m.in_proj_qkvz(x).view(len(x), hk, -1)
    q, k, v, z = (part.reshape(len(x), -1) for part in rows.split([dk, dk, ratio * dv, ratio * dv], -1))
    b, a = (part.reshape(len(x), -1) for part in m.in_proj_ba(x).view(len(x), hk, -1).split([ratio, ratio], -1))
    u, window = conv(m.conv1d, torch.cat([q, k, v], -1))
    q, k, v = F.silu(u).split([hk * dk, hk * dk, ratio * hk * dv], -1)
    S, ys = [x.new_zeros(dk, dv) for _ in range(m.num_v_heads)], []
    for t in range(len(x)):
        out = []
        for head in range(m.num_v_heads):
            qt, kt = (w[t].view(hk, -1)[head // ratio] for w in (q, k))
            qt, kt = (w / (w.square().sum() + 1e-6).sqrt() for w in (qt, kt))
            decay = torch.exp(-m.A_log[head].exp() * F.softplus(a[t, head] + m.dt_bias[head]))
            S[head] = decay * S[head]
            error = v[t].view(m.num_v_heads, -1)[head] - S[head].T @ kt
            S[head] = S[head] + torch.outer(kt, torch.sigmoid(b[t, head]) * error)
            o = S[head].T @ qt / math.sqrt(dk)
            o = o / (o.square().mean() + m.eps).sqrt() * m.norm.weight
            out.append(o * F.silu(z[t].view(m.num_v_heads, -1)[head]))
        ys.append(torch.cat(out))
    return m.out_proj(torch.stack(ys)), {"conv": window, "recurrent": torch.stack(S)}


def attention(m, x):
    d, group, keys, values, ys = m.head_dim, m.num_heads // m.num_kv_heads, [], [], []

    def rotated(vec, t):
        if m.rope_theta is None:
            return vec
        angle = t * m.rope_theta ** (-torch.arange(0, d, 2, dtype=vec.dtype) / d)
        pair = torch.complex(vec[:d // 2], vec[d // 2:]) * torch.polar(torch.ones_like(angle), angle)
        return torch.cat([pair.real, pair.imag])
    for t in range(len(x)):
        q = m.q_proj(x[t]).view(m.num_heads, d)
        keys.append([rotated(k, t) for k in m.k_proj(x[t]).view(m.num_kv_heads, d)])
        values.append(m.v_proj(x[t]).view(m.num_kv_heads, d))
        first, out = 0 if m.sliding_window is None else max(0, t + 1 - m.sliding_window), []
        for head in range(m.num_heads):
            K = torch.stack([k[head // group] for k in keys[first:]])
            V = torch.stack([v[head // group] for v in values[first:]])
            out.append(torch.softmax(K @ rotated(q[head], t) / math.sqrt(d), 0) @ V)
        ys.append(m.o_proj(torch.cat(out)))
    return torch.stack(ys), {"seen": torch.tensor(len(x))}


REFERENCES = {"ShortConv": short_conv, "MambaMixer": mamba, "Mamba2Mixer": mamba2, "GriffinBlock": griffin,
              "GatedDeltaNet": gated_delta, "Attention": attention}
