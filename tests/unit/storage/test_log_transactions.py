"""Transactions in one partition's log: who may begin one, what ends it, and how far committed reads see."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.storage.support import NOW_MS, TP, StandingClock, batch, marker, open_log, open_manager

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.records.batch import BatchHeader, iterate_headers
from tidelog.storage.log import AppendInfo, AppendOrigin, Log, ReadResult
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager_settings import LogManagerSettings
from tidelog.storage.verification import ONGOING, VerificationGuard

PRODUCER = 5


def send(log: Log, sequence: int, guard: VerificationGuard | None, *, epoch: int = 0, count: int = 1) -> AppendInfo:
    sent = batch(
        *[b"v"] * count,
        timestamp=NOW_MS,
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )
    return log.append(sent, leader_epoch=0, now_ms=NOW_MS, guard=guard)


def end(log: Log, *, commit: bool = True, epoch: int = 0, version: int = 0) -> AppendInfo:
    control = marker(PRODUCER, commit=commit, producer_epoch=epoch)
    origin = AppendOrigin.COORDINATOR
    return log.append(control, leader_epoch=0, now_ms=NOW_MS, origin=origin, transaction_version=version)


def ask(log: Log, sequence: int = 0, *, epoch: int = 0, bumps_epochs: bool = False) -> VerificationGuard:
    return log.producers.begin_verification(PRODUCER, epoch, sequence, NOW_MS, bumps_epochs=bumps_epochs)


def headers(result: ReadResult) -> list[BatchHeader]:
    return [header for part in result.ranges for _, header in iterate_headers(part.read())]


def refusal(log: Log, sequence: int, guard: VerificationGuard | None, *, epoch: int = 0) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        send(log, sequence, guard, epoch=epoch)
    return refused.value.code


def test_the_first_batch_of_a_transaction_needs_its_guard(tmp_path: Path) -> None:
    """Later ones find the transaction open; after the marker the next one needs a guard of its own."""
    _, log = open_log(tmp_path)
    assert refusal(log, 0, ONGOING) is ErrorCode.INVALID_TXN_STATE
    guard = ask(log)
    assert ask(log) is guard
    send(log, 0, guard)
    assert ask(log, 1) is ONGOING
    send(log, 1, ONGOING)
    end(log)
    assert refusal(log, 2, ONGOING) is ErrorCode.INVALID_TXN_STATE
    assert refusal(log, 2, guard) is ErrorCode.INVALID_TXN_STATE
    send(log, 2, ask(log, 2))


def test_a_marker_takes_the_guard_away(tmp_path: Path) -> None:
    """What the coordinator confirmed before the transaction ended opens nothing after it."""
    _, log = open_log(tmp_path)
    stale = ask(log)
    end(log, commit=False)
    assert refusal(log, 0, stale) is ErrorCode.INVALID_TXN_STATE
    fresh = ask(log)
    assert fresh is not stale
    assert refusal(log, 0, stale) is ErrorCode.INVALID_TXN_STATE
    send(log, 0, fresh)
    assert log.producers.verifications == {}


def test_a_newer_epoch_does_not_write_into_the_old_ones_transaction(tmp_path: Path) -> None:
    """Its own transaction is another one, of which the coordinator is asked."""
    _, log = open_log(tmp_path)
    send(log, 0, ask(log))
    assert ask(log, epoch=1) is not ONGOING
    assert refusal(log, 0, ONGOING, epoch=1) is ErrorCode.INVALID_TXN_STATE


def test_a_batch_behind_one_that_still_waits_is_out_of_order(tmp_path: Path) -> None:
    """A producer that nothing is known of may begin anywhere, but not in the middle of what it has under way."""
    _, log = open_log(tmp_path)
    ask(log, 10)
    guard = ask(log, 15)
    assert refusal(log, 15, guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, 10, guard, count=5)
    send(log, 15, ask(log, 15))


def test_where_epochs_are_bumped_a_transaction_begins_at_sequence_0(tmp_path: Path) -> None:
    """Each has its own epoch, so that a later sequence from an unknown producer is a gap."""
    _, log = open_log(tmp_path)
    guard = ask(log, 3, bumps_epochs=True)
    assert refusal(log, 3, guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, 0, ask(log, 0, bumps_epochs=True))
    end(log, epoch=1, version=2)
    assert refusal(log, 1, ask(log, 1, epoch=1), epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, 0, ask(log, 0, epoch=1), epoch=1)


def test_a_late_batch_after_a_bumped_marker_is_fenced(tmp_path: Path) -> None:
    """The marker's epoch is above the transaction's: what comes late is of an older epoch."""
    _, log = open_log(tmp_path)
    send(log, 0, ask(log))
    end(log, epoch=1, version=2)
    assert refusal(log, 1, None) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_late_marker_does_not_end_the_next_transaction(tmp_path: Path) -> None:
    """From transaction.version 2 on, one of the epoch of an open transaction is that of the one before."""
    _, log = open_log(tmp_path)
    send(log, 0, ask(log))
    end(log, epoch=1, version=2)
    end(log, epoch=1, version=2)  # A repetition, with nothing open, does no harm.
    send(log, 0, ask(log, epoch=1), epoch=1)
    with pytest.raises(KafkaError) as refused:
        end(log, epoch=1, version=2)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert ask(log, 1, epoch=1) is ONGOING
    end(log, epoch=2, version=2)
    assert ask(log, 1, epoch=2) is not ONGOING


def test_a_marker_that_comes_twice_leaves_the_next_transactions_question_alone(tmp_path: Path) -> None:
    """A coordinator that lost an answer sends it again; the producer is asking for its next epoch by then."""
    _, log = open_log(tmp_path)
    send(log, 0, ask(log))
    end(log, epoch=1, version=2)
    guard = ask(log, epoch=1)
    end(log, epoch=1, version=2)
    send(log, 0, guard, epoch=1)
    end(log, epoch=2, version=2)
    stale = ask(log, epoch=2)
    end(log, epoch=3, version=2)
    assert refusal(log, 0, stale, epoch=3) is ErrorCode.INVALID_TXN_STATE


def test_questions_without_an_end_are_forgotten(tmp_path: Path) -> None:
    """After producer.id.expiration.ms, with their producers."""
    clock = StandingClock()
    manager, log = open_log(tmp_path, clock=clock, settings=LogManagerSettings(producer_expiration_ms=1000))
    send(log, 0, ask(log))
    log.producers.begin_verification(6, 0, 0, NOW_MS, bumps_epochs=False)
    clock.now_ms += 1000
    manager.maintenance.expire_producers()
    assert log.producers.verifications == {}
    assert set(log.producers.entries) == {PRODUCER}, "one with an open transaction is not forgotten"


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_that_is_not_committed_decides_nothing_after_a_restart(
    tmp_path: Path, clean: bool, commit: bool
) -> None:
    """The high watermark lies within the transaction: its records are not stable, though the marker is in the log."""
    manager, log = open_log(tmp_path)
    log.update_high_watermark(0)
    send(log, 0, ask(log), count=3)
    log.append(batch(b"plain"), leader_epoch=0, now_ms=NOW_MS)
    end(log, commit=commit)
    log.update_high_watermark(2)
    assert log.last_stable_offset == 0
    for task in manager.maintenance.checkpoint_tasks():
        task.run()
        task.finish(None)
    manager.close() if clean else manager.abandon()
    again = open_manager(tmp_path).get(TP)
    assert again is not None
    assert (again.high_watermark, again.log_end_offset, again.last_stable_offset) == (2, 5, 0)
    again.update_high_watermark(4)
    assert again.last_stable_offset == 0
    again.update_high_watermark(5)
    assert again.last_stable_offset == 5


def test_the_last_stable_offset_is_never_before_the_log(tmp_path: Path) -> None:
    """DeleteRecords may take the beginning of an open transaction away."""
    _, log = open_log(tmp_path)
    for sequence in range(4):
        send(log, sequence, ONGOING if sequence else ask(log))
    log.update_high_watermark(4)
    log.advance_start(2)
    assert log.last_stable_offset == 2
    log.advance_start(4)
    assert log.last_stable_offset == 4
    end(log, commit=False)
    log.update_high_watermark(5)
    assert log.last_stable_offset == 5


def test_a_reader_far_behind_is_told_what_concerns_its_read(tmp_path: Path) -> None:
    """Not of every transaction that was aborted since: the list would be longer than the records."""
    _, log = open_log(tmp_path, config=LogConfig(segment_bytes=20_000, index_interval_bytes=200))
    for number in range(200):
        send(log, number, ask(log, number))
        end(log, commit=False)
    log.update_high_watermark(log.log_end_offset)
    for offset in range(0, 400, 7):
        result = log.read(offset, 1000, up_to_offset=400)
        last = max(header.last_offset for header in headers(result))
        told = log.aborted_in(offset, result, up_to_offset=400)
        for part in result.ranges:
            part.release()
        needed = [each for each in range(200) if 2 * each <= last and 2 * each + 1 >= offset]
        assert [each.first_offset // 2 for each in told][: len(needed)] == needed
        assert len(told) <= len(needed) + 5


@pytest.mark.parametrize("bit", range(8))
def test_a_damaged_offset_index_hides_no_aborted_transaction(tmp_path: Path, bit: int) -> None:
    """It tells how far a read has come, and no checksum covers it: an entry counts that its batch confirms."""
    config = LogConfig(index_interval_bytes=200)
    manager, log = open_log(tmp_path, config=config)
    for sequence in range(12):
        send(log, sequence, ask(log, sequence))
        end(log, commit=False)
    log.roll(NOW_MS)
    send(log, 12, ask(log, 12))
    log.update_high_watermark(log.log_end_offset)
    manager.close()
    index = tmp_path / "topicone-0" / f"{0:020d}.index"
    content = bytearray(index.read_bytes())
    for entry in range(0, len(content), 8):
        content[entry + 3 - bit // 8] ^= 1 << bit % 8
    index.write_bytes(content)
    manager, log = open_log(tmp_path, config=config)
    log.update_high_watermark(log.log_end_offset)
    for offset in range(0, 24, 2):
        result = log.read(offset, 500, up_to_offset=24)
        aborted = {each.first_offset for each in log.aborted_in(offset, result, up_to_offset=24)}
        assert {header.base_offset for header in headers(result) if not header.is_control} <= aborted
        for part in result.ranges:
            part.release()
    manager.close()
