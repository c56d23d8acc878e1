"""The streaming transformer: any chunking, reset, copy, soak, against whole runs and a plain reference."""

import pytest
import torch
import torch.nn.functional as F
from common import difference, redraw
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import BatchError, ConfigError, DepthError, DeviceError, DtypeError, FingerprintError
from labkit.streaming import Ring, StreamingTransformer

SIZES = dict(channels=3, hidden_size=8, num_layers=2, num_heads=2, context=4)


def make(seed=0, **options):
    return redraw(StreamingTransformer(**{**SIZES, **options}), seed).double()


def frames(length, batch=1, seed=0):
    return torch.randn(batch, 3, length, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


def reference(model, x):
    """Padding in front, full attention under a band mask, overlap-add by hand; one row."""
    overlap = model.kernel - model.stride
    h = F.conv1d(F.pad(x, (overlap, 0)), model.down.weight, model.down.bias, model.stride)[0].T
    n, dim = len(h), h.shape[1] // model.num_heads
    at = torch.arange(n, dtype=torch.float64)

    def angle(size):
        return at[:, None] * model.theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    if model.positions == "sin":
        h = h + torch.cat([angle(h.shape[1]).cos(), angle(h.shape[1]).sin()], 1)
    for layer in model.layers:
        q, k, v = layer.in_proj(layer.attention_norm(h)).view(n, 3, model.num_heads, dim).unbind(1)
        out = []
        for head in range(model.num_heads):
            qh, kh = q[:, head], k[:, head]
            if model.positions == "rotary":
                turn = torch.polar(torch.ones(n, dim // 2, dtype=torch.float64), angle(dim))
                qh, kh = (torch.complex(*t.split(dim // 2, 1)) * turn for t in (qh, kh))
                scores = (qh[:, None] * kh.conj()[None]).real.sum(-1)
            else:
                scores = qh @ kh.T
            band = (at[:, None] >= at) & (at[:, None] - at < model.context)
            out.append(torch.softmax((scores / dim ** 0.5).masked_fill(~band, float("-inf")), 1) @ v[:, head])
        h = h + layer.out_proj(torch.cat(out, 1))
        h = h + layer.mlp(layer.mlp_norm(h))
    y = x.new_zeros(3, n * model.stride + overlap)
    for t in range(n):
        y[:, t * model.stride:t * model.stride + model.kernel] += torch.einsum("h,hck->ck", h[t], model.up.weight)
    return y[:, :n * model.stride][None] + model.up.bias[:, None]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_chunking_equals_the_reference(data):
    stride = data.draw(st.integers(1, 3))
    model = make(positions=data.draw(st.sampled_from(["rotary", "sin", "none"])), stride=stride,
                 kernel=stride + data.draw(st.integers(0, 3)), context=data.draw(st.integers(1, 6)))
    sizes = data.draw(st.lists(st.integers(0, 9), max_size=10)) + [stride]
    x = frames(sum(sizes))
    y = torch.cat([model.step(piece) for piece in x.split(sizes, 2)], 2)
    assert difference(y, reference(model, x)) <= 1e-12
    assert difference(model(x), reference(model, x)) <= 1e-12


def test_a_whole_run_between_steps_disturbs_nothing():
    model, x = make(), frames(30)
    first = model.step(x[:, :, :17])
    model(frames(9, batch=2, seed=1))
    assert difference(torch.cat([first, model.step(x[:, :, 17:])], 2), model(x)) <= 1e-12


@pytest.mark.parametrize("cut", [1, 2, 16, 17])
def test_reset_then_new_text_equals_a_fresh_model(cut):
    """An odd cut leaves a frame in the strided convolution; the batch may change."""
    model = make()
    model.step(frames(cut))
    model.reset()
    assert torch.equal(model.step(frames(15, batch=2, seed=1)), make().step(frames(15, batch=2, seed=1)))


@pytest.mark.parametrize("filled", [2, 3, 40])
def test_a_copy_goes_on_alike_and_alone(filled):
    """Also with a full ring: the copy's steps never show in the source, nor the other way round."""
    source, copy = make(), make()
    copy.step(frames(5, seed=9))
    source.step(frames(filled))
    copy.copy_state(source)
    text = {copy: frames(filled), source: frames(filled)}
    for n in range(14):
        for model, seed in ((copy, 100 + n), (source, 200 + n)):
            piece = frames(1 + n % 3, seed=seed)
            text[model] = torch.cat([text[model], piece], 2)
            y = model.step(piece)
            assert not y.numel() or difference(y, model(text[model])[:, :, -y.shape[2]:]) <= 1e-11
    held = {t.untyped_storage().data_ptr() for ring in source.state.rings for t in (ring.keys, ring.values)}
    copy.copy_state(source)
    assert held.isdisjoint(t.untyped_storage().data_ptr() for ring in copy.state.rings for t in (ring.keys, ring.values))


def test_copies_of_other_models_are_refused_and_change_nothing():
    target = make()
    target.step(frames(9))
    before = target.state
    for source, error, words in (
            (make(num_layers=3), DepthError, "3 layers, this model 2"), (make(seed=1), FingerprintError, "weights"),
            (make(context=5), FingerprintError, "options"), (make(positions="none"), FingerprintError, "options"),
            (make(num_heads=4), FingerprintError, "options"), (make().float(), FingerprintError, "weights"),
            (make().to("meta"), DeviceError, "meta")):
        with pytest.raises(error, match=words):
            target.copy_state(source)
        assert target.state is before


def test_a_soak_equals_a_fresh_run_over_the_last_window():
    """20,000 steps in float32, far past any table: the last outputs depend on the last frames only."""
    model = make().float()
    reach = 2 * (2 * 3 + 4)                                 # frames that two layers of four tokens can look back
    x = torch.randn(1, 3, 20_000, generator=torch.Generator().manual_seed(0))
    for piece in x.split(1, dim=2):
        y = model.step(piece)
    assert model.state.clock == 10_000
    fresh = model(x[:, :, -2 * reach:])
    assert difference(y, fresh[:, :, -y.shape[2]:]) <= 1e-5
    assert model.state.down.shape[2] <= 4 and model.state.rings[0].keys.shape[2] == 4


def test_a_step_that_raises_moves_nothing(monkeypatch):
    model, x = make(), frames(20)
    model.step(x[:, :, :11])
    before = model.state
    for layer in model.layers:
        with monkeypatch.context() as patch:
            patch.setattr(layer.mlp, "forward", lambda h: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                model.step(x[:, :, 11:])
        assert model.state is before
    y = model.step(x[:, :, 11:])
    assert difference(y, model(x)[:, :, -y.shape[2]:]) <= 1e-12


def test_bad_input_is_named():
    model = make()
    model.step(frames(4))
    before = model.state
    for bad, error, words in ((frames(4, batch=2), BatchError, "reset"), (frames(4)[:, :2], BatchError, "batch, 3"),
                              (frames(4).float(), DtypeError, "float32"), (frames(4).to("meta"), DeviceError, "meta")):
        with pytest.raises(error, match=words):
            model.step(bad)
        assert model.state is before
    for options, words in ((dict(positions="learned"), "'rotary'"), (dict(num_heads=3), "3 heads"),
                           (dict(stride=5), "stride 5"), (dict(context=0), "context 0")):
        with pytest.raises(ConfigError, match=words):
            make(**options)


def test_ring_slots():
    ring = Ring(torch.zeros(1, 1, 4, 1), torch.zeros(1, 1, 4, 1))
    assert ring.positions(0).tolist() == [-4, -3, -2, -1]
    for clock in range(6):
        ring = ring.write(torch.full((1, 1, 1, 1), float(clock)), torch.zeros(1, 1, 1, 1), clock)
    assert ring.keys.flatten().tolist() == ring.positions(6).tolist() == [4, 5, 2, 3]
    many = ring.write(torch.arange(6., 16.).view(1, 1, 10, 1), torch.zeros(1, 1, 10, 1), 6)
    assert many.keys.flatten().tolist() == many.positions(16).tolist() == [12, 13, 14, 15]
