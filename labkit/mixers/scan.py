"""The four recurrences of the lab, computed fast: many tokens at once, and never a different answer.

    linear      h = a * h + u                                        Griffin, section 2.4 (RG-LRU)
    selective   h = exp(dt * A) * h + dt * x * B      y = C . h      Mamba, equations 2 and 4
    ssd         h = exp(dt * A) * h + dt * x B^T      y = h C        Mamba-2, sections 6 and 7
    delta       S = e^g * S;  d = beta * (v - S^T k);  S = S + k d^T;  y = S^T q      Gated DeltaNet, section 3

    symbol    here    shape                                            meaning
    h, S      h       (B, C), (B, C, N), (B, H, P, N), (B, H, D, D)    state, carried from call to call
    a         a       as the input                                     share of each number that is kept
    delta     dt      (B, L, C) or (B, L, H)                           step size; 0 changes nothing
    A         A       (C, N) or (H,), negative                         speed of forgetting
    B, C      B, C    (B, L, N) or (B, L, G, N)                        what is written, what is read
    alpha     e^g     g is (B, L, H), at most 0                        share of the state that is kept
    beta      beta    (B, L, H)                                        how much of a key's old value is replaced

Every function takes any length, 0 and 1 too, continues from the state h, and returns (y, h). It computes in the
dtype of h, never changes h in place, and returns a new contiguous state (for L = 0, h itself). Where the caller
writes a = 1 and u = 0, or dt = 0, or g = 0 and beta = 0, the state keeps every bit: this is how padding is passed.
Within a chunk all tokens are computed at once; chunks go one after the other, so memory does not grow with L.
"""

import functools
import math

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK = 64                  # tokens computed at once: more costs chunk * chunk numbers a head, less moves the state more
CACHED = 400_000            # numbers of a selective scan computed at once: they stay in the processor's cache
LOG2E = math.log2(math.e)   # decays are powers of 2: exp of a large negative number is up to 100 times slower than exp2


def linear_scan(a: Tensor, u: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """h_t = a_t * h_(t-1) + u_t for every number on its own.

    Args:
        a, u: (B, L, ...). h: the state before, (B, ...).

    Returns:
        y: every h_t, (B, L, ...), and the last one, (B, ...).
    """
    length = u.shape[1]
    if not length:
        return torch.empty_like(u), h
    steps = 1 << (length.bit_length() - 1) // 2                 # about sqrt(L) blocks of sqrt(L) steps
    head = length // steps * steps
    a_b, u_b = (t[:, :head].unflatten(1, (-1, steps)).transpose(1, 2) for t in (a, u))      # (B, steps, blocks, ...)
    keep, end = a_b[:, 0], u_b[:, 0]                            # what a block keeps of its start, and adds to it
    for t in range(1, steps):
        keep, end = keep * a_b[:, t], torch.addcmul(u_b[:, t], a_b[:, t], end)              # (B, blocks, ...)
    starts = [h]
    for block in range(head // steps - 1):
        starts.append(torch.addcmul(end[:, block], keep[:, block], starts[-1]))
    y = _steps(a_b, u_b, torch.stack(starts, 1)).transpose(1, 2).flatten(1, 2)              # (B, head, ...)
    h = y[:, -1].clone()
    if head < length:
        rest, h = linear_scan(a[:, head:], u[:, head:], h)
        y = torch.cat([y, rest], 1)
    return y, h


def selective_scan(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """Mamba's recurrence, without the skip D * x.

    Args:
        x, dt: (B, L, C). A: (C, N), negative. B, C: (B, L, N). h: (B, C, N).

    Returns:
        y: (B, L, C), and the state after the last token, (B, C, N).
    """
    if not x.shape[1]:
        return torch.empty_like(x), h
    if x.shape[1] == 1:
        return _selective_step(x, dt, A, B, C, h)
    return _Selective.apply(x, dt, A, B, C, h) if _recording(x, dt, A, B, C, h) else _selective(x, dt, A, B, C, h, [])


def ssd_scan(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """Mamba-2's recurrence (state space duality), without the skip D * x.

    Args:
        x: (B, L, H, P). dt: (B, L, H), after softplus and limits. A: (H,), negative.
        B, C: (B, L, G, N); head i reads group i // (H / G). h: (B, H, P, N).

    Returns:
        y: (B, L, H, P), and the state after the last token, (B, H, P, N).
    """
    batch, length, heads, width = x.shape
    groups, size = B.shape[2:]
    if not length:
        return torch.empty_like(x), h
    grouped = (batch * groups, heads // groups * width, size)   # heads of one group share B and C: one matrix product
    if length == 1:
        return _ssd_step(x, dt, A, B, C, h, grouped)
    log_decay, ys = (dt * A).mT, []                             # (B, H, L)
    for start in range(0, length, CHUNK):
        xs, dts, bs, cs = (t[:, start:start + CHUNK].transpose(1, 2) for t in (x, dt, B, C))
        xs, bs, cs = xs * dts[..., None], bs.flatten(0, 1), cs.flatten(0, 1)        # (B, H, T, P), (B*G, T, N) twice
        decay = _decays(log_decay[..., start:start + CHUNK])                        # (B, H, T, T+1)
        score = (cs @ bs.mT).unflatten(0, (batch, groups))[:, :, None]              # (B, G, 1, T, T)
        inner = decay[..., 1:].unflatten(1, (groups, -1)) * score                   # (B, G, H/G, T, T)
        y = (cs @ h.reshape(grouped).mT).unflatten(0, (batch, groups))              # (B, G, T, H/G*P)
        y = y.unflatten(3, (-1, width)).transpose(2, 3).flatten(1, 2) * decay[..., :1]      # (B, H, T, P), from h
        y = y.flatten(0, 1).baddbmm_(inner.flatten(0, 2), xs.flatten(0, 1))         # (B*H, T, P), and from this chunk
        ys.append(y.unflatten(0, (batch, heads)).transpose(1, 2))
        end = (xs * decay[:, :, -1, 1:, None]).transpose(1, 2).unflatten(2, (groups, -1))   # (B, T, G, H/G, P)
        end = end.flatten(3).permute(0, 2, 3, 1).flatten(0, 1)                      # (B*G, H/G*P, T)
        h = (h * decay[:, :, -1, :1, None]).reshape(grouped).baddbmm_(end, bs).view(h.shape)
    return torch.cat(ys, 1), h


def gated_delta_scan(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """The gated delta rule. The d of one chunk depend on each other: they solve one triangular system.

    Args:
        q, k: (B, L, HK, DK), k of length 1, q already scaled. v: (B, L, H, DV); head i uses key head i // (H / HK).
        g: logarithm of the decay, at most 0, and beta: (B, L, H). h: (B, H, DK, DV).

    Returns:
        y: (B, L, H, DV), and the state after the last token, (B, H, DK, DV).
    """
    batch, length, heads = v.shape[:3]
    if not length:
        return torch.empty_like(v), h
    if length == 1:
        return _delta_step(q, k, v, g, beta, h)
    shape, h, ys = h.shape, h.flatten(0, 1), []                                     # (B*H, DK, DV)
    for start in range(0, length, CHUNK):
        qs, ks, vs, gs, bs = (t[:, start:start + CHUNK].transpose(1, 2) for t in (q, k, v, g, beta))
        qs, ks = qs[:, :, None], ks[:, :, None]                                     # (B, HK, 1, T, DK)
        decay = _decays(gs).unflatten(1, (k.shape[2], -1))                          # (B, HK, H/HK, T, T+1)
        since, inner = decay[..., :1], decay[..., 1:]
        bs = bs[..., None].unflatten(1, (k.shape[2], -1))                           # (B, HK, H/HK, T, 1)
        target = (vs.unflatten(1, bs.shape[1:3]) * bs).flatten(0, 2).mT                       # (B*H, DV, T)
        target = target.baddbmm_(h.mT, (ks * (since * bs)).flatten(0, 2).mT, alpha=-1)        # beta (v - S^T k)
        system = (ks @ ks.mT * inner * bs).flatten(0, 2).mT                                   # (B*H, T, T)
        d = torch.linalg.solve_triangular(system, target, upper=True, left=False, unitriangular=True).mT
        y = ((qs * since).flatten(0, 2) @ h).baddbmm_((qs @ ks.mT * inner).flatten(0, 2), d)  # (B*H, T, DV)
        ys.append(y.unflatten(0, (batch, heads)).transpose(1, 2))                   # (B, T, H, DV)
        end = (ks * inner[..., -1:, :].mT).flatten(0, 2)                            # (B*H, T, DK)
        h = (h * since[..., -1:, :].flatten(0, 2)).baddbmm_(end.mT, d)
    return torch.cat(ys, 1), h.view(shape)


def _selective(x, dt, A, B, C, h, starts):
    """selective_scan, block after block; the state before each block, (B, N, C), goes to the list starts."""
    h, A, ys = h.mT, (A.mT * LOG2E).contiguous(), []            # (B, N, C): long rows are fast
    room = _room(h, 2)
    for xs, dts, bs, cs in zip(*_blocks(room, x, dt, B, C)):    # (B, T, 1, C or N)
        starts.append(h)
        _, hs = _selective_block(xs, dts, A, bs, h, room)
        ys.append((cs @ hs).squeeze(2))                         # (B, T, C)
        h = hs[:, -1].clone()
    return torch.cat(ys, 1), h.mT.clone(memory_format=torch.contiguous_format)


def _room(h: Tensor, n: int) -> list[Tensor]:
    """Memory of n blocks, (B, T, N, C) each, for states h (B, N, C). New memory for every block would be slow."""
    return [h.new_empty(len(h), max(1, CACHED // max(1, h.numel())), *h.shape[1:]) for _ in range(n)]


def _blocks(room: list[Tensor], *tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """Tensors (B, L, ...) in blocks (B, T, 1, ...) that fit into the room."""
    return [t.unsqueeze(2).split(room[0].shape[1], 1) for t in tensors]


def _selective_block(x, dt, A, B, h, room):
    """Decays and states of the tokens of one block, (B, T, N, C), in the first two of the room."""
    decays, states = (t[:, :x.shape[1]] for t in room[:2])
    torch.mul(dt, A, out=decays).exp2_()
    return decays, _steps(decays, torch.mul(dt * x, B.mT, out=states), h, out=states)


class _Selective(torch.autograd.Function):
    """selective_scan with a gradient that computes each block again (Mamba, section 3.3.2).

    Autograd itself keeps several numbers for each one of the state at each token, and moving them takes longer than
    computing them.
    """

    @staticmethod
    def forward(ctx, x, dt, A, B, C, h):
        y, end = _selective(x, dt, A, B, C, h, starts := [])
        ctx.save_for_backward(x, dt, A, B, C, *starts)
        return y, end

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_y, grad_h):
        x, dt, A, B, C, *starts = ctx.saved_tensors
        flow, A = grad_h.mT, A.mT.contiguous()                  # flow: what the loss asks of the state, (B, N, C)
        log, grad_A, room, grads = A * LOG2E, torch.zeros_like(A), _room(flow, 3), []
        for h, xs, dts, bs, cs, gs in reversed(list(zip(starts, *_blocks(room, x, dt, B, C, grad_y)))):
            a, hs = _selective_block(xs, dts, log, bs, h, room)
            flows = torch.mul(gs, cs.mT, out=room[2][:, :xs.shape[1]])
            for a_t, flow_t in zip(reversed(a.unbind(1)), reversed(flows.unbind(1))):
                flow = a_t * flow_t.add_(flow)
            grad_C, grad_B = gs @ hs.mT, (dts * xs) @ flows.mT  # (B, T, 1, N)
            written = bs @ flows                                # (B, T, 1, C): gradient of dt * x
            speed = a.mul_(flows)                               # times the state before: gradient of dt * A
            speed[:, 0].mul_(h)
            speed[:, 1:].mul_(hs[:, :-1])
            grad_A += torch.mul(speed, dts, out=hs).sum((0, 1))
            grad_dt = torch.mul(speed, A, out=hs).sum(2, keepdim=True).addcmul_(written, xs)
            grads.append((written * dts, grad_dt, grad_B, grad_C))
        grad_x, grad_dt, grad_B, grad_C = (torch.cat(parts[::-1], 1).squeeze(2) for parts in zip(*grads))
        return grad_x, grad_dt, grad_A.mT, grad_B, grad_C, flow.mT


def _selective_step(x, dt, A, B, C, h):
    """selective_scan of one token: the equation as it stands."""
    h = torch.addcmul((dt * x).mT * B, (dt.mT * (A * LOG2E)).exp2(), h)             # (B, C, N)
    return (h @ C.mT).mT, h


def _ssd_step(x, dt, A, B, C, h, grouped):
    """ssd_scan of one token: the equation as it stands."""
    rows, wide, size = grouped
    now = (h * (dt * A).exp().mT[..., None]).reshape(grouped)                       # (B*G, H/G*P, N)
    now = now.baddbmm_((x * dt[..., None]).reshape(rows, wide, 1), B.reshape(rows, 1, size))
    return (now @ C.reshape(rows, size, 1)).view(x.shape), now.view(h.shape)


def _delta_step(q, k, v, g, beta, h):
    """gated_delta_scan of one token: the equations as they stand."""
    q, k = (t[:, 0].repeat_interleave(v.shape[2] // k.shape[2], 1).flatten(0, 1)[:, None] for t in (q, k))
    kept = h.flatten(0, 1) * g.exp().reshape(-1, 1, 1)                                 # (B*H, DK, DV)
    d = beta.reshape(-1, 1, 1) * (v[:, 0].flatten(0, 1)[:, None] - k @ kept)        # (B*H, 1, DV)
    now = torch.baddbmm(kept, k.mT, d)
    return (q @ now).view(v.shape), now.view(h.shape)


def _recording(*tensors: Tensor) -> bool:
    """True where autograd needs every result in a tensor of its own."""
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


def _steps(a: Tensor, u: Tensor, h: Tensor, out: Tensor | None = None) -> Tensor:
    """Every h_t = a_t * h_(t-1) + u_t along dim 1, one after the other, (B, L, ...); out may be u itself."""
    recording = _recording(a, u, h)
    y = None if recording else torch.empty_like(u) if out is None else out
    outs, hs = [None] * u.shape[1] if recording else y.unbind(1), []
    for a_t, u_t, out_t in zip(a.unbind(1), u.unbind(1), outs):
        h = torch.addcmul(u_t, a_t, h, out=out_t)
        hs.append(h)
    return torch.stack(hs, 1) if recording else y


def _decays(log_decay: Tensor) -> Tensor:
    """What is left at each token of a chunk of what was there before it, (B, H, T) -> (B, H, T, T+1).

    [t, 0] is for the state before the chunk, [t, 1 + s] for token s, 0 where s > t. Each is exp of a sum over its own
    tokens. A difference of two running sums would lose digits after a strong decay.
    """
    tokens, dtype = log_decay.shape[-1], log_decay.dtype
    sums = _sums(dtype, log_decay.device)[:tokens + 1, :tokens, :tokens + 1].flatten(1)
    exponent = F.pad(log_decay, (1, 0), value=1.0) @ sums                           # (B, H, T*(T+1))
    smallest = 0.9 * math.log2(torch.finfo(dtype).tiny)         # subnormal numbers are slow: take 0
    return F.threshold(exponent, smallest, -math.inf).exp2_().unflatten(-1, (tokens, tokens + 1))


@functools.cache
def _sums(dtype: torch.dtype, device: torch.device) -> Tensor:
    """[1 + r, t, s]: does token r stand between s (1 is behind token 0) and t? In row 0, whether s is after t."""
    with torch.inference_mode(False):
        s = torch.arange(CHUNK + 1, device=device)
        t = s[1:, None]
        between = [-1e4 * (s > t).double()] + [LOG2E * ((s < r) & (r <= t)).double() for r in range(1, CHUNK + 1)]
        return torch.stack(between).to(dtype)
