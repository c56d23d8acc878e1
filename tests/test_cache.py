"""The cache: one clock, nothing half done, every operation against a run of its own."""

import copy

import pytest
import torch
from common import difference, redraw

from labkit import Cache, HybridLM
from labkit.errors import (BatchError, CacheFileError, DepthError, DeviceError, DtypeError, EmptyCacheError,
                           FingerprintError, PositionError, RewindError)
from labkit.model import PRESETS


def make(name="hybrid", seed=0, dtype=torch.float64):
    return redraw(HybridLM.preset(name, vocab_size=32, seed=seed, hidden_size=32), seed).to(dtype)


@pytest.fixture(scope="module")
def model():
    return make()


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


def ids(batch=2, length=9, seed=0):
    return torch.randint(0, 32, (batch, length), generator=torch.Generator().manual_seed(seed))


def snapshot(cache):
    states = [None if s is None else {n: t.clone() for n, t in s.tensors().items()} for s in cache.states]
    columns = [None if c is None else c.clone() for c in (cache.tokens, cache.mask)]
    return cache.length, cache.checkpoints, columns, states


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@pytest.mark.parametrize("name", PRESETS)
def test_every_cut_gives_the_uncut_logits(name):
    model, x = make(name), ids(3, 12)
    whole = model(x)
    for cuts in ([12], [1] * 12, [5, 0, 1, 2, 4], [2, 10]):
        cache = Cache()
        parts = [model(piece, cache, position=cache.length) for piece in x.split(cuts, 1)]
        assert difference(torch.cat(parts, 1), whole) <= 1e-11
        assert cache.length == 12 and cache.lengths.tolist() == [12] * 3


@pytest.mark.parametrize("name", PRESETS)
def test_padding_anywhere_changes_no_real_logit(name):
    model, x = make(name), ids(3, 12)
    mask = torch.rand(3, 12, generator=torch.Generator().manual_seed(1)) > 0.4
    x = torch.where(mask, x, -100)                         # ids at padding are never looked at
    cache = Cache()
    parts = [model(x[:, a:b], cache, mask=mask[:, a:b]) for a, b in ((0, 4), (4, 5), (5, 5), (5, 12))]
    logits = torch.cat(parts, 1)
    for row in range(3):
        assert difference(logits[row][mask[row]], model(x[row][mask[row]][None])[0]) <= 1e-11
    assert cache.lengths.tolist() == mask.sum(1).tolist() and torch.equal(cache.mask, mask)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("fed", [0, 5])
def test_a_call_that_raises_changes_nothing(name, fed, monkeypatch):
    """The exception is thrown in each layer in turn, and in the head: behind all states, before they are taken."""
    model, x, cache = make(name), ids(), Cache()
    if fed:
        model(x[:, :fed], cache)
    cache.checkpoint()
    before, wanted = snapshot(cache), model(x[:, fed:], cache.fork())

    def fail(*args):
        raise MemoryError("thrown on purpose")
    for part in [*(layer.down for layer in model.layers), model.norm]:
        with monkeypatch.context() as patch:
            patch.setattr(part, "forward", fail)
            with pytest.raises(MemoryError):
                model(x[:, fed:], cache)
        assert same(snapshot(cache), before)
    assert torch.equal(model(x[:, fed:], cache), wanted)


BAD_CALLS = {
    "shape of ids": (lambda m, c: m(torch.zeros(3, dtype=torch.long), c), BatchError, r"ids\[None\]"),
    "no rows": (lambda m, c: m(torch.zeros(0, 3, dtype=torch.long), c), BatchError, "at least one row"),
    "dtype of ids": (lambda m, c: m(torch.zeros(2, 3), c), DtypeError, "int64 or int32"),
    "a list": (lambda m, c: m([[1, 2]], c), DtypeError, "list"),
    "device of ids": (lambda m, c: m(ids().to("meta"), c), DeviceError, "meta"),
    "batch": (lambda m, c: m(ids(3), c), BatchError, "3 rows were given, but this cache holds 2"),
    "batch, no tokens": (lambda m, c: m(ids(3)[:, :0], c), BatchError, "3 rows"),
    "position ahead": (lambda m, c: m(ids(), c, position=7), PositionError, "Feed tokens 5 to 6 first"),
    "position one ahead": (lambda m, c: m(ids(), c, position=6), PositionError, "Feed token 5 first"),
    "position behind": (lambda m, c: m(ids(), c, position=4), PositionError, r"rewind\(4\) first"),
    "position negative": (lambda m, c: m(ids(), c, position=-1), PositionError, "start at 0"),
    "position kind": (lambda m, c: m(ids(), c, position="5"), PositionError, "is an int, not a str"),
    "id too high": (lambda m, c: m(torch.tensor([[1], [32]]), c), ValueError, "token id 32 at row 1, column 0"),
    "id negative": (lambda m, c: m(torch.tensor([[1], [-1]]), c), ValueError, "token id -1"),
    "mask dtype": (lambda m, c: m(ids(), c, mask=torch.ones(2, 9)), DtypeError, r"mask\.bool\(\)"),
    "mask shape": (lambda m, c: m(ids(), c, mask=torch.ones(2, 14, dtype=torch.bool)), BatchError, "per new token"),
    "mask device": (lambda m, c: m(ids(), c, mask=torch.ones(2, 9, dtype=torch.bool, device="meta")), DeviceError, "mask"),
    "depth": (lambda m, c: make("mamba")(ids(), c), DepthError, "4 layers, the model has 2"),
    "weights": (lambda m, c: make(seed=1)(ids(), c), FingerprintError, "other weights"),
    "dtype of weights": (lambda m, c: make(dtype=torch.float32)(ids(), c), FingerprintError, "other weights"),
    "rewind ahead": (lambda m, c: c.rewind(6), RewindError, "columns 0 to 5"),
    "rewind negative": (lambda m, c: c.rewind(-1), RewindError, "columns 0 to 5"),
    "rewind between": (lambda m, c: c.rewind(4), RewindError, r"nearest kept column is 3: rewind\(3\)"),
    "row too high": (lambda m, c: c.select([0, 2]), BatchError, "rows 0 to 1"),
    "row negative": (lambda m, c: c.select([-1]), BatchError, "rows 0 to 1"),
    "no row": (lambda m, c: c.select([]), BatchError, "at least one row"),
    "row as mask": (lambda m, c: c.select(torch.tensor([True, False])), BatchError, "bool"),
    "no copies": (lambda m, c: c.repeat(0), BatchError, "1 or more"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_input_is_named_and_harmless(model, case):
    call, error, message = BAD_CALLS[case]
    cache, x = Cache(), ids()
    model(x[:, :3], cache)
    model(x[:, 3:5], cache.checkpoint())
    before = snapshot(cache)
    with pytest.raises(error, match=message):
        call(model, cache)
    assert same(snapshot(cache), before)
    assert difference(model(x[:, 5:], cache, position=5), model(x)[:, 5:]) <= 1e-11


def test_an_empty_cache_has_no_rows_and_no_past(model):
    for call in (lambda c: c.select([0]), lambda c: c.repeat(2)):
        with pytest.raises(EmptyCacheError, match="empty"):
            call(Cache())
    with pytest.raises(PositionError, match="has seen 0 tokens. Feed tokens 0 to 4 first"):
        model(ids(), Cache(), position=5)
    cache = Cache()
    assert model(ids(2, 0), cache).shape == (2, 0, 32) and cache.lengths is None and cache.batch is None
    model(ids(3, 2), cache)                                # the batch was still open
    assert cache.batch == 3


@pytest.mark.parametrize("name", PRESETS)
def test_forks_go_their_own_way(name):
    model, x, y = make(name), ids(), ids(seed=1)
    cache = Cache()
    model(x[:, :6], cache)
    twin = cache.fork()
    for t in range(6, 9):                                  # interleaved, each on its own text
        a, b = model(x[:, t:t + 1], cache), model(y[:, t:t + 1], twin)
    assert difference(a, model(x)[:, 8:]) <= 1e-11
    assert difference(b, model(torch.cat([x[:, :6], y[:, 6:]], 1))[:, 8:]) <= 1e-11


@pytest.mark.parametrize("name", PRESETS)
def test_select_and_repeat_commute_with_feeding(name):
    model, x = make(name), ids(3)
    cache = Cache()
    model(x[:, :5], cache, mask=torch.tensor([[True] * 5, [False] * 2 + [True] * 3, [True] * 3 + [False] * 2]))
    alone = model(x[:, 5:], cache.fork())
    for change, rows in ((lambda c: c.select([2, 0]), [2, 0]), (lambda c: c.select([1, 1, 0, 2]), [1, 1, 0, 2]),
                         (lambda c: c.repeat(2), [0, 0, 1, 1, 2, 2])):
        moved = change(cache.fork())
        assert difference(model(x[rows][:, 5:], moved), alone[rows]) <= 1e-11
        assert torch.equal(moved.mask, torch.cat([cache.mask[rows], torch.ones(len(rows), 4, dtype=torch.bool)], 1))


@pytest.mark.parametrize("name", PRESETS)
def test_rewind_to_kept_columns_and_reset(name):
    model, x, y = make(name), ids(), ids(seed=1)
    cache = Cache()
    model(x[:, :4], cache)
    cache.checkpoint()
    model(x[:, 4:], cache)
    cache.checkpoint().rewind(4)
    assert cache.length == 4 and cache.checkpoints == [4]
    assert difference(model(y[:, 4:], cache), model(torch.cat([x[:, :4], y[:, 4:]], 1))[:, 4:]) <= 1e-11
    cache.rewind(0)
    assert difference(model(y, cache), model(y)) <= 1e-11
    assert torch.equal(model(ids(3), cache.reset()), model(ids(3), Cache()))


def test_attention_rewinds_anywhere_with_padding_too():
    model, x, y = make("attention"), ids(), ids(seed=1)
    mask = torch.tensor([[True] * 9, [False, True, True, False, True, True, False, True, True]])
    for column in range(1, 9):
        cache, fresh = Cache(), Cache()
        model(x, cache, mask=mask)
        cache.rewind(column)
        model(x[:, :column], fresh, mask=mask[:, :column])
        assert torch.equal(cache.lengths, fresh.lengths)
        assert difference(model(y, cache), model(y, fresh)) <= 1e-11


def test_rewind_over_padding_alone_is_exact(model):
    cache = Cache()
    model(ids(), cache)
    model(ids(), cache, mask=torch.zeros(2, 9, dtype=torch.bool))
    cache.rewind(12)
    assert difference(model(ids(seed=1), cache), model(torch.cat([ids(), ids(seed=1)], 1))[:, 9:]) <= 1e-11


def test_a_window_that_slid_refuses_to_go_back():
    model = HybridLM.preset("griffin", vocab_size=32)
    model.layers = model.layers[:1]                        # the local attention alone: 128 tokens
    cache = Cache()
    for _ in range(40):
        model(ids(1, 9), cache)
    model(ids(1, 2), cache)
    with pytest.raises(RewindError, match="sliding window of 128"):
        cache.rewind(100)
    assert cache.length == 362


@pytest.mark.parametrize("name", PRESETS)
def test_save_and_load_continue_alike(name, tmp_path):
    model, x = make(name), ids()
    cache = Cache()
    model(x[:, :4], cache, mask=torch.tensor([[True] * 4, [True, False, True, True]]))
    model(x[:, 4:6], cache.checkpoint())
    cache.save(tmp_path / "a.safetensors")
    loaded = Cache.load(tmp_path / "a.safetensors")
    assert same(snapshot(loaded), snapshot(cache)) and loaded.nbytes <= cache.nbytes
    assert torch.equal(model(x[:, 6:], loaded), model(x[:, 6:], cache))
    assert torch.equal(model(x[:, 4:], loaded.rewind(4)), model(x[:, 4:], cache.rewind(4)))
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]
    with pytest.raises(FingerprintError):
        make(name, seed=1)(x, Cache.load(tmp_path / "a.safetensors"))
    Cache().save(tmp_path / "empty")
    assert Cache.load(tmp_path / "empty").length == 0


def test_damaged_files_are_refused(model, tmp_path):
    cache, path = Cache(), tmp_path / "cache.safetensors"
    model(ids(), cache)
    cache.save(path)
    raw = path.read_bytes()
    generator = torch.Generator().manual_seed(0)

    def at(bound):
        return int(torch.randint(0, bound, (1,), generator=generator))
    header = 8 + int.from_bytes(raw[:8], "little")
    damaged = [raw[:at(len(raw))] for _ in range(60)] + [b"", raw + b"x", b"PK" + raw, raw[:-1]]
    for place in [at(header) for _ in range(150)] + [at(len(raw)) for _ in range(150)]:
        damaged.append(raw[:place] + bytes([raw[place] ^ 1 << at(8)]) + raw[place + 1:])
    for bad in damaged:
        path.write_bytes(bad)
        with pytest.raises(CacheFileError):
            Cache.load(path)
    with pytest.raises(CacheFileError, match="cannot read"):
        Cache.load(tmp_path / "missing")
    model.save(path)
    with pytest.raises(CacheFileError, match="not a whole cache file"):
        Cache.load(path)


def test_weights_that_change_behind_the_back_are_noticed(model, tmp_path):
    other, cache = copy.deepcopy(model), Cache()
    other(ids(), cache)
    with torch.no_grad():
        other.norm.weight.mul_(1.5)                        # in place: the version tells
    with pytest.raises(FingerprintError):
        other(ids(), cache)
    other = copy.deepcopy(model)
    other(ids(), cache.reset())
    other.norm.weight.data[0] += 1                         # through .data: no trace until the hash is taken anew
    with pytest.raises(FingerprintError, match="have changed"):
        cache.save(tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_moving_to_another_dtype_and_back(model):
    x, cache = ids(), Cache()
    model(x[:, :5], cache)
    low = copy.deepcopy(model).float()
    with pytest.raises(FingerprintError):
        low(x[:, 5:], cache)
    moved = cache.fork().to(dtype=torch.float32)
    assert difference(low(x[:, 5:], moved).double(), model(x[:, 5:], cache)) <= 1e-4
    assert moved.states[0].recurrent.dtype == torch.float32
    half = cache.to(dtype=torch.bfloat16)
    assert half.states[0].conv.dtype == torch.bfloat16 and half.states[0].recurrent.dtype == torch.float32
    with pytest.raises(DtypeError, match=r"\.to\(dtype="):
        low(x, half)
    with pytest.raises(DeviceError, match=r"move the cache"):
        low(x, moved.to(device="meta"))


def test_checkpoints_are_counted_in_nbytes():
    model, cache = make("mamba2"), Cache()
    model(ids(), cache)
    one = cache.nbytes
    model(ids(), cache.checkpoint())
    assert one == sum(t.numel() * t.element_size() for s in cache.states for t in s.tensors().values())
    assert cache.nbytes == 2 * one


def test_without_gradients_no_graph_and_with_them_one_graph(model):
    cache = Cache()
    model(ids(), cache)
    assert not any(t.requires_grad for s in cache.states for t in s.tensors().values())
    with torch.enable_grad():
        embedded, taped = [], Cache()
        hook = model.embed.register_forward_hook(lambda m, a, y: embedded.append(y.requires_grad_()) or y)
        model(ids()[:, :4], taped)
        logits = model(ids()[:, 4:], taped)
        hook.remove()
        grad, = torch.autograd.grad(logits[:, -1].sum(), embedded[0])
        assert grad.abs().amax((0, 2)).min() > 0           # every early token moves the last logits
