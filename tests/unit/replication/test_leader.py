"""The leader of one partition: when the high watermark moves."""

import pytest
from tests.unit.replication.harness import LAG_MS, Led

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import BrokerEpoch, BrokerId, LeaderEpoch, Offset
from tidelog.replication.events import (
    Flushed,
    FlushPolicyChanged,
    FlushWanted,
    HighWatermarkAdvanced,
    LagCheckDue,
    LiveBrokersChanged,
    MinIsrChanged,
    ProposalRefused,
)

FLUSH = FlushWanted(LeaderEpoch(3))


def to(offset: int) -> list[HighWatermarkAdvanced]:
    return [HighWatermarkAdvanced(Offset(offset))]


# The leader alone.


def test_a_sole_in_sync_replica_has_all_its_log_committed() -> None:
    """At the election and after each append the high watermark is the log end."""
    led = Led(log_end=5, high_watermark=2)
    assert led.begin() == to(5)
    assert led.append(7) == to(7)
    assert led.high_watermark == 7


def test_with_flush_messages_1_only_what_is_flushed_counts() -> None:
    """An append asks for a flush; when that is done the high watermark moves to where it reached."""
    led = Led(flush=True)
    assert led.append(2) == [FLUSH]
    assert led.append(3) == [], "One flush is under way."
    assert led.step(Flushed(Offset(2))) == [FLUSH, *to(2)]
    assert led.step(Flushed(Offset(3))) == to(3)
    assert led.leader.reported_log_end == 3


def test_the_flush_policy_changes_while_running() -> None:
    """When flush.messages ceases to be 1, what waited is committed; when it becomes 1, nothing is undone."""
    led = Led(flush=True)
    led.append(2)
    assert led.step(FlushPolicyChanged(False)) == to(2)
    led.append(4)
    led.step(Flushed(Offset(1)))
    assert led.step(FlushPolicyChanged(True)) == [FLUSH]
    assert led.high_watermark == 4


def test_a_checkpointed_high_watermark_is_cut_to_the_log_end() -> None:
    """After a power cut that took an unflushed tail, the high watermark does not point past the log."""
    led = Led((0, 1), log_end=3, high_watermark=5)
    assert led.begin() == []
    assert led.high_watermark == 3


def test_the_epoch_starts_at_the_log_end() -> None:
    """A follower must have reached where the epoch starts before it may join the ISR."""
    assert Led(log_end=9).leader.start_offset == 9


# The high watermark with followers.


def test_the_high_watermark_is_the_smallest_log_end_in_sync() -> None:
    """Each fetch tells a log end; the slowest follower in the ISR decides."""
    led = Led((0, 1, 2))
    assert led.append(4) == []
    assert led.fetch(1, 4) == []
    assert led.fetch(2, 1) == to(1)
    assert led.fetch(2, 3) == to(3)
    assert led.fetch(2, 4) == to(4)


def test_a_follower_in_sync_that_was_not_heard_of_holds_the_high_watermark() -> None:
    """A new leader knows nothing of its followers: it commits nothing by its own log alone."""
    led = Led((0, 1, 2), log_end=5, high_watermark=2)
    assert led.begin() == []
    assert led.fetch(1, 5) == []
    assert led.fetch(2, 5) == to(5)


def test_the_high_watermark_never_goes_back() -> None:
    """A follower that lost its tail, or fetches from further back, takes nothing back that was committed."""
    led = Led((0, 1))
    led.append(4)
    assert led.fetch(1, 4) == to(4)
    assert led.fetch(1, 2) == []
    assert led.append(6) == []
    assert led.fetch(1, 4) == []
    assert led.high_watermark == 4


def test_a_follower_is_no_further_than_the_leaders_own_log_counts() -> None:
    """With flush.messages=1 followers may have flushed what the leader has not: the leader's flush is waited for."""
    led = Led((0, 1), flush=True)
    assert led.append(2) == [FLUSH]
    assert led.fetch(1, 2) == []
    assert led.step(Flushed(Offset(2))) == to(2)


def test_a_replica_outside_the_isr_that_lags_holds_nothing() -> None:
    """Who is not in sync and has not been for long is not waited for."""
    led = Led((0, 1), (0,))
    assert led.append(3) == to(3)
    assert led.fetch(1, 1) == []
    assert led.append(4) == to(4)


def test_a_replica_that_is_about_to_join_is_waited_for() -> None:
    """A caught-up follower outside the ISR holds the high watermark, or under load it would never pass it."""
    led = Led((0, 1), (0,))
    led.append(3)
    led.fetch(1, 3, epoch=-1)
    assert led.proposed is None, "Its broker epoch is unknown."
    assert led.append(5) == []
    assert led.fetch(1, 4, epoch=-1) == to(4)


def test_a_replica_that_is_not_live_is_not_waited_for() -> None:
    """Whoever may not join holds nothing."""
    led = Led((0, 1), (0,))
    led.append(3)
    led.dead = {1}
    led.fetch(1, 3)
    assert led.append(5) == to(5)


def test_waiting_for_a_replica_to_join_ends_when_it_lags() -> None:
    """One that had caught up and stopped fetching is waited for no longer than replica.lag.time.max.ms."""
    led = Led((0, 1), (0,))
    led.append(3)
    led.fetch(1, 3, epoch=-1)
    led.append(5)
    led.now_ms += LAG_MS
    assert led.append(6) == []
    led.now_ms += 1
    assert led.append(7) == to(7)


def test_waiting_for_a_replica_to_join_ends_when_nothing_else_happens() -> None:
    """It lags, it dies, or the controller will not have it: whoever waits for the high watermark is told by that."""
    for end in ("lag", "death", "refusal"):
        led = Led((0, 1), (0,))
        led.append(3)
        led.fetch(1, 3, epoch=5 if end == "refusal" else -1)
        assert led.append(5) == []
        if end == "lag":
            led.now_ms += LAG_MS + 1
            assert led.step(LagCheckDue()) == to(5)
        elif end == "death":
            led.dead = {1}
            assert led.step(LiveBrokersChanged()) == to(5)
        else:
            led.now_ms += LAG_MS + 1
            assert led.append(6) == [], "It is proposed, and counts."
            refused = ProposalRefused(led.leader.proposal, ErrorCode.INELIGIBLE_REPLICA)
            assert led.step(refused) == to(6)


def test_nothing_is_committed_below_the_effective_min_isr() -> None:
    """With fewer in sync than min.insync.replicas the high watermark stays (Kafka 3.7); with more it moves."""
    led = Led((0, 1, 2), (0,), min_isr=2)
    assert led.append(3) == []
    assert not led.leader.has_enough_replicas
    assert led.step(MinIsrChanged(1)) == to(3)
    led.step(MinIsrChanged(2))
    assert led.append(4) == []
    led.fetch(1, 4)
    assert led.commit() == to(4)
    assert led.leader.has_enough_replicas


def test_min_isr_is_capped_by_the_number_of_replicas() -> None:
    """A topic with one replica and min.insync.replicas=2 works nevertheless."""
    led = Led((0,), min_isr=2)
    assert led.leader.effective_min_isr == 1
    assert led.append(3) == to(3)


def test_a_proposed_member_counts_at_once_for_waiting_not_for_the_minimum() -> None:
    """Before the controller agreed, the newcomer is waited for; but min.insync.replicas counts who is committed."""
    led = Led((0, 1, 2), (0, 1), min_isr=2)
    led.append(3)
    led.fetch(2, 3)
    assert led.proposed == [0, 1, 2]
    led.fetch(1, 3)
    assert led.high_watermark == 3
    led.append(5)
    led.dead = {2}
    assert led.fetch(1, 5) == []
    assert led.fetch(2, 4) == to(4)
    few = Led((0, 1), (0,), min_isr=2)
    few.append(3)
    few.fetch(1, 3)
    assert few.proposed == [0, 1]
    assert few.high_watermark == 0


def test_a_member_that_is_proposed_to_leave_counts_until_it_has_left() -> None:
    """The controller may still elect it: nothing is committed without it before the shrunk ISR is committed."""
    led = Led((0, 1), log_end=0)
    led.append(3)
    led.now_ms += LAG_MS + 1
    led.step(LagCheckDue())
    assert led.proposed == [0]
    assert led.append(4) == []
    assert led.commit() == to(4)


def test_leaving_by_the_controllers_order_moves_the_high_watermark() -> None:
    """A broker died, the controller took it out of the ISR: what waited for it alone is committed."""
    led = Led((0, 1, 2))
    led.append(4)
    led.fetch(1, 4)
    led.fetch(2, 2)
    assert led.order((0, 1), 2) == to(4)


def test_who_left_by_order_is_not_waited_for_though_it_had_caught_up() -> None:
    """A follower that the controller took out holds nothing until it fetches again, live or not."""
    led = Led((0, 1))
    led.append(4)
    led.fetch(1, 4)
    led.order((0,), 2)
    assert led.append(6) == to(6)


def test_an_old_isr_is_ignored() -> None:
    """An ISR with a partition epoch that is not newer changes nothing."""
    led = Led((0, 1))
    led.append(7)
    assert led.order((0,), 1) == []
    assert led.leader.isr == (0, 1)
    assert led.order((0,), 2) == to(7)


# Who may fetch.


@pytest.mark.parametrize(
    ("knows_epoch", "code"), [(True, ErrorCode.UNKNOWN_LEADER_EPOCH), (False, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
)
@pytest.mark.parametrize("follower", [0, 9])
def test_a_stranger_is_no_follower(follower: int, knows_epoch: bool, code: ErrorCode) -> None:
    """A broker that is not assigned, or the leader's own id, is refused as Kafka does it."""
    led = Led((0, 1))
    with pytest.raises(KafkaError) as refused:
        led.leader.check_fetch(BrokerId(follower), BrokerEpoch(5), knows_epoch=knows_epoch)
    assert refused.value.code is code


def test_an_earlier_life_of_a_follower_is_refused() -> None:
    """A fetch under an older broker epoch than one seen changes nothing (KIP-903); a newer one takes over."""
    led = Led((0, 1))
    led.append(4)
    led.fetch(1, 2, epoch=6)
    with pytest.raises(KafkaError) as refused:
        led.fetch(1, 4, epoch=5)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert led.high_watermark == 2
    assert led.fetch(1, 3, epoch=7) == to(3)


def test_a_fetch_without_broker_epoch_is_heard_and_changes_no_epoch() -> None:
    """Older versions of Fetch carry none: their log end counts, and a later stale epoch is still refused."""
    led = Led((0, 1))
    led.append(4)
    led.fetch(1, 2, epoch=6)
    assert led.fetch(1, 3, epoch=-1) == to(3)
    with pytest.raises(KafkaError):
        led.fetch(1, 4, epoch=5)


# Log starts.


def test_the_low_watermark_is_the_smallest_first_offset_of_live_and_in_sync_followers() -> None:
    """DeleteRecords is done when every live follower has dropped the records too, and all that may lead next."""
    led = Led((0, 1, 2))
    led.append(9)
    led.fetch(1, 9, start=4)
    assert (led.start_moved, led.leader.low_watermark) == (True, -1)
    led.fetch(2, 9, start=2)
    assert (led.start_moved, led.leader.low_watermark) == (True, 2)
    led.fetch(2, 9, start=2)
    assert not led.start_moved
    led.dead = {2}
    assert led.leader.low_watermark == 2, "in sync, so it may be the next leader"
    led.order((0, 1), 2)
    assert led.leader.low_watermark == 4
    led.dead = {1, 2}
    led.order((0,), 3)
    assert led.leader.low_watermark is None


def test_replicas_that_are_assigned_later_are_followers_from_then_on() -> None:
    """A reassignment within the leader epoch: new replicas fetch, who stays keeps its progress, who goes is gone."""
    led = Led((0, 1, 2))
    led.append(4)
    led.fetch(1, 4)
    led.order((0, 1), 2, replicas=(0, 1, 3))
    assert led.high_watermark == 4
    assert led.fetch(3, 1) == []
    with pytest.raises(KafkaError):
        led.fetch(2, 4)
