"""A page of metrics in Prometheus's text format 0.0.4, filled by collectors and written in slices.

    collector(page) --> page.family(name, ...).add(labels, value) ... --> page.chunks() --> bytes

A page of a large cluster takes longer than an event loop may stand still. So a collector is a generator, which yields
where it may be interrupted, and `chunks` gives a family or a part of one at a time.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import add, itemgetter
from typing import Final, Literal, TypeAlias

from tidelog.metrics.histogram import Histogram

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
LINES_PER_CHUNK: Final = 5_000
"""Of a family's lines, joined and encoded at once: about a millisecond."""
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""Those of Kafka's histograms."""
_QUANTILE_TEXTS: Final = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
"""As the rule files of Kafka's JMX exporters write them; dashboards compare the text."""
OCTAVES: Final = (6, 8, 10, 12, 14, 16, 18, 20, 22, 24)
"""Bounds of the buckets of a histogram: 2^6 us = 64 us to 2^24 us = 16.8 s."""

Kind: TypeAlias = Literal["counter", "gauge", "summary", "histogram", "untyped"]
Value: TypeAlias = int | float


class Table:
    """Rows of finite numbers with the same labels, a column for each of some families, or for several of them.

    A partition has a sample in nineteen families: one row is a call instead of nineteen, and no line is made before the
    page is written, a column at a time. Where all of a column is equal, as in a healthy cluster most are, a line is its
    labels and nothing that would have to be made.
    """

    __slots__ = ("_labels", "_rows", "_shared", "_uses")

    def __init__(self, columns: int) -> None:
        self._labels: list[str] = []
        """As they stand in a line, with the space behind them."""
        self._rows: list[tuple[Value, ...]] = []
        self._uses = [0] * columns
        """[column] -> families that show it."""
        self._shared: dict[tuple[int, int], list[str]] = {}
        """[column, first row] -> labels and values of a part, which further families show."""

    def add(self, labels: str, values: tuple[Value, ...]) -> None:
        """A value for each column; `labels` as `labels_text` gives them."""
        self._labels.append(labels + " ")
        self._rows.append(values)

    def used(self, column: int) -> None:
        """One more family shows the column."""
        self._uses[column] += 1

    def __len__(self) -> int:
        return len(self._rows)

    def chunks(self, name: str, column: int) -> Iterator[str]:
        """The lines of the family `name`, whose values stand in `column`, some thousand at a time."""
        value_of = itemgetter(column)
        for start in range(0, len(self._rows), LINES_PER_CHUNK):
            end = start + LINES_PER_CHUNK
            labels = self._labels[start:end]
            shared = self._shared.get((column, start))
            if shared is None:
                values = list(map(value_of, self._rows[start:end]))
                if values.count(values[0]) == len(values):
                    value = values[0]
                    lines = f"{value}\n{name}".join(labels)
                    yield f"{name}{lines}{value}\n"
                    continue
                shared = list(map(add, labels, map(str, values)))
                if self._uses[column] > 1:
                    self._shared[column, start] = shared
            lines = f"\n{name}".join(shared)
            yield f"{name}{lines}\n"


class Family:
    """The samples of one metric name."""

    __slots__ = ("_columns", "_head", "_lines", "_name")

    def __init__(self, name: str, kind: Kind, help: str) -> None:
        self._name = name
        self._head = f"# HELP {name} {_escaped_help(help)}\n# TYPE {name} {kind}\n"
        self._lines: list[str] = []
        self._columns: list[tuple[Table, int]] = []
        """Where the family has further samples."""

    def add(self, value: Value, labels: str = "") -> None:
        """One sample; `labels` as `labels_text` gives them."""
        self._lines.append(f"{self._name}{labels} {value}\n" if type(value) is int else self._line("", labels, value))

    def add_summary(self, histogram: Histogram, pairs: str = "", *, unit: float = 1_000.0) -> None:
        """Kafka's quantiles, with sum and count; `pairs` as `pairs_text` gives them, `unit` in microseconds.

        NaN stands where nothing was observed lately, as in Kafka.
        """
        values = histogram.quantiles(QUANTILES)
        comma = "," if pairs else ""
        for index, text in enumerate(_QUANTILE_TEXTS):
            value = float("nan") if values is None else values[index] / unit
            self._lines.append(self._line("", f'{{{pairs}{comma}quantile="{text}"}}', value))
        labels = f"{{{pairs}}}" if pairs else ""
        self._lines.append(self._line("_sum", labels, histogram.sum / unit))
        self._lines.append(f"{self._name}_count{labels} {histogram.count}\n")

    def add_histogram(self, histogram: Histogram, pairs: str = "") -> None:
        """Cumulative buckets, in seconds."""
        comma = "," if pairs else ""
        for octave in OCTAVES:
            bound = (1 << octave) / 1e6
            self._lines.append(f'{self._name}_bucket{{{pairs}{comma}le="{bound}"}} {histogram.below(octave)}\n')
        count = histogram.count
        labels = f"{{{pairs}}}" if pairs else ""
        self._lines.append(f'{self._name}_bucket{{{pairs}{comma}le="+Inf"}} {count}\n')
        self._lines.append(self._line("_sum", labels, histogram.sum / 1e6))
        self._lines.append(f"{self._name}_count{labels} {count}\n")

    def _line(self, suffix: str, labels: str, value: Value) -> str:
        return f"{self._name}{suffix}{labels} {number_text(value)}\n"

    def add_column(self, table: Table, column: int) -> None:
        """A sample of each row that the table has when the page is written."""
        self._columns.append((table, column))
        table.used(column)

    def __len__(self) -> int:
        return len(self._lines) + sum(len(table) for table, _ in self._columns)

    def chunks(self) -> Iterator[bytes]:
        """The family's text, some thousand lines at a time; nothing where it has no samples."""
        head = self._head
        for part in self._parts():
            yield (head + part).encode("utf-8", "replace")
            head = ""

    def _parts(self) -> Iterator[str]:
        lines = self._lines
        for start in range(0, len(lines), LINES_PER_CHUNK):
            yield "".join(lines[start : start + LINES_PER_CHUNK])
        for table, column in self._columns:
            yield from table.chunks(self._name, column)


class Page:
    """Families by name, in the order in which they were first asked for."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def family(self, name: str, kind: Kind, help: str) -> Family:
        """The family of that name; `kind` and `help` are those of the first call."""
        found = self._families.get(name)
        if found is None:
            found = self._families[name] = Family(name, kind, help)
        return found

    def meter(self, name: str, help: str) -> Meter:
        """A counter by both of the names that dashboards of Kafka know: `<name>_total` and `<name>persec`.

        The first is that of Strimzi's rules and the JMX exporter's own, the second of Confluent's, which has no type.
        """
        return Meter(
            self.family(f"{name}_total", "counter", help), self.family(f"{name}persec", "untyped", f"{help} A counter.")
        )

    def table(self, *columns: Family | Meter | tuple[Family, ...]) -> Table:
        """A table with a column for each of these, in their order; several families may show the same one."""
        table = Table(len(columns))
        for index, column in enumerate(columns):
            for each in column if isinstance(column, tuple) else (column,):
                each.add_column(table, index)
        return table

    @property
    def samples(self) -> int:
        """How many lines the page has, comments aside."""
        return sum(map(len, self._families.values()))

    def chunks(self) -> Iterator[bytes]:
        """The page's text, a part at a time."""
        for family in self._families.values():
            yield from family.chunks()


class Meter:
    """A counter that is shown by two names."""

    __slots__ = ("_families",)

    def __init__(self, *families: Family) -> None:
        self._families = families

    def add(self, value: Value, labels: str = "") -> None:
        """One sample of each."""
        for family in self._families:
            family.add(value, labels)

    def add_column(self, table: Table, column: int) -> None:
        """As `Family.add_column`, of each."""
        for family in self._families:
            family.add_column(table, column)


def number_text(value: Value) -> str:
    """A value as Prometheus reads it."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def labels_text(**labels: object) -> str:
    """`{a="b",c="d"}`, escaped; nothing without labels."""
    return f"{{{pairs_text(**labels)}}}" if labels else ""


def pairs_text(**labels: object) -> str:
    """`a="b",c="d"`, escaped."""
    return ",".join(f'{name}="{escaped(str(value))}"' for name, value in labels.items())


def escaped(value: str) -> str:
    """A label's value between its quotes."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def joined(chunks: Sequence[bytes]) -> bytes:
    """All of a page at once, for tests and small pages."""
    return b"".join(chunks)
