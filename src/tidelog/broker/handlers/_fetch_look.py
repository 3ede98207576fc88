"""What an ordinary fetch finds in its partitions; `look` of `_fetch_frames.pyx` does the same in C, where it was built.

`tests/property/test_ordinary_fetch.py` holds both to the general way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.fetches.waiting_fetch import release
from tidelog.broker.handlers._fetch_wire import Found
from tidelog.model.errors import KafkaError
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.broker.fetches.fetch_sessions import FetchPartition
    from tidelog.broker.node import Node
    from tidelog.security.authorizer import Access


def look(
    node: Node, access: Access | None, partitions: Iterable[FetchPartition], bytes_max: int, committed_only: bool
) -> list[Found] | None:
    """Reads every partition, `bytes_max` bytes at most; None where one of them is out of the ordinary.

    `WouldBlock` where something is not in memory.
    """
    found: list[Found] = []
    remaining, nothing_yet = bytes_max, True
    try:
        for wanted in partitions:
            each = _look_at(node, access, wanted, remaining, nothing_yet, committed_only)
            if each is None:
                break
            found.append(each)
            if each.size:
                nothing_yet = False
                remaining = max(0, remaining - each.size)
        else:
            return found
    except KafkaError:
        pass
    except BaseException:
        discard(found)
        raise
    discard(found)
    return None


def _look_at(
    node: Node, access: Access | None, wanted: FetchPartition, remaining: int, nothing_yet: bool, committed_only: bool
) -> Found | None:
    """What there is of one partition; None, `WouldBlock` or a KafkaError where it is out of the ordinary."""
    topic = wanted.topic or node.metadata.image.topic_names.get(wanted.topic_id)
    replica = None if topic is None else node.replicas.find(topic, wanted.partition)
    if replica is None or topic is None or (not wanted.topic and wanted.topic_id != replica.topic_id):
        return None
    if access is not None and not access.allows(Operation.READ, ResourceType.TOPIC, topic, quiet=True):
        return None
    leader = replica.leader
    epoch = wanted.current_leader_epoch
    if leader is None or 0 <= epoch != replica.leader_epoch or wanted.last_fetched_epoch >= 0:
        return None
    log = replica.log
    offset, start = wanted.fetch_offset, log.log_start_offset
    high_watermark, stable = leader.high_watermark, log.last_stable_offset
    limit = stable if committed_only else high_watermark
    if offset == limit >= start:
        log.folder.check_online()
        return Found(wanted, replica, high_watermark, stable, start, b"", 0)
    size = min(max(wanted.max_bytes, 0), remaining)
    has_markers = committed_only and log.may_have_aborted(offset)
    shared = node.shared_reads.find(log, offset, limit)
    if shared is not None and len(shared) <= size and offset >= start and not has_markers:
        log.folder.check_online()
        return Found(wanted, replica, high_watermark, stable, start, shared, len(shared))
    result = log.read(offset, size, up_to_offset=limit, min_one_batch=nothing_yet, blocking=False)
    if has_markers:
        try:
            aborted = log.aborted_in(offset, result, up_to_offset=limit, blocking=False)
        except BaseException:
            release(result)
            raise
        if aborted:
            release(result)
            return None
    records = node.shared_reads.take(log, offset, limit, result) or result.ranges
    return Found(wanted, replica, high_watermark, stable, start, records, result.size)


def discard(found: list[Found]) -> None:
    """Gives up what was read."""
    for each in found:
        if type(each.records) is list:
            for file_range in each.records:
                file_range.release()
