"""Whatever happens, in whatever order: live state equals replayed state, and the partitions' states stay sound.

What a controller knows is what another one reads from the store. And after every event: the leader is in the ISR, the
ISR among the replicas; leader and partition epochs never decrease, an epoch has one leader and no two ISRs of one
version; who leads was in sync before, but for unclean elections, which are counted, and none where none is allowed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.controller.harness import SESSION, Cluster, broker

from tidelog.controller.events import (
    AllocateProducerIds,
    AlterConfigs,
    AlterOperation,
    AlterPartition,
    ChangeConfigs,
    ConfigChange,
    ConfigsChanged,
    ControlledShutdown,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    DeletionsRequested,
    ElectionType,
    ElectLeaders,
    IsrMember,
    IsrProposal,
    LeaderBalanceDue,
    LogDirectoryFailed,
    MorePartitions,
    NewTopic,
    PreferredElectionRequested,
    ReplicasFailed,
    ReplicasStopped,
    Result,
    Submitted,
    TopicNode,
    TopicReference,
    TopicsChanged,
)
from tidelog.metadata.image import ConfigResource, ConfigResourceType, PartitionImage
from tidelog.metadata.operations import Create, Delete, Operation, SetData
from tidelog.metadata.znodes import (
    PREFERRED_ELECTION,
    PartitionState,
    TopicAssignment,
    config_path,
    decode_state,
    delete_topic_path,
    encode_config,
    encode_partitions,
    encode_topic,
    topic_path,
)
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import (
    NO_LEADER,
    ZERO_TOPIC_ID,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicPartition,
)

STATE = re.compile("/brokers/topics/([^/]+)/partitions/([0-9]+)/state")
BROKERS = (0, 1, 2, 3)
names = st.sampled_from(["a", "b", "c"])
some_partitions = st.lists(st.tuples(names, st.integers(-1, 3)), max_size=3)
brokers = st.sampled_from(BROKERS)

steps = st.one_of(
    st.tuples(st.just("create"), names, st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.just("grow"), names, st.integers(1, 5)),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("stopped"), brokers),
    st.tuples(st.just("live"), st.sets(brokers), st.booleans()),
    st.tuples(st.just("configure"), names, st.sampled_from(["flush.ms", "unclean.leader.election.enable"])),
    st.tuples(st.just("shrink"), names, st.integers(0, 2), st.integers(0, 2)),
    st.tuples(st.just("fail"), brokers, names),
    st.tuples(st.just("elect"), st.sampled_from(list(ElectionType))),
    st.tuples(st.just("producer ids"), brokers),
    st.tuples(st.just("shut down"), brokers),
    st.tuples(st.just("term")),
    st.tuples(st.just("balance")),
    st.tuples(st.just("directory"), brokers),
    st.tuples(
        st.just("elect some"), st.sampled_from(list(ElectionType)), st.lists(st.tuples(names, st.integers(-1, 3)))
    ),
    st.tuples(
        st.just("propose"),
        names,
        st.integers(0, 2),
        st.lists(st.integers(-1, 5), max_size=4),
        st.tuples(st.integers(-2, 2), st.integers(-2, 2), st.integers(-1, 1)),
        brokers,
    ),
    st.tuples(st.just("tool: topic"), names, st.dictionaries(st.integers(0, 3), st.lists(brokers, max_size=3))),
    st.tuples(st.just("tool: remove"), names),
    st.tuples(st.just("tool: settings"), names, st.booleans()),
    st.tuples(st.just("tool: preferred"), some_partitions),
    st.tuples(st.just("tool: delete"), names),
)


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """What strangers did to the store is logged once a time: too much to read after a failure."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


class Run:
    """Carries steps out on a cluster; each broker that comes back has a higher epoch."""

    def __init__(self) -> None:
        self.cluster = Cluster(*map(broker, BROKERS))
        self.epoch = 1_000
        self.controller_epoch = 1
        self.states: dict[tuple[str, int], PartitionState] = {}
        """By topic and partition: the state written last."""
        self.by_hand = False
        """Whether the event was an unclean election that somebody asked for."""
        self.unclean = 0

    def ask(self, request: object) -> None:
        self.cluster.run(Submitted(1, request))  # type: ignore[arg-type]

    def step(self, step: tuple) -> None:  # type: ignore[type-arg]
        self.cluster.last = Result()
        self.by_hand = step[0] in ("elect", "elect some") and step[1] is ElectionType.UNCLEAN
        self.carry_out(step)
        self.check_writes()

    def carry_out(self, step: tuple) -> None:  # type: ignore[type-arg]
        image = self.cluster.controller.image
        match step:
            case ("create", name, partitions, replication_factor):
                self.ask(CreateTopics([NewTopic(name, partitions, replication_factor)]))
            case ("grow", name, count):
                self.ask(CreatePartitions([MorePartitions(name, count)]))
            case ("delete", name):
                self.ask(DeleteTopics([TopicReference(name)]))
            case ("stopped", broker_id):
                gone = [each for each, _ in image.partitions() if each.topic in self.cluster.controller.state.deleting]
                self.cluster.run(ReplicasStopped(broker_id, dict.fromkeys(gone, ErrorCode.NONE)))
            case ("live", ids, bounce):
                self.change_brokers(ids, bounce=bounce)
            case ("configure", name, setting):
                value = "true" if setting.endswith("enable") else "5"
                change = ConfigChange(setting, AlterOperation.SET, value)
                self.ask(AlterConfigs([ChangeConfigs(ConfigResource(ConfigResourceType.TOPIC, name), [change])]))
            case ("shrink", name, partition, keep):
                self.change_isr(TopicPartition(name, partition), keep)
            case ("fail", broker_id, name):
                partitions = [each for each, _ in image.partitions() if each.topic == name]
                self.cluster.run(ReplicasFailed(broker_id, partitions))
            case ("elect", type):
                self.ask(ElectLeaders(type))
            case ("producer ids", broker_id) if broker_id in self.cluster.brokers:
                self.ask(AllocateProducerIds(broker_id, self.cluster.brokers[broker_id].epoch))
            case ("shut down", broker_id) if broker_id in self.cluster.brokers:
                self.ask(ControlledShutdown(broker_id, self.cluster.brokers[broker_id].epoch))
            case ("term",):
                self.controller_epoch += 1
                self.unclean = 0
                self.cluster.term(self.controller_epoch)
            case ("balance",):
                self.cluster.run(LeaderBalanceDue())
            case ("directory", broker_id):
                self.cluster.run(LogDirectoryFailed(broker_id))
            case ("elect some", type, partitions):
                self.ask(ElectLeaders(type, [TopicPartition(*each) for each in partitions]))
            case ("propose", name, partition, isr, off, broker_id):
                self.propose(TopicPartition(name, partition), isr, off, broker_id)
            case (kind, *rest) if kind.startswith("tool: "):
                self.use_tool(kind, *rest)

    def propose(self, topic_partition: TopicPartition, isr: list[int], off: tuple[int, int, int], id: int) -> None:
        """A proposal from anybody, with epochs that are off by something."""
        image = self.cluster.controller.image.partition(topic_partition) or PartitionImage(())
        members = [
            IsrMember(BrokerId(member), BrokerEpoch(self.epoch_of(member) + off[2] * (member == isr[0])))
            for member in isr
        ]
        proposal = IsrProposal(
            topic_partition,
            ZERO_TOPIC_ID,
            LeaderEpoch(image.leader_epoch + off[0]),
            members,
            PartitionEpoch(image.partition_epoch + off[1]),
        )
        self.ask(AlterPartition(BrokerId(id), BrokerEpoch(self.epoch_of(id)), [proposal]))

    def epoch_of(self, id: int) -> int:
        known = self.cluster.brokers.get(BrokerId(id))
        return -1 if known is None else known.epoch

    def use_tool(self, kind: str, *what: object) -> None:
        """What old tools and strangers do in the store, and the controller's watches after it."""
        tree, image = self.cluster.tree, self.cluster.controller.image
        match (kind, *what):
            case ("tool: topic", str() as name, dict() as assignment):
                topic = image.topics.get(name)
                data = encode_topic(TopicAssignment(assignment, topic.topic_id if topic else ZERO_TOPIC_ID))
                path = topic_path(name)
                self.write(Create(path, data) if tree.exists(path) is None else SetData(path, data))
                self.cluster.run(TopicsChanged([TopicNode(name, data)]))
            case ("tool: remove", str() as name):
                below = [each for each in tree.paths() if f"{each}/".startswith(f"{topic_path(name)}/")]
                for path in sorted(below, reverse=True):
                    self.write(Delete(path))
                for key in [key for key in self.states if key[0] == name]:
                    del self.states[key]
                if name in image.topics:
                    self.cluster.run(TopicsChanged([TopicNode(name, None)]))
            case ("tool: settings", str() as name, bool() as unclean):
                resource = ConfigResource(ConfigResourceType.TOPIC, name)
                if name in image.topics and resource in image.configs:
                    values = {"unclean.leader.election.enable": str(unclean).lower()}
                    self.write(SetData(config_path(resource), encode_config(values)))
                    self.cluster.run(ConfigsChanged(resource, values))
            case ("tool: preferred", list() as partitions):
                chosen = [TopicPartition(*each) for each in partitions]
                self.write(Create(PREFERRED_ELECTION, encode_partitions(chosen)))
                self.cluster.run(PreferredElectionRequested(chosen))
            case ("tool: delete", str() as name):
                if tree.exists(delete_topic_path(name)) is None:
                    self.write(Create(delete_topic_path(name)))
                    self.cluster.run(DeletionsRequested([name]))

    def write(self, operation: Operation) -> None:
        self.cluster.tree.transact(SESSION, [operation], 0)

    def change_brokers(self, ids: set[int], *, bounce: bool) -> None:
        now = []
        for id in sorted(ids):
            known = self.cluster.brokers.get(id)  # type: ignore[call-overload]
            if known is None or bounce:
                self.epoch += 1
                known = broker(id, self.epoch)
            now.append(known)
        self.cluster.live(*now)

    def change_isr(self, topic_partition: TopicPartition, keep: int) -> None:
        image = self.cluster.controller.image.partition(topic_partition)
        if image is None or image.leader == NO_LEADER or image.leader not in self.cluster.brokers:
            return
        isr = [id for id in image.replicas if id == image.leader or image.replicas.index(id) < keep]
        proposal = IsrProposal(
            topic_partition, ZERO_TOPIC_ID, image.leader_epoch, [IsrMember(id) for id in isr], image.partition_epoch
        )
        self.ask(AlterPartition(image.leader, self.cluster.brokers[image.leader].epoch, [proposal]))

    def check_writes(self) -> None:
        """Every state that the last event wrote, beside the one before it."""
        unclean_allowed = {
            resource.name
            for resource, values in self.cluster.controller.image.configs.items()
            if values.get("unclean.leader.election.enable") == "true"
        }
        for write in self.cluster.last.writes:
            match = STATE.fullmatch(write.operation.path)
            if match is None:
                continue
            key = match[1], int(match[2])
            if isinstance(write.operation, Delete):
                self.states.pop(key, None)
                continue
            assert isinstance(write.operation, Create | SetData)
            now = decode_state(*key, write.operation.data)
            before = self.states.get(key)
            self.states[key] = now
            assert now.leader == NO_LEADER or now.leader in now.isr
            if before is None:
                continue
            assert now.leader_epoch >= before.leader_epoch
            assert now.leader_epoch > before.leader_epoch or now.leader == before.leader
            assert now.controller_epoch >= before.controller_epoch
            if now.leader not in (NO_LEADER, *before.isr):
                assert now.isr == (now.leader,)
                assert key[0] in unclean_allowed or self.by_hand
                self.unclean += 1
        assert self.unclean == self.cluster.controller.unclean_elections

    def check(self) -> None:
        live, loaded = self.cluster.controller.state, self.cluster.loaded(self.controller_epoch).state
        assert loaded.image == live.image
        assert list(loaded.deleting) == sorted(live.deleting)
        assert loaded.producer_id_block == live.producer_id_block
        assert loaded.producer_id_block_version == live.producer_id_block_version
        assert loaded.bare_nodes == live.bare_nodes
        assert loaded.malformed == live.malformed == {}
        for topic_partition, image in live.image.partitions():
            if not image.has_state or topic_partition.topic in live.deleting:
                continue
            assert image.isr
            assert set(image.isr) <= set(image.replicas)
            if image.leader != NO_LEADER:
                assert image.leader in image.isr
                # Who is shutting down still leads what nobody else can.
                assert image.leader in live.image.brokers
                assert topic_partition not in live.failed_replicas.get(image.leader, ())
            else:
                assert not any(live.is_online(id, topic_partition) for id in image.isr)


@settings(max_examples=300)
@given(script=st.lists(steps, max_size=20))
def test_live_state_equals_replayed_state(script: list[tuple]) -> None:  # type: ignore[type-arg]
    """After every event, another controller that loads the store knows the same; leaders live, in their ISR.

    And no partition is leaderless while a member of its ISR is online.
    """
    run = Run()
    for step in script:
        run.step(step)
        run.check()
