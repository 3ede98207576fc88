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

import contextlib
import dataclasses
import random
import re
import select
import socket
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, TypeVar

from tidelog.client import offsets as offset_operations
from tidelog.client.addresses import Address, parse_bootstrap
from tidelog.client.errors import (
    ClientError,
    ConnectionFailed,
    OffsetOutOfRange,
    RequestTimedOut,
    TopicChanged,
)
from tidelog.client.exchange import SESSION_SHARE, SIZE_PREFIX, Exchange
from tidelog.client.fetching import (
    READ_UNCOMMITTED,
    FetchedData,
    FetchSettings,
    fetch_request,
    fetched,
    rotten_batch,
    whole_batches,
)
from tidelog.client.offsets import CommittedOffset, OffsetFound
from tidelog.client.operations import Call, Deadline, Operation, Outcomes, Pause, Step
from tidelog.client.producing import ProducedBatch, produce_batches
from tidelog.client.routing import Routing
from tidelog.client.security import ClientSecurity, refused_by_alert, tls_error
from tidelog.client.throttles import Throttles
from tidelog.client.views import TopicView, partition_error
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition

T = TypeVar("T")

DEFAULT_CLIENT_ID: Final = "tidelog"


class BlockingConnection:
    """One socket to one broker. Requests may be sent before earlier ones are answered (pipelined).

    Every error closes it: after a lost or late answer nothing that follows could be trusted.
    """

    def __init__(
        self,
        address: Address,
        *,
        client_id: str = DEFAULT_CLIENT_ID,
        timeout_s: float = 30.0,
        throttles: Throttles | None = None,
        security: ClientSecurity | None = None,
    ) -> None:
        """Connects, negotiates versions and authenticates; ConnectionFailed, RequestTimedOut, InvalidResponse or
        AuthenticationError.

        `throttles` is told for how long the broker asks to be left alone; the owner of the connection keeps it.
        """
        self.address = address
        self._throttles = throttles
        self._exchange = Exchange(client_id, str(address), security.log_in() if security is not None else None)
        self._early: dict[int, Any] = {}
        self._prefix = bytearray(SIZE_PREFIX)
        deadline = time.monotonic() + timeout_s
        try:
            self._socket = socket.create_connection(address, timeout=max(timeout_s, 0.001))
        except TimeoutError as error:
            raise RequestTimedOut(f"{address} did not accept a connection within {timeout_s:g} s").about(
                broker=str(address)
            ) from error
        except OSError as error:
            raise ConnectionFailed(f"cannot connect to {address}: {error.strerror or error}").about(
                broker=str(address)
            ) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if security is not None and security.tls is not None:
            self._socket = _encrypted(self._socket, address, security.tls)
        self.closed = False
        with self._closing_on_error():
            hello: bytes | None = self._exchange.hello()
            while hello is not None:
                self._send(hello, deadline)
                hello = self._exchange.hello_answered(self._receive_frame(deadline))
        lifetime_s = self._exchange.session_lifetime_ms / 1000
        self._renew_at_s = time.monotonic() + lifetime_s * SESSION_SHARE if lifetime_s else None

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """What the broker serves, [api key] -> (lowest, highest)."""
        return self._exchange.versions

    @property
    def is_expiring(self) -> bool:
        """Whether the broker will soon want another authentication, and no answer is due."""
        return self._renew_at_s is not None and time.monotonic() >= self._renew_at_s and not self._exchange.awaited

    @property
    def is_quiet(self) -> bool:
        """Whether no answer is due, and the broker has neither closed the connection nor sent what no one asked for."""
        if self.closed or self._exchange.awaited:
            return False
        watch = select.poll()
        watch.register(self._socket, select.POLLIN)
        return not watch.poll(0)

    def request(self, message: Any, version: int | None = None, *, timeout_s: float = 30.0) -> Any:
        """Sends and waits; None for a request that has no answer (acks=0)."""
        deadline = time.monotonic() + timeout_s
        correlation_id = self.send(message, version, deadline=deadline)
        return None if correlation_id is None else self.receive(correlation_id, deadline=deadline)

    def send(self, message: Any, version: int | None = None, *, deadline: float) -> int | None:
        """Sends a request; its correlation id, to receive by, None where no answer comes. `deadline` is monotonic."""
        correlation_id, data, answered = self._exchange.encode(message, version)
        with self._closing_on_error():
            self._send(data, deadline)
        return correlation_id if answered else None

    def receive(self, correlation_id: int, *, deadline: float) -> Any:
        """The answer to one request; those to earlier ones are kept until they are asked for."""
        with self._closing_on_error():
            while correlation_id not in self._early:
                received_id, message = self._exchange.decode(self._receive_frame(deadline))
                self._early[received_id] = message
                if self._exchange.throttle_ms and self._throttles is not None:
                    self._throttles.told(self.address, self._exchange.throttle_ms)
        return self._early.pop(correlation_id)

    def close(self) -> None:
        """Closes the socket; answers not received yet are lost."""
        self.closed = True
        self._socket.close()

    @contextlib.contextmanager
    def _closing_on_error(self) -> Iterator[None]:
        if self.closed:
            raise ConnectionFailed(f"the connection to {self.address} is closed").about(broker=str(self.address))
        try:
            yield
        except TimeoutError as error:
            self.close()
            raise RequestTimedOut(f"{self.address} did not answer in time").about(broker=str(self.address)) from error
        except OSError as error:
            self.close()
            if refused := refused_by_alert(self.address, error):
                raise refused from error
            raise ConnectionFailed(f"the connection to {self.address} broke: {error.strerror or error}").about(
                broker=str(self.address)
            ) from error
        except BaseException:
            self.close()
            raise

    def _send(self, data: bytes, deadline: float) -> None:
        self._socket.settimeout(_left(deadline))
        self._socket.sendall(data)

    def _receive_frame(self, deadline: float) -> bytearray:
        self._fill(memoryview(self._prefix), deadline)
        frame = bytearray(self._exchange.frame_size(self._prefix))
        self._fill(memoryview(frame), deadline)
        return frame

    def _fill(self, view: memoryview, deadline: float) -> None:
        position, size = 0, len(view)
        while position < size:
            self._socket.settimeout(_left(deadline))
            received = self._socket.recv_into(view[position:])
            if not received:
                raise ConnectionFailed(f"{self.address} closed the connection").about(broker=str(self.address))
            position += received


def _encrypted(plain: socket.socket, address: Address, tls: ssl.SSLContext) -> ssl.SSLSocket:
    """The socket after its TLS handshake."""
    try:
        return tls.wrap_socket(plain, server_hostname=address.host)
    except TimeoutError as error:
        plain.close()
        raise RequestTimedOut(f"{address} did not finish the TLS handshake in time") from error
    except ssl.SSLError as error:
        plain.close()
        raise tls_error(address, error) from error
    except OSError as error:
        plain.close()
        raise ConnectionFailed(f"the connection to {address} broke in the TLS handshake: {error}") from error


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


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
            self._wait_out_throttle(call.address)
            deadline = time.monotonic() + call.timeout_s
            try:
                connection = self._connection(call.address, deadline)
                sent.append((connection, connection.send(call.message, deadline=deadline), deadline))
            except ClientError as error:
                sent.append(error)
        return [outcome if isinstance(outcome, ClientError) else _received(*outcome) for outcome in sent]

    def _wait_out_throttle(self, address: Address) -> float:
        """Leaves a broker alone for as long as it has asked for; how many seconds that were."""
        left = self.routing.throttles.left_s(address)
        if left > 0:
            time.sleep(left)
        return left

    def _connection(self, address: Address, deadline: float) -> BlockingConnection:
        connection = self._connections.get(address)
        if connection is not None and connection.is_expiring:
            connection.close()
        if connection is None or connection.closed:
            left = max(0.001, deadline - time.monotonic())
            connection = BlockingConnection(
                address,
                client_id=self.client_id,
                timeout_s=left,
                throttles=self.routing.throttles,
                security=self._security,
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
            raise self._with_range(outcome, topic_partition, offset)
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
        reader = _RangeReader(self, topic_partition, end, settings or FetchSettings(), topic_id)
        return reader.read(start)

    def _with_range(self, error: KafkaError, topic_partition: TopicPartition, offset: int) -> KafkaError:
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            return error
        earliest = self.offsets({topic_partition: -2})[topic_partition].offset
        latest = self.offsets({topic_partition: -1})[topic_partition].offset
        return OffsetOutOfRange(topic_partition, offset, earliest, latest)


class _RangeReader:
    """Reads one range; between two pieces there is always a fetch in flight."""

    def __init__(
        self,
        cluster: BlockingCluster,
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
        refusal = partition_error(self._topic_partition, code, None)
        if not code.retriable:
            raise self._cluster._with_range(refusal, self._topic_partition, position)
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
        self._throttled_s += self._cluster._wait_out_throttle(leader.address)
        call_deadline = self._call_deadline()
        self._connection = self._cluster._connection(leader.address, call_deadline)
        request = fetch_request(self._routing, {self._topic_partition: position}, self._settings)
        self._awaited = self._connection.send(request, deadline=call_deadline)

    def _find_leader(self, deadline: Deadline) -> None:
        topic = self._topic_partition.topic
        self._routing.topics.pop(topic, None)
        view = self._cluster.run(self._routing.require_topics((topic,), deadline))[topic]
        if self._topic_partition.partition not in view.partitions:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic '{topic}' has no partition {self._topic_partition.partition}",
            )

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
