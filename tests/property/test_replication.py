"""Leaders and followers of one partition against a controller that elects, in every order that chance comes up with.

Three replicas are pure state machines over lists; fetches, answers, orders and ISR changes are lost or late, brokers
are killed and come back with an old high watermark. What some leader has called committed must be in the log of every
later leader, nothing that is committed may be cut, and in the end all logs are the same.
"""

from __future__ import annotations

from random import Random

import pytest

from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import NO_LEADER_EPOCH, BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionEpoch
from tidelog.records.epochs import EpochCache
from tidelog.replication.events import (
    Appended,
    Effect,
    FollowerFetched,
    HighWatermarkAdvanced,
    IsrCommitted,
    IsrProposed,
    LagCheckDue,
    ProposalCommitted,
    ProposalRefused,
)
from tidelog.replication.follower import PartitionFollower
from tidelog.replication.follower_events import (
    Answered,
    EpochEnd,
    FollowerEffect,
    LeaderRange,
    NewBeginning,
    RangeWanted,
    RecordsAppended,
    RecordsWanted,
    Resting,
    RestOver,
    Truncated,
    TruncationWanted,
)
from tidelog.replication.leader import PartitionLeader

BROKERS = (0, 1, 2)
LAG_MS = 30_000
STEPS = 60
SEEDS = 150
Record = tuple[int, int]
"""Leader epoch and value."""


class Replica:
    """One broker's log, and its role."""

    def __init__(self, broker_id: int) -> None:
        self.id = BrokerId(broker_id)
        self.alive = True
        self.records: list[Record] = []
        self.epochs = EpochCache()
        self.high_watermark = 0
        self.checkpoint = 0
        self.epoch = -1
        self.partition_epoch = -1
        self.leader: PartitionLeader | None = None
        self.follower: PartitionFollower | None = None

    @property
    def end(self) -> Offset:
        return Offset(len(self.records))

    def append(self, records: list[Record]) -> None:
        for epoch, _ in records:
            if epoch != self.epochs.latest:
                self.epochs.assign(LeaderEpoch(epoch), self.end)
            self.records.append((epoch, _))

    def cut(self, offset: int) -> None:
        del self.records[offset:]
        self.epochs.truncate_from_end(Offset(offset))

    def crash(self) -> None:
        """kill -9: the records are there, the rest is what the checkpoint and the records say."""
        self.alive = False
        self.leader = self.follower = None
        self.epoch = self.partition_epoch = -1

    def restart(self) -> None:
        self.alive = True
        self.high_watermark = min(self.checkpoint, self.end)
        records, self.records, self.epochs = self.records, [], EpochCache()
        self.append(records)


class Partition:
    """A partition, its replicas, and what becomes of them; the controller's state is `leader`, `epoch`, `isr`,
    `partition_epoch`.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.replicas = [Replica(broker_id) for broker_id in BROKERS]
        self.now_ms = 1_000_000
        self.leader = 0
        self.epoch = 0
        self.isr: tuple[int, ...] = BROKERS
        self.partition_epoch = 0
        self.values = 0
        self.committed: list[Record] = []
        self.proposals: list[tuple[Replica, PartitionLeader, IsrProposed]] = []
        self.min_isr = self.random.choice([1, 2])
        for broker in BROKERS:
            self.tell(broker)

    def run(self) -> None:
        """Some steps, then everybody's return."""
        steps = [
            self.tell,
            self.prefer,
            self.kill,
            *[self.restart, self.alter_partition, self.produce] * 2,
            *[self.fetch] * 4,
            self.time_passes,
            self.write_checkpoint,
            self.go_on,
            self.only_the_leader_has,
        ]
        for _ in range(STEPS):
            self.random.choice(steps)(self.random.choice(BROKERS))
            self.check()
        self.end()

    # The controller.

    def tell(self, broker: int) -> None:
        """LeaderAndIsr reaches a broker, now or much later."""
        replica = self.replicas[broker]
        if not replica.alive or replica.epoch > self.epoch:
            return
        isr = tuple(map(BrokerId, self.isr))
        if replica.epoch == self.epoch:
            if replica.leader is not None and self.partition_epoch > replica.partition_epoch:
                event = IsrCommitted(isr, PartitionEpoch(self.partition_epoch))
                self._lead(replica, replica.leader.step(self.now_ms, event))
            replica.partition_epoch = self.partition_epoch
            return
        replica.epoch, replica.partition_epoch = self.epoch, self.partition_epoch
        if replica.leader is not None:
            replica.high_watermark = max(replica.high_watermark, replica.leader.high_watermark)
        replica.leader = replica.follower = None
        if self.leader == broker:
            self._becomes_leader(replica, isr)
        elif self.leader >= 0:
            replica.epochs.truncate_from_end(replica.end)
            replica.follower = PartitionFollower(
                leader_id=BrokerId(self.leader),
                leader_epoch=LeaderEpoch(self.epoch),
                epochs=replica.epochs,
                log_start=Offset(0),
                log_end=replica.end,
                flushed_end=replica.end,
                high_watermark=Offset(min(replica.high_watermark, replica.end)),
                flush_before_fetch=False,
                rest_ms_max=1000,
            )

    def _becomes_leader(self, replica: Replica, isr: tuple[BrokerId, ...]) -> None:
        assert replica.records[: len(self.committed)] == self.committed, "A leader lacks what is committed."
        replica.epochs.assign(LeaderEpoch(self.epoch), replica.end)
        replica.leader = PartitionLeader(
            broker_id=replica.id,
            leader_epoch=LeaderEpoch(self.epoch),
            partition_epoch=PartitionEpoch(self.partition_epoch),
            replicas=tuple(map(BrokerId, BROKERS)),
            isr=isr,
            log_end=replica.end,
            flushed_end=replica.end,
            high_watermark=Offset(replica.high_watermark),
            flush_before_acknowledge=False,
            min_insync_replicas=self.min_isr,
            lag_ms_max=LAG_MS,
            is_live=lambda broker_id: self.replicas[broker_id].alive,
            now_ms=self.now_ms,
        )
        self._lead(replica, replica.leader.begin(self.now_ms))

    def _elect(self) -> None:
        """A new epoch; the leader is the first live one of the ISR, or nobody."""
        live = [broker for broker in self.isr if self.replicas[broker].alive]
        if live:
            self.isr = tuple(live)
        self.leader = live[0] if live else -1
        self.epoch += 1
        self.partition_epoch += 1

    def prefer(self, broker: int) -> None:
        """An election of another leader that is in the ISR, for no reason."""
        if broker in self.isr and self.replicas[broker].alive:
            self.isr = (broker, *(one for one in self.isr if one != broker))
            self._elect()

    def kill(self, broker: int) -> None:
        """A broker dies, of which some hear at once."""
        if self.replicas[broker].alive:
            self.replicas[broker].crash()
            self._elect()
            for one in self.random.sample(BROKERS, self.random.randint(0, 3)):
                self.tell(one)

    def restart(self, broker: int) -> None:
        replica = self.replicas[broker]
        if not replica.alive:
            replica.restart()
            if self.leader < 0 and broker in self.isr:
                self._elect()
            self.tell(broker)

    def alter_partition(self, _: int) -> None:
        """The controller decides on a proposal; its answer may be lost."""
        if not self.proposals:
            return
        is_answered = self.random.random() < 0.8
        replica, leader, proposal = self.proposals.pop(self.random.randrange(len(self.proposals)))
        holds = (proposal.leader_epoch, proposal.partition_epoch) == (self.epoch, self.partition_epoch)
        refused = not holds or not all(self.replicas[one.broker_id].alive for one in proposal.isr)
        if not refused:
            self.isr = tuple(member.broker_id for member in proposal.isr)
            self.partition_epoch += 1
        if replica.leader is not leader or not is_answered:
            return
        if refused:
            event = ProposalRefused(
                proposal, ErrorCode.INVALID_UPDATE_VERSION if not holds else ErrorCode.INELIGIBLE_REPLICA
            )
            self._lead(replica, leader.step(self.now_ms, event))
        else:
            replica.partition_epoch = self.partition_epoch
            committed = ProposalCommitted(
                proposal, tuple(map(BrokerId, self.isr)), PartitionEpoch(self.partition_epoch)
            )
            self._lead(replica, leader.step(self.now_ms, committed))

    # Leaders.

    def _lead(self, replica: Replica, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, HighWatermarkAdvanced):
                replica.high_watermark = effect.offset
                now = replica.records[: effect.offset]
                common = min(len(now), len(self.committed))
                assert now[:common] == self.committed[:common], "Two leaders have committed different records."
                if len(now) > common:
                    self.committed = now
            elif isinstance(effect, IsrProposed):
                assert replica.leader is not None
                self.proposals.append((replica, replica.leader, effect))

    def produce(self, broker: int) -> None:
        """To whoever believes to lead, an old leader included."""
        replica = self.replicas[broker]
        if replica.leader is None:
            return
        for _ in range(self.random.randint(1, 3)):
            self.values += 1
            replica.append([(replica.leader.leader_epoch, self.values)])
        self._lead(replica, replica.leader.step(self.now_ms, Appended(replica.end)))

    def time_passes(self, _: int) -> None:
        """So long that whoever has not fetched lags."""
        self.now_ms += LAG_MS + 1
        for replica in self.replicas:
            if replica.leader is not None:
                self._lead(replica, replica.leader.step(self.now_ms, LagCheckDue()))

    def write_checkpoint(self, broker: int) -> None:
        replica = self.replicas[broker]
        replica.checkpoint = min(replica.high_watermark, replica.end)

    # Followers.

    def fetch(self, broker: int) -> None:
        """One round; the answer may be lost, of which the leader does not know."""
        self.now_ms += 10
        self._fetch(self.replicas[broker], self.random.randint(1, 4), self.random.random() < 0.8)

    def _fetch(self, replica: Replica, most: int, is_answered: bool) -> None:
        follower = replica.follower
        if follower is None:
            return
        position = follower.position()
        source = self.replicas[follower.leader_id]
        if position is None or not source.alive:
            return
        records: list[Record] = []
        if source.leader is None:
            answer = Answered(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif position.current_leader_epoch < source.leader.leader_epoch:
            answer = Answered(ErrorCode.FENCED_LEADER_EPOCH)
        elif position.current_leader_epoch > source.leader.leader_epoch:
            answer = Answered(ErrorCode.UNKNOWN_LEADER_EPOCH)
        else:
            answer, records = self._read(source, source.leader, replica.id, position.offset, position[1], most)
        if is_answered:
            self._follow(replica, follower, follower.step(answer), records)

    def _read(
        self,
        source: Replica,
        leader: PartitionLeader,
        follower: BrokerId,
        offset: Offset,
        last_epoch: LeaderEpoch,
        most: int,
    ) -> tuple[Answered, list[Record]]:
        if last_epoch != NO_LEADER_EPOCH:
            epoch, end = source.epochs.end_offset_for(last_epoch, source.end)
            if epoch == NO_LEADER_EPOCH:
                return Answered(ErrorCode.OFFSET_OUT_OF_RANGE), []
            if epoch < last_epoch or end < offset:
                return Answered(ErrorCode.NONE, diverging=EpochEnd(epoch, end)), []
        if offset > source.end:
            return Answered(ErrorCode.OFFSET_OUT_OF_RANGE), []
        records = source.records[offset : offset + most]
        event = FollowerFetched(follower, offset, Offset(0), BrokerEpoch(1), Offset(0))
        self._lead(source, leader.step(self.now_ms, event))
        return Answered(ErrorCode.NONE, leader.high_watermark, Offset(0), len(records)), records

    def _follow(
        self, replica: Replica, follower: PartitionFollower, effects: list[FollowerEffect], records: list[Record]
    ) -> None:
        for effect in effects:
            match effect:
                case RecordsWanted():
                    replica.append(records)
                    self._follow(replica, follower, follower.step(RecordsAppended(replica.end, Offset(0))), [])
                case HighWatermarkAdvanced(offset):
                    replica.high_watermark = offset
                case TruncationWanted(offset, committed):
                    assert committed == 0, "What was committed is to be cut."
                    replica.cut(offset)
                    follower.step(Truncated(replica.end, Offset(0)))
                case NewBeginning(offset):
                    raise AssertionError(f"The log begins anew at {offset}.")
                case RangeWanted():
                    source = self.replicas[follower.leader_id]
                    self._follow(replica, follower, follower.step(LeaderRange(Offset(0), source.end)), [])
                case Resting():
                    follower.step(RestOver())

    def go_on(self, _: int) -> None:
        """Nothing goes wrong for a while."""
        most = self.random.randint(1, 4)
        for _ in range(self.random.randint(1, 3)):
            self.now_ms += 10
            for broker in BROKERS:
                self.tell(broker)
                self._fetch(self.replicas[broker], most, True)

    def only_the_leader_has(self, _: int) -> None:
        """Records that nobody fetches before the next election, of which some hear late or never."""
        if self.leader < 0:
            return
        old = self.leader
        self.tell(old)
        self.produce(old)
        if self.random.random() < 0.5 and self.replicas[old].alive:
            self.replicas[old].crash()
            self._elect()
        else:
            self.prefer(self.isr[-1])
        if self.leader >= 0:
            self.tell(self.leader)
            self.produce(self.leader)

    # What holds.

    def check(self) -> None:
        self.high_watermarks_are_committed()
        self.epochs_match_the_records()
        self.equal_records_have_equal_pasts()

    def high_watermarks_are_committed(self) -> None:
        for replica in self.replicas:
            assert replica.high_watermark <= len(self.committed)
            assert replica.records[: replica.high_watermark] == self.committed[: replica.high_watermark]

    def epochs_match_the_records(self) -> None:
        for replica in self.replicas:
            for offset, (epoch, _) in enumerate(replica.records):
                assert replica.epochs.epoch_for_offset(Offset(offset)) == epoch

    def equal_records_have_equal_pasts(self) -> None:
        """Log matching: the same offset and epoch in two logs means the same prefix."""
        for one in self.replicas:
            for other in self.replicas:
                for offset in range(min(one.end, other.end) - 1, -1, -1):
                    if one.records[offset][0] == other.records[offset][0]:
                        assert one.records[: offset + 1] == other.records[: offset + 1]
                        break

    def end(self) -> None:
        """Everybody is back, hears everything, and has the same in the end, all of it committed."""
        for replica in self.replicas:
            if not replica.alive:
                replica.restart()
        if self.leader < 0 or not self.replicas[self.leader].alive:
            self._elect()
        for _ in range(60):
            for replica in self.replicas:
                self.tell(replica.id)
                self.now_ms += 10
                self._fetch(replica, 100, True)
            if self.proposals:
                replica, leader, proposal = self.proposals.pop(0)
                if (proposal.leader_epoch, proposal.partition_epoch) == (self.epoch, self.partition_epoch):
                    self.isr = tuple(member.broker_id for member in proposal.isr)
                    self.partition_epoch += 1
        leader = self.replicas[self.leader]
        assert all(replica.records == leader.records for replica in self.replicas)
        assert self.committed == leader.records
        assert sorted(self.isr) == list(BROKERS)


@pytest.mark.parametrize("block", range(10))
def test_what_is_committed_is_on_every_leader(block: int) -> None:
    """Whatever gets lost or comes late; a failure names its seed."""
    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        try:
            Partition(seed).run()
        except AssertionError as error:
            raise AssertionError(f"Partition({seed}).run(): {error}") from error
