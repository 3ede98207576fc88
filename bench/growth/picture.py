"""The curves as a picture: a field for each piece, curves beside their values at the smallest size, log-log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.growth.pieces import PIECES

COLUMNS: Final = 2


def draw(found: Mapping[str, Mapping[str, Mapping[int, float]]], path: Path) -> None:
    """[piece][figure][size] -> value, into an SVG file: the same bytes for the same curves."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "growth", "font.size": 8})
    from matplotlib import pyplot

    names = [name for name, curves in found.items() if curves]
    rows = -(-len(names) // COLUMNS)
    figure, fields = pyplot.subplots(rows, COLUMNS, figsize=(11, 3.6 * rows), squeeze=False)
    for field in fields.flat[len(names) :]:
        field.set_visible(False)
    for name, field in zip(names, fields.flat, strict=False):
        _field(name, found[name], field)
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})


def _field(name: str, curves: Mapping[str, Mapping[int, float]], field: Any) -> None:
    piece = PIECES[name]
    sizes = sorted({size for curve in curves.values() for size in curve})
    field.plot(sizes, [size / sizes[0] for size in sizes], color="0.8", linewidth=4, label="in proportion")
    for key, curve in curves.items():
        positive = {size: value for size, value in curve.items() if value > 0}
        if positive:
            first = positive[min(positive)]
            style = "-" if piece.figures[key].grows == 0 else "--"
            field.plot(
                list(positive),
                [value / first for value in positive.values()],
                style,
                marker=".",
                label=piece.figures[key].name,
            )
    field.set(xscale="log", yscale="log", xlabel=piece.of, ylabel="beside the smallest size")
    field.minorticks_off()
    field.axhline(1, color="0.8", linewidth=1)
    field.legend(fontsize=6)
