"""Position line: which prompt tokens the cache holds, and which are fed. Both are measured.

A slice is run on a prompt whose tokens are their own positions, so what it returns says where it was cut.
"""

import torch
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from .boxes import boxes
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
    ax = figure.add_axes((.33, .62 / figure.get_figheight(), .65, 1 - .95 / figure.get_figheight()))
    runs = {name: measure(cut, prompt, cached) for name, cut in cuts.items()}
    places = {kind: [] for kind in KINDS}
    for row, (keep, fed) in enumerate(runs.values()):
        for t, kind in enumerate(kinds(keep, fed, prompt)):
            places[kind].append((t, row))
            ax.text(t, row, t, ha="center", va="center", fontsize=9.5, bbox={"fc": "white", "ec": "none", "pad": 1.2})
        if not fed:
            ax.text(max(prompt, keep) - .3, row, " nothing is fed", va="center", fontsize=9.5, color="#A04000")
    for kind, (_, colour, hatch) in KINDS.items():
        ax.add_artist(boxes(places[kind], .46, .36, fc=colour, ec="#333333", hatch=hatch, lw=.6))
    ax.set(xlim=(-.5, max(prompt, cached) + 2.5), ylim=(len(cuts) - .5, -.5), xticks=[], yticks=range(len(cuts)),
           yticklabels=list(cuts))
    ax.axvline(prompt - .5, color="black", lw=2, ls=(0, (2, 1)))
    ax.set_title(f"prompt of {prompt} tokens (dashed line: its end), {cached} in the cache", fontsize=10.5, loc="left")
    ax.tick_params(length=0, labelsize=9.5)
    ax.spines[:].set_visible(False)
    figure.legend(handles=[Patch(fc=c, ec="#333333", hatch=h, label=text) for text, c, h in KINDS.values()],
                  loc="lower center", ncols=5, fontsize=9, frameon=False, handlelength=1.8, columnspacing=1)
    return figure, f"{prompt} prompt tokens, {cached} in the cache. " + " ".join(
        f"{name}: {say(*run, prompt)}." for name, run in runs.items())
