"""Settings of topics, brokers, groups and client metrics resources. No I/O.

They are described with where each value comes from, and changed one by one.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tidelog.client.admin.answers import ask_broker, error_codes, error_of
from tidelog.client.errors import InvalidResponse, UnsupportedByBroker
from tidelog.client.exchange import ByVersion
from tidelog.client.operations import Operation
from tidelog.client.routing import Routing
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey


class ResourceType(enum.IntEnum):
    """What settings belong to."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class ConfigResource:
    """What has settings, by its name; a broker's name is its id, or "" for the default of all brokers."""

    type: ResourceType
    name: str


class ConfigSource(enum.IntEnum):
    """Which layer a value comes from, the closest first wins."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


CONFIG_TYPES: Final = ("unknown", "boolean", "string", "int", "short", "long", "double", "list", "class", "password")


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A value of one layer; the first of a setting's synonyms is in force."""

    name: str
    value: str | None
    source: ConfigSource


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting as it is in force. `value` None: not set, or hidden because it is sensitive."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()
    type: str = "unknown"
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether no layer but Kafka's own default gives it."""
        return self.source is ConfigSource.DEFAULT_CONFIG


def describe_configs(
    routing: Routing,
    resources: Iterable[ConfigResource],
    *,
    keys: Sequence[str] | None = None,
    documentation: bool = False,
    timeout_s: float | None = None,
) -> Operation[dict[ConfigResource, list[ConfigEntry] | KafkaError]]:
    """The settings of resources with where each value comes from; `keys` None means all.

    A broker's own settings are asked of that broker, everything else of any.
    """
    deadline = routing.deadline(timeout_s)
    kind = messages.DescribeConfigsRequest
    by_broker: dict[int, list[ConfigResource]] = {}
    for resource in dict.fromkeys(resources):
        by_broker.setdefault(_config_owner(resource), []).append(resource)
    if any(broker_id >= 0 for broker_id in by_broker):
        yield from routing.refresh((), deadline)
    results: dict[ConfigResource, list[ConfigEntry] | KafkaError] = {}
    for broker_id, group in by_broker.items():
        request = kind(
            resources=[
                kind.DescribeConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configuration_keys=None if keys is None else list(keys),
                )
                for resource in group
            ],
            include_synonyms=True,
            include_documentation=documentation,
        )
        response = yield from ask_broker(routing, broker_id, request, deadline)
        for result in response.results:
            resource = ConfigResource(_resource_type(result.resource_type), result.resource_name)
            results[resource] = error_of(result.error_code, result.error_message, _subject(resource)) or [
                _config_entry(entry) for entry in result.configs
            ]
    return results


def list_config_resources(
    routing: Routing, types: Sequence[ResourceType] = (), *, timeout_s: float | None = None
) -> Operation[list[ConfigResource]]:
    """What has settings, of these types, or of all (KIP-1142); groups only where they have settings of their own.

    UnsupportedByBroker where the cluster can list client metrics resources alone (before Apache Kafka 4.1), or nothing.
    """
    wanted: list[int] = list(types)

    def build(version: int) -> Any:
        if version >= 1:
            return messages.ListConfigResourcesRequest(resource_types=wanted)
        if wanted != [ResourceType.CLIENT_METRICS]:
            raise UnsupportedByBroker("the cluster is too old to list resources other than client metrics")
        return messages.ListConfigResourcesRequest()

    request = ByVersion(ApiKey.LIST_CONFIG_RESOURCES, build)
    response = yield from routing.ask_any(request, routing.deadline(timeout_s))
    refused = error_of(response.error_code, None, "the list of what has settings")
    if refused is not None:
        raise refused
    known = ResourceType._value2member_map_
    return sorted(
        ConfigResource(ResourceType(found.resource_type), found.resource_name)
        for found in response.config_resources
        if found.resource_type in known
    )


class AlterOperation(enum.IntEnum):
    """What an incremental change does: APPEND and SUBTRACT change elements of a list."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigChange:
    """One change of one setting; `value` None goes with DELETE, which lets the next layer's value through."""

    name: str
    value: str | None
    operation: AlterOperation = AlterOperation.SET


def alter_configs(
    routing: Routing,
    changes: Mapping[ConfigResource, Sequence[ConfigChange]],
    *,
    validate_only: bool = False,
    of_dead_brokers: bool = False,
    timeout_s: float | None = None,
) -> Operation[dict[ConfigResource, KafkaError | None]]:
    """Changes settings one by one and leaves the others as they are (KIP-339); each resource's error or None.

    `of_dead_brokers` asks another broker for those that are not live, and gives its answer, which is a refusal on
    tidelog. Otherwise a broker that is not live is KafkaError BROKER_NOT_AVAILABLE.
    """
    deadline = routing.deadline(timeout_s)
    kind = messages.IncrementalAlterConfigsRequest
    by_broker: dict[int, list[ConfigResource]] = {}
    for resource in changes:
        by_broker.setdefault(_config_owner(resource), []).append(resource)
    if any(broker_id >= 0 for broker_id in by_broker):
        yield from routing.refresh((), deadline)
    results: dict[ConfigResource, KafkaError | None] = {}
    for broker_id, group in by_broker.items():
        request = kind(
            resources=[
                kind.AlterConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configs=[
                        kind.AlterableConfig(name=change.name, config_operation=change.operation, value=change.value)
                        for change in changes[resource]
                    ],
                )
                for resource in group
            ],
            validate_only=validate_only,
        )
        if broker_id < 0 or (of_dead_brokers and broker_id not in routing.brokers):
            response = yield from routing.ask_controller(
                request, deadline, lambda answer: error_codes(answer.responses)
            )
        else:
            response = yield from ask_broker(routing, broker_id, request, deadline)
        for entry in response.responses:
            resource = ConfigResource(_resource_type(entry.resource_type), entry.resource_name)
            results[resource] = error_of(entry.error_code, entry.error_message, _subject(resource))
    return results


def _resource_type(number: int) -> ResourceType:
    """Of an answer, which can only be about what was asked."""
    if number not in ResourceType._value2member_map_:
        raise InvalidResponse(f"a broker answers for resources of type {number}, which were not asked for")
    return ResourceType(number)


def _subject(resource: ConfigResource) -> str:
    return f"{resource.type.name.lower().replace('_', ' ')} '{resource.name}'"


def _config_owner(resource: ConfigResource) -> int:
    if resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name:
        if not (resource.name.isascii() and resource.name.isdigit()):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"'{resource.name}' is not a broker id")
        return int(resource.name)
    return -1


def _config_entry(entry: Any) -> ConfigEntry:
    config_type = entry.config_type if 0 <= entry.config_type < len(CONFIG_TYPES) else 0
    return ConfigEntry(
        name=entry.name,
        value=entry.value,
        source=_config_source(entry.config_source),
        read_only=entry.read_only,
        sensitive=entry.is_sensitive,
        synonyms=tuple(
            ConfigSynonym(synonym.name, synonym.value, _config_source(synonym.source)) for synonym in entry.synonyms
        ),
        type=CONFIG_TYPES[config_type],
        documentation=entry.documentation,
    )


def _config_source(number: int) -> ConfigSource:
    return ConfigSource(number) if number in ConfigSource._value2member_map_ else ConfigSource.UNKNOWN
