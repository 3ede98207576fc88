"""What is asked of the controller, and what it answers.

Requests carry the type of their answer: `Request[R]` is answered by an `R`. Answers are per item, each with its own
error code and sentence, as the admin APIs have them; a request as a whole is refused only by KafkaError
(NOT_CONTROLLER, STALE_BROKER_EPOCH, REQUEST_TIMED_OUT).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from typing import Generic, Protocol, TypeVar

from tidelog.metadata.image import NO_BROKER_EPOCH, NO_PARTITION_EPOCH, ConfigResource
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import (
    NO_LEADER,
    NO_LEADER_EPOCH,
    ZERO_TOPIC_ID,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    ProducerId,
    TopicId,
    TopicPartition,
)
from tidelog.model.values import value

R = TypeVar("R")


class MutationQuota(Protocol):
    """What a client may still change in the cluster (KIP-599)."""

    def record(self, partitions: int, now_ms: int) -> None:
        """Counts a topic's; KafkaError THROTTLING_QUOTA_EXCEEDED: it may not be changed now. `now_ms` is monotonic."""
        ...


class Request(Generic[R]):
    """Something asked of the controller; the answer is an R."""

    __slots__ = ()


# Topics.


@value
class NewTopic:
    """One topic of a CreateTopics."""

    name: str
    partitions: int = -1
    """-1: num.partitions, or as the assignment has."""
    replication_factor: int = -1
    """-1: default.replication.factor, or as the assignment has."""
    assignment: Sequence[tuple[int, Sequence[int]]] = ()
    """(partition, replicas) chosen by the caller; empty: the controller places."""
    configs: Sequence[tuple[str, str | None]] = ()
    """(setting, value) as they came, so that duplicates are seen."""


@value
class CreatedTopic:
    """The answer for one topic; the fields after the error hold where there is none (also when only validated)."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: TopicId = ZERO_TOPIC_ID
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    """The overrides, as stored."""


@value
class CreateTopics(Request[Sequence[CreatedTopic]]):
    """Answered in the order of `topics` once they are durable and the brokers were told."""

    topics: Sequence[NewTopic]
    validate_only: bool = False
    quota: MutationQuota | None = field(default=None, compare=False)
    """Counts each topic's partitions; None: they are not limited."""


@value
class TopicReference:
    """A topic by name or by id, never both."""

    name: str | None = None
    topic_id: TopicId = ZERO_TOPIC_ID


@value
class DeletedTopic:
    """The answer for one topic. The name is None where an unknown id was given."""

    name: str | None
    topic_id: TopicId = ZERO_TOPIC_ID
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@value
class DeleteTopics(Request[Sequence[DeletedTopic]]):
    """Answered once the topics are gone from the store: after every live replica was stopped."""

    topics: Sequence[TopicReference]
    quota: MutationQuota | None = field(default=None, compare=False)
    """Counts each topic's partitions; None: they are not limited."""
    meant: Mapping[TopicReference, DeletedTopic] = field(default_factory=dict, compare=False)
    """Of a request that is handled anew: the topics that it named before. Another one may have the name by now."""


@value
class MorePartitions:
    """One topic of a CreatePartitions."""

    name: str
    count: int
    """Partitions in total, afterwards."""
    assignments: Sequence[Sequence[int]] | None = None
    """Replicas of each new partition; None: the controller places."""


@value
class TopicOutcome:
    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@value
class CreatePartitions(Request[Sequence[TopicOutcome]]):
    topics: Sequence[MorePartitions]
    validate_only: bool = False
    quota: MutationQuota | None = field(default=None, compare=False)
    """Counts each topic's new partitions; None: they are not limited."""


# Settings.


class AlterOperation(IntEnum):
    """Of IncrementalAlterConfigs; Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@value
class ConfigChange:
    """One step of an incremental change. The value is ignored by DELETE."""

    name: str
    operation: AlterOperation
    value: str | None = None


@value
class ReplaceConfigs:
    """All settings of a resource anew (AlterConfigs): what is not named goes back to its default."""

    resource: ConfigResource
    values: Sequence[tuple[str, str | None]]


@value
class ChangeConfigs:
    """Some settings of a resource (IncrementalAlterConfigs)."""

    resource: ConfigResource
    changes: Sequence[ConfigChange]


@value
class ConfigOutcome:
    resource: ConfigResource
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@value
class AlterConfigs(Request[Sequence[ConfigOutcome]]):
    """Answered in the order of `resources` once durable; brokers learn it by their watch on /config/changes."""

    resources: Sequence[ReplaceConfigs | ChangeConfigs]
    validate_only: bool = False


# Partitions: what leaders and brokers ask.


@value
class IsrMember:
    """A broker proposed for an ISR, with the epoch by which the leader knows it (KIP-903); -1: unknown."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch = NO_BROKER_EPOCH


@value
class IsrProposal:
    """A leader's wish for one partition's ISR."""

    topic_partition: TopicPartition
    topic_id: TopicId
    """All zeros where the leader does not know it."""
    leader_epoch: LeaderEpoch
    isr: Sequence[IsrMember]
    partition_epoch: PartitionEpoch
    """Of the state on which the wish rests."""


@value
class IsrOutcome:
    """The partition's state after an AlterPartition; meaningful where the error is NONE."""

    topic_partition: TopicPartition
    topic_id: TopicId
    error: ErrorCode = ErrorCode.NONE
    leader: BrokerId = NO_LEADER
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    isr: Sequence[BrokerId] = ()
    partition_epoch: PartitionEpoch = NO_PARTITION_EPOCH


@value
class AlterPartition(Request[Sequence[IsrOutcome]]):
    """KIP-497. STALE_BROKER_EPOCH as a whole when the leader's registration is not the current one."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    proposals: Sequence[IsrProposal]


class ElectionType(IntEnum):
    """Of ElectLeaders; Kafka's numbers."""

    PREFERRED = 0
    UNCLEAN = 1


@value
class ElectionOutcome:
    topic_partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@value
class ElectLeaders(Request[Sequence[ElectionOutcome]]):
    """KIP-460. Without partitions: all, and those that need no election are left out of the answer."""

    type: ElectionType
    partitions: Sequence[TopicPartition] | None = None


@value
class ReassignPartition:
    """A wish for one partition of an AlterReassignments."""

    topic_partition: TopicPartition
    replicas: Sequence[BrokerId] | None
    """The brokers that are to hold it, the preferred leader first; None: the reassignment in progress is to be
    cancelled."""


@value
class ReassignmentOutcome:
    topic_partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@value
class AlterReassignments(Request[Sequence[ReassignmentOutcome]]):
    """KIP-455. Answered, each partition once, when the reassignments have begun, not when they end."""

    partitions: Sequence[ReassignPartition]
    allow_replication_factor_change: bool = True
    """KIP-860: without it a target of another length is refused."""


@value
class OngoingReassignment:
    topic_partition: TopicPartition
    replicas: Sequence[BrokerId]
    """All that there are: those to be, and those to go."""
    adding: Sequence[BrokerId]
    removing: Sequence[BrokerId]


@value
class ListReassignments(Request[Sequence[OngoingReassignment]]):
    """KIP-455. Without partitions: all that are reassigned; what is not reassigned is left out of the answer."""

    partitions: Sequence[TopicPartition] | None = None


@value
class ProducerIdBlock:
    """Producer ids for one broker to hand out: first .. first + length - 1."""

    first: ProducerId
    length: int


@value
class AllocateProducerIds(Request[ProducerIdBlock]):
    """KIP-730. STALE_BROKER_EPOCH when the registration is not the current one."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


@value
class ControlledShutdown(Request[Sequence[TopicPartition]]):
    """A broker wants to leave. The answer: partitions that it still leads, for no other replica can."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
