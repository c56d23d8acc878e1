"""Each mixer against its step-by-step reference: any cut, any padding, every option."""

import pytest
import torch
from common import FAMILIES, build, difference, feed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from references import REFERENCES

OPTIONS = {
    "short_conv": dict(conv_L_cache=st.integers(1, 5), conv_bias=st.booleans()),
    "mamba": dict(conv_kernel=st.integers(1, 5), use_bias=st.booleans(), use_conv_bias=st.booleans(),
                  hidden_act=st.sampled_from(["silu", "gelu", "relu"])),
    "mamba2": dict(conv_kernel=st.integers(1, 5), n_groups=st.sampled_from([1, 2, 4]), use_bias=st.booleans(),
                   use_conv_bias=st.booleans(), time_step_limit=st.sampled_from([(0.0, float("inf")), (0.1, 0.2)]),
                   layer_norm_epsilon=st.sampled_from([1e-5, 1e-2])),
    "griffin": dict(conv1d_width=st.integers(1, 5), lru_width=st.sampled_from([4, 6, 8]),
                    num_attention_heads=st.sampled_from([1, 2])),
    "gated_delta": dict(linear_conv_kernel_dim=st.integers(1, 5), linear_num_key_heads=st.sampled_from([1, 2, 4])),
    "attention": dict(rope_theta=st.sampled_from([None, 100.0]), sliding_window=st.sampled_from([None, 1, 2, 5]),
                      num_key_value_heads=st.sampled_from([1, 2, 4]), attention_bias=st.booleans()),
}


def cut(data, length):
    """Pieces of size 0 to length that sum to length."""
    sizes, left = [], length
    while left:
        sizes.append(data.draw(st.integers(0, left), label="piece"))
        left -= sizes[-1]
        if len(sizes) > 2 * length:
            sizes.append(left)
            left = 0
    return sizes or [0]


def check_rows(mixer, x, mask, y, state, bound):
    """Each row's outputs and state equal those of its real tokens alone, step by step."""
    for row in range(x.shape[0]):
        alone = x[row][mask[row]]
        assert not y[row][~mask[row]].any(), "outputs at padding must be zero"
        if not len(alone):
            continue
        wanted, values = REFERENCES[type(mixer).__name__](mixer, alone)
        assert difference(y[row][mask[row]], wanted) <= bound
        for name, value in values.items():
            assert difference(getattr(state, name)[row].to(value.dtype), value) <= bound, name


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
@torch.no_grad()
def test_any_cut_any_padding_any_option(family, data):
    options = {name: data.draw(choice, label=name) for name, choice in OPTIONS[family].items()}
    mixer = build(family, seed=data.draw(st.integers(0, 99), label="seed"), **options)
    batch, length = data.draw(st.sampled_from([1, 3]), label="batch"), data.draw(st.integers(1, 14), label="length")
    x = torch.randn(batch, length, mixer.hidden_size, dtype=torch.float64)
    mask = torch.tensor(data.draw(st.lists(st.booleans(), min_size=batch * length, max_size=batch * length),
                                  label="mask")).view(batch, length) if data.draw(st.booleans(), label="padded") \
        else torch.ones(batch, length, dtype=torch.bool)
    y, state = feed(mixer, torch.where(mask[..., None], x, float("nan")), cut(data, length), mask)
    if mask.any():
        check_rows(mixer, x, mask, y, state, 1e-12)
    else:
        assert state is None and not y.any()


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_long_sequence_in_uneven_pieces(family):
    """Longer than every block of the fast kernels, and far past the sliding window."""
    mixer, x = build(family), torch.randn(1, 300, FAMILIES[family][1]["hidden_size"], dtype=torch.float64)
    wanted, _ = REFERENCES[type(mixer).__name__](mixer, x[0])
    for cuts in ([300], [1, 130, 0, 2, 167], [257, 43]):
        y, _ = feed(mixer, x, cuts)
        assert difference(y[0], wanted) <= 1e-12


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_a_state_that_was_handed_over_keeps_its_values(family):
    mixer, x = build(family), torch.randn(2, 9, FAMILIES[family][1]["hidden_size"], dtype=torch.float64)
    _, state = mixer(x[:, :4])
    before = {name: value.clone() for name, value in state.tensors().items()}
    for piece in (x[:, 4:5], x[:, 4:9], x[:, 5:6]):
        mixer(piece, state)
    mixer(x[:, 4:9], state, torch.rand(2, 5) > 0.5)
    for name, value in state.tensors().items():
        assert torch.equal(value, before[name]), name
    first, again = mixer(x[:, 4:9], state), mixer(x[:, 4:9], state)
    assert torch.equal(first[0], again[0])


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_nothing_new_changes_nothing(family):
    mixer, x = build(family), torch.randn(2, 5, FAMILIES[family][1]["hidden_size"], dtype=torch.float64)
    _, state = mixer(x)
    assert mixer(x[:, :0], state)[1] is state and mixer(x[:, :0])[1] is None
    padding = torch.tensor([[False] * 5, [True] * 5])
    _, after = mixer(x, state, padding)
    for name in state.tensors():
        if name not in ("keys", "values"):
            assert torch.equal(getattr(after, name)[0], getattr(state, name)[0]), name
    assert mixer(x, state, torch.zeros(2, 5, dtype=torch.bool))[1] is state


@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "attention"])
@torch.no_grad()
def test_no_state_is_a_view_of_a_larger_tensor(family):
    mixer, x = build(family), torch.randn(1, 64, FAMILIES[family][1]["hidden_size"], dtype=torch.float64)
    for piece in (x, x[:, :1]):
        for name, value in mixer(piece)[1].tensors().items():
            assert value.untyped_storage().nbytes() == value.numel() * value.element_size(), name


LARGER = {"mamba": dict(intermediate_size=96, time_step_rank=8, state_size=16), "griffin": dict(lru_width=64),
          "mamba2": dict(num_heads=8, head_dim=16, state_size=16),
          "gated_delta": dict(linear_key_head_dim=16, linear_value_head_dim=16)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_low_precision(family, dtype):
    """Cutting costs no more than the dtype itself: compare with the error of the whole sequence, not with a constant."""
    torch.manual_seed(0)
    options = dict(hidden_size=64, **LARGER.get(family, {}))
    mixer, exact, x = build(family, dtype=dtype, **options), build(family, **options), torch.randn(4, 40, 64).to(dtype)
    exact.load_state_dict({name: value.double() for name, value in mixer.state_dict().items()})
    wanted, _ = exact(x.double())
    whole = (mixer(x)[0].double() - wanted).square().mean().sqrt()
    for cuts in ([1] * 40, [3, 1, 36], [17, 0, 23]):
        y, state = feed(mixer, x, cuts)
        assert y.dtype == dtype and (y.double() - wanted).square().mean().sqrt() <= 1.15 * whole
    if "recurrent" in state.tensors():
        assert state.recurrent.dtype == torch.float32


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_flow_from_call_to_call(family):
    """A later output moves an earlier input through the state, by as much as in one call."""
    mixer = build(family)
    x = torch.randn(2, 7, mixer.hidden_size, dtype=torch.float64, requires_grad=True)
    whole, = torch.autograd.grad(mixer(x)[0][:, -1].square().sum(), x)
    y, _ = feed(mixer, x, [3, 1, 3])
    cut, = torch.autograd.grad(y[:, -1].square().sum(), x)
    assert whole[:, 4].abs().max() > 0 and difference(cut, whole) <= 1e-12
    mask = torch.tensor([[True] * 7, [True, False, True, True, False, True, True]])
    whole, = torch.autograd.grad(mixer(x, None, mask)[0][:, -1].square().sum(), x)
    y, _ = feed(mixer, x, [3, 1, 3], mask)
    cut, = torch.autograd.grad(y[:, -1].square().sum(), x)
    assert difference(cut, whole) <= 1e-12 and not cut[1, 1].any()
