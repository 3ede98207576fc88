"""What share groups use of a broker: `Node` has all of it, and more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tidelog.broker.cluster.metadata_cache import MetadataCache
    from tidelog.broker.coordinators.groups import GroupCoordinatorService
    from tidelog.broker.disk_scheduler import DiskScheduler
    from tidelog.broker.fetches.cold_reads import ColdReads
    from tidelog.broker.replicas.purgatory import Purgatory
    from tidelog.broker.replicas.replica_manager import ReplicaManager
    from tidelog.broker.shell import Shell
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.model.identifiers import BrokerId
    from tidelog.ports.clock import Clock


class Surroundings(Protocol):
    """One broker."""

    broker_id: BrokerId
    clock: Clock
    cold_reads: ColdReads
    config: BrokerConfig
    disk_scheduler: DiskScheduler
    metadata: MetadataCache
    purgatory: Purgatory
    replicas: ReplicaManager
    shell: Shell

    @property
    def groups(self) -> GroupCoordinatorService: ...
