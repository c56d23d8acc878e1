"""Faults that show what a law is for: one law alone sees them, or without it they get another fault's name."""

from dataclasses import replace

import torch
import torch.nn.functional as F

from ..contract.subjects import MixerSubject
from ..mixers import Attention, Mamba2Mixer, ShortConv
from . import samples
from .base import Record, add_mixer_fault, add_steps, reclass
from .empty_cache import PositionChooses, Refuses


class LongKernel(Mamba2Mixer):
    """A chunk of 64 tokens and more takes a kernel of its own, and that one starts from nothing."""

    def mix(self, x, state, counts):
        return super().mix(x, state if x.shape[1] < 64 else self.start(len(x)), counts)


class NoTokens(ShortConv):
    """The library's convolution is called although there is no new column."""

    def forward(self, x, state=None, mask=None):
        if x.shape[1] == 0:
            window = (state or self.start(len(x))).conv                                     # (B, C, K-1)
            return F.conv1d(window, self.conv.weight, groups=len(self.conv.weight)).mT, state
        return super().forward(x, state, mask)


class ScalePerRow(ShortConv):
    """Inputs in 8 bits, each row and token with its own scale."""

    def forward(self, x, state=None, mask=None):
        scale = x.abs().amax(2, keepdim=True).clamp(min=1e-9) / 127                         # (B, L, 1)
        return super().forward((x / scale).round() * scale, state, mask)


class ScalePerBatch(ScalePerRow):
    """Inputs in 8 bits, one scale for all rows: a row's answer depends on its neighbours."""

    def forward(self, x, state=None, mask=None):
        scale = x.abs().amax((0, 2), keepdim=True).clamp(min=1e-9) / 127                    # (1, L, 1)
        return ShortConv.forward(self, (x / scale).round() * scale, state, mask)


class StateOnTheModel(Refuses):
    """A new conversation empties the model's only state and takes it."""

    def start(self):
        self.block.held, self.block.fed = None, 0
        return self.block


class WindowNotSaved(MixerSubject):
    """The file keeps the recurrent state and forgets the convolution's window."""

    def move(self, state):
        return replace(super().move(state), conv=torch.zeros_like(state.conv))


class CacheIsFull(Attention):
    """There are places for 128 tokens; in a layer that should see everything, the oldest make room."""

    def visible(self, held, position, padded):
        keys, values, sees = super().visible(held, position, padded)
        held_before = 0 if held.count is None else held.count - position.shape[1]
        gone = max(0, min(held_before, keys.shape[2] - 128))
        return keys[:, :, gone:], values[:, :, gone:], None if sees is None else sees[..., gone:]


class OrderOfSums(ShortConv):
    """Parts of a sum arrive in any order, as from threads that race: the last digits change from run to run."""

    def convolve(self, conv, u, window, counts):
        _, after = super().convolve(conv, u, window, counts)
        joined, length, order = torch.cat([window, u.mT], -1), u.shape[1], torch.randperm(conv.weight.shape[-1])
        y = sum(conv.weight[:, 0, k, None] * joined[..., k:k + length] for k in order.tolist())     # (B, C, L)
        return (y if conv.bias is None else y + conv.bias[:, None]).mT, after


def no_tokens() -> None:
    """A chunk of no tokens, after four."""
    layer = reclass(samples.short_conv(), NoTokens)
    x = torch.zeros(1, 4, 6, dtype=torch.float64)
    layer(x[:, :0], layer(x)[1])


add_mixer_fault(Record("long-kernel", "dropped-chunk", "a kernel for long chunks starts from an empty state",
                       ("fla-org/flash-linear-attention issue 90", "huggingface/transformers PR 46741")), LongKernel,
                samples.mamba2)
add_mixer_fault(Record("no-tokens", "dropped-chunk", "a chunk of no tokens reaches a convolution that cannot take it",
                       ("pytorch/pytorch torch.nn.functional.conv1d",), "torch 2.13", "Calculated padded input size "
                       "per channel: (2). Kernel size: (3). Kernel size can't be greater than actual input size"),
                NoTokens, samples.short_conv, trigger=no_tokens)
add_steps(Record("scale-per-batch", "padding-continued", "one quantisation scale for all rows mixes them",
                 ("microsoft/onnxruntime issue 5672", "microsoft/onnxruntime issue 10111")), ScalePerBatch,
          subject=lambda seed=0: MixerSubject(reclass(samples.short_conv(seed), ScalePerBatch)),
          healthy=lambda seed=0: MixerSubject(reclass(samples.short_conv(seed), ScalePerRow)))
add_steps(Record("state-on-the-model", "empty-cache", "two conversations share the state that lives on the model",
                 ("huggingface/transformers models/recurrent_gemma", "huggingface/candle PR 3447")), StateOnTheModel,
          subject=lambda seed=0: StateOnTheModel(reclass(samples.griffin(seed), PositionChooses)),
          healthy=lambda seed=0: Refuses(reclass(samples.griffin(seed), PositionChooses)))
add_steps(Record("window-not-saved", "different-depths", "a saved session comes back without its window",
                 ("ggml-org/llama.cpp issue 25913",)), WindowNotSaved,
          subject=lambda seed=0: WindowNotSaved(samples.mamba2(seed)),
          healthy=lambda seed=0: MixerSubject(samples.mamba2(seed)))
add_mixer_fault(Record("cache-is-full", "expected-cpu", "a bounded cache under a layer that should see everything "
                       "drops the oldest tokens", ("ml-explore/mlx-lm PR 1343",)), CacheIsFull, samples.attention)
add_mixer_fault(Record("order-of-sums", "dropped-chunk", "a sum in changing order: the same call gives other last "
                       "digits", ("rusty1s/pytorch_scatter issue 226", "pytorch/pytorch issue 50469")), OrderOfSums,
                samples.short_conv)
