"""What ShareFetch and ShareAcknowledge share: the form of acknowledgements, errors, and where leaders are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.sharing.partition import Acknowledgement
from tidelog.sharing.sessions import SharedPlace

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node


def acknowledgements_of(topics: Iterable[Any]) -> dict[SharedPlace, list[Acknowledgement]]:
    """[partition] -> what the request acknowledges there; partitions without any are left out."""
    found: dict[SharedPlace, list[Acknowledgement]] = {}
    for topic in topics:
        topic_id = TopicId(bytes(topic.topic_id))
        for partition in topic.partitions:
            batches = [
                Acknowledgement(each.first_offset, each.last_offset, each.acknowledge_types)
                for each in partition.acknowledgement_batches
            ]
            if batches:
                found.setdefault(SharedPlace(topic_id, partition.partition_index), []).extend(batches)
    return found


def check_member(group_id: str | None, member_id: str | None) -> tuple[str, str]:
    """(group, member); KafkaError INVALID_REQUEST where one is missing."""
    if not group_id or not member_id or len(member_id) > 36:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return group_id, member_id


def set_leader(node: Node, place: SharedPlace, data: Any, leaders: set[int]) -> None:
    """Names a partition's leader, where this broker does not lead it."""
    topic = node.metadata.topic_name(place.topic_id)
    if topic is not None:
        node.metadata.name_leader(TopicPartition(topic, place.partition), data.current_leader)
        leaders.add(data.current_leader.leader_id)


def name_leaders(node: Node, context: RequestContext, response: Any, endpoint: Any, leaders: set[int]) -> None:
    """Adds where these brokers are, so that the member need not ask (KIP-951)."""
    if not leaders:
        return
    for broker, address in node.metadata.live_endpoints(context.listener):
        if broker.id in leaders:
            response.node_endpoints.append(
                endpoint(node_id=broker.id, host=address.host, port=address.port, rack=broker.rack)
            )
