"""docs/monitoring: the board is what its module makes, every metric that it or an alert asks for is served."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.unit.broker.test_runtime import create
from tests.waiting import until

from tidelog.broker.metrics.scraping import FRESH_MS
from tidelog.metrics.board import ROWS, text
from tidelog.testing import Cluster

DOCS: Final = Path(__file__).parents[3] / "docs"
ALERTS: Final = (DOCS / "monitoring/alerts.yml").read_text()
_METRIC: Final = re.compile(r"\b(?:kafka|tidelog|process)_\w+")


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    """Of a broker that has been used a little."""
    with Cluster({"metrics.listener": "0"}) as cluster:
        create(cluster.bootstrap, "t")
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        producer.produce("t", b"v")
        assert producer.flush(180) == 0
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
        consumer.assign([TopicPartition("t", 0, 0)])
        assert consumer.consume(1, 180)
        consumer.commit(offsets=[TopicPartition("t", 0, 0)], asynchronous=False)
        consumer.close()
        address = f"http://{cluster.runtime.metrics_address}/metrics"

        def fetched() -> str:
            with urllib.request.urlopen(address, timeout=180) as answer:
                return str(answer.read().decode())

        def whole() -> str | None:
            found = fetched()
            return found if "tidelog_log_dir_free_bytes" in found else None

        # Room on disks is asked for by the first page and told by a later one.
        yield until(whole, every_s=FRESH_MS / 1000 + 0.1) or ""


def missing(expressions: list[str], page: str) -> set[str]:
    served = set(re.findall(r"^(\w+)[ {]", page, re.MULTILINE))
    return {name for each in expressions for name in _METRIC.findall(each)} - served


def test_every_panel_has_its_metrics(page: str) -> None:
    """By the names that the broker gives."""
    assert missing([panel.expression for row in ROWS.values() for panel in row], page) == set()


def test_every_alert_has_its_metrics_and_its_advice(page: str) -> None:
    """docs/operations.md says for each what to do."""
    expressions = re.findall(r"^ +expr: (.*)$", ALERTS, re.MULTILINE)
    assert missing(expressions, page) == set()
    operations = (DOCS / "operations.md").read_text()
    advice = operations[operations.index("### What to do") :]
    advised = re.findall(r"^\| (\w+) \| [^|]+ \| [^|]+ \|$", advice, re.MULTILINE)
    assert re.findall(r"alert: (\w+)", ALERTS) == [name for name in advised if name != "Alert"]


def test_the_board_is_what_its_module_makes() -> None:
    """`make reference` writes it."""
    assert (DOCS / "monitoring/grafana.json").read_text() == text()


def names_of(text: str) -> set[str]:
    """Names of metrics between backticks, `a_{b,c}` for two of them; labels in braces are left out."""
    found = set()
    for quoted in re.findall(r"`((?:kafka|tidelog|process)_[^` ]*)`", text):
        alternatives = [""]
        for plain, braces in re.findall(r"(\w+)|\{([^}]*)\}", quoted):
            parts = [plain] if plain else braces.split(",") if "," in braces else [""]
            alternatives = [before + part for before in alternatives for part in parts]
        found |= set(alternatives)
    return found


def test_what_the_docs_name_is_served(page: str) -> None:
    """Each metric of the table in docs/operations.md, but those of slow requests and of quotas, which need settings."""
    assert names_of('`a`, `kafka_{a,b}_c{d}` and `tidelog_e{f="g"}`') == {"kafka_a_c", "kafka_b_c", "tidelog_e"}
    section = (
        (DOCS / "operations.md").read_text().partition("## Metrics and alerts")[2].partition("### What clients")[0]
    )
    with_settings = re.compile(r"tidelog_slow|kafka_server_(?:produce|fetch|request)_|tidelog_$")
    named = {name for name in names_of(section) if not with_settings.match(name)}
    assert len(named) > 25
    families = set(re.findall(r"^# TYPE (\w+) ", page, re.MULTILINE))
    assert named - families == set()
