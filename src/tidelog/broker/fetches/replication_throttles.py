"""Throttles of replication on this broker, kept in step with the settings of topics and brokers (KIP-73).

`replica_fetch` asks about the leader's side, `leader_fetcher` about the follower's. Fetches that the leader's throttle
delays wait in `ThrottledFetches`. When the rate allows more, the follower that got records longest ago is served first,
so that several followers that are behind share the rate.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, cast

from tidelog.config import registry
from tidelog.config.setting import InvalidValue
from tidelog.replication.replication_quota import UNLIMITED, ReplicationQuota, throttled_partitions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.broker.shell import Shell, Timer
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.model.identifiers import BrokerId
    from tidelog.ports.clock import Clock

logger: Final = logging.getLogger(__name__)

_LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
_FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
_LEADER_RATE: Final = "leader.replication.throttled.rate"
_FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
_MOVES_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"


class ReplicationThrottles:
    """Both sides' quotas, and that of moves between log directories."""

    def __init__(self, broker_id: BrokerId, config: BrokerConfig, *, clock: Clock, shell: Shell) -> None:
        self._broker_id = broker_id
        samples = cast(int, config.get("replication.quota.window.num"))
        sample_ms = 1000 * cast(int, config.get("replication.quota.window.size.seconds"))
        self.leader = ReplicationQuota(samples, sample_ms)
        """Of what this broker sends to followers."""
        self.follower = ReplicationQuota(samples, sample_ms)
        """Of what this broker fetches from leaders."""
        self.moves = ReplicationQuota(
            cast(int, config.get("alter.log.dirs.replication.quota.window.num")),
            1000 * cast(int, config.get("alter.log.dirs.replication.quota.window.size.seconds")),
        )
        """Of what is copied between this broker's log directories; it is for all of them."""
        self.waiting_fetches = ThrottledFetches(self.leader, clock, shell)
        """Fetches of followers that wait for the leader's throttle."""
        self.broker_changed(config)

    def topic_changed(self, topic: str, settings: Mapping[str, str]) -> bool:
        """A topic's own settings are `settings` now; whether that throttles other partitions than before.

        What is invalid there (written past AlterConfigs into the store, which is logged) counts as not set.
        """
        changed = False
        for name, quota in ((_LEADER_REPLICAS, self.leader), (_FOLLOWER_REPLICAS, self.follower)):
            partitions: frozenset[int] | None = frozenset()
            if name in settings:
                with suppress(InvalidValue):
                    replicas = cast("tuple[str, ...]", registry.TOPIC[name].parse(settings[name]))
                    partitions = throttled_partitions(replicas, self._broker_id)
            if quota.throttle(topic, partitions):
                shown = "all" if partitions is None else sorted(partitions)
                logger.info("throttled: topic=%s partitions=%s setting=%s", topic, shown, name)
                changed = True
        return changed

    def broker_changed(self, config: BrokerConfig) -> bool:
        """The broker's settings were replaced; whether the rates are others than before."""
        changed = False
        for name, quota in (
            (_LEADER_RATE, self.leader),
            (_FOLLOWER_RATE, self.follower),
            (_MOVES_RATE, self.moves),
        ):
            bytes_per_second = cast(int, config.get(name))
            if bytes_per_second != quota.bytes_per_second:
                quota.bytes_per_second = bytes_per_second
                rate = "unlimited" if bytes_per_second == UNLIMITED else bytes_per_second
                logger.info("throttle: %s=%s", name, rate)
                changed = True
        return changed


class ThrottledFetch(Protocol):
    """A fetch with records that the throttle keeps from its follower."""

    @property
    def turn_ms(self) -> int:
        """When the follower's session last got records of a throttled partition; monotonic."""
        ...

    def throttle_allows(self) -> None:
        """The rate allows more, unless another fetch has had it meanwhile."""
        ...


class ThrottledFetches:
    """Fetches that wait until a quota is not exceeded any more."""

    def __init__(self, quota: ReplicationQuota, clock: Clock, shell: Shell) -> None:
        self._quota = quota
        self._clock = clock
        self._shell = shell
        self._fetches: dict[ThrottledFetch, None] = {}
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._fetches)

    def add(self, fetch: ThrottledFetch) -> None:
        """Tells `fetch` when the rate allows more, once. Idempotent."""
        self._fetches[fetch] = None
        if self._timer is None:
            delay_ms = self._quota.delay_ms(self._clock.monotonic_ms())
            self._timer = self._shell.after(max(1, delay_ms), self.release)

    def remove(self, fetch: ThrottledFetch) -> None:
        """It has been answered. Idempotent."""
        self._fetches.pop(fetch, None)
        if not self._fetches and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def release(self) -> None:
        """The rate may allow more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        fetches, self._fetches = self._fetches, {}
        for fetch in sorted(fetches, key=_turn):
            fetch.throttle_allows()


def _turn(fetch: ThrottledFetch) -> int:
    return fetch.turn_ms
