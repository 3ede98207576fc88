"""OffsetFetch: what groups committed.

Versions 1-10. v2: all of a group's offsets (null topics), an error of the whole answer (in some versions of the
partitions, too: `_TELLS_PARTITIONS`). v5: leader epochs. v7: stable offsets only: UNSTABLE_OFFSET_COMMIT while a
transaction may change one. v8: several groups (KIP-709). v9: member epochs (KIP-848). v10: topics by id alone.

A partition without a committed offset has offset -1 and no error; so has one whose offset was committed for another
topic of that name, which was deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred, gather
from tidelog.broker.handlers import Versions
from tidelog.coordinator.groups.offset_events import NO_GENERATION, FetchedOffsets, FetchOffsets
from tidelog.coordinator.records import CommittedOffset
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.OFFSET_FETCH
VERSIONS: Final = Versions(1, 10)

BATCHED_SINCE: Final = 8
TOPIC_IDS_SINCE: Final = 10
GROUP_ERROR_SINCE: Final = 2
STABLE_SINCE: Final = 7
NO_OFFSET: Final = -1

_TELLS_PARTITIONS: Final = range(GROUP_ERROR_SINCE, 4)
"""Versions in which the error of a coordinator that cannot answer now stands at each partition, too.

Kafka's answer has the group's error and no partitions then. aiokafka 0.14, which speaks v3, reads the errors of
partitions only: it took that answer for a group without committed offsets, and began at `auto_offset_reset`. Clients
that read the group's error first see the same as on Kafka.
"""
_CANNOT_ANSWER_NOW: Final = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    # aiokafka ends its coordination at any other error: it is to look for the coordinator again.
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_COORDINATOR,
}
"""[error of the group] -> what its partitions say."""


class _Topic(NamedTuple):
    """One topic of the answer."""

    name: str
    topic_id: TopicId
    partitions: list[tuple[int, CommittedOffset | None, ErrorCode]]


class _Group(NamedTuple):
    """One group of the answer."""

    group: str
    error: ErrorCode
    topics: list[_Topic]


class _AskedTopic(NamedTuple):
    name: str
    topic_id: TopicId
    partitions: list[int]
    error: ErrorCode


class _Asked(NamedTuple):
    """What is asked about one group."""

    group: str
    member_id: str | None
    member_epoch: int
    topics: list[_AskedTopic] | None
    """None: whatever it committed."""


def handle(
    node: Node, context: RequestContext, request: messages.OffsetFetchRequest
) -> messages.OffsetFetchResponse | Deferred[messages.OffsetFetchResponse]:
    version = context.api_version
    if version >= BATCHED_SINCE:
        asked = [
            _Asked(group.group_id, group.member_id, group.member_epoch, _asked_of_group(node, context, group))
            for group in request.groups
        ]
    else:
        asked = [_Asked(request.group_id, None, NO_GENERATION, _asked_by_name(context, request.topics))]
    stable = version >= STABLE_SINCE and request.require_stable
    answers = gather([_fetch(node, context, each, require_stable=stable) for each in asked])
    return answers.then(lambda groups: _response(version, groups))


def _asked_by_name(
    context: RequestContext, topics: list[messages.OffsetFetchRequest.OffsetFetchRequestTopic] | None
) -> list[_AskedTopic] | None:
    if topics is None:
        return None
    return [
        _AskedTopic(topic.name, ZERO_TOPIC_ID, list(topic.partition_indexes), _denied(context, topic.name))
        for topic in topics
    ]


def _asked_of_group(
    node: Node, context: RequestContext, group: messages.OffsetFetchRequest.OffsetFetchRequestGroup
) -> list[_AskedTopic] | None:
    if group.topics is None:
        return None
    asked = []
    for topic in group.topics:
        indexes = list(topic.partition_indexes)
        if context.api_version < TOPIC_IDS_SINCE:
            asked.append(_AskedTopic(topic.name, ZERO_TOPIC_ID, indexes, _denied(context, topic.name)))
            continue
        topic_id = TopicId(bytes(topic.topic_id))
        known = node.metadata.image.topic_by_id(topic_id)
        if known is None:
            asked.append(_AskedTopic("", topic_id, indexes, ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            asked.append(_AskedTopic(known.name, topic_id, indexes, _denied(context, known.name)))
    return asked


def _denied(context: RequestContext, topic: str) -> ErrorCode:
    allowed = authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, topic)
    return ErrorCode.NONE if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _fetch(node: Node, context: RequestContext, wanted: _Asked, *, require_stable: bool) -> Deferred[_Group]:
    """The answer for one group; never fails with a KafkaError."""
    group, asked = wanted.group, wanted.topics
    if not authorize(context, Operation.DESCRIBE, ResourceType.GROUP, group):
        return Deferred.of(_failed(group, asked, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    partitions = None if asked is None else [TopicPartition(topic.name, p) for topic in asked for p in topic.partitions]

    def answer(found: FetchedOffsets) -> _Group:
        if found.error is not ErrorCode.NONE:
            raise KafkaError(found.error)
        topics = _everything(node, context, found) if asked is None else [_topic(topic, found) for topic in asked]
        return _Group(group, ErrorCode.NONE, topics)

    def make(request_id: int) -> FetchOffsets:
        return FetchOffsets(
            request_id, group, partitions, require_stable, wanted.member_id, member_epoch=wanted.member_epoch
        )

    fetched: Deferred[FetchedOffsets] = node.groups.ask(group, make)
    return fetched.then(answer).recover(KafkaError, lambda error: _failed(group, asked, error.code))


def _failed(group: str, asked: list[_AskedTopic] | None, error: ErrorCode) -> _Group:
    topics = [
        _Topic(topic.name, topic.topic_id, [(index, None, error) for index in topic.partitions])
        for topic in asked or ()
    ]
    return _Group(group, error, topics)


def _topic(asked: _AskedTopic, found: FetchedOffsets) -> _Topic:
    if asked.error is not ErrorCode.NONE:
        return _Topic(asked.name, asked.topic_id, [(index, None, asked.error) for index in asked.partitions])
    places = [TopicPartition(asked.name, index) for index in asked.partitions]
    return _Topic(asked.name, asked.topic_id, [_partition(place, found) for place in places])


def _everything(node: Node, context: RequestContext, found: FetchedOffsets) -> list[_Topic]:
    """All that is committed, as far as the client may see it and, by id, as far as the topics exist."""
    topics: dict[str, _Topic] = {}
    for place in sorted({*found.offsets, *found.unstable}):
        name = place.topic
        if _denied(context, name) is not ErrorCode.NONE:
            continue
        if name not in topics:
            known = node.metadata.image.topics.get(name)
            if known is None and context.api_version >= TOPIC_IDS_SINCE:
                continue
            topics[name] = _Topic(name, ZERO_TOPIC_ID if known is None else known.topic_id, [])
        topics[name].partitions.append(_partition(place, found))
    return list(topics.values())


def _partition(place: TopicPartition, found: FetchedOffsets) -> tuple[int, CommittedOffset | None, ErrorCode]:
    error = ErrorCode.UNSTABLE_OFFSET_COMMIT if place in found.unstable else ErrorCode.NONE
    return place.partition, found.offsets.get(place), error


def _response(version: int, groups: list[_Group]) -> messages.OffsetFetchResponse:
    response = messages.OffsetFetchResponse
    if version >= BATCHED_SINCE:
        return response(
            groups=[
                response.OffsetFetchResponseGroup(
                    group_id=group.group,
                    error_code=group.error,
                    # An error of the group is that of all its partitions.
                    topics=[] if group.error else [_new_topic(topic) for topic in group.topics],
                )
                for group in groups
            ]
        )
    only = groups[0]
    return response(error_code=only.error, topics=[_old_topic(topic) for topic in _told(version, only)])


def _told(version: int, group: _Group) -> list[_Topic]:
    """The topics of an answer about one group, before v8."""
    if version < GROUP_ERROR_SINCE or not group.error:
        return group.topics
    if version not in _TELLS_PARTITIONS or group.error not in _CANNOT_ANSWER_NOW:
        return []
    error = _CANNOT_ANSWER_NOW[group.error]
    return [
        topic._replace(partitions=[(index, None, error) for index, _, _ in topic.partitions]) for topic in group.topics
    ]


def _old_topic(topic: _Topic) -> messages.OffsetFetchResponse.OffsetFetchResponseTopic:
    response = messages.OffsetFetchResponse
    return response.OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            response.OffsetFetchResponsePartition(
                partition_index=index,
                committed_offset=NO_OFFSET if found is None else found.offset,
                committed_leader_epoch=-1 if found is None else found.leader_epoch,
                metadata="" if found is None else found.metadata,
                error_code=error,
            )
            for index, found, error in topic.partitions
        ],
    )


def _new_topic(topic: _Topic) -> messages.OffsetFetchResponse.OffsetFetchResponseTopics:
    response = messages.OffsetFetchResponse
    return response.OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            response.OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=NO_OFFSET if found is None else found.offset,
                committed_leader_epoch=-1 if found is None else found.leader_epoch,
                metadata="" if found is None else found.metadata,
                error_code=error,
            )
            for index, found, error in topic.partitions
        ],
    )


def error_response(
    request: messages.OffsetFetchRequest, version: int, error: KafkaError
) -> messages.OffsetFetchResponse:
    if version >= BATCHED_SINCE:
        return _response(version, [_Group(group.group_id, error.code, []) for group in request.groups])
    topics = [
        _Topic(topic.name, ZERO_TOPIC_ID, [(index, None, error.code) for index in topic.partition_indexes])
        for topic in request.topics or ()
    ]
    return _response(version, [_Group(request.group_id, error.code, topics)])
