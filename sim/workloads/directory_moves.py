"""Moves replicas between the log directories of their brokers, as an operator does, while things break (KIP-113)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.storage.file_names import FUTURE_FOLDER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.cluster import Cluster
    from sim.machine import BrokerMachine
    from sim.workloads.client import Router
    from sim.world.randomness import SeededRandom
    from tidelog.model.identifiers import TopicPartition

PAUSE_S: Final = (0.3, 2.0)


class DirectoryMover:
    """See the module."""

    def __init__(
        self, router: Router, random: SeededRandom, cluster: Cluster, partitions: Sequence[TopicPartition]
    ) -> None:
        self._router = router
        self._random = random
        self._cluster = cluster
        self._partitions = partitions
        self.done = 0
        """Moves that a broker has taken on."""
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self._random.between(*PAUSE_S))
            try:
                await self._move()
            except (OSError, TimeoutError) as error:
                self._cluster.trace.record("directory_move_fails", repr(error))
        self._router.close()

    async def _move(self) -> None:
        brokers = self._cluster.brokers
        machine = brokers[self._random.below(len(brokers))]
        partition = self._partitions[self._random.below(len(self._partitions))]
        path = machine.log_dirs[self._random.below(len(machine.log_dirs))]
        wanted = messages.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(
            name=partition.topic, partitions=[partition.partition]
        )
        request = messages.AlterReplicaLogDirsRequest(
            dirs=[messages.AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=path, topics=[wanted])]
        )
        response = await self._router.ask(machine.broker_id, ApiKey.ALTER_REPLICA_LOG_DIRS, request)
        ((result,),) = [topic.partitions for topic in response.results]
        code = ErrorCode(result.error_code)
        self._cluster.trace.record("directory_move", machine.name, partition, path, code.name)
        self.done += code is ErrorCode.NONE

    def ailments(self) -> list[str]:
        """Moves that have not come to their end."""
        return [
            f"{machine.name}: {path} is still on its way"
            for machine in self._cluster.brokers
            for path in _on_the_way(machine)
        ]


def _on_the_way(machine: BrokerMachine) -> list[str]:
    return [
        f"{directory}/{folder}"
        for directory in machine.log_dirs
        for folder in machine.disk.folders(directory)
        if folder.endswith(FUTURE_FOLDER)
    ]
