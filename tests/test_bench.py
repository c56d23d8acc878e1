"""The bench measures pictures, not the errors that stand in for them."""

import pytest
import torch

from labkit import bench
from labkit.lesson import lesson_04
from labkit.widgets import Explorer


def test_redraw_needs_pictures(monkeypatch):
    monkeypatch.setattr(bench, "EXPLORERS", ("04",))
    with torch.no_grad():                                   # as the whole bench runs: the influence map needs gradients
        row, = bench.measure_redraw()
    assert row["pictures"] == 8 and row["worst"] >= row["ms"] > 0
    monkeypatch.setattr(lesson_04, "explorer", lambda: Explorer(lambda chunk: 1 / 0, chunk=("chunk length", 1, 8, 8)))
    with pytest.raises(RuntimeError, match="lesson 04 shows: No picture: ZeroDivisionError"):
        bench.measure_redraw()
