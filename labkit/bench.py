"""python -m labkit bench: speed and memory beside transformers and beside what the machine can do at best.

Each row is measured on one thread, the rivals taking turns, and the medians are compared. "Limit" is a part of the
work that nobody can leave out, measured alone on the same machine; the last column says which part. "Difference" is
between the answers of both sides, relative to the largest number: a fast wrong answer would show there. The explorers'
rows say how long a new picture takes behind a slider.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from statistics import median

import torch

from .bench_rows import RIVAL, ROWS, appends, mamba2_layers
from .mixers import GatedDeltaNet, GriffinBlock, Mamba2Mixer, MambaMixer, ShortConv
from .mixers.scan import CHUNK

FULL = {"length": 2048, "tokens": 16, "texts": 8, "appends": 8000, "memory": 8192, "growth": (1024, 2048, 4096, 8192),
        "repeats": 5}
QUICK = {"length": 256, "tokens": 4, "texts": 4, "appends": 1000, "memory": 2048, "growth": (128, 256, 512, 1024),
         "repeats": 3}
EXPLORERS = ("01", "03", "04", "07", "08", "09")
STATUS = Path("/proc/self/status")
FAMILIES = ((ShortConv, {}), (MambaMixer, {}), (Mamba2Mixer, {}), (GriffinBlock, {}),
            (GatedDeltaNet, {"linear_num_key_heads": 2, "linear_num_value_heads": 4}))


def take_turns(calls, repeats):
    """Median milliseconds of each call (None stays None), and what each returned at first."""
    results, times = [call and call() for call in calls], [[] for _ in calls]
    for _ in range(repeats):
        for call, taken in zip(calls, times):
            if call:
                start = time.perf_counter()
                call()
                taken.append(1e3 * (time.perf_counter() - start))
    return [median(taken) if taken else None for taken in times], results


def measure(row, sizes):
    """A row of the first table: times in ms, or tokens per second, beside transformers' and the limit."""
    name, limit_is = row.__doc__.split("|")
    mine, rival, limit = row(sizes)
    times, (got, want, _) = take_turns((mine, rival if RIVAL else None, limit), sizes["repeats"])
    difference = None if want is None else ((got - want).abs().max() / want.abs().max()).item()
    if tokens := getattr(row, "tokens", None):
        times = [ms and 1e3 * tokens / ms for ms in times]
    return {"row": name.format(**sizes), "unit": "/s" if tokens else "ms", "labkit": times[0], "transformers": times[1],
            "limit": times[2], "limit is": limit_is, "difference": difference}


def measure_growth(sizes):
    """Rows of the second table: times in ms at growing sizes, and the worst ratio of two neighbours."""
    rows = [(f"{mixer.__name__}, prefill", [partial(mixer(hidden_size=256, **options), torch.randn(1, n, 256))
                                            for n in sizes["growth"]], sizes["growth"]) for mixer, options in FAMILIES]
    counts = [sizes["appends"] // 4, sizes["appends"] // 2, sizes["appends"]]
    for side, who in enumerate(("labkit", "transformers")[:1 + RIVAL]):
        rows.append((f"appends, {who}", [appends({"appends": n})[side] for n in counts], counts))
    for name, calls, counts in rows:
        times, _ = take_turns(calls, sizes["repeats"])
        yield {"row": name, "sizes": list(counts), "ms": times,
               "worst doubling": max(after / before for before, after in zip(times, times[1:]))}


@torch.enable_grad()
def measure_redraw():
    """Rows of the third table: ms from a slider's new value to the new picture, in each lesson's explorer.

    Raises:
        RuntimeError: an explorer shows an error in place of its picture; that is quick, and no picture.
    """
    rows = []
    for lesson in EXPLORERS:
        explorer = import_module(f"labkit.lesson.lesson_{lesson}").explorer()
        times = []
        for slider in explorer.sliders.values():
            for value in range(slider.min, slider.max + 1):
                if value != slider.value:                   # no change, no picture
                    start = time.perf_counter()
                    slider.value = value
                    times.append(1e3 * (time.perf_counter() - start))
                    if "<img" not in explorer.view.value:
                        raise RuntimeError(f"the explorer of lesson {lesson} shows: {explorer.sentence}")
        rows.append({"row": f"explorer of lesson {lesson}", "pictures": len(times), "ms": median(times),
                     "worst": max(times)})
    return rows


def peak(who, length):
    """The highest memory, in KiB, of a process that does one prefill. Runs in a process of its own, on Linux."""
    torch.set_num_threads(1)
    (mine,), rivals, cache = mamba2_layers(1, rival=who == "transformers")
    with torch.no_grad():
        x = torch.randn(1, length, 768)
        mine(x) if who == "labkit" else rivals[0](x, cache)
    return int(re.search(r"VmHWM:\s+(\d+)", STATUS.read_text())[1])     # ru_maxrss would count the parent process too


def measure_peak(sizes):
    """A row of the first table: MiB that a long prefill adds to the highest memory of a process."""
    length, found = sizes["memory"], {}
    for who in ("labkit", "transformers")[:1 + RIVAL]:
        code = f"from labkit.bench import peak; print(peak({who!r}, {{}}))"
        peaks = [int(subprocess.check_output([sys.executable, "-c", code.format(count)], stderr=subprocess.DEVNULL))
                 for count in (length, CHUNK)]
        found[who] = (peaks[0] - peaks[1]) / 2**10
    projections = length * (2 * 1536 + 2 * 128 + 24 + 768) * 4 / 2**20
    return {"row": f"peak memory of a Mamba2 mixer, prefill of {length}", "unit": "MiB", "labkit": found["labkit"],
            "transformers": found.get("transformers"), "limit": projections,
            "limit is": "what its two projections return", "difference": None}


def table(found):
    """Both tables as lines of text."""
    yield (f"one thread, torch {found['torch']}, medians of {found['turns']} turns; transformers: "
           f"{found['transformers'] or 'not installed, no rival'}")
    yield f"{'':60}{'labkit':>12}{'transformers':>15}{'ratio':>8}{'limit':>10}{'ratio':>7}{'difference':>12}  limit is"
    for r in found["rows"]:
        other, limit, mine, unit = r["transformers"], r["limit"], r["labkit"], r["unit"]
        turn = -1 if unit == "/s" else 1                    # of speeds, the higher one is the better one
        rival = f"{other:15.1f}{(other / mine) ** turn:7.1f}x" if other else f"{'-':>15}{'-':>8}"
        wrong = f"{r['difference']:12.0e}" if r["difference"] is not None else f"{'-':>12}"
        over = f"{limit:10.1f}{(mine / limit) ** turn:6.1f}x"
        yield f"{r['row']:60}{mine:8.1f} {unit:3}{rival}{over}{wrong}  {r['limit is']}"
    for r in found["redraw"]:
        yield f"{r['row']:26}{r['pictures']:>7} pictures, median {r['ms']:6.1f} ms, worst {r['worst']:6.1f} ms"
    for r in found["growth"]:
        times = "".join(f"{size:>7}:{ms:9.1f} ms" for size, ms in zip(r["sizes"], r["ms"]))
        yield f"{r['row']:26}{times}   worst doubling {r['worst doubling']:.2f}x"


def run(argv):
    """Measure, print the tables (or JSON), return the measurements."""
    parser = argparse.ArgumentParser(prog="python -m labkit bench", description=__doc__.split("\n\n")[0])
    parser.add_argument("--json", action="store_true", help="print the measurements as JSON")
    parser.add_argument("--quick", action="store_true", help="short sequences, for a look in under a minute")
    args = parser.parse_args(argv)
    sizes, rival = QUICK if args.quick else FULL, version("transformers") if RIVAL else None
    if RIVAL:
        from transformers.utils import logging
        logging.set_verbosity_error()               # it would say that its kernels are the plain ones: they are meant
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with torch.no_grad():
        found = {"torch": torch.__version__, "transformers": rival, "threads": 1, "turns": sizes["repeats"],
                 "rows": [measure(row, sizes) for row in ROWS] + ([measure_peak(sizes)] if STATUS.exists() else []),
                 "redraw": measure_redraw(), "growth": list(measure_growth(sizes))}
    print(json.dumps(found, indent=1) if args.json else "\n".join(table(found)))
    return found


def main(argv):
    """The command."""
    run(argv)
