"""Brokers that users log in to: a second listener beside the one by which everything is allowed, and an authorizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

USERS_PORT: Final = 9094
SCRAM: Final = "SCRAM-SHA-256"
PASSWORDS: Final[Mapping[str, str]] = {"alice": "alice-secret", "bob": "bob-secret"}
"""Alice logs in by PLAIN, and is in the brokers' settings; bob by SCRAM, whose password is in the store, or is not."""
SETTINGS: Final[Mapping[str, object]] = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.name.users.sasl.enabled.mechanisms": f"PLAIN,{SCRAM}",
    "listener.name.users.plain.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{PASSWORDS["alice"]}";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def secured_settings(machine: str, port: int) -> dict[str, object]:
    """Of the broker on a machine; `port` of its first listener."""
    return {"listeners": f"PLAINTEXT://{machine}:{port},USERS://{machine}:{USERS_PORT}", **SETTINGS}
