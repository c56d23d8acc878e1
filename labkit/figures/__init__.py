"""Figures: data in, a matplotlib Figure and one sentence computed from the same data out. No global state."""

from .ablation import ablation
from .bars import accuracy_bars
from .conv_window import ConvWindow, conv_window
from .error_map import error_map
from .error_sizes import error_sizes
from .influence import influence
from .position_line import position_line
from .price_chart import price_chart
from .who_wrote import Panel, who_wrote

__all__ = ["ConvWindow", "Panel", "ablation", "accuracy_bars", "conv_window", "error_map", "error_sizes", "influence",
           "position_line", "price_chart", "who_wrote"]
