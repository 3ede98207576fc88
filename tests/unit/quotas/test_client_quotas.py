"""Which quota holds for a client, and whose budget it uses."""

from __future__ import annotations

import itertools

import pytest

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.quotas.client_quotas import METER_IDLE_MS_MAX, METERS_KEPT, ClientQuotas
from tidelog.quotas.entities import CLIENT_ID, IP, USER, Entity, Name, QuotaKey
from tidelog.quotas.rates import Window
from tidelog.quotas.request_quota import RequestQuota

WINDOW = Window(11, 1_000)
ORDER: list[dict[str, Name]] = [
    {USER: "u", CLIENT_ID: "c"},
    {USER: "u", CLIENT_ID: None},
    {USER: "u"},
    {USER: None, CLIENT_ID: "c"},
    {USER: None, CLIENT_ID: None},
    {USER: None},
    {CLIENT_ID: "c"},
    {CLIENT_ID: None},
]
"""The most special first."""


def quotas(*entries: tuple[dict[str, Name], QuotaKey, float]) -> ClientQuotas:
    made = ClientQuotas(WINDOW, WINDOW)
    for names, key, value in entries:
        entity = Entity.of(names)
        made.set(entity, {**made.entities.get(entity, {}), key: value})
    return made


def bound(made: ClientQuotas, user: str, client_id: str) -> float | None:
    quota = made.of(user, client_id, 0)
    return None if quota is None or quota.producer is None else quota.producer.bound


def test_of_two_quotas_the_more_special_one_holds() -> None:
    key = QuotaKey.PRODUCER_BYTE_RATE
    for special, general in itertools.combinations(ORDER, 2):
        assert bound(quotas((special, key, 1), (general, key, 2)), "u", "c") == 1
    for names in ORDER:
        made = quotas((names, key, 3))
        assert bound(made, "u", "c") == 3
        made.set(Entity.of(names), {})
        assert bound(made, "u", "c") is None
        assert not made.limits_clients


def test_each_kind_of_quota_is_looked_up_by_itself() -> None:
    """A user's quota for producing does not hide the default for consuming."""
    made = quotas(({USER: "u"}, QuotaKey.PRODUCER_BYTE_RATE, 1), ({USER: None}, QuotaKey.CONSUMER_BYTE_RATE, 2))
    quota = made.of("u", "", 0)
    assert quota is not None
    assert quota.producer is not None
    assert quota.consumer is not None
    assert (quota.producer.bound, quota.consumer.bound, quota.request) == (1, 2, None)


@pytest.mark.parametrize(
    ("names", "shared", "apart"),
    [
        ({USER: "u"}, [("u", "c"), ("u", "d")], []),
        ({USER: None}, [("u", "c"), ("u", "d")], [("v", "c")]),
        ({CLIENT_ID: "c"}, [("u", "c"), ("v", "c")], []),
        ({CLIENT_ID: None}, [("u", "c"), ("v", "c")], [("u", "d")]),
        ({USER: "u", CLIENT_ID: "c"}, [("u", "c")], []),
        ({USER: "u", CLIENT_ID: None}, [("u", "c")], [("u", "d")]),
        ({USER: None, CLIENT_ID: "c"}, [("u", "c")], [("v", "c")]),
        ({USER: None, CLIENT_ID: None}, [("u", "c")], [("v", "c"), ("u", "d")]),
    ],
)
def test_who_shares_a_budget(
    names: dict[str, Name], shared: list[tuple[str, str]], apart: list[tuple[str, str]]
) -> None:
    made = quotas((names, QuotaKey.PRODUCER_BYTE_RATE, 1_000))
    first = made.of(*shared[0], 0)
    assert first is not None
    assert first.producer is not None
    assert first.producer.record(11_000, 0) == 1_000
    for client in shared:
        assert _throttle_ms(made, client) == 1_000
    for client in apart:
        assert _throttle_ms(made, client) == 0


def _throttle_ms(made: ClientQuotas, client: tuple[str, str]) -> int:
    quota = made.of(*client, 0)
    assert quota is not None
    assert quota.producer is not None
    return quota.producer.record(0, 0)


def test_a_changed_quota_judges_what_was_used_before() -> None:
    made = quotas(({USER: "u"}, QuotaKey.PRODUCER_BYTE_RATE, 1_000))
    assert _throttle_ms(made, ("u", "")) == 0
    quota = made.of("u", "", 0)
    assert quota is not None
    assert quota.producer is not None
    quota.producer.record(10_000, 0)
    made.set(Entity.of({USER: "u"}), {QuotaKey.PRODUCER_BYTE_RATE: 500})
    assert _throttle_ms(made, ("u", "")) == 10_000


def test_what_was_not_used_for_an_hour_is_forgotten() -> None:
    made = quotas(({CLIENT_ID: None}, QuotaKey.PRODUCER_BYTE_RATE, 1_000))
    for number in range(100):
        made.of("u", f"c{number}", 0)
    made.of("u", "new", METER_IDLE_MS_MAX + 1)
    assert len(made._rates) == 1


def test_clients_that_come_under_ever_new_ids_are_forgotten_sooner() -> None:
    """A meter without a record in the whole window is dropped; a client that goes on is throttled as before."""
    made = quotas(
        ({CLIENT_ID: None}, QuotaKey.PRODUCER_BYTE_RATE, 1_000),
        ({CLIENT_ID: None}, QuotaKey.CONTROLLER_MUTATION_RATE, 1),
    )

    def steady(now_ms: int) -> int:
        quota = made.of("u", "steady", now_ms)
        assert quota is not None
        assert quota.producer is not None
        return quota.producer.record(100_000, now_ms)

    for now_ms in range(60_000):  # A minute of the meters' own time, with more ids than the meters that are kept.
        made.of("u", f"c{now_ms}", now_ms)
        if not now_ms % 5_000:
            throttle_ms = steady(now_ms)
    assert throttle_ms > 100_000
    assert len(made._rates) + len(made._buckets) < 2 * METERS_KEPT + 10_000


def test_addresses_are_compared_as_addresses() -> None:
    made = quotas(
        ({IP: "::0001"}, QuotaKey.CONNECTION_CREATION_RATE, 5), ({IP: None}, QuotaKey.CONNECTION_CREATION_RATE, 7)
    )
    assert made.connections_per_s("::1") == 5
    assert made.connections_per_s("127.0.0.1") == 7
    made.set(Entity.of({IP: None}), {})
    assert made.connections_per_s("127.0.0.1") is None
    assert made.limits_addresses
    assert not made.limits_clients


def _request(*entries: tuple[QuotaKey, float]) -> RequestQuota:
    client = quotas(*(({USER: "u"}, key, value) for key, value in entries)).of("u", "", 0)
    assert client is not None
    return RequestQuota(client)


def test_the_longest_throttle_is_told_and_a_refused_answer_is_not_counted() -> None:
    quota = _request((QuotaKey.PRODUCER_BYTE_RATE, 100), (QuotaKey.CONSUMER_BYTE_RATE, 1_000))
    assert quota.fetch_bytes_max == 10_000
    assert not quota.may_send(12_000, 0)
    assert quota.throttle_ms == 2_000
    quota.produced(1_500, 0)
    assert quota.throttle_ms == 5_000
    fresh = RequestQuota(quota._client)
    assert fresh.may_send(10_000, 0)


def test_time_throttles_for_a_sample_at_most() -> None:
    """1 % is 10 ms a second: 200 ms are twice what ten seconds allow."""
    quota = _request((QuotaKey.REQUEST_PERCENTAGE, 1))
    assert not quota.is_unnoticed
    quota.begin(1)
    quota.pause(200_000_001)
    quota.pause(900_000_000)
    quota.spent(0)
    quota.spent(0)
    assert quota.throttle_ms == 1_000


def test_changes_are_refused_strictly_or_throttled() -> None:
    entries = (QuotaKey.CONTROLLER_MUTATION_RATE, 1.0)
    quota = _request(entries)
    strict = quota.mutations(strict=True)
    assert strict is not None
    strict.record(6, 0)
    strict.record(6, 0)
    with pytest.raises(KafkaError) as refused:
        strict.record(1, 0)
    quota.mutated()
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert refused.value.message is None
    assert quota.throttle_ms == 1_000
    older = _request(entries)
    permissive = older.mutations(strict=False)
    assert permissive is not None
    for _ in range(3):
        permissive.record(6, 0)
    older.mutated()
    assert older.throttle_ms == 7_000
