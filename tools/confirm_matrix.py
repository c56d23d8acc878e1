"""Run every script of a matrix with transformers alone: python -m tools.confirm_matrix MATRIX.json [--processes N].

`python -m labkit check --transformers --json MATRIX.json` writes one script for each wrong cell. The scripts of one
model run in one process that never imports labkit. A cell is confirmed when its script shows an error far above
rounding or other tokens, raises the same type of exception, or accepts what should be refused.
"""

import argparse
import contextlib
import io
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SILENT, LOUD = "silently wrong", "raises"


def outcome(script: str) -> str:
    """What a script prints, and the exception that ends it, if one does."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            exec(compile(script, "script", "exec"), {"__name__": "script"})
        except Exception as error:
            print(f"ended by {type(error).__name__}: {error}")
    return said.getvalue()


def confirmed(cell: dict, said: str) -> bool:
    """Whether a script's outcome is the cell's verdict."""
    if cell["verdict"] == LOUD:
        return f"{cell['message'].split(':')[0]}:" in said          # ended by it, or printed by a step that went on
    if "accepted: nothing was raised" in said:
        return True
    texts = re.search(r"found  (.*)\nwanted (.*)", said)
    if texts:
        return texts[1] != texts[2]
    found = re.search(r"largest error (\S+) of (\S+)", said)
    return bool(found) and float(found[1]) > 1e-6 * float(found[2])


def child() -> None:
    """Read cells from the standard input, write their outcomes."""
    import warnings
    import torch
    import transformers
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    outcomes = [outcome(script) for script in json.load(sys.stdin)]
    assert "labkit" not in sys.modules
    json.dump(outcomes, sys.stdout)


def of_row(row: dict) -> list[tuple[str, str, bool, str]]:
    """(title, column, confirmed, what the script said) for the wrong cells of one model."""
    wrong = {column: cell for column, cell in row.get("cells", {}).items() if cell["verdict"] in (SILENT, LOUD)}
    scripts = [cell["script"] for cell in wrong.values()]
    ran = subprocess.run([sys.executable, __file__, "--child"], input=json.dumps(scripts), capture_output=True, text=True)
    if ran.returncode:
        return [(row["title"], "all", False, ran.stderr[-300:])]
    said = json.loads(ran.stdout[ran.stdout.index("["):])
    return [(row["title"], column, confirmed(cell, text), text) for (column, cell), text in zip(wrong.items(), said)]


def main(argv: list[str]) -> int:
    """Returns 0 where every wrong cell is confirmed."""
    parser = argparse.ArgumentParser(prog="python -m tools.confirm_matrix", description=__doc__.splitlines()[0])
    parser.add_argument("matrix", type=Path)
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args(argv)
    rows = [row for row in json.loads(given.matrix.read_text())["rows"] if "cells" in row]
    with ThreadPoolExecutor(given.processes) as pool:
        cells = [cell for found in pool.map(of_row, rows) for cell in found]
    for title, column, right, said in cells:
        if not right:
            print(f"not confirmed: {title}: {column}: {' / '.join(said.split(chr(10)))[-300:]}")
    print(f"{sum(right for *_, right, _ in cells)} of {len(cells)} wrong cells are reproduced by their scripts")
    return 0 if all(right for *_, right, _ in cells) else 1


if __name__ == "__main__":
    child() if sys.argv[1:] == ["--child"] else sys.exit(main(sys.argv[1:]))
