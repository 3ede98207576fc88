"""Members of groups of the consumer protocol (KIP-848): one heartbeat for everything; the broker assigns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sim.invariants import require
from sim.workloads.coordination import by_topic
from sim.workloads.members import BELATED_CHANCE, REBALANCE_S, SESSION_S, STALE, Member
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sim.world.randomness import SeededRandom
    from tidelog.model.identifiers import TopicId

STEADY_S: Final = 0.95 * SESSION_S
"""After a heartbeat that was answered, in which its member is in the group for sure."""


class ConsumerMember(Member):
    """See the module."""

    def __init__(self, *arguments: Any, topic_ids: Mapping[str, TopicId], belated: SeededRandom) -> None:
        """`topic_ids`: [name] -> id of what it subscribes to; filled in when the topics are there."""
        super().__init__(*arguments, belated=belated)
        self._topic_ids = topic_ids
        self._lives = 0
        self._heard_at = 0.0
        self._former_epoch = 0
        """The one that it had before its present one."""
        self._target: list[TopicPartition] | None = None
        self._says_all = True
        self._steady_at: float | None = None
        """When the last heartbeat was sent, if the coordinator has answered it; None after one that it has not."""
        self._held: list[TopicPartition] = []
        """What it was given and has not given up; it has no positions in some of it before it has asked for them."""

    @property
    def is_settled(self) -> bool:
        return self._epoch > 0 and (self._target is None or set(self._target) == set(self.positions))

    async def _join(self) -> None:
        if not self._member_id:
            # Since version 1 of the heartbeat a member names itself.
            self._lives += 1
            self._member_id = f"{self.name}-{self._lives}"
            self._epoch = 0
        if self._epoch <= 0:
            self._target = None
            self._give_up()
            await self._heartbeat()

    async def _heartbeat(self) -> None:
        # After a heartbeat without an answer the member says all of itself: then it is told its whole assignment.
        says_all, self._says_all = self._says_all or self._epoch == 0, True
        request = messages.ConsumerGroupHeartbeatRequest(
            group_id=self._history.group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            rebalance_timeout_ms=int(10 * REBALANCE_S * 1000) if says_all else -1,
            subscribed_topic_names=self._topics if says_all else None,
            server_assignor="range" if self._epoch == 0 and self._random.chance(0.3) else None,
            topic_partitions=self._by_id(self._held),
        )
        sent_at = self._history.now()
        steady_at, self._steady_at = self._steady_at, None
        response = await self._coordinator.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, request)
        code = ErrorCode(response.error_code)
        self._coordinator.check(code)
        is_coordinator = self._history.is_coordinator(self._coordinator.broker)
        if code in STALE:
            if code is ErrorCode.UNKNOWN_MEMBER_ID and steady_at is not None and is_coordinator:
                silent_s = self._history.now() - steady_at
                told = f"{self._history.group}: {self._member_id} is put out, and was last heard {silent_s:.2f} s ago"
                require(15, silent_s >= STEADY_S, told)
            self._fenced(code)
        if code is not ErrorCode.NONE:
            raise ConnectionError(f"{code.name}: {response.error_message}")
        self._says_all = False
        told = f"{self._history.group}: {self._member_id} says all of itself, and is not told its assignment"
        require(15, not says_all or response.assignment is not None, told)
        if is_coordinator:
            self._heard_at = self._steady_at = sent_at
        before, self._epoch = self._epoch, response.member_epoch
        if before != self._epoch:
            self._former_epoch = before
        self._assigned_epoch = self._epoch
        if response.assignment is not None:
            names = {id: name for name, id in self._topic_ids.items()}
            self._target = [
                TopicPartition(names[bytes(topic.topic_id)], index)  # type: ignore[index]
                for topic in response.assignment.topic_partitions
                for index in topic.partitions
            ]
        await self._reconcile(is_coordinator=is_coordinator, before=before)

    async def _reconcile(self, *, is_coordinator: bool, before: int) -> None:
        """Gives up what is not its own any more, said with the next heartbeat; begins with what is new. `before`: the
        epoch that it had until now.

        What a broker gave that is not the coordinator any more is no claim on a partition.
        """
        if self._target is None:
            return
        gone = [partition for partition in self._held if partition not in self._target]
        if gone:
            if self._random.chance(0.5):
                await self._commit(everything=True)
            for partition in gone:
                self._held.remove(partition)
                self.positions.pop(partition, None)
            self._history.released(self._member_id, gone)
        given = [partition for partition in self._target if partition not in self._held]
        for partition in given:
            if is_coordinator:
                self._history.taken(self._member_id, partition, self._valid_until(self._member_id))
            self._held.append(partition)
        new = [partition for partition in self._held if partition not in self.positions]
        self.positions |= await self._fetch_positions(new)
        if given and is_coordinator and before > 1 and self._belated.chance(BELATED_CHANCE):
            partition, epoch = min(given), before - 1
            code = await self._commit_belatedly(partition, epoch)
            told = f"{self._history.group}: {self.name} commits {partition} with epoch {epoch}, of before it had that"
            require(15, code is not ErrorCode.NONE, told)
            if self._former_epoch > 1:
                await self._beat_belatedly(self._former_epoch - 1)

    async def _beat_belatedly(self, epoch: int) -> None:
        """A heartbeat with an epoch of before its last two, as if held up on the way: it is that of no member."""
        request = messages.ConsumerGroupHeartbeatRequest(
            group_id=self._history.group,
            member_id=self._member_id,
            member_epoch=epoch,
            topic_partitions=self._by_id(self._held),
        )
        response = await self._coordinator.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, request)
        code = ErrorCode(response.error_code)
        self._trace.record("beats_belatedly", self.name, epoch, code.name)
        is_coordinator = self._history.is_coordinator(self._coordinator.broker)
        told = f"{self._history.group}: {self.name} is heard with epoch {epoch}, and has {self._epoch}"
        require(15, code is not ErrorCode.NONE or not is_coordinator, told)

    def _valid_until(self, member_id: str) -> Callable[[], float]:
        """Up to when no other member may be given what this one has."""
        # A member under a new name has nothing to do with what the former one was promised.
        last = self._heard_at

        def until() -> float:
            return (self._heard_at if self._member_id == member_id else last) + SESSION_S * 0.99

        return until

    async def _leave(self) -> None:
        request = messages.ConsumerGroupHeartbeatRequest(
            group_id=self._history.group, member_id=self._member_id, member_epoch=-1
        )
        # Others may have what was its own before the answer comes; and should none come, its session ends it.
        self._give_up()
        self._forget_name()
        response = await self._coordinator.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, request)
        self._coordinator.check(ErrorCode(response.error_code))
        self._trace.record("leaves", self.name)

    def _give_up(self) -> None:
        self._history.released(self._member_id, self._held)
        self._held.clear()
        super()._give_up()

    def _forget_name(self) -> None:
        super()._forget_name()
        self._epoch = 0

    def _by_id(
        self, partitions: Sequence[TopicPartition]
    ) -> list[messages.ConsumerGroupHeartbeatRequest.TopicPartitions]:
        return [
            messages.ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=self._topic_ids[topic], partitions=indexes)
            for topic, indexes in by_topic(partitions).items()
        ]

    def _generation(self) -> int | None:
        return None
