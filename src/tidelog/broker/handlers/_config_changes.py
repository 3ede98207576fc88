"""What AlterConfigs and IncrementalAlterConfigs have in common: who may, what is malformed, asking the controller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred
from tidelog.controller.events import AlterConfigs, ChangeConfigs, ConfigOutcome, ReplaceConfigs
from tidelog.metadata.image import ConfigResourceType
from tidelog.model.errors import ErrorCode
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

Key: TypeAlias = tuple[int, str]
"""Type and name of a resource, as they came."""
Altered: TypeAlias = tuple[ErrorCode, str | None]
"""What became of a resource's change."""
Outcomes: TypeAlias = dict[Key, Altered]


class Resource(Protocol):
    """A resource in either request."""

    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...


def key_of(resource: Resource) -> Key:
    """By what an answer finds its resource."""
    return resource.resource_type, resource.resource_name


def refusal(context: RequestContext, key: Key, times: int) -> Altered | None:
    """Why a resource is not even handed to the controller; None when it is."""
    resource_type, name = key
    if times > 1:
        return ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
    if resource_type == ConfigResourceType.TOPIC:
        if not authorize(context, Operation.ALTER_CONFIGS, ResourceType.TOPIC, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED, None
        return None
    if resource_type == ConfigResourceType.BROKER_LOGGER and not authorize(
        context, Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME
    ):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None
    if resource_type == ConfigResourceType.BROKER:
        if not authorize(context, Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None
        if name and not name.isdecimal():
            return ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}"
        return None
    if resource_type == ConfigResourceType.GROUP:
        if not authorize(context, Operation.ALTER_CONFIGS, ResourceType.GROUP, name):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED, None
        return None
    if resource_type == ConfigResourceType.CLIENT_METRICS:
        if not authorize(context, Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None
        return None
    return ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource_type}"


def duplicates(names: Iterable[str]) -> list[str]:
    """Names that come more than once."""
    return sorted(name for name, times in Counter(names).items() if times > 1)


def alter(
    node: Node, resources: Sequence[ReplaceConfigs | ChangeConfigs], *, validate_only: bool
) -> Deferred[Outcomes]:
    """What the controller made of the changes; they have taken effect on this broker when the answer comes."""
    if not resources:
        return Deferred.of({})

    def by_key(outcomes: Sequence[ConfigOutcome]) -> Outcomes:
        return {
            (int(outcome.resource.type), outcome.resource.name): (outcome.error, outcome.message)
            for outcome in outcomes
        }

    return node.controller.submit(AlterConfigs(resources, validate_only)).then(by_key)
