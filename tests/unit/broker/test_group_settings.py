"""What the coordinator of groups gets of a broker's settings."""

from __future__ import annotations

import pytest

from tidelog.assignors import BROKERS
from tidelog.broker.coordinators.groups import _settings
from tidelog.config.broker_config import BrokerConfig

PACKAGE = "org.apache.kafka.coordinator.group.assignor"


@pytest.mark.parametrize(
    ("named", "assignors"),
    [
        (None, tuple(BROKERS)),
        ("range", ("range",)),
        (f"{PACKAGE}.RangeAssignor,{PACKAGE}.UniformAssignor", ("range", "uniform")),
        (f"uniform,{PACKAGE}.UniformAssignor", ("uniform",)),
        (",".join(BROKERS), tuple(BROKERS)),
    ],
)
def test_assignors_go_by_their_names_or_by_kafkas_classes(named: str | None, assignors: tuple[str, ...]) -> None:
    """The first that is named is the default; each that there is may be named."""
    config = BrokerConfig.from_mapping({} if named is None else {"group.consumer.assignors": named})
    assert _settings(config).consumer.assignors == assignors
