"""Influence map: how strongly output t depends on input s, |dy_t / dx_s|, measured by autograd.

Rows are outputs, columns are inputs. A dropped token is a dark column, a lost past is a dark block, a look ahead is
light above the diagonal. Each map is compared with the first one, which is the reference.
"""

import torch
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.image import BboxImage
from matplotlib.lines import Line2D
from matplotlib.transforms import Affine2D, Bbox, TransformedBbox

from .boxes import boxes, key, letters
from .conv_window import positions, say_cut

WIDE = 9.6          # inches
DECADES = 4         # of brightness; what is weaker than that, but not zero, gets the darkest shade that is not black
MARKS = {"missing": ("#56B4E9", "xx"), "too much": ("#222222", "++")}       # text: colour, hatch


def measure(run, sizes, channels=4, seed=0):
    """Influence (L, L) of each input on each output of a run that is fed piece by piece.

    A batch holds the same text once for each output number, so one run and one backward pass measure all of them.

    Args:
        run: run(x (B, L, C), state) -> (y (B, L, C), state), a mixer for example; the first state is None. It must keep
            the rows of a batch apart (the law "rows").
        sizes: of the pieces, in tokens.
        channels: C, where `run` has no `hidden_size`.
    """
    draw, channels = torch.Generator().manual_seed(seed), getattr(run, "hidden_size", channels)
    x, length = torch.randn(1, sum(sizes), channels, generator=draw, dtype=torch.float64), sum(sizes)
    rows, state, parts = x.repeat(length * channels, 1, 1).requires_grad_(), None, []
    for piece in rows.split(list(sizes), 1):
        y, state = run(piece, state)
        parts.append(y)
    own = torch.cat(parts, 1).flatten(1).diagonal()                                         # (L*C,) one of each row
    slopes, = torch.autograd.grad(own.sum(), rows, allow_unused=True)
    slopes = torch.zeros_like(rows) if slopes is None else slopes                           # (L*C, L, C)
    return slopes.view(length, channels, length, channels).square().sum((1, 3)).sqrt()      # (L, L)


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
    inches = figure.dpi_scale_trans                                         # one page in inches: axes are slow to make
    for place, ((name, _, sizes), found) in enumerate(zip(panels, maps)):
        left, bottom, length = .53 + place * WIDE / len(panels), .77, len(found)
        grid = Affine2D().translate(.5, .5).scale(side / length, -side / length).translate(left, bottom + side)
        light = (found / maps[0].max()).log10().clamp(-DECADES, 0).masked_fill(found == 0, -1.25 * DECADES)
        image = BboxImage(TransformedBbox(Bbox.from_bounds(left, bottom, side, side), inches), cmap="inferno",
                          norm=Normalize(-1.25 * DECADES, .3), origin="upper", interpolation="nearest")
        image.set_data(light.numpy())
        figure.add_artist(image)
        for cells, (colour, hatch) in zip(compare(found, maps[0]), MARKS.values()):
            places = cells.nonzero().flip(1).tolist()                                           # (input, output) each
            figure.add_artist(boxes(places, .5, .5, fc="none", ec=colour, hatch=hatch, lw=0, transform=grid + inches))
        for edge in (bottom + side * (1 - sum(sizes[:i]) / length) for i in range(1, len(sizes))):
            figure.add_artist(Line2D([left, left + side], [edge] * 2, color="white", lw=1.5, ls=(0, (2, 1)),
                                     transform=inches))
        heads = [(length / 2 - .5, -.5 - high * length / side, text) for high, text in ((.33, name), (.14, say_cut(sizes)))]
        figure.add_artist(letters(heads, grid, size=10, transform=inches))
        ticks = [(t, length - .5 + .11 * length / side, str(t)) for t in range(0, length, 4)]
        ticks += [(-.5 - .11 * length / side, t, str(t)) for t in range(0, length, 4)]
        ticks += [(length / 2 - .5, length - .5 + .27 * length / side, "input")]
        figure.add_artist(letters(ticks, grid, size=9, transform=inches))
    figure.text(.2, bottom + side / 2, "output", fontsize=9, rotation=90, ha="center", va="center", transform=inches)
    key(figure, [("light: depends", {"fc": "#FCA50A"}), ("black: does not", {"fc": "black"}),
                 *((text, {"fc": under, "ec": colour, "hatch": hatch, "lw": 0})
                   for under, (text, (colour, hatch)) in zip(("black", "#FCA50A"), MARKS.items()))])
    return figure, " ".join(f"{name.capitalize()}, {say_cut(sizes)}: {say(found, maps[0])}."
                            for (name, _, sizes), found in list(zip(panels, maps))[1:])
