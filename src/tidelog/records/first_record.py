"""The timestamp of the record with which a reader would go on: what lag in seconds is counted from."""

from __future__ import annotations

from typing import Final

from tidelog.records.batch import TimestampType, find_timestamp, iterate_headers

_ANY_TIME: Final = -(2**63)


def first_timestamp(data: bytes | bytearray | memoryview, offset: int) -> tuple[int | None, int]:
    """The timestamp of the first record of a user at `offset` or behind it, and the offset behind what was looked at.

    `data` begins with the batch that holds `offset`; its last one may be cut short. InvalidBatch.
    """
    following = offset
    for position, header in iterate_headers(data):
        following = header.next_offset
        if following <= offset or header.is_control or not header.records_count:
            continue
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            return header.max_timestamp, following
        if header.base_offset >= offset and header.records_count == following - header.base_offset:
            return header.base_timestamp, following
        found = find_timestamp(memoryview(data)[position : position + header.size], _ANY_TIME, offset)
        if found is not None:
            return found[0], following
    return None, following
