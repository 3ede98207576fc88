"""Traps seen in real clients, as bytes on a socket to a running broker: what each of them would trip over."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.interop.support import DEADLINE_S, topic_name
from tidelog.client.addresses import Address
from tidelog.client.blocking import BlockingConnection
from tidelog.model.errors import ErrorCode
from tidelog.protocol import framing, messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import Record, build_batch, iterate_headers, read_records
from tidelog.testing import Cluster

SERVED = {
    0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6), 18: (0, 4), 19: (2, 7),
    20: (1, 6), 21: (0, 2), 22: (0, 5), 23: (2, 4), 32: (1, 4), 33: (0, 2), 35: (1, 5), 37: (0, 3), 44: (0, 1),
    60: (0, 2), 74: (0, 1), 75: (0, 0),
}  # fmt: skip
"""Ranges of Apache Kafka 4.3 for what this broker must serve: clients compute their own choice from them."""

Ask = Callable[[bytes], bytes]


@pytest.fixture
def ask(broker: Cluster) -> Iterator[Ask]:
    """Sends bytes, gives the next answer without its size; b"" when the broker closed the connection."""
    host, _, port = broker.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), DEADLINE_S) as connection, connection.makefile("rb") as answers:

        def exchange(data: bytes) -> bytes:
            connection.sendall(data)
            try:
                head = answers.read(4)
            except ConnectionResetError:
                return b""
            return answers.read(int.from_bytes(head, "big")) if head else b""

        yield exchange


@pytest.fixture(scope="module")
def connection(broker: Cluster) -> Iterator[BlockingConnection]:
    host, _, port = broker.bootstrap.rpartition(":")
    client = BlockingConnection(Address(host, int(port)))
    yield client
    client.close()


@pytest.fixture(scope="module")
def topic(connection: BlockingConnection) -> Any:
    """Name and id of a topic with three records, each a batch of its own, a second apart."""
    request = messages.CreateTopicsRequest
    name = topic_name("traps")
    created = request.CreatableTopic(
        name=name,
        num_partitions=2,
        replication_factor=1,
        configs=[request.CreatableTopicConfig(name="retention.ms", value="-1")],
    )
    (result,) = connection.request(request(topics=[created], timeout_ms=10_000), 7).topics
    assert result.error_code == ErrorCode.NONE
    for number in range(3):
        assert produced(connection, name, [b"value"], timestamp=1000 * number).error_code == ErrorCode.NONE
    return result


def produced(connection: BlockingConnection, topic: str, values: list[bytes], *, timestamp: int = 0) -> Any:
    batch = build_batch([Record(index, timestamp, b"k", value) for index, value in enumerate(values)])
    request = messages.ProduceRequest
    data = request.PartitionProduceData(index=0, records=batch)
    message = request(
        acks=-1, timeout_ms=5000, topic_data=[request.TopicProduceData(name=topic, partition_data=[data])]
    )
    return connection.request(message, 9).responses[0].partition_responses[0]


def fetched(connection: BlockingConnection, topic: Any, offset: int, version: int, **fields: Any) -> Any:
    request = messages.FetchRequest
    wanted = request.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    named = {"topic_id": topic.topic_id} if version >= 13 else {"topic": topic.name}
    message = request(
        max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[request.FetchTopic(**named, partitions=[wanted])]
    )
    for name, value in fields.items():
        setattr(message if hasattr(message, name) else wanted, name, value)
    (answer,) = connection.request(message, version).responses
    assert bytes(answer.topic_id) == (topic.topic_id if version >= 13 else bytes(16))
    return answer.partitions[0]


def test_the_ranges_are_kafkas(connection: BlockingConnection) -> None:
    """Produce's minimum is 0, or old librdkafka sends uncompressed; kafka-python takes DescribeLogDirs v5 for 4.3."""
    advertised = connection.versions
    assert {key: advertised[key] for key in SERVED} == SERVED
    assert not {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA} & advertised.keys()


@pytest.mark.parametrize("version", range(5))
def test_api_versions_never_has_a_flexible_header(ask: Ask, version: int) -> None:
    """The body begins right behind the correlation id: a tag byte there aborts librdkafka's process."""
    request = messages.ApiVersionsRequest(client_software_name="trap", client_software_version="1")
    answer = ask(framing.encode_request(ApiKey.API_VERSIONS, version, 77, "trap", request))
    correlation_id, error = struct.unpack_from(">ih", answer)
    assert (correlation_id, error) == (77, 0)
    if version >= 3:
        assert answer[6] - 1 >= len(SERVED)
    else:
        assert struct.unpack_from(">i", answer, 6)[0] >= len(SERVED)


def test_api_versions_of_the_future_get_the_ranges(ask: Ask) -> None:
    """UNSUPPORTED_VERSION in the format of version 0, with all the ranges; the connection goes on."""
    content = struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 5, -1) + b"\0what nobody knows"
    answer = ask(struct.pack(">i", len(content)) + content)
    correlation_id, error, count = struct.unpack_from(">ihi", answer)
    assert (correlation_id, error) == (5, ErrorCode.UNSUPPORTED_VERSION)
    ranges = {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", answer[10:])}
    assert len(ranges) == count
    assert ranges[ApiKey.API_VERSIONS] == (0, 4)
    request = messages.ApiVersionsRequest()
    assert ask(framing.encode_request(ApiKey.API_VERSIONS, 0, 6, None, request))[:6] == struct.pack(">ih", 6, 0)


@pytest.mark.parametrize(
    ("key", "version"),
    [(999, 0), (-1, 0), (ApiKey.METADATA, 99), (ApiKey.METADATA, -1), (ApiKey.PRODUCE, 2), (ApiKey.FETCH, 3)],
)
def test_what_is_not_served_is_never_left_unanswered(ask: Ask, key: int, version: int) -> None:
    """An unknown API or version closes the connection, as Kafka does: a client that waits for ever is worse."""
    content = struct.pack(">hhih", key, version, 1, -1) + bytes(20)
    assert ask(struct.pack(">i", len(content)) + content) == b""


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">ihhih", 10, ApiKey.METADATA, 0, 1, -1),
        struct.pack(">ihhihi", 14, ApiKey.METADATA, 0, 1, -1, 2**31 - 1),
        struct.pack(">ihhihi", 14, ApiKey.METADATA, 0, 1, -1, -7),
        struct.pack(">ihhih", 10, ApiKey.METADATA, 0, 1, 30_000),
    ],
    ids=["http", "negative", "empty", "huge", "no body", "huge count", "negative count", "client id past the end"],
)
def test_hostile_frames_close_their_connection(ask: Ask, connection: BlockingConnection, data: bytes) -> None:
    """At once, and nobody else's."""
    assert ask(data) == b""
    assert connection.request(messages.MetadataRequest(topics=[]), 12).brokers


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_a_fetch_at_the_end(connection: BlockingConnection, topic: Any, version: int, isolation_level: int) -> None:
    """Records are empty, never null; the last stable offset is the high watermark, never 0; the log start is told."""
    data = fetched(connection, topic, 3, version, isolation_level=isolation_level)
    assert (data.error_code, data.records is not None and len(data.records)) == (ErrorCode.NONE, 0)
    assert (data.high_watermark, data.last_stable_offset) == (3, 3)
    assert data.log_start_offset == (0 if version >= 5 else -1)


@pytest.mark.parametrize("version", [4, 11, 12, 13, 18])
def test_stored_batches_have_their_offsets(connection: BlockingConnection, topic: Any, version: int) -> None:
    """Base offset and leader epoch are patched; unpatched ones come out as MSG_SIZE_TOO_LARGE in librdkafka."""
    data = bytes(fetched(connection, topic, 0, version).records)
    headers = [header for _, header in iterate_headers(data)]
    assert [header.base_offset for header in headers] == [0, 1, 2]
    assert {header.partition_leader_epoch for header in headers} == {0}
    assert [record.offset for at, _ in iterate_headers(data) for record in read_records(data, at)] == [0, 1, 2]


@pytest.mark.parametrize("version", [4, 12, 18])
def test_one_whole_batch_comes_above_every_limit(connection: BlockingConnection, topic: Any, version: int) -> None:
    """Or a consumer with small limits would never get past a large batch."""
    data = bytes(fetched(connection, topic, 1, version, max_bytes=1, partition_max_bytes=1).records)
    ((_, header),) = iterate_headers(data)
    assert (header.base_offset, header.size) == (1, len(data))


@pytest.mark.parametrize("version", range(1, 12))
def test_offsets_by_timestamp(connection: BlockingConnection, topic: Any, version: int) -> None:
    """The first record that is as late; none at all past the last."""
    request = messages.ListOffsetsRequest
    for timestamp, expected in (
        (0, (0, 0)),
        (1, (1000, 1)),
        (2000, (2000, 2)),
        (2001, (-1, -1)),
        (-1, (-1, 3)),
        (-2, (-1, 0)),
    ):
        wanted = request.ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=-1)
        message = request(replica_id=-1, topics=[request.ListOffsetsTopic(name=topic.name, partitions=[wanted])])
        (found,) = connection.request(message, version).topics[0].partitions
        assert (found.error_code, found.timestamp, found.offset) == (ErrorCode.NONE, *expected), timestamp


@pytest.mark.parametrize("version", range(2, 5))
def test_ends_of_leader_epochs(connection: BlockingConnection, topic: Any, version: int) -> None:
    """Version 2 too: librdkafka knows no other."""
    request = messages.OffsetForLeaderEpochRequest
    partition = request.OffsetForLeaderPartition(partition=0, current_leader_epoch=0, leader_epoch=0)
    message = request(
        replica_id=-1 if version >= 3 else -2,
        topics=[request.OffsetForLeaderTopic(topic=topic.name, partitions=[partition])],
    )
    (found,) = connection.request(message, version).topics[0].partitions
    assert (found.error_code, found.leader_epoch, found.end_offset) == (ErrorCode.NONE, 0, 3)


@pytest.mark.parametrize("version", range(2, 11))
def test_the_note_of_a_commit_comes_back(connection: BlockingConnection, topic: Any, version: int) -> None:
    """Metadata of a commit is kept, in every version."""
    group = topic_name("notes")
    request = messages.OffsetCommitRequest
    partition = request.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=2, committed_leader_epoch=-1, committed_metadata="a note"
    )
    named = {"topic_id": topic.topic_id} if version >= 10 else {"name": topic.name}
    message = request(
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[request.OffsetCommitRequestTopic(**named, partitions=[partition])],
    )
    find = messages.FindCoordinatorRequest(key=group, key_type=0)
    assert connection.request(find, 3).error_code in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    while code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
        code = connection.request(message, version).topics[0].partitions[0].error_code
    assert code == ErrorCode.NONE
    fetch = messages.OffsetFetchRequest
    asked = fetch.OffsetFetchRequestTopic(name=topic.name, partition_indexes=[0])
    (found,) = connection.request(fetch(group_id=group, topics=[asked]), 5).topics[0].partitions
    assert (found.committed_offset, found.metadata) == (2, "a note")


@pytest.mark.parametrize("version", range(1, 5))
def test_settings_are_described_whole(connection: BlockingConnection, topic: Any, version: int) -> None:
    """Never an empty list: clients take that for a broker without settings."""
    request = messages.DescribeConfigsRequest
    resources = [
        request.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in ((2, topic.name), (4, "0"))
    ]
    for result, least in zip(connection.request(request(resources=resources), version).results, (30, 150), strict=True):
        assert result.error_code == ErrorCode.NONE
        assert len(result.configs) >= least


def test_a_client_id_of_any_length(ask: Ask) -> None:
    """An int16 length, in flexible headers too, and tagged fields behind it."""
    for name in (None, b"", b"x" * 3000):
        head = struct.pack(">hhih", ApiKey.METADATA, 12, 9, -1 if name is None else len(name)) + (name or b"")
        content = head + b"\1\7\3abc" + b"\1\0\0\0"
        assert ask(struct.pack(">i", len(content)) + content)[:5] == struct.pack(">ib", 9, 0)
