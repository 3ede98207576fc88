"""Reads a range of a partition's offsets over a blocking connection, the next fetch always on its way.

While the caller decodes one piece, the broker reads the next. A leader that moves is followed to where the refusal
names it (KIP-951), or asked for; a quota's pause is kept and does not count as silence.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import Protocol, TypeVar

from tidelog.client.addresses import Address
from tidelog.client.blocking_connection import BlockingConnection
from tidelog.client.errors import ClientError, ConnectionFailed, RequestTimedOut, TopicChanged
from tidelog.client.fetching import FetchedData, FetchSettings, fetch_request, fetched, rotten_batch, whole_batches
from tidelog.client.operations import Deadline, Operation
from tidelog.client.routing import Routing
from tidelog.client.views import partition_error
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition

T = TypeVar("T")


class RangeCluster(Protocol):
    """What a range is read through: a `BlockingCluster`."""

    @property
    def routing(self) -> Routing:
        """Topics, leaders and throttles as they are known."""
        ...

    def run(self, operation: Operation[T]) -> T:
        """Carries out an operation."""
        ...

    def connection(self, address: Address, deadline: float) -> BlockingConnection:
        """An open connection, made where there is none."""
        ...

    def wait_out_throttle(self, address: Address) -> float:
        """Leaves a broker alone for as long as it has asked for; how many seconds that were."""
        ...

    def with_range(self, error: KafkaError, topic_partition: TopicPartition, offset: int) -> KafkaError:
        """OffsetOutOfRange with the partition's range for that error; any other as it is."""
        ...


class RangeReader:
    """Reads one range; between two pieces there is always a fetch in flight."""

    def __init__(
        self,
        cluster: RangeCluster,
        topic_partition: TopicPartition,
        end: int,
        settings: FetchSettings,
        topic_id: TopicId | None,
    ) -> None:
        self._cluster = cluster
        self._routing = cluster.routing
        self._topic_partition = topic_partition
        self._end = end
        self._settings = settings
        self._topic_id = topic_id
        self._connection: BlockingConnection | None = None
        self._awaited: int | None = None
        self._failures = 0
        self._throttled_s = 0.0
        """Seconds that the broker asked to wait since the deadline was last moved: it does not count them."""

    def read(self, start: int) -> Iterator[FetchedData]:
        position = start
        deadline = self._routing.deadline()
        try:
            while position < self._end:
                data = self._next(position, deadline)
                if self._throttled_s:
                    deadline = dataclasses.replace(deadline, at=deadline.at + self._throttled_s)
                    self._throttled_s = 0.0
                if data is None:
                    continue
                self._failures = 0
                if not data.records:
                    # Brokers wait before they answer so; the pause is for those that don't.
                    if not self._cluster.run(self._routing.pause(1, deadline)):
                        raise RequestTimedOut(self._stalled(data))
                    continue
                deadline = self._routing.deadline()
                data = self._cut(data)
                position = data.next_offset
                if position < self._end:
                    self._send_ahead(position, deadline)
                yield data
                # The caller may have taken longer than an operation has: what passes is waited for all the same.
                deadline = self._routing.deadline()
        finally:
            # An answer still on its way would only be in the way of the connection's next user.
            if self._awaited is not None and self._connection is not None:
                self._connection.close()

    def _next(self, position: int, deadline: Deadline) -> FetchedData | None:
        """One answer: data, or None after an error that may pass and was waited for."""
        try:
            if self._awaited is None:
                self._send(position, deadline)
            assert self._connection is not None
            assert self._awaited is not None
            awaited, self._awaited = self._awaited, None
            response = self._connection.receive(awaited, deadline=self._call_deadline())
        except (ConnectionFailed, RequestTimedOut) as error:
            self._back_off(error, deadline)
            return None
        answers = list(fetched(response, self._routing, {self._topic_partition: position}))
        if not answers:
            # A broker whose quota is used up answers so, at once, and asks for a pause, which the next request keeps.
            is_throttled = self._routing.throttles.left_s(self._connection.address) > 0
            if deadline.remaining_s <= 0 or not (is_throttled or self._cluster.run(self._routing.pause(1, deadline))):
                raise RequestTimedOut(f"{self._connection.address} answers without {self._topic_partition}")
            return None
        ((_, code, _, data),) = answers
        if code is ErrorCode.NONE:
            return data
        if code is ErrorCode.CORRUPT_MESSAGE:
            raise rotten_batch(self._topic_partition, position)
        if self._routing.take_leader(self._topic_partition, self._topic_id or ZERO_TOPIC_ID, data.leader):
            return None
        refusal = partition_error(self._topic_partition, code, None)
        if not code.retriable:
            raise self._cluster.with_range(refusal, self._topic_partition, position)
        self._back_off(refusal, deadline)
        return None

    def _send_ahead(self, position: int, deadline: Deadline) -> None:
        leader = self._routing.leader(self._topic_partition)
        if leader is not None and self._routing.throttles.left_s(leader.address) > 0:
            return  # The caller gets its piece at once; the fetch goes out when the broker wants it.
        try:
            self._send(position, deadline)
        except (ConnectionFailed, RequestTimedOut):
            # The caller gets its piece first; the next call meets the same trouble and deals with it.
            self._routing.forget_leader(self._topic_partition)

    def _send(self, position: int, deadline: Deadline) -> None:
        if self._routing.leader(self._topic_partition) is None:
            self._find_leader(deadline)
        leader = self._routing.leader(self._topic_partition)
        if leader is None:
            raise ConnectionFailed(f"{self._topic_partition} has no leader now")
        self._check_topic_id()
        self._throttled_s += self._cluster.wait_out_throttle(leader.address)
        call_deadline = self._call_deadline()
        self._connection = self._cluster.connection(leader.address, call_deadline)
        request = fetch_request(self._routing, {self._topic_partition: position}, self._settings)
        self._awaited = self._connection.send(request, deadline=call_deadline)

    def _find_leader(self, deadline: Deadline) -> None:
        topic = self._topic_partition.topic
        self._routing.topics.pop(topic, None)
        view = self._cluster.run(self._routing.require_topics((topic,), deadline))[topic]
        if self._topic_partition.partition not in view.partitions:
            text = f"topic '{topic}' has no partition {self._topic_partition.partition}"
            raise partition_error(self._topic_partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)

    def _check_topic_id(self) -> None:
        topic = self._topic_partition.topic
        topic_id = self._routing.topic_id(topic)
        if self._topic_id is None:
            self._topic_id = topic_id
        if ZERO_TOPIC_ID not in (self._topic_id, topic_id) and self._topic_id != topic_id:
            raise TopicChanged(topic)

    def _call_deadline(self) -> float:
        return time.monotonic() + self._routing.call_timeout_s

    def _back_off(self, error: ClientError | KafkaError, deadline: Deadline) -> None:
        self._awaited = None
        self._routing.forget_leader(self._topic_partition)
        self._failures += 1
        if not self._cluster.run(self._routing.pause(self._failures, deadline)):
            raise error

    def _cut(self, data: FetchedData) -> FetchedData:
        """Without the batches at and after the end of the range."""
        if data.next_offset <= self._end:
            return data
        size, _ = whole_batches(data.records, self._topic_partition, self._end)
        return FetchedData(
            data.topic_partition,
            data.fetch_offset,
            # What is between the last batch and the end is not there: the range is read to its end.
            max(data.fetch_offset, self._end),
            data.records[:size],
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset,
            data.aborted,
        )

    def _stalled(self, data: FetchedData) -> str:
        return (
            f"{self._topic_partition} gave nothing after offset {data.fetch_offset} for "
            f"{self._routing.operation_timeout_s:g} s, but {self._end} was asked for: its log ends at "
            f"{data.high_watermark} (last stable offset {data.last_stable_offset}); records may have been lost, or a "
            "transaction is open"
        )
