"""The glue between coordinators and their partitions: loading, appends that fail, answers that wait."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.coordinator_harness import Node, error_of

from tidelog.broker.cluster.producer_ids import ProducerIds
from tidelog.broker.coordinators.groups import GroupCoordinatorService
from tidelog.broker.deferred import Deferred
from tidelog.controller.requests import CreatedTopic, ProducerIdBlock
from tidelog.coordinator.groups.offset_events import (
    CommitOffsets,
    CommitOutcome,
    FetchedOffsets,
    FetchOffsets,
    OffsetToCommit,
)
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import (
    Offset,
    ProducerId,
    TopicPartition,
)
from tidelog.model.topics import CONSUMER_OFFSETS_TOPIC
from tidelog.records.batch import Record, build_batch, iterate_headers
from tidelog.records.control import ControlRecordType, EndTxnMarker, build_end_txn_batch
from tidelog.storage.log_config import LogConfig

PARTITION = TopicPartition("t", 0)


@pytest.fixture
def node() -> Node:
    return Node()


def groups_of(node: Node) -> GroupCoordinatorService:
    return GroupCoordinatorService(
        node,  # type: ignore[arg-type]
        metadata=node.metadata,  # type: ignore[arg-type]
        replicas=node.replicas,  # type: ignore[arg-type]
        controller=node.controller,  # type: ignore[arg-type]
        transactional_appends=lambda: node.transactional_appends,  # type: ignore[arg-type,return-value]
    )


def commit(groups: GroupCoordinatorService, offset: int) -> Deferred[Any]:
    """Appended in the next turn."""
    return groups.ask("g", lambda request: CommitOffsets(request, "g", [OffsetToCommit(PARTITION, Offset(offset))], 1))


def fetch(groups: GroupCoordinatorService) -> Deferred[Any]:
    return groups.ask("g", lambda request: FetchOffsets(request, "g", [PARTITION]))


def committed(groups: GroupCoordinatorService) -> int | None:
    return offset_in(fetch(groups))


def offset_in(outcome: Deferred[Any]) -> int | None:
    reply = outcome.result()
    assert isinstance(reply, FetchedOffsets)
    found = reply.offsets.get(PARTITION)
    return None if found is None else found.offset


def test_an_empty_partition_serves_at_once(node: Node) -> None:
    """There is nothing to load."""
    groups = groups_of(node)
    outcome = commit(groups, 5)
    node.shell.settle()
    assert outcome.result() == CommitOutcome([(PARTITION, ErrorCode.NONE)])
    assert committed(groups) == 5


def test_a_partition_is_loaded_before_it_is_served(node: Node) -> None:
    """COORDINATOR_LOAD_IN_PROGRESS meanwhile; then what an earlier coordinator wrote is there."""
    earlier = groups_of(node)
    for offset in (5, 6):
        commit(earlier, offset)
        node.shell.settle()
    groups = groups_of(node)
    groups.leadership_changed(0)
    assert error_of(commit(groups, 7)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    node.shell.settle()
    assert committed(groups) == 6


def test_a_new_leadership_loads_anew(node: Node) -> None:
    """What was known under another epoch is void."""
    groups = groups_of(node)
    commit(groups, 5)
    node.shell.settle()
    node.replicas.replica.leader_epoch = 1
    assert error_of(fetch(groups)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    node.shell.settle()
    assert committed(groups) == 5


def test_another_brokers_group_is_refused(node: Node) -> None:
    """NOT_COORDINATOR, by which the client asks who is."""
    groups = groups_of(node)
    node.replicas.replica.leader = None
    groups.leadership_changed(0)
    assert error_of(commit(groups, 1)) is ErrorCode.NOT_COORDINATOR


def test_a_commit_is_answered_when_it_is_committed(node: Node) -> None:
    """And so is a fetch that came after it: what it told could otherwise be taken back."""
    groups = groups_of(node)
    commit(groups, 1)
    node.shell.settle()
    node.replicas.commit_at_once = False
    waiting = commit(groups, 2)
    before_the_append = fetch(groups)
    node.shell.settle()
    after_the_append = fetch(groups)
    assert not any(answer.done for answer in (waiting, before_the_append, after_the_append))
    node.replicas.outcomes[-1].complete(None)
    assert waiting.result() == CommitOutcome([(PARTITION, ErrorCode.NONE)])
    assert offset_in(before_the_append) == offset_in(after_the_append) == 2


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_a_failed_append_is_told_and_its_state_dropped(
    node: Node, failure: ErrorCode, told: ErrorCode, at_once: bool
) -> None:
    """In the coordinator's terms; the next question finds what the log really has."""
    groups = groups_of(node)
    commit(groups, 1)
    node.shell.settle()
    if at_once:
        node.replicas.refuse = KafkaError(failure)
        outcome = commit(groups, 2)
        node.shell.settle()
        node.replicas.refuse = None
    else:
        node.replicas.commit_at_once = False
        outcome = commit(groups, 2)
        node.shell.settle()
        fetched = fetch(groups)
        # The replicas never got it: a new leader's log ends before.
        log = node.replicas.replica.log
        log.batches.pop()
        log.log_end_offset -= 1
        node.replicas.outcomes[-1].fail(KafkaError(failure))
        assert error_of(fetched) is told
    assert error_of(outcome) is told
    assert error_of(fetch(groups)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    node.shell.settle()
    assert committed(groups) == 1


def test_records_of_a_later_release_are_passed_over(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """Each is told with its offset; the others count."""
    groups = groups_of(node)
    commit(groups, 1)
    node.shell.settle()
    node.replicas.replica.log.append(bytearray(build_batch([Record(0, 0, b"\x00\x63??", b"", ())])), 1)
    commit(groups, 2)
    node.shell.settle()
    fresh = groups_of(node)
    fresh.leadership_changed(0)
    node.shell.settle()
    assert committed(fresh) == 2
    ignored = [record for record in caplog.records if "record ignored" in record.message]
    assert [record.args[1] for record in ignored if isinstance(record.args, tuple)] == [1]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\x00\x01\xff", b""),
        (None, b"x"),
        (b"", None),
        (b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00", b"\x00\x04"),
        (b"\x00\x02\x00\x01g", b"\x00\x09"),
    ],
)
def test_a_partition_with_a_malformed_record_is_not_served(
    node: Node, caplog: pytest.LogCaptureFixture, key: bytes | None, value: bytes | None
) -> None:
    """As in Kafka: what the others say could be wrong without it. Told once; the next leader tries again."""
    groups = groups_of(node)
    commit(groups, 1)
    node.shell.settle()
    node.replicas.replica.log.append(bytearray(build_batch([Record(0, 0, key, value, ())])), 1)
    fresh = groups_of(node)
    fresh.leadership_changed(0)
    for _ in range(3):
        node.shell.settle()
        assert error_of(fetch(fresh)) is ErrorCode.NOT_COORDINATOR
    assert len([record for record in caplog.records if "cannot be loaded" in record.message]) == 1
    node.replicas.replica.leader_epoch += 1
    assert error_of(fetch(fresh)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_what_is_loaded_is_told_when_it_is_committed(node: Node) -> None:
    """Until the high watermark is there, another leader could take it back."""
    earlier = groups_of(node)
    commit(earlier, 1)
    node.shell.settle()
    groups = groups_of(node)
    node.replicas.high_watermark = 0
    groups.leadership_changed(0)
    node.shell.settle()
    assert error_of(fetch(groups)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    node.replicas.high_watermark = 1
    assert [append.try_complete() for append in node.replicas.replica.delayed_appends] == [True]
    assert committed(groups) == 1


def test_commits_of_one_turn_share_an_append(node: Node) -> None:
    """Each is answered when all of it is committed."""
    groups = groups_of(node)
    outcomes = [commit(groups, offset) for offset in range(10)]
    assert not any(outcome.done for outcome in outcomes)
    node.shell.settle()
    assert all(outcome.done for outcome in outcomes)
    assert (len(node.replicas.guards), node.replicas.replica.log.log_end_offset) == (1, 10)


def test_a_commit_that_fits_no_batch_is_refused_alone(node: Node) -> None:
    """What else was written in that turn is not disturbed, and nothing is loaded anew."""
    groups = groups_of(node)
    small = commit(groups, 1)
    wanted = [OffsetToCommit(TopicPartition("t", index), Offset(index), metadata="m" * 4000) for index in range(300)]
    large = groups.ask("g", lambda request: CommitOffsets(request, "g", wanted, 1))
    assert error_of(large) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    node.shell.settle()
    assert small.done
    assert committed(groups) == 1


def test_what_no_record_can_hold_is_refused_alone(node: Node) -> None:
    """Flexible versions carry longer names than Kafka's records have room for."""
    groups = groups_of(node)
    small = commit(groups, 1)
    wanted, group = [OffsetToCommit(PARTITION, Offset(1))], "g" * 40_000
    outcome = groups.ask(group, lambda request: CommitOffsets(request, group, wanted, 1))
    assert error_of(outcome) is ErrorCode.UNKNOWN_SERVER_ERROR
    node.shell.settle()
    assert small.done
    assert committed(groups) == 1


def test_batches_are_as_large_as_the_topic_allows(node: Node) -> None:
    """What one event writes is never divided."""
    groups = groups_of(node)
    wanted = [OffsetToCommit(TopicPartition("t", index), Offset(index), metadata="m" * 4000) for index in range(100)]
    outcomes = [groups.ask("g", lambda request: CommitOffsets(request, "g", wanted, 1)) for _ in range(5)]
    node.shell.settle()
    assert all(outcome.done for outcome in outcomes)
    ends = [end for _, end, _ in node.replicas.replica.log.batches]
    assert ends == [200, 400, 500]


def test_what_may_be_divided_is_appended_in_several_batches(node: Node) -> None:
    """A group with more offsets than fit one batch can be deleted; the answer comes when the last is committed."""
    groups = groups_of(node)
    node.replicas.replica.log.config = LogConfig(max_message_bytes=10_000)
    for first in range(0, 1000, 100):
        wanted = [OffsetToCommit(TopicPartition("t", first + index), Offset(1)) for index in range(100)]
        groups.ask("g", lambda request, wanted=wanted: CommitOffsets(request, "g", wanted, 1))
        node.shell.settle()
    before = len(node.replicas.replica.log.batches)
    deleted = groups.delete_groups(["g", "nobody"])
    node.shell.settle()
    assert deleted.result() == {"g": ErrorCode.NONE, "nobody": ErrorCode.GROUP_ID_NOT_FOUND}
    batches = node.replicas.replica.log.batches[before:]
    assert len(batches) > 3
    assert max(len(data) for _, _, data in batches) <= 10_000
    assert len(groups.ask("g", lambda request: FetchOffsets(request, "g")).result().offsets) == 0


def test_whoever_waits_hears_that_the_coordinator_has_moved(node: Node) -> None:
    """In the turn of a commit, while it is appended, and while it waits for something else."""
    groups = groups_of(node)
    node.replicas.commit_at_once = False
    appended = commit(groups, 1)
    node.shell.settle()
    fetched = fetch(groups)
    written = commit(groups, 2)
    node.replicas.replica.leader = None
    groups.leadership_changed(0)
    node.shell.settle()
    assert [error_of(answer) for answer in (appended, fetched, written)] == [ErrorCode.NOT_COORDINATOR] * 3
    node.replicas.outcomes[0].complete(None)


def test_nothing_is_tried_without_enough_replicas(node: Node) -> None:
    """COORDINATOR_NOT_AVAILABLE; what is committed can still be had, and the state is kept."""
    groups = groups_of(node)
    commit(groups, 1)
    node.shell.settle()
    assert node.replicas.replica.leader is not None
    node.replicas.replica.leader.has_enough_replicas = False
    assert error_of(commit(groups, 2)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert committed(groups) == 1


def test_many_records_are_loaded_in_turns(node: Node) -> None:
    """No turn of the loop replays them all."""
    groups = groups_of(node)
    wanted = [OffsetToCommit(TopicPartition("t", index), Offset(index)) for index in range(500)]
    for _ in range(5):
        groups.ask("g", lambda request: CommitOffsets(request, "g", wanted, 1000))
        node.shell.settle()
    fresh = groups_of(node)
    fresh.leadership_changed(0)
    turns = 0
    while node.shell.turns:
        node.shell.turns.pop(0)()
        turns += 1
    assert turns > 5
    reply = fresh.ask("g", lambda request: FetchOffsets(request, "g")).result()
    assert isinstance(reply, FetchedOffsets)
    assert len(reply.offsets) == 500


@pytest.mark.parametrize("at", [0, 7, 11, 20, 30, 60, 75])
def test_what_was_read_wrong_is_read_again(node: Node, at: int) -> None:
    """A bit that flipped on its way from the disk: in an offset, which no checksum covers, a size, a record."""
    groups = groups_of(node)
    for offset in range(1, 5):
        commit(groups, offset)
        node.shell.settle()
    log = node.replicas.replica.log
    for read in range(4):
        fresh = groups_of(node)
        log.flip = (read, at)
        fresh.leadership_changed(0)
        node.shell.settle()
        assert log.flip is None
        assert committed(fresh) == 4


def test_gaps_of_compaction_are_passed_over(node: Node) -> None:
    """At the start, between batches, and at the end."""
    groups = groups_of(node)
    for offset in range(1, 7):
        commit(groups, offset)
        node.shell.settle()
    log = node.replicas.replica.log
    log.batches = [log.batches[index] for index in (1, 2, 4)]
    fresh = groups_of(node)
    fresh.leadership_changed(0)
    node.shell.settle()
    assert committed(fresh) == 5


def test_a_damaged_batch_is_not_read_for_ever(node: Node) -> None:
    """What is wrong each time is wrong on the disk."""
    groups = groups_of(node)
    commit(groups, 1)
    node.shell.settle()
    first, end, data = node.replicas.replica.log.batches.pop()
    node.replicas.replica.log.batches.append((first, end, data[:70] + bytes((data[70] ^ 1,)) + data[71:]))
    fresh = groups_of(node)
    fresh.leadership_changed(0)
    node.shell.settle()
    assert error_of(fetch(fresh)) is ErrorCode.NOT_COORDINATOR


def test_a_disk_that_fails_while_loading_is_told(node: Node) -> None:
    """The next question tries again."""
    commit(groups_of(node), 1)
    node.shell.settle()
    groups = groups_of(node)
    node.replicas.replica.log.broken = True
    groups.leadership_changed(0)
    node.shell.settle()
    node.replicas.replica.log.broken = False
    assert error_of(fetch(groups)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    node.shell.settle()
    assert committed(groups) == 1


def test_offsets_of_deleted_topics_go(node: Node) -> None:
    """From the log too."""
    groups = groups_of(node)
    commit(groups, 1)
    groups.partitions_deleted([PARTITION])
    node.shell.settle()
    assert committed(groups) is None


def commit_in_transaction(groups: GroupCoordinatorService, offset: int) -> Deferred[Any]:
    def make(request: int) -> CommitOffsets:
        return CommitOffsets(request, "g", [OffsetToCommit(PARTITION, Offset(offset))], 1, producer=(7, 0))

    return groups.ask_in_transaction("g", "tx", make, adds=True)


def test_a_topic_deleted_while_its_offsets_are_loaded_is_not_forgotten(node: Node) -> None:
    """The coordinator hears of it when it is loaded."""
    earlier = groups_of(node)
    commit(earlier, 5)
    node.shell.settle()
    groups = groups_of(node)
    groups.leadership_changed(0)
    groups.partitions_deleted([PARTITION])
    node.shell.settle()
    assert committed(groups) is None


def test_offsets_of_a_transaction_are_a_batch_of_its_producer(node: Node) -> None:
    """Appended with the word of the transaction's coordinator, after what this turn has written before."""
    groups = groups_of(node)
    plain = commit(groups, 1)
    pending = commit_in_transaction(groups, 2)
    assert pending.result() == CommitOutcome([(PARTITION, ErrorCode.NONE)])
    assert plain.done
    assert (node.transactional_appends.asked, node.replicas.guards) == ([("tx", 7, 0, True)], [None, "guard"])
    first, second = (next(iterate_headers(data))[1] for _, _, data in node.replicas.replica.log.batches)
    assert not first.is_transactional
    assert (second.producer_id, second.producer_epoch, second.base_sequence) == (7, 0, -1)
    assert second.is_transactional
    assert committed(groups) == 1
    groups.transaction_ended(0, 7, 0, committed=True)
    assert committed(groups) == 2


def test_a_refused_transaction_fails_alone(node: Node) -> None:
    """By its coordinator, or by the log, which knows of a newer producer: nothing has to be loaded anew."""
    groups = groups_of(node)
    commit(groups, 1)
    node.shell.settle()
    node.replicas.refuse = KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert error_of(commit_in_transaction(groups, 2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    node.replicas.refuse = None
    node.transactional_appends.refuse = KafkaError(ErrorCode.TRANSACTION_ABORTABLE)
    assert error_of(commit_in_transaction(groups, 2)) is ErrorCode.TRANSACTION_ABORTABLE
    groups.transaction_ended(0, 7, 0, committed=True)
    assert committed(groups) == 1


def test_a_transaction_is_confirmed_again_where_a_marker_came_between(node: Node) -> None:
    """One of an earlier transaction, sent twice: the coordinator's word is void, not the transaction."""
    groups = groups_of(node)
    node.replicas.refuse_next = KafkaError(ErrorCode.INVALID_TXN_STATE)
    assert commit_in_transaction(groups, 2).result() == CommitOutcome([(PARTITION, ErrorCode.NONE)])
    assert len(node.transactional_appends.asked) == 2
    node.replicas.refuse = KafkaError(ErrorCode.INVALID_TXN_STATE)
    assert error_of(commit_in_transaction(groups, 2)) is ErrorCode.INVALID_TXN_STATE
    assert len(node.transactional_appends.asked) == 5


def test_a_transaction_confirmed_under_another_leadership_is_sent_on(node: Node) -> None:
    """NOT_COORDINATOR, by which the client comes again: the log has forgotten what it asked."""
    groups = groups_of(node)
    waiting = node.transactional_appends.answer = Deferred()
    outcome = commit_in_transaction(groups, 2)
    node.replicas.replica.leader_epoch = 1
    groups.leadership_changed(0)
    waiting.complete("guard")
    assert error_of(outcome) is ErrorCode.NOT_COORDINATOR


def test_pending_offsets_and_markers_are_loaded(node: Node) -> None:
    """What was pending is pending, and what was committed or aborted holds or is void; a marker that comes while the
    partition is loaded is not lost.
    """
    groups = groups_of(node)
    log = node.replicas.replica.log
    for offset, kind in ((1, ControlRecordType.COMMIT), (2, ControlRecordType.ABORT), (3, None)):
        commit_in_transaction(groups, offset)
        if kind is not None:
            marker = build_end_txn_batch(EndTxnMarker(kind, 0), timestamp=1, producer_id=7, producer_epoch=0)
            log.append(bytearray(marker), 1)
            groups.transaction_ended(0, 7, 0, committed=kind is ControlRecordType.COMMIT)
    assert committed(groups) == 1
    fresh = groups_of(node)
    fresh.leadership_changed(0)
    node.shell.settle()
    assert committed(fresh) == 1
    fresh.transaction_ended(0, 7, 0, committed=True)
    assert committed(fresh) == 3
    late = groups_of(node)
    late.leadership_changed(0)
    late.transaction_ended(0, 7, 0, committed=True)
    node.shell.settle()
    assert committed(late) == 3


def test_the_topic_is_created_once(node: Node) -> None:
    """Whoever asks meanwhile waits for the same creation; a refusal is told and not remembered."""
    node = Node(with_topic=False)
    groups = groups_of(node)
    first, second = groups.ensure_topic(), groups.ensure_topic()
    ((request, creation),) = node.controller.asked
    assert (request.topics[0].partitions, request.topics[0].replication_factor) == (50, 1)
    creation.complete([CreatedTopic(CONSUMER_OFFSETS_TOPIC, ErrorCode.INVALID_REPLICATION_FACTOR, "too few")])
    assert error_of(first) is error_of(second) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    third = groups.ensure_topic()
    node.controller.asked[-1][1].complete([CreatedTopic(CONSUMER_OFFSETS_TOPIC, ErrorCode.TOPIC_ALREADY_EXISTS)])
    assert third.result() is None


def test_producer_ids_are_never_given_twice() -> None:
    """One block is asked for at a time, and used up before the next."""
    node = Node()
    ids = ProducerIds(node, node.controller)  # type: ignore[arg-type]
    taken = [ids.take() for _ in range(5)]
    (_, first) = node.controller.asked.pop()
    assert node.controller.asked == []
    first.complete(ProducerIdBlock(ProducerId(100), 3))
    (_, second) = node.controller.asked.pop()
    second.complete(ProducerIdBlock(ProducerId(103), 3))
    assert [outcome.result() for outcome in taken] == [100, 101, 102, 103, 104]
    assert ids.take().result() == 105


def test_producers_without_a_controller_are_told_to_come_again() -> None:
    """With an error that clients retry."""
    node = Node()
    ids = ProducerIds(node, node.controller)  # type: ignore[arg-type]
    taken = ids.take()
    node.controller.asked.pop()[1].fail(KafkaError(ErrorCode.NOT_CONTROLLER))
    assert error_of(taken) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    again = ids.take()
    node.controller.asked.pop()[1].complete(ProducerIdBlock(ProducerId(0), 1))
    assert again.result() == 0


def test_a_partition_that_cannot_be_read_takes_no_others_listing_along(node: Node) -> None:
    """Its groups are left out, and it is read again after pauses that grow, however often clients ask."""
    earlier = groups_of(node)
    commit(earlier, 5)
    node.shell.settle()
    log = node.replicas.replica.log
    reads: list[int] = []

    def unreadable(*_: object, **__: object) -> object:
        reads.append(node.clock.now_ms)
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch is damaged")

    log.read = unreadable
    groups = groups_of(node)
    for _ in range(200):
        fetch(groups)
        node.shell.settle()
    assert len(reads) == 2
    assert list(groups.list_groups().result()) == []
