"""What an operator wants of a cluster, and why that cannot be had."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelog.placement.plan.state import BrokerState, ClusterState

NOT_TO_BE_FILLED: Final = "not to be filled"
"""Why a broker gets nothing while others are filled; it gets what has no place on those."""
TOLERANCE: Final = 0.05
"""How far bytes and traffic may be from even, of the average."""


class Balance(enum.StrEnum):
    """What can be made even, as options spell it."""

    COUNTS = "counts"
    """Replicas of brokers, to within one."""
    LEADERS = "leaders"
    """Preferred leaders of brokers, by the order of replicas alone: nothing is copied."""
    BYTES = "bytes"
    """Bytes of brokers and of the directories inside each broker at once, within a tolerance."""
    TRAFFIC = "traffic"
    """Bytes that brokers write in a second, within a tolerance."""
    ORDER = "order"
    """Preferred leaders of a topic: the brokers in turn, as at its creation, so that an expansion goes on with it."""
    RACKS = "racks"
    """Nothing is made even, but no two replicas of a partition share a rack while another one is unused."""


class PlanRefused(Exception):
    """The goals cannot be reached: each reason names the rules that contradict each other."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = tuple(reasons)


@dataclass(frozen=True, slots=True)
class Goals:
    """What to plan for. The goals of `balance` count in their order: a later one is reached as far as earlier ones let.

    Brokers to drain lose all replicas; those to fill get replicas up to the average, and no other broker gains, but for
    replicas of drained brokers that may not lie on those to fill.
    """

    balance: tuple[Balance, ...] = ()
    drain: frozenset[int] = frozenset()
    fill: frozenset[int] = frozenset()
    exclude: frozenset[int] = frozenset()
    """Brokers that get no new replica."""
    factors: Mapping[str, int] = field(default_factory=dict)
    """[topic] -> the replication factor that it is to have."""
    topics: frozenset[str] | None = None
    """Only these are moved, and made even by themselves; None: all."""
    leave: frozenset[str] = frozenset()
    """Topics that are left alone."""
    moves_max: int | None = None
    bytes_max: int | None = None
    seconds_max: float | None = None
    """At the throttle of the plan."""
    disks_max: int | None = None
    """With `BYTES`: only so many disks are relieved, those that are furthest above what they should hold."""
    tolerance: float = TOLERANCE
    rack_aware: bool = True

    def words(self) -> tuple[str, ...]:
        """The goals as the command line has them."""
        return (
            *(f"drain {broker}" for broker in sorted(self.drain)),
            *(f"fill {broker}" for broker in sorted(self.fill)),
            *(f"factor {factor} of {topic}" for topic, factor in sorted(self.factors.items())),
            *self.balance,
        )

    @property
    def is_limited(self) -> bool:
        """Whether only a part of what reaches the goals is wanted."""
        return not (self.moves_max is None and self.bytes_max is None and self.seconds_max is None)

    def comes_first(self, one: Balance, *others: Balance) -> bool:
        """Whether `one` is asked for, and none of `others` before it."""
        asked = [each for each in self.balance if each is one or each in others]
        return bool(asked) and asked[0] is one

    def in_scope(self, topic: str) -> bool:
        """Whether replicas of a topic may be moved."""
        return topic not in self.leave and (self.topics is None or topic in self.topics)


def may_hold(broker: BrokerState, goals: Goals) -> bool:
    """Whether replicas may stay on a broker."""
    return broker.online and broker.id not in goals.drain


def closed_because(broker: BrokerState, goals: Goals) -> str | None:
    """Why a broker gets no new replica; None: it may get some."""
    if broker.id in goals.drain:
        return "drained"
    if not broker.online:
        return "offline"
    if broker.id in goals.exclude:
        return "excluded"
    if broker.cordoned:
        return "cordoned"
    if broker.directories and all(each.cordoned or each.error for each in broker.directories):
        return "without a directory that takes replicas"
    if goals.fill and broker.id not in goals.fill and not goals.balance:
        return NOT_TO_BE_FILLED
    return None


def check_goals(state: ClusterState, goals: Goals) -> None:
    """PlanRefused for goals that name what is not there, or cannot be reached whatever is moved."""
    reasons = [
        f"{option} {broker}: there is no broker {broker}; there are {', '.join(map(str, state.brokers))}"
        for option, brokers in (("--drain", goals.drain), ("--fill", goals.fill), ("--exclude", goals.exclude))
        for broker in sorted(brokers)
        if broker not in state.brokers
    ]
    named = [("--topic", topic) for topic in sorted(goals.topics or ())]
    named += [("--topic", topic) for topic in sorted(goals.factors) if topic not in (goals.topics or ())]
    named += [("--leave", topic) for topic in sorted(goals.leave)]
    reasons += [f"{option} {topic}: there is no such topic" for option, topic in named if topic not in state.topics]
    reasons += [f"--drain {broker} contradicts --fill {broker}" for broker in sorted(goals.drain & goals.fill)]
    reasons += [f"--fill {broker} contradicts --exclude {broker}" for broker in sorted(goals.fill & goals.exclude)]
    reasons += [
        f"--topic {topic} contradicts --leave {topic}" for topic in sorted(goals.leave & (goals.topics or set()))
    ]
    if reasons:
        raise PlanRefused(reasons)
    live = [broker for broker in state.brokers.values() if may_hold(broker, goals)]
    if not live:
        reasons.append("no broker is left that may hold replicas: all are drained or offline")
    for broker_id in sorted(goals.fill):
        because = closed_because(state.brokers[broker_id], goals)
        if because is not None:
            reasons.append(f"--fill {broker_id}: broker {broker_id} is {because}")
    for topic, factor in sorted(goals.factors.items()):
        if factor < 1:
            reasons.append("Replication factor must be larger than 0.")
        elif factor > len(live):
            reasons.append(f"Replication factor: {factor} larger than available brokers: {len(live)}. (topic {topic})")
    if goals.rack_aware:
        without = [broker.id for broker in live if broker.rack is None]
        if without and len(without) < len(live):
            reasons.append(
                "Not all brokers have rack information for replica rack aware assignment: brokers "
                f"{', '.join(map(str, without))} have none. Set broker.rack, or plan with --disable-rack-aware."
            )
    if goals.disks_max is not None and Balance.BYTES not in goals.balance:
        reasons.append("--max-disks goes with --balance bytes")
    if Balance.BYTES in goals.balance and not any(each.size is not None for each in state.partitions.values()):
        reasons.append("--balance bytes: no broker told the bytes of its replicas (DescribeLogDirs)")
    if Balance.TRAFFIC in goals.balance and not any(
        each.bytes_in_per_s is not None for each in state.partitions.values()
    ):
        reasons.append("--balance traffic: the state has no traffic; take it with --traffic SECONDS")
    if reasons:
        raise PlanRefused(reasons)
