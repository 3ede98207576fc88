"""Transactions against a scripted coordinator: what is asked in which order and version, and what becomes of errors."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.unit.client.group_broker import GroupBroker
from tests.unit.client.scripted_broker import DROP, SILENCE
from tests.waiting import eventually

from tidelog.client.cluster import Cluster
from tidelog.client.errors import CommitRefused, ConnectionFailed, Fenced, ProducerClosed, TransactionFailed
from tidelog.client.offsets import GroupMember
from tidelog.client.producer import Producer, ProducerSettings
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol.apis import ApiKey
from tidelog.protocol.messages import EndTxnResponse
from tidelog.records.batch import read_header

T0 = TopicPartition("t", 0)
SETTINGS = ProducerSettings(transactional_id="x")
TRANSACTIONAL = frozenset(
    {
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.PRODUCE,
        ApiKey.END_TXN,
    }
)


def conversation(broker: GroupBroker) -> list[tuple[str, int]]:
    """The requests about transactions, with their versions."""
    return [(key.name, version) for key, version, _ in broker.requests if key in TRANSACTIONAL]


def producer_ids(broker: GroupBroker, partition: int = 0) -> list[tuple[int, int, int, bool]]:
    """(producer id, epoch, first sequence, transactional) of the batches of a partition."""
    headers = [read_header(data, 0) for _, _, data in broker.batches.get(partition, ())]
    return [(each.producer_id, each.producer_epoch, each.base_sequence, each.is_transactional) for each in headers]


async def two_transactions(broker: GroupBroker) -> None:
    """One with a record and offsets, committed; one with a record, aborted."""
    async with Cluster(broker.bootstrap) as cluster, Producer(cluster, SETTINGS) as producer:
        async with producer.transaction():
            await producer.send("t", b"a", partition=0)
            await producer.flush()
            await producer.send_offsets({T0: 7}, GroupMember("g", 3, "m", "i"))
        await producer.begin()
        await producer.send("t", b"b", partition=0)
        await producer.flush()
        await producer.abort()


async def test_partitions_are_added_by_producing() -> None:
    """KIP-890: nothing is added by request, every end raises the epoch, and sequences begin again."""
    with GroupBroker(partitions=1) as broker:
        await two_transactions(broker)
        assert conversation(broker) == [
            ("INIT_PRODUCER_ID", 6), ("PRODUCE", 13), ("TXN_OFFSET_COMMIT", 5), ("END_TXN", 5),
            ("PRODUCE", 13), ("END_TXN", 5),
        ]  # fmt: skip
        assert producer_ids(broker) == [(42, 1, 0, True), (42, 2, 0, True)]
        assert broker.ended == [True, False]
        assert broker.committed == {0: 7}
        (offsets,) = broker.asked(ApiKey.TXN_OFFSET_COMMIT)
        assert (offsets.generation_id, offsets.member_id, offsets.group_instance_id) == (3, "m", "i")


async def test_older_clusters_are_told_of_partitions_and_groups() -> None:
    """In versions that mean this; the epoch stays, and sequences go on."""
    with GroupBroker(partitions=1) as broker:
        broker.transaction_version = 1
        await two_transactions(broker)
        assert conversation(broker) == [
            ("INIT_PRODUCER_ID", 6), ("ADD_PARTITIONS_TO_TXN", 3), ("PRODUCE", 11), ("ADD_OFFSETS_TO_TXN", 4),
            ("TXN_OFFSET_COMMIT", 4), ("END_TXN", 4), ("ADD_PARTITIONS_TO_TXN", 3), ("PRODUCE", 11), ("END_TXN", 4),
        ]  # fmt: skip
        assert producer_ids(broker) == [(42, 1, 0, True), (42, 1, 1, True)]
        assert all(request.transactional_id == "x" for request in broker.asked(ApiKey.PRODUCE))


async def test_a_transaction_without_anything_costs_nothing() -> None:
    """Nobody is asked about it."""
    with GroupBroker() as broker:
        async with (
            Cluster(broker.bootstrap) as cluster,
            Producer(cluster, SETTINGS) as producer,
            producer.transaction(),
        ):
            pass
        assert conversation(broker) == [("INIT_PRODUCER_ID", 6)]


@pytest.mark.parametrize("version", [1, 2])
async def test_a_batch_that_failed_leaves_nothing_but_to_abort(version: int) -> None:
    """The commit is refused here; after the abort the epoch is another one, for sequences are missing."""
    with GroupBroker(partitions=1) as broker:
        broker.transaction_version = version
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, SETTINGS) as producer:
            await producer.begin()
            await producer.send("t", b"a", partition=0)
            await producer.flush()
            broker.fail_next[ApiKey.PRODUCE] = [ErrorCode.MESSAGE_TOO_LARGE]
            await producer.send("t", b"b", partition=0)
            with pytest.raises(TransactionFailed, match="MESSAGE_TOO_LARGE"):
                await producer.commit()
            with pytest.raises(TransactionFailed):
                await producer.send("t", b"c", partition=0)
            await producer.abort()
            async with producer.transaction():
                await producer.send("t", b"d", partition=0)
        assert broker.ended == [False, True]
        assert producer_ids(broker) == [(42, 1, 0, True), (42, 2, 0, True)]


async def test_what_was_not_sent_is_dropped_by_an_abort() -> None:
    """Nobody waits for it, and who awaits its delivery is told."""
    settings = ProducerSettings(transactional_id="x", linger_ms=60_000)
    with GroupBroker(partitions=1) as broker:
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, settings) as producer:
            await producer.begin()
            delivery = await producer.send("t", b"a", partition=0)
            await producer.abort()
            with pytest.raises(TransactionFailed, match="before this record was sent"):
                await delivery.place()
            async with producer.transaction():
                await producer.send("t", b"b", partition=0)
        assert [record.value for record in broker.records(0)] == [b"b"]


@pytest.mark.parametrize("key", [ApiKey.END_TXN, ApiKey.INIT_PRODUCER_ID, ApiKey.TXN_OFFSET_COMMIT])
async def test_what_passes_is_waited_for(key: ApiKey) -> None:
    """Markers of the former transaction, a coordinator that moves."""
    with GroupBroker(partitions=1) as broker:
        broker.fail_next[key] = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR]
        await two_transactions(broker)
        assert broker.ended == [True, False]
        assert not broker.fail_next[key]


async def test_a_fenced_producer_stops() -> None:
    """It can neither abort nor begin; leaving it raises nothing more."""
    with GroupBroker(partitions=1) as broker:
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, SETTINGS) as producer:
            broker.fail_next[ApiKey.END_TXN] = [ErrorCode.PRODUCER_FENCED]
            await producer.begin()
            await producer.send("t", b"a", partition=0)
            with pytest.raises(Fenced, match="another producer goes by the transactional id 'x'"):
                await producer.commit()
            for call in (producer.abort, producer.begin, producer.commit):
                with pytest.raises(Fenced):
                    await call()
        assert broker.ended == []


async def test_offsets_of_a_former_member_break_the_transaction() -> None:
    """The consumer's partitions are others' now: abort, and the producer goes on."""
    with GroupBroker(partitions=1) as broker:
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, SETTINGS) as producer:
            broker.fail_next[ApiKey.TXN_OFFSET_COMMIT] = [ErrorCode.ILLEGAL_GENERATION]
            await producer.begin()
            with pytest.raises(CommitRefused):
                await producer.send_offsets({T0: 1}, GroupMember("g"))
            with pytest.raises(TransactionFailed):
                await producer.commit()
            await producer.abort()
            async with producer.transaction():
                await producer.send_offsets({T0: 1}, GroupMember("g"))
        assert broker.ended == [False, True]


async def test_who_is_cancelled_does_not_wait_for_a_coordinator_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends a program within 10 s; the coordinator aborts by itself once the transaction times out."""
    monkeypatch.setattr("tidelog.client.producer.producer.CANCELLED_ABORT_S_MAX", 0.1)
    with GroupBroker(partitions=1) as broker:

        async def program() -> None:
            async with (
                Cluster(broker.bootstrap, operation_timeout_s=600, call_timeout_s=600) as cluster,
                Producer(cluster, SETTINGS) as producer,
                producer.transaction(),
            ):
                await producer.send("t", b"a", partition=0)
                await producer.flush()
                broker.handlers[ApiKey.END_TXN] = lambda request, version: SILENCE
                works.set()
                await asyncio.Event().wait()

        works = asyncio.Event()
        running = asyncio.create_task(program())
        await works.wait()
        running.cancel()
        async with asyncio.timeout(180):
            await asyncio.gather(running, return_exceptions=True)
        assert running.cancelled()
        assert broker.asked(ApiKey.END_TXN)


async def test_leaving_with_an_open_transaction_aborts_it() -> None:
    """Else its readers would wait until it times out."""
    with GroupBroker(partitions=1) as broker:
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, SETTINGS) as producer:
            await producer.begin()
            await producer.send("t", b"a", partition=0)
            await producer.flush()
        assert broker.ended == [False]


async def test_an_id_that_may_not_be_used_is_told() -> None:
    """Before anything is sent."""

    async def start(broker: GroupBroker) -> Any:
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, SETTINGS):
            pass

    with GroupBroker() as broker:
        broker.fail_next[ApiKey.INIT_PRODUCER_ID] = [ErrorCode.INVALID_TRANSACTION_TIMEOUT]
        with pytest.raises(KafkaError, match="'x' cannot begin with its id: INVALID_TRANSACTION_TIMEOUT"):
            await start(broker)


async def test_calls_out_of_order() -> None:
    """They are the caller's errors, and change nothing."""
    with GroupBroker(partitions=1) as broker:
        async with Cluster(broker.bootstrap) as cluster:
            async with Producer(cluster) as plain:
                with pytest.raises(ValueError, match="need a transactional_id"):
                    await plain.begin()
            async with Producer(cluster, SETTINGS) as producer:
                with pytest.raises(ValueError, match="it must be OPEN"):
                    await producer.send("t", b"a")
                with pytest.raises(ValueError, match="it must be OPEN"):
                    await producer.commit()
                await producer.begin()
                with pytest.raises(ValueError, match="it must be READY"):
                    await producer.begin()


async def test_a_commit_stands_when_its_coordinator_goes_right_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not raise: who was told so would do the transaction's work again."""
    with GroupBroker(partitions=1) as broker:
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, SETTINGS) as producer:
            transactions = producer._transactions
            assert transactions is not None

            async def gone(deadline: Any) -> dict[str, int]:
                raise ConnectionFailed("the coordinator has gone")

            with monkeypatch.context() as patched:
                patched.setattr(transactions._connection, "features", gone)
                async with producer.transaction():
                    await producer.send("t", b"a", partition=0)
            async with producer.transaction():
                await producer.send("t", b"b", partition=0)
        assert broker.ended == [True, True]


async def test_nothing_is_sent_while_a_transaction_ends() -> None:
    """It would be in none, or in the next one."""
    asked, go_on = threading.Event(), threading.Event()
    with GroupBroker(partitions=1) as broker:
        end = broker.handlers[ApiKey.END_TXN]

        def slowly(request: Any, version: int) -> Any:
            asked.set()
            assert go_on.wait(180)
            return end(request, version)

        broker.handlers[ApiKey.END_TXN] = slowly
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, SETTINGS) as producer:
            await producer.begin()
            await producer.send("t", b"a", partition=0)
            ending = asyncio.create_task(producer.commit())
            try:
                assert await asyncio.to_thread(asked.wait, 30)
                with pytest.raises(ValueError, match="it must be OPEN"):
                    await producer.send("t", b"b", partition=0)
            finally:
                go_on.set()
            await ending
        assert [record.value for record in broker.records(0)] == [b"a"]


async def test_after_its_end_a_producer_begins_no_transaction() -> None:
    """Nor does it open connections again."""
    with GroupBroker(partitions=1) as broker:
        async with Cluster(broker.bootstrap) as cluster:
            async with Producer(cluster, SETTINGS) as producer:
                pass
            with pytest.raises(ProducerClosed):
                await producer.begin()
            with pytest.raises(ProducerClosed):
                await producer.send_offsets({T0: 7}, GroupMember("g"))


async def test_the_first_error_of_a_transaction_is_told() -> None:
    """Not that of the abort that follows it."""
    with GroupBroker(partitions=1) as broker:
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, SETTINGS) as producer:
            broker.fail_next[ApiKey.END_TXN] = [ErrorCode.INVALID_TXN_STATE]

            async def fails() -> None:
                async with producer.transaction():
                    await producer.send("t", b"a", partition=0)
                    await producer.flush()
                    raise RuntimeError("no good")

            with pytest.raises(RuntimeError, match="no good"):
                await fails()
            with pytest.raises(KafkaError, match="INVALID_TXN_STATE"):
                await producer.begin()


async def test_a_transaction_that_was_refused_as_a_whole_is_not_ended() -> None:
    """An older coordinator knows nothing of it: it would answer an abort with what is the end of a producer."""
    with GroupBroker(partitions=1) as broker:
        broker.transaction_version = 1
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, SETTINGS) as producer:
            broker.fail_next[ApiKey.ADD_PARTITIONS_TO_TXN] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
            await producer.begin()
            await producer.send("t", b"a", partition=0)
            with pytest.raises(TransactionFailed):
                await producer.commit()
            await producer.abort()
            broker.fail_next[ApiKey.ADD_OFFSETS_TO_TXN] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
            await producer.begin()
            with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
                await producer.send_offsets({T0: 7}, GroupMember("g"))
            await producer.abort()
            async with producer.transaction():
                await producer.send("t", b"b", partition=0)
        assert broker.ended == [True]


@pytest.mark.parametrize("at", [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.PRODUCE, ApiKey.END_TXN])
async def test_a_producer_whose_id_has_expired_aborts_and_goes_on(at: ApiKey) -> None:
    """A coordinator forgets an id that was not used for a week (transactional.id.expiration.ms). It has nothing to
    abort; the id is taken anew, in the former name: had another producer taken it, this one would be fenced."""
    with GroupBroker(partitions=1) as broker:
        broker.transaction_version = 2 if at is ApiKey.PRODUCE else 1
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, SETTINGS) as producer:
            broker.fail_next[at] = [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
            if at is ApiKey.PRODUCE:
                broker.fail_next[ApiKey.END_TXN] = [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
            await producer.begin()
            await producer.send("t", b"a", partition=0)
            with pytest.raises((TransactionFailed, KafkaError)):
                await producer.commit()
            await producer.abort()
            async with producer.transaction():
                await producer.send("t", b"b", partition=0)
            assert not broker.fail_next[at]
        assert broker.ended == [True]
        taken = [(each.producer_id, each.producer_epoch) for each in broker.asked(ApiKey.INIT_PRODUCER_ID)]
        assert taken == [(-1, -1), (42, 1)]


async def test_a_producer_whose_id_another_one_has_is_fenced() -> None:
    """What it is told first may also mean that its id has expired; as it takes the id anew it hears the truth."""
    with GroupBroker(partitions=1) as broker:
        broker.transaction_version = 1
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, SETTINGS) as producer:
            broker.fail_next[ApiKey.ADD_PARTITIONS_TO_TXN] = [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
            broker.fail_next[ApiKey.INIT_PRODUCER_ID] = [ErrorCode.PRODUCER_FENCED]
            await producer.begin()
            await producer.send("t", b"a", partition=0)
            with pytest.raises(TransactionFailed):
                await producer.commit()
            with pytest.raises(Fenced):
                await producer.abort()
            with pytest.raises(Fenced):
                await producer.begin()


class Held:
    """Requests of one API, which are answered once `may_go` is set."""

    def __init__(self, broker: GroupBroker, key: ApiKey) -> None:
        self.came, self.may_go = threading.Event(), threading.Event()
        answer = broker.handlers[key]

        def hold(request: Any, version: int) -> Any:
            self.came.set()
            assert self.may_go.wait(180)
            return answer(request, version)

        broker.handlers[key] = hold


async def test_a_record_that_waits_for_its_topic_goes_into_no_later_transaction() -> None:
    """As one of several sends that a caller gathers, of which another one fails."""
    with GroupBroker(partitions=1) as broker:
        held = Held(broker, ApiKey.METADATA)
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, SETTINGS) as producer:
            await producer.begin()
            late = asyncio.create_task(producer.send("t", b"late"))
            await eventually(held.came.is_set)
            await producer.abort()
            await producer.begin()
            held.may_go.set()
            with pytest.raises(TransactionFailed, match="ended while this waited"):
                await late
            await producer.send("t", b"next")
            await producer.commit()
        assert [record.value for record in broker.records(0)] == [b"next"]


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_record_that_waits_for_room_goes_into_no_later_transaction(is_committed: bool) -> None:
    """A commit takes it along, an abort drops it."""
    settings = ProducerSettings(transactional_id="x", buffer_memory=100, linger_ms=0)
    with GroupBroker(partitions=1) as broker:
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, settings) as producer:
            await producer.require("t")
            held = Held(broker, ApiKey.PRODUCE)
            await producer.begin()
            await producer.send("t", b"first" * 20)
            await eventually(held.came.is_set)
            late = asyncio.create_task(producer.send("t", b"late"))
            await asyncio.sleep(0)
            ending = asyncio.create_task(producer.commit() if is_committed else producer.abort())
            await asyncio.sleep(0)
            held.may_go.set()
            (outcome,) = await asyncio.gather(late, return_exceptions=True)
            await ending
            assert isinstance(outcome, TransactionFailed) is not is_committed
            async with producer.transaction():
                await producer.send("t", b"next")
        by_epoch = [(each[1], each[2]) for each in producer_ids(broker)]
        assert by_epoch == ([(1, 0), (1, 1), (2, 0)] if is_committed else [(1, 0), (2, 0)])
        assert broker.ended == [is_committed, True]


@pytest.mark.parametrize(("version", "key"), [(1, ApiKey.ADD_OFFSETS_TO_TXN), (2, ApiKey.TXN_OFFSET_COMMIT)])
async def test_an_end_waits_for_offsets_that_are_on_their_way(version: int, key: ApiKey) -> None:
    """They would be committed with the next transaction."""
    with GroupBroker(partitions=1) as broker:
        broker.transaction_version = version
        held = Held(broker, key)
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, SETTINGS) as producer:
            await producer.begin()
            offsets = asyncio.create_task(producer.send_offsets({T0: 7}, GroupMember("g")))
            await eventually(held.came.is_set)
            later = asyncio.create_task(producer.send_offsets({T0: 9}, GroupMember("g")))
            ending = asyncio.create_task(producer.abort())
            _, pending = await asyncio.wait([ending], timeout=0.1)
            assert pending
            held.may_go.set()
            await asyncio.gather(offsets, ending)
            with pytest.raises(ValueError, match="it must be OPEN"):
                await later
            async with producer.transaction():
                pass
        last = [name for name, _ in conversation(broker)][-2:]
        assert last == ["TXN_OFFSET_COMMIT", "END_TXN"]
        assert broker.committed == {0: 7}
        assert broker.ended == [False]


async def test_no_commit_after_offsets_that_were_refused_on_their_way() -> None:
    """Its records would be read without them."""
    with GroupBroker(partitions=1) as broker:
        held = Held(broker, ApiKey.TXN_OFFSET_COMMIT)
        broker.fail_next[ApiKey.TXN_OFFSET_COMMIT] = [ErrorCode.ILLEGAL_GENERATION]
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, SETTINGS) as producer:
            await producer.begin()
            offsets = asyncio.create_task(producer.send_offsets({T0: 7}, GroupMember("g", 3, "m")))
            await eventually(held.came.is_set)
            ending = asyncio.create_task(producer.commit())
            await asyncio.sleep(0)
            held.may_go.set()
            with pytest.raises(CommitRefused):
                await offsets
            with pytest.raises(TransactionFailed):
                await ending
            await producer.abort()
        assert broker.ended == [False]


@pytest.mark.parametrize("version", [1, 2])
async def test_no_commit_after_offsets_whose_sender_was_cancelled(version: int) -> None:
    """They may arrive behind the transaction's end: the next one has another epoch, so that they are not its own."""
    with GroupBroker(partitions=1) as broker:
        broker.transaction_version = version
        held = Held(broker, ApiKey.TXN_OFFSET_COMMIT)
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, SETTINGS) as producer:
            await producer.begin()
            offsets = asyncio.create_task(producer.send_offsets({T0: 7}, GroupMember("g")))
            await eventually(held.came.is_set)
            offsets.cancel()
            with pytest.raises(asyncio.CancelledError):
                await offsets
            try:
                with pytest.raises(TransactionFailed, match="can only be aborted"):
                    await producer.commit()
                await producer.abort()
                async with producer.transaction():
                    await producer.send("t", b"a")
            finally:
                held.may_go.set()
        assert broker.ended == [False, True]
        assert [epoch for _, epoch, _, _ in producer_ids(broker)] == [2]


async def test_offsets_that_no_coordinator_took_in_time_slip_into_no_later_transaction() -> None:
    """The first attempt was lost on its way, and may arrive behind the transaction's end; what the last one was
    answered says nothing about it."""
    with GroupBroker(partitions=1) as broker:
        broker.transaction_version = 1
        taken = broker.handlers[ApiKey.TXN_OFFSET_COMMIT]

        def refuse(request: Any, version: int) -> Any:
            if len(broker.asked(ApiKey.TXN_OFFSET_COMMIT)) == 1:
                return DROP
            broker.fail_next[ApiKey.TXN_OFFSET_COMMIT] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
            return taken(request, version)

        broker.handlers[ApiKey.TXN_OFFSET_COMMIT] = refuse
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, SETTINGS) as producer:
            await producer.begin()
            cluster.routing.operation_timeout_s = 0.5
            with pytest.raises((KafkaError, ConnectionFailed)):
                await producer.send_offsets({T0: 7}, GroupMember("g"))
            cluster.routing.operation_timeout_s = 60
            assert len(broker.asked(ApiKey.TXN_OFFSET_COMMIT)) > 1
            await producer.abort()
            async with producer.transaction():
                await producer.send("t", b"a")
        assert [epoch for _, epoch, _, _ in producer_ids(broker)] == [2]


@pytest.mark.parametrize("by_block", [True, False])
async def test_a_commit_that_was_cancelled_and_carried_out_is_no_end_of_the_producer(by_block: bool) -> None:
    """The coordinator refuses to abort what is committed; the abort says so, and the next transaction can begin."""
    with GroupBroker(partitions=1) as broker:
        end = broker.handlers[ApiKey.END_TXN]
        came, done = threading.Event(), []

        def end_once(request: Any, version: int) -> Any:
            """As a coordinator that knows a commit again, and refuses an abort after it."""
            if request.producer_epoch == broker.epoch:
                done[:] = [request.committed, end(request, version)]
                came.set()
                return SILENCE if len(broker.ended) == 1 else done[1]
            return done[1] if request.committed == done[0] else EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)

        broker.handlers[ApiKey.END_TXN] = end_once
        async with (
            asyncio.timeout(180),
            Cluster(broker.bootstrap, call_timeout_s=0.5) as cluster,
            Producer(cluster, SETTINGS) as producer,
        ):
            if by_block:

                async def work() -> None:
                    async with producer.transaction():
                        await producer.send("t", b"a")

                working = asyncio.create_task(work())
            else:
                await producer.begin()
                await producer.send("t", b"a")
                working = asyncio.create_task(producer.commit())
            await eventually(came.is_set)
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working
            if not by_block:
                with pytest.raises(TransactionFailed, match="was committed"):
                    await producer.abort()
            async with producer.transaction():
                await producer.send("t", b"b")
        assert broker.ended == [True, True]
        assert [each[1:3] for each in producer_ids(broker)] == [(1, 0), (2, 0)]
