"""Each mixer against the transformers module with the same weights: whole sequence there, any cut here."""

import pytest
import torch
from common import difference, feed, redraw

from labkit.contract.lift import Float64
from labkit.errors import ConfigError
from labkit.mixers import Attention, GatedDeltaNet, GriffinBlock, Mamba2Mixer, MambaMixer, ShortConv

transformers = pytest.importorskip("transformers", reason="install the extra: pip install 'labkit[real]'")
from transformers.models.lfm2.modeling_lfm2 import Lfm2ShortConv  # noqa: E402
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding  # noqa: E402
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer as HFMamba2  # noqa: E402
from transformers.models.mamba.modeling_mamba import MambaMixer as HFMamba  # noqa: E402
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet  # noqa: E402
from transformers.models.recurrent_gemma.modeling_recurrent_gemma import RecurrentGemmaRecurrentBlock  # noqa: E402


def llama(config, x):
    """Run a LlamaAttention module; it takes angles and a mask from outside."""
    module, length = redraw(LlamaAttention(config, 0)).to(x.dtype), x.shape[1]
    rotary = LlamaRotaryEmbedding(config)

    def run(module, x):
        at = torch.arange(length)
        behind = at[:, None] - at
        window = getattr(config, "sliding_window", None) or length
        sees = (behind >= 0) & (behind < window)
        mask = torch.zeros(length, length, dtype=x.dtype).masked_fill(~sees, float("-inf"))
        return module(x, position_embeddings=rotary(x, at[None]), attention_mask=mask[None, None])[0]
    return module, run


def plain(cls):
    def make(config, x):
        return redraw(cls(config, 0)).to(x.dtype), lambda module, x: module(x)
    return make


def gemma(config, x):
    def run(module, x):
        return module(x, torch.arange(x.shape[1])[None].expand(len(x), -1), None, use_cache=False)[0]
    return redraw(RecurrentGemmaRecurrentBlock(config, 0)).to(x.dtype), run


small = dict(vocab_size=32, num_hidden_layers=2)
CASES = {
    "short_conv": (ShortConv, plain(Lfm2ShortConv), transformers.Lfm2Config, [
        dict(hidden_size=12, conv_bias=True, conv_L_cache=3, layer_types=["conv", "full_attention"]),
        dict(hidden_size=8, conv_bias=False, conv_L_cache=5, layer_types=["conv", "full_attention"])]),
    "mamba": (MambaMixer, plain(HFMamba), transformers.MambaConfig, [
        dict(hidden_size=16, state_size=8, use_bias=True, conv_kernel=4),
        dict(hidden_size=12, state_size=5, time_step_rank=7, use_bias=True, conv_kernel=2, expand=3, hidden_act="gelu")]),
    "mamba2": (Mamba2Mixer, plain(HFMamba2), transformers.Mamba2Config, [
        dict(hidden_size=16, num_heads=4, head_dim=8, state_size=6, n_groups=2, use_bias=True, chunk_size=8),
        dict(hidden_size=12, num_heads=6, head_dim=6, expand=3, state_size=5, n_groups=3, use_bias=True, conv_kernel=3,
             time_step_limit=(0.1, 0.15), chunk_size=256),
        dict(hidden_size=16, num_heads=2, head_dim=16, state_size=8, n_groups=1, use_conv_bias=False, conv_kernel=5)]),
    "griffin": (GriffinBlock, gemma, transformers.RecurrentGemmaConfig, [
        dict(hidden_size=16, num_attention_heads=2, lru_width=16, intermediate_size=32),
        dict(hidden_size=12, num_attention_heads=4, lru_width=20, conv1d_width=3, intermediate_size=32)]),
    "gated_delta": (GatedDeltaNet, plain(Qwen3NextGatedDeltaNet), transformers.Qwen3NextConfig, [
        dict(hidden_size=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6,
             linear_value_head_dim=8, layer_types=["linear_attention"] * 2),
        dict(hidden_size=12, linear_num_key_heads=3, linear_num_value_heads=3, linear_key_head_dim=8,
             linear_value_head_dim=4, linear_conv_kernel_dim=2, layer_types=["linear_attention"] * 2)]),
    "llama": (Attention, llama, transformers.LlamaConfig, [
        dict(hidden_size=16, num_attention_heads=4, num_key_value_heads=2, attention_bias=True)]),
    "mistral": (Attention, llama, transformers.MistralConfig, [
        dict(hidden_size=16, num_attention_heads=4, num_key_value_heads=1, head_dim=8, sliding_window=6,
             attention_bias=False)]),
}
RUNS = [(name, options) for name, case in CASES.items() for options in case[3]]


@pytest.mark.parametrize("dtype, bound", [(torch.float64, 1e-9), (torch.float32, 2e-5)])
@pytest.mark.parametrize("name, options", RUNS, ids=[f"{name}-{i}" for i, (name, _) in enumerate(RUNS)])
@torch.no_grad()
def test_same_weights_same_outputs(name, options, dtype, bound):
    cls, make, config_class, _ = CASES[name]
    config = config_class(**{**small, **options})
    torch.manual_seed(0)
    x = torch.randn(2, 70, config.hidden_size, dtype=dtype)
    if dtype == torch.float64:
        with Float64():
            module, run = make(config, x)
            wanted = run(module, x)
    else:
        module, run = make(config, x)
        wanted = run(module, x)
    assert wanted.dtype == dtype
    ours = cls.from_config(config).to(dtype)
    ours.load_state_dict(module.state_dict())
    width = getattr(ours, "conv1d", getattr(ours, "conv_1d", getattr(ours, "conv", None)))
    k = width.kernel_size[0] if width is not None else 4
    for cuts in ([70], [1] * 70, [0, 1, 2, k - 2, k - 1, k, 64 - 3 * k, 0, 6], [33, 37]):
        assert difference(feed(ours, x, cuts)[0], wanted) <= bound, cuts


def test_a_field_that_would_not_be_honoured_is_refused():
    scaled = transformers.LlamaConfig(hidden_size=16, num_attention_heads=4, rope_parameters={
        "rope_type": "linear", "factor": 2.0, "rope_theta": 1e4})
    with pytest.raises(ConfigError, match="rope_type"):
        Attention.from_config(scaled)
    with pytest.raises(ConfigError, match="falcon_mamba"):
        MambaMixer.from_config(transformers.FalconMambaConfig())
    with pytest.raises(ConfigError, match="unknown activation 'tanh'"):
        Mamba2Mixer.from_config(transformers.Mamba2Config(hidden_act="tanh"))
    with pytest.raises(ConfigError, match="hidden_act='gelu'"):
        GatedDeltaNet.from_config(transformers.Qwen3NextConfig(hidden_act="gelu"))
    with pytest.raises(ConfigError, match="3 heads of 64"):
        Mamba2Mixer(hidden_size=64, num_heads=3)


def test_layers_of_one_config_may_differ():
    config = transformers.SmolLM3Config(hidden_size=16, num_attention_heads=4, num_key_value_heads=2, head_dim=4,
                                        num_hidden_layers=4)
    assert [Attention.from_config(config, i).rope_theta is None for i in range(4)] == [False, False, False, True]
