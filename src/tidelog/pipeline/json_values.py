"""Record values that are JSON objects, as typed columns: in bulk by Arrow's parser, one by one where that fails.

Arrow parses newline-delimited JSON at hundreds of MB/s, but it sees one stream of text, not records: a value with a
line break, two objects in one value, or a brace too few would shift all rows after it. So the bulk way is taken only
where it cannot shift: every value begins with "{" and ends with "}", none holds a line break, and as many rows come out
as went in. (A value that leaves an object open ends with "}", so the next one's "{" is a syntax error, not a
continuation.) What fails that is set aside, and parsed record by record, where a bad one is found and named; where
the parser fails all the same, what may have the fault that it tells of is set aside as well (`json_pattern`).
"""

import io
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from tidelog.pipeline.errors import UnparsableRecord
from tidelog.pipeline.json_pattern import NOT_UTF8, Suspicion, suspected, suspicion

NEW_FIELDS_MAX: Final = 100
"""Fields without a column that are told of a batch; its commit names them."""
NAME_SHOWN_MAX: Final = 100
"""Characters of such a name."""
_BLOCK_BYTES_MAX: Final = 64 << 20
"""Of text that Arrow parses at once: a record larger than a block could not be parsed."""
_KINDS_OF_FAULTS: Final = 6
"""How often the rows that may have the fault that Arrow's parser met are set aside: it tells of one fault at a time."""
_LOOKED_AT_FIRST: Final = 20
_LOOKED_AT: Final = 100
"""Values of a slice that are looked at for fields without a column."""
_REMEMBERED_MAX: Final = 3
"""Kinds of faults that are looked for from the start: each costs a pass over the values."""
_SUSPECTED_SHARE: Final = 50
"""One value of so many may be suspected before it is parsed: one by one takes fifty times as long."""
_IN_DAYS: Final = "changed from string to number"
"""What Arrow's parser says of days where it is told to expect text."""
_IN_SPARK_ONLY: Final = frozenset({b"variant", b"geometry", b"geography"})
"""By what in a field's metadata PySpark tells a struct of bytes that stands for a type of Spark's own."""
_NESTED_MAX: Final = 32
"""Objects and lists in one another that become a column: delta-rs ends the process where it meets some fifty."""
_HALVED_MIN: Final = 64
"""Rows that are parsed one by one rather than halved once more."""


class Suspicions:
    """What was wrong with values of earlier slices, for those of one schema: most likely others have it, too.

    To look for it before they are parsed costs less than a parser that stops in their midst. What no value of a slice
    has is forgotten, and what many have: values that are nested deeply, for example, are no fault.
    """

    def __init__(self) -> None:
        self._known: list[Suspicion] = []

    def found_in(self, values: pa.BinaryArray) -> Iterator[pa.BooleanArray]:
        """The values that each suspicion is about."""
        for each in list(self._known):
            found = suspected(values, each)
            if 0 < found.true_count <= max(1, len(values) // _SUSPECTED_SHARE):
                yield found
            else:
                self._known.remove(each)

    def add(self, found: Suspicion) -> None:
        if found not in self._known:
            self._known = [*self._known, found][-_REMEMBERED_MAX:]


def parse_values(
    values: pa.BinaryArray, schema: pa.Schema, suspicions: Suspicions | None = None
) -> tuple[pa.RecordBatch, dict[int, str]]:
    """The columns of `schema` from each value, and why not, by row, for those that can't be parsed (all null there).

    Null values (tombstones) give null columns and are no errors. Fields that the schema does not have are dropped.
    `suspicions` are those of earlier slices, and take this one's.
    """
    known = Suspicions() if suspicions is None else suspicions
    if len(values) == 0:
        return pa.RecordBatch.from_pylist([], schema=schema), {}
    filled = pc.fill_null(values, b"{}") if values.null_count else values
    aside = pc.invert(pc.and_(pc.starts_with(filled, pattern=b"{"), pc.ends_with(filled, pattern=b"}")))
    for found in known.found_in(filled):
        aside = pc.or_(aside, found)
    for _ in range(_KINDS_OF_FAULTS):
        is_any_aside = aside.true_count > 0
        outcome = _parse_bulk(pc.if_else(aside, b"{}", filled) if is_any_aside else filled, schema)
        if isinstance(outcome, pa.RecordBatch):
            return _with_those_aside(outcome, values, aside, schema) if is_any_aside else (outcome, {})
        before = aside.true_count
        cause = suspicion(schema, outcome)
        aside = pc.or_(aside, suspected(filled, cause))
        if aside.true_count == before:
            break
        known.add(cause)
    return _parse_halves(values, schema)


def without_lacking(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, str]]:
    """`rows` with nulls throughout where one has a null that its column, or a field within it, cannot have; and which
    that is, by row."""
    lacking: dict[int, str] = {}
    for each in rows.schema:
        for row, name in _lacking(rows.column(each.name), each, each.name):
            lacking.setdefault(row, f"{name} is missing or null, and its column is NOT NULL")
    if not lacking:
        return rows, lacking
    return rows.take(pa.array([None if row in lacking else row for row in range(len(rows))], pa.int64())), lacking


def _lacking(values: pa.Array, field: pa.Field, name: str) -> Iterator[tuple[int, str]]:
    """Rows of a column that are null, or have a null within, where `field` does not allow it; and where that is."""
    if not field.nullable and values.null_count:
        yield from ((row, name) for row in pc.indices_nonzero(values.is_null()).to_pylist())
    if not _requires_within(field.type):
        return
    if pa.types.is_struct(field.type):
        for inner, part in zip(field.type, values.flatten(), strict=True):
            for row, where in _lacking(part, inner, f"{name}.{inner.name}"):
                if values[row].is_valid:
                    yield row, where
    elif pa.types.is_list(field.type):
        parents = pc.list_parent_indices(values)
        for place, where in _lacking(values.flatten(), field.type.value_field, name):
            yield parents[place].as_py(), where


def _requires_within(kind: pa.DataType) -> bool:
    """Whether a type has fields that cannot be null."""
    fields = [kind.field(place) for place in range(kind.num_fields)]
    return any(not each.nullable or _requires_within(each.type) for each in fields)


def unknown_fields(values: pa.BinaryArray, schema: pa.Schema) -> set[str]:
    """Fields that the schema has no column for, `a.b` within structs, in the first values and in some of the others:
    looking at all would cost as much as parsing them."""
    count = len(values)
    step = max(1, count // _LOOKED_AT)
    found: set[str] = set()
    for row in {*range(min(count, _LOOKED_AT_FIRST)), *range(0, count, step)}:
        value = values[row].as_py()
        try:
            found |= _unknown({} if value is None else _load_object(value), schema)
        except ValueError:
            continue
    return found


def told_fields(names: Iterable[str]) -> tuple[str, ...]:
    """Those of the names that are told: objects whose fields are keys of something have new ones without end."""
    few = sorted(set(names))[:NEW_FIELDS_MAX]
    return tuple(name if len(name) <= NAME_SHOWN_MAX else f"{name[:NAME_SHOWN_MAX]}..." for name in few)


def _unknown(document: dict[str, Any], fields: Iterable[pa.Field], within: str = "") -> set[str]:
    known = {each.name: each.type for each in fields}
    # No column, and no Arrow batch, has half of a surrogate pair.
    found = {f"{within}{name}".encode(errors="replace").decode() for name in document if name not in known}
    for name, value in document.items():
        if isinstance(value, dict) and pa.types.is_struct(known.get(name, pa.null())):
            found |= _unknown(value, known[name], f"{within}{name}.")
    return found


def infer_schema(values: Sequence[bytes | None], *, skips_bad: bool = False) -> pa.Schema:
    """The columns that fit all of these sample values; raises `UnparsableRecord` if one is no JSON object,
    or if a field has several types that no column has.

    With `skips_bad` what is no JSON object is passed over, and a field has the type that most of its values have: the
    others will be bad records. Whole numbers are int64, others float64; text that is a timestamp throughout becomes
    one, in UTC.
    """
    objects = []
    for value in values:
        if value is None:
            continue
        try:
            document = _load_object(value)
            _refuse_half_pairs(document)
            objects.append(document)
        except ValueError as error:
            if not skips_bad:
                raise UnparsableRecord(f"a sampled value is no JSON object ({error}): {value[:120]!r}") from None
    if any(_depth(each) > _NESTED_MAX for each in objects):
        if not skips_bad:
            raise UnparsableRecord(f"a sampled value is nested more than {_NESTED_MAX} deep: give a schema")
        objects = [each for each in objects if _depth(each) <= _NESTED_MAX]
    if not objects:
        what = "there is no record yet" if not any(values) else "none of the sampled records is a JSON object"
        raise UnparsableRecord(f"{what} to infer columns from: give a schema")
    try:
        inferred = _inferred(objects)
    except pa.ArrowInvalid as error:
        if not skips_bad:
            raise UnparsableRecord(f"no columns fit all of the sampled records ({error}): give a schema") from None
        inferred = _inferred_by_majority(objects)
    fields = _storable_fields(inferred)
    if not fields:
        raise UnparsableRecord("the sampled records are empty objects: give a schema")
    return pa.schema(fields)


def _refuse_half_pairs(document: dict[str, Any]) -> None:
    """ValueError where a text has half of a surrogate pair, of which Arrow has none."""
    if _depth(document) <= _NESTED_MAX:
        json.dumps(document, ensure_ascii=False).encode()


def _depth(document: Any) -> int:
    """How deep objects and lists are nested."""
    depth, level = 0, [document]
    while level:
        depth += 1
        parts = [part for each in level for part in (each.values() if isinstance(each, dict) else each)]
        level = [each for each in parts if isinstance(each, (dict, list))]
    return depth


def _inferred(objects: Sequence[dict[str, Any]]) -> pa.Schema:
    text = "\n".join(json.dumps(each) for each in objects).encode()
    return pj.read_json(io.BytesIO(text), read_options=_read_options(len(text))).schema


def _inferred_by_majority(objects: Sequence[dict[str, Any]]) -> pa.Schema:
    """Each field by itself, of the kind of value that it has most often."""
    fields: list[pa.Field] = []
    for name in dict.fromkeys(name for each in objects for name in each):
        values = [each[name] for each in objects if each.get(name) is not None]
        kinds = Counter(_kind(value) for value in values)
        usual = kinds.most_common(1)[0][0] if kinds else None
        try:
            fields += _inferred([{name: value} for value in values if _kind(value) == usual] or [{name: None}])
        except pa.ArrowInvalid as error:
            raise UnparsableRecord(
                f"no column fits most of the sampled values of {name} ({error}): give a schema"
            ) from None
    return pa.schema(fields)


def _kind(value: Any) -> str:
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def _storable_fields(fields: Iterable[pa.Field]) -> list[pa.Field]:
    kinds = [(each.name, _storable(each.type)) for each in fields]
    return [pa.field(name, kind) for name, kind in kinds if kind is not None]


def _storable(kind: pa.DataType) -> pa.DataType | None:
    """The type that Delta and Spark have for what Arrow inferred; None for objects without fields: Parquet has none."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_list(kind):
        within = _storable(kind.value_type)
        return None if within is None else pa.list_(within)
    if pa.types.is_struct(kind):
        fields = _storable_fields(kind)
        return pa.struct(fields) if fields else None
    return kind


def _read_options(size: int) -> pj.ReadOptions:
    # One block, one thread: a task has one core, and its values fit in memory anyway.
    return pj.ReadOptions(use_threads=False, block_size=max(1 << 16, size + 1))


def _parse_bulk(values: pa.BinaryArray, schema: pa.Schema) -> pa.RecordBatch | str:
    """All of `values`, each of which begins and ends with a brace; or what is wrong with one of them."""
    if values.nbytes > _BLOCK_BYTES_MAX:
        return "too large"
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return NOT_UTF8
    rows = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    text = pc.binary_join(rows, b"\n")[0].as_buffer()
    # Of bytes: Arrow's count_substring takes five times as long for one character.
    if text.to_pybytes().count(b"\n") != len(values) - 1:
        return "a line break"
    table = _read(text, schema)
    if isinstance(table, str):
        return table
    if table.num_rows != len(values):
        return "another number of rows"
    batch = pa.RecordBatch.from_arrays([_single(table.column(name)) for name in schema.names], schema=schema)
    if any(_holds(each.type, pa.types.is_decimal) for each in schema):
        try:
            batch.validate(full=True)  # The parser takes decimals with more digits than their type has.
        except pa.ArrowInvalid as error:
            return str(error)
    return batch


def _read(text: pa.Buffer, schema: pa.Schema) -> pa.Table | str:
    """The columns of `schema` from lines of JSON; or what is wrong. Arrow's parser takes days since 1970 for a date,
    and its casts take text."""
    parsed = pa.schema([pa.field(each.name, _dates_as_text(each.type)) for each in schema])
    outcome = _read_as(text, parsed)
    if parsed.types == schema.types:
        return outcome
    if isinstance(outcome, pa.Table):
        try:
            return outcome.cast(schema)
        except pa.ArrowInvalid as error:
            return str(error)
    in_days = _read_as(text, schema)
    return in_days if isinstance(in_days, pa.Table) or _IN_DAYS in outcome else outcome


def _read_as(text: pa.Buffer, schema: pa.Schema) -> pa.Table | str:
    try:
        return pj.read_json(
            pa.BufferReader(text),
            read_options=_read_options(text.size),
            parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid as error:
        return str(error)


def _dates_as_text(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_dates_as_text(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _dates_as_text(each.type)) for each in kind])
    return kind


def can_be_parsed(kind: pa.DataType) -> bool:
    """Whether values may have a field of this type: Arrow's parser has no maps, and tables have no column of others."""
    return not _holds(kind, _is_no_field)


def _is_no_field(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return not kind.num_fields or any(not _IN_SPARK_ONLY.isdisjoint(each.metadata or ()) for each in kind)
    return bool(pa.types.is_map(kind) or pa.types.is_duration(kind) or pa.types.is_time(kind))


def _holds(kind: pa.DataType, is_one: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type is one of these, or one is within it."""
    return is_one(kind) or any(_holds(kind.field(place).type, is_one) for place in range(kind.num_fields))


def _with_those_aside(
    batch: pa.RecordBatch, values: pa.BinaryArray, aside: pa.BooleanArray, schema: pa.Schema
) -> tuple[pa.RecordBatch, dict[int, str]]:
    """`batch` with the rows that were set aside, which are null in it, parsed one by one."""
    rows = pc.indices_nonzero(aside).to_pylist()
    careful, reasons = _parse_one_by_one(values.filter(aside), schema)
    bad = {rows[row]: reason for row, reason in reasons.items()}
    if len(bad) == len(rows):
        return batch, bad
    places = list(range(len(values)))
    for place, row in enumerate(rows):
        places[row] = len(values) + place
    table = pa.Table.from_batches([batch, careful]).take(pa.array(places, pa.int64()))
    return _one_batch(table, schema), bad


def _parse_halves(values: pa.BinaryArray, schema: pa.Schema) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Where nothing tells which value it is that Arrow's parser does not take, or the values are too large for it."""
    if len(values) <= _HALVED_MIN:
        return _parse_one_by_one(values, schema)
    half = len(values) // 2
    first, bad = parse_values(values.slice(0, half), schema)
    second, also_bad = parse_values(values.slice(half), schema)
    bad |= {row + half: reason for row, reason in also_bad.items()}
    return _one_batch(pa.Table.from_batches([first, second]), schema), bad


def _one_batch(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_single(column) for column in table.columns], schema=schema)


def _single(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _parse_one_by_one(values: pa.BinaryArray, schema: pa.Schema) -> tuple[pa.RecordBatch, dict[int, str]]:
    rows: list[dict[str, Any]] = []
    bad: dict[int, str] = {}
    for row, value in enumerate(values.to_pylist()):
        try:
            rows.append({} if value is None else _typed(_load_object(value), schema))
        except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
            rows.append({})
            bad[row] = str(error)
    return pa.RecordBatch.from_pylist(rows, schema=schema), bad


def _typed(document: dict[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """The schema's fields of one object, checked by Arrow's own conversion so that a batch of them cannot fail."""
    row: dict[str, Any] = {}
    for each in schema:
        value = document.get(each.name)
        if value is None:
            continue
        try:
            row[each.name] = _scalar(value, each.type)
        except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
            raise ValueError(f"{each.name} is {value!r:.80}, not {each.type}: {error}") from None
    return row


def _scalar(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(kind):
        if not isinstance(value, str):
            raise ValueError("a timestamp is text such as 2013-01-01T10:00:00Z")
        return _timestamp(value).cast(kind, safe=False).as_py()
    if isinstance(value, str) and value.isascii() and pa.types.is_string(kind):
        return value  # As Arrow would give it back, which takes as long as all the rest.
    return pa.scalar(_readable(value, kind), kind).as_py()


def _readable(value: Any, kind: pa.DataType) -> Any:
    """`value` with its timestamps, dates, decimals and floats, however deep, as Python's: Arrow takes no text for the
    former here, and no large whole number for the latter, though its parser does. ValueError for what the parser
    refuses and Arrow makes another number of: fractions for whole numbers, true and false."""
    if value is None:
        return None
    if pa.types.is_timestamp(kind):
        return _scalar(value, kind)
    if pa.types.is_boolean(kind) is not isinstance(value, bool):
        raise ValueError("wrong type")
    if isinstance(value, float) and (pa.types.is_integer(kind) or pa.types.is_date(kind)):
        raise ValueError("wrong type")
    if pa.types.is_date(kind):
        return pa.scalar(value).cast(kind).as_py() if isinstance(value, str) else value
    if pa.types.is_decimal(kind) and isinstance(value, (str, _Fraction)):
        return pa.scalar(value.text if isinstance(value, _Fraction) else value).cast(kind).as_py()
    if pa.types.is_floating(kind) and isinstance(value, (int, float)):
        if isinstance(value, _Fraction) and math.isinf(value):
            raise ValueError("too large")  # Infinity itself is none.
        return float(value)
    if pa.types.is_list(kind) and isinstance(value, list):
        return [_readable(each, kind.value_type) for each in value]
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {each.name: _readable(value.get(each.name), each.type) for each in kind}
    return value


class _Fraction(float):
    """A number with a fraction or an exponent. A decimal needs its digits, of which a float keeps some only."""

    text: str

    def __new__(cls, text: str) -> "_Fraction":
        made = super().__new__(cls, text)
        made.text = text
        return made


_TIMESTAMP_FORMS: Final = (pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.timestamp("ns", "UTC"))


def _timestamp(text: str) -> pa.Scalar:
    """ISO 8601 in the forms that Arrow knows; without a zone it is UTC, as in the bulk way."""
    for form in _TIMESTAMP_FORMS:
        try:
            return pa.scalar(text).cast(form)
        except pa.ArrowInvalid:
            continue
    raise ValueError("a timestamp is text such as 2013-01-01T10:00:00Z")


def _load_object(value: bytes) -> dict[str, Any]:
    try:
        document = json.loads(value, parse_float=_Fraction)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(document, dict):
        raise ValueError(f"a JSON {type(document).__name__}, not an object")
    return document
