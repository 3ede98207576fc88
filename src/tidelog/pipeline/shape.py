"""What a table's rows are made of: which columns, where they come from, and what to do with values that don't fit.

A `TableShape` is decided once in the driver, and travels to the tasks as text among Spark's options.

- `raw`: the record as it is: key and value binary, with partition, offset and timestamp.
- `text`: the same, the value as UTF-8 text.
- `json`: a column for each field of the value, typed; the record's own columns are named `_key`, `_partition`,
  `_offset` and `_timestamp`, so that no field of the value can be mistaken for one of them.
"""

import base64
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import pyarrow as pa

from pyspark_tidelog.arrow import arrow_schema
from tidelog.pipeline.errors import TableMismatch

RAW_COLUMNS: Final = ("key", "value", "partition", "offset", "timestamp")
METADATA: Final = {
    "_key": "key",
    "_topic": "topic",
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
}
"""Names in a `json` table -> columns of the source."""
_FORBIDDEN: Final = re.compile(r"[ ,;{}()\n\t=]")
_METADATA_DEFAULT: Final = ("_key", "_partition", "_offset", "_timestamp")
UNPARSED: Final = "_unparsed"
REASON: Final = "_reason"


class ValueFormat(Enum):
    """How a record's value becomes columns."""

    RAW = "raw"
    TEXT = "text"
    JSON = "json"


class BadRecords(Enum):
    """What to do with a value that is not what the format says."""

    FAIL = "fail"
    """Stop before the batch that holds it: nothing is lost, and nothing goes on."""
    KEEP = "keep"
    """Write the row with its payload in `_unparsed` and the reason in `_reason`; the value's columns are null."""


@dataclass(frozen=True, slots=True)
class TableShape:
    """The columns of one table and where they come from."""

    value: ValueFormat
    schema: pa.Schema
    """The table's columns, in order."""
    bad_records: BadRecords = BadRecords.FAIL
    tells_new: bool = False
    """Whether fields of JSON values that have no column are told: they are not left out on purpose."""

    @property
    def value_schema(self) -> pa.Schema:
        """The columns that are parsed out of JSON values."""
        known = {*METADATA, UNPARSED, REASON}
        return pa.schema([each for each in self.schema if each.name not in known])

    @property
    def filled(self) -> frozenset[str]:
        """The columns that each row has: a record may lack a key, a value and headers, and nothing else."""
        sources = METADATA if self.value is ValueFormat.JSON else {name: name for name in arrow_schema_names()}
        return frozenset(name for name, source in sources.items() if source not in ("key", "value", "headers"))

    @property
    def source_columns(self) -> tuple[str, ...]:
        """The columns of the source that the table needs; the value too, whenever something is parsed out of it."""
        if self.value is not ValueFormat.JSON:
            names = [name for name in self.schema.names if name not in (UNPARSED, REASON)]
            return tuple(names) if self.value is ValueFormat.RAW or "value" in names else (*names, "value")
        return (*(METADATA[name] for name in self.schema.names if name in METADATA), "value")

    def to_text(self) -> str:
        """For an option of a data source, which can only be text."""
        schema = base64.b64encode(self.schema.serialize().to_pybytes()).decode()
        return json.dumps(
            {"value": self.value.value, "bad": self.bad_records.value, "schema": schema, "new": self.tells_new}
        )

    @classmethod
    def from_text(cls, text: str) -> "TableShape":
        """The inverse of `to_text`."""
        document = json.loads(text)
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(document["schema"])))
        return cls(ValueFormat(document["value"]), schema, BadRecords(document["bad"]), document["new"])


def raw_shape(columns: Sequence[str] | None = None) -> TableShape:
    """The record as it is; `columns` of the source to keep, None for `RAW_COLUMNS`."""
    return TableShape(ValueFormat.RAW, arrow_schema(_chosen(columns, RAW_COLUMNS, arrow_schema_names())))


def text_shape(columns: Sequence[str] | None = None, bad_records: BadRecords = BadRecords.FAIL) -> TableShape:
    """As `raw_shape`, the value as text."""
    names = _chosen(columns, RAW_COLUMNS, arrow_schema_names())
    fields = [pa.field("value", pa.string()) if each.name == "value" else each for each in arrow_schema(names)]
    return TableShape(ValueFormat.TEXT, pa.schema([*fields, *_for_bad(bad_records)]), bad_records)


def json_shape(
    value_schema: pa.Schema,
    columns: Sequence[str] | None = None,
    bad_records: BadRecords = BadRecords.FAIL,
    *,
    tells_new: bool = False,
) -> TableShape:
    """The fields of `value_schema` and the record's own columns; `columns` chooses among both."""
    own = {*METADATA, UNPARSED, REASON}
    if clash := [each.name for each in value_schema if each.name in own]:
        raise TableMismatch(
            f"the values have fields named {', '.join(clash)}, as the record's own columns are; leave them out"
        )
    sources = arrow_schema(tuple(METADATA.values()))
    metadata = {name: pa.field(name, sources.field(source).type) for name, source in METADATA.items()}
    fields = {each.name: each for each in value_schema} | metadata
    names = _chosen(columns, (*value_schema.names, *_METADATA_DEFAULT), tuple(fields))
    if not any(name in value_schema.names for name in names):
        raise TableMismatch("none of the columns is a field of the value; for the record alone use raw values")
    schema = pa.schema([*(fields[name] for name in names), *_for_bad(bad_records)])
    check_names(schema)
    if bad_records is BadRecords.KEEP and (strict := [each.name for each in schema if not each.nullable]):
        raise TableMismatch(
            f"column {', '.join(strict)} is NOT NULL, but null in the row of a bad record: bad records cannot be kept"
        )
    return TableShape(ValueFormat.JSON, schema, bad_records, tells_new)


def check_names(fields: Iterable[pa.Field], within: str = "") -> None:
    """Raises `TableMismatch` for names that Delta tables can't have, in structs too."""
    seen: dict[str, str] = {}
    for each in fields:
        name = f"{within}{each.name}"
        if not each.name or _FORBIDDEN.search(each.name):
            raise TableMismatch(
                f"a field of the values is named {name!r}: columns of Delta tables have names without space, tab, line"
                " break and ,;{}()=. Choose the others with --columns, or with --schema"
            )
        if other := seen.get(each.name.lower()):
            raise TableMismatch(
                f"the fields {within}{other} and {name} of the values differ in case only: a Delta table can't have"
                " both. Choose one with --columns, or with --schema"
            )
        seen[each.name.lower()] = each.name
        kind = each.type
        while pa.types.is_list(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind):
            check_names(kind, f"{name}.")


def arrow_schema_names() -> tuple[str, ...]:
    """Every column that the source has."""
    return ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def _chosen(columns: Sequence[str] | None, default: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    if columns is None:
        return tuple(default)
    if unknown := [name for name in columns if name not in known]:
        raise TableMismatch(f"there is no column {', '.join(unknown)}; there are {', '.join(known)}")
    if len(set(columns)) != len(columns) or not columns:
        raise TableMismatch("columns must be named once each, at least one")
    return tuple(columns)


def _for_bad(bad_records: BadRecords) -> list[pa.Field]:
    if bad_records is BadRecords.FAIL:
        return []
    return [pa.field(UNPARSED, pa.binary()), pa.field(REASON, pa.string())]
