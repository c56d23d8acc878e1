"""Card: a short result, as text and as HTML. The state is a word, so it never rests on colour alone."""

import html

COLOURS = {"right": "#0072B2", "wrong": "#D55E00", "crashed": "#D55E00", "not tried": "#767676", "info": "#767676"}

CODE = "margin:.2em 0;background:none;color:inherit;font-family:monospace"      # strips stand under each other


class Card:
    """A headline and lines below it. A line that starts with `>` is code: it keeps its spaces."""

    def __init__(self, state, headline, lines=()):
        self.state, self.headline, self.lines = state, headline, [line for line in lines if line]

    def __repr__(self):
        return "\n".join([self.headline, *("  " + line.removeprefix(">") for line in self.lines)])

    def _repr_html_(self):
        body = "".join(
            f'<pre style="{CODE}">{html.escape(line[1:])}</pre>'
            if line.startswith(">") else f"<p style='margin:.3em 0'>{html.escape(line)}</p>" for line in self.lines)
        return (f'<div style="border-left:5px solid {COLOURS[self.state]};padding:.2em .9em;line-height:1.45">'
                f"<p style='margin:.3em 0'><b>{html.escape(self.headline)}</b></p>{body}</div>")


def diff(old, new, old_name, new_name):
    """Lines of a unified difference, marked as code; empty when the two texts are equal."""
    import difflib
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), old_name, new_name, lineterm="", n=99)
    return [">" + line for line in lines if not line.startswith("@@")]
