"""Error map: a cut a row, a position a column; which outputs are wrong?"""

from itertools import groupby

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from .boxes import boxes
from .conv_window import positions

RIGHT, WRONG, CELL = "#E6E6E6", "#D55E00", 0.27         # colours, and the height of a row in inches


def label(sizes):
    """A short name of a cut: 'chunks of 5', '4 + 8', '1 x 12 tokens'."""
    if set(sizes[:-1]) == {sizes[0]} and sizes[-1] <= sizes[0] and len(sizes) > 1:
        return f"chunks of {sizes[0]}"
    runs = [(str(size), len([*run])) for size, run in groupby(sizes)]
    return " + ".join(f"{n} x {size}" if n > 2 else " + ".join([size] * n) for size, n in runs)


def error_map(panels):
    """Wrong outputs by cut and position, side by side: (Figure, sentence).

    Args:
        panels: {name: {cut: wrong}}; a cut is a tuple of sizes, wrong holds one bool for each token. All panels share
            their cuts.
    """
    cuts = list(next(iter(panels.values())))
    figure = Figure((9.6, CELL * len(cuts) + 1.15), dpi=100, layout="constrained")
    for ax, (name, rows) in zip(figure.subplots(1, len(panels), squeeze=False, sharey=True)[0], panels.items()):
        for y, (sizes, wrong) in enumerate(rows.items()):
            for bad, colour, hatch in ((False, RIGHT, ""), (True, WRONG, "xxx")):
                places = [(x, y) for x, each in enumerate(wrong) if each == bad]
                ax.add_artist(boxes(places, .47, .45, fc=colour, ec="#333333", hatch=hatch, lw=.5))
            edges = [sum(sizes[:i]) - .5 for i in range(1, len(sizes))]
            ax.vlines(edges, y - .5, y + .5, color="black", lw=1.8)
        ax.set(xlim=(-.6, len(wrong) - .4), ylim=(len(cuts) - .4, -.6), xticks=range(0, len(wrong), 2),
               yticks=range(len(cuts)), yticklabels=[label(sizes) for sizes in cuts])
        ax.set_title(name, fontsize=11, fontweight="bold", loc="left")
        ax.set_xlabel("position", fontsize=9.5)
        ax.tick_params(length=0, labelsize=9.5)
        ax.spines[:].set_visible(False)
    figure.legend(handles=[Patch(fc=RIGHT, ec="#333333", label="right"),
                           Patch(fc=WRONG, ec="#333333", hatch="xxx", label="wrong")],
                  loc="outside lower center", ncols=2, fontsize=9.5, frameon=False)
    return figure, " ".join(say(name, rows) for name, rows in panels.items())


def say(name, rows):
    """'Two stores: wrong in 1 of 12 cuts: 4 + 4 x 1 + 4 (positions 8 to 11).'"""
    bad = {sizes: [t for t, each in enumerate(wrong) if each] for sizes, wrong in rows.items() if any(wrong)}
    if not bad:
        return f"{name.capitalize()}: right in all {len(rows)} cuts."
    sizes, places = next(iter(bad.items()))
    first = "" if len(bad) == 1 else "the first: "
    return f"{name.capitalize()}: wrong in {len(bad)} of {len(rows)} cuts; {first}{label(sizes)} ({positions(places)})."
