"""Chunks that lose tokens or history: the Mamba2 mixer of transformers and its family.

A second path for one token is taken, or not taken, at the wrong length. Fed token by token all of these are right.
"""

from dataclasses import replace

import torch

from ..mixers import GriffinBlock, Mamba2Mixer, MambaMixer
from . import samples
from .base import Record, add_mixer_fault


class DroppedChunk(Mamba2Mixer):
    """With a previous state, a chunk of any length takes the one-token branch."""

    def convolve(self, conv, u, window, counts):
        if window.any():
            y, window = super().convolve(conv, u[:, :1], window, None)
            return y.expand(u.shape), window
        return super().convolve(conv, u, window, counts)

    def scan(self, x, dt, b, c, h):
        if h.any():
            y, h = super().scan(x[:, :1], dt[:, :1], b[:, :1], c[:, :1], h)
            return y.expand(x.shape), h
        return super().scan(x, dt, b, c, h)


class LooksAhead(Mamba2Mixer):
    """The window takes in the whole chunk, then one step is made: the last token's input with the first one's dt."""

    def convolve(self, conv, u, window, counts):
        y, after = super().convolve(conv, u, window, counts)
        return (y[:, -1:].expand(u.shape) if window.any() else y), after

    def scan(self, x, dt, b, c, h):
        if h.any():
            y, h = super().scan(x[:, -1:], dt[:, :1], b[:, -1:], c[:, -1:], h)
            return y.expand(x.shape), h
        return super().scan(x, dt, b, c, h)


class HistoryLost(Mamba2Mixer):
    """The one-token branch is guarded, but a longer chunk starts from nothing."""

    def mix(self, x, state, counts):
        if x.shape[1] > 1:
            state = replace(state, conv=torch.zeros_like(state.conv), recurrent=torch.zeros_like(state.recurrent))
        return super().mix(x, state, counts)


class RecurrentHalfLost(MambaMixer):
    """A chunk uses the window and starts the recurrence from zeros."""

    def mix(self, x, state, counts):
        if x.shape[1] > 1:
            state = replace(state, recurrent=torch.zeros_like(state.recurrent))
        return super().mix(x, state, counts)


class ConvHalfLost(GriffinBlock):
    """A chunk uses the recurrent state and starts the convolution from zeros."""

    def convolve(self, conv, u, window, counts):
        if u.shape[1] > 1:
            window = torch.zeros_like(window)
        return super().convolve(conv, u, window, counts)


class ClampLost(Mamba2Mixer):
    """The one-token branch computes dt without its limits."""

    def step_size(self, dt):
        if dt.shape[1] == 1:
            return torch.nn.functional.softplus(dt + self.dt_bias.to(dt.dtype))
        return super().step_size(dt)


class OneStepForAll(Mamba2Mixer):
    """One dt, the first token's, for all tokens of a chunk."""

    def step_size(self, dt):
        return super().step_size(dt[:, :1].expand(dt.shape))


INCIDENT = "dropped-chunk"
add_mixer_fault(Record(
    "dropped-chunk", INCIDENT, "a chunk on a used cache goes through the one-token step; all but its first token are "
    "dropped", ("huggingface/transformers PR 46084", "huggingface/transformers issue 46032"), "4.53 to 5.4"),
    DroppedChunk, samples.mamba2)
add_mixer_fault(Record(
    "looks-ahead", INCIDENT, "the window takes in the whole chunk before one step is made, so outputs depend on later "
    "tokens", ("huggingface/transformers PR 46084",), "5.5.0 to 5.12.1"), LooksAhead, samples.mamba2)
add_mixer_fault(Record(
    "history-lost", INCIDENT, "a chunk of several tokens starts from an empty state",
    ("huggingface/transformers PR 46741",), "bamba, falcon_h1, granitemoehybrid to 5.12.1"), HistoryLost,
    samples.mamba2)
add_mixer_fault(Record(
    "recurrent-half-lost", INCIDENT, "a chunk of several tokens starts the recurrence from zeros; the convolution is "
    "right", ("state-spaces/mamba PR 488",), "mamba, falcon_mamba, jamba, zamba in 5.15 to 5.24"), RecurrentHalfLost,
    samples.mamba)
add_mixer_fault(Record(
    "conv-half-lost", INCIDENT, "a chunk of several tokens starts the convolution from zeros; the recurrence is right",
    ("huggingface/transformers models/recurrent_gemma",), "recurrent_gemma to 5.24"), ConvHalfLost, samples.griffin)
add_mixer_fault(Record(
    "clamp-lost", INCIDENT, "the one-token step forgets time_step_limit",
    ("huggingface/transformers models/mamba2",), "5.23, with a finite limit"), ClampLost, samples.mamba2)
add_mixer_fault(Record(
    "one-step-size", INCIDENT, "all tokens of a chunk use the first one's dt",
    ("huggingface/transformers PR 46084",), "one half of the fault of 4.53 to 5.12.1"), OneStepForAll, samples.mamba2)
