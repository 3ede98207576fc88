"""Replicas that are known to have lost records: never elected cleanly, waited past, and whole again."""

from __future__ import annotations

import logging

import pytest
from tests.unit.controller.harness import SESSION, Cluster, broker

from tidelog.controller.elections import UNCLEAN_SETTING
from tidelog.controller.events import ConfigsChanged, LogEndsDue, LogEndsLearned, MarksChanged, Submitted
from tidelog.controller.log_ends import LOG_ENDS_WAIT_MS
from tidelog.controller.requests import (
    AlterPartition,
    AlterReassignments,
    ElectionType,
    ElectLeaders,
    IsrMember,
    IsrProposal,
    ReassignPartition,
)
from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.metadata.operations import Create, Delete
from tidelog.metadata.replica_marks import (
    MARKS,
    ReplicaDamage,
    ReplicaMark,
    decode_replica_mark,
    encode_replica_mark,
    heeded_path,
    parse_mark_name,
    replica_mark_path,
    unclean_stop_path,
)
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import (
    ZERO_TOPIC_ID,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)

T0 = TopicPartition("t", 0)
LATER = 1_000_000
"""A transaction after all that the test has written."""


def damage(log_end: int = 11, lost_end: int = 100, *, epoch: int = 0, has_hole: bool = False) -> ReplicaDamage:
    return ReplicaDamage(Offset(log_end), LeaderEpoch(epoch), Offset(lost_end), has_hole)


class Marked(Cluster):
    """A cluster with one topic, whose brokers mark replicas."""

    def __init__(self, *assignment: list[int]) -> None:
        super().__init__(broker(0, 1), broker(1, 2), broker(2, 3))
        self.make("t", *assignment)
        self.tree.transact(SESSION, [Create(MARKS)], 0)

    def mark(self, broker_id: int, found: ReplicaDamage | None = None, *, topic_id: TopicId | None = None) -> str:
        """Writes a mark; the controller is not told."""
        if topic_id is None:
            topic_id = self.controller.image.topics["t"].topic_id
        path = replica_mark_path(broker_id, T0)
        content = encode_replica_mark(ReplicaMark(topic_id, found or damage()))
        self.tree.transact(SESSION, [Create(path, content)], 0)
        return path

    def tell(self) -> None:
        """The controller hears of the marks as they are."""
        names = [path.removeprefix(f"{MARKS}/") for path in self.tree.paths() if path.startswith(f"{MARKS}/")]
        gone = [name for name in self.controller.state.marks.names if name not in names]
        self.run(MarksChanged([self.node_read(f"{MARKS}/{name}") for name in names], gone))

    def unclean(self, *broker_ids: int) -> None:
        for id in broker_ids:
            self.tree.transact(SESSION, [Create(unclean_stop_path(id))], 0)

    def restart_all(self, *live: int) -> None:
        """All brokers went and these came back; the next controller begins."""
        self.brokers = {BrokerId(id): broker(id, LATER + id) for id in live}
        self.term(2)

    def come(self, *ids: int) -> None:
        """These brokers are live now, each in a life after the restart of all."""
        self.tell()
        self.live(*(broker(id, LATER + id) for id in ids))

    @property
    def state(self) -> tuple[int, tuple[int, ...]]:
        image = self.partition("t")
        return image.leader, image.isr

    @property
    def marks(self) -> list[str]:
        return [path.removeprefix(f"{MARKS}/") for path in self.tree.paths() if path.startswith(f"{MARKS}/")]

    def elect(self) -> ErrorCode:
        [outcome] = self.ask(ElectLeaders(ElectionType.UNCLEAN, [T0]))
        return outcome.error

    def propose(self, *isr: int) -> ErrorCode:
        image = self.partition("t")
        members = [IsrMember(BrokerId(id), BrokerEpoch(-1)) for id in isr]
        proposal = IsrProposal(T0, ZERO_TOPIC_ID, image.leader_epoch, members, image.partition_epoch)
        [outcome] = self.ask(AlterPartition(image.leader, self.brokers[image.leader].epoch, [proposal]))
        return outcome.error


def test_a_damaged_leader_that_is_back_first_is_not_elected() -> None:
    """The partition waits for the others of its ISR; whichever comes leads, and the damaged one follows."""
    cluster = Marked([0, 1, 2])
    cluster.mark(0)
    cluster.restart_all(0)
    assert cluster.state == (-1, (1, 2))
    cluster.come(0, 2)
    assert cluster.state == (2, (2,))
    assert cluster.partition("t").leader_epoch == 2


def test_where_all_come_back_at_once_one_that_is_whole_leads() -> None:
    """The damaged one leaves the ISR with the same write."""
    cluster = Marked([0, 1, 2])
    cluster.mark(0)
    cluster.restart_all(0, 1, 2)
    assert cluster.state == (1, (1, 2))


def test_a_controller_that_lives_on_waits_too() -> None:
    """The leader was alone in its ISR and comes back damaged; a replica out of sync is no substitute."""
    cluster = Marked([0, 1])
    assert cluster.propose(0) is ErrorCode.NONE
    cluster.live(broker(1, 2), broker(2, 3))
    assert cluster.state == (-1, (0,))
    cluster.mark(0)
    cluster.come(0, 1, 2)
    assert cluster.state == (-1, (0,))


def test_members_that_died_together_are_all_waited_for() -> None:
    """Nothing was committed without any of them; a damaged one that comes first does not narrow that down."""
    cluster = Marked([1, 2, 0])
    assert cluster.propose(1, 2) is ErrorCode.NONE
    cluster.live(broker(0, 1))
    assert cluster.state == (-1, (1, 2))
    cluster.mark(1)
    cluster.come(0, 1)
    assert cluster.state == (-1, (2,))
    cluster.come(0)
    cluster.come(0, 2)
    assert cluster.state == (2, (2,))


def test_the_wait_is_told_once_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    """First that another broker is waited for, then, when that one is damaged too, the command that ends the wait."""
    cluster = Marked([0, 1])
    cluster.mark(0)
    with caplog.at_level(logging.WARNING):
        cluster.restart_all(0)
        cluster.come(0, 2)
        [waits] = [each.getMessage() for each in caplog.records if "partition waits" in each.getMessage()]
        assert "waits_for=[1]" in waits
        assert "start its broker" in waits
        cluster.mark(1, damage(50))
        cluster.come(0, 1, 2)
    told = [each.getMessage() for each in caplog.records if "partition waits" in each.getMessage()]
    assert len(told) == 2
    assert "--election-type unclean --topic t --partition 0" in told[1]


def test_where_all_are_damaged_a_command_elects_the_one_that_has_most() -> None:
    """The highest epoch first, then the longest log; it leads alone, and its mark goes."""
    cluster = Marked([0, 1, 2])
    cluster.mark(0, damage(50, epoch=0))
    cluster.mark(1, damage(60, epoch=0))
    cluster.mark(2, damage(40, epoch=0))
    cluster.restart_all(0, 1, 2)
    assert cluster.state == (-1, (0, 1, 2))
    assert cluster.elect() is ErrorCode.NONE
    assert cluster.state == (1, (1,))
    assert cluster.marks == ["0-t-0", "2-t-0"]
    assert cluster.controller.unclean_elections == 1
    assert cluster.propose(1, 0, 2) is ErrorCode.NONE
    assert cluster.marks == []


def test_a_live_log_end_counts_more_than_the_one_in_the_mark() -> None:
    """A replica out of the ISR may have more than the damaged member; an epoch that never was says nothing."""
    cluster = Marked([0, 1, 2])
    assert cluster.propose(0) is ErrorCode.NONE
    cluster.mark(0, damage(11))
    cluster.restart_all(0, 1, 2)
    assert cluster.state == (-1, (0,))
    assert sorted(cluster.sent("ListOffsetsRequest")) == [0, 1, 2]
    for id, epoch, end in ((0, 0, 11), (1, 0, 60), (2, 65_536, 20)):
        cluster.run(LogEndsLearned(BrokerId(id), {T0: (LeaderEpoch(epoch), Offset(end))}))
    assert cluster.elect() is ErrorCode.NONE
    assert cluster.state == (1, (1,))


def test_brokers_of_an_earlier_version_are_compared_by_length() -> None:
    """They answer with the partition's epoch, whatever their last batch has: a short log is not the newest by that."""
    cluster = Marked([0, 1, 2])
    assert cluster.propose(0) is ErrorCode.NONE
    cluster.mark(0, damage(11))
    cluster.restart_all(0, 1, 2)
    told = cluster.partition("t").leader_epoch
    for id, epoch, end in ((0, 0, 11), (1, 0, 60), (2, told, 20)):
        cluster.run(LogEndsLearned(BrokerId(id), {T0: (LeaderEpoch(epoch), Offset(end))}))
    assert cluster.elect() is ErrorCode.NONE
    assert cluster.state == (1, (1,))


@pytest.mark.parametrize("answered", [True, False])
def test_where_a_setting_allows_it_the_logs_are_compared_first(answered: bool) -> None:
    """The brokers are asked where their logs end; silence is not waited for longer than LOG_ENDS_WAIT_MS."""
    cluster = Marked([0, 1, 2])
    setting = ConfigsChanged(ConfigResource(ConfigResourceType.TOPIC, "t"), {UNCLEAN_SETTING: "true"})
    assert cluster.propose(0) is ErrorCode.NONE
    cluster.mark(0, damage(11))
    cluster.restart_all(0, 1, 2)
    cluster.run(setting)
    assert cluster.state == (-1, (0,))
    cluster.run(LogEndsLearned(BrokerId(0), {T0: (LeaderEpoch(0), Offset(11))}))
    cluster.run(LogEndsLearned(BrokerId(2), {T0: (LeaderEpoch(0), Offset(90))}))
    assert cluster.state == (-1, (0,))
    if answered:
        cluster.run(LogEndsLearned(BrokerId(1), {T0: (LeaderEpoch(0), Offset(60))}))
    else:
        cluster.run(LogEndsDue(LOG_ENDS_WAIT_MS))
    assert cluster.state == (2, (2,))


def test_the_only_replica_leads_at_once_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """With a replication factor of 1 there is nothing to wait for; the log as it is now is the partition's."""
    cluster = Marked([1])
    cluster.mark(1)
    with caplog.at_level(logging.WARNING):
        cluster.restart_all(0, 1)
    assert cluster.state == (1, (1,))
    assert cluster.marks == []
    assert "damaged replica leads: partition=t-0 broker=1 log_end=11 lost_end=100" in caplog.text


def test_of_members_back_together_the_cleanly_stopped_one_leads() -> None:
    """An unclean stop orders, it excludes nothing: alone, such a broker leads. Its epoch is a new one in any case."""
    cluster = Marked([0, 1, 2])
    cluster.unclean(0)
    cluster.restart_all(0, 1, 2)
    assert cluster.state == (1, (0, 1, 2))
    cluster = Marked([0, 1, 2])
    cluster.unclean(0, 1, 2)
    cluster.restart_all(0, 1)
    assert cluster.state == (0, (0, 1))
    assert cluster.partition("t").leader_epoch == 2
    cluster = Marked([0])
    cluster.unclean(0)
    cluster.restart_all(0, 1)
    assert (cluster.state, cluster.partition("t").leader_epoch) == ((0, (0,)), 0), "no other replica has anything"


def test_an_unclean_stop_counts_until_its_mark_is_gone() -> None:
    """Also where the state is younger than the registration: its write may have been on its way all the while."""
    cluster = Marked([0, 1, 2])
    cluster.unclean(0)
    cluster.term(2)
    assert cluster.state == (1, (1, 2))
    cluster = Marked([0, 1, 2])
    cluster.unclean(0)
    cluster.tree.transact(SESSION, [Delete(unclean_stop_path(0))], 0)
    cluster.term(2)
    assert cluster.state == (0, (0, 1, 2))
    assert cluster.partition("t").leader_epoch == 0


def test_damage_found_on_a_live_leader_moves_the_leadership() -> None:
    """It leaves the ISR too; a follower that is damaged leaves the ISR alone."""
    cluster = Marked([0, 1, 2])
    cluster.mark(0, damage(has_hole=True))
    cluster.tell()
    assert cluster.state == (1, (1, 2))
    cluster.mark(2, damage(has_hole=True))
    cluster.tell()
    assert cluster.state == (1, (1,))


def test_a_live_leader_that_none_can_replace_goes_on() -> None:
    """Under another controller too. Once it has been away it is not elected again."""
    cluster = Marked([0, 1])
    assert cluster.propose(0) is ErrorCode.NONE
    cluster.mark(0, damage(has_hole=True))
    cluster.tell()
    assert cluster.state == (0, (0,))
    cluster.term(2)
    assert cluster.state == (0, (0,))
    cluster.live(broker(0, LATER), broker(1, 2), broker(2, 3))
    assert cluster.state == (-1, (0,))


def test_a_replica_that_has_fetched_again_is_whole_and_one_with_a_hole_is_not() -> None:
    """The mark goes with the write that lets it into the ISR; a hole is for its broker to call mended."""
    cluster = Marked([0, 1, 2])
    cluster.mark(1)
    cluster.mark(2, damage(has_hole=True))
    cluster.tell()
    assert cluster.state == (0, (0,))
    assert cluster.propose(0, 1, 2) is ErrorCode.INELIGIBLE_REPLICA
    assert cluster.propose(0, 1) is ErrorCode.NONE
    assert cluster.marks == ["2-t-0", "2-t-0-heeded"]
    cluster.tree.transact(SESSION, [Delete(replica_mark_path(2, T0))], 0)
    cluster.tell()
    assert cluster.propose(0, 1, 2) is ErrorCode.NONE


def test_a_broker_is_told_that_the_mark_of_a_hole_was_read() -> None:
    """Of this very node, behind the write that takes the replica out of the ISR; of other marks it is not told."""
    cluster = Marked([0, 1, 2])
    cluster.mark(1)
    path = cluster.mark(2, damage(has_hole=True))
    answer = heeded_path(2, T0)
    cluster.transcript.clear()
    cluster.tell()
    assert cluster.marks == ["1-t-0", "2-t-0", "2-t-0-heeded"]
    assert [line for line in cluster.transcript if "/tidelog_marks" in line] == cluster.transcript[-1:]
    assert cluster.tree.get(answer)[0] == b"%d" % cluster.tree.get(path)[1].czxid
    written = cluster.tree.get(answer)[1].mzxid
    cluster.tell()
    cluster.term(2)
    assert cluster.tree.get(answer)[1].mzxid == written, "it stands under the next controller"
    cluster.tree.transact(SESSION, [Delete(path), Create(path, cluster.tree.get(path)[0])], 0)
    cluster.term(3)
    assert cluster.tree.get(answer)[0] == b"%d" % cluster.tree.get(path)[1].czxid


def test_a_damaged_replica_is_no_preferred_leader() -> None:
    """Neither by command nor by balance, nor at the controlled shutdown of the leader."""
    cluster = Marked([0, 1])
    cluster.mark(0, damage(has_hole=True))
    cluster.tell()
    assert cluster.state == (1, (1,))
    [outcome] = cluster.ask(ElectLeaders(ElectionType.PREFERRED, [T0]))
    assert outcome.error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_marks_of_another_topic_of_that_name_say_nothing() -> None:
    """The topic was deleted and made again: the replica of the new one has lost nothing."""
    cluster = Marked([0, 1])
    cluster.mark(0, topic_id=TopicId(b"x" * 16))
    cluster.restart_all(0, 1)
    assert cluster.state == (0, (0, 1))


@pytest.mark.parametrize("content", [b"\xff{", b"[" * 100_000], ids=["garbage", "deep"])
def test_a_mark_that_cannot_be_read_is_one(content: bytes) -> None:
    """Better an election too few."""
    cluster = Marked([0, 1])
    cluster.tree.transact(SESSION, [Create(replica_mark_path(0, T0), content)], 0)
    cluster.tell()
    assert cluster.state == (1, (1,))
    assert decode_replica_mark(content).topic_id == ZERO_TOPIC_ID


def test_names_of_marks() -> None:
    assert parse_mark_name("12-a.b-c-3") == (12, TopicPartition("a.b-c", 3))
    assert [parse_mark_name(name) for name in ("", "-", "1-", "1-t", "1-t-", "a-t-0", "1--0")] == [None] * 7


def test_a_mark_survives_controllers_and_ends_with_its_repair() -> None:
    """What a new controller loads is what the one before knew; a mark that its broker removes lets the replica lead."""
    cluster = Marked([0, 1])
    assert cluster.propose(0) is ErrorCode.NONE
    path = cluster.mark(0)
    cluster.restart_all(0, 1)
    cluster.term(3)
    assert cluster.state == (-1, (0,))
    cluster.tree.transact(SESSION, [Delete(path)], 0)
    cluster.tell()
    assert cluster.state == (0, (0,))


def test_a_replica_that_moves_away_takes_its_mark_out_of_the_elections() -> None:
    """The mark is its broker's to remove; whoever is assigned now is elected."""
    cluster = Marked([0, 1])
    cluster.mark(0)
    cluster.tell()
    cluster.run(Submitted(9, AlterReassignments([ReassignPartition(T0, [BrokerId(1), BrokerId(2)])])))
    assert cluster.propose(1, 2) is ErrorCode.NONE
    assert cluster.partition("t").replicas == (1, 2)
    assert cluster.state == (1, (1, 2))
    cluster.restart_all(0, 2)
    assert cluster.state == (2, (2,))
