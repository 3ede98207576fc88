"""The algorithms of before, each to be put in the place of today's for the length of a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidelog.broker.coordinators.loading import Loading
from tidelog.broker.deferred import Deferred
from tidelog.broker.replicas.replica_manager import ReplicaManager
from tidelog.broker.replicas.transactional_appends import TransactionalAppends
from tidelog.coordinator.transactions.coordinator import TransactionCoordinator
from tidelog.coordinator.transactions.events import InitProducer, ProducerIdentity, TransactionResult
from tidelog.coordinator.transactions.records import record_of
from tidelog.coordinator.transactions.states import TransactionState
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import NO_LEADER_EPOCH, Offset, ProducerEpoch, TopicPartition
from tidelog.replication.follower import PartitionFollower
from tidelog.replication.follower_events import EpochEnd, FetchPosition
from tidelog.replication.leader import PartitionLeader
from tidelog.storage.log import Log
from tidelog.storage.producer_state import AppendOrigin, ProducerState


def truncation_by_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """Before KIP-101: who begins to follow cuts its log to its own high watermark, and compares nothing."""
    begin = Log.begin_following

    def cut(log: Log) -> None:
        begin(log)
        if log.high_watermark < log.log_end_offset:
            log.truncate_to(log.high_watermark)

    patch.setattr(Log, "begin_following", cut)
    _never_name_an_epoch_after(patch, lambda follower: True)


def one_question_without_an_epoch_in_the_answer(patch: pytest.MonkeyPatch) -> None:
    """KIP-101 before KIP-279: asked where an epoch ends that it does not know, a leader names an offset, no epoch.

    The follower believes it, cuts there, and asks no more.
    """
    asked: list[PartitionFollower] = []

    def believe(follower: PartitionFollower, leader: EpochEnd) -> Offset:
        asked.append(follower)
        return leader.end_offset

    patch.setattr(PartitionFollower, "_truncation_point", believe)
    _never_name_an_epoch_after(patch, lambda follower: any(follower is one for one in asked))


def producers_go_with_their_records(patch: pytest.MonkeyPatch) -> None:
    """Before KIP-360: when the last record of a producer is deleted, the broker forgets the producer."""
    set_start = Log._set_start

    def forget(log: Log, offset: int) -> None:
        set_start(log, offset)
        for producer_id, entry in list(log.producers.entries.items()):
            if all(batch.last_offset < offset for batch in entry.batches):
                del log.producers.entries[producer_id]

    patch.setattr(Log, "_set_start", forget)


def commits_below_min_insync_replicas(patch: pytest.MonkeyPatch) -> None:
    """Before Kafka 3.7: the high watermark follows the ISR, however small it is."""
    patch.setattr(PartitionLeader, "has_enough_replicas", property(lambda leader: True))


def coordinators_answer_when_appended(patch: pytest.MonkeyPatch) -> None:
    """Offsets acknowledged as with acks=1: when the leader has them."""

    def append(
        manager: ReplicaManager, topic_partition: TopicPartition, data: bytes, timeout_ms: int, **transaction: Any
    ) -> Deferred[Any]:
        replica = manager.leader(topic_partition)
        return Deferred.of(manager.append(replica, data, required_acks=1, origin=AppendOrigin.COORDINATOR))

    patch.setattr(ReplicaManager, "append_and_wait", append)


def coordinators_answer_when_loaded(patch: pytest.MonkeyPatch) -> None:
    """A new coordinator takes all that it has read for committed."""

    def try_complete(loading: Loading) -> bool:
        loading._ended(loading._shard, None)
        return True

    patch.setattr(Loading, "try_complete", try_complete)


def what_was_begun_is_inherited(patch: pytest.MonkeyPatch) -> None:
    """A coordinator that fences the producer before, and does not abort what that one had begun."""
    initialize = TransactionCoordinator._initialize

    def inherited(coordinator: TransactionCoordinator, event: InitProducer, result: TransactionResult) -> Any:
        known = coordinator._transactions.get(event.transactional_id)
        if known is None or known.state is not TransactionState.ONGOING:
            return initialize(coordinator, event, result)
        raised = replace(known, producer_epoch=ProducerEpoch(known.producer_epoch + 1))
        result.writes.append(record_of(event.transactional_id, raised))
        return ProducerIdentity(ErrorCode.NONE, raised.producer_id, raised.producer_epoch)

    patch.setattr(TransactionCoordinator, "_initialize", inherited)


def markers_of_any_coordinator(patch: pytest.MonkeyPatch) -> None:
    """Before KIP-98: a leader does not remember whose markers it has written."""
    prepare = ProducerState._prepare_marker

    def forgetful(states: ProducerState, update: Any, entry: Any, *arguments: Any) -> None:
        entry.coordinator_epoch = -1
        prepare(states, update, entry, *arguments)

    patch.setattr(ProducerState, "_prepare_marker", forgetful)


def transactions_begin_unasked(patch: pytest.MonkeyPatch) -> None:
    """Before KIP-890: whoever sends a transactional batch begins a transaction with it."""
    patch.setattr(TransactionalAppends, "_verifies", lambda appends, asked: False)


def _never_name_an_epoch_after(patch: pytest.MonkeyPatch, is_blind: Any) -> None:
    position = PartitionFollower.position

    def without_epoch(follower: PartitionFollower) -> FetchPosition | None:
        found = position(follower)
        return found._replace(last_fetched_epoch=NO_LEADER_EPOCH) if found is not None and is_blind(follower) else found

    patch.setattr(PartitionFollower, "position", without_epoch)
