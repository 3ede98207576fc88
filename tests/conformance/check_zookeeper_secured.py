"""ZooKeeper with TLS and SASL DIGEST-MD5: a cluster of ours keeps its metadata there, as its own.

The server is the one that Kafka 3.9 brings: Debian's has no Netty that it works with, which it needs for TLS.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from tests.certificates import Authority
from tests.conformance.documents.tools import jars
from tests.conformance.zookeeper import Server
from tests.ports import free_port
from tests.waiting import until
from tidelog.broker.failure import BrokerFailed
from tidelog.client.blocking import BlockingCluster
from tidelog.config.zookeeper_security import DIGEST_MODULE
from tidelog.testing import Cluster

MECHANISM = "org.apache.zookeeper.server.auth"


class Secured(NamedTuple):
    """A server that runs, and a broker's settings for it."""

    plain: str
    encrypted: str
    settings: dict[str, object]


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("zookeeper")
    authority = Authority(tmp_path_factory.mktemp("ca"))
    key, client = authority.issue("zookeeper", "/CN=zookeeper"), authority.issue("broker", "/CN=broker")
    trusted = folder / "trusted.pem"
    trusted.write_bytes(authority.certificate.read_bytes())
    users = folder / "jaas.conf"
    users.write_text(f'Server {{ {DIGEST_MODULE} required user_tidelog="tide-secret"; }};\n')
    port = free_port()
    lines = [
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
        f"secureClientPort={port}",
        f"ssl.keyStore.location={key}",
        "ssl.keyStore.type=PEM",
        f"ssl.trustStore.location={trusted}",
        "ssl.trustStore.type=PEM",
        f"authProvider.1={MECHANISM}.SASLAuthenticationProvider",
        f"authProvider.x509={MECHANISM}.X509AuthenticationProvider",
    ]
    login = f"-Djava.security.auth.login.config={users}"
    server = Server(folder / "data", lines, options=[login], classes=f"{jars('3.9.1')}/*")
    server.start()
    try:
        until(lambda: server.mode, lambda: server.log)
        yield Secured(
            server.hosts,
            f"127.0.0.1:{port}",
            {
                "zookeeper.ssl.client.enable": True,
                "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
                "zookeeper.ssl.keystore.location": client,
                "zookeeper.ssl.keystore.type": "PEM",
                "zookeeper.ssl.truststore.location": trusted,
                "zookeeper.ssl.endpoint.identification.algorithm": "HTTPS",
                "zookeeper.sasl.jaas.config": f'{DIGEST_MODULE} required username="tidelog" password="tide-secret";',
                "zookeeper.set.acl": True,
            },
        )
    finally:
        server.kill()


def test_a_cluster_over_tls_and_sasl(zookeeper: Secured) -> None:
    """Topics are made; nodes belong to sasl:tidelog, and others read all but what has passwords in it."""
    chroot = "/secured"
    with Cluster(zookeeper.settings, brokers=2, zookeeper=f"{zookeeper.encrypted}{chroot}") as cluster:
        with BlockingCluster(cluster.bootstrap) as client:
            assert client.topics() is not None
        reader = KazooClient(hosts=f"{zookeeper.plain}{chroot}")
        reader.start()
        try:
            lists = {path: reader.get_acls(path)[0] for path in ("/brokers/ids/0", "/controller")}
            with pytest.raises(NoAuthError):
                reader.get_acls("/config/users")
        finally:
            reader.stop()
            reader.close()
        entries = {path: {(each.id.scheme, each.id.id): each.perms for each in acls} for path, acls in lists.items()}
        for path in ("/brokers/ids/0", "/controller"):
            assert entries[path][("sasl", "tidelog")] == 31
            assert entries[path][("world", "anyone")] == 1


def test_a_wrong_password_stops_the_start(zookeeper: Secured) -> None:
    wrong = {"zookeeper.sasl.jaas.config": f'{DIGEST_MODULE} required username="tidelog" password="another";'}
    cluster = Cluster(zookeeper.settings | wrong, zookeeper=f"{zookeeper.encrypted}/wrong")
    with pytest.raises(BrokerFailed, match="login to the metadata store failed"):
        cluster.start()
