"""JSON values as columns: the bulk way and the careful way agree, and rows never shift."""

from __future__ import annotations

import datetime
import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amount import examples

from tidelog.pipeline import json_values
from tidelog.pipeline.errors import TableMismatch, UnparsableRecord
from tidelog.pipeline.json_values import Suspicions, infer_schema, parse_values, unknown_fields
from tidelog.pipeline.shape import json_shape

SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.string()),
        ("c", pa.float64()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("ok", pa.bool_()),
    ]
)

SCALARS: Any = (
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6) | st.sampled_from(["2013-01-01T10:00:00Z", "2013-01-01", "2013-01-01 10:00:00"])
)  # fmt: skip
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "c", "t", "ok", "z"]), SCALARS | st.lists(SCALARS, max_size=2))
MUTATIONS = st.sampled_from(
    [b"", b"{", b"}", b"{}", b"\n", b" ", b"{}{}", b"\xff", b"[1]", b'{"a":1}\n{"a":2}', b'{"a":{}']
)
VALUES = st.one_of(st.none(), OBJECTS.map(lambda value: json.dumps(value).encode()), MUTATIONS, st.binary(max_size=8))


@settings(max_examples=examples(2000))
@given(st.lists(VALUES, max_size=6))
def test_a_value_means_the_same_alone_and_among_others(values: list[bytes | None]) -> None:
    """Each row is what its value gives by itself, whatever stands before and after it."""
    batch, bad = parse_values(pa.array(values, pa.binary()), SCHEMA)
    batch.validate(full=True)
    assert batch.num_rows == len(values)
    for row, value in enumerate(values):
        alone, alone_bad = parse_values(pa.array([value], pa.binary()), SCHEMA)
        assert batch.slice(row, 1).to_pylist() == alone.to_pylist()
        assert (row in bad) == (0 in alone_bad)


def test_the_bulk_way_is_taken_for_good_values() -> None:
    """Many good values are one call of Arrow's parser, and come out the same as one by one."""
    values = pa.array(
        [json.dumps({"a": index, "b": f"n{index}", "c": index / 2}).encode() for index in range(500)], pa.binary()
    )
    bulk = json_values._parse_bulk(values, SCHEMA)
    assert isinstance(bulk, pa.RecordBatch)
    careful, bad = json_values._parse_one_by_one(values, SCHEMA)
    assert not bad
    assert bulk.equals(careful)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "Expecting value"),
        (b"[1]", "a JSON list, not an object"),
        (b"\xff", "can't decode"),
        (b'{"a": "x"}', "a is 'x', not int64"),
        (b'{"a": true}', "a is True, not int64"),
        (b'{"t": 5}', "t is 5, not timestamp"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_bad_values_have_a_reason(value: bytes, reason: str) -> None:
    """The others in the batch are parsed all the same."""
    batch, bad = parse_values(pa.array([b'{"a": 1}', value, b'{"a": 3}'], pa.binary()), SCHEMA)
    assert list(bad) == [1]
    assert reason in bad[1]
    assert batch.column("a").to_pylist() == [1, None, 3]


def test_inference() -> None:
    """Types fit all samples; a field that is always null becomes text; timestamps are UTC."""
    samples = [b'{"i": 1, "f": 1, "n": null, "t": "2013-01-01T10:00:00Z"}', None, b'{"f": 1.5, "l": [{"x": 1}]}']
    assert infer_schema(samples) == pa.schema(
        [
            ("i", pa.int64()),
            ("f", pa.float64()),
            ("n", pa.string()),
            ("t", pa.timestamp("us", tz="UTC")),
            ("l", pa.list_(pa.struct([("x", pa.int64())]))),
        ]
    )
    for nothing in ([], [None], [b"{}"], [b"text"]):
        with pytest.raises(UnparsableRecord):
            infer_schema(nothing)


def test_times_without_a_zone_are_utc() -> None:
    """In both ways of parsing."""
    expected = datetime.datetime(2013, 1, 1, 10, tzinfo=datetime.UTC)
    for text in ("2013-01-01T10:00:00Z", "2013-01-01 10:00:00", "2013-01-01T12:00:00+02:00"):
        batch, _ = parse_values(pa.array([json.dumps({"t": text}).encode()], pa.binary()), SCHEMA)
        assert batch.column("t").to_pylist() == [expected]


NESTED: Any = [
    (
        "struct",
        pa.struct([("t", pa.timestamp("us", tz="UTC")), ("n", pa.int64())]),
        '{"t": "2013-01-01T10:00:00Z", "n": 1}',
    ),
    ("large", pa.struct([("f", pa.float64())]), '{"f": 1152921504606846977}'),
    ("larger", pa.list_(pa.float64()), "[66856942201819738167, 1, 0.5]"),
    ("list", pa.list_(pa.timestamp("us", tz="UTC")), '["2013-01-01", null, "2013-01-01 10:00:00"]'),
    ("date", pa.date32(), '"2013-01-31"'),
    ("days", pa.date32(), "15736"),
    ("dates", pa.list_(pa.struct([("d", pa.date32())])), '[{"d": "2013-01-31"}, {"d": null}, {}]'),
    ("decimal", pa.decimal128(20, 2), "123456789012345678.25"),
    ("decimal as text", pa.decimal128(10, 2), '"1.25"'),
    ("decimals", pa.list_(pa.struct([("d", pa.decimal128(10, 2))])), '[{"d": 1.1}, {"d": 5}, {"d": "1e2"}, {}]'),
]


@pytest.mark.parametrize(("kind", "value"), [each[1:] for each in NESTED], ids=[each[0] for each in NESTED])
def test_what_is_good_in_bulk_is_good_beside_a_bad_value_too(kind: pa.DataType, value: str) -> None:
    """One by one they come out as in bulk: what stands beside a value makes it no bad one."""
    schema = pa.schema([("a", pa.int64()), ("x", kind)])
    good = f'{{"a": 1, "x": {value}}}'.encode()
    alone = json_values._parse_bulk(pa.array([good], pa.binary()), schema)
    assert isinstance(alone, pa.RecordBatch)
    batch, bad = parse_values(pa.array([good, b'{"a": "one"}', good + b" "], pa.binary()), schema)
    assert list(bad) == [1]
    assert [batch.slice(row, 1).to_pylist() for row in (0, 2)] == [alone.to_pylist()] * 2


@pytest.mark.parametrize(
    "value", ['{"t": "yesterday"}', '{"t": 5}', '{"t": ["2013-01-01"]}', '{"d": "x"}', '{"d": "1.255"}']
)
def test_what_is_no_time_or_decimal_is_bad_within_a_struct(value: str) -> None:
    kind = pa.struct([("t", pa.timestamp("us", tz="UTC")), ("d", pa.decimal128(10, 2))])
    _, bad = parse_values(pa.array([f'{{"x": {value}}}'.encode()], pa.binary()), pa.schema([("x", kind)]))
    assert list(bad) == [0]


@pytest.mark.parametrize("day", ['"2013-01-31"', "15736"], ids=["text", "days"])
@pytest.mark.parametrize("wrong", ['"2013-02-30"', '"2013-01-31T10:00:00Z"', "true", '"x"', "1.5"])
def test_what_is_no_date_is_bad(day: str, wrong: str) -> None:
    """Beside good ones, which are found in bulk: as text or, as some databases' changes have them, as days since
    1970."""
    schema = pa.schema([("a", pa.int64()), ("d", pa.date32())])
    values = [f'{{"a": {number}, "d": {day}}}'.encode() for number in range(200)]
    assert isinstance(json_values._parse_bulk(pa.array(values, pa.binary()), schema), pa.RecordBatch)
    values[70] = f'{{"d": {wrong}}}'.encode()
    batch, bad = parse_values(pa.array(values, pa.binary()), schema)
    assert list(bad) == [70]
    assert batch.column("d").to_pylist() == [datetime.date(2013, 1, 31) if row != 70 else None for row in range(200)]
    assert batch.column("a").to_pylist() == [row if row != 70 else None for row in range(200)]


@pytest.mark.parametrize("kind", [pa.decimal128(10, 2), pa.list_(pa.decimal128(10, 2))])
def test_a_decimal_that_is_too_large_is_bad(kind: pa.DataType) -> None:
    """Arrow's parser takes ten digits before the point, too; as Parquet such a number is another one."""
    large, fits = ("[9999999999]", "[99999999]") if pa.types.is_list(kind) else ("9999999999", "99999999")
    values = [f'{{"x": {each}}}'.encode() for each in (fits, large, fits)]
    batch, bad = parse_values(pa.array(values, pa.binary()), pa.schema([("x", kind)]))
    assert list(bad) == [1]
    batch.validate(full=True)
    assert batch.column("x").null_count == 1


BAD = {
    "no object": b"oops",
    "no JSON": b'{"a": 1, "b" "x"}',
    "a type": b'{"a": "one", "b": "x"}',
    "a date": b'{"t": "2013-02-30"}',
    "a number too large": b'{"a": 99999999999999999999}',
    "a fraction": b'{"a": 1.5}',
    "no UTF-8": b'{"b": "\xff"}',
    "a line break": b'{"a": 1,\n"b": 2}',
    "a surrogate": b'{"b": "\\ud800"}',
}


@pytest.mark.parametrize("kinds", [[kind] for kind in BAD] + [list(BAD)], ids=lambda kinds: "+".join(kinds)[:20])
def test_few_bad_values_among_many_are_found_in_bulk(kinds: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The good ones are parsed by Arrow, in few calls; hardly more than the bad ones go one by one."""
    good = [{"a": index, "b": f"ü{index}", "c": index / 2, "t": "2013-01-01T10:00:00Z"} for index in range(5_000)]
    values: list[bytes | None] = [json.dumps(each, ensure_ascii=False).encode() for each in good]
    where = {17 + 400 * number: BAD[kind] for number, kind in enumerate(kinds)}
    for row, value in where.items():
        values[row] = value
    values[3] = None
    careful: list[int] = []
    original = json_values._parse_one_by_one

    def counting(some: Any, schema: pa.Schema) -> Any:
        careful.append(len(some))
        return original(some, schema)

    monkeypatch.setattr(json_values, "_parse_one_by_one", counting)
    batch, bad = parse_values(pa.array(values, pa.binary()), SCHEMA)
    assert sorted(bad) == list(where)
    assert sum(careful) <= 64 * len(kinds)
    assert batch.num_rows == len(values)
    rows = batch.to_pylist()
    assert [row["a"] for row in rows] == [
        None if index in where or index == 3 else index for index in range(len(values))
    ]
    assert rows[4_999]["b"] == "ü4999"


def test_values_that_are_only_suspected_are_parsed_in_their_place() -> None:
    """Deep nesting, for example: it is no fault, and the row stays where it is."""
    deep = b'{"a": 7, "z": [[[[[1]]]]]}'
    values = [b'{"a": 1}', deep, b'{"a": 2, "b" 3}', None, deep, b'{"a": 3}']
    batch, bad = parse_values(pa.array(values, pa.binary()), SCHEMA)
    assert list(bad) == [2]
    assert batch.column("a").to_pylist() == [1, 7, None, None, 7, 3]


FAULTS = [
    b'{"a": 1, "b" 2}',
    b'{"a": "x"}',
    b'{"a": 1, "t": "yesterday"}',
    b'{"a": 1, "t": "2013-13-01"}',
    b'{"b": "\xff"}',
]


@pytest.mark.parametrize("fault", FAULTS)
def test_what_was_wrong_once_is_looked_for_at_once(fault: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser then goes through a slice once; until there is a slice without such a value."""
    calls: list[int] = []
    bulk = json_values._parse_bulk

    def counted(values: pa.BinaryArray, schema: pa.Schema) -> Any:
        calls.append(len(values))
        return bulk(values, schema)

    monkeypatch.setattr(json_values, "_parse_bulk", counted)
    clean = [b'{"a": %d, "t": "2013-01-01T10:00:00Z"}' % number for number in range(100)]
    known = Suspicions()
    slices = [[*clean[:40], fault, *clean[40:]], [fault, *clean], clean, clean]
    needed = []
    for values in slices:
        calls.clear()
        batch, bad = parse_values(pa.array(values, pa.binary()), SCHEMA, known)
        needed.append(len(calls))
        assert list(bad) == [row for row, value in enumerate(values) if value == fault]
        assert batch.column("a").to_pylist() == [None if value == fault else json.loads(value)["a"] for value in values]
    assert needed[1:] == [1, 1, 1]
    assert needed[0] > 1
    assert not list(known.found_in(pa.array(slices[0], pa.binary())))


def test_what_many_values_have_is_no_suspicion() -> None:
    """A pattern may suspect values that are good: not each slice is to be parsed one by one for it."""
    deep = [b'{"a": %d, "z": [[[[[1]]]]]}' % number for number in range(200)]
    known = Suspicions()
    _, bad = parse_values(pa.array([*deep, b'{"a" 1}'], pa.binary()), SCHEMA, known)
    assert list(bad) == [200]
    assert list(known.found_in(pa.array(deep, pa.binary()))) == []
    batch, bad = parse_values(pa.array(deep, pa.binary()), SCHEMA, known)
    assert bad == {}
    assert batch.column("a").to_pylist() == list(range(200))


@settings(max_examples=examples(500))
@given(st.lists(st.lists(VALUES, max_size=6), max_size=4))
def test_suspicions_change_no_row(slices: list[list[bytes | None]]) -> None:
    known = Suspicions()
    for values in slices:
        array = pa.array(values, pa.binary())
        batch, bad = parse_values(array, SCHEMA, known)
        expected, expected_bad = parse_values(array, SCHEMA)
        assert batch.equals(expected)
        assert bad.keys() == expected_bad.keys()


def test_inference_passes_bad_values_over_where_they_are_kept() -> None:
    """They will be rows with a reason; a field has the type of most of its values."""
    sample = [
        b"oops",
        b"[1]",
        b'{"id": 1, "at": "2013-01-01"}',
        b'{"id": "two", "tags": ["x"]}',
        b'{"id": 3, "n": null}',
    ]
    schema = infer_schema(sample, skips_bad=True)
    kinds = {each.name: str(each.type) for each in schema}
    assert kinds == {"id": "int64", "at": "timestamp[us, tz=UTC]", "tags": "list<item: string>", "n": "string"}
    with pytest.raises(UnparsableRecord, match="a sampled value is no JSON object"):
        infer_schema(sample)
    with pytest.raises(UnparsableRecord, match="none of the sampled records is a JSON object"):
        infer_schema([b"oops"], skips_bad=True)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), "1.5"),
        (pa.int8(), "1e2"),
        (pa.int32(), "true"),
        (pa.float64(), "true"),
        (pa.float64(), "1e400"),
        (pa.bool_(), "1"),
        (pa.date32(), "1.0"),
    ],
)
def test_a_number_that_its_column_cannot_hold_is_bad_however_deep(kind: pa.DataType, value: str) -> None:
    """It is not cut to one that fits; and so it is where each value is parsed by itself, beside a bad one."""
    within = [(kind, "%s"), (pa.list_(kind), "[%s]"), (pa.struct([("x", kind)]), '{"x": %s}')]
    for outer, form in [*within, (pa.list_(pa.struct([("x", kind)])), '[{"x": %s}]')]:
        values = pa.array([b'{"a": %s}' % (form % value).encode(), b'{"a": null}'], pa.binary())
        parsed, bad = parse_values(values, pa.schema([("a", outer)]))
        assert list(bad) == [0], outer
        assert parsed.to_pylist() == [{"a": None}, {"a": None}]


def test_infinity_is_a_number_of_a_column_of_floats() -> None:
    """Python's producers write it so; what is too large to be a float is another thing."""
    values = pa.array([b'{"a": Infinity}', b'{"a": -Infinity}', b'{"a": 1e400}'], pa.binary())
    parsed, bad = parse_values(values, pa.schema([("a", pa.float64())]))
    assert parsed.to_pylist() == [{"a": math.inf}, {"a": -math.inf}, {"a": None}]
    assert list(bad) == [2]


def test_no_column_is_inferred_from_empty_objects() -> None:
    """Parquet has no structs without fields: the field is told as one without a column until an object has some."""
    values = [b'{"a": 1, "e": {}, "l": [{}], "s": {"e": {}, "b": 1}, "n": {"e": {"e": {}}}}', b'{"a": 2}']
    schema = infer_schema(values)
    assert schema == pa.schema([("a", pa.int64()), ("s", pa.struct([("b", pa.int64())]))])
    assert unknown_fields(pa.array(values, pa.binary()), schema) == {"e", "l", "s.e", "n"}
    with_fields = infer_schema([*values, b'{"e": {"x": true}}'])
    assert with_fields.field("e").type == pa.struct([("x", pa.bool_())])
    with pytest.raises(UnparsableRecord, match="the sampled records are empty objects"):
        infer_schema([b'{"e": {}}'])


def test_half_a_surrogate_pair_is_no_text() -> None:
    """JSON's grammar lets it pass, and no column can hold it: where it is sampled, the value is a bad one; in the name
    of a field without a column it does no harm."""
    for bad in (b'{"\\ud800": 1}', b'{"a": "\\udfff"}', b'{"a": ["\\ud83d"]}', b'{"a": "\xed\xa0\x80"}'):
        with pytest.raises(UnparsableRecord, match="a sampled value is no JSON object"):
            infer_schema([bad, b'{"a": "x"}'])
        assert infer_schema([bad, b'{"a": "x"}'], skips_bad=True) == pa.schema([("a", pa.string())])
    values = pa.array([b'{"\\ud800": 1}'], pa.binary())
    assert unknown_fields(values, pa.schema([("a", pa.int64())])) == {"?"}


@pytest.mark.parametrize("levels", [33, 500], ids=["too many for a table", "too many for Python"])
def test_columns_are_not_inferred_from_values_that_are_nested_deeply(levels: int) -> None:
    """delta-rs would end the process, and leave a table that nothing can read."""
    deep = b'{"a": ' * levels + b"1" + b"}" * levels
    with pytest.raises(UnparsableRecord, match="nested more than 32 deep: give a schema"):
        infer_schema([deep, b'{"b": 1}'])
    assert infer_schema([deep, b'{"b": 1}'], skips_bad=True) == pa.schema([("b", pa.int64())])
    assert infer_schema([b'{"a": ' * 32 + b"1" + b"}" * 32]).names == ["a"]


def test_fields_without_a_column_are_found() -> None:
    """Within structs too; bad values and tombstones have none."""
    schema = pa.schema([("a", pa.int64()), ("s", pa.struct([("x", pa.int64())]))])
    values = [b'{"a": 1, "s": {"x": 1, "y": 2}}', None, b"oops", b'{"b": {"c": 1}}', b'{"s": null}']
    assert unknown_fields(pa.array(values, pa.binary()), schema) == {"b", "s.y"}
    many = [b'{"a": 1}'] * 3_000 + [b'{"late": 1}'] * 1_000
    assert unknown_fields(pa.array(many, pa.binary()), schema) == {"late"}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (["id", "ID"], "fields id and ID of the values differ in case only"),
        (["a b"], "named 'a b': columns of Delta tables"),
        (["c,d"], "named 'c,d'"),
        ([""], "named ''"),
    ],
)
def test_names_that_a_table_cannot_have_are_refused(fields: list[str], reason: str) -> None:
    """In our words, before anything is written; the others can be chosen."""
    schema = pa.schema([(name, pa.int64()) for name in [*fields, "fine"]])
    with pytest.raises(TableMismatch, match=reason):
        json_shape(schema)
    assert json_shape(schema, ["fine", "_offset"]).schema.names == ["fine", "_offset"]
    nested = pa.schema([("s", pa.list_(pa.struct([(name, pa.int64()) for name in fields])))])
    with pytest.raises(TableMismatch):
        json_shape(nested)
