"""A producer's compressed batch is stored unopened; whoever can't read it is told where it is and how to go on."""

from __future__ import annotations

import io
from contextlib import closing, redirect_stderr, redirect_stdout

import pytest
from tests.interop.support import topic_name
from tests.scenarios.observing import create, send

from tidelog import cli
from tidelog.client.blocking import BlockingCluster
from tidelog.model.identifiers import TopicPartition
from tidelog.records.batch import Codec, Record, assemble, build_batch, read_header
from tidelog.testing import Cluster


@pytest.fixture(scope="module")
def topic(broker: Cluster) -> str:
    """Offset 0 is good, offset 1 claims to be gzip and is not, offset 2 is good."""
    name = topic_name("unreadable")
    create(broker, name, retention_ms=-1)
    assert not send(broker, name, [b"before"])
    header = read_header(build_batch([Record(0, 0, None, b"value")], codec=Codec.GZIP))
    with closing(BlockingCluster(broker.bootstrap)) as cluster:
        cluster.produce(TopicPartition(name, 0), assemble(header, b"no gzip at all"))
    assert not send(broker, name, [b"after"])
    return name


def consumed(broker: Cluster, topic: str, *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of `tidelog consume`."""
    output, errors = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        code = cli.run(["consume", topic, *arguments, "--bootstrap-server", broker.bootstrap])
        output.flush()
        return code, output.buffer.getvalue().decode(), errors.getvalue()  # type: ignore[attr-defined]


def test_the_place_is_named(broker: Cluster, topic: str) -> None:
    """Records before it come out; then the partition, the offset, the reason and what can be done."""
    code, output, errors = consumed(broker, topic)
    assert (code, output) == (1, "before\n")
    assert f"the batch at offset 1 of {topic}-0 cannot be read" in errors
    assert "gzip" in errors
    assert "later offset" in errors


def test_what_follows_can_be_read(broker: Cluster, topic: str) -> None:
    """From the offset behind it."""
    assert consumed(broker, topic, "--from", "2")[:2] == (0, "after\n")
