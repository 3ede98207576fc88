"""Members of consumer groups while things break: they join, own partitions, commit, leave, vanish and come back.

Here is what members of either protocol do alike: when they act, and their commits. `classic_members` and
`consumer_members` say how they join and are assigned partitions. A member that vanishes says nothing for longer or
shorter than its session lasts, and then goes on as if nothing had been: what it commits as a stale member must be
refused.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

from sim.checks.group_history import NOTHING
from sim.invariants import require
from sim.workloads.coordination import PAUSE_S, Coordinator, KeyType, offset_fetch
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sim.checks.group_history import GroupHistory
    from sim.workloads.client import Router
    from sim.world.randomness import SeededRandom
    from sim.world.trace import Trace

HEARTBEAT_S: Final = 0.3
SESSION_S: Final = 3.0
REBALANCE_S: Final = 4.0
COMMIT_CHANCE: Final = 0.5
"""Of a commit at each heartbeat."""
ACT_CHANCE: Final = 0.03
"""Of leaving or vanishing, at each heartbeat."""
SLOPPY_CHANCE: Final = 0.3
"""Of a commit after a failure, before anything else."""
BELATED_CHANCE: Final = 0.3
"""Of a commit in the generation or epoch before, once a member has its assignment in the next: one held up on its
way."""

MEMBERSHIP_LOST: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
        # All members' sessions ended, and the group had no offsets: it has expired, with them.
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
STALE: Final = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH, *MEMBERSHIP_LOST})


class MustJoinError(ConnectionError):
    """What the member was is over: it joins, as the same member or, with a name lost, as a new one."""


class Member(ABC):
    """What both kinds do alike: positions and commits."""

    def __init__(
        self,
        name: str,
        topics: Sequence[TopicPartition],
        history: GroupHistory,
        router: Router,
        random: SeededRandom,
        trace: Trace,
        *,
        belated: SeededRandom,
    ) -> None:
        """`topics`: all partitions of what it subscribes to. `belated`: what commits of a former generation or epoch
        are drawn from."""
        self.name = name
        self._partitions = list(topics)
        self._topics = sorted({partition.topic for partition in topics})
        self._history = history
        self._router = router
        self._random = random
        self._trace = trace
        self._belated = belated
        self._coordinator = Coordinator(router, KeyType.GROUP, history.group)
        self._member_id = ""
        self._epoch = NOTHING
        """Generation, or member epoch."""
        self._assigned_epoch = NOTHING
        """The one that its positions belong to."""
        self.positions: dict[TopicPartition, int] = {}
        """Of what it owns."""
        self._commits = 0
        self.calm = False
        """Set it, and it neither leaves nor vanishes any more."""
        self.stopping = False
        """Set it, and `run` commits, leaves and returns."""

    async def run(self) -> None:
        while not self.stopping:
            try:
                await self._join()
                await self._live()
            except (OSError, TimeoutError) as error:
                self._trace.record("member_retries", self.name, repr(error))
                await asyncio.sleep(self._random.between(0.0, 2 * PAUSE_S))
                if not self.calm and self._random.chance(SLOPPY_CHANCE):
                    # It may have joined without hearing of it: then its generation is over, and it does not know.
                    with contextlib.suppress(OSError, TimeoutError):
                        await self._commit()
        while self.positions:
            try:
                await self._commit(everything=True)
                await self._leave()
            except MustJoinError:
                self._give_up()
            except (OSError, TimeoutError):
                await asyncio.sleep(PAUSE_S)
        self._router.close()

    @property
    @abstractmethod
    def is_settled(self) -> bool:
        """Whether it has an assignment, and nothing to wait for."""

    @abstractmethod
    async def _join(self) -> None:
        """Becomes a member with an assignment. OSError, TimeoutError: to be tried again."""

    @abstractmethod
    async def _heartbeat(self) -> None:
        """MustJoinError where the membership is over, or a rebalance calls."""

    @abstractmethod
    async def _leave(self) -> None:
        """Says goodbye, and owns nothing any more."""

    @abstractmethod
    def _generation(self) -> int | None:
        """The generation that its commits carry; None where that is a member epoch."""

    def _give_up(self) -> None:
        """Owns nothing any more."""
        self.positions.clear()

    async def _live(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self._random.between(0.3 * HEARTBEAT_S, HEARTBEAT_S))
            await self._heartbeat()
            if self._random.chance(COMMIT_CHANCE):
                await self._commit()
            if not self.calm and self._random.chance(ACT_CHANCE):
                if self._random.chance(0.5):
                    await self._commit(everything=True)
                    await self._leave()
                    await asyncio.sleep(self._random.between(0.0, 2.0))
                    return
                await self._vanish()

    async def _vanish(self) -> None:
        """Says nothing for a while, then commits as if nothing had been."""
        self._trace.record("member_vanishes", self.name)
        self._router.close()
        await asyncio.sleep(self._random.between(0.1, 2.5 * SESSION_S))
        await self._commit(everything=True)

    # Offsets.

    async def _fetch_positions(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Where to go on, of partitions that it was given; 0 where nothing is committed."""
        if not partitions:
            return {}
        floors = self._history.floors()
        request = offset_fetch(self._history.group, partitions)
        response = await self._coordinator.ask(ApiKey.OFFSET_FETCH, request)
        (answer,) = response.groups
        self._coordinator.check(ErrorCode(answer.error_code))
        if answer.error_code:
            raise MustJoinError(ErrorCode(answer.error_code).name)
        found: dict[TopicPartition, int] = {}
        for topic in answer.topics:
            for result in topic.partitions:
                partition = TopicPartition(topic.name, result.partition_index)
                code = ErrorCode(result.error_code)
                if code is not ErrorCode.NONE:
                    raise ConnectionError(f"{partition}: {code.name}")
                self._history.fetched(partition, result.committed_offset, result.metadata or "", floors)
                found[partition] = max(result.committed_offset, 0)
        require(15, set(found) == set(partitions), f"{self._history.group}: asked for {partitions}, told of {found}")
        return found

    async def _commit(self, *, everything: bool = False) -> None:
        """Commits what it has come to in some of its partitions, or all."""
        chosen = [each for each in self.positions if everything or self._random.chance(0.6)]
        if not chosen:
            return
        for partition in chosen:
            self.positions[partition] += 1 + self._random.below(5)
        commits = {partition: self.positions[partition] for partition in chosen}
        generation, newest = self._generation(), self._history.newest
        codes = await self._send_commit(commits, self._assigned_epoch)
        self._trace.record("commits", self.name, self._assigned_epoch, sorted({code.name for code in codes.values()}))
        taken = {partition: offset for partition, offset in commits.items() if codes[partition] is ErrorCode.NONE}
        self._history.committed(taken, generation, newest)
        for code in codes.values():
            self._coordinator.check(code)
            if code in STALE:
                self._history.refused += 1
                self._fenced(code)
            if code is ErrorCode.REBALANCE_IN_PROGRESS:
                raise MustJoinError(code.name)
            if code is not ErrorCode.NONE:
                raise ConnectionError(code.name)

    async def _send_commit(self, commits: Mapping[TopicPartition, int], epoch: int) -> dict[TopicPartition, ErrorCode]:
        """What the coordinator says to offsets that are committed in a generation, or with a member epoch. OSError,
        TimeoutError."""
        self._commits += 1
        note = f"{self.name}/{self._commits}"
        kind = messages.OffsetCommitRequest
        topics: dict[str, list[Any]] = {}
        for partition, offset in commits.items():
            self._history.committing(partition, offset, note)
            topics.setdefault(partition.topic, []).append(
                kind.OffsetCommitRequestPartition(
                    partition_index=partition.partition, committed_offset=offset, committed_metadata=note
                )
            )
        request = kind(
            group_id=self._history.group,
            generation_id_or_member_epoch=epoch,
            member_id=self._member_id,
            topics=[kind.OffsetCommitRequestTopic(name=topic, partitions=each) for topic, each in topics.items()],
        )
        response = await self._coordinator.ask(ApiKey.OFFSET_COMMIT, request)
        return {
            TopicPartition(topic.name, result.partition_index): ErrorCode(result.error_code)
            for topic in response.topics
            for result in topic.partitions
        }

    async def _commit_belatedly(self, partition: TopicPartition, epoch: int) -> ErrorCode:
        """Commits, as if held up on the way, in a generation or with an epoch of before; what the coordinator says.
        OSError, TimeoutError."""
        codes = await self._send_commit({partition: self.positions[partition] + 1}, epoch)
        code = codes[partition]
        self._trace.record("commits_belatedly", self.name, epoch, code.name)
        self._history.refused += code in STALE
        return code

    def _fenced(self, code: ErrorCode) -> None:
        self._give_up()
        if code in MEMBERSHIP_LOST:
            self._forget_name()
        raise MustJoinError(code.name)

    def _forget_name(self) -> None:
        self._member_id = ""
