"""Leaders and replicas of partitions: elections by hand, reassignments. No I/O."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from tidelog.client.admin.answers import REQUEST_TIMEOUT_MS, change_partitions, error_of
from tidelog.client.errors import UnsupportedByBroker
from tidelog.client.exchange import ByVersion
from tidelog.client.operations import Operation
from tidelog.client.routing import Routing
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey


class ElectionType(enum.IntEnum):
    """Which replica may be elected: the first assigned one, if in sync, or, where none leads, any live one."""

    PREFERRED = 0
    UNCLEAN = 1


def elect_leaders(
    routing: Routing,
    type: ElectionType,
    partitions: Collection[TopicPartition] | None = None,
    *,
    timeout_s: float | None = None,
) -> Operation[dict[TopicPartition, KafkaError | None]]:
    """Elects leaders of partitions; each one's error or None. None: of all, and those that need none are left out."""
    kind = messages.ElectLeadersRequest
    topics: dict[str, list[int]] = {}
    for name, index in partitions or ():
        topics.setdefault(name, []).append(index)
    chosen = [kind.TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics.items()]

    def build(version: int) -> Any:
        if version == 0 and type is not ElectionType.PREFERRED:
            raise UnsupportedByBroker("the cluster is too old for unclean elections by hand")
        request = kind(topic_partitions=None if partitions is None else chosen, timeout_ms=REQUEST_TIMEOUT_MS)
        if version >= 1:
            request.election_type = int(type)
        return request

    def entries(response: Any) -> Iterator[tuple[str, int, int, str | None]]:
        for topic in response.replica_election_results:
            for entry in topic.partition_result:
                yield topic.topic, entry.partition_id, entry.error_code, entry.error_message

    question = ByVersion(ApiKey.ELECT_LEADERS, build)
    deadline = routing.deadline(timeout_s)
    return (yield from change_partitions(routing, question, deadline, entries, "the election was refused"))


@dataclasses.dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition on its way to other brokers: those it gains and those it will leave."""

    adding: tuple[int, ...]
    removing: tuple[int, ...]
    replicas: tuple[int, ...] = ()
    """All replicas for now: those of the target in their order, then those that it will leave."""


def reassignments(routing: Routing, *, timeout_s: float | None = None) -> Operation[dict[TopicPartition, Reassignment]]:
    """The reassignments in progress; none where the cluster has no such API."""
    request = messages.ListPartitionReassignmentsRequest(topics=None, timeout_ms=REQUEST_TIMEOUT_MS)
    try:
        response = yield from routing.ask_controller(
            request, routing.deadline(timeout_s), lambda answer: (answer.error_code,)
        )
    except UnsupportedByBroker:
        return {}
    error = error_of(response.error_code, response.error_message, "reassignments")
    if error is not None:
        raise error
    return {
        TopicPartition(topic.name, entry.partition_index): Reassignment(
            tuple(entry.adding_replicas), tuple(entry.removing_replicas), tuple(entry.replicas)
        )
        for topic in response.topics
        for entry in topic.partitions
    }


def alter_reassignments(
    routing: Routing,
    targets: Mapping[TopicPartition, Sequence[int] | None],
    *,
    allow_replication_factor_change: bool = True,
    timeout_s: float | None = None,
) -> Operation[dict[TopicPartition, KafkaError | None]]:
    """Begins reassignments: by partition its replicas, or None to cancel the one in progress; each one's error or None.

    It answers when they have begun: `reassignments` says what is still under way. Forbidding another replication factor
    needs Kafka 4.1 (KIP-860); UnsupportedByBroker from older clusters.
    """
    kind = messages.AlterPartitionReassignmentsRequest
    topics: dict[str, list[Any]] = {}
    for (name, index), replicas in targets.items():
        wish = kind.ReassignablePartition(
            partition_index=index, replicas=None if replicas is None else [int(id) for id in replicas]
        )
        topics.setdefault(name, []).append(wish)

    def build(version: int) -> Any:
        if version == 0 and not allow_replication_factor_change:
            raise UnsupportedByBroker("the cluster is too old to keep replication factors as they are")
        request = kind(
            topics=[kind.ReassignableTopic(name=name, partitions=wishes) for name, wishes in topics.items()],
            timeout_ms=REQUEST_TIMEOUT_MS,
        )
        if version >= 1:
            request.allow_replication_factor_change = allow_replication_factor_change
        return request

    def entries(response: Any) -> Iterator[tuple[str, int, int, str | None]]:
        for topic in response.responses:
            for entry in topic.partitions:
                yield topic.name, entry.partition_index, entry.error_code, entry.error_message

    question = ByVersion(ApiKey.ALTER_PARTITION_REASSIGNMENTS, build)
    deadline = routing.deadline(timeout_s)
    return (yield from change_partitions(routing, question, deadline, entries, "the reassignment was refused"))
