"""An administrator while things break: topics come, grow, change and go; elections; records deleted.

What it was told has happened must be so in the end; of what it was not told, anything may be so.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from sim.invariants import require
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sim.checks.history import History
    from sim.workloads.client import Router
    from sim.world.randomness import SeededRandom
    from sim.world.trace import Trace
    from tidelog.model.identifiers import TopicPartition

REQUEST_MS_MAX: Final = 5_000
BEYOND_CHANCE: Final = 0.1
"""Of a deletion that has to be refused: of records that are not there yet."""
BEYOND: Final = 1_000_000
PREFERRED, UNCLEAN = 0, 1
"""Types of elections by hand."""


class Administrator:
    """Works on topics of its own, called admin-N, and asks for elections and deletions on the others."""

    def __init__(
        self,
        router: Router,
        random: SeededRandom,
        history: History,
        trace: Trace,
        *,
        partitions: Sequence[TopicPartition],
        trimmed: Sequence[TopicPartition],
        replication_factor: int,
        elections: bool,
    ) -> None:
        """`partitions`: whose leaders it moves back; `trimmed`: whose records it deletes from the front."""
        self._router = router
        self._random = random
        self._history = history
        self._trace = trace
        self._partitions = partitions
        self._trimmed = trimmed
        self._replication_factor = replication_factor
        self._elections = elections
        self._beyond = random.stream("beyond")
        self._number = 0
        self.topics: dict[str, int | None] = {}
        """[topic] -> how many partitions it must have in the end; 0: none, it is gone; None: not known."""
        self.done = 0
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self._random.between(0.3, 2.5))
            try:
                await self._something()
            except (OSError, TimeoutError) as error:
                self._trace.record("admin_fails", repr(error))
        self._router.close()

    async def _something(self) -> None:
        known = [name for name, count in self.topics.items() if count]
        match self._random.below(8):
            case 0 | 1 if len(known) < 4:
                await self._create()
            case 2 if known:
                await self._delete(known[self._random.below(len(known))])
            case 3 if known:
                await self._grow(known[self._random.below(len(known))])
            case 4 if known:
                await self._configure(known[self._random.below(len(known))])
            case 5 | 6 if self._trimmed:
                await self._trim(self._trimmed[self._random.below(len(self._trimmed))])
            case _ if self._elections:
                await self._elect()

    async def create(
        self, name: str, partitions: int, configs: Mapping[str, str], replication_factor: int | None = None
    ) -> ErrorCode:
        """Creates a topic; OSError or TimeoutError when its outcome is unknown."""
        response = await self._router.ask_any(
            ApiKey.CREATE_TOPICS,
            messages.CreateTopicsRequest(
                topics=[
                    messages.CreateTopicsRequest.CreatableTopic(
                        name=name,
                        num_partitions=partitions,
                        replication_factor=replication_factor or self._replication_factor,
                        configs=[
                            messages.CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                            for key, value in configs.items()
                        ],
                    )
                ],
                timeout_ms=REQUEST_MS_MAX,
            ),
        )
        (topic,) = response.topics
        return self._note("create", name, ErrorCode(topic.error_code))

    def _note(self, what: str, name: str, code: ErrorCode) -> ErrorCode:
        self._trace.record("admin", what, name, code.name)
        self.done += code is ErrorCode.NONE
        return code

    async def _create(self) -> None:
        if self._random.chance(0.3) and (gone := [name for name, count in self.topics.items() if count == 0]):
            name = gone[self._random.below(len(gone))]
        else:
            name = f"admin-{self._number}"
            self._number += 1
        count = 1 + self._random.below(2)
        self.topics[name] = None
        if await self.create(name, count, {"segment.bytes": "4000"}) is ErrorCode.NONE:
            self.topics[name] = count

    async def _delete(self, name: str) -> None:
        self.topics[name] = None
        response = await self._router.ask_any(
            ApiKey.DELETE_TOPICS, messages.DeleteTopicsRequest(topic_names=[name], timeout_ms=REQUEST_MS_MAX)
        )
        (result,) = response.responses
        if self._note("delete", name, ErrorCode(result.error_code)) is ErrorCode.NONE:
            self.topics[name] = 0

    async def _grow(self, name: str) -> None:
        count = (self.topics[name] or 0) + 1
        self.topics[name] = None
        response = await self._router.ask_any(
            ApiKey.CREATE_PARTITIONS,
            messages.CreatePartitionsRequest(
                topics=[
                    messages.CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
                ],
                timeout_ms=REQUEST_MS_MAX,
            ),
        )
        (result,) = response.results
        if self._note("grow", name, ErrorCode(result.error_code)) is ErrorCode.NONE:
            self.topics[name] = count

    async def _configure(self, name: str) -> None:
        change = messages.IncrementalAlterConfigsRequest.AlterableConfig(
            name="retention.ms", config_operation=0, value=str(60_000 + self._random.below(100_000))
        )
        response = await self._router.ask_any(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            messages.IncrementalAlterConfigsRequest(
                resources=[
                    messages.IncrementalAlterConfigsRequest.AlterConfigsResource(
                        resource_type=2, resource_name=name, configs=[change]
                    )
                ]
            ),
        )
        (result,) = response.responses
        self._note("configure", name, ErrorCode(result.error_code))

    async def _trim(self, partition: TopicPartition) -> None:
        leader = self._router.leader(partition)
        if leader is None or leader.broker_id < 0:
            await self._router.refresh([partition.topic])
            leader = self._router.leader(partition)
            if leader is None or leader.broker_id < 0:
                return
        end = await self._router.offset(partition, -1)
        offset = end * self._random.below(100) // 100
        if self._beyond.chance(BEYOND_CHANCE):
            offset = end + BEYOND
        self._history.deletion_asked(partition, min(offset, end))
        request = messages.DeleteRecordsRequest(
            topics=[
                messages.DeleteRecordsRequest.DeleteRecordsTopic(
                    name=partition.topic,
                    partitions=[
                        messages.DeleteRecordsRequest.DeleteRecordsPartition(
                            partition_index=partition.partition, offset=offset
                        )
                    ],
                )
            ],
            timeout_ms=REQUEST_MS_MAX,
        )
        response = await self._router.ask(leader.broker_id, ApiKey.DELETE_RECORDS, request)
        ((result,),) = [topic.partitions for topic in response.topics]
        code = self._note("trim", str(partition), ErrorCode(result.error_code))
        if code is ErrorCode.NONE:
            told = f"{partition}: all before {offset} is said to be deleted, and that replicas begin at"
            require(6, result.low_watermark >= offset, f"{told} {result.low_watermark}")
            self._history.deleted(partition, offset)
        elif code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self._router.forget(partition)

    async def _elect(self) -> None:
        await self._elect_leader(self._partitions[self._random.below(len(self._partitions))], PREFERRED)

    async def elect_uncleanly(self, partition: TopicPartition) -> None:
        """An operator asks for it when the brokers say that every replica in sync has lost records."""
        await self._elect_leader(partition, UNCLEAN)

    async def _elect_leader(self, partition: TopicPartition, election_type: int) -> None:
        response = await self._router.ask_any(
            ApiKey.ELECT_LEADERS,
            messages.ElectLeadersRequest(
                election_type=election_type,
                topic_partitions=[
                    messages.ElectLeadersRequest.TopicPartitions(
                        topic=partition.topic, partitions=[partition.partition]
                    )
                ],
                timeout_ms=REQUEST_MS_MAX,
            ),
        )
        codes = [
            ErrorCode(found.error_code)
            for topic in response.replica_election_results
            for found in topic.partition_result
        ]
        self._note("elect", str(partition), codes[0] if codes else ErrorCode(response.error_code))

    def check_final(self, topics: Mapping[str, Any]) -> None:
        """`topics`: [topic] -> its partitions, as a broker shows them in the end."""
        for name, count in self.topics.items():
            if count == 0:
                require(17, name not in topics, f"topic {name} is still there after it was deleted")
            elif count is not None:
                found = len(topics.get(name, ()))
                require(17, found == count, f"topic {name} was to have {count} partitions and has {found}")
