"""Position line: which prompt tokens the cache holds, and which are fed. Both are measured.

A slice is run on a prompt whose tokens are their own positions, so what it returns says where it was cut.
"""

import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import Affine2D

from .boxes import boxes, key, letters
from .conv_window import positions

KINDS = {
    "kept": ("in the cache, kept", "#F0C05A", "///"),
    "fed": ("fed", "#56B4E9", ""),
    "twice": ("kept and fed again", "#D55E00", "xxx"),
    "lost": ("neither: never read", "white", "..."),
    "beyond": ("in the cache, behind the prompt", "#CC79A7", "+++"),
}


def measure(cut, prompt, cached):
    """(kept, fed): how many cached tokens stay, and the positions that are fed.

    Args:
        cut: cut(ids (prompt,), cached) -> (keep, ids to feed), tensors or lists.
        prompt, cached: how many tokens the prompt has, and how many the cache holds.
    """
    keep, feed = cut(torch.arange(prompt), cached)
    return int(keep), [int(token) for token in feed]


def kinds(keep, fed, prompt):
    """A key of KINDS for each token of the prompt, and for each kept one behind it."""
    row = [{(True, True): "twice", (True, False): "kept", (False, True): "fed"}.get((t < keep, t in fed), "lost")
           for t in range(prompt)]
    return row + ["beyond"] * (keep - prompt)


def say(keep, fed, prompt):
    """What one row shows."""
    row = kinds(keep, fed, prompt)
    if not fed:
        return f"{keep} kept, nothing is fed, so there are no logits for the next token"
    text = f"{keep} kept, {len(fed)} fed ({positions(fed)})"
    for kind, words in (("twice", "read twice"), ("lost", "never read"), ("beyond", "too many in the cache")):
        count = row.count(kind)
        text += f", {count} {words}" if count else ""
    return text if set(row) - {"kept", "fed"} else text + ": right"


def position_line(cuts, prompt, cached):
    """One line of tokens for each cut: (Figure, sentence).

    Args:
        cuts: name -> cut, see `measure`.
        prompt, cached: how many tokens the prompt has and the cache holds; the same tokens, as far as both go.
    """
    figure = Figure((9.6, 1.0 + .62 * len(cuts)), dpi=100)
    grid = Affine2D().translate(.5, .5).scale(6.24 / (max(prompt, cached) + 3), -.62).translate(
        3.17, .66 + .62 * len(cuts))                                                    # (position, row) to inches
    runs = {name: measure(cut, prompt, cached) for name, cut in cuts.items()}
    tokens = [(t, row, kind) for row, (keep, fed) in enumerate(runs.values())
              for t, kind in enumerate(kinds(keep, fed, prompt))]
    style = {"transform": grid + figure.dpi_scale_trans}
    for kind, (_, colour, hatch) in KINDS.items():
        places = [(t, row) for t, row, found in tokens if found == kind]
        figure.add_artist(boxes(places, .46, .36, fc=colour, ec="#333333", hatch=hatch, lw=.6, **style))
    figure.add_artist(boxes([(t, row) for t, row, _ in tokens], .15, .17, fc="white", lw=0, **style))
    figure.add_artist(letters([(t, row, str(t)) for t, row, _ in tokens], grid, transform=figure.dpi_scale_trans))
    names = [(-.6, row, name) for row, name in enumerate(runs)]
    silent = [(max(prompt, keep) - .15, row, "nothing is fed") for row, (keep, fed) in enumerate(runs.values()) if not fed]
    title = [(-.5, -.77, f"prompt of {prompt} tokens (dashed line: its end), {cached} in the cache")]
    for texts, align, look in ((names, 1, {}), (silent, 0, {"color": "#A04000"}), (title, 0, {"size": 10.5})):
        figure.add_artist(letters(texts, grid, align=align, transform=figure.dpi_scale_trans, **look))
    figure.add_artist(Line2D([prompt - .5] * 2, [-.5, len(cuts) - .5], color="black", lw=2, ls=(0, (2, 1)), **style))
    key(figure, [(text, {"fc": colour, "hatch": hatch}) for text, colour, hatch in KINDS.values()], 9)
    return figure, f"{prompt} prompt tokens, {cached} in the cache. " + " ".join(
        f"{name}: {say(*run, prompt)}." for name, run in runs.items())
