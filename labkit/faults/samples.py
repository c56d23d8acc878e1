"""Small right mixers and models at unit gain, for the faults to replace steps of.

Unit gain matters: with the small weights that training starts from, a lost state hardly shows.
"""

from ..contract.lift import redraw
from ..mixers import Attention, GriffinBlock, Mamba2Mixer, MambaMixer, ShortConv
from ..model import HybridLM, ModelConfig
from ..streaming import StreamingTransformer

WINDOW = 5          # of the sliding attention: short, so that its end is reached


def short_conv(seed: int = 0) -> ShortConv:
    return redraw(ShortConv(hidden_size=6, conv_L_cache=3), seed)


def mamba(seed: int = 0) -> MambaMixer:
    return redraw(MambaMixer(hidden_size=6, state_size=4), seed)


def mamba2(seed: int = 0) -> Mamba2Mixer:
    return redraw(Mamba2Mixer(hidden_size=8, head_dim=4, state_size=5, n_groups=2, time_step_limit=(0.1, 0.2)), seed)


def griffin(seed: int = 0) -> GriffinBlock:
    return redraw(GriffinBlock(hidden_size=6, num_attention_heads=2), seed)


def attention(seed: int = 0) -> Attention:
    return redraw(Attention(hidden_size=8, num_attention_heads=2), seed)


def nope(seed: int = 0) -> Attention:
    return redraw(Attention(hidden_size=8, num_attention_heads=2, rope_theta=None), seed)


def sliding(seed: int = 0) -> Attention:
    return redraw(Attention(hidden_size=8, num_attention_heads=2, sliding_window=WINDOW), seed)


def hybrid(seed: int = 0) -> HybridLM:
    """A recurrent layer, an attention layer and a recurrent layer over 20 tokens."""
    mixer = ("mamba2", {"head_dim": 8, "state_size": 6})
    return redraw(HybridLM(ModelConfig(20, 16, [mixer, ("attention", {"num_attention_heads": 2}), mixer])), seed)


def streaming(seed: int = 0, **options) -> StreamingTransformer:
    """Two layers over a ring of five tokens; a token for each frame."""
    sizes = dict(channels=3, hidden_size=8, num_layers=2, num_heads=2, context=WINDOW, stride=1, kernel=3)
    return redraw(StreamingTransformer(**{**sizes, **options}), seed)


def transformer(seed: int = 0) -> HybridLM:
    """Two attention layers over 20 tokens."""
    return redraw(HybridLM(ModelConfig(20, 16, [("attention", {"num_attention_heads": 2})] * 2)), seed)
