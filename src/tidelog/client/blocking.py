"""A client that blocks: for Spark's tasks, scripts and tests, where an event loop would be one too many.

`BlockingCluster` carries out the operations of `routing` over plain sockets, and reads ranges of offsets at the speed
of the socket: each answer is received into one buffer that the records stay in, and the next fetch is on its way
before the caller gets the bytes of this one, so that the broker reads while the caller decodes.

    with BlockingCluster("localhost:9092") as cluster:
        for data in cluster.iterate_fetch(TopicPartition("flights", 0), start=0, end=1000):
            decode(data.records)

Neither class is safe to share between threads; open one a thread.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from tidelog.client import offsets as offset_operations
from tidelog.client.addresses import Address, parse_bootstrap
from tidelog.client.blocking_connection import DEFAULT_CLIENT_ID, BlockingConnection
from tidelog.client.errors import ClientError, OffsetOutOfRange
from tidelog.client.fetching import READ_UNCOMMITTED, FetchedData, FetchSettings, fetch_request, fetched
from tidelog.client.frame_buffers import FrameBuffers
from tidelog.client.offsets import CommittedOffset, OffsetFound
from tidelog.client.operations import Call, Operation, Outcomes, Pause, Step
from tidelog.client.producing import ProducedBatch, produce_batches
from tidelog.client.range_reader import RangeReader
from tidelog.client.routing import Routing
from tidelog.client.security import ClientSecurity
from tidelog.client.views import TopicView
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId, TopicPartition

T = TypeVar("T")


class BlockingCluster:
    """A cluster as a blocking client sees it: connections opened when needed, leaders found and found again.

    `operation_timeout_s` bounds each call of a method with its retries, `call_timeout_s` one request. Errors of the
    cluster are `KafkaError`, those on the way to it `ClientError`. `security` is how connections are secured.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = DEFAULT_CLIENT_ID,
        call_timeout_s: float = 30.0,
        operation_timeout_s: float = 60.0,
        fail_fast: bool = False,
        security_protocol: str = "PLAINTEXT",
        security: ClientSecurity | None = None,
    ) -> None:
        self._security = security or ClientSecurity(security_protocol)
        self.client_id = client_id
        self.routing = Routing(
            parse_bootstrap(bootstrap),
            now=time.monotonic,
            draw=random.random,
            call_timeout_s=call_timeout_s,
            operation_timeout_s=operation_timeout_s,
            fail_fast=fail_fast,
        )
        self._buffers = FrameBuffers()
        self._connections: dict[Address, BlockingConnection] = {}

    def __enter__(self) -> BlockingCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes every connection; a later call opens them again."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def start_afresh(self) -> None:
        """For another job of the same process: keeps the connections that can be used, and forgets the topics."""
        self.routing.topics.clear()
        for address, connection in list(self._connections.items()):
            if not connection.is_quiet:
                connection.close()
                del self._connections[address]

    # Carrying operations out

    def run(self, operation: Operation[T]) -> T:
        """Carries out an operation of `routing`, `offsets` or `admin` to its result or its error."""
        outcomes: Outcomes = ()
        try:
            step = next(operation)
            while True:
                outcomes = self._perform(step)
                step = operation.send(outcomes)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]  # A generator's value is untyped in StopIteration.
        finally:
            operation.close()

    def _perform(self, step: Step) -> Outcomes:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return ()
        sent: list[tuple[BlockingConnection, int | None, float] | ClientError] = []
        for call in step:
            self.wait_out_throttle(call.address)
            deadline = time.monotonic() + call.timeout_s
            try:
                connection = self.connection(call.address, deadline)
                sent.append((connection, connection.send(call.message, deadline=deadline), deadline))
            except ClientError as error:
                sent.append(error)
        return [outcome if isinstance(outcome, ClientError) else _received(*outcome) for outcome in sent]

    def wait_out_throttle(self, address: Address) -> float:
        """Leaves a broker alone for as long as it has asked for; how many seconds that were."""
        left = self.routing.throttles.left_s(address)
        if left > 0:
            time.sleep(left)
        return left

    def connection(self, address: Address, deadline: float) -> BlockingConnection:
        """An open connection to a broker, made where there is none; `deadline` is monotonic."""
        connection = self._connections.get(address)
        if connection is not None and (connection.is_expiring or connection.is_over):
            connection.close()
        if connection is None or connection.closed:
            left = max(0.001, deadline - time.monotonic())
            connection = BlockingConnection(
                address,
                client_id=self.client_id,
                timeout_s=left,
                throttles=self.routing.throttles,
                security=self._security,
                buffers=self._buffers,
            )
            self._connections[address] = connection
        return connection

    # Topics and offsets

    def topics(self, topics: Iterable[str] | re.Pattern[str] | None = None) -> dict[str, TopicView]:
        """Topics as the cluster has them now: those named (KafkaError for one that is missing), those whose whole
        name a pattern matches, or (None) all; internal ones only by name."""
        routing = self.routing
        if topics is None or isinstance(topics, re.Pattern):
            self.run(routing.refresh(None, routing.deadline()))
            return {
                name: view
                for name, view in sorted(routing.topics.items())
                if not view.internal and (topics is None or topics.fullmatch(name))
            }
        names = list(dict.fromkeys(topics))
        for name in names:
            routing.topics.pop(name, None)
        return self.run(routing.require_topics(names, routing.deadline()))

    def partitions(self, topics: Iterable[str] | re.Pattern[str] | None = None) -> dict[str, list[int]]:
        """The partitions of topics, [topic] -> [partition]; `topics` as for the method of that name."""
        return {name: list(view.partitions) for name, view in self.topics(topics).items()}

    def offsets(
        self, timestamps: Mapping[TopicPartition, int], *, isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, OffsetFound]:
        """Offsets for timestamps (ms) or for -1 (latest), -2 (earliest), -3 (greatest timestamp), one request a leader.

        Offset -1: no record is that late. Raises the first partition's KafkaError.
        """
        operation = offset_operations.list_offsets(self.routing, timestamps, isolation=isolation)
        return _all_or_error(self.run(operation))

    def committed_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What a group committed, for some or (None) all partitions; those without a commit are left out."""
        return self.run(offset_operations.committed_offsets(self.routing, group, partitions))

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset | int]) -> None:
        """Commits next offsets to read for a group without members."""
        commits = {tp: CommittedOffset(offset) if isinstance(offset, int) else offset for tp, offset in offsets.items()}
        self.run(offset_operations.commit_offsets(self.routing, group, commits))

    def produce(self, topic_partition: TopicPartition, batches: bytes, *, acks: int = -1) -> ProducedBatch:
        """Appends record batches as they are. A lost answer makes it send them again: without a producer id in the
        batches they may then be there twice."""
        operation = produce_batches(self.routing, {topic_partition: batches}, acks=acks)
        return _all_or_error(self.run(operation))[topic_partition]

    # Fetching

    def fetch(self, topic_partition: TopicPartition, offset: int, settings: FetchSettings | None = None) -> FetchedData:
        """One fetch of one partition; without records when there was nothing within `settings.max_wait_ms`.

        Raises OffsetOutOfRange (with the partition's range) and other KafkaErrors.
        """
        chosen = settings or FetchSettings()
        routing = self.routing
        positions = {topic_partition: offset}
        routing_deadline = routing.deadline()
        outcome = self.run(
            routing.ask_leaders(
                positions,
                lambda group: fetch_request(routing, group, chosen),
                lambda response: fetched(response, routing, positions),
                routing_deadline,
            )
        )[topic_partition]
        if isinstance(outcome, KafkaError):
            raise self.with_range(outcome, topic_partition, offset)
        return outcome

    def iterate_fetch(
        self,
        topic_partition: TopicPartition,
        start: int,
        end: int,
        settings: FetchSettings | None = None,
        *,
        topic_id: TopicId | None = None,
    ) -> Iterator[FetchedData]:
        """The records from `start` up to `end` (exclusive), piece by piece, the next piece fetched ahead.

        Each piece has whole batches: the first may begin before `start`, the last may end after `end`; `start` and
        `end` of the range are the decoder's to apply. Offsets that no longer exist inside the range (compaction,
        transaction markers) are passed over. Raises OffsetOutOfRange when `start` is gone, TopicChanged when the topic
        is no longer the one of `topic_id` (of the first fetch where None), and RequestTimedOut when the partition
        gives nothing more for `operation_timeout_s` before `end`.
        """
        reader = RangeReader(self, topic_partition, end, settings or FetchSettings(), topic_id)
        return reader.read(start)

    def with_range(self, error: KafkaError, topic_partition: TopicPartition, offset: int) -> KafkaError:
        """OffsetOutOfRange with the partition's range for that error; any other as it is."""
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            return error
        earliest = self.offsets({topic_partition: -2})[topic_partition].offset
        latest = self.offsets({topic_partition: -1})[topic_partition].offset
        return OffsetOutOfRange(topic_partition, offset, earliest, latest)


def _received(connection: BlockingConnection, correlation_id: int | None, deadline: float) -> Any:
    if correlation_id is None:
        return None
    try:
        return connection.receive(correlation_id, deadline=deadline)
    except ClientError as error:
        return error


def _all_or_error(results: Mapping[TopicPartition, T | KafkaError]) -> dict[TopicPartition, T]:
    errors: Sequence[KafkaError] = [result for result in results.values() if isinstance(result, KafkaError)]
    if errors:
        raise errors[0]
    return {tp: result for tp, result in results.items() if not isinstance(result, KafkaError)}


__all__ = ["DEFAULT_CLIENT_ID", "BlockingCluster", "BlockingConnection", "Call", "CommittedOffset", "FetchSettings"]
