"""kcat: what people at a terminal use."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.clients import scenarios
from tidelog.testing import Cluster

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def broker() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def kcat(broker: Cluster, *arguments: str, input: str = "") -> str:
    """Runs kcat; its output."""
    done = subprocess.run(
        ["kcat", "-b", broker.bootstrap, *arguments],
        input=input,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.row("R37")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_lines_go_in_and_come_out(broker: Cluster, codec: str, acks: str) -> None:
    """Keys, nulls and headers too; the topic is created by being written to."""
    topic = f"kcat-{codec}-{acks}"
    kcat(broker, "-L", "-t", topic)
    lines = "".join(f"k{number}\tv{number}\n" for number in range(100))
    settings = ["-X", f"acks={acks}", "-z", codec, "-H", "name=value"]
    kcat(broker, "-P", "-t", topic, "-p", "0", "-K", "\t", *settings, input=lines)
    kcat(broker, "-P", "-t", topic, "-p", "0", "-K", "\t", "-Z", *settings, input="gone\t\n")
    text = kcat(broker, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-J")
    records = [json.loads(line) for line in text.splitlines()]
    assert [(record["key"], record["payload"]) for record in records] == [
        *((f"k{number}", f"v{number}") for number in range(100)),
        ("gone", None),
    ]
    assert {tuple(record["headers"]) for record in records} == {("name", "value")}
    assert [record["offset"] for record in records] == list(range(101))


def test_offsets_and_times(broker: Cluster) -> None:
    """From an offset, from the end, by timestamp."""
    kcat(broker, "-L", "-t", "kcat-offsets")
    kcat(broker, "-P", "-t", "kcat-offsets", "-p", "0", input="a\nb\nc\n")
    read = ("-C", "-t", "kcat-offsets", "-p", "0", "-e", "-q")
    assert kcat(broker, *read, "-o", "1") == "b\nc\n"
    assert kcat(broker, *read, "-o", "-1") == "c\n"
    assert kcat(broker, *read, "-o", "s@0") == "a\nb\nc\n"
    assert "offset 0" in kcat(broker, "-Q", "-t", "kcat-offsets:0:0")
    assert "offset 3" in kcat(broker, "-Q", "-t", "kcat-offsets:0:-1")


def test_metadata(broker: Cluster) -> None:
    """The broker, the topic, its leader."""
    kcat(broker, "-L", "-t", "kcat-metadata")
    text = kcat(broker, "-L", "-J", "-t", "kcat-metadata")
    metadata = json.loads(text)
    assert [found["name"] for found in metadata["brokers"]] == [broker.bootstrap]
    (topic,) = metadata["topics"]
    assert [(partition["leader"], partition["isrs"]) for partition in topic["partitions"]] == [(0, [{"id": 0}])]


@pytest.mark.row("R15")
def test_a_group(tmp_path: Path) -> None:
    """kcat -G: three members, of which one leaves, one is killed and comes back."""
    with scenarios.site(tmp_path) as site:
        scenarios.membership(site, ["kcat"] * 3)
