"""A leader of one partition with followers that a test plays."""

from tidelog.model.identifiers import BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionEpoch
from tidelog.replication.events import (
    Appended,
    Effect,
    FollowerFetched,
    FollowerStartMoved,
    IsrCommitted,
    IsrProposed,
    ProposalCommitted,
)
from tidelog.replication.leader import PartitionLeader
from tidelog.replication.progress import FetchTimes

LAG_MS = 30_000


class Led:
    """Broker 0 leads in epoch 3; time is a number that the test moves."""

    def __init__(
        self,
        replicas: tuple[int, ...] = (0,),
        isr: tuple[int, ...] | None = None,
        *,
        log_end: int = 0,
        flushed_end: int = 0,
        high_watermark: int = 0,
        flush: bool = False,
        min_isr: int = 1,
        adding: tuple[int, ...] = (),
    ) -> None:
        self.now_ms = 1_000_000
        self.dead: set[int] = set()
        self.start_moved = False
        """Whether the last fetch had news of the follower's first offset."""
        self.leader = PartitionLeader(
            broker_id=BrokerId(0),
            leader_epoch=LeaderEpoch(3),
            partition_epoch=PartitionEpoch(1),
            replicas=tuple(map(BrokerId, replicas)),
            isr=tuple(map(BrokerId, replicas if isr is None else isr)),
            log_end=Offset(log_end),
            flushed_end=Offset(flushed_end),
            high_watermark=Offset(high_watermark),
            flush_before_acknowledge=flush,
            min_insync_replicas=min_isr,
            lag_ms_max=LAG_MS,
            is_live=lambda broker_id: broker_id not in self.dead,
            now_ms=self.now_ms,
            adding=tuple(map(BrokerId, adding)),
        )

    @property
    def high_watermark(self) -> int:
        return self.leader.high_watermark

    @property
    def proposed(self) -> list[int] | None:
        """The ISR that is proposed; None while none is."""
        proposal = self.leader.proposal
        return None if proposal is None else [member.broker_id for member in proposal.isr]

    def begin(self) -> list[Effect]:
        return self.leader.begin(self.now_ms)

    def step(self, event: object) -> list[Effect]:
        return self.leader.step(self.now_ms, event)  # type: ignore[arg-type]

    def append(self, log_end: int) -> list[Effect]:
        return self.step(Appended(Offset(log_end)))

    def fetch(
        self,
        follower: int,
        offset: int,
        *,
        start: int = 0,
        epoch: int = 5,
        times: FetchTimes | None = None,
        leader_start: int = 0,
    ) -> list[Effect]:
        """A follower's fetch, read; `epoch` is its broker epoch. The effects, but for the news of first offsets."""
        ids = BrokerId(follower), Offset(offset), Offset(start), BrokerEpoch(epoch)
        effects = self.step(FollowerFetched(*ids, Offset(leader_start), times))
        self.start_moved = any(isinstance(effect, FollowerStartMoved) for effect in effects)
        return [effect for effect in effects if not isinstance(effect, FollowerStartMoved)]

    def commit(self, isr: list[int] | None = None, partition_epoch: int | None = None) -> list[Effect]:
        """The controller agrees to what is proposed, or answers with `isr`."""
        proposal = self.leader.proposal
        assert isinstance(proposal, IsrProposed)
        ids = [member.broker_id for member in proposal.isr] if isr is None else isr
        epoch = self.leader.partition_epoch + 1 if partition_epoch is None else partition_epoch
        return self.step(ProposalCommitted(proposal, tuple(map(BrokerId, ids)), PartitionEpoch(epoch)))

    def order(
        self, isr: tuple[int, ...], partition_epoch: int, replicas: tuple[int, ...] = (), adding: tuple[int, ...] = ()
    ) -> list[Effect]:
        """LeaderAndIsr within the leader epoch."""
        ids = [tuple(map(BrokerId, each)) for each in (isr, replicas, adding)]
        return self.step(IsrCommitted(ids[0], PartitionEpoch(partition_epoch), ids[1], ids[2]))
