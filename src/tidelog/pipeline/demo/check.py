"""Whether every row of the source is in its table exactly once, in content and in place."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from tidelog.pipeline.demo.data import DataSet, keys


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was compared, and what did not fit."""

    rows: int
    """In the table."""
    faults: tuple[str, ...]
    """Empty when every row arrived exactly once and unchanged."""


def check_table(data_set: DataSet, source: pa.Table, tables: Path) -> Verdict:
    """Compares counts, keys, every column of every row, and that each partition's offsets have no gap."""
    table = DeltaTable(str(tables / data_set.name)).to_pyarrow_table()
    faults = []
    if table.num_rows != source.num_rows:
        faults.append(f"{table.num_rows:,} rows in the table, {source.num_rows:,} in the source")
    distinct = pc.count_distinct(table.column("_key")).as_py()
    if distinct != source.num_rows:
        faults.append(f"{distinct:,} distinct keys, {source.num_rows:,} expected")
    faults += _offset_faults(table)
    expected = source.append_column("_key", keys(data_set, source)).sort_by("_key")
    arrived = table.select(expected.schema.names).cast(expected.schema).sort_by("_key")
    differing = [
        name
        for name in expected.schema.names
        if not arrived.column(name).combine_chunks().equals(expected.column(name).combine_chunks())
    ]
    if differing:
        faults.append(f"columns that differ from the source: {', '.join(differing)}")
    return Verdict(table.num_rows, tuple(faults))


def _offset_faults(table: pa.Table) -> list[str]:
    """Offsets of a partition must be 0, 1, 2, ... without one left out or taken twice."""
    counted = table.group_by("_partition").aggregate(
        [("_offset", "min"), ("_offset", "max"), ("_offset", "count"), ("_offset", "count_distinct")]
    )
    return [
        f"partition {row['_partition']}: {row['_offset_count']:,} rows, {row['_offset_count_distinct']:,} distinct"
        f" offsets from {row['_offset_min']} to {row['_offset_max']}"
        for row in counted.to_pylist()
        if not (
            row["_offset_min"] == 0 and row["_offset_max"] + 1 == row["_offset_count"] == row["_offset_count_distinct"]
        )
    ]
