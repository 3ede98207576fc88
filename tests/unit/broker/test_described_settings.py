"""What DescribeConfigs tells of a broker's settings: single listeners', and its id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.unit.broker.harness import Broker

from tidelog.config.broker_config import Source
from tidelog.metadata.image import ConfigResourceType
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

CONNECTIONS = "listener.name.plaintext.max.connections"
JAAS = "listener.name.plaintext.plain.sasl.jaas.config"
DEFAULT_CONNECTIONS = ("max.connections", "2147483647", Source.DEFAULT)


def described(broker: Broker, *names: str, documentation: bool = False) -> dict[str, Any]:
    """[name] -> what is told of the setting."""
    request = messages.DescribeConfigsRequest
    resource = request.DescribeConfigsResource(
        resource_type=ConfigResourceType.BROKER, resource_name="0", configuration_keys=list(names) or None
    )
    asked = request(resources=[resource], include_synonyms=True, include_documentation=documentation)
    answer = broker.ask(ApiKey.DESCRIBE_CONFIGS, 4, asked)
    return {each.name: each for each in answer.results[0].configs}


def places(told: Any) -> list[tuple[str, str | None, int]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in told.synonyms]


def test_settings_of_one_listener_are_told(start_broker: Callable[..., Broker]) -> None:
    """As those without a prefix: from the file or altered, by name or with all others, secrets without their value."""
    broker = start_broker(**{CONNECTIONS: "50", JAAS: "org.example.Module required;"})
    told = described(broker)
    assert (told[CONNECTIONS].value, told[CONNECTIONS].config_source) == ("50", Source.STATIC_BROKER)
    assert places(told[CONNECTIONS]) == [(CONNECTIONS, "50", Source.STATIC_BROKER), DEFAULT_CONNECTIONS]
    assert (told[JAAS].value, told[JAAS].is_sensitive) == (None, True)
    assert places(told[JAAS]) == [(JAAS, None, Source.STATIC_BROKER)]
    broker.config.set_dynamic({}, {CONNECTIONS: "77"})
    (altered,) = described(broker, CONNECTIONS).values()
    assert (altered.value, altered.config_source, altered.read_only) == ("77", Source.DYNAMIC_BROKER, False)
    assert places(altered)[:2] == [
        (CONNECTIONS, "77", Source.DYNAMIC_BROKER),
        (CONNECTIONS, "50", Source.STATIC_BROKER),
    ]
    assert described(broker)["max.connections"].value == "2147483647"


def test_both_names_of_a_brokers_id_tell_it(start_broker: Callable[..., Broker]) -> None:
    """Whichever of them was set, or neither, where the id is that of meta.properties."""
    broker = start_broker()
    told = described(broker)
    for name in ("broker.id", "node.id"):
        assert (told[name].value, told[name].config_source, told[name].read_only) == ("0", Source.STATIC_BROKER, True)
        assert places(told[name]) == [(name, "0", Source.STATIC_BROKER), (name, "-1", Source.DEFAULT)]


def test_documentation_is_told_to_whoever_asks_for_it(start_broker: Callable[..., Broker]) -> None:
    """To others it is null, as in Kafka, not empty."""
    broker = start_broker()
    assert described(broker, "log.retention.ms")["log.retention.ms"].documentation is None
    assert described(broker, "log.retention.ms", documentation=True)["log.retention.ms"].documentation
