"""Influence map: how strongly output t depends on input s, |dy_t / dx_s|, measured by autograd.

Rows are outputs, columns are inputs. A dropped token is a dark column, a lost past is a dark block, a look ahead is
light above the diagonal. Each map is compared with the first one, which is the reference.
"""

import torch
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from .boxes import boxes
from .conv_window import positions, say_cut

DECADES = 4         # of brightness; what is weaker than that, but not zero, gets the darkest shade that is not black
MARKS = {"missing": ("#56B4E9", "xx"), "too much": ("#009E73", "++")}       # text: colour, hatch


def measure(run, sizes, channels=4, seed=0):
    """Influence (L, L) of each input on each output of a run that is fed piece by piece.

    Args:
        run: run(x (1, L, C), state) -> (y (1, L, ...), state), a mixer for example; the first state is None.
        sizes: of the pieces, in tokens.
        channels: C, where `run` has no `hidden_size`.
    """
    draw, channels = torch.Generator().manual_seed(seed), getattr(run, "hidden_size", channels)
    x = torch.randn(1, sum(sizes), channels, generator=draw, dtype=torch.float64).requires_grad_()
    state, parts = None, []
    for piece in x.split(list(sizes), 1):
        y, state = run(piece, state)
        parts.append(y)
    y = torch.cat(parts, 1)[0].flatten(1)                                                   # (L, C')
    each = torch.eye(y.numel(), dtype=y.dtype)                                              # one output number a row
    slopes, = torch.autograd.grad(y.flatten(), x, each, is_grads_batched=True, allow_unused=True)
    slopes = torch.zeros(len(each), *x.shape) if slopes is None else slopes                 # (L*C', 1, L, C)
    return slopes.view(*y.shape, *x.shape[1:]).square().sum((1, 3)).sqrt()                  # (L, L)


def compare(found, wanted):
    """Cells (L, L) that are dark and should not be, and cells that are light and should not be; both bool."""
    return (found == 0) & (wanted > 0), (found > 0) & (wanted == 0)


def say(found, wanted):
    """What a map shows, beside the reference."""
    missing, extra = compare(found, wanted)
    if not missing.any() and not extra.any():
        near = torch.allclose(found, wanted, rtol=1e-6, atol=1e-9)
        return "the same map" if near else "the same cells are light, with other strengths"
    parts, below = [], torch.ones_like(missing).tril(-1)
    for t in missing.any(1).nonzero().flatten().tolist():                                   # a lost past is a block
        last = int(missing[t].nonzero().max())
        if missing[t:, :last + 1].all() and missing.sum() == missing[t:, :last + 1].sum():
            parts.append(f"from output {t} on, nothing depends on the input at {positions(list(range(last + 1)))}")
            break
    dropped = ~(found * below).any(0) & (wanted * below).any(0)                             # (L,) no later output left
    if dropped.any() and not parts:
        many = dropped.nonzero().flatten().tolist()
        parts.append(f"the input{'s' * (len(many) > 1)} at {positions(many)} move{'s' * (len(many) == 1)} no later "
                     f"output")
    if extra.any():
        parts.append(f"outputs at {positions(extra.any(1).nonzero().flatten().tolist())} depend on later inputs")
    return ", and ".join(parts) or f"{int(missing.sum())} cells are dark that should be light"


def influence(panels):
    """The maps of several runs side by side: (Figure, sentence).

    Args:
        panels: (name, run, sizes) each; the first one is the reference. See `measure`.
    """
    maps = [measure(run, sizes) for _, run, sizes in panels]
    figure, wide = Figure((9.6, 8.2 / len(panels) + 1.2), dpi=100), 1 / len(panels)
    high = figure.get_figheight()
    for place, ((name, _, sizes), found) in enumerate(zip(panels, maps)):
        ax = figure.add_axes((wide * place + .055, .75 / high, wide - .07, 1 - 1.25 / high))
        light = (found / maps[0].max()).log10().clamp(-DECADES, 0).masked_fill(found == 0, -1.25 * DECADES)
        ax.imshow(light.numpy(), cmap="inferno", vmin=-1.25 * DECADES, vmax=.3)
        for cells, (colour, hatch) in zip(compare(found, maps[0]), MARKS.values()):
            places = cells.nonzero().flip(1).tolist()                                           # (input, output) each
            ax.add_artist(boxes(places, .5, .5, fc="none", ec=colour, hatch=hatch, lw=0))
        edges = [sum(sizes[:i]) - .5 for i in range(1, len(sizes))]
        ax.hlines(edges, -.5, len(found) - .5, color="white", lw=1.5, linestyles=(0, (2, 1)))
        ax.set_title(f"{name}\n{say_cut(sizes)}", fontsize=10)
        ax.set(xticks=range(0, len(found), 4), yticks=range(0, len(found), 4))
        ax.tick_params(labelsize=9)
        ax.set_xlabel("input", fontsize=9.5, labelpad=1)
        if not place:
            ax.set_ylabel("output", fontsize=9.5, labelpad=1)
    handles = [Patch(fc="#FCA50A", ec="#333333", label="light: depends"), Patch(fc="black", label="black: does not")]
    handles += [Patch(fc="black", ec=colour, hatch=hatch, lw=0, label=text) for text, (colour, hatch) in MARKS.items()]
    figure.legend(handles=handles, loc="lower center", ncols=4, fontsize=9.5, frameon=False, handlelength=2.2)
    return figure, " ".join(f"{name.capitalize()}, {say_cut(sizes)}: {say(found, maps[0])}."
                            for (name, _, sizes), found in list(zip(panels, maps))[1:])
