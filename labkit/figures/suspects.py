"""Suspects and experiments: what each suspect would show, and whom the results rule out."""

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle


def suspects(names, experiments):
    """A table of suspects by experiments: (Figure, sentence).

    Args:
        names: of the suspects.
        experiments: of (experiment in words, what was seen, {suspect: what it would show}).
    """
    out = {name: [words for words, seen, shows in experiments if shows[name] != seen] for name in names}
    width = max(1, len(experiments))
    figure = Figure((9.6, 1.5 + 0.42 * len(names)), dpi=100, layout="constrained")
    ax = figure.add_subplot()
    for x, (words, seen, shows) in enumerate(experiments):
        _cell(ax, x, -1, seen, "#F0C05A", "")
        for y, name in enumerate(names):
            fits = shows[name] == seen
            _cell(ax, x, y, shows[name], "#56B4E9" if fits else "#FFFFFF", "" if fits else "//")
    ax.set(xlim=(-.5, width - .5), ylim=(len(names) - .5, -1.5), yticks=range(-1, len(names)), xticks=range(width),
           xticklabels=[words for words, *_ in experiments] or ["no experiment yet"])
    ax.set_yticklabels(["seen", *(f"{name}: out" if out[name] else name for name in names)])
    ax.tick_params(length=0, labelsize=9.5, labeltop=True, labelbottom=False)
    ax.spines[:].set_visible(False)
    for y, name in enumerate(names):
        if out[name]:
            ax.plot([-.5, width - .5], [y, y], color="#D55E00", lw=1.5, clip_on=False)
    return figure, say_suspects(out)


def _cell(ax, x, y, text, colour, hatch):
    ax.add_patch(Rectangle((x - .48, y - .42), .96, .84, fc=colour, ec="#999999", hatch=hatch, lw=.8))
    ax.text(x, y, text, ha="center", va="center", fontsize=9, bbox={"fc": "white", "ec": "none", "pad": 1})


def say_suspects(out):
    """The sentence of `suspects`; out: suspect -> the experiments that rule it out."""
    left = [name for name, words in out.items() if not words]
    ruled = "; ".join(f"{name} ({', '.join(words)})" for name, words in out.items() if words)
    return f"Left: {', '.join(left) or 'nobody'}." + (f" Ruled out: {ruled}." if ruled else " Nobody is ruled out yet.")
