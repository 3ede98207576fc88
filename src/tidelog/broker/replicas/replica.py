"""One partition on this broker: its log, and the state of leading or following it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from tidelog.broker.replicas.delayed_produce import DelayedAppends
from tidelog.broker.replicas.refusals import Refusals
from tidelog.metrics.traffic import Traffic
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import NO_LEADER, NO_LEADER_EPOCH, ZERO_TOPIC_ID, Offset, PartitionEpoch, TopicId

if TYPE_CHECKING:
    from tidelog.ports.disk import Bytes
    from tidelog.replication.leader import PartitionLeader
    from tidelog.storage.log import Log


class Watcher(Protocol):
    """A follower's fetch session, as far as it has the partition."""

    log_start_offset: int
    """The log's first offset as the follower was last told; -1 for not at all."""

    def mark(self, *, urgent: bool) -> None:
        """The replica has changed; `urgent`: the follower is to know at once, for there are records, or an error."""
        ...

    def look_again(self) -> None:
        """The replica's ISR has changed: the next request looks at what that means for the follower."""
        ...


_NO_WATCHERS: Final[list[Watcher]] = []


class Replica:
    """One partition on this broker. It is itself the purgatory's key for whatever waits for it."""

    __slots__ = (
        "answers",
        "delayed_appends",
        "is_being_added",
        "known_high_watermark",
        "leader",
        "leader_epoch",
        "leader_id",
        "log",
        "partition_epoch",
        "refusals",
        "removed",
        "topic_partition",
        "traffic",
        "watchers",
    )

    def __init__(self, log: Log) -> None:
        self.topic_partition = log.topic_partition
        self.log = log
        self.leader: PartitionLeader | None = None
        """The state of this broker's leadership; None while it does not lead."""
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_LEADER_EPOCH
        self.partition_epoch = PartitionEpoch(-1)
        self.known_high_watermark = log.high_watermark
        """As checkpointed, or as of the last leadership; the leader's own counts while it leads."""
        self.removed = False
        """Whether the controller took the partition away; requests that still wait for it get an error."""
        self.is_being_added = False
        """Whether a reassignment is adding this replica, by the controller's last order."""
        self.answers: dict[int, Any] | None = None
        """What Produce's fast path keeps, by version; None while there is nothing: most replicas are idle."""
        self.refusals: Refusals | None = None
        """Batches that were refused for a while; None while there are none."""
        self.delayed_appends: DelayedAppends | None = None
        """Appends that wait to be acknowledged; None before the first."""
        self.traffic = Traffic()
        """Its topic's counts, once the replica is the manager's."""
        self.watchers = _NO_WATCHERS
        """Followers' fetch sessions, which are told of changes; replaced, never added to."""

    @property
    def high_watermark(self) -> Offset:
        """Everything below is committed."""
        return self.known_high_watermark if self.leader is None else self.leader.high_watermark

    def end_leadership(self) -> None:
        """This broker leads no more. What it committed stays known: a request may still be reading."""
        self.known_high_watermark = self.high_watermark
        self.leader = None

    @property
    def last_stable_offset(self) -> Offset:
        """Where read_committed ends: the first open transaction, or the high watermark."""
        return self.log.last_stable_offset

    @property
    def topic_id(self) -> TopicId:
        return self.log.topic_id or ZERO_TOPIC_ID

    def delayed(self) -> DelayedAppends:
        """Where appends wait that `ReplicaManager.acknowledged` denies."""
        if self.delayed_appends is None:
            self.delayed_appends = DelayedAppends()
        return self.delayed_appends

    # Batches that were refused for a while.

    def check_refusals(self, data: Bytes, now_ms: int) -> None:
        """Before an append: KafkaError of an earlier refusal, if the batch was sent behind the refused one."""
        if self.refusals is not None:
            self.refusals.check(data, now_ms, self.log.producers.entries)
            if not self.refusals:
                self.refusals = None

    def note_refusal(self, producer_id: int, producer_epoch: int, sequence: int, code: ErrorCode, now_ms: int) -> None:
        """A producer's batch was refused with `code`, or has been taken out of the log again."""
        if self.refusals is None:
            self.refusals = Refusals()
        self.refusals.note(producer_id, producer_epoch, sequence, code, now_ms)

    def note_truncation(self, offset: int, now_ms: int) -> None:
        """A follower's log is cut at `offset`: nothing of that was acknowledged with acks=all, and its producers are
        about to send it again."""
        for entry in self.log.producers.entries.values():
            gone = next((batch for batch in entry.batches if batch.last_offset >= offset), None)
            if gone is not None:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                self.note_refusal(entry.producer_id, entry.producer_epoch, gone.first_sequence, code, now_ms)


def check_leader_epoch(replica: Replica, current_leader_epoch: int) -> None:
    """KafkaError FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH where a client knows another epoch (KIP-320)."""
    if current_leader_epoch < 0 or current_leader_epoch == replica.leader_epoch:
        return
    if current_leader_epoch < replica.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"The leader epoch is {replica.leader_epoch} by now.")
    raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"The newest leader epoch known here is {replica.leader_epoch}.")
