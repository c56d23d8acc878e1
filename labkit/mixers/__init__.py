"""The six mixers, one family a file; all share `Mixer.forward(x, state=None, mask=None) -> (y, state)`."""

from .attention import Attention
from .base import Mixer
from .gated_delta import GatedDeltaNet
from .griffin import GriffinBlock
from .mamba import MambaMixer
from .mamba2 import Mamba2Mixer
from .short_conv import ShortConv

__all__ = ["Attention", "GatedDeltaNet", "GriffinBlock", "Mamba2Mixer", "MambaMixer", "Mixer", "ShortConv"]
