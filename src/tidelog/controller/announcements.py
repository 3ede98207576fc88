"""What the brokers are told after a decision: Kafka 3.9's requests of ZooKeeper days, one of a kind to each broker.

A decision marks what changed (`partition`, `metadata_only`, `brokers_changed`, `everything_to`, `stop`); `sends` then
makes one UpdateMetadata, one LeaderAndIsr and one StopReplica for each broker that needs it, however many
partitions there are. Every live broker gets UpdateMetadata, for clients ask any of them; only a partition's
live replicas get LeaderAndIsr.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.controller.result import Send
from tidelog.controller.state import ControllerState
from tidelog.metadata.image import BrokerRegistration, PartitionImage
from tidelog.model.identifiers import (
    LATEST_TIMESTAMP,
    NO_LEADER_EPOCH,
    BrokerId,
    LeaderEpoch,
    TopicPartition,
)
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

LEADER_AND_ISR_VERSION: Final = 7
STOP_REPLICA_VERSION: Final = 4
UPDATE_METADATA_VERSION: Final = 8
"""The newest versions of Kafka 3.9."""

UNKNOWN_TYPE: Final = 0
FULL_UPDATE: Final = 2
"""As type of an UpdateMetadata: it names all partitions there are. Kafka's own brokers look at it from KRaft only."""
LEADER_DURING_DELETE: Final = -2
"""As leader of an UpdateMetadata: the partition is being deleted, forget it."""
EPOCH_DURING_DELETE: Final = LeaderEpoch(-2)
"""As leader epoch of a StopReplica: whatever epoch the replica knows, it goes."""
NO_EPOCH: Final = LeaderEpoch(-1)

LIST_OFFSETS_VERSION: Final = 8
DEBUGGING_REPLICA: Final = -2
"""As replica id of a ListOffsets: any replica answers, the leader or not, and its log end counts."""

SECURITY_PROTOCOL_IDS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class Announcements:
    """Collects during one turn of the controller what is to be told, and to which brokers."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._leader_and_isr: dict[BrokerId, dict[TopicPartition, bool]] = {}
        """By broker: partition -> whether it is new."""
        self._metadata: dict[TopicPartition, None] = {}
        self._deleted: dict[TopicPartition, None] = {}
        self._metadata_wanted = False
        self._newcomers: dict[BrokerId, None] = {}
        self._orders: dict[tuple[TopicPartition, bool], messages.LeaderAndIsrRequest.LeaderAndIsrPartitionState] = {}
        """LeaderAndIsr's description of a partition, the same for each of its replicas."""
        self._stops: dict[BrokerId, dict[TopicPartition, bool]] = {}
        """By broker: partition -> whether its files go too."""
        self._log_ends: dict[BrokerId, dict[TopicPartition, None]] = {}
        """By broker: the partitions of whose logs it is to say where they end."""

    def partition(self, topic_partition: TopicPartition, *, is_new: bool = False) -> None:
        """The partition's leader, ISR or replicas changed."""
        image = self._state.image.partition(topic_partition)
        if image is None:
            return
        for broker_id in image.replicas:
            if broker_id in self._state.image.brokers:
                orders = self._leader_and_isr.setdefault(broker_id, {})
                orders[topic_partition] = is_new or orders.get(topic_partition, False)
        self._metadata[topic_partition] = None

    def new_replica(self, broker_id: BrokerId, topic_partition: TopicPartition) -> None:
        """A broker gets a replica that it never had: it may make it on any of its log directories."""
        if broker_id in self._state.image.brokers:
            self._leader_and_isr.setdefault(broker_id, {})[topic_partition] = True

    def metadata_only(self, topic_partition: TopicPartition) -> None:
        """Clients should know, but replicas need no order: an ISR changed, or a replica went offline."""
        self._metadata[topic_partition] = None

    def brokers_changed(self) -> None:
        """The live brokers changed: every broker gets the list."""
        self._metadata_wanted = True

    def everything_to(self, broker_id: BrokerId) -> None:
        """A broker that knows nothing yet: all metadata, and the order for each replica that it has."""
        self._newcomers[broker_id] = None
        for topic_partition, image in self._state.partitions_on(broker_id):
            if image.has_state and topic_partition.topic not in self._state.deleting:
                self._leader_and_isr.setdefault(broker_id, {}).setdefault(topic_partition, False)

    def deleted(self, topic_partition: TopicPartition) -> None:
        """The partition is being deleted: no broker should serve it any more."""
        self._deleted[topic_partition] = None
        self._metadata.pop(topic_partition, None)

    def stop(self, broker_id: BrokerId, topic_partition: TopicPartition, *, delete: bool) -> None:
        """A broker should end its replica, and remove its files if `delete`."""
        self._stops.setdefault(broker_id, {})[topic_partition] = delete

    def ask_for_log_end(self, broker_id: BrokerId, topic_partition: TopicPartition) -> None:
        """A broker should say where its replica's log ends, though none leads the partition."""
        self._log_ends.setdefault(broker_id, {})[topic_partition] = None

    def sends(self) -> list[Send]:
        """The requests, metadata first, so that a new leader is known where it is asked for."""
        sends = []
        live = sorted(self._state.image.brokers)
        # A replica that is to stop need not be told first which leader to follow.
        for broker_id, stopped in self._stops.items():
            for topic_partition in stopped:
                self._leader_and_isr.get(broker_id, {}).pop(topic_partition, None)
        if self._metadata or self._deleted or self._metadata_wanted or self._newcomers:
            # Of thousands of partitions the same description goes to every broker.
            news = self._topic_states(self._metadata)
            everything = self._topic_states(self._all_partitions()) if self._newcomers else []
            brokers = [self._live_broker(registration) for _, registration in sorted(self._state.image.brokers.items())]
            sends += [
                self._update_metadata(broker_id, everything if broker_id in self._newcomers else news, brokers)
                for broker_id in live
            ]
        sends += [
            self._leader_and_isr_request(broker_id, self._leader_and_isr[broker_id])
            for broker_id in live
            if self._leader_and_isr.get(broker_id)
        ]
        sends += [self._stop_replica(id, self._stops[id]) for id in live if id in self._stops]
        # Last: a broker that has just come makes its replicas with LeaderAndIsr.
        sends += [_log_ends_request(id, self._log_ends[id]) for id in live if id in self._log_ends]
        return sends

    def _all_partitions(self) -> Iterable[TopicPartition]:
        return (
            topic_partition
            for topic_partition, _ in self._state.image.partitions()
            if topic_partition.topic not in self._state.deleting
        )

    def _update_metadata(
        self,
        broker_id: BrokerId,
        topics: list[messages.UpdateMetadataRequest.UpdateMetadataTopicState],
        brokers: list[messages.UpdateMetadataRequest.UpdateMetadataBroker],
    ) -> Send:
        # To brokers a topic that is not named among all is deleted, with the offsets that groups have committed.
        is_complete = broker_id in self._newcomers and not self._state.has_unreadable_topics
        message = messages.UpdateMetadataRequest(
            controller_id=self._state.image.controller_id,
            controller_epoch=self._state.image.controller_epoch,
            broker_epoch=self._state.image.brokers[broker_id].epoch,
            # It may know topics that were deleted while it was not registered.
            type=FULL_UPDATE if is_complete else UNKNOWN_TYPE,
            topic_states=topics,
            live_brokers=brokers,
        )
        return Send(broker_id, ApiKey.UPDATE_METADATA, UPDATE_METADATA_VERSION, message)

    def _topic_states(
        self, partitions: Iterable[TopicPartition]
    ) -> list[messages.UpdateMetadataRequest.UpdateMetadataTopicState]:
        """The given partitions, and those that are being deleted."""
        request = messages.UpdateMetadataRequest
        topics: dict[str, messages.UpdateMetadataRequest.UpdateMetadataTopicState] = {}
        for topic_partition in [*partitions, *self._deleted]:
            image = self._state.image.partition(topic_partition)
            topic = self._state.image.topics.get(topic_partition.topic)
            if image is None or topic is None:
                continue
            # A partition without a state was never led: there is nothing to tell brokers about it. One whose state
            # cannot be read is there, without a leader that this controller knows: clients count partitions.
            is_known = image.has_state or self._state.has_unreadable_state(topic_partition)
            if not is_known and topic_partition not in self._deleted:
                continue
            if topic.name not in topics:
                topics[topic.name] = request.UpdateMetadataTopicState(
                    topic_name=topic.name, topic_id=topic.topic_id, partition_states=[]
                )
            leader = LEADER_DURING_DELETE if topic_partition in self._deleted else image.leader
            topics[topic.name].partition_states.append(
                request.UpdateMetadataPartitionState(
                    partition_index=topic_partition.partition,
                    controller_epoch=max(image.controller_epoch, 0),
                    leader=leader,
                    leader_epoch=image.leader_epoch,
                    isr=list(image.isr),
                    zk_version=image.partition_epoch,
                    replicas=list(image.replicas),
                    offline_replicas=list(self._state.offline_replicas(topic_partition, image)),
                )
            )
        return list(topics.values())

    def _live_broker(self, broker: BrokerRegistration) -> messages.UpdateMetadataRequest.UpdateMetadataBroker:
        request = messages.UpdateMetadataRequest
        return request.UpdateMetadataBroker(
            id=broker.id,
            rack=broker.rack,
            endpoints=[
                request.UpdateMetadataEndpoint(
                    port=endpoint.port,
                    host=endpoint.host,
                    listener=endpoint.name,
                    security_protocol=SECURITY_PROTOCOL_IDS.get(endpoint.security_protocol, 0),
                )
                for endpoint in broker.endpoints
            ],
        )

    def _leader_and_isr_request(self, broker_id: BrokerId, partitions: dict[TopicPartition, bool]) -> Send:
        request = messages.LeaderAndIsrRequest
        topics: dict[str, messages.LeaderAndIsrRequest.LeaderAndIsrTopicState] = {}
        leaders: set[BrokerId] = set()
        for topic_partition, is_new in partitions.items():
            image = self._state.image.partition(topic_partition)
            topic = self._state.image.topics.get(topic_partition.topic)
            if image is None or topic is None or not image.has_state:
                continue
            if topic.name not in topics:
                topics[topic.name] = request.LeaderAndIsrTopicState(
                    topic_name=topic.name, topic_id=topic.topic_id, partition_states=[]
                )
            order = self._orders.get((topic_partition, is_new))
            if order is None:
                order = self._orders[topic_partition, is_new] = _leader_and_isr_state(topic_partition, image, is_new)
            topics[topic.name].partition_states.append(order)
            leaders.add(image.leader)
        brokers = self._state.image.brokers
        message = request(
            controller_id=self._state.image.controller_id,
            controller_epoch=self._state.image.controller_epoch,
            broker_epoch=brokers[broker_id].epoch,
            topic_states=list(topics.values()),
            live_leaders=[
                request.LeaderAndIsrLiveLeader(
                    broker_id=id, host_name=brokers[id].endpoints[0].host, port=brokers[id].endpoints[0].port
                )
                for id in sorted(leaders)
                if id in brokers and brokers[id].endpoints
            ],
        )
        return Send(broker_id, ApiKey.LEADER_AND_ISR, LEADER_AND_ISR_VERSION, message)

    def _stop_replica(self, broker_id: BrokerId, partitions: dict[TopicPartition, bool]) -> Send:
        request = messages.StopReplicaRequest
        topics: dict[str, messages.StopReplicaRequest.StopReplicaTopicState] = {}
        for topic_partition, delete in partitions.items():
            image = self._state.image.partition(topic_partition)
            if topic_partition.topic not in topics:
                topics[topic_partition.topic] = request.StopReplicaTopicState(
                    topic_name=topic_partition.topic, partition_states=[]
                )
            deleting = topic_partition.topic in self._state.deleting
            epoch = EPOCH_DURING_DELETE if deleting else NO_EPOCH if image is None else image.leader_epoch
            topics[topic_partition.topic].partition_states.append(
                request.StopReplicaPartitionState(
                    partition_index=topic_partition.partition, leader_epoch=epoch, delete_partition=delete
                )
            )
        message = request(
            controller_id=self._state.image.controller_id,
            controller_epoch=self._state.image.controller_epoch,
            broker_epoch=self._state.image.brokers[broker_id].epoch,
            topic_states=list(topics.values()),
        )
        return Send(broker_id, ApiKey.STOP_REPLICA, STOP_REPLICA_VERSION, message)


def _leader_and_isr_state(
    topic_partition: TopicPartition, image: PartitionImage, is_new: bool
) -> messages.LeaderAndIsrRequest.LeaderAndIsrPartitionState:
    return messages.LeaderAndIsrRequest.LeaderAndIsrPartitionState(
        partition_index=topic_partition.partition,
        controller_epoch=image.controller_epoch,
        leader=image.leader,
        leader_epoch=image.leader_epoch,
        isr=list(image.isr),
        partition_epoch=image.partition_epoch,
        replicas=list(image.replicas),
        adding_replicas=list(image.adding),
        removing_replicas=list(image.removing),
        is_new=is_new,
    )


def _log_ends_request(broker_id: BrokerId, partitions: Iterable[TopicPartition]) -> Send:
    request = messages.ListOffsetsRequest
    topics: dict[str, list[messages.ListOffsetsRequest.ListOffsetsPartition]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(
            request.ListOffsetsPartition(
                partition_index=partition, current_leader_epoch=NO_LEADER_EPOCH, timestamp=LATEST_TIMESTAMP
            )
        )
    message = request(
        replica_id=DEBUGGING_REPLICA,
        topics=[request.ListOffsetsTopic(name=name, partitions=asked) for name, asked in topics.items()],
    )
    return Send(broker_id, ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, message)
