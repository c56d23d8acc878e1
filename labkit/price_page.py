"""python -m labkit price: what every silent fault of the catalogue costs on the trained models: a page, a picture."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from . import faults
from .contract.subjects import MixerSubject
from .files import data_folder
from .price import FAULTS, Row, of_fault, price, table
from .price_drivers import DRIVERS
from .train import TRAINED

PLACES = ("inside the fact", "before the question")
HEAD = """# What silent faults cost

Questions answered right, in 100: {n} held-out questions for each number, greedy, word for word. Each line is the dearest
of {places} cuts ({names}). *Repaired* is the same way of feeding, with the fault taken away. Chance is a guess among the
things that the text names. Where a fault costs little, that is said: the texts are short, and the model may not need what
was lost.

"""


def silent() -> dict:
    """Every silent fault that a trained model can have, and the general ones of `price.FAULTS`: name -> fault."""
    catalogue = {}
    for name in faults.names():
        if name in DRIVERS:
            catalogue[name] = DRIVERS[name]
        elif not faults.get(name).record.loud and type(faults.get(name).subject(0)) is MixerSubject:
            catalogue[name] = of_fault(name)
    return {**{f"any family: {name}": fault for name, fault in FAULTS.items()}, **catalogue}


def unpriced(rows: Sequence[Row]) -> dict[str, str]:
    """Silent faults without a row, and why."""
    seen = {row.fault for row in rows}
    found = {}
    for name in faults.names():
        if not faults.get(name).record.loud and name not in seen:
            found[name] = ("it belongs to the streaming transformer, of which no trained model is here"
                           if faults.get(name).record.incident == "different-depths" else
                           "no trained model has its layer")
    return found


def dearest(rows: Sequence[Row]) -> list[Row]:
    """For each model and fault the cut at which it costs most."""
    best: dict[tuple[str, str], Row] = {}
    for row in rows:
        key = row.fault, row.preset
        if key not in best or row.lost > best[key].lost:
            best[key] = row
    order = [*silent()]
    return sorted(best.values(), key=lambda row: order.index(row.fault))


def page(rows: Sequence[Row], n: int) -> str:
    """The page, as markdown."""
    lines = ["| fault | model | cut | right | faulty | repaired | chance | |", "|---" * 8 + "|"]
    for row in dearest(rows):
        shares = " | ".join(f"{100 * share:.1f}" for share in (row.right, row.faulty, row.repaired, row.chance))
        cheap = "costs little" if row.cheap else ""
        lines.append(f"| {row.fault} | {row.preset} | {row.place} | {shares} | {cheap} |")
    without = [f"- {name}: {why}." for name, why in unpriced(rows).items()]
    head = HEAD.format(n=n, places=len(PLACES), names=", ".join(PLACES))
    return head + "\n".join([*lines, "", "Silent faults without a price:", "", *without]) + "\n"


def main(argv: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser("labkit price", description=__doc__.splitlines()[0])
    parser.add_argument("presets", nargs="*", metavar="PRESET", help=f"of {', '.join(TRAINED)}; all unless given")
    parser.add_argument("--n", type=int, default=200, help="questions for each number")
    parser.add_argument("--out", type=Path, help="write the page (.md) and its picture (.png) here: data/prices.md")
    args = parser.parse_args(argv)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)  # before the minutes of measuring, not after them
    rows = []
    for preset in tqdm(args.presets or TRAINED, desc="models"):
        found = price(preset, args.n, PLACES, silent())
        print(table(dearest(found)), flush=True)
        rows += found
    if args.out:
        from .figures import price_chart
        figure, sentence = price_chart(dearest(rows))
        figure.savefig(args.out.with_suffix(".png"), dpi=90)
        args.out.write_text(page(rows, args.n) + f"\n![{sentence}]({args.out.stem}.png)\n\n{sentence}\n")
        print(f"written: {args.out}")
    return 0


def page_path() -> Path:
    """Where the page is kept."""
    return data_folder() / "prices.md"
