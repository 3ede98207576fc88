"""Every state that a partition ever had in the metadata store, and whether it could follow from the one before.

Invariant 8: the leader is in the ISR, ISR changes are by compare-and-set, and an ISR has replicas only; 7: an epoch has
one leader, elections come from the ISR, and writes of deposed controllers do nothing; 9: a broker that was away leaves
the ISR before it can be elected; 19: a replica that is marked as damaged is not elected.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from sim.invariants import require
from tidelog.metadata.replica_marks import booted_path, decode_replica_mark, replica_mark_path, unclean_stop_path
from tidelog.metadata.znodes import (
    BROKER_IDS,
    CONTROLLER_EPOCH,
    PartitionState,
    broker_path,
    decode_controller_epoch,
    decode_state,
    decode_topic,
    delete_topic_path,
    topic_path,
)
from tidelog.model.identifiers import NO_LEADER, ZERO_TOPIC_ID, TopicId, TopicPartition

if TYPE_CHECKING:
    from sim.store.history import StoreHistory, Version

_STATE_PATH: Final = re.compile(r"/brokers/topics/([^/]+)/partitions/([0-9]+)/state")
_TOPIC_PATH: Final = re.compile(r"/brokers/topics/([^/]+)")
NOTICED_S: Final = 3.0
"""So long after a registration the checks assume that the controller knows of it."""


class PartitionStates:
    """See the module; observes a `StoreHistory`."""

    def __init__(self, history: StoreHistory, seconds: Callable[[], float]) -> None:
        """`seconds` is the run's time."""
        self._history = history
        self._seconds = seconds
        self._sizes: dict[TopicPartition, list[tuple[float, int]]] = {}
        """[partition] -> (when, how many members its ISR had from then on)"""
        self._registrations: dict[int, float] = {}
        """When each broker registered last."""
        self.on_joined: Callable[[TopicPartition, PartitionState, int, int | None], None] = lambda *_: None
        """Told of each broker that came into an ISR, with the broker epoch under which it is registered; None where it
        is not, or so recently that the controller need not know."""
        self._incarnations: dict[str, dict[int, int]] = {}
        """[state path][broker] -> the broker epoch with which it was last seen in the ISR."""
        self.life: Callable[[int], int] = lambda broker: 0
        """Which life of its machine's process a broker is in: a session can end, and the process go on."""
        self.has_offline_log: Callable[[int, TopicPartition], bool] = lambda broker, partition: False
        """Whether a broker's log of a partition lies in a directory that has failed: it lives, and cannot lead."""
        self.is_stopping: Callable[[int], bool] = lambda broker: False
        """Whether a broker stops in order: it lives, stays in ISRs that wait for a leader, and cannot be elected."""
        self.lost_power_at: Callable[[int], float] = lambda broker: math.inf
        """When a broker's machine lost its power last, in seconds of the run."""
        self._leaderless: dict[TopicPartition, int] = {}
        """[partition without a leader] -> the controller epoch in which it lost its leader."""
        self._registered_s: dict[int, float] = {}
        """[broker epoch] -> when a broker registered with it."""
        self._lives: dict[int, int] = {}
        """[broker epoch] -> the life that registered with it."""
        self.elected_for_a_former_life: dict[TopicPartition, tuple[int, int]] = {}
        """[partition] -> leader and epoch. The election was on its way while the leader died and registered again, and
        others in the ISR stayed: one of them is to be elected before the leader acts upon it."""
        self.observers: list[Callable[[TopicPartition, PartitionState, PartitionState], None]] = []
        """Told of each change: partition, before, after."""
        self.may_be_unclean: set[str] = set()
        """Topics in which a replica outside the ISR may be elected."""
        self.unclean_elections = 0
        self.elections = 0
        self.shrinks = 0
        self.expansions = 0
        history.observers.append(self._changed)

    def state(self, partition: TopicPartition) -> PartitionState | None:
        """What the store says now, durable or not; None where it says nothing."""
        version = self._history.now(f"{topic_path(partition.topic)}/partitions/{partition.partition}/state")
        return None if version.stat is None else decode_state(partition.topic, partition.partition, version.data)

    def replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        """Assigned brokers; none where there is no such topic."""
        version = self._history.now(topic_path(partition.topic))
        if version.stat is None:
            return ()
        return tuple(_decode_topic(partition.topic, version.data).partitions.get(partition.partition, ()))

    def _replicas_before(self, topic: str, partition: int) -> Sequence[int]:
        """Assigned brokers before the transaction that is being told of."""
        versions = self._history.versions(topic_path(topic))
        before = next(version for version in reversed(versions) if version.zxid < self._history.zxid)
        if before.stat is None:
            return ()
        return _decode_topic(topic, before.data).partitions.get(partition, ())

    def topic_id(self, topic: str) -> TopicId:
        """Of the topic of that name that is there now; zeros where there is none."""
        version = self._history.now(topic_path(topic))
        return ZERO_TOPIC_ID if version.stat is None else _decode_topic(topic, version.data).topic_id

    def is_being_deleted(self, topic: str) -> bool:
        """Whether the topic is marked as one that is to go."""
        return self._history.now(delete_topic_path(topic)).stat is not None

    def is_marked(self, broker: int, partition: TopicPartition) -> bool:
        """Whether a replica is marked as one that has lost records of the topic that is there now."""
        mark = self._history.now(replica_mark_path(broker, partition))
        return mark.stat is not None and decode_replica_mark(mark.data).topic_id == self.topic_id(partition.topic)

    def largest_isr(self, partition: TopicPartition, since: float) -> int:
        """Members of the largest ISR that the partition had from `since` until now."""
        largest = 0
        for time, size in reversed(self._sizes.get(partition, [])):
            largest = max(largest, size)
            if time <= since:
                break
        return largest

    def lasting_members(self, partition: TopicPartition) -> list[int]:
        """Members of the ISR that are registered as when they were last seen in it: the controller has no reason to
        take one of them out. One whose session has ended goes, even if it has registered again."""
        path = f"{topic_path(partition.topic)}/partitions/{partition.partition}/state"
        seen = self._incarnations.get(path, {})
        return [broker for broker, epoch in seen.items() if self._registered(broker) == epoch]

    def partitions(self) -> list[TopicPartition]:
        """All that have a state now."""
        found = []
        for path in self._history.paths():
            partition = _partition_of(path)
            if partition is not None and self._history.now(path).stat is not None:
                found.append(partition)
        return found

    def registered_at(self, broker: int) -> float:
        """When a broker registered last, in seconds of the run."""
        return self._registrations.get(broker, 0.0)

    def _registered(self, broker: int) -> int | None:
        """The epoch of a broker that is registered now."""
        stat = self._history.now(broker_path(broker)).stat
        return None if stat is None else stat.czxid

    def _known_registration(self, broker: int) -> int | None:
        """The epoch of a broker that is registered, and long enough for the controller to know."""
        recent = self._seconds() - self.registered_at(broker) < NOTICED_S
        return None if recent else self._registered(broker)

    def _changed(self, path: str, before: Version, after: Version) -> None:
        if path.startswith(f"{BROKER_IDS}/") and after.stat is not None:
            broker = int(path.rpartition("/")[2])
            self._registrations[broker] = self._registered_s[after.stat.czxid] = self._seconds()
            self._lives.setdefault(after.stat.czxid, self.life(broker))
        match = _STATE_PATH.fullmatch(path)
        if match is None:
            named = _TOPIC_PATH.fullmatch(path)
            if named is not None and before.stat is not None and after.stat is not None:
                self._check_moves(named[1], before, after)
            return
        if after.stat is None:
            self._incarnations.pop(path, None)
            self._leaderless.pop(TopicPartition(match[1], int(match[2])), None)
            self.elected_for_a_former_life.pop(TopicPartition(match[1], int(match[2])), None)
            return
        topic, partition = match[1], int(match[2])
        new = decode_state(topic, partition, after.data)
        self._sizes.setdefault(TopicPartition(topic, partition), []).append((self._seconds(), len(new.isr)))
        replicas = self.replicas(TopicPartition(topic, partition))
        where = f"{topic}-{partition}"
        # A replica that is dropped leaves the topic's node first, as with Kafka; here both are one transaction.
        assigned = {*replicas, *self._replicas_before(topic, partition)} if self._history.is_passing else set(replicas)
        require(8, set(new.isr) <= assigned, f"{where}: ISR {new.isr}, replicas {replicas}")
        require(8, len(set(new.isr)) == len(new.isr) > 0, f"{where}: ISR {new.isr}")
        require(8, new.leader in (NO_LEADER, *new.isr), f"{where}: leader {new.leader}, ISR {new.isr}")
        epoch = decode_controller_epoch(self._history.now(CONTROLLER_EPOCH).data)
        require(7, new.controller_epoch <= epoch, f"{where}: written in epoch {new.controller_epoch} of {epoch}")
        if new.leader == NO_LEADER:
            self._leaderless.setdefault(TopicPartition(topic, partition), new.controller_epoch)
        known = self._incarnations.setdefault(path, {})
        if before.stat is not None:
            old = decode_state(topic, partition, before.data)
            require(
                7,
                new.controller_epoch == epoch or new.controller_epoch == old.controller_epoch,
                f"{where}: a controller of epoch {new.controller_epoch} writes, the epoch is {epoch}",
            )
            self._check_change(TopicPartition(topic, partition), old, new, known)
            if new.leader not in (old.leader, NO_LEADER) and len(replicas) > 1:
                self._check_damage(TopicPartition(topic, partition), new)
            for observer in list(self.observers):
                observer(TopicPartition(topic, partition), old, new)
            if (old.leader, old.leader_epoch) == (new.leader, new.leader_epoch):
                for broker in new.isr:
                    if broker not in old.isr:
                        self.on_joined(TopicPartition(topic, partition), new, broker, self._known_registration(broker))
        if new.leader != NO_LEADER:
            self._leaderless.pop(TopicPartition(topic, partition), None)
        self._incarnations[path] = {
            broker: known.get(broker, -1)
            # While none leads, no member that came back has what the partition holds, as far as is known.
            if (registered := self._registered(broker)) is None or (new.leader == NO_LEADER and broker in known)
            else registered
            for broker in new.isr
        }

    def _check_moves(self, topic: str, before: Version, after: Version) -> None:
        """When a move ends, the whole target is in sync."""
        old, new = decode_topic(topic, before.data), decode_topic(topic, after.data)
        for number, replicas in new.partitions.items():
            adding, removing = old.adding.get(number, ()), old.removing.get(number, ())
            target = [broker for broker in old.partitions.get(number, ()) if broker not in removing]
            is_over = (adding or removing) and not new.adding.get(number) and not new.removing.get(number)
            state = self.state(TopicPartition(topic, number))
            if is_over and set(adding) <= set(replicas) and set(replicas) == set(target) and state is not None:
                told = f"{topic}-{number} has moved to {replicas}, of which {state.isr} are in sync"
                require(17, set(replicas) <= set(state.isr), told)

    def _check_change(
        self, partition: TopicPartition, old: PartitionState, new: PartitionState, incarnations: dict[int, int]
    ) -> None:
        change = f"{partition}: {_short(old)} -> {_short(new)}"
        if new.leader_epoch != old.leader_epoch:
            self.elected_for_a_former_life.pop(partition, None)
        require(7, new.leader_epoch >= old.leader_epoch, f"{change}: the epoch went back")
        require(
            7, new.leader == old.leader or new.leader_epoch > old.leader_epoch, f"{change}: two leaders in one epoch"
        )
        self.shrinks += not set(old.isr) <= set(new.isr)
        self.expansions += not set(new.isr) <= set(old.isr)
        if new.leader in (old.leader, NO_LEADER):
            return
        self.elections += 1
        if new.leader not in old.isr:
            require(8, partition.topic in self.may_be_unclean, f"{change}: the new leader was not in the ISR")
            self.unclean_elections += 1
            return
        self._check_leader_was_here(change, partition, old, new, incarnations)

    def _check_leader_was_here(
        self,
        change: str,
        partition: TopicPartition,
        old: PartitionState,
        new: PartitionState,
        incarnations: dict[int, int],
    ) -> None:
        """Invariant 9. Where it was decided before the leader registered again, no broker may go by it."""
        fresh = self._registered(new.leader)
        former = incarnations.get(new.leader, fresh)
        if fresh is None or former is None or former == fresh:
            return
        is_inherited = self._leaderless.get(partition, new.controller_epoch) < new.controller_epoch
        if is_inherited and self.lost_power_at(new.leader) < self._registered_s.get(former, 0.0):
            return  # The controller that knew of its absence is gone, and its log has all that it ever had.
        stayed = [
            broker
            for broker in old.isr
            if broker != new.leader
            and incarnations.get(broker) is not None
            and self._registered(broker) == incarnations[broker]
            # Back from an unclean stop, while its former session has not ended.
            and self._history.now(unclean_stop_path(broker)).stat is None
            # Back before the new leader after a power cut of all, and perhaps with less: it has only waited since.
            and not (old.leader == NO_LEADER and self._is_booted_anew(broker))
            and not self.has_offline_log(broker, partition)
            and not self.is_stopping(broker)
        ]
        term = self._history.now(CONTROLLER_EPOCH).stat
        could_know = term is not None and term.mzxid > fresh
        require(9, not (stayed and could_know), f"{change}: {new.leader} was away, while {stayed} of the ISR stayed")
        if stayed and self._lives.get(former) != self._lives.get(fresh):
            self.elected_for_a_former_life[partition] = new.leader, new.leader_epoch

    def _is_booted_anew(self, broker: int) -> bool:
        return self._history.now(booted_path(broker)).stat is not None

    def _check_damage(self, partition: TopicPartition, new: PartitionState) -> None:
        """Invariant 19, of an election that the controller made knowing of the leader's registration.

        The mark is older than that: a broker writes it first.
        """
        mark = self._history.now(replica_mark_path(new.leader, partition))
        registered = self._registered(new.leader)
        if mark.stat is None or registered is None or partition.topic in self.may_be_unclean:
            return
        if self._is_booted_anew(new.leader):
            return  # After a power cut of all it may have most, and others may have lost records without knowing it.
        term = self._history.now(CONTROLLER_EPOCH).stat
        is_known = term is not None and term.mzxid > registered
        is_known = is_known or self._known_registration(new.leader) is not None
        if is_known and mark.stat.czxid < registered:
            topic_id = decode_replica_mark(mark.data).topic_id
            require(19, topic_id != self.topic_id(partition.topic), f"{partition}: {_short(new)}, marked as damaged")


_decode_topic = lru_cache(maxsize=1024)(decode_topic)
"""Checks ask for a topic's node far more often than it changes."""


@lru_cache(maxsize=16384)
def _partition_of(path: str) -> TopicPartition | None:
    """Whose state a node has; None for any other node."""
    match = _STATE_PATH.fullmatch(path)
    return None if match is None else TopicPartition(match[1], int(match[2]))


def _short(state: PartitionState) -> str:
    isr = ",".join(map(str, state.isr))
    return f"leader {state.leader} epoch {state.leader_epoch} isr {isr}"
