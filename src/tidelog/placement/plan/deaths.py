"""What if a broker dies while a plan runs: partitions without a leader, and without enough in sync. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidelog.model.identifiers import TopicPartition
from tidelog.placement.plan.copies import Work
from tidelog.placement.plan.state import ClusterState


class Deaths:
    """[broker] -> what its death would do, kept while partitions move.

    Before a wave partitions are where the waves before have brought them; in it, in sync is what was before.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._offline = dict.fromkeys(state.brokers, 0)
        self._below = dict.fromkeys(state.brokers, 0)
        self._isr: dict[TopicPartition, tuple[int, ...]] = {}
        for key, partition in state.partitions.items():
            self._isr[key] = partition.isr
            self._count(key, 1)

    def _count(self, key: TopicPartition, sign: int) -> None:
        """Adds or takes away what a partition says about the brokers that are in sync."""
        isr = self._isr[key]
        if len(isr) == 1:
            self._offline[isr[0]] += sign
        if len(isr) - 1 < (self._state.topics[key.topic].min_insync_replicas or 1):
            for broker in isr:
                self._below[broker] += sign

    def in_waves(self, waves: Sequence[Sequence[Work]]) -> list[dict[str, Any]]:
        """The worst wave for each live broker to die in, as a JSON object; wave null: it is as bad before the plan."""
        worst = {broker: self._seen(broker, None, 0) for broker, each in self._state.brokers.items() if each.online}
        for number, wave in enumerate(waves):
            stalled: dict[int, int] = {}
            for work in wave:
                for target in {copy.target for copy in work.copies}:
                    stalled[target] = stalled.get(target, 0) + 1
            for broker, before in worst.items():
                found = self._seen(broker, number, stalled.get(broker, 0))
                if _severity(found) > _severity(before):
                    worst[broker] = found
            for work in wave:
                self._count(work.move.key, -1)
                self._isr[work.move.key] = work.move.replicas_to
                self._count(work.move.key, 1)
        return list(worst.values())

    def _seen(self, broker: int, wave: int | None, stalled: int) -> dict[str, Any]:
        return {
            "broker": broker,
            "wave": wave,
            "offline": self._offline[broker],
            "below_min_isr": self._below[broker],
            "moves_stalled": stalled,
        }


def _severity(found: dict[str, Any]) -> tuple[int, int, int]:
    return found["offline"], found["below_min_isr"], found["moves_stalled"]
