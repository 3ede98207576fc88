"""What the controller is told: requests, and what happens by itself, as watches show it, brokers answer it, or time
brings it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

from tidelog.controller.requests import Request
from tidelog.controller.state import NodeRead
from tidelog.metadata.image import BrokerRegistration, ConfigResource
from tidelog.metadata.operations import ANY_VERSION, UNKNOWN_ZXID
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import BrokerId, LeaderEpoch, Offset, PartitionEpoch, TopicId, TopicPartition
from tidelog.model.values import value


@value
class Submitted:
    """A request; its reply carries the same id."""

    request_id: int
    request: Request[Any]


@value
class Elected:
    """The first event of a controller that has just loaded the store."""


@value
class BrokersChanged:
    """All brokers that are registered now; a higher epoch is a restarted broker."""

    registrations: Sequence[BrokerRegistration]


@value
class MarksChanged:
    """Nodes of /tidelog_marks: replicas that have lost records, or have them again; brokers that stopped uncleanly."""

    found: Sequence[NodeRead]
    """Those that are new, or were written again."""
    gone: Sequence[str] = ()
    """Names of those that were known, and are not there any more."""


@value
class TopicIdsTold:
    """A broker's answer to orders about topics whose node has no id."""

    broker_id: BrokerId
    ids: Mapping[TopicPartition, TopicId]
    """The id that its log has; zeros where that has none."""


@value
class TopicIdsDue:
    """Brokers that have postponed orders about topics whose node has no id are to be asked again."""


@value
class LogEndsLearned:
    """A broker's answer to the question where its logs of partitions without a leader end."""

    broker_id: BrokerId
    ends: Mapping[TopicPartition, tuple[LeaderEpoch, Offset]]
    """Epoch of the last batch and log end; (-1, -1) where the broker did not say."""


@value
class LogEndsWanted:
    """A broker that could not say where logs end, for it had not made the replicas yet, has had time to."""

    broker_id: BrokerId


@value
class LogEndsDue:
    """Elections that wait for answers about log ends until this time go by those that have come."""

    due_ms: int
    """Monotonic."""


@value
class MembersDue:
    """Elections that wait for members of the ISR until this time go on with those that are there."""

    due_ms: int
    """Monotonic."""


@value
class SessionsProven:
    """Until this time sessions could outlive their brokers: those that are registered still are alive."""

    due_ms: int
    """Monotonic."""


@value
class ReplicasStopped:
    """A broker's answer to a StopReplica that deletes: for each partition whether it is gone from that broker."""

    broker_id: BrokerId
    errors: Mapping[TopicPartition, ErrorCode]


@value
class DeletionsDue:
    """A broker that could not delete replicas for now has had time to: it is asked again."""

    broker_id: BrokerId


@value
class ReplicasFailed:
    """A broker answered LeaderAndIsr with errors: these replicas are on a failed log directory there."""

    broker_id: BrokerId
    partitions: Sequence[TopicPartition]


@value
class ReplicasPostponed:
    """A broker answered LeaderAndIsr that it does not lead or follow these replicas: it lacks descriptors or memory,
    and does later, or it refuses to, since it has the log of another topic of that name."""

    broker_id: BrokerId
    partitions: Sequence[TopicPartition]


@value
class LogDirectoryFailed:
    """/log_dir_event_notification named this broker: ask it about its replicas."""

    broker_id: BrokerId
    notifications: Sequence[str] = ()
    """Paths of the nodes that said so; they go."""


@value
class IsrsChanged:
    """/isr_change_notification: brokers of a protocol below 2.7 wrote states by themselves, which were read again."""

    states: Sequence[tuple[TopicPartition, bytes | None, PartitionEpoch]]
    """Each partition with its state's content and version."""
    notifications: Sequence[str] = ()
    """Paths of the nodes that said so; they go."""


@value
class LeaderBalanceDue:
    """It is time to look whether leadership is where it was assigned."""


@value
class UncleanElectionAllowed:
    """unclean.leader.election.enable became true for all topics that do not set it themselves."""


@value
class PreferredElectionRequested:
    """/admin/preferred_replica_election, which goes whatever comes of it."""

    partitions: Sequence[TopicPartition]
    czxid: int = UNKNOWN_ZXID
    """The transaction that created the node."""


@value
class ReassignmentsRequested:
    """/admin/reassign_partitions as it was found; None when it is gone, which cancels nothing."""

    data: bytes | None
    version: int = ANY_VERSION
    """Of the node, to write against; any where it is not known."""
    czxid: int = UNKNOWN_ZXID
    """The transaction that created the node."""


@value
class DeletionsRequested:
    """Children of /admin/delete_topics."""

    topics: Sequence[str]
    czxids: Mapping[str, int] = field(default_factory=dict)
    """[topic] -> the transaction that created its node, where it is known."""


@value
class TopicNode:
    """Content of /brokers/topics/<name> as another client wrote it; None when it is gone."""

    name: str
    data: bytes | None
    is_same_node: bool = False
    """Whether it was changed since it was seen last, and not removed and made anew."""
    version: int = ANY_VERSION
    """Of the node, to write against; any where it is not known."""
    is_spared: bool = False
    """Whether it was made anew while its predecessor was being deleted, and the mark of that deletion was removed."""


@value
class TopicsChanged:
    """Topic nodes that are new or differ from what this controller wrote: an old tool was at work."""

    nodes: Sequence[TopicNode]


@value
class ConfigsChanged:
    """Settings of a resource as they were read from the store: after a notification, or with a topic that is new."""

    resource: ConfigResource
    values: Mapping[str, str] | None
    """None where there is no node."""
    version: int = ANY_VERSION
    """Of the node, to write against; any where it is not known."""


Event: TypeAlias = (
    Submitted
    | Elected
    | BrokersChanged
    | MarksChanged
    | TopicIdsTold
    | TopicIdsDue
    | LogEndsLearned
    | LogEndsWanted
    | LogEndsDue
    | MembersDue
    | SessionsProven
    | ReplicasStopped
    | DeletionsDue
    | ReplicasFailed
    | ReplicasPostponed
    | LogDirectoryFailed
    | IsrsChanged
    | LeaderBalanceDue
    | UncleanElectionAllowed
    | PreferredElectionRequested
    | ReassignmentsRequested
    | DeletionsRequested
    | TopicsChanged
    | ConfigsChanged
)
