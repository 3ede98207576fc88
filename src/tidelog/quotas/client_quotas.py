"""Which quotas hold for a client, and what it has used of them.

A client is a principal's name and a client id. For each thing that may be limited, the first of these that has a quota
for it holds, and what it limits shares a budget as the last column says (KIP-55):

    user and client id              that user's use of that client id
    user, default client id         each client id of that user by itself
    user                            all of that user together
    default user, client id         each user's use of that client id by itself
    default user, default id        each pair of user and client id by itself
    default user                    each user by itself
    client id                       all users of that client id together
    default client id               each client id by itself
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, TypeVar

from tidelog.quotas.entities import CLIENT_ID, IP, USER, Entity, Name, QuotaKey, Values, canonical_address
from tidelog.quotas.rates import SampledRate, TokenBucket, Window

CLIENTS_KEPT: Final = 10_000
"""Clients whose quotas are kept at hand; beyond it all are looked up anew."""
METER_IDLE_MS_MAX: Final = 60 * 60 * 1000
"""What was not used for so long is forgotten, as Kafka forgets its sensors."""
LOOK_MS: Final = 60 * 1000
"""Between two looks for what was not used."""
METERS_KEPT: Final = 10_000
"""Where there are more, as of a client that names itself otherwise in each request, those go soon that a whole window
knows nothing of: they are as new ones."""
CROWDED_LOOK_MS: Final = 1_000
"""Between two looks then."""


class _Level(Enum):
    """In place of a name."""

    DEFAULT = "default"
    ABSENT = "absent"


_Part: TypeAlias = str | _Level
_Place: TypeAlias = tuple[_Part, _Part]
"""User and client id of an entity."""
_Owner: TypeAlias = tuple[QuotaKey, str | None, str | None]
"""What is limited, and the user and client id whose budget it is; None: all of them."""
M = TypeVar("M", SampledRate, TokenBucket)


class Limit:
    """A quota that holds for a client, and what has been used of it."""

    __slots__ = ("bound", "meter", "owner")

    def __init__(self, bound: float, meter: SampledRate, owner: _Owner) -> None:
        self.bound = bound
        """A second: bytes, or percent of a thread's time."""
        self.meter = meter
        self.owner = owner

    def record(self, value: float, now_ms: int) -> int:
        """Counts `value`; for how many milliseconds the client is to be throttled now, 0: it is not."""
        self.meter.record(value, now_ms)
        return self.meter.throttle_ms(self.bound, now_ms)

    def take_back(self, value: float, now_ms: int) -> None:
        """`value` was counted, and did not come to pass."""
        self.meter.record(-value, now_ms)


class Allowance:
    """A quota of changes to the cluster (KIP-599), and what is left of it."""

    __slots__ = ("bound", "bucket")

    def __init__(self, bound: float, bucket: TokenBucket) -> None:
        self.bound = bound
        """Partitions made and deleted in a second."""
        self.bucket = bucket


class ClientQuota:
    """All that holds for one client; None: not limited."""

    __slots__ = ("consumer", "mutation", "producer", "request", "window")

    def __init__(
        self,
        window: Window,
        producer: Limit | None,
        consumer: Limit | None,
        request: Limit | None,
        mutation: Allowance | None,
    ) -> None:
        self.window = window
        self.producer = producer
        self.consumer = consumer
        self.request = request
        self.mutation = mutation


class Usage(NamedTuple):
    """What has been used of a budget lately, for metrics."""

    key: QuotaKey
    user: str | None
    client_id: str | None
    """None, of either: all of them share the budget."""
    rate: float
    """A second: bytes, or percent of a thread's time."""
    throttle_ms: int
    """For how long a client is to be throttled now; 0: it is not."""


class ClientQuotas:
    """The quotas of a cluster, and how much of them has been used on one broker."""

    def __init__(self, window: Window, mutation_window: Window) -> None:
        """`window` of rates, `mutation_window` of changes to the cluster."""
        self.window = window
        self._mutation_window = mutation_window
        self._entities: dict[Entity, Values] = {}
        self._bounds: dict[QuotaKey, dict[_Place, float]] = {key: {} for key in QuotaKey}
        self._addresses: dict[str, float] = {}
        """[address] -> connections a second"""
        self._address_default: float | None = None
        self._clients: dict[tuple[str, str], ClientQuota | None] = {}
        self._rates: dict[_Owner, SampledRate] = {}
        self._buckets: dict[_Owner, TokenBucket] = {}
        self._looked_ms = 0
        self.limits_clients = False
        """Whether there is any quota of users or client ids. Asked for every request: without one, all else is left
        alone."""
        self.limits_addresses = False
        """Whether there is any quota of addresses."""

    @property
    def entities(self) -> Mapping[Entity, Values]:
        """All quotas."""
        return MappingProxyType(self._entities)

    def set(self, entity: Entity, values: Values) -> None:
        """The quotas of an entity are these from now on; what has been used stays used."""
        if values:
            self._entities[entity] = dict(values)
        else:
            self._entities.pop(entity, None)
        if entity.is_ip:
            self._set_address(entity.names[IP], values.get(QuotaKey.CONNECTION_CREATION_RATE))
            return
        names = entity.names
        place = (_part(names, USER), _part(names, CLIENT_ID))
        for key, bounds in self._bounds.items():
            if key in values:
                bounds[place] = values[key]
            else:
                bounds.pop(place, None)
        self._clients.clear()
        self.limits_clients = any(self._bounds.values())

    def _set_address(self, name: Name, bound: float | None) -> None:
        if name is None:
            self._address_default = bound
        else:
            address = canonical_address(name) or name
            if bound is None:
                self._addresses.pop(address, None)
            else:
                self._addresses[address] = bound
        self.limits_addresses = bool(self._addresses) or self._address_default is not None

    def usage(self, now_ms: int) -> Iterator[Usage]:
        """Of each budget of rates that a client has drawn on lately; a budget of several clients once."""
        told: set[_Owner] = set()
        for quota in list(self._clients.values()):
            for limit in () if quota is None else (quota.producer, quota.consumer, quota.request):
                if limit is not None and limit.owner not in told:
                    told.add(limit.owner)
                    rate, throttle_ms = limit.meter.per_second(now_ms), limit.meter.throttle_ms(limit.bound, now_ms)
                    yield Usage(*limit.owner, rate, throttle_ms)

    # What holds.

    def of(self, user: str, client_id: str, now_ms: int) -> ClientQuota | None:
        """What holds for a client; None: it is not limited."""
        client = (user, client_id)
        try:
            return self._clients[client]
        except KeyError:
            pass
        if len(self._clients) >= CLIENTS_KEPT:
            self._clients.clear()
        self._forget(now_ms)
        quota = self._clients[client] = self._find(user, client_id, now_ms)
        return quota

    def connections_per_s(self, address: str) -> float | None:
        """The quota of new connections from an address; None: not limited."""
        return self._addresses.get(address, self._address_default)

    def _find(self, user: str, client_id: str, now_ms: int) -> ClientQuota | None:
        mutation = self._bound(QuotaKey.CONTROLLER_MUTATION_RATE, user, client_id)
        producer = self._limit(QuotaKey.PRODUCER_BYTE_RATE, user, client_id, now_ms)
        consumer = self._limit(QuotaKey.CONSUMER_BYTE_RATE, user, client_id, now_ms)
        request = self._limit(QuotaKey.REQUEST_PERCENTAGE, user, client_id, now_ms)
        if producer is None and consumer is None and request is None and mutation is None:
            return None
        allowance = None
        if mutation is not None:
            bound, owner = mutation
            bucket = _meter(self._buckets, owner, lambda: TokenBucket(self._mutation_window, now_ms))
            allowance = Allowance(bound, bucket)
        return ClientQuota(self.window, producer, consumer, request, allowance)

    def _limit(self, key: QuotaKey, user: str, client_id: str, now_ms: int) -> Limit | None:
        found = self._bound(key, user, client_id)
        if found is None:
            return None
        bound, owner = found
        return Limit(bound, _meter(self._rates, owner, lambda: SampledRate(self.window, now_ms)), owner)

    def _bound(self, key: QuotaKey, user: str, client_id: str) -> tuple[float, _Owner] | None:
        """The quota that holds for a client, and whose budget it is."""
        bounds = self._bounds[key]
        if not bounds:
            return None
        default, absent = _Level.DEFAULT, _Level.ABSENT
        both, by_user, by_id = (key, user, client_id), (key, user, None), (key, None, client_id)
        order: tuple[tuple[_Place, _Owner], ...] = (
            ((user, client_id), both),
            ((user, default), both),
            ((user, absent), by_user),
            ((default, client_id), both),
            ((default, default), both),
            ((default, absent), by_user),
            ((absent, client_id), by_id),
            ((absent, default), by_id),
        )
        return next(((bounds[place], owner) for place, owner in order if place in bounds), None)

    def _forget(self, now_ms: int) -> None:
        """Forgets what was not used for long, now and then."""
        is_crowded = len(self._rates) + len(self._buckets) > METERS_KEPT
        if now_ms - self._looked_ms < (CROWDED_LOOK_MS if is_crowded else LOOK_MS):
            return
        self._looked_ms = now_ms
        hour_ms = now_ms - METER_IDLE_MS_MAX
        idle_ms = now_ms - self.window.samples * self.window.sample_ms if is_crowded else hour_ms
        rates = {owner: rate for owner, rate in self._rates.items() if rate.last_ms >= idle_ms}
        buckets = {
            owner: bucket
            for owner, bucket in self._buckets.items()
            if bucket.last_ms >= (idle_ms if bucket.is_untouched else hour_ms)
        }
        if len(rates) + len(buckets) < len(self._rates) + len(self._buckets):
            self._rates, self._buckets = rates, buckets
            # They refer to what was forgotten.
            self._clients.clear()


def _part(names: Mapping[str, Name], kind: str) -> _Part:
    if kind not in names:
        return _Level.ABSENT
    name = names[kind]
    return _Level.DEFAULT if name is None else name


def _meter(known: dict[_Owner, M], owner: _Owner, make: Callable[[], M]) -> M:
    meter = known.get(owner)
    if meter is None:
        meter = known[owner] = make()
    return meter
