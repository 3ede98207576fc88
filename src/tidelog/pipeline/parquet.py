"""What a task of the fused path does: a range of a topic, fetched, decoded and written as one Parquet file.

Record bytes never enter the JVM; Spark sees one row a file, which says what was written. A file belongs to the table
only once the driver has committed it, so its name is new for every attempt and whatever an attempt leaves is harmless.
"""

import datetime
import logging
import os
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq

from pyspark_tidelog.arrow import RecordBatches, decoded_columns
from pyspark_tidelog.connections import kept_cluster
from pyspark_tidelog.offsets import OffsetRange
from pyspark_tidelog.options import SourceOptions
from pyspark_tidelog.reading import read_columns
from tidelog.pipeline.delta import WrittenRange, file_statistics
from tidelog.pipeline.durable import sync_files
from tidelog.pipeline.errors import TableNotWritten, UnparsableRecord, in_one_line
from tidelog.pipeline.json_values import (
    NEW_FIELDS_MAX,
    Suspicions,
    parse_values,
    told_fields,
    unknown_fields,
    without_lacking,
)
from tidelog.pipeline.shape import METADATA, REASON, UNPARSED, BadRecords, TableShape, ValueFormat

logger: Final = logging.getLogger(__name__)

ROW_GROUP_BYTES: Final = 64 << 20
"""Decoded bytes in a row group: large ones compress and scan well, and this is what a task holds in memory."""
_COMPRESSION: Final = "snappy"
_TOPIC_SHOWN_MAX: Final = 128
"""Characters of a topic in its files' names, which have 255 bytes at most."""
_DELTA_ENCODED: Final = frozenset({"offset", "timestamp", "_offset", "_timestamp"})
"""Columns that count upwards: DELTA_BINARY_PACKED makes them a fraction of their size, without a dictionary."""


class RowShaper:
    """Turns batches of the source's columns into batches of the table's."""

    def __init__(self, shape: TableShape, offset_range: OffsetRange) -> None:
        self._shape = shape
        self._range = offset_range
        self._suspicions = Suspicions()
        self.new_fields: set[str] = set()
        """Fields of JSON values without a column, as far as they were looked at."""

    def rows(self, batch: pa.RecordBatch, offsets: pa.Array | None) -> pa.RecordBatch:
        """`offsets` are the records', to name a bad one; raises `UnparsableRecord` if one is not to be kept."""
        match self._shape.value:
            case ValueFormat.RAW:
                return batch
            case ValueFormat.TEXT:
                return self._text(batch, offsets)
            case ValueFormat.JSON:
                return self._json(batch, offsets)

    def _text(self, batch: pa.RecordBatch, offsets: pa.Array | None) -> pa.RecordBatch:
        values = batch.column("value")
        bad: dict[int, str] = {}
        try:
            text = values.cast(pa.string())
        except pa.ArrowInvalid:
            decoded: list[str | None] = []
            for row, value in enumerate(values.to_pylist()):
                try:
                    decoded.append(None if value is None else value.decode())
                except UnicodeDecodeError as error:
                    decoded.append(None)
                    bad[row] = str(error)
            text = pa.array(decoded, pa.string())
        self._refuse(bad, values, offsets)
        return self._assembled(batch, {"value": text}, values, bad)

    def _json(self, batch: pa.RecordBatch, offsets: pa.Array | None) -> pa.RecordBatch:
        values = batch.column("value")
        parsed, bad = parse_values(values, self._shape.value_schema, self._suspicions)
        parsed, lacking = without_lacking(parsed)
        bad = lacking | bad
        self._refuse(bad, values, offsets)
        if self._shape.tells_new and len(self.new_fields) < NEW_FIELDS_MAX:
            self.new_fields |= unknown_fields(values, self._shape.value_schema)
        columns = dict(zip(parsed.schema.names, parsed.columns, strict=True))
        columns |= {name: batch.column(METADATA[name]) for name in self._shape.schema.names if name in METADATA}
        return self._assembled(batch, columns, values, bad)

    def _refuse(self, bad: dict[int, str], values: pa.Array, offsets: pa.Array | None) -> None:
        if not bad or self._shape.bad_records is BadRecords.KEEP:
            return
        row, reason = min(bad.items())
        offset = "?" if offsets is None else offsets[row].as_py()
        payload = values[row].as_py()
        shown = "null" if payload is None else repr(payload[:120])
        raise UnparsableRecord(
            f"{self._range.topic}-{self._range.partition}, offset {offset}: not {self._shape.value.value}: {reason}."
            f" The value is {shown}. Nothing of this batch was written. To keep such records with"
            f" their payload in column {UNPARSED}, write a new table with --bad-records keep"
        )

    def _assembled(
        self, batch: pa.RecordBatch, columns: dict[str, pa.Array], values: pa.Array, bad: dict[int, str]
    ) -> pa.RecordBatch:
        if self._shape.bad_records is BadRecords.KEEP:
            if bad:
                marks = _marks(len(values), bad)
                reasons = pa.array([bad[row] for row in sorted(bad)], pa.string())
                columns[UNPARSED] = pc.if_else(marks, values, pa.scalar(None, pa.binary()))
                columns[REASON] = pc.replace_with_mask(pa.nulls(len(values), pa.string()), marks, reasons)
            else:
                columns[UNPARSED] = pa.nulls(len(values), pa.binary())
                columns[REASON] = pa.nulls(len(values), pa.string())
        schema = self._shape.schema
        arrays = [columns[name] if name in columns else batch.column(name) for name in schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _marks(count: int, rows: Iterable[int]) -> pa.BooleanArray:
    """True at these rows of `count`."""
    flags = bytearray(count)
    for row in rows:
        flags[row] = 1
    return pa.Array.from_buffers(pa.uint8(), count, [None, pa.py_buffer(flags)]).cast(pa.bool_())


class RangeWriter:
    """Writes the rows of one range into one file of the table, which is made when there is a first row."""

    def __init__(self, table_path: str, shape: TableShape, offset_range: OffsetRange) -> None:
        self._range = offset_range
        self._shape = shape
        self._table_path = table_path.rstrip("/")
        self._filesystem, self._root = _filesystem(table_path)
        topic = offset_range.topic[:_TOPIC_SHOWN_MAX]
        self._name = f"part-{topic}-{offset_range.partition:05d}-{offset_range.start:020d}-{uuid.uuid4()}.parquet"
        self._writer: pq.ParquetWriter | None = None
        self._is_begun = False
        """Whether there may be a file."""
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._rows = 0
        self._bytes = 0
        self._metadata: list[pq.FileMetaData] = []
        self._floats = [each.name for each in shape.schema if pa.types.is_floating(each.type)]
        self._with_nan: set[str] = set()
        """Columns of floats that have NaN, which Parquet's bounds leave out."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Rows of the table's schema; written when there are enough for a row group. `TableNotWritten`."""
        self._with_nan |= {name for name in self._floats if pc.any(pc.is_nan(batch.column(name))).as_py()}
        self._pending.append(batch)
        self._pending_bytes += batch.nbytes
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._pending_bytes >= ROW_GROUP_BYTES:
            with self._refusals():
                self._write_group()

    def finish(self) -> WrittenRange:
        """Closes the file; says what is in it. `TableNotWritten`."""
        with self._refusals():
            if self._pending:
                self._write_group()
            if self._writer is None:
                return WrittenRange(self._range, "", 0, 0, file_statistics(0, {}), 0)
            self._writer.close()
            sync_files(self._table_path, [self._name])
            size = self._filesystem.get_file_info(f"{self._root}/{self._name}").size
        statistics = _statistics(self._metadata[0], self._rows, self._with_nan)
        return WrittenRange(self._range, self._name, size, self._rows, statistics, self._bytes)

    def abandon(self) -> None:
        """After an error: removes what was written of the file; a crash leaves it to the table's vacuum."""
        if not self._is_begun:
            return
        try:
            if self._writer is not None:
                self._close_in_vain(self._writer)
            self._filesystem.delete_file(f"{self._root}/{self._name}")
        except OSError as error:
            _log_left(self._root, self._name, error)

    @staticmethod
    def _close_in_vain(writer: pq.ParquetWriter) -> None:
        """What is left in memory may find no room, or be half a row group, and is of no use."""
        try:
            writer.close()
        except (OSError, RuntimeError):
            writer.is_open = False  # Or it would be tried again when the object goes.
            with suppress(OSError):  # The same bytes.
                writer.close()

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Tells what the table's place refuses with the offsets that it is about."""
        try:
            yield
        except OSError as error:
            raise TableNotWritten(
                f"{self._range} could not be written to {self._root}: {in_one_line(error)}. Nothing of this batch is"
                " in the table; the next run takes it again"
            ) from error

    def _write_group(self) -> None:
        schema = pa.schema([each.with_type(_optional_within(each.type)) for each in self._shape.schema])
        table = pa.Table.from_batches(self._pending)
        if schema != self._shape.schema:
            table = table.cast(schema)
        if self._writer is None:
            self._is_begun = True
            delta_encoded = [each.name for each in schema if each.name in _DELTA_ENCODED and _counts(each.type)]
            whole = {"value", "key", "_key", UNPARSED, *delta_encoded}
            self._writer = pq.ParquetWriter(
                f"{self._root}/{self._name}",
                schema,
                filesystem=self._filesystem,
                compression=_COMPRESSION,
                # Keys, values and offsets hardly repeat: a dictionary of them would be built only to be thrown away.
                use_dictionary=[name for name in schema.names if name not in whole],
                column_encoding=dict.fromkeys(delta_encoded, "DELTA_BINARY_PACKED"),
                # Least and greatest payloads help no reader, and cost a comparison a record.
                write_statistics=[name for name in schema.names if name not in ("value", "key", "_key", UNPARSED)],
                store_schema=False,
                metadata_collector=self._metadata,
            )
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._pending.clear()
        self._pending_bytes = 0


def _optional_within(kind: pa.DataType) -> pa.DataType:
    """The type without NOT NULL of fields within: Arrow's writer takes those of a struct that is null for missing."""
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _optional_within(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _optional_within(each.type)) for each in kind])
    return kind


def _counts(kind: pa.DataType) -> bool:
    """Whether a column can count upwards: a field of JSON values may have the name of one, and any type."""
    return bool(pa.types.is_int64(kind) or pa.types.is_timestamp(kind))


def write_range(options: SourceOptions, offset_range: OffsetRange, table_path: str, shape: TableShape) -> WrittenRange:
    """Fetches, decodes, shapes and writes one range of offsets."""
    names = shape.source_columns
    # A bad record is named by its offset, so that is decoded even where the table does not want it.
    decoded = names if "offset" in names else (*names, "offset")
    maker = RecordBatches(decoded, offset_range.topic, offset_range.partition)
    shaper = RowShaper(shape, offset_range)
    writer = RangeWriter(table_path, shape, offset_range)
    try:
        with kept_cluster(options) as cluster:
            for columns in read_columns(cluster, options, offset_range, decoded_columns(decoded)):
                batch = maker.batch(columns)
                rows = shaper.rows(batch.select(names), batch.column("offset"))
                writer.add(rows)
        return replace(writer.finish(), new_fields=told_fields(shaper.new_fields))
    except BaseException:
        writer.abandon()
        raise


def remove_files(table_path: str, names: Sequence[str]) -> None:
    """Removes files that no version of the table has; those that its place does not let go are the vacuum's."""
    filesystem, root = _filesystem(table_path)
    for name in names:
        try:
            filesystem.delete_file(f"{root}/{name}")
        except OSError as error:
            _log_left(root, name, error)


def _log_left(root: str, name: str, error: OSError) -> None:
    logger.warning("file_left: table=%s file=%s reason=%s", root, name, in_one_line(error))


def _filesystem(path: str) -> tuple[pyarrow.fs.FileSystem, str]:
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    if endpoint and path.startswith("s3://"):
        # delta-rs goes by this variable, pyarrow does not: both have to write to the same server.
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        return pyarrow.fs.S3FileSystem(endpoint_override=endpoint, region=region), path.removeprefix("s3://").rstrip(
            "/"
        )
    if "://" in path:
        filesystem, root = pyarrow.fs.FileSystem.from_uri(path)
        return filesystem, root.rstrip("/")
    return pyarrow.fs.LocalFileSystem(), path.rstrip("/")


def _statistics(metadata: pq.FileMetaData, rows: int, with_nan: Collection[str]) -> str:
    """Least, greatest and nulls of the flat columns that have them, over all row groups. A column with NaN, which is
    greater than all numbers, has no greatest."""
    columns: dict[str, tuple[Any, Any, int]] = {}
    for index in range(metadata.num_columns):
        groups = [metadata.row_group(group).column(index) for group in range(metadata.num_row_groups)]
        name = groups[0].path_in_schema
        found = [group.statistics for group in groups]
        if "." in name or any(each is None or not each.has_null_count for each in found):
            continue
        nulls = sum(each.null_count for each in found)
        bounded = [each for each in found if each.has_min_max]
        if not bounded or len(bounded) < sum(each.num_values > 0 for each in found):
            columns[name] = (None, None, nulls)
            continue
        try:
            least, greatest = _bounds(min(each.min for each in bounded), max(each.max for each in bounded))
        except OverflowError:
            least = greatest = None  # Timestamps beyond the years that Python knows.
        columns[name] = (least, None if name in with_nan else greatest, nulls)
    return file_statistics(rows, columns)


_TEXT_BOUND_MAX: Final = 32


def _bounds(least: Any, greatest: Any) -> tuple[Any, Any]:
    """As Delta writes them; bounds of long text are left out, since a cut one would have to be rounded up."""
    if isinstance(least, datetime.datetime):
        return _timestamp_text(least, 0), _timestamp_text(greatest, 999)
    if isinstance(least, datetime.date):
        return least.isoformat(), greatest.isoformat()
    if isinstance(least, str) and (len(least) > _TEXT_BOUND_MAX or len(greatest) > _TEXT_BOUND_MAX):
        return None, None
    if isinstance(least, (bool, int, str)):
        return least, greatest
    if isinstance(least, float) and least - least == 0.0 == greatest - greatest:
        return least, greatest
    return None, None


def _timestamp_text(moment: datetime.datetime, beyond_ms_us: int) -> str:
    """Milliseconds, as Delta has them; `beyond_ms_us` rounds an upper bound up. What has no zone stays without."""
    in_utc = moment if moment.tzinfo is None else moment.astimezone(datetime.UTC)
    rounded = in_utc + datetime.timedelta(microseconds=beyond_ms_us)
    return rounded.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def manifest_schema() -> pa.Schema:
    """The row that a task gives Spark for each range: `table_files.MANIFEST_DDL`."""
    return pa.schema(
        [
            pa.field("topic", pa.string()),
            pa.field("partition", pa.int32()),
            pa.field("start", pa.int64()),
            pa.field("end", pa.int64()),
            pa.field("topicId", pa.string()),
            pa.field("path", pa.string()),
            pa.field("size", pa.int64()),
            pa.field("rows", pa.int64()),
            pa.field("statistics", pa.string()),
            pa.field("recordBytes", pa.int64()),
            pa.field("newFields", pa.list_(pa.field("element", pa.string()))),
        ]
    )


def manifest(written: WrittenRange) -> Iterator[pa.RecordBatch]:
    """`written` as the one batch of a task."""
    offsets = written.offsets
    row = {
        "topic": offsets.topic,
        "partition": offsets.partition,
        "start": offsets.start,
        "end": offsets.end,
        "topicId": offsets.topic_id,
        "path": written.path,
        "size": written.size,
        "rows": written.rows,
        "statistics": written.statistics,
        "recordBytes": written.record_bytes,
        "newFields": list(written.new_fields),
    }
    yield pa.RecordBatch.from_pylist([row], schema=manifest_schema())


def from_manifest(row: Any) -> WrittenRange:
    """The inverse of `manifest`, from a row that Spark collected."""
    offsets = OffsetRange(row["topic"], row["partition"], row["start"], row["end"], row["topicId"])
    return WrittenRange(
        offsets, row["path"], row["size"], row["rows"], row["statistics"], row["recordBytes"], tuple(row["newFields"])
    )
