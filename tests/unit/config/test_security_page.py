"""docs/security.md: what it shows is what a broker and a client take."""

from __future__ import annotations

import re
from pathlib import Path

from tidelog.client.security import ClientSecurity
from tidelog.config.broker_config import BrokerConfig

PAGE = (Path(__file__).parents[3] / "docs/security.md").read_text()


def test_the_pages_settings_are_taken() -> None:
    """The broker's as they stand, without a warning; the clients' but for their files."""
    broker, admin, client, zookeeper, worker, issuer, bearer = re.findall(r"```properties\n(.*?)```", PAGE, re.DOTALL)
    config = BrokerConfig.from_text(broker)
    assert config.warnings() == []
    assert BrokerConfig.from_text(zookeeper).warnings() == []
    assert config.inter_broker_listener_name == "BROKERS"
    assert config.of_listener("BROKERS", "ssl.client.auth") == "required"
    assert config.of_listener("SASL_SSL", "ssl.client.auth") == "none"
    worker += "security.protocol=SASL_PLAINTEXT\n"
    with_tokens = BrokerConfig.from_text(broker.replace("\nsasl.enabled.mechanisms=SCRAM-SHA-512", "") + issuer)
    assert with_tokens.of_listener("SASL_SSL", "sasl.oauthbearer.expected.audience", "OAUTHBEARER") == ("kafka",)
    for properties, protocol in (
        (admin, "SSL"),
        (client, "SASL_SSL"),
        (worker, "SASL_PLAINTEXT"),
        (bearer, "SASL_SSL"),
    ):
        lines = [
            line.partition("=") for line in properties.splitlines() if not line.startswith(("ssl.trust", "ssl.key"))
        ]
        assert ClientSecurity.from_properties({name: value for name, _, value in lines}).protocol == protocol
