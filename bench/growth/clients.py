"""What the pieces ask of brokers: crowds of connections, groups with a member each, reads at any place of a log."""

from __future__ import annotations

import contextlib
import random
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import fastcrc
from bench.coordinator import frame
from bench.growth.requests import Lane, asking, drive
from bench.load import mkreq
from bench.peers.kafka import until
from bench.started import Started

from tidelog.client.blocking import BlockingConnection
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

LANES: Final = 8
"""Connections over which requests of one kind are spread."""
AT_ONCE: Final = 500
"""Connections that are opened before any of them is asked."""
JOINING_AT_ONCE: Final = 200
SESSION_MS: Final = 1_800_000
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
BASE_TIMESTAMP_AT: Final = 27
"""Where these stand in a batch; the checksum is of all from the attributes on."""
READS: Final = 2_000
"""Different places that are read, at most."""


def spread(frames: Sequence[bytes]) -> list[list[bytes]]:
    """Requests over some connections."""
    return [each for lane in range(LANES) if (each := list(frames[lane::LANES]))]


# Connections.


@contextlib.contextmanager
def crowd(port: int, size: int) -> Iterator[None]:
    """So many connections that have asked once and then stay."""
    hello = frame(ApiKey.API_VERSIONS, 2, messages.ApiVersionsRequest())
    with contextlib.ExitStack() as stack:
        for first in range(0, size, AT_ONCE):
            lanes = [Lane(port, [hello]) for _ in range(first, min(first + AT_ONCE, size))]
            for lane in lanes:
                stack.callback(lane.socket.close)
                lane.send(1)
            for lane in lanes:
                while not lane.take():
                    pass
        yield


# Groups.


class Member(NamedTuple):
    """The only member of its group."""

    group: str
    id: str
    generation: int


def offsets_topic(broker: Started) -> float:
    """Has `__consumer_offsets` made; the broker's memory then, MiB."""
    with asking(broker) as ask:
        until(lambda: not ask(messages.FindCoordinatorRequest(key="g"), 3).error_code, "the coordinator is found")
        until(lambda: not _fetch_error(ask, "g"), "the coordinator answers")
    broker.settle()
    return broker.memory_mib()


def until_loaded(broker: Started, group: str) -> None:
    """Returns when the group's coordinator has loaded what it has."""
    with asking(broker) as ask:
        until(lambda: not _fetch_error(ask, group), "the coordinator has loaded", 600)


def _fetch_error(ask: Any, group: str) -> int:
    kind = messages.OffsetFetchRequest
    topics = [kind.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    request = kind(groups=[kind.OffsetFetchRequestGroup(group_id=group, topics=topics)])
    return int(ask(request, 8).groups[0].error_code)


def join(broker: Started, names: Sequence[str]) -> list[Member]:
    """A classic group of each name, with one member.

    A group waits a moment for further members, and a connection for the answer to its last request: so each of those
    that join at the same time has a connection of its own.
    """
    members: list[Member] = []
    with contextlib.ExitStack() as stack:
        connections = [broker.connect() for _ in names[:JOINING_AT_ONCE]]
        for connection in connections:
            stack.callback(connection.close)
        for first in range(0, len(names), JOINING_AT_ONCE):
            members += _join_some(connections, names[first : first + JOINING_AT_ONCE])
    return members


def _join_some(connections: Sequence[BlockingConnection], names: Sequence[str]) -> list[Member]:
    kind = messages.JoinGroupRequest
    protocols = [kind.JoinGroupRequestProtocol(name="range", metadata=bytes(10))]
    joins = [
        kind(
            group_id=name,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=protocols,
        )
        for name in names
    ]
    joined = _ask_all(connections, joins, 3)
    members = [Member(name, each.member_id, each.generation_id) for name, each in zip(names, joined, strict=True)]
    syncs = [
        messages.SyncGroupRequest(
            group_id=each.group,
            generation_id=each.generation,
            member_id=each.id,
            assignments=[messages.SyncGroupRequest.SyncGroupRequestAssignment(member_id=each.id)],
        )
        for each in members
    ]
    _ask_all(connections, syncs, 2)
    return members


def _ask_all(connections: Sequence[BlockingConnection], requests: Sequence[Any], version: int) -> list[Any]:
    """One request on each connection, all at the same time; their answers. SystemExit for an error."""
    deadline = time.monotonic() + 600
    asked = [
        (connection, connection.send(request, version, deadline=deadline))
        for connection, request in zip(connections, requests, strict=False)
    ]
    answers = [connection.receive(id, deadline=deadline) for connection, id in asked if id is not None]
    refused = [answer.error_code for answer in answers if answer.error_code]
    if refused:
        raise SystemExit(f"a group was refused: error {refused[0]}")
    return answers


def heartbeats(members: Sequence[Member]) -> list[bytes]:
    kind = messages.HeartbeatRequest
    return [
        frame(ApiKey.HEARTBEAT, 4, kind(group_id=each.group, generation_id=each.generation, member_id=each.id))
        for each in members
    ]


def commits(members: Sequence[Member]) -> list[bytes]:
    kind = messages.OffsetCommitRequest
    partition = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=1234)
    topics = [kind.OffsetCommitRequestTopic(name="t", partitions=[partition])]
    return [
        frame(
            ApiKey.OFFSET_COMMIT,
            8,
            kind(
                group_id=each.group,
                generation_id_or_member_epoch=each.generation,
                member_id=each.id,
                topics=topics,
            ),
        )
        for each in members
    ]


LIST: Final = frame(ApiKey.LIST_GROUPS, 4, messages.ListGroupsRequest())


def describe(group: str) -> bytes:
    return frame(ApiKey.DESCRIBE_GROUPS, 5, messages.DescribeGroupsRequest(groups=[group]))


# Logs.


def keep_large_segments(topic: str) -> Any:
    """From now on no segment of the topic ends for its size."""
    kind = messages.IncrementalAlterConfigsRequest
    change = kind.AlterableConfig(name="segment.bytes", config_operation=0, value=str(1 << 30))
    return kind(resources=[kind.AlterConfigsResource(resource_type=2, resource_name=topic, configs=[change])])


def _places(end: int) -> list[int]:
    """Offsets below `end`, the same ones each time, in no order."""
    chance = random.Random(1)
    return [chance.randrange(end) for _ in range(min(end, READS))]


def fetches(topic: str, end: int) -> list[bytes]:
    """Fetches of one batch at places below `end`."""
    kind = messages.FetchRequest
    return [
        frame(
            ApiKey.FETCH,
            12,
            kind(
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=1 << 20,
                session_epoch=-1,
                topics=[
                    kind.FetchTopic(
                        topic=topic,
                        partitions=[kind.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)],
                    )
                ],
            ),
        )
        for offset in _places(end)
    ]


def batches_of_100(count: int) -> list[bytes]:
    """Produce requests of a record of 100 B each, a millisecond apart."""
    made = bytearray(mkreq.batch(1, 100))
    requests = []
    for number in range(count):
        at = mkreq.TIMESTAMP + number
        struct.pack_into(">qq", made, BASE_TIMESTAMP_AT, at, at)
        struct.pack_into(">I", made, CRC_AT, fastcrc.crc32.iscsi(bytes(made[ATTRIBUTES_AT:])))
        requests.append(mkreq.produce(bytes(made))[0])
    return requests


def looks_by_time(topic: str, end: int) -> list[bytes]:
    """Looks for the first record from a time on, at places below `end` of such batches."""
    kind = messages.ListOffsetsRequest
    return [
        frame(
            ApiKey.LIST_OFFSETS,
            7,
            kind(
                replica_id=-1,
                topics=[
                    kind.ListOffsetsTopic(
                        name=topic,
                        partitions=[kind.ListOffsetsPartition(partition_index=0, timestamp=mkreq.TIMESTAMP + place)],
                    )
                ],
            ),
        )
        for place in _places(end)
    ]


# Clusters.


def until_led(cluster: Started, sizes: Mapping[str, int]) -> None:
    """Returns when every broker knows a leader of all these partitions, and all replicas are in sync."""
    kind = messages.MetadataRequest
    for broker_id in range(len(cluster.addresses)):
        connection = cluster.connect(broker_id)
        try:

            def whole(connection: Any = connection) -> bool:
                request = kind(topics=[kind.MetadataRequestTopic(name=name) for name in sizes])
                found = connection.request(request, 9, timeout_s=600).topics
                return all(
                    len(topic.partitions) == sizes[topic.name]
                    and all(
                        each.leader_id >= 0 and len(each.isr_nodes) == len(each.replica_nodes)
                        for each in topic.partitions
                    )
                    for topic in found
                )

            until(whole, "all partitions are led and in sync", 600, 0.5)
        finally:
            connection.close()


def produce_to_leaders(cluster: Started, topic: str, leaders: Mapping[int, int]) -> float:
    """CPU microseconds of all brokers for a produce request of 100 B; each broker in turn gets those that it leads."""
    assert topic.encode() == mkreq.TOPIC
    request, partition_at = mkreq.produce(mkreq.batch(1, 100))
    cpu, answers = 0.0, 0
    for broker_id in range(len(cluster.addresses)):
        lanes = []
        for partition in (index for index, leader in leaders.items() if leader == broker_id):
            own = bytearray(request)
            own[partition_at : partition_at + 4] = partition.to_bytes(4, "big")
            lanes.append([bytes(own)])
        if lanes:
            before = cluster.cpu_s()
            port = int(cluster.addresses[broker_id].rpartition(":")[2])
            came, _ = drive(port, lanes, in_flight=1, seconds=1.0)
            cpu, answers = cpu + cluster.cpu_s() - before, answers + came
    return cpu / max(answers, 1) * 1e6
