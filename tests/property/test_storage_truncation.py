"""After a truncation a log is what it would be, had the rest never been there: producers, epochs, indexes, bytes.

Each example appends what a leader might send, of plain, idempotent and transactional producers, cuts it somewhere, and
compares with another log that got only what is left; then both go on with the same, and are compared again.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.amount import examples
from tests.unit.storage.support import NOW_MS, TOPIC_ID, TP, MemoryDisk, batch, marker, open_manager

from tidelog.model.errors import KafkaError
from tidelog.records.batch import patch
from tidelog.storage import truncation
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager import LogManager
from tidelog.storage.tasks import run_now

CONFIG = LogConfig(
    segment_bytes=700,
    segment_index_bytes=240,
    index_interval_bytes=120,
    retention_ms=-1,
    file_delete_delay_ms=0,
)

Sent = tuple[str, int, int, bool]
"""What it is, its producer, how many records, whether a new leader's epoch begins."""

SENT = st.lists(
    st.tuples(
        st.sampled_from(["plain", "idempotent", "transactional", "commit", "abort"]),
        st.integers(0, 2),
        st.integers(1, 3),
        st.booleans(),
    ),
    min_size=1,
    max_size=40,
)


class Sender:
    """A leader's log, batch by batch."""

    def __init__(self) -> None:
        self.offset = 0
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self.open: set[int] = set()

    def next(self, kind: str, producer: int, count: int, newer: bool) -> bytearray:
        self.epoch += newer
        timestamp = NOW_MS + (self.offset * 7919) % 1000
        values = [b"%d-%d" % (self.offset + index, self.epoch) for index in range(count)]
        if kind in ("commit", "abort"):
            producer += 10
            self.open.discard(producer)
            sent, count = marker(producer, commit=kind == "commit"), 1
        elif kind == "plain":
            sent = batch(*values, timestamp=timestamp)
        else:
            producer += 10 if kind == "transactional" else 0
            fields: dict[str, Any] = {"producer_id": producer, "producer_epoch": 0}
            sequence = self.sequences.get(producer, 0)
            self.sequences[producer] = sequence + count
            fields |= {"base_sequence": sequence, "transactional": kind == "transactional"}
            sent = batch(*values, timestamp=timestamp, **fields)
        patch(sent, 0, base_offset=self.offset, leader_epoch=self.epoch)
        self.offset += count
        return sent


def open_memory_log() -> tuple[LogManager, Log]:
    manager = open_manager("/data", disk=MemoryDisk(), config=CONFIG)
    return manager, manager.create(TP, TOPIC_ID)


def settle(manager: LogManager, log: Log) -> None:
    """What the disk does about a truncation."""
    while log.truncation_is_pending:
        for task in manager.maintenance.truncation_tasks():
            run_now(task)


def content(log: Log) -> bytes:
    return b"".join(
        segment._pool.disk.read(segment.path(".log"))[: segment.size] for segment in log.segments if segment.size
    )


def state(log: Log) -> dict[str, Any]:
    """All that a truncation must take back."""
    producers = log.producers
    return {
        "ends": (log.log_start_offset, log.log_end_offset),
        "bytes": content(log),
        "epochs": log.epochs.entries,
        "producers": {
            name: (entry.producer_epoch, entry.coordinator_epoch, entry.last_timestamp, entry.transaction_first_offset)
            # A snapshot keeps one timestamp of a producer, that of its last batch or marker.
            + (entry.batches[-1][:3] if entry.batches else ())
            for name, entry in producers.entries.items()
        },
        "open": producers.first_undecided_offset,
        "unstable": producers.first_unstable_offset,
        "aborted": [tuple(one) for one in log.aborted_transactions(0, log.log_end_offset)],
        "timestamps": [
            log.offset_for_timestamp(NOW_MS + step, up_to_offset=log.log_end_offset) for step in range(0, 1000, 97)
        ],
        "latest": log.max_timestamp_offset(up_to_offset=log.log_end_offset),
    }


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "by a task"])
@given(before=SENT, after=SENT, data=st.data())
@settings(max_examples=examples(500), deadline=None)
def test_a_cut_log_is_as_if_the_rest_had_never_been(
    at_once: bool, before: list[Sent], after: list[Sent], data: st.DataObject
) -> None:
    """Whether the producers' state is rebuilt during the truncation or by the task that makes it durable."""
    original = truncation.REBUILT_AT_ONCE_MAX
    truncation.REBUILT_AT_ONCE_MAX = original if at_once else -1
    try:
        _cut_and_compare(before, after, data)
    finally:
        truncation.REBUILT_AT_ONCE_MAX = original


def _cut_and_compare(before: list[Sent], after: list[Sent], data: st.DataObject) -> None:
    sender = Sender()
    sent: list[tuple[int, bytes]] = []
    manager, log = open_memory_log()
    for one in before:
        offset, made = sender.offset, bytes(sender.next(*one))
        try:
            log.append_as_follower(bytearray(made), leader_epoch=sender.epoch)
        except KafkaError:
            sender.offset = offset  # No transaction is open there that could go on without being transactional.
            continue
        sent.append((offset, made))
    if not sent:
        return
    cut, _ = data.draw(st.sampled_from(sent))
    log.announce_truncation(cut)
    settle(manager, log)
    assert log.truncate_to(cut)
    settle(manager, log)
    other_manager, other = open_memory_log()
    for offset, made in sent:
        if offset < cut:
            other.append_as_follower(bytearray(made))
    for one_log in (log, other):
        one_log.update_high_watermark(cut)
    assert state(log) == state(other)
    following = Sender()
    following.offset, following.epoch, following.sequences = cut, sender.epoch, dict(sender.sequences)
    for one in after:
        offset, made = following.offset, bytes(following.next(*one))
        outcomes = []
        for one_log in (log, other):
            try:
                outcomes.append(one_log.append_as_follower(bytearray(made)).last_offset)
            except KafkaError as error:
                outcomes.append(error.code)
        assert outcomes[0] == outcomes[1]
        if not isinstance(outcomes[0], int) or outcomes[0] < offset:
            following.offset = offset
    assert state(log) == state(other)
    for one_manager in (manager, other_manager):
        one_manager.abandon()
