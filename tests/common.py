"""What several test files use: mixers at unit gain, cuts, comparison."""

import torch
from matplotlib.patches import PathPatch
from matplotlib.text import Text
from torch import nn

from labkit.faults.samples import redraw
from labkit.mixers import Attention, GatedDeltaNet, GriffinBlock, Mamba2Mixer, MambaMixer, ShortConv

FAMILIES = {
    "short_conv": (ShortConv, dict(hidden_size=6, conv_L_cache=3, conv_bias=True)),
    "mamba": (MambaMixer, dict(hidden_size=6, intermediate_size=10, state_size=4, time_step_rank=3, use_bias=True)),
    "mamba2": (Mamba2Mixer, dict(hidden_size=8, num_heads=4, head_dim=4, state_size=5, n_groups=2, use_bias=True,
                                 time_step_limit=(0.1, 0.4))),
    "griffin": (GriffinBlock, dict(hidden_size=6, lru_width=8, num_attention_heads=2)),
    "gated_delta": (GatedDeltaNet, dict(hidden_size=6, linear_num_key_heads=2, linear_num_value_heads=4,
                                        linear_key_head_dim=3, linear_value_head_dim=5)),
    "attention": (Attention, dict(hidden_size=8, num_attention_heads=4, num_key_value_heads=2, attention_bias=True,
                                  sliding_window=5)),
}


def build(family: str, seed: int = 0, dtype=torch.float64, **options) -> nn.Module:
    """A mixer of the family at unit gain; options replace those of FAMILIES."""
    cls, given = FAMILIES[family]
    return redraw(cls(**{**given, **options}), seed).to(dtype)


def feed(subject, x, cuts, mask=None, state=None):
    """Feed x (B, L, …) in pieces of the given sizes, which sum to L; returns the joined outputs and the last state."""
    outputs, start = [], 0
    for size in cuts:
        piece = None if mask is None else mask[:, start:start + size]
        y, state = subject(x[:, start:start + size], state, piece)
        outputs.append(y)
        start += size
    assert start == x.shape[1], "the cuts do not sum to the length"
    return torch.cat(outputs, 1), state


def difference(found, wanted) -> float:
    """Largest difference, relative to the largest wanted value; NaN counts as infinite."""
    assert found.shape == wanted.shape, (found.shape, wanted.shape)
    if not wanted.numel():
        return 0.0
    value = ((found - wanted).abs().max() / wanted.abs().max().clamp(min=1e-30)).item()
    return float("inf") if value != value else value


def written(figure):
    """What `labkit.figures.boxes.letters` wrote into a figure: (texts, size in points) for each patch."""
    return [(patch.get_label(), float(patch.get_gid().split()[0])) for patch in figure.findobj(PathPatch) if patch.get_gid()]


def text_sizes(figure) -> list[float]:
    """The size in points of every text of a figure, be it a text object or drawn by `letters`."""
    objects = [text.get_fontsize() for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    return objects + [size for texts, size in written(figure) for text in texts.split(", ") if text]
