"""Which store a cluster on this machine has: its own, embedded, or an ensemble that it is told to join."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.config.broker_config import BrokerConfig
from tidelog.launcher.ensemble import Ensemble
from tidelog.launcher.metadata_store import ClusterStore, MetadataStore
from tidelog.store.security import security_of

if TYPE_CHECKING:
    from tidelog.launcher.plan import Plan
    from tidelog.ports.clock import Clock
    from tidelog.ports.disk import Disk
    from tidelog.ports.network import Network
    from tidelog.ports.random import Random


def cluster_store(
    plan: Plan, clock: Clock, random: Random, disk: Disk, network: Network, *, beside_brokers: bool = False
) -> ClusterStore:
    """The store of a plan; nothing is touched yet. `beside_brokers`: in their process, whose descriptors it shares."""
    if plan.zookeeper is not None:
        config = BrokerConfig.from_mapping(plan.settings_of(plan.ids[0], plan.port(plan.ids[0])))
        return Ensemble(plan.zookeeper, security_of(config))
    return MetadataStore(
        plan.store_folder, clock=clock, random=random, disk=disk, network=network, beside_brokers=beside_brokers
    )
