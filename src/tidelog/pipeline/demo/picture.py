"""The picture: who is late, when, and on the way to where."""

import math
from pathlib import Path
from typing import Any, Final

from tidelog.pipeline.demo.questions import Answers

_INK: Final = "#1c2733"
_QUIET: Final = "#7a8794"
_GRID: Final = "#e6eaee"
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_NEW_YORK: Final = (-73.87, 40.78)


def draw(answers: Answers, path: Path) -> None:
    """Draws all answers into one PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    with plt.rc_context({"font.family": "DejaVu Sans", "font.size": 9, "text.color": _INK, "axes.labelcolor": _QUIET,
                         "xtick.color": _QUIET, "ytick.color": _INK}):  # fmt: skip
        figure = plt.figure(figsize=(14, 9.2), facecolor="white")
        figure.text(0.03, 0.955, "Every flight out of New York in 2013", fontsize=21, weight="bold", va="center")
        figure.text(
            0.03, 0.918, "336,776 records  ·  confluent-kafka  →  tidelog  →  Spark  →  Delta", fontsize=11,
            color=_QUIET, va="center",
        )  # fmt: skip
        _draw_map(figure, figure.add_axes((0.03, 0.385, 0.60, 0.455)), answers)
        _draw_hours(figure, figure.add_axes((0.055, 0.045, 0.545, 0.245)), answers.hours)
        _draw_airlines(figure.add_axes((0.78, 0.045, 0.195, 0.795)), answers.airlines)
        figure.savefig(path, dpi=130)
        plt.close(figure)


def _title(axes: Any, text: str, detail: str, left: float = 0.0) -> None:
    """Above the axes; `left` in points from their left edge."""
    for string, up, style in ((text, 21, {"fontsize": 13, "weight": "bold"}), (detail, 7, {"color": _QUIET})):
        axes.annotate(string, (0, 1), xytext=(left, up), xycoords="axes fraction", textcoords="offset points", **style)


def _plain(axes: Any) -> None:
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(length=0)


def _draw_airlines(axes: Any, rows: list[Any]) -> None:
    ordered = sorted(rows, key=lambda row: row["delay"], reverse=True)
    delays = [row["delay"] for row in ordered]
    colors = ["#d1495b" if delay > 5 else "#edae49" if delay > 0 else "#00798c" for delay in delays]
    positions = range(len(ordered))
    axes.barh(positions, delays, color=colors, height=0.6, zorder=2)
    axes.set_yticks(positions, [row["name"] for row in ordered])
    axes.axvline(0, color=_INK, linewidth=0.8, zorder=3)
    axes.xaxis.grid(True, color=_GRID, zorder=0)
    for position, delay in zip(positions, delays, strict=True):
        right = delay >= 0
        axes.text(delay + (0.35 if right else -0.35), position, f"{delay:+.1f}", va="center",
                  ha="left" if right else "right", fontsize=8, color=_INK)  # fmt: skip
    margin = 0.16 * (max(delays) - min(delays))
    axes.set_xlim(min(0.0, min(delays)) - margin, max(delays) + margin)
    _plain(axes)
    _title(axes, "Who keeps time", "mean arrival delay by airline, minutes", left=-118)


def _draw_hours(figure: Any, axes: Any, rows: list[Any]) -> None:
    hours = sorted({row["hour"] for row in rows})
    delays = {(row["month"], row["hour"]): row["delay"] for row in rows}
    cells = [[delays.get((month, hour), math.nan) for hour in hours] for month in range(1, 13)]
    image = axes.imshow(cells, aspect="auto", cmap="RdYlBu_r", vmin=-10, vmax=50, interpolation="nearest")
    axes.set_xticks(range(len(hours)), [f"{hour}h" if hour % 3 == 0 else "" for hour in hours])
    axes.set_yticks(range(12), _MONTHS)
    axes.set_xticks([index - 0.5 for index in range(len(hours))], minor=True)
    axes.set_yticks([index - 0.5 for index in range(12)], minor=True)
    axes.grid(which="minor", color="white", linewidth=1.4)
    axes.tick_params(which="minor", length=0)
    _plain(axes)
    bar = figure.colorbar(image, ax=axes, fraction=0.035, pad=0.02, ticks=(0, 25, 50))
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0)
    _title(axes, "When delays pile up", "mean departure delay by month and scheduled hour, minutes", left=-25)


def _draw_map(figure: Any, axes: Any, answers: Answers) -> None:
    """The mainland's destinations where they are, routes as arcs; all airports together draw the country."""
    axes.scatter([row["lon"] for row in answers.airports], [row["lat"] for row in answers.airports], s=3.2,
                 color="#d5dce3", linewidths=0, zorder=0)  # fmt: skip
    mainland = [row for row in answers.destinations if row["lon"] > -126 and row["lat"] > 23.5]
    for row in mainland:
        _draw_arc(axes, (row["lon"], row["lat"]), row["flights"])
    ordered = sorted(mainland, key=lambda row: row["flights"], reverse=True)
    points = axes.scatter(
        [row["lon"] for row in ordered], [row["lat"] for row in ordered],
        s=[14 + row["flights"] / 50 for row in ordered], c=[row["delay"] for row in ordered],
        cmap="RdYlBu_r", vmin=-12, vmax=28, edgecolors=_INK, linewidths=0.5, zorder=3,
    )  # fmt: skip
    axes.plot(*_NEW_YORK, marker="*", markersize=16, color=_INK, markeredgecolor="white", zorder=6)
    axes.annotate("New York", _NEW_YORK, xytext=(13, -12), textcoords="offset points", fontsize=10, weight="bold")
    below, right, left, above = (0, -15, "center"), (6, -3, "left"), (-6, -3, "right"), (0, 9, "center")
    places = [below] * 3 + [right, right, left, right] + [above]
    for row, (x, y, side) in zip((*ordered[:3], *_latest(mainland, 4), *_earliest(mainland, 1)), places, strict=True):
        axes.annotate(f"{row['faa']} {row['delay']:+.0f}", (row["lon"], row["lat"]), xytext=(x, y), ha=side,
                      textcoords="offset points", fontsize=8, weight="bold", color=_INK, zorder=5,
                      bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.6},
                      )  # fmt: skip
    axes.set_xlim(-126.5, -65.5)
    axes.set_ylim(24, 50)
    axes.set_xticks([])
    axes.set_yticks([])
    _plain(axes)
    bar = figure.colorbar(points, cax=axes.inset_axes((0.02, 0.05, 0.16, 0.026)), orientation="horizontal",
                          ticks=(-10, 0, 10, 20))  # fmt: skip
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8)
    _title(axes, "Where it hurts", "mean arrival delay by destination, minutes; area: flights")


def _latest(rows: list[Any], count: int) -> list[Any]:
    return sorted(rows, key=lambda row: row["delay"], reverse=True)[:count]


def _earliest(rows: list[Any], count: int) -> list[Any]:
    return sorted(rows, key=lambda row: row["delay"])[:count]


def _draw_arc(axes: Any, to: tuple[float, float], flights: int) -> None:
    """A curve from New York, bent upwards as great circles are on such a map."""
    (x0, y0), (x1, y1) = _NEW_YORK, to
    bend = 0.085 * math.hypot(x1 - x0, y1 - y0)
    middle = ((x0 + x1) / 2, (y0 + y1) / 2 + bend)
    steps = [step / 30 for step in range(31)]
    xs = [(1 - t) ** 2 * x0 + 2 * t * (1 - t) * middle[0] + t**2 * x1 for t in steps]
    ys = [(1 - t) ** 2 * y0 + 2 * t * (1 - t) * middle[1] + t**2 * y1 for t in steps]
    axes.plot(xs, ys, color="#9fb3c8", linewidth=0.4 + flights / 9000, alpha=0.65, zorder=1, solid_capstyle="round")
