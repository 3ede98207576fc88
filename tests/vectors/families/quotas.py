"""Client quotas: throttle times that a broker of Kafka's gave, by our arithmetic at the same times.

From `security/quotas.json[.gz]`: requests one after the other, with when each was answered. What a request weighs
besides its records, and the moments between two requests, are not in the file, so throttle times are compared within
`SLACK_MS` and `SLACK`. Measurements that are known to no replay are named by `unjudged`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.vectors.families.security import security_files
from tidelog.broker.connections.connection_rates import ConnectionRates
from tidelog.config.broker_config import BrokerConfig
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.quotas.client_quotas import ClientQuotas
from tidelog.quotas.entities import CLIENT_ID, IP, USER, Entity, Name, QuotaKey, parse_entity
from tidelog.quotas.rates import Window
from tidelog.quotas.request_quota import RequestQuota

NAME = "quotas"
WINDOW = Window(11, 1_000)
SLACK_MS = 150
SLACK = 0.03
PRODUCE_OVERHEAD = 100
"""Bytes of a produce request around its records, about."""
USERS_ENTITY: dict[str, Name] = {USER: "u"}
STRICT_SINCE = {"CreateTopics": 6, "DeleteTopics": 5, "CreatePartitions": 3}


def cases(directory: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """Every measurement that can be replayed."""
    for measured in _measured(directory):
        check = _check_of(measured)
        if check is not None:
            yield f"quotas {measured['name']}", functools.partial(check, measured)


def unjudged(directory: str) -> list[str]:
    """Measurements that no replay knows."""
    return [f"quotas: {each['name']}" for each in _measured(directory) if _check_of(each) is None]


def _measured(directory: str) -> Iterator[dict[str, Any]]:
    for name, data in security_files(directory):
        if name == NAME:
            yield from data["measured"]


def _check_of(measured: dict[str, Any]) -> Callable[[dict[str, Any]], None] | None:
    name = measured["name"]
    for beginning, check in (
        ("producer_byte_rate=", _check_produce),
        ("a burst far above the quota", _check_burst),
        ("consumer_byte_rate=", _check_fetch),
        ("request_percentage=", _check_time),
        ("the same user: ", _check_bound),
        ("which of two quotas counts", _check_precedence),
        ("what a default shares", _check_shares),
        ("connection_creation_rate=", _check_connections),
        ("controller_mutation_rate=", _check_mutations),
    ):
        if name.startswith(beginning):
            return check
    return None


def _quotas(key: QuotaKey, value: float, names: dict[str, Name] | None = None) -> ClientQuotas:
    quotas = ClientQuotas(WINDOW, WINDOW)
    quotas.set(Entity.of(names or USERS_ENTITY), {key: value})
    return quotas


def _request(quotas: ClientQuotas, user: str = "u", client_id: str = "c") -> RequestQuota:
    client = quotas.of(user, client_id, 0)
    assert client is not None
    return RequestQuota(client)


def _compare(ours: int, kafkas: int) -> None:
    assert abs(ours - kafkas) <= SLACK_MS + SLACK * kafkas, f"Kafka throttles for {kafkas} ms, we do for {ours} ms"
    assert (ours > 0) == (kafkas > 0), f"Kafka throttles for {kafkas} ms, we do for {ours} ms"


def _value_of(measured: dict[str, Any]) -> float:
    found = re.match(r"\w+=([0-9.]+)", measured["name"])
    assert found is not None
    return float(found[1])


def _size_of(row: dict[str, Any]) -> int:
    found = re.search(r"(\d+) bytes", row["request"])
    return 0 if found is None else int(found[1]) + PRODUCE_OVERHEAD


def _check_produce(measured: dict[str, Any]) -> None:
    quotas = _quotas(QuotaKey.PRODUCER_BYTE_RATE, _value_of(measured))
    now_ms = 0
    for row in measured["rows"]:
        now_ms += row["answered_after_ms"]
        request = _request(quotas)
        if row["request"].startswith("Produce"):
            request.produced(_size_of(row), now_ms)
        _compare(request.throttle_ms, row["throttle_time_ms"])


def _check_burst(measured: dict[str, Any]) -> None:
    found = re.search(r"\((\d+) B/s, ([0-9,]+) bytes", measured["name"])
    assert found is not None
    request = _request(_quotas(QuotaKey.PRODUCER_BYTE_RATE, float(found[1])))
    request.produced(int(found[2].replace(",", "")), 0)
    _compare(request.throttle_ms, measured["throttle_time_ms"])


def _check_fetch(measured: dict[str, Any]) -> None:
    quotas = _quotas(QuotaKey.CONSUMER_BYTE_RATE, _value_of(measured))
    now_ms = 0
    for row in measured["rows"]:
        now_ms += row["answered_after_ms"]
        request = _request(quotas)
        assert request.may_send(_size_of(row), now_ms) == (row["topics_in_the_answer"] > 0)
        _compare(request.throttle_ms, row["throttle_time_ms"])


def _check_time(measured: dict[str, Any]) -> None:
    """How long a request took there is not known; that it took more than the quota allows shows in the second one."""
    quotas = _quotas(QuotaKey.REQUEST_PERCENTAGE, _value_of(measured))
    now_ms = 0
    for row in measured["rows"]:
        now_ms += row["answered_after_ms"]
        request = _request(quotas)
        if row["throttle_time_ms"]:
            request.begin(1)
            request.pause(10_000_001)
            request.spent(now_ms)
        _compare(request.throttle_ms, row["throttle_time_ms"])


def _check_bound(measured: dict[str, Any]) -> None:
    """Of whatever API, however far it is beyond the quota."""
    request = _request(_quotas(QuotaKey.REQUEST_PERCENTAGE, 0.01))
    request.begin(1)
    request.pause(1_000_000_001)
    request.spent(0)
    _compare(request.throttle_ms, measured["throttle_time_ms"])


def _named(text: str) -> Entity:
    """Of `user, default client-id` and the like."""
    parts: list[tuple[str, Name]] = []
    for part in text.split(", "):
        kind = part.removeprefix("default ")
        parts.append((kind, None if part.startswith("default ") else {USER: "u", CLIENT_ID: "c"}[kind]))
    return parse_entity(parts)


def _check_precedence(measured: dict[str, Any]) -> None:
    for row in measured["rows"]:
        quotas = ClientQuotas(WINDOW, WINDOW)
        for text in row["set"]:
            quotas.set(_named(text), {QuotaKey.PRODUCER_BYTE_RATE: 100 if text == row["small"] else 1e9})
        request = _request(quotas)
        request.produced(100_000, 0)
        assert (request.throttle_ms > 0) == row["throttled"], row


def _check_shares(measured: dict[str, Any]) -> None:
    known: dict[str, ClientQuotas] = {}
    for row in measured["rows"]:
        text, rate = row["quota"].removesuffix(" B/s").rsplit(" ", 1)
        quotas = known.setdefault(text, _quotas(QuotaKey.PRODUCER_BYTE_RATE, float(rate), _named(text).names))
        request = _request(quotas, row["user"], row["client_id"])
        request.produced(row["bytes"] + PRODUCE_OVERHEAD, 0)
        _compare(request.throttle_ms, row["throttle_time_ms"])


def _check_connections(measured: dict[str, Any]) -> None:
    names: dict[str, Name] = {IP: "127.0.0.1"}
    quotas = _quotas(QuotaKey.CONNECTION_CREATION_RATE, _value_of(measured), names)
    rates = ConnectionRates(BrokerConfig.from_mapping({}), quotas)
    for row in measured["rows"]:
        held = rates.came("PLAINTEXT", "127.0.0.1", row["at_ms"])
        refused = row["outcome"] != "answered"
        assert held.is_refused == refused, row
        _compare(held.milliseconds, row["after_ms"] if refused else 0)


def _check_mutations(measured: dict[str, Any]) -> None:
    quotas = _quotas(QuotaKey.CONTROLLER_MUTATION_RATE, _value_of(measured))
    if "errors" in measured:
        request = _request(quotas)
        errors = [_mutate(request, 6, 0, strict=True) for _ in measured["errors"]]
        request.mutated()
        assert errors == list(measured["errors"].values())
        _compare(request.throttle_ms, measured["throttle_time_ms"])
        return
    now_ms = 0
    for row in measured["rows"]:
        now_ms += row["answered_after_ms"]
        api, version = re.match(r"(\w+) v(\d+)", row["request"]).groups()  # type: ignore[union-attr]
        counted = re.search(r"(\d+) partitions", row["request"])
        request = _request(quotas)
        if row["error_code"] in (ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED):
            # What is only validated was one partition.
            count = int(counted[1]) if counted else 1
            assert _mutate(request, count, now_ms, strict=int(version) >= STRICT_SINCE[api]) == row["error_code"], row
        request.mutated()
        _compare(request.throttle_ms, row["throttle_time_ms"])


def _mutate(request: RequestQuota, partitions: int, now_ms: int, *, strict: bool) -> int:
    mutations = request.mutations(strict=strict)
    assert mutations is not None
    try:
        mutations.record(partitions, now_ms)
    except KafkaError as error:
        return int(error.code)
    return 0
