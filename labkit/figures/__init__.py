"""Figures: data in, a matplotlib Figure and one sentence computed from the same data out. No global state."""

from .bars import accuracy_bars
from .conv_window import ConvWindow, conv_window
from .error_sizes import error_sizes

__all__ = ["ConvWindow", "accuracy_bars", "conv_window", "error_sizes"]
