"""A partition's files have Kafka's names, and the dump prints them."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from tests.interop.support import topic_name
from tests.keeping import KEEPING
from tests.scenarios.observing import create, folder, names, send
from tests.waiting import until

from tidelog import cli
from tidelog.testing import Cluster

pytestmark = pytest.mark.row("R31")


def dumped(path: Path) -> str:
    """What `tidelog dump` prints."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert cli.run(["dump", str(path)]) == 0
    return printed.getvalue()


@pytest.fixture(scope="module")
def topic(broker: Cluster) -> str:
    """A topic of two segments, sent by an idempotent producer."""
    name = topic_name("files")
    create(broker, name, segment_bytes=2500, retention_ms=-1)
    idempotent = {"enable.idempotence": True, "retries": 5}
    assert not send(broker, name, [bytes(1000)] * 3, key=b"key", **idempotent)
    return name


def test_names_of_twenty_digits(broker: Cluster, topic: str) -> None:
    """Named by their first offset; the producers' state lies beside each segment but the first."""
    first, second = f"{0:020d}", f"{2:020d}"
    expected = [
        *(f"{base}{suffix}" for base in (first, second) for suffix in (".index", ".log", ".timeindex")),
        f"{second}.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    # The checkpoint comes with the flush that the roll asks for.
    until(lambda: names(broker, topic, "") == sorted(expected), "all the files, and no other")


def test_the_directorys_own_files(broker: Cluster, topic: str) -> None:
    """Kafka's checkpoints and meta.properties, in Kafka's text, once the broker has stopped."""
    with Cluster(KEEPING) as own:
        create(own, "t", 2)
        assert not send(own, "t", [b"value"] * 3, partition=1)
        own.restart()
        directory = Path(own.data, "broker-0")
        metadata = (folder(own, "t") / "partition.metadata").read_text()
        assert re.fullmatch(r"version: 0\ntopic_id: [\w-]{22}", metadata.strip())
        assert (folder(own, "t", 1) / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
        points = (directory / "recovery-point-offset-checkpoint").read_text().splitlines()
        assert points[0] == "0"
        assert int(points[1]) == len(points) - 2
        assert "t 1 3" in points
        properties = dict(
            line.split("=", 1)
            for line in (directory / "meta.properties").read_text().splitlines()
            if not line.startswith("#")
        )
        assert properties["broker.id"] == "0"
        assert properties["version"] == "0"
        assert len(properties["cluster.id"]) == 22


def test_the_dump_prints_a_segment(broker: Cluster, topic: str) -> None:
    """Batches with their producer and records with their keys."""
    text = dumped(folder(broker, topic) / f"{0:020d}.log")
    assert "starting offset: 0" in text
    assert len(re.findall(r"baseOffset: \d+ lastOffset: \d+ count: 1 baseSequence: \d+", text)) == 2
    assert text.count("isvalid: true") == 2
    assert text.count("key: key") == 2


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
def test_the_dump_prints_the_others(broker: Cluster, topic: str, suffix: str) -> None:
    """Each kind of file in its own words."""
    text = dumped(folder(broker, topic) / names(broker, topic, suffix)[-1])
    assert text.startswith("Dumping ")
    if suffix == ".snapshot":
        assert re.search(r"producerId: \d+ producerEpoch: 0 .*lastSequence", text)
