"""What the controller's shell does not wait for, and the notices that it follows: with a store and brokers in name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

import pytest
from tests.unit.controller.test_controller_driver import Harness, run
from tests.waiting import eventually

from tidelog.broker.cluster import controller_term
from tidelog.controller.requests import (
    AllocateProducerIds,
    AlterPartition,
    ControlledShutdown,
    CreateTopics,
    IsrMember,
    IsrProposal,
    NewTopic,
)
from tidelog.metadata import znodes
from tidelog.metadata.operations import Create, Delete, Operation, SetData
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import ZERO_TOPIC_ID, BrokerId, LeaderEpoch, PartitionEpoch, TopicPartition
from tidelog.protocol.apis import ApiKey
from tidelog.store.client import OperationResult
from tidelog.store.local import LocalStore

pytestmark = pytest.mark.row("R24")


def test_brokers_own_requests_are_answered_when_they_are_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broker 1 is registered and cut off: nobody's ISR, shutdown or producer ids wait for it to take in the news."""
    # They would wait for an hour.
    monkeypatch.setattr(controller_term, "ANNOUNCEMENT_WAIT_MS_MAX", 3_600_000)

    async def scenario(harness: Harness) -> None:
        driver, _ = await harness.broker(0)
        other, _ = await harness.broker(1)
        image = driver.elections.image
        assert image is not None
        await eventually(lambda: len(image.brokers) == 2)
        await driver.elections.serve(CreateTopics([NewTopic("t", assignment=[(0, [0, 1])])]))
        harness.failing[1] = 1_000_000
        proposal = IsrProposal(
            TopicPartition("t", 0), ZERO_TOPIC_ID, LeaderEpoch(0), [IsrMember(BrokerId(0))], PartitionEpoch(0)
        )
        wishes: list[Any] = [
            AlterPartition(BrokerId(0), driver.broker_epoch, [proposal]),
            AllocateProducerIds(BrokerId(0), driver.broker_epoch),
            ControlledShutdown(BrokerId(1), other.broker_epoch),
        ]
        for wish in wishes:
            await driver.elections.serve(wish)
        state = znodes.decode_state("t", 0, harness.store.tree.get("/brokers/topics/t/partitions/0/state")[0])
        assert state.isr == (0,)
        # A client waits: it may produce when it is told that the topic is there.
        creation = driver.elections.serve(CreateTopics([NewTopic("waits", assignment=[(0, [0])])]))
        await eventually(lambda: harness.store.tree.exists("/brokers/topics/waits/partitions/0/state") is not None)
        assert not creation.done()
        harness.failing[1] = 0
        assert (await creation)[0].error is ErrorCode.NONE
        await other.close()
        await driver.close()

    run(scenario)


def test_what_is_done_is_not_done_again() -> None:
    """A creation is written and waits for a broker while all is loaded anew: it is not told that its topic exists."""

    async def scenario(harness: Harness) -> None:
        driver, _ = await harness.broker(0)
        other, _ = await harness.broker(1)
        image = driver.elections.image
        assert image is not None
        await eventually(lambda: len(image.brokers) == 2)
        harness.failing[1] = 1_000_000
        creation = driver.elections.serve(CreateTopics([NewTopic("waits", assignment=[(0, [0])])]))
        await eventually(lambda: harness.store.tree.exists("/brokers/topics/waits/partitions/0/state") is not None)
        stranger = await LocalStore.connect(harness.store)
        await stranger.set(znodes.PRODUCER_ID_BLOCK, harness.store.tree.get(znodes.PRODUCER_ID_BLOCK)[0])
        # The version is another than the controller knows: this write fails first, and all is loaded anew.
        await driver.elections.serve(AllocateProducerIds(BrokerId(0), driver.broker_epoch))
        assert driver.elections.image is not image
        assert not creation.done()
        harness.failing[1] = 0
        assert (await creation)[0].error is ErrorCode.NONE
        await stranger.close()
        await other.close()
        await driver.close()

    run(scenario)


def test_notices_of_isr_changes_are_followed() -> None:
    """A broker of a protocol below 2.7 writes its ISR and says so: the state is read, the notice goes."""

    async def scenario(harness: Harness) -> None:
        driver, _ = await harness.broker(0)
        await driver.elections.serve(CreateTopics([NewTopic("t", 1, 1)]))
        stranger = await LocalStore.connect(harness.store)
        path = "/brokers/topics/t/partitions/0/state"
        state = b'{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0,7]}'
        notice = znodes.encode_partitions([TopicPartition("t", 0), TopicPartition("ghost", 3)])
        await stranger.multi(
            [SetData(path, state), Create("/isr_change_notification/isr_change_", notice, sequential=True)]
        )
        await eventually(lambda: harness.store.tree.children("/isr_change_notification")[0] == [])
        image = driver.elections.image
        assert image is not None
        partition = image.topics["t"].partitions[0]
        assert (partition.isr, partition.partition_epoch) == ((0, 7), 1)
        await stranger.close()
        await driver.close()

    run(scenario)


def test_containers_that_somebody_deletes_are_taken_as_empty(caplog: pytest.LogCaptureFixture) -> None:
    """The controller goes on, says so once, and watches for the container to be made again, as the old tools do."""

    async def scenario(harness: Harness) -> None:
        driver, _ = await harness.broker(0)
        stranger = await LocalStore.connect(harness.store)
        await stranger.delete("/admin/delete_topics")
        [outcome] = await driver.elections.serve(CreateTopics([NewTopic("t", 1, 1)]))
        assert outcome.error is ErrorCode.NONE
        await stranger.multi([Create("/admin/delete_topics"), Create("/admin/delete_topics/t")])
        await eventually(lambda: harness.store.tree.exists("/brokers/topics/t") is None)
        assert len([each for each in caplog.messages if "/admin/delete_topics" in each]) <= 1
        await stranger.multi([Delete("/admin/delete_topics")])
        await stranger.close()
        await driver.close()

    run(scenario)


def test_what_a_broker_has_said_before_it_registered_anew_is_not_held_against_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Broker 1 says that a directory has failed, and is started again with a sound one, while the controller waits for
    its store: of the two it takes in the registration first."""

    async def scenario(harness: Harness) -> None:
        driver, session = await harness.broker(0)
        former, _ = await harness.broker(1)
        controller = driver.elections.controller
        assert controller is not None
        await eventually(lambda: len(controller.image.brokers) == 2)
        answered = harness.held[1, ApiKey.LEADER_AND_ISR] = asyncio.Event()
        written, multi = asyncio.Event(), session.multi

        async def write_late(operations: Sequence[Operation]) -> Sequence[OperationResult]:
            await written.wait()
            return await multi(operations)

        def write(operations: Sequence[Operation]) -> Awaitable[Sequence[OperationResult]]:
            return asyncio.ensure_future(write_late(operations))

        harness.storage_errors[1] = {"t"}
        creation = driver.elections.serve(CreateTopics([NewTopic("t", assignment=[(0, [0, 1])])]))
        await eventually(lambda: (1, ApiKey.LEADER_AND_ISR) in [(id, key) for id, key, _, _ in harness.requests])
        monkeypatch.setattr(session, "multi", write)
        wish = driver.elections.serve(AllocateProducerIds(BrokerId(0), driver.broker_epoch))
        await asyncio.sleep(0)
        answered.set()
        await eventually(lambda: driver.elections.controller_queue == 1)
        harness.storage_errors.clear()
        await former.close()
        present, _ = await harness.broker(1)
        written.set()
        await asyncio.gather(wish, creation)
        await eventually(lambda: controller.image.brokers[BrokerId(1)].epoch == present.broker_epoch)
        await eventually(lambda: driver.elections.controller_queue == 0)
        assert controller.state.is_online(BrokerId(1), TopicPartition("t", 0))
        await present.close()
        await driver.close()

    run(scenario)
