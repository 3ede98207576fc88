"""`metrics.listener`: on loopback unless a host is named."""

import pytest

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.metrics_listener import parse_metrics_listener
from tidelog.config.properties import ConfigError


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("9404", "127.0.0.1:9404"),
        (":9404", "127.0.0.1:9404"),
        ("0.0.0.0:0", "0.0.0.0:0"),
        ("http://broker.example:9404/", "broker.example:9404"),
        ("[::]:9404", "[::]:9404"),
        (" localhost:9404 ", "localhost:9404"),
    ],
)
def test_addresses(text: str, shown: str) -> None:
    """A port, or host and port; a URL of them too."""
    assert str(parse_metrics_listener(text)) == shown


@pytest.mark.parametrize(
    "text", ["host", "host:", "1:2:3", "70000", "-1", "https://a:1", "a b:1", "::1:9404", "9404/metrics"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    """The broker does not start, and says which setting it is."""
    with pytest.raises(ValueError, match=r"port|PORT"):
        parse_metrics_listener(text)
    with pytest.raises(ConfigError, match=r"metrics\.listener"):
        BrokerConfig.from_mapping({"metrics.listener": text})


def test_it_is_off_by_default() -> None:
    """Nothing is served that nobody asked for."""
    assert BrokerConfig.from_mapping({}).metrics_listener is None
    assert BrokerConfig.from_mapping({"metrics.listener": ""}).metrics_listener is None


@pytest.mark.parametrize("name", ["metrics.topics", "metrics.groups"])
def test_a_filter_is_a_regular_expression(name: str) -> None:
    """One that is none is refused at the start."""
    assert BrokerConfig.from_mapping({name: "a|b.*"}).get(name) == "a|b.*"
    with pytest.raises(ConfigError, match="Not a regular expression"):
        BrokerConfig.from_mapping({name: "(a"})
