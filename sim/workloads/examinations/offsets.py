"""What a group has committed: how long it is kept, with members and without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.workloads.examinations.classic_group import ClassicGroup
from sim.workloads.examinations.guest import NotNow
from tidelog.model.errors import ErrorCode

if TYPE_CHECKING:
    from sim.workloads.examinations.guest import Guest
    from tidelog.model.identifiers import TopicPartition

RETENTION_MS: Final = 1_000
"""Old clients may ask for it; the brokers' own retention is longer than a run."""
EXPIRED_S: Final = 10.0
"""In which brokers look for expired offsets several times."""


async def offsets_expire(guest: Guest) -> None:
    """Offsets of a topic that members read outlast their time; others expire, and all when no member is left."""
    read, other = await guest.topic(), await guest.topic()
    group = ClassicGroup(guest, f"{read.topic}-group", read.topic)
    member = group.member()
    await group.join(member)
    member.others = (member.member_id,)
    await group.sync(member)
    coordinator = member.coordinator
    broker = coordinator.broker
    for partition in (read, other):
        code = await guest.commit(
            coordinator,
            group.name,
            partition,
            1,
            generation=member.generation,
            member_id=member.member_id,
            retention_ms=RETENTION_MS,
        )
        guest.holds(code is ErrorCode.NONE, f"a commit is answered {code.name}")

    async def committed() -> set[TopicPartition]:
        found = set(await guest.offset_of(coordinator, group.name, None))
        if coordinator.broker != broker:
            raise NotNow("another coordinator has a clock of its own")
        return found

    async def has_expired() -> bool:
        await group.expect_beat(member, ErrorCode.NONE, "of a member")
        return other not in await committed()

    await guest.comes(has_expired, "the offset of a topic that its group does not read is there", EXPIRED_S)
    found = await committed()
    guest.holds(found == {read}, f"a member reads {read}, and of what had its time the coordinator keeps {found}")
    await group.leave(member)

    async def is_dead() -> bool:
        return not await committed() and (await group.described(coordinator)).group_state == "Dead"

    await guest.comes(is_dead, "a group has neither members nor offsets that last, and it is there", EXPIRED_S)


__all__ = ["offsets_expire"]
