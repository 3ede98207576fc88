"""The leader of one partition: when the high watermark moves."""

from tidelog.model.identifiers import BrokerId, LeaderEpoch, Offset, PartitionEpoch
from tidelog.replication.events import (
    Appended,
    Flushed,
    FlushPolicyChanged,
    FlushWanted,
    HighWatermarkAdvanced,
    IsrCommitted,
)
from tidelog.replication.leader import PartitionLeader

FLUSH = FlushWanted(LeaderEpoch(3))


def leader(
    isr: tuple[int, ...] = (0,), *, log_end: int = 0, flushed_end: int = 0, high_watermark: int = 0, flush: bool = False
) -> PartitionLeader:
    return PartitionLeader(
        broker_id=BrokerId(0),
        leader_epoch=LeaderEpoch(3),
        partition_epoch=PartitionEpoch(1),
        isr=tuple(map(BrokerId, isr)),
        log_end=Offset(log_end),
        flushed_end=Offset(flushed_end),
        high_watermark=Offset(high_watermark),
        flush_before_acknowledge=flush,
    )


def test_a_sole_in_sync_replica_has_all_its_log_committed() -> None:
    """At the election and after each append the high watermark is the log end."""
    sole = leader(log_end=5, high_watermark=2)
    assert sole.begin() == [HighWatermarkAdvanced(Offset(5))]
    assert sole.step(0, Appended(Offset(7))) == [HighWatermarkAdvanced(Offset(7))]
    assert sole.high_watermark == 7


def test_with_others_in_sync_an_append_commits_nothing() -> None:
    """As long as another replica is in sync and has not been heard of, the high watermark stays."""
    led = leader((0, 1), log_end=5, high_watermark=2)
    assert led.begin() == []
    assert led.step(0, Appended(Offset(7))) == []
    assert led.step(0, IsrCommitted((BrokerId(0),), PartitionEpoch(2))) == [HighWatermarkAdvanced(Offset(7))]


def test_an_old_isr_is_ignored() -> None:
    """An ISR with a partition epoch that is not newer changes nothing."""
    led = leader((0, 1))
    led.step(0, Appended(Offset(7)))
    assert led.step(0, IsrCommitted((BrokerId(0),), PartitionEpoch(1))) == []
    assert led.isr == (0, 1)


def test_with_flush_messages_1_only_what_is_flushed_counts() -> None:
    """An append asks for a flush; when that is done the high watermark moves to where it reached."""
    led = leader(flush=True)
    assert led.step(0, Appended(Offset(2))) == [FLUSH]
    assert led.step(0, Appended(Offset(3))) == [], "One flush is under way."
    assert led.step(0, Flushed(Offset(2))) == [FLUSH, HighWatermarkAdvanced(Offset(2))]
    assert led.step(0, Flushed(Offset(3))) == [HighWatermarkAdvanced(Offset(3))]
    assert led.reported_log_end == 3


def test_the_flush_policy_changes_while_running() -> None:
    """When flush.messages ceases to be 1, what waited is committed; when it becomes 1, nothing is undone."""
    led = leader(flush=True)
    led.step(0, Appended(Offset(2)))
    assert led.step(0, FlushPolicyChanged(False)) == [HighWatermarkAdvanced(Offset(2))]
    led.step(0, Appended(Offset(4)))
    led.step(0, Flushed(Offset(1)))
    assert led.step(0, FlushPolicyChanged(True)) == [FLUSH]
    assert led.high_watermark == 4


def test_the_high_watermark_never_goes_back() -> None:
    """A log end below it, as after a restart with an unflushed tail, leaves it where it is."""
    led = leader(log_end=3, high_watermark=5)
    assert led.begin() == []
    assert led.high_watermark == 5


def test_the_epoch_starts_at_the_log_end() -> None:
    """A follower must have reached where the epoch starts before it may join the ISR."""
    assert leader(log_end=9).start_offset == 9
