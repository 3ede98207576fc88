"""Tokens: Kafka's own kafka-delegation-tokens, Java clients that log in with one, and with a bearer token."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.conformance.check_kafka_tools import TOOLS, run
from tests.unit.broker.test_bearer_tokens import OTHER, RSA, jwks, token
from tidelog.testing import Cluster

SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="alice-secret" user_alice="alice-secret";'
    ),
    "delegation.token.secret.key": "of-the-cluster",
}


def properties(path: Path, mechanism: str, module: str, options: str) -> str:
    """A client's file."""
    jaas = f"org.apache.kafka.common.security.{module} required {options};"
    path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n")
    return str(path)


def test_tokens_are_made_used_renewed_and_expired(tmp_path: Path) -> None:
    """Lines of Kafka 4.3's tool on Kafka (shared vectors, tools.txt)."""
    alice = properties(
        tmp_path / "alice", "PLAIN", "plain.PlainLoginModule", 'username="alice" password="alice-secret"'
    )
    with Cluster(SETTINGS) as broker:

        def tokens(*arguments: str, fails: bool = False) -> str:
            at = ("--bootstrap-server", broker.bootstrap, "--command-config", alice)
            return run(f"{TOOLS}.DelegationTokenCommand", *at, *arguments, fails=fails)

        text = tokens("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
        assert "Created delegation token with tokenId : " in text
        row = next(line for line in text.splitlines() if "[User:bob]" in line and "User:alice" in line).split()
        token_id, hmac = row[:2]
        assert row[2:5] == ["User:alice", "User:alice", "[User:bob]"]
        assert "Total number of tokens : 1" in tokens("--describe", "--owner-principal", "User:alice")
        assert "Total number of tokens : 0" in tokens("--describe", "--owner-principal", "User:nobody")
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            options = f'username="{token_id}" password="{hmac}" tokenauth="true"'
            worker = properties(tmp_path / mechanism, mechanism, "scram.ScramLoginModule", options)
            create = ("--create", "--topic", f"by-{mechanism}")
            at = ("--bootstrap-server", broker.bootstrap, "--command-config", worker)
            assert f"Created topic by-{mechanism}." in run(f"{TOOLS}.TopicCommand", *at, *create)
        of_it = ("--hmac", hmac)
        assert "Completed renew operation." in tokens("--renew", "--renew-time-period", "-1", *of_it)
        assert "Completed expire operation." in tokens("--expire", "--expiry-time-period", "-1", *of_it)
        gone = tokens("--renew", "--renew-time-period", "-1", *of_it, fails=True)
        assert "DelegationTokenNotFoundException: Delegation Token is not found on server." in gone


def test_a_java_client_shows_a_bearer_token(tmp_path: Path) -> None:
    """OAUTHBEARER with a signed token from a file; one that another has signed is refused at once."""
    keys = tmp_path / "jwks.json"
    keys.write_text(jwks(one=RSA))
    settings = {
        "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "listener.name.clients.sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "https://issuer",
    }
    shown = tmp_path / "token"
    url = f"file:{shown}"
    client = tmp_path / "client"
    client.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;\n"
        "sasl.login.callback.handler.class="
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url={url}\n"
    )
    with Cluster(settings) as broker:

        def create(topic: str) -> subprocess.CompletedProcess[str]:
            allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
            java = ("java", f"{allowed}.urls={url}", f"{allowed}.files={shown}")
            tool = ("-cp", os.environ["TIDELOG_KAFKA_JARS"] + "/*", f"{TOOLS}.TopicCommand")
            at = ("--bootstrap-server", broker.bootstrap, "--command-config", str(client))
            return subprocess.run(
                [*java, *tool, *at, "--create", "--topic", topic],
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )

        shown.write_text(token())
        assert "Created topic good." in create("good").stdout
        shown.write_text(token(OTHER))
        assert '{"status":"invalid_token"}' in create("bad").stdout
