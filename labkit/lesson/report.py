"""python -m labkit report DIR: a class table from a folder of progress files, as HTML and CSV. No names but file names.

    python -m labkit report collected --out class
"""

import argparse
import csv
import html
import json
import sys
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from .progress import problem

STATES = {"right": "#D5F0E3", "wrong": "#F6C7B6", "crashed": "#F6C7B6", "": "#EEEEEE"}


def read(folder: Path) -> tuple[dict[str, dict], list[str]]:
    """Progress by file name, and a line for each file that is of no use."""
    found, refused = {}, []
    for path in sorted(folder.rglob("*.json")):
        name = str(path.relative_to(folder).with_suffix(""))
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            refused.append(f"{name}: it cannot be read ({type(error).__name__})")
            continue
        if why := problem(data):
            refused.append(f"{name}: {why}")
        else:
            found[name] = data
    return found, refused


def exercises(progress: dict[str, dict]) -> list[str]:
    """The exercises that somebody tried, in order."""
    return sorted({key for data in progress.values() for key in data["exercises"]})


def rows(progress: dict[str, dict]) -> list[dict[str, str]]:
    """One row a learner: guesses right of guesses made, and each exercise's state and number of checks."""
    table = []
    for name, data in progress.items():
        made = [entry for entry in data["questions"].values() if entry.get("guess") and "shown" in entry]
        row = {"file": name, "guesses": str(len(made)),
               "right": str(sum(entry["guess"] == entry["shown"] for entry in made))}
        for key in exercises(progress):
            entry = data["exercises"].get(key, {})
            row[key] = f"{entry['state']} ({entry.get('tries', 0)})" if entry.get("state") else ""
        table.append(row)
    return table


def hard(progress: dict[str, dict]) -> list[tuple[str, int, int, str]]:
    """Questions, hardest first: (id, guesses, right, most common wrong letter)."""
    answers: dict[str, list] = {}
    for data in progress.values():
        for key, entry in data["questions"].items():
            if entry.get("guess") and "shown" in entry:
                answers.setdefault(key, []).append(entry)
    found = []
    for key, entries in answers.items():
        wrong = Counter(entry["guess"] for entry in entries if entry["guess"] != entry["shown"])
        common = f"{wrong.most_common(1)[0][0]}) {option(key, wrong.most_common(1)[0][0])}" if wrong else ""
        found.append((key, len(entries), len(entries) - wrong.total(), common))
    return sorted(found, key=lambda each: (each[2] / each[1], each[0]))


def option(key: str, letter: str) -> str:
    """The text of an option, or '' where this version has no such question."""
    lesson, _, name = key.partition(".")
    try:
        return import_module(f".lesson_{lesson}", __package__).QUESTIONS[name].letters[letter].text
    except (ImportError, KeyError, AttributeError):
        return ""


def missteps(progress: dict[str, dict]) -> list[tuple[str, str, int]]:
    """Named wrong answers, most frequent first: (exercise, name, learners)."""
    seen = Counter((key, name) for data in progress.values() for key, entry in data["exercises"].items()
                   for name in entry.get("missteps", ()))
    return [(key, name, count) for (key, name), count in seen.most_common()]


def page(progress: dict[str, dict], refused: Sequence[str]) -> str:
    """The class table as one HTML page, without network."""
    def table(caption, head, lines):
        cells = "".join("<tr>" + "".join(f'<td style="background:{colour}">{html.escape(str(text))}</td>'
                                         for text, colour in line) + "</tr>" for line in lines)
        titles = "".join(f'<th scope="col">{html.escape(text)}</th>' for text in head)
        return f"<table><caption>{html.escape(caption)}</caption><thead><tr>{titles}</tr></thead><tbody>{cells}</tbody></table>"

    def plain(values):
        return [(value, "#fff") for value in values]
    people = rows(progress)
    tried = [[(text, STATES.get(text.split(" (")[0], "#fff") if key not in ("file", "guesses", "right") else "#fff")
              for key, text in row.items()] for row in people]
    parts = [table("Learners. In brackets: checks.", ["file", "guesses", "right", *exercises(progress)], tried),
             table("Questions, hardest first", ["question", "guesses", "right", "most common wrong option"],
                   map(plain, hard(progress))),
             table("Named wrong answers", ["exercise", "wrong answer", "learners"], map(plain, missteps(progress)))]
    if refused:
        parts.append("<p>Not read:</p><ul>" + "".join(f"<li>{html.escape(line)}</li>" for line in refused) + "</ul>")
    return ('<!doctype html><html lang="en"><meta charset="utf-8"><title>labkit: class table</title><style>'
            "body{font:16px/1.5 sans-serif;margin:2em}table{border-collapse:collapse;margin:1em 0}caption{text-align:left;"
            "font-weight:bold}td,th{border:1px solid #999;padding:.2em .6em;text-align:left}</style>"
            f"<h1>Class table: {len(progress)} learners</h1>{''.join(parts)}</html>")


def main(argv: Sequence[str]) -> int:
    """The command line; returns 2 where the folder holds no progress file."""
    parser = argparse.ArgumentParser("labkit report", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="with progress files, labkit_progress.json under any names")
    parser.add_argument("--out", type=Path, default=Path("class"), help="writes OUT.html and OUT.csv")
    args = parser.parse_args(argv)
    progress, refused = read(args.folder) if args.folder.is_dir() else ({}, [])
    if not progress:
        print(f"no progress file in {args.folder}; learners hand in labkit_progress.json, which lies beside their "
              "notebooks; give each file a name of its own", *refused, sep="\n", file=sys.stderr)
        return 2
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.with_suffix(".html").write_text(page(progress, refused), encoding="utf-8")
    with open(args.out.with_suffix(".csv"), "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, ["file", "guesses", "right", *exercises(progress)])
        table.writeheader()
        table.writerows(rows(progress))
    print(f"{len(progress)} learners: {args.out.with_suffix('.html')}, {args.out.with_suffix('.csv')}"
          + "".join(f"\nnot read: {line}" for line in refused))
    return 0
