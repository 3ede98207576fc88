"""Consumer groups: listed, described, deleted; their offsets deleted. Committed offsets: `client.offsets`. No I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from tidelog.client.addresses import Address
from tidelog.client.admin.answers import ask_every_broker, error_of
from tidelog.client.errors import UnsupportedByBroker, refusal
from tidelog.client.exchange import ByVersion
from tidelog.client.member_data import InvalidMemberData, decode_assignment
from tidelog.client.offsets import by_topic
from tidelog.client.operations import Deadline, Operation
from tidelog.client.routing import COORDINATOR_GROUP, Routing
from tidelog.client.views import Broker, partition_error
from tidelog.model.errors import ErrorCode, KafkaError, error_code
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.protocol.consumer_protocol import PROTOCOL_TYPE

CLASSIC: Final = "Classic"
CONSUMER: Final = "Consumer"
"""Types of groups, as Kafka's tools name them: a member assigns partitions, or (KIP-848) the coordinator does."""
SHARE: Final = "Share"
"""The type of groups whose members take records one by one (KIP-932), and their protocol type in lower case."""
DEAD: Final = "Dead"
"""The state of a group that is not there."""


@dataclasses.dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list; `state` and `type` are "" where the broker is too old to tell."""

    group: str
    protocol_type: str
    state: str
    type: str


@dataclasses.dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member and what it has; `target` is what the coordinator wants it to have, None in classic groups."""

    member_id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    instance_id: str | None = None
    rack: str | None = None
    epoch: int | None = None
    target: tuple[TopicPartition, ...] | None = None
    upgraded: bool | None = None
    """In a group of KIP-848: whether the member speaks that protocol, or still the classic one; None: not told."""


@dataclasses.dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as its coordinator describes it. Epochs are None in classic groups."""

    group: str
    type: str
    protocol_type: str
    state: str
    assignor: str
    coordinator: Broker
    members: tuple[MemberDescription, ...]
    epoch: int | None = None
    target_epoch: int | None = None


def list_groups(
    routing: Routing,
    *,
    states: Collection[str] = (),
    types: Collection[str] = (),
    shared: bool = False,
    timeout_s: float | None = None,
) -> Operation[list[GroupListing]]:
    """The groups of every coordinator, by id, of these states and types (none: of all): those of consumers, and where
    it says `shared` share groups.

    KafkaError or ClientError when a broker does not answer: the list would lack groups.
    """
    deadline = routing.deadline(timeout_s)
    kind = messages.ListGroupsRequest

    def build(version: int) -> Any:
        if (states and version < 4) or (types and version < 5):
            raise UnsupportedByBroker("the cluster is too old to list groups by state or type")
        request = kind()
        if version >= 4:
            request.states_filter = list(states)
        if version >= 5:
            request.types_filter = list(types)
        return request

    request = ByVersion(ApiKey.LIST_GROUPS, build)
    answers = yield from ask_every_broker(routing, request, deadline, "the list of groups")
    wanted = {PROTOCOL_TYPE, "", *([SHARE.lower()] if shared else [])}
    found = {
        entry.group_id: GroupListing(
            entry.group_id, entry.protocol_type, entry.group_state, entry.group_type.capitalize()
        )
        for answer in answers.values()
        for entry in answer.groups
        if entry.protocol_type in wanted
    }
    return [found[group] for group in sorted(found)]


def describe_groups(
    routing: Routing, groups: Sequence[str], *, timeout_s: float | None = None
) -> Operation[dict[str, GroupDescription | KafkaError]]:
    """Groups with their members; KafkaError GROUP_ID_NOT_FOUND for one that is not there."""
    deadline = routing.deadline(timeout_s)
    yield from routing.refresh((), deadline)
    results: dict[str, GroupDescription | KafkaError] = {}
    for group in dict.fromkeys(groups):
        try:
            results[group] = yield from _describe(routing, group, deadline)
        except KafkaError as error:
            results[group] = error
    return results


def _describe(routing: Routing, group: str, deadline: Deadline) -> Operation[GroupDescription]:
    """Asks by KIP-848's request first, which tells what other groups are not, then by the classic one."""
    request: Any = messages.ConsumerGroupDescribeRequest(group_ids=[group])
    try:
        response = yield from routing.ask_coordinator(group, request, deadline, _group_codes)
    except UnsupportedByBroker:
        described = None
    else:
        described = response.groups[0]
        if error_code(described.error_code) in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            described = None
    if described is not None:
        _raise_error(described, group)
        coordinator = yield from _coordinator(routing, group, deadline)
        return _next_generation(described, coordinator)
    request = messages.DescribeGroupsRequest(groups=[group])
    response = yield from routing.ask_coordinator(group, request, deadline, _group_codes)
    described = response.groups[0]
    # From version 6 on a group that is not a classic one is not found, before it is dead (KIP-1043).
    is_absent = error_code(described.error_code) is ErrorCode.GROUP_ID_NOT_FOUND
    if not is_absent:
        _raise_error(described, group)
    if is_absent or described.group_state == DEAD:
        return (yield from _describe_shared(routing, group, deadline))
    coordinator = yield from _coordinator(routing, group, deadline)
    return _classic(described, coordinator)


def _describe_shared(routing: Routing, group: str, deadline: Deadline) -> Operation[GroupDescription]:
    """The share group; KafkaError GROUP_ID_NOT_FOUND where it is none."""
    request: Any = messages.ShareGroupDescribeRequest(group_ids=[group])
    try:
        response = yield from routing.ask_coordinator(group, request, deadline, _group_codes)
    except UnsupportedByBroker:
        raise _absent(group) from None
    described = response.groups[0]
    _raise_error(described, group)
    coordinator = yield from _coordinator(routing, group, deadline)
    return GroupDescription(
        group=described.group_id,
        type=SHARE,
        protocol_type=SHARE.lower(),
        state=described.group_state,
        assignor=described.assignor_name,
        coordinator=coordinator,
        members=tuple(
            MemberDescription(
                member_id=member.member_id,
                client_id=member.client_id,
                host=member.client_host,
                partitions=_partitions(member.assignment),
                rack=member.rack_id,
                epoch=member.member_epoch,
            )
            for member in described.members
        ),
        epoch=described.group_epoch,
        target_epoch=described.assignment_epoch,
    )


def _group_codes(response: Any) -> Iterator[int]:
    return (group.error_code for group in response.groups)


def _raise_error(described: Any, group: str) -> None:
    code = error_code(described.error_code)
    if code is ErrorCode.GROUP_ID_NOT_FOUND:
        raise _absent(group)
    text = getattr(described, "error_message", None)
    error = error_of(described.error_code, text, f"group '{group}'", group=group)
    if error is not None:
        raise error


def _absent(group: str) -> KafkaError:
    return refusal(ErrorCode.GROUP_ID_NOT_FOUND, "", f"group '{group}' does not exist", group=group)


def _coordinator(routing: Routing, group: str, deadline: Deadline) -> Operation[Broker]:
    address = yield from routing.find_coordinator(group, COORDINATOR_GROUP, deadline)
    if isinstance(address, Address):
        for broker in routing.brokers.values():
            if broker.address == address:
                return broker
        return Broker(-1, address, None)
    raise address


def _classic(described: Any, coordinator: Broker) -> GroupDescription:
    return GroupDescription(
        group=described.group_id,
        type=CLASSIC,
        protocol_type=described.protocol_type,
        state=described.group_state,
        assignor=described.protocol_data,
        coordinator=coordinator,
        members=tuple(
            MemberDescription(
                member_id=member.member_id,
                client_id=member.client_id,
                host=member.client_host,
                partitions=_assigned(bytes(member.member_assignment)),
                instance_id=member.group_instance_id,
            )
            for member in described.members
        ),
    )


def _assigned(data: bytes) -> tuple[TopicPartition, ...]:
    """What an assignment's bytes say; nothing where they are of other people's making."""
    try:
        return tuple(sorted(decode_assignment(data).partitions))
    except InvalidMemberData:
        return ()


def _next_generation(described: Any, coordinator: Broker) -> GroupDescription:
    return GroupDescription(
        group=described.group_id,
        type=CONSUMER,
        protocol_type=PROTOCOL_TYPE,
        state=described.group_state,
        assignor=described.assignor_name,
        coordinator=coordinator,
        members=tuple(
            MemberDescription(
                member_id=member.member_id,
                client_id=member.client_id,
                host=member.client_host,
                partitions=_partitions(member.assignment),
                instance_id=member.instance_id,
                rack=member.rack_id,
                epoch=member.member_epoch,
                target=_partitions(member.target_assignment),
                upgraded=None if member.member_type < 0 else bool(member.member_type),
            )
            for member in described.members
        ),
        epoch=described.group_epoch,
        target_epoch=described.assignment_epoch,
    )


def _partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, partition)
            for topic in assignment.topic_partitions
            for partition in topic.partitions
        )
    )


def delete_groups(
    routing: Routing, groups: Sequence[str], *, timeout_s: float | None = None
) -> Operation[dict[str, KafkaError | None]]:
    """Deletes groups that have no members, with their offsets; each one's error or None."""
    deadline = routing.deadline(timeout_s)
    results: dict[str, KafkaError | None] = {}
    for group in dict.fromkeys(groups):
        request = messages.DeleteGroupsRequest(groups_names=[group])
        try:
            response = yield from routing.ask_coordinator(
                group, request, deadline, lambda answer: (entry.error_code for entry in answer.results)
            )
        except KafkaError as error:
            results[group] = error
        else:
            results[group] = _refusal(response.results[0].error_code, group)
    return results


def delete_offsets(
    routing: Routing, group: str, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
) -> Operation[Mapping[TopicPartition, KafkaError | None]]:
    """Forgets what a group committed for partitions; each one's error or None, KafkaError for the group's.

    GROUP_SUBSCRIBED_TO_TOPIC says that a member reads the topic now.
    """
    kind = messages.OffsetDeleteRequest
    request = kind(
        group_id=group,
        topics=[
            kind.OffsetDeleteRequestTopic(
                name=name,
                partitions=[kind.OffsetDeleteRequestPartition(partition_index=tp.partition) for tp in tps],
            )
            for name, tps in by_topic(partitions)
        ],
    )

    def codes(response: Any) -> Iterator[int]:
        yield response.error_code

    response = yield from routing.ask_coordinator(group, request, routing.deadline(timeout_s), codes)
    refused = _refusal(response.error_code, group)
    if refused is not None:
        raise refused
    results: dict[TopicPartition, KafkaError | None] = {}
    for topic in response.topics:
        for entry in topic.partitions:
            topic_partition = TopicPartition(topic.name, entry.partition_index)
            code = error_code(entry.error_code)
            if code is ErrorCode.NONE:
                results[topic_partition] = None
            elif code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
                text = f"group '{group}' is reading topic '{topic.name}' now: stop its members first"
                error = refusal(code, "", text, topic=topic.name, partition=entry.partition_index, group=group)
                results[topic_partition] = error
            else:
                results[topic_partition] = partition_error(topic_partition, code, None).about(group=group)
    return results


def _refusal(number: int, group: str) -> KafkaError | None:
    code = error_code(number)
    match code:
        case ErrorCode.NONE:
            return None
        case ErrorCode.NON_EMPTY_GROUP:
            return refusal(code, "", f"group '{group}' has members: stop them first", group=group)
        case ErrorCode.GROUP_ID_NOT_FOUND:
            return _absent(group)
        case _:
            return refusal(code, f"group '{group}'", group=group)
