"""What fetches of consumers and of followers share: finding the replica, and the answer for a partition that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages

if TYPE_CHECKING:
    from tidelog.broker.cluster.metadata_cache import MetadataCache
    from tidelog.broker.fetches.fetch_sessions import FetchPartition
    from tidelog.broker.replicas.replica import Replica
    from tidelog.broker.replicas.replica_manager import ReplicaManager

CURRENT_LEADER_SINCE: Final = 16
"""From this version of Fetch on, errors of leadership come with the leader (KIP-951)."""
ANSWER_OVERHEAD: Final = 32
PARTITION_OVERHEAD: Final = 64
"""Bytes around the records of an answer, about, as quotas count them."""
_UNKNOWN: Final = -1


def topic_of(metadata: MetadataCache, wanted: FetchPartition) -> str:
    """The name of the topic, which may be asked for by id; KafkaError UNKNOWN_TOPIC_ID."""
    topic = wanted.topic or metadata.topic_name(wanted.topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    return topic


def replica_of(metadata: MetadataCache, replicas: ReplicaManager, topic: str, wanted: FetchPartition) -> Replica:
    """This broker's replica, led here or not.

    KafkaError UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER where others hold it, or INCONSISTENT_TOPIC_ID.
    """
    topic_partition = TopicPartition(topic, wanted.partition)
    replica = replicas.get(topic_partition)
    if replica is None:
        if metadata.image.partition(topic_partition) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if not wanted.topic and wanted.topic_id != replica.topic_id:
        raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
    return replica


def failed(
    metadata: MetadataCache, version: int, wanted: FetchPartition, error: KafkaError
) -> messages.FetchResponse.PartitionData:
    """The partition's answer, with the current leader where that helps. Records are empty, never null."""
    data = messages.FetchResponse.PartitionData(
        partition_index=wanted.partition,
        error_code=error.code,
        high_watermark=_UNKNOWN,
        last_stable_offset=_UNKNOWN,
        log_start_offset=_UNKNOWN,
        aborted_transactions=None,
        preferred_read_replica=_UNKNOWN,
        records=b"",
    )
    if version >= CURRENT_LEADER_SINCE and error.code in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
    ):
        topic = wanted.topic or metadata.topic_name(wanted.topic_id) or ""
        metadata.name_leader(TopicPartition(topic, wanted.partition), data.current_leader)
    return data
