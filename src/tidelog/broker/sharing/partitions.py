"""The share partitions led by this broker: loaded from what is stored, changed by members; a change is
in force once it is written.

    find --> loading (ReadState) --> SharePartition <-- acquire, acknowledge, release, locks that end
                                          | Change
                                          v
                           one write at a time (WriteState) --> written | failed --> answers, waiting fetches

A share partition becomes void when the leadership ends under which it was loaded, or another leader has fenced it: the
next request loads it anew, and earlier locks are gone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tidelog.broker.deferred import Deferred
from tidelog.broker.shell import InDirectories
from tidelog.config import group_config
from tidelog.config.group_config import GroupLimits
from tidelog.config.share_offset_reset import BY_DURATION, parse_reset
from tidelog.coordinator.share_state.events import UNINITIALIZED_START, ReadState, ShareKey, StateReply, WriteState
from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import LeaderEpoch, Offset, TopicId, TopicPartition
from tidelog.sharing.partition import SharePartition
from tidelog.sharing.records import StateBatch
from tidelog.sharing.runs import Change
from tidelog.sharing.settings import EARLIEST, ShareSettings
from tidelog.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.replicas.replica import Replica
    from tidelog.broker.sharing.state_requests import StateRequests
    from tidelog.broker.sharing.surroundings import Surroundings
    from tidelog.broker.shell import Timer

logger: Final = logging.getLogger(__name__)

SETTINGS_KEPT_MAX: Final = 1_000
"""Groups whose settings are kept ready: clients name groups as they like."""
_TOLD: Final = {
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.INVALID_REQUEST: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What members are told where a share coordinator has answered otherwise."""
_TRANSIENT: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE})
"""After which the share partition goes on; after any other error of a write it is void."""


class LedSharePartition:
    """One share partition under one leadership. It is itself the purgatory's key for fetches that wait for it."""

    __slots__ = (
        "_answers",
        "_changes",
        "_is_writing",
        "_node",
        "_requests",
        "_timer",
        "_timer_due_ms",
        "bytes_per_record",
        "error",
        "is_reading",
        "is_void",
        "key",
        "leader_epoch",
        "loaded",
        "machine",
        "nothing_at",
        "replica",
        "state_epoch",
    )

    def __init__(self, node: Surroundings, requests: StateRequests, key: ShareKey, replica: Replica) -> None:
        self._node = node
        self._requests = requests
        self.key = key
        self.replica = replica
        self.leader_epoch = replica.leader_epoch
        self.machine: SharePartition | None = None
        """None while it is loading, or could not be loaded."""
        self.state_epoch = 0
        self.error: KafkaError | None = None
        """Why it could not be loaded."""
        self.loaded: Deferred[None] = Deferred()
        """Completes when it is loaded, or void; never fails."""
        self.is_reading = False
        """Whether a fetch reads records that it is about to acquire: no other one may meanwhile."""
        self.is_void = False
        self.bytes_per_record = 0.0
        """Of what was read last."""
        self.nothing_at: tuple[int, int] | None = None
        """(offset, limit) of a read that gave no batch: compaction may leave a gap at the end of a log. To read the
        same again would give no more before the limit moves."""
        self._changes: list[Change] = []
        """To be written next."""
        self._answers: list[Deferred[None]] = []
        self._is_writing = False
        self._timer: Timer | None = None
        self._timer_due_ms = 0

    @property
    def is_current(self) -> bool:
        """Whether it is still the share partition of this leadership."""
        replica = self.replica
        return (
            not self.is_void
            and replica.leader is not None
            and replica.leader_epoch == self.leader_epoch
            and not replica.removed
            and not replica.log.is_offline
        )

    @property
    def is_quiet(self) -> bool:
        """Whether nothing would be lost by loading it anew: what it knows is stored."""
        machine = self.machine
        return machine is not None and not (self._is_writing or self._changes or self.is_reading or machine.has_locks)

    def limit(self, settings: ShareSettings) -> int:
        """Records below this offset may be delivered."""
        replica = self.replica
        return replica.last_stable_offset if settings.read_committed else replica.high_watermark

    # Loading.

    def load(self, settings: Callable[[], ShareSettings]) -> None:
        """Takes the share partition over from its former leader.

        `settings()`: the group's, which may be altered meanwhile.
        """
        node = self._node
        event = ReadState(0, self.key, self.leader_epoch, node.clock.wall_ms())

        def settle(outcome: Deferred[StateReply]) -> None:
            try:
                reply = outcome.result()
            except KafkaError as error:
                self._failed(error)
                return
            if reply.start_offset != UNINITIALIZED_START:
                self._begin(reply, reply.start_offset, settings())
            else:
                self._resolve_start(reply, settings)

        self._requests.ask(event).on_complete(settle)

    def _resolve_start(self, reply: StateReply, settings: Callable[[], ShareSettings]) -> None:
        """Begins where the group's setting says.

        But for the log's start, that is another offset each time it is asked for. So it is stored before a record is
        given out: otherwise the next leader passes over what was delivered, and not acknowledged.
        """
        known = settings()
        log, limit = self.replica.log, self.limit(known)
        if known.auto_offset_reset == EARLIEST:
            self._begin(reply, log.log_start_offset, known)
        elif known.auto_offset_reset != BY_DURATION:
            self._store_start(reply, limit, settings)
        else:
            since_ms = self._node.clock.wall_ms() - known.reset_duration_ms

            def found(outcome: Deferred[tuple[int, Offset, LeaderEpoch] | None]) -> None:
                try:
                    record = outcome.result()
                except (KafkaError, StorageError) as error:
                    self._failed(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
                    return
                self._store_start(reply, limit if record is None else record[1], settings)

            look_up = InDirectories((log.owner.path,), lambda: log.offset_for_timestamp(since_ms, up_to_offset=limit))
            self._node.shell.in_pool(look_up).on_complete(found)

    def _store_start(self, reply: StateReply, start_offset: int, settings: Callable[[], ShareSettings]) -> None:
        now_ms = self._node.clock.wall_ms()
        event = WriteState(0, self.key, reply.state_epoch, self.leader_epoch, start_offset, [], now_ms, 0)

        def settle(outcome: Deferred[StateReply]) -> None:
            try:
                outcome.result()
            except KafkaError as error:
                if error.code is ErrorCode.FENCED_STATE_EPOCH:
                    # The group began anew between the two questions.
                    self.load(settings)
                else:
                    self._failed(error)
            else:
                self._begin(reply, start_offset, settings())

        self._requests.ask(event).on_complete(settle)

    def _begin(self, reply: StateReply, start_offset: int, settings: ShareSettings) -> None:
        self.state_epoch = reply.state_epoch
        self.machine = SharePartition(start_offset, reply.batches, settings)
        self.machine.start_moved(self.replica.log.log_start_offset)
        logger.info(
            "share_partition_loaded: key=%s leader_epoch=%d state_epoch=%d start_offset=%d batches=%d",
            self.key,
            self.leader_epoch,
            self.state_epoch,
            self.machine.start_offset,
            len(reply.batches),
        )
        self.loaded.complete(None)
        self._node.purgatory.check(self)

    def _failed(self, error: KafkaError) -> None:
        self.error = _told(error)
        self.is_void = True
        self.loaded.complete(None)
        self._node.purgatory.check(self)

    # Writing.

    def store(self, change: Change) -> Deferred[None]:
        """Writes a change of the machine; completes when it is stored, fails with KafkaError where it is not."""
        answer: Deferred[None] = Deferred()
        if not change.runs:
            answer.complete(None)
            return answer
        self._changes.append(change)
        self._answers.append(answer)
        if not self._is_writing:
            self._write_next()
        return answer

    def _write_next(self) -> None:
        """Writes all that has gathered, as one."""
        machine, node = self.machine, self._node
        assert machine is not None
        changes, answers = self._changes, self._answers
        if not changes:
            return
        self._changes, self._answers = [], []
        self._is_writing = True
        batches: list[StateBatch] = sorted(batch for change in changes for batch in change.batches())
        event = WriteState(
            0,
            self.key,
            self.state_epoch,
            self.leader_epoch,
            machine.start_offset,
            batches,
            node.clock.wall_ms(),
            machine.delivery_complete_count,
        )

        def settle(outcome: Deferred[StateReply]) -> None:
            self._is_writing = False
            error: KafkaError | None = None
            try:
                outcome.result()
            except KafkaError as failure:
                error = _told(failure)
                if failure.code not in _TRANSIENT:
                    logger.warning("share_partition_void: key=%s error=%s", self.key, failure.code.name)
                    self.is_void = True
                    # It is loaded anew before what waits could be written, and would not know of that.
                    changes.extend(self._changes)
                    answers.extend(self._answers)
                    self._changes, self._answers = [], []
            for change in changes:
                if error is None:
                    machine.written(change)
                else:
                    machine.failed(node.clock.monotonic_ms(), change)
            for answer in answers:
                if error is None:
                    answer.complete(None)
                else:
                    answer.fail(error)
            self._write_next()
            self.arm()
            node.purgatory.check(self)

        self._requests.ask(event).on_complete(settle)

    # Time.

    def arm(self) -> None:
        """One timer, for the lock that ends first."""
        machine = self.machine
        due_ms = None if machine is None else machine.next_due_ms
        if due_ms is None or (self._timer is not None and self._timer_due_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = due_ms
        delay_ms = max(due_ms - self._node.clock.monotonic_ms(), 0)
        self._timer = self._node.shell.after(delay_ms, self._time_passed)

    def _time_passed(self) -> None:
        self._timer = None
        if not self.is_current or self.machine is None:
            return
        change = self.machine.time_passed(self._node.clock.monotonic_ms())
        if change.runs:
            count = sum(run.length for run in change.runs)
            logger.info("share_locks_timed_out: key=%s records=%d", self.key, count)
        self._store_unasked(change)
        self.arm()

    def release(self, member: str) -> Deferred[None]:
        """The member's session has ended: what it holds is free. Never fails."""
        done: Deferred[None] = Deferred()
        if self.machine is None or not self.is_current:
            done.complete(None)
            return done
        self._store_unasked(self.machine.release(member)).on_complete(lambda _: done.complete(None))
        return done

    def _store_unasked(self, change: Change) -> Deferred[None]:
        """As `store`, for what no member waits for: what is not written is tried again when the locks end."""
        stored = self.store(change)

        def look(outcome: Deferred[None]) -> None:
            try:
                outcome.result()
            except KafkaError as error:
                logger.warning("share_state_not_written: key=%s error=%s", self.key, error.code.name)

        stored.on_complete(look)
        return stored

    def close(self) -> None:
        """It is void: fetches that wait look again."""
        self.is_void = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._node.purgatory.check(self)


class SharePartitions:
    """The share partitions led here, by group and partition."""

    def __init__(self, node: Surroundings, requests: StateRequests) -> None:
        self._node = node
        self._requests = requests
        self._led: dict[ShareKey, LedSharePartition] = {}
        self._settings: dict[str, ShareSettings] = {}
        """[group] -> as read last, SETTINGS_KEPT_MAX of them; forgotten when settings change."""

    def __iter__(self) -> Iterator[LedSharePartition]:
        return iter(list(self._led.values()))

    def find(self, group: str, topic_id: TopicId, replica: Replica) -> LedSharePartition:
        """The share partition of a partition that this broker leads; loads it where it was not here yet."""
        key = ShareKey(group, topic_id, replica.topic_partition.partition)
        known = self._led.get(key)
        if known is not None and known.is_current and known.replica is replica:
            return known
        if known is not None:
            known.close()
        found = self._led[key] = LedSharePartition(self._node, self._requests, key, replica)
        found.load(lambda: self.settings(group))
        found.loaded.on_complete(lambda _: self._forget_failed(found))
        return found

    def _forget_failed(self, led: LedSharePartition) -> None:
        """The next request tries to load it again; a client that makes up groups must not fill the memory."""
        if led.error is not None and self._led.get(led.key) is led:
            del self._led[led.key]

    def forget_quiet(self, group: str, places: Iterable[tuple[TopicId, int]] | None = None) -> None:
        """Drops share partitions of which all is stored; the next request loads them.

        For a group without members, whose offsets a tool may reset.

        `places`: None: all of the group.
        """
        keys = None if places is None else {ShareKey(group, *place) for place in places}
        for led in self:
            if led.key.group == group and (keys is None or led.key in keys) and led.is_quiet:
                del self._led[led.key]
                led.close()

    def known(self, group: str, topic_id: TopicId, partition: int) -> LedSharePartition | None:
        """The share partition, if it is loaded here under the present leadership."""
        found = self._led.get(ShareKey(group, topic_id, partition))
        return found if found is not None and found.is_current and found.machine is not None else None

    def settings(self, group: str) -> ShareSettings:
        """What the group goes by now."""
        found = self._settings.get(group)
        if found is None:
            if len(self._settings) >= SETTINGS_KEPT_MAX:
                self._settings.clear()
            resource = ConfigResource(ConfigResourceType.GROUP, group)
            overrides = self._node.metadata.image.configs.get(resource, {})
            found = self._settings[group] = _resolved(overrides, GroupLimits.of(self._node.config))
        return found

    def settings_changed(self) -> None:
        """Settings of a group or of the broker changed: the next question goes by the new ones."""
        self._settings.clear()
        for led in self:
            if led.machine is not None:
                led.machine.settings = self.settings(led.key.group)

    def topics_deleted(self, topics: frozenset[TopicId]) -> None:
        for led in self:
            if led.key.topic_id in topics:
                del self._led[led.key]
                led.close()

    def leadership_changed(self, topic_partition: TopicPartition) -> None:
        """This broker leads the partition anew, or does not lead it any more."""
        for led in self:
            if led.replica.topic_partition == topic_partition and not led.is_current:
                del self._led[led.key]
                led.close()


def _told(error: KafkaError) -> KafkaError:
    return KafkaError(_TOLD.get(error.code, error.code), error.message or "")


def _resolved(overrides: Mapping[str, str], limits: GroupLimits) -> ShareSettings:
    values = group_config.resolve(overrides, limits)
    reset = parse_reset(values[group_config.SHARE_AUTO_OFFSET_RESET])
    return ShareSettings(
        record_lock_duration_ms=values[group_config.SHARE_RECORD_LOCK_DURATION],
        delivery_count_limit=values[group_config.SHARE_DELIVERY_COUNT_LIMIT],
        partition_max_record_locks=values[group_config.SHARE_PARTITION_MAX_RECORD_LOCKS],
        auto_offset_reset=reset.strategy,
        reset_duration_ms=reset.duration_ms,
        read_committed=values[group_config.SHARE_ISOLATION_LEVEL] == "read_committed",
        renew_enabled=values[group_config.SHARE_RENEW_ACKNOWLEDGE_ENABLE],
    )
