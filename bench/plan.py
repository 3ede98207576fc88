"""Plans of replicas: how long the planner takes, and how far from the proven least its plans are.

    python -m bench.plan [--only NAME]...

    grow          30 -> 33 brokers, 10,000 partitions, factor 3: 2,727 moves, proven, in 1 s
    racks         100 -> 110 brokers, 50,000 partitions, factor 3, 5 racks: the proven least in 15 s and 2 GiB
    bytes         33 brokers x 4 disks, 3,000 partitions, factor 3, log-normal sizes: gap of 2 % at most in 60 s
    million       1,000 brokers, 1,000,000 replicas, 10 racks, log-normal sizes: within 5 % of its bound in 5 min

Each runs in a process of its own, so that its memory is its own. The planner is one thread that waits for nothing, so
seconds are those of its CPU: what it takes on a machine with nothing else to do. Beside the moves: what Kafka's
--generate would move, which places all replicas anew and looks at nothing that stands. Exits with 1 where a figure is
missed.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.placement.assignment import assign_replicas
from tidelog.placement.brokers import BrokerRack
from tidelog.placement.plan.goals import Balance, Goals
from tidelog.placement.plan.planner import make_plan
from tidelog.placement.plan.state import BrokerState, ClusterState, DirectoryState, PartitionState, TopicState

FACTOR: Final = 3
PARTITIONS_PER_TOPIC: Final = 100


class Drawn:
    """Draws of a seed, as placements ask for them."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def below(self, bound: int) -> int:
        return self._draw.randrange(bound)


class Figure(NamedTuple):
    """A case and what it has to reach."""

    state: Callable[[], ClusterState]
    balance: Balance
    gap_max: float
    seconds_max: float
    mib_max: int
    moves: int | None = None


def grown(before: int, after: int, partitions: int, racks: int) -> ClusterState:
    """Topics that Kafka's placement spread over `before` brokers, now that there are `after` of them."""
    brokers = [BrokerRack(broker, f"rack-{broker % racks}" if racks else None) for broker in range(after)]
    found = []
    topics = partitions // PARTITIONS_PER_TOPIC
    for topic in range(topics):
        placed = assign_replicas(brokers[:before], PARTITIONS_PER_TOPIC, FACTOR, random=Drawn(topic))
        found += [partition(topic, number, replicas, 1, ("/d",)) for number, replicas in placed.items()]
    return ClusterState.of(
        brokers=[BrokerState(broker.id, broker.rack, directories=(DirectoryState("/d"),)) for broker in brokers],
        topics=[TopicState(f"topic-{topic}") for topic in range(topics)],
        partitions=found,
    )


def uneven(brokers: int, disks: int, partitions: int, racks: int) -> ClusterState:
    """Replicas anywhere, with log-normal sizes of 2 GB on average."""
    draw = random.Random(1)
    paths = tuple(f"/d{disk}" for disk in range(disks))
    found = []
    for number in range(partitions):
        size = int(draw.lognormvariate(21, 1.0))
        if racks:
            replicas = [rack + racks * draw.randrange(brokers // racks) for rack in draw.sample(range(racks), FACTOR)]
        else:
            replicas = draw.sample(range(brokers), FACTOR)
        topic, index = divmod(number, PARTITIONS_PER_TOPIC)
        found.append(partition(topic, index, replicas, size, tuple(draw.choice(paths) for _ in replicas)))
    return ClusterState.of(
        brokers=[
            BrokerState(
                broker,
                f"rack-{broker % racks}" if racks else None,
                directories=tuple(DirectoryState(path, 10**14, 10**14 // 2) for path in paths),
            )
            for broker in range(brokers)
        ],
        topics=[TopicState(f"topic-{topic}") for topic in range(-(-partitions // PARTITIONS_PER_TOPIC))],
        partitions=found,
    )


def partition(topic: int, number: int, replicas: list[int], size: int, paths: tuple[str, ...]) -> PartitionState:
    each = paths if len(paths) == len(replicas) else paths * len(replicas)
    sizes = (size,) * len(replicas)
    return PartitionState(f"topic-{topic}", number, tuple(replicas), replicas[0], tuple(replicas), each, sizes)


FIGURES: Final = {
    "grow": Figure(lambda: grown(30, 33, 10_000, 0), Balance.COUNTS, 0.0, 1.0, 512, moves=2727),
    "racks": Figure(lambda: grown(100, 110, 50_000, 5), Balance.COUNTS, 0.0, 15.0, 2048),
    "bytes": Figure(lambda: uneven(33, 4, 3_000, 0), Balance.BYTES, 0.02, 60.0, 2048),
    "million": Figure(lambda: uneven(1_000, 1, 333_334, 10), Balance.BYTES, 0.05, 300.0, 8192),
}


def generated(state: ClusterState) -> int:
    """Replicas that Kafka's --generate moves: all topics placed anew."""
    brokers = [BrokerRack(broker.id, broker.rack) for broker in state.brokers.values()]
    moves = 0
    for number, topic in enumerate(state.topics):
        of_topic = [each for each in state.partitions.values() if each.topic == topic] if number < 20 else []
        if of_topic:
            placed = assign_replicas(brokers, len(of_topic), FACTOR, random=Drawn(1000 + number))
            moves += sum(len(set(placed[index]) - set(each.replicas)) for index, each in enumerate(of_topic))
    return moves * len(state.topics) // min(20, len(state.topics))


def measure(name: str) -> int:
    """Runs one figure and prints it; 1 where it is missed."""
    figure = FIGURES[name]
    state = figure.state()
    started = time.process_time()
    plan = make_plan(state, Goals(balance=(figure.balance,))).plan
    seconds = time.process_time() - started
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    gap = plan.gap if plan.gap is not None else 1.0
    kept = gap <= figure.gap_max and (figure.moves is None or plan.replica_moves == figure.moves)
    kept = kept and seconds <= figure.seconds_max and mib <= figure.mib_max
    print(
        f"{name:<8} moves {plan.replica_moves:>7,} least {plan.moves_least:>7,}  --generate {generated(state):>9,}  "
        f"{plan.bytes / 1e9:>9,.0f} GB  gap {gap:7.3%}  {seconds:6.1f} s  {mib:,} MiB  "
        f"{'kept' if kept else 'MISSED'}",
        flush=True,
    )
    return 0 if kept else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(FIGURES))
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.only or list(FIGURES)
    if options.here:
        return max(measure(name) for name in names)
    return max(
        subprocess.run([sys.executable, "-m", "bench.plan", "--here", "--only", name], check=False).returncode
        for name in names
    )


if __name__ == "__main__":
    sys.exit(main())
