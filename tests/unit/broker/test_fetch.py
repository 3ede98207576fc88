"""Fetch: what is read, how far, when the answer comes, and what librdkafka's consumer must not be given."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.harness import WALL_START_MS, Broker, make_batch, nothing_in_memory, topic_id_of, whole

from tidelog.broker.deferred import Deferred
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicId
from tidelog.ports.disk import FileRange
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import iterate_headers, read_records
from tidelog.records.control import ControlRecordType, EndTxnMarker, build_end_txn_batch
from tidelog.storage.errors import WouldBlock
from tidelog.storage.producer_state import AppendOrigin

VERSIONS = range(4, 19)


def values(data: messages.FetchResponse.PartitionData) -> list[bytes]:
    records = bytes(data.records)
    return [record.value for position, _ in iterate_headers(records) for record in read_records(records, position)]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_reads(broker: Broker, version: int) -> None:
    """Records come back by each version, with the offsets that clients steer by."""
    broker.produce("t", [b"a", b"b"])
    data = broker.fetch("t", version=version)
    assert values(data) == [b"a", b"b"]
    assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 2, 2)
    assert data.preferred_read_replica == -1
    if version >= 5:
        assert data.log_start_offset == 0


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_no_records_are_an_empty_field_never_null(broker: Broker, version: int, isolation_level: int) -> None:
    """Null records leave librdkafka's consumer stuck; so does a last stable offset that is not the high watermark."""
    broker.produce("t", [b"a"])
    data = broker.fetch("t", 1, version=version, isolation_level=isolation_level)
    assert data.records is not None
    assert len(data.records) == 0
    assert data.last_stable_offset == data.high_watermark == 1


def test_an_error_has_empty_records_too(broker: Broker) -> None:
    """Also a partition that is refused has an empty field."""
    data = broker.fetch("unknown")
    assert (data.error_code, data.records is not None, len(data.records)) == (3, True, 0)


def test_answers_by_topic_id_carry_it(broker: Broker) -> None:
    """From v13 on topics are named by id alone; zero ids would make librdkafka fall back to v12."""
    broker.produce("t")
    response = broker.ask(ApiKey.FETCH, 13, broker.fetch_request("t", version=13))
    assert bytes(response.responses[0].topic_id) == topic_id_of("t")


def test_records_stay_in_their_file(broker: Broker) -> None:
    """An encoded answer holds a range of the log file, for sendfile, not its bytes."""
    broker.produce("t", [bytes(100_000)])
    answer = broker.send(ApiKey.FETCH, 12, broker.fetch_request("t"))
    ranges = [chunk for chunk in answer if isinstance(chunk, FileRange)]
    assert [len(chunk) > 100_000 for chunk in ranges] == [True]
    for chunk in ranges:
        chunk.release()


def test_nothing_at_or_above_the_high_watermark_is_served(start_broker) -> None:
    """Uncommitted records are not shown: with flush.messages=1 those that are not flushed yet."""
    broker = start_broker()
    broker.settings.topics["safe"] = {"flush.messages": "1"}
    broker.lead("safe")
    broker.produce("safe", [b"a"])
    broker.shell.pool_waits = True
    broker.produce("safe", [b"b"])
    assert values(broker.fetch("safe")) == [b"a"]
    broker.shell.run_pool()
    assert values(broker.fetch("safe")) == [b"a", b"b"]
    assert broker.fetch("safe").high_watermark == 2


@pytest.mark.parametrize("offset", [-1, 3, 100])
def test_an_offset_outside_the_log_is_out_of_range(broker: Broker, offset: int) -> None:
    """Below the start or above the end: OFFSET_OUT_OF_RANGE, at once even where the client would wait."""
    broker.produce("t", [b"a", b"b"])
    assert broker.fetch("t", offset, max_wait_ms=10_000).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_at_least_one_whole_batch_is_returned(broker: Broker) -> None:
    """A batch larger than every limit still comes, whole: or the consumer would never get past it."""
    broker.produce("t", [bytes(50_000)])
    assert values(broker.fetch("t", max_bytes=1, partition_max_bytes=1)) == [bytes(50_000)]


def test_the_limit_of_the_whole_answer_holds_over_partitions(broker: Broker) -> None:
    """Once the answer is full, further partitions come back empty: only the first may exceed its limits."""
    for partition in range(3):
        broker.produce("t", [bytes(10_000)], partition=partition)
    request = broker.fetch_request("t", max_bytes=12_000)
    request.topics[0].partitions += [
        messages.FetchRequest.FetchPartition(partition=partition, partition_max_bytes=1 << 20) for partition in (1, 2)
    ]
    partitions = broker.ask(ApiKey.FETCH, 12, request).responses[0].partitions
    sizes = [len(data.records) for data in partitions]
    assert sizes[0] > 10_000
    assert sum(sizes) <= 12_000


def test_the_brokers_own_limit_holds(start_broker) -> None:
    """fetch.max.bytes bounds every answer, whatever the client asks for."""
    broker = start_broker(**{"fetch.max.bytes": 2_000})
    broker.lead("t")
    for _ in range(10):
        broker.produce("t", [bytes(1_000)])
    assert len(broker.fetch("t", max_bytes=1 << 30).records) <= 2_000


@pytest.mark.row("R26")
def test_a_fetch_without_data_waits_and_an_append_wakes_it(broker: Broker) -> None:
    """The purgatory: no answer until there is a record."""
    answer = broker.send(ApiKey.FETCH, 12, broker.fetch_request("t", max_wait_ms=500))
    assert isinstance(answer, Deferred)
    broker.shell.advance(499)
    assert not answer.done
    broker.produce("t", [b"news"])
    done = broker.decode_any(ApiKey.FETCH, 12, answer.result())
    assert values(done.responses[0].partitions[0]) == [b"news"]
    assert len(broker.node.purgatory) == 0


@pytest.mark.row("R26")
def test_a_fetch_without_data_is_answered_after_max_wait(broker: Broker) -> None:
    """After max_wait_ms the answer is what there is: nothing."""
    answer = broker.send(ApiKey.FETCH, 12, broker.fetch_request("t", max_wait_ms=500))
    broker.shell.advance(500)
    done = broker.decode_any(ApiKey.FETCH, 12, answer.result())
    assert len(done.responses[0].partitions[0].records) == 0


def test_min_bytes_are_awaited(broker: Broker) -> None:
    """Records that are fewer than min_bytes don't wake the fetch; enough of them do."""
    broker.produce("t", [bytes(1_000)])
    answer = broker.send(ApiKey.FETCH, 12, broker.fetch_request("t", min_bytes=2_500, max_wait_ms=500))
    broker.produce("t", [bytes(1_000)])
    assert not answer.done
    broker.produce("t", [bytes(1_000)])
    assert answer.done
    done = broker.decode_any(ApiKey.FETCH, 12, answer.result())
    assert len(done.responses[0].partitions[0].records) > 3_000


def test_a_waiting_fetch_learns_that_the_leader_changed(broker: Broker) -> None:
    """A long poll is answered when its partition moves: FENCED_LEADER_EPOCH, and who leads."""
    request = broker.fetch_request("t", version=16, max_wait_ms=500, current_leader_epoch=0)
    answer = broker.send(ApiKey.FETCH, 16, request)
    broker.lead("t", 3, leader=1, leader_epoch=1, isr=[1])
    data = broker.decode_any(ApiKey.FETCH, 16, answer.result()).responses[0].partitions[0]
    assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_waiting_fetch_that_names_no_epoch_learns_it_too(broker: Broker) -> None:
    """NOT_LEADER_OR_FOLLOWER before v11; later consumers may read from followers, and get an answer without records."""
    old = broker.send(ApiKey.FETCH, 10, broker.fetch_request("t", version=10, max_wait_ms=500))
    new = broker.send(ApiKey.FETCH, 12, broker.fetch_request("t", version=12, max_wait_ms=500))
    broker.lead("t", 3, leader=1, leader_epoch=1, isr=[1])
    assert broker.decode_any(ApiKey.FETCH, 10, old.result()).responses[0].partitions[0].error_code == 6
    assert broker.decode_any(ApiKey.FETCH, 12, new.result()).responses[0].partitions[0].error_code == 0


def test_a_waiting_fetch_learns_that_the_topic_is_gone(broker: Broker) -> None:
    """Deleting a topic answers the long polls on it."""
    answer = broker.send(ApiKey.FETCH, 12, broker.fetch_request("t", max_wait_ms=500))
    broker.delete("t")
    assert answer.done


def test_a_client_that_is_gone_leaves_nothing_behind(broker: Broker) -> None:
    """When the connection closes, its long poll leaves the purgatory, and its timer is gone."""
    timers = broker.shell.waiting_timers
    answer = broker.send(ApiKey.FETCH, 12, broker.fetch_request("t", max_wait_ms=2**31 - 1))
    assert len(broker.node.purgatory) == 1
    answer.abandon()
    assert len(broker.node.purgatory) == 0
    assert broker.shell.waiting_timers == timers


@pytest.mark.parametrize(
    ("known", "error"), [(4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH), (5, 0), (-1, 0)]
)
def test_the_clients_leader_epoch_is_checked(broker: Broker, known: int, error: int) -> None:
    """A client with an older epoch is fenced, one with a newer epoch knows more than we do (KIP-320)."""
    broker.lead("t", 3, leader_epoch=5)
    assert broker.fetch("t", current_leader_epoch=known).error_code == error


def test_a_diverging_epoch_is_signalled(broker: Broker) -> None:
    """A client whose last epoch ended earlier here is told where the logs part, and gets no records (KIP-595)."""
    broker.produce("t", [b"a", b"b"])
    broker.lead("t", 3, leader_epoch=3)
    broker.produce("t", [b"c"])
    data = broker.fetch("t", 3, last_fetched_epoch=1, max_wait_ms=500)
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 2)
    assert len(data.records) == 0
    assert broker.fetch("t", 2, last_fetched_epoch=0).diverging_epoch.epoch == -1


def test_an_unknown_topic_id_is_named(broker: Broker) -> None:
    """UNKNOWN_TOPIC_ID for an id that no topic has."""
    request = broker.fetch_request("t", version=13)
    request.topics[0].topic_id = TopicId(bytes(range(16)))
    assert broker.ask(ApiKey.FETCH, 13, request).responses[0].partitions[0].error_code == 100


def test_whoever_says_it_is_this_broker_is_refused(broker: Broker) -> None:
    """An outsider cannot pose as the leader itself."""
    request = broker.fetch_request("t")
    request.replica_id = 0
    assert broker.ask(ApiKey.FETCH, 12, request).error_code == ErrorCode.INVALID_REQUEST


def test_a_cold_lookup_goes_to_the_pool(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Index pages that are not in memory are read on an I/O thread; the loop goes on, the answer comes later."""
    broker.produce("t", [b"a"])
    nothing_in_memory(broker, monkeypatch)
    broker.shell.pool_waits = True
    answer = broker.send(ApiKey.FETCH, 12, broker.fetch_request("t"))
    assert not answer.done
    broker.shell.run_pool()
    done = broker.decode_any(ApiKey.FETCH, 12, answer.result())
    assert values(done.responses[0].partitions[0]) == [b"a"]


def test_min_bytes_are_awaited_where_an_io_thread_has_read_fewer(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the last records were not in memory does not have the fetch answered early."""
    broker.produce("t", [bytes(1_000)])
    log = type(broker.replica("t").log)
    read = log.read
    is_cold = iter([True])

    def cold(self: object, *arguments: object, blocking: bool = True, **named: object) -> object:
        if not blocking and next(is_cold, False):
            raise WouldBlock
        return read(self, *arguments, blocking=blocking, **named)

    monkeypatch.setattr(log, "read", cold)
    answer = broker.send(ApiKey.FETCH, 12, broker.fetch_request("t", min_bytes=2_500, max_wait_ms=500))
    broker.shell.advance(400)
    assert not answer.done
    broker.produce("t", [bytes(1_000)])
    assert not answer.done
    broker.shell.advance(100)
    done = broker.decode_any(ApiKey.FETCH, 12, answer.result())
    assert len(values(done.responses[0].partitions[0])) == 2


@pytest.mark.parametrize("is_ordinary", [True, False])
def test_min_bytes_are_awaited_where_records_leave_memory_meanwhile(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, is_ordinary: bool
) -> None:
    """Of records that are not in memory an I/O thread says how many bytes they are: once each time more have come."""
    broker.produce("t", [bytes(1_000)])
    log = type(broker.replica("t").log)
    read = log.read
    reads: list[bool] = []
    is_cold = not is_ordinary

    def cold(self: object, *arguments: object, blocking: bool = True, **named: object) -> object:
        reads.append(blocking)
        if is_cold and not blocking:
            raise WouldBlock
        return read(self, *arguments, blocking=blocking, **named)

    monkeypatch.setattr(log, "read", cold)
    answer = broker.send(ApiKey.FETCH, 12, broker.fetch_request("t", min_bytes=3_500, max_wait_ms=500))
    is_cold = True
    broker.shell.advance(300)
    reads.clear()
    broker.produce("t", [bytes(1_000)])
    broker.shell.run_turns()
    assert (answer.done, reads.count(True)) == (False, 1)
    broker.shell.advance(100)
    broker.produce("t", [bytes(1_000)])
    broker.shell.run_turns()
    assert (answer.done, reads.count(True)) == (False, 2)
    broker.shell.advance(99)
    assert not answer.done
    broker.shell.advance(1)
    done = broker.decode_any(ApiKey.FETCH, 12, answer.result())
    assert len(values(done.responses[0].partitions[0])) == 3


def test_enough_records_that_left_memory_meanwhile_are_given_at_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when the time is up."""
    broker.produce("t", [bytes(1_000)])
    answer = broker.send(ApiKey.FETCH, 12, broker.fetch_request("t", min_bytes=1_500, max_wait_ms=500))
    nothing_in_memory(broker, monkeypatch)
    broker.produce("t", [bytes(1_000)])
    broker.shell.run_turns()
    done = broker.decode_any(ApiKey.FETCH, 12, answer.result())
    assert len(values(done.responses[0].partitions[0])) == 2


def fetched_cold(broker: Broker, monkeypatch: pytest.MonkeyPatch, beside: Callable[[Any], object]) -> Any:
    """The answer of a fetch that an I/O thread reads; when it has read, the loop does `beside`, given the replica."""
    replica = broker.replica("t")
    log = type(replica.log)
    read = log.read
    reads: list[bool] = []

    def cold(self: object, *arguments: object, blocking: bool = True, **named: object) -> object:
        reads.append(blocking)
        if reads == [False]:
            raise WouldBlock
        result = read(self, *arguments, blocking=blocking, **named)
        if reads == [False, True]:
            beside(replica)
        return result

    monkeypatch.setattr(log, "read", cold)
    answer = broker.send(ApiKey.FETCH, 12, broker.fetch_request("t"))
    assert reads[:2] == [False, True]
    chunks = answer.result() if isinstance(answer, Deferred) else answer
    return broker.decode_any(ApiKey.FETCH, 12, chunks).responses[0].partitions[0]


def test_what_a_truncation_replaces_beside_a_cold_read_is_not_served(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes that the I/O thread found may be those of other records when they are sent."""
    broker.produce("t", [b"a"])
    broker.produce("t", [b"b"])

    def replace(replica: Any) -> None:
        replica.log.truncate_to(1)
        for value in (b"c" * 50, b"d"):
            replica.log.append(bytearray(make_batch([value])), leader_epoch=replica.leader_epoch, now_ms=WALL_START_MS)

    data = fetched_cold(broker, monkeypatch, replace)
    assert (data.high_watermark, values(data)) == (2, [b"a", b"c" * 50])


def test_a_limit_that_goes_back_beside_a_cold_read_bounds_its_records(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the broker stops to lead and knows less of what is committed."""
    broker.produce("t", [b"a"])
    broker.produce("t", [b"b"])

    def resign(replica: Any) -> None:
        replica.leader = None
        replica.known_high_watermark = 1
        replica.log.update_high_watermark(1)

    data = fetched_cold(broker, monkeypatch, resign)
    assert (data.high_watermark, values(data)) == (1, [b"a"])


def test_a_replica_that_is_taken_away_beside_a_cold_read_keeps_its_offsets(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its high watermark is never told as less than the last stable offset, nor than readers knew."""
    broker.produce("t", [b"a"])
    broker.produce("t", [b"b"])
    manager = broker.node.replicas
    data = fetched_cold(broker, monkeypatch, lambda replica: manager.remove(replica.topic_partition))
    assert (data.high_watermark, data.last_stable_offset, values(data)) == (2, 2, [b"a", b"b"])


class TestSessions:
    """KIP-227, through the handler."""

    def begin(self, broker: Broker, version: int = 12) -> int:
        request = broker.fetch_request("t", version=version, session_epoch=0)
        request.topics[0].partitions.append(messages.FetchRequest.FetchPartition(partition=1, partition_max_bytes=1000))
        response = broker.ask(ApiKey.FETCH, version, request)
        assert len(response.responses[0].partitions) == 2
        assert response.session_id > 0
        return response.session_id

    def follow(self, broker: Broker, session_id: int, epoch: int, version: int = 12, **fields: int) -> object:
        request = messages.FetchRequest(session_id=session_id, session_epoch=epoch, max_bytes=1 << 20, **fields)
        return broker.ask(ApiKey.FETCH, version, request)

    @pytest.mark.parametrize("version", [7, 12, 13, 18])
    def test_an_incremental_answer_names_news_only(self, broker: Broker, version: int) -> None:
        """A request that names nothing is about all the session knows; its answer leaves out what is as before."""
        session = self.begin(broker, version)
        assert self.follow(broker, session, 1, version).responses == []
        broker.produce("t", [b"news"], partition=1)
        answer = self.follow(broker, session, 2, version)
        assert [data.partition_index for data in answer.responses[0].partitions] == [1]
        assert values(answer.responses[0].partitions[0]) == [b"news"]

    def test_an_unknown_session_is_refused(self, broker: Broker) -> None:
        """FETCH_SESSION_ID_NOT_FOUND: the client starts a new one."""
        assert self.follow(broker, 99, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    def test_a_wrong_epoch_is_refused(self, broker: Broker) -> None:
        """A request that was lost, or comes twice, shows in the epoch: INVALID_FETCH_SESSION_EPOCH."""
        session = self.begin(broker)
        assert self.follow(broker, session, 2).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH

    def test_a_session_keeps_to_names_or_ids(self, broker: Broker) -> None:
        """A client cannot change between v12 and v13 within a session: FETCH_SESSION_TOPIC_ID_ERROR."""
        session = self.begin(broker, 12)
        assert self.follow(broker, session, 1, 13).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR

    def test_a_session_can_be_closed(self, broker: Broker) -> None:
        """Epoch -1 ends it."""
        session = self.begin(broker)
        self.follow(broker, session, -1)
        assert self.follow(broker, session, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    def test_partitions_are_forgotten(self, broker: Broker) -> None:
        """A forgotten partition is not read any more."""
        session = self.begin(broker)
        request = messages.FetchRequest(
            session_id=session,
            session_epoch=1,
            max_bytes=1 << 20,
            forgotten_topics_data=[messages.FetchRequest.ForgottenTopic(topic="t", partitions=[1])],
        )
        broker.ask(ApiKey.FETCH, 12, request)
        broker.produce("t", [b"news"], partition=1)
        assert self.follow(broker, session, 2).responses == []

    def test_an_error_is_told_once_more_after_it_is_over(self, broker: Broker) -> None:
        """After an error the next answer names the partition, though nothing new is in it."""
        session = self.begin(broker)
        failing = broker.replica("t").log.owner
        failing._failure = "broken"
        assert self.follow(broker, session, 1).responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        failing._failure = None
        assert len(self.follow(broker, session, 2).responses[0].partitions) == 2
        assert self.follow(broker, session, 3).responses == []

    def test_a_partition_that_gave_records_goes_last(self, broker: Broker) -> None:
        """Under a byte limit partitions take turns: who got records waits behind who did not."""
        for partition in (0, 1):
            for _ in range(2):
                broker.produce("t", [bytes(900)], partition=partition)
        request = broker.fetch_request("t", session_epoch=0, max_bytes=1, partition_max_bytes=1000)
        request.topics[0].partitions.append(messages.FetchRequest.FetchPartition(partition=1, partition_max_bytes=1000))
        session = broker.ask(ApiKey.FETCH, 12, request).session_id
        order = []
        for epoch in (1, 2, 3):
            answer = broker.ask(
                ApiKey.FETCH, 12, messages.FetchRequest(session_id=session, session_epoch=epoch, max_bytes=1)
            )
            order += [data.partition_index for data in answer.responses[0].partitions if len(data.records)]
        assert order == [0, 1, 0]


def test_committed_reads_name_no_aborted_transactions_where_there_are_none(broker: Broker) -> None:
    """read_committed has a list, uncommitted reads have null, as Kafka's answers do."""
    broker.produce("t", [b"a"])
    assert broker.fetch("t", isolation_level=1).aborted_transactions == []
    assert broker.fetch("t", isolation_level=0).aborted_transactions is None


def test_open_transactions_bound_committed_reads(broker: Broker) -> None:
    """read_committed ends at the first record of an open transaction; others read on to the high watermark."""
    replica = broker.replica("t")
    broker.produce("t", [b"before"])
    batch = make_batch([b"open"], transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    broker.node.replicas.append(replica, bytearray(batch), required_acks=1)
    committed = broker.fetch("t", isolation_level=1)
    assert (committed.last_stable_offset, committed.high_watermark, values(committed)) == (1, 2, [b"before"])
    assert broker.fetch("t", 1, isolation_level=1).records == b""
    assert len(broker.fetch("t", 1).records) > 0


def with_damaged_transactions(broker: Broker, topic: str, batches: int = 1) -> Path:
    """A partition with aborted transactions whose index cannot be read."""
    replica = broker.replica(topic)
    for sequence in range(batches):
        sent = {"producer_id": 1, "producer_epoch": 0, "base_sequence": sequence}
        batch = make_batch([b"aborted"], transactional=True, **sent)
        broker.node.replicas.append(replica, bytearray(batch), required_acks=1)
        marker = EndTxnMarker(ControlRecordType.ABORT, 0)
        end = build_end_txn_batch(marker, timestamp=WALL_START_MS, producer_id=1, producer_epoch=0)
        broker.node.replicas.append(replica, bytearray(end), required_acks=1, origin=AppendOrigin.COORDINATOR)
    index = Path(replica.log.active.transaction_index.path)
    content = index.read_bytes()
    index.write_bytes(b"\7" + content[1:])
    return index


@pytest.mark.parametrize("waits", [False, True])
def test_a_damaged_transaction_index_concerns_its_own_partition(broker: Broker, waits: bool) -> None:
    """The others are answered, at once or when there is something; an error that is tried again says it of that one."""
    for topic in ("bad", "good"):
        broker.lead(topic)
    request = broker.fetch_request("bad", isolation_level=1, max_wait_ms=500)
    request.topics += broker.fetch_request("good").topics
    answer = broker.send(ApiKey.FETCH, 12, request) if waits else None
    with_damaged_transactions(broker, "bad")
    broker.produce("good", [b"a"])
    broker.shell.run_turns()
    if answer is None:
        answer = broker.send(ApiKey.FETCH, 12, request)
    if isinstance(answer, Deferred):
        answer = answer.result()
    bad, good = (topic.partitions[0] for topic in broker.decode(ApiKey.FETCH, 12, answer).responses)
    assert (bad.error_code, bad.records) == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
    assert values(good) == [b"a"]


def test_a_damaged_transaction_index_is_written_anew(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """At once, from the batches: its readers do not wait until the scrub comes by, if it ever does."""
    broker.lead("t")
    index = with_damaged_transactions(broker, "t", batches=3)
    assert broker.fetch("t", isolation_level=1).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    broker.shell.run_turns()
    data = broker.fetch("t", isolation_level=1)
    aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions]
    assert (data.error_code, aborted) == (0, [(1, 0), (1, 2), (1, 4)])
    assert index.read_bytes()[:2] == bytes(2)
    assert f"transaction_index_rebuilt: path={index}" in caplog.text


def test_a_fetch_of_nothing_is_answered_at_once(broker: Broker) -> None:
    """Without partitions there is nothing to wait for."""
    answer = broker.send(ApiKey.FETCH, 12, messages.FetchRequest(max_wait_ms=500, session_epoch=-1))
    assert not isinstance(answer, Deferred)
    assert broker.decode_any(ApiKey.FETCH, 12, whole(answer)).responses == []
