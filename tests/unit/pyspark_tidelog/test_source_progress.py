"""Progress as a group's offsets: shown when it is reached, and tried again where that failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.unit.pyspark_tidelog.spark_fixtures import Broker

import pyspark_tidelog.progress
import tidelog.client.routing
from pyspark_tidelog.options import parse_options
from pyspark_tidelog.progress import PUBLISHED_AGAIN_S, Progress
from pyspark_tidelog.stream import TidelogStreamReader
from tidelog.model.identifiers import TopicPartition

pytestmark = [pytest.mark.row("R38")]

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


class Groups:
    """What was committed; refuses while `is_down`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_down = False
        self.attempts: list[dict[TopicPartition, int]] = []
        monkeypatch.setattr(pyspark_tidelog.progress, "publish", self._publish)

    def _publish(self, cluster: Any, group: str, offsets: Mapping[TopicPartition, int]) -> bool:
        self.attempts.append(dict(offsets))
        return not self.is_down


def test_what_could_not_be_published_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when no offset moves any more, after a pause; nothing that is shown is committed anew."""
    groups, now = Groups(monkeypatch), [0.0]
    progress, cluster = Progress("g", lambda: now[0]), Any
    groups.is_down = True
    progress.reached({A: 5})
    progress.publish(cluster)  # type: ignore[arg-type]
    progress.publish(cluster)  # type: ignore[arg-type]
    assert groups.attempts == [{A: 5}]
    groups.is_down = False
    now[0] += PUBLISHED_AGAIN_S
    progress.reached({B: 1})
    progress.publish(cluster)  # type: ignore[arg-type]
    assert groups.attempts[1:] == [{A: 5, B: 1}]
    progress.reached({A: 5, B: 1})
    progress.publish(cluster, at_once=True)  # type: ignore[arg-type]
    assert len(groups.attempts) == 2


def test_an_idle_stream_publishes_what_it_could_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark asks an idle query on and on, and stops it: both are occasions."""
    groups = Groups(monkeypatch)
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "a", "progressGroup": "g"}
    stream = TidelogStreamReader(parse_options(given, streaming=True))
    groups.is_down = True
    stream.commit({"a": {"0": 5}})
    stream.commit({"a": {"0": 5}})
    assert len(groups.attempts) == 1
    groups.is_down = False
    stream.stop()
    assert groups.attempts[1:] == [{A: 5}]


def test_a_topic_that_is_gone_holds_up_no_others_progress(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A query that may go on without it keeps its place; a partition that is not there is the same."""
    monkeypatch.setattr(tidelog.client.routing, "UNKNOWN_TOPIC_PATIENCE_S", 0.0)
    topic, gone = broker.topic(), broker.topic()
    stream = TidelogStreamReader(parse_options(broker.options(f"{topic},{gone}", progressGroup=topic), streaming=True))
    broker.delete(gone)
    for offset in (5, 6):
        stream.commit({topic: {"0": offset, "7": 3}, gone: {"0": 9}})
        assert broker.committed(topic, topic) == {0: offset}
    stream.stop()
    assert len(caplog.records) == 1
    assert gone in caplog.text
