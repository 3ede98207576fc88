"""The shell around the controller: registration, election, writes in order, announcements, failures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

import pytest
from tests.waiting import eventually

from tidelog.broker.cluster import broker_channel, controller_term, elections
from tidelog.broker.cluster.controller_driver import ControllerDriver
from tidelog.broker.cluster.membership import CHANGE_NOTIFICATION_AGE_MS_MAX, Membership, generate_broker_id
from tidelog.controller import deletions
from tidelog.controller.events import LogEndsDue
from tidelog.controller.requests import (
    AlterConfigs,
    AlterOperation,
    ChangeConfigs,
    ConfigChange,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    ReplaceConfigs,
    TopicReference,
)
from tidelog.controller.result import Timer
from tidelog.controller.settings import ControllerSettings
from tidelog.metadata import znodes
from tidelog.metadata.image import BrokerRegistration, ConfigResource, ConfigResourceType, Endpoint
from tidelog.metadata.operations import Check, Create, Delete, Operation, SetData
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import (
    NO_LEADER,
    ZERO_TOPIC_ID,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    format_topic_id,
)
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.store.client import Created, OperationResult, SessionState, Stat, Watch
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.errors import BadVersion, NoAuth, SessionExpired, StoreError
from tidelog.store.local import LocalStore
from tidelog.store.persistence import MemoryPersistence

T = ConfigResource(ConfigResourceType.TOPIC, "api")
LAST = (1 << 31) - 1
"""The highest epoch."""


class ManualClock:
    """Wall time that a test moves."""

    def __init__(self) -> None:
        self.now_ms = 1_795_243_446_749

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class Counting:
    """Randomness that counts."""

    def __init__(self) -> None:
        self.tokens = 0

    def below(self, bound: int) -> int:
        return 0

    def token(self, size: int) -> bytes:
        self.tokens += 1
        return self.tokens.to_bytes(size, "big")


class Recording(LocalStore):
    """A session that notes every write, one line each: `*` stands for a check of the controller's epoch before it."""

    transcript: list[str]

    def create(
        self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False
    ) -> Awaitable[Created]:
        self.transcript.append(line(Create(path, data, ephemeral, sequential)))
        return super().create(path, data, ephemeral=ephemeral, sequential=sequential)

    def set(self, path: str, data: bytes | None, version: int = -1) -> Awaitable[Stat]:
        self.transcript.append(line(SetData(path, data, version)))
        return super().set(path, data, version)

    def delete(self, path: str, version: int = -1) -> Awaitable[None]:
        self.transcript.append(line(Delete(path, version)))
        return super().delete(path, version)

    def multi(self, operations: Sequence[Operation]) -> Awaitable[Sequence[OperationResult]]:
        fenced = isinstance(operations[0], Check)
        mark = "* " if fenced else ""
        self.transcript += [mark + line(operation) for operation in operations if not isinstance(operation, Check)]
        return super().multi(operations)


def line(operation: Operation) -> str:
    match operation:
        case Create(path, data, ephemeral):
            return f"create {path} {'ephemeral ' if ephemeral else ''}{(data or b'').decode()}".rstrip()
        case SetData(path, data):
            return f"set {path} {(data or b'').decode()}".rstrip()
        case Delete(path):
            return f"delete {path}"
        case Check(path):
            return f"check {path}"


class Harness:
    """One embedded store, and brokers that agree to everything."""

    def __init__(self) -> None:
        self.clock, self.random = ManualClock(), Counting()
        self.persistence = MemoryPersistence()
        self.store = EmbeddedStore(self.persistence, self.clock, self.random)
        self.store.start()
        self.requests: list[tuple[int, int, int, Any]] = []
        self.failing: dict[int, int] = {}
        """By broker: how many requests are still lost."""
        self.storage_errors: dict[int, set[str]] = {}
        """By broker: topics of which it answers that their directory failed."""
        self.refusals: dict[int, ErrorCode] = {}
        """By broker: its answer to the orders for each partition."""
        self.whole_refusals: dict[int, ErrorCode] = {}
        """By broker: its answer to orders as a whole."""
        self.held: dict[tuple[int, int], asyncio.Event] = {}
        """By broker and API: what its answers wait for."""
        self.changed: list[tuple[int, ConfigResource, Mapping[str, str]]] = []
        self.failures: list[Exception] = []

    async def broker(self, id: int, settings: ControllerSettings | None = None) -> tuple[ControllerDriver, Recording]:
        driver, session = await self.stranger(id, settings)
        await driver.open()
        await driver.register()
        return driver, session

    async def stranger(self, id: int, settings: ControllerSettings | None = None) -> tuple[ControllerDriver, Recording]:
        """A broker that has not joined yet."""
        session = await Recording.connect(self.store)
        assert isinstance(session, Recording)
        session.transcript = []
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092 + id)
        driver = ControllerDriver(
            store=session,
            registration=BrokerRegistration(BrokerId(id), BrokerEpoch(-1), (endpoint,)),
            settings=settings or ControllerSettings(),
            send=self.send,
            clock=self.clock,
            random=self.random,
            on_config_changed=lambda resource, values: self.changed.append((id, resource, values)),
            on_failure=self.failures.append,
        )
        return driver, session

    async def send(self, broker_id: int, key: int, version: int, message: Any) -> Any:
        await asyncio.sleep(0)
        if self.failing.get(broker_id, 0) > 0:
            self.failing[broker_id] -= 1
            raise ConnectionRefusedError(f"broker {broker_id}")
        self.requests.append((broker_id, key, version, message))
        answer = self.answer(broker_id, key, message)
        if (broker_id, key) in self.held:
            await self.held[broker_id, key].wait()
        return answer

    def answer(self, broker_id: int, key: int, message: Any) -> Any:
        if key == ApiKey.STOP_REPLICA:
            response = messages.StopReplicaResponse
            if broker_id in self.whole_refusals:
                return response(error_code=self.whole_refusals[broker_id])
            errors = [
                response.StopReplicaPartitionError(
                    topic_name=topic.topic_name, partition_index=state.partition_index, error_code=0
                )
                for topic in message.topic_states
                for state in topic.partition_states
            ]
            return response(partition_errors=errors)
        if key == ApiKey.LEADER_AND_ISR:
            broken = self.storage_errors.get(broker_id, set())
            answer = messages.LeaderAndIsrResponse
            if broker_id in self.whole_refusals:
                return answer(error_code=self.whole_refusals[broker_id])
            return answer(
                topics=[
                    answer.LeaderAndIsrTopicError(
                        topic_id=topic.topic_id,
                        partition_errors=[
                            answer.LeaderAndIsrPartitionError(
                                partition_index=state.partition_index,
                                error_code=ErrorCode.KAFKA_STORAGE_ERROR
                                if topic.topic_name in broken
                                else self.refusals.get(broker_id, ErrorCode.NONE),
                            )
                            for state in topic.partition_states
                        ],
                    )
                    for topic in message.topic_states
                ]
            )
        return messages.UpdateMetadataResponse()

    def kinds(self) -> list[tuple[int, int]]:
        """(broker, key) of the requests since the last call."""
        requests, self.requests = self.requests, []
        return [(broker_id, key) for broker_id, key, _, _ in requests]


def run(scenario: Callable[[Harness], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        harness = Harness()
        await scenario(harness)
        await harness.store.close()
        assert harness.failures == []

    asyncio.run(main())


def told(session: Recording) -> list[str]:
    lines, session.transcript = session.transcript, []
    return lines


@pytest.mark.row("R23")
@pytest.mark.row("R24")
def test_the_first_broker_writes_what_kafkas_first_broker_writes() -> None:
    """As captured from 2.8.2 on an empty ensemble (3.9 writes no producer id block at the start)."""

    async def scenario(harness: Harness) -> None:
        driver, session = await harness.broker(0)
        cluster_id = znodes.decode_cluster_id(harness.store.tree.get("/cluster/id")[0])
        registration = (
            '{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
            '"endpoints":["PLAINTEXT://127.0.0.1:9092"],"jmx_port":-1,"port":9092,"host":"127.0.0.1","version":5,'
            '"timestamp":"1795243446749"}'
        )
        assert told(session) == [
            "create /consumers",
            "create /brokers",
            "create /brokers/ids",
            "create /brokers/topics",
            "create /config",
            "create /config/changes",
            "create /admin",
            "create /admin/delete_topics",
            "create /brokers/seqid",
            "create /isr_change_notification",
            "create /latest_producer_id_block",
            "create /log_dir_event_notification",
            "create /config/topics",
            "create /config/clients",
            "create /config/users",
            "create /config/brokers",
            "create /config/ips",
            "create /cluster",
            f'create /cluster/id {{"version":"1","id":"{cluster_id}"}}',
            "create /brokers/ids/0 ephemeral",
            f"set /brokers/ids/0 {registration}",
            "create /controller_epoch 0",
            'create /controller ephemeral {"version":1,"brokerid":0,"timestamp":"1795243446749"}',
            "set /controller_epoch 1",
            'create /feature {"features":{},"version":1,"status":1}',
        ]
        assert driver.elections.is_controller
        assert driver.broker_epoch == harness.store.tree.get("/brokers/ids/0")[1].czxid
        await driver.close()

    run(scenario)


@pytest.mark.row("R05")
@pytest.mark.row("R07")
@pytest.mark.row("R08")
@pytest.mark.row("R09")
def test_a_topics_life_is_written_as_kafka_writes_it() -> None:
    """Create, configure, grow, delete: the orders of 2.8.2's API flows, with the fence where data is written over."""

    async def scenario(harness: Harness) -> None:
        driver, session = await harness.broker(0)
        told(session)
        [created] = await driver.elections.serve(
            CreateTopics([NewTopic("api", 1, 1, configs=[("retention.ms", "1000")])])
        )
        id = format_topic_id(created.topic_id)
        node = f'"topic_id":"{id}","adding_replicas":{{}},"removing_replicas":{{}},"version":3}}'
        state = '{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0]}'
        assert told(session) == [
            'create /config/topics/api {"version":1,"config":{"retention.ms":"1000"}}',
            'create /brokers/topics/api {"partitions":{"0":[0]},' + node,
            "* create /brokers/topics/api/partitions",
            "* create /brokers/topics/api/partitions/0",
            f"* create /brokers/topics/api/partitions/0/state {state}",
        ]
        change = ConfigChange("flush.messages", AlterOperation.SET, "7")
        await driver.elections.serve(AlterConfigs([ChangeConfigs(T, [change])]))
        await driver.elections.serve(CreatePartitions([MorePartitions("api", 2)]))
        assert told(session) == [
            '* set /config/topics/api {"version":1,"config":{"retention.ms":"1000","flush.messages":"7"}}',
            '* create /config/changes/config_change_ {"version":2,"entity_path":"topics/api"}',
            '* set /brokers/topics/api {"partitions":{"0":[0],"1":[0]},' + node,
            "* create /brokers/topics/api/partitions/1",
            f"* create /brokers/topics/api/partitions/1/state {state}",
        ]
        await driver.elections.serve(DeleteTopics([TopicReference("api")]))
        gone = state.replace('"leader":0', '"leader":-1').replace('"leader_epoch":0', '"leader_epoch":1')
        assert told(session) == [
            "create /admin/delete_topics/api",
            f"* set /brokers/topics/api/partitions/0/state {gone}",
            f"* set /brokers/topics/api/partitions/1/state {gone}",
            "* delete /brokers/topics/api/partitions/0/state",
            "* delete /brokers/topics/api/partitions/0",
            "* delete /brokers/topics/api/partitions/1/state",
            "* delete /brokers/topics/api/partitions/1",
            "* delete /brokers/topics/api/partitions",
            "* delete /brokers/topics/api",
            "* delete /config/topics/api",
            "* delete /admin/delete_topics/api",
        ]
        await driver.close()

    run(scenario)


@pytest.mark.row("R24")
def test_an_answer_comes_when_the_brokers_know() -> None:
    """Metadata, then orders, in Kafka 3.9's versions; a broker that cannot be reached is tried again."""

    async def scenario(harness: Harness) -> None:
        driver, _ = await harness.broker(0)
        await eventually(harness.kinds)
        harness.failing[0] = 2
        await driver.elections.serve(CreateTopics([NewTopic("t", 1000, 1)]))
        assert [(key, version) for _, key, version, _ in harness.requests] == [
            (ApiKey.UPDATE_METADATA, 8),
            (ApiKey.LEADER_AND_ISR, 7),
        ]
        await driver.close()

    run(scenario)


@pytest.mark.row("R24")
def test_brokers_join_and_leave() -> None:
    """The controller learns by its watches, tells everybody, and moves leaderships; the other is no controller."""

    async def scenario(harness: Harness) -> None:
        first, _ = await harness.broker(0)
        second, _ = await harness.broker(1)
        assert (second.elections.is_controller, second.elections.controller_id) == (False, 0)
        image = first.elections.image
        assert image is not None
        await eventually(lambda: len(image.brokers) == 2)
        await first.elections.serve(CreateTopics([NewTopic("t", assignment=[(0, [1, 0])])]))
        assert image.topics["t"].partitions[0].leader == 1
        with pytest.raises(KafkaError) as refusal:
            await second.elections.serve(CreateTopics([]))
        assert refusal.value.code is ErrorCode.NOT_CONTROLLER
        harness.kinds()
        await second.close()
        await eventually(lambda: image.topics["t"].partitions[0].leader == 0)
        await eventually(lambda: (0, ApiKey.LEADER_AND_ISR) in harness.kinds())
        assert harness.store.tree.exists("/brokers/ids/1") is None
        await first.close()

    run(scenario)


@pytest.mark.row("R24")
def test_another_broker_takes_over() -> None:
    """The controller's session ends: the other is elected with the next epoch and carries on with what was there."""

    async def scenario(harness: Harness) -> None:
        first, _ = await harness.broker(0)
        second, session = await harness.broker(1)
        await first.elections.serve(CreateTopics([NewTopic("t", assignment=[(0, [0])])]))
        told(session)
        await first.close()
        await eventually(
            lambda: second.elections.is_controller and harness.store.tree.get("/controller_epoch")[0] == b"2"
        )
        [outcome] = await second.elections.serve(CreateTopics([NewTopic("t", 1, 1)]))
        assert outcome.error is ErrorCode.TOPIC_ALREADY_EXISTS
        assert told(session)[:2] == [
            'create /controller ephemeral {"version":1,"brokerid":1,"timestamp":"1795243446749"}',
            "set /controller_epoch 2",
        ]
        state = znodes.decode_state("t", 0, harness.store.tree.get("/brokers/topics/t/partitions/0/state")[0])
        assert (state.leader, state.isr, state.controller_epoch) == (-1, (0,), 2)
        await second.close()

    run(scenario)


@pytest.mark.row("R24")
def test_a_deposed_controller_changes_nothing() -> None:
    """Its /controller is taken away behind its back: the fence fails, it resigns, and stands for election again."""

    async def scenario(harness: Harness) -> None:
        driver, _ = await harness.broker(0)
        other = await LocalStore.connect(harness.store)
        await driver.elections.serve(CreateTopics([NewTopic("t", 1, 1)]))
        usurper = other.multi(
            [
                Delete("/controller"),
                Create("/controller", znodes.encode_controller(9, 0), ephemeral=True),
                SetData("/controller_epoch", b"5"),
            ]
        )
        growth = driver.elections.serve(CreatePartitions([MorePartitions("t", 2)]))
        await usurper
        before = harness.store.tree.get("/brokers/topics/t")
        with pytest.raises(KafkaError) as refusal:
            await growth
        assert refusal.value.code is ErrorCode.NOT_CONTROLLER
        assert harness.store.tree.get("/brokers/topics/t") == before
        assert harness.store.tree.exists("/brokers/topics/t/partitions/1") is None
        await eventually(lambda: driver.elections.controller_id == 9)
        await other.close()
        await eventually(
            lambda: (
                driver.elections.is_controller
                and driver.elections.image is not None
                and "t" in driver.elections.image.topics
            )
        )
        assert harness.store.tree.get("/controller_epoch")[0] == b"6"
        await driver.close()

    run(scenario)


def test_a_deposed_controller_writes_over_no_settings() -> None:
    """What was altered through its successor stays: it would write the whole map as it knew it before."""

    async def scenario(harness: Harness) -> None:
        driver, _ = await harness.broker(0)
        other = await LocalStore.connect(harness.store)
        await driver.elections.serve(CreateTopics([NewTopic("api", 1, 1)]))
        altered = znodes.encode_config({"retention.ms": "-1"})
        successor = other.multi([SetData("/controller_epoch", b"5"), SetData("/config/topics/api", altered)])
        change = ConfigChange("flush.messages", AlterOperation.SET, "7")
        alteration = driver.elections.serve(AlterConfigs([ChangeConfigs(T, [change])]))
        await successor
        with pytest.raises(KafkaError) as refusal:
            await alteration
        assert refusal.value.code is ErrorCode.NOT_CONTROLLER
        assert harness.store.tree.get("/config/topics/api")[0] == altered
        await other.close()
        await driver.close()

    run(scenario)


def test_an_alteration_keeps_what_a_tool_has_set(caplog: pytest.LogCaptureFixture) -> None:
    """Also where the controller has not heard of it; what a tool makes unreadable is written anew as it was known."""

    async def scenario(harness: Harness) -> None:
        driver, _ = await harness.broker(0)
        tool = await LocalStore.connect(harness.store)

        async def alter(name: str, value: str) -> dict[str, str]:
            change = ConfigChange(name, AlterOperation.SET, value)
            await driver.elections.serve(AlterConfigs([ChangeConfigs(T, [change])]))
            return znodes.decode_config("", harness.store.tree.get("/config/topics/api")[0])

        await driver.elections.serve(CreateTopics([NewTopic("api", 1, 1)]))
        await tool.set("/config/topics/api", znodes.encode_config({"retention.ms": "-1"}))
        assert await alter("flush.messages", "7") == {"retention.ms": "-1", "flush.messages": "7"}
        notification = Create(znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change("topics/api"), sequential=True)
        await tool.multi([SetData("/config/topics/api", b"garbage"), notification])
        await eventually(lambda: any("settings not taken over" in each for each in caplog.messages))
        assert await alter("flush.ms", "9") == {"retention.ms": "-1", "flush.messages": "7", "flush.ms": "9"}
        await tool.close()
        await driver.close()

    run(scenario)


def test_what_a_later_controller_wrote_is_no_strangers(caplog: pytest.LogCaptureFixture) -> None:
    """A topic's watch tells before /controller's does: the move that began is neither put back nor an error."""

    async def scenario(harness: Harness) -> None:
        driver, session = await harness.broker(0)
        other = await LocalStore.connect(harness.store)
        await driver.elections.serve(CreateTopics([NewTopic("t", 1, 1)]))
        before = znodes.decode_topic("t", harness.store.tree.get("/brokers/topics/t")[0])
        moving = znodes.encode_topic(znodes.TopicAssignment({0: [7, 0]}, before.topic_id, {0: [7]}, {0: [0]}))
        session.transcript.clear()
        await other.multi([SetData("/controller_epoch", b"5"), SetData("/brokers/topics/t", moving)])
        await eventually(lambda: driver.elections.image is not None and driver.elections.image.controller_epoch == 5)
        assert harness.store.tree.get("/brokers/topics/t")[0] == moving
        assert driver.elections.image is not None
        assert driver.elections.image.topics["t"].partitions[0].replicas == (7, 0)
        assert not [each for each in session.transcript if "/brokers/topics/t " in each]
        assert not [each for each in caplog.messages if "changed by another client" in each]
        await other.close()
        await driver.close()

    run(scenario)


def test_who_holds_the_office_does_not_stay_without_a_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """It resigned, and a tool wrote /controller_epoch while it loaded the store: no watch tells of either."""

    async def scenario(harness: Harness) -> None:
        driver, session = await harness.broker(0)
        await driver.elections.serve(CreateTopics([NewTopic("t", 1, 1)]))
        state = znodes.state_path("t", 0)
        leaderless = znodes.PartitionState(NO_LEADER, LeaderEpoch(3), (BrokerId(0),), ControllerEpoch(1))
        await session.set(state, znodes.encode_state(leaderless))
        read, written = session.children, []

        def write_meanwhile(path: str, watch: Watch | None = None) -> Awaitable[tuple[Sequence[str], Stat]]:
            if not written:
                written.append(session.set(znodes.CONTROLLER_EPOCH, b"7"))
            return read(path, watch)

        monkeypatch.setattr(session, "children", write_meanwhile)
        driver.elections.end_term()
        driver.elections.look()
        await eventually(lambda: (image := driver.elections.image) is not None and image.controller_epoch == 7)
        assert written
        [outcome] = await driver.elections.serve(CreateTopics([NewTopic("u", 1, 1)]))
        assert outcome.error is ErrorCode.NONE
        await driver.close()

    run(scenario)


@pytest.mark.parametrize("holds", [False, True], ids=["elected", "in office"])
def test_no_controller_is_elected_beyond_the_last_epoch(holds: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Epochs travel as 32 bits: the next one would fit into no order. The log says so, and what mends it."""

    async def scenario(harness: Harness) -> None:
        driver, session = await harness.broker(0)
        if holds:
            # The term that begins with the last epoch is the last one.
            await session.set(znodes.CONTROLLER_EPOCH, b"2147483647")
            with pytest.raises(KafkaError):
                await driver.elections.serve(CreateTopics([NewTopic("t", 1, 1)]))
            await eventually(lambda: (image := driver.elections.image) is not None and image.controller_epoch == LAST)
        await driver.close()
        other = await LocalStore.connect(harness.store)
        await other.set(znodes.CONTROLLER_EPOCH, b"2147483647")
        driver, _ = await harness.broker(0)
        assert driver.elections.image is None
        assert harness.store.tree.exists(znodes.CONTROLLER) is None
        assert harness.store.tree.get(znodes.CONTROLLER_EPOCH)[0] == b"2147483647"
        [refusal] = [each for each in caplog.messages if each.startswith("no controller")]
        assert "2147483647 is the last" in refusal
        await other.set(znodes.CONTROLLER_EPOCH, b"5")
        await eventually(lambda: driver.elections.image is not None)
        assert driver.elections.image is not None
        assert driver.elections.image.controller_epoch == 6
        await other.close()
        await driver.close()

    run(scenario)


def test_a_deposed_controller_asks_the_store_who_came_after_it() -> None:
    """Before it knows that it is deposed, too: whom it refuses then will not tell it anything again."""

    async def scenario(harness: Harness) -> None:
        driver, _ = await harness.broker(0)
        other = await LocalStore.connect(harness.store)
        usurper = other.multi(
            [
                Delete("/controller"),
                Create("/controller", znodes.encode_controller(9, 0), ephemeral=True),
                SetData("/controller_epoch", b"5"),
            ]
        )
        assert driver.elections.is_controller
        asked = [
            driver.elections.confirm(BrokerId(id), ControllerEpoch(epoch))
            for id, epoch in ((9, 5), (8, 5), (9, 1), (0, 1), (9, 6))
        ]
        await usurper
        assert [await answer for answer in asked[:4]] == [True, False, False, True]
        assert not await asked[4]
        await other.close()
        await driver.close()

    run(scenario)


def test_without_its_store_a_broker_asks_for_patience() -> None:
    """Who controls the cluster cannot be told: whoever gives orders as a newer controller is to repeat them."""

    async def scenario(harness: Harness) -> None:
        driver, _ = await harness.broker(0)
        await driver.close()
        with pytest.raises(KafkaError) as refused:
            await driver.elections.confirm(BrokerId(9), ControllerEpoch(9))
        assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT

    run(scenario)


def test_a_store_that_fails_within_is_asked_again_who_controls_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new controller would take another error for a fault of this broker's, and give its orders up in the end."""

    async def scenario(harness: Harness) -> None:
        driver, session = await harness.broker(0)
        epoch = driver.elections.controller.image.controller_epoch if driver.elections.controller else None
        assert epoch is not None
        driver.elections.end_term()
        sync, refused = session.sync, []

        def refuse_once() -> Awaitable[None]:
            if refused:
                return sync()
            refused.append(True)
            failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            failed.set_exception(StoreError("", "ZooKeeper's error -127"))
            return failed

        monkeypatch.setattr(session, "sync", refuse_once)
        assert await driver.elections.confirm(BrokerId(0), epoch)
        assert refused
        await driver.close()

    run(scenario)


def test_a_write_that_fails_makes_it_load_anew() -> None:
    """Somebody else changed a state: the request is handled again on what is there now."""

    async def scenario(harness: Harness) -> None:
        driver, _ = await harness.broker(0)
        other = await LocalStore.connect(harness.store)
        await other.create("/config/topics/t", znodes.encode_config({"flush.ms": "9"}))
        await other.create("/brokers/topics/u", b'{"version":1,"partitions":{"0":[0]}}')
        outcomes = await driver.elections.serve(CreateTopics([NewTopic("t", 1, 1), NewTopic("u", 1, 1)]))
        assert [outcome.error for outcome in outcomes] == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
        assert harness.store.tree.get("/config/topics/t")[0] == znodes.encode_config({})
        image = driver.elections.image
        assert image is not None
        await eventually(
            lambda: "u" in image.topics or (driver.elections.image is not None and "u" in driver.elections.image.topics)
        )
        await other.close()
        await driver.close()

    run(scenario)


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (NoAuth("/config/topics/t"), "The metadata store does not take .* NoAuth: /config/topics/t"),
        (StoreError("", "ZooKeeper's error -1"), "The metadata store does not take .* ZooKeeper's error -1"),
        (BadVersion("/config/topics/t"), "Another client is changing the cluster's metadata; try again."),
    ],
    ids=["access list", "system error", "version"],
)
def test_a_request_whose_writes_the_store_refuses_is_told_why(
    monkeypatch: pytest.MonkeyPatch, refusal: StoreError, words: str
) -> None:
    """That another client writes is said only where it does: an operator would look for one."""

    async def scenario(harness: Harness) -> None:
        driver, session = await harness.broker(0)
        write = session.multi

        def multi(operations: Sequence[Operation]) -> Awaitable[Sequence[OperationResult]]:
            if not any(each.path == "/config/topics/t" for each in operations):
                return write(operations)
            failed: asyncio.Future[Sequence[OperationResult]] = asyncio.get_running_loop().create_future()
            failed.set_exception(refusal)
            return failed

        monkeypatch.setattr(session, "multi", multi)
        with pytest.raises(KafkaError, match=words) as refused:
            await driver.elections.serve(CreateTopics([NewTopic("t", 1, 1)]))
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        await driver.close()

    run(scenario)


def test_a_topic_that_a_tool_makes_in_the_same_moment_is_led_where_the_tool_put_it() -> None:
    """The states of the creation that was refused are not written: they would name replicas that it does not have."""

    async def scenario(harness: Harness) -> None:
        driver, _ = await harness.broker(0)
        another, _ = await harness.broker(1)
        tool = await LocalStore.connect(harness.store)
        made = tool.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}')
        outcomes = await driver.elections.serve(CreateTopics([NewTopic("t", assignment=[(0, [BrokerId(0)])])]))
        await made
        assert outcomes[0].error is ErrorCode.TOPIC_ALREADY_EXISTS
        await eventually(lambda: harness.store.tree.exists(znodes.state_path("t", 0)) is not None)
        state = znodes.decode_state("t", 0, harness.store.tree.get(znodes.state_path("t", 0))[0])
        assert (state.leader, state.isr) == (1, (1,))
        for each in (tool, driver, another):
            await each.close()

    run(scenario)


def test_partitions_that_a_tool_adds_while_the_controller_writes_stay() -> None:
    """A tool of 2.2 adds a partition, and leaves out the id; it adds another one while the id is written back."""
    path = znodes.topic_path("t")

    def grown(partitions: int) -> bytes:
        return znodes.encode_topic(znodes.TopicAssignment({index: [0] for index in range(partitions)}, ZERO_TOPIC_ID))

    async def scenario(harness: Harness) -> None:
        driver, session = await harness.broker(0)
        await driver.elections.serve(CreateTopics([NewTopic("t", 1, 1)]))
        topic_id = znodes.decode_topic("t", harness.store.tree.get(path)[0]).topic_id
        tool = await LocalStore.connect(harness.store)
        carry_out, second = session.multi, []

        def overtaken(operations: Sequence[Operation]) -> Awaitable[Sequence[OperationResult]]:
            if not second and any(isinstance(each, SetData) and each.path == path for each in operations):
                second.append(tool.set(path, grown(3)))
            return carry_out(operations)

        session.multi = overtaken  # type: ignore[method-assign]
        await tool.set(path, grown(2))
        await eventually(lambda: harness.store.tree.exists(znodes.state_path("t", 2)) is not None)
        await second[0]
        node = znodes.decode_topic("t", harness.store.tree.get(path)[0])
        assert (node.topic_id, list(node.partitions)) == (topic_id, [0, 1, 2])
        await tool.close()
        await driver.close()

    run(scenario)


def test_a_living_broker_whose_node_is_garbage_stays_when_all_is_loaded_anew(caplog: pytest.LogCaptureFixture) -> None:
    """Somebody wrote into its registration: it is taken as it was, keeps its places in ISRs, and is told of once."""

    async def scenario(harness: Harness) -> None:
        driver, _ = await harness.broker(0)
        second, _ = await harness.broker(1)
        await eventually(lambda: driver.elections.image is not None and len(driver.elections.image.brokers) == 2)
        await driver.elections.serve(CreateTopics([NewTopic("t", 1, 2)]))
        state = znodes.state_path("t", 0)
        before = harness.store.tree.get(state)[0]
        other = await LocalStore.connect(harness.store)
        await other.set("/brokers/ids/1", b"garbage")
        await eventually(lambda: "broker 1 is taken as it was before" in caplog.text)
        # A write that fails has everything loaded anew.
        await other.create("/config/topics/u", znodes.encode_config({"flush.ms": "9"}))
        outcomes = await driver.elections.serve(CreateTopics([NewTopic("u", 1, 2)]))
        assert "the metadata is loaded anew" in caplog.text
        assert [outcome.error for outcome in outcomes] == [ErrorCode.NONE]
        assert "broker 1 is left out" not in caplog.text
        assert caplog.text.count("broker 1 is taken as it was before") == 1
        assert harness.store.tree.get(state)[0] == before
        await other.close()
        await second.close()
        await driver.close()

    run(scenario)


@pytest.mark.row("R05")
@pytest.mark.row("R08")
@pytest.mark.row("R09")
def test_what_old_tools_write_is_carried_out() -> None:
    """A topic made, grown and marked for deletion in the store itself."""

    async def scenario(harness: Harness) -> None:
        driver, _ = await harness.broker(0)
        tree, tool = harness.store.tree, await LocalStore.connect(harness.store)
        await tool.create("/config/topics/topicone", znodes.encode_config({}))
        await tool.create("/brokers/topics/topicone", b'{"version":1,"partitions":{"0":[0]}}')
        await eventually(lambda: tree.exists("/brokers/topics/topicone/partitions/0/state"))
        content = znodes.decode_topic("topicone", tree.get("/brokers/topics/topicone")[0])
        assert any(content.topic_id)
        await tool.set("/brokers/topics/topicone", b'{"version":1,"partitions":{"0":[0],"1":[0]}}')
        await eventually(lambda: tree.exists("/brokers/topics/topicone/partitions/1/state"))
        assert driver.elections.image is not None
        assert driver.elections.image.topics["topicone"].topic_id == content.topic_id
        await tool.create("/admin/delete_topics/topicone")
        await tool.create("/admin/delete_topics/unknown")
        await eventually(lambda: tree.children("/admin/delete_topics")[0] == [])
        assert tree.children("/brokers/topics")[0] == []
        assert tree.children("/config/topics")[0] == []
        await tool.close()
        await driver.close()

    run(scenario)


def test_a_broker_that_fails_at_whole_orders_is_followed_by_one_that_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    """An order that is given up is not lost: what the broker was to lead with it, another member of the ISR leads."""
    monkeypatch.setattr(broker_channel, "REFUSALS_MAX", 2)

    async def scenario(harness: Harness) -> None:
        first, _ = await harness.broker(0)
        second, _ = await harness.broker(1)
        await eventually(lambda: first.elections.image is not None and len(first.elections.image.brokers) == 2)
        harness.whole_refusals[1] = ErrorCode.UNKNOWN_SERVER_ERROR
        new = [NewTopic("t", assignment=[(0, [1, 0])]), NewTopic("u", assignment=[(0, [1])])]
        await first.elections.serve(CreateTopics(new))
        image = first.elections.image
        assert image is not None
        await eventually(lambda: image.topics["t"].partitions[0].leader == 0)
        assert image.topics["u"].partitions[0].leader == 1, "No other could."
        await second.close()
        await first.close()

    run(scenario)


@pytest.mark.row("R08")
def test_a_broker_that_fails_at_a_whole_deletion_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic would stay in deletion until it registers anew."""
    monkeypatch.setattr(broker_channel, "REFUSALS_MAX", 0)
    monkeypatch.setattr(deletions, "ASK_AGAIN_MS", 10)

    async def scenario(harness: Harness) -> None:
        driver, _ = await harness.broker(0)
        await driver.elections.serve(CreateTopics([NewTopic("t", 1, 1)]))
        harness.whole_refusals[0] = ErrorCode.UNKNOWN_SERVER_ERROR
        deleted = asyncio.ensure_future(driver.elections.serve(DeleteTopics([TopicReference("t")])))
        await eventually(lambda: (0, ApiKey.STOP_REPLICA) in harness.kinds())
        del harness.whole_refusals[0]
        assert [outcome.error for outcome in await deleted] == [ErrorCode.NONE]
        await driver.close()

    run(scenario)


@pytest.mark.row("R03")
def test_a_broker_that_reports_a_failed_directory_loses_those_replicas() -> None:
    """By its answer to LeaderAndIsr."""

    async def scenario(harness: Harness) -> None:
        harness.storage_errors[0] = {"broken"}
        driver, _ = await harness.broker(0)
        await driver.elections.serve(CreateTopics([NewTopic("broken", 1, 1), NewTopic("fine", 1, 1)]))
        image = driver.elections.image
        assert image is not None
        await eventually(lambda: image.topics["broken"].partitions[0].leader == -1)
        assert image.topics["fine"].partitions[0].leader == 0
        await driver.close()

    run(scenario)


@pytest.mark.row("R07")
@pytest.mark.parametrize(
    ("code", "leader"),
    [
        (ErrorCode.REPLICA_NOT_AVAILABLE, 1),
        (ErrorCode.INCONSISTENT_TOPIC_ID, 1),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 1),
        (ErrorCode.STALE_CONTROLLER_EPOCH, 0),
    ],
)
def test_a_broker_that_refuses_to_lead_is_followed_by_one_that_does(code: ErrorCode, leader: int) -> None:
    """For whatever reason, but that it knows a later order: the partition would keep a leader that does not lead."""

    async def scenario(harness: Harness) -> None:
        first, _ = await harness.broker(0)
        second, _ = await harness.broker(1)
        await eventually(lambda: first.elections.image is not None and len(first.elections.image.brokers) == 2)
        harness.refusals[0] = code
        await first.elections.serve(CreateTopics([NewTopic("t", assignment=[(0, [0, 1])])]))
        await first.elections.serve(CreateTopics([NewTopic("later", assignment=[(0, [1])])]))
        image = first.elections.image
        assert image is not None
        if leader:
            await eventually(lambda: image.topics["t"].partitions[0].leader == leader)
        assert image.topics["t"].partitions[0].leader == leader
        await second.close()
        await first.close()

    run(scenario)


def test_every_broker_hears_of_changed_settings() -> None:
    """By the notification; what was there before it joined is history, and what is old is wiped away."""

    async def scenario(harness: Harness) -> None:
        first, _ = await harness.broker(0)
        await first.elections.serve(CreateTopics([NewTopic("api", 1, 1)]))

        def alter(value: str) -> Awaitable[object]:
            change = ConfigChange("flush.messages", AlterOperation.SET, value)
            return first.elections.serve(AlterConfigs([ChangeConfigs(T, [change])]))

        await alter("1")
        await eventually(lambda: harness.changed == [(0, T, {"flush.messages": "1"})])
        second, _ = await harness.broker(1)
        harness.changed.clear()
        await alter("2")
        await eventually(lambda: len(harness.changed) == 2)
        assert sorted(harness.changed) == [(id, T, {"flush.messages": "2"}) for id in (0, 1)]
        assert await second.read_configs([T]) == {T: {"flush.messages": "2"}}
        harness.clock.now_ms += CHANGE_NOTIFICATION_AGE_MS_MAX + 1
        await alter("3")
        await eventually(lambda: len(harness.store.tree.children("/config/changes")[0]) == 1)
        await first.close()
        await second.close()

    run(scenario)


def test_a_controller_builds_on_settings_whose_notification_was_missed() -> None:
    """An old tool's, deleted before it was read, of a topic whose settings the broker has read meanwhile."""

    async def scenario(harness: Harness) -> None:
        driver, _ = await harness.broker(0)
        await driver.elections.serve(CreateTopics([NewTopic("api", 1, 1)]))
        tool = await LocalStore.connect(harness.store)
        await tool.set("/config/topics/api", znodes.encode_config({"retention.ms": "7"}))
        assert await driver.read_configs([T]) == {T: {"retention.ms": "7"}}
        _, stat = await tool.children("/config/changes")
        name = f"/config/changes/config_change_{(stat.cversion + stat.num_children) // 2:010d}"
        await tool.multi([Create(name[:-10], znodes.encode_config_change("topics/api"), sequential=True), Delete(name)])
        image = driver.elections.image
        assert image is not None
        await eventually(lambda: image.topic_config("api") == {"retention.ms": "7"})
        change = ConfigChange("flush.messages", AlterOperation.SET, "1")
        await driver.elections.serve(AlterConfigs([ChangeConfigs(T, [change])]))
        assert znodes.decode_config("", harness.store.tree.get("/config/topics/api")[0]) == {
            "retention.ms": "7",
            "flush.messages": "1",
        }
        await tool.close()
        await driver.close()

    run(scenario)


def test_settings_that_could_not_be_written_again_end_no_controller() -> None:
    """A tool has named half a character: such settings are not taken over, and can be replaced."""

    async def scenario(harness: Harness) -> None:
        driver, session = await harness.broker(0)
        await driver.elections.serve(CreateTopics([NewTopic("api", 1, 1)]))
        await session.set("/config/topics/api", b'{"version":1,"config":{"retention.ms":"\\ud800"}}')
        told = znodes.encode_config_change("topics/api")
        await session.create(znodes.CONFIG_CHANGE_PREFIX, told, sequential=True)
        another = ConfigResource(ConfigResourceType.TOPIC, "another")
        await driver.elections.serve(CreateTopics([NewTopic("another", 1, 1)]))
        for resource in (T, another):
            change = ReplaceConfigs(resource, [("flush.ms", "5")])
            [outcome] = await driver.elections.serve(AlterConfigs([change]))
            assert outcome.error is ErrorCode.NONE
        await driver.close()

    run(scenario)


@pytest.mark.parametrize("parent", ["/brokers/ids", "/brokers/topics/api/partitions"])
def test_nodes_named_by_numbers_without_end_end_no_controller(parent: str) -> None:
    """Python reads no number of more than 4,300 digits."""

    async def scenario(harness: Harness) -> None:
        driver, session = await harness.broker(0)
        await driver.elections.serve(CreateTopics([NewTopic("api", 1, 1)]))
        await session.create(f"{parent}/{'9' * 5_000}")
        await session.delete(znodes.CONTROLLER)
        image = driver.elections.image
        assert image is not None
        epoch = image.controller_epoch
        await eventually(lambda: (now := driver.elections.image) is not None and now.controller_epoch > epoch)
        [outcome] = await driver.elections.serve(CreateTopics([NewTopic("another", 1, 1)]))
        assert outcome.error is ErrorCode.NONE
        await driver.close()

    run(scenario)


def test_settings_are_written_together_with_their_notification(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, and wherever a transaction is full: between the two a crash would leave them untold."""
    monkeypatch.setattr(controller_term, "OPERATIONS_PER_MULTI_MAX", 5)

    async def scenario(harness: Harness) -> None:
        driver, session = await harness.broker(0)
        names = [f"t{number}" for number in range(9)]
        await driver.elections.serve(CreateTopics([NewTopic(name, 1, 1) for name in names]))
        multis: list[list[str]] = []
        multi = session.multi

        def watched(operations: Sequence[Operation]) -> Awaitable[Sequence[OperationResult]]:
            multis.append([operation.path for operation in operations])
            return multi(operations)

        session.multi = watched  # type: ignore[method-assign]
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
        change = ConfigChange("flush.messages", AlterOperation.SET, "1")
        await driver.elections.serve(AlterConfigs([ChangeConfigs(resource, [change]) for resource in resources]))
        assert len(multis) > 1
        assert [paths[0] for paths in multis] == len(multis) * [znodes.CONTROLLER_EPOCH]
        assert [paths[1].rpartition("/")[0] for paths in multis] == len(multis) * ["/config/topics"]
        assert [paths[-1] for paths in multis] == len(multis) * [znodes.CONFIG_CHANGE_PREFIX]
        await driver.close()

    run(scenario)


def test_a_restarted_cluster_finds_everything_again() -> None:
    """The same persistence under a new store: same cluster id, same topics, the next controller epoch."""

    async def scenario(harness: Harness) -> None:
        driver, session = await harness.stranger(0)
        cluster_id = await driver.open()
        await driver.register()
        [topic] = await driver.elections.serve(CreateTopics([NewTopic("t", 3, 1)]))
        # No close: killed.
        harness.store = EmbeddedStore(harness.persistence, harness.clock, harness.random)
        harness.store.start()
        again, session = await harness.stranger(0)
        assert await again.open() == cluster_id
        epoch = await again.register()
        assert epoch > driver.broker_epoch
        assert again.elections.image is not None
        assert again.elections.image.topics["t"].topic_id == topic.topic_id
        assert [text for text in told(session) if "/brokers/topics" in text] == []
        await again.close()

    run(scenario)


@pytest.mark.row("R12")
def test_a_broker_id_in_use_is_refused_with_the_reason() -> None:
    """After waiting as long as an old session could last; one that ends meanwhile makes room."""

    async def scenario(harness: Harness) -> None:
        first, _ = await harness.broker(0)
        double, session = await harness.stranger(0)
        joining = asyncio.ensure_future(double.register())
        await eventually(lambda: any("/brokers/ids/0" in text for text in session.transcript))
        await first.close()
        await joining
        assert double.elections.is_controller
        third, _ = await harness.stranger(0)
        joining = asyncio.ensure_future(third.register())
        await asyncio.sleep(0)
        harness.clock.now_ms += 60_000
        late, _ = await harness.stranger(0)
        harness.clock = ManualClock()
        joining.cancel()
        membership = Membership(late._store, Jumping(60_000), harness.random, lambda resource, values: None)
        registration = BrokerRegistration(BrokerId(0), BrokerEpoch(-1), ())
        with pytest.raises(KafkaError, match="Broker id 0 is in use by another running broker") as refusal:
            await membership.register(registration)
        assert refusal.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        for driver in (late, third, double):
            await driver.close()

    run(scenario)


@pytest.mark.row("R12")
def test_a_session_that_was_given_its_timeout_again_is_waited_for() -> None:
    """ZooKeeper's leader died with the broker's machine: the next one begins to count the session anew."""

    async def scenario(harness: Harness) -> None:
        first, _ = await harness.broker(0)
        again, session = await harness.stranger(0)
        clock = Jumping(session.session_timeout_ms * 5 // 4)
        membership = Membership(session, clock, harness.random, lambda resource, values: None)
        joining = asyncio.ensure_future(membership.register(BrokerRegistration(BrokerId(0), BrokerEpoch(-1), ())))
        await eventually(lambda: any("/brokers/ids/0" in text for text in session.transcript))
        await eventually(lambda: clock.looks > 1 or joining.done())
        await first.close()
        assert await joining > first.broker_epoch
        await again.close()

    run(scenario)


def test_settings_that_are_too_large_for_the_store_are_refused() -> None:
    """ZooKeeper cuts the connection over more than 1 MiB, at each attempt: the controller would try for ever."""

    async def scenario(harness: Harness) -> None:
        driver, session = await harness.broker(0)
        await driver.elections.serve(CreateTopics([NewTopic("api", 1, 1)]))
        carry_out = session.multi

        def cut(operations: Sequence[Operation]) -> Awaitable[Sequence[OperationResult]]:
            sizes = [len(each.path) + len(getattr(each, "data", None) or b"") for each in operations]
            assert sum(sizes) < 1 << 20
            return carry_out(operations)

        session.multi = cut  # type: ignore[method-assign]
        blanks = " " * (1 << 20)
        change = ConfigChange("flush.ms", AlterOperation.SET, f"{blanks}1")
        alterations = [ChangeConfigs(resource, [change]) for resource in (T,)]
        session_ms = ConfigChange("consumer.session.timeout.ms", AlterOperation.SET, "45000")
        group = ConfigResource(ConfigResourceType.GROUP, "g" * (1 << 19))
        alterations.append(ChangeConfigs(group, [session_ms]))
        altered = await driver.elections.serve(AlterConfigs(alterations))
        assert [each.error for each in altered] == [ErrorCode.INVALID_CONFIG] * 2
        made = await driver.elections.serve(CreateTopics([NewTopic("t", 1, 1, configs=[("flush.ms", f"{blanks}1")])]))
        assert [each.error for each in made] == [ErrorCode.INVALID_CONFIG]
        assert harness.store.tree.exists("/brokers/topics/t") is None
        await driver.close()

    run(scenario)


def test_a_failed_directory_is_told_though_the_term_ends_in_that_moment() -> None:
    """The next controller may have asked this broker already, when its directory still worked."""

    async def scenario(harness: Harness) -> None:
        driver, _ = await harness.broker(0)
        driver.log_directory_failed()
        driver.elections.end_term()
        await eventually(lambda: bool(harness.store.tree.children(znodes.LOG_DIRECTORY_EVENTS)[0]))
        await driver.close()

    run(scenario)


def test_timers_that_have_gone_off_are_forgotten() -> None:
    """Those of elections that wait are each for a time of its own: they would be kept for as long as a term lasts."""

    async def scenario(harness: Harness) -> None:
        driver, _ = await harness.broker(0)
        term = driver.elections._term
        assert term is not None
        before = dict(term._timers)
        term._set_timer(Timer(0, LogEndsDue(7)))
        assert term._timers.keys() == {*before, LogEndsDue(7)}
        await eventually(lambda: term._timers == before)
        await driver.close()

    run(scenario)


@pytest.mark.parametrize("code", ["-1", "-127"])
def test_a_store_that_is_overloaded_ends_no_broker(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """ZooKeeper's errors without a meaning for one node pass: all brokers would stop at once, where they race."""

    async def scenario(harness: Harness) -> None:
        driver, session = await harness.broker(0)
        answer, refused = session.get, []

        def get(path: str, watch: Watch | None = None) -> Awaitable[tuple[bytes | None, Stat]]:
            if path == znodes.CONTROLLER and not refused:
                refused.append(path)
                failed: asyncio.Future[tuple[bytes | None, Stat]] = asyncio.get_running_loop().create_future()
                failed.set_exception(StoreError(path, f"ZooKeeper's error {code}"))
                return failed
            return answer(path, watch)

        monkeypatch.setattr(session, "get", get)
        await session.delete(znodes.CONTROLLER)
        await eventually(lambda: bool(refused) and (driver.elections.is_controller or bool(harness.failures)))
        await eventually(lambda: harness.store.tree.exists(znodes.CONTROLLER) is not None or bool(harness.failures))
        assert harness.failures == []
        write, written = [StoreError("/tidelog_marks", f"ZooKeeper's error {code}")], asyncio.Event()

        async def write_marks(store: object) -> None:
            if write:
                raise write.pop()
            written.set()

        driver._write_marks = write_marks
        driver.marks_changed()
        await eventually(lambda: written.is_set() or bool(harness.failures))
        assert harness.failures == []
        await driver.close()

    run(scenario)


@pytest.mark.parametrize("refused_call", [1, 20, 36, 40, 41, 42, 43, 47, 60])
def test_a_broker_joins_though_the_store_fails_within(monkeypatch: pytest.MonkeyPatch, refused_call: int) -> None:
    """Many brokers that start at once are too much for an ensemble for a moment: whichever call it refuses."""

    async def scenario(harness: Harness) -> None:
        driver, session = await harness.stranger(0)
        calls: list[str] = []

        def fragile(name: str) -> None:
            answer = getattr(session, name)

            def call(*arguments: Any, **named: Any) -> Awaitable[Any]:
                calls.append(name)
                if len(calls) != refused_call:
                    return answer(*arguments, **named)  # type: ignore[no-any-return]
                failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                failed.set_exception(StoreError("", "ZooKeeper's error -127"))
                return failed

            monkeypatch.setattr(session, name, call)

        for name in ("get", "exists", "children", "create", "multi", "sync"):
            fragile(name)
        await driver.open()
        assert await driver.read_configs([T]) == {T: {}}
        await driver.register()
        assert driver.elections.is_controller
        assert len(calls) >= refused_call
        await driver.close()

    run(scenario)


def test_a_failed_directory_is_told_though_the_store_fails_within_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else clients would be sent for good to a leader whose log is gone."""

    async def scenario(harness: Harness) -> None:
        driver, session = await harness.broker(0)
        create, refused = session.create, []

        def refuse_once(path: str, data: bytes | None = None, **named: Any) -> Awaitable[Created]:
            if path != znodes.LOG_DIRECTORY_EVENT_PREFIX or refused:
                return create(path, data, **named)
            refused.append(path)
            failed: asyncio.Future[Created] = asyncio.get_running_loop().create_future()
            failed.set_exception(StoreError(path, "ZooKeeper's error -127"))
            return failed

        monkeypatch.setattr(session, "create", refuse_once)
        told(session)
        driver.log_directory_failed()
        await eventually(lambda: any(each.startswith("* delete /log_dir_event_notification") for each in told(session)))
        assert refused
        await driver.close()

    run(scenario)


@pytest.mark.row("R24")
def test_a_session_that_ends_with_the_answer_to_the_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that stood still hears of both at once: the broker has not joined, and its start goes on with another."""

    async def scenario(harness: Harness) -> None:
        driver, session = await harness.stranger(0)
        await driver.open()
        register = session.multi

        def expire(_: object) -> None:
            harness.store.close_session(session.session_id)
            session._enter(SessionState.EXPIRED)

        def registered_and_over(operations: Sequence[Operation]) -> Awaitable[Sequence[OperationResult]]:
            answer = asyncio.ensure_future(register(operations))
            answer.add_done_callback(expire)
            return answer

        monkeypatch.setattr(session, "multi", registered_and_over)
        with pytest.raises(SessionExpired):
            await driver.register()
        await driver.close()

    run(scenario)


class Jumping(ManualClock):
    """`step_ms` go by at every look."""

    def __init__(self, step_ms: int) -> None:
        super().__init__()
        self.looks = 0
        self._step_ms = step_ms

    def monotonic_ms(self) -> int:
        self.looks += 1
        self.now_ms += self._step_ms
        return self.now_ms


def test_generated_broker_ids() -> None:
    """broker.id=-1: above 1000, each once."""

    async def scenario(harness: Harness) -> None:
        driver, session = await harness.broker(0)
        assert [await generate_broker_id(session) for _ in range(2)] == [1001, 1002]
        await driver.close()

    run(scenario)


@pytest.mark.parametrize("before", [True, False], ids=["known", "found out"])
def test_nodes_that_nobody_knows_do_not_hold_a_deletion_up(before: bool) -> None:
    """Somebody put them below the topic, before the controller read the store or after: they go with it."""
    strangers = ["partitions/foo", "partitions/7", "partitions/07", "partitions/07/state", "partitions/0/x", "y", "y/z"]

    async def scenario(harness: Harness) -> None:
        driver, session = await harness.broker(0)
        await driver.elections.serve(CreateTopics([NewTopic("t", 1, 1)]))
        for name in strangers:
            await session.create(f"/brokers/topics/t/{name}")
        if before:
            await driver.close()
            driver, session = await harness.broker(0)
        await driver.elections.serve(DeleteTopics([TopicReference("t")]))
        assert not [path for path in harness.store.tree.paths() if "/topics/t" in path]
        assert harness.store.tree.exists("/admin/delete_topics/t") is None
        await driver.close()

    run(scenario)


@pytest.mark.parametrize("before", [True, False], ids=["known", "found out"])
@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/admin/reassign_partitions", b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[0]}]}'),
        ("/admin/reassign_partitions", b'{"version":1,"partitions":[{"topic":"no","partition":0,"replicas":[0]}]}'),
        ("/admin/preferred_replica_election", b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'),
        ("/admin/delete_topics/t", None),
        ("/admin/delete_topics/no", None),
        ("/log_dir_event_notification/log_dir_event_0000000000", b'{"version":1,"broker":0,"event":1}'),
        ("/isr_change_notification/isr_change_0000000000", b'{"version":1,"partitions":[]}'),
    ],
)
def test_nodes_that_nobody_knows_below_a_wish_stop_no_controller(path: str, data: bytes | None, before: bool) -> None:
    """A wish could not be removed with them: they go with it, and the controller goes on with all else."""

    async def scenario(harness: Harness) -> None:
        driver, _ = await harness.broker(0)
        await driver.elections.serve(CreateTopics([NewTopic("t", 1, 1)]))
        if before:
            await driver.close()
        other = await LocalStore.connect(harness.store)
        await other.multi([Create(path, data), Create(f"{path}/x"), Create(f"{path}/x/y")])
        if before:
            driver, _ = await harness.broker(0)
        await eventually(lambda: harness.store.tree.exists(path) is None)
        created = await driver.elections.serve(CreateTopics([NewTopic("u", 1, 1)]))
        assert [outcome.error for outcome in created] == [ErrorCode.NONE]
        await other.close()
        await driver.close()

    run(scenario)


@pytest.mark.parametrize("before", [True, False], ids=["known", "found out"])
@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/brokers/ids/7", None),
        ("/brokers/topics/u", b'{"version":1,"partitions":{"0":[0]}}'),
        ("/brokers/topics/t/partitions/0/state", None),
        ("/config/brokers/0", znodes.encode_config({})),
        ("/config/topics/t", None),
        ("/admin/reassign_partitions", b'{"version":1,"partitions":[]}'),
        ("/admin/preferred_replica_election", b'{"version":1,"partitions":[]}'),
        ("/latest_producer_id_block", None),
    ],
)
def test_a_node_that_the_controller_may_not_read_counts_as_unreadable(
    monkeypatch: pytest.MonkeyPatch, path: str, data: bytes | None, before: bool
) -> None:
    """Another client has made it with an access list of its own: the controller goes on with all else."""

    async def scenario(harness: Harness) -> None:
        get = Recording.get
        is_denied = False

        def denying(session: Recording, wanted: str, watch: Any = None) -> Awaitable[Any]:
            if not is_denied or wanted != path:
                return get(session, wanted, watch)
            failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            failed.set_exception(NoAuth(wanted))
            return failed

        monkeypatch.setattr(Recording, "get", denying)
        driver, _ = await harness.broker(0)
        await driver.elections.serve(CreateTopics([NewTopic("t", 1, 1)]))
        if before:
            await driver.close()
        is_denied = True
        other = await LocalStore.connect(harness.store)
        if harness.store.tree.exists(path) is None:
            await other.create(path, data)
        if before:
            driver, _ = await harness.broker(0)
        else:
            driver.elections.config_changed(ConfigResource(ConfigResourceType.TOPIC, "t"))
            driver.elections.config_changed(ConfigResource(ConfigResourceType.BROKER, "0"))
        created = await driver.elections.serve(CreateTopics([NewTopic("v", 1, 1)]), timeout_ms=5_000)
        assert [outcome.error for outcome in created] == [ErrorCode.NONE]
        assert driver.elections.image is not None
        assert 7 not in driver.elections.image.brokers
        await other.close()
        await driver.close()

    run(scenario)


def denying(monkeypatch: pytest.MonkeyPatch, session: Recording, denied: set[str]) -> None:
    """From now on the session may not read the nodes in `denied`."""
    get = session.get

    def deny(path: str, watch: Watch | None = None) -> Awaitable[tuple[bytes | None, Stat]]:
        if path not in denied:
            return get(path, watch)
        failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        failed.set_exception(NoAuth(path))
        return failed

    monkeypatch.setattr(session, "get", deny)
    monkeypatch.setattr(elections, "DENIED_DELAY_MS", 1)


def test_a_broker_that_may_not_read_which_broker_controls_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another principal has made /controller: the broker leads and follows as before, says why once, and finds the
    controller when it may read the node. Orders of a controller that it does not know are to be repeated until then."""

    async def scenario(harness: Harness) -> None:
        first, _ = await harness.broker(0)
        second, session = await harness.broker(1)
        denied = {znodes.CONTROLLER}
        denying(monkeypatch, session, denied)
        second.elections.look()
        await eventually(lambda: "/controller" in caplog.text)
        await asyncio.sleep(0)
        with pytest.raises(KafkaError) as refused:
            await second.elections.confirm(BrokerId(9), ControllerEpoch(9))
        assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert harness.failures == []
        denied.clear()
        await first.close()
        await eventually(lambda: second.elections.is_controller)
        lines = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
        assert [line for line in lines if "/controller" in line] == lines[:1]
        await second.close()

    run(scenario)


def test_a_broker_that_holds_the_office_and_may_not_read_its_epoch_gives_it_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It cannot control the cluster, and as long as it holds /controller no other broker can."""

    async def scenario(harness: Harness) -> None:
        first, session = await harness.broker(0)
        second, _ = await harness.broker(1)
        denying(monkeypatch, session, {znodes.CONTROLLER_EPOCH})
        first.elections.end_term()
        first.elections.look()
        await eventually(lambda: second.elections.is_controller)
        await eventually(lambda: first.elections.controller_id == 1)
        assert not first.elections.is_controller
        await first.close()
        await second.close()

    run(scenario)


def test_a_broker_that_starts_and_may_not_read_which_broker_controls_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """It could not take an order of any controller: whoever starts it is to know."""

    async def scenario(harness: Harness) -> None:
        driver, session = await harness.stranger(0)
        denying(monkeypatch, session, {znodes.CONTROLLER})
        await driver.open()
        with pytest.raises(NoAuth, match="/controller"):
            await driver.register()
        await driver.close()

    run(scenario)


def test_a_known_topic_whose_node_may_not_be_read_any_more_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody has changed its access list, and then the node: as it is known it is not written again and again."""

    async def scenario(harness: Harness) -> None:
        get = Recording.get

        def denying(session: Recording, wanted: str, watch: Any = None) -> Awaitable[Any]:
            if wanted != "/brokers/topics/t" or not is_denied:
                return get(session, wanted, watch)
            failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            failed.set_exception(NoAuth(wanted))
            return failed

        is_denied = False
        monkeypatch.setattr(Recording, "get", denying)
        driver, session = await harness.broker(0)
        await driver.elections.serve(CreateTopics([NewTopic("t", 1, 1)]))
        other = await LocalStore.connect(harness.store)
        is_denied = True
        told(session)
        await other.set("/brokers/topics/t", b"whatever")
        created = await driver.elections.serve(CreateTopics([NewTopic("v", 1, 1)]), timeout_ms=5_000)
        assert [outcome.error for outcome in created] == [ErrorCode.NONE]
        assert not [line for line in told(session) if line.startswith("* set /brokers/topics/t")]
        assert driver.elections.image is not None
        assert driver.elections.image.topics["t"].partitions[0].leader == 0
        await other.close()
        await driver.close()

    run(scenario)


@pytest.mark.parametrize("before", [True, False], ids=["known", "found out"])
@pytest.mark.parametrize("is_ephemeral", [True, False], ids=["ephemeral", "access list"])
def test_a_topic_below_which_the_controller_may_not_write_stops_no_controller(
    monkeypatch: pytest.MonkeyPatch, is_ephemeral: bool, before: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Another client's node at a topic's place is left alone, and named in the log; it is looked at again when it has
    changed."""

    async def scenario(harness: Harness) -> None:
        multi = Recording.multi

        def denying(session: Recording, operations: Sequence[Operation]) -> Awaitable[Any]:
            denied = [each for each in operations if each.path.startswith("/brokers/topics/foreign")]
            if is_ephemeral or not denied or not is_denied:
                return multi(session, operations)
            failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            failed.set_exception(NoAuth(denied[0].path))
            return failed

        is_denied = True
        monkeypatch.setattr(Recording, "multi", denying)
        driver, _ = await harness.broker(0)
        if before:
            await driver.close()
        other = await LocalStore.connect(harness.store)
        await other.create("/brokers/topics/foreign", b'{"version":1,"partitions":{"0":[0]}}', ephemeral=is_ephemeral)
        if before:
            driver, _ = await harness.broker(0)
        created = await driver.elections.serve(CreateTopics([NewTopic("v", 1, 1)]), timeout_ms=20_000)
        assert [outcome.error for outcome in created] == [ErrorCode.NONE]
        assert driver.elections.image is not None
        assert "foreign" not in driver.elections.image.topics
        assert "/brokers/topics/foreign" in caplog.text
        is_denied = False
        if is_ephemeral:
            await other.close()
            created = await driver.elections.serve(CreateTopics([NewTopic("foreign", 1, 1)]), timeout_ms=20_000)
            assert [outcome.error for outcome in created] == [ErrorCode.NONE]
        else:
            await other.set("/brokers/topics/foreign", b'{"version":1,"partitions":{"0":[0]}} ')
            await eventually(lambda: harness.store.tree.exists("/brokers/topics/foreign/partitions/0/state"))
            await other.close()
        await driver.close()

    run(scenario)


def test_a_request_that_takes_too_long_is_told_so() -> None:
    """The broker that is to stop never answers; the deletion goes on."""

    async def scenario(harness: Harness) -> None:
        driver, _ = await harness.broker(0)
        await driver.elections.serve(CreateTopics([NewTopic("t", 1, 1)]))
        harness.failing[0] = 1 << 30
        with pytest.raises(KafkaError) as refusal:
            await driver.elections.serve(DeleteTopics([TopicReference("t")]), timeout_ms=10)
        assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT
        harness.failing[0] = 0
        await eventually(lambda: harness.store.tree.exists("/brokers/topics/t") is None)
        await driver.close()

    run(scenario)


def test_a_deletion_that_waits_keeps_no_request_that_is_not_awaited_any_more() -> None:
    """Its broker is away for days, and a client asks for it again and again."""

    async def scenario(harness: Harness) -> None:
        driver, _ = await harness.broker(0)
        await driver.elections.serve(CreateTopics([NewTopic("t", 1, 1)]))
        harness.held[0, ApiKey.STOP_REPLICA] = asyncio.Event()
        for _ in range(3):
            with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
                await driver.elections.serve(DeleteTopics([TopicReference("t")]), timeout_ms=50)
        assert driver.elections.controller is not None
        assert driver.elections.controller.awaiting_deletions == 0
        last = asyncio.ensure_future(driver.elections.serve(DeleteTopics([TopicReference("t")])))
        await eventually(lambda: driver.elections.controller.awaiting_deletions == 1)
        harness.held[0, ApiKey.STOP_REPLICA].set()
        assert [outcome.error for outcome in await last] == [ErrorCode.NONE]
        assert driver.elections.controller.awaiting_deletions == 0
        await driver.close()

    run(scenario)


@pytest.mark.parametrize("is_marked", [True, False], ids=["being deleted", "standing"])
def test_a_topic_that_a_tool_makes_anew_in_one_moment_is_another(is_marked: bool) -> None:
    """Its nodes are removed and made again between two reads. The deletion that was under way was the former topic's:
    it is answered, and the new one stays, with settings of its own."""

    async def scenario(harness: Harness) -> None:
        driver, _ = await harness.broker(0)
        await driver.elections.serve(CreateTopics([NewTopic("t", 1, 1, configs=[("retention.ms", "1")])]))
        before = driver.elections.image.topics["t"].topic_id if driver.elections.image else None
        tool = await LocalStore.connect(harness.store)
        asked: asyncio.Future[Any] | None = None
        if is_marked:
            harness.held[0, ApiKey.STOP_REPLICA] = asyncio.Event()
            asked = asyncio.ensure_future(driver.elections.serve(DeleteTopics([TopicReference("t")])))
            await eventually(lambda: (0, ApiKey.STOP_REPLICA) in harness.kinds())
        path = znodes.topic_path("t")
        gone = [znodes.state_path("t", 0), f"{path}/partitions/0", f"{path}/partitions", path, "/config/topics/t"]
        await tool.multi(
            [
                *(Delete(each) for each in [*gone, *(["/admin/delete_topics/t"] if is_marked else [])]),
                Create("/config/topics/t", znodes.encode_config({"retention.ms": "2"})),
                Create(path, b'{"version":2,"partitions":{"0":[0]},"topic_id":"AAAAAAAAAAAAAAAAAAAAZw"}'),
            ]
        )
        await eventually(lambda: harness.store.tree.exists(znodes.state_path("t", 0)))
        if asked is not None:
            [outcome] = await asked
            assert (outcome.error, outcome.topic_id) == (ErrorCode.NONE, before)
            harness.held[0, ApiKey.STOP_REPLICA].set()
        resource = ConfigResource(ConfigResourceType.TOPIC, "t")
        change = ConfigChange("retention.bytes", AlterOperation.SET, "3")
        await driver.elections.serve(AlterConfigs([ChangeConfigs(resource, [change])]))
        values = znodes.decode_config("", harness.store.tree.get("/config/topics/t")[0])
        assert values == {"retention.ms": "2", "retention.bytes": "3"}
        assert driver.elections.image is not None
        assert driver.elections.image.topics["t"].topic_id != before
        assert harness.store.tree.exists("/admin/delete_topics/t") is None
        await tool.close()
        await driver.close()

    run(scenario)


@pytest.mark.parametrize("is_by_id", [False, True], ids=["by name", "by id"])
def test_a_deletion_that_is_handled_anew_spares_the_next_topic_of_that_name(
    monkeypatch: pytest.MonkeyPatch, is_by_id: bool
) -> None:
    """A write failed, and all was loaded anew, while one client waited for a deletion and another one for the name: the
    deletion ended, the topic was made, and then came the first client's request once more."""

    async def scenario(harness: Harness) -> None:
        driver, session = await harness.broker(0)
        [former] = await driver.elections.serve(CreateTopics([NewTopic("t", 1, 1)]))
        await driver.elections.serve(CreateTopics([NewTopic("api", 1, 1)]))
        stopping = harness.held[0, ApiKey.STOP_REPLICA] = asyncio.Event()
        reference = TopicReference(None, former.topic_id) if is_by_id else TopicReference("t")
        deletion = driver.elections.serve(DeleteTopics([reference]))
        await eventually(lambda: (0, ApiKey.STOP_REPLICA) in harness.kinds())
        multi, creations = session.multi, list[asyncio.Future[Any]]()

        async def refuse() -> Sequence[OperationResult]:
            stopping.set()
            await eventually(lambda: driver.elections.controller_queue == 1)
            creations.append(driver.elections.serve(CreateTopics([NewTopic("t", 1, 1)])))
            raise BadVersion("/config/topics/api")

        def refuse_once(operations: Sequence[Operation]) -> Awaitable[Sequence[OperationResult]]:
            return multi(operations) if creations else asyncio.ensure_future(refuse())

        monkeypatch.setattr(session, "multi", refuse_once)
        change = ConfigChange("flush.messages", AlterOperation.SET, "7")
        await driver.elections.serve(AlterConfigs([ChangeConfigs(T, [change])]))
        [creation] = creations
        [made] = await creation
        [deleted] = await deletion
        assert (made.error, deleted.error) == (ErrorCode.NONE, ErrorCode.NONE)
        assert (deleted.name, deleted.topic_id) == ("t", former.topic_id)
        assert driver.elections.image is not None
        assert driver.elections.image.topics["t"].topic_id == made.topic_id
        assert harness.store.tree.exists("/admin/delete_topics/t") is None
        await driver.close()

    run(scenario)


def test_settings_are_replaced_while_it_runs() -> None:
    """num.partitions, for instance."""

    async def scenario(harness: Harness) -> None:
        driver, _ = await harness.broker(0)
        driver.elections.set_settings(ControllerSettings(default_partitions=4))
        [outcome] = await driver.elections.serve(CreateTopics([NewTopic("t")]))
        assert outcome.partitions == 4
        await driver.close()
        await driver.close()

    run(scenario)
