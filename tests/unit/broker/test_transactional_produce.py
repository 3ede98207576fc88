"""Transactional batches from a producer: whom the leader asks first, in which order they go in, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.harness import Broker, make_batch, produce_request, topic_id_of

from tidelog.broker.deferred import Deferred
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicId
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import read_records

PRODUCER = 7
COORDINATOR = 1


@pytest.fixture
def transactional(broker: Broker) -> Broker:
    """A broker that leads two partitions of "t"; another one coordinates all transactions."""
    broker.lead("t", 2)
    state = messages.UpdateMetadataRequest.UpdateMetadataPartitionState
    coordinators = messages.UpdateMetadataRequest.UpdateMetadataTopicState(
        topic_name="__transaction_state",
        topic_id=TopicId(topic_id_of("__transaction_state")),
        partition_states=[
            state(partition_index=0, controller_epoch=1, leader=COORDINATOR, leader_epoch=0, isr=[1], replicas=[1])
        ],
    )
    broker.tell_brokers([coordinators], live=(0, COORDINATOR))
    return broker


def transactional_batch(sequence: int, epoch: int = 0) -> bytes:
    """One record of the producer."""
    return make_batch(
        [b"%d" % sequence],
        transactional=True,
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def send(
    broker: Broker,
    sequence: int = 0,
    *,
    partition: int = 0,
    version: int = 11,
    epoch: int = 0,
    transactional_id: str | None = "tx",
    acks: int = -1,
) -> Any:
    """The answer to a batch of one record, deferred or not."""
    request = produce_request("t", transactional_batch(sequence, epoch), partition, acks, version)
    request.transactional_id = transactional_id
    answer = broker.send(ApiKey.PRODUCE, version, request)
    broker.shell.run_turns()
    return answer


def result(broker: Broker, answer: Any, version: int = 11) -> tuple[ErrorCode, int]:
    """Error and first offset of an answer that is there."""
    if isinstance(answer, Deferred):
        assert answer.done, "it waits"
        answer = answer.result()
    partition = broker.decode(ApiKey.PRODUCE, version, answer).responses[0].partition_responses[0]
    return ErrorCode(partition.error_code), partition.base_offset


def questions(broker: Broker) -> list[tuple[Any, Deferred[Any]]]:
    """What the coordinator was asked, and where its answers go."""
    kind = messages.AddPartitionsToTxnRequest
    return [(message, answer) for to, message, answer in broker.shell.asked if isinstance(message, kind) and to == 1]


def say(broker: Broker, question: tuple[Any, Deferred[Any]], error: ErrorCode = ErrorCode.NONE) -> None:
    """The coordinator's word on all that it was asked."""
    request, answer = question
    kind = messages.AddPartitionsToTxnResponse
    response = kind(
        results_by_transaction=[
            kind.AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=[
                    kind.AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            kind.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
                            for index in topic.partitions
                        ],
                    )
                    for topic in each.topics
                ],
            )
            for each in request.transactions
        ]
    )
    answer.complete(response)
    broker.shell.run_turns()


def end(
    broker: Broker, *, commit: bool = True, epoch: int = 0, version: int = 0, coordinator_epoch: int = 0
) -> ErrorCode:
    """A marker for partition 0; the error."""
    request = messages.WriteTxnMarkersRequest(
        markers=[marker(PRODUCER, [0], commit, epoch, version, coordinator_epoch)]
    )
    answer = broker.ask(ApiKey.WRITE_TXN_MARKERS, 2, request)
    return int(answer.markers[0].topics[0].partitions[0].error_code)


def marker(
    producer_id: int, partitions: list[int], commit: bool, epoch: int = 0, version: int = 0, coordinator_epoch: int = 0
) -> messages.WriteTxnMarkersRequest.WritableTxnMarker:
    kind = messages.WriteTxnMarkersRequest
    return kind.WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[kind.WritableTxnMarkerTopic(name="t", partition_indexes=partitions)],
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )


def stored(broker: Broker, partition: int = 0) -> list[bytes | None]:
    data = broker.fetch("t", partition=partition).records
    return [record.value for record in read_records(data)] if len(data) else []


@pytest.mark.parametrize(("version", "verify_only"), [(11, True), (12, False)])
def test_the_coordinator_is_asked_before_the_first_batch(
    transactional: Broker, version: int, verify_only: bool
) -> None:
    """Whether the partition is there, or from Produce v12 on to add it; later batches ask nothing."""
    answer = send(transactional, version=version)
    assert not answer.done
    (question,) = questions(transactional)
    asked = question[0].transactions[0]
    assert (asked.transactional_id, asked.producer_id, asked.producer_epoch) == ("tx", PRODUCER, 0)
    assert (asked.verify_only, asked.topics[0].name, asked.topics[0].partitions) == (verify_only, "t", [0])
    assert transactional.replica("t").log.log_end_offset == 0
    say(transactional, question)
    assert result(transactional, answer, version) == (ErrorCode.NONE, 0)
    assert result(transactional, send(transactional, 1, version=version), version) == (ErrorCode.NONE, 1)
    assert len(questions(transactional)) == 1


def test_batches_behind_the_first_wait_in_line(transactional: Broker) -> None:
    """Five in flight: one question, and all of them in their order."""
    answers = [send(transactional, sequence) for sequence in range(5)]
    assert [answer.done for answer in answers] == [False] * 5
    (question,) = questions(transactional)
    say(transactional, question)
    assert [result(transactional, answer) for answer in answers] == [(ErrorCode.NONE, offset) for offset in range(5)]


def test_what_is_asked_in_one_turn_is_one_request(transactional: Broker) -> None:
    """Partitions of a transaction together; while the coordinator is busy the rest waits for the next one."""
    first = send(transactional)
    second = send(transactional, partition=1)
    assert len(questions(transactional)) == 1
    say(transactional, questions(transactional)[0])
    assert result(transactional, first) == (ErrorCode.NONE, 0)
    assert not second.done
    say(transactional, questions(transactional)[1])
    assert result(transactional, second) == (ErrorCode.NONE, 0)


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_TXN_STATE, 12, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.PRODUCER_FENCED, 11, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 11, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_what_the_coordinator_refuses_is_told_as_producers_understand_it(
    transactional: Broker, said: ErrorCode, version: int, told: ErrorCode
) -> None:
    """All of the line get it, nothing is appended, and the first one may come again."""
    answers = [send(transactional, sequence, version=version) for sequence in range(2)]
    say(transactional, questions(transactional)[0], said)
    assert [result(transactional, answer, version) for answer in answers] == [(told, -1)] * 2
    assert transactional.replica("t").log.log_end_offset == 0
    again = send(transactional, version=version)
    say(transactional, questions(transactional)[1])
    assert result(transactional, again, version) == (ErrorCode.NONE, 0)


def test_nothing_is_kept_of_producers_that_are_none(transactional: Broker) -> None:
    """Whoever makes them up fills no memory, and takes nothing from those that there are."""
    producers = transactional.replica("t").log.producers
    made_up = send(transactional, transactional_id="other")
    say(transactional, questions(transactional)[0], ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert result(transactional, made_up) == (ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1)
    assert producers.verifications == {}
    made_up = send(transactional, transactional_id="other")
    honest = send(transactional)
    say(transactional, questions(transactional)[1], ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert result(transactional, made_up) == (ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1)
    assert not honest.done
    say(transactional, questions(transactional)[2])
    assert result(transactional, honest) == (ErrorCode.NONE, 0)


def test_who_ends_the_transaction_before_is_asked_again(transactional: Broker) -> None:
    """From v12 on CONCURRENT_TRANSACTIONS means that its markers are on their way: soon, but not for ever."""
    answer = send(transactional, version=12)
    for count in range(1, 4):
        say(transactional, questions(transactional)[-1], ErrorCode.CONCURRENT_TRANSACTIONS)
        assert not answer.done
        transactional.shell.advance(20)
        assert len(questions(transactional)) == count + 1
    transactional.shell.advance(100)
    say(transactional, questions(transactional)[-1], ErrorCode.CONCURRENT_TRANSACTIONS)
    assert result(transactional, answer, 12) == (ErrorCode.CONCURRENT_TRANSACTIONS, -1)


def test_the_marker_that_is_waited_for_does_not_void_the_next_transaction(transactional: Broker) -> None:
    """The producer is faster than the end of its last one: what is asked again holds after the marker."""
    first = send(transactional, version=12)
    say(transactional, questions(transactional)[0])
    assert result(transactional, first, 12) == (ErrorCode.NONE, 0)
    answers = [send(transactional, sequence, version=12, epoch=1) for sequence in range(3)]
    say(transactional, questions(transactional)[1], ErrorCode.CONCURRENT_TRANSACTIONS)
    assert end(transactional, epoch=1, version=2) == ErrorCode.NONE
    transactional.shell.advance(20)
    say(transactional, questions(transactional)[2])
    assert [result(transactional, each, 12) for each in answers] == [(ErrorCode.NONE, offset) for offset in (2, 3, 4)]


def test_a_coordinator_that_is_gone_is_no_refusal(transactional: Broker) -> None:
    """NOT_ENOUGH_REPLICAS, which producers take for a reason to try again."""
    answer = send(transactional)
    questions(transactional)[0][1].fail(ConnectionResetError("gone"))
    transactional.shell.run_turns()
    assert result(transactional, answer) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    transactional.tell_brokers(live=(0,))
    assert result(transactional, send(transactional)) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)


def test_a_marker_between_question_and_answer_wins(transactional: Broker) -> None:
    """What was confirmed before the transaction ended does not open it anew."""
    answer = send(transactional)
    assert end(transactional, commit=False) == ErrorCode.NONE
    say(transactional, questions(transactional)[0])
    assert result(transactional, answer) == (ErrorCode.INVALID_TXN_STATE, -1)
    assert transactional.replica("t").log.producers.first_undecided_offset is None


def test_an_error_of_one_batch_in_line_leaves_no_other_without_an_answer(
    transactional: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody foresaw it: batches of the line and of other partitions that were asked for in the same request are
    answered, and the coordinator is asked again for the next ones."""
    append = transactional.node.replicas.append
    faults = [RuntimeError("nobody foresaw this")]

    def fail(*arguments: Any, **options: Any) -> Any:
        if faults:
            raise faults.pop()
        return append(*arguments, **options)

    first, behind, other = send(transactional, 0), send(transactional, 1), send(transactional, 0, partition=1)
    third = send(transactional, 0, transactional_id="another")
    monkeypatch.setattr(transactional.node.replicas, "append", fail)
    say(transactional, questions(transactional)[0])
    assert len(questions(transactional)) == 2, "The coordinator is not asked any more."
    say(transactional, questions(transactional)[1])
    assert [answer.done for answer in (first, behind, other, third)] == [True, True, True, True]
    assert result(transactional, first)[0] is ErrorCode.UNKNOWN_SERVER_ERROR
    assert result(transactional, behind)[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert result(transactional, other)[0] is ErrorCode.NONE


def test_a_leader_that_has_moved_refuses(transactional: Broker) -> None:
    """The answer comes when another one leads."""
    answer = send(transactional)
    transactional.lead("t", 2, leader=1, leader_epoch=3, isr=[1], replicas=[0, 1])
    say(transactional, questions(transactional)[0])
    assert result(transactional, answer)[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_leadership_that_came_back_meanwhile_is_another_one(transactional: Broker) -> None:
    """The producer is told to look for the leader, and not that its transaction is lost."""
    answer = send(transactional)
    transactional.lead("t", 2, leader_epoch=3)
    say(transactional, questions(transactional)[0])
    assert result(transactional, answer)[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_batch_beside_a_late_one_is_not_acknowledged_in_another_leadership(
    transactional: Broker, comes_back: bool
) -> None:
    """Partition 0 has the batch, while 1 waits for its coordinator. Then leaders change: what 0 has at that offset in
    the end may be another batch."""
    first = send(transactional)
    say(transactional, questions(transactional)[0])
    assert result(transactional, first) == (ErrorCode.NONE, 0)
    data = messages.ProduceRequest.PartitionProduceData
    request = produce_request("t", transactional_batch(1), acks=-1, version=11)
    request.transactional_id = "tx"
    request.topic_data[0].partition_data.append(data(index=1, records=transactional_batch(0)))
    answer = transactional.send(ApiKey.PRODUCE, 11, request)
    transactional.lead("t", 2, leader=1, leader_epoch=3, isr=[1], replicas=[0, 1])
    if comes_back:
        transactional.lead("t", 2, leader_epoch=4)
    transactional.shell.run_turns()
    say(transactional, questions(transactional)[1])
    assert answer.done, "it waits for what will not come"
    partitions = transactional.decode(ApiKey.PRODUCE, 11, answer.result()).responses[0].partition_responses
    refused = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert [ErrorCode(each.error_code) for each in partitions] == refused
    assert [each.base_offset for each in partitions] == [-1, -1]


def test_transactions_need_their_id(transactional: Broker) -> None:
    """TRANSACTIONAL_ID_AUTHORIZATION_FAILED without one, as Kafka has it."""
    answer = send(transactional, transactional_id=None)
    assert result(transactional, answer) == (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)


def test_verification_can_be_switched_off(tmp_path: Any) -> None:
    """transaction.partition.verification.enable=false: the batch is appended at once."""
    broker = Broker(str(tmp_path), {"transaction.partition.verification.enable": "false"})
    try:
        broker.lead("t", 1)
        assert result(broker, send(broker)) == (ErrorCode.NONE, 0)
        assert questions(broker) == []
    finally:
        broker.close()


def test_acks_0_has_no_answer_and_is_appended(transactional: Broker) -> None:
    """Such a producer never learns what became of it, also when it had to wait."""
    answer = send(transactional, acks=0)
    say(transactional, questions(transactional)[0])
    assert answer.done
    assert answer.result() is None
    assert stored(transactional) == [b"0"]


def open_transaction(broker: Broker, partition: int = 0, sequence: int = 0, epoch: int = 0) -> None:
    answer = send(broker, sequence, partition=partition, epoch=epoch)
    say(broker, questions(broker)[-1])
    assert result(broker, answer)[0] is ErrorCode.NONE


def test_committed_reads_follow_the_markers(transactional: Broker) -> None:
    """Nothing of an open transaction; all of a committed one; of an aborted one the list that says what to drop."""
    open_transaction(transactional)
    committed = transactional.fetch("t", isolation_level=1)
    assert (committed.last_stable_offset, committed.high_watermark, bytes(committed.records)) == (0, 1, b"")
    assert committed.aborted_transactions == []
    end(transactional)
    open_transaction(transactional, sequence=1)
    end(transactional, commit=False)
    committed = transactional.fetch("t", isolation_level=1)
    assert (committed.last_stable_offset, committed.high_watermark) == (4, 4)
    assert [(each.producer_id, each.first_offset) for each in committed.aborted_transactions] == [(PRODUCER, 2)]
    assert transactional.fetch("t").aborted_transactions is None
    assert [each.first_offset for each in transactional.fetch("t", 3, isolation_level=1).aborted_transactions] == [2]
    assert transactional.fetch("t", 4, isolation_level=1).aborted_transactions == []


def test_a_long_poll_for_committed_records_waits_for_the_marker(transactional: Broker) -> None:
    """Appends of the open transaction wake nobody; its end does."""
    open_transaction(transactional)
    request = transactional.fetch_request("t", isolation_level=1, max_wait_ms=10_000, version=12)
    answer = transactional.send(ApiKey.FETCH, 12, request)
    send(transactional, 1)
    assert not answer.done
    end(transactional)
    assert answer.done
    data = transactional.decode(ApiKey.FETCH, 12, answer.result()).responses[0].partitions[0]
    assert (data.last_stable_offset, data.high_watermark) == (3, 3)
    assert len(data.records) > 0


@pytest.mark.parametrize(("isolation", "offset"), [(0, 1), (1, 0)])
def test_the_latest_offset_depends_on_the_isolation(transactional: Broker, isolation: int, offset: int) -> None:
    """The last stable offset is the end for who reads committed records only."""
    open_transaction(transactional)
    kind = messages.ListOffsetsRequest
    request = kind(
        replica_id=-1,
        isolation_level=isolation,
        topics=[
            kind.ListOffsetsTopic(name="t", partitions=[kind.ListOffsetsPartition(partition_index=0, timestamp=-1)])
        ],
    )
    answer = transactional.ask(ApiKey.LIST_OFFSETS, 8, request)
    assert answer.topics[0].partitions[0].offset == offset


def test_markers_of_one_request_are_written_together(transactional: Broker) -> None:
    """One write for a partition; one that is refused does not keep the others out."""
    open_transaction(transactional)
    request = messages.WriteTxnMarkersRequest(
        markers=[marker(PRODUCER, [0, 1], True), marker(8, [0], False), marker(9, [0, 5], False)]
    )
    answer = transactional.ask(ApiKey.WRITE_TXN_MARKERS, 2, request)
    codes = [[part.error_code for part in each.topics[0].partitions] for each in answer.markers]
    assert codes == [[0, 0], [0], [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]]
    assert transactional.replica("t").log.log_end_offset == 4
    open_transaction(transactional, sequence=1, epoch=0)
    assert end(transactional, coordinator_epoch=4) == ErrorCode.NONE
    request = messages.WriteTxnMarkersRequest(
        markers=[marker(PRODUCER, [0], True, coordinator_epoch=3), marker(8, [0], False)]
    )
    answer = transactional.ask(ApiKey.WRITE_TXN_MARKERS, 1, request)
    codes = [[part.error_code for part in each.topics[0].partitions] for each in answer.markers]
    assert codes == [[ErrorCode.TRANSACTION_COORDINATOR_FENCED], [0]]


def test_markers_for_what_is_led_elsewhere_are_refused(transactional: Broker) -> None:
    """NOT_LEADER_OR_FOLLOWER: the coordinator looks for the leader."""
    transactional.lead("t", 2, leader=1, leader_epoch=3, isr=[1], replicas=[0, 1])
    assert end(transactional) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_producers_are_described(transactional: Broker) -> None:
    """Epoch, sequence, coordinator and the start of the open transaction; errors for each partition."""
    open_transaction(transactional)
    end(transactional, coordinator_epoch=3)
    open_transaction(transactional, sequence=1)
    kind = messages.DescribeProducersRequest
    request = kind(
        topics=[
            kind.TopicRequest(name="t", partition_indexes=[0, 1, 9]),
            kind.TopicRequest(name="no topic", partition_indexes=[0]),
        ]
    )
    answer = transactional.ask(ApiKey.DESCRIBE_PRODUCERS, 0, request)
    first, second, unknown = answer.topics[0].partitions
    (producer,) = first.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (PRODUCER, 0, 1)
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (3, 2)
    assert (second.error_code, second.active_producers) == (0, [])
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.topics[1].partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
