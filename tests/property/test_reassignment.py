"""Whatever happens while partitions move: nothing that is committed is lost, and all get where they were sent.

A model of the brokers' disks goes with the controller: a record is committed when every member of the ISR has it, who
joins the ISR has copied all of it, and who is told to stop with its files has nothing any more. Brokers die, bounce and
leave, directories fail, reassignments are begun, replaced and cancelled, by request and by plan, and controllers are
replaced by others that know only the store.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.amount import examples
from tests.unit.controller.harness import SESSION, Cluster, broker

from tidelog.controller.events import LeaderBalanceDue, ReassignmentsRequested, ReplicasFailed, Submitted
from tidelog.controller.requests import (
    AlterPartition,
    AlterReassignments,
    ControlledShutdown,
    IsrMember,
    IsrProposal,
    ReassignPartition,
)
from tidelog.metadata.image import PartitionImage
from tidelog.metadata.operations import Create, SetData
from tidelog.metadata.znodes import REASSIGN_PARTITIONS, encode_reassignment
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import NO_LEADER, ZERO_TOPIC_ID, BrokerId, TopicPartition
from tidelog.protocol.apis import ApiKey

BROKERS = range(5)
PARTITIONS = [TopicPartition("t", index) for index in range(3)]
brokers = st.sampled_from(BROKERS)
indexes = st.integers(0, len(PARTITIONS) - 1)
targets = st.lists(brokers, min_size=1, max_size=4, unique=True)

steps = st.one_of(
    st.tuples(st.just("reassign"), indexes, targets),
    st.tuples(st.just("reassign"), indexes, targets),
    st.tuples(st.just("cancel"), indexes),
    st.tuples(st.just("plan"), st.dictionaries(indexes, targets, min_size=1)),
    st.tuples(st.just("join"), indexes, brokers),
    st.tuples(st.just("join"), indexes, brokers),
    st.tuples(st.just("leave"), indexes, brokers),
    st.tuples(st.just("append"), indexes),
    st.tuples(st.just("die"), brokers),
    st.tuples(st.just("come"), brokers),
    st.tuples(st.just("bounce"), brokers),
    st.tuples(st.just("shut down"), brokers),
    st.tuples(st.just("fail"), brokers, indexes),
    st.tuples(st.just("balance")),
    st.tuples(st.just("term")),
)


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Elections are logged, thousands of them."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


class Run:
    """The controller, and what is on the brokers' disks."""

    def __init__(self) -> None:
        self.cluster = Cluster(*map(broker, BROKERS))
        self.cluster.make("t", [0, 1, 2], [1, 2], [3])
        self.epoch = 1_000
        self.controller_epoch = 1
        self.committed = dict.fromkeys(PARTITIONS, 0)
        """Records that were acknowledged."""
        self.held: dict[tuple[TopicPartition, int], int] = {}
        """By partition and broker: how many records, of those committed, its log has."""
        self.wanted: dict[TopicPartition, tuple[int, ...]] = {}
        """The targets asked for last, and not cancelled."""
        self.told: dict[tuple[TopicPartition, int], tuple[int, tuple[int, ...]]] = {}
        """By partition and broker, in this life of it: the leader epoch and the replicas of its last order."""
        self.before: dict[TopicPartition, PartitionImage] = {}
        """The partitions before the last step."""
        self.cluster.term(1)
        self.obey()

    def step(self, step: tuple) -> None:  # type: ignore[type-arg]
        self.before = {each: self.image(each) for each in PARTITIONS}
        match step:
            case ("reassign", index, replicas):
                self.ask_for(PARTITIONS[index], replicas)
            case ("cancel", index):
                self.ask_for(PARTITIONS[index], None)
            case ("plan", chosen):
                self.write_plan({PARTITIONS[index]: replicas for index, replicas in chosen.items()})
            case ("join", index, id):
                self.propose(PARTITIONS[index], joins=id)
            case ("leave", index, id):
                self.propose(PARTITIONS[index], leaves=id)
            case ("append", index):
                self.append(PARTITIONS[index])
            case ("die", id):
                self.live([known for known in self.cluster.brokers if known != id])
            case ("come", id) if id not in self.cluster.brokers:
                self.live([*self.cluster.brokers], anew=id)
            case ("bounce", id) if id in self.cluster.brokers:
                self.live([known for known in self.cluster.brokers if known != id], anew=id)
            case ("shut down", id) if id in self.cluster.brokers:
                self.ask(ControlledShutdown(id, self.cluster.brokers[id].epoch))
            case ("fail", id, index):
                self.fail(id, PARTITIONS[index])
            case ("balance",):
                self.cluster.run(LeaderBalanceDue())
                self.obey()
            case ("term",):
                self.controller_epoch += 1
                self.cluster.term(self.controller_epoch)
                self.obey()
        self.check()

    def ask(self, request: object) -> object:
        self.cluster.run(Submitted(1, request))  # type: ignore[arg-type]
        self.obey()
        [(_, answer)] = self.cluster.last.replies
        return answer

    def ask_for(self, topic_partition: TopicPartition, replicas: list[int] | None) -> None:
        wish = ReassignPartition(topic_partition, None if replicas is None else [BrokerId(id) for id in replicas])
        [outcome] = self.ask(AlterReassignments([wish]))  # type: ignore[misc]
        if outcome.error is ErrorCode.NONE:
            self.wanted.pop(topic_partition, None)
            if replicas is not None:
                self.wanted[topic_partition] = tuple(replicas)

    def write_plan(self, plan: dict[TopicPartition, list[int]]) -> None:
        data = encode_reassignment(plan)
        exists = self.cluster.tree.exists(REASSIGN_PARTITIONS) is not None
        write = SetData(REASSIGN_PARTITIONS, data) if exists else Create(REASSIGN_PARTITIONS, data)
        before = self.cluster.controller.state.plan or {}
        self.cluster.tree.transact(SESSION, [write], 0)
        self.cluster.run(ReassignmentsRequested(data))
        self.obey()
        for topic_partition, replicas in plan.items():
            if before.get(topic_partition) != tuple(replicas):
                self.wanted[topic_partition] = tuple(replicas)

    def propose(self, topic_partition: TopicPartition, joins: int = -1, leaves: int = -1) -> None:
        """The leader's wish: who joins follows the leader, which knows it, and has copied everything."""
        image = self.image(topic_partition)
        live = self.cluster.brokers
        if image.leader not in live:
            return
        isr = [id for id in image.isr if id in live and (id != leaves or id == image.leader)]
        follows, _ = self.told.get((topic_partition, joins), (-1, ()))
        leads, known = self.told.get((topic_partition, image.leader), (-1, ()))
        if joins in live and joins in known and joins not in isr and follows == leads == image.leader_epoch:
            isr.append(BrokerId(joins))
        members = [IsrMember(id, live[id].epoch) for id in isr]
        proposal = IsrProposal(topic_partition, ZERO_TOPIC_ID, image.leader_epoch, members, image.partition_epoch)
        held = dict(self.held)
        if joins in isr:
            self.held[topic_partition, joins] = self.committed[topic_partition]
        [outcome] = self.ask(AlterPartition(image.leader, live[image.leader].epoch, [proposal]))  # type: ignore[misc]
        if outcome.error is not ErrorCode.NONE:
            self.held = held

    def append(self, topic_partition: TopicPartition) -> None:
        """A record is committed: everybody in sync has it."""
        image = self.image(topic_partition)
        if image.leader in self.cluster.brokers:
            self.committed[topic_partition] += 1
            for id in image.isr:
                self.held[topic_partition, id] = self.committed[topic_partition]

    def live(self, ids: list[int], anew: int = -1) -> None:
        now = [self.cluster.brokers[BrokerId(id)] for id in ids]
        self.told = {key: order for key, order in self.told.items() if key[1] in ids}
        if anew >= 0:
            self.epoch += 1
            now.append(broker(anew, self.epoch))
        self.cluster.live(*now)
        self.obey()

    def fail(self, id: int, topic_partition: TopicPartition) -> None:
        """The broker's directory with that replica is gone, for as long as it lives."""
        if id in self.cluster.brokers and id in self.image(topic_partition).replicas:
            self.cluster.run(ReplicasFailed(BrokerId(id), [topic_partition]))
            self.obey()

    def obey(self) -> None:
        """Brokers carry out what they were told: replicas that are to go are gone."""
        for send in self.cluster.last.sends:
            if send.key not in (ApiKey.STOP_REPLICA, ApiKey.LEADER_AND_ISR):
                continue
            for topic in send.message.topic_states:
                for state in topic.partition_states:
                    key = TopicPartition(topic.topic_name, state.partition_index), int(send.broker_id)
                    if send.key == ApiKey.LEADER_AND_ISR:
                        self.told[key] = state.leader_epoch, tuple(state.replicas)
                    else:
                        self.told.pop(key, None)
                        if state.delete_partition:
                            self.held.pop(key, None)

    def image(self, topic_partition: TopicPartition) -> PartitionImage:
        return self.cluster.partition(*topic_partition)

    def check(self) -> None:
        state = self.cluster.controller.state
        loaded = self.cluster.loaded(self.controller_epoch).state
        assert (loaded.image, loaded.plan) == (state.image, state.plan)
        for topic_partition in PARTITIONS:
            image = self.image(topic_partition)
            assert image.isr
            assert set(image.isr) <= set(image.replicas)
            assert len(set(image.replicas)) == len(image.replicas)
            assert set(image.adding) | set(image.removing) <= set(image.replicas)
            assert not set(image.adding) & set(image.removing)
            assert image.leader == NO_LEADER or image.leader in image.isr
            # Nobody comes later to elect one of those that could lead now.
            assert image.leader != NO_LEADER or not any(state.is_online(id, topic_partition) for id in image.isr)
            before = self.before.get(topic_partition, image)
            if before.is_reassigning and not image.is_reassigning:
                # It has arrived, or is back where it came from.
                assert set(image.replicas) in (set(image.isr), set(before.replicas) - set(before.adding))
            for id in image.isr:
                assert self.held.get((topic_partition, id), 0) == self.committed[topic_partition]
        assert self.cluster.controller.unclean_elections == 0

    def settle(self) -> None:
        """All brokers are live, with new directories, and all replicas catch up: everything arrives."""
        for id in BROKERS:
            self.step(("bounce", id) if id in self.cluster.brokers else ("come", id))
        for topic_partition in PARTITIONS:
            for id in BROKERS:
                self.propose(topic_partition, joins=id)
                self.check()
            image = self.image(topic_partition)
            assert not image.is_reassigning
            assert set(image.isr) == set(image.replicas)
            if topic_partition in self.wanted:
                assert image.replicas == self.wanted[topic_partition]
        assert not self.cluster.controller.state.plan
        assert self.cluster.tree.exists(REASSIGN_PARTITIONS) is None


DROPPED_LEADER = [
    ("reassign", 0, [3, 4]),
    ("join", 0, 3),
    ("die", 0),
    ("come", 0),
    ("join", 0, 0),
    ("reassign", 0, [4]),
]
"""A reassignment is replaced while one that only it was adding leads."""


@settings(max_examples=examples(500))
@example(script=DROPPED_LEADER)
@given(script=st.lists(steps, max_size=25))
def test_nothing_is_lost_and_all_arrive(script: list[tuple]) -> None:  # type: ignore[type-arg]
    """Random lives."""
    run = Run()
    for step in script:
        run.step(step)
    run.settle()


@pytest.mark.parametrize("seed", range(6))
def test_a_long_life(seed: int) -> None:
    """The same over 300 events, most of which make sense when they happen."""
    draw, run = random.Random(seed), Run()
    for _ in range(300):
        index, id = draw.randrange(len(PARTITIONS)), draw.choice(BROKERS)
        image = run.image(PARTITIONS[index])
        target = draw.sample(BROKERS, draw.randint(1, 3))
        absent = [each for each in BROKERS if each not in run.cluster.brokers]
        missing = [each for each in image.replicas if each not in image.isr and each in run.cluster.brokers]
        run.step(
            draw.choices(
                [
                    ("reassign", index, target),
                    ("cancel", index),
                    ("plan", {index: target}),
                    ("join", index, draw.choice(missing) if missing else id),
                    ("leave", index, id),
                    ("append", index),
                    ("die", id),
                    ("come", draw.choice(absent) if absent else id),
                    ("bounce", id),
                    ("shut down", id),
                    ("fail", id, index),
                    ("balance",),
                    ("term",),
                ],
                [6, 6, 3, 30, 10, 10, 10, 10, 4, 2, 2, 2, 2],
            )[0]
        )
    run.settle()
