"""Kafka's small text files: offsets by partition, a partition's identity, a directory's identity.

    recovery-point-offset-checkpoint          0                      version
    replication-offset-checkpoint             2                      entries
    log-start-offset-checkpoint               clicks 1 456           topic, partition, offset
    cleaner-offset-checkpoint                 orders 0 481

    segment-sizes (ours; Kafka and older versions look at no file of that name)
    0 37                                      version, the broker's epoch at the clean stop that wrote it
    clicks 1 0 1048530 456 20480              topic, partition, then base offset and bytes of each segment

A file that cannot be read so is `CorruptFile`; the caller decides whether it can do without.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.model.identifiers import TopicId, TopicPartition, format_topic_id, parse_topic_id
from tidelog.storage.errors import CorruptFile

if TYPE_CHECKING:
    from collections.abc import Mapping

_OFFSETS_VERSION: Final = "0"
_SIZES_VERSION: Final = "0"
_NUMBER_MAX_DIGITS: Final = 19


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The content of an offset checkpoint, sorted so that equal content is equal bytes."""
    lines = [_OFFSETS_VERSION, str(len(offsets))]
    lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    return ("\n".join(lines) + "\n").encode()


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """The inverse; `CorruptFile` naming the line."""
    try:
        lines = data.decode("ascii").splitlines()
    except UnicodeDecodeError as error:
        raise CorruptFile(f"byte {error.start} is no text") from error
    if not lines or lines[0].strip() != _OFFSETS_VERSION:
        raise CorruptFile(f"line 1: version {_OFFSETS_VERSION} expected, found {lines[0] if lines else ''!r}")
    if len(lines) < 2 or not _is_number(lines[1]):
        raise CorruptFile(f"line 2: a count expected, found {lines[1] if len(lines) > 1 else ''!r}")
    offsets: dict[TopicPartition, int] = {}
    for number, line in enumerate(lines[2:], 3):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 3 or not _is_number(fields[1]) or not _is_number(fields[2]):
            raise CorruptFile(f"line {number}: topic, partition and offset expected, found {line!r}")
        offsets[TopicPartition(fields[0], int(fields[1]))] = int(fields[2])
    if int(lines[1]) != len(offsets):
        raise CorruptFile(f"line 2: {lines[1]} entries announced, {len(offsets)} found")
    return offsets


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _NUMBER_MAX_DIGITS and int(text) < 2**63


def encode_segment_sizes(broker_epoch: int, sizes: Mapping[TopicPartition, Mapping[int, int]]) -> bytes:
    """The content of `segment-sizes`; `sizes`: base offset to bytes of the .log file, of each segment."""
    lines = [f"{_SIZES_VERSION} {broker_epoch}"]
    for (topic, partition), segments in sorted(sizes.items()):
        lines.append(" ".join([topic, str(partition), *(f"{base} {size}" for base, size in segments.items())]))
    return ("\n".join(lines) + "\n").encode()


def decode_segment_sizes(data: bytes) -> tuple[int, dict[TopicPartition, dict[int, int]]]:
    """The inverse; `CorruptFile` naming the line."""
    try:
        lines = [line.split() for line in data.decode("ascii").splitlines()]
    except UnicodeDecodeError as error:
        raise CorruptFile(f"byte {error.start} is no text") from error
    if not lines or len(lines[0]) != 2 or lines[0][0] != _SIZES_VERSION or not _is_number(lines[0][1]):
        raise CorruptFile(f"line 1: version {_SIZES_VERSION} and a broker epoch expected")
    sizes: dict[TopicPartition, dict[int, int]] = {}
    for number, fields in enumerate(lines[1:], 2):
        if len(fields) < 2 or len(fields) % 2 or not all(map(_is_number, fields[1:])):
            raise CorruptFile(f"line {number}: topic, partition, base offsets and sizes expected")
        numbers = [int(field) for field in fields[2:]]
        sizes[TopicPartition(fields[0], int(fields[1]))] = dict(zip(numbers[::2], numbers[1::2], strict=True))
    return int(lines[0][1]), sizes


def encode_partition_metadata(topic_id: TopicId) -> bytes:
    """The content of `partition.metadata`; Kafka ends the file without a newline."""
    return f"version: 0\ntopic_id: {format_topic_id(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> TopicId | None:
    """The topic id; None for an empty file, which a crash just after its creation leaves. `CorruptFile` for other
    content."""
    if not data.strip(b"\x00\n"):
        return None
    fields = _properties(data, ":")
    if fields.get("version") != "0":
        raise CorruptFile(f"version 0 expected, found {fields.get('version')!r}")
    try:
        topic_id = parse_topic_id(fields.get("topic_id", ""))
    except ValueError as error:
        raise CorruptFile(str(error)) from error
    if topic_id == bytes(16):
        raise CorruptFile("the topic id is zero, which names no topic")
    return topic_id


class MetaProperties(NamedTuple):
    """`meta.properties`: whose a log directory is."""

    broker_id: int | None
    """None in a directory that was formatted but has not been given to a broker."""
    cluster_id: str | None
    directory_id: str | None
    """22-character base64 of 16 random bytes (KIP-858)."""
    version: int = 0
    """0 with ZooKeeper (`broker.id`), 1 with KRaft (`node.id`)."""


def encode_meta_properties(properties: MetaProperties) -> bytes:
    """The content of the file: version 0, as brokers of ZooKeeper days write it."""
    lines = ["#", "version=0"]
    if properties.broker_id is not None:
        lines.append(f"broker.id={properties.broker_id}")
    if properties.cluster_id is not None:
        lines.append(f"cluster.id={properties.cluster_id}")
    if properties.directory_id is not None:
        lines.append(f"directory.id={properties.directory_id}")
    return ("\n".join(lines) + "\n").encode()


def decode_meta_properties(data: bytes) -> MetaProperties:
    """Versions 0 and 1; `CorruptFile` for anything else."""
    fields = _properties(data, "=")
    version = fields.get("version")
    if version not in ("0", "1"):
        raise CorruptFile(f"version 0 or 1 expected, found {version!r}")
    broker_id = fields.get("broker.id") if version == "0" else fields.get("node.id")
    if broker_id is not None and not _is_number(broker_id):
        raise CorruptFile(f"the broker id {broker_id!r} is no number")
    return MetaProperties(
        None if broker_id is None else int(broker_id),
        fields.get("cluster.id"),
        fields.get("directory.id"),
        int(version),
    )


class CleanShutdown(NamedTuple):
    """`.kafka_cleanshutdown`: the logs were closed, nothing needs recovery (KIP-966 added the epoch)."""

    broker_epoch: int = -1


def decode_clean_shutdown(data: bytes) -> CleanShutdown:
    """The inverse; Kafka's oldest brokers leave the file empty, and what cannot be read tells no epoch."""
    try:
        return CleanShutdown(int(json.loads(data)["brokerEpoch"]))
    except (ValueError, KeyError, TypeError):
        return CleanShutdown()


def encode_clean_shutdown(shutdown: CleanShutdown) -> bytes:
    return f'{{"version":0,"brokerEpoch":{shutdown.broker_epoch}}}'.encode()


def _properties(data: bytes, separator: str) -> dict[str, str]:
    """`key<separator>value` lines; comments and empty lines left out."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptFile(f"byte {error.start} is no text") from error
    fields: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if not line or line.startswith(("#", "!")):
            continue
        key, found, value = line.partition(separator)
        if not found:
            raise CorruptFile(f"line {number}: key{separator}value expected, found {line!r}")
        fields[key.strip()] = value.strip()
    return fields
