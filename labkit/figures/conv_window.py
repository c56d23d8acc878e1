"""Conv window explorer: tokens across, taps down; where did the input of each tap come from?

Nothing is drawn by hand. `trace` runs a convolution on inputs that carry their own number, with a kernel that lets one
tap through, so the output is the number of the input which that tap read. Two functions are traced and compared.
"""

import torch
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from ..conv import causal_conv
from .boxes import boxes

# kind: label, colour (Okabe-Ito: safe for colour-blind readers), hatch (safe for black-and-white print)
KINDS = {
    "chunk": ("this chunk", "#56B4E9", ""),
    "cache": ("cache (an earlier chunk)", "#F0C05A", "///"),
    "padding": ("zero padding (start of text)", "#E6E6E6", "..."),
    "missing": ("missing: read nothing", "#D55E00", "xxx"),
    "wrong": ("another input than it should", "#CC79A7", "+++"),
}


def cut(length, chunk):
    """Sizes of the pieces when `length` tokens are fed `chunk` at a time; the last piece may be shorter."""
    return tuple(min(chunk, length - start) for start in range(0, length, chunk))


def trace(conv, kernel, sizes):
    """Which input each tap reads, measured: integers (K, L).

    Token t carries t + 1, the start window carries -(K-1) .. -1, and channel k has a kernel that is 1 at tap k only.
    So output k at token t is the number of the input that tap k read there; 0 says that it read nothing.

    Raises:
        ValueError: conv returns another number of columns than it was fed.
    """
    length = sum(sizes)
    x = torch.arange(1.0, length + 1, dtype=torch.float64).expand(1, kernel, length)                # (1, C=K, L)
    window = torch.arange(1.0 - kernel, 0, dtype=torch.float64).expand(1, kernel, kernel - 1)       # (1, C=K, K-1)
    weight, parts = torch.eye(kernel, dtype=torch.float64), []                                      # (C=K, K)
    for piece in x.split(list(sizes), dim=-1):
        y, window = conv(piece.clone(), window.clone(), weight.clone())
        if y.shape != piece.shape:
            raise ValueError(f"a piece of {piece.shape[-1]} tokens gave outputs of shape {tuple(y.shape)}, "
                             f"not {tuple(piece.shape)}: repair the shapes first, then draw")
        parts.append(y)
    return torch.cat(parts, dim=-1)[0].round().long()


def kinds(reads, kernel, sizes):
    """For each tap and token one key of KINDS, as nested lists (K, L); `reads` comes from `trace`."""
    want = torch.arange(sum(sizes)) - (kernel - 1) + torch.arange(kernel)[:, None]                 # token index, (K, L)
    want = torch.where(want < 0, want, want + 1)                                                   # as trace numbers it
    start = torch.tensor([sum(sizes[:i]) for i, size in enumerate(sizes) for _ in range(size)])     # of t's chunk, (L,)

    def kind(read, wanted, first):
        if wanted < 0 and read in (0, wanted):
            return "padding"
        if read == wanted:
            return "chunk" if wanted > first else "cache"
        return "wrong" if read else "missing"
    return [[kind(r, w, s) for r, w, s in zip(*rows, start.tolist())] for rows in zip(reads.tolist(), want.tolist())]


def bad_positions(grid):
    """Tokens at which at least one tap misses its input or reads another one."""
    return [t for t, column in enumerate(zip(*grid)) if {"missing", "wrong"} & set(column)]


def positions(items):
    """'no position', 'position 6', 'positions 6, 7' or 'positions 6 to 9', as a reader would say it."""
    if len(items) > 3 and items == list(range(items[0], items[-1] + 1)):
        return f"positions {items[0]} to {items[-1]}"
    return "no position" if not items else f"position{'s' * (len(items) > 1)} {', '.join(map(str, items))}"


def say_cut(sizes):
    """'12 tokens uncut', '6 + 6 tokens', '12 pieces of 1 token'."""
    if len(sizes) == 1:
        return f"{sizes[0]} token{'s' * (sizes[0] != 1)} uncut"
    cut = " + ".join(map(str, sizes)) if len(sizes) < 7 or set(sizes) != {1} else f"{len(sizes)} pieces of 1"
    return f"{cut} token{'' if cut.endswith('pieces of 1') else 's'}"


class ConvWindow:
    """The figure, kept and updated in place so that a slider feels quick. Call it to get (Figure, sentence).

    What changes is marked as animated: `widgets.png` draws the rest once and keeps it as a background.
    """

    def __init__(self, faulty, right=causal_conv, length=12, names=("window carried", "past filled with zeros")):
        self.runs, self.length, self.names, self.figure = (right, faulty), length, names, Figure((9.6, 3.5), dpi=100)
        self.panels = [self._panel(self.figure.add_axes(box)) for box in ((.07, .30, .43, .56), (.55, .30, .43, .56))]
        self.figure.legend(handles=[Patch(fc=c, ec="#333333", hatch=h, label=label) for label, c, h in KINDS.values()],
                           loc="lower center", ncols=3, fontsize=9.5, frameon=False, handlelength=2.2, handleheight=1.2)

    def _panel(self, ax):
        ax.set(xlim=(-.5, self.length - .5), xticks=range(self.length), yticks=[])
        ax.tick_params(length=0, labelsize=9.5)
        ax.set_xlabel("token", fontsize=9.5, labelpad=1)
        ax.spines[:].set_visible(False)
        return {"ax": ax, "moving": []}

    def __call__(self, kernel=4, chunk=6, position=7):
        """kernel: taps K; chunk: tokens fed per call; position: the token whose inputs are spelled out."""
        sizes = cut(self.length, chunk)
        reads = [trace(run, kernel, sizes) for run in self.runs]
        grids = [kinds(read, kernel, sizes) for read in reads]
        for panel, read, grid, name in zip(self.panels, reads, grids, self.names):
            for artist in panel["moving"]:
                artist.remove()
            panel["moving"] = list(self._draw(panel["ax"], name, read, grid, sizes, position))
            for artist in panel["moving"]:
                artist.set_animated(True)
        return self.figure, self._sentence(kernel, chunk, position, reads, grids)

    def _draw(self, ax, name, read, grid, sizes, position):
        kernel, count = len(grid), sum(row.count("missing") + row.count("wrong") for row in grid)
        ax.set_ylim(kernel - .5, -.5)
        for kind, (_, colour, hatch) in KINDS.items():
            cells = [(t, k) for k in range(kernel) for t in range(self.length) if grid[k][t] == kind]
            yield ax.add_artist(boxes(cells, .46, .44, fc=colour, ec="#333333", hatch=hatch, lw=.6))
        edges = [sum(sizes[:i]) - .5 for i in range(1, len(sizes))]
        yield ax.vlines(edges, -.5, kernel - .5, color="black", lw=2, linestyles=(0, (2, 1)), clip_on=False)
        yield ax.add_artist(Rectangle((position - .5, -.5), 1, kernel, fill=False, ec="black", lw=2.5, clip_on=False))
        title = f"{name}: {f'{count} bad cells' if count else 'every tap has its input'}"
        yield ax.text(0, 1.06, title, transform=ax.transAxes, fontsize=11, fontweight="bold")
        for k in range(kernel):
            yield ax.text(-.7, k, f"tap {k}", ha="right", va="center", fontsize=9.5)
            yield ax.text(position, k, label(read[k, position], nothing="–"), ha="center", va="center", fontsize=9.5,
                          fontweight="bold", bbox={"fc": "white", "ec": "none", "pad": 1.2})

    def _sentence(self, kernel, chunk, position, reads, grids):
        def run(name, read, grid):
            bad = bad_positions(grid)
            return (f"{name.capitalize()}: {positions(bad)} {'is' if len(bad) < 2 else 'are'} wrong; "
                    f"at token {position} the taps read {', '.join(map(label, read[:, position]))}.")
        return f"{kernel} tap{'s' * (kernel > 1)}, {say_cut(cut(self.length, chunk))}. " + " ".join(
            run(*parts) for parts in zip(self.names, reads, grids))


def label(number, nothing="nothing"):
    """What a traced number stands for: a token's index, a zero before the text, or nothing."""
    number = int(number)
    return str(number - 1) if number > 0 else nothing if number == 0 else "0"


def conv_window(faulty, kernel=4, chunk=6, position=7, length=12, **options):
    """One picture of the explorer: (Figure, sentence). `faulty` is any conv(x, window, weight) -> (y, window)."""
    return ConvWindow(faulty, length=length, **options)(kernel, chunk, position)
