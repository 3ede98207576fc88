"""What a broker asks of the controller on another broker: `controller.requests` as Kafka's own requests, and back.

Both sides are here, so that they stand beside each other: `encode` and `decode` for the sender, the functions named
after the messages for the handlers that are asked. Versions are the newest of Kafka 3.9 with ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, assert_never

from tidelog.broker.shell import Purpose
from tidelog.controller.requests import (
    AllocateProducerIds,
    AlterPartition,
    ControlledShutdown,
    CreatedTopic,
    CreateTopics,
    IsrMember,
    IsrOutcome,
    IsrProposal,
    ProducerIdBlock,
)
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    ProducerId,
    TopicId,
    TopicPartition,
)
from tidelog.protocol import messages

Carried = AlterPartition | AllocateProducerIds | ControlledShutdown | CreateTopics
"""What has a request of its own."""

ALTER_PARTITION_VERSION: Final = 3
ALLOCATE_PRODUCER_IDS_VERSION: Final = 0
CONTROLLED_SHUTDOWN_VERSION: Final = 3
CREATE_TOPICS_VERSION: Final = 7

CREATE_TIMEOUT_MS: Final = 30_000
"""How long a controller that is asked for a topic by a broker may take."""


def purpose(event: Carried) -> Purpose:
    """The connection that carries it: what waits for other brokers must not hold up a leader's ISR."""
    return Purpose.FORWARD if isinstance(event, CreateTopics) else Purpose.REPORT


def encode(event: Carried) -> tuple[Any, int]:
    """The message, and the version in which it is sent."""
    match event:
        case AlterPartition():
            return _alter_partition_request(event), ALTER_PARTITION_VERSION
        case AllocateProducerIds(broker_id, broker_epoch):
            allocation = messages.AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch)
            return allocation, ALLOCATE_PRODUCER_IDS_VERSION
        case ControlledShutdown(broker_id, broker_epoch):
            shutdown = messages.ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
            return shutdown, CONTROLLED_SHUTDOWN_VERSION
        case CreateTopics():
            return _create_topics_request(event), CREATE_TOPICS_VERSION
        case _:
            assert_never(event)


def decode(event: Carried, response: Any) -> Any:
    """What the controller answered to `event`. KafkaError where it refused the whole."""
    if not isinstance(event, CreateTopics) and response.error_code != ErrorCode.NONE:
        raise KafkaError(ErrorCode(response.error_code))
    match event:
        case AlterPartition():
            return _isr_outcomes(event, response)
        case AllocateProducerIds():
            return ProducerIdBlock(ProducerId(response.producer_id_start), response.producer_id_len)
        case ControlledShutdown():
            return [
                TopicPartition(remaining.topic_name, remaining.partition_index)
                for remaining in response.remaining_partitions
            ]
        case CreateTopics():
            return _created_topics(response)
        case _:
            assert_never(event)


# AlterPartition.


def _alter_partition_request(event: AlterPartition) -> messages.AlterPartitionRequest:
    request = messages.AlterPartitionRequest
    topics: dict[TopicId, messages.AlterPartitionRequest.TopicData] = {}
    for proposal in event.proposals:
        topic = topics.setdefault(proposal.topic_id, request.TopicData(topic_id=proposal.topic_id, partitions=[]))
        topic.partitions.append(
            request.PartitionData(
                partition_index=proposal.topic_partition.partition,
                leader_epoch=proposal.leader_epoch,
                new_isr_with_epochs=[
                    request.BrokerState(broker_id=member.broker_id, broker_epoch=member.broker_epoch)
                    for member in proposal.isr
                ],
                partition_epoch=proposal.partition_epoch,
            )
        )
    return request(broker_id=event.broker_id, broker_epoch=event.broker_epoch, topics=list(topics.values()))


def alter_partition_event(
    request: messages.AlterPartitionRequest, version: int, name_of: Callable[[bytes], str | None]
) -> AlterPartition:
    """The request as an event; `name_of` knows topics by their ids, those that it does not know are left out."""
    return AlterPartition(
        BrokerId(request.broker_id),
        BrokerEpoch(request.broker_epoch),
        [
            IsrProposal(
                TopicPartition(name, partition.partition_index),
                TopicId(topic.topic_id),
                LeaderEpoch(partition.leader_epoch),
                _members(partition, version),
                PartitionEpoch(partition.partition_epoch),
            )
            for topic in request.topics
            if (name := name_of(topic.topic_id)) is not None
            for partition in topic.partitions
        ],
    )


def _members(partition: Any, version: int) -> list[IsrMember]:
    if version < 3:
        return [IsrMember(BrokerId(broker_id)) for broker_id in partition.new_isr]
    return [
        IsrMember(BrokerId(member.broker_id), BrokerEpoch(member.broker_epoch))
        for member in partition.new_isr_with_epochs
    ]


def alter_partition_response(
    request: messages.AlterPartitionRequest, outcomes: Sequence[IsrOutcome]
) -> messages.AlterPartitionResponse:
    """The answer in the order of the request; what has no outcome was asked with an unknown topic id."""
    response = messages.AlterPartitionResponse
    known = {(outcome.topic_id, outcome.topic_partition.partition): outcome for outcome in outcomes}
    answer = response()
    for topic in request.topics:
        told = response.TopicData(topic_id=topic.topic_id, partitions=[])
        answer.topics.append(told)
        for partition in topic.partitions:
            outcome = known.get((TopicId(topic.topic_id), partition.partition_index))
            data = response.PartitionData(partition_index=partition.partition_index)
            if outcome is None:
                data.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            elif outcome.error is not ErrorCode.NONE:
                data.error_code = outcome.error
            else:
                data.leader_id = outcome.leader
                data.leader_epoch = outcome.leader_epoch
                data.isr = list(outcome.isr)
                data.partition_epoch = outcome.partition_epoch
            told.partitions.append(data)
    return answer


def _isr_outcomes(event: AlterPartition, response: messages.AlterPartitionResponse) -> list[IsrOutcome]:
    answered = {
        (TopicId(topic.topic_id), partition.partition_index): partition
        for topic in response.topics
        for partition in topic.partitions
    }
    outcomes = []
    for proposal in event.proposals:
        data = answered.get((proposal.topic_id, proposal.topic_partition.partition))
        if data is None or data.error_code != ErrorCode.NONE:
            error = ErrorCode.UNKNOWN_SERVER_ERROR if data is None else ErrorCode(data.error_code)
            outcomes.append(IsrOutcome(proposal.topic_partition, proposal.topic_id, error))
        else:
            outcomes.append(
                IsrOutcome(
                    proposal.topic_partition,
                    proposal.topic_id,
                    ErrorCode.NONE,
                    BrokerId(data.leader_id),
                    LeaderEpoch(data.leader_epoch),
                    tuple(map(BrokerId, data.isr)),
                    PartitionEpoch(data.partition_epoch),
                )
            )
    return outcomes


# ControlledShutdown.


def controlled_shutdown_response(remaining: Sequence[TopicPartition]) -> messages.ControlledShutdownResponse:
    response = messages.ControlledShutdownResponse
    return response(
        remaining_partitions=[
            response.RemainingPartition(topic_name=topic, partition_index=partition) for topic, partition in remaining
        ]
    )


# CreateTopics, for topics that a broker needs or a client's Metadata brings into being.


def _create_topics_request(event: CreateTopics) -> messages.CreateTopicsRequest:
    request = messages.CreateTopicsRequest
    return request(
        topics=[
            request.CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                assignments=[
                    request.CreatableReplicaAssignment(partition_index=partition, broker_ids=list(replicas))
                    for partition, replicas in topic.assignment
                ],
                configs=[request.CreatableTopicConfig(name=name, value=value) for name, value in topic.configs],
            )
            for topic in event.topics
        ],
        timeout_ms=CREATE_TIMEOUT_MS,
        validate_only=event.validate_only,
    )


def _created_topics(response: messages.CreateTopicsResponse) -> list[CreatedTopic]:
    return [
        CreatedTopic(
            topic.name,
            ErrorCode(topic.error_code),
            topic.error_message,
            TopicId(topic.topic_id),
            topic.num_partitions,
            topic.replication_factor,
        )
        for topic in response.topics
    ]
