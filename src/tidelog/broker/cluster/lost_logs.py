"""Replicas whose whole log is gone: a folder that is missing, or a log directory that is empty.

What is made in their place is empty, and would lead like any other replica of its ISR. Looked for at a broker's start,
where something says that there may be such: a high watermark checkpoint names a partition without a folder, or a log
directory was never used before. The store says then which of these replicas are in sync.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tidelog.broker.cluster.store_results import results
from tidelog.metadata.replica_marks import ReplicaDamage, ReplicaMark
from tidelog.metadata.znodes import TOPICS, MalformedZnode, decode_state, decode_topic, state_path, topic_path
from tidelog.model.identifiers import NO_LEADER_EPOCH, BrokerId, Offset, TopicId, TopicPartition
from tidelog.store.errors import NoAuth, NoNode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.storage.log_manager import LogManager
    from tidelog.store.client import StoreClient

logger: Final = logging.getLogger(__name__)


async def lost_logs(store: StoreClient, broker_id: BrokerId, logs: LogManager) -> dict[TopicPartition, ReplicaMark]:
    """The replicas that are in sync by the store, and of which there is no log here. StoreError.

    None while a directory is offline: the log may be there, and nothing is made in its place.
    """
    if logs.offline_directories or not (logs.absent.missing or logs.has_new_directory):
        return {}
    topics = dict.fromkeys(each.topic for each in logs.absent.missing)
    if logs.has_new_directory:
        topics |= dict.fromkeys((await store.children(TOPICS))[0])
    assigned = await _assigned(store, broker_id, topics)
    absent = {each: topic_id for each, topic_id in assigned.items() if logs.get(each) is None}
    states = await results([store.get(state_path(*each)) for each in absent], NoNode, NoAuth)
    lost: dict[TopicPartition, ReplicaMark] = {}
    for (topic_partition, topic_id), node in zip(absent.items(), states, strict=True):
        try:
            state = None if node is None else decode_state(*topic_partition, node[0])
        except MalformedZnode:
            continue  # The controller tells of it.
        if state is not None and broker_id in state.isr:
            lost_end = Offset(logs.absent.missing.get(topic_partition, 0))
            lost[topic_partition] = ReplicaMark(topic_id, ReplicaDamage(Offset(0), NO_LEADER_EPOCH, lost_end))
            logger.warning(
                "log is missing: partition=%s high_watermark=%d: another replica in sync is to lead",
                topic_partition,
                lost_end,
            )
    return lost


async def _assigned(store: StoreClient, broker_id: BrokerId, topics: Iterable[str]) -> dict[TopicPartition, TopicId]:
    """The partitions of these topics of which the broker has a replica, with the topic's id."""
    names = list(topics)
    nodes = await results([store.get(topic_path(name)) for name in names], NoNode, NoAuth)
    found: dict[TopicPartition, TopicId] = {}
    for name, node in zip(names, nodes, strict=True):
        try:
            content = None if node is None else decode_topic(name, node[0])
        except MalformedZnode:
            continue
        if content is not None:
            for partition, replicas in content.partitions.items():
                if broker_id in replicas:
                    found[TopicPartition(name, partition)] = content.topic_id
    return found
