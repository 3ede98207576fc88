"""The judge of chaos: every wrong that a log can do is found, and a right one is not accused."""

from __future__ import annotations

import pytest

from tests.chaos.ledger import Ledger, value_of
from tests.chaos.load import Awaited

SIZE = 100


def ledger_of(offsets: int) -> Ledger:
    """One partition, one producer: so many records sent, acknowledged and read, each at its own number."""
    ledger = Ledger(partitions=1, producers=2)
    for offset in range(offsets):
        number = ledger.send(0, 0)
        ledger.acknowledge(0, 0, number, offset)
        ledger.see("follower", 0, offset, value_of(0, 0, number, SIZE))
    return ledger


def test_a_faithful_log_is_not_accused() -> None:
    """Two producers in turn, and a delivery of unknown outcome that is in the log, or is not."""
    ledger = Ledger(partitions=2, producers=2)
    for offset in range(10):
        producer = offset % 2
        number = ledger.send(1, producer)
        if offset == 4:
            ledger.fail(1, producer, number, "timed out")
        else:
            ledger.acknowledge(1, producer, number, offset)
        for reader in ("follower", "returner", "judge"):
            ledger.see(reader, 1, offset, value_of(1, producer, number, SIZE))
    ledger.fail(0, 0, ledger.send(0, 0), "timed out")
    ledger.judge([0, 10])
    assert (dict(ledger.counts), ledger.findings) == ({}, [])
    assert (ledger.total_sent, ledger.total_acknowledged, ledger.total_unknown) == (11, 9, 2)


def test_an_acknowledged_record_that_is_gone_is_lost() -> None:
    """By its acknowledgement, and, where it was read, by that too."""
    ledger = ledger_of(5)
    ledger.judge([4])
    assert ledger.counts["lost"] == 2
    unread = ledger_of(5)
    unread.acknowledge(0, 1, unread.send(0, 1), 5)
    unread.judge([5])
    assert ledger.findings[1].startswith("lost: 0 @ 4")
    assert dict(unread.counts) == {"lost": 1}


def test_what_is_acknowledged_without_an_offset_must_be_somewhere() -> None:
    """It counts as acknowledged, and is lost only if no offset has it."""
    ledger = ledger_of(3)
    there, nowhere = ledger.send(0, 1), ledger.send(0, 1)
    ledger.see("follower", 0, 3, value_of(0, 1, there, SIZE))
    ledger.acknowledge(0, 1, there, None)
    ledger.acknowledge(0, 1, nowhere, None)
    ledger.judge([4])
    assert ledger.findings == ["lost: 0: 1/1 was acknowledged without an offset, and is nowhere"]
    assert (ledger.total_acknowledged, ledger.total_somewhere, ledger.total_unknown) == (5, 2, 0)


def test_another_value_at_an_offset_is_a_change() -> None:
    """Whether a reader or an acknowledgement says so; and whose record it was is lost."""
    ledger = ledger_of(3)
    ledger.see("returner", 0, 1, value_of(0, 0, 2, SIZE))
    ledger.acknowledge(0, 1, ledger.send(0, 1), 2)
    assert ledger.findings == [
        "changed: 0 @ 1 was 0/1; returner says 0/2",
        "changed: 0 @ 2 was 0/2; an acknowledgement says 1/0",
    ]
    ledger.judge([3])
    assert ledger.counts["lost"] == 1


@pytest.mark.parametrize(("numbers", "kind"), [([0, 1, 2, 1], "duplicated"), ([0, 2, 1], "reordered")])
def test_order_and_duplicates_are_told_apart(numbers: list[int], kind: str) -> None:
    """A record that is there twice, and one that comes too late."""
    ledger = Ledger(partitions=1, producers=1)
    for _ in range(3):
        ledger.fail(0, 0, ledger.send(0, 0), "timed out")
    for offset, number in enumerate(numbers):
        ledger.see("judge", 0, offset, value_of(0, 0, number, SIZE))
    ledger.judge([len(numbers)])
    for partition, first, again in ledger.repeated:
        ledger.duplicated(partition, first, again, "by a broker")
    assert dict(ledger.counts) == {kind: 1}
    assert ledger.repeated == ([(0, 1, 3)] if kind == "duplicated" else [])


@pytest.mark.parametrize("value", [b"", b"nobody sent this one", value_of(1, 0, 0, SIZE), value_of(0, 0, 9, SIZE)])
def test_foreign_values_are_found(value: bytes) -> None:
    """What nobody sent, what belongs to another partition, what has not been sent yet."""
    ledger = Ledger(partitions=2, producers=1)
    ledger.send(0, 0)
    ledger.see("follower", 0, 0, value)
    assert dict(ledger.counts) == {"foreign": 1}


def test_what_no_reader_was_given_is_found() -> None:
    """A hole in what was read."""
    ledger = ledger_of(2)
    ledger.see("follower", 0, 3, value_of(0, 0, ledger.send(0, 0), SIZE))
    ledger.judge([4])
    assert dict(ledger.counts) == {"moved": 1}


def test_findings_are_counted_beyond_those_that_are_kept() -> None:
    """A log that is wrong everywhere does not fill the memory."""
    ledger = Ledger(partitions=1, producers=1)
    for offset in range(100):
        ledger.see("follower", 0, offset, b"")
    assert (ledger.counts["foreign"], len(ledger.findings)) == (100, 20)


def test_only_what_was_sent_after_the_fault_counts_as_the_next_acknowledgement() -> None:
    """Answers to earlier records may still be on their way; and every partition has to have one."""
    ledger = Ledger(partitions=3, producers=1)
    earlier = ledger.send(0, 0)
    awaited = Awaited(ledger, [0, 2], now=iter([10.0, 10.2, 11.5, 12.0]).__next__)
    later, other = ledger.send(0, 0), ledger.send(2, 0)
    awaited.acknowledged(0, 0, earlier)
    awaited.acknowledged(1, 0, 0)
    assert (awaited.wait(0), awaited.missing) == (None, [0, 2])
    awaited.acknowledged(0, 0, later)
    assert (awaited.wait(0), awaited.missing) == (None, [2])
    awaited.acknowledged(2, 0, other)
    assert (awaited.wait(0), awaited.longest) == (2.0, 2.0)
    assert Awaited(ledger, []).wait(0) == 0.0
