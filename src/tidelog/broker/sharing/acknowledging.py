"""What members acknowledge, and what they hold when their session ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred, gather
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicPartition
from tidelog.security.access import Operation, ResourceType
from tidelog.sharing.partition import Acknowledgement, AcknowledgeType
from tidelog.sharing.sessions import SharedPlace, ShareSession, ShareSessions

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.replicas.replica import Replica
    from tidelog.broker.sharing.partitions import LedSharePartition, SharePartitions
    from tidelog.broker.sharing.surroundings import Surroundings

Acknowledged = dict[SharedPlace, KafkaError | None]
"""[partition] -> why its acknowledgements were refused; None: they hold."""


def replica_of(node: Surroundings, context: RequestContext, place: SharedPlace) -> Replica:
    """The replica that this broker leads.

    KafkaError UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER,
    KAFKA_STORAGE_ERROR.
    """
    topic = node.metadata.topic_name(place.topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    if not authorize(context, Operation.READ, ResourceType.TOPIC, topic):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic_partition = TopicPartition(topic, place.partition)
    if node.metadata.image.partition(topic_partition) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    replica = node.replicas.leader(topic_partition)
    if replica.topic_id not in (ZERO_TOPIC_ID, place.topic_id):
        # It is that of a former topic of the name, which this broker has yet to give up.
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    return replica


def acknowledge(
    node: Surroundings,
    partitions: SharePartitions,
    context: RequestContext,
    session: ShareSession,
    told: Mapping[SharedPlace, Sequence[Acknowledgement]],
    *,
    renews: bool,
) -> Deferred[Acknowledged]:
    """Has each partition take its acknowledgements over; completes when all of them are stored or refused.

    `renews`: whether the request may renew locks.
    """

    def one(place: SharedPlace, acknowledgements: Sequence[Acknowledgement]) -> Deferred[KafkaError | None]:
        answer: Deferred[KafkaError | None] = Deferred()

        def settle(outcome: Deferred[None]) -> None:
            try:
                outcome.result()
            except KafkaError as error:
                answer.complete(error)
            else:
                answer.complete(None)

        try:
            _check_types(partitions, session.group, acknowledgements, renews=renews)
            led = _led(node, partitions, context, session.group, place)
            assert led.machine is not None
            change = led.machine.acknowledge(node.clock.monotonic_ms(), session.member, acknowledgements)
        except KafkaError as error:
            answer.complete(error)
        else:
            led.store(change).on_complete(settle)
            led.arm()
        return answer

    places = list(told)
    return gather([one(place, told[place]) for place in places]).then(
        lambda errors: dict(zip(places, errors, strict=True))
    )


def _check_types(
    partitions: SharePartitions, group: str, acknowledgements: Sequence[Acknowledgement], *, renews: bool
) -> None:
    for each in acknowledgements:
        if AcknowledgeType.RENEW in each.types and not (renews and partitions.settings(group).renew_enabled):
            raise KafkaError(ErrorCode.INVALID_REQUEST)


def _led(
    node: Surroundings, partitions: SharePartitions, context: RequestContext, group: str, place: SharedPlace
) -> LedSharePartition:
    """The share partition, which members hold locks of; KafkaError where there can be none."""
    replica_of(node, context, place)
    led = partitions.known(group, *place)
    if led is None:
        # Locks were lost with the former leadership: what the member says is of the past.
        raise KafkaError(
            ErrorCode.INVALID_RECORD_STATE, "The offset cannot be acknowledged. The offset is not acquired."
        )
    return led


def end_session(partitions: SharePartitions, sessions: ShareSessions, session: ShareSession) -> Deferred[None]:
    """Ends a session: what the member holds may be delivered to others. Completes when that is stored."""
    sessions.end(session)
    released = []
    for place in session.touched:
        led = partitions.known(session.group, *place)
        if led is not None:
            released.append(led.release(session.member))

    def done(_: object) -> None:
        if not sessions.has_group(session.group):
            # It may be told to begin elsewhere before its next member comes.
            partitions.forget_quiet(session.group)

    return gather(released).then(done)
