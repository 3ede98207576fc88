"""Waves keep their limits, and the simulation tells what happens in them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import pytest

from tidelog.model.identifiers import TopicPartition
from tidelog.placement.plan.copies import Disk
from tidelog.placement.plan.diagnosis import findings
from tidelog.placement.plan.goals import Goals, PlanRefused
from tidelog.placement.plan.plan import Move
from tidelog.placement.plan.planner import make_plan
from tidelog.placement.plan.simulation import WAVE_OVERHEAD_S, seconds_at, simulate
from tidelog.placement.plan.state import (
    BrokerState,
    ClusterState,
    DirectoryState,
    PartitionState,
    ReassignmentState,
    TopicState,
)
from tidelog.placement.plan.waves import Limits, in_waves

MB = 1_000_000


def cluster(
    replicas: Sequence[Sequence[int]],
    *,
    brokers: int = 4,
    size: int = 100 * MB,
    usable: int | None = None,
    isr: dict[int, tuple[int, ...]] | None = None,
    traffic: float | None = None,
    min_insync: int = 1,
) -> ClusterState:
    """Each broker has one directory /d of ten times a replica's size, `usable` of it free."""
    return ClusterState.of(
        brokers=[
            BrokerState(broker, directories=(DirectoryState("/d", 10 * size, usable),)) for broker in range(brokers)
        ],
        topics=[TopicState("t", min_insync_replicas=min_insync)],
        partitions=[
            PartitionState(
                "t",
                number,
                tuple(each),
                each[0],
                (isr or {}).get(number, tuple(each)),
                ("/d",) * len(each),
                (size,) * len(each),
                traffic,
            )
            for number, each in enumerate(replicas)
        ],
    )


def move(state: ClusterState, partition: int, to: Sequence[int]) -> Move:
    found = state.partitions[TopicPartition("t", partition)]
    former = dict(zip(found.replicas, found.directories, strict=True))
    return Move(
        "t", partition, found.replicas, tuple(to), found.directories, tuple(former.get(each) for each in to), found.size
    )


def test_a_wave_takes_as_long_as_its_busiest_broker() -> None:
    """Broker 0 sends two replicas at 10 MB/s, while those that get one each could be done sooner."""
    state = cluster([(0, 1), (0, 1), (1, 0)])
    waves = in_waves([move(state, 0, (0, 2)), move(state, 1, (0, 3)), move(state, 2, (1, 2))], state)
    found = simulate(waves, state, throttle=10 * MB)
    assert found["seconds"] == 20 + WAVE_OVERHEAD_S
    assert seconds_at(found, 20.0 * MB) == 10 + WAVE_OVERHEAD_S
    assert [entry["busiest"] for entry in found["waves"]] == [{"broker": 0, "direction": "out"}]
    two = next(entry for entry in found["brokers"] if entry["broker"] == 2)
    assert (two["bytes_in"], two["peak_in_per_s"]) == (200 * MB, 10 * MB)
    three = next(entry for entry in found["brokers"] if entry["broker"] == 3)
    assert three["peak_in_per_s"] == 5 * MB


def test_what_is_written_meanwhile_is_copied_too() -> None:
    """At 10 MB/s a partition that gets 5 MB/s takes twice as long; one that gets more than the throttle never ends."""
    state = cluster([(0, 1)], traffic=5.0 * MB)
    found = simulate(in_waves([move(state, 0, (0, 2))], state), state, throttle=10 * MB)
    assert found["seconds"] == 20 + WAVE_OVERHEAD_S
    assert math.isinf(seconds_at(found, 4.0 * MB))
    assert simulate(in_waves([move(state, 0, (0, 2))], state), state, throttle=4 * MB)["seconds"] is None


def test_waves_keep_limits_of_brokers_and_links() -> None:
    state = cluster([(0, 1)] * 6)
    moves = [move(state, number, (0, 2)) for number in range(6)]
    assert [len(wave) for wave in in_waves(moves, state, Limits(broker_bytes=250 * MB))] == [2, 2, 2]
    assert [len(wave) for wave in in_waves(moves, state, Limits(broker_copies=4))] == [4, 2]
    assert [len(wave) for wave in in_waves(moves, state, Limits(link_copies=5))] == [5, 1]
    assert [len(wave) for wave in in_waves(moves, state, Limits(disk_copies=3))] == [3, 3]
    numbered = [work.move.wave for wave in in_waves(moves, state, Limits(disk_copies=3)) for work in wave]
    assert numbered == [0, 0, 0, 1, 1, 1]


def test_what_has_lost_replicas_moves_first() -> None:
    state = cluster([(0, 1), (0, 1)], isr={1: (0,)})
    waves = in_waves([move(state, 0, (0, 2)), move(state, 1, (0, 2))], state, Limits(link_copies=1))
    assert [[work.move.partition for work in wave] for wave in waves] == [[1], [0]]


def test_a_disk_is_never_filled() -> None:
    """Replicas of brokers 0 and 1 change places; there is room for one of them at a time, and never for three."""
    state = cluster([(0,), (1,)], usable=130 * MB)
    swap = [move(state, 0, (1,)), move(state, 1, (0,))]
    assert [len(wave) for wave in in_waves(swap, state)] == [2]
    two = cluster([(0,), (0,), (1,)], usable=130 * MB)
    waves = in_waves([move(two, 0, (1,)), move(two, 1, (1,)), move(two, 2, (0,))], two)
    assert [len(wave) for wave in waves] == [2, 1]
    disks = simulate(waves, two)["disks"]
    assert [(entry["broker"], entry["peak_extra"], entry["usable_least"]) for entry in disks] == [
        (0, 100 * MB, 30 * MB),
        (1, 100 * MB, 30 * MB),
    ]
    with pytest.raises(PlanRefused, match="broker 1 has no room in /d"):
        in_waves([move(two, 0, (1,)), move(two, 1, (1,))], two)


def test_replicas_in_sync_and_deaths() -> None:
    """While t-0 moves, two replicas are in sync; broker 2's death in between leaves a move waiting, 0's no leader."""
    state = cluster([(0, 1), (0,)], min_insync=2)
    waves = in_waves([move(state, 0, (1, 2))], state)
    found = simulate(waves, state)
    assert found["lowest_isr"] == {"replicas": 2, "topic": "t", "partition": 0}
    assert found["without_spare"] == 1
    deaths = {entry["broker"]: entry for entry in found["if_dies"]}
    assert deaths[2] == {"broker": 2, "wave": 0, "offline": 0, "below_min_isr": 0, "moves_stalled": 1}
    assert deaths[0]["offline"] == 1
    assert deaths[0]["below_min_isr"] == 2


def test_a_partition_without_a_leader_cannot_be_copied() -> None:
    state = cluster([(0, 1)], isr={0: ()})
    headless = ClusterState.of(
        brokers=state.brokers.values(),
        topics=state.topics.values(),
        partitions=[PartitionState("t", 0, (0, 1), -1, (), ("/d", "/d"), (MB, MB))],
    )
    found = simulate(in_waves([move(headless, 0, (0, 2))], headless), headless)
    assert found["stalled"] == ["t-0"]


def test_a_broker_without_room_is_named_in_the_plan() -> None:
    """Draining broker 0 would put more on the others than they have room for."""
    state = cluster([(0,)] * 9, brokers=2, usable=150 * MB)
    with pytest.raises(PlanRefused, match="broker 1 has no room in /d"):
        make_plan(state, Goals(drain=frozenset({0})))


def test_a_full_broker_gets_nothing_while_others_have_room() -> None:
    """Broker 1 has room for one replica more, which is fewer than its share of what leaves broker 0."""
    state = cluster([(0,)] * 4, brokers=3, usable=10_000 * MB)
    brokers = [
        dataclasses.replace(
            each, directories=(DirectoryState("/d", 1000 * MB, 150 * MB if each.id == 1 else 10_000 * MB),)
        )
        for each in state.brokers.values()
    ]
    state = dataclasses.replace(state, brokers={each.id: each for each in brokers})
    planned = make_plan(state, Goals(drain=frozenset({0})))
    assert {move.replicas_to for move in planned.plan.moves} == {(2,)}
    assert planned.remarks == ("broker 1 gets no replica: its disks have no room",)


def test_disks_that_get_a_replica_are_those_kafka_would_choose() -> None:
    """A new replica goes to the live directory with the fewest logs, cordoned ones aside."""
    state = ClusterState.of(
        brokers=[
            BrokerState(0, directories=(DirectoryState("/d"),)),
            BrokerState(
                1, directories=(DirectoryState("/a"), DirectoryState("/b", cordoned=True), DirectoryState("/c"))
            ),
        ],
        topics=[TopicState("t")],
        partitions=[
            PartitionState("t", 0, (0,), 0, (0,), ("/d",), (5,)),
            PartitionState("t", 1, (1,), 1, (1,), ("/a",), (5,)),
        ],
    )
    [[work]] = in_waves([move(state, 0, (1,))], state)
    assert work.copies[0].onto == Disk(1, "/c")
    assert work.frees == {Disk(0, "/d"): 5}


def test_a_disk_with_room_is_asked_for_where_the_broker_would_choose_a_full_one() -> None:
    """Broker 1 would take the directory with fewer logs, which is full: the plan names the other one."""
    full, roomy = DirectoryState("/a", 1000 * MB, 30 * MB), DirectoryState("/b", 1000 * MB, 900 * MB)
    state = ClusterState.of(
        brokers=[BrokerState(0, directories=(DirectoryState("/d"),)), BrokerState(1, directories=(full, roomy))],
        topics=[TopicState("t")],
        partitions=[
            PartitionState("t", 0, (0,), 0, (0,), ("/d",), (100 * MB,)),
            PartitionState("t", 1, (1,), 1, (1,), ("/b",), (5,)),
            PartitionState("t", 2, (0,), 0, (0,), ("/d",), (5,)),
        ],
    )
    planned = make_plan(state, Goals(drain=frozenset({0})))
    assert [(move.partition, move.replicas_to, move.directories_to) for move in planned.plan.moves] == [
        (0, (1,), ("/b",)),
        (2, (1,), (None,)),
    ]
    assert planned.remarks == ()


def test_what_is_wrong_is_told() -> None:
    """A dead broker, a full disk, a lost directory, racks, under-replicated partitions, what is under way."""
    state = ClusterState.of(
        brokers=[
            BrokerState(0, "a", directories=(DirectoryState("/x", 100, 5), DirectoryState("/y", error="GONE"))),
            BrokerState(1, "a", throttles={"leader.replication.throttled.rate": "1"}),
            BrokerState(2, "b", cordoned=True),
            BrokerState(3, online=False),
            BrokerState(4, online=False),
        ],
        topics=[TopicState("t", min_insync_replicas=2)],
        partitions=[
            PartitionState("t", 0, (0, 1), 0, (0, 1)),
            PartitionState("t", 1, (0, 3), 0, (0,)),
            PartitionState("t", 2, (3, 4), -1, (3,)),
        ],
        reassignments={TopicPartition("t", 0): ReassignmentState((2,), (1,))},
    )
    assert findings(state) == [
        "broker 0 has lost /y (GONE)",
        "broker 2 holds no replica",
        "broker 2 is cordoned: it gets no new replica",
        "broker 3 is offline: 2 replicas are assigned to it",
        "broker 4 is offline: 1 replica is assigned to it",
        "1 partition without a leader: t-2",
        "1 partition below min.insync.replicas: t-1",
        "1 partition with replicas out of sync: t-1",
        "1 disk full: broker 0 /x 95%",
        "1 partition twice in one rack: t-0",
        "brokers have 0 to 2 replicas, 1.0 on average",
        "brokers have 0 to 2 preferred leaders, 0.7 on average",
        "1 reassignment under way: these partitions are left alone",
        "replication throttles are set: broker 1",
    ]
