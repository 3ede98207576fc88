"""Fetch: batches as they lie in the files, by consumers; followers are served by `broker/fetches/replica_fetch.py`.

Versions 4-18. v4: isolation level. v5: log start offset. v7: sessions (KIP-227). v9: the client's leader epoch. v11:
rack, preferred replica. v12: flexible; diverging epochs (KIP-595). v13: topics by id. v15: the replica in a tag. v16:
current leaders with the errors (KIP-951). v17, v18: directory ids and high watermarks of followers.

An answer that has less than `min_bytes` waits in the purgatory for `max_wait_ms` at most. What is not in memory is read
by I/O threads; where it lies in several log directories, none waits long for another one (`cold_reads`). Records are
`FileRange`s: they go from the page cache to the socket. A partition without records has an empty field, never null,
which stops librdkafka.
"""

from __future__ import annotations

import logging
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred
from tidelog.broker.fetches import replica_selector
from tidelog.broker.fetches.fetch_partitions import ANSWER_OVERHEAD, PARTITION_OVERHEAD, failed, replica_of, topic_of
from tidelog.broker.fetches.fetch_sessions import FetchContext, FetchPartition
from tidelog.broker.fetches.waiting_fetch import WaitingFetch, release
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._between_brokers import require_broker
from tidelog.broker.handlers._fetch_ordinary import take
from tidelog.broker.replicas.replica import Replica, check_leader_epoch
from tidelog.broker.replicas.replica_manager import diverging_epoch
from tidelog.broker.shell import InDirectories
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import BrokerEpoch, BrokerId, TopicPartition
from tidelog.ports.disk import FileRange
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType
from tidelog.storage.errors import CorruptFile, WouldBlock

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node
    from tidelog.quotas.request_quota import RequestQuota
    from tidelog.storage.log import Log, ReadResult

logger: Final = logging.getLogger(__name__)

KEY: Final = ApiKey.FETCH
VERSIONS: Final = Versions(4, 18)

READ_COMMITTED: Final = 1
INSPECTOR: Final = -2
"""A replica id of one that is neither follower nor consumer (Kafka's debugging consumer): what it reads is not counted
as sent to consumers."""
EXPECTED_ERRORS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    }
)
"""Errors that Kafka does not count as failed fetches: clients go on after them."""
_UNKNOWN: Final = -1
_DIVERGING_EPOCH_SINCE: Final = 12
_RACKS_SINCE: Final = 11
_TOPIC_IDS_SINCE: Final = 13
_REPLICA_STATE_SINCE: Final = 15

Data = messages.FetchResponse.PartitionData


def handle(
    node: Node, context: RequestContext, request: messages.FetchRequest
) -> messages.FetchResponse | Deferred[messages.FetchResponse]:
    replica_id = request.replica_id
    if context.api_version >= _REPLICA_STATE_SINCE:
        replica_id = request.replica_state.replica_id
    if replica_id >= 0:
        broker_epoch = BrokerEpoch(request.replica_state.replica_epoch)
        if not authorize(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
            return _denied(request)
        require_broker(node, context)
        context.quota = None
        return node.replica_fetches.handle(context, request, BrokerId(replica_id), broker_epoch)
    plan = node.fetch_sessions.begin(request, context.api_version, context.received_ms)
    return _fetch(plan, node, context, request)


def handle_body(node: Node, context: RequestContext, body: memoryview) -> Any:
    """The consumers' requests that are like most of them; `handle` does all others."""
    return take(node, context, body, _fetch)


def _fetch(
    plan: FetchContext,
    node: Node,
    context: RequestContext,
    request: messages.FetchRequest,
    *,
    is_last_look: bool = False,
    is_cold: bool = False,
) -> messages.FetchResponse | Deferred[messages.FetchResponse]:
    """A consumer's fetch; it is answered with what there is now if `is_last_look`. `is_cold`: something that is to be
    read is known not to be in memory."""
    fetch = _Fetch(node, context, request, plan)
    if is_last_look:
        fetch.complete_with_read(is_cold=is_cold)
    else:
        fetch.begin(is_cold=is_cold)
    return fetch.answer.result() if fetch.answer.done else fetch.answer


class _Reading:
    """What was read for one partition."""

    __slots__ = ("ahead", "data", "limit", "log", "replica", "size", "truncations", "wanted")

    def __init__(self, wanted: FetchPartition, data: messages.FetchResponse.PartitionData) -> None:
        self.wanted = wanted
        self.data = data
        self.replica: Replica | None = None
        """Where more may come; None after an error."""
        self.log: Log | None = None
        """What was read; None after an error."""
        self.limit = 0
        """The offset that all records are below."""
        self.truncations = 0
        """The log's, before it was read."""
        self.size = 0
        self.ahead: Log | None = None
        """Whose next bytes are to be checked while these are sent."""

    def is_outdated(self, limit: int) -> bool:
        """Whether the log was truncated while an I/O thread read it, or readers may not see as much any more: `limit`
        is the one of now."""
        return self.log is not None and (self.log.truncations != self.truncations or limit < self.limit)

    def look_again(self) -> None:
        """An I/O thread has read: what it saw of the offsets may be older by now than what other readers were told."""
        replica, data = self.replica, self.data
        if replica is not None:
            data.high_watermark = replica.high_watermark
            data.last_stable_offset = replica.last_stable_offset
            data.log_start_offset = replica.log.log_start_offset


class _Cold(NamedTuple):
    """A partition that an I/O thread has to read."""

    place: int
    """In the answer."""
    wanted: FetchPartition
    size: int
    """Bytes that may be read."""
    nothing_yet: bool
    """Whether a first batch comes whole, however large it is."""


class _Fetch(WaitingFetch):
    """One fetch request, until it is answered."""

    __slots__ = (
        "_bytes_max",
        "_context",
        "_deadline_ms",
        "_from_followers",
        "_is_inspection",
        "_is_last_look",
        "_node",
        "_plan",
        "_rack",
        "_request",
    )

    def __init__(self, node: Node, context: RequestContext, request: messages.FetchRequest, plan: FetchContext) -> None:
        bytes_max = min(request.max_bytes, node.config.fetch_max_bytes)
        if context.quota is not None:
            bytes_max = int(min(bytes_max, context.quota.fetch_bytes_max))
        super().__init__(node.purgatory, min(request.min_bytes, bytes_max), request.isolation_level == READ_COMMITTED)
        self._node = node
        self._bytes_max = bytes_max
        self._context = context
        self._request = request
        self._plan = plan
        # Consumers that know racks may read from followers (KIP-392); others would take them for leaders.
        self._from_followers = context.api_version >= _RACKS_SINCE
        self._rack = request.rack_id if self._from_followers and replica_selector.selects(node.config) else ""
        self._deadline_ms = node.clock.monotonic_ms() + max(request.max_wait_ms, 0)
        self._is_inspection = request.replica_id == INSPECTOR
        self._is_last_look = False
        """Whether what is read now is the answer, however little it is."""

    def begin(self, *, is_cold: bool = False) -> None:
        """Answers at once, or takes a place in the purgatory."""
        readings = self._read(is_cold=is_cold)
        if readings is None:
            return
        if self._request.max_wait_ms <= 0 or self._enough(readings):
            self._complete(readings)
            return
        self._wait(readings, self._request.max_wait_ms)

    def _wait(self, readings: list[_Reading], timeout_ms: int) -> None:
        """Waits for more than these, which are given up."""
        _discard(readings)
        self.wait_for(
            [(reading.wanted, reading.replica) for reading in readings if reading.replica is not None], timeout_ms
        )

    # Reading.

    def complete_with_read(self, *, is_cold: bool = False) -> bool:
        self._is_last_look = True
        readings = self._read(is_cold=is_cold)
        if readings is not None:
            self._complete(readings)
        return True

    def _read(self, *, is_cold: bool = False) -> list[_Reading] | None:
        """Reads every partition; None when that goes on in a thread, which completes the request."""
        if not is_cold:
            try:
                return self._read_all(blocking=False)
            except WouldBlock:
                pass
        # A consumer far behind: index pages have to come from the device.
        directories = self._directories()
        if len(directories) > 1:
            self._read_by_directory()
            return None
        reading = self._node.shell.in_pool(InDirectories(directories, lambda: self._read_all(blocking=True)))

        def done(settled: Deferred[list[_Reading]]) -> None:
            try:
                readings = settled.result()
            except Exception as error:
                self.answer.fail(error)
            else:
                self._complete_from_pool(readings)

        reading.on_complete(done)
        return None

    def _complete_from_pool(self, readings: list[_Reading]) -> None:
        """Answers with what an I/O thread has read, or reads again where that is not in the log any more."""
        for reading in readings:
            if reading.replica is not None and reading.is_outdated(self._limit(reading.replica)):
                _discard(readings)
                self.complete_with_read()
                return
        for reading in readings:
            reading.look_again()
        self._complete(readings)

    def _read_by_directory(self) -> None:
        """Reads what is in memory, and has the rest read in each directory by itself; completes the request, or waits
        where there is too little and some directory is late."""
        readings: list[_Reading] = []
        cold: dict[str, list[_Cold]] = {}
        remaining, nothing_yet = self._bytes_max, True
        try:
            for wanted in list(self._plan.partitions.values()):
                try:
                    reading = self._read_one(wanted, remaining, nothing_yet, blocking=False)
                    nothing_yet = nothing_yet and not reading.size
                    remaining = max(0, remaining - reading.size)
                except WouldBlock:
                    reading, directory = self._nothing_yet(wanted)
                    size = min(max(wanted.max_bytes, 0), remaining)
                    others = cold.setdefault(directory, [])
                    others.append(_Cold(len(readings), wanted, size, nothing_yet and not others))
                    remaining -= size
                readings.append(reading)
        except BaseException:
            _discard(readings)
            raise

        def done(ended: dict[str, Deferred[list[_Reading]]]) -> None:
            failure = None
            for directory, outcome in ended.items():
                try:
                    for each, reading in zip(cold[directory], outcome.result(), strict=True):
                        readings[each.place] = reading
                except Exception as error:
                    failure = error
            if failure is not None:
                _discard(readings)
                self.answer.fail(failure)
            elif len(ended) == len(cold) or self._is_last_look or self._enough(readings):
                self._complete_from_pool(readings)
            else:
                self._wait(readings, self._deadline_ms - self._node.clock.monotonic_ms())

        def late(found: list[_Reading]) -> None:
            _discard(found)
            if self._entry is not None and not self._entry.done:
                self._wait_no_longer()
                self.complete_with_read()

        self.answer.on_abandoned = self._abandon
        reads = {directory: partial(self._read_these, group) for directory, group in cold.items()}
        self._node.cold_reads.read(reads, done, late)

    def _abandon(self) -> None:
        """The client is gone: what is read now is not waited for again."""
        self._is_last_look = True

    def _nothing_yet(self, wanted: FetchPartition) -> tuple[_Reading, str]:
        """What is answered for a partition whose directory is late, and that directory."""
        replica = self._replica(wanted)
        data = Data(
            partition_index=wanted.partition,
            high_watermark=replica.high_watermark,
            last_stable_offset=replica.last_stable_offset,
            log_start_offset=replica.log.log_start_offset,
            aborted_transactions=[] if self._committed_only else None,
            preferred_read_replica=_UNKNOWN,
            records=b"",
        )
        return _Reading(wanted, data), replica.log.owner.path

    def _read_these(self, group: list[_Cold]) -> list[_Reading]:
        """Reads partitions of one directory, on an I/O thread."""
        readings: list[_Reading] = []
        try:
            for each in group:
                reading = self._read_one(each.wanted, each.size, each.nothing_yet, blocking=True)
                readings.append(reading)
        except BaseException:
            _discard(readings)
            raise
        return readings

    def _directories(self) -> set[str]:
        """Of the logs that are read."""
        node, directories = self._node, set()
        for wanted in self._plan.partitions.values():
            topic = wanted.topic or node.metadata.topic_name(wanted.topic_id)
            replica = None if topic is None else node.replicas.get(TopicPartition(topic, wanted.partition))
            if replica is not None:
                directories.add(replica.log.owner.path)
        return directories

    def _read_all(self, *, blocking: bool) -> list[_Reading]:
        readings: list[_Reading] = []
        remaining = self._bytes_max
        nothing_yet = True
        try:
            for wanted in list(self._plan.partitions.values()):
                reading = self._read_one(wanted, remaining, nothing_yet, blocking)
                readings.append(reading)
                if reading.size:
                    nothing_yet = False
                    remaining = max(0, remaining - reading.size)
        except BaseException:
            _discard(readings)
            raise
        return readings

    def _read_one(self, wanted: FetchPartition, remaining: int, nothing_yet: bool, blocking: bool) -> _Reading:
        try:
            replica = self._replica(wanted)
            log = replica.log
            truncations = log.truncations
            diverging = self._diverging(replica, wanted)
            limit = self._limit(replica)
            preferred = self._preferred(replica, wanted) if self._rack and replica.leader is not None else None
            if diverging is None and preferred is None:
                result = log.read(
                    wanted.fetch_offset,
                    min(max(wanted.max_bytes, 0), remaining),
                    up_to_offset=limit,
                    min_one_batch=nothing_yet,
                    blocking=blocking,
                )
                aborted = self._aborted(log, wanted.fetch_offset, result, limit, blocking)
        except KafkaError as error:
            return _Reading(wanted, failed(self._node.metadata, self._context.api_version, wanted, error))
        data = Data(
            partition_index=wanted.partition,
            high_watermark=replica.high_watermark,
            last_stable_offset=replica.last_stable_offset,
            log_start_offset=log.log_start_offset,
            preferred_read_replica=_UNKNOWN,
            records=b"",
        )
        reading = _Reading(wanted, data)
        reading.replica = replica
        reading.log, reading.limit, reading.truncations = log, limit, truncations
        if diverging is not None:
            data.diverging_epoch.epoch, data.diverging_epoch.end_offset = diverging
            return reading
        if preferred is not None:
            data.preferred_read_replica = preferred
            data.aborted_transactions = [] if self._committed_only else None
            return reading
        if result.size:
            data.records = list(result.ranges)
            reading.size = result.size
        if log.ahead is not None:
            reading.ahead = log
        data.aborted_transactions = aborted
        return reading

    def _aborted(
        self, log: Log, offset: int, result: ReadResult, limit: int, blocking: bool
    ) -> list[messages.FetchResponse.AbortedTransaction] | None:
        """The aborted transactions in what was read; None where the client does not leave them out.

        What was read is given up where that fails.
        """
        if not self._committed_only:
            return None
        try:
            aborted = log.aborted_in(offset, result, up_to_offset=limit, blocking=blocking)
        except CorruptFile as damage:
            release(result)
            logger.error("aborted transactions unknown: reason=%s", damage)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(damage)) from damage
        except BaseException:
            release(result)
            raise
        return [
            messages.FetchResponse.AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in aborted
        ]

    def _replica(self, wanted: FetchPartition) -> Replica:
        """The replica to read from; KafkaError where there is none, or no right to."""
        topic = topic_of(self._node.metadata, wanted)
        if not authorize(self._context, Operation.READ, ResourceType.TOPIC, topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        replica = replica_of(self._node.metadata, self._node.replicas, topic, wanted)
        check_leader_epoch(replica, wanted.current_leader_epoch)
        if replica.leader is None and not self._from_followers:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica

    def _preferred(self, replica: Replica, wanted: FetchPartition) -> int | None:
        context = self._context
        return replica_selector.preferred_read_replica(
            self._node.broker_id,
            self._node.metadata.image,
            replica,
            self._rack,
            wanted.fetch_offset,
            context.listener,
            context.received_ms,
        )

    def _diverging(self, replica: Replica, wanted: FetchPartition) -> tuple[int, int] | None:
        """Where the client's log and ours part, by the epoch of the last record that it has (KIP-595); or None."""
        if wanted.last_fetched_epoch < 0 or self._context.api_version < _DIVERGING_EPOCH_SINCE:
            return None
        return diverging_epoch(replica.log, wanted.fetch_offset, wanted.last_fetched_epoch)

    # Answering.

    def _enough(self, readings: list[_Reading]) -> bool:
        size = 0
        for reading in readings:
            data = reading.data
            if data.error_code or data.diverging_epoch.epoch >= 0 or data.preferred_read_replica >= 0:
                return True
            size += reading.size
        return not readings or size >= self._bytes_min

    def _complete(self, readings: list[_Reading]) -> None:
        self._entry = None
        self._node.repairs.look()
        if self._context.quota is not None and not self._may_send(self._context.quota, readings):
            _discard(readings)
            self.answer.complete(messages.FetchResponse(session_id=self._node.fetch_sessions.withhold(self._plan)))
            return
        plan = self._plan
        response = messages.FetchResponse(session_id=plan.session_id)
        topic: messages.FetchResponse.FetchableTopicResponse | None = None
        by_id = self._context.api_version >= _TOPIC_IDS_SINCE
        leaders: set[int] = set()
        for reading in readings:
            if reading.ahead is not None:
                self._node.disk_scheduler.check_ahead(reading.ahead)
            wanted, data = reading.wanted, reading.data
            self._count(reading)
            if not plan.has_news(wanted, data):
                continue
            plan.told(wanted, data)
            if topic is None or (topic.topic_id != wanted.topic_id if by_id else topic.topic != wanted.topic):
                topic = messages.FetchResponse.FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id)
                response.responses.append(topic)
            topic.partitions.append(data)
            if data.error_code:
                leaders.add(data.current_leader.leader_id)
        if leaders - {_UNKNOWN}:
            self._name_leaders(response, leaders)
        self.answer.complete(response)

    def _may_send(self, quota: RequestQuota, readings: list[_Reading]) -> bool:
        """Whether the client's quotas allow what was read; if not, the answer is empty and says for how long."""
        if quota.limits_time:
            quota.pause(perf_counter_ns())
        now_ms = self._node.clock.monotonic_ms()
        quota.spent(now_ms)
        size = ANSWER_OVERHEAD + sum(PARTITION_OVERHEAD + reading.size for reading in readings)
        return quota.may_send(size, now_ms)

    def _count(self, reading: _Reading) -> None:
        """What a partition of an answer is in the metrics of its topic."""
        if reading.replica is not None:
            traffic = reading.replica.traffic
            traffic.fetches += 1
            if not self._is_inspection:
                traffic.bytes_out += reading.size
        elif reading.data.error_code not in EXPECTED_ERRORS:
            unread = self._node.replicas.traffic.topics.get(reading.wanted.topic)
            if unread is not None:
                unread.fetches += 1
                unread.failed_fetches += 1

    def _name_leaders(self, response: messages.FetchResponse, leaders: set[int]) -> None:
        """Adds where the leaders are, so that the consumer need not ask (KIP-951)."""
        for broker, endpoint in self._node.metadata.live_endpoints(self._context.listener):
            if broker.id in leaders:
                response.node_endpoints.append(
                    messages.FetchResponse.NodeEndpoint(
                        node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                    )
                )


def _discard(readings: list[_Reading]) -> None:
    """Gives up what was read."""
    for reading in readings:
        if isinstance(reading.data.records, list):
            for chunk in reading.data.records:
                if isinstance(chunk, FileRange):
                    chunk.release()


def _denied(request: messages.FetchRequest) -> messages.FetchResponse:
    """To one that says it is a follower and may not be one: no partition is read, as with Kafka."""
    return messages.FetchResponse(
        responses=[
            messages.FetchResponse.FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    Data(
                        partition_index=partition.partition,
                        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                        high_watermark=_UNKNOWN,
                        last_stable_offset=_UNKNOWN,
                        log_start_offset=_UNKNOWN,
                        aborted_transactions=None,
                        records=b"",
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def error_response(request: messages.FetchRequest, version: int, error: KafkaError) -> messages.FetchResponse:
    return messages.FetchResponse(error_code=error.code)
