"""DescribeConfigs: settings of topics, brokers, groups and client metrics resources, where each value comes from, and
what it means.

Versions 1-4. v1: synonyms and sources. v3: types and documentation. A broker answers for itself, and for the
cluster-wide defaults (the empty broker name). Passwords are never told. Loggers have no settings here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidelog.broker.cluster.config_entries import (
    ConfigEntry,
    broker_entries,
    client_metrics_entries,
    cluster_default_entries,
    group_entries,
    topic_entries,
)
from tidelog.broker.cluster.settings_in_force import VERSION_NAME
from tidelog.broker.context import authorize
from tidelog.broker.handlers import Versions
from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.metadata.znodes import is_number
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.topics import invalid_topic_name_reason
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.DESCRIBE_CONFIGS
VERSIONS: Final = Versions(1, 4)

DETAILS_SINCE: Final = 3
_WITH_VERSIONS: Final = (
    ConfigResourceType.TOPIC,
    ConfigResourceType.BROKER,
    ConfigResourceType.GROUP,
    ConfigResourceType.CLIENT_METRICS,
)


def handle(
    node: Node, context: RequestContext, request: messages.DescribeConfigsRequest
) -> messages.DescribeConfigsResponse:
    return messages.DescribeConfigsResponse(
        results=[_result(node, context, request, resource) for resource in request.resources]
    )


def _result(
    node: Node,
    context: RequestContext,
    request: messages.DescribeConfigsRequest,
    resource: messages.DescribeConfigsRequest.DescribeConfigsResource,
) -> messages.DescribeConfigsResponse.DescribeConfigsResult:
    result = messages.DescribeConfigsResponse.DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        if resource.configuration_keys == [VERSION_NAME] and resource.resource_type in _WITH_VERSIONS:
            result.configs = [_version(node, context, resource)]
            return result
        entries = _entries(node, context, resource.resource_type, resource.resource_name)
    except KafkaError as error:
        result.error_code = error.code
        result.error_message = error.message
        return result
    wanted = resource.configuration_keys
    result.configs = [
        _config(context, request, entry) for entry in entries if not wanted or entry.setting.name in wanted
    ]
    return result


def _version(
    node: Node, context: RequestContext, resource: messages.DescribeConfigsRequest.DescribeConfigsResource
) -> messages.DescribeConfigsResponse.DescribeConfigsResourceResult:
    """What another broker asks: not a setting, but the version of the settings that are in force here."""
    if not authorize(context, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    known = node.known_settings.version(
        ConfigResource(ConfigResourceType(resource.resource_type), resource.resource_name)
    )
    value = "" if known is None else str(known)
    return messages.DescribeConfigsResponse.DescribeConfigsResourceResult(
        name=VERSION_NAME, value=value, read_only=True
    )


def _entries(node: Node, context: RequestContext, resource_type: int, name: str) -> Sequence[ConfigEntry]:
    if resource_type == ConfigResourceType.TOPIC:
        if not authorize(context, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        reason = invalid_topic_name_reason(name)
        if reason is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
        if name not in node.metadata.image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic_entries(node.config, node.metadata.image.topic_config(name))
    if resource_type == ConfigResourceType.BROKER_LOGGER and not authorize(
        context, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME
    ):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if resource_type == ConfigResourceType.BROKER:
        if not authorize(context, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if not name:
            return cluster_default_entries(node.config)
        if not is_number(name.removeprefix("-")):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
        if int(name) != node.broker_id:
            reason = f"Unexpected broker id, expected {node.broker_id} or empty string, but received {name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
        return broker_entries(node.config, node.broker_id)
    if resource_type == ConfigResourceType.GROUP:
        if not authorize(context, Operation.DESCRIBE_CONFIGS, ResourceType.GROUP, name):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return group_entries(node.config, node.metadata.image.group_config(name))
    if resource_type == ConfigResourceType.CLIENT_METRICS:
        if not authorize(context, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        return client_metrics_entries(node.metadata.image.client_metrics_config(name))
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource_type}")


def _config(
    context: RequestContext, request: messages.DescribeConfigsRequest, entry: ConfigEntry
) -> messages.DescribeConfigsResponse.DescribeConfigsResourceResult:
    response = messages.DescribeConfigsResponse
    result = response.DescribeConfigsResourceResult(
        name=entry.setting.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.setting.is_sensitive,
        documentation=None,
    )
    if request.include_synonyms:
        result.synonyms = [
            response.DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in entry.synonyms
        ]
    if context.api_version >= DETAILS_SINCE:
        result.config_type = entry.setting.type
        if request.include_documentation:
            result.documentation = entry.setting.documentation
    return result


def error_response(
    request: messages.DescribeConfigsRequest, version: int, error: KafkaError
) -> messages.DescribeConfigsResponse:
    return messages.DescribeConfigsResponse(
        results=[
            messages.DescribeConfigsResponse.DescribeConfigsResult(
                error_code=error.code,
                error_message=error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )
