"""Boxes and letters: the cells of a picture and what stands in them, each kind drawn as one path."""

from functools import lru_cache

import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.textpath import TextPath

CORNERS = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1), (-1, -1)])


def boxes(places, wide, high, **style):
    """One patch for all boxes around these places (x, y): hatching is slow for each path, not for each box.

    Args:
        wide, high: half the width and half the height of a box; style: of the patch.
    """
    paths = [Path(CORNERS * (wide, high) + place, closed=True) for place in places]
    return PathPatch(Path.make_compound_path(*paths), **style)


@lru_cache(maxsize=500)
def outline(text, weight, size):
    """The path of a text in points, its middle at the origin; capitals are centred upright."""
    path = TextPath((0, 0), text, size, prop=FontProperties(weight=weight))
    return path.vertices - (path.get_extents().width / 2 + path.get_extents().x0, .36 * size), path.codes


def letters(texts, grid, weight="normal", size=9.5, **style):
    """One patch for all texts (x, y, text), centred at their places: a text object for each is slow to draw.

    Args:
        grid: affine transform from x, y to inches; size: in points; style: of the patch, whose transform must take
            inches.
    """
    paths = [Path(vertices / 72 + grid.transform((x, y)), codes)
             for x, y, text in texts for vertices, codes in [outline(text, weight, size)]]
    return PathPatch(Path.make_compound_path(*paths), lw=0, fc="black", **style)
