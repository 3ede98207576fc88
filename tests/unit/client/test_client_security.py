"""Our client on a secured cluster: by Kafka's property names, with its errors told at once."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog import cli
from tidelog.client.addresses import Address, parse_bootstrap
from tidelog.client.blocking import BlockingCluster
from tidelog.client.blocking_connection import BlockingConnection
from tidelog.client.cluster import Cluster as ClientCluster
from tidelog.client.connection import Connection
from tidelog.client.errors import AuthenticationError, ConnectionFailed, UnsupportedSecurity
from tidelog.client.security import ClientSecurity
from tidelog.protocol import messages
from tidelog.security.sasl_client import TokenSource
from tidelog.testing import Cluster

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN} user_alice="hunter2";',
    "connection.failed.authentication.delay.ms": "10",
    "connections.max.reauth.ms": "3600000",
}
PROPERTIES = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "hunter2",
}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of the SASL listener."""
    with Cluster(SETTINGS) as cluster:
        yield cluster.runtime.addresses[1]


def test_blocking_and_asyncio_clusters_authenticate(address: str) -> None:
    """With either way of naming user and password; and again when the session is about to end."""
    java = {**PROPERTIES, "sasl.jaas.config": f'{PLAIN} username="alice" password="hunter2";'}
    del java["sasl.password"]
    with BlockingCluster(address, security=ClientSecurity.from_properties(java)) as cluster:
        topics = cluster.topics()
        first = dict(cluster._connections)
        for connection in first.values():
            assert connection._renew_at_s is not None
            connection._renew_at_s = 0.0
        assert cluster.topics() == topics
        assert all(connection.closed for connection in first.values())

    async def ask() -> None:
        async with ClientCluster(address, security=ClientSecurity.from_properties(PROPERTIES)) as cluster:
            await cluster.run(cluster.routing.refresh(None, cluster.routing.deadline()))
            (first,) = cluster._connections.values()
            await renews(first)
            await cluster.run(cluster.routing.refresh(None, cluster.routing.deadline()))
            assert list(cluster._connections.values()) == [first]

    asyncio.run(ask())


async def renews(connection: Connection) -> None:
    """A connection authenticates anew, once, before requests that come together; all are answered on it."""
    connection._renew_at_s = 0.0
    sent = connection._exchange._last_id
    requests = [messages.MetadataRequest(topics=[]) for _ in range(3)]
    answers = await asyncio.gather(*(connection.request(request, timeout_s=180) for request in requests))
    assert all(answer.brokers for answer in answers)
    assert not connection.closed
    assert connection._renew_at_s
    assert connection._exchange._last_id == sent + 5, "SaslHandshake, SaslAuthenticate, and the requests"


def test_a_connection_of_its_own_authenticates_anew(address: str) -> None:
    """Those to coordinators, and of share sessions, which end with their connection (KIP-368). A request that is
    given up meanwhile leaves the others theirs."""

    async def ask() -> None:
        async with ClientCluster(address, security=ClientSecurity.from_properties(PROPERTIES)) as cluster:
            connection = await cluster.open(parse_bootstrap(address)[0])
            connection._renew_at_s = 0.0
            given_up = asyncio.create_task(connection.request(messages.MetadataRequest(topics=[]), timeout_s=180))
            other = asyncio.create_task(connection.request(messages.MetadataRequest(topics=[]), timeout_s=180))
            await asyncio.sleep(0)
            given_up.cancel()
            assert (await other).brokers
            assert given_up.cancelled()
            assert not connection.closed
            connection.close()

    asyncio.run(ask())


def test_a_refused_renewal_ends_the_connection(address: str) -> None:
    """Before the request was sent: it can be asked again by another connection, which tells what is wrong."""

    async def ask() -> None:
        async with ClientCluster(address, security=ClientSecurity.from_properties(PROPERTIES)) as cluster:
            connection = await cluster.open(parse_bootstrap(address)[0])
            connection._renew_at_s = 0.0
            connection._security = ClientSecurity.from_properties({**PROPERTIES, "sasl.password": "wrong"})
            with pytest.raises(ConnectionFailed, match="nvalid"):
                await connection.request(messages.MetadataRequest(topics=[]), timeout_s=180)
            assert connection.closed
            assert connection._renewal is None

    asyncio.run(ask())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_wrong_credentials_end_an_operation_at_once(address: str, mechanism: str) -> None:
    """Not after its deadline: asking again is of no use."""
    wrong = ClientSecurity.from_properties({**PROPERTIES, "sasl.mechanism": mechanism, "sasl.password": "wrong"})
    with BlockingCluster(address, security=wrong) as cluster, pytest.raises(AuthenticationError, match="nvalid"):
        cluster.topics()

    async def ask() -> None:
        async with ClientCluster(address, security=wrong) as cluster:
            await cluster.run(cluster.routing.refresh(None, cluster.routing.deadline()))

    with pytest.raises(AuthenticationError, match="nvalid"):
        asyncio.run(ask())


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"security.protocol": "KERBEROS"}, "security.protocol KERBEROS is not supported"),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "x.jks"},
            "type=PEM or PKCS12, and it is JKS.*keytool",
        ),
        (
            {
                "security.protocol": "SSL",
                "ssl.keystore.location": "/nowhere.p12",
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.password": "hunter4",
            },
            "ssl.keystore.location cannot be read: .*/nowhere.p12",
        ),
        (
            {"security.protocol": "SSL", "ssl.ca.location": "/nowhere.pem"},
            "ssl.ca.location: /nowhere.pem cannot be read",
        ),
        ({"security.protocol": "SSL", "ssl.ca.pem": "nonsense"}, "the trusted certificates cannot be used"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism GSSAPI is not supported"),
        ({"sasl.password": ""}, "user and password are missing"),
        ({"sasl.jaas.config": 'X required password="hunter3'}, "sasl.jaas.config cannot be read"),
    ],
)
def test_what_cannot_be_done_is_said(changed: dict[str, str], reason: str) -> None:
    """Before anything is sent, and without a password."""
    with pytest.raises(UnsupportedSecurity, match=reason) as caught:
        ClientSecurity.from_properties({**PROPERTIES, **changed})
    assert "hunter" not in str(caught.value)
    assert "hunter" not in repr(ClientSecurity.from_properties(PROPERTIES))


def test_commands_take_a_properties_file(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--command-config before and behind the command; without it a secured listener refuses."""
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in {**PROPERTIES, "retries": "3"}.items()))
    assert cli.run(["topics", "create", "t", "-b", address, "--command-config", str(file)]) == cli.DONE
    assert cli.run([f"--command-config={file}", "-b", address, "topics", "list"]) == cli.DONE
    assert "t" in capsys.readouterr().out.split()
    assert cli.run(["topics", "list", "-b", address, "--timeout", "5"]) == cli.FAILED
    file.write_text(file.read_text().replace("hunter2", "wrong"))
    assert cli.run(["topics", "list", "-b", address, "--command-config", str(file)]) == cli.FAILED
    assert "Invalid username or password" in capsys.readouterr().err
    assert cli.run(["topics", "list", "--command-config"]) == cli.WRONG_USAGE
    with contextlib.redirect_stderr(io.StringIO()):
        assert cli.run(["dump", "--command-config", str(file), "x"]) == cli.WRONG_USAGE


async def test_whatever_a_users_own_source_of_tokens_raises_is_a_failed_login() -> None:
    """Heartbeats and commits know what connections raise: an error of a library that they do not know ended them."""

    class RefreshError(Exception):
        """As libraries for tokens have it."""

    def refuse() -> str:
        raise RefreshError("the instance has no role")

    security = ClientSecurity("SASL_PLAINTEXT", TokenSource(refuse))
    with pytest.raises(AuthenticationError, match="no bearer token to log in with: the instance has no role"):
        await Connection.connect(Address("127.0.0.1", 9), security=security)
    with pytest.raises(AuthenticationError, match="the instance has no role"):
        BlockingConnection(Address("127.0.0.1", 9), client_id="test", security=security)
