"""A broker that stops in order: others lead what it led before it is gone, and none waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.model.identifiers import NO_LEADER

if TYPE_CHECKING:
    from sim.workloads.examinations.guest import Guest
    from tidelog.metadata.znodes import PartitionState
    from tidelog.model.identifiers import TopicPartition


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
