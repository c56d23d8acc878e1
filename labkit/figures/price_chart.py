"""What each fault costs, over all trained models: one line a fault, one mark a model."""

from matplotlib.figure import Figure

from ..price import CHEAP

MARKS = (("o", "#0072B2"), ("s", "#D55E00"), ("^", "#009E73"), ("D", "#CC79A7"), ("v", "#56B4E9"), ("P", "#8C6D00"))


def price_chart(rows):
    """Points lost by each fault on each model: (Figure, sentence).

    Args:
        rows: of labkit.price.price, one for each fault and model.
    """
    worst = {}
    for row in rows:
        worst[row.fault] = max(worst.get(row.fault, 0.0), row.lost)
    names = sorted(worst, key=worst.get)
    presets = list(dict.fromkeys(row.preset for row in rows))
    figure = Figure((9.6, 1.4 + 0.27 * len(names)), dpi=100, layout="constrained")
    ax = figure.add_subplot()
    for preset, (mark, colour) in zip(presets, MARKS, strict=False):
        mine = [row for row in rows if row.preset == preset]
        ax.plot([100 * row.lost for row in mine], [names.index(row.fault) for row in mine], mark, c=colour,
                ms=7, mec="#333333", ls="", label=preset)
    ax.set(yticks=range(len(names)), yticklabels=names, xlim=(-6, 104))
    ax.axvspan(-6, 100 * CHEAP, color="#EEEEEE", zorder=0)
    ax.set_xlabel("points lost in 100 questions (grey: costs little)")
    ax.grid(axis="y", color="#DDDDDD", lw=.6)
    ax.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=6)
    return figure, say_prices(worst)


def say_prices(worst):
    """The sentence of `price_chart`; worst: fault -> share lost at the dearest place."""
    dear = sorted((name for name in worst if worst[name] >= 0.3), key=worst.get, reverse=True)
    cheap = [name for name in worst if worst[name] < CHEAP]
    if not dear:
        return f"None of {len(worst)} faults costs 30 points on any model."
    return (f"{len(dear)} of {len(worst)} faults cost 30 points or more on some model, {dear[0]} the most "
            f"({100 * worst[dear[0]]:.0f}); {len(cheap)} cost little on every model"
            + (f": {', '.join(cheap)}." if cheap else "."))
