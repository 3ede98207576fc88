"""OAUTHBEARER on a listener: tokens that an issuer has signed, and clients that show them."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from tests.unit.broker.harness import ManualClock, ManualShell
from tests.waiting import until

from tidelog.broker.connections.bearer_tokens import EXPEDITED_MS_MIN, IssuerKeys, Rules, read_jwks, verify_signed
from tidelog.broker.failure import BrokerFailed
from tidelog.client.blocking import BlockingCluster
from tidelog.client.errors import AuthenticationError
from tidelog.client.security import ClientSecurity
from tidelog.protocol import messages
from tidelog.security.oauthbearer import InvalidToken
from tidelog.security.sasl_client import TokenSource
from tidelog.testing import Cluster

jwt = pytest.importorskip("jwt")

RSA = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
OTHER = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
EC = ec.generate_private_key(ec.SECP256R1())
RULES = Rules("https://issuer", ("kafka",), 30, "sub")


def jwks(**keys: Any) -> str:
    """The public halves, by their ids."""
    entries = []
    for kid, key in keys.items():
        algorithm = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
        entries.append({**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, "use": "sig"})
    return json.dumps({"keys": entries})


def token(key: Any = RSA, kid: str | None = "one", algorithm: str = "RS256", **claims: Any) -> str:
    now_s = int(time.time())
    content = {"sub": "alice", "iat": now_s, "exp": now_s + 60, "iss": "https://issuer", "aud": "kafka", **claims}
    headers = {} if kid is None else {"kid": kid}
    return str(jwt.encode({k: v for k, v in content.items() if v is not None}, key, algorithm, headers))


class Issuer:
    """Keys in a file, and time that stands still."""

    def __init__(self, path: Path, **keys: Any) -> None:
        self.path = path
        path.write_text(jwks(**keys))
        self.shell = ManualShell(ManualClock())
        self.keys = IssuerKeys(path.as_uri(), self.shell, self.shell.clock, 60_000)  # type: ignore[arg-type]
        self.keys.open().result()

    def verify(self, text: str, rules: Rules = RULES) -> str:
        return verify_signed(text, self.keys, rules, int(time.time() * 1000)).user


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path / "jwks.json", one=RSA, two=EC)


def test_signed_tokens_are_good(issuer: Issuer) -> None:
    """With any algorithm that the key can do; one audience of several is enough."""
    assert issuer.verify(token()) == "alice"
    assert issuer.verify(token(algorithm="PS512")) == "alice"
    assert issuer.verify(token(EC, "two", "ES256")) == "alice"
    assert issuer.verify(token(aud=["other", "kafka"])) == "alice"
    assert issuer.verify(token(aud=None, iss=None, azp="bob"), Rules(None, (), 30, "azp")) == "bob"
    late = token(exp=int(time.time()) - 20)
    assert issuer.verify(late) == "alice"


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": 1_000}, "expired"),
        ({"exp": None}, "exp"),
        ({"iat": None}, "iat"),
        ({"nbf": 9_999_999_999}, "not yet valid"),
        ({"iss": "https://another"}, "[Ii]ssuer"),
        ({"iss": None}, "iss"),
        ({"aud": "another"}, "[Aa]udience"),
        ({"aud": None}, "aud"),
        ({"sub": None}, "names no principal"),
        ({"sub": ""}, "names no principal"),
    ],
)
def test_claims_are_judged(issuer: Issuer, claims: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidToken, match=reason):
        issuer.verify(token(**claims))


def test_only_the_issuers_signature_counts(issuer: Issuer) -> None:
    """Not another's key, no signature, no secret that is made of the public key."""
    public = json.loads(issuer.path.read_text())["keys"][0]["n"]
    forged = [
        token(OTHER),
        token(OTHER, "three"),
        token(None, "one", "none"),
        token(public, "one", "HS256"),
        token(EC, "one", "ES256"),
        token()[:-4] + "AAAA",
        "a.b.c",
        "",
    ]
    for text in forged:
        with pytest.raises(InvalidToken):
            issuer.verify(text)


def test_an_unknown_key_has_the_keys_read_again(issuer: Issuer) -> None:
    """But not for each token: anybody can name one. What cannot be read changes nothing."""
    issuer.path.write_text(jwks(one=RSA, three=OTHER))
    with pytest.raises(InvalidToken, match="three"):
        issuer.verify(token(OTHER, "three"))
    issuer.shell.advance(EXPEDITED_MS_MIN)
    with pytest.raises(InvalidToken, match="three"):
        issuer.verify(token(OTHER, "three"))
    assert issuer.verify(token(OTHER, "three")) == "alice"
    issuer.path.write_text("{}")
    issuer.shell.advance(60_000)
    assert issuer.verify(token(OTHER, "three")) == "alice"
    issuer.path.write_text(jwks(one=RSA))
    issuer.shell.advance(60_000)
    with pytest.raises(InvalidToken):
        issuer.verify(token(OTHER, "three"))
    assert issuer.verify(token(kid=None)) == "alice"


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"keys": 7}', '{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', '{"keys": [7, {"kty": "RSA"}]}'],
)
def test_what_is_no_jwks_stops_the_start(tmp_path: Path, content: str) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(content)
    with pytest.raises(ValueError):  # noqa: PT011  # JSON's among them.
        read_jwks(path.as_uri())
    shell = ManualShell(ManualClock())
    with pytest.raises(BrokerFailed, match=r"jwks\.json"):
        IssuerKeys(path.as_uri(), shell, shell.clock, 60_000).open().result()  # type: ignore[arg-type]


# On a broker.


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    path = tmp_path_factory.mktemp("issuer") / "jwks.json"
    path.write_text(jwks(one=RSA))
    settings = {
        "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "listener.name.clients.sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": path.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "connection.failed.authentication.delay.ms": 20,
    }
    with Cluster(settings) as started:
        yield started


def connect(cluster: Cluster, security: ClientSecurity) -> BlockingCluster:
    return BlockingCluster(cluster.bootstrap, security=security, fail_fast=True, operation_timeout_s=10)


def ask(client: BlockingCluster) -> Any:
    request = messages.MetadataRequest(topics=[])
    return client.run(client.routing.ask_any(request, client.routing.deadline(10)))


def test_our_client_shows_a_token_of_a_program_or_a_file(cluster: Cluster, tmp_path: Path) -> None:
    with connect(cluster, ClientSecurity("SASL_PLAINTEXT", TokenSource(token))) as client:
        assert ask(client).brokers
    path = tmp_path / "a token"
    path.write_text(token() + "\n")
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": path.as_uri(),
    }
    with connect(cluster, ClientSecurity.from_properties(properties)) as client:
        assert ask(client).brokers


def test_our_client_is_told_at_once(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """The log says why, and has nothing of the token."""
    bad = token(aud="another")
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(AuthenticationError, match="invalid_token"),
        connect(cluster, ClientSecurity("SASL_PLAINTEXT", TokenSource(lambda: bad))) as client,
    ):
        ask(client)
    assert "authentication_failed" in caplog.text
    assert "Audience" in caplog.text
    assert bad.rpartition(".")[2] not in caplog.text
    with (
        pytest.raises(AuthenticationError, match="no bearer token"),
        connect(cluster, ClientSecurity("SASL_PLAINTEXT", TokenSource(lambda: ""))) as client,
    ):
        ask(client)


def librdkafka(cluster: Cluster, text: str, **more: Any) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": cluster.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (text, time.time() + 60),
            **more,
        }
    )


def test_librdkafka_gets_in_with_a_good_token_only(cluster: Cluster) -> None:
    assert librdkafka(cluster, token()).list_topics(timeout=180).brokers
    errors: list[KafkaError] = []
    admin = librdkafka(cluster, token(OTHER), error_cb=errors.append)
    until(lambda: admin.poll(0.05) is not None and bool(errors))
    assert errors[0].code() == KafkaError._AUTHENTICATION


def test_tokens_without_a_signature_are_for_those_who_say_so(caplog: pytest.LogCaptureFixture) -> None:
    """Brokers among themselves too; a WARNING at each start."""
    jaas = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": f'{jaas}"broker";',
    }
    with caplog.at_level(logging.WARNING), Cluster(settings, brokers=1) as cluster:
        assert "accepts bearer tokens without a signature" in caplog.text
        properties = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f'{jaas}"alice";',
        }
        with connect(cluster, ClientSecurity.from_properties(properties)) as client:
            assert ask(client).brokers
        with (
            pytest.raises(AuthenticationError),
            connect(cluster, ClientSecurity("SASL_PLAINTEXT", TokenSource(token))) as client,
        ):
            ask(client)
