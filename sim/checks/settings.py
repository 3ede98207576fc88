"""What logs go by, compared with what the store says (invariant 18): looks into the machines, never asks them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.replicas.topic_settings import log_config
from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.metadata.znodes import MalformedZnode, config_path, decode_config, decode_topic, topic_path

if TYPE_CHECKING:
    from sim.cluster import Cluster


def settings_that_differ(cluster: Cluster, only: str | None = None) -> list[str]:
    """Logs of topics that there are, on brokers that run, whose settings are not the store's, or whose leaders go by
    others; of one topic alone where `only` names it."""
    if cluster.states is None:
        return []
    found: list[str] = []
    for machine in cluster.brokers:
        node = machine.node
        for log in () if node is None else node.logs.logs():
            topic = log.topic_partition.topic
            overrides = _stored(cluster, topic, log.topic_id)
            if node is None or overrides is None or topic in cluster.estranged or only not in (None, topic):
                continue
            expected = log_config(node.config, overrides)
            if log.config != expected:
                differing = [
                    f"{name}={getattr(log.config, name)}, stored {getattr(expected, name)}"
                    for name in type(expected).__dataclass_fields__
                    if getattr(log.config, name) != getattr(expected, name)
                ]
                found.append(f"{log.topic_partition} on {machine.name}: {'; '.join(differing)}")
            replica = node.replicas.get(log.topic_partition)
            leader = None if replica is None or replica.log is not log else replica.leader
            wanted = expected.min_insync_replicas, expected.flush_messages == 1
            if leader is not None and (leader.min_insync_replicas, leader.flush_before_acknowledge) != wanted:
                told = f"{leader.min_insync_replicas} in sync, flushed first: {leader.flush_before_acknowledge}"
                found.append(f"{log.topic_partition} is led by {machine.name} with {told}, the settings are {wanted}")
    return found


def _stored(cluster: Cluster, topic: str, topic_id: bytes | None) -> dict[str, str] | None:
    """The topic's own settings; None if the topic does not exist, or its settings cannot be read."""
    node = cluster.store_history.now(topic_path(topic))
    config = config_path(ConfigResource(ConfigResourceType.TOPIC, topic))
    settings = cluster.store_history.now(config)
    if node.stat is None:
        return None
    try:
        if topic_id not in (None, decode_topic(topic, node.data).topic_id):
            return None
        return {} if settings.stat is None else decode_config(config, settings.data)
    except MalformedZnode:
        return None
