"""Progress of Spark queries as committed offsets of a consumer group, so that every Kafka tool can show their lag.

Spark's checkpoint decides what is read next; these commits are for people. That is why a failure here is a warning.
"""

import logging
from collections.abc import Mapping
from typing import Final

from tidelog.client.blocking import BlockingCluster
from tidelog.client.errors import ClientError
from tidelog.client.offsets import CommittedOffset, commit_offsets
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition

_LOGGER: Final = logging.getLogger(__name__)
_TIMEOUT_S: Final = 5.0
"""A batch must not wait longer for what only people look at."""


def publish(cluster: BlockingCluster, group: str, offsets: Mapping[TopicPartition, int]) -> bool:
    """Commits the next offsets to read for `group`; False, and a warning in the log, where that fails."""
    commits = {partition: CommittedOffset(offset) for partition, offset in offsets.items()}
    try:
        cluster.run(commit_offsets(cluster.routing, group, commits, timeout_s=_TIMEOUT_S))
    except (KafkaError, ClientError) as error:
        hint = ""
        if isinstance(error, KafkaError) and error.code is ErrorCode.UNKNOWN_MEMBER_ID:
            hint = " Consumers are members of this group; give the query a group of its own."
        _LOGGER.warning("progress could not be published to group %s: %s.%s", group, error, hint)
        return False
    return True
