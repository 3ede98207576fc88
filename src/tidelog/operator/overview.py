"""A cluster at a glance, read through the protocol again and again: brokers, topics, groups, and how fast they go.

    Metadata, DescribeLogDirs, reassignments    `reading.read_placement`
    ListOffsets                                 where partitions end; two readings make a rate
    ListGroups, OffsetFetch, Fetch              groups, their lag in records, and in seconds by the first unread record

Any Kafka will do, as far as it tells; what it does not is in `Overview.missing`. No I/O of its own: operations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.client import admin
from tidelog.client.errors import ClientError
from tidelog.client.fetching import FetchSettings, fetch_request, fetched
from tidelog.client.offsets import committed_offsets, list_offsets
from tidelog.client.operations import Operation
from tidelog.client.routing import Routing
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import LATEST_TIMESTAMP, TopicPartition
from tidelog.operator.reading import read_placement
from tidelog.placement.plan.state import ClusterState
from tidelog.records.errors import InvalidBatch
from tidelog.records.first_record import first_timestamp

GROUPS_MAX: Final = 100
"""Groups whose offsets are read each time; of more, the first by name."""
TIMES_MAX: Final = 200
"""Records whose timestamps are read at once."""
_FETCH: Final = FetchSettings(max_wait_ms=0, min_bytes=0, max_bytes=4_096, partition_max_bytes=4_096)


@dataclass(frozen=True, slots=True)
class GroupOverview:
    """A group: how far it is behind."""

    group: str
    state: str
    lag: int
    """Records, of all partitions that it has committed."""
    lag_ms: int | None
    """Of the partition longest behind, by the timestamp of its first unread record; None where that is not known."""
    committed: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Overview:
    """One reading."""

    at_s: float
    """Monotonic."""
    taken_at_ms: int
    """Wall time."""
    state: ClusterState
    controller: int
    ends: Mapping[TopicPartition, int]
    groups: Sequence[GroupOverview]
    missing: Sequence[str]

    @property
    def under_replicated(self) -> list[TopicPartition]:
        """Partitions with a leader that lack a replica in sync; those that a reassignment is adding are not missed."""
        return [
            key
            for key, each in self.state.partitions.items()
            if each.leader >= 0 and len(set(each.isr) - self._adding(key)) < len(set(each.replicas) - self._adding(key))
        ]

    @property
    def offline(self) -> list[TopicPartition]:
        """Partitions without a leader."""
        return [key for key, each in self.state.partitions.items() if each.leader < 0]

    @property
    def leaders(self) -> Counter[int]:
        """[broker] -> partitions that it leads."""
        return Counter(each.leader for each in self.state.partitions.values() if each.leader >= 0)

    def _adding(self, key: TopicPartition) -> set[int]:
        move = self.state.reassignments.get(key)
        return set() if move is None else set(move.adding)

    def rates(self, before: Overview | None) -> Counter[str]:
        """[topic] -> records that came in a second, since the reading before."""
        found: Counter[str] = Counter()
        if before is not None and self.at_s > before.at_s:
            for key, end in self.ends.items():
                found[key.topic] += max(end - before.ends.get(key, end), 0)
            seconds = self.at_s - before.at_s
            for topic in found:
                found[topic] = round(found[topic] / seconds)
        return found


class Reader:
    """Reads a cluster again and again; timestamps of records that it has read are not read anew."""

    def __init__(self, routing: Routing, timeout_s: float | None = None) -> None:
        self._routing = routing
        self._timeout_s = timeout_s
        self._since: dict[tuple[TopicPartition, int], int | None] = {}
        """[where a group stands] -> the timestamp there; None: only markers, up to the end in `_looked_to`."""
        self._looked_to: dict[tuple[TopicPartition, int], int] = {}

    def read(self, taken_at_ms: int) -> Operation[Overview]:
        """The cluster as it is now. KafkaError and ClientError where not even Metadata could be read."""
        routing = self._routing
        state = yield from read_placement(routing, timeout_s=self._timeout_s)
        missing = list(state.missing)
        at_s = routing.now()
        led = [key for key, each in state.partitions.items() if each.leader >= 0]
        ends = yield from self._ends(led, missing)
        groups = yield from self._groups(ends, taken_at_ms, missing)
        return Overview(at_s, taken_at_ms, state, routing.controller_id, ends, groups, missing)

    def _ends(self, partitions: Sequence[TopicPartition], missing: list[str]) -> Operation[dict[TopicPartition, int]]:
        try:
            answers = yield from list_offsets(
                self._routing, dict.fromkeys(partitions, LATEST_TIMESTAMP), timeout_s=self._timeout_s
            )
        except (KafkaError, ClientError) as error:
            missing.append(f"ends of partitions: {error}")
            return {}
        return {key: each.offset for key, each in answers.items() if not isinstance(each, KafkaError)}

    def _groups(
        self, ends: Mapping[TopicPartition, int], now_ms: int, missing: list[str]
    ) -> Operation[list[GroupOverview]]:
        try:
            listings = yield from admin.list_groups(self._routing, timeout_s=self._timeout_s)
        except (KafkaError, ClientError) as error:
            missing.append(f"groups: {error}")
            return []
        listings.sort(key=lambda each: each.group)
        if len(listings) > GROUPS_MAX:
            missing.append(f"offsets of {len(listings) - GROUPS_MAX} groups: the first {GROUPS_MAX} are read")
        committed: dict[str, dict[TopicPartition, int]] = {}
        for listing in listings[:GROUPS_MAX]:
            try:
                offsets = yield from committed_offsets(self._routing, listing.group, timeout_s=self._timeout_s)
            except (KafkaError, ClientError) as error:
                missing.append(f"offsets of group {listing.group}: {error}")
                continue
            committed[listing.group] = {key: each.offset for key, each in offsets.items() if key in ends}
        behind = {
            (key, offset) for offsets in committed.values() for key, offset in offsets.items() if offset < ends[key]
        }
        yield from self._read_times(behind, ends)
        states = {listing.group: listing.state for listing in listings}
        return [self._overview(group, states[group], offsets, ends, now_ms) for group, offsets in committed.items()]

    def _overview(
        self,
        group: str,
        state: str,
        committed: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        now_ms: int,
    ) -> GroupOverview:
        behind = [(key, offset) for key, offset in committed.items() if offset < ends[key]]
        known = (self._since.get(place) for place in behind)
        since = min((each for each in known if each is not None), default=None)
        lag_ms = 0 if not behind else None if since is None else max(now_ms - since, 0)
        lag = sum(ends[key] - offset for key, offset in behind)
        return GroupOverview(group, state, lag, lag_ms, committed)

    def _read_times(
        self, behind: set[tuple[TopicPartition, int]], ends: Mapping[TopicPartition, int]
    ) -> Operation[None]:
        """Timestamps of the first unread records that are not known yet."""
        self._since = {
            place: since
            for place, since in self._since.items()
            if place in behind and (since is not None or self._looked_to.get(place) == ends[place[0]])
        }
        self._looked_to = {place: ends[place[0]] for place in behind}
        unknown = sorted(behind - self._since.keys())[:TIMES_MAX]
        for key, offset in unknown:
            # One at a time: only the first batch of an answer comes whole however large it is.
            yield from self._read_time({key: offset})

    def _read_time(self, positions: Mapping[TopicPartition, int]) -> Operation[None]:
        routing = self._routing
        try:
            answers = yield from routing.ask_leaders(
                dict(positions),
                lambda group: fetch_request(routing, group, _FETCH),
                lambda response: fetched(response, routing, dict(positions)),
                routing.deadline(self._timeout_s),
            )
        except (KafkaError, ClientError):
            return
        for key, answer in answers.items():
            offset = positions[key]
            if isinstance(answer, KafkaError):
                continue
            try:
                self._since[key, offset] = first_timestamp(answer.records, offset)[0]
            except InvalidBatch:
                self._since[key, offset] = None
