"""Figures: data in, a matplotlib Figure and one sentence computed from the same data out. No global state."""

from .conv_window import ConvWindow, conv_window
from .error_sizes import error_sizes

__all__ = ["ConvWindow", "conv_window", "error_sizes"]
