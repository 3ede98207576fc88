"""Which partitions of a fetcher are to be checked for truncation before they are read on, and the questions (KIP-320).

    placed (offset, epoch of the record before it) --> due, when the leader has another epoch than the one that said yes
        --> ask: the leader says where its log has the end of that epoch --> passed, or the fetcher goes elsewhere

What an answer means is in `truncation`; what is done about a log that was cut, the fetcher decides.
"""

from __future__ import annotations

from typing import Any

from tidelog.client.addresses import Address
from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientError, ConnectionFailed, InvalidResponse, RequestTimedOut, UnsupportedByBroker
from tidelog.client.offsets import OffsetFound, list_offsets
from tidelog.client.operations import Call
from tidelog.client.truncation import EpochEnd, Position, epoch_ends, epoch_ends_request
from tidelog.client.views import partition_error
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition


class LogChecks:
    """The epochs of what was read, and of the leaders whose logs are known to have it."""

    def __init__(self, cluster: Cluster, answer_s_max: float) -> None:
        self._cluster = cluster
        self._answer_s_max = answer_s_max
        self._epochs: dict[TopicPartition, int] = {}
        """[partition] -> leader epoch of the record before its position, where that is known."""
        self._checked: dict[TopicPartition, int] = {}
        """[partition] -> epoch of the leader whose log is known to have that record."""

    def placed(self, topic_partition: TopicPartition, epoch: int = -1, checked_by: int = -1) -> None:
        """The partition has another position: `epoch` is that of the record before it, which the log of the leader of
        the epoch `checked_by` has; -1: not known."""
        self._epochs[topic_partition] = epoch
        self._checked[topic_partition] = checked_by

    def forget(self, topic_partition: TopicPartition) -> None:
        """The partition is not read any more."""
        self._epochs.pop(topic_partition, None)
        self._checked.pop(topic_partition, None)

    def epoch(self, topic_partition: TopicPartition) -> int:
        """The leader epoch of the record before the partition's position, -1 where it is not known."""
        return self._epochs.get(topic_partition, -1)

    def due(self, topic_partition: TopicPartition, offset: int, leader_epoch: int) -> Position | None:
        """What the leader of `leader_epoch` is to be asked about before `offset` is fetched from it; None: nothing."""
        epoch = self._epochs.get(topic_partition, -1)
        if min(epoch, leader_epoch) < 0 or self._checked.get(topic_partition) == leader_epoch:
            return None
        return Position(offset, epoch, leader_epoch)

    async def ask(
        self, address: Address, positions: dict[TopicPartition, Position]
    ) -> dict[TopicPartition, EpochEnd | KafkaError | ClientError]:
        """What the leader of these partitions says of each, or why it does not. One that is too old to be asked says
        nothing, and is read without."""
        timeout_s = min(self._cluster.routing.call_timeout_s, self._answer_s_max)
        outcome: Any = await self._cluster.call(Call(address, epoch_ends_request(positions), timeout_s))
        if isinstance(outcome, UnsupportedByBroker):
            for topic_partition, position in positions.items():
                self.passed(topic_partition, position)
            return {}
        if isinstance(outcome, ClientError):
            return dict.fromkeys(positions, outcome)
        answers: dict[TopicPartition, EpochEnd | KafkaError | ClientError] = {}
        for topic_partition, code, end in epoch_ends(outcome):
            if topic_partition not in positions:
                raise InvalidResponse(f"{address} tells of the epochs of {topic_partition}, which was not asked for")
            known = code is ErrorCode.NONE
            answers[topic_partition] = end if known else partition_error(topic_partition, code, None)
        return answers

    def passed(self, topic_partition: TopicPartition, position: Position) -> None:
        """The log of the leader that was asked has what was read before the position."""
        self._checked[topic_partition] = position.leader_epoch


async def log_range(
    cluster: Cluster, topic_partition: TopicPartition, isolation: int, timeout_s: float
) -> tuple[int, int] | KafkaError | ClientError:
    """Where the log of a partition begins and ends for readers, or why that is not known now."""
    answers: list[int] = []
    for question in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP):
        operation = list_offsets(cluster.routing, {topic_partition: question}, isolation=isolation, timeout_s=timeout_s)
        try:
            answer: OffsetFound | KafkaError = (await cluster.run(operation))[topic_partition]
        except (ConnectionFailed, RequestTimedOut) as error:
            return error
        if isinstance(answer, KafkaError):
            return answer
        answers.append(answer.offset)
    start, end = answers
    return start, end
