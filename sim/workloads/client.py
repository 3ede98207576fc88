"""Clients of the simulated brokers: requests by the project's own codec, over simulated connections.

`Client` is one connection. `Router` is what a client knows of a cluster: where the leaders are, by Metadata, and a
connection to each broker. Like Kafka's clients it never goes back to an older leader epoch.
"""

from __future__ import annotations

import asyncio
import contextlib
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sim.world.network import SimulatedTransport
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import framing, messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sim.world.randomness import SeededRandom
    from tidelog.ports.network import Network
    from tidelog.protocol.messages import Message

VERSIONS: Final = {
    ApiKey.PRODUCE: 11,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 9,
    ApiKey.METADATA: 12,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.ELECT_LEADERS: 2,
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.DELETE_RECORDS: 2,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 2,
    ApiKey.LEADER_AND_ISR: 7,
    ApiKey.STOP_REPLICA: 4,
    ApiKey.ALTER_PARTITION: 3,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 1,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: 0,
    ApiKey.FIND_COORDINATOR: 4,
    ApiKey.JOIN_GROUP: 9,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 5,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
    ApiKey.OFFSET_DELETE: 0,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 1,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 3,
    ApiKey.TXN_OFFSET_COMMIT: 3,
    ApiKey.END_TXN: 3,
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.LIST_GROUPS: 5,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 1,
    ApiKey.DESCRIBE_PRODUCERS: 0,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
    ApiKey.LIST_TRANSACTIONS: 1,
    ApiKey.DESCRIBE_LOG_DIRS: 4,
    ApiKey.ALTER_CLIENT_QUOTAS: 1,
}
"""Spoken by the simulator where a request does not say another; topics go by name."""
REQUEST_S_MAX: Final = 6.0
"""How long a client waits for an answer before it gives the connection up."""
_SIZE: Final = Struct(">i")


class _Connection(asyncio.Protocol):
    """A client's connection. What comes by one that the client has given up, or never took, is not heard."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        if self._client.connection is self:
            self._client.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._client.connection is self:
            self._client.lost(exc)


class Client:
    """One connection; what it is asked while it has none fails with ConnectionError."""

    def __init__(self, network: Network, name: str, address: tuple[str, int]) -> None:
        self._network = network
        self._name = name
        self._address = address
        self._transport: asyncio.Transport | None = None
        self.connection: _Connection | None = None
        """The one by which it asks."""
        self._received = bytearray()
        self._waiting: dict[int, tuple[ApiKey, int, asyncio.Future[Any]]] = {}
        self._correlation_id = 0

    async def connect(self) -> None:
        """OSError when no process listens."""
        connection = _Connection(self)
        transport, _ = await self._network.connect(lambda: connection, *self._address)
        assert isinstance(transport, asyncio.Transport)
        if self._transport is not None:
            transport.abort()  # Two callers have connected at the same time.
        elif not transport.is_closing():
            self._transport, self.connection = transport, connection

    @property
    def is_connected(self) -> bool:
        return self._transport is not None

    def wholeness(self) -> Callable[[], bool]:
        """Tells, whenever it is called, whether the connection of now is still there, at both ends."""
        near = self._transport

        def is_whole() -> bool:
            return isinstance(near, SimulatedTransport) and not near.is_closing() and not near.peer.is_closing()

        return is_whole

    def send(self, key: ApiKey, message: Message, version: int | None = None) -> asyncio.Future[Any]:
        """Sends a request, behind those before it; its response comes, or ConnectionError."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._transport is None:
            future.set_exception(ConnectionResetError("not connected"))
            future.exception()
            return future
        self._correlation_id += 1
        version = VERSIONS[key] if version is None else version
        self._waiting[self._correlation_id] = key, version, future
        self._transport.write(framing.encode_request(key, version, self._correlation_id, self._name, message))
        return future

    async def request(
        self, key: ApiKey, message: Message, timeout_s: float = REQUEST_S_MAX, version: int | None = None
    ) -> Any:
        """A request and its response; connects first if need be. OSError, or TimeoutError after `timeout_s`."""
        if self._transport is None:
            await asyncio.wait_for(self.connect(), timeout_s)
        return await asyncio.wait_for(self.send(key, message, version), timeout_s)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self.lost(None)

    # The connection's side.

    def received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            (size,) = _SIZE.unpack_from(self._received)
            if len(self._received) < 4 + size:
                return
            frame = bytes(self._received[4 : 4 + size])
            del self._received[: 4 + size]
            (correlation_id,) = _SIZE.unpack_from(frame)
            key, version, future = self._waiting.pop(correlation_id)
            _, response = framing.decode_response(key, version, frame)
            if not future.done():
                future.set_result(response)

    def lost(self, error: Exception | None) -> None:
        self._transport = self.connection = None
        self._received.clear()
        waiting, self._waiting = self._waiting, {}
        for *_, future in waiting.values():
            if not future.done():
                future.set_exception(error or ConnectionResetError("closed"))
                future.exception()  # A caller that waits is told; one that gave up needs no warning.


class Leader(NamedTuple):
    """Who leads a partition, as far as a client knows."""

    broker_id: int
    epoch: int


class Router:
    """One client's way to the cluster."""

    def __init__(
        self, network: Network, name: str, addresses: Mapping[int, tuple[str, int]], random: SeededRandom
    ) -> None:
        """`addresses`: [broker id] -> where it listens, as the client's bootstrap list has them."""
        self._random = random
        self.brokers = {id: Client(network, name, address) for id, address in addresses.items()}
        self._leaders: dict[TopicPartition, Leader] = {}

    def leader(self, partition: TopicPartition) -> Leader | None:
        """None where it has none, or it is not known: `refresh`."""
        return self._leaders.get(partition)

    async def find_leader(self, partition: TopicPartition) -> Leader:
        """Its leader, asked for where it is not known. OSError, TimeoutError; ConnectionError where it has none."""
        leader = self.leader(partition)
        if leader is None or leader.broker_id < 0:
            await self.refresh([partition.topic])
            leader = self.leader(partition)
            if leader is None or leader.broker_id < 0:
                raise ConnectionError(f"{partition} has no leader")
        return leader

    def forget(self, partition: TopicPartition) -> None:
        """Its leader did not answer as one: `refresh` before asking again."""
        known = self._leaders.get(partition)
        if known is not None:
            self._leaders[partition] = Leader(-1, known.epoch)

    async def refresh(self, topics: Sequence[str]) -> None:
        """Asks some broker where the leaders are. OSError or TimeoutError when that broker doesn't answer."""
        response = await self.ask_any(
            ApiKey.METADATA,
            messages.MetadataRequest(
                topics=[messages.MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics],
                allow_auto_topic_creation=False,
            ),
        )
        for topic in response.topics:
            for found in topic.partitions:
                partition = TopicPartition(topic.name, found.partition_index)
                known = self._leaders.get(partition)
                if known is None or found.leader_epoch >= known.epoch:
                    self._leaders[partition] = Leader(found.leader_id, found.leader_epoch)

    async def ask_any(self, key: ApiKey, message: Message, timeout_s: float = REQUEST_S_MAX) -> Any:
        """Asks some broker; any may be asked anything but records."""
        ids = list(self.brokers)
        return await self.ask(ids[self._random.below(len(ids))], key, message, timeout_s)

    async def ask(
        self,
        broker_id: int,
        key: ApiKey,
        message: Message,
        timeout_s: float = REQUEST_S_MAX,
        version: int | None = None,
    ) -> Any:
        """Asks one broker; OSError or TimeoutError close the connection."""
        client = self.brokers.get(broker_id)
        if client is None:
            raise ConnectionError(f"broker {broker_id} is not known")
        try:
            return await client.request(key, message, timeout_s, version)
        except (OSError, TimeoutError):
            client.close()
            raise

    async def earliest(self, partition: TopicPartition) -> int:
        """The partition's first offset, asked of its leader. OSError, TimeoutError."""
        return await self.offset(partition, -2)

    async def offset(self, partition: TopicPartition, timestamp: int) -> int:
        """What ListOffsets says of -2 (earliest) or -1 (latest). OSError, TimeoutError."""
        leader = self.leader(partition)
        if leader is None or leader.broker_id < 0:
            raise ConnectionError(f"{partition} has no leader")
        wanted = messages.ListOffsetsRequest.ListOffsetsPartition(
            partition_index=partition.partition, current_leader_epoch=leader.epoch, timestamp=timestamp
        )
        request = messages.ListOffsetsRequest(
            replica_id=-1,
            topics=[messages.ListOffsetsRequest.ListOffsetsTopic(name=partition.topic, partitions=[wanted])],
        )
        response = await self.ask(leader.broker_id, ApiKey.LIST_OFFSETS, request)
        ((result,),) = [topic.partitions for topic in response.topics]
        if result.error_code:
            self.forget(partition)
            raise ConnectionError(ErrorCode(result.error_code).name)
        return int(result.offset)

    async def end_of_epoch(self, partition: TopicPartition, epoch: int) -> tuple[int, int]:
        """The greatest leader epoch up to `epoch` that the leader's log has, and where it ends. OSError,
        TimeoutError."""
        leader = self.leader(partition)
        if leader is None or leader.broker_id < 0:
            raise ConnectionError(f"{partition} has no leader")
        kind = messages.OffsetForLeaderEpochRequest
        wanted = kind.OffsetForLeaderPartition(
            partition=partition.partition, current_leader_epoch=leader.epoch, leader_epoch=epoch
        )
        request = kind(replica_id=-1, topics=[kind.OffsetForLeaderTopic(topic=partition.topic, partitions=[wanted])])
        response = await self.ask(leader.broker_id, ApiKey.OFFSET_FOR_LEADER_EPOCH, request)
        ((result,),) = [topic.partitions for topic in response.topics]
        if result.error_code:
            self.forget(partition)
            raise ConnectionError(ErrorCode(result.error_code).name)
        return int(result.leader_epoch), int(result.end_offset)

    def close(self) -> None:
        for client in self.brokers.values():
            with contextlib.suppress(OSError):
                client.close()
