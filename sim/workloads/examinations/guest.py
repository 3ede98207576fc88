"""The client of an examination: topics, groups and transactional ids of its own, and short ways to ask for things.

Leaders and coordinators may still move, back to where they belong. So an answer that says "not now" ends the attempt
(`NotNow`), and the examination is made once more with other names.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from sim.invariants import require
from sim.workloads.coordination import Coordinator, KeyType
from sim.world.clients import client_process
from sim.world.clock import EPOCH_MS
from tidelog.client.errors import ClientError
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import build_batch, iterate_headers, read_records
from tidelog.records.record import Record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from sim.cluster import Cluster
    from sim.machine import BrokerMachine
    from sim.workloads.admin import Administrator
    from sim.workloads.client import Leader, Router
    from sim.world.process import Process
    from sim.world.randomness import SeededRandom
    from tidelog.metadata.znodes import PartitionState
    from tidelog.records.batch import BatchHeader

NUMBER: Final = 26
"""The invariant that an examination looks at."""
SOON_S: Final = 8.0
"""In which brokers hear of what was changed, and do what a passed deadline asks for."""
LOOK_S: Final = 0.1
BACK_S: Final = 60.0
"""In which brokers that were down are back, and what waits for them is done."""
AWAY_S: Final = 30.0
"""In which sessions of killed brokers end, and partitions do without them."""
PRODUCE_MS_MAX: Final = 4_000
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
"""With an empty name: all brokers."""
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
KILLING_ATTEMPTS: Final = 5
"""The first attempts at an examination may kill brokers: one with a slow disk may come back too late each time."""
LAST_WITH_RETENTION: Final = 4
"""The last version of OffsetCommit in which a client names a retention time."""

PASSING: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""Answers that say nothing of what is examined."""


class NotNow(ConnectionError):  # It is no failure: the examination is made again.
    """A leader or a coordinator has moved."""


class Guest:
    """See the module."""

    def __init__(
        self,
        name: str,
        attempt: int,
        make_router: Callable[[str], Router],
        administrator: Administrator,
        cluster: Cluster,
        random: SeededRandom,
        processes: list[Process],
    ) -> None:
        """`attempt`: how often the examination was made before. `processes` are closed when the run is over."""
        self.name = name
        self.attempt = attempt
        self.cluster = cluster
        self.random = random
        self._make_router = make_router
        self._administrator = administrator
        self._processes = processes
        self.router = make_router(name)
        self._routers = [self.router]
        self._names = [name]
        self._numbers = 0

    def close(self) -> None:
        for router in self._routers:
            router.close()

    async def live(self, work: Coroutine[Any, Any, None]) -> None:
        """Does something in a process of its own, in which the product's client finds its world."""
        self._numbers += 1
        name = f"{self.name}.{self._numbers}"
        cluster = self.cluster
        cluster.client_names.append(name)
        process = client_process(name, cluster.loop, cluster.network, self.random.stream(name))
        self._processes.append(process)
        try:
            await process.spawn(work)
        except (ClientError, KafkaError) as error:
            self.holds(False, f"the client raises {error!r}")
        finally:
            process.kill()

    @property
    def bootstrap(self) -> str:
        """Of the product's client."""
        return ",".join(f"{host}:{port}" for host, port in (each.address for each in self.cluster.brokers))

    def another(self) -> Router:
        """A way by connections of its own: what waits for an answer holds up all that follows it on its connection."""
        self._numbers += 1
        name = f"{self.name}.{self._numbers}"
        router = self._make_router(name)
        self._routers.append(router)
        self._names.append(name)
        return router

    def name_of(self, router: Router) -> str:
        """The client id of one of its ways."""
        number = self._routers.index(router)
        return self._names[number]

    @property
    def clocks_jump(self) -> bool:
        """Whether the clocks of brokers may be far apart."""
        return any("CLOCK" in kind.name for kind in self.cluster.plan.faults)

    def now_ms(self) -> int:
        """Of a clock that has never jumped."""
        return EPOCH_MS + int(asyncio.get_running_loop().time() * 1000)

    def holds(self, what: bool, told: str) -> None:
        """Requires it of the cluster."""
        require(NUMBER, what, f"{self.name}: {told}")

    def expect(self, code: int, wanted: ErrorCode, told: str) -> None:
        """Requires an error code; NotNow where the answer says nothing of the kind."""
        found = ErrorCode(code)
        if found is not wanted:
            self.check(found)
        self.holds(found is wanted, f"{told} is answered {found.name}, and not {wanted.name}")

    def check(self, code: int) -> None:
        """NotNow for an error that passes."""
        if code in PASSING:
            raise NotNow(ErrorCode(code).name)

    def kills(self, chance: float) -> bool:
        """Whether a broker is to die now."""
        return self.attempt < KILLING_ATTEMPTS and self.random.chance(chance)

    async def comes(self, question: Callable[[], Awaitable[bool]], told: str, seconds: float = SOON_S) -> None:
        """Asks until the answer is yes, no longer than that."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not await question():
            self.holds(loop.time() < deadline, f"{told}, {seconds:g} s later")
            await asyncio.sleep(LOOK_S)

    def machine(self, broker_id: int) -> BrokerMachine:
        return next(machine for machine in self.cluster.brokers if machine.broker_id == broker_id)

    # Topics.

    async def topic(
        self, configs: Mapping[str, str] | None = None, partitions: int = 1, replication_factor: int | None = None
    ) -> TopicPartition:
        """A new topic, known on all brokers; its first partition."""
        self._numbers += 1
        name = f"{self.name}.{self._numbers}"
        code = await self._administrator.create(name, partitions, configs or {}, replication_factor)
        if code is not ErrorCode.NONE:
            raise NotNow(code.name)
        await self.known_everywhere(name, partitions)
        return TopicPartition(name, 0)

    async def known_everywhere(self, name: str, partitions: int) -> None:
        """Waits until every broker shows so many partitions of a topic, each with a leader."""

        async def is_known() -> bool:
            for topic in await self.shown(name):
                led = [each for each in topic.partitions if each.leader_id >= 0]
                if topic.error_code or len(led) != partitions:
                    return False
            return True

        await self.comes(is_known, f"some broker does not show {name} with {partitions} partitions that are led")
        await self.router.refresh([name])

    async def shown(self, name: str) -> list[Any]:
        """What each broker says of a topic in Metadata."""
        kind = messages.MetadataRequest
        request = kind(topics=[kind.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        return [(await self.router.ask(broker, ApiKey.METADATA, request)).topics[0] for broker in self.router.brokers]

    async def topic_id(self, name: str) -> bytes:
        return bytes((await self.shown(name))[0].topic_id)

    async def alter(
        self,
        name: str,
        changes: Mapping[str, str | None],
        resource_type: int = TOPIC_RESOURCE,
        operation: int = SET,
    ) -> None:
        """Sets settings, or deletes those that are None."""
        kind = messages.IncrementalAlterConfigsRequest
        configs = [
            kind.AlterableConfig(name=each, config_operation=DELETE if value is None else operation, value=value)
            for each, value in changes.items()
        ]
        resource = kind.AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=configs)
        response = await self.router.ask_any(ApiKey.INCREMENTAL_ALTER_CONFIGS, kind(resources=[resource]))
        self.expect(response.responses[0].error_code, ErrorCode.NONE, f"an alteration of {name or 'all brokers'}")

    def state(self, partition: TopicPartition) -> PartitionState:
        """As the store has it."""
        states = self.cluster.states
        state = None if states is None else states.state(partition)
        if state is None:
            raise NotNow(f"{partition} has no state")
        return state

    # Records.

    def batch(self, values: Sequence[bytes | None], timestamps: Sequence[int] | None = None, **fields: Any) -> bytes:
        """Records without keys, of now where no timestamps are given."""
        times = timestamps or [self.now_ms()] * len(values)
        key: bytes | None = fields.pop("key", None)
        records = [Record(index, times[index], key, value) for index, value in enumerate(values)]
        return build_batch(records, base_offset=0, **fields)

    async def leader(self, partition: TopicPartition) -> Leader:
        return await self.router.find_leader(partition)

    async def ask_leader(self, partition: TopicPartition, api: ApiKey, message: Any, version: int | None = None) -> Any:
        leader = await self.leader(partition)
        return await self.router.ask(leader.broker_id, api, message, version=version)

    async def produce(
        self,
        partition: TopicPartition,
        data: bytes,
        *,
        acks: int = -1,
        transactional_id: str | None = None,
        version: int | None = None,
    ) -> Any:
        """The partition's answer to one batch, which no passing error is."""
        request = self.produce_request(partition, data, acks=acks, transactional_id=transactional_id)
        response = await self.ask_leader(partition, ApiKey.PRODUCE, request, version)
        found = response.responses[0].partition_responses[0]
        self.check(found.error_code)
        return found

    def produce_request(
        self, partition: TopicPartition, data: bytes, *, acks: int = -1, transactional_id: str | None = None
    ) -> messages.ProduceRequest:
        kind = messages.ProduceRequest
        written = kind.PartitionProduceData(index=partition.partition, records=data)
        return kind(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=PRODUCE_MS_MAX,
            topic_data=[kind.TopicProduceData(name=partition.topic, partition_data=[written])],
        )

    async def producer_id(self) -> int:
        """A new one, of epoch 0."""
        request = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        response = await self.router.ask_any(ApiKey.INIT_PRODUCER_ID, request)
        self.expect(response.error_code, ErrorCode.NONE, "InitProducerId")
        return int(response.producer_id)

    async def written(self, partition: TopicPartition, data: bytes) -> int:
        """The offset of a batch that has to be taken."""
        found = await self.produce(partition, data)
        self.expect(found.error_code, ErrorCode.NONE, f"a batch for {partition}")
        return int(found.base_offset)

    async def fetch(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        partition_bytes: int = 1 << 20,
        version: int | None = None,
        epoch: int = -1,
        **fields: Any,
    ) -> dict[TopicPartition, Any]:
        """[partition] -> the leader's answer from the wanted offset on; all of one topic, and with one leader."""
        request = self.fetch_request(wanted, partition_bytes=partition_bytes, epoch=epoch, **fields)
        response = await self.ask_leader(next(iter(wanted)), ApiKey.FETCH, request, version)
        self.expect(response.error_code, ErrorCode.NONE, "a fetch")
        topic = next(iter(wanted)).topic
        return {
            TopicPartition(topic, each.partition_index): each
            for found in response.responses
            for each in found.partitions
        }

    def fetch_request(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        partition_bytes: int = 1 << 20,
        epoch: int = -1,
        **fields: Any,
    ) -> messages.FetchRequest:
        kind = messages.FetchRequest
        partitions = [
            kind.FetchPartition(
                partition=partition.partition,
                current_leader_epoch=epoch,
                fetch_offset=offset,
                partition_max_bytes=partition_bytes,
            )
            for partition, offset in wanted.items()
        ]
        topics = [kind.FetchTopic(topic=next(iter(wanted)).topic, partitions=partitions)] if wanted else []
        values = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_id": 0, "session_epoch": -1}
        return kind(topics=topics, **{**values, **fields})

    async def read(
        self, partition: TopicPartition, offset: int, **fields: Any
    ) -> list[tuple[BatchHeader, list[Record]]]:
        """Batches from an offset on."""
        found = (await self.fetch({partition: offset}, **fields))[partition]
        self.expect(found.error_code, ErrorCode.NONE, f"a fetch of {partition} at {offset}")
        return batches_of(found)

    async def delete_records(self, partition: TopicPartition, offset: int) -> int:
        """Has all records before it deleted, -1: all that are committed; where the log begins by then."""
        kind = messages.DeleteRecordsRequest
        place = kind.DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
        topic = kind.DeleteRecordsTopic(name=partition.topic, partitions=[place])
        request = kind(topics=[topic], timeout_ms=PRODUCE_MS_MAX)
        response = await self.ask_leader(partition, ApiKey.DELETE_RECORDS, request)
        found = response.topics[0].partitions[0]
        self.expect(found.error_code, ErrorCode.NONE, f"DeleteRecords of {partition} before {offset}")
        return int(found.low_watermark)

    async def list_offset(
        self, partition: TopicPartition, timestamp: int, *, isolation: int = 0, version: int | None = None
    ) -> tuple[int, int]:
        """(timestamp, offset) as the leader says."""
        kind = messages.ListOffsetsRequest
        wanted = kind.ListOffsetsPartition(
            partition_index=partition.partition, current_leader_epoch=-1, timestamp=timestamp
        )
        request = kind(
            replica_id=-1,
            isolation_level=isolation,
            topics=[kind.ListOffsetsTopic(name=partition.topic, partitions=[wanted])],
        )
        response = await self.ask_leader(partition, ApiKey.LIST_OFFSETS, request, version)
        found = response.topics[0].partitions[0]
        self.expect(found.error_code, ErrorCode.NONE, f"ListOffsets of {partition} at {timestamp}")
        return int(found.timestamp), int(found.offset)

    # Coordinators.

    def group(self, name: str, router: Router | None = None) -> Coordinator:
        return Coordinator(router or self.router, KeyType.GROUP, name)

    def transaction(self, name: str, router: Router | None = None) -> Coordinator:
        return Coordinator(router or self.router, KeyType.TRANSACTION, name)

    async def offset_of(
        self, coordinator: Coordinator, group: str, partition: TopicPartition | None, *, stable: bool = True
    ) -> dict[TopicPartition, Any]:
        """[partition] -> what a group has committed; of all its partitions where none is named."""
        kind = messages.OffsetFetchRequest
        topics = None
        if partition is not None:
            topics = [kind.OffsetFetchRequestTopics(name=partition.topic, partition_indexes=[partition.partition])]
        asked = kind.OffsetFetchRequestGroup(group_id=group, topics=topics)
        response = await coordinator.ask(ApiKey.OFFSET_FETCH, kind(groups=[asked], require_stable=stable))
        (answer,) = response.groups
        self.expect(answer.error_code, ErrorCode.NONE, f"OffsetFetch of {group}")
        return {
            TopicPartition(topic.name, each.partition_index): each
            for topic in answer.topics
            for each in topic.partitions
        }

    async def commit(
        self,
        coordinator: Coordinator,
        group: str,
        partition: TopicPartition,
        offset: int,
        *,
        generation: int = -1,
        member_id: str = "",
        metadata: str = "",
        retention_ms: int | None = None,
    ) -> ErrorCode:
        """The error code of an OffsetCommit. `retention_ms`: an old client's, after which the offset expires."""
        kind = messages.OffsetCommitRequest
        committed = kind.OffsetCommitRequestPartition(
            partition_index=partition.partition, committed_offset=offset, committed_metadata=metadata
        )
        request = kind(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[kind.OffsetCommitRequestTopic(name=partition.topic, partitions=[committed])],
            retention_time_ms=-1 if retention_ms is None else retention_ms,
        )
        version = None if retention_ms is None else LAST_WITH_RETENTION
        response = await coordinator.ask(ApiKey.OFFSET_COMMIT, request, version=version)
        code = ErrorCode(response.topics[0].partitions[0].error_code)
        self.check(code)
        return code


def batches_of(found: Any) -> list[tuple[BatchHeader, list[Record]]]:
    """The whole batches of a partition in a fetch's answer, with their records."""
    data = bytes(found.records or b"")
    return [(header, read_records(data, position)) for position, header in iterate_headers(data)]
