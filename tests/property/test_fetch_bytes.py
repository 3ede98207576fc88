"""The compiled reading of ordinary Fetch requests and writing of their answers against their Python twin."""

from __future__ import annotations

from struct import error
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.amount import examples

from tidelog.broker.fetches.fetch_sessions import FetchPartition
from tidelog.broker.handlers import _fetch_wire
from tidelog.broker.handlers._fetch_wire import Found
from tidelog.model.identifiers import TopicId
from tidelog.ports.disk import FileRange
from tidelog.protocol import codec, messages
from tidelog.protocol.errors import ProtocolError

compiled: Any = pytest.importorskip("tidelog.broker.handlers._fetch_bytes", reason="not built")

VERSIONS = st.integers(4, 18)
INT32 = st.one_of(st.sampled_from([-1, 0, 1, 127, 128, 1 << 20]), st.integers(-(1 << 31), (1 << 31) - 1))
INT64 = st.one_of(st.sampled_from([-1, 0, 1, 255]), st.integers(-(1 << 63), (1 << 63) - 1))
TOPICS = st.one_of(st.sampled_from(["", "t", "grüße", "n" * 126, "n" * 127, "n" * 249]), st.text(max_size=5))
IDS = st.binary(min_size=16, max_size=16)

PARTITIONS = st.builds(
    messages.FetchRequest.FetchPartition,
    partition=INT32,
    current_leader_epoch=INT32,
    fetch_offset=INT64,
    last_fetched_epoch=INT32,
    log_start_offset=INT64,
    partition_max_bytes=INT32,
)
REQUESTS = st.builds(
    messages.FetchRequest,
    replica_id=st.sampled_from([-1, -1, -1, 0]),
    max_wait_ms=INT32,
    min_bytes=INT32,
    max_bytes=INT32,
    isolation_level=st.integers(-128, 127),
    session_id=INT32,
    session_epoch=INT32,
    topics=st.lists(
        st.builds(
            messages.FetchRequest.FetchTopic,
            topic=TOPICS,
            topic_id=IDS.map(TopicId),
            partitions=st.one_of(st.lists(PARTITIONS, max_size=3), PARTITIONS.map(lambda one: [one] * 130)),
        ),
        max_size=3,
    ),
    forgotten_topics_data=st.sampled_from([[], [], [], [messages.FetchRequest.ForgottenTopic(topic="t")]]),
    rack_id=st.sampled_from(["", "", "rack", "r" * 200]),
)


def encode(version: int, request: Any) -> bytes:
    """The request's bytes; what its version does not have is at its default."""
    for name, since in (("session_id", 7), ("session_epoch", 7), ("rack_id", 11), ("forgotten_topics_data", 7)):
        if version < since:
            setattr(request, name, getattr(messages.FetchRequest(), name))
    if version >= 15:
        request.replica_id = -1
    for topic in request.topics:
        for partition in topic.partitions:
            if version < 9:
                partition.current_leader_epoch = -1
            if version < 12:
                partition.last_fetched_epoch = -1
            if version < 5:
                partition.log_start_offset = -1
    return codec.encode(request, version)


def python_reads(version: int, body: bytes) -> Any:
    """What the twin reads; what it refuses is None, as `take` sees it."""
    try:
        return _fetch_wire.read_request(version, body)
    except (error, IndexError, ProtocolError):
        return None


@settings(max_examples=examples(400))
@given(VERSIONS, REQUESTS, st.data())
def test_requests_are_read_alike(version: int, request: Any, data: st.DataObject) -> None:
    """Whole ones, and ones of which bytes are missing, changed, or too many."""
    body = encode(version, request)
    assert compiled.read_request(version, body) == python_reads(version, body)
    for _ in range(5):
        place = data.draw(st.integers(0, len(body) - 1))
        byte = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
        for damaged in (body[:place], body[:place] + bytes([byte]) + body[place + 1 :], body + bytes([byte])):
            assert compiled.read_request(version, damaged) == python_reads(version, damaged)
        other = data.draw(VERSIONS)
        assert compiled.read_request(other, body) == python_reads(other, body)


NOTHING: Any = None
"""A file of which nothing is read."""
RECORDS = st.one_of(
    st.sampled_from([b"", b"x", bytes(126), bytes(127), bytes(20_000)]),
    st.lists(st.sampled_from([1, 127, 1 << 20]), max_size=3),
)


@settings(max_examples=examples(400))
@given(
    VERSIONS,
    st.tuples(INT32, INT32, st.booleans()),
    st.lists(st.tuples(TOPICS, IDS, st.integers(0, 1 << 20), INT64, INT64, INT64, RECORDS), max_size=4),
    st.integers(0, 3),
)
def test_answers_are_written_alike(
    version: int, edges: tuple[int, int, bool], partitions: list[Any], repeated: int
) -> None:
    """The same chunks: bytes, and ranges of files between them."""
    found = []
    for topic, topic_id, partition, *offsets, records in partitions:
        is_bytes = type(records) is bytes
        size = len(records) if is_bytes else sum(records)
        for index in range(1 + repeated * 50):
            wanted = FetchPartition(topic, TopicId(topic_id), partition + index)
            read = records if is_bytes else [FileRange(NOTHING, 0, each) for each in records]
            found.append(Found._make([wanted, None, *offsets, read, size]))
    assert compiled.write_answer(version, *edges, found) == _fetch_wire.write_answer(version, *edges, found)
