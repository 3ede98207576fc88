"""`tidelog quotas` against a real broker."""

from __future__ import annotations

from tests.unit.cli.conftest import Tidelog


def test_quotas_are_set_shown_and_removed_as_kafka_configs_does(tidelog: Tidelog) -> None:
    """Kafka's lines (shared vectors, tools.txt)."""

    def kafka(*arguments: str) -> list[str]:
        return list(tidelog("quotas", *arguments, "-o", "kafka").lines)

    both = ("--user", "user1", "--client", "clientA")
    assert kafka("set", *both, "producer_byte_rate=1024", "request_percentage=200") == [
        "Completed updating config for client clientA."
    ]
    assert kafka("set", "--user", "user1", "--client-defaults", "producer_byte_rate=300") == [
        "Completed updating config for user user1."
    ]
    assert kafka("set", "--user-defaults", "--client-defaults", "producer_byte_rate=400") == [
        "Completed updating default config for clients in the cluster."
    ]
    assert kafka("set", "--ip", "127.0.0.2", "connection_creation_rate=7") == [
        "Completed updating config for ip 127.0.0.2."
    ]
    assert set(kafka("list")) == {
        "Quota configs for user-principal 'user1', client-id 'clientA' are "
        "producer_byte_rate=1024.0, request_percentage=200.0",
        "Quota configs for user-principal 'user1', the default client-id are producer_byte_rate=300.0",
        "Quota configs for the default user-principal, the default client-id are producer_byte_rate=400.0",
        "Quota configs for ip '127.0.0.2' are connection_creation_rate=7.0",
    }
    assert tidelog("quotas", "list", "--client", "clientA", "-o", "json").json == [
        {
            "entity": {"user": "user1", "client-id": "clientA"},
            "quotas": {"producer_byte_rate": 1024.0, "request_percentage": 200.0},
        }
    ]
    assert "1,024   bytes/s" in tidelog("quotas", "list").out
    tidelog("quotas", "remove", *both, "producer_byte_rate", "request_percentage")
    tidelog("quotas", "remove", "--user", "user1", "--client-defaults", "producer_byte_rate")
    tidelog("quotas", "remove", "--user-defaults", "--client-defaults", "producer_byte_rate")
    tidelog("quotas", "remove", "--ip", "127.0.0.2", "connection_creation_rate")
    assert tidelog("quotas", "list").lines == ["No quotas are set."]


def test_what_cannot_be_is_refused(tidelog: Tidelog) -> None:
    refused = tidelog("quotas", "set", "--user", "u", "producer_byte_rate=1.5")
    assert (refused.code, refused.err) == (1, "tidelog: producer_byte_rate cannot be a fractional value.\n")
    assert tidelog("quotas", "set", "producer_byte_rate=1").code == 2
    assert tidelog("quotas", "set", "--user", "u", "--user-defaults", "producer_byte_rate=1").code == 2
    assert tidelog("quotas", "set", "--user", "u", "--ip-defaults", "producer_byte_rate=1").code == 2
    assert tidelog("quotas", "set", "--user", "u", "producer_byte_rate=much").code == 2
    assert tidelog("quotas", "remove", "--user", "u", "speed").code == 2
    assert tidelog("quotas", "set", "--user", "u", "producer_byte_rate=5", "--dry-run").out.startswith("Could change 1")
    assert tidelog("quotas", "list").lines == ["No quotas are set."]
