"""Boxes and letters: the cells of a picture and what stands in them, each kind drawn as one path."""

from functools import lru_cache

import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from matplotlib.transforms import IdentityTransform

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
    """The path of a text in points, its middle at the origin, and its width; capitals are centred upright."""
    path = TextPath((0, 0), text, size, prop=FontProperties(weight=weight))
    left, right = path.get_extents().intervalx
    return path.vertices - ((left + right) / 2, .36 * size), path.codes, right - left


def letters(texts, grid, weight="normal", size=9.5, align=.5, **style):
    """One patch for all texts (x, y, text): a text object for each is slow to draw. Its label and gid say what it holds.

    Args:
        grid: affine transform from x, y to inches; size: in points; align: which part of a text stands at its place, 0
            its left end, 1 its right end; style: of the patch, whose transform must take inches.
    """
    paths = [Path((vertices + ((.5 - align) * width, 0)) / 72 + grid.transform((x, y)), codes)
             for x, y, text in texts if text for vertices, codes, width in [outline(text, weight, size)]]
    return PathPatch(Path.make_compound_path(*paths), lw=0, fc=style.pop("color", "black"), gid=f"{size} pt",
                     label=", ".join(text for _, _, text in texts), **style)


def key(figure, entries, size=9.5, **style):
    """Write what colours and hatches mean at the foot of a page, in as many rows as it takes.

    Args:
        entries: (text, style of a box) each; style: of all boxes.
    """
    inches, (wide, _), rows = figure.dpi_scale_trans, figure.get_size_inches(), [[]]
    for text, look in entries:
        item = text, look, outline(text, "normal", size)[2] / 72 + .75                     # its box, its text, a gap
        if sum(each[2] for each in (*rows[-1], item)) > wide:
            rows.append([])
        rows[-1].append(item)
    for line, row in enumerate(reversed(rows)):
        left, high = (wide - sum(width for _, _, width in row) + .3) / 2, .14 + .21 * line
        for text, look, width in row:
            figure.add_artist(boxes([(left + .15, high)], .15, .07, transform=inches, **{"ec": "#333333", **style, **look}))
            figure.add_artist(letters([(left + .37, high, text)], IdentityTransform(), size=size, align=0,
                                      transform=inches))
            left += width
