"""The matrix: architectures of the installed transformers by laws, with a script for every counterexample."""

import html
import inspect
import json
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context

import torch

from . import zoo
from .checker import check, run
from .laws import LAWS, Lab
from .lift import Float64
from .report import LOOKS, Finding
from .transformers import CausalLM, subject

WHEN_FREE, WHEN_RECORDED = "split, no position ids", "rewind, past recorded"
FIRST = ("split", WHEN_FREE, "causal", "rows", "padding", "fork", "sessions", "select", "rewind", WHEN_RECORDED, "reset",
         "prefix", "long", "repeat")
SECOND = ("empty", "position", "foreign", "atomic", "move")     # a library whose cache is changed in place promises none


def row(recipe: zoo.Recipe) -> dict:
    """Build one model and ask it everything. Keys: title, seconds, cells {column: finding and script}, or problem."""
    import transformers
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    began, title = time.monotonic(), {"name": recipe.name, "title": recipe.title}
    try:
        model = zoo.build(recipe)
        main = subject(model, recipe.title)
    except Exception as error:                              # listed with its reason, whatever it is
        return title | {"problem": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    report = check(main)
    found = {finding.law: (finding, main) for finding in report.findings}
    for column, options in ((WHEN_FREE, {"positions": False}), (WHEN_RECORDED, {"recording": True})):
        other, law = subject(model, recipe.title, **options), column.split(",")[0]
        if column == WHEN_FREE and not main.positions:
            found[column] = (Finding(law, LAWS[law].__doc__, "not supported", message="it takes no position ids"), other)
        else:
            found[column] = (check(other, laws=[law])[law], other)
    cells = {column: asdict(finding) | {"says": str(finding), "script": script(asked, recipe, finding)}
             for column, (finding, asked) in found.items()}
    return title | {"sensitive": report.sensitive, "holds_state": main.holds_state, "cells": cells,
                    "seconds": round(time.monotonic() - began, 1)}


def sweep(recipes: list, processes: int = 1) -> list[dict]:
    """The rows of all recipes, in their order, with a progress bar."""
    from tqdm import tqdm
    rows: dict[int, dict] = {}
    with tqdm(total=len(recipes), unit="model") as bar:
        if processes == 1:
            for i, recipe in enumerate(recipes):
                bar.set_postfix_str(recipe.title)
                rows[i] = row(recipe)
                bar.update()
        else:
            with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
                jobs = {pool.submit(row, recipe): i for i, recipe in enumerate(recipes)}
                for job in as_completed(jobs):
                    rows[jobs[job]] = job.result()
                    bar.set_postfix_str(recipes[jobs[job]].title)
                    bar.update()
    return [rows[i] for i in sorted(rows)]


# ---- a counterexample as a script ----

PLACES = '''    place = (real.cumsum(1) - 1).masked_fill(real == 0, 0)[:, -new:]
    given["position_ids"] = place if position is None else position + torch.arange(new).expand(len(text), -1)
'''

SCRIPT = '''"""{title}, transformers {version}. {law}: {words}."""
import copy

import torch
from torch.overrides import TorchFunctionMode
from transformers import DynamicCache
from transformers.models.{name}.configuration_{name} import {config}
from transformers.models.{name}.modeling_{name} import {model}


{lift}

{redraw}

def feed(model, cache, text, new, mask=None, position=None):
    """Feed the last columns of a text; compare each row's real tokens with one call without a cache."""
    text = torch.tensor(text)
    real = torch.ones_like(text) if mask is None else torch.tensor(mask)
    given = dict({argument}=cache, use_cache=True)
    if mask is not None:
        given["attention_mask"] = real
{places}    out = model(text[:, -new:], **given)
    for i in range(len(text)):
        now = out.logits[i] if mask is None else out.logits[i][real[i, -new:] == 1]
        want = clean(text[i:i + 1, real[i] == 1], use_cache=False).logits[0]
        want = want[len(want) - real[i, -new:].sum():]
        same = now.shape == want.shape
        errors.append((now - want).abs().max().item() if same and len(now) else 0.0 if same else float("inf"))
        scales.append(want.abs().max().item() if len(want) else 0.0)
    kept = getattr(out, "{argument}", None)
    return cache if kept is None else kept


torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
errors, scales = [0.0], [0.0]
with torch.no_grad(), Float64():
    model = redraw({model}({config}(**{options})))
    clean = copy.deepcopy(model)
{steps}
print(f"largest error {{max(errors):.3e}} of {{max(scales):.3e}}")
'''


def script(asked: CausalLM, recipe: zoo.Recipe, finding: Finding) -> str:
    """A script that reproduces the counterexample with transformers alone; empty where the law holds."""
    import transformers
    if not finding.counterexample:
        return ""
    lab = Lab(asked, 0)
    case = next(case for case in LAWS[finding.law](lab) if case.words == finding.counterexample)
    asked.log = []
    asked.fresh()
    with torch.no_grad():
        run(case, asked.bound)
    log, asked.log = asked.log, None
    return SCRIPT.format(
        title=recipe.title, version=transformers.__version__, law=finding.law, words=finding.counterexample, name=recipe.name,
        config=recipe.config, model=recipe.model, options=recipe.options, argument=asked.argument, places=PLACES if asked.positions else "",
        lift=inspect.getsource(Float64), redraw=inspect.getsource(zoo.redraw), steps=_steps(asked, log, case.must_refuse))


def _steps(asked: CausalLM, log: list, must_refuse: bool) -> str:
    """The operations of a log as lines of Python."""
    lines, names, used = [], {}, {session.name for kind, session, *_ in log if kind != "start"}
    log = [step for step in log if step[1].name in used]
    for i, (kind, session, *more) in enumerate(log):
        name = names.setdefault(session.name, "abcdefghijkl"[len(names) % 12])
        if kind == "start":
            lines.append(f"{name} = DynamicCache(config=model.config)" if asked.makes_cache else f"{name} = None")
            if asked.recording:
                lines.append(f"{name}.activate_past_recording()")
        elif kind == "fed" and len(log) > 30:               # a long text in equal pieces: one loop
            ends = [step[1].length for step in log[i:]]
            lines += [f"text = {log[-1][1].text.tolist()}", f"for start, end in zip([0] + {ends}, {ends}):",
                      f"    {name} = feed(model, {name}, [row[:end] for row in text], end - start)"]
            break
        elif kind in ("feed", "fed"):
            x, position, other = more
            mask = "" if session.mask is None else f", mask={session.mask.long().tolist()}"
            place = "" if position is None else f", position={position}"
            line = f"{name} = feed({other}, {name}, {session.text.tolist()}, {x.shape[1]}{mask}{place})"
            if other == "other" and not any(old.startswith("other") for old in lines):
                lines += ["other = copy.deepcopy(model)", "[weight.mul_(1.25) for weight in other.parameters()]"]
            if kind == "feed" and i < len(log) - 1:         # it raised, and the case went on
                lines += ["try:", "    " + line, "except Exception as error:", "    print('raised:', error)"]
            else:
                lines.append(line)
        elif kind == "fork":
            lines.append(f"{name} = copy.deepcopy({names[more[0].name]})")
        elif kind == "do":
            lines.append(f"{name}.{more[0]}")
        elif kind == "try":
            lines += ["try:", f"    {name}.{more[0]}", "except RuntimeError as error:", "    print('refused:', error)"]
        elif kind == "generate":
            prompt, n = more
            lines += [f"prompt = torch.tensor({prompt.tolist()})", "model.generation_config.eos_token_id = None",
                      f"found = model.generate(prompt, {asked.argument}={name}, attention_mask=torch.ones_like(prompt),",
                      f"                       max_new_tokens={n}, do_sample=False, pad_token_id=0)", "want = prompt",
                      f"for _ in range({n}):", "    next_one = clean(want, use_cache=False).logits[:, -1:].argmax(-1)",
                      "    want = torch.cat([want, next_one], 1)", "print('found ', found.tolist())",
                      "print('wanted', want.tolist())", "errors.append(float((found != want).sum()))"]
    if must_refuse:
        lines.append("print('accepted: nothing was raised')")
    return "\n".join("    " + line for line in lines)


# ---- the matrix as text, JSON and a page ----

def to_text(rows: list[dict]) -> str:
    """Two tables of letters, and what was not built."""
    lines, built = [], [row for row in rows if "cells" in row]
    wide = max([len(row["title"]) for row in built] + [5]) + 1
    for columns in (FIRST, SECOND):
        lines.append(" " * wide + " ".join(f"{column.split(',')[0] + '*' * (',' in column):>8}" for column in columns))
        for row in built:
            marks = (LOOKS[row["cells"][column]["verdict"]][0] for column in columns)
            lines.append(f"{row['title']:{wide}}" + " ".join(f"{mark:>8}" for mark in marks)
                         + ("" if row["sensitive"] else "  nothing proved: not sensitive"))
        lines.append("")
    lines += ["ok holds, X silently wrong, ! raises, - not supported; split* without position ids, rewind* with the past recorded"]
    lines += [f"not built: {row['title']}: {row['problem']}" for row in rows if "problem" in row]
    return "\n".join(lines)


def to_json(rows: list[dict]) -> str:
    """All rows, with the versions they belong to."""
    import transformers
    return json.dumps({"transformers": transformers.__version__, "torch": torch.__version__, "rows": rows}, indent=1)


STYLE = """body{font:15px sans-serif;margin:1.5em;color:#000;background:#fff} td,th{padding:2px 6px;border:1px solid #ccc;
text-align:center} th.t{text-align:left} section{display:none;border:2px solid #444;padding:.5em 1em;margin:1em 0}
section:target{display:block} pre{background:#f4f4f4;padding:.6em;overflow:auto;max-height:30em} td a{color:#000;display:block}
table{border-collapse:collapse;margin:1em 0}"""


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
            cells = []
            for column in columns:
                cell, key = row["cells"][column], f"c{i}-{(FIRST + SECOND).index(column)}"
                mark, colour = LOOKS[cell["verdict"]]
                cells.append(f'<td style="background:{colour}"><a href="#{key}" title="{cell["verdict"]}">{mark}</a></td>')
                failures = "".join(f"<li>{text(words)}</li>" for words in cell["failures"])
                panels.append(
                    f'<section id="{key}"><h3>{text(row["title"])}: {column}</h3><p>{text(LAWS[cell["law"]].__doc__)}</p>'
                    f"<p><b>{text(cell['says'])}</b></p>" + (f"<p>{len(cell['failures'])} of {cell['cases']} experiments "
                    f"fail:</p><ul>{failures}</ul><pre>{text(cell['script'])}</pre>" if failures else "") + "</section>")
            title = text(row["title"]) + ("" if row["sensitive"] else " (nothing proved: not sensitive)") \
                + (" (keeps state on its modules)" if row["holds_state"] else "")
            lines.append(f'<tr><th class="t">{title}</th>{"".join(cells)}</tr>')
        tables.append("".join(lines) + "</table>")
    legend = " ".join(f'<span style="background:{colour}">&nbsp;{mark}&nbsp;</span> {verdict}&ensp;'
                      for verdict, (mark, colour) in LOOKS.items())
    missing = "".join(f"<li>{text(row['title'])}: {text(row['problem'])}</li>" for row in rows if "problem" in row)
    return (f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>The contract on transformers</title>'
            f"<style>{STYLE}</style></head><body><h1>The contract on transformers {transformers.__version__}</h1>"
            f"<p>{legend}</p><p>Tiny models, random weights at unit gain, float64. Click a cell.</p>{''.join(panels)}"
            f"{''.join(tables)}" + (f"<h2>Not built</h2><ul>{missing}</ul>" if missing else "") + "</body></html>")
