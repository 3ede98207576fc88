"""After a power cut of all brokers: the member of the ISR that has kept most leads, and the others are waited for."""

from __future__ import annotations

import pytest
from tests.unit.controller.harness import SESSION, broker
from tests.unit.controller.test_damaged_replicas import LATER, T0, Marked, damage

from tidelog.controller.elections import UNCLEAN_SETTING
from tidelog.controller.events import (
    ConfigsChanged,
    DeletionsRequested,
    LeaderBalanceDue,
    LogEndsDue,
    LogEndsLearned,
    LogEndsWanted,
    MembersDue,
    ReplicasStopped,
    SessionsProven,
)
from tidelog.controller.requests import (
    AlterReassignments,
    ControlledShutdown,
    ElectionType,
    ElectLeaders,
    ReassignPartition,
)
from tidelog.controller.settings import ControllerSettings
from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.metadata.operations import Create, Delete
from tidelog.metadata.replica_marks import booted_path
from tidelog.metadata.znodes import delete_topic_path
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import BrokerId, LeaderEpoch, Offset

WAIT_MS = ControllerSettings().isr_return_wait_ms


class Booted(Marked):
    """The same, whose brokers say that their machines were booted anew."""

    def booted(self, *broker_ids: int) -> None:
        self.unclean(*broker_ids)
        for id in broker_ids:
            self.tree.transact(SESSION, [Create(booted_path(id))], 0)

    def log_end(self, broker_id: int, end: int, epoch: int = 0) -> None:
        """A broker's answer."""
        self.run(LogEndsLearned(BrokerId(broker_id), {T0: (LeaderEpoch(epoch), Offset(end))}))

    def due(self) -> None:
        """The wait for members is over."""
        [due] = self.timers()
        self.now_ms = due.due_ms
        self.run(due)

    def timers(self) -> list[MembersDue]:
        return [timer.event for timer in self.last.timers if isinstance(timer.event, MembersDue)]

    @property
    def asked(self) -> set[int]:
        return set(self.sent("ListOffsetsRequest"))


def test_the_member_that_has_kept_most_leads_though_it_is_back_last() -> None:
    """The first one back waits; the others that have less leave the ISR until they have fetched it."""
    cluster = Booted([0, 1, 2])
    cluster.booted(0, 1, 2)
    cluster.restart_all(0)
    assert cluster.state == (-1, (0, 1, 2))
    assert cluster.asked == {0}
    assert [due.due_ms for due in cluster.timers()] == [WAIT_MS]
    cluster.log_end(0, 70)
    cluster.come(0, 1)
    assert cluster.state == (-1, (0, 1, 2))
    cluster.log_end(1, 95)
    cluster.come(0, 1, 2)
    assert cluster.state == (-1, (0, 1, 2))
    cluster.log_end(2, 70)
    assert cluster.state == (1, (1,))


def test_the_last_epoch_counts_before_the_length() -> None:
    """What a later leader had comes after all that was committed before."""
    cluster = Booted([0, 1])
    cluster.booted(0, 1)
    cluster.live(broker(0, 1), broker(2, 3))
    cluster.live(broker(0, 1), broker(1, 2), broker(2, 3))
    cluster.propose(0, 1)
    assert cluster.partition("t").leader_epoch == 1
    cluster.restart_all(0, 1)
    cluster.log_end(0, 100, epoch=0)
    cluster.log_end(1, 80, epoch=1)
    assert cluster.state == (1, (1,))


def test_the_preferred_replica_is_not_made_the_leader_meanwhile() -> None:
    """Neither by hand nor by the balance, which comes by five seconds after a controller began."""
    cluster = Booted([0, 1])
    cluster.booted(0)
    cluster.restart_all(0)
    cluster.run(LeaderBalanceDue())
    assert cluster.state == (-1, (0, 1))
    [outcome] = cluster.ask(ElectLeaders(ElectionType.PREFERRED, [T0]))
    assert outcome.error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert cluster.state == (-1, (0, 1))


@pytest.mark.parametrize("target", [(1, 0, 2), (1, 0)], ids=["done at once", "fewer"])
def test_a_reassignment_does_not_end_the_wait(target: tuple[int, ...]) -> None:
    """Its targets are all in the ISR, but one that is away may have kept more. It is done once there is a leader."""
    cluster = Booted([0, 1, 2])
    cluster.booted(0, 1, 2)
    cluster.restart_all(0, 1)
    cluster.log_end(0, 70)
    cluster.log_end(1, 80)
    wish = ReassignPartition(T0, tuple(map(BrokerId, target)))
    [outcome] = cluster.ask(AlterReassignments([wish]))
    assert outcome.error is ErrorCode.NONE
    assert cluster.state == (-1, (0, 1, 2))
    cluster.come(0, 1, 2)
    cluster.log_end(2, 95)
    assert cluster.state == (2, (2,))
    cluster.propose(2, 0, 1)
    assert cluster.partition("t").replicas == target


def test_a_reassignment_does_not_end_a_doubt() -> None:
    """Whether sessions are of dead brokers is not known yet: no other leader is made meanwhile."""
    cluster = Booted([0, 1, 2])
    cluster.booted(1)
    cluster.live(broker(0, 1), broker(1, 2), broker(2, 3))
    cluster.term(2)
    before = cluster.state
    cluster.ask(AlterReassignments([ReassignPartition(T0, (BrokerId(2), BrokerId(1)))]))
    assert cluster.state == before


def test_a_reassignment_that_waits_for_the_end_of_a_doubt_ends_with_it() -> None:
    """Its target is in the ISR, which stays as it is: nothing else would end it."""
    cluster = Booted([1, 2])
    cluster.booted(0)
    cluster.brokers = {BrokerId(0): broker(0, LATER), BrokerId(1): broker(1, 2), BrokerId(2): broker(2, 3)}
    cluster.term(2)
    cluster.ask(AlterReassignments([ReassignPartition(T0, (BrokerId(2),))]))
    assert cluster.partition("t").removing == (1,)
    cluster.log_end(1, 95)
    assert not cluster.partition("t").is_reassigning
    assert cluster.state == (2, (2,))


def test_a_member_that_shuts_down_meanwhile_is_still_compared() -> None:
    """Its broker is started once more during the wait: what its log has kept counts as before."""
    cluster = Booted([0, 1, 2])
    cluster.booted(0, 1, 2)
    cluster.restart_all(0)
    cluster.log_end(0, 95)
    assert cluster.ask(ControlledShutdown(BrokerId(0), cluster.brokers[BrokerId(0)].epoch)) == []
    assert cluster.state == (-1, (0, 1, 2))
    cluster.live()
    cluster.come(0, 1, 2)
    for id, end in ((0, 95), (1, 70), (2, 80)):
        cluster.log_end(id, end)
    assert cluster.state == (0, (0,))


def test_members_with_equal_logs_stay_in_sync() -> None:
    """Nothing was lost, or all have lost the same: the first of the assignment leads."""
    cluster = Booted([2, 0, 1])
    cluster.booted(0, 1, 2)
    cluster.restart_all(0, 1, 2)
    for id in (0, 1, 2):
        cluster.log_end(id, 50)
    assert cluster.state == (2, (2, 0, 1))


def test_the_wait_ends() -> None:
    """Those that are there by then are compared; the one that is away is out of the ISR."""
    cluster = Booted([0, 1, 2])
    cluster.booted(0, 1, 2)
    cluster.restart_all(0, 1)
    cluster.log_end(0, 70)
    cluster.log_end(1, 80)
    assert cluster.state == (-1, (0, 1, 2))
    cluster.now_ms = WAIT_MS
    cluster.run(MembersDue(WAIT_MS))
    assert cluster.state == (1, (1,))
    cluster.come(0, 1, 2)
    assert cluster.state == (1, (1,))


def test_the_wait_ends_though_a_clock_lags_behind_its_timer() -> None:
    cluster = Booted([0, 1])
    cluster.booted(0, 1)
    cluster.restart_all(0)
    cluster.now_ms = WAIT_MS - 1
    cluster.run(MembersDue(WAIT_MS))
    assert cluster.state == (0, (0,))


def test_a_broker_that_cannot_say_yet_is_asked_again() -> None:
    """It lacked descriptors when its replica was to be made, and may have kept most."""
    cluster = Booted([0, 1])
    cluster.booted(0, 1)
    cluster.restart_all(0, 1)
    cluster.log_end(0, 70)
    cluster.log_end(1, -1, epoch=-1)
    assert cluster.state == (-1, (0, 1))
    [again] = [timer.event for timer in cluster.last.timers]
    assert again == LogEndsWanted(BrokerId(1))
    cluster.run(again)
    assert cluster.asked == {1}
    cluster.log_end(1, 95)
    assert cluster.state == (1, (1,))


def test_a_broker_that_does_not_say_is_not_waited_for() -> None:
    """It is back and does not answer: what is known decides when the wait is over, and not by another one's end."""
    cluster = Booted([0, 1])
    cluster.booted(0, 1)
    cluster.restart_all(0, 1)
    cluster.log_end(1, 80)
    assert cluster.state == (-1, (0, 1))
    cluster.run(LogEndsDue(WAIT_MS - 1))
    assert cluster.state == (-1, (0, 1))
    cluster.run(LogEndsDue(WAIT_MS))
    assert cluster.state == (1, (1,))


def test_a_member_that_was_killed_only_leads_at_once() -> None:
    """Its page cache is whole, and so is its log: it comes before the first of the assignment."""
    cluster = Booted([0, 1, 2])
    cluster.booted(0)
    cluster.unclean(1)
    cluster.restart_all(0, 1)
    assert cluster.state == (1, (1,))


def test_a_member_that_was_killed_only_ends_the_wait() -> None:
    cluster = Booted([0, 1, 2])
    cluster.booted(0)
    cluster.unclean(1)
    cluster.restart_all(0)
    assert cluster.state == (-1, (0, 1, 2))
    cluster.come(0, 1)
    assert cluster.state == (1, (1,))


def test_kills_without_a_boot_wait_for_nothing() -> None:
    cluster = Marked([0, 1, 2])
    cluster.unclean(0, 1, 2)
    cluster.restart_all(0)
    assert cluster.state == (0, (0,))


def test_an_only_replica_leads_at_once() -> None:
    cluster = Booted([0])
    cluster.booted(0)
    cluster.restart_all(0)
    assert cluster.state == (0, (0,))


def test_an_only_member_of_an_isr_leads_at_once_in_a_new_epoch() -> None:
    cluster = Booted([0, 1, 2])
    assert cluster.propose(0) is ErrorCode.NONE
    epoch = cluster.partition("t").leader_epoch
    cluster.booted(0)
    cluster.restart_all(0)
    assert cluster.state == (0, (0,))
    assert cluster.partition("t").leader_epoch > epoch


def test_a_member_that_never_stopped_leads_on() -> None:
    """One machine was booted anew: it leaves the ISR, as any broker that was away."""
    cluster = Booted([0, 1, 2])
    cluster.booted(0)
    cluster.tell()
    cluster.live(broker(0, LATER), broker(1, 2), broker(2, 3))
    assert cluster.state == (1, (1, 2))


def test_a_controller_that_lives_on_waits_as_well() -> None:
    """Both members of the ISR lost their power, the controller's machine did not."""
    cluster = Booted([0, 1])
    cluster.live(broker(2, 3))
    assert cluster.state == (-1, (0, 1))
    cluster.booted(0)
    cluster.come(0, 2)
    assert cluster.partition("t").leader == -1
    cluster.booted(1)
    cluster.come(0, 1, 2)
    cluster.log_end(0, 10)
    cluster.log_end(1, 20)
    assert cluster.state == (1, (1,))


def test_another_controller_waits_anew() -> None:
    """What the first one knew is gone with it; the marks are in the store."""
    cluster = Booted([0, 1])
    cluster.booted(0, 1)
    cluster.restart_all(0)
    cluster.term(3)
    assert cluster.state == (-1, (0, 1))
    cluster.due()
    assert cluster.state == (0, (0,))


def test_the_wait_begins_anew_with_the_next_one_back() -> None:
    """The only one that was there has gone again meanwhile."""
    cluster = Booted([0, 1])
    cluster.booted(0, 1)
    cluster.restart_all(0)
    cluster.live()
    cluster.now_ms = WAIT_MS
    cluster.run(MembersDue(WAIT_MS))
    cluster.come(1)
    assert cluster.state == (-1, (0, 1))
    assert [due.due_ms for due in cluster.timers()] == [2 * WAIT_MS]


def test_a_topic_of_the_same_name_waits_anew() -> None:
    """The first one was deleted while its election had waited long enough, by the same controller."""
    cluster = Booted([0, 1])
    cluster.live(broker(2, 3))
    cluster.booted(0)
    cluster.come(0, 2)
    cluster.tree.transact(SESSION, [Create(delete_topic_path("t"))], 0)
    cluster.run(DeletionsRequested(["t"]))
    cluster.now_ms = WAIT_MS
    cluster.run(MembersDue(WAIT_MS))
    cluster.come(0, 1, 2)
    for id in (0, 1):
        cluster.run(ReplicasStopped(BrokerId(id), {T0: ErrorCode.NONE}))
    assert "t" not in cluster.controller.image.topics
    cluster.make("t", [0, 1])
    cluster.live(broker(2, 3))
    cluster.live(broker(0, 2 * LATER), broker(2, 3))
    assert cluster.state == (-1, (0, 1))
    assert [due.due_ms for due in cluster.timers()] == [2 * WAIT_MS]


def test_ends_of_logs_of_a_deleted_topic_say_nothing_of_its_namesakes() -> None:
    """Its replicas had said them, since no member of its ISR was left; they would decide an unclean election."""
    cluster = Booted([0, 1, 2])
    assert cluster.propose(0) is ErrorCode.NONE
    cluster.live(broker(1, 2), broker(2, 3))
    cluster.log_end(1, 10)
    cluster.log_end(2, 20)
    cluster.tree.transact(SESSION, [Create(delete_topic_path("t"))], 0)
    cluster.run(DeletionsRequested(["t"]))
    cluster.live(broker(0, LATER), broker(1, 2), broker(2, 3))
    for id in (0, 1, 2):
        cluster.run(ReplicasStopped(BrokerId(id), {T0: ErrorCode.NONE}))
    cluster.make("t", [0, 1, 2])
    assert cluster.propose(0) is ErrorCode.NONE
    cluster.live(broker(1, 2), broker(2, 3))
    cluster.log_end(1, 7)
    assert cluster.elect() is ErrorCode.NONE
    assert cluster.state == (1, (1,))


def test_nothing_waits_where_the_setting_is_0() -> None:
    cluster = Booted([0, 1])
    cluster.settings = ControllerSettings(isr_return_wait_ms=0)
    cluster.booted(0, 1)
    cluster.restart_all(0)
    assert cluster.state == (0, (0,))


def test_where_unclean_elections_are_allowed_none_waits_for_members() -> None:
    """Availability comes first there; logs are compared all the same."""
    cluster = Booted([0, 1, 2])
    cluster.booted(0, 1, 2)
    cluster.tell()
    cluster.live()
    cluster.run(ConfigsChanged(ConfigResource(ConfigResourceType.TOPIC, "t"), {UNCLEAN_SETTING: "true"}))
    cluster.come(0, 1)
    assert cluster.timers() == []
    cluster.log_end(0, 70)
    cluster.log_end(1, 80)
    assert cluster.state == (1, (1,))


def test_an_unclean_election_by_hand_ends_the_wait() -> None:
    cluster = Booted([0, 1, 2])
    cluster.booted(0, 1, 2)
    cluster.restart_all(0, 1)
    cluster.log_end(0, 70)
    cluster.log_end(1, 80)
    assert cluster.elect() is ErrorCode.NONE
    assert cluster.state == (1, (1,))


def test_one_that_is_known_to_have_lost_its_tail_may_still_have_most() -> None:
    """The other one's high watermark was checkpointed earlier: it does not know what it has lost."""
    cluster = Booted([0, 1])
    cluster.booted(0, 1)
    cluster.mark(0, damage(85, 90))
    cluster.restart_all(0)
    assert cluster.state == (-1, (0, 1))
    cluster.come(0, 1)
    cluster.log_end(1, 70)
    cluster.log_end(0, 85)
    assert cluster.state == (0, (0,))
    assert "0-t-0" not in cluster.marks


@pytest.mark.parametrize("has_hole", [False, True])
def test_one_that_is_known_to_have_lost_records_does_not_lead_alone(has_hole: bool) -> None:
    """Another member may have all: it is waited for without an end, as ever."""
    cluster = Booted([0, 1])
    cluster.booted(0, 1)
    cluster.mark(0, damage(85, 90, has_hole=has_hole))
    cluster.restart_all(0)
    cluster.now_ms = WAIT_MS
    cluster.run(MembersDue(WAIT_MS))
    assert cluster.partition("t").leader == -1
    assert BrokerId(1) in cluster.partition("t").isr
    cluster.come(0, 1)
    cluster.log_end(0, 85)
    cluster.log_end(1, 90)
    assert cluster.partition("t").leader == 1


def test_a_log_with_a_hole_is_not_compared() -> None:
    cluster = Booted([0, 1])
    cluster.booted(0, 1)
    cluster.mark(0, damage(85, 90, has_hole=True))
    cluster.restart_all(0, 1)
    assert cluster.state == (1, (1,))


def test_after_the_mark_is_gone_nothing_waits() -> None:
    """The broker takes it back when no partition waits for it; a kill later is a kill."""
    cluster = Booted([0, 1])
    cluster.booted(0, 1)
    cluster.restart_all(0, 1)
    cluster.log_end(0, 10)
    cluster.log_end(1, 10)
    assert cluster.state == (0, (0, 1))
    cluster.tree.transact(SESSION, [Delete(booted_path(0)), Delete(booted_path(1))], 0)
    cluster.tell()
    assert cluster.controller.state.marks.booted_anew == {}
    cluster.live(broker(2, 3))
    cluster.live(broker(0, 2 * LATER), broker(2, 3))
    assert cluster.state == (0, (0,))


class TestSessionsThatOutliveTheirBrokers:
    """The first machine back has booted faster than the others' sessions end."""

    @pytest.fixture
    def cluster(self) -> Booted:
        """Broker 1 leads, and 0 is back; sessions of 1 and 2 are as they were."""
        cluster = Booted([1, 0, 2])
        cluster.booted(0)
        cluster.brokers = {BrokerId(0): broker(0, LATER), BrokerId(1): broker(1, 2), BrokerId(2): broker(2, 3)}
        cluster.term(2)
        return cluster

    def test_a_leader_that_lives_says_so(self, cluster: Booted) -> None:
        """It leads on in its epoch, and the one that was away leaves the ISR."""
        epoch = cluster.partition("t").leader_epoch
        assert cluster.asked == {1, 2}
        assert cluster.state == (1, (1, 0, 2))
        cluster.log_end(1, 95)
        assert cluster.state == (1, (1, 2))
        assert cluster.partition("t").leader_epoch == epoch + 1

    def test_the_doubt_outlives_the_mark(self, cluster: Booted) -> None:
        """The broker takes it back as soon as no partition waits for a leader, which it cannot know to be dead."""
        cluster.tree.transact(SESSION, [Delete(booted_path(0))], 0)
        cluster.tell()
        assert cluster.controller.state.marks.booted_anew == {}
        cluster.log_end(0, 70)
        assert cluster.state == (1, (1, 0, 2))
        cluster.log_end(1, 95)
        assert cluster.state == (1, (1, 2))

    def test_logs_are_compared_though_the_mark_is_gone(self, cluster: Booted) -> None:
        """The leader was dead, and all come back: the first one counts as one that may have lost its log's end."""
        cluster.tree.transact(SESSION, [Delete(booted_path(0))], 0)
        cluster.tell()
        cluster.live(broker(0, LATER))
        cluster.booted(1, 2)
        cluster.come(0, 1, 2)
        cluster.run(SessionsProven(cluster.settings.session_timeout_ms))
        for id, end in ((0, 70), (1, 95), (2, 80)):
            cluster.log_end(id, end)
        assert cluster.state == (1, (1,))
        assert cluster.controller.state.doubts == {}

    @pytest.mark.parametrize("answers", [2, None])
    def test_a_member_that_stayed_comes_before_one_that_was_away(self, answers: int | None) -> None:
        """The leader dies while it is not known which members live; it is back before the doubt ends."""
        cluster = Booted([1, 0, 2])
        cluster.booted(0)
        cluster.brokers = {BrokerId(0): broker(0, LATER), BrokerId(1): broker(1, 2), BrokerId(2): broker(2, 3)}
        cluster.term(2)
        cluster.live(broker(0, LATER), broker(2, 3))
        cluster.live(broker(0, LATER), broker(1, LATER + 1), broker(2, 3))
        assert cluster.state == (-1, (1, 0, 2))
        if answers is None:
            cluster.run(SessionsProven(cluster.settings.session_timeout_ms))
        else:
            cluster.log_end(answers, 95)
        assert cluster.state == (2, (2,))

    def test_one_that_was_away_before_the_doubt_comes_before_one_that_was_away_meanwhile(self) -> None:
        cluster = Booted([1, 2])
        cluster.booted(0)
        cluster.brokers = {BrokerId(0): broker(0, LATER), BrokerId(1): broker(1, 2), BrokerId(2): broker(2, LATER)}
        cluster.term(2)
        assert cluster.asked == {1}
        cluster.live(broker(0, LATER), broker(2, LATER))
        cluster.live(broker(0, LATER), broker(1, LATER + 1), broker(2, LATER))
        assert cluster.state == (-1, (1, 2))
        cluster.run(SessionsProven(cluster.settings.session_timeout_ms))
        assert cluster.state == (2, (2,))

    def test_one_that_is_registered_for_longer_than_a_session_lives(self, cluster: Booted) -> None:
        cluster.run(SessionsProven(cluster.settings.session_timeout_ms))
        assert cluster.state == (1, (1, 2))

    def test_what_the_first_one_has_kept_counts(self, cluster: Booted) -> None:
        """The others' sessions end one after the other, and they come back with less."""
        cluster.booted(1, 2)
        cluster.come(0, 2)
        assert cluster.state == (-1, (1, 0, 2))
        cluster.live(broker(0, LATER), broker(1, LATER + 1))
        cluster.live(broker(0, LATER), broker(1, LATER + 1), broker(2, LATER + 2))
        assert cluster.state == (-1, (1, 0, 2))
        cluster.run(SessionsProven(cluster.settings.session_timeout_ms))
        for id, end in ((0, 95), (1, 70), (2, 80)):
            cluster.log_end(id, end)
        assert cluster.state == (0, (0,))

    def test_it_does_not_lead_as_the_preferred_replica_meanwhile(self) -> None:
        cluster = Booted([1, 0, 2])
        cluster.live(broker(0, 1), broker(2, 3))
        cluster.live(broker(0, 1), broker(1, 2), broker(2, 3))
        cluster.propose(0, 1, 2)
        assert cluster.partition("t").leader == 0
        cluster.booted(1)
        cluster.brokers[BrokerId(1)] = broker(1, LATER)
        cluster.term(2)
        assert cluster.state == (0, (0, 1, 2))
        [outcome] = cluster.ask(ElectLeaders(ElectionType.PREFERRED, [T0]))
        assert outcome.error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE

    @pytest.fixture
    def bounced(self) -> Booted:
        """Broker 0 leads; 1, the preferred replica, was killed and is back; the machine of 5 was booted anew."""
        cluster = Booted([1, 0, 2])
        cluster.live(broker(0, 1), broker(2, 3))
        cluster.live(broker(0, 1), broker(1, 2), broker(2, 3))
        cluster.propose(0, 1, 2)
        cluster.unclean(1)
        cluster.booted(5)
        cluster.brokers |= {BrokerId(1): broker(1, LATER), BrokerId(5): broker(5, LATER)}
        cluster.term(2)
        assert cluster.state == (0, (0, 1, 2))
        return cluster

    def test_a_member_that_was_away_is_not_preferred_meanwhile(self, bounced: Booted) -> None:
        [outcome] = bounced.ask(ElectLeaders(ElectionType.PREFERRED, [T0]))
        assert outcome.error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        bounced.log_end(2, 95)
        assert bounced.state == (0, (0, 2))

    def test_a_member_that_was_away_does_not_follow_a_leader_that_stops(self, bounced: Booted) -> None:
        """One that stayed does."""
        assert bounced.ask(ControlledShutdown(BrokerId(0), bounced.brokers[BrokerId(0)].epoch)) == []
        assert bounced.state == (2, (2,))

    def test_an_only_replica_that_gets_another_is_elected_by_hand(self) -> None:
        """Its machine was booted anew, too. Its log is all there is, so that nothing is known to be lost."""
        cluster = Booted([1])
        cluster.ask(AlterReassignments([ReassignPartition(T0, (BrokerId(1), BrokerId(2)))]))
        cluster.booted(0)
        cluster.brokers = {BrokerId(0): broker(0, LATER), BrokerId(1): broker(1, 2), BrokerId(2): broker(2, 3)}
        cluster.term(2)
        assert cluster.asked == {1}
        cluster.live(broker(0, LATER), broker(2, 3))
        cluster.booted(1)
        cluster.tell()
        cluster.live(broker(0, LATER), broker(1, LATER + 1), broker(2, 3))
        assert cluster.state == (-1, (1,))
        assert cluster.elect() is ErrorCode.NONE
        assert cluster.state == (1, (1,))

    def test_a_member_that_stops_in_a_doubt_stays_in_the_isr(self, cluster: Booted) -> None:
        """The leader may be dead: then the one that stops has what the first one back has not."""
        assert cluster.ask(ControlledShutdown(BrokerId(2), cluster.brokers[BrokerId(2)].epoch)) == []
        assert cluster.state == (1, (1, 0, 2))

    def test_brokers_hear_that_a_member_is_back(self) -> None:
        """It never left the ISR; all others have shown clients its replica as offline."""
        cluster = Booted([0, 1, 2])
        cluster.booted(1)
        cluster.brokers = {BrokerId(0): broker(0, 1), BrokerId(1): broker(1, LATER)}
        cluster.term(2)
        assert cluster.state == (0, (0, 1, 2))
        assert self.offline(cluster) == {0: [2], 1: [2]}
        cluster.live(broker(0, 1), broker(1, LATER), broker(2, LATER))
        assert cluster.state == (0, (0, 1, 2))
        assert self.offline(cluster) == {0: [], 1: [], 2: []}

    def test_of_a_topic_that_is_deleted_brokers_hear_nothing_more(self) -> None:
        """They would show it again, and for good."""
        cluster = Booted([0, 1, 2])
        cluster.booted(1)
        cluster.brokers = {BrokerId(0): broker(0, 1), BrokerId(1): broker(1, LATER)}
        cluster.term(2)
        cluster.tree.transact(SESSION, [Create(delete_topic_path("t"))], 0)
        cluster.run(DeletionsRequested(["t"]))
        cluster.live(broker(0, 1), broker(1, LATER), broker(2, LATER))
        assert 0 not in self.offline(cluster)

    @staticmethod
    def offline(cluster: Booted) -> dict[int, list[int]]:
        """[broker] -> offline replicas of the partition, as it is told."""
        told = cluster.sent("UpdateMetadataRequest").items()
        return {
            id: state.offline_replicas
            for id, request in told
            for topic in request.topic_states
            for state in topic.partition_states
        }

    @pytest.mark.parametrize("answers", [1, 2])
    def test_a_member_that_was_booted_before_the_state_was_written_has_stayed(self, answers: int) -> None:
        """Its mark is still there; the other member dies in the doubt, and is back before it ends."""
        cluster = Booted([1, 2])
        cluster.tree.transact(SESSION, [Create(booted_path(1))], 0)
        cluster.booted(0)
        cluster.brokers = {BrokerId(0): broker(0, LATER), BrokerId(1): broker(1, 2), BrokerId(2): broker(2, 3)}
        cluster.term(2)
        assert cluster.state == (1, (1, 2))
        cluster.live(broker(0, LATER), broker(1, 2))
        cluster.live(broker(0, LATER), broker(1, 2), broker(2, LATER + 1))
        cluster.log_end(answers, 95)
        assert cluster.state == (1, (1,))

    def test_a_leader_that_was_away_waits_for_an_answer(self) -> None:
        """It was the leader itself that came back: another member leads as soon as it is known to live."""
        cluster = Booted([0, 1, 2])
        cluster.booted(0)
        cluster.brokers[BrokerId(0)] = broker(0, LATER)
        cluster.term(2)
        assert cluster.state == (-1, (0, 1, 2))
        cluster.log_end(2, 95)
        assert cluster.state == (1, (1, 2))

    @pytest.mark.parametrize("has_ended", [1, 2])
    def test_the_first_one_back_needs_no_replica(self, has_ended: int) -> None:
        """The session of the leader or of the follower has ended when it begins; the other's ends, and both return."""
        cluster = Booted([1, 2])
        cluster.booted(0)
        left = 3 - has_ended
        cluster.brokers = {BrokerId(0): broker(0, LATER), BrokerId(left): broker(left, left + 1)}
        cluster.term(2)
        assert cluster.asked == {left}
        assert cluster.state == (left if left == 1 else -1, (1, 2))
        cluster.live(broker(0, LATER))
        cluster.booted(1, 2)
        cluster.come(0, 1, 2)
        cluster.run(SessionsProven(cluster.settings.session_timeout_ms))
        for id, end in ((1, 70), (2, 95)):
            cluster.log_end(id, end)
        assert cluster.state == (2, (2,))

    def test_sessions_may_all_end_after_the_first_one_has_begun(self) -> None:
        """One after the other: what looks like a leader that goes while a follower stays is the end of both."""
        cluster = Booted([1, 2])
        cluster.booted(0)
        cluster.brokers[BrokerId(0)] = broker(0, LATER)
        cluster.term(2)
        assert cluster.state == (1, (1, 2))
        cluster.live(broker(0, LATER), broker(2, 3))
        cluster.live(broker(0, LATER))
        assert cluster.state == (-1, (1, 2))

    def test_a_member_that_lives_ends_the_doubt_of_a_partition_elsewhere(self) -> None:
        """The leader's session has ended: the follower that answers leads."""
        cluster = Booted([1, 2])
        cluster.booted(0)
        cluster.brokers = {BrokerId(0): broker(0, LATER), BrokerId(2): broker(2, 3)}
        cluster.term(2)
        cluster.log_end(2, 95)
        assert cluster.state == (2, (2,))

    def test_an_only_replica_is_in_no_doubt(self) -> None:
        cluster = Booted([1])
        cluster.booted(0)
        cluster.brokers[BrokerId(0)] = broker(0, LATER)
        cluster.term(2)
        assert cluster.asked == set()
        assert cluster.state == (1, (1,))
