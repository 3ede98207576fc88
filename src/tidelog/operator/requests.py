"""What a run asks of the cluster, and how long it bears that the cluster is away or refuses. Operations, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from tidelog.client import admin
from tidelog.client.admin import ElectionType
from tidelog.client.errors import ClientError, InvalidResponse, UnsupportedByBroker
from tidelog.client.operations import Operation, Pause
from tidelog.client.routing import Routing
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.operator.reading import read_placement, read_state
from tidelog.operator.surroundings import Surroundings
from tidelog.placement.plan.plan import Move
from tidelog.placement.plan.state import ClusterState

T = TypeVar("T")

MOVES_PER_REQUEST: Final = 500
"""A controller answers a request when all of its moves have begun: more of them could take longer than it may."""
PASSING: Final = frozenset({ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR})
"""Errors that pass, beside those that Kafka calls retriable: a broker that restarts, a controller that moves."""


class Requests:
    """One run's requests. `refused`: [partition] -> why the cluster refused what was asked for it last."""

    def __init__(self, routing: Routing, around: Surroundings, patience_s: float) -> None:
        self._routing = routing
        self._around = around
        self.patience_s = patience_s
        self.refused: dict[TopicPartition, str] = {}

    def state(self) -> Operation[ClusterState]:
        """The state; the cluster may be away for a while."""
        return (
            yield from self.patiently(
                lambda: read_state(self._routing, taken_at_ms=self._around.wall_ms()), "reading the cluster's state"
            )
        )

    def placement(self) -> Operation[ClusterState]:
        """The state without settings; the cluster may be away for a while."""
        return (yield from self.patiently(lambda: read_placement(self._routing), "looking at the cluster"))

    def alter(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> Operation[None]:
        """Begins and cancels; what is refused for good is remembered with its reason."""
        keys = list(targets)
        for begin in range(0, len(keys), MOVES_PER_REQUEST):
            portion = {key: targets[key] for key in keys[begin : begin + MOVES_PER_REQUEST]}
            outcomes = yield from self.patiently(
                lambda portion=portion: admin.alter_reassignments(self._routing, portion),  # type: ignore[misc]
                "asking for moves",
            )
            for key, error in outcomes.items():
                if error is None or error.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
                    self.refused.pop(key, None)
                else:
                    self.refused[key] = error.message or error.code.name

    def place(self, broker: int, directories: Mapping[TopicPartition, str]) -> Operation[None]:
        """Asks a broker for directories. One that is not live is asked again later."""
        try:
            outcomes = yield from admin.alter_replica_log_dirs(self._routing, broker, directories)
        except UnsupportedByBroker:
            raise
        except (KafkaError, ClientError) as error:
            self._around.say(f"broker {broker} did not take its moves between directories: {error}")
            return
        for key, refusal in outcomes.items():
            if refusal is not None and refusal.code is not ErrorCode.REPLICA_NOT_AVAILABLE:
                self.refused[key] = f"broker {broker} refuses log directory {directories[key]}: {refusal.code.name}"

    def elect(self, moves: Iterable[Move], state: ClusterState) -> Operation[None]:
        """Has the first replica lead where the plan has put another one first. Refusals are told and left to Kafka."""
        wanted = []
        for move in moves:
            partition = state.partitions.get(move.key)
            first = move.replicas_to[0]
            if partition is None or move.replicas_from[0] == first or partition.leader == first:
                continue
            if first in partition.isr:
                wanted.append(move.key)
        if not wanted:
            return
        try:
            yield from admin.elect_leaders(self._routing, ElectionType.PREFERRED, wanted)
        except (KafkaError, ClientError) as error:
            self._around.say(f"the first replicas were not made leaders: {error}")

    def patiently(self, make: Callable[[], Operation[T]], what: str) -> Operation[T]:
        """Carries out an operation; while errors pass, again, for `patience_s`."""
        deadline = self._routing.now() + self.patience_s
        attempt = 0
        while True:
            try:
                return (yield from make())
            except (UnsupportedByBroker, InvalidResponse):
                raise
            except KafkaError as error:
                if not (error.code.retriable or error.code in PASSING):
                    raise
                failure: Exception = error
            except ClientError as lost:
                failure = lost
            if self._routing.now() >= deadline:
                raise failure
            attempt += 1
            if attempt == 1:
                self._around.say(f"{what}: {failure}; trying again")
            yield Pause(min(0.2 * 2 ** min(attempt, 10), 5.0))
