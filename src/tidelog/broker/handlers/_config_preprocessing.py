"""What the broker that a client asks refuses of an alteration of settings, before the controller is asked for the rest.

A broker's own settings are altered by asking that broker: clients send such requests to it (KIP-226), and it alone can
look at its key stores and knows its log directories. So it refuses those of other brokers, as Kafka's brokers do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tidelog.broker.context import authorize
from tidelog.broker.handler import Preprocessed
from tidelog.broker.handlers._config_changes import Outcomes, R, Resource, duplicates, key_of, response_of
from tidelog.config.checks import unknown_cordons
from tidelog.controller.configs import new_values
from tidelog.controller.requests import ChangeConfigs, ReplaceConfigs
from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

Change: TypeAlias = ReplaceConfigs | ChangeConfigs

CORDONED: Final = "cordoned.log.dirs"


def preprocess(
    node: Node,
    context: RequestContext,
    request: Any,
    kind: type[R],
    change: Callable[[ConfigResource, Sequence[Any]], Change],
    malformed: Callable[[Sequence[Any]], str | None],
) -> Preprocessed | None:
    """Splits an AlterConfigs or IncrementalAlterConfigs request, which a `kind` answers; None: all of it goes on.

    `change` and `malformed` are those of `alter_each`, which judges whatever is not refused here.
    """
    counts = Counter(map(key_of, request.resources))
    refused: Outcomes = {}
    for resource in request.resources:
        key = key_of(resource)
        if counts[key] > 1 or not _is_broker(resource) or duplicates(resource.configs) or malformed(resource.configs):
            continue
        if not authorize(context, Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True):
            continue
        reason = _refused_here(node, change(ConfigResource(ConfigResourceType.BROKER, key[1]), resource.configs))
        if reason is not None:
            refused[key] = ErrorCode.INVALID_REQUEST, reason
    if not refused:
        return None
    left = [resource for resource in request.resources if key_of(resource) not in refused]
    rest = type(request)(resources=left, validate_only=request.validate_only) if left else None

    def complete(response: Any) -> R:
        answered = () if response is None else response.responses
        others = {key_of(each): (ErrorCode(each.error_code), each.error_message) for each in answered}
        whole = response_of(kind, list(counts), refused | others)
        if response is not None:
            whole.throttle_time_ms = response.throttle_time_ms
        return whole

    return Preprocessed(rest, complete)


def _is_broker(resource: Resource) -> bool:
    """Whether it is a single broker; not the default of all, and not something that is no id."""
    return resource.resource_type == ConfigResourceType.BROKER and resource.resource_name.isdecimal()


def _refused_here(node: Node, event: Change) -> str | None:
    """Why this broker refuses a change of a broker's settings; None: the controller judges it."""
    if event.resource.name == str(node.broker_id):
        return _unusable(node, event)
    return f"Unexpected broker id, expected {node.broker_id}, but received {event.resource.name}"


def _unusable(node: Node, event: Change) -> str | None:
    """Why this broker could not work with the changed settings of its own."""
    try:
        values = new_values(node.config.dynamic_broker, event)
    except KafkaError:
        # The controller says what is wrong with the change itself.
        return None
    if values.get(CORDONED) != node.config.dynamic_broker.get(CORDONED):
        missing = unknown_cordons(node.config.altered(values).values)
        if missing is not None:
            return missing
    if node.config.mechanism_problem is None:
        problem = node.config.altered(values).mechanism_problem
        if problem is not None:
            return problem
    reason = node.refused_settings(values)
    return None if reason is None else f"Validation of dynamic config update of SSLFactory failed: {reason}"
