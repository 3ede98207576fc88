"""docs/operations.md's three machines, secured: the page's own files and commands, on ZooKeeper."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.conformance.check_operations import TIDELOG, Site, running
from tests.waiting import until


class SecuredSite(Site):
    """The machines, with the files of the page's section on security."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.run("secured-files")
        first = self.machines[0]
        for machine in self.three:
            text = (folder / f"{machine.address}.properties").read_text()
            machine.write("etc/tidelog/server.properties", text.replace(str(first.root), str(machine.root)))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredSite]:
    with running(SecuredSite(tmp_path_factory.mktemp("site"))) as made:
        yield made


def test_the_first_record(site: SecuredSite) -> None:
    """By the administrator, with the page's commands; an unchanged client reaches every broker."""
    assert "my first secured record" in site.run("secured-topic")
    settings = json.loads((site.folder / "secure/clients/admin.json").read_text())
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": site.bootstrap, "message.timeout.ms": 30_000, **settings})
    for partition in range(6):
        producer.produce("orders", b"x", partition=partition, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(40) == 0
    assert errors == [None] * 6


def test_a_broker_is_replaced(site: SecuredSite) -> None:
    """It is killed, comes back with its certificate, and its replicas catch up; the users are written once."""
    third = site.three[2]
    third.fail()
    site.start_zookeeper(third)
    site.start_broker(third)
    until(lambda: "orders-" not in _under_replicated(site))
    written = "initial_users_written"
    assert sum(machine.log("tidelog").count(written) for machine in site.three) == 1


def test_zookeeper_keeps_the_users_to_the_brokers(site: SecuredSite) -> None:
    """Without their credentials neither read nor changed."""
    from kazoo.client import KazooClient
    from kazoo.exceptions import NoAuthError

    client = KazooClient(f"{site.three[0].address}:2181/tidelog")
    client.start(20)
    try:
        with pytest.raises(NoAuthError):
            client.get("/config/users/admin")
        with pytest.raises(NoAuthError):
            client.create("/kafka-acl/Topic/orders", b"{}")
    finally:
        client.stop()
        client.close()


def _under_replicated(site: Site) -> str:
    command = [*shlex.split(TIDELOG), "topics", "describe", "--under-replicated-partitions", "-b", site.bootstrap]
    command += ["--command-config", "secure/clients/admin.properties"]
    return subprocess.run(command, cwd=site.folder, capture_output=True, text=True, timeout=60, check=True).stdout
