"""A broker without sockets, threads or an event loop: the parts and how they know each other.

    server (frames) -> handlers/<api>.handle(node, context, request) -> node.replicas, node.controller, node.groups, ...
                                                                          |
                                                        storage.LogManager, replication, purgatory

Everything that touches the outside goes through the ports handed to the constructor and through `Shell`: what the
runtime does for a node with timers and threads. The simulator runs this very class with its own ports.

All methods are called on one thread, the loop's; only what is given to `Shell.in_pool` runs elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.groups import Groups
    from tidelog.broker.metadata_cache import MetadataCache
    from tidelog.broker.producer_ids import ProducerIds
    from tidelog.broker.purgatory import Purgatory
    from tidelog.broker.replica_manager import ReplicaManager
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.model.identifiers import BrokerEpoch, BrokerId
    from tidelog.ports.clock import Clock
    from tidelog.ports.disk import Disk
    from tidelog.ports.random import Random
    from tidelog.storage.log_manager import LogManager

T = TypeVar("T")


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Idempotent; without effect once it ran."""
        ...


class Shell(Protocol):
    """What a node asks of the runtime around it."""

    def after(self, delay_ms: int, callback: Callable[..., object], *arguments: Any) -> Timer:
        """Calls back on the loop's thread after `delay_ms`."""
        ...

    def soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Calls back on the loop's thread in its next turn."""
        ...

    def in_pool(self, work: Callable[[], T]) -> Deferred[T]:
        """Runs `work` on one of the few I/O threads; completes on the loop's thread, with OSError if work raised it."""
        ...


class ControllerChannel(Protocol):
    """The way to the controller for what only it may decide: in this process, or (later) by forwarded requests."""

    def submit(self, event: Any) -> Deferred[Any]:
        """Hands an event of `tidelog.controller.events` to the active controller; its result comes when all is done.

        Fails with KafkaError NOT_CONTROLLER while there is none.
        """
        ...


class Node:
    """One broker. Attributes are its public surface for handlers."""

    config: BrokerConfig
    clock: Clock
    random: Random
    disk: Disk
    shell: Shell
    logs: LogManager
    """Every partition's log on this broker."""
    replicas: ReplicaManager
    """Every partition that this broker leads or follows; appends and reads go through it."""
    metadata: MetadataCache
    """The cluster as UpdateMetadata told it: `metadata.image` is a ClusterImage; never the controller's own."""
    controller: ControllerChannel
    purgatory: Purgatory
    """Operations that wait: long polls, produce requests that wait for the high watermark."""
    groups: Groups
    """Offsets committed to the partitions of `__consumer_offsets` that this broker leads."""
    producer_ids: ProducerIds
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    cluster_id: str
