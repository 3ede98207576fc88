"""How long it takes to give partitions to members: the leader of a large group is held up so long by each rebalance.

    python -m bench.assignors [--members N] [--partitions N]

All members want the same topics of a hundred partitions each, in racks and without. Timed are the first assignment,
that again (nothing may move), and the one after a tenth of the members left. With --unequal each member leaves one
topic out, which takes the general way.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Mapping
from typing import Final

from tidelog.assignors import BROKERS, CONSUMERS
from tidelog.assignors.assignor import Assignment, Assignor, MemberId, Subscription, TopicLayout
from tidelog.assignors.ownership import encode

RACKS: Final = ("a", "b", "c")
TOPIC_SIZE: Final = 100

Members = dict[MemberId, Subscription]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--unequal", action="store_true", help="subscriptions that differ")
    options = parser.parse_args()
    print(f"{options.members} members, {options.partitions} partitions; seconds, and partitions moved")
    print(f"{'assignor':<22}{'racks':<7}{'first':>8}{'again':>8}{'moved':>7}{'a tenth left':>14}{'moved':>7}")
    for side, assignors in (("", CONSUMERS), ("broker's ", BROKERS)):
        for name, assignor in assignors.items():
            for in_racks in (False, True):
                members, topics = group(options.members, options.partitions, in_racks, options.unequal)
                first, outcome = timed(assignor, members, topics)
                members = after(members, outcome)
                again, second = timed(assignor, members, topics)
                moved = moves(outcome, second)
                members = {member: each for index, (member, each) in enumerate(members.items()) if index % 10}
                left, third = timed(assignor, members, topics)
                print(
                    f"{side + name:<22}{'three' if in_racks else 'none':<7}{first:>8.3f}{again:>8.3f}{moved:>7}"
                    f"{left:>14.3f}{moves({member: second[member] for member in members}, third):>7}",
                    flush=True,
                )


def group(count: int, partitions: int, in_racks: bool, unequal: bool) -> tuple[Members, dict[str, TopicLayout]]:
    racks = tuple(frozenset({RACKS[p % 3], RACKS[(p + 1) % 3]}) for p in range(TOPIC_SIZE)) if in_racks else None
    topics = {f"topic-{index}": TopicLayout(TOPIC_SIZE, racks) for index in range(partitions // TOPIC_SIZE)}
    names = list(topics)
    members = {
        MemberId(f"consumer-{index:04}"): Subscription(
            frozenset(names) - ({names[index % len(names)]} if unequal else set()),
            rack=RACKS[index % 3] if in_racks else None,
        )
        for index in range(count)
    }
    return members, topics


def timed(
    assignor: Assignor, members: Members, topics: Mapping[str, TopicLayout]
) -> tuple[float, Mapping[MemberId, Assignment]]:
    started = time.perf_counter()
    outcome = assignor.assign(members, topics)
    return time.perf_counter() - started, outcome


def after(members: Members, outcome: Mapping[MemberId, Assignment]) -> Members:
    """The members as they join again, with what they were given."""
    return {
        member: dataclasses.replace(subscription, owned=given, generation=1, user_data=encode(given, 1))
        for member, subscription in members.items()
        for given in (outcome[member].partitions,)
    }


def moves(before: Mapping[MemberId, Assignment], now: Mapping[MemberId, Assignment]) -> int:
    """How many partitions a member had and has no more."""
    return sum(len(set(given.partitions) - set(now[member].partitions)) for member, given in before.items())


if __name__ == "__main__":
    main()
