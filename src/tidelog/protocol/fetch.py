"""Fetch responses by hand: records are neither copied when they arrive nor when they leave.

A decoded partition's records are a view of the frame. To send, a partition's records may be a list of chunks, file
ranges among them, that stand in the encoded chunks as they are. The tests hold these functions against the generated
ones in every version. Fetch requests hold no records, so they are left to the generator.

Versions: 1 adds the throttle time, 4 the last stable offset and aborted transactions, 5 the log start offset,
7 sessions, 11 the preferred replica; 12 is flexible, 13 names topics by id, 16 adds endpoints.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from tidelog.protocol.errors import InvalidMessage
from tidelog.protocol.wire import (
    STRING_SIZE_MAX,
    UVARINTS,
    Buffer,
    absent,
    bad_length,
    bad_tag,
    more_of_uvarint,
    read_tags,
    read_unknown_tags,
    too_long,
    uvarint,
    write_tags,
)

if TYPE_CHECKING:
    from tidelog.protocol.classes import Message

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_TWO_INT32: Final = Struct(">ii")
_TWO_INT64: Final = Struct(">qq")
_TOP: Final = Struct(">ihiB")
"""Throttle time, error, session id, count of topics."""
_TOP_ONLY: Final = Struct(">ihi")
_ID_COUNT: Final = Struct(">16sB")
_HEAD: Final = Struct(">ihqqqB")
"""Index, error, high watermark, last stable and log start offset, count of aborted transactions."""
_TAIL: Final = Struct(">iB")
"""Preferred replica, first byte of the records' size."""
_PARTITION: Final = Struct(">ihqqqBi")
"""_HEAD and the preferred replica: what stands before the records' size when no transaction was aborted."""
_EPOCH_OFFSET: Final = Struct(">iqB")
_OFFSET_EPOCH: Final = Struct(">qiB")
_LEADER: Final = Struct(">iiB")

_ZERO_ID: Final = bytes(16)
_ABORTED: Final = "FetchResponse.responses.partitions.aborted_transactions"
_RECORDS: Final = "FetchResponse.responses.partitions.records"
_PARTITIONS: Final = "FetchResponse.responses.partitions"


def response_decoder(cls: type[Message], version: int) -> Callable[[Buffer, int, int], tuple[Any, int]]:
    """Decodes Fetch responses of a version."""
    return _compact_decoder(cls, version) if version >= 12 else _classic_decoder(cls, version)


def response_encoder(cls: type[Message], version: int) -> Callable[[Any, Callable[[Any], object]], None]:
    """Encodes Fetch responses of a version."""
    return _compact_encoder(version) if version >= 12 else _classic_encoder(version)


def _classic_decoder(cls: Any, version: int) -> Callable[[Buffer, int, int], tuple[Any, int]]:
    new, topic_class, partition_class, aborted_class = (
        object.__new__,
        cls.FetchableTopicResponse,
        cls.PartitionData,
        cls.AbortedTransaction,
    )
    top = Struct(">ihii" if version >= 7 else ">ii" if version >= 1 else ">i")
    head = Struct(">ihqqqi" if version >= 5 else ">ihqqi" if version >= 4 else ">ihqi")
    least_partition = head.size + (8 if version >= 11 else 4 if version >= 4 else 0)

    def decode(data: Buffer, position: int, end: int) -> tuple[Any, int]:
        view = memoryview(data)
        response = new(cls)
        response.node_endpoints = []
        response.unknown_tagged_fields = ()
        response.throttle_time_ms = response.error_code = response.session_id = 0
        if version >= 7:
            response.throttle_time_ms, response.error_code, response.session_id, topics = top.unpack_from(
                view, position
            )
        elif version >= 1:
            response.throttle_time_ms, topics = top.unpack_from(view, position)
        else:
            (topics,) = top.unpack_from(view, position)
        position += top.size
        if not 0 <= topics <= (end - position) // 6:
            raise bad_length("FetchResponse.responses", topics, end - position)
        response.responses = []
        for _ in range(topics):
            topic = new(topic_class)
            topic.topic_id = _ZERO_ID
            topic.unknown_tagged_fields = ()
            (size,) = _INT16.unpack_from(view, position)
            position += 2
            following = position + size
            if size < 0 or following > end:
                raise bad_length("FetchResponse.responses.topic", size, end - position)
            topic.topic = str(view[position:following], "utf-8")
            (partitions,) = _INT32.unpack_from(view, following)
            position = following + 4
            if not 0 <= partitions <= (end - position) // least_partition:
                raise bad_length(_PARTITIONS, partitions, end - position)
            topic.partitions = []
            for _ in range(partitions):
                partition = new(partition_class)
                partition.last_stable_offset = partition.log_start_offset = partition.preferred_read_replica = -1
                partition.aborted_transactions = []
                partition.diverging_epoch = cls.EpochEndOffset()
                partition.current_leader = cls.LeaderIdAndEpoch()
                partition.snapshot_id = cls.SnapshotId()
                partition.unknown_tagged_fields = ()
                fixed = head.unpack_from(view, position)
                position += head.size
                partition.partition_index, partition.error_code, partition.high_watermark = fixed[:3]
                size = fixed[-1]
                if version >= 4:
                    partition.last_stable_offset = fixed[3]
                    if version >= 5:
                        partition.log_start_offset = fixed[4]
                    if size == -1:
                        partition.aborted_transactions = None
                    elif not 0 <= size <= (end - position) // 16:
                        raise bad_length(_ABORTED, size, end - position)
                    for _ in range(size):
                        aborted = new(aborted_class)
                        aborted.producer_id, aborted.first_offset = _TWO_INT64.unpack_from(view, position)
                        aborted.unknown_tagged_fields = ()
                        partition.aborted_transactions.append(aborted)
                        position += 16
                    if version >= 11:
                        partition.preferred_read_replica, size = _TWO_INT32.unpack_from(view, position)
                        position += 8
                    else:
                        (size,) = _INT32.unpack_from(view, position)
                        position += 4
                if size == -1:
                    partition.records = None
                else:
                    following = position + size
                    if size < 0 or following > end:
                        raise bad_length(_RECORDS, size, end - position)
                    partition.records = view[position:following]
                    position = following
                topic.partitions.append(partition)
            response.responses.append(topic)
        return response, position

    return decode


def _compact_decoder(cls: Any, version: int) -> Callable[[Buffer, int, int], tuple[Any, int]]:
    new, topic_class, partition_class, aborted_class = (
        object.__new__,
        cls.FetchableTopicResponse,
        cls.PartitionData,
        cls.AbortedTransaction,
    )
    epoch_class, leader_class, snapshot_class = cls.EpochEndOffset, cls.LeaderIdAndEpoch, cls.SnapshotId
    by_id = version >= 13
    least_topic = 18 if by_id else 3

    def decode(data: Buffer, position: int, end: int) -> tuple[Any, int]:
        view = memoryview(data)
        response = new(cls)
        response.throttle_time_ms, response.error_code, response.session_id, topics = _TOP.unpack_from(view, position)
        position += 11
        if topics > 127:
            topics, position = more_of_uvarint(view, position, topics)
        if not 0 < topics <= (end - position) // least_topic + 1:
            raise bad_length("FetchResponse.responses", topics - 1, end - position)
        response.responses = []
        for _ in range(topics - 1):
            topic = new(topic_class)
            if by_id:
                topic.topic = ""
                topic.topic_id, partitions = _ID_COUNT.unpack_from(view, position)
                position += 17
            else:
                topic.topic_id = _ZERO_ID
                size = view[position]
                position += 1
                if size > 127:
                    size, position = more_of_uvarint(view, position, size)
                following = position + size - 1
                if following > end or not 0 < size <= STRING_SIZE_MAX + 1:
                    raise bad_length("FetchResponse.responses.topic", size - 1, end - position)
                topic.topic = str(view[position:following], "utf-8")
                partitions = view[following]
                position = following + 1
            if partitions > 127:
                partitions, position = more_of_uvarint(view, position, partitions)
            if not 0 < partitions <= (end - position) // 37 + 1:
                raise bad_length(_PARTITIONS, partitions - 1, end - position)
            found = topic.partitions = []
            for _ in range(partitions - 1):
                partition = new(partition_class)
                (
                    partition.partition_index,
                    partition.error_code,
                    partition.high_watermark,
                    partition.last_stable_offset,
                    partition.log_start_offset,
                    count,
                ) = _HEAD.unpack_from(view, position)
                position += 31
                if count > 127:
                    count, position = more_of_uvarint(view, position, count)
                if count > 1:
                    if count - 1 > (end - position) // 17:
                        raise bad_length(_ABORTED, count - 1, end - position)
                    partition.aborted_transactions = []
                    for _ in range(count - 1):
                        aborted = new(aborted_class)
                        aborted.producer_id, aborted.first_offset = _TWO_INT64.unpack_from(view, position)
                        aborted.unknown_tagged_fields, position = _unknown(view, position + 16, end)
                        partition.aborted_transactions.append(aborted)
                else:
                    partition.aborted_transactions = [] if count else None
                partition.preferred_read_replica, size = _TAIL.unpack_from(view, position)
                position += 5
                if size > 127:
                    size, position = more_of_uvarint(view, position, size)
                if size:
                    following = position + size - 1
                    if following > end:
                        raise bad_length(_RECORDS, size - 1, end - position)
                    partition.records = view[position:following]
                    position = following
                else:
                    partition.records = None
                epoch = partition.diverging_epoch = new(epoch_class)
                epoch.epoch = epoch.end_offset = -1
                leader = partition.current_leader = new(leader_class)
                leader.leader_id = leader.leader_epoch = -1
                snapshot = partition.snapshot_id = new(snapshot_class)
                snapshot.end_offset = snapshot.epoch = -1
                epoch.unknown_tagged_fields = leader.unknown_tagged_fields = snapshot.unknown_tagged_fields = ()
                partition.unknown_tagged_fields = ()
                tags = view[position]
                position += 1
                if tags:
                    position = _partition_tags(partition, view, position, end, tags)
                found.append(partition)
            topic.unknown_tagged_fields, position = _unknown(view, position, end)
            response.responses.append(topic)
        response.node_endpoints = []
        response.unknown_tagged_fields = ()
        tags = view[position]
        position += 1
        if tags:
            position = _response_tags(cls, response, view, position, end, tags, has_endpoints=version >= 16)
        return response, position

    return decode


def _unknown(view: memoryview, position: int, end: int) -> tuple[Any, int]:
    tags = view[position]
    return read_unknown_tags(view, position + 1, end, tags) if tags else ((), position + 1)


def _partition_tags(partition: Any, view: memoryview, position: int, end: int, count: int) -> int:
    """Sent with errors only: where the log diverges, the leader of now, which snapshot to fetch."""
    found, position = read_tags(view, position, end, count)
    unknown = []
    for tag, start, stop in found:
        if tag == 0:
            struct = partition.diverging_epoch
            struct.epoch, struct.end_offset, count = _EPOCH_OFFSET.unpack_from(view, start)
            after = start + 13
        elif tag == 1:
            struct = partition.current_leader
            struct.leader_id, struct.leader_epoch, count = _LEADER.unpack_from(view, start)
            after = start + 9
        elif tag == 2:
            struct = partition.snapshot_id
            struct.end_offset, struct.epoch, count = _OFFSET_EPOCH.unpack_from(view, start)
            after = start + 13
        else:
            unknown.append((tag, bytes(view[start:stop])))
            continue
        if count:
            struct.unknown_tagged_fields, after = read_unknown_tags(view, after, end, count)
        if after != stop:
            raise bad_tag(f"{_PARTITIONS}: {tag}")
    partition.unknown_tagged_fields = tuple(unknown)
    return position


def _response_tags(
    cls: Any, response: Any, view: memoryview, position: int, end: int, count: int, *, has_endpoints: bool
) -> int:
    found, position = read_tags(view, position, end, count)
    unknown = []
    for tag, start, stop in found:
        if tag == 0 and has_endpoints:
            after = _read_endpoints(cls, response.node_endpoints, view, start, end)
            if after != stop:
                raise bad_tag("FetchResponse.node_endpoints")
        else:
            unknown.append((tag, bytes(view[start:stop])))
    response.unknown_tagged_fields = tuple(unknown)
    return position


def _read_endpoints(cls: Any, endpoints: list[Any], view: memoryview, position: int, end: int) -> int:
    count = view[position]
    position += 1
    if count > 127:
        count, position = more_of_uvarint(view, position, count)
    if not 0 < count <= (end - position) // 11 + 1:
        raise bad_length("FetchResponse.node_endpoints", count - 1, end - position)
    for _ in range(count - 1):
        endpoint = cls.NodeEndpoint()
        (endpoint.node_id,) = _INT32.unpack_from(view, position)
        endpoint.host, position = _read_string(view, position + 4, end, "host")
        (endpoint.port,) = _INT32.unpack_from(view, position)
        endpoint.rack, position = _read_string(view, position + 4, end, "rack")
        if endpoint.host is None:
            raise bad_length("FetchResponse.node_endpoints.host", -1, end - position)
        endpoint.unknown_tagged_fields, position = _unknown(view, position, end)
        endpoints.append(endpoint)
    return position


def _read_string(view: memoryview, position: int, end: int, name: str) -> tuple[str | None, int]:
    size = view[position]
    position += 1
    if size > 127:
        size, position = more_of_uvarint(view, position, size)
    if size == 0:
        return None, position
    following = position + size - 1
    if following > end or size > STRING_SIZE_MAX + 1:
        raise bad_length(f"FetchResponse.node_endpoints.{name}", size - 1, end - position)
    return str(view[position:following], "utf-8"), following


def _classic_encoder(version: int) -> Callable[[Any, Callable[[Any], object]], None]:
    head = Struct(">ihqqqi" if version >= 5 else ">ihqqi" if version >= 4 else ">ihqi")

    def encode(response: Any, write: Callable[[Any], object]) -> None:
        if response.node_endpoints or response.node_endpoints is None:
            raise absent("FetchResponse.node_endpoints")
        if response.unknown_tagged_fields:
            raise absent("FetchResponse.unknown_tagged_fields")
        if version >= 7:
            write(_TOP_ONLY.pack(response.throttle_time_ms, response.error_code, response.session_id))
        else:
            if response.session_id:
                raise absent("FetchResponse.session_id")
            if version >= 1:
                write(_INT32.pack(response.throttle_time_ms))
        write(_INT32.pack(len(response.responses)))
        for topic in response.responses:
            if topic.unknown_tagged_fields:
                raise absent("FetchResponse.responses.unknown_tagged_fields")
            name = topic.topic.encode()
            write(_INT16.pack(len(name)) + name + _INT32.pack(len(topic.partitions)))
            for partition in topic.partitions:
                if _has_partition_tags(partition):
                    raise absent(f"{_PARTITIONS}: a tagged field")
                records = partition.records
                size = -1 if records is None else len(records)
                if type(records) is list:
                    size = sum(map(len, records))
                if version < 4:
                    write(head.pack(partition.partition_index, partition.error_code, partition.high_watermark, size))
                else:
                    _write_head(partition, head, version >= 5, write)
                    if version >= 11:
                        write(_TWO_INT32.pack(partition.preferred_read_replica, size))
                    else:
                        write(_INT32.pack(size))
                if version < 11 and partition.preferred_read_replica != -1:
                    raise absent(f"{_PARTITIONS}.preferred_read_replica")
                _write_records(records, write)

    return encode


def _write_head(partition: Any, head: Struct, has_start: bool, write: Callable[[Any], object]) -> None:
    aborted = partition.aborted_transactions
    offsets: tuple[int, ...] = (partition.high_watermark, partition.last_stable_offset)
    if has_start:
        offsets += (partition.log_start_offset,)
    write(head.pack(partition.partition_index, partition.error_code, *offsets, -1 if aborted is None else len(aborted)))
    for transaction in aborted or ():
        if transaction.unknown_tagged_fields:
            raise absent(f"{_ABORTED}.unknown_tagged_fields")
        write(_TWO_INT64.pack(transaction.producer_id, transaction.first_offset))


def _write_records(records: Any, write: Callable[[Any], object]) -> None:
    if type(records) is list:
        for chunk in records:
            write(chunk)
    elif records is not None:
        write(records)


def _has_partition_tags(partition: Any) -> bool:
    epoch, leader, snapshot = partition.diverging_epoch, partition.current_leader, partition.snapshot_id
    return bool(
        epoch.epoch != -1
        or epoch.end_offset != -1
        or leader.leader_id != -1
        or leader.leader_epoch != -1
        or snapshot.end_offset != -1
        or snapshot.epoch != -1
        or partition.unknown_tagged_fields
        or epoch.unknown_tagged_fields
        or leader.unknown_tagged_fields
        or snapshot.unknown_tagged_fields
    )


def _compact_encoder(version: int) -> Callable[[Any, Callable[[Any], object]], None]:
    by_id = version >= 13

    def encode(response: Any, write: Callable[[Any], object]) -> None:
        write(
            _TOP_ONLY.pack(response.throttle_time_ms, response.error_code, response.session_id)
            + uvarint(len(response.responses) + 1)
        )
        for topic in response.responses:
            if by_id:
                if len(topic.topic_id) != 16:
                    raise InvalidMessage(f"a topic id has 16 bytes, not {len(topic.topic_id)}")
                write(topic.topic_id)
            else:
                write(_string(topic.topic, "responses.topic"))
            write(uvarint(len(topic.partitions) + 1))
            for partition in topic.partitions:
                records = partition.records
                if records is None:
                    size = 0
                elif type(records) is list:
                    size = sum(map(len, records)) + 1
                else:
                    size = len(records) + 1
                aborted = partition.aborted_transactions
                if aborted:
                    _write_compact_head(partition, aborted, write)
                    write(_INT32.pack(partition.preferred_read_replica) + uvarint(size))
                else:
                    write(
                        _PARTITION.pack(
                            partition.partition_index,
                            partition.error_code,
                            partition.high_watermark,
                            partition.last_stable_offset,
                            partition.log_start_offset,
                            0 if aborted is None else 1,
                            partition.preferred_read_replica,
                        )
                        + (UVARINTS[size] if size < 128 else uvarint(size))
                    )
                if type(records) is list:
                    for chunk in records:
                        write(chunk)
                elif size > 1:
                    write(records)
                write(_partition_tags_section(partition) if _has_partition_tags(partition) else b"\0")
            write(write_tags(topic.unknown_tagged_fields) if topic.unknown_tagged_fields else b"\0")
        endpoints = response.node_endpoints
        if version < 16 and (endpoints or endpoints is None):
            raise absent("FetchResponse.node_endpoints")
        if endpoints or response.unknown_tagged_fields:
            write(_response_tags_section(response))
        else:
            write(b"\0")

    return encode


def _write_compact_head(partition: Any, aborted: list[Any], write: Callable[[Any], object]) -> None:
    count = len(aborted) + 1
    fixed = _HEAD.pack(
        partition.partition_index,
        partition.error_code,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log_start_offset,
        0,
    )
    write(fixed[:-1] + uvarint(count))
    for transaction in aborted:
        write(_TWO_INT64.pack(transaction.producer_id, transaction.first_offset))
        write(write_tags(transaction.unknown_tagged_fields))


def _partition_tags_section(partition: Any) -> bytes:
    tags = list(partition.unknown_tagged_fields)
    epoch, leader, snapshot = partition.diverging_epoch, partition.current_leader, partition.snapshot_id
    if epoch.epoch != -1 or epoch.end_offset != -1 or epoch.unknown_tagged_fields:
        fixed = _EPOCH_OFFSET.pack(epoch.epoch, epoch.end_offset, 0)[:-1]
        tags.append((0, fixed + write_tags(epoch.unknown_tagged_fields)))
    if leader.leader_id != -1 or leader.leader_epoch != -1 or leader.unknown_tagged_fields:
        fixed = _LEADER.pack(leader.leader_id, leader.leader_epoch, 0)[:-1]
        tags.append((1, fixed + write_tags(leader.unknown_tagged_fields)))
    if snapshot.end_offset != -1 or snapshot.epoch != -1 or snapshot.unknown_tagged_fields:
        fixed = _OFFSET_EPOCH.pack(snapshot.end_offset, snapshot.epoch, 0)[:-1]
        tags.append((2, fixed + write_tags(snapshot.unknown_tagged_fields)))
    return write_tags(tags)


def _response_tags_section(response: Any) -> bytes:
    tags = list(response.unknown_tagged_fields)
    if response.node_endpoints:
        parts = [uvarint(len(response.node_endpoints) + 1)]
        for endpoint in response.node_endpoints:
            parts += (
                _INT32.pack(endpoint.node_id),
                _string(endpoint.host, "node_endpoints.host"),
                _INT32.pack(endpoint.port),
                b"\0" if endpoint.rack is None else _string(endpoint.rack, "node_endpoints.rack"),
                write_tags(endpoint.unknown_tagged_fields),
            )
        tags.append((0, b"".join(parts)))
    return write_tags(tags)


def _string(text: str, path: str) -> bytes:
    content = text.encode()
    size = len(content)
    if size > STRING_SIZE_MAX:
        raise too_long(f"FetchResponse.{path}", size)
    return (UVARINTS[size + 1] if size < 127 else uvarint(size + 1)) + content
