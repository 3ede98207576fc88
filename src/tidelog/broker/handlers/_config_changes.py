"""What AlterConfigs and IncrementalAlterConfigs share: authorization, refusals, the change by the controller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred
from tidelog.controller.requests import AlterConfigs, ChangeConfigs, ConfigOutcome, ReplaceConfigs
from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

Key: TypeAlias = tuple[int, str]
"""Type and name of a resource, as they came."""
Altered: TypeAlias = tuple[ErrorCode, str | None]
"""What became of a resource's change."""
Outcomes: TypeAlias = dict[Key, Altered]
R = TypeVar("R", messages.AlterConfigsResponse, messages.IncrementalAlterConfigsResponse)


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


def alter_each(
    node: Node,
    context: RequestContext,
    request: Any,
    kind: type[R],
    change: Callable[[ConfigResource, Sequence[Any]], ReplaceConfigs | ChangeConfigs],
    malformed: Callable[[Sequence[Any]], str | None],
) -> R | Deferred[R]:
    """Carries out an AlterConfigs or IncrementalAlterConfigs request, each resource by itself.

    `change` makes the controller's event of a resource's configs; `malformed` says why they cannot be changed. The
    changes have taken effect on this broker when the answer comes.
    """
    counts = Counter(map(key_of, request.resources))
    outcomes: Outcomes = {}
    wanted: list[ReplaceConfigs | ChangeConfigs] = []
    for resource in request.resources:
        key = key_of(resource)
        refused = refusal(context, key, counts[key])
        reason = None if refused else duplicates(resource.configs) or malformed(resource.configs)
        if refused is not None:
            outcomes[key] = refused
        elif reason is not None:
            outcomes[key] = ErrorCode.INVALID_REQUEST, reason
        else:
            wanted.append(change(ConfigResource(ConfigResourceType(key[0]), key[1]), resource.configs))
    settled = _alter(node, wanted, validate_only=request.validate_only)
    return settled.then(lambda altered: response_of(kind, list(counts), outcomes | altered))


def refuse_all(request: Any, kind: type[R], error: KafkaError) -> R:
    """The same error for each resource."""
    keys = list(dict.fromkeys(map(key_of, request.resources)))
    return response_of(kind, keys, dict.fromkeys(keys, (error.code, error.message)))


def duplicates(configs: Sequence[Any]) -> str | None:
    """Why configs that name a setting twice are refused."""
    twice = sorted(name for name, times in Counter(config.name for config in configs).items() if times > 1)
    return f"Error due to duplicate config keys: {', '.join(twice)}" if twice else None


def _alter(
    node: Node, resources: Sequence[ReplaceConfigs | ChangeConfigs], *, validate_only: bool
) -> Deferred[Outcomes]:
    """What the controller made of the changes."""
    if not resources:
        return Deferred.of({})

    def by_key(outcomes: Sequence[ConfigOutcome]) -> Outcomes:
        return {
            (int(outcome.resource.type), outcome.resource.name): (outcome.error, outcome.message)
            for outcome in outcomes
        }

    return node.controller.submit(AlterConfigs(resources, validate_only)).then(by_key)


def response_of(kind: type[R], order: Sequence[Key], outcomes: Outcomes) -> R:
    """The answer, with its resources in that order."""
    return kind(
        responses=[
            kind.AlterConfigsResourceResponse(
                error_code=outcomes[key][0],
                error_message=outcomes[key][1],
                resource_type=key[0],
                resource_name=key[1],
            )
            for key in order
        ]
    )
