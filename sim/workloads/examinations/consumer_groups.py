"""Groups of the consumer protocol (KIP-848): members that come, that give up nothing, and that return."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from sim.workloads.examinations.guest import PRODUCE_MS_MAX, NotNow
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from sim.workloads.coordination import Coordinator
    from sim.workloads.examinations.guest import Guest

PARTITIONS: Final = 4
GROWN: Final = 6
"""Partitions, later on."""
REBALANCE_MS: Final = 1_000
BEAT_S: Final = 0.2
DEATH_CHANCE: Final = 0.7
"""Of the coordinator, while a member is silent."""
GAP_MS_MAX: Final = 2_000
"""Between two answered heartbeats, in which no session ends."""
SILENT_S_MAX: Final = 50.0
"""A session, which is long where our own client takes part, and the time that a coordinator is away."""
JOIN, LEAVE, LEAVE_FOR_A_WHILE = 0, -1, -2
"""As epochs of a heartbeat."""


class _Member:
    """One member, which takes and gives up what it is told to, or keeps all."""

    def __init__(self, guest: Guest, group: str, topic: str, name: str, instance: str | None = None) -> None:
        self.guest = guest
        self.group = group
        self.name = name
        self.instance = instance
        self.coordinator: Coordinator = guest.group(group, guest.another())
        self.epoch = JOIN
        self.owned: frozenset[int] = frozenset()
        self.keeps_all = False
        self.further: set[TopicId] = set()
        """Topics of which it has been given partitions beside its own."""
        self._topic = topic
        self._topic_id = ZERO_TOPIC_ID

    async def beat(
        self, epoch: int | None = None, topics: list[str] | None = None, *, says_partitions: bool = True
    ) -> ErrorCode:
        """`topics`: what it subscribes to from now on. Without its partitions: they are those that it said last."""
        kind = messages.ConsumerGroupHeartbeatRequest
        said = self.epoch if epoch is None else epoch
        owned = [kind.TopicPartitions(topic_id=self._topic_id, partitions=sorted(self.owned))] if self.owned else []
        request = kind(
            group_id=self.group,
            member_id=self.name,
            member_epoch=said,
            instance_id=self.instance,
            rebalance_timeout_ms=REBALANCE_MS if said == JOIN else -1,
            subscribed_topic_names=[self._topic] if said == JOIN else topics,
            topic_partitions=[] if said == JOIN else owned if says_partitions else None,
        )
        response = await self.coordinator.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, request)
        self.guest.check(response.error_code)
        if response.error_code == ErrorCode.NONE:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self._take(response.assignment)
        return ErrorCode(response.error_code)

    def _take(self, assignment: Any) -> None:
        target: set[int] = set()
        for topic in assignment.topic_partitions:
            id = TopicId(bytes(topic.topic_id))
            if self._topic_id not in (ZERO_TOPIC_ID, id):
                self.further.add(id)
                continue
            self._topic_id = id
            target.update(topic.partitions)
        self.owned = self.owned | target if self.keeps_all else frozenset(target)

    async def expect_beat(self) -> None:
        code = await self.beat()
        self.guest.holds(code is ErrorCode.NONE, f"{self.name} beats, and is answered {code.name}")


async def consumer_groups_are_kept(guest: Guest) -> None:
    """A member that keeps what another is to have is put out in time, and a static one gets back what it had."""
    partition = await guest.topic(partitions=PARTITIONS)
    group = f"{partition.topic}-group"
    keeper = _Member(guest, group, partition.topic, f"{group}-keeper")
    await _until(guest, [keeper], lambda: len(keeper.owned) == PARTITIONS, "a lone member does not have all")
    keeper.keeps_all = True
    other = _Member(guest, group, partition.topic, f"{group}-other", "here to stay")
    codes: set[ErrorCode] = set()

    async def is_out() -> bool:
        await other.expect_beat()
        code = await keeper.beat(says_partitions=guest.random.chance(0.5))
        told = f"a member has given up nothing, another one has {sorted(other.owned)}, and it is told {code.name}"
        guest.holds(not other.owned or code is not ErrorCode.NONE, told)
        codes.add(code)
        await asyncio.sleep(BEAT_S)
        return codes != {ErrorCode.NONE}

    await guest.comes(is_out, "a member gives up nothing, and stays")
    fenced = {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}
    guest.holds(codes <= fenced, f"a member that gave up nothing is told {codes}")
    await _until(guest, [other], lambda: len(other.owned) == PARTITIONS, "the member that is left does not have all")
    await _expect_described(guest, other)
    await _grows(guest, other, partition)
    await _falls_silent(guest, other, partition)

    back = _Member(guest, group, partition.topic, f"{group}-back", other.instance)
    code = await back.beat()
    guest.holds(
        code is ErrorCode.UNRELEASED_INSTANCE_ID, f"an instance id is in use, and one that joins is told {code.name}"
    )
    guest.holds(await other.beat(LEAVE_FOR_A_WHILE) is ErrorCode.NONE, "a static member cannot leave for a while")
    found = await _described(guest, other)
    guest.holds(len(found.members) == 1, f"a static member has left for a while, and its place is gone: {found}")
    await _until(guest, [back], lambda: len(back.owned) == GROWN, "a static member that is back does not have all")
    former = await other.beat(1)
    guest.holds(former is ErrorCode.FENCED_INSTANCE_ID, f"a static member that was replaced is told {former.name}")
    guest.holds(await back.beat(LEAVE) is ErrorCode.NONE, "a member cannot leave")
    found = await _described(guest, back)
    guest.holds(found.group_state == "Empty" and not found.members, f"a group without members is {found.group_state}")
    await _subscribes_to_another(guest, partition, f"{group}-more")


async def _subscribes_to_another(guest: Guest, partition: TopicPartition, group: str) -> None:
    """A member that names one more topic is given its partitions, too."""
    other = (await guest.topic()).topic
    id = await guest.topic_id(other)
    member = _Member(guest, group, partition.topic, f"{group}-member")
    await _until(guest, [member], lambda: len(member.owned) == GROWN, "a lone member does not have all")
    code = await member.beat(topics=[partition.topic, other])
    guest.holds(code is ErrorCode.NONE, f"a member subscribes to one more topic, and is answered {code.name}")
    await _until(
        guest, [member], lambda: id in member.further, "a member has subscribed to a topic, and has none of it"
    )
    guest.holds(await member.beat(LEAVE) is ErrorCode.NONE, "a member cannot leave")


async def _grows(guest: Guest, member: _Member, partition: TopicPartition) -> None:
    """The topic gets more partitions, which are given, too; the answer that tells so may be lost."""
    kind = messages.CreatePartitionsRequest
    request = kind(
        topics=[kind.CreatePartitionsTopic(name=partition.topic, count=GROWN, assignments=None)],
        timeout_ms=PRODUCE_MS_MAX,
    )
    response = await guest.router.ask_any(ApiKey.CREATE_PARTITIONS, request)
    guest.expect(response.results[0].error_code, ErrorCode.NONE, "CreatePartitions")
    epoch, owned = member.epoch, member.owned
    await _until(guest, [member], lambda: len(member.owned) == GROWN, "a member does not get new partitions")
    newest, member.owned = member.epoch, owned
    code = await member.beat(epoch)
    told = f"a member that did not get the answer with epoch {newest} beats with {epoch}, and is answered {code.name}"
    guest.holds(code is ErrorCode.NONE and member.epoch == newest, told)
    member.owned = frozenset(range(GROWN))


async def _falls_silent(guest: Guest, member: _Member, partition: TopicPartition) -> None:
    """Another one comes, takes its part, and is not heard of any more, by the next coordinator either."""
    silent = _Member(guest, member.group, partition.topic, f"{member.group}-silent")
    former = member.epoch
    await _until(guest, [silent, member], lambda: len(silent.owned) == GROWN // 2, "a second member does not have half")
    given_up = min(set(range(GROWN)) - member.owned)
    for place, wanted in ((given_up, ErrorCode.STALE_MEMBER_EPOCH), (min(member.owned), ErrorCode.NONE)):
        code = await guest.commit(
            member.coordinator,
            member.group,
            TopicPartition(partition.topic, place),
            5,
            generation=former,
            member_id=member.name,
        )
        told = f"a commit for partition {place} in epoch {former}, where {sorted(member.owned)} are held in"
        guest.holds(code is wanted, f"{told} {member.epoch}, is answered {code.name}")
    code = await guest.commit(
        member.coordinator, member.group, partition, 5, generation=member.epoch + 1, member_id=member.name
    )
    guest.holds(code is ErrorCode.STALE_MEMBER_EPOCH, f"a commit of an epoch to come is answered {code.name}")
    if guest.kills(DEATH_CHANCE):
        guest.machine(member.coordinator.broker).kill()
        member.coordinator.forget()
    heard_ms = guest.now_ms()

    async def has_all() -> bool:
        nonlocal heard_ms
        try:
            code = await member.beat()
        except (OSError, TimeoutError):
            member.coordinator.forget()
        else:
            if code is not ErrorCode.NONE and guest.now_ms() > heard_ms + GAP_MS_MAX:
                raise NotNow("no coordinator was reached before the member's own session ended")
            guest.holds(code is ErrorCode.NONE, f"{member.name} beats, and is answered {code.name}")
            heard_ms = guest.now_ms()
        await asyncio.sleep(BEAT_S)
        return len(member.owned) == GROWN

    await guest.comes(has_all, "a member is silent, and keeps its partitions", SILENT_S_MAX)


async def _until(guest: Guest, members: list[_Member], holds: Any, told: str) -> None:
    async def is_so() -> bool:
        for member in members:
            await member.expect_beat()
        await asyncio.sleep(BEAT_S)
        return bool(holds())

    await guest.comes(is_so, told)


async def _described(guest: Guest, member: _Member) -> Any:
    request = messages.ConsumerGroupDescribeRequest(group_ids=[member.group])
    response = await member.coordinator.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, request)
    (found,) = response.groups
    guest.expect(found.error_code, ErrorCode.NONE, "ConsumerGroupDescribe")
    return found


async def _expect_described(guest: Guest, member: _Member) -> None:
    await member.expect_beat()
    found = await _described(guest, member)
    (told,) = found.members if len(found.members) == 1 else (None,)
    guest.holds(told is not None and found.group_state == "Stable", f"one member is left, and it is {found}")
    assert told is not None
    for each in (told.assignment, told.target_assignment):
        owned = {number for topic in each.topic_partitions for number in topic.partitions}
        guest.holds(owned == member.owned, f"{member.name} has {sorted(member.owned)}, and it is {found}")
    is_right = (told.member_id, told.member_epoch, told.instance_id) == (member.name, member.epoch, member.instance)
    guest.holds(is_right and found.assignment_epoch == member.epoch, f"{member.name} has epoch {member.epoch}: {found}")
