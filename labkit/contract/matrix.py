"""The matrix: architectures of the installed transformers by laws, with a script for every counterexample."""

import html
import json
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context

import torch

from . import zoo
from .checker import ask, check
from .laws import LAWS, Lab
from .report import LOOKS, Finding
from .script import script
from .transformers import subject

FREE, LEFT, RECORDED = "split, no position ids", "padding, left only", "rewind, past recorded"
FIRST = ("split", FREE, "causal", "rows", "padding", LEFT, "fork", "sessions", "select", "rewind", RECORDED, "reset",
         "prefix", "long", "repeat")
SECOND = ("empty", "position", "foreign", "atomic", "move")     # a cache that is changed in place promises none


def row(recipe: zoo.Recipe) -> dict:
    """Build one model and ask it everything. Keys: title, seconds, cells {column: finding and script}, or problem."""
    import transformers
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    began, title = time.monotonic(), {"name": recipe.name, "title": recipe.title}
    try:
        return title | _asked(recipe) | {"seconds": round(time.monotonic() - began, 1)}
    except Exception as error:                              # listed with its reason, whatever it is
        return title | {"problem": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}


def _asked(recipe: zoo.Recipe) -> dict:
    model = zoo.build(recipe)
    main = subject(model, recipe.title)
    report = check(main)
    found = {finding.law: (finding, main) for finding in report.findings}
    found[LEFT] = (ask(Lab(main, 0), "padding", main.bound, lambda words: "left" in words and " call" in words
                       and "after" not in words), main)     # as `generate` pads: before the text
    other = subject(model, recipe.title, positions=False)
    found[FREE] = (ask(Lab(other, 0), "split", other.bound) if main.positions else
                   Finding("split", LAWS["split"].__doc__, "not supported", message="it takes no position ids"), other)
    other = subject(model, recipe.title, recording=True)
    found[RECORDED] = (ask(Lab(other, 0), "rewind", other.bound), other)
    cells = {column: asdict(finding) | {"says": str(finding), "script": script(asked, recipe, finding)}
             for column, (finding, asked) in found.items()}
    return {"sensitive": report.sensitive, "holds_state": main.holds_state, "cells": cells}


def sweep(recipes: list, processes: int = 1) -> list[dict]:
    """The rows of all recipes, in their order, with a progress bar."""
    from tqdm import tqdm
    rows: dict[int, dict] = {}
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        jobs = {pool.submit(row, recipe): i for i, recipe in enumerate(recipes)}
        for job in (bar := tqdm(as_completed(jobs), total=len(jobs), unit="model")):
            rows[jobs[job]] = job.result()
            bar.set_postfix_str(recipes[jobs[job]].title)
    return [rows[i] for i in sorted(rows)]


def to_text(rows: list[dict]) -> str:
    """Two tables of letters, and what was not built."""
    import transformers
    built = [row for row in rows if "cells" in row]
    lines = [f"transformers {transformers.__version__}, torch {torch.__version__}: {len(built)} tiny models, float64", ""]
    wide = max([len(row["title"]) for row in built] + [5]) + 1
    for columns in (FIRST, SECOND):
        lines.append(" " * wide + " ".join(f"{column.split(',')[0] + '*' * (',' in column):>8}" for column in columns))
        for row in built:
            marks = (LOOKS[row["cells"][column]["verdict"]][0] for column in columns)
            lines.append(f"{row['title']:{wide}}" + " ".join(f"{mark:>8}" for mark in marks)
                         + ("" if row["sensitive"] else "  nothing proved: not sensitive"))
        lines.append("")
    lines.append("ok holds, X silently wrong, ! raises, - not supported; "
                 "split* without position ids, padding* before the text only, rewind* with the past recorded")
    lines += [f"not built: {row['title']}: {row['problem']}" for row in rows if "problem" in row]
    return "\n".join(lines)


def to_json(rows: list[dict]) -> str:
    """All rows, with the versions they belong to."""
    import transformers
    text = json.dumps({"transformers": transformers.__version__, "torch": torch.__version__, "rows": rows}, indent=1)
    return text.replace("Infinity", "1e999")                # JSON has no word for it; this is read as infinite


STYLE = """body{font:15px sans-serif;margin:1.5em;color:#000;background:#fff} td,th{padding:2px 6px;
border:1px solid #ccc;text-align:center} th.t{text-align:left}
section{display:none;border:2px solid #444;padding:.5em 1em;margin:1em 0}
section:target{display:block} pre{background:#f4f4f4;padding:.6em;overflow:auto;max-height:30em}
td a{color:#000;display:block} table{border-collapse:collapse;margin:1em 0}"""


def to_html(rows: list[dict]) -> str:
    """One self-contained page: colour and letter; a click on a cell opens its counterexample and script."""
    import transformers
    text = lambda value: html.escape(str(value).replace("https://", "").replace("http://", ""))  # noqa: E731
    tables, panels = [], []
    for heading, columns in (("What a session needs", FIRST),
                             ("What a cache that is changed in place does not promise", SECOND)):
        lines = [f"<h2>{heading}</h2><table><tr><th>model</th>" + "".join(f"<th>{c}</th>" for c in columns) + "</tr>"]
        for i, row in enumerate(rows):
            if "cells" not in row:
                continue
            title = text(row["title"]) + ("" if row["sensitive"] else " (nothing proved: not sensitive)") \
                + (" (keeps state on its modules)" if row["holds_state"] else "")
            lines.append(f'<tr><th class="t">{title}</th>')
            for column in columns:
                cell, key = row["cells"][column], f"c{i}-{(FIRST + SECOND).index(column)}"
                verdict, (mark, colour) = cell["verdict"], LOOKS[cell["verdict"]]
                lines.append(f'<td style="background:{colour}"><a href="#{key}" title="{verdict}">{mark}</a></td>')
                panels.append(f'<section id="{key}"><h3>{text(row["title"])}: {column}</h3>'
                              f"<p>{text(LAWS[cell['law']].__doc__)}</p><p><b>{text(cell['says'])}</b></p>")
                if cell["failures"]:
                    panels.append(f"<p>{len(cell['failures'])} of {cell['cases']} experiments fail:</p><ul>"
                                  + "".join(f"<li>{text(words)}</li>" for words in cell["failures"])
                                  + f"</ul><pre>{text(cell['script'])}</pre>")
                panels.append("</section>")
            lines.append("</tr>")
        tables.append("".join(lines) + "</table>")
    legend = " ".join(f'<span style="background:{colour}">&nbsp;{mark}&nbsp;</span> {verdict}&ensp;'
                      for verdict, (mark, colour) in LOOKS.items())
    missing = "".join(f"<li>{text(row['title'])}: {text(row['problem'])}</li>" for row in rows if "problem" in row)
    return ('<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>The contract on transformers</title>'
            f"<style>{STYLE}</style></head><body><h1>The contract on transformers {transformers.__version__}</h1>"
            f"<p>{legend}</p><p>Tiny models, random weights at unit gain, float64. Click a cell.</p>{''.join(panels)}"
            f"{''.join(tables)}" + (f"<h2>Not built</h2><ul>{missing}</ul>" if missing else "") + "</body></html>")
