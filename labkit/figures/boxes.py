"""Boxes: the cells of a picture, drawn as one path."""

import numpy as np
from matplotlib.patches import PathPatch
from matplotlib.path import Path

CORNERS = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1), (-1, -1)])


def boxes(places, wide, high, **style):
    """One patch for all boxes around these places (x, y): hatching is slow for each path, not for each box.

    Args:
        wide, high: half the width and half the height of a box; style: of the patch.
    """
    paths = [Path(CORNERS * (wide, high) + place, closed=True) for place in places]
    return PathPatch(Path.make_compound_path(*paths), **style)
