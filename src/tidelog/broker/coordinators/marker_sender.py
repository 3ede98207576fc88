"""Brings the markers of transactions that have ended to the leaders of their partitions.

    WriteMarkers --> by leader --> one WriteTxnMarkers a broker at a time --> answers --> MarkersWritten
                        ^                                                        |
                        '---- after a pause: another leader, or none just now <--'

What is wanted while a broker is being asked goes with the next request to it, so that transactions that end together
share requests, as they share the appends there. Markers for this broker's own partitions take no connection. What is
not answered is asked again: a marker that comes twice ends nothing the second time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.deferred import Deferred
from tidelog.broker.shell import Purpose
from tidelog.coordinator.transactions.events import MarkersWritten, WriteMarkers
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.broker.channels import AskHere
    from tidelog.broker.cluster.metadata_cache import MetadataCache
    from tidelog.broker.coordinators.shard import Shard
    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.coordinator.transactions.coordinator import TransactionCoordinator
    from tidelog.model.identifiers import TopicPartition

logger: Final = logging.getLogger(__name__)

VERSION: Final = 2
"""Of WriteTxnMarkers."""
MARKERS_MAX: Final = 1_000
"""Transactions in one request."""
PAUSE_MS_MIN: Final = 20
"""Before a partition's leader is asked again; doubled each time."""
PAUSE_MS_MAX: Final = 1_000
UNKNOWN_MS: Final = 2_000
"""After which a partition that this broker does not know of is taken for deleted: a new one is known sooner."""

_DONE: Final = frozenset(
    {
        ErrorCode.NONE,
        # The transaction that the marker is for has ended there: an answer was lost, and a later one has begun.
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        # Its producer could not write there either.
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)


class _PendingMarkers:
    """The markers of one transaction, as long as some have no answer."""

    __slots__ = ("missing_since_ms", "pause_ms", "shard", "wanted")

    def __init__(self, shard: Shard[TransactionCoordinator], wanted: WriteMarkers) -> None:
        self.shard = shard
        self.wanted = wanted
        self.pause_ms = PAUSE_MS_MIN
        self.missing_since_ms: dict[TopicPartition, int] = {}
        """[partition that is not known here] -> since when."""


class MarkerSender:
    """The markers that coordinators on this broker want written."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        metadata: MetadataCache,
        ask_here: AskHere,
        written: Callable[[Shard[TransactionCoordinator], MarkersWritten], bool],
    ) -> None:
        """`written` is called with partitions that have their marker; False: it is to be called again."""
        self._broker_id = environment.broker_id
        self._config = environment.config
        self._clock = environment.clock
        self._shell = environment.shell
        self._metadata = metadata
        self._ask_here = ask_here
        self._written = written
        self._queues: dict[int, list[tuple[_PendingMarkers, list[TopicPartition]]]] = {}
        """Broker -> what goes there with the next request."""
        self._under_way: set[int] = set()
        """Brokers that are being asked; never this one."""

    def send(self, shard: Shard[TransactionCoordinator], wanted: WriteMarkers) -> None:
        """Sees to it that all partitions get their marker, as long as `shard` is the coordinator."""
        self._distribute(_PendingMarkers(shard, wanted), wanted.partitions)

    def _distribute(self, pending: _PendingMarkers, partitions: Iterable[TopicPartition]) -> None:
        """Puts partitions into the queues of their leaders; those without a leader come up again."""
        if not pending.shard.is_current:
            # The next coordinator finds the transaction prepared.
            return
        image = self._metadata.image
        missing: list[TopicPartition] = []
        leaderless: list[TopicPartition] = []
        by_leader: dict[int, list[TopicPartition]] = {}
        for place in partitions:
            found = image.partition(place)
            if found is None:
                missing.append(place)
                continue
            pending.missing_since_ms.pop(place, None)
            if not image.is_live(found.leader):
                leaderless.append(place)
            else:
                by_leader.setdefault(found.leader, []).append(place)
        for broker_id, places in by_leader.items():
            queue = self._queues.setdefault(broker_id, [])
            queue.append((pending, places))
            if len(queue) == 1 and broker_id not in self._under_way:
                self._shell.soon(self._ask, broker_id)
        gone = self._gone(pending, missing)
        if gone:
            logger.info("partitions are gone, no markers: id=%s count=%d", pending.wanted.transactional_id, len(gone))
            self._tell(pending, list(gone))
        self._try_later(pending, [*(place for place in missing if place not in gone), *leaderless])

    def _gone(self, pending: _PendingMarkers, missing: Iterable[TopicPartition]) -> dict[TopicPartition, None]:
        """Of partitions that are not known now those that have not been for long (a set, in order)."""
        now_ms = self._clock.monotonic_ms()
        since_ms = pending.missing_since_ms
        gone = (place for place in missing if now_ms - since_ms.setdefault(place, now_ms) >= UNKNOWN_MS)
        return dict.fromkeys(gone)

    def _try_later(self, pending: _PendingMarkers, partitions: list[TopicPartition]) -> None:
        if partitions:
            self._shell.after(pending.pause_ms, self._distribute, pending, partitions)
            pending.pause_ms = min(2 * pending.pause_ms, PAUSE_MS_MAX)

    def _tell(self, pending: _PendingMarkers, partitions: list[TopicPartition]) -> None:
        wanted = pending.wanted
        event = MarkersWritten(
            wanted.transactional_id,
            wanted.producer_id,
            wanted.producer_epoch,
            partitions,
            self._clock.wall_ms(),
        )
        if not self._written(pending.shard, event):
            # It could not be written down. The markers themselves need not be written once more for that.
            self._shell.after(PAUSE_MS_MAX, self._tell, pending, partitions)

    # Requests.

    def _ask(self, broker_id: int) -> None:
        """Sends a broker what has gathered for it."""
        if broker_id in self._under_way:
            return
        queue = self._queues.pop(broker_id, [])
        batch = [entry for entry in queue[:MARKERS_MAX] if entry[0].shard.is_current]
        if len(queue) > MARKERS_MAX:
            self._queues[broker_id] = queue[MARKERS_MAX:]
            self._shell.soon(self._ask, broker_id)
        if not batch:
            return
        request = messages.WriteTxnMarkersRequest(markers=[_marker(pending, places) for pending, places in batch])
        if broker_id == self._broker_id:
            self._ask_here(ApiKey.WRITE_TXN_MARKERS, VERSION, request).on_complete(
                lambda outcome: self._answered(batch, outcome)
            )
            return
        self._under_way.add(broker_id)

        def answered(outcome: Deferred[Any]) -> None:
            self._under_way.discard(broker_id)
            self._answered(batch, outcome)
            if broker_id in self._queues:
                self._shell.soon(self._ask, broker_id)

        timeout_ms = self._config.request_timeout_ms
        self._shell.ask(broker_id, Purpose.TRANSACTIONS, request, VERSION, timeout_ms).on_complete(answered)

    def _answered(self, batch: list[tuple[_PendingMarkers, list[TopicPartition]]], outcome: Deferred[Any]) -> None:
        results: list[Any] = []
        try:
            results = outcome.result().markers
        except (OSError, KafkaError) as error:
            logger.info("markers not written, trying again: transactions=%d reason=%s", len(batch), error)
        if len(results) != len(batch):
            # No answer, or that of a stranger.
            for pending, places in batch:
                self._try_later(pending, places)
            return
        for (pending, places), result in zip(batch, results, strict=True):
            self._take(pending, places, result)

    def _take(self, pending: _PendingMarkers, places: list[TopicPartition], result: Any) -> None:
        """What became of one transaction's markers at one broker."""
        codes: dict[tuple[str, int], int] = {
            (topic.name, partition.partition_index): partition.error_code
            for topic in result.topics
            for partition in topic.partitions
        }
        done: list[TopicPartition] = []
        others: list[TopicPartition] = []
        for place in places:
            error = _error(codes.get((place.topic, place.partition)))
            (done if error in _DONE else others).append(place)
            if error is not ErrorCode.NONE:
                logger.info(
                    "marker refused: id=%s partition=%s error=%s", pending.wanted.transactional_id, place, error.name
                )
        if done:
            self._tell(pending, done)
        self._try_later(pending, others)


def _marker(
    pending: _PendingMarkers, places: list[TopicPartition]
) -> messages.WriteTxnMarkersRequest.WritableTxnMarker:
    kind, wanted = messages.WriteTxnMarkersRequest, pending.wanted
    return kind.WritableTxnMarker(
        producer_id=wanted.producer_id,
        producer_epoch=wanted.producer_epoch,
        transaction_result=wanted.committed,
        topics=[
            kind.WritableTxnMarkerTopic(name=topic, partition_indexes=[place.partition for place in group])
            for topic, group in groupby(places, itemgetter(0))
        ],
        coordinator_epoch=pending.shard.term,
        transaction_version=wanted.version,
    )


def _error(code: int | None) -> ErrorCode:
    try:
        return ErrorCode.UNKNOWN_SERVER_ERROR if code is None else ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
