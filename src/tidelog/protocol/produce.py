"""Produce requests by hand: the records stay where they were received.

A decoded partition's records are a view of the frame, so the frame may not be reused before they are written.
Everything else is as the table says, and the tests hold these functions against the generated ones in every version.

Versions: 3 adds the transactional id, 9 is flexible, 13 names topics by id.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from tidelog.protocol.errors import InvalidMessage
from tidelog.protocol.wire import (
    ELEMENTS_MAX,
    STRING_SIZE_MAX,
    UVARINTS,
    Buffer,
    absent,
    bad_length,
    more_of_uvarint,
    read_unknown_tags,
    too_long,
    too_many,
    uvarint,
    write_tags,
)

if TYPE_CHECKING:
    from tidelog.protocol.classes import Message

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_ACKS_TIMEOUT_COUNT: Final = Struct(">hii")
_INDEX_SIZE: Final = Struct(">ii")
_ACKS_TIMEOUT_COMPACT_COUNT: Final = Struct(">hiB")
_ID_COMPACT_COUNT: Final = Struct(">16sB")
_INDEX_COMPACT_SIZE: Final = Struct(">iB")
_ACKS_TIMEOUT: Final = Struct(">hi")

_ZERO_ID: Final = bytes(16)


def request_decoder(cls: type[Message], version: int) -> Callable[[Buffer, int, int], tuple[Any, int]]:
    """Decodes Produce requests of a version."""
    return _compact_decoder(cls, by_id=version >= 13) if version >= 9 else _classic_decoder(cls, version)


def request_encoder(cls: type[Message], version: int) -> Callable[[Any, Callable[[Any], object]], None]:
    """Encodes Produce requests of a version; the records' chunks go on uncopied."""
    return _compact_encoder(by_id=version >= 13) if version >= 9 else _classic_encoder(version)


def _less(left: int, elements: int) -> int:
    """What is left of the elements that a request may have."""
    if elements > left:
        raise too_many("ProduceRequest")
    return left - elements


def _classic_decoder(cls: Any, version: int) -> Callable[[Buffer, int, int], tuple[Any, int]]:
    new, topic_class, partition_class = object.__new__, cls.TopicProduceData, cls.PartitionProduceData
    has_transactional_id = version >= 3

    def decode(data: Buffer, position: int, end: int) -> tuple[Any, int]:
        view = memoryview(data)
        request = new(cls)
        request.unknown_tagged_fields = ()
        request.transactional_id = None
        if has_transactional_id:
            (size,) = _INT16.unpack_from(view, position)
            position += 2
            if size != -1:
                following = position + size
                if size < 0 or following > end:
                    raise bad_length("ProduceRequest.transactional_id", size, end - position)
                request.transactional_id = str(view[position:following], "utf-8")
                position = following
        request.acks, request.timeout_ms, topics = _ACKS_TIMEOUT_COUNT.unpack_from(view, position)
        position += 10
        if not 0 <= topics <= (end - position) // 6:
            raise bad_length("ProduceRequest.topic_data", topics, end - position)
        left = _less(ELEMENTS_MAX, topics)
        request.topic_data = []
        for _ in range(topics):
            topic = new(topic_class)
            topic.topic_id = _ZERO_ID
            topic.unknown_tagged_fields = ()
            (size,) = _INT16.unpack_from(view, position)
            position += 2
            following = position + size
            if size < 0 or following > end:
                raise bad_length("ProduceRequest.topic_data.name", size, end - position)
            topic.name = str(view[position:following], "utf-8")
            (partitions,) = _INT32.unpack_from(view, following)
            position = following + 4
            if not 0 <= partitions <= (end - position) // 8:
                raise bad_length("ProduceRequest.topic_data.partition_data", partitions, end - position)
            left = _less(left, partitions)
            topic.partition_data = []
            for _ in range(partitions):
                partition = new(partition_class)
                partition.unknown_tagged_fields = ()
                partition.index, size = _INDEX_SIZE.unpack_from(view, position)
                position += 8
                if size == -1:
                    partition.records = None
                else:
                    following = position + size
                    if size < 0 or following > end:
                        raise bad_length("ProduceRequest.topic_data.partition_data.records", size, end - position)
                    partition.records = view[position:following]
                    position = following
                topic.partition_data.append(partition)
            request.topic_data.append(topic)
        return request, position

    return decode


def _compact_decoder(cls: Any, *, by_id: bool) -> Callable[[Buffer, int, int], tuple[Any, int]]:
    new, topic_class, partition_class = object.__new__, cls.TopicProduceData, cls.PartitionProduceData
    least_topic = 18 if by_id else 3

    def decode(data: Buffer, position: int, end: int) -> tuple[Any, int]:
        view = memoryview(data)
        request = new(cls)
        size = view[position]
        position += 1
        if size > 127:
            size, position = more_of_uvarint(view, position, size)
        if size:
            following = position + size - 1
            if following > end or size > STRING_SIZE_MAX + 1:
                raise bad_length("ProduceRequest.transactional_id", size - 1, end - position)
            request.transactional_id = str(view[position:following], "utf-8")
            position = following
        else:
            request.transactional_id = None
        request.acks, request.timeout_ms, topics = _ACKS_TIMEOUT_COMPACT_COUNT.unpack_from(view, position)
        position += 7
        if topics > 127:
            topics, position = more_of_uvarint(view, position, topics)
        if not 0 < topics <= (end - position) // least_topic + 1:
            raise bad_length("ProduceRequest.topic_data", topics - 1, end - position)
        left = _less(ELEMENTS_MAX, topics - 1)
        request.topic_data = []
        for _ in range(topics - 1):
            topic = new(topic_class)
            if by_id:
                topic.name = ""
                topic.topic_id, partitions = _ID_COMPACT_COUNT.unpack_from(view, position)
                position += 17
            else:
                size = view[position]
                position += 1
                if size > 127:
                    size, position = more_of_uvarint(view, position, size)
                following = position + size - 1
                if following > end or not 0 < size <= STRING_SIZE_MAX + 1:
                    raise bad_length("ProduceRequest.topic_data.name", size - 1, end - position)
                topic.topic_id = _ZERO_ID
                topic.name = str(view[position:following], "utf-8")
                partitions = view[following]
                position = following + 1
            if partitions > 127:
                partitions, position = more_of_uvarint(view, position, partitions)
            if not 0 < partitions <= (end - position) // 6 + 1:
                raise bad_length("ProduceRequest.topic_data.partition_data", partitions - 1, end - position)
            left = _less(left, partitions - 1)
            topic.partition_data = []
            for _ in range(partitions - 1):
                partition = new(partition_class)
                partition.index, size = _INDEX_COMPACT_SIZE.unpack_from(view, position)
                position += 5
                if size > 127:
                    size, position = more_of_uvarint(view, position, size)
                if size:
                    following = position + size - 1
                    if following > end:
                        raise bad_length("ProduceRequest.topic_data.partition_data.records", size - 1, end - position)
                    partition.records = view[position:following]
                    position = following
                else:
                    partition.records = None
                tags = view[position]
                position += 1
                partition.unknown_tagged_fields = ()
                if tags:
                    partition.unknown_tagged_fields, position = read_unknown_tags(view, position, end, tags)
                    left = _less(left, len(partition.unknown_tagged_fields))
                topic.partition_data.append(partition)
            tags = view[position]
            position += 1
            topic.unknown_tagged_fields = ()
            if tags:
                topic.unknown_tagged_fields, position = read_unknown_tags(view, position, end, tags)
                left = _less(left, len(topic.unknown_tagged_fields))
            request.topic_data.append(topic)
        tags = view[position]
        position += 1
        request.unknown_tagged_fields = ()
        if tags:
            request.unknown_tagged_fields, position = read_unknown_tags(view, position, end, tags)
        return request, position

    return decode


def _classic_encoder(version: int) -> Callable[[Any, Callable[[Any], object]], None]:
    def encode(request: Any, write: Callable[[Any], object]) -> None:
        if request.unknown_tagged_fields:
            raise absent("ProduceRequest.unknown_tagged_fields")
        if version >= 3:
            if request.transactional_id is None:
                write(b"\xff\xff")
            else:
                name = request.transactional_id.encode()
                write(_INT16.pack(len(name)) + name)
        elif request.transactional_id is not None:
            raise absent("ProduceRequest.transactional_id")
        write(_ACKS_TIMEOUT_COUNT.pack(request.acks, request.timeout_ms, len(request.topic_data)))
        for topic in request.topic_data:
            if topic.unknown_tagged_fields:
                raise absent("ProduceRequest.topic_data.unknown_tagged_fields")
            name = topic.name.encode()
            write(_INT16.pack(len(name)) + name + _INT32.pack(len(topic.partition_data)))
            for partition in topic.partition_data:
                if partition.unknown_tagged_fields:
                    raise absent("ProduceRequest.topic_data.partition_data.unknown_tagged_fields")
                records = partition.records
                if records is None:
                    write(_INDEX_SIZE.pack(partition.index, -1))
                elif type(records) is list:
                    write(_INDEX_SIZE.pack(partition.index, sum(map(len, records))))
                    for chunk in records:
                        write(chunk)
                else:
                    write(_INDEX_SIZE.pack(partition.index, len(records)))
                    write(records)

    return encode


def _compact_encoder(*, by_id: bool) -> Callable[[Any, Callable[[Any], object]], None]:
    def encode(request: Any, write: Callable[[Any], object]) -> None:
        write(b"\0" if request.transactional_id is None else _string(request.transactional_id, "transactional_id"))
        write(_ACKS_TIMEOUT.pack(request.acks, request.timeout_ms) + uvarint(len(request.topic_data) + 1))
        for topic in request.topic_data:
            if by_id:
                if len(topic.topic_id) != 16:
                    raise InvalidMessage(f"a topic id has 16 bytes, not {len(topic.topic_id)}")
                write(topic.topic_id)
            else:
                write(_string(topic.name, "topic_data.name"))
            write(uvarint(len(topic.partition_data) + 1))
            for partition in topic.partition_data:
                records = partition.records
                if records is None:
                    write(_INDEX_COMPACT_SIZE.pack(partition.index, 0))
                elif type(records) is list:
                    write(_INT32.pack(partition.index) + uvarint(sum(map(len, records)) + 1))
                    for chunk in records:
                        write(chunk)
                else:
                    write(_INT32.pack(partition.index) + uvarint(len(records) + 1))
                    write(records)
                write(write_tags(partition.unknown_tagged_fields) if partition.unknown_tagged_fields else b"\0")
            write(write_tags(topic.unknown_tagged_fields) if topic.unknown_tagged_fields else b"\0")
        write(write_tags(request.unknown_tagged_fields) if request.unknown_tagged_fields else b"\0")

    return encode


def _string(text: str, path: str) -> bytes:
    content = text.encode()
    size = len(content)
    if size > STRING_SIZE_MAX:
        raise too_long(f"ProduceRequest.{path}", size)
    return (UVARINTS[size + 1] if size < 127 else uvarint(size + 1)) + content
