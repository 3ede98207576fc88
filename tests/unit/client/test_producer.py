"""The producer: batches, partitions, order over retries, failures told."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.client.group_broker import GroupBroker
from tests.unit.client.log_broker import LogBroker
from tests.unit.client.scripted_broker import DROP, SILENCE, HeldAnswers, ScriptedBroker
from tests.waiting import eventually

from tidelog.client.addresses import Address
from tidelog.client.cluster import Cluster
from tidelog.client.errors import (
    BatchRefused,
    ConnectionFailed,
    ProducerClosed,
    RefusedWithBatch,
    RequestTimedOut,
    TransactionFailed,
)
from tidelog.client.operations import Purpose
from tidelog.client.partitioners import InvalidPartition, Partitions, partition_for_key
from tidelog.client.producer import Producer, ProducerSettings, sender
from tidelog.client.producer import producer as producer_module
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import Codec, read_header


async def produce(broker: ScriptedBroker, values: list[bytes], *, partition: int | None = 0, **settings: Any) -> None:
    """Sends values and waits for all of them."""
    async with Cluster(broker.bootstrap) as cluster, Producer(cluster, ProducerSettings(**settings)) as producer:
        for value in values:
            await producer.send("t", value, partition=partition)


async def test_records_arrive_as_they_were_sent() -> None:
    """Keys, nulls, empty values, headers (repeated ones too) and timestamps, through columns and back."""
    with LogBroker(partitions=1) as broker:
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster) as producer:
            await producer.send("t", b"v", key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=7)
            await producer.send("t", None, key=b"", timestamp=8)
            delivery = await producer.send("t", b"", timestamp=9)
            place = await delivery.place()
        assert place.topic_partition == TopicPartition("t", 0)
        assert place.offset == 2
        assert [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in broker.records(0)] == [
            (0, 7, b"k", b"v", [("h", b"1"), ("h", None)]),
            (1, 8, b"", None, []),
            (2, 9, None, b"", []),
        ]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.row("R37")
async def test_batches_are_compressed_as_asked(codec: Codec) -> None:
    """One batch for records that lingered together, in the codec of the settings."""
    values = [b"%d" % i for i in range(1000)]
    with LogBroker(partitions=1) as broker:
        await produce(broker, values, codec=codec, linger_ms=10_000)
        ((_, _, batch),) = broker.batches[0]
        assert read_header(batch).codec is codec
        assert [record.value for record in broker.records(0)] == values


async def test_a_full_batch_does_not_linger() -> None:
    """batch_size closes a batch; a record larger than that has one of its own."""
    with LogBroker(partitions=1) as broker:
        async with (
            Cluster(broker.bootstrap) as cluster,
            Producer(cluster, ProducerSettings(batch_size=500, linger_ms=60_000)) as producer,
        ):
            deliveries = [await producer.send("t", bytes(200)) for _ in range(4)]
            deliveries.append(await producer.send("t", bytes(5000)))
            places = await asyncio.gather(*(delivery.place() for delivery in deliveries))
        assert [place.offset for place in places] == [0, 1, 2, 3, 4]
        assert [after - base for base, after, _ in broker.batches[0]] == [2, 2, 1]


@pytest.mark.row("R21")
async def test_keys_go_by_their_hash_and_the_rest_sticks() -> None:
    """Records without a key stay together until a batch is full."""
    with LogBroker(partitions=5) as broker:
        async with (
            Cluster(broker.bootstrap) as cluster,
            Producer(cluster, ProducerSettings(batch_size=2000)) as producer,
        ):
            keyed = [await producer.send("t", b"v", key=b"%d" % i) for i in range(50)]
            for i, delivery in enumerate(keyed):
                assert (await delivery.place()).topic_partition.partition == partition_for_key(b"%d" % i, 5)
            sticky = [await producer.send("t", bytes(60)) for _ in range(15)]
            assert len({(await delivery.place()).topic_partition for delivery in sticky}) == 1


async def where(partitioner: Any, records: list[tuple[bytes | None, bytes]], **settings: Any) -> list[int]:
    """The partitions of these (key, value) among five."""
    with LogBroker(partitions=5) as broker:
        async with (
            Cluster(broker.bootstrap) as cluster,
            Producer(cluster, ProducerSettings(partitioner=partitioner, **settings)) as producer,
        ):
            deliveries = [await producer.send("t", value, key=key) for key, value in records]
            await producer.flush()
            return [(await delivery.place()).topic_partition.partition for delivery in deliveries]


@pytest.mark.row("R20")
async def test_round_robin_leaves_no_partition_out() -> None:
    """Records that begin a batch don't take two turns, as they did in Kafka 2.4."""
    found = await where("round_robin", [(b"k", bytes(60))] * 10, batch_size=100)
    assert found == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]


@pytest.mark.row("R21")
async def test_sticky_changes_with_each_batch() -> None:
    """Two records fill a batch, and the next two are elsewhere."""
    found = await where("sticky", [(None, bytes(60))] * 12, batch_size=250, linger_ms=60_000)
    pairs = list(zip(found[::2], found[1::2], strict=True))
    assert all(one == other for one, other in pairs)
    assert all(one != other for one, other in itertools.pairwise(pairs))


@pytest.mark.row("R22")
async def test_a_users_own_partitioner_decides() -> None:
    """By value here; what is no partition fails the record at once, and the others are sent."""

    def by_size(key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        return len(value or b"")

    assert await where(by_size, [(b"k", b"22"), (None, b"1")]) == [2, 1]
    with LogBroker(partitions=2) as broker:
        settings = ProducerSettings(partitioner=by_size)
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, settings) as producer:
            await producer.send("t", b"1")
            with pytest.raises(InvalidPartition, match="chose 2 for topic 't', which has partitions 0 to 1"):
                await producer.send("t", b"22")
        assert [record.value for record in broker.records(1)] == [b"1"]


async def test_an_unknown_partitioner_is_refused_at_once() -> None:
    """When the producer is made, not with its first record."""
    with LogBroker(partitions=1) as broker:
        async with Cluster(broker.bootstrap) as cluster:
            with pytest.raises(ValueError, match="no partitioner 'rr'"):
                Producer(cluster, ProducerSettings(partitioner="rr"))


@pytest.mark.parametrize("failure", [DROP, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS])
async def test_what_passes_is_tried_again_in_order(failure: Any) -> None:
    """Sequences keep the order of batches that are in flight together: a retry lets no later batch overtake."""
    values = [b"%d" % i for i in range(300)]
    with LogBroker(partitions=1) as broker:
        broker.fail_next[ApiKey.PRODUCE] = [failure, failure]
        await produce(broker, values, batch_size=500)
        assert [record.value for record in broker.records(0)] == values


async def test_an_idempotent_producers_sequences_go_on_over_batches() -> None:
    """Producer id and epoch are the broker's, sequences count records, a retry sends the same bytes."""
    with LogBroker(partitions=1) as broker:
        broker.fail_next[ApiKey.PRODUCE] = [ErrorCode.REQUEST_TIMED_OUT]
        await produce(broker, [bytes(100)] * 10, idempotent=True, batch_size=500)
        headers = [read_header(batch) for _, _, batch in broker.batches[0]]
        assert {(header.producer_id, header.producer_epoch) for header in headers} == {(42, 1)}
        assert [header.base_sequence for header in headers] == [base for base, _, _ in broker.batches[0]]
        asked = [bytes(r.topic_data[0].partition_data[0].records) for r in broker.asked(ApiKey.PRODUCE)]
        assert asked[0] == asked[1]
        assert {request.acks for request in broker.asked(ApiKey.PRODUCE)} == {-1}


async def test_a_refused_batch_fails_its_records_and_the_flush() -> None:
    """Delivery and flush both tell; the records of other batches arrive."""
    with LogBroker(partitions=2) as broker:
        broker.fail_next[ApiKey.PRODUCE] = [ErrorCode.MESSAGE_TOO_LARGE]
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster) as producer:
            delivery = await producer.send("t", bytes(10), partition=0)
            with pytest.raises(KafkaError, match=r"max\.message\.bytes"):
                await delivery.place()
            with pytest.raises(KafkaError, match=r"max\.message\.bytes"):
                await producer.flush()
            good = await producer.send("t", b"good", partition=1)
            assert (await good.place()).offset == 0
            await producer.flush()


@pytest.mark.parametrize(
    ("at_fault", "code"), [((1,), ErrorCode.INVALID_TIMESTAMP), ((0, 1), ErrorCode.INVALID_RECORD)]
)
async def test_records_at_fault_fail_and_say_so(at_fault: tuple[int, ...], code: ErrorCode) -> None:
    """KIP-467: of a refused batch those records that the broker names; each other one says that it failed with them.

    The batch's code is that of one of its records; where several are named, nobody knows whose.
    """
    with LogBroker(partitions=1) as broker:
        broker.fail_next[ApiKey.PRODUCE] = [ErrorCode.INVALID_TIMESTAMP]
        broker.record_errors = {index: f"bad {index}" for index in at_fault}
        settings = ProducerSettings(linger_ms=60_000)
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, settings) as producer:
            deliveries = [await producer.send("t", b"x", partition=0) for _ in range(3)]
            with pytest.raises(BatchRefused) as whole:
                await producer.flush()
            assert (whole.value.code, set(whole.value.record_errors)) == (ErrorCode.INVALID_TIMESTAMP, set(at_fault))
            for index, delivery in enumerate(deliveries):
                with pytest.raises((KafkaError, RefusedWithBatch)) as refused:
                    await delivery.place()
                if index in at_fault:
                    assert isinstance(refused.value, KafkaError)
                    assert (refused.value.code, refused.value.message) == (code, f"bad {index}")
                else:
                    assert isinstance(refused.value, RefusedWithBatch)
            await producer.send("t", b"good", partition=0)
            await producer.flush()


async def test_delivery_ends_at_its_deadline() -> None:
    """A partition that stays without its replicas fails the batch after delivery_timeout_s.

    The last attempt was refused or, on a busy machine, had no answer when the time was over.
    """
    with LogBroker(partitions=1) as broker:
        broker.fail_next[ApiKey.PRODUCE] = [ErrorCode.NOT_ENOUGH_REPLICAS] * 1000
        with pytest.raises((KafkaError, RequestTimedOut)) as failed:
            await produce(broker, [b"v"], delivery_timeout_s=0.3)
        assert isinstance(failed.value, RequestTimedOut) or failed.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


async def test_without_acks_nothing_is_waited_for() -> None:
    """acks=0: delivered as soon as sent, at an unknown offset."""
    with LogBroker(partitions=1) as broker:
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, ProducerSettings(acks=0)) as producer:
            place = await (await producer.send("t", b"v")).place()
            assert place.offset == -1
            await eventually(lambda: broker.end(0) == 1)
        assert [record.value for record in broker.records(0)] == [b"v"]


def _led_elsewhere(broker: ScriptedBroker, former_port: int) -> Callable[[Any, int], Any]:
    """A handler of Metadata: partition 0 of `t` is led by a former broker until `broker.moved` is set."""

    def metadata(request: Any, version: int) -> Any:
        answer = broker.metadata(request, version)
        kind = messages.MetadataResponse.MetadataResponseBroker
        answer.brokers.append(kind(node_id=2, host="127.0.0.1", port=former_port))
        if not getattr(broker, "moved", False):
            for topic in answer.topics:
                for partition in topic.partitions:
                    partition.leader_id, partition.leader_epoch = 2, 2 if version >= 7 else -1
        return answer

    return metadata


async def test_without_acks_a_leader_that_is_gone_is_left_at_once() -> None:
    """acks=0: no answer tells of another leader, so what cannot be sent has to."""
    with LogBroker(partitions=1) as broker:
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            former_port = nobody.getsockname()[1]
        broker.handlers[ApiKey.METADATA] = _led_elsewhere(broker, former_port)
        settings = ProducerSettings(acks=0, metadata_max_age_s=1_000)
        async with Cluster(broker.bootstrap) as cluster:
            producer = Producer(cluster, settings)
            async with producer:
                await producer.require("t")
                broker.moved = True  # type: ignore[attr-defined]
                with pytest.raises(ConnectionFailed):
                    await (await producer.send("t", b"lost")).place()
                await (await producer.send("t", b"v")).place()
                producer._failure = None
            await eventually(lambda: [record.value for record in broker.records(0)] == [b"v"])


async def test_without_acks_a_connection_that_is_closed_is_an_answer() -> None:
    """acks=0: a broker that leads the partition no more closes the connection, so that clients look where it went."""
    with LogBroker(partitions=1) as broker, ScriptedBroker({ApiKey.PRODUCE: lambda request, version: DROP}) as former:
        for each in (broker, former):
            each.handlers[ApiKey.METADATA] = _led_elsewhere(broker, former.port)
        settings = ProducerSettings(acks=0, metadata_max_age_s=1_000)
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, settings) as producer:
            await producer.require("t")
            broker.moved = True  # type: ignore[attr-defined]
            partition, address = TopicPartition("t", 0), Address("127.0.0.1", former.port)
            for _ in range(2):
                await (await producer.send("t", b"perhaps lost")).place()
                await eventually(lambda: not cluster.is_connected(address, Purpose.PRODUCE))
            await eventually(
                lambda: (leader := cluster.routing.leader(partition)) is not None and leader.broker_id == 1
            )
            await (await producer.send("t", b"v")).place()
            await eventually(lambda: b"v" in [record.value for record in broker.records(0)])


async def test_memory_is_bounded_and_senders_wait() -> None:
    """More than buffer_memory goes through, a part at a time."""
    with LogBroker(partitions=1) as broker:
        await produce(broker, [bytes(1000)] * 200, buffer_memory=10_000, batch_size=3_000, linger_ms=60_000)
        assert broker.end(0) == 200


@pytest.mark.parametrize("size", [400, 800])
async def test_who_waits_for_room_waits_for_no_lingering_batch(size: int) -> None:
    """What fills the memory is sent at once: it can have no more records before it has gone."""
    settings = ProducerSettings(linger_ms=3_600_000, delivery_timeout_s=7_200, buffer_memory=1000)
    with LogBroker(partitions=1) as broker:
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, settings) as producer:
            for _ in range(10):
                async with asyncio.timeout(180):
                    await producer.send("t", bytes(size))
                await asyncio.sleep(0.001)  # The sender has looked at what there is.
            await producer.flush()
        assert len(broker.records(0)) == 10


async def test_a_topic_or_partition_that_is_not_there_is_refused_at_once() -> None:
    """The error comes from send, not from a batch much later."""
    with LogBroker(partitions=2) as broker:
        with pytest.raises(KafkaError, match="has no partition 2: it has 2") as refused:
            await produce(broker, [b"v"], partition=2)
        assert (refused.value.topic, refused.value.partition) == ("t", 2)
        assert refused.value.advice == "create it, or correct the name"
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster) as producer:
            with pytest.raises(KafkaError, match="topic 'u' does not exist"):
                await producer.send("u", b"v")


@pytest.mark.parametrize("idempotent", [True, False])
async def test_without_idempotence_one_batch_of_a_partition_is_in_flight(idempotent: bool) -> None:
    """Sequences keep the order of several; a broker that says nothing for a while has five requests at most."""
    go_on = threading.Event()
    with LogBroker(partitions=1) as broker:
        produce_now = broker.handlers[ApiKey.PRODUCE]

        def slow(request: Any, version: int) -> Any:
            go_on.wait(180)
            return produce_now(request, version)

        broker.handlers[ApiKey.PRODUCE] = slow
        settings = ProducerSettings(idempotent=idempotent, batch_size=200, linger_ms=0)
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, settings) as producer:
            # The first batch goes alone: a leader that knows nothing of a producer takes any sequence.
            go_on.set()
            await (await producer.send("t", bytes(200))).place()
            go_on.clear()
            for _ in range(10):
                await producer.send("t", bytes(200))
            expected = 5 if idempotent else 1
            await eventually(lambda: producer.statistics.requests_in_flight == expected)
            await cluster.run(cluster.routing.refresh(["t"], cluster.routing.deadline()))
            assert producer.statistics.requests_in_flight == expected
            go_on.set()
        assert broker.end(0) == 11


async def test_a_batch_that_is_too_large_is_split() -> None:
    """As Java's producer does: every record arrives, in order, and one that is too large by itself fails alone."""
    values = [b"%03d" % i + bytes(100) for i in range(40)]
    values[17] = bytes(3_000)
    with LogBroker(partitions=1) as broker:
        broker.max_batch_bytes = 1_000
        settings = ProducerSettings(linger_ms=60_000)
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, settings) as producer:
            deliveries = [await producer.send("t", value) for value in values]
            with pytest.raises(KafkaError, match=r"max\.message\.bytes"):
                await producer.flush()
            outcomes = await asyncio.gather(*(each.place() for each in deliveries), return_exceptions=True)
            assert isinstance(outcomes[17], KafkaError)
            good = [outcome.offset for outcome in outcomes if not isinstance(outcome, BaseException)]
            assert good == list(range(39))
            assert producer.statistics.splits > 0
            # The gap that the record has left in the sequences is closed by another epoch.
            after = await producer.send("t", b"after it")
            await producer.flush()
            assert (await after.place()).offset == 39
        assert [record.value for record in broker.records(0)] == [*values[:17], *values[18:], b"after it"]


async def test_a_record_above_max_request_size_fails_alone() -> None:
    """A broker would close the connection again and again, with what others wait for on it."""
    settings = ProducerSettings(max_request_size=1_036, buffer_memory=500)
    with LogBroker(partitions=1) as broker:
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, settings) as producer:
            first = await producer.send("t", bytes(1_000))
            large = await producer.send("t", bytes(1_001))
            last = await producer.send("t", b"last")
            assert (await first.place()).offset == 0
            assert (await last.place()).offset == 1
            with pytest.raises(KafkaError, match="record of 1037 bytes for topic 't'") as caught:
                await large.place()
            assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
            assert (producer.statistics.records_failed, producer.statistics.bytes_waiting) == (1, 0)
            with pytest.raises(KafkaError, match="max_request_size, 1036"):
                await producer.flush()
        assert len(broker.records(0)) == 2


async def test_requests_are_kept_below_max_request_size() -> None:
    """Batches of several partitions go together only as far as they fit; a batch does not grow beyond it."""
    with LogBroker(partitions=4) as broker:
        async with (
            Cluster(broker.bootstrap) as cluster,
            Producer(cluster, ProducerSettings(max_request_size=3_000, linger_ms=60_000)) as producer,
        ):
            for number in range(16):
                await producer.send("t", bytes(900), partition=number % 4)
        sizes = [
            sum(len(entry.records) for topic in request.topic_data for entry in topic.partition_data)
            for request in broker.asked(ApiKey.PRODUCE)
        ]
        assert max(sizes) <= 3_000
        assert sum(len(broker.records(partition)) for partition in range(4)) == 16


async def test_a_record_above_max_request_size_breaks_its_transaction() -> None:
    """It can only be aborted, as where a broker refuses a record."""
    with GroupBroker(partitions=1) as broker:
        settings = ProducerSettings(max_request_size=100, transactional_id="x")
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, settings) as producer:
            await producer.begin()
            await producer.send("t", b"small")
            await producer.send("t", bytes(100))
            with pytest.raises(TransactionFailed, match="max_request_size"):
                await producer.commit()
            await producer.abort()
        assert not broker.records(0)


async def test_a_batch_that_is_larger_than_a_segment_is_split() -> None:
    """RECORD_LIST_TOO_LARGE: each record by itself may be small enough."""
    with LogBroker(partitions=1) as broker:
        broker.max_batch_bytes, broker.too_large = 1_000, ErrorCode.RECORD_LIST_TOO_LARGE
        await produce(broker, [b"%03d" % i + bytes(100) for i in range(40)], linger_ms=60_000)
        assert [record.value[:3] for record in broker.records(0) if record.value] == [b"%03d" % i for i in range(40)]
        with pytest.raises(KafkaError, match="RECORD_LIST_TOO_LARGE"):
            await produce(broker, [bytes(3_000)])


@pytest.mark.parametrize("failure", [ErrorCode.NOT_ENOUGH_REPLICAS, DROP])
async def test_a_batch_that_was_given_up_does_not_end_the_partition(failure: Any) -> None:
    """Idempotent: what comes after a batch that was never acknowledged goes on in another epoch (KIP-360)."""
    with LogBroker(partitions=1) as broker:
        settings = ProducerSettings(linger_ms=0, delivery_timeout_s=0.3)
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, settings) as producer:
            await (await producer.send("t", b"before")).place()
            broker.fail_next[ApiKey.PRODUCE] = [failure] * 1000
            with pytest.raises((KafkaError, ConnectionFailed, RequestTimedOut)):
                await (await producer.send("t", b"lost")).place()
            broker.fail_next.clear()
            places = [(await (await producer.send("t", b"after")).place()).offset for _ in range(3)]
            assert places == [1, 2, 3]
            assert producer.statistics.epochs_begun == 1
            with pytest.raises((KafkaError, ConnectionFailed, RequestTimedOut)):
                await producer.flush()


async def test_a_flush_does_not_wait_for_what_is_sent_after_it() -> None:
    """Another task goes on sending: there is always something that is not acknowledged. A batch that is split counts
    until its parts are there."""
    with LogBroker(partitions=1) as broker:
        settings = ProducerSettings(linger_ms=0, batch_size=10_000)
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, settings) as producer:
            broker.fail_next[ApiKey.PRODUCE] = [ErrorCode.MESSAGE_TOO_LARGE]
            before = [await producer.send("t", b"before") for _ in range(2)]
            flushed = asyncio.create_task(producer.flush())
            behind = [await producer.send("t", b"behind") for _ in range(3)]
            for _ in range(300):
                behind.append(await producer.send("t", b"behind"))
                await behind.pop(0).place()
                if flushed.done():
                    break
            assert all(each.outcome is None for each in behind[-1:])
            assert flushed.done()
            await flushed
            assert [each.outcome.offset for each in before] == [0, 1]  # type: ignore[union-attr]
        assert producer.statistics.splits == 1


async def test_an_answer_is_about_the_topics_that_the_request_named() -> None:
    """It names them by id; a look at all topics may not show one of them meanwhile, or no longer."""
    with LogBroker(partitions=1) as broker:
        held = HeldAnswers(broker, ApiKey.PRODUCE)
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster) as producer:
            delivery = await producer.send("t", b"x")
            await held.release(cluster)
            assert (await delivery.place()).offset == 0
        assert broker.end(0) == 1


async def test_a_batch_whose_topic_an_answer_does_not_name_is_sent_again() -> None:
    """As where Metadata did not show the topic while the request was made: it named the topic by no id."""
    with LogBroker(partitions=1) as broker:
        append = broker.handlers[ApiKey.PRODUCE]

        def refuse(request: Any, version: int) -> Any:
            broker.handlers[ApiKey.PRODUCE] = append
            broker.fail_next[ApiKey.PRODUCE] = [ErrorCode.UNKNOWN_TOPIC_ID]
            response = append(request, version)
            response.responses[0].topic_id = ZERO_TOPIC_ID
            return response

        broker.handlers[ApiKey.PRODUCE] = refuse
        await produce(broker, [b"x"])
        assert [record.value for record in broker.records(0)] == [b"x"]


@pytest.mark.parametrize("failure", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID])
async def test_in_a_topic_that_was_made_again_the_order_is_kept(failure: ErrorCode) -> None:
    """Its leaders know nothing of the producer: until one has acknowledged a batch, one of a partition is in flight."""
    with LogBroker(partitions=1) as broker:
        settings = ProducerSettings(linger_ms=0, batch_size=100)
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, settings) as producer:
            for _ in range(3):
                await (await producer.send("t", b"before")).place()
            broker.topic_id = bytes(reversed(broker.topic_id))
            broker.batches.clear()
            broker.producers.clear()
            await cluster.run(cluster.routing.refresh(["t"], cluster.routing.deadline()))
            broker.fail_next[ApiKey.PRODUCE] = [failure]
            values = [b"%d" % number + bytes(90) for number in range(5)]
            for value in values:
                await producer.send("t", value)
            await producer.flush()
        assert [record.value for record in broker.records(0)] == values


@pytest.mark.parametrize("is_appended", [False, True])
@pytest.mark.parametrize("transactional_id", [None, "id"])
async def test_a_broker_that_shows_a_former_topic_has_no_record_appended_twice(
    transactional_id: str | None, is_appended: bool
) -> None:
    """Nor one left out: a batch may be in the log when metadata of a broker that lags names another topic."""
    with GroupBroker(partitions=1) as broker:
        append, show, present = broker.handlers[ApiKey.PRODUCE], broker.handlers[ApiKey.METADATA], broker.topic_id
        shown: list[bytes] = []
        loses = False

        def produce(request: Any, version: int) -> Any:
            nonlocal loses
            (topic,) = request.topic_data
            if topic.topic_id != present:
                broker.fail_next[ApiKey.PRODUCE] = [ErrorCode.UNKNOWN_TOPIC_ID]
            response = append(request, version) if is_appended or not loses else DROP
            if loses:
                loses = False
                shown.append(bytes(reversed(present)))
                return DROP
            return response

        def metadata(request: Any, version: int) -> Any:
            broker.topic_id = shown.pop() if shown else present
            return show(request, version)

        broker.handlers |= {ApiKey.PRODUCE: produce, ApiKey.METADATA: metadata}
        settings = ProducerSettings(linger_ms=0, transactional_id=transactional_id)
        async with (
            Cluster(broker.bootstrap) as cluster,
            Producer(cluster, settings) as producer,
            producer.transaction() if transactional_id else contextlib.nullcontext(),
        ):
            await (await producer.send("t", b"before")).place()
            loses = True
            perhaps = await producer.send("t", b"perhaps")
            behind = await producer.send("t", b"behind")
            await perhaps.place()
            await behind.place()
        assert [record.value for record in broker.records(0)] == [b"before", b"perhaps", b"behind"]


async def test_a_leader_that_was_deposed_and_does_not_know_fails_no_batch() -> None:
    """A batch whose answer was lost is out of order for it; the present leader takes the batch as it is."""
    with LogBroker(partitions=1) as broker:
        settings = ProducerSettings(linger_ms=0)
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, settings) as producer:
            await (await producer.send("t", b"before")).place()
            broker.fail_next[ApiKey.PRODUCE] = [DROP, *[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER] * 2]
            delivery = await producer.send("t", b"perhaps")
            behind = await producer.send("t", b"behind")
            assert (await delivery.place()).offset == 1
            assert (await behind.place()).offset == 2
            assert producer.statistics.epochs_begun == 0
        assert [record.value for record in broker.records(0)] == [b"before", b"perhaps", b"behind"]


async def test_a_leader_that_has_forgotten_the_producer_gets_no_second_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch whose answer was lost fails where the leader goes on to find it out of order; the next ones are taken."""
    monkeypatch.setattr(sender, "DEPOSED_S_MAX", 0.0)
    with LogBroker(partitions=1) as broker:
        settings = ProducerSettings(linger_ms=0)
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, settings) as producer:
            await (await producer.send("t", b"before")).place()
            broker.fail_next[ApiKey.PRODUCE] = [DROP]
            broker.producers[42, 0] = (1, 500)
            delivery = await producer.send("t", b"perhaps")
            broker.producers[42, 0] = (1, 0)
            with pytest.raises(KafkaError) as failed:
                await delivery.place()
            assert failed.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert (await (await producer.send("t", b"after")).place()).offset == 1
            with pytest.raises(KafkaError):
                await producer.flush()


@pytest.mark.parametrize(
    ("record", "what"),
    [
        ({"value": "text"}, "a value is bytes or None, not str"),
        ({"value": b"", "key": 7}, "a key is bytes or None, not int"),
        ({"value": b"", "timestamp": 1.5}, "a timestamp is an int"),
        ({"value": b"", "timestamp": 2**63}, "a timestamp is 0 to"),
        ({"value": b"", "headers": [(b"name", b"")]}, "a header's name is a str"),
        ({"value": b"", "headers": [("name", "text")]}, "a header's value is bytes or None"),
        ({"value": b"", "headers": iter([("name", b"gone")])}, "headers are a list"),
        ({"value": b"", "headers": {"ab": b""}}, "headers are a list"),
        ({"value": b"", "headers": ["ab"]}, "a header is a .name, value."),
        ({"value": b"", "partition": True}, "a partition is an int, not bool"),
        ({"value": b"", "partition": "0"}, "a partition is an int, not str"),
    ],
)
async def test_a_bad_argument_fails_its_own_record_only(record: dict[str, Any], what: str) -> None:
    """It is told by `send`, and leaves nothing in the batch that others share."""
    with LogBroker(partitions=1) as broker:
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster) as producer:
            good = [await producer.send("t", b"one")]
            with pytest.raises((TypeError, ValueError), match=what):
                await producer.send("t", **record)
            good.append(await producer.send("t", b"two"))
            assert [(await each.place()).offset for each in good] == [0, 1]


async def test_a_producer_that_was_not_started_says_so() -> None:
    """A record that it took would wait for ever."""
    with LogBroker(partitions=1) as broker:
        async with Cluster(broker.bootstrap) as cluster:
            producer = Producer(cluster)
            with pytest.raises(RuntimeError, match="was not started"):
                await producer.send("t", b"")
            with pytest.raises(RuntimeError, match="was not started"):
                await Producer(cluster, ProducerSettings(transactional_id="x")).begin()
            async with producer:
                with pytest.raises(TypeError, match="a topic's name is a str, not int"):
                    await producer.send(5, b"")  # type: ignore[arg-type]  # What a caller got wrong.


async def test_after_its_end_a_producer_takes_nothing_and_nothing_hangs() -> None:
    """Records that were not sent when an error ended the block fail, without cancelling those that await them."""
    with LogBroker(partitions=1) as broker:
        async with Cluster(broker.bootstrap) as cluster:
            producer = await Producer(cluster, ProducerSettings(linger_ms=60_000)).__aenter__()
            delivery = await producer.send("t", b"never sent")
            error = ZeroDivisionError()
            await producer.__aexit__(ZeroDivisionError, error, None)
            with pytest.raises(ProducerClosed, match="closed before this record"):
                await delivery.place()
            with pytest.raises(ProducerClosed):
                await producer.flush()
            await producer.flush()
            with pytest.raises(ProducerClosed):
                await producer.send("t", b"late")


async def test_a_record_whose_topic_is_found_after_the_end_is_refused() -> None:
    """It would wait for ever: nobody sends it any more."""
    with LogBroker(partitions=1) as broker:
        may_go, show = threading.Event(), broker.handlers[ApiKey.METADATA]

        def hold(request: Any, version: int) -> Any:
            assert may_go.wait(180)
            return show(request, version)

        broker.handlers[ApiKey.METADATA] = hold
        async with Cluster(broker.bootstrap) as cluster:
            async with Producer(cluster) as producer:
                sending = asyncio.create_task(producer.send("t", b"late"))
                await eventually(lambda: bool(broker.asked(ApiKey.METADATA)))
            may_go.set()
            with pytest.raises(ProducerClosed):
                await sending
            assert producer.statistics.records_sent == 0


async def test_partitions_that_were_added_are_found() -> None:
    """Topics in use are asked for again after metadata_max_age_s."""
    with LogBroker(partitions=1) as broker:
        settings = ProducerSettings(linger_ms=0, partitioner="round_robin", metadata_max_age_s=0.05)
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, settings) as producer:
            await (await producer.send("t", b"one")).place()
            broker.partitions = 3
            await eventually(lambda: len(cluster.routing.topics["t"].partitions) == 3)
            deliveries = [await producer.send("t", b"more") for _ in range(3)]
            assert {(await each.place()).topic_partition.partition for each in deliveries} == {0, 1, 2}


async def test_a_partition_that_was_just_added_takes_records_at_once() -> None:
    """One that is named, and is not known, is asked for before it is refused."""
    with LogBroker(partitions=1) as broker:
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, ProducerSettings(linger_ms=0)) as producer:
            await (await producer.send("t", b"one")).place()
            broker.partitions = 3
            place = await (await producer.send("t", b"more", partition=2)).place()
            assert place.topic_partition == TopicPartition("t", 2)


async def test_a_topic_made_again_with_fewer_partitions_gets_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition that records without a key stuck to is none any more."""
    monkeypatch.setattr(producer_module, "_draw", lambda: 2)
    settings = ProducerSettings(linger_ms=0, delivery_timeout_s=2)
    with LogBroker(partitions=3) as broker:
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, settings) as producer:
            assert (await (await producer.send("t", b"one")).place()).topic_partition.partition == 2
            broker.topic_id, broker.partitions = bytes(range(16, 32)), 2
            await cluster.run(cluster.routing.refresh(["t"], cluster.routing.deadline()))
            assert (await (await producer.send("t", b"two")).place()).topic_partition.partition == 0


async def test_a_key_keeps_its_partition_while_a_leader_is_being_looked_for() -> None:
    """A consumer that shares the cluster has met a leader that is away; a partition that is named is there, too."""
    with LogBroker(partitions=2) as broker:
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster) as producer:
            places = [await (await producer.send("t", b"", key=b"%d" % number)).place() for number in range(8)]
            before = [place.topic_partition for place in places]
            assert len(set(before)) == 2
            cluster.routing.forget_leader(TopicPartition("t", 1))
            sent = [await producer.send("t", b"", key=b"%d" % number) for number in range(8)]
            sent.append(await producer.send("t", b"", partition=1))
            after = [(await delivery.place()).topic_partition for delivery in sent]
        assert after == [*before, TopicPartition("t", 1)]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not authorized to see topic 't'"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 't' does not exist any more"),
    ],
)
async def test_a_record_fails_with_what_became_of_its_topic(code: ErrorCode, words: str) -> None:
    """A right that was taken away meanwhile is not told as a topic that was deleted."""
    with LogBroker(partitions=1) as broker:
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, ProducerSettings()) as producer:
            await producer.require("t")
            shown = broker.handlers[ApiKey.METADATA]

            def refuse(request: Any, version: int) -> Any:
                response = shown(request, version)
                for topic in response.topics:
                    topic.error_code, topic.partitions = code, []
                return response

            broker.handlers[ApiKey.METADATA] = refuse
            broker.fail_next[ApiKey.PRODUCE] = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1000
            with pytest.raises(KafkaError, match=words) as failed:
                await (await producer.send("t", b"value")).place()
            assert failed.value.code is code
            producer._failure = None


async def test_one_partition_without_a_leader_holds_up_no_other() -> None:
    """And asks for metadata with growing pauses, not in a storm."""
    with LogBroker(partitions=2) as broker:
        lead_all = broker.handlers[ApiKey.METADATA]

        def lead_one(request: Any, version: int) -> Any:
            response = lead_all(request, version)
            response.topics[0].partitions[1].leader_id = -1
            return response

        broker.handlers[ApiKey.METADATA] = lead_one
        settings = ProducerSettings(linger_ms=0, delivery_timeout_s=1.0)
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, settings) as producer:
            waiting = await producer.send("t", b"waits", partition=1)
            for offset in range(20):
                assert (await (await producer.send("t", b"goes", partition=0)).place()).offset == offset
            with pytest.raises(KafkaError) as failed:
                await waiting.place()
            assert failed.value.code is ErrorCode.LEADER_NOT_AVAILABLE
            assert len(broker.asked(ApiKey.METADATA)) < 15
            with pytest.raises(KafkaError):
                await producer.flush()


@pytest.mark.parametrize(
    "settings",
    [{"acks": 2}, {"in_flight_max": 0}, {"in_flight_max": 6}, {"batch_size": 0}, {"linger_ms": float("nan")}],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    """With the setting's name."""
    with pytest.raises(ValueError, match=next(iter(settings))):
        ProducerSettings(**settings)


async def test_a_close_that_is_cancelled_leaves_no_record_without_an_answer() -> None:
    """Another task may wait for it."""
    with LogBroker(partitions=1) as broker:
        broker.fail_next[ApiKey.PRODUCE] = [SILENCE]
        async with Cluster(broker.bootstrap) as cluster:
            producer = Producer(cluster)
            await producer.__aenter__()
            delivery = await producer.send("t", b"v")
            await eventually(lambda: broker.asked(ApiKey.PRODUCE))
            closing = asyncio.create_task(producer.__aexit__(ValueError, ValueError(), None))
            await asyncio.sleep(0)  # It waits for its requests to end.
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            assert isinstance(delivery.outcome, ProducerClosed)
