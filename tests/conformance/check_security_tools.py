"""Kafka's own kafka-acls and kafka-configs on a secured cluster: they print what they print on Kafka (tools.txt)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.conformance import java
from tidelog.testing import Cluster

JARS: Final = Path(os.environ.get("TIDELOG_KAFKA_JARS", "build/kafka-4.3.0"))
TOOLS: Final = {
    "kafka-acls": ("kafka.admin.AclCommand", "org.apache.kafka.tools.AclCommand"),
    "kafka-configs": ("kafka.admin.ConfigCommand", "org.apache.kafka.tools.ConfigCommand"),
}
TOPIC: Final = "ResourcePattern(resourceType=TOPIC, name=Test-topic, patternType=LITERAL)"
GROUP: Final = "ResourcePattern(resourceType=GROUP, name=Group-1, patternType=LITERAL)"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(security=["admin", "alice"]) as started:
        yield started


def run(cluster: Cluster, tool: str, *arguments: str, user: str = "admin") -> str:
    """What a tool of Kafka's prints, errors too."""
    for name in TOOLS[tool]:
        command = ["--bootstrap-server", cluster.bootstrap, "--command-config", cluster.client_properties(user)]
        done = java.run(JARS, name, *command, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if "ClassNotFoundException" not in done.stderr:
            return done.stdout + "".join(line for line in done.stderr.splitlines(True) if "SLF4J" not in line)
    raise AssertionError(f"{tool} is not in {JARS}")


def acl(principal: str, operation: str, host: str = "*", permission: str = "ALLOW") -> str:
    return f"\t(principal=User:{principal}, host={host}, operation={operation}, permissionType={permission})"


def lines(text: str) -> set[str]:
    return {line.replace(" \t", "\t") for line in text.splitlines() if line.strip()}


def test_acls(cluster: Cluster) -> None:
    """Added for consumers, listed by resource and by user, matched, removed; a user without the right is refused."""
    added = run(cluster, "kafka-acls", "--add", "--allow-principal", "User:Bob", "--consumer",
                "--topic", "Test-topic", "--group", "Group-1")  # fmt: skip
    assert lines(added) == {
        f"Adding ACLs for resource `{GROUP}`: ",
        f"Adding ACLs for resource `{TOPIC}`: ",
        acl("Bob", "READ"),
        acl("Bob", "DESCRIBE"),
    }
    denied = ("--deny-principal", "User:BadBob", "--deny-host", "198.51.100.3", "--operation", "Read")
    run(cluster, "kafka-acls", "--add", *denied, "--topic", "Test-topic")
    listed = run(cluster, "kafka-acls", "--list", "--topic", "Test-topic")
    assert lines(listed) == {
        f"Current ACLs for resource `{TOPIC}`:",
        acl("Bob", "READ"),
        acl("Bob", "DESCRIBE"),
        acl("BadBob", "READ", "198.51.100.3", "DENY"),
    }
    by_user = run(cluster, "kafka-acls", "--list", "--principal", "User:BadBob")
    assert lines(by_user) == {
        "ACLs for principal `User:BadBob`",
        f"Current ACLs for resource `{TOPIC}`:",
        acl("BadBob", "READ", "198.51.100.3", "DENY"),
    }
    run(cluster, "kafka-acls", "--remove", "--force", *denied, "--topic", "Test-topic")
    assert "BadBob" not in run(cluster, "kafka-acls", "--list")
    refused = run(cluster, "kafka-acls", "--list", user="alice")
    assert "ClusterAuthorizationException" in refused
    run(cluster, "kafka-acls", "--remove", "--force", "--topic", "Test-topic", "--group", "Group-1")
    assert run(cluster, "kafka-acls", "--list").strip() == ""


def test_scram_users(cluster: Cluster) -> None:
    """Made, described, refused where too weak, removed; the tool that used a password gets in with it."""
    add = ("--alter", "--entity-type", "users", "--entity-name", "zed", "--add-config")
    done = run(cluster, "kafka-configs", *add, "SCRAM-SHA-512=[iterations=8192,password=zed-secret]")
    assert done.strip() == "Completed updating config for user zed."
    described = run(cluster, "kafka-configs", "--describe", "--entity-type", "users", "--entity-name", "zed")
    assert described.strip() == ("SCRAM credential configs for user-principal 'zed' are SCRAM-SHA-512=iterations=8192")
    weak = run(cluster, "kafka-configs", *add, "SCRAM-SHA-256=[iterations=100,password=x]")
    assert "Iterations 100 is less than the minimum 4096 required for SCRAM-SHA-256" in weak
    delete = ("--alter", "--entity-type", "users", "--entity-name", "zed", "--delete-config", "SCRAM-SHA-512")
    assert run(cluster, "kafka-configs", *delete).strip() == "Completed updating config for user zed."
    again = run(cluster, "kafka-configs", *delete)
    assert "Attempt to delete a user credential that does not exist" in again
