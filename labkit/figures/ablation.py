"""Ablation: how errors fade after a cut, and how far the outputs move when one field of a state is set to zero."""

from matplotlib.figure import Figure

COLOURS = ("#E6E6E6", "#56B4E9", "#F0C05A", "#D55E00", "#009E73")
LINES, HATCHES, MARKS = ("-", "--", ":", "-.", "-"), ("", "///", "...", "xxx", "+++"), "osv^D"
NOISE = 1e-6        # of the largest output: what lies below is rounding


def ablation(errors, effects):
    """Left, errors that fade; right, what each field moves: (Figure, sentence).

    Args:
        errors: {layer: error of each output, divided by the largest right output}, from the first token of a chunk on.
        effects: {layer: {field: largest change of an output when the field is zero at the start of the chunk}}, also
            divided by the largest right output. The first layer is the control.
    """
    figure = Figure((9.6, 3.6), dpi=100, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    for i, (name, values) in enumerate(errors.items()):
        left.semilogy(range(len(values)), [max(v, NOISE / 10) for v in values], LINES[i % 5], marker=MARKS[i % 5], ms=4,
                      color=(*COLOURS[1:], "#333333")[i % 5], label=name)
    left.axhline(NOISE, color="#333333", lw=.8)
    left.text(0, NOISE * 1.4, "below this line: rounding", fontsize=9)
    left.set_title("one output at a time: how wrong?", fontsize=11)
    left.set_xlabel("token of the chunk", fontsize=9.5)
    left.legend(fontsize=9)
    fields, names = list(dict.fromkeys(field for effect in effects.values() for field in effect)), list(effects)
    top, ticks = max(value for effect in effects.values() for value in effect.values()), []
    for j, field in enumerate(fields):
        right.text(0, j * (len(names) + 1.3) - .75, f" {field} to zero", fontsize=9.5, fontweight="bold")
        for i, name in enumerate(names):
            y, value = j * (len(names) + 1.3) + i, effects[name].get(field, 0.0)
            right.barh(y, value, height=.8, fc=COLOURS[i % 5], ec="#333333", hatch=HATCHES[i % 5])
            right.text(value, y, " no: not read" if value < NOISE else " yes", va="center", fontsize=9)
            ticks.append(y)
    right.set(yticks=ticks, yticklabels=names * len(fields), ylim=(ticks[-1] + .7, -1.6), xlim=(0, 1.3 * top + 1e-9))
    right.set_xlabel("largest change of an output", fontsize=9.5)
    right.set_title("one field to zero: do outputs move?", fontsize=11)
    for ax in (left, right):
        ax.tick_params(labelsize=9.5)
        ax.spines[["top", "right"]].set_visible(False)
    return figure, say_ablation(errors, effects)


def say_ablation(errors, effects):
    """The sentence of `ablation`."""
    wrong = {name: [t for t, value in enumerate(values) if value > NOISE] for name, values in errors.items()}
    first = {name: places[0] for name, places in wrong.items() if places}
    length = len(next(iter(errors.values())))
    if not first:
        says = f"No output of the {length} is wrong."
    elif len(first) == len(errors) and len(set(first.values())) == 1:
        says = (f"All {len(errors)} curves start at the same token, {min(first.values())}; "
                f"wrong outputs of {length}: {', '.join(str(len(places)) for places in wrong.values())}.")
    else:
        says = f"The first wrong token: {', '.join(f'{name} {t}' for name, t in first.items())}."
    for name, effect in effects.items():
        silent = [field for field, value in effect.items() if value < NOISE]
        says += f" {name.capitalize()}: {' and '.join(silent) + ' not read' if silent else 'every field is read'}."
    return says
