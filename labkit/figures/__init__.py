"""Figures: data in, a matplotlib Figure and one sentence computed from the same data out. No global state."""

from .bars import accuracy_bars
from .conv_window import ConvWindow, conv_window
from .error_sizes import error_sizes
from .influence import influence
from .position_line import position_line
from .who_wrote import Panel, who_wrote

__all__ = ["ConvWindow", "Panel", "accuracy_bars", "conv_window", "error_sizes", "influence", "position_line",
           "who_wrote"]
