"""ShareFetch: a member of a share group gets records that are locked for it, and acknowledges former ones (KIP-932).

Versions 1-2. v1: a bound for records, and the size of batches. v2: no more records than were asked for (KIP-1206),
locks are renewed (KIP-1222).

Acknowledgements are stored first, then records are looked for: an answer that waits for records does not hold them up,
but comes when both are done. Epoch -1 ends the session, and gives back what the member holds. A client that is over its
quota gets no records, and is told for how long; what it acknowledges is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred
from tidelog.broker.fetches.fetch_partitions import ANSWER_OVERHEAD, PARTITION_OVERHEAD
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._sharing import acknowledgements_of, check_member, name_leaders, set_leader
from tidelog.broker.sharing.acknowledging import Acknowledged, acknowledge, end_session
from tidelog.broker.sharing.fetching import Got, ShareFetch
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType
from tidelog.sharing.sessions import FINAL_EPOCH, INITIAL_EPOCH, SharedPlace, ShareSession

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.SHARE_FETCH
VERSIONS: Final = Versions(1, 2)

_Response = messages.ShareFetchResponse


def handle(
    node: Node, context: RequestContext, request: messages.ShareFetchRequest
) -> messages.ShareFetchResponse | Deferred[messages.ShareFetchResponse]:
    if not authorize(context, Operation.READ, ResourceType.GROUP, request.group_id or ""):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    group, member = check_member(request.group_id, request.member_id)
    told = acknowledgements_of(request.topics)
    _check(request, has_acknowledgements=bool(told))
    if request.share_session_epoch == INITIAL_EPOCH:
        session = node.sharing.sessions.begin(group, member, context.connection_id)
    else:
        session = node.sharing.sessions.find(group, member, request.share_session_epoch)
    _change(session, request)
    if request.share_session_epoch == INITIAL_EPOCH:
        node.sharing.partitions.forget_quiet(group, session.places)
    renews = request.is_renew_ack
    acknowledged = acknowledge(node, node.sharing.partitions, context, session, told, renews=renews)
    if request.share_session_epoch == FINAL_EPOCH:
        answer = acknowledged.and_then(
            lambda errors: end_session(node.sharing.partitions, node.sharing.sessions, session).then(
                lambda _: _response(node, context, request, session, errors, {})
            )
        )
    elif renews or not _may_consume(node, context):
        answer = acknowledged.then(lambda errors: _response(node, context, request, session, errors, {}))
    else:
        answer = _fetch(node, context, request, session, acknowledged)
    return answer


def _check(request: messages.ShareFetchRequest, *, has_acknowledgements: bool) -> None:
    if has_acknowledgements and request.share_session_epoch == INITIAL_EPOCH:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    asks = request.max_wait_ms or request.min_bytes or request.max_bytes or request.max_records
    if request.is_renew_ack and asks:
        # Locks are renewed while records of before are at work: no more of them are wanted.
        raise KafkaError(ErrorCode.INVALID_REQUEST)


def _change(session: ShareSession, request: messages.ShareFetchRequest) -> None:
    def places(topics: list[messages.ShareFetchRequest.FetchTopic]) -> list[SharedPlace]:
        return [
            SharedPlace(TopicId(bytes(topic.topic_id)), partition.partition_index)
            for topic in topics
            for partition in topic.partitions
        ]

    forgotten = [
        SharedPlace(TopicId(bytes(topic.topic_id)), partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]
    if request.share_session_epoch != FINAL_EPOCH:
        session.change(places(request.topics), forgotten)


def _may_consume(node: Node, context: RequestContext) -> bool:
    return context.quota is None or context.quota.may_consume(node.clock.monotonic_ms())


def _count(node: Node, context: RequestContext, got: dict[SharedPlace, Got]) -> None:
    """What the client's quotas count of an answer."""
    if context.quota is not None:
        size = ANSWER_OVERHEAD + sum(PARTITION_OVERHEAD + len(each.records) for each in got.values())
        context.quota.consumed(size, node.clock.monotonic_ms())


def _fetch(
    node: Node,
    context: RequestContext,
    request: messages.ShareFetchRequest,
    session: ShareSession,
    acknowledged: Deferred[Acknowledged],
) -> Deferred[messages.ShareFetchResponse]:
    fetch = ShareFetch(node, node.sharing.partitions, context, session, request)

    def respond(got: dict[SharedPlace, Got], errors: Acknowledged) -> messages.ShareFetchResponse:
        _count(node, context, got)
        return _response(node, context, request, session, errors, got)

    answer = fetch.answer.and_then(lambda got: acknowledged.then(lambda errors: respond(got, errors)))
    answer.on_abandoned = fetch.answer.abandon
    acknowledged.on_complete(lambda _: fetch.begin())
    return answer


def _response(
    node: Node,
    context: RequestContext,
    request: messages.ShareFetchRequest,
    session: ShareSession,
    acknowledged: Acknowledged,
    got: dict[SharedPlace, Got],
) -> messages.ShareFetchResponse:
    response = _Response(
        acquisition_lock_timeout_ms=node.sharing.partitions.settings(session.group).record_lock_duration_ms
    )
    places = dict.fromkeys((*acknowledged, *got))
    if request.share_session_epoch == INITIAL_EPOCH:
        # All of a new session are told of, whether they have records or not.
        places.update(dict.fromkeys(session.places))
    leaders: set[int] = set()
    topic: messages.ShareFetchResponse.ShareFetchableTopicResponse | None = None
    for place in sorted(places):
        if topic is None or topic.topic_id != place.topic_id:
            topic = _Response.ShareFetchableTopicResponse(topic_id=place.topic_id)
            response.responses.append(topic)
        topic.partitions.append(_partition(node, place, acknowledged.get(place), got.get(place, Got()), leaders))
    name_leaders(node, context, response, _Response.NodeEndpoint, leaders)
    return response


def _partition(
    node: Node, place: SharedPlace, refused: KafkaError | None, got: Got, leaders: set[int]
) -> messages.ShareFetchResponse.PartitionData:
    data = _Response.PartitionData(
        partition_index=place.partition,
        records=got.records,
        acquired_records=[
            _Response.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in got.acquired
        ],
    )
    if got.error is not None:
        data.error_code, data.error_message = got.error.code, got.error.message
    if refused is not None:
        data.acknowledge_error_code, data.acknowledge_error_message = refused.code, refused.message
    if ErrorCode.NOT_LEADER_OR_FOLLOWER in (data.error_code, data.acknowledge_error_code):
        set_leader(node, place, data, leaders)
    return data


def error_response(request: messages.ShareFetchRequest, version: int, error: KafkaError) -> messages.ShareFetchResponse:
    return _Response(error_code=error.code, error_message=error.message)
