"""How far groups are behind: in records, and in seconds by the timestamp of the first record that is not committed yet.

    commits of the groups coordinated here --> partitions --+-- led here -------> the replica itself
                                                            +-- led elsewhere --> ListOffsets, Fetch of one batch

Nothing is interpolated. A record's timestamp does not change: it is read once for each place at which a group stands.
Where there are only markers of transactions, it is looked for anew when the partition has grown.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tidelog.broker.deferred import Deferred, gather
from tidelog.broker.handlers.fetch import INSPECTOR
from tidelog.broker.metrics.coordinator_metrics import coordinates
from tidelog.broker.shell import InDirectories, Purpose
from tidelog.coordinator.records import MalformedRecord, decode_offset
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import LATEST_TIMESTAMP, BrokerId, TopicPartition
from tidelog.model.topics import CONSUMER_OFFSETS_TOPIC
from tidelog.protocol import messages
from tidelog.records.errors import InvalidBatch
from tidelog.records.first_record import first_timestamp

if TYPE_CHECKING:
    from tidelog.broker.metrics.selection import Selection
    from tidelog.broker.node import Node
    from tidelog.storage.log import Log

COMMITS_PER_STEP: Final = 100
POSITIONS_PER_STEP: Final = 500
"""Positions that are looked at between two places where the page may be interrupted: half a millisecond."""
READS_PER_STEP: Final = 20
"""Records that are asked for of other brokers: as long."""
READS_MAX: Final = 1_000
"""Records whose timestamps are read for one page; others follow with the next."""
READ_BYTES: Final = 4_096
"""Asked for at a place; the first batch comes whole, however large it is."""
LOOKS_MAX: Final = 10
"""Batches that hold no records of users, such as markers of transactions, that are passed over at once."""
ASK_MS_MAX: Final = 900
"""How long other brokers have to answer: the page waits for them."""
LIST_OFFSETS_VERSION: Final = 6
FETCH_VERSION: Final = 12

Place: TypeAlias = tuple[TopicPartition, int]
"""A partition and the offset at which a group stands."""


class GroupPosition:
    """What a group has committed for one partition, and how far that is behind."""

    __slots__ = ("commit_ms", "end", "group", "moved_ms", "offset", "since_ms", "topic_partition", "value")

    def __init__(self, group: str, topic_partition: TopicPartition, value: bytes) -> None:
        committed = decode_offset(value)
        self.group = group
        self.topic_partition = topic_partition
        self.value = value
        self.offset = int(committed.offset)
        self.commit_ms = committed.commit_timestamp_ms
        """Wall time of the last commit."""
        self.moved_ms = self.commit_ms
        """Wall time of the commit that moved it here, as far as was seen."""
        self.end: int | None = None
        """The partition's high watermark; None where it is not known now."""
        self.since_ms: int | None = None
        """Timestamp of the first record that is not committed; None where there is none, or it is not known."""

    @property
    def place(self) -> Place:
        return self.topic_partition, self.offset

    @property
    def lag(self) -> int | None:
        """Records; below zero where the log was cut. None where the end is not known."""
        return None if self.end is None else self.end - self.offset

    def lag_ms(self, now_ms: int) -> int | None:
        """Milliseconds since the timestamp of the first record that is not committed; 0 where all is."""
        if self.lag is None or (self.lag > 0 and self.since_ms is None):
            return None
        return max(now_ms - self.since_ms, 0) if self.lag > 0 and self.since_ms is not None else 0


class Lags:
    """The positions of the groups that this broker coordinates."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.positions: dict[tuple[str, TopicPartition], GroupPosition] = {}
        self._since: dict[Place, int | None] = {}
        """Timestamps of first records that are known; None: there is none but markers, up to the `end` of positions."""

    def look(self, selection: Selection) -> Iterator[Deferred[Any] | None]:
        """Brings `positions` up to date; a step that waits gives what it waits for."""
        yield from self._read_commits(selection)
        if not self.positions:
            return
        yield from self._look_at_ends()
        yield from self._look_at_times()
        for index, position in enumerate(self.positions.values()):
            if not index % POSITIONS_PER_STEP:
                yield None
            position.since_ms = self._since.get(position.place)

    def _read_commits(self, selection: Selection) -> Iterator[None]:
        node = self._node
        positions: dict[tuple[str, TopicPartition], GroupPosition] = {}
        shards = node.groups.shards.loaded() if coordinates(node, CONSUMER_OFFSETS_TOPIC) else []
        for shard in shards:
            store = shard.machine.offsets.store
            for group in list(store.committed):
                if not selection.has_group(group):
                    continue
                for index, (topic, partition, value) in enumerate(list(store.of_group(group))):
                    if not index % COMMITS_PER_STEP:
                        yield
                    key = group, TopicPartition(topic, partition)
                    position = self._position(key, value)
                    if position is not None and selection.has_topic(topic):
                        positions[key] = position
        self.positions = positions
        since: dict[Place, int | None] = {}
        for index, position in enumerate(positions.values()):
            if not index % POSITIONS_PER_STEP:
                yield
            if position.place in self._since:
                since[position.place] = self._since[position.place]
        self._since = since
        yield

    def _position(self, key: tuple[str, TopicPartition], value: bytes) -> GroupPosition | None:
        known = self.positions.get(key)
        if known is not None and known.value == value:
            return known
        try:
            position = GroupPosition(*key, value)
        except MalformedRecord:
            return None
        if known is not None and known.offset == position.offset:
            position.moved_ms = known.moved_ms
        return position

    # Where partitions end.

    def _look_at_ends(self) -> Iterator[Deferred[Any] | None]:
        node = self._node
        ends: dict[TopicPartition, int] = {}
        elsewhere: dict[BrokerId, dict[str, list[int]]] = {}
        looked: set[TopicPartition] = set()
        for index, position in enumerate(self.positions.values()):
            if not index % POSITIONS_PER_STEP:
                yield None
            topic_partition = position.topic_partition
            if topic_partition in looked:
                continue
            looked.add(topic_partition)
            replica = node.replicas.get(topic_partition)
            if replica is not None and replica.leader is not None:
                ends[topic_partition] = int(replica.high_watermark)
                continue
            image = node.metadata.image.partition(topic_partition)
            if image is not None and image.leader >= 0 and image.leader != node.broker_id:
                topics = elsewhere.setdefault(image.leader, {})
                topics.setdefault(topic_partition.topic, []).append(topic_partition.partition)
        yield gather([self._ask_leader(leader, topics, ends) for leader, topics in elsewhere.items()])
        for index, position in enumerate(self.positions.values()):
            if not index % POSITIONS_PER_STEP:
                yield None
            end = ends.get(position.topic_partition)
            if end != position.end and self._since.get(position.place, 0) is None:
                # Behind the markers there may be a record by now.
                del self._since[position.place]
            position.end = end

    def _ask_leader(
        self, leader: BrokerId, topics: dict[str, list[int]], ends: dict[TopicPartition, int]
    ) -> Deferred[None]:
        request = messages.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                messages.ListOffsetsRequest.ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        messages.ListOffsetsRequest.ListOffsetsPartition(
                            partition_index=partition, timestamp=LATEST_TIMESTAMP
                        )
                        for partition in partitions
                    ],
                )
                for topic, partitions in topics.items()
            ],
        )

        def take(response: messages.ListOffsetsResponse) -> None:
            for topic in response.topics:
                for found in topic.partitions:
                    if not found.error_code:
                        ends[TopicPartition(topic.name, found.partition_index)] = found.offset

        return self._ask(leader, request, LIST_OFFSETS_VERSION, take)

    def _ask(self, broker_id: BrokerId, request: Any, version: int, take: Any) -> Deferred[None]:
        """Complete when the answer was taken, or does not come: then nothing is known from there."""
        done: Deferred[None] = Deferred()

        def settle(settled: Deferred[Any]) -> None:
            try:
                take(settled.result())
            except (OSError, InvalidBatch):
                pass
            finally:
                done.complete(None)

        self._node.shell.ask(broker_id, Purpose.METRICS, request, version, ASK_MS_MAX).on_complete(settle)
        return done

    # Since when.

    def _look_at_times(self) -> Iterator[Deferred[Any] | None]:
        node = self._node
        wanted: dict[Place, None] = {}
        for index, position in enumerate(self.positions.values()):
            if not index % POSITIONS_PER_STEP:
                yield None
            if (position.lag or 0) > 0 and position.place not in self._since:
                wanted[position.place] = None
                if len(wanted) == READS_MAX:
                    break
        by_directory: dict[str, list[tuple[Log, Place]]] = {}
        asked: list[Deferred[None]] = []
        for index, place in enumerate(wanted):
            if not index % READS_PER_STEP:
                yield None
            replica = node.replicas.get(place[0])
            if replica is not None and replica.leader is not None:
                by_directory.setdefault(replica.log.owner.path, []).append((replica.log, place))
                continue
            image = node.metadata.image.partition(place[0])
            if image is not None and image.leader >= 0 and image.leader != node.broker_id:
                asked.append(self._ask_for_time(image.leader, place))
        for directory, places in by_directory.items():
            read = node.shell.in_pool(InDirectories((directory,), functools.partial(_read_times, places)))
            asked.append(read.then(self._since.update))
        yield gather(asked)

    def _ask_for_time(self, leader: BrokerId, place: Place) -> Deferred[None]:
        (topic, partition), offset = place
        request = messages.FetchRequest(
            replica_id=INSPECTOR,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=READ_BYTES,
            session_id=0,
            session_epoch=-1,
            topics=[
                messages.FetchRequest.FetchTopic(
                    topic=topic,
                    partitions=[
                        messages.FetchRequest.FetchPartition(
                            partition=partition, fetch_offset=offset, partition_max_bytes=READ_BYTES
                        )
                    ],
                )
            ],
        )

        def take(response: messages.FetchResponse) -> None:
            for each in response.responses:
                for data in each.partitions:
                    records = data.records
                    if not data.error_code and records and not isinstance(records, list):
                        since, _ = first_timestamp(records, offset)
                        self._since[place] = since

        return self._ask(leader, request, FETCH_VERSION, take)


def _read_times(places: list[tuple[Log, Place]]) -> dict[Place, int | None]:
    """Timestamps of the first records at `places`, of logs of one directory; on an I/O thread."""
    found: dict[Place, int | None] = {}
    for log, place in places:
        try:
            found[place] = _read_time(log, place[1])
        except (KafkaError, InvalidBatch, OSError):
            # Deleted meanwhile, or damaged: what reads there for a client judges it.
            continue
    return found


def _read_time(log: Log, offset: int) -> int | None:
    for _ in range(LOOKS_MAX):
        result = log.read(offset, READ_BYTES, up_to_offset=log.high_watermark, checked=False)
        try:
            data = b"".join(each.file.pread(each.size, each.position) for each in result.ranges)
        finally:
            for each in result.ranges:
                each.release()
        since, following = first_timestamp(data, offset)
        if since is not None or following <= offset:
            return since
        offset = following
    return None
