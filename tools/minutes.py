"""How long each lesson takes, by a rule: `python -m tools.minutes`. The pages state these numbers.

No person was timed. The rule counts what a committed notebook asks of its reader, core and deeper cells apart.
"""
import json
import re
from pathlib import Path

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
PROSE, PRINTED = 150, 200                   # words a minute: text to understand, output to compare
PICTURE, PREDICTION, CELL, EXERCISE = 0.5, 1.0, 0.3, 6.0            # minutes; a table is a picture
UNCOUNTED = {"hints", "progress", "setup"}
HIDDEN = re.compile(r"(?s)<(style|details)\b.*?</\1>|<[^>]*>")      # of a page: what is folded away, and the tags
REVEALS = re.compile(r"\.reveal\(")         # belongs to its prediction


def words(text):
    return len(re.findall(r"[A-Za-z0-9][\w'-]*", text))


def of_cell(cell):
    """Minutes for one cell of a notebook."""
    tags, source = set(cell["metadata"].get("tags", [])), "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return words(source) / PROSE + PICTURE * bool(re.search(r"(?m)^\|", source))
    if UNCOUNTED & tags:
        return 0.0
    total = PREDICTION if "predict" in tags else 0.0 if REVEALS.search(source) else CELL
    total += EXERCISE if "exercise" in tags else 0.0
    for output in [] if "predict" in tags else cell["outputs"]:
        data = output.get("data", {})
        page = "".join(data.get("text/html", ""))
        shown = HIDDEN.sub(" ", page) if page else "".join(output.get("text") or data.get("text/plain", ""))
        total += words(shown) / PRINTED + PICTURE * ("<img" in page)
    return total


def minutes(lesson):
    """(core, deeper) minutes of a lesson, its number as two digits; neither is rounded."""
    notebook = json.loads(next(NOTEBOOKS.glob(f"{lesson}_*.ipynb")).read_text(encoding="utf-8"))
    found = {True: 0.0, False: 0.0}
    for cell in notebook["cells"]:
        found["deeper" in cell["metadata"].get("tags", [])] += of_cell(cell)
    return found[False], found[True]


def main():
    for lesson in (f"{number:02}" for number in range(11)):
        print("{}  core {:.1f}  deeper {:.1f}".format(lesson, *minutes(lesson)))


if __name__ == "__main__":
    main()
