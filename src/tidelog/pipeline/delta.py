"""The Delta table that a topic goes into, and the one commit that makes a batch exactly once.

A commit adds the batch's files and, in the same atomic step, says in Delta's own transaction identifiers
(`txn` actions) how far the table has come:

    tidelog:<topic>-<partition>:<topic id>   version = the next offset of that partition to take

So the table itself knows which offsets it holds. A batch that Spark replays is recognized by its offsets and left
alone; a query whose checkpoint was lost goes on where the table stands; a second query that writes the same offsets
meets a conflict and fails instead of doubling rows. The query's id and batch number would not do as identifiers: a
checkpoint that was restored from a copy counts its batches again, over other offsets. Files of attempts that never
came to a commit are in no version of the table: readers don't see them, `DeltaTable.vacuum(full=True)` removes them.
"""

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from pyspark_tidelog.offsets import OffsetRange
from tidelog.model.identifiers import TopicPartition
from tidelog.pipeline.durable import sync_commits, sync_files, take_in
from tidelog.pipeline.errors import TableMismatch, TableNotWritten, in_one_line
from tidelog.pipeline.history import BEGINS, CHECKED, OFFSETS, QUERY, TOPIC_IDS, had_another_topic

_APP: Final = "tidelog"
BATCH: Final = "tidelog.batch"
"""The number of the batch within the job's checkpoint."""
REPORT: Final = "tidelog.report"
"""How much the batch was: an object of JSON."""
_CONSTRAINT: Final = "delta.constraints."
_CHECKED_COLUMNS: Final = {
    "delta.generationExpression": "the computed column",
    "delta.invariants": "the invariant of column",
    "__CHAR_VARCHAR_TYPE_STRING": "the bounded length of column",
}
"""Metadata of columns -> what they make of them."""
_FORGETS: Final = "delta.setTransactionRetentionDuration"
"""The setting of a table by which Delta's writers drop transaction identifiers."""
_UNSUPPORTED: Final = "Unsupported table features"
"""What delta-rs says of a table that it cannot write."""


@dataclass(frozen=True, slots=True)
class WrittenRange:
    """A range of offsets that a task took, and the Parquet file it made of it."""

    offsets: OffsetRange
    path: str
    """Relative to the table; empty where the range holds no record (transaction markers, compacted away)."""
    size: int
    """Bytes of the file."""
    rows: int
    statistics: str
    """Delta's JSON: numRecords, minValues, maxValues, nullCount."""
    record_bytes: int
    """Bytes of the columns that were decoded, before encoding and compression."""
    new_fields: tuple[str, ...] = ()
    """Fields of JSON values that the table has no column for, as far as they were looked at."""


def progress_id(topic: str, partition: int, topic_id: str) -> str:
    """The transaction identifier under which the table keeps the next offset of a partition."""
    return f"{_APP}:{topic}-{partition}:{topic_id}"


def open_table(path: str, schema: pa.Schema, *, description: str, filled: Collection[str] = ()) -> DeltaTable:
    """The table at `path`, made if there is none; raises `TableMismatch` where it does not take rows of `schema`, of
    which `filled` columns are never null."""
    if not DeltaTable.is_deltatable(path):
        table = DeltaTable.create(path, schema=schema, mode="ignore", description=description)
        sync_commits(table.table_uri, 0, table.version())
        sync_files(table.table_uri, [])
    else:
        table = opened(path)
    check_takes(table, schema, filled)  # Another job may have made it first.
    return table


def opened(path: str) -> DeltaTable:
    """The table at `path`; raises `TableMismatch` where there is none, or delta-rs cannot read it."""
    try:
        return DeltaTable(path)
    except TableNotFoundError as error:
        raise TableMismatch(f"there is no Delta table at {path}") from error
    except DeltaError as error:
        raise TableMismatch(f"the table at {path} cannot be read here: {in_one_line(error)}") from error


def last_commit(table: DeltaTable) -> Mapping[str, Any] | None:
    """What the history says of the last commit; None where Delta has cleaned the log up to there."""
    return next(iter(table.history(1)), None)


def refresh(table: DeltaTable, known: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Has `table` be as it is by now; its last commit. `known` was the last one before.

    Raises `TableMismatch` where another table has taken its place: what follows on `table` would come into that one.
    """
    table.update_incremental()
    entries = [] if known is None else table.history(table.version() - known["version"] + 1)
    if known is None or not entries or entries[-1]["version"] != known["version"]:
        _look_again(table)
    elif entries[-1] != known:
        raise TableMismatch(_replaced(table, "another one: it was deleted and made again"))
    return last_commit(table)


def _look_again(table: DeltaTable) -> None:
    """Where the log does not tell: the table is another one, or Delta has cleaned its log."""
    try:
        found = DeltaTable(table.table_uri)
    except TableNotFoundError as error:
        raise TableMismatch(_replaced(table, "gone: it was deleted or moved")) from error
    if found.version() < table.version():
        raise TableMismatch(_replaced(table, f"an older one: it was put back to version {found.version()}"))
    if found.metadata().id != table.metadata().id:
        raise TableMismatch(_replaced(table, "another one: it was deleted and made again"))


def _replaced(table: DeltaTable, now: str) -> str:
    return (
        f"the table at {table.table_uri} is {now} while this job was running. Start the job again, and it goes on where"
        " the table stands"
    )


def check_takes(table: DeltaTable, schema: pa.Schema, filled: Collection[str] = ()) -> None:
    """Raises `TableMismatch` where a table, as it is now, does not take files of these columns."""
    path = table.table_uri
    if partitioned := table.metadata().partition_columns:
        raise TableMismatch(f"the table at {path} is partitioned by {', '.join(partitioned)}; give another path")
    if names_otherwise(table):
        raise TableMismatch(
            f"the table at {path} has column mapping: its files name columns otherwise than the table does, and readers"
            " would find nulls in what this job writes; give another path"
        )
    if _FORGETS in table.metadata().configuration:
        raise TableMismatch(
            f"the table at {path} has {_FORGETS}: it would forget which offsets it holds, and a run would take all"
            f" records again. ALTER TABLE ... UNSET TBLPROPERTIES ('{_FORGETS}'), or give another path"
        )
    _refuse_checked(table)
    found = table_schema(table)
    if not _takes(found, schema):
        raise TableMismatch(
            f"the table at {path} has the columns ({DeltaSchemaText.of(found)}), this job would write"
            f" ({DeltaSchemaText.of(schema)}); give the same columns and schema as before, or another path"
        )
    if strict := [each.name for each in schema if each.name not in filled and _requires(found.field(each.name), each)]:
        raise TableMismatch(
            f"column {', '.join(strict)} of the table at {path} is NOT NULL, and this job would write nulls into it:"
            " say NOT NULL in the schema of JSON values, drop it from the table, or give another path"
        )


def _refuse_checked(table: DeltaTable) -> None:
    """Raises `TableMismatch` where a writer has to check or compute what is in its rows: a commit of files does not."""
    settings = table.metadata().configuration
    found = next(
        (f"the constraint {name.removeprefix(_CONSTRAINT)}" for name in settings if name.startswith(_CONSTRAINT)), None
    )
    found = found or _checked_column(json.loads(table.schema().to_json()))
    if found is not None:
        raise TableMismatch(
            f"the table at {table.table_uri} has {found}, which this job would not heed: it adds files, and looks at no"
            " row. Give another path"
        )


def _checked_column(part: Any) -> str | None:
    """What a schema in Delta's JSON, or a part of it, asks of the rows of a column; None where it asks nothing."""
    if isinstance(part, list):
        return next((found for each in part if (found := _checked_column(each))), None)
    if not isinstance(part, dict):
        return None
    metadata = part.get("metadata", {})
    for mark, what in _CHECKED_COLUMNS.items():
        if mark in metadata:
            return f"{what} {part.get('name')}"
    return _checked_column(list(part.values()))


def names_otherwise(table: DeltaTable) -> bool:
    """Whether the files of a table have other names of columns than it has (Delta's column mapping), or ids."""
    mode = table.metadata().configuration.get("delta.columnMapping.mode")
    return mode == "id" or _names_otherwise(json.loads(table.schema().to_json()))


def _names_otherwise(part: Any) -> bool:
    """Whether a column of a schema in Delta's JSON, or one within it, has another name in files."""
    if isinstance(part, list):
        return any(map(_names_otherwise, part))
    if not isinstance(part, dict):
        return False
    name = part.get("name")
    physical = part.get("metadata", {}).get("delta.columnMapping.physicalName", name)
    return physical != name or any(map(_names_otherwise, part.values()))


def _takes(table: pa.Schema, written: pa.Schema) -> bool:
    """Whether files of the columns `written` are rows of a table: Delta reads columns by name, in any order, and those
    that a file lacks as null."""
    missing = [each for each in table if each.name not in written.names]
    same = all(
        each.name in table.names and _type_text(table.field(each.name).type) == _type_text(each.type)
        for each in written
    )
    return same and all(each.nullable for each in missing)


def _requires(column: pa.Field, written: pa.Field) -> bool:
    """Whether a column, or a field within it, is NOT NULL where what is written may be null."""
    if not column.nullable and written.nullable:
        return True
    inner = range(column.type.num_fields)
    return any(_requires(column.type.field(place), written.type.field(place)) for place in inner)


def table_schema(table: DeltaTable) -> pa.Schema:
    """The columns of a table as Arrow types that pyarrow writes."""
    return pa.schema(table.schema().to_arrow())


class DeltaSchemaText:
    """Schemas as people write them; equal texts are equal tables."""

    @staticmethod
    def of(schema: pa.Schema) -> str:
        """`name type, ...`, without the difference between views, large and plain binaries that Delta does not keep."""
        return ", ".join(f"{each.name} {_type_text(each.type)}" for each in schema)


def _type_text(kind: pa.DataType) -> str:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{_type_text(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return "struct<" + ", ".join(f"{each.name}: {_type_text(each.type)}" for each in kind) + ">"
    text = str(kind).removeprefix("large_").removesuffix("_view")
    return {"timestamp[us, tz=UTC]": "timestamp", "date32[day]": "date"}.get(text, text)


def progress_ids(partitions: Iterable[TopicPartition], topic_id: str) -> dict[TopicPartition, str]:
    """The transaction identifiers of a topic's partitions."""
    return {each: progress_id(each.topic, each.partition, topic_id) for each in partitions}


def next_offsets(table: DeltaTable, partitions: Iterable[TopicPartition], topic_id: str) -> dict[TopicPartition, int]:
    """The next offset to take of each partition that the table has taken something of."""
    found: dict[TopicPartition, int] = {}
    for each in partitions:
        offset = _stands_at(table, each, topic_id)
        if offset is not None:
            found[each] = offset
    return found


def _stands_at(table: DeltaTable, partition: TopicPartition, topic_id: str) -> int | None:
    """The next offset of a partition; None where nothing of it was taken."""
    offset: int | None = table.transaction_version(progress_id(partition.topic, partition.partition, topic_id))
    if offset is not None or not topic_id:
        return offset
    # Brokers that told no ids were updated since.
    offset = table.transaction_version(progress_id(partition.topic, partition.partition, ""))
    return None if offset is None or had_another_topic(table, partition.topic, topic_id) else offset


def begin_at(table: DeltaTable, offsets: Mapping[TopicPartition, int], topic_id: str) -> None:
    """Has a table that has nothing of these partitions stand there. `TableMismatch`, `TableNotWritten`."""
    apps = progress_ids(offsets, topic_id)
    begins = {str(each): offset for each, offset in sorted(offsets.items())}
    properties = CommitProperties(
        app_transactions=[Transaction(apps[each], offset) for each, offset in sorted(offsets.items())],
        custom_metadata={BEGINS: json.dumps(begins)},
    )
    with _refusals(table, f"the beginning at {json.dumps(begins)}"):
        table.create_write_transaction([], "append", table.schema(), commit_properties=properties)
        take_in(table)


def commit_batch(
    table: DeltaTable,
    query: str,
    batch: int,
    written: Sequence[WrittenRange],
    checked: int,
    report: Mapping[str, Any],
) -> bool:
    """Adds a batch's files to the table, which must be up to date; False where the table holds these offsets already.

    `checked` is the version of the table up to which its history was checked against its progress; `report` is what
    the history is to say of the batch (JSON).
    Raises `TableMismatch` where the batch does not begin where the table ends, or another writer came first;
    `TableNotWritten` where the table's place does not take the commit.
    """
    what = f"batch {batch} ({_offsets_text(written)})"
    with _refusals(table, what):
        ends = _check_continuity(table, written)
    if ends is None:
        return False
    now_ms = time.time_ns() // 1_000_000
    actions: list[AddAction | RemoveAction] = [
        AddAction(each.path, each.size, {}, now_ms, True, each.statistics) for each in written if each.path
    ]
    transactions = [Transaction(app, end) for app, end in sorted(ends.items())]
    properties = CommitProperties(
        app_transactions=transactions,
        # For people who read the table's history.
        custom_metadata={
            OFFSETS: json.dumps(_offsets_of(written)),
            CHECKED: json.dumps({each.offsets.topic: checked for each in written}),
            TOPIC_IDS: json.dumps({each.offsets.topic: each.offsets.topic_id for each in written}),
            QUERY: query,
            BATCH: str(batch),
            REPORT: json.dumps(report),
        },
    )
    with _refusals(table, what):
        table.create_write_transaction(actions, "append", table.schema(), commit_properties=properties)
        take_in(table)
    return True


@contextmanager
def _refusals(table: DeltaTable, what: str) -> Iterator[None]:
    """Tells why a commit was not taken."""
    try:
        yield
    except CommitFailedError as error:
        if _UNSUPPORTED in str(error):
            raise TableMismatch(
                f"{table.table_uri} cannot be written here: {in_one_line(error)}; give another path"
            ) from error
        raise TableMismatch(
            f"another writer committed to {table.table_uri} at the same time ({error}); run one job for a topic and"
            " table, then start this one again: nothing is lost or doubled"
        ) from error
    except (OSError, DeltaError) as error:
        raise TableNotWritten(
            f"{what} could not be committed to {table.table_uri}:"
            f" {in_one_line(error)}. The next run takes it again, unless it finds it in the table"
        ) from error


def _check_continuity(table: DeltaTable, written: Sequence[WrittenRange]) -> dict[str, int] | None:
    """[transaction identifier] -> next offset after the batch; None where all of it is in the table."""
    ends: dict[str, int] = {}
    replayed = 0
    for each in sorted(written, key=lambda one: (one.offsets.topic, one.offsets.partition, one.offsets.start)):
        offsets = each.offsets
        app = progress_id(offsets.topic, offsets.partition, offsets.topic_id)
        stands = _stands_at(table, offsets.topic_partition, offsets.topic_id)
        if stands is not None and offsets.end <= stands and app not in ends:
            replayed += 1
            continue
        expected = ends.get(app, stands)
        if expected is not None and offsets.start != expected:
            raise TableMismatch(
                f"{table.table_uri} stands at offset {expected} of {offsets.topic}-{offsets.partition}, but the batch"
                f" begins at {offsets.start}: the checkpoint is not of this table, or another query writes into it."
                " Remove the checkpoint to go on where the table stands"
            )
        ends[app] = offsets.end
    if replayed and ends:
        raise TableMismatch(
            f"{table.table_uri} holds a part of this batch already: another query writes the same topic into it."
            " Remove the checkpoint to go on where the table stands"
        )
    return ends if ends or not written else None


def _offsets_of(written: Sequence[WrittenRange]) -> dict[str, list[int]]:
    """`{"topic-0": [start, end]}`."""
    offsets: dict[str, list[int]] = {}
    for each in written:
        name = f"{each.offsets.topic}-{each.offsets.partition}"
        known = offsets.get(name, [each.offsets.start, each.offsets.end])
        offsets[name] = [min(known[0], each.offsets.start), max(known[1], each.offsets.end)]
    return offsets


def _offsets_text(written: Sequence[WrittenRange]) -> str:
    return ", ".join(f"{name} from {start} to {end}" for name, (start, end) in sorted(_offsets_of(written).items()))


def file_statistics(rows: int, columns: Mapping[str, tuple[Any, Any, int]]) -> str:
    """Delta's statistics of a file: [column] -> (least, greatest, nulls); a least of None says that there is none."""
    return json.dumps(
        {
            "numRecords": rows,
            "minValues": {name: least for name, (least, _, _) in columns.items() if least is not None},
            "maxValues": {name: greatest for name, (_, greatest, _) in columns.items() if greatest is not None},
            "nullCount": {name: nulls for name, (_, _, nulls) in columns.items()},
        }
    )
