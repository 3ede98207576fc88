"""Where replicas are while a plan is made: brokers by their place in the list, partitions likewise."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tidelog.placement.plan.goals import Balance, Goals, closed_because, may_hold
from tidelog.placement.plan.plan import Move
from tidelog.placement.plan.state import BrokerState, ClusterState, PartitionState


@dataclass(slots=True)
class Layout:
    """What the stages of the planner change, one after the other. Indexes are places in `brokers` and `partitions`."""

    state: ClusterState
    goals: Goals
    brokers: list[BrokerState]
    partitions: list[PartitionState]
    """Those that may be moved, by number and then topic, so that each topic gives and gets its share.

    What others move is left alone, and so is, in a plan that only drains, fills or changes factors, what breaks the
    rules of racks already."""
    needs: list[int]
    """Replicas that each of them is to have."""
    replicas: list[list[int]]
    """[partition] -> indexes of brokers, the preferred leader first."""
    directories: list[list[str | None]]
    """With `replicas`; None: the broker chooses."""
    staying: list[int]
    """[broker] -> replicas of partitions that are not moved and count nevertheless."""
    closed: list[str | None]
    """[broker] -> why it gets no new replica."""
    holds: list[bool]
    """[broker] -> whether replicas may stay there."""
    racks: list[int] | None
    """[broker] -> rack; None where racks count for nothing."""
    rack_count: int
    index: dict[int, int] = field(default_factory=dict)
    """[broker id] -> index."""
    pins: dict[int, int] = field(default_factory=dict)
    """[partition] -> the broker that has to have a replica of it, whatever else is moved (`order`)."""

    @classmethod
    def of(cls, state: ClusterState, goals: Goals) -> Layout:
        """The layout of a state, before anything is moved."""
        brokers = list(state.brokers.values())
        index = {broker.id: place for place, broker in enumerate(brokers)}
        holds = [may_hold(broker, goals) for broker in brokers]
        racks, rack_count = _racks(brokers, holds, goals)
        repairs = racks is not None and any(each is not Balance.LEADERS for each in goals.balance)
        moving: list[PartitionState] = []
        staying = [0] * len(brokers)
        under_way = state.under_way
        for each in state.partitions.values():
            places = [index[broker_id] for broker_id in each.replicas]
            if not goals.in_scope(each.topic) or each.key in under_way:
                may_move = False
            elif repairs or racks is None or each.topic in goals.factors or not goals.drain.isdisjoint(each.replicas):
                may_move = True
            else:
                may_move = len({racks[place] for place in places}) == min(len(places), rack_count)
            if may_move:
                moving.append(each)
            elif goals.topics is None:
                for place in places:
                    staying[place] += 1
        moving.sort(key=lambda each: (each.partition, each.topic))
        return cls(
            state=state,
            goals=goals,
            brokers=brokers,
            partitions=moving,
            needs=[goals.factors.get(each.topic, len(each.replicas)) for each in moving],
            replicas=[[index[broker_id] for broker_id in each.replicas] for each in moving],
            directories=[list(each.directories or (None,) * len(each.replicas)) for each in moving],
            staying=staying,
            closed=[closed_because(broker, goals) for broker in brokers],
            holds=holds,
            racks=racks,
            rack_count=rack_count,
            index=index,
        )

    def is_drained(self, broker: int) -> bool:
        """Whether a broker, by its index, loses all replicas. One that is offline, and no more, keeps them."""
        return self.brokers[broker].id in self.goals.drain

    def former(self, item: int) -> list[int]:
        """The brokers that a partition is on before the plan."""
        return [self.index[broker_id] for broker_id in self.partitions[item].replicas]

    def settle(self, item: int, brokers: Collection[int]) -> None:
        """Gives a partition its brokers: those that stay keep their order, new ones take the others' places."""
        current, directories = self.replicas[item], self.directories[item]
        added = sorted(set(brokers) - set(current))
        replicas: list[int] = []
        places: list[str | None] = []
        for broker, directory in zip(current, directories, strict=True):
            if broker in brokers:
                replicas.append(broker)
                places.append(directory)
            elif added:
                replicas.append(added.pop(0))
                places.append(None)
        replicas += added
        places += [None] * len(added)
        self.replicas[item], self.directories[item] = replicas, places

    def lead(self, item: int, broker: int) -> bool:
        """Puts a broker first among a partition's replicas, in exchange with the one that was; whether it was not."""
        replicas, directories = self.replicas[item], self.directories[item]
        place = replicas.index(broker)
        replicas[0], replicas[place] = replicas[place], replicas[0]
        directories[0], directories[place] = directories[place], directories[0]
        return place > 0

    def spreads(self, broker_ids: Sequence[int]) -> bool:
        """Whether a partition on these brokers uses no rack twice while another one is unused."""
        if self.racks is None:
            return True
        used = {self.racks[self.index[broker_id]] for broker_id in broker_ids}
        return len(used) >= min(len(broker_ids), self.rack_count)

    def moves(self) -> list[Move]:
        """What has changed, as moves of a plan."""
        found = []
        for partition, replicas, directories in zip(self.partitions, self.replicas, self.directories, strict=True):
            former = partition.directories or (None,) * len(partition.replicas)
            after = tuple(self.brokers[broker].id for broker in replicas)
            if after == partition.replicas and tuple(directories) == former:
                continue
            found.append(
                Move(
                    partition.topic,
                    partition.partition,
                    partition.replicas,
                    after,
                    former,
                    tuple(directories),
                    partition.size,
                    topic_id=self.state.topics[partition.topic].id,
                )
            )
        found.sort(key=lambda move: (move.topic, move.partition))
        return found


def _racks(brokers: Sequence[BrokerState], holds: Sequence[bool], goals: Goals) -> tuple[list[int] | None, int]:
    """[broker] -> rack, and the number of racks of those that may hold replicas."""
    names = sorted({broker.rack for broker, may in zip(brokers, holds, strict=True) if may and broker.rack is not None})
    if not goals.rack_aware or not names:
        return None, 0
    numbers = {name: number for number, name in enumerate(names)}
    # A broker that is gone tells no rack: it is taken to have one of its own.
    return [
        numbers.get(broker.rack, len(names) + place) if broker.rack is not None else len(names) + place
        for place, broker in enumerate(brokers)
    ], len(names)
