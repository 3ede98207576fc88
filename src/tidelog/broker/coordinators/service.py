"""What each kind of coordinators of this broker has: groups', transactions', share groups' states."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from tidelog.broker.coordinators.shards import Shards
from tidelog.coordinator.state_machine import StateMachine

if TYPE_CHECKING:
    from tidelog.broker.channels import ControllerChannel
    from tidelog.broker.cluster.metadata_cache import MetadataCache
    from tidelog.broker.coordinators.internal_topic import InternalTopic
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.broker.replicas.replica_manager import ReplicaManager
    from tidelog.metadata.image import PartitionImage

M = TypeVar("M", bound=StateMachine)


class CoordinatorService(Generic[M]):
    """The coordinators of one kind, each of a partition of their internal topic that this broker leads."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        *,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        controller: ControllerChannel,
        topic: InternalTopic,
        make: Callable[[], M],
    ) -> None:
        """`make` gives an empty coordinator; it is not called before the service is complete."""
        self._config = environment.config
        self._clock = environment.clock
        self._shell = environment.shell
        self.shards: Shards[M] = Shards(
            environment, metadata=metadata, replicas=replicas, controller=controller, topic=topic, make=make
        )

    def ensure_topic(self) -> Deferred[None]:
        """Creates the internal topic when it does not exist yet; fails with KafkaError COORDINATOR_NOT_AVAILABLE."""
        return self.shards.ensure_topic()

    def partition_image(self, key: str) -> PartitionImage | None:
        """The partition whose leader coordinates `key`, a group or a transactional id or what names a share partition,
        as far as this broker was told; None while the topic does not exist."""
        return self.shards.partition_image(key)

    def leadership_changed(self, partition: int) -> None:
        """This broker began or ceased to lead a partition of the internal topic."""
        self.shards.leadership_changed(partition)
