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
from tidelog.broker.fetches.fetch_partitions import ANSWER_OVERHEAD, PARTITION_OVERHEAD
from tidelog.broker.fetches.fetch_sessions import FetchContext, FetchPartition
from tidelog.broker.fetches.waiting_fetch import Looked, WaitingFetch, limit_of
from tidelog.broker.handlers import Versions, _fetch_ordinary
from tidelog.broker.handlers._between_brokers import require_broker
from tidelog.broker.handlers._fetch_reading import UNKNOWN, Data, PartitionReader, Reading, discard
from tidelog.broker.shell import InDirectories
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import BrokerEpoch, BrokerId, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType
from tidelog.storage.errors import WouldBlock

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.handler import ContextOf, Frames
    from tidelog.broker.node import Node
    from tidelog.quotas.request_quota import RequestQuota

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
_TOPIC_IDS_SINCE: Final = 13
_REPLICA_STATE_SINCE: Final = 15


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
    return _fetch_ordinary.take(node, context, body, _fetch)


def frames(node: Node, context_of: ContextOf) -> Frames | None:
    """The compiled way of what `handle_body` does; None where it was not built."""
    return _fetch_ordinary.frames(node, context_of, _fetch)


def _fetch(
    plan: FetchContext,
    node: Node,
    context: RequestContext,
    request: messages.FetchRequest,
    *,
    is_last_look: bool = False,
    is_cold: bool = False,
    waited_ms: int = 0,
) -> messages.FetchResponse | Deferred[messages.FetchResponse]:
    """A consumer's fetch; it is answered with what there is now if `is_last_look`. `is_cold`: something that is to be
    read is known not to be in memory; then it may have waited for more before."""
    fetch = _Fetch(node, context, request, plan, waited_ms)
    if is_last_look:
        fetch.complete_with_read(is_cold=is_cold)
    else:
        fetch.begin(is_cold=is_cold)
    return fetch.answer.result() if fetch.answer.done else fetch.answer


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
        "_is_inspection",
        "_is_last_look",
        "_node",
        "_plan",
        "_reader",
        "_request",
    )

    def __init__(
        self,
        node: Node,
        context: RequestContext,
        request: messages.FetchRequest,
        plan: FetchContext,
        waited_ms: int,
    ) -> None:
        bytes_max = min(request.max_bytes, node.config.fetch_max_bytes)
        if context.quota is not None:
            bytes_max = int(min(bytes_max, context.quota.fetch_bytes_max))
        super().__init__(node.purgatory, min(request.min_bytes, bytes_max), request.isolation_level == READ_COMMITTED)
        self._node = node
        self._bytes_max = bytes_max
        self._context = context
        self._request = request
        self._plan = plan
        self._reader = PartitionReader(node, context, request.rack_id, committed_only=self._committed_only)
        self._deadline_ms = node.clock.monotonic_ms() + max(request.max_wait_ms - waited_ms, 0)
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

    def _wait(self, readings: list[Reading], timeout_ms: int) -> None:
        """Waits for more than these, which are given up."""
        discard(readings)
        self.wait_for(
            [
                Looked(
                    reading.wanted, reading.replica, reading.leader, reading.leader_epoch, reading.limit, reading.size
                )
                for reading in readings
                if reading.replica is not None
            ],
            timeout_ms,
        )

    # Reading.

    def complete_with_read(self, *, is_cold: bool = False) -> bool:
        self._is_last_look = True
        readings = self._read(is_cold=is_cold)
        if readings is not None:
            self._complete(readings)
        return True

    def read_cold(self) -> None:
        self._read(is_cold=True)

    def _read(self, *, is_cold: bool = False) -> list[Reading] | None:
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
        self.answer.on_abandoned = self._abandon

        def done(settled: Deferred[list[Reading]]) -> None:
            try:
                readings = settled.result()
            except Exception as error:
                self.answer.fail(error)
            else:
                self._complete_or_wait(readings)

        reading.on_complete(done)
        return None

    def _complete_or_wait(self, readings: list[Reading]) -> None:
        """Answers with what I/O threads have read, or waits for more where it is too little and there is time left."""
        left_ms = self._deadline_ms - self._node.clock.monotonic_ms()
        if self._is_last_look or left_ms <= 0 or self._enough(readings):
            self._complete_from_pool(readings)
        else:
            self._wait(readings, left_ms)

    def _complete_from_pool(self, readings: list[Reading]) -> None:
        """Answers with what an I/O thread has read, or reads again where that is not in the log any more."""
        for reading in readings:
            if reading.replica is not None and reading.is_outdated(limit_of(reading.replica, self._committed_only)):
                discard(readings)
                self.complete_with_read()
                return
        for reading in readings:
            reading.look_again()
        self._complete(readings)

    def _read_by_directory(self) -> None:
        """Reads what is in memory, and has the rest read in each directory by itself; completes the request, or waits
        where there is too little and some directory is late."""
        readings: list[Reading] = []
        cold: dict[str, list[_Cold]] = {}
        remaining, nothing_yet = self._bytes_max, True
        try:
            for wanted in list(self._plan.partitions.values()):
                try:
                    reading = self._reader.read(wanted, remaining, nothing_yet, blocking=False)
                    nothing_yet = nothing_yet and not reading.size
                    remaining = max(0, remaining - reading.size)
                except WouldBlock:
                    reading, directory = self._reader.nothing_of(wanted)
                    size = min(max(wanted.max_bytes, 0), remaining)
                    others = cold.setdefault(directory, [])
                    others.append(_Cold(len(readings), wanted, size, nothing_yet and not others))
                    remaining -= size
                readings.append(reading)
        except BaseException:
            discard(readings)
            raise

        def done(ended: dict[str, Deferred[list[Reading]]]) -> None:
            failure = None
            for directory, outcome in ended.items():
                try:
                    for each, reading in zip(cold[directory], outcome.result(), strict=True):
                        readings[each.place] = reading
                except Exception as error:
                    failure = error
            if failure is not None:
                discard(readings)
                self.answer.fail(failure)
            else:
                self._complete_or_wait(readings)

        def late(found: list[Reading]) -> None:
            discard(found)
            if self._entry is not None and not self._entry.done:
                self._wait_no_longer()
                self.complete_with_read()

        self.answer.on_abandoned = self._abandon
        reads = {directory: partial(self._read_these, group) for directory, group in cold.items()}
        self._node.cold_reads.read(reads, done, late)

    def _abandon(self) -> None:
        """The client is gone: what is read now is not waited for again."""
        self._is_last_look = True

    def _read_these(self, group: list[_Cold]) -> list[Reading]:
        """Reads partitions of one directory, on an I/O thread."""
        readings: list[Reading] = []
        try:
            for each in group:
                reading = self._reader.read(each.wanted, each.size, each.nothing_yet, blocking=True)
                readings.append(reading)
        except BaseException:
            discard(readings)
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

    def _read_all(self, *, blocking: bool) -> list[Reading]:
        readings: list[Reading] = []
        remaining = self._bytes_max
        nothing_yet = True
        try:
            for wanted in list(self._plan.partitions.values()):
                reading = self._reader.read(wanted, remaining, nothing_yet, blocking)
                readings.append(reading)
                if reading.size:
                    nothing_yet = False
                    remaining = max(0, remaining - reading.size)
        except BaseException:
            discard(readings)
            raise
        return readings

    # Answering.

    def _enough(self, readings: list[Reading]) -> bool:
        size = 0
        for reading in readings:
            data = reading.data
            if data.error_code or data.diverging_epoch.epoch >= 0 or data.preferred_read_replica >= 0:
                return True
            size += reading.size
        return not readings or size >= self._bytes_min

    def _complete(self, readings: list[Reading]) -> None:
        self._entry = None
        self._node.repairs.look()
        if self._context.quota is not None and not self._may_send(self._context.quota, readings):
            discard(readings)
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
        if leaders - {UNKNOWN}:
            self._name_leaders(response, leaders)
        self.answer.complete(response)

    def _may_send(self, quota: RequestQuota, readings: list[Reading]) -> bool:
        """Whether the client's quotas allow what was read; if not, the answer is empty and says for how long."""
        if quota.limits_time:
            quota.pause(perf_counter_ns())
        now_ms = self._node.clock.monotonic_ms()
        quota.spent(now_ms)
        size = ANSWER_OVERHEAD + sum(PARTITION_OVERHEAD + reading.size for reading in readings)
        return quota.may_send(size, now_ms)

    def _count(self, reading: Reading) -> None:
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
                        high_watermark=UNKNOWN,
                        last_stable_offset=UNKNOWN,
                        log_start_offset=UNKNOWN,
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
