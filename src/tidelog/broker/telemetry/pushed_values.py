"""The values that clients have pushed, for `/metrics`: bounded, and forgotten when a client is silent.

A gauge holds until its client's next push, a counter adds up what the client has counted. A client that turns to
another broker leaves its counters behind: the sum over brokers is right, and `rate()` of it, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tidelog.broker.telemetry.otlp import VALUE_LENGTH_MAX, Kind, Pushed, Sample
from tidelog.metrics.page import pairs_text

CLIENT_SHARE: Final = 4
"""One client may have this fraction of the series: one that counts everything hides no other."""
CLIENTS_MAX: Final = 16_384
"""Clients, those without series among them: as many as the broker remembers instances of. Beyond, the one that has
pushed nothing for longest is forgotten."""
FAMILIES_MAX: Final = 2_000
"""Names of metrics. Java's clients have some 300 in all, librdkafka's 25."""

OF_SERIES: Final = ("client_id", "client_instance_id")
"""Labels of each of a client's series."""

Key = tuple[str, tuple[tuple[str, str], ...]]
"""Family and labels."""


class PushedOfClient:
    """What one client instance has pushed to this broker."""

    __slots__ = ("_facts", "counters", "expires_ms", "gauges", "info", "labels")

    def __init__(self, facts: Mapping[str, str | None]) -> None:
        """`facts`: what the broker knows of the client, by the names that subscriptions match."""
        # A client id may have 32 KiB, and stands on each series.
        self._facts = {name: value[:VALUE_LENGTH_MAX] for name, value in facts.items() if value is not None}
        self.labels = pairs_text(**{name: self._facts.get(name, "") for name in OF_SERIES})
        """Of each of its series, as `pairs_text` gives them."""
        self.info = ""
        """All that is known of it, in the same form."""
        self.gauges: dict[Key, float] = {}
        self.counters: dict[Key, float] = {}
        self.expires_ms = 0
        """Monotonic."""

    def describe(self, resource: Mapping[str, str]) -> None:
        """The client says this of itself, escaped; what the broker knows is not for the client to say."""
        extra = [f'{name}="{value}"' for name, value in resource.items() if name not in self._facts]
        self.info = ",".join((pairs_text(**self._facts), *extra))

    def __len__(self) -> int:
        return len(self.gauges) + len(self.counters)


class PushedValues:
    """Of all clients."""

    def __init__(self) -> None:
        self.kinds: dict[str, Kind] = {}
        """[family] -> kind, as the first client has pushed it, while any client has it."""
        self.clients: dict[bytes, PushedOfClient] = {}
        """By client instance id, the one that has pushed last at the end."""
        self.series = 0
        self.left_out = 0
        """Data points that were not kept."""

    def take(
        self,
        client_instance_id: bytes,
        facts: Mapping[str, str | None],
        pushed: Pushed,
        *,
        series_max: int,
        expires_ms: int,
    ) -> None:
        """Keeps a push's values until `expires_ms`, as far as there is room in `series_max` for all clients.

        `facts`: what the broker knows of the client, by the names that subscriptions match.
        """
        client = self.clients.pop(client_instance_id, None)
        if client is None:
            client = PushedOfClient(facts)
            if len(self.clients) >= CLIENTS_MAX:
                self.series -= len(self.clients.pop(next(iter(self.clients))))
        self.clients[client_instance_id] = client
        client.expires_ms = expires_ms
        client.describe(pushed.resource)
        self.left_out += pushed.left_out
        self.series -= len(client.gauges)
        client.gauges = {}
        for sample in pushed.samples:
            if not self._keep(client, sample, series_max):
                self.left_out += 1

    def _keep(self, client: PushedOfClient, sample: Sample, series_max: int) -> bool:
        labels = sample.labels
        if any(name in OF_SERIES for name, _ in labels):
            labels = tuple(pair for pair in labels if pair[0] not in OF_SERIES)
        key = (sample.family, labels)
        values = client.counters if sample.kind == "counter" or sample.is_delta else client.gauges
        if key not in values:
            if self.series >= series_max or len(client) * CLIENT_SHARE >= series_max:
                return False
            if self.kinds.get(sample.family) != sample.kind:
                if sample.family in self.kinds or len(self.kinds) >= FAMILIES_MAX:
                    return False
                self.kinds[sample.family] = sample.kind
            self.series += 1
            values[key] = sample.value
        elif sample.is_delta:
            values[key] += sample.value
        else:
            values[key] = sample.value
        return True

    def expire(self, now_ms: int) -> None:
        """Forgets clients that were silent for too long."""
        gone = [id for id, client in self.clients.items() if client.expires_ms <= now_ms]
        for client_instance_id in gone:
            self.series -= len(self.clients.pop(client_instance_id))
        if gone:
            families = {family for client in self.clients.values() for family, _ in (*client.gauges, *client.counters)}
            self.kinds = {family: kind for family, kind in self.kinds.items() if family in families}

    def samples(self, client: PushedOfClient) -> Iterator[tuple[str, str, float]]:
        """Family, labels with braces, value; of one client."""
        for values in (client.gauges, client.counters):
            for (family, labels), value in values.items():
                pairs = "".join(f',{name}="{text}"' for name, text in labels)
                yield family, f"{{{client.labels}{pairs}}}", value
