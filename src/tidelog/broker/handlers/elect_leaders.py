"""ElectLeaders: preferred or unclean elections by hand (KIP-460); the controller decides, each partition by itself.

Versions 0-2. v1: unclean elections beside preferred ones, and an error for the request as a whole. v2: flexible.
Without a list of partitions all are meant, and those that need no election are left out of the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._deadlines import within
from tidelog.controller.requests import ElectionOutcome, ElectionType, ElectLeaders
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node

KEY: Final = ApiKey.ELECT_LEADERS
VERSIONS: Final = Versions(0, 2)


def handle(
    node: Node, context: RequestContext, request: messages.ElectLeadersRequest
) -> Deferred[messages.ElectLeadersResponse]:
    if not authorize(context, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        type = ElectionType(request.election_type)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{request.election_type} is no election type: 0 elects preferred leaders, 1 unclean ones.",
        ) from None
    event = ElectLeaders(type, _partitions(request))
    outcome = within(node, context, node.controller.submit(event), request.timeout_ms)
    return outcome.then(lambda outcomes: messages.ElectLeadersResponse(replica_election_results=_results(outcomes)))


def error_response(
    request: messages.ElectLeadersRequest, version: int, error: KafkaError
) -> messages.ElectLeadersResponse:
    outcomes = [ElectionOutcome(each, error.code, error.message) for each in _partitions(request) or ()]
    response = messages.ElectLeadersResponse(replica_election_results=_results(outcomes))
    if version >= 1:
        response.error_code = error.code
    return response


def _partitions(request: messages.ElectLeadersRequest) -> Sequence[TopicPartition] | None:
    """Those asked for, each once; None: all."""
    if request.topic_partitions is None:
        return None
    return list(
        dict.fromkeys(
            TopicPartition(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions
        )
    )


def _results(
    outcomes: Iterable[ElectionOutcome],
) -> list[messages.ElectLeadersResponse.ReplicaElectionResult]:
    kind = messages.ElectLeadersResponse
    topics: dict[str, messages.ElectLeadersResponse.ReplicaElectionResult] = {}
    for outcome in outcomes:
        name, index = outcome.topic_partition
        if name not in topics:
            topics[name] = kind.ReplicaElectionResult(topic=name, partition_result=[])
        topics[name].partition_result.append(
            kind.PartitionResult(partition_id=index, error_code=outcome.error, error_message=outcome.message)
        )
    return list(topics.values())
