"""What the named releases of transformers do in the reported situations: `python -m labkit versions [RELEASE …]`.

Each release is installed into a folder of its own, beside the torch that is here, and `real_cases.py` runs there. The
outcomes are kept in data/real_library/, one file for each group of cases; the lessons and the advice read them.
"""

import argparse
import functools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .files import data_folder

RELEASES = ("4.44.2", "4.46.1", "4.53.3", "4.57.6", "5.2.0", "5.3.0", "5.4.0", "5.5.0", "5.12.1", "5.13.0", "5.14.1",
            "5.15.1", "5.17.0", "5.18.0", "5.19.0", "5.20.0", "5.23.0", "5.24.0")
GROUPS = ("cache-position", "dropped-chunk")


def path(group: str) -> Path:
    return data_folder() / "real_library" / f"{group}.json"


@functools.cache
def recorded(group: str) -> dict[str, dict[str, dict]]:
    """The recorded outcomes: release -> case -> what happened.

    Args:
        group: of GROUPS.

    Example:
        >>> recorded("cache-position")["5.2.0"]["full_prompt"]["raises"]
        'IndexError'
    """
    return json.loads(path(group).read_text())


def since(release: str, first: str) -> bool:
    """True where a release is `first` or newer."""
    return number(release) >= number(first)


def number(release: str) -> list[int]:
    return [int(part) for part in release.split(".")]


def run(group: str, folder: Path | None = None) -> dict:
    """Run the cases of a group now, on the transformers in a folder, or on the one installed here.

    Raises:
        RuntimeError: the run gave no outcomes; the message ends with what it wrote.
    """
    place = {"PYTHONPATH": str(folder)} if folder else {}
    done = subprocess.run([sys.executable, str(Path(__file__).with_name("real_cases.py")), group], text=True,
                          capture_output=True, cwd=folder,
                          env={**os.environ, **place, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise RuntimeError(f"the cases of {group} did not run: {done.stderr.strip()[-600:]}")
    return json.loads(done.stdout.splitlines()[-1])


def install(release: str, folder: Path) -> None:
    """transformers of that release and what it needs, without torch, into the folder; nothing if it is there."""
    if not (folder / "transformers").is_dir():
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                        "--no-compile", "--target", str(folder), f"transformers=={release}"], check=True)


def main(argv: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser("labkit versions", description=__doc__.splitlines()[0])
    parser.add_argument("releases", nargs="*", metavar="RELEASE", help=f"of transformers; {', '.join(RELEASES)} "
                        "unless given; '.' is the one installed here")
    parser.add_argument("--folder", type=Path, default=Path("build/releases"), help="where the releases go, about 250 MB each")
    parser.add_argument("--keep", action="store_true", help="write the outcomes into data/real_library")
    args = parser.parse_args(argv)
    for release in args.releases or RELEASES:
        folder = None if release == "." else (args.folder / release).resolve()
        if folder:
            install(release, folder)
        for group in GROUPS:
            found = run(group, folder)
            print(table(group, found), flush=True)
            if args.keep:
                keep(group, found)
    return 0


def keep(group: str, found: dict) -> None:
    """Put one release's outcomes into the recorded ones."""
    all_of_them = json.loads(path(group).read_text()) if path(group).exists() else {}
    all_of_them[found["transformers"]] = found["outcomes"]
    ordered = sorted(all_of_them, key=number)
    path(group).parent.mkdir(parents=True, exist_ok=True)
    path(group).write_text(json.dumps({name: all_of_them[name] for name in ordered}, indent=1) + "\n")


def table(group: str, found: dict) -> str:
    """One release's outcomes as text, a line a case."""
    return "\n".join([f"transformers {found['transformers']}: {group}",
                      *(f"  {case:24}{words(outcome)}" for case, outcome in found["outcomes"].items())])


def words(outcome: dict) -> str:
    """An outcome in words."""
    if "raises" in outcome:
        return f"{outcome['raises']}: {outcome['message'][:90]}"
    if "strip" in outcome:
        return f"{outcome['strip']}   largest error {outcome['error']:.2g}, scale {outcome['scale']:.2g}"
    return f"{outcome['right']} of {outcome['of']} tokens right" + (f", cache {outcome['cache']}" if "cache" in outcome else "")
