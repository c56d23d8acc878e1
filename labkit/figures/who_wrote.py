"""Who wrote this: time down, slots of a memory across; each cell is coloured and lettered by its writer.

The writers come from runs, never from a drawing: from a tracked cache, a gradient, or inputs that carry their number.
"""

from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

PALETTE = ("#56B4E9", "#F0C05A", "#009E73", "#CC79A7", "#E6E6E6", "#F0E442", "#7FA8C9", "#C9A27F")
WRONG = "#D55E00"
CELL = 0.36         # inches, the height of a row


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
    rows = [len(panel.times) for panel in panels]
    height = sum(CELL * n + 0.75 for n in (rows if not side else [max(rows)])) + 0.55
    figure = Figure((9.6, height), dpi=100, layout="constrained")
    grid = {"width_ratios": [len(p.slots) for p in panels]} if side else {"height_ratios": [n + 2 for n in rows]}
    axes = figure.subplots(1 if side else len(panels), 2 if side else 1, squeeze=False, gridspec_kw=grid).ravel()
    for index, (ax, panel) in enumerate(zip(axes, panels)):
        _draw(ax, panel, colours, {(t, s) for p, t, s in marks if p == index})
    legend = [Patch(fc=colours[w], ec="#333333", label=f"{w} = {words[w]}") for w in writers if w in words]
    legend += [Patch(fc="white", ec=WRONG, hatch="xxx", lw=2, label="wrong slot")] if marks else []
    if legend:
        figure.legend(handles=legend, loc="outside lower center", ncols=min(5, len(legend)), fontsize=9.5,
                      frameon=False)
    return figure, say_writers(panels, marks, words)


def _draw(ax, panel, colours, marks):
    for t, row in enumerate(panel.writers):
        for s, writer in enumerate(row):
            wrong = (t, s) in marks
            ax.add_patch(Rectangle((s - .46, t - .44), .92, .88, fc=colours.get(writer, "white"), lw=.6, ec="#333333"))
            if wrong:
                ax.add_patch(Rectangle((s - .44, t - .42), .88, .84, fill=False, ec=WRONG, hatch="xxx", lw=2.5))
            ax.text(s, t, "–" if writer is None else writer, ha="center", va="center", fontsize=9.5,
                    fontweight="bold" if wrong else "normal",
                    bbox={"fc": "white", "ec": "none", "pad": 1.2} if wrong else None)
    ax.set(xlim=(-.5, len(panel.slots) - .5), ylim=(len(panel.times) - .5, -.5),
           xticks=range(len(panel.slots)), xticklabels=panel.slots, yticks=range(len(panel.times)),
           yticklabels=panel.times)
    ax.tick_params(length=0, labelsize=9.5, labeltop=True, labelbottom=False)
    ax.set_title(panel.name, fontsize=11, fontweight="bold", loc="left")
    ax.spines[:].set_visible(False)


def say_writers(panels, marks, words):
    """The sentence of `who_wrote`: for each panel the number of wrong slots, where they are, and who wrote them."""
    def say(index, panel):
        cells = sorted((t, s) for p, t, s in marks if p == index)
        if not cells:
            return f"{panel.name}: no wrong slot."
        where = [panel.slots[s] or f"slot {s + 1}" for s in sorted({s for _, s in cells})]
        wrote = list(dict.fromkeys(panel.writers[t][s] for t, s in cells))
        who = ", ".join("nobody" if w is None else words.get(w, w) for w in wrote)
        return (f"{panel.name}: {len(cells)} wrong slot{'s' * (len(cells) > 1)}, first at “{panel.times[cells[0][0]]}” "
                f"({', '.join(where)}), written by {who}.")
    return " ".join(say(*pair) for pair in enumerate(panels))
