"""Progress: one local JSON file without names, times or code; written whole or not at all.

The file is `labkit_progress.json` in the current folder, or the one that LABKIT_PROGRESS names.

    {"version": 1, "questions": {id: {"guess", "confidence", "fits"}}, "exercises": {id: {"state", "tries", ...}}}
"""

import json
import os
from pathlib import Path

from ..files import replacing
from .card import Card

VERSION = 1


def path():
    """Where the progress of this folder is kept."""
    return Path(os.environ.get("LABKIT_PROGRESS") or "labkit_progress.json")


def load():
    """All that is stored. A file that cannot be read is kept under another name, and that is said."""
    file = path()
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return _empty()
    except (OSError, ValueError) as error:      # ValueError: no JSON, or no UTF-8
        return _set_aside(file, f"it cannot be read ({type(error).__name__})")
    return _set_aside(file, why) if (why := problem(data)) else data


def problem(data):
    """Why what was read is no progress, in words; None when it is."""
    if not isinstance(data, dict) or data.get("version") != VERSION:
        return f"it is not progress of version {VERSION}"
    if not all(_is_table(data.get(part)) for part in ("questions", "exercises")):
        return "parts of it are missing"
    return None


def get(part, key):
    """What is stored about one question or exercise; an empty dict when nothing is."""
    return load()[part].get(key, {})


def put(part, key, **fields):
    """Store fields of one question or exercise. Where nothing can be written, that is said, and the lesson goes on."""
    data, file = load(), path()
    data[part][key] = {**data[part].get(key, {}), **fields}
    try:
        with replacing(file) as out:
            out.write(json.dumps(data, indent=1, sort_keys=True).encode())
    except OSError as error:
        print(f"Your progress is not stored: {error.strerror}. The lesson works without it. "
              "To store it, set LABKIT_PROGRESS to a file in a folder that you can write to.")


def summary(lesson):
    """A Card of what is stored for a lesson, by its number: "01"."""
    data = load()
    asked = [entry for key, entry in data["questions"].items() if key.startswith(lesson + ".") and entry.get("guess")]
    hits = [entry for entry in asked if entry["guess"] == entry.get("shown")]
    sure = [entry for entry in asked if entry.get("confidence") == 3]
    lines = [f"Guesses before the result: {len(asked)}. Right: {len(hits)}.",
             f"Sure: {len(sure)}. Of these right: {sum(entry in hits for entry in sure)}." if sure else ""]
    done = {key: entry for key, entry in data["exercises"].items() if key.startswith(lesson + ".")}
    lines += [f"{key.split('.', 1)[1]}: {entry.get('state', 'not tried')}, checks: {entry.get('tries', 0)}, "
              f"hints: {entry.get('hints', 0)}." for key, entry in done.items()]
    return Card("info", f"Your lesson {lesson}", lines if done else lines + ["Exercise: not tried yet."])


def _empty():
    return {"version": VERSION, "questions": {}, "exercises": {}}


def _is_table(part):
    return isinstance(part, dict) and all(isinstance(entry, dict) for entry in part.values())


def _set_aside(file, why):
    aside = next(name for number in range(1, 10**6)
                 if not (name := file.with_name(f"{file.stem}.unread{number}{file.suffix}")).exists())
    try:
        os.replace(file, aside)
        print(f"Your progress file was set aside: {why}. It is kept as {aside.name}; a new one starts now.")
    except OSError as error:
        print(f"Your progress file is of no use: {why}, and it cannot be renamed: {error.strerror}.")
    return _empty()
