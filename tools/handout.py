"""Hand out the lessons: copies without outputs in work/, where the learner's changes are never overwritten.

    python tools/handout.py [--from notebooks] [--to work]

work/.handout.json remembers the hash of each lesson as it was last handed out. A copy that still has that hash was
not changed and follows the lesson. A changed copy stays as it is; a newer lesson is put beside it under another name.
"""
import argparse
import hashlib
import json
import os
from pathlib import Path

MANIFEST = ".handout.json"


def strip(text):
    """Return the notebook (JSON text) without outputs, execution counts and widget states."""
    notebook = json.loads(text)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    notebook.get("metadata", {}).pop("widgets", None)
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def digest(data):
    return hashlib.sha256(data).hexdigest()


def write(path, data):
    """Write bytes to path in one step: a reader sees the old file or the new one, never half of one."""
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    os.replace(part, path)


def read_manifest(folder):
    """Return {file name: hash as handed out}; empty when there is none or it cannot be read."""
    try:
        known = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def free_name(path, data):
    """Return a path beside `path` for a newer lesson: the first name that is free or already holds `data`."""
    number = 1
    while True:
        other = path.with_name(f"{path.stem}.new{number if number > 1 else ''}{path.suffix}")
        if not other.exists() or other.read_bytes() == data:
            return other
        number += 1


def hand_out(source, target):
    """Copy every lesson of `source` to `target` and return the lines to tell the learner.

    Args:
        source: folder with the committed *.ipynb.
        target: the learner's folder; made when missing.

    Raises:
        FileNotFoundError: source holds no lesson.
    """
    source, target = Path(source), Path(target)
    lessons = sorted(source.glob("*.ipynb"))
    if not lessons:
        raise FileNotFoundError(f"no lesson (*.ipynb) in {source}; run this from the folder of the project")
    target.mkdir(parents=True, exist_ok=True)
    known, lines = read_manifest(target), []
    for lesson in lessons:
        mine, new = target / lesson.name, strip(lesson.read_text(encoding="utf-8")).encode()
        before = known.get(lesson.name)
        known[lesson.name] = digest(new)
        if not mine.exists():
            write(mine, new)
            lines.append(f"{lesson.name}: ready.")
        elif mine.read_bytes() == new:
            continue
        elif digest(mine.read_bytes()) == before:
            write(mine, new)
            lines.append(f"{lesson.name}: the lesson is newer and you had not changed yours; it is up to date.")
        elif before != digest(new):
            beside = free_name(mine, new)
            write(beside, new)
            lines.append(f"{lesson.name}: the lesson is newer; yours is kept, the new one is {beside.name}.")
    write(target / MANIFEST, (json.dumps(known, indent=1, sort_keys=True) + "\n").encode())
    return lines


def main(argv=None):
    parser = argparse.ArgumentParser(description="Copy the lessons without outputs; keep what the learner changed.")
    parser.add_argument("--from", dest="source", default="notebooks")
    parser.add_argument("--to", dest="target", default="work")
    args = parser.parse_args(argv)
    for line in hand_out(args.source, args.target):
        print(line)


if __name__ == "__main__":
    main()
