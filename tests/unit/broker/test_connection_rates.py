"""How fast new connections are taken, as long storms of them see it."""

from __future__ import annotations

from tidelog.broker.client_quotas import client_quotas
from tidelog.broker.connections.connection_rates import FREE, ConnectionRates
from tidelog.config.broker_config import BrokerConfig
from tidelog.quotas.entities import IP, Entity, QuotaKey

RATE = 2
PATIENCE_MS = 30_000
"""request.timeout.ms: a client whose first request is not answered by then connects anew."""
BACKOFF_MS = 1_000


def rates_of(**settings: object) -> ConnectionRates:
    config = BrokerConfig.from_mapping({name.replace("_", "."): value for name, value in settings.items()})
    return ConnectionRates(config, client_quotas(config))


def test_clients_that_give_up_and_come_again_are_all_served() -> None:
    """Turns of clients that have given up do not delay clients that wait: else all would wait longer than they have
    patience after a while."""
    rates = rates_of(max_connection_creation_rate=RATE)
    coming = dict.fromkeys(range(60 * RATE * 5), 0)
    """[client] -> when it connects next."""
    served: list[int] = []
    for now_ms in range(0, 600_000, 100):  # Ten minutes of the counters' own time, which take 30 ms.
        for client in [each for each, at_ms in coming.items() if at_ms <= now_ms]:
            held = rates.came("PLAINTEXT", "10.0.0.1", now_ms)
            if not held.is_refused and held.milliseconds <= PATIENCE_MS:
                del coming[client]
                served.append(now_ms + held.milliseconds)
            else:
                coming[client] = now_ms + min(held.milliseconds, PATIENCE_MS) + BACKOFF_MS
    assert not coming
    for begin_ms in range(0, max(served), 10_000):
        assert sum(begin_ms < at_ms <= begin_ms + 10_000 for at_ms in served) <= 10 * RATE * 2


def test_an_address_over_its_rate_uses_up_no_other_ones() -> None:
    """What is refused for its address takes no turn of its listener's."""
    config = BrokerConfig.from_mapping({"max.connection.creation.rate": RATE})
    quotas = client_quotas(config)
    quotas.set(Entity.of({IP: "10.0.0.1"}), {QuotaKey.CONNECTION_CREATION_RATE: 1})
    rates = ConnectionRates(config, quotas)
    refused = [rates.came("PLAINTEXT", "10.0.0.1", 0).is_refused for _ in range(1_000)]
    assert refused == [False] * 10 + [True] * 990
    assert rates.came("PLAINTEXT", "10.0.0.2", 0) == FREE
