"""DescribeLogDirs: where this broker's replicas lie, and how large they are.

Versions 1-5. v3: an error of the whole answer. v4: size and free space of the file system (KIP-827). v5: cordoned
directories. A replica on its way between directories is in both, its copy with `is_future_key`. A
directory that is offline is listed with KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred, gather
from tidelog.broker.handlers import Versions
from tidelog.broker.shell import InDirectories, at_latest
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.placement.log_directory import is_cordoned
from tidelog.ports.disk import Space
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node
    from tidelog.storage.log import Log

KEY: Final = ApiKey.DESCRIBE_LOG_DIRS
VERSIONS: Final = Versions(1, 5)

GROUP_ERROR_SINCE: Final = 3
UNKNOWN_SPACE: Final = Space(-1, -1)
SPACE_MS_MAX: Final = 5_000
"""How long file systems are waited for; a disk that is only busy is quicker."""


def handle(
    node: Node, context: RequestContext, request: messages.DescribeLogDirsRequest
) -> messages.DescribeLogDirsResponse | Deferred[messages.DescribeLogDirsResponse]:
    if not authorize(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        if context.api_version < GROUP_ERROR_SINCE:
            # There is no place for the error.
            return messages.DescribeLogDirsResponse(results=[])
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    directories = list(node.logs.online_directories)

    def respond(spaces: list[Space]) -> messages.DescribeLogDirsResponse:
        return _response(node, wanted, dict(zip(directories, spaces, strict=True)))

    return gather([_space(node, directory) for directory in directories]).then(respond)


def _space(node: Node, directory: str) -> Deferred[Space]:
    """The directory's; -1 where the file system does not say. One that hangs hides none of the others."""
    asked = node.shell.in_pool(InDirectories((directory,), partial(node.disk.space, directory)))
    late = TimeoutError(f"{directory} does not answer")
    return at_latest(node.shell, asked, SPACE_MS_MAX, lambda: late).recover(OSError, lambda _: UNKNOWN_SPACE)


def _response(
    node: Node, wanted: set[tuple[str, int]] | None, spaces: Mapping[str, Space]
) -> messages.DescribeLogDirsResponse:
    response = messages.DescribeLogDirsResponse
    by_directory: dict[str, dict[str, list[Log]]] = {directory: {} for directory in spaces}
    for log in (*node.logs.logs(), *node.logs.futures):
        topics = by_directory.get(log.owner.path)
        if topics is not None and (wanted is None or tuple(log.topic_partition) in wanted):
            topics.setdefault(log.topic_partition.topic, []).append(log)
    results = [
        response.DescribeLogDirsResult(
            log_dir=os.path.abspath(directory),
            topics=[
                response.DescribeLogDirsTopic(name=name, partitions=[_partition(node, log) for log in logs])
                for name, logs in sorted(topics.items())
            ],
            total_bytes=spaces[directory].total,
            usable_bytes=spaces[directory].usable,
            is_cordoned=is_cordoned(directory, node.logs.cordoned),
        )
        for directory, topics in by_directory.items()
    ]
    results += [
        response.DescribeLogDirsResult(
            error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=os.path.abspath(directory), topics=[]
        )
        for directory in node.logs.offline_directories
        if directory not in spaces
    ]
    return response(results=results)


def _partition(node: Node, log: Log) -> messages.DescribeLogDirsResponse.DescribeLogDirsPartition:
    current = node.logs.get(log.topic_partition)
    is_future = node.logs.futures.get(log.topic_partition) is log
    # How far a copy is behind its log, or the log behind the high watermark, as only a follower's can be.
    end = log.high_watermark if not is_future or current is None else current.log_end_offset
    return messages.DescribeLogDirsResponse.DescribeLogDirsPartition(
        partition_index=log.topic_partition.partition,
        partition_size=log.size,
        offset_lag=max(end - log.log_end_offset, 0),
        is_future_key=is_future,
    )


def error_response(
    request: messages.DescribeLogDirsRequest, version: int, error: KafkaError
) -> messages.DescribeLogDirsResponse:
    if version >= GROUP_ERROR_SINCE:
        return messages.DescribeLogDirsResponse(error_code=error.code)
    failed = messages.DescribeLogDirsResponse.DescribeLogDirsResult(error_code=error.code, log_dir="", topics=[])
    return messages.DescribeLogDirsResponse(results=[failed])
