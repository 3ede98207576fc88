"""Which replica a consumer had better read from (KIP-392): one in its own rack.

The leader answers a consumer that names its rack with the id of a follower there, and without records; the consumer
goes and reads from that one, up to the follower's high watermark. It is Kafka's RackAwareReplicaSelector: the leader if
it is in the rack, else the most caught up of the in-sync followers there that have the offset; else the leader again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.broker.replicas.replica import Replica
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.metadata.image import ClusterImage
    from tidelog.model.identifiers import BrokerId


def selects(config: BrokerConfig) -> bool:
    """Whether replica.selector.class asks for it."""
    return config.replica_selector_class is not None


def preferred_read_replica(
    broker_id: BrokerId,
    image: ClusterImage,
    replica: Replica,
    rack: str,
    fetch_offset: int,
    listener: str,
    now_ms: int,
) -> BrokerId | None:
    """The follower that a consumer in `rack` should fetch from; None: the leader, which is this broker."""
    leader = replica.leader
    brokers = image.brokers
    own = brokers.get(broker_id)
    if leader is None or own is None or own.rack == rack:
        return None
    best: tuple[int, int, BrokerId] | None = None
    for id, progress in leader.followers.items():
        broker = brokers.get(id)
        if (
            broker is None
            or broker.rack != rack
            or broker.endpoint(listener) is None
            or id not in leader.isr
            or not progress.log_start <= fetch_offset <= progress.log_end
        ):
            continue
        candidate = (progress.log_end, progress.last_caught_up_ms(leader.reported_log_end) - now_ms, id)
        if best is None or candidate > best:
            best = candidate
    return None if best is None else best[2]
