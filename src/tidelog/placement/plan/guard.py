"""What a later goal must not undo: loads of brokers that an earlier stage brought into their bands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.placement.plan.disks import Band


class BrokerGuard:
    """Loads of brokers in another measure than the one that is being evened out."""

    def __init__(self, loads: Sequence[float], bands: Sequence[Band], weights: Sequence[int]) -> None:
        self._loads = list(loads)
        self._bands = bands
        self._weights = weights

    def copy(self) -> BrokerGuard:
        """Another one with the loads of now."""
        return BrokerGuard(self._loads, self._bands, self._weights)

    def allows(self, items: Mapping[int, tuple[int, int]]) -> bool:
        """Whether replicas may go, [item] -> (broker it leaves, broker it enters): no broker gets further outside."""
        changes: dict[int, int] = {}
        for item, (leaving, entering) in items.items():
            changes[leaving] = changes.get(leaving, 0) - self._weights[item]
            changes[entering] = changes.get(entering, 0) + self._weights[item]
        return all(
            self._outside(broker, self._loads[broker] + change) <= self._outside(broker, self._loads[broker])
            for broker, change in changes.items()
        )

    def _outside(self, broker: int, load: float) -> float:
        band = self._bands[broker]
        return max(0.0, load - band.high, band.low - load)

    def move(self, item: int, leaving: int, entering: int) -> None:
        """A replica has gone."""
        self._loads[leaving] -= self._weights[item]
        self._loads[entering] += self._weights[item]
