"""What clients were told, and the invariants that it is held against.

A story is told twice: once to the code as it is, and once with the algorithm of before, which `old` puts in its place
for the length of a test. Then the invariant that the new one was made for must break, and no other one: each has an
exception of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tests.unit.broker.replica_harness import ReplicaCluster

from tidelog.broker.deferred import Deferred
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol.apis import ApiKey

TOPIC = "t"
PARTITION = TopicPartition(TOPIC, 0)


class InvariantBroken(AssertionError):
    """Something that must hold, whatever happens, does not."""


class RecordLost(InvariantBroken):
    """A record acknowledged with acks=all is not at its offset any more."""


class LogsDiffer(InvariantBroken):
    """Two replicas have different records at the same offset, below both their ends."""


class RecordTwice(InvariantBroken):
    """An idempotent producer's record is in the log, or was read, twice."""


class WentBack(InvariantBroken):
    """A consumer was sent back to offsets that it had read, though nothing was wrong with them."""


class SkippedInSilence(InvariantBroken):
    """A consumer believes to have read what the log does not hold, and was not told."""


class TwoLeaders(InvariantBroken):
    """Two brokers lead one partition in one leader epoch."""


class NobodyServes(InvariantBroken):
    """A partition has a leader that does not know of it."""


class CheckedCluster:
    """Produces into a topic of one partition, and remembers what was acknowledged by all in sync."""

    def __init__(self, cluster: ReplicaCluster) -> None:
        self.cluster = cluster
        self.acknowledged: dict[int, bytes] = {}
        """[offset] -> value"""

    def produce(self, *values: bytes, **fields: Any) -> int:
        """With acks=all; each value a batch. The last one's offset."""
        offset = -1
        for value in values:
            answer = self.cluster.produce(TOPIC, [value], acks=-1, **fields)
            offset = self.settle(answer, value)
        return offset

    def settle(self, answer: Any, value: bytes) -> int:
        """Waits for an acknowledgement, and remembers it."""
        if isinstance(answer, Deferred):
            self.cluster.until(lambda: answer.done)
            broker = self.cluster.brokers[self.cluster.states[PARTITION].leader]
            answer = broker.decode_any(ApiKey.PRODUCE, 9, answer.result()).responses[0].partition_responses[0]
        assert ErrorCode(answer.error_code) is ErrorCode.NONE
        self.acknowledged[answer.base_offset] = value
        return int(answer.base_offset)

    def check(self) -> None:
        """What was acknowledged is there, and the replicas are equal as far as both go."""
        leader = self.cluster.states[PARTITION].leader
        held = values_by_offset(self.cluster, leader)
        lost = {offset: value for offset, value in self.acknowledged.items() if held.get(offset) != value}
        if lost:
            raise RecordLost(f"{lost} was acknowledged; the leader, broker {leader}, holds {held}")
        self.check_equal()

    def check_equal(self) -> None:
        """The replicas are equal as far as both go."""
        logs = {id: values_by_offset(self.cluster, id) for id in sorted(self.cluster.brokers)}
        for one, first in logs.items():
            for other, second in logs.items():
                different = {
                    at: (first[at], second[at]) for at in first.keys() & second.keys() if first[at] != second[at]
                }
                if different:
                    raise LogsDiffer(f"brokers {one} and {other} differ: {different}")

    def check_once(self, records: Iterable[tuple[int, bytes]]) -> None:
        """No value twice among what was read, as (offset, value)."""
        offsets: dict[bytes, list[int]] = {}
        for offset, value in records:
            offsets.setdefault(value, []).append(offset)
        twice = {value: found for value, found in offsets.items() if len(found) > 1}
        if twice:
            raise RecordTwice(f"sent once, read at these offsets: {twice}")


class Consumer:
    """Reads one topic by fetch requests, as clients do that know leader epochs (KIP-320), or as those of before."""

    def __init__(self, cluster: ReplicaCluster, *, knows_epochs: bool) -> None:
        self.cluster = cluster
        self.knows_epochs = knows_epochs
        self.position = 0
        self.last_epoch = -1
        """Leader epoch of the last record read."""
        self.current_epoch = -1
        """The highest leader epoch that any metadata told."""
        self.read: dict[int, bytes] = {}
        """[offset] -> value, as the consumer believes it to be."""
        self.told: list[int] = []
        """Offsets from which it was told that what it had read is not in the log any more."""

    def poll(self, broker_id: int) -> ErrorCode:
        """One fetch from the broker that metadata names as the leader. Out of range means: from the beginning."""
        broker = self.cluster.brokers[broker_id]
        if self.knows_epochs:
            epochs = {"current_leader_epoch": self.current_epoch, "last_fetched_epoch": self.last_epoch}
        else:
            epochs = {}
        answer = broker.fetch(TOPIC, self.position, **epochs)
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._go_back()
        elif error is ErrorCode.NONE and answer.diverging_epoch.end_offset >= 0:
            self.position = answer.diverging_epoch.end_offset
            self.last_epoch = answer.diverging_epoch.epoch
            self.told.append(self.position)
            self.read = {offset: value for offset, value in self.read.items() if offset < self.position}
        elif error is ErrorCode.NONE:
            self._take(broker_id, answer)
        return error

    def learn(self, leader_epoch: int) -> None:
        """Metadata came; of two leader epochs the higher one is true."""
        self.current_epoch = max(self.current_epoch, leader_epoch)

    def check(self, broker_id: int) -> None:
        """What it has read is what the log of the leader holds below its position."""
        held = values_by_offset(self.cluster, broker_id)
        below = {offset: value for offset, value in held.items() if offset < self.position}
        if self.read != below:
            raise SkippedInSilence(f"the consumer believes in {self.read}, the leader holds {below}")

    def _take(self, broker_id: int, answer: Any) -> None:
        for offset, value in values_by_offset(self.cluster, broker_id).items():
            if self.position <= offset < answer.high_watermark:
                self.read[offset] = value
                self.position = offset + 1
        log = self.cluster.log(broker_id, TOPIC)
        self.last_epoch = log.epochs.epoch_for_offset(max(0, self.position - 1))

    def _go_back(self) -> None:
        if self.read:
            raise WentBack(f"from {self.position} to the beginning; {self.read} will be read once more")
        self.position = 0


def values_by_offset(cluster: ReplicaCluster, broker_id: int) -> dict[int, bytes]:
    """What a broker's log holds."""
    if cluster.brokers[broker_id].replica(TOPIC) is None:
        return {}
    return {record.offset: bytes(record.value or b"") for record in cluster.records(broker_id, TOPIC)}


def checkpoint(cluster: ReplicaCluster, broker_ids: Sequence[int]) -> None:
    """High watermarks go to their checkpoint files."""
    for broker_id in broker_ids:
        for task in cluster.brokers[broker_id].logs.maintenance.checkpoint_tasks():
            task.run()
            task.finish(None)
