"""One group coordinator: commits a second, the cost of heartbeats, and how fast a partition of offsets is loaded.

    python -m bench.coordinator [--only commits heartbeats loading] [--seconds S]

One broker process with one partition of `__consumer_offsets`, so that all groups have the same coordinator.

- commits: OffsetCommit v9 of one partition each, from sockets that keep some in flight; what is counted is answers, and
  the broker's CPU time for each, which a busy machine does not change.
- heartbeats: groups of ten members each, every member on the beat of heartbeat.interval.ms (3 s), each group's on a
  connection of its own; the broker's CPU time beside the time that passed.
- loading: offsets are committed, the broker is started again, and asked until it answers. Beside the time that its
  log names for the loading stands the longest answer to ApiVersions meanwhile, from a client that asks all the time: a
  bound of how long the loop was held.
"""

from __future__ import annotations

import argparse
import os
import re
import selectors
import socket
import struct
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from tidelog.client.addresses import Address
from tidelog.client.blocking import BlockingConnection
from tidelog.model.errors import ErrorCode
from tidelog.protocol import framing, messages
from tidelog.protocol.apis import ApiKey
from tidelog.testing.process import ProcessBroker

ONE_COORDINATOR: Final = {"offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0}
MEMBERS: Final = 10
"""Of a group."""
GROUPS_AT_ONCE: Final = 40
"""That are made at the same time: 400 connections, under the usual limit of open files."""
TICK: Final = os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(FIGURES), default=list(FIGURES))
    parser.add_argument("--seconds", type=float, default=10, help="how long commits and heartbeats are measured")
    parser.add_argument("--connections", type=int, default=16, help="that commit")
    parser.add_argument("--in-flight", type=int, default=8, help="commits on a connection")
    parser.add_argument("--groups", type=int, default=1000, help="that send heartbeats")
    parser.add_argument("--beat", type=float, default=3.0, help="heartbeat.interval.ms, in seconds")
    parser.add_argument("--offsets", type=int, default=1_000_000, help="that are loaded")
    parser.add_argument("--batch", type=int, default=1000, help="offsets in a commit of those")
    options = parser.parse_args()
    for figure in options.only:
        with tempfile.TemporaryDirectory() as folder, ProcessBroker(ONE_COORDINATOR, data=folder) as broker:
            FIGURES[figure](broker, options)


# Commits.


def commits(broker: ProcessBroker, options: argparse.Namespace) -> None:
    """Answers a second, and the broker's CPU time for one."""
    with client(broker) as connection:
        create(connection, "t", 1)
        find(connection, "g")
        commit(connection, "g", "t", [0])
    frames = [commit_frame(f"g{number}", "t") for number in range(options.connections)]
    pipe(broker, frames, options.in_flight, 1.0)
    before, started = cpu_s(broker), time.monotonic()
    answers = pipe(broker, frames, options.in_flight, options.seconds)
    passed, used = time.monotonic() - started, cpu_s(broker) - before
    print(
        f"commits: {answers / passed:,.0f}/s from {options.connections} connections with {options.in_flight} in flight,"
        f" {used / answers * 1e6:.0f} us of CPU each ({answers / used:,.0f} a core and second)",
        flush=True,
    )


def commit_frame(group: str, topic: str) -> bytes:
    kind = messages.OffsetCommitRequest
    partition = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=1234, committed_leader_epoch=3)
    request = kind(group_id=group, topics=[kind.OffsetCommitRequestTopic(name=topic, partitions=[partition])])
    return frame(ApiKey.OFFSET_COMMIT, 9, request)


def pipe(broker: ProcessBroker, frames: list[bytes], in_flight: int, seconds: float) -> int:
    """Sends each frame again and again, on a connection of its own; how many answers came, none of them an error."""
    selector = selectors.DefaultSelector()
    host, _, port = broker.bootstrap.rpartition(":")
    size = 0
    for data in frames:
        connection = socket.create_connection((host, int(port)))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(data * in_flight)
        selector.register(connection, selectors.EVENT_READ, [data, b""])
    answers, outstanding = 0, len(frames) * in_flight
    deadline = time.monotonic() + seconds
    good = b""
    while outstanding:
        going = time.monotonic() < deadline
        for key, _ in selector.select(1.0):
            data, rest = key.data
            received = rest + key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
            if not size:
                (size,) = struct.unpack_from(">i", received)
                size += 4
                good = bytes(received[:size])
            whole = len(received) // size
            if received[: whole * size] != good * whole:
                raise SystemExit("a commit was refused")
            key.data[1] = received[whole * size :]
            answers += whole
            if going:
                key.fileobj.sendall(data * whole)  # type: ignore[union-attr]
            else:
                outstanding -= whole
    for key in list(selector.get_map().values()):
        key.fileobj.close()  # type: ignore[union-attr]
    return answers


# Heartbeats.


def heartbeats(broker: ProcessBroker, options: argparse.Namespace) -> None:
    """The broker's CPU time beside the time that passes."""
    host, _, port = broker.bootstrap.rpartition(":")
    with client(broker) as connection:
        find(connection, "g")
    beats: list[tuple[socket.socket, bytes]] = []
    for first in range(0, options.groups, GROUPS_AT_ONCE):
        names = [f"g{number}" for number in range(first, min(first + GROUPS_AT_ONCE, options.groups))]
        for lane, members in join_all((host, int(port)), names):
            beats.extend((lane, frame(ApiKey.HEARTBEAT, 4, heartbeat)) for heartbeat in members)
    refused = [0]
    ask_all(beats, 0.5, refused)
    before, started = cpu_s(broker), time.monotonic()
    rounds = max(1, round(options.seconds / options.beat))
    for _ in range(rounds):
        ask_all(beats, options.beat, refused)
    passed, used = time.monotonic() - started, cpu_s(broker) - before
    sent = rounds * len(beats)
    print(
        f"heartbeats: {options.groups:,} groups of {MEMBERS}, {sent / passed:,.0f}/s: {used / passed:.1%} of a core,"
        f" {used / sent * 1e6:.0f} us each; refused: {refused[0]}",
        flush=True,
    )
    for lane in {lane for lane, _ in beats}:
        lane.close()


class Group:
    """Ten members, each on a connection of its own until the group is stable."""

    def __init__(self, address: tuple[str, int], name: str) -> None:
        self.name = name
        self.lanes = [socket.create_connection(address) for _ in range(MEMBERS)]
        self.joined: list[Any] = []

    @property
    def is_together(self) -> bool:
        """Whether all came into one generation."""
        return len(self.joined) == MEMBERS and len({found.generation_id for found in self.joined}) == 1

    def ask_to_join(self) -> None:
        kind = messages.JoinGroupRequest
        protocols = [kind.JoinGroupRequestProtocol(name="range", metadata=bytes(10))]
        for index, lane in enumerate(self.lanes):
            wanted = kind(
                group_id=self.name,
                session_timeout_ms=300_000,
                rebalance_timeout_ms=10_000,
                member_id=self.joined[index].member_id if self.joined else "",
                protocol_type="consumer",
                protocols=protocols,
            )
            lane.sendall(frame(ApiKey.JOIN_GROUP, 3, wanted))

    def hear(self) -> None:
        self.joined = [answer(lane, ApiKey.JOIN_GROUP, 3) for lane in self.lanes]

    def synchronize(self) -> tuple[socket.socket, list[messages.HeartbeatRequest]]:
        """The connection that is kept, and each member's heartbeat."""
        generation = self.joined[0].generation_id
        kind = messages.SyncGroupRequest.SyncGroupRequestAssignment
        for lane, found in zip(self.lanes, self.joined, strict=True):
            request = messages.SyncGroupRequest(
                group_id=self.name,
                generation_id=generation,
                member_id=found.member_id,
                assignments=[kind(member_id=other.member_id) for other in self.joined]
                if found.leader == found.member_id
                else [],
            )
            lane.sendall(frame(ApiKey.SYNC_GROUP, 2, request))
        for lane in self.lanes:
            answer(lane, ApiKey.SYNC_GROUP, 2)
        for lane in self.lanes[1:]:
            lane.close()
        self.lanes[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.lanes[0], [
            messages.HeartbeatRequest(group_id=self.name, generation_id=generation, member_id=found.member_id)
            for found in self.joined
        ]


def join_all(address: tuple[str, int], names: list[str]) -> list[tuple[socket.socket, list[messages.HeartbeatRequest]]]:
    """Stable groups, made at the same time: a new one waits a moment for further members."""
    groups = [Group(address, name) for name in names]
    while apart := [group for group in groups if not group.is_together]:
        for group in apart:
            group.ask_to_join()
        for group in apart:
            group.hear()
    return [group.synchronize() for group in groups]


def ask_all(beats: list[tuple[socket.socket, bytes]], seconds: float, refused: list[int]) -> None:
    """Each member's heartbeat once, evenly over `seconds`; counts answers that are no success."""
    started = time.monotonic()
    for index, (lane, data) in enumerate(beats):
        pause = started + seconds * index / len(beats) - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        lane.sendall(data)
        refused[0] += lane.recv(64)[-3:-1] != b"\x00\x00"
    pause = started + seconds - time.monotonic()
    if pause > 0:
        time.sleep(pause)


# Loading.


def loading(broker: ProcessBroker, options: argparse.Namespace) -> None:
    """From the log to the first answer after a start."""
    groups, indexes = options.offsets // options.batch, list(range(options.batch))
    with client(broker) as connection:
        create(connection, "t", options.batch)
        find(connection, "g")
        for number in range(groups):
            commit(connection, f"group-{number}", "t", indexes)
    broker.stop()
    before = Path(broker.log_path).stat().st_size
    broker.start()
    longest = [0.0]
    done = threading.Event()
    asking = threading.Thread(target=ask_always, args=(broker, longest, done))
    asking.start()
    started = time.monotonic()
    with client(broker) as connection:
        while fetch_error(connection, "group-0") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            time.sleep(0.01)
    waited = time.monotonic() - started
    used = cpu_s(broker)
    done.set()
    asking.join()
    with open(broker.log_path, "rb") as log:
        log.seek(before)
        told = re.search(rb"coordinator loaded: .*records=(\d+) ms=(\d+)", log.read())
    records, took_ms = (int(part) for part in told.groups()) if told else (0, 0)
    print(
        f"loading: {records:,} records in {took_ms / 1000:.2f} s, in batches of {options.batch}; CPU since the process"
        f" began: {used:.2f} s;"
        f" asked in vain for {waited:.2f} s after the start; longest answer meanwhile: {longest[0] * 1000:.1f} ms",
        flush=True,
    )


def ask_always(broker: ProcessBroker, longest: list[float], done: threading.Event) -> None:
    with client(broker) as connection:
        request = messages.ApiVersionsRequest(client_software_name="bench", client_software_version="1")
        connection.request(request, 3)
        while not done.is_set():
            asked = time.monotonic()
            connection.request(request, 3)
            longest[0] = max(longest[0], time.monotonic() - asked)
            time.sleep(0.001)  # So that asking is not what loads the broker.


def fetch_error(connection: BlockingConnection, group: str) -> ErrorCode:
    kind = messages.OffsetFetchRequest
    topics = [kind.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    request = kind(groups=[kind.OffsetFetchRequestGroup(group_id=group, topics=topics)])
    return ErrorCode(connection.request(request, 8).groups[0].error_code)


# Requests.


def frame(key: ApiKey, version: int, request: messages.Message) -> bytes:
    """A request with its size and header; all have one correlation id, since answers come in order."""
    return framing.encode_request(key, version, 7, "bench", request)


def answer(connection: socket.socket, key: ApiKey, version: int) -> Any:
    """The next answer on a connection."""
    data = _exactly(connection, struct.unpack(">i", _exactly(connection, 4))[0])
    return framing.decode_response(key, version, data)[1]


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise SystemExit("the broker closed a connection")
        data += more
    return data


def client(broker: ProcessBroker) -> Any:
    """A connection that waits for each answer; use it in a `with` statement."""
    host, _, port = broker.bootstrap.rpartition(":")
    return closing(BlockingConnection(Address(host, int(port)), timeout_s=60))


def create(connection: BlockingConnection, topic: str, partitions: int) -> None:
    kind = messages.CreateTopicsRequest
    request = kind(topics=[kind.CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)])
    connection.request(request, 5)


def find(connection: BlockingConnection, group: str) -> None:
    """Has `__consumer_offsets` created."""
    while connection.request(messages.FindCoordinatorRequest(key=group), 3).error_code:
        time.sleep(0.05)


def commit(connection: BlockingConnection, group: str, topic: str, indexes: list[int]) -> None:
    """Until it is accepted."""
    kind = messages.OffsetCommitRequest
    partitions = [kind.OffsetCommitRequestPartition(partition_index=index, committed_offset=index) for index in indexes]
    request = kind(group_id=group, topics=[kind.OffsetCommitRequestTopic(name=topic, partitions=partitions)])
    while True:
        (found,) = connection.request(request, 9).topics
        if not any(partition.error_code for partition in found.partitions):
            return
        time.sleep(0.05)


def cpu_s(broker: ProcessBroker) -> float:
    """CPU time that the broker has used."""
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


FIGURES: Final = {"commits": commits, "heartbeats": heartbeats, "loading": loading}

if __name__ == "__main__":
    main()
