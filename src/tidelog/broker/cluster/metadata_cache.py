"""The cluster as this broker knows it: fed by UpdateMetadata, asked by Metadata and everything that names other
brokers.

It never looks at the controller's own image, even where both are in one process: what a broker knows is what it was
told.
"""

from __future__ import annotations

import logging
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

from tidelog.controller.announcements import FULL_UPDATE, LEADER_DURING_DELETE
from tidelog.metadata.image import (
    BrokerChanged,
    BrokerGone,
    BrokerRegistration,
    ClusterImage,
    ControllerChanged,
    Endpoint,
    PartitionChanged,
    PartitionGone,
    PartitionImage,
    TopicChanged,
    TopicGone,
)
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import (
    NO_LEADER,
    NO_LEADER_EPOCH,
    ZERO_TOPIC_ID,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
    TopicPartition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidelog.broker.deferred import Deferred
    from tidelog.protocol import messages

logger: Final = logging.getLogger(__name__)

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""By their numbers on the wire."""

_SHARED_MAX: Final = 1024
"""Different lists of replicas that are kept as one object each."""


class MetadataCache:
    """`image` is read freely by handlers."""

    def __init__(self, cluster_id: str) -> None:
        self.image = ClusterImage(cluster_id=cluster_id)
        self.is_whole = False
        """Whether a controller has told all topics at once. One that cannot read the node of a topic does not."""
        self.layout_changes = 0
        """Counts the updates in which topics, partitions, their replicas or brokers came, went or changed; leaders and
        ISRs are none of these."""
        self.on_brokers_changed: list[Callable[[], object]] = []
        """Called after an update in which brokers came, went or moved."""
        self.on_topics_deleted: list[Callable[[frozenset[TopicId]], object]] = []
        """Called after an update with the ids of topics that are no more, or whose names other topics have now."""
        self._deleted_ids: set[TopicId] = set()
        """Of the update that is being taken in."""
        self.confirming: dict[tuple[BrokerId, ControllerEpoch], Deferred[bool]] = {}
        """Controllers that this broker does not know, and the store's answer whether they are that, which orders of
        theirs wait for."""
        self.orders_connection = 0
        """The newest connection by which the controller has given orders; 0 where it is this broker."""
        self.refused_addresses: dict[str, None] = {}
        """Addresses that gave orders as if they were the controller: each is logged once."""

    def update(self, request: messages.UpdateMetadataRequest) -> list[TopicPartition]:
        """Takes in what the controller says; returns the partitions that are gone, those of namesakes too.

        The live brokers are always all of them; the partitions are those that changed, or all there are where the
        request says so: then the others were deleted while this broker was not told. KafkaError STALE_CONTROLLER_EPOCH
        when the sender has been deposed.
        """
        image = self.image
        self.check_controller_epoch(request.controller_epoch)
        image.apply(ControllerChanged(BrokerId(request.controller_id), ControllerEpoch(request.controller_epoch)))
        if self._update_brokers(request):
            self.layout_changes += 1
            run_each(self.on_brokers_changed)
        gone: list[TopicPartition] = []
        replaced: list[TopicPartition] = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                if state.leader == LEADER_DURING_DELETE:
                    gone.append(TopicPartition(topic.topic_name, state.partition_index))
                else:
                    replaced += self._update_partition(topic.topic_name, TopicId(topic.topic_id), state)
        if request.type == FULL_UPDATE:
            self.is_whole = True
            told = {
                (topic.topic_name, state.partition_index)
                for topic in request.topic_states
                for state in topic.partition_states
            }
            gone += [known for known, _ in image.partitions() if known not in told]
        self._remove(gone)
        self._tell_of_deleted()
        return [*gone, *replaced]

    def check_controller_epoch(self, epoch: int) -> None:
        """KafkaError STALE_CONTROLLER_EPOCH when a newer controller is known."""
        if epoch < self.image.controller_epoch:
            raise KafkaError(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"Controller epoch {epoch} is older than {self.image.controller_epoch}, the newest this broker knows.",
            )

    def saw_controller(self, controller_id: int, epoch: int) -> None:
        """A request of a controller other than UpdateMetadata was accepted."""
        self.image.apply(ControllerChanged(BrokerId(controller_id), ControllerEpoch(epoch)))

    def broker_endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        """Where clients of `listener` reach a broker; None when it is not live or has no such listener."""
        registration = self.image.brokers.get(BrokerId(broker_id))
        return None if registration is None else registration.endpoint(listener)

    def live_endpoints(self, listener: str) -> Iterable[tuple[BrokerRegistration, Endpoint]]:
        """Every live broker that has `listener`, by ascending id."""
        for _, registration in sorted(self.image.brokers.items()):
            endpoint = registration.endpoint(listener)
            if endpoint is not None:
                yield registration, endpoint

    def name_leader(self, topic_partition: TopicPartition, current_leader: Any) -> None:
        """Puts a partition's leader and its epoch into an answer's `current_leader` (KIP-951), where it has a leader.

        librdkafka 2.12 to 2.16 never produces again to a partition whose leader it was told is -1 (its issue 5430).
        """
        known = self.image.partition(topic_partition)
        if known is not None and known.leader != NO_LEADER:
            current_leader.leader_id, current_leader.leader_epoch = known.leader, known.leader_epoch

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of a topic; None when its id is unknown."""
        return self.image.topic_names.get(TopicId(topic_id))

    def _update_brokers(self, request: messages.UpdateMetadataRequest) -> bool:
        """Takes over the live brokers; whether anything changed."""
        changed = False
        live = set()
        for broker in request.live_brokers:
            broker_id = BrokerId(broker.id)
            live.add(broker_id)
            endpoints = tuple(
                Endpoint(
                    endpoint.listener, _security_protocol(endpoint.security_protocol), endpoint.host, endpoint.port
                )
                for endpoint in broker.endpoints
            )
            registration = BrokerRegistration(broker_id, BrokerEpoch(-1), endpoints, broker.rack)
            if self.image.brokers.get(broker_id) != registration:
                self.image.apply(BrokerChanged(registration))
                changed = True
        for broker_id in [known for known in self.image.brokers if known not in live]:
            self.image.apply(BrokerGone(broker_id))
            changed = True
        return changed

    def _update_partition(
        self, topic: str, topic_id: TopicId, state: messages.UpdateMetadataRequest.UpdateMetadataPartitionState
    ) -> list[TopicPartition]:
        """Gives the partitions of a deleted topic that was known by this name."""
        known = self.image.topics.get(topic)
        replaced: list[TopicPartition] = []
        if known is None or (topic_id != ZERO_TOPIC_ID and known.topic_id != topic_id):
            if known is not None:
                # Another incarnation: the partitions of the old one are not its own.
                self._deleted_ids.add(known.topic_id)
                if known.topic_id != ZERO_TOPIC_ID:
                    replaced = [TopicPartition(topic, index) for index in known.partitions]
                self.image.apply(TopicGone(topic))
            self.image.apply(TopicChanged(topic, topic_id))
            self.layout_changes += 1
        elif state.leader_epoch == NO_LEADER_EPOCH and state.partition_index in known.partitions:
            # The controller could not read the partition's state: the broker that leads it goes on.
            return []
        image = PartitionImage(
            replicas=broker_ids(state.replicas),
            leader=BrokerId(state.leader),
            leader_epoch=LeaderEpoch(state.leader_epoch),
            isr=broker_ids(state.isr),
            partition_epoch=PartitionEpoch(state.zk_version),
            controller_epoch=ControllerEpoch(state.controller_epoch),
            offline=broker_ids(state.offline_replicas),
        )
        before = self.image.topics[topic].partitions.get(state.partition_index)
        if before is None or before.replicas != image.replicas:
            self.layout_changes += 1
        self.image.apply(PartitionChanged(topic, state.partition_index, image))
        return replaced

    def _remove(self, partitions: list[TopicPartition]) -> None:
        for topic, partition in partitions:
            known = self.image.topics.get(topic)
            if known is None:
                continue
            self.image.apply(PartitionGone(topic, partition))
            self.layout_changes += 1
            if not known.partitions:
                self._deleted_ids.add(known.topic_id)
                self.image.apply(TopicGone(topic))

    def _tell_of_deleted(self) -> None:
        deleted, self._deleted_ids = frozenset(self._deleted_ids - {ZERO_TOPIC_ID}), set()
        if deleted:
            run_each(partial(tell, deleted) for tell in self.on_topics_deleted)


def run_each(steps: Iterable[Callable[[], object]]) -> None:
    """Runs each step that follows from an update. An error that nothing foresaw is logged, and spares the other steps.

    The update is taken in already: told again, it would change nothing, and nothing would follow from it.
    """
    for step in steps:
        try:
            step()
        except Exception:
            # A fault of this broker, in one step: without the others it would go by what was true before.
            logger.exception("metadata taken in, but a step that follows from them failed")


def _security_protocol(number: int) -> str:
    if not 0 <= number < len(SECURITY_PROTOCOLS):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no security protocol {number}.")
    return SECURITY_PROTOCOLS[number]


def broker_ids(ids: Sequence[int]) -> tuple[BrokerId, ...]:
    """The ids as a tuple; equal ones are one object, since thousands of partitions have the same few replica lists."""
    return _shared(tuple(map(BrokerId, ids)))


@lru_cache(_SHARED_MAX)
def _shared(ids: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    return ids
