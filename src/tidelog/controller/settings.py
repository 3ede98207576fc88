"""What the controller needs to know of its broker's settings."""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING

from tidelog.config.group_config import GroupLimits
from tidelog.model.values import value

if TYPE_CHECKING:
    from tidelog.config.broker_config import BrokerConfig


class Placement(Enum):
    """How replicas of new topics are placed."""

    ORDERED = "ordered"
    """Round the sorted broker list, as Kafka does with ZooKeeper: an expansion continues the order of the creation."""
    STRIPED = "striped"
    """As Kafka 4.x, racks in turn, but for its weaknesses: each broker leads as many partitions of a topic as any
    other, and an expansion looks at what stands."""


@value
class ControllerSettings:
    """A snapshot; the controller is handed a new one when a setting changes."""

    default_partitions: int = 1
    """num.partitions"""
    default_replication_factor: int = 1
    """default.replication.factor"""
    delete_topic_enable: bool = True
    """delete.topic.enable"""
    unclean_leader_election_enable: bool = False
    """unclean.leader.election.enable, for topics that do not set it"""
    leader_rebalance_enable: bool = True
    """auto.leader.rebalance.enable"""
    leader_imbalance_check_interval_s: int = 300
    """leader.imbalance.check.interval.seconds"""
    leader_imbalance_per_broker_percentage: int = 10
    """leader.imbalance.per.broker.percentage"""
    placement: Placement = Placement.ORDERED
    """replica.placement"""
    isr_return_wait_ms: int = 30_000
    """isr.return.wait.ms"""
    session_timeout_ms: int = 18_000
    """zookeeper.session.timeout.ms: how long a session may outlive its broker"""
    groups: GroupLimits = field(default_factory=GroupLimits)
    """group.consumer.*, by which the settings of groups are judged"""

    @classmethod
    def of(cls, config: BrokerConfig) -> ControllerSettings:
        """Those of a broker, as they are now."""
        return cls(
            default_partitions=config.num_partitions,
            default_replication_factor=config.default_replication_factor,
            delete_topic_enable=config.delete_topic_enable,
            unclean_leader_election_enable=config.unclean_leader_election_enable,
            leader_rebalance_enable=config.auto_leader_rebalance_enable,
            leader_imbalance_check_interval_s=config.leader_imbalance_check_interval_seconds,
            leader_imbalance_per_broker_percentage=config.leader_imbalance_per_broker_percentage,
            placement=Placement(config.replica_placement),
            isr_return_wait_ms=config.isr_return_wait_ms,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            groups=GroupLimits.of(config),
        )
