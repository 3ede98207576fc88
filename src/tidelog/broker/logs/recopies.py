"""Copies a whole replica anew from another one, where rot in it cannot be mended in place.

Compacted logs differ between replicas: no other one has the bytes that belong here, but each has the records.

    Repairs: no replica's bytes fit --> want --> PROBING   the log of the replica to be copied is read from end to end
                                                    |      all of it is sound
                                                 LEAVING   the replica is marked (`has_hole`): the controller takes it
                                                    |      out of the ISR, and has another member lead
                                                    |      it has read the mark: the replica stays outside
                                                 CUTTING   it follows the probed replica, outside the ISR: its log goes
                                                    |      the log is empty, and that is durable
                                                  done     fetched as by a new replica; the mark goes with its return

The rotten copy is given up only while others hold all records: it leaves the ISR by itself only where as many live
members stay as min.insync.replicas asks for, at least one, and its log goes only after every batch of the leader's was
read and its checksum compared. Where that fails, the replica stays as it is, its mark is taken back, and it is tried
again after a minute. The mark stands in the metadata store, so another start of the broker goes on with it.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, cast

from tidelog.broker.shell import InDirectories, Purpose
from tidelog.metadata.replica_marks import ReplicaDamage
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import NO_LEADER_EPOCH, ZERO_TOPIC_ID, BrokerId, Offset
from tidelog.protocol import messages
from tidelog.records.batch import iterate_headers
from tidelog.records.errors import InvalidBatch
from tidelog.records.integrity import check_batches

if TYPE_CHECKING:
    from tidelog.broker.cluster.metadata_cache import MetadataCache
    from tidelog.broker.cluster.replica_marks import ReplicaMarks
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.broker.following.replica_fetcher_manager import ReplicaFetcherManager
    from tidelog.broker.shell import Timer
    from tidelog.metadata.image import PartitionImage
    from tidelog.model.identifiers import TopicPartition
    from tidelog.ports.disk import Bytes
    from tidelog.storage.log import Log
    from tidelog.storage.log_manager import LogManager

logger: Final = logging.getLogger(__name__)

FETCH_VERSION: Final = 17
PROBE_BYTES: Final = 1 << 20
"""Bytes of records that the other replica is asked for at once."""
LOOK_MS: Final = 500
"""Between two looks at what has become of the copies under way."""
LEAVING_MS: Final = 15_000
"""For how long the controller is waited for; one of an earlier version does not say that it has read the mark."""
AGAIN_MS: Final = 60_000
"""Until it is tried again after it came to nothing."""


class Stage(Enum):
    """What a copy waits for."""

    WANTED = "wanted"
    PROBING = "probing"
    LEAVING = "leaving"
    CUTTING = "cutting"


class _Recopy:
    """One replica's."""

    __slots__ = ("log", "log_end", "not_before_ms", "offset", "probed", "since_ms", "source", "stage", "times_emptied")

    def __init__(self, log: Log, now_ms: int) -> None:
        self.log = log
        self.stage = Stage.WANTED
        self.since_ms = now_ms
        """When the stage began."""
        self.not_before_ms = now_ms
        self.source: BrokerId | None = None
        """The replica that is being probed, or was."""
        self.probed = False
        """Whether all of it was sound."""
        self.offset = Offset(0)
        """Up to where it has been."""
        self.log_end = log.log_end_offset
        """Where the log ended that is given up."""
        self.times_emptied = 0
        """The log's, before the cut."""

    def enter(self, stage: Stage, now_ms: int) -> None:
        self.stage, self.since_ms = stage, now_ms


class Recopies:
    """All of a broker; on the loop's thread, but for checksums."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        *,
        metadata: MetadataCache,
        logs: LogManager,
        marks: ReplicaMarks,
        fetcher_manager: ReplicaFetcherManager,
    ) -> None:
        self._broker_id = environment.broker_id
        self._config = environment.config
        self._clock = environment.clock
        self._shell = environment.shell
        self._metadata = metadata
        self._logs = logs
        self._marks = marks
        self._fetcher_manager = fetcher_manager
        self._recopies: dict[TopicPartition, _Recopy] = {}
        self._timer: Timer | None = None
        self._is_stopped = False

    def want(self, log: Log) -> bool:
        """The log cannot be mended in place. Whether it is being copied anew, or will be as soon as that may begin."""
        topic_partition = log.topic_partition
        recopy = self._recopies.get(topic_partition)
        if recopy is None or recopy.log is not log:
            recopy = self._recopies[topic_partition] = _Recopy(log, self._now_ms)
        self.look()
        recopy = self._recopies.get(topic_partition)
        return recopy is not None and recopy.not_before_ms <= self._now_ms and self._may_begin(recopy)

    def look(self) -> None:
        """Goes on with what can go on, also with what an earlier life of the broker had begun. Cheap where that is
        nothing."""
        if self._is_stopped:
            return
        for topic_partition, damage in self._marks.damaged.items():
            log = self._logs.get(topic_partition)
            if damage.has_hole and log is not None and topic_partition not in self._recopies:
                self._recopies[topic_partition] = _Recopy(log, self._now_ms)
        for topic_partition, recopy in list(self._recopies.items()):
            if self._logs.get(topic_partition) is not recopy.log or recopy.log.is_offline:
                del self._recopies[topic_partition]
            else:
                self._go_on(topic_partition, recopy)
        if self._recopies and self._timer is None:
            self._timer = self._shell.after(LOOK_MS, self._due)

    def stop(self) -> None:
        """Begins nothing more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _due(self) -> None:
        self._timer = None
        self.look()
        leaving = [each for each, recopy in self._recopies.items() if recopy.stage is Stage.LEAVING]
        if not all(map(self._marks.is_barred, leaving)):
            self._marks.look_again()

    @property
    def _now_ms(self) -> int:
        return self._clock.monotonic_ms()

    # What may be done.

    def _image(self, recopy: _Recopy) -> PartitionImage | None:
        image = self._metadata.image.partition(recopy.log.topic_partition)
        return None if image is None or self._broker_id not in image.replicas else image

    def _others(self, image: PartitionImage) -> list[BrokerId]:
        """Live members of the ISR that hold what this replica is to get; in the order in which they would lead."""
        is_live = self._metadata.image.is_live
        return [id for id in image.replicas if id in image.isr and id != self._broker_id and is_live(id)]

    def _may_begin(self, recopy: _Recopy) -> bool:
        """Whether enough others have all records, without this replica."""
        image = self._image(recopy)
        if image is None:
            return False
        others = self._others(image)
        if self._broker_id not in image.isr:
            return image.leader in others
        return len(others) >= max(1, recopy.log.config.min_insync_replicas)

    def _is_ready(self, recopy: _Recopy) -> bool:
        """Whether this replica follows the one that was probed, outside the ISR for as long as its mark stands."""
        image = self._image(recopy)
        return (
            image is not None
            and recopy.probed
            and self._marks.is_barred(recopy.log.topic_partition)
            and image.leader == recopy.source
            and self._broker_id not in image.isr
            and recopy.source in self._others(image)
        )

    def _go_on(self, topic_partition: TopicPartition, recopy: _Recopy) -> None:
        now_ms = self._now_ms
        match recopy.stage:
            case Stage.WANTED:
                if recopy.not_before_ms <= now_ms:
                    if self._may_begin(recopy):
                        self._probe(recopy)
                    else:
                        self._take_mark_back(recopy)
            case Stage.PROBING:
                pass  # An answer, or its timeout, goes on.
            case Stage.LEAVING:
                if self._is_ready(recopy):
                    self._cut(recopy)
                elif not self._may_begin(recopy) or now_ms - recopy.since_ms > LEAVING_MS:
                    self._give_up(recopy, "it was not taken out of the ISR, or the controller did not say so")
                else:
                    image = self._image(recopy)
                    if image is not None and image.leader not in (recopy.source, self._broker_id):
                        self._probe(recopy)
            case Stage.CUTTING:
                self._look_at_cut(topic_partition, recopy)

    def _give_up(self, recopy: _Recopy, reason: str) -> None:
        """For now."""
        logger.warning("replica_not_copied_anew: partition=%s reason=%s", recopy.log.topic_partition, reason)
        recopy.enter(Stage.WANTED, self._now_ms)
        recopy.probed = False
        recopy.not_before_ms = self._now_ms + AGAIN_MS
        self._take_mark_back(recopy)

    def _take_mark_back(self, recopy: _Recopy) -> None:
        """The replica is as good as it was before: where it is still in the ISR, it may have to lead."""
        topic_partition = recopy.log.topic_partition
        damage = self._marks.damaged.get(topic_partition)
        if damage is not None and damage.has_hole:
            self._marks.taken_back(topic_partition)

    # Is the other replica's log whole?

    def _probe(self, recopy: _Recopy) -> None:
        image = self._image(recopy)
        others = [] if image is None else self._others(image)
        if image is None or not others:
            return
        recopy.enter(Stage.PROBING, self._now_ms)
        recopy.source = image.leader if image.leader in others else others[0]
        recopy.probed = False
        recopy.offset = Offset(recopy.log.log_start_offset)
        self._ask(recopy)

    def _ask(self, recopy: _Recopy) -> None:
        log = recopy.log
        partition = messages.FetchRequest.FetchPartition(
            partition=log.topic_partition.partition,
            current_leader_epoch=NO_LEADER_EPOCH,
            fetch_offset=recopy.offset,
            last_fetched_epoch=NO_LEADER_EPOCH,
            log_start_offset=-1,
            partition_max_bytes=PROBE_BYTES,
        )
        topic = messages.FetchRequest.FetchTopic(
            topic_id=log.topic_id or ZERO_TOPIC_ID, topic=log.topic_partition.topic, partitions=[partition]
        )
        request = messages.FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=PROBE_BYTES, session_id=0, session_epoch=-1, topics=[topic]
        )
        assert recopy.source is not None
        timeout_ms = self._config.replica_socket_timeout_ms
        answer = self._shell.ask(recopy.source, Purpose.REPAIR, request, FETCH_VERSION, timeout_ms)
        answer.on_complete(lambda settled: self._answered(recopy, settled))

    def _is_current(self, recopy: _Recopy) -> bool:
        is_same = self._recopies.get(recopy.log.topic_partition) is recopy
        return is_same and not self._is_stopped and recopy.stage is Stage.PROBING

    def _answered(self, recopy: _Recopy, settled: Deferred[Any]) -> None:
        if not self._is_current(recopy):
            return
        try:
            response: messages.FetchResponse = settled.result()
        except OSError as error:
            self._give_up(recopy, f"broker {recopy.source} does not answer: {error}")
            return
        partitions = [data for topic in response.responses for data in topic.partitions]
        code = response.error_code or (partitions[0].error_code if partitions else 0)
        if code or not partitions:
            self._give_up(recopy, f"broker {recopy.source} answers error {code} at offset {recopy.offset}")
            return
        records = cast("Bytes | None", partitions[0].records) or b""
        high_watermark = partitions[0].high_watermark
        if not records:
            if recopy.offset < min(high_watermark, recopy.log.high_watermark):
                self._give_up(recopy, f"broker {recopy.source} has no records at offset {recopy.offset}")
            else:
                self._probed(recopy)
            return
        work = InDirectories((recopy.log.owner.path,), lambda: _sound_end(records, recopy.offset))
        self._shell.in_pool(work).on_complete(lambda checked: self._checked(recopy, checked))

    def _checked(self, recopy: _Recopy, checked: Deferred[Offset | None]) -> None:
        if not self._is_current(recopy):
            return
        try:
            end = checked.result()
        except Exception as error:
            # Of any kind: without a check nothing is known of the records, and the replica keeps its own log.
            self._give_up(recopy, f"what broker {recopy.source} sends cannot be checked: {error!r}")
            return
        if end is None or end <= recopy.offset:
            self._give_up(recopy, f"broker {recopy.source} sends what is damaged too, at offset {recopy.offset}")
            return
        recopy.offset = end
        self._ask(recopy)

    def _probed(self, recopy: _Recopy) -> None:
        recopy.probed = True
        if not self._may_begin(recopy):
            self._give_up(recopy, "too few others are in sync")
            return
        recopy.enter(Stage.LEAVING, self._now_ms)
        log = recopy.log
        recopy.log_end = log.log_end_offset
        known = self._marks.damaged.get(log.topic_partition)
        if known is None or not known.has_hole:
            end = recopy.log_end
            self._marks.report(log.topic_partition, ReplicaDamage(end, log.epochs.latest, end, has_hole=True))
        self.look()

    # The cut.

    def _cut(self, recopy: _Recopy) -> None:
        topic_partition = recopy.log.topic_partition
        recopy.log_end = recopy.log.log_end_offset
        recopy.times_emptied = recopy.log.times_emptied
        try:
            has_begun = self._fetcher_manager.begin_anew(topic_partition, recopy.source)
        except KafkaError as error:
            self._give_up(recopy, str(error))
            return
        if has_begun:
            recopy.enter(Stage.CUTTING, self._now_ms)
            logger.warning(
                "replica_copied_anew: partition=%s log_end=%d source=%s", topic_partition, recopy.log_end, recopy.source
            )

    def _look_at_cut(self, topic_partition: TopicPartition, recopy: _Recopy) -> None:
        """Once nothing of the rotten log is left, it is a replica that has to fetch what it lacks, as any other.

        A cut that was announced is forgotten with the followership, when an order of another leader epoch comes before
        it is carried out: then the copy begins again.
        """
        if recopy.log.times_emptied == recopy.times_emptied:
            followed = self._fetcher_manager.get(topic_partition)
            if followed is None or followed.cut is None or self._now_ms - recopy.since_ms > LEAVING_MS:
                recopy.enter(Stage.WANTED, self._now_ms)
            return
        if recopy.log.truncation_is_pending:
            return
        del self._recopies[topic_partition]
        log = recopy.log
        damage = ReplicaDamage(log.log_start_offset, NO_LEADER_EPOCH, Offset(recopy.log_end))
        self._marks.report(topic_partition, damage)


def _sound_end(records: Bytes, offset: int) -> Offset | None:
    """Where the whole batches of an answer from `offset` on end; None where one is not sound, or none is whole."""
    size = 0
    try:
        for position, header in iterate_headers(records):
            size = position + header.size
    except InvalidBatch:
        return None
    whole = memoryview(records)[:size]
    found = check_batches(whole, next_offset=None, epochs=(), end_offset=(1 << 63) - 1)
    if found.flaw is not None or found.next_offset is None or found.next_offset <= offset:
        return None
    return Offset(found.next_offset)
