"""Live state equals replayed state: what a controller knows is what another one reads from the store."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.controller.harness import Cluster, broker

from tidelog.controller.events import (
    AllocateProducerIds,
    AlterConfigs,
    AlterOperation,
    AlterPartition,
    ChangeConfigs,
    ConfigChange,
    ControlledShutdown,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectionType,
    ElectLeaders,
    IsrMember,
    IsrProposal,
    MorePartitions,
    NewTopic,
    ReplicasFailed,
    ReplicasStopped,
    Submitted,
    TopicReference,
)
from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import NO_LEADER, ZERO_TOPIC_ID, TopicPartition

BROKERS = (0, 1, 2, 3)
names = st.sampled_from(["a", "b", "c"])
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
)


class Run:
    """Carries steps out on a cluster; each broker that comes back has a higher epoch."""

    def __init__(self) -> None:
        self.cluster = Cluster(*map(broker, BROKERS))
        self.epoch = 1_000
        self.controller_epoch = 1

    def ask(self, request: object) -> None:
        self.cluster.run(Submitted(1, request))  # type: ignore[arg-type]

    def step(self, step: tuple) -> None:  # type: ignore[type-arg]
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
                self.cluster.term(self.controller_epoch)

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
