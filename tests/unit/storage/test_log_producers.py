"""Idempotent and transactional producers, as a partition's log knows them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from tests.unit.storage.support import (
    NOW_MS,
    TOPIC_ID,
    TP,
    StandingClock,
    batch,
    marker,
    open_log,
    open_manager,
)

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.storage.log import AppendInfo, AppendOrigin, Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager_settings import LogManagerSettings
from tidelog.storage.producer_limit import KEPT_MS
from tidelog.storage.tasks import run_now


def send(
    log: Log, sequence: int, *, epoch: int = 0, producer: int = 5, count: int = 1, transactional: bool = False
) -> AppendInfo:
    """One batch of `count` records of a producer, each time with another timestamp."""
    sent = batch(
        *[b"v"] * count,
        timestamp=NOW_MS + sequence % 1000,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return log.append(sent, leader_epoch=0, now_ms=NOW_MS)


def end(log: Log, *, commit: bool, producer: int = 5, coordinator_epoch: int = 0) -> AppendInfo:
    control = marker(producer, commit=commit, coordinator_epoch=coordinator_epoch)
    return log.append(control, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)


def test_the_last_five_batches_are_remembered(tmp_path: Path) -> None:
    """Repeats of them are duplicates with the first offset; an older one is out of order."""
    _, log = open_log(tmp_path)
    for sequence in range(7):
        send(log, sequence)
    for sequence in range(2, 7):
        again = send(log, sequence)
        assert again.duplicate
        assert (again.first_offset, again.last_offset, again.log_append_time_ms) == (
            sequence,
            sequence,
            NOW_MS + sequence,
        )
    with pytest.raises(KafkaError) as refused:
        send(log, 1)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 7


def test_a_gap_is_refused_and_the_next_one_is_not(tmp_path: Path) -> None:
    """OUT_OF_ORDER_SEQUENCE_NUMBER leaves the state as it was."""
    _, log = open_log(tmp_path)
    send(log, 0, count=3)
    with pytest.raises(KafkaError, match=re.escape("4 (incoming seq. number), 2 (current end")) as refused:
        send(log, 4)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 3).first_offset == 3


def test_an_unknown_producer_may_begin_anywhere(tmp_path: Path) -> None:
    """Its earlier records may have gone by retention."""
    _, log = open_log(tmp_path)
    assert send(log, 17).first_offset == 0
    assert send(log, 18).first_offset == 1


def test_sequences_wrap(tmp_path: Path) -> None:
    """After 2147483647 comes 0, within a batch too."""
    _, log = open_log(tmp_path)
    send(log, 2**31 - 2, count=3)
    assert log.producers.entries[5].last_sequence == 0
    assert send(log, 2**31 - 2, count=3).duplicate
    assert not send(log, 1).duplicate


def test_an_older_epoch_is_fenced_and_a_newer_begins_at_zero(tmp_path: Path) -> None:
    """INVALID_PRODUCER_EPOCH for the zombie; the new epoch's sequences start over."""
    _, log = open_log(tmp_path)
    send(log, 0, epoch=3)
    with pytest.raises(KafkaError) as gap:
        send(log, 1, epoch=4)
    assert gap.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, 0, epoch=4)
    with pytest.raises(KafkaError) as fenced:
        send(log, 1, epoch=3)
    assert fenced.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_failed_append_changes_no_producer(tmp_path: Path) -> None:
    """What is refused after the sequence was checked must be accepted when it comes again."""
    _, log = open_log(tmp_path, config=LogConfig(segment_bytes=250))
    send(log, 0)
    with pytest.raises(KafkaError):
        send(log, 1, count=50)
    assert not send(log, 1).duplicate


def test_producers_expire(tmp_path: Path) -> None:
    """Silent for producer.id.expiration.ms they are forgotten, unless a transaction is open."""
    clock = StandingClock()
    manager, log = open_log(tmp_path, clock=clock, settings=LogManagerSettings(producer_expiration_ms=1000))
    send(log, 0)
    send(log, 0, producer=6, transactional=True)
    clock.now_ms += 999
    assert manager.maintenance.expire_producers() == 0
    clock.now_ms += 1
    assert manager.maintenance.expire_producers() == 1
    assert set(log.producers.entries) == {6}


@pytest.mark.parametrize("how", ["running", "stopped", "killed"])
def test_a_producer_of_old_records_is_known_as_long_as_it_is_heard_of(tmp_path: Path, how: str) -> None:
    """One that copies last year's records has their timestamps: what it repeats is a duplicate all the same."""
    clock = StandingClock()
    manager, log = open_log(tmp_path, clock=clock)
    old = {"timestamp": NOW_MS - 400 * 86_400_000, "producer_id": 5, "producer_epoch": 0}
    for sequence in range(2):
        log.append(batch(b"old", base_sequence=sequence, **old), leader_epoch=0, now_ms=NOW_MS)
    if how != "running":
        log.roll(NOW_MS)
        manager.close() if how == "stopped" else manager.abandon()
        manager, log = open_log(tmp_path, clock=clock)
    clock.now_ms += KEPT_MS - 1
    assert manager.maintenance.expire_producers() == 0
    for sequence in range(2):
        again = log.append(batch(b"old", base_sequence=sequence, **old), leader_epoch=0, now_ms=NOW_MS)
        assert again.duplicate
    clock.now_ms += 1
    assert manager.maintenance.expire_producers() == 1
    manager.close()


def test_a_producer_of_old_records_is_forgotten_with_an_old_snapshot(tmp_path: Path) -> None:
    """It was silent since that was written."""
    manager, log = open_log(tmp_path)
    old = {"timestamp": NOW_MS - 400 * 86_400_000, "producer_epoch": 0, "base_sequence": 0}
    log.append(batch(b"old", producer_id=5, **old), leader_epoch=0, now_ms=NOW_MS)
    log.append(batch(b"open", producer_id=6, transactional=True, **old), leader_epoch=0, now_ms=NOW_MS)
    send(log, 0, producer=7)
    manager.close()
    for snapshot in (tmp_path / "topicone-0").glob("*.snapshot"):
        os.utime(snapshot, ns=(0, (NOW_MS - KEPT_MS) * 1_000_000))
    manager, log = open_log(tmp_path)
    assert set(log.producers.entries) == {6, 7}
    manager.close()


@pytest.mark.parametrize("clean", [True, False])
def test_state_survives_a_restart(tmp_path: Path, clean: bool) -> None:
    """From the snapshot of a clean stop, or from the batches after a crash."""
    manager, log = open_log(tmp_path, config=LogConfig(segment_bytes=500))
    for sequence in range(12):
        send(log, sequence, transactional=sequence > 10)
    send(log, 0, producer=6, transactional=True)
    end(log, commit=False, producer=6)
    before = {id: (entry.last_sequence, entry.transaction_first_offset) for id, entry in log.producers.entries.items()}
    manager.close() if clean else manager.abandon()
    again = open_manager(tmp_path, config=LogConfig(segment_bytes=500)).get(TP)
    assert again is not None
    after = {id: (entry.last_sequence, entry.transaction_first_offset) for id, entry in again.producers.entries.items()}
    assert after == before == {5: (11, 11), 6: (0, -1)}
    assert send(again, 11, transactional=True).duplicate
    again.update_high_watermark(again.log_end_offset)
    assert again.last_stable_offset == 11
    assert [tuple(entry) for entry in again.aborted_transactions(0, 20)] == [(6, 12, 13, 11)]


@pytest.mark.parametrize("segment_bytes", [1 << 20, 4_000, 250])
@pytest.mark.parametrize("clean", [True, False])
def test_the_last_five_batches_survive_a_restart(tmp_path: Path, clean: bool, segment_bytes: int) -> None:
    """A snapshot names the last one only; a client repeats all that were under way, which are duplicates still."""
    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=300)
    manager, log = open_log(tmp_path, config=config)
    for sequence in range(60):
        send(log, sequence)
        send(log, sequence, producer=6, count=2) if sequence == 0 else send(log, sequence + 1, producer=6)
    batches = {id: entry.batches for id, entry in log.producers.entries.items()}
    manager.close() if clean else manager.abandon()
    again = open_manager(tmp_path, config=config).get(TP)
    assert again is not None
    for sequence in range(55, 60):
        assert send(again, sequence).duplicate
        assert send(again, sequence + 1, producer=6).duplicate
    with pytest.raises(KafkaError) as refused:
        send(again, 54)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert {id: entry.batches for id, entry in again.producers.entries.items()} == batches
    assert not send(again, 60).duplicate


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize(
    ("position", "bit"),
    [(53, 6), (56, 0), (56, 1), (56, 2), (50, 0), (52, 0), (42, 3)],
    ids=["sequence, far", "sequence", "sequence, 2", "sequence, 4", "producer", "epoch", "timestamp"],
)
def test_a_rotten_header_says_nothing_of_its_producer(tmp_path: Path, number: int, position: int, bit: int) -> None:
    """After a clean stop, of any of the batches that are recalled: the next one is taken, and a repeat is not."""
    manager, log = open_log(tmp_path)
    for sequence in range(5):
        send(log, sequence)
    positions = [found.position for found in log.active.headers(0)]
    path = Path(log.active.log_file.path)
    manager.close()
    content = bytearray(path.read_bytes())
    content[positions[number] + position] ^= 1 << bit
    path.write_bytes(content)
    again = open_manager(tmp_path).get(TP)
    assert again is not None
    outcomes: list[object] = []
    for sequence in range(5):
        try:
            repeat = send(again, sequence)
        except KafkaError as refused:
            outcomes.append(refused.code)
        else:
            outcomes.append(repeat.last_offset if repeat.duplicate else -1)
    # The snapshot has the last one; what lies before a rotten header is not known.
    known = range(number + 1, 5) if number < 4 else range(4, 5)
    unknown = [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER] * known.start
    assert outcomes in ([*unknown, *known], list(range(5)))
    assert not send(again, 5).duplicate


def test_batches_of_an_earlier_epoch_are_not_recalled(tmp_path: Path) -> None:
    """Nor anything where the index cannot be read: then the snapshot alone says what is known."""
    manager, log = open_log(tmp_path)
    for sequence in range(3):
        send(log, sequence)
    send(log, 0, epoch=1)
    manager.close()
    again = open_manager(tmp_path).get(TP)
    assert again is not None
    assert send(again, 0, epoch=1).duplicate
    assert [each.last_sequence for each in again.producers.entries[5].batches] == [0]


def test_the_last_stable_offset_stops_at_the_first_open_transaction(tmp_path: Path) -> None:
    """It moves on when that one ends and its marker is below the high watermark."""
    _, log = open_log(tmp_path)
    send(log, 0)
    send(log, 0, producer=6, transactional=True)
    send(log, 0, producer=7, transactional=True)
    log.update_high_watermark(3)
    assert log.last_stable_offset == 1
    end(log, commit=True, producer=6)
    assert log.last_stable_offset == 1, "the marker is not replicated"
    log.update_high_watermark(4)
    assert log.last_stable_offset == 2
    end(log, commit=False, producer=7)
    log.update_high_watermark(5)
    assert log.last_stable_offset == 5
    assert [tuple(entry) for entry in log.aborted_transactions(0, 5)] == [(7, 2, 4, 5)]
    assert log.aborted_transactions(0, 2) == []


def test_a_zombie_coordinator_is_fenced(tmp_path: Path) -> None:
    """A marker of an older coordinator epoch must not end anything."""
    _, log = open_log(tmp_path)
    send(log, 0, transactional=True)
    end(log, commit=True, coordinator_epoch=4)
    send(log, 1, transactional=True)
    with pytest.raises(KafkaError) as refused:
        end(log, commit=True, coordinator_epoch=3)
    assert refused.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_write_outside_of_the_open_transaction_is_refused(tmp_path: Path) -> None:
    """INVALID_TXN_STATE: its records would be neither committed nor aborted."""
    _, log = open_log(tmp_path)
    send(log, 0, transactional=True)
    with pytest.raises(KafkaError) as refused:
        send(log, 1)
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE


def test_truncation_takes_the_state_back(tmp_path: Path) -> None:
    """A batch that was cut may come again under its old sequence; a marker that was cut no longer counts."""
    _, log = open_log(tmp_path)
    for sequence in range(4):
        send(log, sequence, transactional=True)
    end(log, commit=True)
    log.truncate_to(2)
    assert log.producers.entries[5].last_sequence == 1
    assert log.producers.first_undecided_offset == 0
    assert send(log, 2, transactional=True).first_offset == 2


def test_a_clean_stop_after_a_truncation_keeps_producers(tmp_path: Path) -> None:
    """A truncation removes the only snapshot; the next clean stop writes one at the log's end.

    The next start reads nothing else, and knows the producer by it.
    """
    manager, log = open_log(tmp_path)
    send(log, 0)
    kept = log.log_end_offset
    log.append(batch(b"not replicated"), leader_epoch=0, now_ms=NOW_MS)
    manager.abandon()
    manager, log = open_log(tmp_path)
    log.truncate_to(kept)
    manager.close()
    manager, log = open_log(tmp_path)
    assert log.producers.entries[5].last_sequence == 0
    manager.close()


@pytest.mark.parametrize("begins_at", [1, 2])
@pytest.mark.parametrize("how", ["stopped", "killed", "cut"])
def test_deleted_records_tell_of_their_producers_as_long_as_they_are_there(
    tmp_path: Path, begins_at: int, how: str
) -> None:
    """DeleteRecords may leave a producer's marker, and take the batch before it: it goes on where it was, all the same.
    So does a producer that has nothing left to be read."""
    manager, log = open_log(tmp_path)
    send(log, 0, transactional=True)
    end(log, commit=True)
    send(log, 0, producer=6)
    log.update_high_watermark(3)
    log.advance_start(begins_at)
    if how == "cut":
        send(log, 0, producer=7)
        log.truncate_to(3)
    else:
        for task in manager.maintenance.checkpoint_tasks():
            run_now(task)
        manager.close() if how == "stopped" else manager.abandon()
        manager, log = open_log(tmp_path)
        log.update_high_watermark(3)
    assert log.log_start_offset == begins_at
    assert send(log, 0).duplicate
    assert send(log, 1, transactional=True).first_offset == 3
    assert send(log, 0, producer=6).duplicate
    manager.close()


@pytest.mark.parametrize("begins_at", [3, 5])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_copy_knows_producers_whose_records_are_gone(tmp_path: Path, begins_at: int, *, restarts: bool) -> None:
    """Also where DeleteRecords has left the beginning of the log inside a batch, before which the copy begins: what
    such a producer sends again is a duplicate, and not written once more."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    manager = open_manager(tmp_path / "one", tmp_path / "other")
    log = manager.create(TP, TOPIC_ID)
    send(log, 0, producer=5, count=3)
    send(log, 0, producer=6, count=4)
    log.update_high_watermark(7)
    log.advance_start(begins_at)
    elsewhere = next(each for each in manager.directories if each is not log.owner)
    copy = manager.futures.create(TP, elsewhere)
    copied = log.read(begins_at, 1 << 20, up_to_offset=7)
    copy.append_as_follower(b"".join(part.read() for part in copied.ranges))
    for part in copied.ranges:
        part.release()
    for task in manager.maintenance.truncation_tasks():
        run_now(task)
    flush = copy.flush_task()
    if flush is not None:
        run_now(flush)
    copy.update_high_watermark(7)
    moved = manager.futures.replace(TP)
    if restarts:
        manager.close()
        manager = open_manager(tmp_path / "one", tmp_path / "other")
        moved = manager.create(TP, TOPIC_ID)
        moved.update_high_watermark(7)
    assert (moved.log_start_offset, moved.log_end_offset) == (begins_at, 7)
    again = send(moved, 0, producer=5, count=3)
    assert (again.duplicate, again.first_offset) == (True, 0)
    manager.close()
