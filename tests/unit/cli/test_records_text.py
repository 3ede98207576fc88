"""Records as text: what produce reads and consume writes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amount import examples

from tidelog.cli.consume import parse_start
from tidelog.cli.consumption import Start
from tidelog.cli.errors import WrongUsage
from tidelog.cli.options import key_values, replica_lists
from tidelog.cli.records import InvalidRecord, RecordToSend, json_line, json_parser, line_parser
from tidelog.client.consumed import ConsumedRecord, consumed_records
from tidelog.client.fetching import FetchedData
from tidelog.model.identifiers import TopicPartition
from tidelog.records.batch import Record, build_batch


def lines(**changes: Any) -> Any:
    """A parser of plain lines."""
    return line_parser(**{"key": None, "separator": None, "null": None, "is_base64": False, "headers": ()} | changes)


def test_a_line_is_a_value_or_key_and_value() -> None:
    """Only the first separator counts; a line without one is an error."""
    assert lines()(b"a:b") == RecordToSend(None, b"a:b")
    assert lines(key=b"k")(b"v") == RecordToSend(b"k", b"v")
    assert lines(separator=b"::")(b"k::v::w") == RecordToSend(b"k", b"v::w")
    assert lines(separator=b":")(b":") == RecordToSend(b"", b"")
    with pytest.raises(InvalidRecord, match="no key separator ':'"):
        lines(separator=b":")(b"value")


def test_markers_are_nulls_and_base64_is_undone() -> None:
    """The marker is compared before base64 is undone; what isn't base64 is an error."""
    parse = lines(separator=b":", null=b"-", is_base64=True)
    assert parse(b"-:/wA=") == RecordToSend(None, b"\xff\x00")
    with pytest.raises(InvalidRecord, match="not base64"):
        parse(b"a:b")


def test_json_lines_carry_everything() -> None:
    """Text, base64, numbers and objects as values; headers as a list or an object."""
    parse = json_parser(key=b"default", is_base64=False, headers=[("all", b"x")])
    assert parse(b'{"value": "v"}') == RecordToSend(b"default", b"v", [("all", b"x")])
    assert parse(b'{"key": null, "value": {"a": 1}, "headers": {"h": "w"}}') == RecordToSend(
        None, b'{"a":1}', [("h", b"w")]
    )
    assert parse(
        b'{"key_base64": "/w==", "value": null, "partition": 3, "timestamp": 9,'
        b' "headers": [{"key": "h", "value": null}, {"key": "h", "value_base64": "AA=="}]}'
    ) == RecordToSend(b"\xff", None, [("h", None), ("h", b"\x00")], 3, 9)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "not a JSON object"),
        (b'{"vlaue": 1}', "unknown fields: vlaue"),
        (b'{"partition": -1}', "partition is not a number"),
        (b'{"timestamp": "now"}', "timestamp is not a number"),
        (b'{"partition": true}', "partition is not a number"),
        (b'{"value_base64": 1}', "value_base64 is not a string"),
        (b'{"value_base64": "!"}', "not base64"),
        (b'{"value_base64": "\\ud800"}', "not base64"),
        (b'{"value": 1, "headers": {"\\ud800": "v"}}', "a header's name is no text"),
        (b'{"value": 1, "headers": [{"key": "\\ud800", "value": "v"}]}', "a header's name is no text"),
        (b'{"headers": 1}', "headers are neither"),
        (b'{"headers": [{"value": "v"}]}', "headers are neither"),
    ],
)
def test_lines_that_are_no_records_say_why(line: bytes, reason: str) -> None:
    """Misspelt fields are refused too: a value must not be lost silently."""
    with pytest.raises(InvalidRecord, match=reason):
        json_parser(key=None, is_base64=False, headers=())(line)


def test_half_a_surrogate_pair_is_taken_as_bytes() -> None:
    """JSON can write what no text is: within a value that is no string, as within one."""
    parse = json_parser(key=None, is_base64=False, headers=())
    assert parse(b'{"value": "\\ud800"}').value == b"\xed\xa0\x80"
    assert parse(b'{"value": ["\\ud800"]}').value == b'["\xed\xa0\x80"]'


contents = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(lambda text: text.encode("utf-8", "ignore"))
names = st.text(st.characters(codec="utf-8"), max_size=5)


@settings(max_examples=examples(500))
@given(contents, contents, st.lists(st.tuples(names, contents)), st.booleans())
def test_what_consume_prints_produce_takes(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], as_base64: bool
) -> None:
    """Any record as a JSON line and back is the same record, whatever its bytes."""
    record = ConsumedRecord("t", 2, 7, 1234, 0, key, value, headers)
    line = json_line(record, as_base64=as_base64)
    assert line.count(b"\n") == 1
    parse = json_parser(key=b"not this", is_base64=as_base64, headers=[("not", b"this")])
    assert parse(line) == RecordToSend(key, value, headers, 2, 1234)


@settings(max_examples=examples(2000))
@given(
    st.binary(max_size=60)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["key", "value", "headers", "partition", "timestamp", "value_base64", "x"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=6,
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_line_is_a_record_or_invalid(line: bytes) -> None:
    """Nothing but InvalidRecord comes out of a line of JSON input."""
    try:
        json_parser(key=None, is_base64=False, headers=())(line)
    except InvalidRecord:
        return


def test_records_of_a_piece_are_those_of_the_range() -> None:
    """From the fetch offset to the end, over several batches, nulls and headers kept."""
    batches = b"".join(
        bytes(
            build_batch(
                [
                    Record(
                        base + i, 100 + base + i, None if i % 2 else b"k", b"%d" % (base + i), [("h", None)] * (i % 3)
                    )
                    for i in range(5)
                ]
            )
        )
        for base in (0, 10)
    )
    data = FetchedData(TopicPartition("t", 1), 3, 15, memoryview(batches), 15, 15, 0)
    found = list(consumed_records(data, 12))
    assert [record.offset for record in found] == [3, 4, 10, 11]
    assert [record.timestamp for record in found] == [103, 104, 110, 111]
    assert [record.value for record in found] == [b"3", b"4", b"10", b"11"]
    assert [record.key for record in found] == [None, b"k", b"k", None]
    assert [list(record.headers) for record in found] == [[], [("h", None)], [], [("h", None)]]
    assert len(list(consumed_records(data, None))) == 7


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", Start("beginning")),
        ("end", Start("end")),
        ("committed", Start("committed")),
        ("17", Start("offset", 17)),
        ("-5", Start("tail", 5)),
        ("@1700000000000", Start("timestamp", 1_700_000_000_000)),
        ("@2026-01-31T12:00:00Z", Start("timestamp", 1_769_860_800_000)),
        ("@2026-01-31T13:00:00.5+01:00", Start("timestamp", 1_769_860_800_500)),
    ],
)
def test_where_to_begin_is_said_in_many_ways(text: str, start: Start) -> None:
    """Names, offsets, so many before the end, times."""
    assert parse_start(text) == start


@pytest.mark.parametrize("text", ["", "begin", "1.5", "@", "@yesterday", "--5", "99999999999999999999"])
def test_where_to_begin_may_make_no_sense(text: str) -> None:
    """The error lists what would."""
    with pytest.raises(WrongUsage, match="none of beginning, end"):
        parse_start(text)


def test_options_of_pairs_and_lists() -> None:
    """Values may have = in them, lists may be in brackets."""
    assert key_values(["a=b=c", "d=[e,f]", "g="], "--set") == {"a": "b=c", "d": "e,f", "g": ""}
    for wrong in ("a", "=b"):
        with pytest.raises(WrongUsage, match="--set"):
            key_values([wrong], "--set")
    assert replica_lists("0:1,2", "--replica-assignment") == [[0, 1], [2]]
    with pytest.raises(WrongUsage, match="--replica-assignment"):
        replica_lists("0:x", "--replica-assignment")
