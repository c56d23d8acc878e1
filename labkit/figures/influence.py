"""Influence map: how strongly output t depends on input s, |dy_t / dx_s|, measured by autograd.

Rows are outputs, columns are inputs. A dropped token is a dark column, a lost past is a dark block, a look ahead is
light above the diagonal. Each map is compared with the first one, which is the reference.
"""

import torch
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.transforms import Affine2D

from .boxes import boxes, letters
from .conv_window import positions, say_cut

WIDE = 9.6          # inches
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
    side = WIDE / len(panels) - .67                                         # inches, of one map
    figure = Figure((WIDE, side + 1.32), dpi=100)
    ax = figure.add_axes((0, 0, 1, 1))                                      # one page in inches: axes are slow to make
    ax.set_axis_off()
    for place, ((name, _, sizes), found) in enumerate(zip(panels, maps)):
        left, bottom, length = .53 + place * WIDE / len(panels), .77, len(found)
        grid = Affine2D().translate(.5, .5).scale(side / length, -side / length).translate(left, bottom + side)
        light = (found / maps[0].max()).log10().clamp(-DECADES, 0).masked_fill(found == 0, -1.25 * DECADES)
        ax.imshow(light.numpy(), cmap="inferno", vmin=-1.25 * DECADES, vmax=.3,
                  extent=(left, left + side, bottom, bottom + side))
        for cells, (colour, hatch) in zip(compare(found, maps[0]), MARKS.values()):
            places = cells.nonzero().flip(1).tolist()                                           # (input, output) each
            ax.add_artist(boxes(places, .5, .5, fc="none", ec=colour, hatch=hatch, lw=0, transform=grid + ax.transData))
        edges = [bottom + side * (1 - sum(sizes[:i]) / length) for i in range(1, len(sizes))]
        ax.hlines(edges, left, left + side, color="white", lw=1.5, linestyles=(0, (2, 1)))
        ax.text(left + side / 2, bottom + side + .06, f"{name}\n{say_cut(sizes)}", fontsize=10, ha="center")
        ticks = [(t, length - .5 + .11 * length / side, str(t)) for t in range(0, length, 4)]
        ticks += [(-.5 - .11 * length / side, t, str(t)) for t in range(0, length, 4)]
        ticks += [(length / 2 - .5, length - .5 + .27 * length / side, "input")]
        ax.add_artist(letters(ticks, grid, size=9, transform=ax.transData))
    ax.text(.2, bottom + side / 2, "output", fontsize=9, rotation=90, ha="center", va="center")
    ax.set(xlim=(0, WIDE), ylim=(0, side + 1.32), aspect="auto")
    handles = [Patch(fc="#FCA50A", ec="#333333", label="light: depends"), Patch(fc="black", label="black: does not")]
    handles += [Patch(fc="black", ec=colour, hatch=hatch, lw=0, label=text) for text, (colour, hatch) in MARKS.items()]
    figure.legend(handles=handles, loc="lower center", ncols=4, fontsize=9.5, frameon=False, handlelength=2.2)
    return figure, " ".join(f"{name.capitalize()}, {say_cut(sizes)}: {say(found, maps[0])}."
                            for (name, _, sizes), found in list(zip(panels, maps))[1:])
