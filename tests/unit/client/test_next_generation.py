"""Membership by KIP-848 against a scripted coordinator: what heartbeats say, and what is done by their answers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.unit.client.group_broker import GroupBroker
from tests.unit.client.scripted_broker import DROP
from tests.unit.client.test_consumer import NEXT_TOPIC_ID, T0, Told
from tests.waiting import eventually

from tidelog.client.cluster import Cluster
from tidelog.client.consumer import AutoOffsetReset, Consumer, ConsumerSettings, GroupProtocol, SubscriptionPattern
from tidelog.client.errors import CommitRefused, Fenced
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey


class NextGenerationBroker(GroupBroker):
    """Answers heartbeats: `target` is the assignment to tell with the next one, None for no news."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.target: list[int] | None = [0]
        self.member_epoch = 0
        self.handlers[ApiKey.CONSUMER_GROUP_HEARTBEAT] = self._beat

    def _beat(self, request: Any, version: int) -> Any:
        kind = messages.ConsumerGroupHeartbeatResponse
        failure = self._failure(ApiKey.CONSUMER_GROUP_HEARTBEAT)
        if failure is DROP:
            return DROP
        if failure is not None:
            return kind(error_code=failure, error_message="no", heartbeat_interval_ms=20)
        if request.member_epoch < 0:
            return kind(member_epoch=request.member_epoch)
        assignment = None
        if self.target is not None:
            self.member_epoch += 1
            entry = kind.TopicPartitions(topic_id=self.topic_id, partitions=self.target)
            assignment = kind.Assignment(topic_partitions=[entry] if self.target else [])
            self.target = None
        return kind(
            member_id=request.member_id,
            member_epoch=self.member_epoch,
            heartbeat_interval_ms=20,
            assignment=assignment,
        )

    @property
    def beats(self) -> list[Any]:
        """The heartbeats so far."""
        return self.asked(ApiKey.CONSUMER_GROUP_HEARTBEAT)

    @property
    def told_owned(self) -> list[list[int]]:
        """What the member said it has, as often as it said so."""
        return [
            [partition for entry in beat.topic_partitions for partition in entry.partitions]
            for beat in self.beats
            if beat.topic_partitions is not None
        ]


LATE, LATE_ID = TopicPartition("late", 0), bytes(range(50, 66))


class LateTopicBroker(NextGenerationBroker):
    """Assigns a partition of topic `late`, too, where `assigns_late`, and shows only the topics that it `shows`."""

    def __init__(self, shows: list[str], *, assigns_late: bool = True) -> None:
        super().__init__(partitions=1)
        self.shows = shows
        self.assigns_late = assigns_late

    def _beat(self, request: Any, version: int) -> Any:
        response = super()._beat(request, version)
        if response.assignment is not None and self.assigns_late:
            entry = messages.ConsumerGroupHeartbeatResponse.TopicPartitions(topic_id=LATE_ID, partitions=[0])
            response.assignment.topic_partitions.append(entry)
        return response

    def metadata(self, request: Any, version: int) -> Any:
        response, kind = super().metadata(request, version), messages.MetadataResponse
        partition = kind.MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=3)
        ids = {"t": self.topic_id, "late": LATE_ID}
        response.topics = [
            kind.MetadataResponseTopic(name=name, topic_id=ids[name], partitions=[partition])
            for name in self.shows
            if request.topics is None or name in [topic.name for topic in request.topics]
        ]
        return response


@contextlib.asynccontextmanager
async def consuming(broker: GroupBroker, told: Told, **settings: Any) -> AsyncIterator[Consumer]:
    """A polling member of group `g` that wants topic `t`."""
    chosen = ConsumerSettings(**{"protocol": "consumer", "auto_offset_reset": "earliest"} | settings)
    async with Cluster(broker.bootstrap) as cluster, Consumer(cluster, "g", chosen) as consumer:
        consumer.subscribe(["t"], told)
        yield consumer


@contextlib.asynccontextmanager
async def polling(consumer: Consumer) -> AsyncIterator[asyncio.Task[Any]]:
    """The consumer polls meanwhile, until it fails."""

    async def poll() -> None:
        while True:
            await consumer.poll()

    task = asyncio.create_task(poll())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_assignment_is_taken_and_acknowledged() -> None:
    """All about us once, then only news: what we have, as soon as we have it; at the end that we leave."""
    told = Told()
    with NextGenerationBroker() as broker:
        async with consuming(broker, told, rack="r", server_assignor="range") as consumer, polling(consumer):
            await eventually(lambda: broker.told_owned == [[], [0]])
            broker.target = [1]
            await eventually(lambda: broker.told_owned == [[], [0], [1]])
            member_id = consumer.member.member_id
            assert (consumer.member.generation, len(member_id)) == (2, 36)
            seen = len(broker.beats)
            await eventually(lambda: len(broker.beats) > seen + 2)
        first, *others, last = broker.beats
        assert (first.member_epoch, first.rack_id, first.server_assignor) == (0, "r", "range")
        assert (first.subscribed_topic_names, first.rebalance_timeout_ms) == (["t"], 300_000)
        assert all(beat.subscribed_topic_names is None for beat in others)
        assert (last.member_epoch, last.member_id) == (-1, member_id)
    assert told.events == [("assigned", [0]), ("revoked", [0]), ("assigned", [1]), ("revoked", [1])]


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND]
)
async def test_a_member_that_was_fenced_joins_anew(code: ErrorCode) -> None:
    """From epoch 0, with nothing: what it had is lost. A group that has lost its last member may be gone by then."""
    told = Told()
    with NextGenerationBroker() as broker:
        async with consuming(broker, told) as consumer, polling(consumer):
            await eventually(lambda: broker.told_owned == [[], [0]])
            broker.target = [0]
            broker.fail_next[ApiKey.CONSUMER_GROUP_HEARTBEAT] = [code]
            await eventually(lambda: broker.told_owned == [[], [0], [], [0]])
    assert told.events == [("assigned", [0]), ("lost", [0]), ("assigned", [0]), ("revoked", [0])]


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
async def test_what_is_lost_is_not_committed_by_whom_one_has_become(code: ErrorCode) -> None:
    """It joins anew by itself, while the caller still works on records that are others' now."""
    told = Told()
    with NextGenerationBroker(partitions=1) as broker:
        broker.append(0, 1)
        async with consuming(broker, told, auto_commit=False) as consumer:
            assert await consumer.poll(10) is not None
            given_to = consumer.member
            broker.fail_next[ApiKey.CONSUMER_GROUP_HEARTBEAT] = [code]
            await eventually(lambda: [beat.member_epoch for beat in broker.beats].count(0) == 2)
            await eventually(lambda: broker.beats[-1].member_epoch > 0)
            with pytest.raises(CommitRefused):
                await consumer.commit()
            assert consumer.member == given_to
            assert told.events == [("assigned", [0])]
        assert broker.committed == {}


async def test_who_closes_while_it_joins_says_goodbye() -> None:
    """The coordinator may have taken it in: the others would wait for its session to end."""
    asked, go_on = threading.Event(), threading.Event()
    with NextGenerationBroker() as broker:
        beat = broker.handlers[ApiKey.CONSUMER_GROUP_HEARTBEAT]

        def slowly(request: Any, version: int) -> Any:
            asked.set()
            assert go_on.wait(180)
            return beat(request, version)

        broker.handlers[ApiKey.CONSUMER_GROUP_HEARTBEAT] = slowly
        async with consuming(broker, Told()) as consumer, polling(consumer):
            assert await asyncio.to_thread(asked.wait, 30)
            closing = asyncio.create_task(consumer.close())
            await asyncio.sleep(0)
            go_on.set()
            await closing
        assert broker.beats[-1].member_epoch == -1


async def test_a_coordinator_that_is_away_for_long_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than a heartbeat may take: then it says what has become of us."""
    told = Told()
    with NextGenerationBroker() as broker:
        async with consuming(broker, told) as consumer, polling(consumer) as polls:
            await eventually(lambda: broker.told_owned == [[], [0]])
            away = 0

            async def ask(*_: Any, **__: Any) -> Any:
                nonlocal away
                away += 1
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

            with monkeypatch.context() as patched:
                patched.setattr(consumer._connections[1], "ask", ask)
                await eventually(lambda: away > 1)
            seen = len(broker.beats)
            await eventually(lambda: len(broker.beats) > seen + 1)
            assert not polls.done()


async def test_a_topic_that_becomes_known_is_taken_though_the_epoch_rose_meanwhile() -> None:
    """As when another member comes: the coordinator does not say again what the assignment is."""
    with LateTopicBroker(shows=["t"]) as broker:
        async with consuming(broker, Told()) as consumer, polling(consumer):
            consumer.subscribe(["t", "late"])
            await eventually(lambda: broker.told_owned == [[], [0]])
            broker.member_epoch += 1
            await eventually(lambda: consumer.member.generation == broker.member_epoch)
            broker.shows.append("late")
            await eventually(lambda: consumer.assignment == {T0, LATE}, limit_s=30)


async def test_what_is_assigned_is_kept_though_a_broker_does_not_show_it() -> None:
    """A new topic of a pattern has all topics asked for, of a broker that has not been told of any yet."""
    told = Told()
    with LateTopicBroker(shows=["t"], assigns_late=False) as broker:
        async with consuming(broker, told) as consumer, polling(consumer):
            consumer.subscribe(SubscriptionPattern(".*"), told)
            await eventually(lambda: broker.told_owned == [[], [0]])
            broker.shows, broker.assigns_late, broker.target = [], True, [0]
            seen = len(broker.asked(ApiKey.METADATA))
            await eventually(lambda: len(broker.asked(ApiKey.METADATA)) > seen + 1)
            broker.shows = ["t", "late"]
            await eventually(lambda: consumer.assignment == {T0, LATE}, limit_s=30)
            assert told.events == [("assigned", [0]), ("assigned", [0])]


async def test_commits_carry_the_epoch() -> None:
    """And are sent again when it rose on the way."""
    with NextGenerationBroker(partitions=1) as broker:
        broker.append(0, 1)
        async with consuming(broker, Told(), auto_commit=False) as consumer:
            assert await consumer.poll(10) is not None
            broker.fail_next[ApiKey.OFFSET_COMMIT] = [ErrorCode.STALE_MEMBER_EPOCH]
            await consumer.commit()
        assert broker.committed == {0: 1}
        assert [each.generation_id_or_member_epoch for each in broker.asked(ApiKey.OFFSET_COMMIT)] == [1, 1]
        (group,) = broker.asked(ApiKey.OFFSET_FETCH)[-1].groups
        assert group.member_epoch == 1


async def test_a_group_of_another_kind_ends_it() -> None:
    """Which is what a group that is not found means to a member that joins."""
    with NextGenerationBroker() as broker:
        broker.fail_next[ApiKey.CONSUMER_GROUP_HEARTBEAT] = [ErrorCode.GROUP_ID_NOT_FOUND]
        async with consuming(broker, Told()) as consumer:
            with pytest.raises(KafkaError) as refused:
                await consumer.poll(10)
        assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_right_to_a_topic_that_is_given_later_lets_the_member_in() -> None:
    """`poll` raises what the coordinator says of the topics, and the membership goes on asking, as Java's does. What
    the member has already stays its own meanwhile."""
    with NextGenerationBroker(partitions=1) as broker:
        broker.append(0, 1)
        broker.fail_next[ApiKey.CONSUMER_GROUP_HEARTBEAT] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 3
        told = Told()
        batch = None
        async with consuming(broker, told) as consumer:
            with pytest.raises(KafkaError) as refused:
                await consumer.poll(timeout_s=180)
            assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            await eventually(lambda: len(broker.beats) > 3)
            for _ in range(2):  # The second refusal may be the first one that is not told yet.
                with contextlib.suppress(KafkaError):
                    batch = batch or await consumer.poll(timeout_s=180)
            assert batch is not None
            assert batch.topic_partition == T0
            broker.fail_next[ApiKey.CONSUMER_GROUP_HEARTBEAT] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
            with pytest.raises(KafkaError):
                await consumer.poll(timeout_s=180)
            broker.append(0, 1)
            batch = await consumer.poll(timeout_s=180)
            assert batch is not None
            assert batch.next_offset == 2
        assert told.events == [("assigned", [0]), ("revoked", [0])]


async def test_a_name_that_another_one_has_ends_it() -> None:
    """It is not ours to take; what the broker says of other refusals is told in its words."""
    with NextGenerationBroker() as broker:
        for code, expected in (
            (ErrorCode.UNRELEASED_INSTANCE_ID, Fenced),
            (ErrorCode.UNSUPPORTED_ASSIGNOR, KafkaError),
        ):
            broker.fail_next[ApiKey.CONSUMER_GROUP_HEARTBEAT] = [code]
            async with consuming(broker, Told(), instance_id="i") as consumer:
                with pytest.raises(expected):
                    await consumer.poll(10)


async def test_a_static_member_leaves_for_a_while() -> None:
    """Epoch -2: whoever comes back by its name gets its partitions."""
    with NextGenerationBroker() as broker:
        async with consuming(broker, Told(), instance_id="i") as consumer, polling(consumer):
            await eventually(lambda: broker.told_owned == [[], [0]])
        assert broker.beats[-1].member_epoch == -2


async def test_who_does_not_come_back_leaves_the_group() -> None:
    """After max.poll.interval.ms; and joins again when it comes back after all."""
    told = Told()
    with NextGenerationBroker(partitions=1) as broker:
        broker.append(0, 1)
        async with consuming(broker, told, max_poll_interval_s=0.1) as consumer:
            assert await consumer.poll(10) is not None
            await eventually(lambda: broker.beats[-1].member_epoch == -1)
            broker.target = [0]
            assert await consumer.poll(10) is not None
    assert told.events[:3] == [("assigned", [0]), ("lost", [0]), ("assigned", [0])]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
async def test_a_member_that_hears_first_from_its_search_that_it_was_given_up_joins_anew(code: ErrorCode) -> None:
    """The next heartbeat says so, too: there is nothing in it for the caller."""
    told = Told()
    with NextGenerationBroker(partitions=1) as broker:
        broker.append(0, 1)
        answer, refusals = broker.handlers[ApiKey.OFFSET_FETCH], [code]

        def refuse(request: Any, version: int) -> Any:
            response = answer(request, version)
            if refusals:
                (group,) = response.groups
                group.error_code, group.topics = refusals.pop(), []
                broker.fail_next[ApiKey.CONSUMER_GROUP_HEARTBEAT] = [ErrorCode.UNKNOWN_MEMBER_ID]
                broker.target = [0]
            return response

        broker.handlers[ApiKey.OFFSET_FETCH] = refuse
        async with consuming(broker, told) as consumer:
            batch = await consumer.poll(10)
            assert batch is not None
            assert batch.offset == 0
    assert told.events[:3] == [("assigned", [0]), ("lost", [0]), ("assigned", [0])]


async def test_what_is_lost_is_not_claimed_while_the_caller_has_it_in_hand() -> None:
    """A coordinator that has raised the new member's epoch in a lost answer would fence it for that, each time."""
    told = Told()
    with NextGenerationBroker(partitions=1) as broker:
        broker.append(0, 1)
        async with consuming(broker, told) as consumer:
            assert await consumer.poll(10) is not None
            await eventually(lambda: broker.told_owned[-1] == [0])
            broker.fail_next[ApiKey.CONSUMER_GROUP_HEARTBEAT] = [ErrorCode.UNKNOWN_MEMBER_ID]
            await eventually(lambda: [beat.member_epoch for beat in broker.beats].count(0) == 2)
            broker.fail_next[ApiKey.CONSUMER_GROUP_HEARTBEAT] = [DROP]
            seen = len(broker.beats)
            await eventually(lambda: len(broker.beats) > seen + 4)
            assert broker.told_owned[2:] == [[], []], "joined, and said all again after the lost answer"
            broker.target = [0]
            assert await consumer.poll(10) is not None
            await eventually(lambda: broker.told_owned[-1] == [0])
    assert told.events[:3] == [("assigned", [0]), ("lost", [0]), ("assigned", [0])]


async def test_a_broker_without_the_protocol_is_told() -> None:
    """By name of the API."""
    with GroupBroker() as broker:
        async with consuming(broker, Told()) as consumer:
            with pytest.raises(Exception, match="does not serve ConsumerGroupHeartbeat"):
                await consumer.poll(10)


async def test_after_a_lost_answer_a_heartbeat_says_all_there_is() -> None:
    """The coordinator may have raised the epoch: it takes the one before only with what the member owns."""
    with NextGenerationBroker(partitions=2) as broker:
        told = Told()
        async with consuming(broker, told) as consumer, polling(consumer):
            await eventually(lambda: consumer.assignment and len(broker.beats) > 4)
            assert broker.beats[-1].subscribed_topic_names is None
            broker.fail_next[ApiKey.CONSUMER_GROUP_HEARTBEAT] = [DROP]
            seen = len(broker.beats)
            await eventually(lambda: len(broker.beats) > seen + 2)
            lost = next(
                i for i, beat in enumerate(broker.beats) if i >= seen and beat.subscribed_topic_names is not None
            )
            again = broker.beats[lost]
            assert again.subscribed_topic_names == ["t"]
            assert again.rebalance_timeout_ms == 300_000
            assert [entry.partitions for entry in again.topic_partitions] == [[0]]
            assert again.member_epoch == broker.beats[lost - 1].member_epoch
            await eventually(lambda: broker.beats[-1].subscribed_topic_names is None)
        assert told.events == [("assigned", [0]), ("revoked", [0])]


async def test_a_member_says_what_it_owns_by_the_topic_ids_of_its_assignment() -> None:
    """Its metadata may name the next topic of that name already, whose partitions the coordinator has not given it.

    A coordinator that has raised the member's epoch in a lost answer refuses a member that claims more than it has.
    """
    with NextGenerationBroker(partitions=1) as broker:
        told, former = Told(), broker.topic_id
        chosen = ConsumerSettings(protocol=GroupProtocol.CONSUMER, auto_offset_reset=AutoOffsetReset.EARLIEST)
        async with Cluster(broker.bootstrap) as cluster, Consumer(cluster, "g", chosen) as consumer:
            consumer.subscribe(["t"], told)
            async with polling(consumer):
                await eventually(lambda: broker.told_owned == [[], [0]])
                broker.topic_id = NEXT_TOPIC_ID
                await cluster.run(cluster.routing.refresh(["t"], cluster.routing.deadline()))
                broker.fail_next[ApiKey.CONSUMER_GROUP_HEARTBEAT] = [DROP]
                await eventually(lambda: broker.told_owned == [[], [0], [0]])
                assert owned_ids(broker) == [former, former]
                broker.target = [0]
                await eventually(lambda: owned_ids(broker)[-1] == NEXT_TOPIC_ID)
        assert told.events == [("assigned", [0]), ("revoked", [0]), ("assigned", [0]), ("revoked", [0])]


def owned_ids(broker: NextGenerationBroker) -> list[bytes]:
    """The topic ids of what the member said it has, as often as it said so."""
    return [bytes(entry.topic_id) for beat in broker.beats for entry in beat.topic_partitions or ()]
