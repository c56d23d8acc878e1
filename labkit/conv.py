"""Depthwise causal convolution over a carried window: the smallest state in the lab.

    y[t] = bias + sum_k weight[k] * u[t + k],   u = window ++ x

One path, for L = 0, 1 or 4096, with or without history: the fault of every incident in this lab is a second path.
"""

import torch
from torch import Tensor

from .errors import BatchError
from .state import state_dtype


def causal_conv(x: Tensor, window: Tensor, weight: Tensor, bias: Tensor | None = None,
                counts: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Depthwise causal convolution that continues from a carried window.

    Args:
        x: new inputs, (B, C, L); L may be 0.
        window: the K-1 inputs before x, (B, C, K-1); zeros at the start of a sequence.
        weight: one kernel per channel, (C, K). The last tap meets the newest input.
        bias: (C,) or None.
        counts: (B,) how many columns of each row are real, the first ones; None: all. The rest is padding.

    Returns:
        y: (B, C, L), and the next window: the last K-1 real columns of u, (B, C, K-1).

    Raises:
        BatchError: window, x and weight disagree on B, C or K.

    Example:
        >>> x, weight = torch.arange(4.0).view(1, 1, 4), torch.tensor([[1.0, 10.0]])
        >>> y, window = causal_conv(x, torch.zeros(1, 1, 1), weight)
        >>> y.flatten().tolist(), window.flatten().tolist()
        ([0.0, 10.0, 21.0, 32.0], [3.0])
    """
    length, taps = x.shape[-1], weight.shape[-1]
    check_window(x, window, taps)
    if not length:
        return x, window
    u = torch.cat([window, x], dim=-1)                                          # (B, C, K-1+L)
    wide = state_dtype(x.dtype)                                                 # bf16 is summed in float32
    v, weight = u.to(wide), weight.to(wide)
    if length == 1:                                                             # one column: one sum over the taps
        y = (v * weight).sum(-1, keepdim=True)                                  # (B, C, 1)
    else:
        y = v[..., :length] * weight[:, 0, None]                                # (B, C, L)
        for k in range(1, taps):
            y = torch.addcmul(y, v[..., k:k + length], weight[:, k, None])
    y = (y if bias is None else y + bias[:, None].to(wide)).to(x.dtype)
    if counts is not None:                                                      # each row ends at its own count
        at = counts[:, None] + torch.arange(taps - 1, device=x.device)          # (B, K-1)
        return y, u.gather(-1, at[:, None].expand(-1, x.shape[1], -1))
    return y, u[..., length:].clone()      # clone: a state is never a view that keeps a larger tensor alive


def check_window(x: Tensor, window: Tensor, taps: int) -> None:
    """Raise BatchError unless window is (B, C, taps-1) for an x of (B, C, L)."""
    if window.shape != (*x.shape[:2], taps - 1):
        raise BatchError(f"the window is {tuple(window.shape)}, but an input of {tuple(x.shape)} (batch, channels, "
                         f"tokens) and {taps} taps need {(*x.shape[:2], taps - 1)}; "
                         "continue each batch with its own state, or start with state=None")
