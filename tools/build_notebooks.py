"""Build the lessons: notebooks/source/*.py (jupytext percent) -> executed notebooks/*.ipynb.

    python tools/build_notebooks.py [lesson ...]     build all lessons, or those named
    python tools/build_notebooks.py --check          are the committed cells and tags those of the sources? runs nothing

Built twice on one machine, a notebook has the same bytes: whatever changes from run to run is fixed or renumbered.
"""
import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
METADATA = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"file_extension": ".py", "mimetype": "text/x-python", "name": "python"}}
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0",
           "TZ": "UTC", "PYTHONDONTWRITEBYTECODE": "1"}
CHANGING = {re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])"): "{:032x}",       # ids of widget models
            re.compile(r"0x[0-9a-f]{6,}"): "0x{:012x}",                           # addresses
            re.compile(r"[^\s\"]{0,99}ipykernel_\d+[/\\]+\d+\.py"): "CELL.py"}            # a cell's file


def prepare(source):
    """Return the notebook of one source: fixed metadata, an id for each cell from its place and text, no output."""
    notebook = nbformat.v4.new_notebook(metadata=METADATA)
    for place, cell in enumerate(jupytext.read(source, fmt="py:percent").cells):
        key = f"{place} {cell.cell_type} {cell.source}".encode()
        new = {"markdown": nbformat.v4.new_markdown_cell, "code": nbformat.v4.new_code_cell}[cell.cell_type]
        notebook.cells.append(new(cell.source, id=hashlib.sha256(key).hexdigest()[:12],
                                  metadata={"tags": cell.metadata["tags"]} if cell.metadata.get("tags") else {}))
    return notebook


def execute(notebook):
    """Run the cells in an empty folder with a home of their own; a cell that fails untagged stops the build."""
    fonts = ROOT / "build" / "matplotlib"
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, **OFFLINE, "HOME": folder, "IPYTHONDIR": folder,
                       "MPLCONFIGDIR": str(fonts),
                       "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
                       "LABKIT_PROGRESS": str(Path(folder) / "progress.json")}
        if not any(fonts.glob("fontlist*")):      # else the first lesson would show matplotlib's warning about it
            subprocess.run([sys.executable, "-c", "import matplotlib.font_manager"], env=environment, check=True)
        client = NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False,
                                coalesce_streams=True, resources={"metadata": {"path": folder}})
        client.execute(env=environment)
    return settle(notebook, {folder + os.sep: "", folder: ".", str(ROOT) + os.sep: "",
                             sys.prefix: "PYTHON", sys.base_prefix: "PYTHON"})


def settle(notebook, folders):
    """Remove what differs from run to run or names a folder of this machine: widget states, ids, addresses, paths.

    Args:
        folders: {path of this machine: what to write for it}, in the order of replacing.
    """
    notebook.metadata = nbformat.from_dict(METADATA)
    outputs = json.dumps([cell.get("outputs", []) for cell in notebook.cells])
    for folder, name in folders.items():
        outputs = outputs.replace(json.dumps(folder)[1:-1], name)
    for pattern, form in CHANGING.items():
        numbers = {}
        outputs = pattern.sub(lambda match: form.format(numbers.setdefault(match.group(), len(numbers))), outputs)
    for cell, settled in zip(notebook.cells, json.loads(outputs)):
        if cell.cell_type == "code":
            cell.outputs = nbformat.from_dict(settled)
            cell.metadata.pop("execution", None)
    return notebook


def content(notebook):
    """Return what the sources decide: a (type, text, tags) for each cell."""
    return [(cell.cell_type, cell.source, cell.metadata.get("tags", [])) for cell in notebook.cells]


def drift(source_folder, folder):
    """Return a line for each committed notebook in `folder` that is not the one of its source; empty when all agree."""
    sources = {path.stem: path for path in Path(source_folder).glob("*.py")}
    built = {path.stem: path for path in Path(folder).glob("*.ipynb")}
    lines = [f"{name}.ipynb: no source {name}.py" for name in sorted(built.keys() - sources.keys())]
    lines += [f"{name}.py: not built; run `make notebooks`" for name in sorted(sources.keys() - built.keys())]
    for name in sorted(sources.keys() & built.keys()):
        want, have = content(prepare(sources[name])), content(nbformat.read(built[name], as_version=4))
        if want != have:
            place = next((i for i, pair in enumerate(zip(want, have)) if pair[0] != pair[1]), min(len(want), len(have)))
            lines.append(f"{name}.ipynb: cell {place} is not that of {name}.py; run `make notebooks`")
    return lines


def build(source, folder):
    """Execute one source and write folder/NAME.ipynb; returns the path."""
    path = Path(folder) / f"{Path(source).stem}.ipynb"
    text = nbformat.writes(execute(prepare(source)), version=4).rstrip("\n") + "\n"
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8", newline="\n")
    os.replace(part, path)
    return path


def main(argv=None):
    parser = argparse.ArgumentParser(description="Build the lessons from their sources.")
    parser.add_argument("lessons", nargs="*", help="names of sources, such as 01_the_window; all when none is given")
    parser.add_argument("--check", action="store_true", help="compare cells and tags only; nothing is run")
    args = parser.parse_args(argv)
    folder = ROOT / "notebooks"
    if args.check:
        lines = drift(folder / "source", folder)
        print("\n".join(lines) or "The notebooks are those of their sources.")
        return int(bool(lines))
    sources = sorted(path for path in (folder / "source").glob("*.py") if not args.lessons or path.stem in args.lessons)
    missing = set(args.lessons) - {path.stem for path in sources}
    if missing or not sources:
        print(f"no such source in notebooks/source: {', '.join(sorted(missing)) or '*.py'}", file=sys.stderr)
        return 1
    for source in sources:
        print(f"{build(source, folder).name}: built.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
