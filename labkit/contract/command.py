"""python -m labkit check: a preset, an architecture of transformers, or the user's own, against the contract."""

import argparse
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from .checker import check
from .laws import LAWS
from .transformers import NEEDED

HELP = """what to check: a preset of the lab (mamba2), an architecture of the installed transformers
(transformers:bamba), or module:factory, which returns a mixer, a model, a subject, or (function, {"sample": ...})"""


def main(argv: list[str]) -> int:
    """Run the command; returns 0 where all laws hold, 1 where one fails, 2 where nothing could be checked."""
    parser = argparse.ArgumentParser(prog="python -m labkit check", description=__doc__)
    parser.add_argument("target", nargs="?", help=HELP)
    parser.add_argument("--laws", help=f"only these, with commas between: {', '.join(LAWS)}")
    parser.add_argument("--json", metavar="FILE", help="also write JSON")
    parser.add_argument("--transformers", action="store_true", help="the matrix: every architecture that carries state")
    parser.add_argument("--model", metavar="NAME", help="with --transformers: only this architecture")
    parser.add_argument("--out", metavar="FILE", help="with --transformers: write the matrix as a page")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="with --transformers")
    given = parser.parse_args(argv)
    try:
        if given.transformers == bool(given.target):
            raise Unusable("name one thing to check, or --transformers; see --help")
        if not given.transformers and (given.model or given.out or given.processes != 1):
            raise Unusable("--model, --out and --processes belong to --transformers")
        return matrix(given) if given.transformers else reports(given)
    except Unusable as error:
        print(error, file=sys.stderr)
        return 2


class Unusable(Exception):
    """The command cannot do what was asked; the text says why."""


def matrix(given) -> int:
    if given.processes < 1:
        raise Unusable(f"--processes is {given.processes}; give at least 1")
    _need_transformers()
    from . import matrix, zoo
    rows, recipes = [], []
    for name in [given.model] if given.model else zoo.names():
        try:
            recipes += zoo.recipes(name)
        except zoo.NotBuilt as error:
            rows.append({"name": name, "title": name, "problem": str(error)})
    if not recipes:
        raise Unusable("\n".join(f"{row['title']}: {row['problem']}" for row in rows))
    for path in filter(None, (given.out, given.json)):
        Path(path).parent.mkdir(parents=True, exist_ok=True)            # before the minutes of the sweep, not after them
    rows = matrix.sweep(recipes, given.processes) + rows
    print(matrix.to_text(rows))
    for path, make in ((given.out, matrix.to_html), (given.json, matrix.to_json)):
        if path:
            Path(path).write_text(make(rows), encoding="utf-8")
            print(f"written: {path}")
    return 0


def reports(given) -> int:
    laws = given.laws.split(",") if given.laws else list(LAWS)
    if unknown := [law for law in laws if law not in LAWS]:
        raise Unusable(f"no law is named {', '.join(unknown)}; there are {', '.join(LAWS)}")
    if given.json:
        Path(given.json).parent.mkdir(parents=True, exist_ok=True)
    found = [check(subject, laws=laws, **options) for subject, options in subjects(given.target)]
    print("\n\n".join(map(str, found)))
    if given.json:
        Path(given.json).write_text("[" + ",\n".join(report.to_json() for report in found) + "]\n", encoding="utf-8")
    return 0 if all(report.ok for report in found) else 1


def subjects(target: str) -> list[tuple[object, dict]]:
    """What a target names, each with the options of its check."""
    from ..model import HybridLM, PRESETS
    module, colon, name = target.partition(":")
    if not colon:
        if target not in PRESETS:
            raise Unusable(f"there is no preset {target!r}; there are {', '.join(PRESETS)}; "
                           "an architecture of transformers is transformers:NAME, your own is module:factory")
        return [(HybridLM.preset(target), {})]
    if module == "transformers":
        _need_transformers()
        from . import zoo
        from .transformers import subject
        try:
            return [(subject(zoo.build(recipe), recipe.title), {}) for recipe in zoo.recipes(name)]
        except zoo.NotBuilt as error:
            raise Unusable(f"{target}: {error}") from error
    sys.path.insert(0, "")                                  # a file in the current folder
    try:
        factory = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name and not module.startswith(error.name):
            raise                                           # the user's module exists and needs something else
        raise Unusable(f"there is no module {module!r} here; run the command where {module}.py is") from error
    except AttributeError as error:
        raise Unusable(f"module {module!r} has no {name!r}") from error
    if not callable(factory):
        raise Unusable(f"{target} is of type {type(factory).__name__}; give a function that returns what to check")
    made = factory()
    return [made if isinstance(made, tuple) else (made, {})]


def _need_transformers() -> None:
    """Say what is missing, or keep the library's own warnings about tiny configs quiet."""
    if find_spec("transformers") is None:
        raise Unusable(NEEDED)
    from transformers import logging
    logging.set_verbosity_error()
