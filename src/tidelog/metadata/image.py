"""The cluster as one process knows it: live brokers, topics with their partitions, settings, the controller.

The controller builds its image from the store and changes it by its own writes; every broker has one that is fed only
by UpdateMetadata and LeaderAndIsr. An image changes by deltas alone (`ClusterImage.apply`), so that two images that saw
the same deltas are equal. The values inside are immutable: a partition's image can be handed out and kept.

    ClusterImage
      brokers   broker id -> BrokerRegistration
      topics    name -> TopicImage -> partition index -> PartitionImage
      configs   ConfigResource -> {setting: value}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

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
from tidelog.model.values import value

NO_BROKER_EPOCH: Final = BrokerEpoch(-1)
"""The broker's registration is not known."""
NO_PARTITION_EPOCH: Final = PartitionEpoch(-1)
"""The partition has no state yet."""
NO_CONTROLLER_EPOCH: Final = ControllerEpoch(-1)
"""No controller is known."""


class ConfigResourceType(IntEnum):
    """What a set of settings belongs to; the numbers are those of DescribeConfigs and AlterConfigs."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """One holder of settings. A broker's name is its id in decimal, or "" for the cluster-wide default."""

    type: ConfigResourceType
    name: str


SHARED_MAX: Final = 4096
"""Different images of partitions that are kept as one object each."""

CLUSTER_DEFAULT: Final = ConfigResource(ConfigResourceType.BROKER, "")
"""Settings of every broker that has none of its own by that name."""


@value
class Endpoint:
    """Where clients reach a broker by one of its listeners."""

    name: str
    """The listener's name, e.g. PLAINTEXT or INTERNAL."""
    security_protocol: str
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    host: str
    """As advertised."""
    port: int


@value
class BrokerRegistration:
    """A live broker."""

    id: BrokerId
    epoch: BrokerEpoch
    """czxid of /brokers/ids/<id>; -1 where unknown."""
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    timestamp_ms: int = -1
    """When it registered, wall time; -1 where unknown."""
    jmx_port: int = -1

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """How the broker is advertised on that listener; None when it has none by that name."""
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener_name), None)


@value
class PartitionImage:
    """One partition: its replicas, its leader, its ISR."""

    replicas: tuple[BrokerId, ...]
    """As assigned; the first one is the preferred leader."""
    leader: BrokerId = NO_LEADER
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    """-1 until the partition's state exists."""
    isr: tuple[BrokerId, ...] = ()
    partition_epoch: PartitionEpoch = NO_PARTITION_EPOCH
    """Version of the partition's state; -1 until it exists."""
    controller_epoch: ControllerEpoch = NO_CONTROLLER_EPOCH
    """Of the controller that wrote the state."""
    adding: tuple[BrokerId, ...] = ()
    """Replicas that a reassignment in progress adds; they are among `replicas`."""
    removing: tuple[BrokerId, ...] = ()
    """Replicas that a reassignment in progress takes away; still among `replicas`."""
    offline: tuple[BrokerId, ...] = ()
    """Replicas whose broker or log directory is down; known to brokers, from UpdateMetadata."""

    @property
    def has_state(self) -> bool:
        """Whether a leader was ever elected."""
        return self.partition_epoch >= 0

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)


@dataclass(slots=True)
class TopicImage:
    """One topic; changed only through the ClusterImage that holds it."""

    name: str
    topic_id: TopicId
    """All zeros while a topic made by an old tool has none yet."""
    partitions: dict[int, PartitionImage] = field(default_factory=dict)
    """By index; indexes are 0 .. len - 1 unless an old tool wrote something else."""

    @property
    def replication_factor(self) -> int:
        """Of partition 0, as Kafka takes it; 0 without partitions."""
        return len(self.partitions[0].replicas) if 0 in self.partitions else 0


# The deltas: everything that can happen to an image.


@value
class BrokerChanged:
    """A broker registered, or registered anew."""

    registration: BrokerRegistration


@value
class BrokerGone:
    id: BrokerId


@value
class TopicChanged:
    """A topic appeared, or its id became known; its partitions stay."""

    name: str
    topic_id: TopicId


@value
class TopicGone:
    """A topic with all its partitions."""

    name: str


@value
class PartitionChanged:
    """A partition's whole new image; its topic must be there."""

    topic: str
    partition: int
    image: PartitionImage


@value
class PartitionGone:
    topic: str
    partition: int


@value
class ConfigChanged:
    """All settings of a resource; None when there are none any more."""

    resource: ConfigResource
    values: Mapping[str, str] | None


@value
class ControllerChanged:
    id: BrokerId
    """-1: none."""
    epoch: ControllerEpoch


Delta: TypeAlias = (
    BrokerChanged
    | BrokerGone
    | TopicChanged
    | TopicGone
    | PartitionChanged
    | PartitionGone
    | ConfigChanged
    | ControllerChanged
)


@dataclass(slots=True)
class ClusterImage:
    """The whole cluster. Read freely; change by `apply` alone."""

    cluster_id: str = ""
    controller_id: BrokerId = NO_LEADER
    controller_epoch: ControllerEpoch = NO_CONTROLLER_EPOCH
    brokers: dict[BrokerId, BrokerRegistration] = field(default_factory=dict)
    topics: dict[str, TopicImage] = field(default_factory=dict)
    topic_names: dict[TopicId, str] = field(default_factory=dict)
    """Names by id, of the topics that have one."""
    configs: dict[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    _same: dict[PartitionImage, PartitionImage] = field(default_factory=dict, repr=False, compare=False)
    """Equal images of partitions are one object: of ten thousand partitions most are led by one of a few brokers."""

    def apply(self, delta: Delta) -> None:
        """Brings one change in. KeyError for a partition of a topic that is not there: a broken invariant."""
        match delta:
            case PartitionChanged(topic, partition, image):
                self.topics[topic].partitions[partition] = self._shared(image)
            case PartitionGone(topic, partition):
                self.topics[topic].partitions.pop(partition, None)
            case TopicChanged(name, topic_id):
                self._change_topic(name, topic_id)
            case TopicGone(name):
                self._remove_topic(name)
            case BrokerChanged(registration):
                self.brokers[registration.id] = registration
            case BrokerGone(id):
                self.brokers.pop(id, None)
            case ConfigChanged(resource, None):
                self.configs.pop(resource, None)
            case ConfigChanged(resource, values) if values is not None:
                self.configs[resource] = dict(values)
            case ControllerChanged(id, epoch):
                self.controller_id, self.controller_epoch = id, epoch

    def _shared(self, image: PartitionImage) -> PartitionImage:
        if len(self._same) >= SHARED_MAX:
            self._same.clear()
        return self._same.setdefault(image, image)

    def topic_by_id(self, topic_id: TopicId) -> TopicImage | None:
        """The topic of that id; None when there is none."""
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic_partition: TopicPartition) -> PartitionImage | None:
        """A partition's image; None when topic or partition is unknown."""
        topic = self.topics.get(topic_partition.topic)
        return None if topic is None else topic.partitions.get(topic_partition.partition)

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionImage]]:
        """Every partition of every topic, in the order in which they became known."""
        for name, topic in self.topics.items():
            for index, image in topic.partitions.items():
                yield TopicPartition(name, index), image

    def topic_config(self, topic: str) -> Mapping[str, str]:
        """The overrides of a topic; empty when it has none."""
        return self.configs.get(ConfigResource(ConfigResourceType.TOPIC, topic), {})

    def broker_config(self, broker_id: BrokerId | None) -> Mapping[str, str]:
        """Dynamic settings of one broker, or, for None, the cluster-wide defaults."""
        name = "" if broker_id is None else str(broker_id)
        return self.configs.get(ConfigResource(ConfigResourceType.BROKER, name), {})

    def group_config(self, group: str) -> Mapping[str, str]:
        """A group's own settings; empty when it has none."""
        return self.configs.get(ConfigResource(ConfigResourceType.GROUP, group), {})

    def client_metrics_config(self, name: str) -> Mapping[str, str]:
        """The settings of a client metrics resource; empty when there is none of that name."""
        return self.configs.get(ConfigResource(ConfigResourceType.CLIENT_METRICS, name), {})

    def is_live(self, broker_id: BrokerId) -> bool:
        return broker_id in self.brokers

    def _change_topic(self, name: str, topic_id: TopicId) -> None:
        topic = self.topics.get(name)
        if topic is None:
            self.topics[name] = TopicImage(name, topic_id)
        else:
            if topic.topic_id != topic_id:
                self.topic_names.pop(topic.topic_id, None)
            topic.topic_id = topic_id
        if topic_id != ZERO_TOPIC_ID:
            self.topic_names[topic_id] = name

    def _remove_topic(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        if topic is not None:
            self.topic_names.pop(topic.topic_id, None)
