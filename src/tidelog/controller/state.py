"""The controller's picture of the store, and the one way in which it changes: `ControllerState.replay`.

Loading is replaying what was read (`NodeRead`), deciding is replaying what is about to be written: so the state of a
controller that has run for long equals that of one that has just loaded, which a property test checks. What is not in
the store (which replicas a broker reported as failed, which brokers shut down) is transient: a new controller learns it
again, or does without.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from tidelog.controller.marks import Marks
from tidelog.metadata.image import (
    NO_CONTROLLER_EPOCH,
    NO_PARTITION_EPOCH,
    BrokerChanged,
    BrokerGone,
    ClusterImage,
    ConfigChanged,
    PartitionChanged,
    PartitionGone,
    PartitionImage,
    TopicChanged,
    TopicGone,
)
from tidelog.metadata.operations import ANY_VERSION, UNKNOWN_ZXID, Check, Create, Delete, Operation, SetData
from tidelog.metadata.replica_marks import ReplicaDamage
from tidelog.metadata.znodes import (
    CONFIG,
    CONTAINERS_MADE_LATER,
    MalformedZnode,
    StoredProducerIdBlock,
    decode_config,
    decode_producer_id_block,
    decode_reassignment,
    decode_state,
    decode_topic,
    is_partition_name,
    resource_of,
    state_path,
    topic_path,
)
from tidelog.model.identifiers import (
    NO_LEADER,
    NO_LEADER_EPOCH,
    ZERO_TOPIC_ID,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    TopicId,
    TopicPartition,
)
from tidelog.model.topics import invalid_topic_name_reason
from tidelog.model.values import value


@value
class NodeRead:
    """A node as it was found in the store; parents come before their children."""

    path: str
    data: bytes | None
    version: int
    mzxid: int = UNKNOWN_ZXID
    """Transaction that wrote it; -1 where that does not matter."""
    czxid: int = UNKNOWN_ZXID
    """Transaction that created it; -1 where that does not matter."""


@value
class KnownNode:
    """What a write to a node, or its removal, can be made to depend on."""

    version: int = ANY_VERSION
    czxid: int = UNKNOWN_ZXID


Record: TypeAlias = NodeRead | Operation | BrokerChanged | BrokerGone
"""What can be replayed: what was found, what is written, the registered brokers."""


class Doubt(NamedTuple):
    """What was known of brokers when an ISR was put in doubt."""

    booted: tuple[BrokerId, ...]
    """Those whose machines were booted anew, without those that `seemed_to_stay`."""
    seemed_to_stay: tuple[BrokerId, ...]
    """Members that were registered since before the partition's state was written."""
    registered: dict[BrokerId, BrokerEpoch]
    """All brokers that were registered, with their epochs."""


class ControllerState:
    """Everything that the controller decides upon."""

    def __init__(self, controller_id: BrokerId = NO_LEADER, epoch: ControllerEpoch = NO_CONTROLLER_EPOCH) -> None:
        self.image = ClusterImage(controller_id=controller_id, controller_epoch=epoch)
        self.topic_versions: dict[str, int] = {}
        """Version of each topic's node, to write against: a tool may have written it since it was read."""
        self.config_versions: dict[str, int] = {}
        """[path] -> version of each node with settings, those that cannot be read included, to write against."""
        self.deleting: dict[str, int] = {}
        """[topic] -> the transaction that created its node in /admin/delete_topics; in the order in which they came."""
        self.producer_id_block: StoredProducerIdBlock | None = None
        """The block given away last; None while there was none."""
        self.producer_id_block_version = 0
        """Version of its node, to write against."""
        self.config_folders: set[str] = set()
        """The containers below /config that are there, of those that are made late."""
        self.plan: dict[TopicPartition, tuple[BrokerId, ...]] | None = None
        """Targets in /admin/reassign_partitions, where an old tool has left it; None without that node."""
        self.plan_node = KnownNode()
        """That node, to write against."""
        self.bare_nodes: dict[str, None] = {}
        """Below topics' nodes: `partitions` and partition nodes that have no state below them (yet), and whatever else
        another client put there. They go with the topic."""
        self.orphans: dict[str, tuple[bytes | None, int]] = {}
        """[path] -> content and version: states of partitions that their topics do not have, since a topic's node was
        made smaller, or a deletion was cut short. They go with the topic; a partition that is added has its own."""
        self.malformed: dict[str, str] = {}
        """Nodes that could not be read, with the reason; what they describe is left out of the image, or stays in it
        as it was known."""
        self.remembered_ids: dict[str, TopicId] = {}
        """Ids of topics as brokers know them, of use where a tool has dropped one from its node; transient."""
        self.replicas_without_id: dict[str, dict[int, set[BrokerId]]] = {}
        """[topic whose node has no id][partition] -> brokers that have said that their log has none; transient."""
        self.ids_due: dict[str, int] = {}
        """[topic whose node has no id] -> until when members of its ISRs are waited for that know one, monotonic;
        transient."""
        self.failed_replicas: dict[BrokerId, set[TopicPartition]] = {}
        """Replicas on failed log directories, by broker; transient."""
        self.shutting_down: dict[BrokerId, None] = {}
        """Brokers that asked to leave: until they register anew they are neither elected nor let into an ISR
        (KIP-841); transient."""
        self.written: dict[TopicPartition, int] = {}
        """The transaction that wrote each state, as the store had it at loading; of use to a new controller only."""
        self.marks = Marks()
        """Replicas that have lost records, and unclean stops."""
        self.log_ends: dict[TopicPartition, dict[BrokerId, tuple[LeaderEpoch, Offset]]] = {}
        """Where the logs of replicas of partitions without a leader end, with the epoch of the last batch, as their
        brokers said; transient."""
        self.awaiting_log_ends: dict[TopicPartition, int] = {}
        """Until when the election of a partition waits for `log_ends`, monotonic; transient."""
        self.members_due: dict[TopicPartition, int] = {}
        """Until when the election of a partition waits for members of its ISR, monotonic; it may be past; transient."""
        self.in_doubt: dict[TopicPartition, int] = {}
        """Partitions of which it is not known which members of the ISR live, and until when, monotonic. A broker whose
        machine was booted anew is back, and the others may be registered only because their sessions have not ended
        since the same power cut; transient."""
        self.doubts: dict[TopicPartition, Doubt] = {}
        """What was known of brokers when an ISR was put in doubt; until a leader is elected, or the ISR has those alone
        that have all records. Marks may go before that: a broker takes its own back as soon as no partition waits for a
        leader; transient."""
        self.waits: dict[TopicPartition, tuple[tuple[BrokerId, ...], tuple[BrokerId, ...]]] = {}
        """Partitions of which it was logged that they wait: for which replicas, past which damaged ones; transient."""
        self.leader_elections = 0
        """How often this controller gave a partition without a leader one; transient."""
        self.unclean_elections = 0
        """How often this controller made a leader of a replica that was not in sync; transient."""
        self._replicas: dict[BrokerId, dict[TopicPartition, None]] = {}
        """By broker: the partitions of which it has a replica. Derived from the image."""

    def replay(self, record: Record) -> None:
        """Brings one record in: the only mutator of what the store holds."""
        match record:
            case NodeRead(path, data, version, mzxid, czxid):
                self._put(path, data, version, mzxid, czxid)
            case Create(path, data):
                self._put(path, data, 0)
            case SetData(path, data, version):
                # Versions are looked at only where writes are conditional, and there the one expected is known.
                self._put(path, data, version if version == ANY_VERSION else version + 1)
            case Delete(path):
                self._remove(path)
            case Check():
                pass
            case BrokerChanged(registration):
                known = self.image.brokers.get(registration.id)
                if known is not None and known.epoch != registration.epoch:
                    self._forget(registration.id)
                self.image.apply(record)
            case BrokerGone(id):
                self._forget(id)
                self.image.apply(record)

    def is_online(self, broker_id: BrokerId, topic_partition: TopicPartition) -> bool:
        """Whether the broker is live, and stays, and its replica is on a log directory that works."""
        return (
            broker_id in self.image.brokers
            and broker_id not in self.shutting_down
            and topic_partition not in self.failed_replicas.get(broker_id, ())
        )

    def damaged_replicas(self, topic_partition: TopicPartition) -> Mapping[BrokerId, ReplicaDamage]:
        """The replicas of a partition that are known to have lost records."""
        topic = self.image.topics.get(topic_partition.topic)
        return {} if topic is None else self.marks.of(topic_partition, topic.topic_id)

    def booted_anew(self, topic_partition: TopicPartition) -> Collection[BrokerId]:
        """Brokers whose replica of a partition may lack what was not flushed: their machines were booted anew.

        A mark may be older than the partition's state. In a doubt it says nothing of a member that seemed to stay, as
        long as its registration is the same.
        """
        booted = self.marks.booted_anew.keys()
        doubt = self.doubts.get(topic_partition)
        if doubt is None:
            return booted
        now = self.image.brokers
        stayed = {id for id in doubt.seemed_to_stay if id in now and now[id].epoch == doubt.registered[id]}
        return booted - stayed | set(doubt.booted)

    def whole_replicas(self, topic_partition: TopicPartition, replicas: Sequence[BrokerId]) -> list[BrokerId]:
        """Those of `replicas` that are not known to have lost records, nor to lack some while others may have all."""
        damaged = self.damaged_replicas(topic_partition)
        lacking = self.booted_anew(topic_partition) if topic_partition in self.in_doubt else ()
        return [id for id in replicas if id not in damaged and id not in lacking]

    def offline_replicas(self, topic_partition: TopicPartition, image: PartitionImage) -> tuple[BrokerId, ...]:
        """The replicas that cannot serve now."""
        return tuple([id for id in image.replicas if not self.is_online(id, topic_partition)])

    def has_unreadable_state(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition was led, but its state cannot be read: it is left alone until its node is mended."""
        return bool(self.malformed) and state_path(*topic_partition) in self.malformed

    @property
    def has_unreadable_topics(self) -> bool:
        """Whether topics that were led are not known here, since their nodes cannot be read."""
        return bool(self.malformed) and any(topic_path(path.split("/")[3]) in self.malformed for path in self.orphans)

    def partitions_on(self, broker_id: BrokerId) -> Iterator[tuple[TopicPartition, PartitionImage]]:
        """The partitions of which a broker has a replica, in the order in which it got them.

        Not to be changed while it is gone through: `list` it first.
        """
        topics = self.image.topics
        for topic_partition in self._replicas.get(broker_id, ()):
            yield topic_partition, topics[topic_partition.topic].partitions[topic_partition.partition]

    def _forget(self, broker_id: BrokerId) -> None:
        """What was true of a registration that is over."""
        self.shutting_down.pop(broker_id, None)
        self.failed_replicas.pop(broker_id, None)
        for ends in self.log_ends.values():
            ends.pop(broker_id, None)

    def _put(
        self, path: str, data: bytes | None, version: int, mzxid: int = UNKNOWN_ZXID, czxid: int = UNKNOWN_ZXID
    ) -> None:
        self.malformed.pop(path, None)
        try:
            match path.split("/"):
                case ["", "brokers", "topics", topic, "partitions", partition, "state"] if is_partition_name(partition):
                    self._put_state(topic, int(partition), data, version, mzxid)
                case ["", "brokers", "topics", _, _, *_]:
                    self.bare_nodes[path] = None
                case ["", "brokers", "topics", topic]:
                    self._put_topic(topic, data, version)
                case ["", "config", _]:
                    if path in CONTAINERS_MADE_LATER:
                        self.config_folders.add(path)
                case ["", "config", folder, name]:
                    if (container := f"{CONFIG}/{folder}") in CONTAINERS_MADE_LATER:
                        self.config_folders.add(container)
                    resource = resource_of(f"{folder}/{name}")
                    if resource is not None:
                        self.config_versions[path] = version
                        self.image.apply(ConfigChanged(resource, decode_config(path, data)))
                case ["", "admin", "delete_topics", topic]:
                    self.deleting[topic] = czxid
                case ["", "admin", "reassign_partitions"]:
                    self.plan = {}
                    # A node that this controller writes again is the same one.
                    self.plan_node = KnownNode(version, self.plan_node.czxid if czxid == UNKNOWN_ZXID else czxid)
                    self.plan = {each: tuple(map(BrokerId, ids)) for each, ids in decode_reassignment(data).items()}
                case ["", "latest_producer_id_block"]:
                    self.producer_id_block = decode_producer_id_block(data)
                    self.producer_id_block_version = version
                case ["", "tidelog_marks", name]:
                    self.marks.put(name, data, version, czxid)
        except MalformedZnode as error:
            self.malformed[path] = str(error)

    def _remove(self, path: str) -> None:
        self.malformed.pop(path, None)
        match path.split("/"):
            case ["", "brokers", "topics", topic, "partitions", partition, "state"] if is_partition_name(partition):
                self._remove_state(topic, int(partition))
            case ["", "brokers", "topics", _, _, *_]:
                self.bare_nodes.pop(path, None)
            case ["", "brokers", "topics", topic]:
                self._remove_topic(topic)
            case ["", "config", folder, name]:
                resource = resource_of(f"{folder}/{name}")
                if resource is not None:
                    self.config_versions.pop(path, None)
                    self.image.apply(ConfigChanged(resource, None))
            case ["", "admin", "delete_topics", topic]:
                self.deleting.pop(topic, None)
            case ["", "admin", "reassign_partitions"]:
                self.plan = None
                self.plan_node = KnownNode()
            case ["", "tidelog_marks", name]:
                self.marks.remove(name)

    def _put_topic(self, name: str, data: bytes | None, version: int) -> None:
        self.topic_versions[name] = version
        content = decode_topic(name, data)
        reason = invalid_topic_name_reason(name)
        if reason is not None:
            raise MalformedZnode(topic_path(name), f"no topic can be called that: {reason}")
        known = self.image.topics.get(name)
        topic_id = content.topic_id
        if topic_id == ZERO_TOPIC_ID and known is not None:
            # Tools of 2.2 rewrite the node without the id: the topic is still the same one.
            topic_id = known.topic_id
        namesake = self.image.topic_names.get(topic_id, name)
        if namesake != name:
            raise MalformedZnode(topic_path(name), f"its id is that of topic {namesake}")
        self.image.apply(TopicChanged(name, topic_id))
        partitions = self.image.topics[name].partitions
        for index in [index for index in partitions if index not in content.partitions]:
            self._forget_partition(TopicPartition(name, index), partitions[index])
            self.image.apply(PartitionGone(name, index))
        for index, replicas in content.partitions.items():
            old = partitions.get(index)
            assigned = tuple(map(BrokerId, replicas))
            adding = tuple(map(BrokerId, content.adding.get(index, ())))
            removing = tuple(map(BrokerId, content.removing.get(index, ())))
            if old is None:
                new = PartitionImage(assigned, adding=adding, removing=removing)
            elif (old.replicas, old.adding, old.removing) == (assigned, adding, removing):
                continue
            else:
                new = replace(old, replicas=assigned, adding=adding, removing=removing)
            self._reassigned(TopicPartition(name, index), () if old is None else old.replicas, assigned)
            self.image.apply(PartitionChanged(name, index, new))
            if self.orphans and (path := state_path(name, index)) in self.orphans:
                self._put(path, *self.orphans.pop(path))

    def _remove_topic(self, name: str) -> None:
        self.topic_versions.pop(name, None)
        topic = self.image.topics.get(name)
        if topic is None:
            return
        for index, image in topic.partitions.items():
            self._forget_partition(TopicPartition(name, index), image)
        self.image.apply(TopicGone(name))
        # A foreign tool that removed the topic removed what was below it first.
        below = f"{topic_path(name)}/"
        for nodes in (self.bare_nodes, self.orphans):
            for path in [path for path in nodes if path.startswith(below)]:
                del nodes[path]

    def _forget_partition(self, topic_partition: TopicPartition, image: PartitionImage) -> None:
        """It is gone: one of that name that is made later is another."""
        self._reassigned(topic_partition, image.replicas, ())
        self.forget_election(topic_partition)

    def forget_election(self, topic_partition: TopicPartition) -> None:
        """What was known while a partition had no leader is of no more use."""
        self.log_ends.pop(topic_partition, None)
        self.awaiting_log_ends.pop(topic_partition, None)
        self.members_due.pop(topic_partition, None)
        self.in_doubt.pop(topic_partition, None)
        self.doubts.pop(topic_partition, None)
        self.waits.pop(topic_partition, None)

    def _reassigned(
        self, topic_partition: TopicPartition, before: Sequence[BrokerId], after: Sequence[BrokerId]
    ) -> None:
        """Keeps the index by broker. Replicas that were taken away are not known as failed if they come back."""
        for broker_id in before:
            if broker_id not in after:
                self._replicas[broker_id].pop(topic_partition, None)
                self.failed_replicas.get(broker_id, set()).discard(topic_partition)
        for broker_id in after:
            if broker_id not in before:
                self._replicas.setdefault(broker_id, {})[topic_partition] = None

    def _put_state(self, topic: str, partition: int, data: bytes | None, version: int, mzxid: int) -> None:
        old = self.image.partition(TopicPartition(topic, partition))
        folder = f"/brokers/topics/{topic}/partitions"
        self.bare_nodes.pop(folder, None)
        self.bare_nodes.pop(f"{folder}/{partition}", None)
        if old is None:
            self.orphans[state_path(topic, partition)] = data, version
            return
        state = decode_state(topic, partition, data)
        new = PartitionImage(
            old.replicas,
            state.leader,
            state.leader_epoch,
            state.isr,
            PartitionEpoch(version),
            state.controller_epoch,
            old.adding,
            old.removing,
        )
        self.image.apply(PartitionChanged(topic, partition, new))
        if mzxid >= 0:
            self.written[TopicPartition(topic, partition)] = mzxid

    def _remove_state(self, topic: str, partition: int) -> None:
        self.orphans.pop(state_path(topic, partition), None)
        old = self.image.partition(TopicPartition(topic, partition))
        if old is not None:
            stripped = replace(
                old,
                leader=NO_LEADER,
                leader_epoch=NO_LEADER_EPOCH,
                isr=(),
                partition_epoch=NO_PARTITION_EPOCH,
                controller_epoch=NO_CONTROLLER_EPOCH,
            )
            self.image.apply(PartitionChanged(topic, partition, stripped))
