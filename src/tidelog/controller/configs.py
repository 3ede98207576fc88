"""Settings of topics, brokers, groups and client metrics resources altered, whole or step by step.

The registry of settings says what may be set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from tidelog.config import broker_config, client_metrics_config, group_config, registry, topic_config
from tidelog.config.setting import Setting, Type
from tidelog.controller.elections import UNCLEAN_SETTING, elect_offline_of
from tidelog.controller.events import ConfigsChanged
from tidelog.controller.requests import AlterConfigs, AlterOperation, ChangeConfigs, ConfigOutcome, ReplaceConfigs
from tidelog.controller.state import NodeRead
from tidelog.controller.turn import ControllerTurn
from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.metadata.operations import Create, Delete, SetData
from tidelog.metadata.znodes import (
    CONFIG_CHANGE_PREFIX,
    CONTAINERS_MADE_LATER,
    config_path,
    encode_config,
    encode_config_change,
    entity_path,
)
from tidelog.model.errors import ErrorCode, KafkaError

SETTINGS_SIZE_MAX: Final = 1_000_000
"""Bytes of a resource's settings in the store, with its path twice, since the notification names it again. ZooKeeper
cuts the connection over a request above 1 MiB (jute.maxbuffer), and would at each further attempt."""


def parse_topic_overrides(configs: Sequence[tuple[str, str | None]]) -> dict[str, str]:
    """A new topic's settings, checked. KafkaError INVALID_CONFIG.

    Of a name that is repeated the last value holds, as in Kafka: librdkafka sends what it was told, in that order.
    """
    overrides = dict(configs)
    try:
        topic_config.validate(overrides)
    except topic_config.InvalidTopicConfig as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    return {name: value for name, value in overrides.items() if value is not None}


def alter_configs(turn: ControllerTurn, request: AlterConfigs) -> list[ConfigOutcome]:
    """Each resource by itself: a change is written whole or not at all."""
    times = Counter(item.resource for item in request.resources)
    outcomes = []
    for item in request.resources:
        try:
            if times[item.resource] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            _check_resource(turn, item.resource)
            _check_readable(turn, item)
            values = new_values(turn.state.image.configs.get(item.resource, {}), item)
            _validate(turn, item.resource, values, _touched(item))
            check_size(item.resource, values)
        except KafkaError as error:
            outcomes.append(ConfigOutcome(item.resource, error.code, error.message))
            continue
        outcomes.append(ConfigOutcome(item.resource))
        if not request.validate_only:
            _write(turn, item.resource, values)
    return outcomes


def adopt_configs(turn: ControllerTurn, event: ConfigsChanged) -> None:
    """Takes over what a tool wrote into the store; what this controller wrote itself is known already."""
    resource, values = event.resource, event.values or {}
    is_topic = resource.type is ConfigResourceType.TOPIC
    if is_topic and resource.name not in turn.state.image.topics:
        return
    known, path = turn.state.image.configs.get(resource), config_path(resource)
    if event.values is None:
        turn.state.replay(Delete(path))
    else:
        turn.state.replay(NodeRead(path, encode_config(values), event.version))
    if is_topic and values != known and values.get(UNCLEAN_SETTING, "").lower() == "true":
        elect_offline_of(turn, resource.name)


def _write(turn: ControllerTurn, resource: ConfigResource, values: Mapping[str, str]) -> None:
    """Against the version known: what a tool has set meanwhile stays."""
    path, data = config_path(resource), encode_config(values)
    version = turn.state.config_versions.get(path)
    container = path.rpartition("/")[0]
    if container in CONTAINERS_MADE_LATER and container not in turn.state.config_folders:
        turn.write(Create(container))
    turn.write(Create(path, data) if version is None else SetData(path, data, version))
    change = Create(CONFIG_CHANGE_PREFIX, encode_config_change(entity_path(resource)), sequential=True)
    turn.write(change)
    if resource.type is ConfigResourceType.TOPIC and values.get(UNCLEAN_SETTING, "").lower() == "true":
        elect_offline_of(turn, resource.name)


def _check_resource(turn: ControllerTurn, resource: ConfigResource) -> None:
    match resource.type:
        case ConfigResourceType.TOPIC:
            if resource.name not in turn.state.image.topics or resource.name in turn.state.deleting:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.name}' does not exist.")
        case ConfigResourceType.BROKER:
            if resource.name and not resource.name.isdecimal():
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {resource.name}")
            if resource.name and resource.name not in map(str, turn.state.image.brokers):
                raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {resource.name} found.")
        case ConfigResourceType.GROUP:
            if not resource.name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        case ConfigResourceType.CLIENT_METRICS:
            if not resource.name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
        case _:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {resource.type.name}.")


def _check_readable(turn: ControllerTurn, item: ReplaceConfigs | ChangeConfigs) -> None:
    """Refuses to change some settings where the others are not known: they would be lost."""
    unreadable = turn.state.malformed.get(config_path(item.resource))
    if unreadable is not None and isinstance(item, ChangeConfigs):
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"{unreadable}: mend the node, or replace all of its settings (AlterConfigs).",
        )


def new_values(current: Mapping[str, str], item: ReplaceConfigs | ChangeConfigs) -> dict[str, str]:
    """All settings of a resource that has `current`, as they will stand in the store. KafkaError."""
    if isinstance(item, ReplaceConfigs):
        replaced = _without_repetitions(item.values)
        missing = [name for name, value in replaced.items() if value is None]
        if missing:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for configs: {', '.join(missing)}")
        return {name: value for name, value in replaced.items() if value is not None}
    _without_repetitions([(change.name, change.value) for change in item.changes])
    missing = [
        change.name for change in item.changes if change.value is None and change.operation is not AlterOperation.DELETE
    ]
    if missing:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(missing)}")
    values = dict(current)
    for change in item.changes:
        value = change.value or ""
        match change.operation:
            case AlterOperation.SET:
                values[change.name] = value
            case AlterOperation.DELETE:
                values.pop(change.name, None)
            case AlterOperation.APPEND | AlterOperation.SUBTRACT:
                members = _members(item.resource, change.name, change.operation, values.get(change.name))
                for member in filter(None, (part.strip() for part in value.split(","))):
                    if change.operation is AlterOperation.SUBTRACT:
                        members = [each for each in members if each != member]
                    elif member not in members:
                        members.append(member)
                values[change.name] = ",".join(members)
    return values


def check_size(resource: ConfigResource, values: Mapping[str, str]) -> None:
    """KafkaError INVALID_CONFIG: the store does not take so large a node."""
    size = 2 * len(config_path(resource).encode()) + len(encode_config(values))
    if size > SETTINGS_SIZE_MAX:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Settings of this size ({size} bytes) are not kept: the metadata store takes {SETTINGS_SIZE_MAX}.",
        )


def _members(resource: ConfigResource, name: str, operation: AlterOperation, current: str | None) -> list[str]:
    """What a list holds before it is appended to: what is set, else the default."""
    setting = _setting(resource, name)
    if setting is None or setting.type is not Type.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Can't {operation.name} to key {name} because its type is not LIST."
        )
    if current is not None:
        return [part.strip() for part in current.split(",") if part.strip()]
    return [str(member) for member in setting.default] if isinstance(setting.default, tuple) else []


def _setting(resource: ConfigResource, name: str) -> Setting | None:
    match resource.type:
        case ConfigResourceType.TOPIC:
            return registry.TOPIC.get(name)
        case ConfigResourceType.GROUP:
            return registry.GROUP.get(name)
        case ConfigResourceType.CLIENT_METRICS:
            # Kafka takes none of these for a list when it comes to appending, and neither do its tools.
            return None
        case _:
            return registry.broker_setting(name)


def _touched(item: ReplaceConfigs | ChangeConfigs) -> set[str]:
    if isinstance(item, ReplaceConfigs):
        return {name for name, _ in item.values}
    return {change.name for change in item.changes}


def _validate(turn: ControllerTurn, resource: ConfigResource, values: Mapping[str, str], touched: set[str]) -> None:
    """Refuses what the resource cannot have. Of a broker only what the request names is judged, not what stands."""
    try:
        match resource.type:
            case ConfigResourceType.TOPIC:
                topic_config.validate(values)
            case ConfigResourceType.GROUP:
                group_config.validate(values, turn.settings.groups)
            case ConfigResourceType.CLIENT_METRICS:
                client_metrics_config.validate(values)
            case _:
                named = {name: value for name, value in values.items() if name in touched}
                broker_config.validate_dynamic(named, cluster_default=not resource.name)
    except (topic_config.InvalidTopicConfig, group_config.InvalidGroupConfig) as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    except client_metrics_config.RefusedClientMetrics as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
    except client_metrics_config.InvalidClientMetrics as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error


def _without_repetitions(pairs: Sequence[tuple[str, str | None]]) -> dict[str, str | None]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    return values
