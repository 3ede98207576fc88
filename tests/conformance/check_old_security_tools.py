"""Kafka's old tools, which write ACLs, SCRAM users and quotas into the store by themselves.

Each command is typed three times: at Debian's ZooKeeper with no broker, which shows what it leaves there, at our own
store and at a ZooKeeper ensemble with the metadata of brokers of ours. The nodes have to be the same, and the brokers
have to honour what they say; what our brokers write for the same change, by the API, has to be the same again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AclBindingFilter, AclOperation, AclPermissionType, AdminClient, ResourcePatternType
from confluent_kafka.admin import ResourceType as Resource
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.conformance.documents.tools import run
from tests.conformance.zookeeper import server
from tests.waiting import until
from tidelog.client import admin
from tidelog.client.blocking import BlockingCluster
from tidelog.client.security import ClientSecurity
from tidelog.quotas.entities import Entity
from tidelog.testing import Cluster

pytestmark = pytest.mark.nightly

ROOTS: Final = ("/kafka-acl", "/kafka-acl-changes", "/kafka-acl-extended", "/kafka-acl-extended-changes",
                "/config/users", "/config/clients")  # fmt: skip
ACLS: Final = (
    ("--add", "--allow-principal", "User:alice", "--operation", "Read", "--operation", "Write", "--topic", "orders"),
    ("--add", "--deny-principal", "User:bob", "--deny-host", "203.0.113.3", "--operation", "Read", "--topic", "orders"),
    ("--add", "--allow-principal", "User:alice", "--operation", "Read", "--group", "g-",
     "--resource-pattern-type", "prefixed"),
    ("--add", "--allow-principal", "User:kate", "--operation", "Alter", "--cluster"),
    ("--remove", "--force", "--allow-principal", "User:alice", "--operation", "Write", "--topic", "orders"),
)  # fmt: skip
SETTINGS: Final = (
    ("users", "boot", "SCRAM-SHA-256=[iterations=8192,password=boot-secret]"),
    ("users", "boot", "producer_byte_rate=1024"),
    ("clients", "clientA", "consumer_byte_rate=2048"),
)
_SECRETS: Final = re.compile(r"(salt|stored_key|server_key)=[^,\"]*")


def tree(store: str) -> dict[str, Any]:
    """[path] -> content, without what chance or time is in: the order of ACLs, salts, the broker's own users."""
    client = KazooClient(hosts=store)
    client.start()
    found: dict[str, Any] = {}

    def look(path: str) -> None:
        try:
            data, _ = client.get(path)
            children = client.get_children(path)
        except NoNodeError:
            return
        found[path] = content(data)
        for name in children:
            if f"{path}/{name}" not in ("/config/users/admin", "/config/users/alice"):
                look(f"{path}/{name}")

    try:
        for root in ROOTS:
            look(root)
        changes = [] if client.exists("/config/changes") is None else sorted(client.get_children("/config/changes"))
        told = [content(client.get(f"/config/changes/{name}")[0]) for name in changes]
        found["/config/changes"] = [each for each in told if not str(each).endswith(("/admin'}", "/alice'}"))]
    finally:
        client.stop()
        client.close()
    return found


def content(data: bytes | None) -> Any:
    text = _SECRETS.sub(r"\1=...", (data or b"").decode())
    if not text.startswith("{"):
        return text
    decoded = json.loads(text)
    if "acls" in decoded:
        decoded["acls"] = sorted(decoded["acls"], key=str)
    return decoded


def without_changes(found: dict[str, Any]) -> dict[str, Any]:
    """Without the notifications, which brokers delete when their time has come."""
    return {path: data for path, data in found.items() if "changes" not in path}


def notifications(found: dict[str, Any]) -> list[Any]:
    """In their order; 2.2.1 writes `Topic:` for `TOPIC:`, which Kafka's brokers read the same."""
    told = [data for path, data in sorted(found.items()) if "-changes/" in path]
    return [str(each).upper() for each in told] + found["/config/changes"]


def type_all(release: str, *, acls_at: Sequence[str], settings_at: Sequence[str]) -> None:
    """All commands, of one release; what they are pointed at are options of the two tools."""
    for arguments in ACLS:
        done = run(release, "kafka-acls", *acls_at, *arguments)
        assert done.status == 0, done
        assert "Error" not in done.out, done
    for kind, name, value in SETTINGS:
        entity = ("--entity-type", kind, "--entity-name", name)
        done = run(release, "kafka-configs", *settings_at, "--alter", *entity, "--add-config", value)
        assert done.status == 0, done
        assert "Completed" in done.out, done


def type_at_store(release: str, store: str) -> None:
    at = ("--authorizer-properties", f"zookeeper.connect={store}")
    type_all(release, acls_at=at, settings_at=("--zookeeper", store))


@contextmanager
def cluster(folder: Path, on_ensemble: bool) -> Iterator[Cluster]:
    """A secured cluster on a store of its own, or on a ZooKeeper that lets tools write."""
    with ExitStack() as stack:
        ensemble = f"{stack.enter_context(server(folder / 'zookeeper'))}/secured" if on_ensemble else None
        settings = {"zookeeper.set.acl": False}
        yield stack.enter_context(Cluster(settings, security=["admin", "alice"], zookeeper=ensemble))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the tools of 2.8.2 leave where no broker is."""
    with server(tmp_path_factory.mktemp("bare")) as hosts:
        client = KazooClient(hosts=hosts)
        client.start()
        for kind in ("users", "clients", "changes", "topics", "brokers", "ips"):
            client.ensure_path(f"/config/{kind}")
        client.stop()
        client.close()
        type_at_store("2.8.2", hosts)
        return tree(hosts)


def log_in(cluster: Cluster, user: str, password: str) -> None:
    """KafkaException where the user may not enter."""
    settings = {"sasl.username": user, "sasl.password": password, "sasl.mechanism": "SCRAM-SHA-256", "log_level": 0}
    AdminClient({**cluster.client(), **settings}).list_topics(timeout=15)


def acls(cluster: Cluster) -> set[tuple[Any, ...]]:
    chosen = AclBindingFilter(
        Resource.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    client = AdminClient(cluster.client())
    found = client.describe_acls(chosen).result(15)
    return {
        (each.restype.name, each.name, each.resource_pattern_type.name, each.principal, each.host,
         each.operation.name, each.permission_type.name)
        for each in found
    }  # fmt: skip


HONOURED: Final = {
    ("TOPIC", "orders", "LITERAL", "User:alice", "*", "READ", "ALLOW"),
    ("TOPIC", "orders", "LITERAL", "User:bob", "203.0.113.3", "READ", "DENY"),
    ("GROUP", "g-", "PREFIXED", "User:alice", "*", "READ", "ALLOW"),
    ("BROKER", "kafka-cluster", "LITERAL", "User:kate", "*", "ALTER", "ALLOW"),
}


@pytest.mark.parametrize(
    ("release", "on_ensemble"),
    [("2.8.2", False), ("2.8.2", True), ("2.2.1", False)],
    ids=["2.8.2-own", "2.8.2-zookeeper", "2.2.1-own"],
)
def test_old_tools_at_our_brokers_store(
    expected: dict[str, Any], tmp_path: Path, release: str, on_ensemble: bool
) -> None:
    """The nodes are those that Kafka's has; brokers honour them within moments."""
    with cluster(tmp_path, on_ensemble) as running:
        type_at_store(release, running.store)
        judge(running, expected)


def test_the_api_leaves_the_same_nodes(expected: dict[str, Any], tmp_path: Path) -> None:
    """What our brokers write where the same tool asks them, on ZooKeeper."""
    with cluster(tmp_path, on_ensemble=True) as running:
        at = ("--bootstrap-server", running.bootstrap, "--command-config", running.client_properties())
        type_all("2.8.2", acls_at=at, settings_at=at)
        judge(running, expected)


def judge(cluster: Cluster, expected: dict[str, Any]) -> None:
    """The nodes in the cluster's store, and what its broker makes of them."""
    found = tree(cluster.store)
    assert without_changes(found) == without_changes(expected) | containers(found)
    assert notifications(found) == notifications(expected)
    until(lambda: acls(cluster) == HONOURED, limit_s=15)
    until(lambda: enters(cluster, "boot", "boot-secret"), limit_s=15)
    assert not enters(cluster, "boot", "another")
    until(lambda: quotas(cluster) == QUOTAS, limit_s=15)


QUOTAS: Final = {
    Entity.of({"user": "boot"}): {"producer_byte_rate": 1024.0},
    Entity.of({"client-id": "clientA"}): {"consumer_byte_rate": 2048.0},
}


def quotas(cluster: Cluster) -> dict[Entity, dict[str, float]]:
    security = ClientSecurity.from_properties(cluster.client())
    with BlockingCluster(cluster.bootstrap, security=security) as client:
        return client.run(admin.describe_quotas(client.routing))


def containers(found: dict[str, Any]) -> dict[str, Any]:
    """The empty nodes that a broker of 3.9 makes at its start and tools of 2.8 do not."""
    return {path: data for path, data in found.items() if data == "" and path.rpartition("/")[2] == "User"}


def enters(cluster: Cluster, user: str, password: str) -> bool:
    try:
        log_in(cluster, user, password)
    except KafkaException:
        return False
    return True
