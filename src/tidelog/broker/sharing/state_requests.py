"""What leaders and group coordinators ask share coordinators: of this broker by a call, of others by a request.

A coordinator that moves, loads or cannot be reached is asked again for a while: locks of members must not be lost with
every move.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.deferred import Deferred, gather
from tidelog.broker.shell import Purpose
from tidelog.coordinator.share_state.events import (
    DeleteState,
    InitializeState,
    ReadState,
    ShareKey,
    StateReply,
    SummarizeState,
    WriteState,
)
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.sharing.records import StateBatch

if TYPE_CHECKING:
    from tidelog.broker.coordinators.share_states import ShareStates
    from tidelog.broker.sharing.surroundings import Surroundings

RETRY_MS_MIN: Final = 50
RETRY_MS_MAX: Final = 1_000
GIVE_UP_AFTER_MS: Final = 10_000
"""How long a coordinator is looked for."""
_RETRIABLE: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
StateEvent = InitializeState | ReadState | WriteState | DeleteState | SummarizeState


def _always() -> bool:
    return True


class StateRequests:
    """The way to the share coordinators."""

    def __init__(self, node: Surroundings, states: ShareStates) -> None:
        self._node = node
        self._states = states

    def ask(self, event: StateEvent, may_ask: Callable[[], bool] = _always) -> Deferred[StateReply]:
        """The coordinator's reply to `event`, whose request id is set here; an error that it gives is a KafkaError.

        Fails with KafkaError COORDINATOR_NOT_AVAILABLE where it was not found for ten seconds, NOT_COORDINATOR where
        `may_ask`, which is called before each attempt, says no.
        """
        answer: Deferred[StateReply] = Deferred()
        self._try(event, answer, self._node.clock.monotonic_ms() + GIVE_UP_AFTER_MS, RETRY_MS_MIN, may_ask)
        return answer

    def ask_each(
        self, events: Sequence[StateEvent], may_ask: Callable[[], bool] = _always
    ) -> Deferred[list[tuple[ShareKey, StateReply | KafkaError]]]:
        """The replies to several events, errors among them; never fails with a KafkaError."""

        def one(event: StateEvent) -> Deferred[tuple[ShareKey, StateReply | KafkaError]]:
            answer: Deferred[tuple[ShareKey, StateReply | KafkaError]] = Deferred()

            def settle(outcome: Deferred[StateReply]) -> None:
                try:
                    answer.complete((event.key, outcome.result()))
                except KafkaError as error:
                    answer.complete((event.key, error))

            self.ask(event, may_ask).on_complete(settle)
            return answer

        return gather([one(event) for event in events])

    def _try(
        self,
        event: StateEvent,
        answer: Deferred[StateReply],
        deadline_ms: int,
        pause_ms: int,
        may_ask: Callable[[], bool],
    ) -> None:
        node = self._node
        if not may_ask():
            answer.fail(KafkaError(ErrorCode.NOT_COORDINATOR, "The group is coordinated elsewhere by now."))
            return

        def settle(outcome: Deferred[StateReply]) -> None:
            try:
                reply = outcome.result()
                if reply.error is not ErrorCode.NONE:
                    raise KafkaError(reply.error, reply.message or "")
            except (KafkaError, OSError) as error:
                code = error.code if isinstance(error, KafkaError) else ErrorCode.COORDINATOR_NOT_AVAILABLE
                if code not in _RETRIABLE:
                    answer.fail(error)
                elif node.clock.monotonic_ms() + pause_ms >= deadline_ms:
                    answer.fail(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)))
                else:
                    following_ms = min(2 * pause_ms, RETRY_MS_MAX)
                    node.shell.after(pause_ms, self._try, event, answer, deadline_ms, following_ms, may_ask)
            else:
                answer.complete(reply)

        self._states.ensure_topic().and_then(lambda _: self._ask_once(event)).on_complete(settle)

    def _ask_once(self, event: StateEvent) -> Deferred[StateReply]:
        node, states = self._node, self._states
        partition = states.partition_image(str(event.key))
        if partition is None or not node.metadata.image.is_live(partition.leader):
            failed: Deferred[StateReply] = Deferred()
            failed.fail(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "No broker keeps the state at the moment."))
            return failed
        if isinstance(event, InitializeState) and node.metadata.topic_name(event.key.topic_id) is None:
            # As another broker answers it: nothing would delete the state of a topic that is gone already.
            return Deferred.failed(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if partition.leader == node.broker_id:
            return states.shards.ask(str(event.key), lambda request_id: replace(event, request_id=request_id))
        request, version = _request(event)
        timeout_ms = node.config.share_coordinator_write_timeout_ms
        asked = node.shell.ask(partition.leader, Purpose.SHARE_STATE, request, version, timeout_ms)
        return asked.then(_reply)


def _request(event: StateEvent) -> tuple[Any, int]:
    """The message for another broker, and its version."""
    key = event.key
    match event:
        case InitializeState():
            initialize = messages.InitializeShareGroupStateRequest
            return initialize(
                group_id=key.group,
                topics=[
                    initialize.InitializeStateData(
                        topic_id=key.topic_id,
                        partitions=[
                            initialize.PartitionData(
                                partition=key.partition, state_epoch=event.state_epoch, start_offset=event.start_offset
                            )
                        ],
                    )
                ],
            ), 0
        case ReadState():
            read = messages.ReadShareGroupStateRequest
            data = read.PartitionData(partition=key.partition, leader_epoch=event.leader_epoch)
            return read(group_id=key.group, topics=[read.ReadStateData(topic_id=key.topic_id, partitions=[data])]), 0
        case WriteState():
            return _write_request(event), 1
        case DeleteState():
            delete = messages.DeleteShareGroupStateRequest
            gone = delete.PartitionData(partition=key.partition)
            return delete(
                group_id=key.group, topics=[delete.DeleteStateData(topic_id=key.topic_id, partitions=[gone])]
            ), 0
        case SummarizeState():
            summary = messages.ReadShareGroupStateSummaryRequest
            told = summary.PartitionData(partition=key.partition, leader_epoch=-1)
            return summary(
                group_id=key.group, topics=[summary.ReadStateSummaryData(topic_id=key.topic_id, partitions=[told])]
            ), 1


def _write_request(event: WriteState) -> messages.WriteShareGroupStateRequest:
    write = messages.WriteShareGroupStateRequest
    return write(
        group_id=event.key.group,
        topics=[
            write.WriteStateData(
                topic_id=event.key.topic_id,
                partitions=[
                    write.PartitionData(
                        partition=event.key.partition,
                        state_epoch=event.state_epoch,
                        leader_epoch=event.leader_epoch,
                        start_offset=event.start_offset,
                        delivery_complete_count=event.delivery_complete_count,
                        state_batches=[
                            write.StateBatch(
                                first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
                            )
                            for first, last, state, count in event.batches
                        ],
                    )
                ],
            )
        ],
    )


def _reply(response: Any) -> StateReply:
    """What another broker answered about the one partition."""
    results = [partition for topic in response.results for partition in topic.partitions]
    if len(results) != 1:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The answer is about another partition.")
    found = results[0]
    return StateReply(
        ErrorCode(found.error_code),
        found.error_message,
        getattr(found, "state_epoch", 0),
        getattr(found, "leader_epoch", 0),
        getattr(found, "start_offset", 0),
        state_batches(getattr(found, "state_batches", ())),
        getattr(found, "delivery_complete_count", -1),
    )


def state_batches(told: Sequence[Any]) -> list[StateBatch]:
    """Batches of a message."""
    return [StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in told]
