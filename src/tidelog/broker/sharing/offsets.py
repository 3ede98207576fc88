"""Stored state of share groups as their coordinators see to it: made for new partitions, shown, altered and deleted.

The group's record says first what is about to be made or deleted, then the share coordinators do it, then the record
says that it is done: what a crash leaves half done is tried again by the next heartbeat, or the next question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.deferred import Deferred, gather
from tidelog.broker.sharing.state_requests import GIVE_UP_AFTER_MS, StateEvent, StateRequests
from tidelog.coordinator.groups.consumer.member import NO_PARTITIONS, Partitions
from tidelog.coordinator.groups.share.events import (
    UNCONFIRMED_EPOCH,
    PrepareDeletion,
    PreparedOffsets,
    PrepareOffsets,
    ShareGroupPartitions,
    ShareHeartbeat,
    ShareHeartbeatReply,
    StateDeleted,
    StateInitialized,
    StoredPartitions,
)
from tidelog.coordinator.share_state.events import (
    UNINITIALIZED_START,
    DeleteState,
    InitializeState,
    ShareKey,
    StateReply,
    SummarizeState,
)
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId

if TYPE_CHECKING:
    from tidelog.broker.sharing.surroundings import Surroundings

TELL_AGAIN_MS: Final = 200
"""Between two attempts to write down that state is made, or gone."""
Outcome = StateReply | KafkaError
ByKey = dict[ShareKey, Outcome]


class ShareOffsets:
    """For the groups that this broker coordinates. Deferreds fail as `Groups.ask` does."""

    def __init__(self, node: Surroundings, requests: StateRequests) -> None:
        self._node = node
        self._requests = requests

    def heartbeat(self, group: str, make: Callable[[int], ShareHeartbeat]) -> Deferred[ShareHeartbeatReply]:
        """The coordinator's reply; state that it wants is made behind it."""

        def look(reply: ShareHeartbeatReply) -> ShareHeartbeatReply:
            if reply.to_initialize:
                starts = {
                    (topic_id, partition): UNINITIALIZED_START
                    for topic_id, partitions in reply.to_initialize.items()
                    for partition in partitions
                }
                self._initialize(group, starts, reply.state_epoch)
            if reply.to_confirm:
                self._confirm(group, reply.to_confirm)
            return reply

        return self._node.groups.ask(group, make).then(look)

    def _initialize(
        self,
        group: str,
        starts: Mapping[tuple[TopicId, int], int],
        state_epoch: int,
        initialized: Partitions = NO_PARTITIONS,
    ) -> Deferred[ByKey]:
        """Has state made that begins at these offsets, and tells the group's coordinator of what there is.

        `initialized`: partitions that have state: where it cannot be made anew, it stays as it is.
        """
        wall_ms = self._node.clock.wall_ms()
        events: list[StateEvent] = [
            InitializeState(0, ShareKey(group, topic_id, partition), state_epoch, offset, wall_ms)
            for (topic_id, partition), offset in starts.items()
        ]

        def tell(outcomes: list[tuple[ShareKey, Outcome]]) -> Deferred[ByKey]:
            there = {
                key
                for key, outcome in outcomes
                if _is_there(outcome, starts[key.topic_id, key.partition])
                or key.partition in initialized.get(key.topic_id, ())
            }
            made, failed = _by_topic(there), _by_topic(key for key, _ in outcomes if key not in there)
            told: Deferred[ByKey] = Deferred()

            def settle(outcome: Deferred[Any]) -> None:
                try:
                    outcome.result()
                except KafkaError as error:
                    # Another coordinator, or this one when it has loaded its state anew, has the state made anew.
                    told.complete({key: reply if isinstance(reply, KafkaError) else error for key, reply in outcomes})
                else:
                    told.complete(dict(outcomes))

            self._tell(
                group, lambda request_id: StateInitialized(request_id, group, made, state_epoch, failed)
            ).on_complete(settle)
            return told

        return self._requests.ask_each(events).and_then(tell)

    def _confirm(self, group: str, partitions: Partitions) -> None:
        """Has state made where there is none, though the group's record says so; tells the group of what has failed."""
        wall_ms = self._node.clock.wall_ms()
        events: list[StateEvent] = [
            InitializeState(0, ShareKey(group, topic_id, each), UNCONFIRMED_EPOCH, UNINITIALIZED_START, wall_ms)
            for topic_id, some in sorted(partitions.items())
            for each in sorted(some)
        ]

        def tell(outcomes: list[tuple[ShareKey, Outcome]]) -> None:
            failed = _by_topic(key for key, outcome in outcomes if not _is_there(outcome, UNINITIALIZED_START))
            if failed:
                self._tell(
                    group,
                    lambda request_id: StateInitialized(request_id, group, NO_PARTITIONS, UNCONFIRMED_EPOCH, failed),
                )

        self._requests.ask_each(events).on_complete(lambda outcome: tell(outcome.result()))

    def _tell(self, group: str, make: Callable[[int], StateInitialized | StateDeleted]) -> Deferred[Any]:
        """Tells the group's coordinator, again for a while where it cannot write or load just now."""
        told: Deferred[Any] = Deferred()
        deadline_ms = self._node.clock.monotonic_ms() + GIVE_UP_AFTER_MS

        def attempt() -> None:
            self._node.groups.ask(group, make).on_complete(settle)

        def settle(outcome: Deferred[Any]) -> None:
            try:
                told.complete(outcome.result())
            except KafkaError as error:
                is_late = self._node.clock.monotonic_ms() >= deadline_ms
                if is_late or not error.code.retriable or error.code is ErrorCode.NOT_COORDINATOR:
                    told.fail(error)
                else:
                    self._node.shell.after(TELL_AGAIN_MS, attempt)

        attempt()
        return told

    # For tools.

    def stored(self, group: str) -> Deferred[StoredPartitions]:
        """Which partitions the group has state of."""
        return self._node.groups.ask(group, lambda request_id: ShareGroupPartitions(request_id, group))

    def summaries(self, group: str, places: Iterable[tuple[TopicId, int]]) -> Deferred[ByKey]:
        """What is stored of these partitions; never fails with a KafkaError."""
        events: list[StateEvent] = [SummarizeState(0, ShareKey(group, *place)) for place in places]
        return self._requests.ask_each(events).then(dict)

    def alter(self, group: str, starts: Mapping[tuple[TopicId, int], int]) -> Deferred[ByKey]:
        """The group begins anew at these offsets; fails with NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
        partitions = _by_topic(ShareKey(group, *place) for place in starts)

        def prepared(reply: PreparedOffsets) -> Deferred[ByKey]:
            if reply.error is not ErrorCode.NONE:
                raise KafkaError(reply.error, reply.message or "")
            return self._initialize(group, starts, reply.state_epoch, reply.initialized)

        asked = self._node.groups.ask(group, lambda request_id: PrepareOffsets(request_id, group, partitions))
        return asked.and_then(prepared)

    def delete(self, group: str, topics: Sequence[TopicId]) -> Deferred[dict[TopicId, KafkaError | None]]:
        """[topic] -> why its state was not deleted, None: it is gone; topics without any are left out.

        Fails with NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND.
        """

        def prepared(reply: StoredPartitions) -> Deferred[dict[TopicId, KafkaError | None]]:
            if reply.error is not ErrorCode.NONE:
                raise KafkaError(reply.error, reply.message or "")
            return self._delete(group, reply.partitions)

        asked = self._node.groups.ask(group, lambda request_id: PrepareDeletion(request_id, group, topics))
        return asked.and_then(prepared)

    def _delete(self, group: str, partitions: Partitions) -> Deferred[dict[TopicId, KafkaError | None]]:
        """Deletes state, and tells the group's coordinator of what is gone.

        As long as that is the one by which the deletion was begun: another one may have had state made for new members.
        """
        shards = self._node.groups.shards
        coordinator = shards.ready(shards.partition_of(group))
        events: list[StateEvent] = [
            DeleteState(0, ShareKey(group, topic_id, partition))
            for topic_id, each in sorted(partitions.items())
            for partition in sorted(each)
        ]

        def tell(outcomes: list[tuple[ShareKey, Outcome]]) -> Deferred[dict[TopicId, KafkaError | None]]:
            errors: dict[TopicId, KafkaError | None] = dict.fromkeys(partitions)
            for key, outcome in outcomes:
                if isinstance(outcome, KafkaError):
                    errors[key.topic_id] = outcome
            gone = [topic_id for topic_id, error in errors.items() if error is None]
            failed = [topic_id for topic_id, error in errors.items() if error is not None]
            told: Deferred[dict[TopicId, KafkaError | None]] = Deferred()
            self._tell(group, lambda request_id: StateDeleted(request_id, group, gone, failed)).on_complete(
                lambda _: told.complete(errors)
            )
            return told

        return self._requests.ask_each(events, lambda: coordinator.is_current).and_then(tell)

    def forget_groups(self, groups: Sequence[str]) -> Deferred[dict[str, KafkaError]]:
        """Deletes the state of those of the groups that are share groups without members, before these are deleted.

        [group] -> why that failed; never fails itself.
        """

        def one(group: str) -> Deferred[KafkaError | None]:
            answer: Deferred[KafkaError | None] = Deferred()

            def deleted(outcome: Deferred[dict[TopicId, KafkaError | None]]) -> None:
                try:
                    errors = [error for error in outcome.result().values() if error is not None]
                except KafkaError as error:
                    errors = [error]
                answer.complete(errors[0] if errors else None)

            def found(outcome: Deferred[StoredPartitions]) -> None:
                try:
                    stored = outcome.result()
                except KafkaError as error:
                    answer.complete(error)
                    return
                topics = [*stored.partitions, *stored.deleting]
                if stored.error is not ErrorCode.NONE or not stored.is_empty or not topics:
                    answer.complete(None)
                else:
                    self.delete(group, topics).on_complete(deleted)

            self.stored(group).on_complete(found)
            return answer

        return gather([one(group) for group in groups]).then(
            lambda errors: {group: error for group, error in zip(groups, errors, strict=True) if error is not None}
        )


def _is_there(outcome: Outcome, start: int) -> bool:
    """Whether the partition has state, as far as `start` asks for more than that.

    State of a later epoch, which fences the request, is either what this group has asked for since, of which its
    coordinator knows, or was asked for by a former group of the name and made when that was gone. To ask again could
    not get past it.
    """
    if isinstance(outcome, StateReply):
        return True
    return outcome.code is ErrorCode.FENCED_STATE_EPOCH and start == UNINITIALIZED_START


def _by_topic(keys: Iterable[ShareKey]) -> Partitions:
    found: dict[TopicId, frozenset[int]] = {}
    for key in keys:
        found[key.topic_id] = found.get(key.topic_id, frozenset()) | {key.partition}
    return found
