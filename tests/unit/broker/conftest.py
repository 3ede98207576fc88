from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.broker.harness import Broker


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    """Makes a broker with some settings in the test's folder; closed at the end."""
    brokers: list[Broker] = []

    def start(**settings: object) -> Broker:
        broker = Broker(str(tmp_path / "logs"), {name.replace("_", "."): value for name, value in settings.items()})
        brokers.append(broker)
        return broker

    yield start
    for broker in brokers:
        broker.close()


@pytest.fixture
def broker(start_broker: Callable[..., Broker]) -> Broker:
    """A broker that leads t-0 .. t-2, all empty."""
    started = start_broker()
    started.lead("t", 3)
    return started
