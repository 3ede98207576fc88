"""Fetch responses taken apart: whole batches, positions, names and ids."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amount import examples

from tidelog.client.addresses import Address
from tidelog.client.errors import InvalidResponse
from tidelog.client.fetching import FetchedData, FetchSettings, fetch_request, fetched, whole_batches
from tidelog.client.routing import Routing
from tidelog.client.views import TopicView
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.protocol import messages
from tidelog.records.batch import Record, build_batch

TP = TopicPartition("t", 0)
TOPIC_ID = TopicId(bytes(range(16)))


def batch(base: int, count: int) -> bytes:
    """A batch of small records."""
    return bytes(build_batch([Record(base + i, 1000 + i, None, b"v" * 20) for i in range(count)]))


def view(*batches: bytes) -> memoryview:
    """Batches one after another."""
    return memoryview(b"".join(batches))


def routing() -> Routing:
    """One that knows topic `t`."""
    known = Routing([Address("a", 1)], now=lambda: 0.0, draw=lambda: 0.5)
    known.topics["t"] = TopicView("t", TOPIC_ID, False, {})
    known._names_by_id[TOPIC_ID] = "t"
    return known


def response(records: Any, **fields: Any) -> Any:
    """A Fetch response for partition 0 of `t`, by id."""
    kind = messages.FetchResponse
    partition = kind.PartitionData(partition_index=0, high_watermark=100, records=records, **fields)
    return kind(responses=[kind.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[partition])])


def only(found: Any) -> tuple[ErrorCode, FetchedData]:
    """The one partition of a response."""
    ((topic_partition, code, _, data),) = found
    assert topic_partition == TP
    return code, data


def test_a_tail_cut_short_is_left_out() -> None:
    """Brokers send bytes, not batches: the last one may be cut anywhere, even within its header."""
    whole, tail = batch(0, 3), batch(3, 2)
    for size in range(len(tail)):
        assert whole_batches(view(whole, tail[:size]), TP) == (len(whole), 3)
    assert whole_batches(view(whole, tail), TP) == (len(whole) + len(tail), 5)
    assert whole_batches(view(), TP) == (0, -1)


def test_batches_from_the_end_on_do_not_count() -> None:
    """A batch that spans the end does; gaps between batches are no matter."""
    first, second, third = batch(0, 3), batch(10, 5), batch(15, 1)
    records = view(first, second, third)
    assert whole_batches(records, TP, 3) == (len(first), 3)
    assert whole_batches(records, TP, 12) == (len(first) + len(second), 15)
    assert whole_batches(records, TP, 0) == (0, -1)


def test_old_formats_and_impossible_sizes_are_refused() -> None:
    """Magic 0 and 1 can't be read; a length below a header's would never end."""
    old = bytearray(batch(7, 1))
    old[16] = 1
    with pytest.raises(KafkaError, match="message format 1 at offset 7") as refused:
        whole_batches(memoryview(old), TP)
    assert refused.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    short = bytearray(batch(7, 1))
    short[8:12] = (48).to_bytes(4, "big")
    with pytest.raises(KafkaError) as corrupt:
        whole_batches(memoryview(short), TP)
    assert corrupt.value.code is ErrorCode.CORRUPT_MESSAGE


@settings(max_examples=examples(2000))
@given(st.binary(max_size=300), st.integers(min_value=-2, max_value=2**63 - 1) | st.none())
def test_any_bytes_have_whole_batches_or_are_refused(data: bytes, end: int | None) -> None:
    """Sizes stay within the bytes; only KafkaError comes out."""
    try:
        size, _ = whole_batches(memoryview(data), TP, end)
    except KafkaError:
        return
    assert 0 <= size <= len(data)


def test_requests_carry_name_id_and_epoch() -> None:
    """Each version writes what it has of them; partitions of a topic stand together."""
    known = routing()
    request = fetch_request(known, {TP: 5, TopicPartition("t", 1): 6}, FetchSettings(partition_max_bytes=1234))
    (topic,) = request.topics
    assert (topic.topic, topic.topic_id) == ("t", TOPIC_ID)
    assert [(p.partition, p.fetch_offset, p.partition_max_bytes) for p in topic.partitions] == [
        (0, 5, 1234),
        (1, 6, 1234),
    ]
    assert (request.session_id, request.session_epoch) == (0, -1)


def test_the_next_offset_follows_the_last_whole_batch() -> None:
    """It never goes back before the position asked for, even where the batch began earlier."""
    records = batch(0, 10)
    code, data = only(fetched(response(records, last_stable_offset=90, log_start_offset=2), routing(), {TP: 4}))
    assert code is ErrorCode.NONE
    assert (data.fetch_offset, data.next_offset) == (4, 10)
    assert bytes(data.records) == records
    assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (100, 90, 2)
    _, empty = only(fetched(response(b""), routing(), {TP: 4}))
    assert (empty.next_offset, len(empty.records)) == (4, 0)
    _, null = only(fetched(response(None), routing(), {TP: 4}))
    assert null.next_offset == 4


def test_errors_come_with_what_the_broker_said_of_the_log() -> None:
    """OFFSET_OUT_OF_RANGE tells the log start; an error of the whole response is each partition's."""
    bad = response(b"", error_code=ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=50)
    code, data = only(fetched(bad, routing(), {TP: 4}))
    assert (code, data.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 50)
    whole = messages.FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    code, _ = only(fetched(whole, routing(), {TP: 4}))
    assert code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_partition_nobody_asked_for_is_no_answer() -> None:
    """An unknown id has no name, so it can't be ours either."""
    with pytest.raises(InvalidResponse):
        list(fetched(response(b""), routing(), {TopicPartition("t", 1): 0}))
    stranger = Routing([Address("a", 1)], now=lambda: 0.0, draw=lambda: 0.5)
    with pytest.raises(InvalidResponse):
        list(fetched(response(b""), stranger, {TP: 0}))


def test_aborted_transactions_are_handed_on() -> None:
    """Producer id and first offset, for the decoder to skip by."""
    kind = messages.FetchResponse
    aborted = [kind.AbortedTransaction(producer_id=7, first_offset=3)]
    _, data = only(fetched(response(batch(0, 1), aborted_transactions=aborted), routing(), {TP: 0}))
    assert data.aborted == ((7, 3),)
