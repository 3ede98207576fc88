"""Settings altered by AdminClient and by the tool are described by both and in force without a restart."""

from __future__ import annotations

import io
from contextlib import redirect_stdout

import pytest
from tests.interop.support import topic_name
from tests.scenarios.observing import alter, create, described, log_of, send

from tidelog import cli
from tidelog.testing import Cluster

pytestmark = pytest.mark.row("R07")


def tool(broker: Cluster, *arguments: str) -> str:
    """What the command prints; it must succeed."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        code = cli.run([*arguments, "--bootstrap-server", broker.bootstrap])
    assert code == 0, printed.getvalue()
    return printed.getvalue()


def test_flush_messages(broker: Cluster) -> None:
    """With flush.messages=1 what is acknowledged is on the device; before and afterwards it need not be."""
    topic = topic_name("flushed")
    create(broker, topic)
    log = log_of(broker, topic)
    assert not send(broker, topic, [b"a"] * 3)
    assert broker.call(lambda: (log.flushed_offset, log.log_end_offset)) == (0, 3)
    alter(broker, topic, flush_messages=1)
    assert described(broker, topic)["flush.messages"] == "1"
    assert not send(broker, topic, [b"b"])
    assert broker.call(lambda: (log.flushed_offset, log.log_end_offset)) == (4, 4)
    alter(broker, topic, flush_messages=1000)
    assert not send(broker, topic, [b"c"])
    assert broker.call(lambda: (log.flushed_offset, log.log_end_offset)) == (4, 5)


def test_cleanup_policy(broker: Cluster) -> None:
    """A topic that is compacted from now on refuses records without keys, and takes them again when it is not."""
    topic = topic_name("policy")
    create(broker, topic)
    assert described(broker, topic)["cleanup.policy"] == "delete"
    assert not send(broker, topic, [b"no key"])
    alter(broker, topic, cleanup_policy="compact")
    assert described(broker, topic)["cleanup.policy"] == "compact"
    assert send(broker, topic, [b"no key"]) == ["INVALID_RECORD"]
    assert not send(broker, topic, [b"value"], key=b"key")
    alter(broker, topic, cleanup_policy="delete")
    assert not send(broker, topic, [b"no key"])


def test_max_message_bytes(broker: Cluster) -> None:
    """What was too large is taken once the topic allows it."""
    topic = topic_name("large")
    create(broker, topic, max_message_bytes=1000)
    assert send(broker, topic, [bytes(2000)]) == ["MSG_SIZE_TOO_LARGE"]
    alter(broker, topic, max_message_bytes=3000)
    assert not send(broker, topic, [bytes(2000)])


def test_the_tool_and_the_client_see_the_same(broker: Cluster) -> None:
    """`tidelog configs` alters what AdminClient describes, in Kafka's words."""
    topic = topic_name("both")
    create(broker, topic, retention_ms=1000)
    tool(broker, "configs", "alter", "--topic", topic, "--set", "flush.messages=7")
    assert described(broker, topic)["flush.messages"] == "7"
    alter(broker, topic, cleanup_policy="compact,delete")
    printed = tool(broker, "configs", "describe", "--topic", topic, "-o", "kafka")
    for line in ("flush.messages=7", "cleanup.policy=compact,delete", "retention.ms=1000"):
        assert line in printed
