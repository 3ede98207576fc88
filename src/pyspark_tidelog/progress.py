"""Progress of Spark queries as committed offsets of a consumer group, so that every Kafka tool can show their lag.

Spark's checkpoint decides what is read next; these commits are for people. That is why a failure here is a warning.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from tidelog.client.blocking import BlockingCluster
from tidelog.client.errors import ClientError
from tidelog.client.offsets import CommittedOffset, commit_offsets
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition

logger: Final = logging.getLogger(__name__)
_TIMEOUT_S: Final = 5.0
"""A batch must not wait longer for what only people look at."""
PUBLISHED_AGAIN_S: Final = 5.0
"""Between an attempt that failed and the next: each may keep a query waiting for as long."""


class Progress:
    """How far a query has come, and how much of that its group shows. What could not be published is tried again,
    also while the query stands still."""

    def __init__(self, group: str, now: Callable[[], float] = time.monotonic) -> None:
        self.group = group
        self._now = now
        self._pending: dict[TopicPartition, int] = {}
        self._published: dict[TopicPartition, int] = {}
        self._not_before = 0.0

    def reached(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The next offsets to read, of some partitions or all."""
        for partition, offset in offsets.items():
            if self._published.get(partition) != offset:
                self._pending[partition] = offset
            else:
                self._pending.pop(partition, None)

    def publish(self, cluster: BlockingCluster, *, at_once: bool = False) -> None:
        """Shows what is not shown yet. After a failure nothing is tried for a while, except `at_once`."""
        if not self._pending or (self._now() < self._not_before and not at_once):
            return
        if publish(cluster, self.group, self._pending):
            self._published |= self._pending
            self._pending = {}
        else:
            self._not_before = self._now() + PUBLISHED_AGAIN_S


def publish(cluster: BlockingCluster, group: str, offsets: Mapping[TopicPartition, int]) -> bool:
    """Commits the next offsets to read for `group`; False, and a warning in the log, where that fails.

    Partitions that are no longer there are left out: they would hold up the others for ever.
    """
    commits = {partition: CommittedOffset(offset) for partition, offset in offsets.items()}
    try:
        _commit(cluster, group, commits)
    except (KafkaError, ClientError) as error:
        hint = ""
        if isinstance(error, KafkaError) and error.code is ErrorCode.UNKNOWN_MEMBER_ID:
            hint = " Consumers are members of this group; give the query a group of its own."
        logger.warning("progress could not be published to group %s: %s.%s", group, error, hint)
        return False
    return True


def _commit(cluster: BlockingCluster, group: str, commits: Mapping[TopicPartition, CommittedOffset]) -> None:
    try:
        cluster.run(commit_offsets(cluster.routing, group, commits, timeout_s=_TIMEOUT_S))
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        there = _existing(cluster, commits)
        if len(there) == len(commits):
            raise
        gone = ", ".join(map(str, sorted(commits.keys() - there)))
        logger.warning("progress in %s is not published to group %s: %s", gone, group, error)
        rest = {each: commits[each] for each in there}
        cluster.run(commit_offsets(cluster.routing, group, rest, timeout_s=_TIMEOUT_S))


def _existing(cluster: BlockingCluster, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
    routing = cluster.routing
    cluster.run(routing.refresh({each.topic for each in partitions}, routing.deadline(_TIMEOUT_S)))
    views = routing.topics
    return {each for each in partitions if each.topic in views and each.partition in views[each.topic].partitions}
