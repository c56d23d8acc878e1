"""Accuracy bars: what a fault costs, in questions answered right."""

from matplotlib.figure import Figure

KINDS = (("right", "#56B4E9", ""), ("faulty", "#D55E00", "xxx"), ("repaired", "#009E73", "//"))


def accuracy_bars(rows):
    """Bars of right, faulty and repaired at each place of the cut, and a line at chance: (Figure, sentence).

    Args:
        rows: of labkit.price.price, of one preset and one fault.
    """
    figure = Figure((9.6, 1.2 + 0.62 * len(rows)), dpi=100, layout="constrained")
    ax = figure.add_subplot()
    for row, r in enumerate(rows):
        for place, (kind, colour, hatch) in enumerate(KINDS):
            share, y = 100 * getattr(r, kind), row + 0.27 * (place - 1)
            ax.barh(y, share, height=.25, fc=colour, ec="#333333", hatch=hatch, label="" if row else f"{kind} model")
            ax.text(share + .6, y, f"{share:.0f}", va="center", fontsize=9)
    ax.axvline(100 * rows[0].chance, color="#333333", ls="--", label="chance")
    ax.set(yticks=range(len(rows)), yticklabels=[r.place for r in rows], xlim=(0, 108), ylim=(len(rows) - .5, -.5))
    ax.set_title(f"{rows[0].preset}: {rows[0].fault}", fontsize=11)
    ax.set_xlabel("questions answered right, in 100", fontsize=9.5)
    ax.tick_params(labelsize=9.5)
    ax.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=4, fontsize=9.5)
    return figure, say_price(rows)


def say_price(rows):
    """The sentence of `accuracy_bars`."""
    worst = max(rows, key=lambda r: r.lost)
    about = f"{rows[0].preset}, {rows[0].fault}: "
    cheap = [r for r in rows if r.cheap]
    if len(cheap) == len(rows):
        return about + f"no price to see at any cut; at worst {worst.faulty:.0%} right instead of {worst.right:.0%}."
    much = "little" if any(r.lost for r in cheap) else "nothing"
    where = " or ".join("in one piece" if r.place == "whole" else f"when cut {r.place}" for r in cheap)
    return (about + f"{worst.faulty:.0%} right instead of {worst.right:.0%}, cut {worst.place}; chance is "
            f"{worst.chance:.0%}. Repaired: {worst.repaired:.0%}. "
            + (f"It costs {much} {where}." if cheap else "It costs much at every cut."))
