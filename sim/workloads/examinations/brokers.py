"""Brokers that leave for a while: one that stops in order, and one of whose log directories fails.

Others lead what such a broker led, and none waits for it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Final

from sim.checks.replicas import replicas_of
from sim.plan import FaultKind
from sim.workloads.examinations.guest import NotNow
from sim.world.disk import Fault
from tidelog.metadata.znodes import broker_path, state_path
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import NO_LEADER, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from sim.machine import BrokerMachine
    from sim.workloads.examinations.guest import Guest
    from sim.world.disk import Operation
    from tidelog.metadata.znodes import PartitionState

NEED_DEVICE: Final = frozenset({"write", "create", "fsync", "make_directory"})
PARTITIONS: Final = 4


async def leaving_brokers_hand_over(guest: Guest) -> None:
    """It leaves leaderships and ISRs, comes into none as long as it stops, and what it led takes records at once."""
    states, plan = guest.cluster.states, guest.cluster.plan
    if states is None or plan.replication_factor < 2:
        return
    partition = await guest.topic(partitions=3)
    await guest.written(partition, guest.batch([b"before"]))
    machine = guest.machine((await guest.leader(partition)).broker_id)
    id = machine.broker_id
    left: set[TopicPartition] = set()
    wrong: list[str] = []

    def changed(which: TopicPartition, before: PartitionState, after: PartitionState) -> None:
        if not machine.is_stopping or which.topic in guest.cluster.estranged:
            return
        if id not in after.isr:
            left.add(which)
        elif id not in before.isr and which in left:
            wrong.append(f"{which} takes it back into its ISR, {after}")
        if before.leader == id and after.leader == NO_LEADER and len(before.isr) > 1:
            wrong.append(f"{which} has no leader, {before} before")

    states.observers.append(changed)
    try:
        with guest.cluster.kept_down(machine):
            await machine.stop()
            for which in states.partitions():
                if which.topic in guest.cluster.estranged:
                    continue
                state = states.state(which)
                if state is not None and len(states.replicas(which)) > 1 and (id in state.isr or state.leader == id):
                    wrong.append(f"{which} waits for it: {state}")
            guest.holds(not wrong, f"{machine.name} has stopped in order: {wrong[:3]}")
            if plan.replication_factor > plan.min_insync_replicas:
                guest.router.forget(partition)
                await guest.written(partition, guest.batch([b"while it is away"]))
    finally:
        states.observers.remove(changed)


async def failed_directories_are_left(guest: Guest) -> None:
    """What lies in a log directory that fails is led by others, shown as offline and in no ISR; all else stays."""
    states, plan = guest.cluster.states, guest.cluster.plan
    if states is None or plan.replication_factor < 2:
        return
    first = await guest.topic(partitions=PARTITIONS)
    topic = [TopicPartition(first.topic, number) for number in range(PARTITIONS)]
    for partition in topic:
        await guest.written(partition, guest.batch([b"before"]))
    machine = guest.machine((await guest.leader(first)).broker_id)
    directory = machine.folder_of(first).rpartition("/")[0]

    def fails(found: Operation) -> Fault | None:
        if found.kind not in NEED_DEVICE or not found.path.startswith(f"{directory}/"):
            return None
        return Fault(OSError(errno.EIO, os.strerror(errno.EIO), found.path))

    async def has_left() -> bool:
        return await _has_left(guest, machine, directory, first.topic)

    guest.cluster.explain(FaultKind.DISK_ERROR)
    machine.disk.fault = fails
    try:
        with contextlib.suppress(NotNow):
            # The leader finds out by it.
            await guest.produce(first, guest.batch([b"in vain"]))
        await guest.comes(has_left, f"{machine.name} has lost {directory}, and its replicas there count as before")
        await _is_kept_out(guest, machine.broker_id, first)
        if plan.replication_factor > plan.min_insync_replicas:
            for partition in topic:
                guest.router.forget(partition)
                await guest.written(partition, guest.batch([b"while it is offline"]))
        guest.holds(await has_left(), f"{machine.name} has lost {directory}, and takes part with it again")
    finally:
        machine.disk.fault = None
        with guest.cluster.kept_down(machine):
            await machine.stop()


async def _has_left(guest: Guest, machine: BrokerMachine, directory: str, topic: str) -> bool:
    """Whether store and brokers say so of each replica that lay there, and of no other one."""
    states, id = guest.cluster.states, machine.broker_id
    assert states is not None
    for replica in replicas_of(machine):
        partition = replica.topic_partition
        state = states.state(partition)
        if state is None or partition.topic in guest.cluster.estranged or len(states.replicas(partition)) < 2:
            continue
        has_failed = machine.folder_of(partition).startswith(f"{directory}/")
        if has_failed == (id in state.isr) or (has_failed and state.leader == NO_LEADER):
            return False
    for shown in await guest.shown(topic):
        for each in shown.partitions:
            has_failed = machine.folder_of(TopicPartition(topic, each.partition_index)).startswith(f"{directory}/")
            is_so = (id in each.offline_replicas) == has_failed and not (has_failed and each.leader_id == id)
            if id in each.replica_nodes and not is_so:
                return False
    return True


async def _is_kept_out(guest: Guest, id: int, partition: TopicPartition) -> None:
    """A leader that has not heard of it wishes for the replica in its ISR, and is refused."""
    states, store = guest.cluster.states, guest.cluster.store_history
    assert states is not None
    state, stat = states.state(partition), store.now(state_path(*partition)).stat
    controllers = guest.cluster.controller()
    if state is None or stat is None or not controllers:
        raise NotNow("no controller")
    epochs = {}
    for member in (*state.isr, id):
        registered = store.now(broker_path(member)).stat
        if registered is None:
            raise NotNow(f"{member} is not registered")
        epochs[member] = registered.czxid
    kind = messages.AlterPartitionRequest
    wanted = kind.PartitionData(
        partition_index=partition.partition,
        leader_epoch=state.leader_epoch,
        new_isr_with_epochs=[kind.BrokerState(broker_id=each, broker_epoch=epoch) for each, epoch in epochs.items()],
        partition_epoch=stat.version,
    )
    topic = kind.TopicData(topic_id=states.topic_id(partition.topic), partitions=[wanted])
    request = kind(broker_id=state.leader, broker_epoch=epochs[state.leader], topics=[topic])
    response = await guest.router.ask(controllers[0].broker_id, ApiKey.ALTER_PARTITION, request)
    if response.error_code or store.now(state_path(*partition)).stat != stat:
        raise NotNow("the state is another one")
    code = ErrorCode(response.topics[0].partitions[0].error_code)
    guest.expect(code, ErrorCode.INELIGIBLE_REPLICA, f"a wish for {id} in the ISR of {partition}")
