"""What a principal cannot reach by naming a resource in another way than the API that guards it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from tests.unit.broker.harness import Broker

from tidelog.broker.deferred import Deferred
from tidelog.controller.requests import CreatedTopic, DeletedTopic
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicId
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import CLUSTER_NAME, Operation, Principal, ResourceType
from tidelog.security.acls import AclEntry, Permission, ResourcePattern
from tidelog.security.authorizer import Authorizer

METADATA_VERSION = 12
ADD_PARTITIONS_VERSION = 3
DELETE_TOPICS_VERSION = 6


def as_alice(broker: Broker, allowed: Iterable[tuple[ResourceType, str, Operation]]) -> None:
    """The requests of `broker` come from User:alice from here on, who may do this and nothing else."""
    authorizer = Authorizer()
    for kind, name, operation in allowed:
        pattern = ResourcePattern(kind, name)
        entry = AclEntry("User:alice", "*", operation, Permission.ALLOW)
        authorizer.set_acls(pattern, [*authorizer.entries(pattern), entry])
    broker.peer.authorizer = authorizer
    broker.peer.authenticated(Principal("alice"))


@pytest.mark.parametrize("topic", ["__transaction_state", "__consumer_offsets"])
def test_internal_topics_do_not_join_a_producers_transaction(broker: Broker, topic: str) -> None:
    """Kafka refuses them for every producer: markers would be written to the coordinators' own logs."""
    broker.lead(topic)
    as_alice(broker, [(ResourceType.TRANSACTIONAL_ID, "tx", Operation.WRITE)])
    kind = messages.AddPartitionsToTxnRequest
    request = kind(
        v3_and_below_transactional_id="tx",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[kind.AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )
    answer = broker.ask(ApiKey.ADD_PARTITIONS_TO_TXN, ADD_PARTITIONS_VERSION, request)
    (result,) = answer.results_by_topic_v3_and_below
    codes = [partition.partition_error_code for partition in result.results_by_partition]
    assert codes == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]


@pytest.mark.parametrize("kind", [ResourceType.CLUSTER, ResourceType.TOPIC])
def test_asking_creates_no_topic_that_may_not_be_described(broker: Broker, kind: ResourceType) -> None:
    """As in Kafka, the right to create is asked for only where the topic may be described at all."""

    broker.controller.on_submit = lambda event: [CreatedTopic("fresh")]
    may_create = (kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else "fresh", Operation.CREATE)
    as_alice(broker, [may_create])
    assert ask_for(broker, "fresh") is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert broker.controller.submitted == []
    as_alice(broker, [may_create, (ResourceType.TOPIC, "fresh", Operation.DESCRIBE)])
    ask_for(broker, "fresh")
    assert len(broker.controller.submitted) == 1


def test_a_topic_that_may_not_be_created_is_not_only_unknown(broker: Broker) -> None:
    """As in Kafka: of one that is unknown a producer would ask again for a minute, and never hear of the ACL."""
    as_alice(broker, [(ResourceType.TOPIC, "fresh", Operation.WRITE)])
    assert ask_for(broker, "fresh") is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert ask_for(broker, "fresh", creates=False) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.controller.submitted == []


def ask_for(broker: Broker, topic: str, *, creates: bool = True) -> ErrorCode:
    """Metadata of a topic that may be created by being asked for."""
    wanted = messages.MetadataRequest(
        topics=[messages.MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=creates
    )
    answer = broker.ask(ApiKey.METADATA, METADATA_VERSION, wanted)
    return ErrorCode(answer.topics[0].error_code)


def test_an_id_that_is_not_known_yet_cannot_be_deleted_without_the_right(broker: Broker) -> None:
    """A broker hears of new topics a little later than the controller, which would not ask for the right again."""
    unheard_of = TopicId(b"\7" * 16)
    broker.controller.on_submit = lambda event: [DeletedTopic("secret", unheard_of)]
    kind = messages.DeleteTopicsRequest
    request = kind(topics=[kind.DeleteTopicState(name=None, topic_id=unheard_of)], timeout_ms=1_000)
    as_alice(broker, [(ResourceType.TOPIC, "secret", Operation.DESCRIBE)])
    (refused,) = broker.ask(ApiKey.DELETE_TOPICS, DELETE_TOPICS_VERSION, request).responses
    assert (refused.name, refused.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    assert broker.controller.submitted == []
    as_alice(broker, [(ResourceType.CLUSTER, CLUSTER_NAME, Operation.DELETE)])
    (deleted,) = broker.ask(ApiKey.DELETE_TOPICS, DELETE_TOPICS_VERSION, request).responses
    assert (deleted.name, deleted.error_code) == ("secret", ErrorCode.NONE)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("resource_type_filter", "Unknown patternFilter."),
        ("pattern_type_filter", "Unknown patternFilter."),
        ("operation", "Unknown entryFilter."),
        ("permission_type", "Unknown entryFilter."),
    ],
)
def test_a_filter_of_acls_with_a_code_of_a_later_version_is_refused(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, field: str, message: str
) -> None:
    """As in Kafka: a client that hears of no error would take it for done. The other filters are carried out."""
    as_alice(broker, [(ResourceType.CLUSTER, CLUSTER_NAME, Operation.ALTER)])
    changed: list[ResourcePattern] = []

    class Security:
        authorizer = broker.peer.authorizer

        def caught_up(self) -> Deferred[None]:
            return Deferred.of(None)

        def change_acls(self, pattern: ResourcePattern, change: object) -> Deferred[None]:
            changed.append(pattern)
            return Deferred.of(None)

    monkeypatch.setattr(broker.node, "_security", Security())
    kind = messages.DeleteAclsRequest.DeleteAclsFilter
    everything: dict[str, Any] = {
        "resource_type_filter": 1,
        "pattern_type_filter": 1,
        "operation": 1,
        "permission_type": 1,
        "resource_name_filter": None,
        "principal_filter": None,
        "host_filter": None,
    }
    filters = [kind(**{**everything, field: 99}), kind(**everything)]
    answer = broker.ask(ApiKey.DELETE_ACLS, 3, messages.DeleteAclsRequest(filters=filters))
    refused, done = answer.filter_results
    assert (refused.error_code, refused.error_message, refused.matching_acls) == (
        ErrorCode.INVALID_REQUEST,
        message,
        [],
    )
    assert (done.error_code, len(done.matching_acls)) == (ErrorCode.NONE, 1)
    assert changed == [ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)]
