"""Growth: what partitions, connections, topics, groups, segments and brokers cost as they become more.

    python -m bench.growth [PIECE ...] [--sizes N ...] [--quick] [--results DIR]
    python -m bench.growth --report [--plot FILE.svg] [--results DIR]

A piece makes one thing larger, size by size, each time with a fresh broker in a process of its own, and measures what
that costs: CPU time of a request, memory, start. `make bench PART=growth-PIECE` runs one (minutes each), `make bench
PART=growth` all, and then the report. Results are kept in a file for each piece (DIR, build/bench/growth), size by
size, so that a size can be measured again alone: `python -m bench.growth partitions --sizes 50000`. --quick takes two
small sizes of each: whether all of it works.

The report prints a table for each piece and draws the curves. Beside each figure stands the exponent of its curve over
the largest sizes, those that span a factor of 5, and that of its cause: 0 for what should cost the same however large
the rest is, 1 for what is made of as many parts. What grows faster than its cause by more than 0.2 is named. CPU time
is that of the brokers' processes (user and system), so other work on the machine moves it less than seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from bench.growth.judging import exponent, grows_faster
from bench.growth.picture import draw
from bench.growth.pieces import LOAD, PIECES, Piece
from bench.scratch import scratch_folder

RESULTS: Final = Path("build/bench/growth")


def run(name: str, piece: Piece, sizes: list[int], results: Path) -> None:
    """Measures a piece at these sizes, and keeps each as soon as it is there."""
    print(f"\n== {name}", flush=True)
    for size in sizes:
        began = time.monotonic()
        with scratch_folder() as work:
            found = piece.measure(size, work)
        said = ", ".join(
            f"{piece.figures[key].name} {shown(value)} {piece.figures[key].unit}" for key, value in found.items()
        )
        load = os.getloadavg()[0]
        print(f"{size:,} {piece.of} ({time.monotonic() - began:.0f} s, load {load:.1f}): {said}", flush=True)
        known = read(name, results)
        known["points"][str(size)] = {**found, "load": load, "version": version()}
        results.mkdir(parents=True, exist_ok=True)
        (results / f"{name}.json").write_text(json.dumps(known, indent=1) + "\n")


def read(name: str, results: Path) -> dict[str, Any]:
    """What is known of a piece."""
    try:
        known: dict[str, Any] = json.loads((results / f"{name}.json").read_text())
    except FileNotFoundError:
        known = {"points": {}}
    return known


def curves(name: str, results: Path) -> dict[str, dict[int, float]]:
    """[key of a figure] -> [size] -> value, for the figures that were measured."""
    points = {int(size): found for size, found in read(name, results)["points"].items()}
    taken = {
        key: {size: points[size][key] for size in sorted(points) if key in points[size]} for key in PIECES[name].figures
    }
    return {key: curve for key, curve in taken.items() if curve}


def shown(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(name: str, results: Path) -> list[str]:
    """The lines of a piece's table, and below it what grows faster than its cause."""
    piece, found = PIECES[name], curves(name, results)
    if not found:
        return []
    sizes = sorted({size for curve in found.values() for size in curve})
    lines = [
        f"| {piece.of.capitalize()} | " + " | ".join(f"{size:,}" for size in sizes) + " | exponent (its cause's) |",
        "|---|" + "---|" * (len(sizes) + 1),
    ]
    faster = []
    for key, curve in found.items():
        figure = piece.figures[key]
        power = exponent(curve)
        cells = " | ".join(shown(curve[size]) if size in curve else "" for size in sizes)
        lines.append(
            f"| {figure.name}, {figure.unit} | {cells} | {'' if power is None else f'{power:.2f}'} ({figure.grows:g}) |"
        )
        if grows_faster(curve, figure.grows):
            faster.append(figure.name)
    lines += ["", f"Faster than its cause: {'; '.join(faster) or 'nothing'}."]
    return lines


def raise_file_limit() -> None:
    """Each connection is a descriptor here, too; `lg` inherits the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def version() -> str:
    """The commit that is measured; empty outside a checkout."""
    told: Any = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return str(told.stdout).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pieces", nargs="*", metavar="PIECE", help=f"{', '.join(PIECES)} (all)")
    parser.add_argument("--sizes", nargs="+", type=int, metavar="N", help="instead of a piece's own")
    parser.add_argument("--quick", action="store_true", help="two small sizes of each, and no results are kept")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="(%(default)s)")
    parser.add_argument("--report", action="store_true", help="print tables of what is known, and measure nothing")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="with --report: draw the curves")
    options = parser.parse_args()
    # Told to end, it ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for name in options.pieces:
        if name not in PIECES:
            parser.error(f"there is no piece {name}; the pieces are: {', '.join(PIECES)}")
    wanted = options.pieces or list(PIECES)
    if options.report:
        for name in wanted:
            print("\n".join(["", *table(name, options.results)]))
        if options.plot is not None:
            draw({name: curves(name, options.results) for name in wanted}, options.plot)
        return
    raise_file_limit()
    with scratch_folder() as tools, scratch_folder() as scratch:
        LOAD.build(tools)
        for name in wanted:
            piece = PIECES[name]
            sizes = options.sizes or list(piece.quick if options.quick else piece.sizes)
            run(name, piece, sizes, scratch if options.quick else options.results)


if __name__ == "__main__":
    main()
