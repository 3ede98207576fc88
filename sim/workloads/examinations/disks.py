"""What disks do: with flush.messages=1 a power cut of all brokers takes nothing that was answered, and what a disk
refuses for a while is done later."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING, Final

from sim.disk_faults import NEED_DESCRIPTORS
from sim.plan import FaultKind
from sim.workloads.examinations.guest import BACK_S, TOPIC_RESOURCE, NotNow
from sim.world.disk import Fault
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sim.workloads.examinations.guest import Guest
    from sim.world.disk import Operation
    from tidelog.model.identifiers import TopicPartition

RECORDS: Final = 6
DELETED: Final = 3
COMMITTED: Final = 5
REFUSED_MAX: Final = 4
SETTING: Final = {"retention.bytes": "123456"}


async def power_cuts_take_nothing(guest: Guest) -> None:
    """Records, deletions, committed offsets, settings and topics, whichever of them was answered last."""
    partition = await guest.topic({"flush.messages": "1", "segment.bytes": "200"})
    group = f"{partition.topic}-group"
    created: list[TopicPartition] = []

    async def delete() -> None:
        await guest.delete_records(partition, DELETED)

    async def commit() -> None:
        code = await guest.commit(guest.group(group), group, partition, COMMITTED)
        guest.holds(code is ErrorCode.NONE, f"a commit is answered {code.name}")

    async def alter() -> None:
        await guest.alter(partition.topic, SETTING)

    async def create() -> None:
        created.append(await guest.topic({"flush.messages": "1"}))
        await guest.written(created[0], guest.batch([b"first"]))

    values = [b"%d" % number for number in range(RECORDS)]
    for value in values[:-1]:
        await guest.written(partition, guest.batch([value]))

    async def write() -> None:
        await guest.written(partition, guest.batch(values[-1:]))

    steps: list[Callable[[], Awaitable[None]]] = [delete, commit, alter, create, write]
    while steps:
        await steps.pop(guest.random.below(len(steps)))()
    for machine in guest.cluster.brokers:
        machine.power_cut()
    # No broker tells a client that its connections are gone.
    for client in guest.router.brokers.values():
        client.close()
    await _all_are_back(guest)
    await guest.known_everywhere(partition.topic, 1)
    begins = await guest.router.offset(partition, EARLIEST_TIMESTAMP)
    guest.holds(begins == DELETED, f"all before {DELETED} was deleted, and the log begins at {begins}")
    ends = await guest.router.offset(partition, LATEST_TIMESTAMP)
    guest.holds(ends == RECORDS, f"{RECORDS} records were acknowledged, and the log ends at {ends}")
    found: dict[int, bytes | None] = {}
    while len(found) < RECORDS - DELETED:
        for _, records in await guest.read(partition, DELETED + len(found)):
            found |= {record.offset: record.value for record in records}
    guest.holds(list(found.values()) == values[DELETED:], f"{values[DELETED:]} were acknowledged, and {found} is read")

    async def is_told() -> bool:
        try:
            found = await guest.offset_of(guest.group(group), group, partition)
        except NotNow:  # The coordinator loads.
            return False
        told = found[partition].committed_offset
        guest.holds(told == COMMITTED, f"{COMMITTED} was committed, and {told} is told")
        return True

    await guest.comes(is_told, f"no coordinator says what {group} has committed", BACK_S)
    for broker in guest.router.brokers:
        own = await _settings(guest, broker, partition.topic)
        guest.holds(own.items() >= SETTING.items(), f"{SETTING} was set, and broker {broker} describes {own}")
    await guest.known_everywhere(created[0].topic, 1)
    ends = await guest.router.offset(created[0], LATEST_TIMESTAMP)
    guest.holds(ends == 1, f"a record was acknowledged in a new topic, which ends at {ends}")


async def orders_are_tried_again(guest: Guest) -> None:
    """A broker without descriptors cannot make a replica; when it has some it makes it, without another order."""
    states = guest.cluster.states
    if states is None:
        return
    machines = guest.cluster.brokers
    machine = machines[guest.random.below(len(machines))]
    left = 1 + guest.random.below(REFUSED_MAX)
    name = f"{guest.name}.1"

    def refuses(found: Operation) -> Fault | None:
        nonlocal left
        if left <= 0 or found.kind not in NEED_DESCRIPTORS or f"/{name}-0" not in found.path:
            return None
        left -= 1
        return Fault(OSError(errno.EMFILE, os.strerror(errno.EMFILE), found.path))

    guest.cluster.explain(FaultKind.SHORTAGE)
    machine.disk.fault = refuses
    try:
        partition = await guest.topic()
        guest.holds(partition.topic == name, f"the topic is called {partition.topic}, and descriptors lack for {name}")
        replicas = states.replicas(partition)

        async def is_whole() -> bool:
            state = states.state(partition)
            return state is not None and set(state.isr) == set(replicas) and state.leader >= 0

        async def takes_records() -> bool:
            try:
                await guest.written(partition, guest.batch([b"a record"]))
            except NotNow:  # The leader may not have made its log yet.
                return False
            return True

        await guest.comes(is_whole, f"{machine.name} had no descriptors for {partition}", BACK_S)
        await guest.comes(takes_records, f"{machine.name} had no descriptors for {partition}, which is led", BACK_S)
    finally:
        if machine.disk.fault is refuses:
            machine.disk.fault = None


async def _all_are_back(guest: Guest) -> None:
    async def are_back() -> bool:
        await asyncio.sleep(0.2)
        return guest.cluster.is_whole

    await guest.comes(are_back, f"after a power cut of all: {guest.cluster.ailments()[:3]}", BACK_S)


async def _settings(guest: Guest, broker: int, topic: str) -> dict[str, str]:
    kind = messages.DescribeConfigsRequest
    resource = kind.DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None)
    response = await guest.router.ask(broker, ApiKey.DESCRIBE_CONFIGS, kind(resources=[resource]))
    guest.expect(response.results[0].error_code, ErrorCode.NONE, "DescribeConfigs")
    return {each.name: each.value for each in response.results[0].configs}
