"""The blocking client, against brokers that behave and brokers that don't."""

from __future__ import annotations

import itertools
import re
import struct
import time
from collections.abc import Iterable
from typing import Any

import pytest
from tests.unit.client.log_broker import LogBroker
from tests.unit.client.scripted_broker import DROP, SILENCE, ScriptedBroker
from tests.waiting import until

from tidelog.client.addresses import Address
from tidelog.client.blocking import BlockingCluster, BlockingConnection
from tidelog.client.errors import (
    ClientError,
    ConnectionFailed,
    InvalidResponse,
    OffsetOutOfRange,
    RequestTimedOut,
    TopicChanged,
    UnsupportedSecurity,
)
from tidelog.client.fetching import FetchedData, FetchSettings
from tidelog.client.producing import ProducedBatch, produce_batches
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import Record, build_batch, iterate_headers, read_records

TP = TopicPartition("t", 0)


def cluster(broker: ScriptedBroker, **arguments: Any) -> BlockingCluster:
    """A client that gives up early, so that a failing test is a quick one."""
    return BlockingCluster(broker.bootstrap, **{"operation_timeout_s": 10, "call_timeout_s": 5} | arguments)


def offsets_of(pieces: Iterable[FetchedData]) -> list[int]:
    """The offsets of all records in pieces."""
    return [
        record.offset
        for data in pieces
        for position, _ in iterate_headers(data.records)
        for record in read_records(data.records, position)
    ]


def test_a_range_is_read_whole_and_in_order() -> None:
    """From a batch that begins before the start to one that ends after the end, in several pieces."""
    with LogBroker() as broker, cluster(broker) as client:
        broker.append(0, *[10] * 20)
        pieces = list(client.iterate_fetch(TP, 15, 173, FetchSettings(partition_max_bytes=500)))
        assert offsets_of(pieces) == list(range(10, 180))
        assert len(pieces) > 3
        assert pieces[0].fetch_offset == 15
        assert all(one.next_offset == two.fetch_offset for one, two in itertools.pairwise(pieces))
        assert pieces[-1].next_offset == 173
        assert broker.connections == 1


def test_an_empty_range_asks_nothing() -> None:
    """No connection is made for nothing."""
    with LogBroker() as broker, cluster(broker) as client:
        assert list(client.iterate_fetch(TP, 5, 5)) == []
        assert broker.connections == 0


def test_the_next_piece_is_on_its_way_before_one_is_handed_out() -> None:
    """When the caller has the first piece, the broker has been asked for the second."""
    with LogBroker() as broker, cluster(broker) as client:
        broker.append(0, 10, 10)
        reader = client.iterate_fetch(TP, 0, 20, FetchSettings(partition_max_bytes=1))
        next(reader)
        # The answer to the request that was sent ahead is already there or coming: nothing else asks for offset 10.
        assert offsets_of([next(reader)]) == list(range(10, 20))
        asked = [request.topics[0].partitions[0].fetch_offset for request in broker.asked(ApiKey.FETCH)]
        assert asked == [0, 10]
        assert list(reader) == []


def test_a_reader_left_early_leaves_no_answer_behind() -> None:
    """The fetch in flight is dropped with its connection; the next call works."""
    with LogBroker() as broker, cluster(broker) as client:
        broker.append(0, 10, 10)
        reader = client.iterate_fetch(TP, 0, 20, FetchSettings(partition_max_bytes=1))
        next(reader)
        reader.close()  # type: ignore[attr-defined]  # It is a generator.
        assert client.offsets({TP: -1})[TP].offset == 20
        assert broker.connections == 2


@pytest.mark.parametrize("failure", [DROP, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID])
def test_a_range_survives_what_passes(failure: Any) -> None:
    """A lost connection or a moved leader: metadata again, and on from where it was, nothing twice."""
    with LogBroker() as broker, cluster(broker) as client:
        broker.append(0, *[10] * 6)
        reader = client.iterate_fetch(TP, 0, 60, FetchSettings(partition_max_bytes=1))
        first = next(reader)
        broker.fail_next[ApiKey.FETCH] = [failure]
        assert offsets_of([first, *reader]) == list(range(60))


@pytest.mark.parametrize("failure", [DROP, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_caller_that_takes_long_over_a_piece_loses_no_time_for_the_next(failure: Any) -> None:
    """What passes is waited for also where the caller came back after more time than an operation has."""
    with LogBroker() as broker, cluster(broker) as client:
        broker.append(0, *[10] * 6)
        passed_s = 0.0
        client.routing.now = lambda: time.monotonic() + passed_s
        reader = client.iterate_fetch(TP, 0, 60, FetchSettings(partition_max_bytes=1))
        pieces = [next(reader)]
        passed_s = 1e6
        broker.fail_next[ApiKey.FETCH] = [failure]
        pieces.append(next(reader))  # It was on its way.
        passed_s = 2e6
        assert offsets_of([*pieces, *reader]) == list(range(60))


def test_a_connection_that_the_broker_has_closed_meanwhile_is_opened_anew() -> None:
    """Such as one that was not used for connections.max.idle.ms: what is asked once, of one broker, need not fail."""
    with ScriptedBroker() as broker, cluster(broker) as client:
        address = Address("127.0.0.1", broker.port)
        connection = client.connection(address, time.monotonic() + 60)
        assert client.connection(address, time.monotonic() + 60) is connection
        broker.hang_up()
        until(lambda: not connection.is_quiet)
        request = messages.MetadataRequest(topics=[])
        answer = client.run(client.routing.ask(address, request, client.routing.deadline()))
        assert isinstance(answer, messages.MetadataResponse)
        assert broker.connections == 2


def test_old_brokers_are_read_by_topic_name() -> None:
    """Fetch up to version 12 and Metadata up to 9 know no topic ids."""
    versions = {ApiKey.FETCH: (0, 11), ApiKey.METADATA: (0, 5), ApiKey.PRODUCE: (0, 7), ApiKey.API_VERSIONS: (0, 2)}
    with LogBroker(versions=versions) as broker, cluster(broker) as client:
        data = bytes(build_batch([Record(0, 1, b"k", b"v")]))
        assert client.produce(TP, data).base_offset == 0
        assert offsets_of(client.iterate_fetch(TP, 0, 1)) == [0]
        assert broker.asked_versions(ApiKey.FETCH) == [11]
        assert broker.asked_versions(ApiKey.API_VERSIONS) == [4, 2]


def test_offsets_that_are_gone_tell_the_range_there_is() -> None:
    """OffsetOutOfRange carries log start and end, for the caller to decide."""
    with LogBroker() as broker, cluster(broker) as client:
        broker.append(0, 10, 10)
        broker.log_start = 7
        with pytest.raises(OffsetOutOfRange) as gone:
            list(client.iterate_fetch(TP, 3, 20))
        assert (gone.value.offset, gone.value.start, gone.value.end) == (3, 7, 20)
        with pytest.raises(OffsetOutOfRange):
            client.fetch(TP, 21)


def test_a_topic_created_anew_is_not_read_on() -> None:
    """Under the old id nothing more comes; the new topic's records are others."""
    with LogBroker() as broker, cluster(broker) as client:
        broker.append(0, 10, 10)
        reader = client.iterate_fetch(TP, 0, 20, FetchSettings(partition_max_bytes=1))
        next(reader)
        next(reader)
        first_id = TopicId(broker.topic_id)
        broker.topic_id = bytes(reversed(range(16)))
        broker.fail_next[ApiKey.FETCH] = [ErrorCode.UNKNOWN_TOPIC_ID]
        with pytest.raises(TopicChanged):
            list(client.iterate_fetch(TP, 0, 20))
        with pytest.raises(TopicChanged):
            list(client.iterate_fetch(TP, 0, 20, topic_id=first_id))
        assert offsets_of(client.iterate_fetch(TP, 0, 20)) == list(range(20))


def test_an_end_that_never_comes_is_told_after_the_timeout() -> None:
    """A log that ends before the range: the error says where it ends."""
    with LogBroker() as broker, cluster(broker, operation_timeout_s=0.3) as client:
        broker.append(0, 10)
        with pytest.raises(RequestTimedOut, match="its log ends at 10"):
            list(client.iterate_fetch(TP, 0, 11))


def test_partitions_by_name_by_pattern_and_all() -> None:
    """A missing topic is an error by name, nothing by pattern."""
    with LogBroker(partitions=3) as broker, cluster(broker) as client:
        assert client.partitions(["t"]) == {"t": [0, 1, 2]}
        assert client.partitions(re.compile("t|u")) == {"t": [0, 1, 2]}
        assert client.partitions(re.compile("tt")) == {}
        assert client.partitions() == {"t": [0, 1, 2]}
        with pytest.raises(KafkaError, match="topic 'u' does not exist"):
            client.partitions(["u"])


def test_produce_without_acks_returns_at_once() -> None:
    """Nothing is known of the place, and the connection goes on."""
    with LogBroker() as broker, cluster(broker) as client:
        data = bytes(build_batch([Record(0, 1, None, b"v")]))
        assert client.produce(TP, data, acks=0).base_offset == -1
        assert client.produce(TP, data, acks=1).base_offset == 1
        assert broker.connections == 1


def test_large_records_are_sent_from_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of several partitions has theirs as pieces, without a copy; a small one is one piece."""
    pieces: list[Any] = []
    real = BlockingConnection._send

    def send(self: BlockingConnection, data: Any, deadline: float) -> None:
        pieces.append(data)
        real(self, data, deadline)

    small = bytes(build_batch([Record(0, 1, None, b"v")]))
    large = [bytes(build_batch([Record(0, 1, None, bytes([65 + index]) * 100_000)])) for index in range(2)]
    with LogBroker() as broker, cluster(broker) as client:
        client.produce(TP, small)
        monkeypatch.setattr(BlockingConnection, "_send", send)
        assert client.produce(TP, small).base_offset == 1
        assert len(pieces) == 1
        batches = {TopicPartition("t", index): data for index, data in enumerate(large)}
        outcomes = client.run(produce_batches(client.routing, batches))
        assert [outcomes[each].base_offset for each in batches] == [2, 0]
        sent = [piece.obj for piece in pieces if isinstance(piece, memoryview)]
        assert len(sent) == 2
        assert all(found is given for found, given in zip(sent, large, strict=True))


def test_large_batches_go_in_several_requests_at_once() -> None:
    """Each of a megabyte at most; small batches share one."""
    with LogBroker(partitions=5) as broker, cluster(broker) as client:
        for size, shares in ((400_000, [[0, 1], [2, 3], [4]]), (1000, [[0, 1, 2, 3, 4]]), (2_000_000, [[0], [1]])):
            count = sum(map(len, shares))
            data = bytes(build_batch([Record(0, 1, None, bytes(size))]))
            batches = dict.fromkeys([TopicPartition("t", index) for index in range(count)], data)
            broker.requests.clear()
            outcomes = client.run(produce_batches(client.routing, batches))
            assert all(isinstance(outcomes[each], ProducedBatch) for each in batches)
            sent = [request for key, _, request in broker.requests if key is ApiKey.PRODUCE]
            assert [[each.index for topic in one.topic_data for each in topic.partition_data] for one in sent] == shares
        assert broker.connections == 1


def test_a_silent_broker_is_a_timeout() -> None:
    """The connection that timed out is closed: its late answer would be taken for another's."""
    with ScriptedBroker({ApiKey.LIST_OFFSETS: lambda request, version: SILENCE}) as broker:
        connection = BlockingConnection(Address("127.0.0.1", broker.port), timeout_s=5)
        with pytest.raises(RequestTimedOut, match="did not answer"):
            connection.request(messages.ListOffsetsRequest(replica_id=-1), timeout_s=0.1)
        assert connection.closed
        with pytest.raises(ConnectionFailed, match="is closed"):
            connection.request(messages.ListOffsetsRequest(replica_id=-1))


HOSTILE = {
    "wrong correlation id": (struct.pack(">ii", 8, 999) + bytes(4), InvalidResponse),
    "negative size": (struct.pack(">i", -5), InvalidResponse),
    "huge size": (struct.pack(">i", 0x7FFFFFFF), InvalidResponse),
    "size below a header": (struct.pack(">i", 2) + b"ab", InvalidResponse),
    "web server": (b"HTTP/1.1 400 Bad Request\r\n\r\n", InvalidResponse),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_answers_close_the_connection(name: str) -> None:
    """Each is one clear error, at once, with nothing allocated for it."""
    data, error = HOSTILE[name]
    with ScriptedBroker({ApiKey.LIST_OFFSETS: lambda request, version: data}) as broker:
        connection = BlockingConnection(Address("127.0.0.1", broker.port), timeout_s=5)
        with pytest.raises(error):
            connection.request(messages.ListOffsetsRequest(replica_id=-1), timeout_s=5)
        assert connection.closed


def test_an_answer_cut_off_by_the_end_is_a_lost_connection() -> None:
    """A frame that ends early can't be told from a broker that died: it may be asked again."""

    class Cutting(ScriptedBroker):
        def _answer(self, connection: Any, frame: bytes) -> bool:
            if struct.unpack_from(">h", frame)[0] == ApiKey.LIST_OFFSETS:
                connection.sendall(struct.pack(">i", 100) + bytes(20))
                return False
            return super()._answer(connection, frame)

    with Cutting({ApiKey.LIST_OFFSETS: lambda request, version: None}) as broker:
        connection = BlockingConnection(Address("127.0.0.1", broker.port), timeout_s=5)
        with pytest.raises(ConnectionFailed):
            connection.request(messages.ListOffsetsRequest(replica_id=-1), timeout_s=5)


def test_nobody_listening_says_where() -> None:
    """The error names the address, for people to compare with the broker's."""
    with ScriptedBroker() as broker:
        port = broker.port
    with (
        BlockingCluster(f"127.0.0.1:{port}", fail_fast=True) as client,
        pytest.raises(ConnectionFailed, match=f"cannot connect to 127.0.0.1:{port}"),
    ):
        client.topics()


def test_a_broker_that_came_back_is_connected_anew() -> None:
    """A connection that ended meanwhile is not an error of the next call."""
    with LogBroker() as broker, cluster(broker) as client:
        broker.append(0, 1)
        client.offsets({TP: -1})
        broker.fail_next[ApiKey.FETCH] = [DROP]
        assert client.fetch(TP, 0).next_offset == 1
        assert broker.connections == 2


def test_only_plaintext_is_offered() -> None:
    """TLS and SASL are refused when asked for, not when a handshake fails."""
    with pytest.raises(UnsupportedSecurity, match="SASL_SSL"):
        BlockingCluster("a:1", security_protocol="SASL_SSL")
    assert issubclass(UnsupportedSecurity, ClientError)
