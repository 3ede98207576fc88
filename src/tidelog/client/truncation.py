"""Whether a log still has what was read of it (KIP-320): the leader is asked where an epoch ended. No I/O.

A position is an offset and the leader epoch of the record before it. After a change of leaders the new one says where
its log has the end of that epoch: an end before the position means that records which were read are gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from tidelog.client.errors import UnsupportedByBroker
from tidelog.client.exchange import ByVersion
from tidelog.client.offsets import by_topic
from tidelog.model.errors import ErrorCode, error_code
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

UNKNOWN: Final = -1
_CONSUMER: Final = -1
_CONSUMERS_SINCE: Final = 3
"""Before this version of OffsetForLeaderEpoch it needs the rights of a broker."""


class Position(NamedTuple):
    """Where a reader of a partition is."""

    offset: int
    epoch: int
    """Leader epoch of the record before it; -1: not known, and nothing can be checked."""
    leader_epoch: int
    """Of the leader that is asked."""


class EpochEnd(NamedTuple):
    """Where the leader's log ends for the greatest epoch up to the one asked for; -1 in both: it knows of none."""

    epoch: int
    offset: int

    def divergence(self, position: Position) -> int | None:
        """Where the log parted from what was read: before `position`, -1 where the leader can't tell; None: nowhere."""
        if self.epoch == UNKNOWN or self.offset == UNKNOWN:
            return UNKNOWN
        return self.offset if self.offset < position.offset else None


def epoch_ends_request(positions: Mapping[TopicPartition, Position]) -> ByVersion:
    """An OffsetForLeaderEpoch about these positions, for the broker that leads them all; one that is too old to answer
    consumers is UnsupportedByBroker."""
    kind = messages.OffsetForLeaderEpochRequest

    def build(version: int) -> Any:
        if version < _CONSUMERS_SINCE:
            raise UnsupportedByBroker(f"OffsetForLeaderEpoch {version} needs the rights of a broker")
        return kind(
            replica_id=_CONSUMER,
            topics=[
                kind.OffsetForLeaderTopic(
                    topic=name,
                    partitions=[
                        kind.OffsetForLeaderPartition(
                            partition=tp.partition,
                            current_leader_epoch=positions[tp].leader_epoch,
                            leader_epoch=positions[tp].epoch,
                        )
                        for tp in partitions
                    ],
                )
                for name, partitions in by_topic(positions)
            ],
        )

    return ByVersion(ApiKey.OFFSET_FOR_LEADER_EPOCH, build)


def epoch_ends(response: Any) -> Iterator[tuple[TopicPartition, ErrorCode, EpochEnd]]:
    """What the leader says of each partition."""
    for topic in response.topics:
        for entry in topic.partitions:
            end = EpochEnd(entry.leader_epoch, entry.end_offset)
            yield TopicPartition(topic.topic, entry.partition), error_code(entry.error_code), end
