"""From which replica each partition is read: its leader, or the follower that the leader names (KIP-392). No I/O.

A reader that names its rack is answered by the leader with a follower's id and without records. It reads from that
follower until one of its answers is an error, or the choice is `age_s_max` old: then the leader is asked again. After
an error the leader is not told the rack for a while, so that it answers with records.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tidelog.client.routing import Routing
from tidelog.client.views import Broker
from tidelog.model.identifiers import TopicPartition

AWAY_S: Final = 5.0
"""How long a partition is read from its leader after a follower failed."""


class NearReplicas:
    """The choice for each partition of one reader. `rack` "": always the leader."""

    def __init__(self, routing: Routing, rack: str, age_s_max: float) -> None:
        self._routing = routing
        self._rack = rack
        self._age_s_max = age_s_max
        self._chosen: dict[TopicPartition, tuple[int, float]] = {}
        """[partition] -> the follower's broker id, and until when it is read from."""
        self._away_until: dict[TopicPartition, float] = {}

    def source(self, topic_partition: TopicPartition, leader: Broker) -> Broker:
        """The broker to fetch a partition from."""
        chosen = self._chosen.get(topic_partition)
        if chosen is None:
            return leader
        broker = self._routing.brokers.get(chosen[0])
        if broker is not None and self._routing.now() < chosen[1]:
            return broker
        del self._chosen[topic_partition]
        return leader

    def prefer(self, topic_partition: TopicPartition, broker_id: int) -> None:
        """The leader names a follower."""
        if broker_id in self._routing.brokers:
            self._chosen[topic_partition] = (broker_id, self._routing.now() + self._age_s_max)
        else:
            self.leave(topic_partition)

    def leave(self, topic_partition: TopicPartition) -> None:
        """The follower failed: the leader is read for a while."""
        self._chosen.pop(topic_partition, None)
        self._away_until[topic_partition] = self._routing.now() + AWAY_S

    def forget(self, topic_partition: TopicPartition) -> None:
        """The partition is read no more."""
        self._chosen.pop(topic_partition, None)
        self._away_until.pop(topic_partition, None)

    def rack_for(self, partitions: Collection[TopicPartition]) -> str:
        """The rack to name in a fetch of these; "" where the broker must not send one of them away."""
        if not self._rack or not self._away_until:
            return self._rack
        now = self._routing.now()
        self._away_until = {tp: until for tp, until in self._away_until.items() if until > now}
        return "" if any(tp in self._away_until for tp in partitions) else self._rack
