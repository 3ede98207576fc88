"""A partition whose members in sync are all away waits, until an operator gives up what only they had."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from sim.workloads.admin import UNCLEAN
from sim.workloads.examinations.guest import AWAY_S, BACK_S, PRODUCE_MS_MAX
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sim.workloads.examinations.guest import Guest
    from tidelog.metadata.znodes import PartitionState
    from tidelog.model.identifiers import TopicPartition

REPLICAS: Final = 2
BROKERS_MIN: Final = 3
"""One is left while both brokers of the partition are away."""
WAIT_S: Final = 5.0
"""In which a controller would have elected another leader."""
SETTING: Final = "unclean.leader.election.enable"


async def elections_wait(guest: Guest) -> None:
    """Only the topic's setting, or a command, lets a replica lead that was not in sync."""
    cluster = guest.cluster
    if cluster.plan.brokers < BROKERS_MIN or cluster.states is None:
        return
    partition = await guest.topic({"min.insync.replicas": "1"}, replication_factor=REPLICAS)
    state = guest.state(partition)
    leader = guest.machine(state.leader)
    follower = guest.machine(next(id for id in state.isr if id != state.leader))
    with cluster.kept_down(leader):
        with cluster.kept_down(follower):
            follower.kill()
            await _comes(guest, partition, lambda state: state.isr == (leader.broker_id,), "its follower is dead")
            await guest.written(partition, guest.batch([b"only the leader has it"]))
            leader.kill()
            await _comes(guest, partition, lambda state: state.leader < 0, "its leader is dead, too")
        number = follower.broker_id

        async def is_back() -> bool:
            shown = (await guest.router.ask(number, ApiKey.METADATA, messages.MetadataRequest(topics=[]))).brokers
            return any(each.node_id == number for each in shown)

        await guest.comes(_patient(is_back), f"{follower.name} does not come back", BACK_S)
        await asyncio.sleep(WAIT_S)
        led_by = guest.state(partition).leader
        guest.holds(led_by < 0, f"{led_by} leads {partition}, and only {leader.name} was in sync, which is away")
        cluster.allow_loss(partition.topic)
        if guest.random.chance(0.5):
            await guest.comes(_patient(lambda: _allow(guest, partition)), f"{partition.topic} is not altered", AWAY_S)
        else:
            await guest.comes(_patient(lambda: _elect(guest, partition)), f"{partition} has no election", AWAY_S)
        await _comes(guest, partition, lambda state: state.leader == number, f"{follower.name} may lead")


async def _comes(guest: Guest, partition: TopicPartition, is_so: Callable[[PartitionState], bool], told: str) -> None:
    async def question() -> bool:
        return is_so(guest.state(partition))

    await guest.comes(question, f"{told}, and {partition} is {guest.state(partition)}", AWAY_S)


def _patient(question: Callable[[], Awaitable[bool]]) -> Callable[[], Awaitable[bool]]:
    """The question, which is answered no where a broker that is away is asked."""

    async def is_so() -> bool:
        with contextlib.suppress(OSError, TimeoutError):
            return await question()
        return False

    return is_so


async def _allow(guest: Guest, partition: TopicPartition) -> bool:
    await guest.alter(partition.topic, {SETTING: "true"})
    return True


async def _elect(guest: Guest, partition: TopicPartition) -> bool:
    kind = messages.ElectLeadersRequest
    place = kind.TopicPartitions(topic=partition.topic, partitions=[partition.partition])
    request = kind(election_type=UNCLEAN, topic_partitions=[place], timeout_ms=PRODUCE_MS_MAX)
    await guest.router.ask_any(ApiKey.ELECT_LEADERS, request)
    return guest.state(partition).leader >= 0


__all__ = ["elections_wait"]
