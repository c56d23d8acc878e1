"""Padding that leaks into window and state."""

from ..mixers import Mamba2Mixer
from . import samples
from .base import Record, add_mixer_fault


class PaddingOnFirstCall(Mamba2Mixer):
    """The mask is looked at only when there is an earlier state."""

    def forward(self, x, state=None, mask=None):
        return super().forward(x, state, None if state is None else mask)


class PaddingContinued(Mamba2Mixer):
    """The mask is looked at on the first call only."""

    def forward(self, x, state=None, mask=None):
        return super().forward(x, state, mask if state is None else None)


class PaddingOneColumn(Mamba2Mixer):
    """The one-token path does not look at the mask."""

    def forward(self, x, state=None, mask=None):
        return super().forward(x, state, mask if x.shape[1] > 1 else None)


class PaddingMultiplied(Mamba2Mixer):
    """Padding is multiplied by zero at the input; window and state still take it in."""

    def forward(self, x, state=None, mask=None):
        return super().forward(x if mask is None else x * mask[..., None], state, None)


INCIDENT, SOURCE = "padding-continued", "huggingface/transformers issue 47086"
for cls, name, says, versions in (
        (PaddingOnFirstCall, "padding-first-call", "padding enters the state on the first call",
         "huggingface/transformers issue 31540"),
        (PaddingContinued, "padding-continued", "padding enters the state on a continued call", "to 5.14.1"),
        (PaddingOneColumn, "padding-one-column", "padding enters the state when it comes one column at a time", "5.23"),
        (PaddingMultiplied, "padding-multiplied", "padding is multiplied away at the input, but the state still decays",
         "huggingface/transformers issue 48256")):
    add_mixer_fault(Record(name, INCIDENT, says, (SOURCE, "huggingface/transformers PR 47087"), versions), cls,
                    samples.mamba2)
