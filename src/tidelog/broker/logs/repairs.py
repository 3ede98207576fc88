"""Repairs segments that were found rotten, with what other replicas have; one segment of a log directory at a time.

    a read, the scrub --> Findings --> where is the damage? --> ask a replica for the batches there --> written in place
                                             ^   (I/O thread)      (a consumer's Fetch)                      |
                                             +----------------------- synced, and looked at again <----------+

The replicas are asked as consumers ask, so that brokers of any version answer, followers too, up to their high
watermark (KIP-392). The leader is asked first. What comes is checked as what lies here is, and has to fit into the file
to the byte: see `storage/repair.py`.

An index of aborted transactions that cannot be read needs no other replica: it is written anew from the batches.

Where no bytes fit, as after compactions that went differently, the whole replica is copied anew (`Recopies`). Where
that cannot be either, the segment stays as it is, with a line in the log that says what an operator can do; its
other batches are served. The replicas are asked again from time to time.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

from tidelog.broker.shell import InDirectories, Purpose
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import NO_LEADER_EPOCH, ZERO_TOPIC_ID, BrokerId
from tidelog.protocol import messages
from tidelog.storage.repair import Damage, Patch, find_damages, fit, write
from tidelog.storage.tasks import SimpleTask
from tidelog.storage.transaction_scan import UnreadableIndex, find_unreadable_index, mend_transaction_index, scan_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.cluster.metadata_cache import MetadataCache
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.disk_scheduler import DiskScheduler
    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.broker.logs.recopies import Recopies
    from tidelog.broker.shell import Timer
    from tidelog.ports.disk import Bytes
    from tidelog.storage.integrity import SegmentCheck
    from tidelog.storage.log import Log
    from tidelog.storage.log_manager import LogManager
    from tidelog.storage.rot import Rot
    from tidelog.storage.segment import Segment

logger: Final = logging.getLogger(__name__)

FETCH_VERSION: Final = 17
BYTES_MIN: Final = 1 << 20
"""Bytes of records that a replica is asked for; one batch comes whole, however large it is."""
RETRY_MS: Final = 1_000
"""Until the replicas are asked again, while one that could not be reached, or lags, may have what is missing."""
FINAL_MS: Final = 20_000
"""For how long they are asked so often; then clients are told that nothing can be read there."""
FINAL_RETRY_MS: Final = 60_000
"""Until they are asked again after that: one may have come back."""
_HAS_NOT: Final = frozenset(
    {ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}
)
"""Answers of a replica that will not have what is missing."""


class _Repair:
    """One segment's."""

    __slots__ = (
        "damages",
        "log",
        "may_come",
        "not_before_ms",
        "rot",
        "segment",
        "since_ms",
        "sources",
        "truncations",
        "unmended",
    )

    def __init__(self, rot: Rot, log: Log, now_ms: int) -> None:
        self.rot = rot
        self.log = log
        self.segment: Segment | None = None
        self.damages: deque[Damage] = deque()
        """Still to be mended in this round; the first is being asked for."""
        self.unmended: list[Damage] = []
        """Those that no replica could mend in this round."""
        self.since_ms = now_ms
        """When something was mended last, or the segment was found."""
        self.not_before_ms = now_ms
        self.sources: list[BrokerId] = []
        """Brokers still to be asked for the first damage, in this round."""
        self.may_come = False
        """Whether one of those asked may have what is missing later."""
        self.truncations = -1
        """The log's, when this round began."""


class Repairs:
    """All of a broker; on the loop's thread, but for what is read and written."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        *,
        metadata: MetadataCache,
        logs: LogManager,
        disk_scheduler: DiskScheduler,
        recopies: Recopies,
    ) -> None:
        self._broker_id = environment.broker_id
        self._config = environment.config
        self._clock = environment.clock
        self._shell = environment.shell
        self._metadata = metadata
        self._logs = logs
        self._disk_scheduler = disk_scheduler
        self._recopies = recopies
        self._waiting: list[_Repair] = []
        """Those found first are first."""
        self._current: dict[str, _Repair] = {}
        """[log directory] -> the one that is under way there."""
        self._timer: Timer | None = None
        self._is_stopped = False

    def look(self) -> None:
        """Takes up what was found since it was last called; cheap where that is nothing."""
        findings = self._logs.environment.findings
        if not findings or self._is_stopped:
            return
        now_ms = self._clock.monotonic_ms()
        while (rot := findings.take()) is not None:
            log = self._logs.get(rot.topic_partition)
            if log is None or log.rot is not rot.of_log:
                rot.forget()  # Of a log that is no more, or not yet the partition's.
            else:
                self._waiting.append(_Repair(rot, log, now_ms))
        self._go_on()

    def stop(self) -> None:
        """Begins nothing more."""
        self._is_stopped = True
        self._cancel()

    # One after the other.

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _go_on(self) -> None:
        """Begins those that are due, one in each log directory, or waits until one is."""
        while not self._is_stopped:
            self._cancel()
            free = [each for each in self._waiting if each.log.owner.path not in self._current]
            if not free:
                return
            now_ms = self._clock.monotonic_ms()
            repair = min(free, key=lambda each: each.not_before_ms)
            if repair.not_before_ms > now_ms:
                self._timer = self._shell.after(repair.not_before_ms - now_ms, self._go_on)
                return
            self._waiting.remove(repair)
            self._current[repair.log.owner.path] = repair
            self._diagnose(repair)

    def _done(self, repair: _Repair) -> None:
        """Nothing is left to do for the segment."""
        repair.rot.forget()
        del self._current[repair.log.owner.path]
        self._shell.soon(self._go_on)

    def _later(self, repair: _Repair, delay_ms: int) -> None:
        repair.not_before_ms = self._clock.monotonic_ms() + delay_ms
        self._waiting.append(repair)
        del self._current[repair.log.owner.path]
        self._shell.soon(self._go_on)

    def _state(self, repair: _Repair) -> tuple[Log, Segment, SegmentCheck] | None:
        """The segment and what its batches are judged by; None where it is not here any more."""
        log = self._logs.get(repair.rot.topic_partition)
        if log is None or log is not repair.log or log.is_offline:
            return None
        segment = next((each for each in log.segments if each.base_offset == repair.rot.base_offset), None)
        check = None if segment is None else log.segment_check(segment)
        return None if segment is None or check is None else (log, segment, check)

    def _in_pool(self, repair: _Repair, work: Callable[[], Any], proceed: Callable[[Any], None]) -> None:
        """Reads on an I/O thread; goes on with what that gives, or gives the repair up for now where it fails."""

        def settle(ran: Deferred[Any]) -> None:
            if self._is_stopped:
                return
            try:
                result = ran.result()
            except Exception as error:
                if isinstance(error, OSError):
                    repair.log.folder.fail(error, "looking for damage in")
                logger.warning("rot_not_looked_at: partition=%s error=%s", repair.rot.topic_partition, error)
                self._later(repair, RETRY_MS)
            else:
                proceed(result)

        self._shell.in_pool(InDirectories((repair.log.owner.path,), work)).on_complete(settle)

    # Where is the damage?

    def _diagnose(self, repair: _Repair) -> None:
        state = self._state(repair)
        if state is None:
            self._done(repair)
            return
        log, segment, check = state
        repair.truncations = log.truncations
        scan = scan_of(log, segment)

        def look() -> tuple[UnreadableIndex | None, list[Damage]]:
            damages = find_damages(segment, check)
            # Of what is damaged not all transactions are known: the index comes when that is mended.
            return None if damages else find_unreadable_index(segment, scan), damages

        self._in_pool(repair, look, lambda found: self._found(repair, segment, *found))

    def _found(self, repair: _Repair, segment: Segment, index: UnreadableIndex | None, damages: list[Damage]) -> None:
        """Begins a round: reads that want what lies behind a damage pass it by from now on."""
        if repair.log.truncations != repair.truncations:
            # The log was cut meanwhile: other batches may stand where these were.
            self._later(repair, 0)
            return
        if index is not None and repair.log.segment_check(segment) is not None:
            if index.flaws is None:
                path = segment.transaction_index.path
                logger.error("transaction_index_not_rebuilt: path=%s reason=%s", path, repair.rot.flaw)
                self._later(repair, FINAL_RETRY_MS)
                return
            mend_transaction_index(repair.log, segment, index.flaws)
        segment.rotten = {damage.position: damage.end for damage in damages if damage.end > damage.position}
        if damages and repair.segment is None:
            rot = repair.rot
            logger.warning(
                "rot_found: partition=%s segment=%d position=%d offset=%d damages=%d reason=%s",
                rot.topic_partition,
                rot.base_offset,
                damages[0].position,
                damages[0].next_offset,
                len(damages),
                damages[0].flaw,
            )
        repair.segment = segment
        repair.damages = deque(damages)
        repair.unmended = []
        repair.may_come = False
        self._next_damage(repair)

    def _next_damage(self, repair: _Repair) -> None:
        if repair.damages:
            repair.sources = self._sources(repair)
            self._ask(repair)
        elif repair.unmended:
            self._not_mended(repair)
        else:
            self._done(repair)

    def _sources(self, repair: _Repair) -> list[BrokerId]:
        """The live brokers that hold a replica, the leader first."""
        partition = self._metadata.image.partition(repair.rot.topic_partition)
        if partition is None:
            repair.may_come = True
            return []  # Told of before long.
        others = [each for each in partition.replicas if each != self._broker_id]
        live = [each for each in others if self._metadata.image.is_live(each)]
        repair.may_come = repair.may_come or len(live) < len(others)
        return sorted(live, key=lambda each: (each != partition.leader, each not in partition.isr))

    # What others have.

    def _ask(self, repair: _Repair) -> None:
        """Asks the next replica; where none is left goes on with the next damage."""
        damage = repair.damages[0]
        if not repair.sources:
            repair.unmended.append(repair.damages.popleft())
            self._next_damage(repair)
            return
        source = repair.sources.pop(0)
        log = repair.log
        partition = messages.FetchRequest.FetchPartition(
            partition=log.topic_partition.partition,
            current_leader_epoch=NO_LEADER_EPOCH,
            # Replicas refuse what is below their log's start, which may lie within the batch: that comes whole.
            fetch_offset=max(damage.next_offset, log.log_start_offset),
            last_fetched_epoch=NO_LEADER_EPOCH,
            log_start_offset=-1,
            partition_max_bytes=BYTES_MIN,
        )
        request = messages.FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=BYTES_MIN,
            session_id=0,
            session_epoch=-1,
            topics=[
                messages.FetchRequest.FetchTopic(
                    topic_id=log.topic_id or ZERO_TOPIC_ID, topic=log.topic_partition.topic, partitions=[partition]
                )
            ],
        )
        timeout_ms = self._config.replica_socket_timeout_ms
        answer = self._shell.ask(source, Purpose.REPAIR, request, FETCH_VERSION, timeout_ms)
        answer.on_complete(lambda settled: self._answered(repair, source, settled))

    def _answered(self, repair: _Repair, source: BrokerId, settled: Deferred[Any]) -> None:
        if self._is_stopped:
            return
        try:
            response: messages.FetchResponse = settled.result()
        except OSError:
            repair.may_come = True
            self._ask(repair)
            return
        records: Bytes = b""
        code = response.error_code
        for topic in response.responses:
            for data in topic.partitions:
                code = code or data.error_code
                records = cast("Bytes | None", data.records) or b""
        if code or not records:
            repair.may_come = repair.may_come or code not in _HAS_NOT
            self._ask(repair)
            return
        state = self._state(repair)
        if state is None:
            self._done(repair)
            return
        log, segment, check = state
        damage = repair.damages[0]
        self._in_pool(
            repair,
            lambda: fit(segment, check, log, damage, records),
            lambda patch: self._mend(repair, source, segment, patch),
        )

    # Writing.

    def _mend(self, repair: _Repair, source: BrokerId, segment: Segment, patch: Patch | None) -> None:
        if patch is None or patch.before == patch.after:
            self._ask(repair)
            return
        log, damage = repair.log, repair.damages[0]
        state = self._state(repair)
        if state is None or state[1] is not segment or log.truncations != repair.truncations:
            self._later(repair, 0)
            return
        is_longer = len(patch.after) > len(patch.before)
        is_complete = patch.last_offset + 1 >= state[2].end_offset
        try:
            written = write(segment, patch)
        except OSError as error:
            log.folder.fail(error, "repairing")
            self._done(repair)
            return
        if not written:
            # The log was cut meanwhile.
            self._later(repair, 0)
            return

        def sync() -> None:
            with segment.log_file as file:
                file.fsync()
            if is_longer and is_complete:
                segment.index_anew()

        def synced(error: OSError | None) -> None:
            if error is not None:
                log.folder.fail(error, "repairing")
                self._done(repair)
                return
            logger.warning(
                "rot_repaired: partition=%s segment=%d position=%d first_offset=%d last_offset=%d bytes=%d source=%d"
                " reason=%s",
                log.topic_partition,
                segment.base_offset,
                patch.position,
                damage.next_offset,
                patch.last_offset,
                len(patch.after),
                source,
                damage.flaw,
            )
            repair.damages.popleft()
            repair.since_ms = self._clock.monotonic_ms()
            if is_longer and not is_complete:
                # The end of a segment that was cut short comes in several answers.
                end = segment.size
                repair.damages.appendleft(Damage(end, end, patch.last_offset + 1, damage.flaw))
                segment.rotten = {at: end for at, end in segment.rotten.items() if at != patch.position}
                self._next_damage(repair)
            elif segment.rotten.get(patch.position) == patch.position + len(patch.after):
                segment.rotten = {at: end for at, end in segment.rotten.items() if at != patch.position}
                self._next_damage(repair)
            else:
                self._diagnose(repair)

        self._disk_scheduler.run(SimpleTask(f"repair of {log.topic_partition}", sync, synced))

    def _not_mended(self, repair: _Repair) -> None:
        """No replica had what is missing, or none that fits."""
        rot = repair.rot
        state = self._state(repair)
        if state is None or state[1] is not repair.segment or state[0].truncations != repair.truncations:
            # The log was cut meanwhile.
            self._later(repair, 0)
            return
        if self._recopies.want(state[0]):
            self._later(repair, RETRY_MS)
            return
        waited_ms = self._clock.monotonic_ms() - repair.since_ms
        if repair.may_come and waited_ms < FINAL_MS:
            self._later(repair, RETRY_MS)
            return
        if not rot.is_final:
            rot.is_final = True
            for damage in repair.unmended:
                logger.error(
                    "rot_not_repaired: partition=%s segment=%d position=%d bytes=%d offset=%d reason=%s: no other"
                    " replica has these records; readers get CORRUPT_MESSAGE there, and may seek behind them."
                    " Restore %s/%020d.log from a backup while the broker is stopped, or delete the records up to"
                    " a later offset",
                    rot.topic_partition,
                    rot.base_offset,
                    damage.position,
                    damage.end - damage.position,
                    damage.next_offset,
                    damage.flaw,
                    repair.log.directory,
                    rot.base_offset,
                )
        self._later(repair, FINAL_RETRY_MS)
