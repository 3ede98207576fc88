"""Settings of groups: within the broker's bounds, in Kafka's words, and what they come to."""

from __future__ import annotations

import pytest

from tidelog.config import group_config
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.group_config import (
    ASSIGNMENT_INTERVAL,
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    GroupLimits,
    InvalidGroupConfig,
    Limits,
)
from tidelog.config.share_offset_reset import parse_reset

KAFKAS = GroupLimits()
NARROW = GroupLimits(Limits(20, 10, 30), Limits(10, 1, 25), Limits(0, 0, 9))


def test_kafkas_defaults_are_the_brokers() -> None:
    """And what a broker sets is taken."""
    assert GroupLimits.of(BrokerConfig()) == KAFKAS
    config = BrokerConfig.from_mapping({"group.consumer.min.session.timeout.ms": "6000"})
    assert GroupLimits.of(config).session_timeout_ms == Limits(45_000, 6_000, 60_000)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (SESSION_TIMEOUT, "45000"),
        (SESSION_TIMEOUT, "60000"),
        (HEARTBEAT_INTERVAL, "5000"),
        (HEARTBEAT_INTERVAL, " 15000 "),
        (ASSIGNMENT_INTERVAL, "0"),
        (ASSIGNMENT_INTERVAL, "15000"),
    ],
)
def test_bounds_are_included(name: str, value: str) -> None:
    group_config.validate({name: value}, KAFKAS)


@pytest.mark.parametrize("duration", [f"PT{'9' * 400}S", f"P{'9' * 400}D", f"PT{'9' * 5000}H", f"PT{2**63 - 1}S"])
def test_a_duration_that_is_no_number_is_refused(duration: str) -> None:
    """A client sets it: another exception would stop the controller, and the next one, which is asked again."""
    with pytest.raises(InvalidGroupConfig, match="of the format"):
        group_config.validate({"share.auto.offset.reset": f"by_duration:{duration}"}, KAFKAS)


@pytest.mark.parametrize(
    ("overrides", "limits", "message"),
    [
        ({"sesion": "1"}, KAFKAS, "Unknown group config name: sesion"),
        (
            {SESSION_TIMEOUT: "44999"},
            KAFKAS,
            f"{SESSION_TIMEOUT} must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            {SESSION_TIMEOUT: "60001"},
            KAFKAS,
            f"{SESSION_TIMEOUT} must be less than or equal to group.consumer.max.session.timeout.ms",
        ),
        (
            {HEARTBEAT_INTERVAL: "15001"},
            KAFKAS,
            f"{HEARTBEAT_INTERVAL} must be less than or equal to group.consumer.max.heartbeat.interval.ms",
        ),
        (
            {SESSION_TIMEOUT: "0"},
            KAFKAS,
            f"Invalid value 0 for configuration {SESSION_TIMEOUT}: Value must be at least 1",
        ),
        (
            {HEARTBEAT_INTERVAL: "5s"},
            KAFKAS,
            f"Invalid value 5s for configuration {HEARTBEAT_INTERVAL}: Not a number of type INT",
        ),
        ({SESSION_TIMEOUT: "10"}, NARROW, f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}"),
        ({HEARTBEAT_INTERVAL: "20"}, NARROW, f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}"),
    ],
)
def test_refusals(overrides: dict[str, str], limits: GroupLimits, message: str) -> None:
    """As Kafka 4.3 answers them, beside INVALID_CONFIG."""
    with pytest.raises(InvalidGroupConfig) as refused:
        group_config.validate(overrides, limits)
    assert str(refused.value) == message


def test_what_was_set_under_other_bounds_holds_within_these() -> None:
    """What is no value is left out; a session no longer than a heartbeat interval is the broker's."""
    stored = {SESSION_TIMEOUT: "45000", HEARTBEAT_INTERVAL: "nonsense", ASSIGNMENT_INTERVAL: "5", "other": "1"}
    found = group_config.resolve(stored, NARROW)
    assert {name: value for name, value in found.items() if name.startswith("consumer.")} == {
        SESSION_TIMEOUT: 30,
        HEARTBEAT_INTERVAL: 10,
        ASSIGNMENT_INTERVAL: 5,
    }
    assert list(group_config.complaints(stored, NARROW)) == [
        f"{SESSION_TIMEOUT} must be less than or equal to group.consumer.max.session.timeout.ms; that one holds",
        f"left out: Invalid value nonsense for configuration {HEARTBEAT_INTERVAL}: Not a number of type INT",
        "left out: Unknown group config name: other",
    ]
    both = group_config.resolve({SESSION_TIMEOUT: "12", HEARTBEAT_INTERVAL: "14"}, NARROW)
    assert (both[SESSION_TIMEOUT], both[HEARTBEAT_INTERVAL]) == (20, 10)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("share.record.lock.duration.ms", "70000", "less than or equal to group.share.max.record.lock.duration.ms"),
        ("share.delivery.count.limit", "1", "Value must be at least 2"),
        (
            "share.partition.max.record.locks",
            "5000",
            "less than or equal to group.share.max.partition.max.record.locks",
        ),
        (
            "share.auto.offset.reset",
            "none",
            "either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
        ),
        ("share.auto.offset.reset", "by_duration:-P1D", "The value must be either"),
        ("share.isolation.level", "READ_COMMITTED", "String must be one of: read_committed, read_uncommitted"),
        ("share.renew.acknowledge.enable", "maybe", "Expected value to be either true or false"),
        ("share.session.timeout.ms", "1000", "greater than or equal to group.share.min.session.timeout.ms"),
    ],
)
def test_refusals_of_share_groups_settings(name: str, value: str, message: str) -> None:
    """In the words of Kafka 4.3."""
    with pytest.raises(group_config.InvalidGroupConfig) as refused:
        group_config.validate({name: value}, KAFKAS)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("latest", ("latest", 0)),
        ("by_duration:P1D", ("by_duration", 86_400_000)),
        ("by_duration:PT1H30M", ("by_duration", 5_400_000)),
        ("by_duration:PT0.25S", ("by_duration", 250)),
    ],
)
def test_where_a_share_group_begins(text: str, expected: tuple[str, int]) -> None:
    assert parse_reset(text) == expected
