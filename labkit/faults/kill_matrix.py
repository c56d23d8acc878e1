"""The kill matrix: which law catches which fault, and what `diagnose` makes of it. `data/kill_matrix.md` shows it."""

from collections.abc import Mapping
from pathlib import Path

from ..contract.diagnose import diagnose
from ..contract.laws import LAWS
from ..contract.report import LOOKS, Report
from ..files import data_folder

HEAD = """# The kill matrix

Each row is a fault of the catalogue, each column a law of the contract. `X`: silently wrong there, `!`: an error,
`ok`: the law holds, `-`: the faulty thing has no such operation. Every fault is caught by at least one law. The right
twin of each fault, with the same weights, is caught by none. The last column is what `diagnose` says of the report.

"""


def table(reports: Mapping[str, Report]) -> str:
    """The matrix as a page, from one report a fault."""
    lines = [f"| fault | {' | '.join(LAWS)} | diagnosis |", "|---" * (len(LAWS) + 2) + "|"]
    for name, report in reports.items():
        marks = [LOOKS[report[law].verdict][0] for law in LAWS]
        named = diagnose(report).names
        says = "named alone" if named == (name,) else "with " + ", ".join(other for other in named if other != name)
        lines.append(f"| {name} | {' | '.join(marks)} | {says if name in named else f'missed: {named}'} |")
    return HEAD + "\n".join(lines) + "\n"


def path() -> Path:
    """Where the page is kept."""
    return data_folder() / "kill_matrix.md"
