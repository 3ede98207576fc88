"""TLS and SASL towards ZooKeeper: an encrypting door before the embedded store's server, a login that it refuses."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.certificates import Authority
from tests.unit.store.serving import Served, run

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.properties import ConfigError
from tidelog.config.zookeeper_security import DIGEST_MODULE, SaslUser
from tidelog.store.errors import AuthFailed, ConnectionLoss
from tidelog.store.security import StoreSecurity, security_of
from tidelog.store.zookeeper import ZooKeeperStore


@pytest.fixture
def served() -> Iterator[Served]:
    with Served() as served:
        yield served


@contextlib.asynccontextmanager
async def encrypted(hosts: str, pem: Path, trusted: Path | None = None) -> AsyncIterator[str]:
    """A TLS server before a plain one; its address. With `trusted` clients must show a certificate."""
    host, port = hosts.split(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    if trusted is not None:
        context.load_verify_locations(trusted)
        context.verify_mode = ssl.CERT_REQUIRED
    writers: list[asyncio.StreamWriter] = []

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        await asyncio.gather(forward(reader, back), forward(there, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.close()


def secured(**settings: object) -> StoreSecurity:
    """What a broker's settings `zookeeper.ssl.*` say."""
    named = {f"zookeeper.ssl.{name.replace('_', '.')}": value for name, value in settings.items()}
    return security_of(BrokerConfig.from_mapping({"zookeeper.ssl.client.enable": True, **named}))


async def connect(hosts: str, security: StoreSecurity, timeout_ms: int = 15_000) -> ZooKeeperStore:
    return await ZooKeeperStore.connect(
        hosts, session_timeout_ms=30_000, connection_timeout_ms=timeout_ms, security=security
    )


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_sessions_over_tls(served: Served, authority: Authority, version: str) -> None:
    """Large values and many small ones go both ways, with a client's certificate."""
    pem = authority.issue("zookeeper", "/CN=zookeeper")

    async def scenario() -> None:
        async with encrypted(served.hosts, pem, authority.certificate) as hosts:
            store = await connect(
                hosts,
                secured(keystore_location=pem, truststore_location=authority.certificate, truststore_type="PEM",
                        protocol=version),
            )  # fmt: skip
            try:
                large = bytes(range(256)) * 3_000
                await store.create("/large", large)
                await asyncio.gather(*(store.create(f"/small-{number}", b"x") for number in range(300)))
                assert (await store.get("/large"))[0] == large
                assert len((await store.children("/"))[0]) >= 301
            finally:
                await store.close()

    run(scenario)


def test_servers_that_are_not_trusted(served: Served, authority: Authority, tmp_path: Path) -> None:
    """A foreign CA, a wrong name, no TLS at all: no session, and the reason."""
    foreign = Authority(tmp_path / "foreign", "foreign CA")
    ours = secured(truststore_location=authority.certificate, truststore_type="PEM")
    wrong = authority.issue("wrong", "/CN=broker", "DNS:elsewhere")

    async def refused(hosts: str, reason: str, security: StoreSecurity = ours) -> None:
        with pytest.raises(ConnectionLoss, match=reason):
            await connect(hosts, security, 1_000)

    async def scenario() -> None:
        async with encrypted(served.hosts, foreign.issue("server", "/CN=zookeeper")) as hosts:
            await refused(hosts, "TLS: .*self.signed|unable to get local issuer")
        async with encrypted(served.hosts, wrong) as hosts:
            await refused(hosts, "TLS: .*mismatch|doesn.t match")
            unchecked = secured(
                truststore_location=authority.certificate, truststore_type="PEM", endpoint_identification_algorithm=""
            )
            await (await connect(hosts, unchecked)).close()
        await refused(served.hosts, "TLS: ")

    run(scenario)


def test_a_login_that_is_refused(served: Served) -> None:
    """The embedded store has no users for SASL: the reason is said, and nothing is tried again."""

    async def scenario() -> None:
        with pytest.raises(AuthFailed, match="login to the metadata store failed"):
            await connect(f"{served.hosts}/kafka", StoreSecurity(sasl=SaslUser("tidelog", "secret")))

    run(scenario)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"zookeeper.ssl.client.enable": True, "zookeeper.ssl.truststore.location": "/trust.jks"}, "keytool"),
        (
            {
                "zookeeper.ssl.client.enable": True,
                "zookeeper.ssl.keystore.location": "/k",
                "zookeeper.ssl.keystore.type": "JKS",
            },
            "keystore.location is a key store of the type JKS",
        ),
        ({"zookeeper.ssl.client.enable": True, "zookeeper.ssl.crl.enable": True}, "revoked"),
        ({"zookeeper.sasl.jaas.config": "nonsense"}, "cannot be used"),
        ({"zookeeper.sasl.jaas.config": 'com.sun.Krb5LoginModule required keyTab="x";'}, "is the only one"),
        ({"zookeeper.sasl.jaas.config": f'{DIGEST_MODULE} required username="a";'}, "no password"),
        ({"zookeeper.set.acl": True, "zookeeper.connect": "a:1"}, "credentials"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        BrokerConfig.from_mapping(settings)


def test_settings_are_read() -> None:
    """The words of Kafka's JAAS file; nothing shows the password."""
    text = f'{DIGEST_MODULE} required username="kafka" password="kafka-secret";'
    config = BrokerConfig.from_mapping(
        {"zookeeper.connect": "a:1", "zookeeper.set.acl": True, "zookeeper.sasl.jaas.config": text}
    )
    security = security_of(config)
    assert security.sasl == SaslUser("kafka", "kafka-secret")
    assert security.owned
    assert security.tls is None
    assert "kafka-secret" not in repr(security)
