"""Who wrote this: time down, slots of a memory across; each cell is coloured and lettered by its writer.

The writers come from runs, never from a drawing: from a tracked cache, a gradient, or inputs that carry their number.
"""

from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.transforms import Affine2D

from .boxes import boxes, key, letters

PALETTE = ("#56B4E9", "#F0C05A", "#009E73", "#CC79A7", "#E6E6E6", "#F0E442", "#7FA8C9", "#C9A27F")
WRONG = "#D55E00"
WIDE, CELL, HEAD, FOOT = 9.6, 0.36, 0.66, 0.55      # inches: the page, the height of a row, room above and below


@dataclass(frozen=True)
class Panel:
    """One memory, watched.

    Attributes:
        name: what is watched: "row 0, padded".
        slots: a label for each slot, S of them; "" where none is needed.
        times: a label for each moment, R of them, earliest first.
        writers: R rows of S short names, at most 5 characters; None for a slot that nobody has written.
    """

    name: str
    slots: list[str]
    times: list[str]
    writers: list[list[str | None]]

    def __post_init__(self):
        found = [len(row) for row in self.writers]
        if found != [len(self.slots)] * len(self.times):
            raise ValueError(f"panel {self.name!r} names {len(self.times)} times and {len(self.slots)} slots, but its "
                             f"rows of writers have {found} entries; give one row a time, one entry a slot")


def differences(panels):
    """The cells that differ from the first panel: (panel, time, slot). Panels of another shape have none."""
    right = panels[0].writers
    return {(p, t, s) for p, panel in enumerate(panels) if len(panel.writers) == len(right)
            for t, (row, wanted) in enumerate(zip(panel.writers, right)) if len(row) == len(wanted)
            for s, (writer, want) in enumerate(zip(row, wanted)) if writer != want}


def who_wrote(panels, marks=None, words=None):
    """Panels of slots by time; wrong cells are framed and hatched: (Figure, sentence).

    Args:
        panels: of Panel, two at most side by side.
        marks: the wrong cells, as (panel, time, slot) indices; None marks what differs from the first panel.
        words: what a writer's name means, for the legend: {"p": "padding"}; others stand for themselves.
    """
    marks, words = differences(panels) if marks is None else set(marks), words or {}
    side = len(panels) == 2 and sum(len(panel.slots) for panel in panels) <= 22
    writers = list(dict.fromkeys(w for panel in panels for row in panel.writers for w in row if w is not None))
    colours = {writer: PALETTE[i % len(PALETTE)] for i, writer in enumerate(writers)}
    legend = [(f"{w} = {words[w]}", {"fc": colours[w]}) for w in writers if w in words]
    legend += [("wrong slot", {"fc": "white", "ec": WRONG, "hatch": "xxx", "lw": 2})] if marks else []
    heights = [CELL * len(panel.times) + HEAD for panel in panels]
    high = (max(heights) if side else sum(heights)) + (FOOT if legend else .1)
    figure = Figure((WIDE, high), dpi=100)
    at, left = 0.0, 0.0                                     # one page in inches: quick to draw, no layout to search for
    for index, (panel, height) in enumerate(zip(panels, heights)):
        wide = WIDE * (len(panel.slots) / sum(len(p.slots) for p in panels) if side else 1)
        labels = .25 + .075 * max(map(len, panel.times))
        grid = Affine2D().translate(.5, .5).scale((wide - labels - .1) / len(panel.slots), -CELL).translate(
            left + labels, high - at - HEAD)                                            # (slot, time) to inches
        _draw(figure, grid, panel, colours, {(t, s) for p, t, s in marks if p == index})
        at, left = (at, left + wide) if side else (at + height, left)
    key(figure, legend)
    return figure, say_writers(panels, marks, words)


def _draw(figure, grid, panel, colours, marks):
    inches = figure.dpi_scale_trans
    cells = [(s, t, writer) for t, row in enumerate(panel.writers) for s, writer in enumerate(row)]
    for writer, colour in (*colours.items(), (None, "white")):
        places = [(s, t) for s, t, wrote in cells if wrote == writer]
        figure.add_artist(boxes(places, .46, .44, fc=colour, ec="#333333", lw=.6, transform=grid + inches))
    wrong = [(s, t) for t, s in sorted(marks)]
    figure.add_artist(boxes(wrong, .44, .42, fill=False, ec=WRONG, hatch="xxx", lw=2.5, transform=grid + inches))
    for s, t in wrong:                                                  # a white ground, as wide as the name on it
        half = (.06 + .04 * len(panel.writers[t][s] or "–")) / grid.get_matrix()[0, 0]
        figure.add_artist(boxes([(s, t)], half, .3, fc="white", lw=0, transform=grid + inches))
    for weight, marked in (("normal", False), ("bold", True)):
        named = [(s, t, "–" if writer is None else writer) for s, t, writer in cells if ((t, s) in marks) == marked]
        figure.add_artist(letters(named, grid, weight, transform=inches))
    for items, align in (([(s, -.86, label) for s, label in enumerate(panel.slots)], .5),
                         ([(-.58, t, label) for t, label in enumerate(panel.times)], 1)):
        figure.add_artist(letters(items, grid, align=align, transform=inches))
    figure.add_artist(letters([(-.46, -.78 - .24 / CELL, panel.name)], grid, "bold", 11, 0, transform=inches))


def say_writers(panels, marks, words):
    """The sentence of `who_wrote`: for each panel the number of wrong slots, since when, which, and who wrote them."""
    def say(index, panel):
        name, cells = panel.name[:1].upper() + panel.name[1:], sorted((t, s) for p, t, s in marks if p == index)
        if not cells:
            return f"{name}: no wrong slot."
        where = [panel.slots[s] or f"slot {s + 1}" for s in sorted({s for _, s in cells})]
        wrote = list(dict.fromkeys(panel.writers[t][s] for t, s in cells))
        who = ", ".join(words.get(w, w) for w in wrote if w is not None) or "nobody"
        who += ", some by nobody" * (None in wrote and len(wrote) > 1)
        first = panel.times[cells[0][0]]
        when = f"at “{first}”" if cells[0][0] == cells[-1][0] else f"from “{first}” on"
        return f"{name}: {len(cells)} wrong slot{'s' * (len(cells) > 1)} {when} ({', '.join(where)}), written by {who}."
    return " ".join(say(*pair) for pair in enumerate(panels))
