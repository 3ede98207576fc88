"""Where Kafka keeps what in the metadata store, and the JSON inside: paths, encoders, decoders.

Written compactly, with the keys in the order in which Kafka 2.8.2 writes them; read by key, whatever the order, in all
versions that Kafka 2.2 to 3.9 write. A node that cannot be read is `MalformedZnode`, which names the path: one broken
node must not take the cluster down.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any, Final

from tidelog.config.listeners import SECURITY_PROTOCOLS
from tidelog.metadata.image import BrokerRegistration, ConfigResource, ConfigResourceType, Endpoint
from tidelog.model.identifiers import (
    NO_LEADER,
    ZERO_TOPIC_ID,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    TopicId,
    TopicPartition,
    format_topic_id,
    parse_topic_id,
)
from tidelog.model.values import value

CLUSTER: Final = "/cluster"
CLUSTER_ID: Final = "/cluster/id"
BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
FEATURE: Final = "/feature"
CONFIG: Final = "/config"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE_PREFIX: Final = "/config/changes/config_change_"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_ELECTION: Final = "/admin/preferred_replica_election"
ISR_CHANGES: Final = "/isr_change_notification"
LOG_DIRECTORY_EVENTS: Final = "/log_dir_event_notification"
LOG_DIRECTORY_EVENT_PREFIX: Final = "/log_dir_event_notification/log_dir_event_"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"

PERSISTENT_PATHS: Final = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIRECTORY_EVENTS,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
)
"""What every broker creates at its start where it is missing, parents before it, in this order."""

DEFAULT_ENTITY: Final = "<default>"
"""Stands, literally, for the cluster-wide default among brokers, users, clients and ips."""

_UNREADABLE: Final = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""What a value of an unexpected type or range leads to."""

_STATES_KEPT: Final = 1024
"""Different states of partitions that are kept as one object each."""
_INT32_MAX: Final = (1 << 31) - 1
"""Ids, epochs and ports travel between brokers as 32 bits: what has more would break the message, not the node."""
_PORT_MAX: Final = 65_535
_TEXT_LENGTH_MAX: Final = 1_000
"""Of an endpoint or a rack, for the same reason."""

_ENTITY_FOLDERS: Final = {
    ConfigResourceType.TOPIC: "topics",
    ConfigResourceType.BROKER: "brokers",
    ConfigResourceType.GROUP: "groups",
    ConfigResourceType.CLIENT_METRICS: "client-metrics",
}
"""Names below /config, as Kafka's."""
_ENCODED: Final = frozenset({ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS})
"""Kinds whose names may have any characters: a node's name has them percent-encoded (UTF-8), as Kafka has users'."""
CONTAINERS_MADE_LATER: Final = frozenset(f"{CONFIG}/{_ENTITY_FOLDERS[kind]}" for kind in _ENCODED)
"""Made with the first node in them, so that a cluster that does not use them has the nodes that it always had."""


class MalformedZnode(ValueError):
    """A node's content is not what Kafka keeps there. The message names the path and the reason."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} in the metadata store is malformed: {reason}")
        self.path = path
        self.reason = reason


# Paths.


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def is_partition_name(name: str) -> bool:
    """Whether a node below `partitions` is a partition's: a number as we write it, not 07.

    >>> is_partition_name("7"), is_partition_name("07"), is_partition_name("seven")
    (True, False, False)
    """
    return is_number(name) and str(int(name)) == name


def is_number(text: str) -> bool:
    """Whether a name, or a part of one, is a number of at most 18 digits: strangers name nodes as they like, and Python
    reads no number of thousands.

    >>> is_number("0000000007"), is_number("1" * 19), is_number("-1")
    (True, False, False)
    """
    return text.isascii() and text.isdecimal() and len(text) <= 18


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


def entity_path(resource: ConfigResource) -> str:
    """As notifications name a holder of settings: topics/T, brokers/7, brokers/<default>, groups/G."""
    name = _encode_name(resource.name) if resource.type in _ENCODED else resource.name or DEFAULT_ENTITY
    return f"{_ENTITY_FOLDERS[resource.type]}/{name}"


def _encode_name(name: str) -> str:
    from urllib.parse import quote

    # ZooKeeper takes no node that is called "." or "..".
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="")


def config_path(resource: ConfigResource) -> str:
    return f"{CONFIG}/{entity_path(resource)}"


def resource_of(entity: str) -> ConfigResource | None:
    """The inverse of `entity_path`; None for users, clients and ips, which are no resources of AlterConfigs.

    None also for a group's node whose name is encoded in another way than `entity_path` does it.
    """
    folder, _, name = entity.partition("/")
    for type, known in _ENTITY_FOLDERS.items():
        if folder != known or not name or "/" in name:
            continue
        if type not in _ENCODED:
            return ConfigResource(type, "" if name == DEFAULT_ENTITY else name)
        from urllib.parse import unquote

        decoded = unquote(name, errors="replace")
        return ConfigResource(type, decoded) if _encode_name(decoded) == name else None
    return None


# Brokers and controller.


def encode_broker(registration: BrokerRegistration) -> bytes:
    """/brokers/ids/N, version 5. The first endpoint is also given as host and port, for old readers."""
    first = registration.endpoints[0] if registration.endpoints else None
    content: dict[str, Any] = {
        "features": {},
        "listener_security_protocol_map": {point.name: point.security_protocol for point in registration.endpoints},
        "endpoints": [_format_endpoint(point) for point in registration.endpoints],
    }
    if registration.rack is not None:
        content["rack"] = registration.rack
    content |= {
        "jmx_port": registration.jmx_port,
        "port": -1 if first is None else first.port,
        "host": None if first is None else first.host,
        "version": 5,
        "timestamp": str(registration.timestamp_ms),
    }
    return _dump(content)


def decode_broker(broker_id: int, data: bytes | None, epoch: int) -> BrokerRegistration:
    """`epoch` is the node's czxid. Versions 1 to 5."""
    path = broker_path(broker_id)
    content = _load(path, data, newest=5)
    try:
        if "endpoints" in content:
            protocols = content.get("listener_security_protocol_map") or {}
            endpoints = tuple(_parse_endpoint(text, protocols) for text in content["endpoints"])
        else:
            endpoints = (_endpoint("PLAINTEXT", "PLAINTEXT", _text(content["host"]), content["port"]),)
        rack = content.get("rack")
        return BrokerRegistration(
            BrokerId(_number(broker_id)),
            BrokerEpoch(epoch),
            endpoints,
            None if rack is None else _text(rack),
            int(content.get("timestamp", -1)),
            int(content.get("jmx_port", -1)),
        )
    except _UNREADABLE as error:
        raise MalformedZnode(path, repr(error)) from error


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    return _dump({"version": 1, "brokerid": broker_id, "timestamp": str(timestamp_ms)})


def decode_controller(data: bytes | None) -> BrokerId:
    """Versions 1 and 2."""
    content = _load(CONTROLLER, data, newest=2)
    return BrokerId(_integer(CONTROLLER, content, "brokerid"))


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(data: bytes | None) -> ControllerEpoch:
    try:
        return ControllerEpoch(_number(int(data or b"")))
    except ValueError as error:
        raise MalformedZnode(CONTROLLER_EPOCH, f"{data!r} is not a number from 0 to {_INT32_MAX}") from error


def encode_feature() -> bytes:
    return _dump({"features": {}, "version": 1, "status": 1})


def encode_cluster_id(cluster_id: str) -> bytes:
    return _dump({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes | None) -> str:
    content = _load(CLUSTER_ID, data, newest=1)
    if not isinstance(content.get("id"), str):
        raise MalformedZnode(CLUSTER_ID, "no id")
    return str(content["id"])


# Topics and partitions.


@value
class TopicAssignment:
    """Content of /brokers/topics/T."""

    partitions: Mapping[int, Sequence[int]]
    """Replicas by partition, in the order of the partitions."""
    topic_id: TopicId = ZERO_TOPIC_ID
    """All zeros in versions 1 and 2, and when a tool of 2.8 wrote it at the creation."""
    adding: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """By partition, while a reassignment is under way."""
    removing: Mapping[int, Sequence[int]] = field(default_factory=dict)


def encode_topic(assignment: TopicAssignment) -> bytes:
    """Version 3. A topic id of zeros is left out, as the tools of 2.8 do."""
    content: dict[str, Any] = {"partitions": _by_text(assignment.partitions)}
    if assignment.topic_id != ZERO_TOPIC_ID:
        content["topic_id"] = format_topic_id(assignment.topic_id)
    content["adding_replicas"] = _by_text(assignment.adding)
    content["removing_replicas"] = _by_text(assignment.removing)
    content["version"] = 3
    return _dump(content)


def decode_topic(topic: str, data: bytes | None) -> TopicAssignment:
    """Versions 1 to 3."""
    path = topic_path(topic)
    content = _load(path, data, newest=3)
    try:
        return TopicAssignment(
            _by_number(content["partitions"]),
            parse_topic_id(content["topic_id"]) if "topic_id" in content else ZERO_TOPIC_ID,
            _by_number(content.get("adding_replicas") or {}),
            _by_number(content.get("removing_replicas") or {}),
        )
    except _UNREADABLE as error:
        raise MalformedZnode(path, repr(error)) from error


@value
class PartitionState:
    """Content of /brokers/topics/T/partitions/P/state; the node's version is the partition epoch."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    controller_epoch: ControllerEpoch


def encode_state(state: PartitionState) -> bytes:
    isr = ",".join(map(str, state.isr))
    return (
        f'{{"controller_epoch":{state.controller_epoch},"leader":{state.leader},"version":1,'
        f'"leader_epoch":{state.leader_epoch},"isr":[{isr}]}}'
    ).encode()


def decode_state(topic: str, partition: int, data: bytes | None) -> PartitionState:
    try:
        return _decode_state(data)
    except MalformedZnode as error:
        raise MalformedZnode(state_path(topic, partition), error.reason) from error


@lru_cache(_STATES_KEPT)
def _decode_state(data: bytes | None) -> PartitionState:
    """Of thousands of partitions most have a state that others have too: each is read once, and is one object."""
    content = _load("", data, newest=1)
    try:
        return PartitionState(
            BrokerId(_number(content["leader"], lowest=NO_LEADER)),
            # The last one can have no other after it: its partition is left alone like one whose state cannot be read.
            LeaderEpoch(_number(content["leader_epoch"], highest=_INT32_MAX - 1)),
            tuple(BrokerId(_number(id)) for id in content["isr"]),
            ControllerEpoch(_number(content["controller_epoch"])),
        )
    except _UNREADABLE as error:
        raise MalformedZnode("", repr(error)) from error


# Settings.


def encode_config(values: Mapping[str, str]) -> bytes:
    return _dump({"version": 1, "config": dict(values)})


def decode_config(path: str, data: bytes | None) -> dict[str, str]:
    content = _load(path, data, newest=1)
    values = content.get("config")
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise MalformedZnode(path, '"config" is not a map of strings')
    return dict(values)


def encode_config_change(entity: str) -> bytes:
    return _dump({"version": 2, "entity_path": entity})


def decode_config_change(path: str, data: bytes | None) -> str:
    """The entity's path: topics/T, users/U/clients/C, ... (version 1 is turned into that form too)."""
    content = _load(path, data, newest=2)
    if isinstance(content.get("entity_path"), str):
        return str(content["entity_path"])
    if isinstance(content.get("entity_type"), str) and isinstance(content.get("entity_name"), str):
        return f"{content['entity_type']}/{content['entity_name']}"
    raise MalformedZnode(path, "no entity_path")


# Producer ids.


@value
class StoredProducerIdBlock:
    """Content of /latest_producer_id_block: the block that was given away last, both ends included."""

    broker_id: BrokerId
    first: int
    last: int


def encode_producer_id_block(block: StoredProducerIdBlock) -> bytes:
    return _dump(
        {
            "version": 1,
            "broker": block.broker_id,
            "block_start": str(block.first),
            "block_end": str(block.last),
        }
    )


def decode_producer_id_block(data: bytes | None) -> StoredProducerIdBlock | None:
    """None while no block was ever given away."""
    if data is None:
        return None
    content = _load(PRODUCER_ID_BLOCK, data, newest=1)
    try:
        return StoredProducerIdBlock(
            BrokerId(int(content["broker"])), int(content["block_start"]), int(content["block_end"])
        )
    except _UNREADABLE as error:
        raise MalformedZnode(PRODUCER_ID_BLOCK, repr(error)) from error


# What tools and brokers leave for the controller.


def encode_reassignment(plan: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    partitions = [
        {"topic": topic, "partition": partition, "replicas": list(replicas)}
        for (topic, partition), replicas in plan.items()
    ]
    return _dump({"version": 1, "partitions": partitions})


def decode_reassignment(data: bytes | None) -> dict[TopicPartition, list[int]]:
    """Numbers below 0 are no reason to refuse the whole plan: the controller drops what makes no sense."""
    content = _load(REASSIGN_PARTITIONS, data, newest=1)
    try:
        return {
            TopicPartition(str(entry["topic"]), _number(entry["partition"], lowest=-_INT32_MAX)): [
                _number(id, lowest=-_INT32_MAX) for id in entry["replicas"]
            ]
            for entry in content["partitions"]
        }
    except _UNREADABLE as error:
        raise MalformedZnode(REASSIGN_PARTITIONS, repr(error)) from error


def encode_partitions(partitions: Sequence[TopicPartition]) -> bytes:
    """/admin/preferred_replica_election and the ISR change notifications."""
    return _dump(
        {
            "version": 1,
            "partitions": [{"topic": topic, "partition": partition} for topic, partition in partitions],
        }
    )


def decode_partitions(path: str, data: bytes | None) -> list[TopicPartition]:
    content = _load(path, data, newest=1)
    try:
        return [TopicPartition(str(entry["topic"]), _number(entry["partition"])) for entry in content["partitions"]]
    except _UNREADABLE as error:
        raise MalformedZnode(path, repr(error)) from error


def encode_log_directory_event(broker_id: int) -> bytes:
    return _dump({"version": 1, "broker": broker_id, "event": 1})


def decode_log_directory_event(path: str, data: bytes | None) -> BrokerId:
    return BrokerId(_integer(path, _load(path, data, newest=1), "broker"))


def _dump(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def _load(path: str, data: bytes | None, *, newest: int) -> dict[str, Any]:
    """The node's JSON object; its version, where it has one, is 1 to `newest`: others may mean something else."""
    if data is None:
        raise MalformedZnode(path, "it has no content")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MalformedZnode(path, f"not JSON ({error})") from error
    if not isinstance(content, dict):
        raise MalformedZnode(path, "not a JSON object")
    if not data.isascii() or b"\\u" in data:
        try:
            _dump(content)
        except (UnicodeEncodeError, RecursionError) as error:
            # JSON can name halves of characters, which no text has: the node could not be written again.
            raise MalformedZnode(path, f"it holds what no text has ({error})") from error
    version = content.get("version", newest)
    try:
        known = 1 <= int(version) <= newest
    except _UNREADABLE:
        known = False
    if not known:
        raise MalformedZnode(path, f"its version is {version!r}, and 1 to {newest} are known")
    return content


def _integer(path: str, content: Mapping[str, Any], key: str) -> int:
    try:
        return _number(content[key])
    except _UNREADABLE as error:
        raise MalformedZnode(path, repr(error)) from error


def _number(value: Any, *, lowest: int = 0, highest: int = _INT32_MAX) -> int:
    """A whole number from `lowest` to `highest`, at most what 32 bits hold; ValueError."""
    number = int(value)
    if isinstance(value, (bool, float)) or not lowest <= number <= highest:
        raise ValueError(f"{value!r} is not a whole number from {lowest} to {highest}")
    return number


def _text(value: Any) -> str:
    """A short text; ValueError."""
    if not isinstance(value, str) or len(value) > _TEXT_LENGTH_MAX:
        raise ValueError(f"{str(value)[:40]!r} is no text of at most {_TEXT_LENGTH_MAX} characters")
    return value


def _by_text(replicas: Mapping[int, Sequence[int]]) -> dict[str, list[int]]:
    return {str(partition): list(replicas[partition]) for partition in sorted(replicas)}


def _by_number(replicas: Mapping[str, Sequence[Any]]) -> dict[int, tuple[int, ...]]:
    return dict(sorted((_number(partition), tuple(map(_number, ids))) for partition, ids in replicas.items()))


def _format_endpoint(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.name}://{host}:{endpoint.port}"


def _parse_endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    name, separator, address = _text(text).partition("://")
    host, colon, port = address.rpartition(":")
    if not separator or not colon:
        raise ValueError(f"{text!r} is not an endpoint")
    return _endpoint(name, protocols.get(name, name), host.removeprefix("[").removesuffix("]"), port)


def _endpoint(name: str, protocol: Any, host: str, port: Any) -> Endpoint:
    if protocol not in SECURITY_PROTOCOLS:
        raise ValueError(f"{str(protocol)[:40]!r} is no security protocol")
    if _number(port) > _PORT_MAX:
        raise ValueError(f"{port} is no port")
    return Endpoint(name, protocol, host, int(port))
