"""Who is in sync: when a leader proposes to the controller that a replica leaves or joins, and what the answers do."""

import pytest
from tests.unit.replication.harness import LAG_MS, Led

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import BrokerId, Offset, PartitionEpoch
from tidelog.replication.events import (
    Flushed,
    FollowerLeft,
    HighWatermarkAdvanced,
    IsrProposed,
    LagCheckDue,
    ProposalCommitted,
    ProposalRefused,
)
from tidelog.replication.leader import REFUSED_REST_MS
from tidelog.replication.progress import FetchTimes


def check(led: Led) -> list[int] | None:
    """The lag check's proposal."""
    led.step(LagCheckDue())
    return led.proposed


# Shrinking.


def test_a_follower_leaves_when_it_has_not_caught_up_for_longer_than_the_lag() -> None:
    """At replica.lag.time.max.ms it is still in; a millisecond later it is proposed to leave."""
    led = Led((0, 1, 2))
    led.append(5)
    led.now_ms += 100
    led.fetch(1, 5)
    led.fetch(2, 5)
    led.append(6)
    led.now_ms += LAG_MS
    led.fetch(2, 6)
    assert check(led) is None
    led.now_ms += 1
    assert check(led) == [0, 2]


def test_a_follower_with_all_records_stays_however_long_it_is_silent() -> None:
    """Nothing was appended: who has the leader's log end has caught up."""
    led = Led((0, 1))
    led.append(5)
    led.fetch(1, 5)
    led.now_ms += 100 * LAG_MS
    assert check(led) is None


def test_a_follower_that_was_never_heard_of_leaves_a_lag_after_the_election() -> None:
    """A new leader gives who is in sync the whole time to come."""
    led = Led((0, 1), log_end=5)
    led.now_ms += LAG_MS
    assert check(led) is None
    led.now_ms += 1
    assert check(led) == [0]


def test_a_steady_follower_behind_a_steady_producer_stays() -> None:
    """It never has all, but at each fetch what the leader had at the fetch before: caught up as of that one."""
    led = Led((0, 1))
    led.append(10)
    for round_ in range(1, 60):
        led.fetch(1, 10 * round_)
        led.now_ms += 1_000
        led.append(10 * (round_ + 1))
        led.fetch(1, 10 * round_ + 5)
        led.append(10 * (round_ + 1) + 3)
    assert check(led) is None


def test_a_follower_that_falls_ever_further_behind_leaves() -> None:
    """It fetches all the time, and each time less than the leader had at the fetch before."""
    led = Led((0, 1))
    led.append(10)
    led.fetch(1, 10)
    for round_ in range(1, 40):
        led.append(10 + 10 * round_)
        led.now_ms += 1_000
        led.fetch(1, 10 + round_)
    assert check(led) == [0]


def test_caught_up_as_of_the_fetch_before_not_of_this_one() -> None:
    """Reaching where the leader ended at the fetch before counts for the time of that fetch."""
    led = Led((0, 1))
    led.append(10)
    led.now_ms += 1_000
    led.fetch(1, 0)
    led.append(20)
    led.now_ms += LAG_MS - 10
    led.fetch(1, 10)
    led.now_ms += 10
    assert check(led) is None
    led.now_ms += 1
    assert check(led) == [0], "The fetch before was a lag and a millisecond ago."


def test_the_fetch_counts_by_where_the_leader_ended_then() -> None:
    """One record short of it is not caught up."""
    led = Led((0, 1))
    led.append(10)
    led.now_ms += LAG_MS
    led.fetch(1, 9)
    led.now_ms += 1
    assert check(led) == [0]


def test_with_flush_messages_1_the_flushed_end_is_what_a_follower_can_reach() -> None:
    """Followers read what is flushed: one that has that has caught up."""
    led = Led((0, 1), flush=True)
    led.append(10)
    led.step(Flushed(Offset(4)))
    led.fetch(1, 4)
    led.now_ms += 2 * LAG_MS
    assert check(led) is None


def test_a_silent_session_counts_as_fetching() -> None:
    """An incremental session names only what changed: its requests are fetches of the partitions not named, too."""
    led = Led((0, 1))
    times = FetchTimes(led.now_ms)
    led.append(5)
    led.fetch(1, 5, times=times)
    led.now_ms += 10 * LAG_MS
    times.latest_ms = led.now_ms - 500
    led.append(6)
    assert check(led) is None
    led.now_ms += LAG_MS - 500
    assert check(led) is None
    led.now_ms += 1
    assert check(led) == [0]


def test_a_session_says_nothing_of_a_partition_that_it_dropped() -> None:
    """After that the follower was last heard of when it dropped the partition."""
    led = Led((0, 1))
    times = FetchTimes(led.now_ms)
    led.append(5)
    led.fetch(1, 5, times=times)
    led.step(FollowerLeft(BrokerId(1)))
    led.now_ms += 10 * LAG_MS
    times.latest_ms = led.now_ms
    led.append(6)
    assert check(led) == [0]


def test_all_laggards_leave_in_one_proposal() -> None:
    """Two that stopped at once go at once; the leader always stays."""
    led = Led((0, 1, 2), log_end=3)
    led.now_ms += LAG_MS + 1
    assert check(led) == [0]


# Growing.


def test_a_follower_joins_when_it_has_what_is_committed_and_what_the_epoch_began_with() -> None:
    """Invariant 8: its log end is at or past both the high watermark and the start of the leader's epoch."""
    led = Led((0, 1, 2), (0, 1), log_end=10, high_watermark=4)
    led.fetch(2, 4)
    assert led.proposed is None, "It has all that is known to be committed, but not what the epoch began with."
    led.fetch(2, 9)
    assert led.proposed is None
    led.fetch(2, 10)
    assert led.proposed == [0, 1, 2]


def test_the_start_of_the_epoch_is_not_enough() -> None:
    """What was committed since must be there too."""
    led = Led((0, 1), (0,), log_end=10)
    led.begin()
    led.append(12)
    led.fetch(1, 11)
    assert led.proposed is None
    led.fetch(1, 12)
    assert led.proposed == [0, 1]


def test_a_follower_may_join_before_it_has_the_log_end() -> None:
    """The high watermark is enough: under load the log end is always ahead."""
    led = Led((0, 1, 2), (0, 1))
    led.append(10)
    led.fetch(1, 6)
    led.fetch(2, 6)
    assert led.proposed == [0, 1, 2]


def test_a_follower_joins_once_its_log_begins_where_the_leaders_does() -> None:
    """DeleteRecords waits for followers that live. One that comes back still has what was told as deleted."""
    led = Led((0, 1, 2), (0, 1), log_end=10, high_watermark=10)
    led.fetch(2, 10, start=0, leader_start=3)
    assert led.proposed is None
    led.fetch(2, 10, start=3, leader_start=3)
    assert led.proposed == [0, 1, 2]


def test_a_proposal_carries_the_epochs_by_which_the_followers_are_known() -> None:
    """KIP-903: who restarted since is refused by the controller; -1 where nothing is known, and for the leader."""
    led = Led((0, 1, 2, 3), (0, 1, 3))
    led.fetch(1, 0, epoch=71)
    effects = led.fetch(2, 0, epoch=72)
    (proposal,) = effects
    assert isinstance(proposal, IsrProposed)
    assert [(member.broker_id, member.broker_epoch) for member in proposal.isr] == [(0, -1), (1, 71), (3, -1), (2, 72)]
    assert (proposal.leader_epoch, proposal.partition_epoch) == (3, 1)


@pytest.mark.parametrize("reason", ["dead", "unknown epoch"])
def test_who_is_not_eligible_is_not_proposed(reason: str) -> None:
    """A broker that is not live by the metadata cache, or does not say its epoch."""
    led = Led((0, 1), (0,))
    led.dead = {1} if reason == "dead" else set()
    epoch = -1 if reason == "unknown epoch" else 5
    led.fetch(1, 0, epoch=epoch)
    assert led.proposed is None
    led.dead = set()
    led.fetch(1, 0, epoch=5)
    assert led.proposed == [0, 1]


# One at a time, and the answers.


def test_one_proposal_is_under_way_at_a_time() -> None:
    """Neither a second newcomer nor a laggard is proposed before the answer."""
    led = Led((0, 1, 2), (0,))
    led.fetch(1, 0)
    assert led.fetch(2, 0) == []
    assert led.fetch(1, 0) == []
    led.append(1)
    led.now_ms += 2 * LAG_MS
    assert led.step(LagCheckDue()) == []
    led.commit()
    assert led.step(LagCheckDue()) != [], "Now the silent one may be proposed to leave."
    assert led.step(LagCheckDue()) == []
    led.commit([0, 1])
    assert (led.proposed, led.leader.isr, led.leader.partition_epoch) == (None, (0, 1), 3)
    led.fetch(2, 1)
    assert led.proposed == [0, 1, 2]
    assert led.leader.proposal.partition_epoch == 3


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_refusal_leaves_the_committed_state(code: ErrorCode) -> None:
    """The proposed member counts no more; it is proposed again, after a rest."""
    led = Led((0, 1), (0,))
    led.fetch(1, 0)
    led.step(ProposalRefused(led.leader.proposal, code))
    assert (led.proposed, led.leader.maximal_isr) == (None, (0,))
    led.now_ms += REFUSED_REST_MS - 1
    led.fetch(1, 0)
    assert led.proposed is None
    led.now_ms += 1
    led.fetch(1, 0)
    assert led.proposed == [0, 1]


def test_a_refused_member_holds_the_high_watermark_no_longer() -> None:
    """What waited for a member that was proposed is committed when the proposal is refused, without another fetch."""
    led = Led((0, 1, 2), (0, 1))
    led.append(3)
    led.fetch(1, 3)
    led.fetch(2, 3)
    assert led.proposed == [0, 1, 2]
    led.append(4)
    assert led.fetch(1, 4) == []
    led.dead = {2}
    refused = ProposalRefused(led.leader.proposal, ErrorCode.INELIGIBLE_REPLICA)
    assert led.step(refused) == [HighWatermarkAdvanced(Offset(4))]


def test_a_dead_follower_holds_the_high_watermark_until_the_next_check_at_most() -> None:
    """One that had caught up outside of the ISR counts while it lives; when it is gone no fetch of its will say so."""
    led = Led((0, 1, 2), (0, 1))
    led.append(3)
    led.fetch(2, 3)
    led.commit([0, 1])
    led.fetch(1, 3)
    led.append(4)
    assert led.fetch(1, 4) == []
    led.dead = {2}
    assert led.step(LagCheckDue()) == [HighWatermarkAdvanced(Offset(4))]


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
)
def test_a_refusal_for_being_outdated_keeps_the_maximal_isr(code: ErrorCode) -> None:
    """The state may be another one already: until LeaderAndIsr tells of it, the proposed member counts."""
    led = Led((0, 1), (0,))
    led.fetch(1, 0)
    led.step(ProposalRefused(led.leader.proposal, code))
    led.dead = {1}
    assert led.append(2) == []
    assert led.order((0,), 2) == [HighWatermarkAdvanced(Offset(2))]


def test_the_answer_counts_not_what_was_proposed() -> None:
    """The controller's state may have fewer members than asked for."""
    led = Led((0, 1, 2), (0, 1))
    led.append(3)
    led.fetch(2, 3)
    led.commit([0, 1])
    assert led.leader.isr == (0, 1)


def test_an_answer_with_the_same_partition_epoch_settles_the_proposal() -> None:
    """The state was as wished already: the controller answers with it, unchanged."""
    led = Led((0, 1), (0,))
    led.fetch(1, 0)
    led.commit([0, 1], partition_epoch=1)
    assert (led.proposed, led.leader.isr) == (None, (0, 1))


def test_an_answer_with_an_older_partition_epoch_changes_nothing() -> None:
    """It is of a state that was replaced long ago."""
    led = Led((0, 1), (0,))
    led.order((0,), 5)
    led.fetch(1, 0)
    led.commit([0], partition_epoch=4)
    assert (led.proposed, led.leader.partition_epoch) == ([0, 1], 5)


def test_leader_and_isr_supersedes_a_proposal_and_its_late_answer() -> None:
    """A newer state by LeaderAndIsr holds; what comes later of the proposal before it changes nothing."""
    led = Led((0, 1, 2), (0, 1))
    led.fetch(2, 0)
    late = led.leader.proposal
    led.order((0,), 2)
    assert (led.proposed, led.leader.isr) == (None, (0,))
    led.step(ProposalCommitted(late, (BrokerId(0), BrokerId(1), BrokerId(2)), PartitionEpoch(9)))
    assert (led.leader.isr, led.leader.partition_epoch) == ((0,), 2)
    led.fetch(1, 0)
    led.step(ProposalRefused(late, ErrorCode.INELIGIBLE_REPLICA))
    assert led.proposed == [0, 1]


def test_leader_and_isr_of_the_same_partition_epoch_leaves_a_proposal_under_way() -> None:
    """A new controller repeats the state that is known: the proposal rests on it still."""
    led = Led((0, 1), (0,))
    led.fetch(1, 0)
    led.order((0,), 1)
    assert led.proposed == [0, 1]


def test_replicas_that_are_being_added_are_not_counted_on() -> None:
    """One replica with min.insync.replicas=2 goes on alone while two more are being made, and needs them afterwards."""
    led = Led((0, 1, 2), (0,), min_isr=2, adding=(1, 2))
    assert led.leader.has_enough_replicas
    led.append(5)
    assert led.high_watermark == 5
    led.order((0,), 2, (0, 1, 2))
    assert not led.leader.has_enough_replicas
    led.append(6)
    assert led.high_watermark == 5


def test_replicas_that_were_there_before_are_counted_on_while_others_are_added() -> None:
    """Three replicas, two of them lagging, and three more to come: two have to be in sync, whichever they are."""
    led = Led((3, 4, 5, 0, 1, 2), (0,), min_isr=2, adding=(3, 4, 5))
    assert not led.leader.has_enough_replicas
    led.append(5)
    assert led.high_watermark == 0
    led.fetch(3, 5)
    assert led.proposed == [0, 3]
    led.commit()
    assert led.leader.has_enough_replicas
    assert led.high_watermark == 5


def test_a_replica_that_is_being_added_joins_when_it_has_what_is_committed() -> None:
    """It is a follower like any other, from the order on that names it; before, it is told to try again."""
    led = Led((0, 1), log_end=4, high_watermark=4)
    with pytest.raises(KafkaError) as refused:
        led.fetch(2, 0)
    assert refused.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH
    led.order((0, 1), 2, (2, 1, 0), (2,))
    led.fetch(2, 0)
    assert led.proposed is None
    led.fetch(2, 4)
    assert led.proposed == [0, 1, 2]
