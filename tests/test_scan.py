"""Each fast recurrence against its equation, one token after the other."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.mixers import scan
from labkit.mixers.scan import gated_delta_scan, linear_scan, selective_scan, ssd_scan

LIMIT = {torch.float64: 1e-12, torch.float32: 1e-5}
CASES = ["linear", "selective", "ssd", "delta"]
SCANS = {"linear": linear_scan, "selective": selective_scan, "ssd": ssd_scan, "delta": gated_delta_scan}


def loop(kind, *inputs):
    """The equation as it stands: (y, h)."""
    *inputs, h = inputs
    A, ys = None, []
    if kind in ("selective", "ssd"):
        A, inputs = inputs[2], inputs[:2] + inputs[3:]
    for now in zip(*(t.unbind(1) for t in inputs)):
        if kind == "linear":
            a, u = now
            h = y = a * h + u
        elif kind == "selective":
            x, dt, B, C = now
            h = torch.exp(dt[..., None] * A) * h + (dt * x)[..., None] * B[:, None]
            y = (h * C[:, None]).sum(-1)
        elif kind == "ssd":
            x, dt, B, C = now
            B, C = (t.repeat_interleave(x.shape[1] // t.shape[1], 1)[:, :, None] for t in (B, C))
            h = torch.exp(dt * A)[..., None, None] * h + (dt[..., None] * x)[..., None] * B
            y = (h * C).sum(-1)
        else:
            q, k, v, g, beta = now
            q, k = (t.repeat_interleave(v.shape[1] // k.shape[1], 1)[..., None] for t in (q, k))
            h = h * torch.exp(g)[..., None, None]
            h = h + k * (beta[..., None] * (v - (h * k).sum(-2)))[..., None, :]
            y = (h * q).sum(-2)
        ys.append(y)
    return torch.stack(ys, 1), h


def sample(kind, batch, length, seed, groups=1, decay="mixed"):
    """Random float64 inputs. decay: none, weak, strong, or all of them mixed from token to token."""
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=rng)

    def speed(*shape):
        """Exponents of one step, from 0 to 50."""
        scale = {"none": [0.0], "weak": [0.01], "strong": [50.0], "mixed": [0.0, 0.01, 1.0, 50.0]}[decay]
        choice = torch.randint(len(scale), shape, generator=rng)
        return torch.rand(*shape, dtype=torch.float64, generator=rng) * torch.tensor(scale, dtype=torch.float64)[choice]

    heads = 2 * groups
    if kind == "linear":
        a = torch.exp(-speed(batch, length, 5))
        a[torch.rand(a.shape, generator=rng) < 0.1] = 0.0
        return a, normal(batch, length, 5), normal(batch, 5)
    if kind == "selective":
        A = -torch.rand(6, 3, dtype=torch.float64, generator=rng) - 1e-3
        return (normal(batch, length, 6), speed(batch, length, 6), A,
                normal(batch, length, 3), normal(batch, length, 3), normal(batch, 6, 3))
    if kind == "ssd":
        A = -torch.rand(heads, dtype=torch.float64, generator=rng) - 1e-3
        return (normal(batch, length, heads, 4), speed(batch, length, heads), A, normal(batch, length, groups, 3),
                normal(batch, length, groups, 3), normal(batch, heads, 4, 3))
    q, k = (torch.nn.functional.normalize(normal(batch, length, groups, 4), dim=-1) for _ in range(2))
    beta = torch.rand(batch, length, heads, dtype=torch.float64, generator=rng)
    return q / 2, k, normal(batch, length, heads, 3), -speed(batch, length, heads), beta, normal(batch, heads, 4, 3)


def part(inputs, start, stop, h):
    """The tokens from start to stop, continued from h. (A, the speeds of forgetting, has no tokens.)"""
    length = inputs[0].shape[1]
    cut = [t[:, start:stop] if t.dim() > 2 and t.shape[1] == length else t for t in inputs[:-1]]
    if len(inputs) == 6 and inputs[2].dim() < 3:
        cut[2] = inputs[2]
    return *cut, h


def distance(got, want):
    """Largest difference, relative to the largest number of want, over outputs and state."""
    pairs = [(g, w) for g, w in zip(got, want) if w.numel()]
    return torch.stack([torch.zeros((), dtype=torch.float64)] + [
        (g.double() - w).abs().max() / w.abs().max().clamp(min=1e-300) for g, w in pairs]).max().item()     # NaN stays NaN


def cast(inputs, dtype):
    return [t.to(dtype) for t in inputs]


@settings(max_examples=25, deadline=None)
@given(kind=st.sampled_from(CASES), batch=st.integers(0, 3), length=st.integers(1, 300), groups=st.integers(1, 2),
       decay=st.sampled_from(["none", "weak", "strong", "mixed"]), dtype=st.sampled_from(list(LIMIT)),
       cuts=st.lists(st.integers(0, 300), max_size=3), seed=st.integers(0, 10**6))
def test_any_cut_equals_the_loop(kind, batch, length, groups, decay, dtype, cuts, seed):
    inputs = cast(sample(kind, batch, length, seed, groups, decay), dtype)
    want = loop(kind, *cast(inputs, torch.float64))
    h, ys, before = inputs[-1], [], [t.clone() for t in inputs]
    bounds = sorted([0, length, *(min(cut, length) for cut in cuts)])
    for start, stop in zip(bounds, bounds[1:]):
        y, h = SCANS[kind](*part(inputs, start, stop, h))
        ys.append(y)
    y = torch.cat(ys, 1)
    assert y.dtype == h.dtype == dtype and y.shape == want[0].shape and h.shape == want[1].shape
    assert distance((y, h), want) <= LIMIT[dtype]
    assert all(torch.equal(a, b) for a, b in zip(inputs, before)), "an input was changed"


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("length", [1, 2, 64, 65, 130])
@pytest.mark.parametrize("dtype", list(LIMIT))
def test_padding_keeps_every_bit(kind, length, dtype):
    inputs = cast(sample(kind, 3, length, seed=length), dtype)
    columns = {"linear": {0: 1.0, 1: 0.0}, "selective": {1: 0.0}, "ssd": {1: 0.0}, "delta": {3: 0.0, 4: 0.0}}[kind]
    for place, value in columns.items():
        inputs[place][1] = value                                # row 1 is padding from end to end
    _, h = SCANS[kind](*inputs)
    assert torch.equal(h[1], inputs[-1][1])
    assert not torch.equal(h[0], inputs[-1][0]) and not torch.equal(h[2], inputs[-1][2])


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("length", [1, 5, 70])
@pytest.mark.parametrize("cached", [scan.CACHED, 1, 300])
def test_gradients_equal_those_of_the_loop(kind, length, cached, monkeypatch):
    monkeypatch.setattr(scan, "CACHED", cached)                 # blocks of all tokens, of one, of eight
    inputs = [t.requires_grad_() for t in sample(kind, 2, length, seed=length, groups=2)]
    weights = [torch.randn(t.shape, dtype=t.dtype) for t in loop(kind, *inputs)]
    got, want = (torch.autograd.grad(outputs, inputs, weights)
                 for outputs in (SCANS[kind](*inputs), loop(kind, *inputs)))
    assert distance(got, want) < 1e-12


@pytest.mark.parametrize("kind", CASES)
def test_no_tokens_change_nothing(kind):
    inputs = sample(kind, 2, 0, seed=0)
    y, h = SCANS[kind](*inputs)
    assert h is inputs[-1] and y.shape == inputs[2 if kind == "delta" else 0].shape


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("length", [1, 4, 64, 70])
@pytest.mark.parametrize("batch", [1, 2])
def test_the_state_owns_its_memory(kind, length, batch):
    for record in (False, True):
        inputs = sample(kind, batch, length, seed=1)
        with torch.set_grad_enabled(record):
            inputs[-1].requires_grad_(record)
            _, h = SCANS[kind](*inputs)
        assert h.is_contiguous() and h.untyped_storage().nbytes() == h.numel() * h.element_size()


@pytest.mark.parametrize("kind", CASES)
def test_recording_gradients_changes_no_bit_and_inference_mode_leaves_nothing_behind(kind):
    scan._sums.cache_clear()                                    # as in a new process
    inputs = sample(kind, 2, 100, seed=3)
    with torch.inference_mode():
        y, h = SCANS[kind](*inputs)
    recorded = SCANS[kind](*[t.clone().requires_grad_() for t in inputs])
    assert torch.equal(y, recorded[0]) and torch.equal(h, recorded[1])
    recorded[0].sum().backward()


def test_many_tokens_of_strong_and_weak_decay_keep_their_digits():
    """A decay of exp(-50) each 5 tokens, exp(-0.001) between: differences of float32 running sums would be lost."""
    x, dt, A, B, C, h = sample("ssd", 1, 256, seed=5, decay="weak")
    dt[:, ::5] = 50.0
    for dtype, limit in LIMIT.items():
        got = ssd_scan(*cast((x, dt, A, B, C, h), dtype))
        assert distance(got, loop("ssd", x, dt, A, B, C, h)) <= limit / 5
