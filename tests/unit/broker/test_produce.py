"""Produce: what is appended, what is refused and how, and when the answer comes."""

import errno
import struct

import pytest
from tests.unit.broker.harness import WALL_START_MS, Broker, make_batch, produce_request, topic_id_of, whole

from tidelog.broker.deferred import Deferred
from tidelog.broker.handlers._produce_waits import late_answer
from tidelog.broker.peer import CloseConnection
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import BrokerEpoch, BrokerId, Offset
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import Codec, Record, build_batch, read_records
from tidelog.replication.events import FollowerFetched

VERSIONS = range(3, 14)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_appends(broker: Broker, version: int) -> None:
    """A batch is appended by each served version, and the answer has its first offset."""
    broker.produce("t", [b"a", b"b"], version=version)
    answer = broker.produce("t", [b"c"], version=version)
    assert (answer.index, answer.error_code, answer.base_offset) == (0, 0, 2)
    assert broker.replica("t").log.log_end_offset == 3


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_fast_path_answers_as_the_general_one(broker: Broker, version: int, acks: int) -> None:
    """Both paths give the same bytes for the same request, but for the offset."""
    request = produce_request("t", make_batch([b"value"]), 1, acks, version)
    handler = broker.node.handlers[ApiKey.PRODUCE]
    fast_path, handler.handle_body = handler.handle_body, None
    general = whole(broker.send(ApiKey.PRODUCE, version, request))
    handler.handle_body = fast_path
    fast = broker.send(ApiKey.PRODUCE, version, request)
    assert type(fast) is bytes
    general_answer = broker.decode_any(ApiKey.PRODUCE, version, general)
    fast_answer = broker.decode_any(ApiKey.PRODUCE, version, fast)
    assert fast_answer.responses[0].partition_responses[0].base_offset == 1
    fast_answer.responses[0].partition_responses[0].base_offset = 0
    assert fast_answer == general_answer
    assert len(fast) == len(general)


def test_nothing_of_the_receive_buffer_is_kept(broker: Broker) -> None:
    """The log has its own bytes: the buffer of the request may be used again at once."""
    request = produce_request("t", make_batch([b"value"]), 0, 1, 9)
    frame = bytearray(broker.frame(ApiKey.PRODUCE, 9, request))
    broker.dispatcher.request(broker.peer, memoryview(frame), 4, len(frame), 0)
    frame[:] = bytes(len(frame))
    data = broker.fetch("t").records
    assert [record.value for record in read_records(data)] == [b"value"]


def test_base_offset_and_leader_epoch_are_patched(broker: Broker) -> None:
    """Stored batches carry their offset and the leader's epoch; librdkafka calls unpatched ones MSG_SIZE_TOO_LARGE."""
    broker.lead("t", 3, leader_epoch=5)
    broker.produce("t", [b"a", b"b"])
    broker.produce("t", [b"c"])
    data = bytes(broker.fetch("t", 2).records)
    assert struct.unpack_from(">qii", data) == (2, len(data) - 12, 5)


@pytest.mark.parametrize("version", [3, 9])
def test_acks_0_has_no_answer(broker: Broker, version: int) -> None:
    """With acks=0 the batch is appended and nothing is sent back."""
    assert broker.produce("t", acks=0, version=version) is None
    assert broker.replica("t").log.log_end_offset == 1


def test_an_error_with_acks_0_closes_the_connection(broker: Broker) -> None:
    """A producer that wants no answers learns of an error by losing its connection."""
    with pytest.raises(CloseConnection, match="UNKNOWN_TOPIC_OR_PARTITION"):
        broker.produce("unknown", acks=0)


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acks_are_refused(broker: Broker, acks: int) -> None:
    """acks is -1, 0 or 1; anything else is INVALID_REQUIRED_ACKS, and nothing is appended."""
    answer = broker.produce("t", acks=acks)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    assert broker.replica("t").log.log_end_offset == 0


@pytest.mark.parametrize("version", [0, 1, 2])
def test_versions_below_3_are_advertised_but_not_served(broker: Broker, version: int) -> None:
    """librdkafka before 2.11.1 needs the minimum of 0 for compression; such a request ends the connection."""
    frame = memoryview(struct.pack(">hhih", 0, version, 1, -1))
    with pytest.raises(CloseConnection, match="not served"):
        broker.dispatcher.request(broker.peer, frame, 0, len(frame), 0)


def test_an_unknown_topic_or_partition_is_named(broker: Broker) -> None:
    """Unknown names are UNKNOWN_TOPIC_OR_PARTITION, unknown ids UNKNOWN_TOPIC_ID."""
    assert broker.produce("unknown").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.produce("t", partition=3).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.produce("t", version=13, topic_id=bytes(range(16))).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_another_brokers_partition_is_refused_with_its_leader(broker: Broker) -> None:
    """NOT_LEADER_OR_FOLLOWER tells from v10 on who leads, by which epoch (KIP-951)."""
    broker.lead("t", 1, leader=1, leader_epoch=4, isr=[1])
    answer = broker.produce("t", version=10)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (1, 4)
    assert broker.produce("t", version=9).current_leader.leader_id == -1


def test_that_there_is_no_leader_is_not_told_as_one(broker: Broker) -> None:
    """librdkafka 2.12 to 2.16 gives a partition up whose leader it was told is -1."""
    broker.lead("t", 1, leader=-1, leader_epoch=4, isr=[1])
    answer = broker.produce("t", version=10)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (-1, -1)


def corrupted(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


@pytest.mark.parametrize(
    ("batch", "version", "error"),
    [
        (corrupted(make_batch([b"value"])), 9, ErrorCode.CORRUPT_MESSAGE),
        (make_batch([bytes(1_100_000)]), 9, ErrorCode.MESSAGE_TOO_LARGE),
        (b"", 9, ErrorCode.INVALID_RECORD),
        (None, 9, ErrorCode.INVALID_RECORD),
        (make_batch([b"a"]) + make_batch([b"b"]), 9, ErrorCode.INVALID_RECORD),
        (make_batch([b"value"])[:16] + b"\1" + make_batch([b"value"])[17:], 9, ErrorCode.INVALID_RECORD),
        (make_batch([b"value"], codec=Codec.ZSTD), 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (make_batch([b"value"])[:20], 9, ErrorCode.CORRUPT_MESSAGE),
        (make_batch([b"value"])[:-5], 9, ErrorCode.CORRUPT_MESSAGE),
        (
            make_batch([b"v"], transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
            9,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        (make_batch([b"value"], timestamp=1_800_000_000_000), 9, ErrorCode.INVALID_TIMESTAMP),
        (bytes(7) + b"\1" + make_batch([b"value"])[8:], 9, ErrorCode.INVALID_RECORD),
    ],
    ids=["crc", "large", "empty", "null", "two", "magic", "zstd", "short", "cut", "transaction", "future", "offset"],
)
def test_bad_batches_are_refused(broker: Broker, batch: bytes | None, version: int, error: ErrorCode) -> None:
    """Each kind of bad batch has Kafka's error and a message for people, and leaves the log as it was."""
    request = produce_request("t", batch, 0, 1, version)
    answer = broker.ask(ApiKey.PRODUCE, version, request).responses[0].partition_responses[0]
    assert (ErrorCode(answer.error_code), answer.base_offset) == (error, -1)
    if version >= 8:
        assert answer.error_message
    assert broker.replica("t").log.log_end_offset == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_records_at_fault_are_named(start_broker, version: int) -> None:
    """KIP-467: of a batch of 100 for a compacted topic the ten without a key are named, and nothing is appended."""
    broker = start_broker()
    broker.settings.topics["keyed"] = {"cleanup.policy": "compact"}
    broker.lead("keyed")
    records = [Record(at, WALL_START_MS, None if at % 10 == 4 else b"k", b"v") for at in range(100)]
    request = produce_request("keyed", bytes(build_batch(records)), 0, -1, version)
    answer = broker.ask(ApiKey.PRODUCE, version, request).responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert broker.replica("keyed").log.log_end_offset == 0
    if version >= 8:
        assert [each.batch_index for each in answer.record_errors] == list(range(4, 100, 10))
        words = "Compacted topic cannot accept message without key in topic partition keyed-0"
        assert {each.batch_index_error_message for each in answer.record_errors} == {words}
        assert answer.error_message.startswith("One or more records have been rejected due to 10 record errors")


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_records_of_a_wrong_time_are_named(start_broker, codec: Codec) -> None:
    """Those before and after the topic's bounds, in a compressed batch too."""
    broker = start_broker()
    bounds = {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "1000"}
    broker.settings.topics["timed"] = bounds
    broker.lead("timed")
    now_ms = broker.clock.wall_ms()
    times = [now_ms, now_ms - 1001, now_ms, now_ms + 1001]
    batch = build_batch([Record(at, time, None, b"v") for at, time in enumerate(times)], codec=codec)
    answer = broker.ask(ApiKey.PRODUCE, 9, produce_request("timed", bytes(batch), 0, -1, 9))
    refused = answer.responses[0].partition_responses[0]
    assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [each.batch_index for each in refused.record_errors] == [1, 3]
    assert refused.error_message == "One or more records have been rejected due to invalid timestamp"


def test_one_bad_partition_spares_the_others(broker: Broker) -> None:
    """Each partition of a request is appended or refused by itself."""
    request = produce_request("t", make_batch([b"good"]), 0, 1, 9)
    data = messages.ProduceRequest.PartitionProduceData
    request.topic_data[0].partition_data += [data(index=9, records=make_batch([b"x"])), data(index=2, records=b"")]
    answers = broker.ask(ApiKey.PRODUCE, 9, request).responses[0].partition_responses
    assert [(answer.index, answer.error_code) for answer in answers] == [(0, 0), (9, 3), (2, 87)]


def test_internal_topics_are_closed_to_clients(broker: Broker) -> None:
    """Only Kafka's admin client id may write to __consumer_offsets."""
    broker.lead("__consumer_offsets", 1)
    assert broker.produce("__consumer_offsets").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert broker.produce("__consumer_offsets", client_id="__admin_client").error_code == 0


@pytest.mark.parametrize("version", [8, 9, 13])
def test_a_repeated_batch_is_answered_as_the_first_time(broker: Broker, version: int) -> None:
    """Idempotence: the duplicate has the first one's offset and is not appended; a gap is refused."""
    session = {"producer_id": 5, "producer_epoch": 0, "version": version}
    assert broker.produce("t", [b"a"], base_sequence=0, **session).base_offset == 0
    assert broker.produce("t", [b"b"], base_sequence=1, **session).base_offset == 1
    again = broker.produce("t", [b"a"], base_sequence=0, **session)
    assert (again.error_code, again.base_offset, again.log_append_time_ms) == (0, 0, -1)
    gap = broker.produce("t", [b"d"], base_sequence=3, **session)
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert broker.replica("t").log.log_end_offset == 2


def test_log_append_time_is_told(start_broker) -> None:
    """A topic with LogAppendTime stamps its batches and tells the producer when."""
    broker = start_broker()
    broker.settings.topics["stamped"] = {"message.timestamp.type": "LogAppendTime"}
    broker.lead("stamped")
    assert broker.produce("stamped").log_append_time_ms == broker.clock.wall_ms()


@pytest.mark.parametrize("version", [8, 9, 13])
def test_a_gap_is_a_gap_in_a_stamped_topic(start_broker, version: int) -> None:
    """The answer in words is made by judging the batch again, which has been stamped and taken back meanwhile."""
    broker = start_broker()
    broker.settings.topics["stamped"] = {"message.timestamp.type": "LogAppendTime"}
    broker.lead("stamped")
    session = {"producer_id": 5, "producer_epoch": 0, "version": version}
    assert broker.produce("stamped", [b"a"], base_sequence=0, **session).base_offset == 0
    for _ in range(2):
        gap = broker.produce("stamped", [b"d"], base_sequence=3, **session)
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_acks_all_needs_min_insync_replicas(start_broker) -> None:
    """With fewer replicas in sync than min.insync.replicas, acks=all is refused before the append; acks=1 is not."""
    broker = start_broker()
    broker.settings.topics["safe"] = {"min.insync.replicas": "2"}
    broker.lead("safe", replicas=[0, 1])
    refused = broker.produce("safe", acks=-1)
    assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert broker.replica("safe").log.log_end_offset == 0
    assert broker.produce("safe", acks=1).error_code == 0


@pytest.mark.row("R36")
@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", [8, 9, 13])
def test_with_flush_messages_1_the_answer_waits_for_the_flush(start_broker, acks: int, version: int) -> None:
    """Nothing is acknowledged, nor served to consumers, before it is on the device; the loop does not wait."""
    broker = start_broker()
    broker.settings.topics["safe"] = {"flush.messages": "1"}
    broker.lead("safe")
    broker.shell.pool_waits = True
    answer = broker.produce("safe", acks=acks, version=version)
    assert isinstance(answer, Deferred)
    assert broker.fetch("safe").high_watermark == 0
    broker.shell.run_pool()
    assert answer.done
    done = broker.decode_any(ApiKey.PRODUCE, version, whole(answer.result()))
    assert (done.responses[0].partition_responses[0].error_code, broker.fetch("safe").high_watermark) == (0, 1)


def test_appends_during_a_flush_share_the_next_one(start_broker) -> None:
    """While a flush runs, what comes waits together for one more: group commit."""
    broker = start_broker()
    broker.settings.topics["safe"] = {"flush.messages": "1"}
    broker.lead("safe")
    broker.shell.pool_waits = True
    first = broker.produce("safe")
    later = [broker.produce("safe") for _ in range(3)]
    assert len(broker.shell.pool) == 1
    broker.shell.run_pool()
    broker.shell.run_turns()
    assert first.done
    assert not any(answer.done for answer in later)
    assert len(broker.shell.pool) == 1
    broker.shell.run_pool()
    assert all(answer.done for answer in later)


def test_a_flush_that_takes_too_long_times_out(start_broker) -> None:
    """The producer's timeout bounds the wait: REQUEST_TIMED_OUT."""
    broker = start_broker()
    broker.settings.topics["safe"] = {"flush.messages": "1"}
    broker.lead("safe")
    broker.shell.pool_waits = True
    answer = broker.produce("safe", acks=-1, timeout_ms=500)
    broker.shell.advance(499)
    assert not answer.done
    broker.shell.advance(1)
    done = broker.decode_any(ApiKey.PRODUCE, 9, whole(answer.result()))
    assert done.responses[0].partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    broker.shell.run_pool()


def test_a_failed_flush_is_a_storage_error(start_broker, monkeypatch) -> None:
    """The directory goes offline, and whoever waited is told KAFKA_STORAGE_ERROR; the flush is not tried again."""
    broker = start_broker()
    broker.settings.topics["safe"] = {"flush.messages": "1"}
    broker.lead("safe")
    broker.shell.pool_waits = True
    answer = broker.produce("safe", acks=-1)

    def fail(self: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("tidelog.ports.real.SystemFile.fsync", fail)
    broker.shell.run_pool()
    done = broker.decode_any(ApiKey.PRODUCE, 9, whole(answer.result()))
    assert done.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.produce("safe").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    monkeypatch.undo()


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
def test_a_partition_lost_while_waiting_is_not_acknowledged(start_broker, version: int) -> None:
    """When leadership goes, the append may not survive: NOT_LEADER_OR_FOLLOWER."""
    broker = start_broker()
    broker.settings.topics["safe"] = {"flush.messages": "1"}
    broker.lead("safe")
    broker.shell.pool_waits = True
    answer = broker.produce("safe", acks=-1, version=version)
    broker.lead("safe", leader=1, leader_epoch=1, isr=[1])
    done = broker.decode_any(ApiKey.PRODUCE, version, whole(answer.result()))
    assert done.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.shell.run_pool()


def test_a_replica_that_is_taken_away_does_not_say_that_there_is_no_topic(start_broker) -> None:
    """Moved to other brokers, whoever has it now may have the batch too: NOT_LEADER_OR_FOLLOWER, as for any lost
    leadership, while clients of this broker still see the partition.
    """
    broker = start_broker()
    broker.settings.topics["safe"] = {"flush.messages": "1"}
    broker.lead("safe")
    broker.shell.pool_waits = True
    answer = broker.produce("safe", acks=-1)
    moved = messages.StopReplicaRequest.StopReplicaPartitionState(
        partition_index=0, leader_epoch=1, delete_partition=True
    )
    topic = messages.StopReplicaRequest.StopReplicaTopicState(topic_name="safe", partition_states=[moved])
    broker.send(
        ApiKey.STOP_REPLICA,
        4,
        messages.StopReplicaRequest(controller_id=0, controller_epoch=1, broker_epoch=7, topic_states=[topic]),
    )
    assert broker.replica("safe") is None
    done = broker.decode_any(ApiKey.PRODUCE, 9, whole(answer.result()))
    assert done.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.shell.run_pool()


def test_a_recreated_topic_has_its_own_templates(broker: Broker) -> None:
    """Answers by topic id carry the id of today's topic, not of one that had the name before."""
    broker.produce("t", version=13)
    broker.delete("t")
    new_id = bytes(range(16))
    broker.lead("t", topic_id=new_id)
    answer = broker.ask(ApiKey.PRODUCE, 13, produce_request("t", make_batch([b"x"]), 0, 1, 13, new_id))
    assert bytes(answer.responses[0].topic_id) == new_id
    old = broker.produce("t", version=13, topic_id=topic_id_of("t"))
    assert old.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_coordinators_append_waits_for_no_disk_that_has_failed(broker: Broker) -> None:
    """Its clients, and the transaction coordinator that waits for a marker, ask the next leader at once."""
    broker.lead("c", isr=[0, 1], replicas=[0, 1])
    replica = broker.replica("c")
    outcome = broker.node.replicas.append_and_wait(replica.topic_partition, make_batch([b"value"]), 30_000)
    replica.log.folder.fail(OSError(errno.EIO, "rotten"), "reading")
    broker.node.directory_failed()
    with pytest.raises(KafkaError) as caught:
        outcome.result()
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    broker.shell.advance(30_000)
    assert len(replica.delayed()) == 0


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [126, 127, 128, 249])
def test_an_answer_that_was_waited_for_names_a_topic_of_any_length(broker: Broker, size: int, version: int) -> None:
    """From version 9 on the length of a name is a varint, which takes two bytes from 127 letters on."""
    topic = "n" * size
    broker.lead(topic, isr=[0, 1], replicas=[0, 1])
    replica = broker.replica(topic)
    info = broker.node.replicas.append(replica, make_batch([b"value"]), required_acks=-1)
    late = late_answer(broker.node, replica, info, version, 5, -1, 1_000)
    event = FollowerFetched(BrokerId(1), Offset(1), Offset(0), BrokerEpoch(50), Offset(0))
    broker.node.replicas.follower_fetched(replica, event, broker.clock.monotonic_ms())
    (answer,) = broker.decode_any(ApiKey.PRODUCE, version, late.result()).responses
    assert version >= 13 or answer.name == topic
    assert [each.base_offset for each in answer.partition_responses] == [0]


def test_records_for_a_topic_go_into_no_former_one_of_its_name(broker: Broker) -> None:
    """The broker was told of the next topic, and has yet to give the former one's replica up: what was acknowledged
    there would go with it."""
    broker.produce("t", version=13)
    following = bytes(range(16))
    (refused,) = broker.lead("t", topic_id=following).topics
    assert refused.partition_errors[0].error_code == ErrorCode.INCONSISTENT_TOPIC_ID
    answer = broker.produce("t", version=13, topic_id=following)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert broker.replica("t").log.log_end_offset == 1


@pytest.mark.parametrize("topics", [1, 2])
def test_a_producer_that_is_gone_leaves_nothing_behind(start_broker, topics: int) -> None:
    """When its connection closes, what waited for the flush is dropped, however long its timeout was."""
    broker = start_broker()
    broker.settings.topics["safe"] = {"flush.messages": "1"}
    broker.lead("safe")
    broker.shell.pool_waits = True
    request = produce_request("safe", make_batch([b"x"]), timeout_ms=2**31 - 1)
    request.topic_data *= topics
    answer = broker.send(ApiKey.PRODUCE, 9, request)
    delayed = broker.replica("safe").delayed_appends
    assert len(delayed) == topics
    answer.abandon()
    assert len(delayed) == 0
    assert not broker.shell.waiting_timers
    broker.shell.run_turns()
    broker.shell.run_pool()
