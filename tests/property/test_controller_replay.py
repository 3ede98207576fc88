"""Whatever happens, in whatever order: live state equals replayed state, and the partitions' states stay sound.

What a controller knows is what another one reads from the store. And after every event: the leader is in the ISR, the
ISR among the replicas; leader and partition epochs never decrease, an epoch has one leader and no two ISRs of one
version; who leads was in sync before and not known to have lost records, but for unclean elections, which are counted,
and none where none is allowed.
"""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amount import examples
from tests.unit.controller.harness import SESSION, Cluster, broker

from tidelog.controller.events import (
    ConfigsChanged,
    DeletionsRequested,
    LeaderBalanceDue,
    LogDirectoryFailed,
    LogEndsDue,
    LogEndsLearned,
    MarksChanged,
    PreferredElectionRequested,
    ReassignmentsRequested,
    ReplicasFailed,
    ReplicasStopped,
    Submitted,
    TopicNode,
    TopicsChanged,
)
from tidelog.controller.requests import (
    AllocateProducerIds,
    AlterConfigs,
    AlterOperation,
    AlterPartition,
    AlterReassignments,
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
    ReassignPartition,
    TopicReference,
)
from tidelog.controller.result import Result
from tidelog.metadata.image import ConfigResource, ConfigResourceType, PartitionImage
from tidelog.metadata.operations import Create, Delete, Operation, SetData
from tidelog.metadata.replica_marks import (
    MARKS,
    ReplicaDamage,
    ReplicaMark,
    decode_replica_mark,
    encode_replica_mark,
    parse_mark_name,
    replica_mark_path,
    unclean_stop_path,
)
from tidelog.metadata.znodes import (
    PREFERRED_ELECTION,
    REASSIGN_PARTITIONS,
    PartitionState,
    TopicAssignment,
    config_path,
    decode_state,
    delete_topic_path,
    encode_config,
    encode_partitions,
    encode_reassignment,
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
    Offset,
    PartitionEpoch,
    TopicPartition,
)

STATE = re.compile("/brokers/topics/([^/]+)/partitions/([0-9]+)/state")
BROKERS = (0, 1, 2, 3)
names = st.sampled_from(["a", "b", "c"])
mostly_right = st.sampled_from([0] * 8 + [1, -1])
some_partitions = st.lists(st.tuples(names, st.integers(-1, 3)), max_size=3)
brokers = st.sampled_from(BROKERS)

targets = st.lists(brokers, max_size=4, unique=True)
some_targets = st.lists(st.tuples(names, st.integers(-1, 3), targets), max_size=3)

proposals = st.tuples(
    st.just("propose"),
    st.sampled_from(["a", "a", "a", "b", "c"]),
    st.integers(0, 2),
    st.one_of(st.lists(brokers, max_size=4, unique=True), st.lists(st.integers(-1, 5), max_size=4)),
    st.tuples(mostly_right, mostly_right, mostly_right),
    st.one_of(st.none(), brokers),
)

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
    proposals,
    st.tuples(st.just("reassign"), names, st.integers(-1, 3), st.one_of(targets, targets, st.none())),
    st.tuples(st.just("catch up"), names, st.integers(0, 2)),
    st.tuples(st.just("tool: plan"), st.one_of(some_targets, some_targets, st.none())),
    st.tuples(st.just("tool: topic"), names, st.dictionaries(st.integers(0, 3), st.lists(brokers, max_size=3))),
    st.tuples(st.just("tool: remove"), names),
    st.tuples(st.just("tool: settings"), names, st.booleans()),
    st.tuples(st.just("tool: preferred"), some_partitions),
    st.tuples(st.just("tool: delete"), names),
    st.tuples(st.just("mark"), brokers, names, st.integers(0, 2), st.booleans()),
    st.tuples(st.just("mend"), brokers, names, st.integers(0, 2)),
    st.tuples(st.just("stopped uncleanly"), brokers),
    st.tuples(st.just("log ends"), brokers, st.integers(0, 3)),
    st.tuples(st.just("log ends due")),
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
        self.leaving: set[int] = set()
        """Brokers that asked to leave in this term, and were live ever since."""
        self.marked: set[str] = set()
        """Names of the marks before the event."""
        self.alone: set[tuple[str, int]] = set()
        """Partitions that had one replica before the event, or have one now."""
        self.write(Create(MARKS))
        for topic, partitions, replication_factor in (("a", 3, 3), ("b", 1, 2)):
            self.step(("create", topic, partitions, replication_factor))

    def ask(self, request: object) -> None:
        self.cluster.run(Submitted(1, request))  # type: ignore[arg-type]

    def step(self, step: tuple) -> None:  # type: ignore[type-arg]
        self.cluster.last = Result()
        self.by_hand = step[0] in ("elect", "elect some") and step[1] is ElectionType.UNCLEAN
        self.marked = self.marks()
        self.alone = self.sole_replicas()
        self.carry_out(step)
        self.alone |= self.sole_replicas()
        self.check_writes()

    def marks(self) -> set[str]:
        """Of topics as they are, and no earlier ones."""
        found = set()
        for path in self.cluster.tree.paths():
            parsed = parse_mark_name(path.removeprefix(f"{MARKS}/")) if path.startswith(f"{MARKS}/") else None
            topic = parsed and parsed[1] and self.cluster.controller.image.topics.get(parsed[1].topic)
            if topic and decode_replica_mark(self.cluster.tree.get(path)[0]).topic_id == topic.topic_id:
                found.add(path)
        return found

    def sole_replicas(self) -> set[tuple[str, int]]:
        partitions = self.cluster.controller.image.partitions()
        return {tuple(each) for each, image in partitions if len(set(image.replicas) - set(image.adding)) == 1}

    def mark(self, path: str, data: bytes | None) -> None:
        """A broker writes a mark, or removes one (None); the controller hears of it."""
        name, exists = path.removeprefix(f"{MARKS}/"), self.cluster.tree.exists(path) is not None
        if data is not None and not exists:
            self.write(Create(path, data))
            self.marked = self.marks()
            self.cluster.run(MarksChanged([self.cluster.node_read(path)]))
        elif data is None and exists:
            self.write(Delete(path))
            self.marked = self.marks()
            self.cluster.run(MarksChanged([], [name]))

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
                self.leaving.add(broker_id)
                self.ask(ControlledShutdown(broker_id, self.cluster.brokers[broker_id].epoch))
            case ("term",):
                self.controller_epoch += 1
                self.unclean = 0
                self.leaving.clear()
                self.cluster.term(self.controller_epoch)
            case ("balance",):
                self.cluster.run(LeaderBalanceDue())
            case ("reassign", name, partition, replicas):
                self.ask(AlterReassignments([ReassignPartition(TopicPartition(name, partition), replicas)]))
            case ("catch up", name, partition):
                self.catch_up(TopicPartition(name, partition))
            case ("mark", broker_id, name, partition, has_hole):
                topic = image.topics.get(name)
                if topic is not None:
                    damage = ReplicaDamage(Offset(1), LeaderEpoch(0), Offset(2), has_hole)
                    path = replica_mark_path(broker_id, TopicPartition(name, partition))
                    self.mark(path, encode_replica_mark(ReplicaMark(topic.topic_id, damage)))
            case ("mend", broker_id, name, partition):
                self.mark(replica_mark_path(broker_id, TopicPartition(name, partition)), None)
            case ("stopped uncleanly", broker_id):
                self.mark(unclean_stop_path(broker_id), b"")
            case ("log ends", broker_id, end):
                ends = {each: (LeaderEpoch(0), Offset(end)) for each, found in image.partitions() if found.leader < 0}
                self.cluster.run(LogEndsLearned(broker_id, ends))
            case ("log ends due",):
                self.cluster.run(LogEndsDue(1 << 40))
            case ("directory", broker_id):
                self.cluster.run(LogDirectoryFailed(broker_id))
            case ("elect some", type, partitions):
                self.ask(ElectLeaders(type, [TopicPartition(*each) for each in partitions]))
            case ("propose", name, partition, isr, off, broker_id):
                self.propose(TopicPartition(name, partition), isr, off, broker_id)
            case (kind, *rest) if kind.startswith("tool: "):
                self.use_tool(kind, *rest)

    def propose(
        self, topic_partition: TopicPartition, isr: list[int], off: tuple[int, int, int], broker_id: int | None
    ) -> None:
        """A proposal from the leader (None) or from anybody, with epochs that may be off by something."""
        image = self.cluster.controller.image.partition(topic_partition) or PartitionImage(())
        id = image.leader if broker_id is None else broker_id
        if broker_id is None and image.leader not in isr:
            isr = [image.leader, *isr]
        epochs = [self.epoch_of(member) for member in isr]
        epochs[-1:] = [epoch + off[2] for epoch in epochs[-1:]]
        members = [IsrMember(BrokerId(member), BrokerEpoch(epoch)) for member, epoch in zip(isr, epochs, strict=True)]
        proposal = IsrProposal(
            topic_partition,
            ZERO_TOPIC_ID,
            LeaderEpoch(image.leader_epoch + off[0]),
            members,
            PartitionEpoch(image.partition_epoch + off[1]),
        )
        self.ask(AlterPartition(BrokerId(id), BrokerEpoch(self.epoch_of(id)), [proposal]))
        if self.cluster.last.writes:
            # It was granted: to the leader, on the present state, for live replicas alone.
            assert (id, off[0], off[1]) == (image.leader, 0, 0)
            for member, epoch in zip(isr, epochs, strict=True):
                assert member in image.replicas
                assert epoch in (-1, self.epoch_of(member))
                assert member in image.isr or member not in self.leaving

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
                self.cluster.run(TopicsChanged([self.cluster.node(name)]))
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
                    _, stat = tree.get(config_path(resource))
                    self.cluster.run(ConfigsChanged(resource, values, stat.version))
            case ("tool: preferred", list() as partitions):
                chosen = [TopicPartition(*each) for each in partitions]
                self.write(Create(PREFERRED_ELECTION, encode_partitions(chosen)))
                self.cluster.run(PreferredElectionRequested(chosen))
            case ("tool: plan", None):
                if tree.exists(REASSIGN_PARTITIONS) is not None:
                    self.write(Delete(REASSIGN_PARTITIONS))
                    self.cluster.run(ReassignmentsRequested(None))
            case ("tool: plan", list() as wanted):
                plan = {TopicPartition(name, index): replicas for name, index, replicas in wanted}
                exists = tree.exists(REASSIGN_PARTITIONS) is not None
                data = encode_reassignment(plan)
                self.write(SetData(REASSIGN_PARTITIONS, data) if exists else Create(REASSIGN_PARTITIONS, data))
                self.cluster.run(ReassignmentsRequested(data))
            case ("tool: delete", str() as name):
                if tree.exists(delete_topic_path(name)) is None:
                    self.write(Create(delete_topic_path(name)))
                    self.cluster.run(DeletionsRequested([name]))

    def write(self, operation: Operation) -> None:
        self.cluster.tree.transact(SESSION, [operation], 0)

    def change_brokers(self, ids: set[int], *, bounce: bool) -> None:
        now = []
        self.leaving &= set() if bounce else ids
        for id in sorted(ids):
            known = self.cluster.brokers.get(id)  # type: ignore[call-overload]
            if known is None or bounce:
                self.epoch += 1
                known = broker(id, self.epoch)
            now.append(known)
        self.cluster.live(*now)

    def catch_up(self, topic_partition: TopicPartition) -> None:
        """All replicas that may be in sync are."""
        state = self.cluster.controller.state
        image = state.image.partition(topic_partition)
        if image is None or image.leader not in self.cluster.brokers:
            return
        joining = [id for id in image.replicas if id not in image.isr and state.is_online(id, topic_partition)]
        self.propose(topic_partition, [*image.isr, *joining], (0, 0, 0), None)

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
            assert now.leader in (before.leader, NO_LEADER) or now.leader not in self.leaving
            if now.leader in (NO_LEADER, before.leader):
                continue
            is_damaged = replica_mark_path(now.leader, TopicPartition(*key)) in self.marked and key not in self.alone
            if now.leader not in before.isr or is_damaged:
                assert now.isr == (now.leader,)
                assert key[0] in unclean_allowed or self.by_hand
                self.unclean += 1
        assert self.unclean == self.cluster.controller.unclean_elections

    def check(self) -> None:
        live, loaded = self.cluster.controller.state, self.cluster.loaded(self.controller_epoch).state
        assert loaded.image == live.image
        assert loaded.topic_versions == live.topic_versions
        assert loaded.config_versions == live.config_versions
        assert list(loaded.deleting) == sorted(live.deleting)
        assert loaded.plan == live.plan
        assert loaded.producer_id_block == live.producer_id_block
        assert loaded.producer_id_block_version == live.producer_id_block_version
        assert loaded.bare_nodes == live.bare_nodes
        assert loaded.malformed == live.malformed == {}
        assert sorted(loaded.marks.names) == sorted(live.marks.names)
        for topic_partition in live.marks.partitions():
            assert loaded.damaged_replicas(topic_partition) == live.damaged_replicas(topic_partition)
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
                whole = live.whole_replicas(topic_partition, image.isr)
                assert not any(live.is_online(id, topic_partition) for id in whole)


@settings(max_examples=examples(600))
@given(script=st.lists(steps, max_size=20))
def test_live_state_equals_replayed_state(script: list[tuple]) -> None:  # type: ignore[type-arg]
    """After every event, another controller that loads the store knows the same; leaders live, in their ISR.

    And no partition is leaderless while a member of its ISR is online.
    """
    run = Run()
    for step in script:
        run.step(step)
        run.check()


@pytest.mark.parametrize("seed", range(20))
def test_a_long_life(seed: int) -> None:
    """The same over 500 events of a cluster that lives: brokers come and go, leaders propose what they may, mostly."""
    draw, run = random.Random(seed), Run()
    for count in range(500):
        run.step(_likely(draw, run))
        if count % 4 == 0:
            run.check()


LIKELY = {"propose": 40, "live": 16, "stopped": 8, "shut down": 6, "create": 6, "balance": 6}
LIKELY |= {"elect": 3, "term": 3, "fail": 2, "tool": 2, "configure": 1, "delete": 1}
LIKELY |= {"mark": 8, "mend": 4, "stopped uncleanly": 1, "log ends": 3, "log ends due": 1}


def _likely(draw: random.Random, run: Run) -> tuple:  # type: ignore[type-arg]
    """A step that makes sense at this time, more often than not."""
    image = run.cluster.controller.image
    led = [each for each, found in image.partitions() if found.leader in image.brokers]
    kind = draw.choices(list(LIKELY), list(LIKELY.values()))[0]
    name, broker_id = draw.choice("ab"), draw.choice(BROKERS)
    match kind:
        case "propose" if led:
            topic_partition = draw.choice(led)
            found = image.partition(topic_partition)
            assert found is not None
            pool = BROKERS if draw.random() < 0.15 else found.replicas
            isr = draw.sample(pool, draw.randint(0, len(pool)))
            off = tuple(draw.choice((-1, 1)) if draw.random() < 0.08 else 0 for _ in range(3))
            return kind, *topic_partition, isr, off, None if draw.random() < 0.95 else broker_id
        case "live":
            changed = draw.choice(BROKERS)
            return kind, set(run.cluster.brokers).symmetric_difference({changed}), draw.random() < 0.2
        case "elect":
            return kind, draw.choice(list(ElectionType))
        case "fail":
            return kind, broker_id, name
        case "configure":
            return kind, name, "unclean.leader.election.enable"
        case "create":
            return kind, name, draw.randint(1, 3), draw.randint(2, 3)
        case "shut down" | "stopped":
            return kind, broker_id
        case "delete":
            return kind, name
        case "mark":
            return kind, broker_id, name, draw.randint(0, 2), draw.random() < 0.3
        case "mend":
            return kind, broker_id, name, draw.randint(0, 2)
        case "stopped uncleanly":
            return kind, broker_id
        case "log ends":
            return kind, broker_id, draw.randint(0, 3)
        case "log ends due":
            return (kind,)
        case "tool":
            return "tool: topic", name, {index: draw.sample(BROKERS, 2) for index in range(draw.randint(1, 4))}
    return ("balance",) if kind == "propose" else (kind,)
