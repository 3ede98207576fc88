"""`tidelog configs` against a real broker."""

from __future__ import annotations

import pytest
from tests.unit.cli.conftest import Tidelog


@pytest.mark.row("R07")
def test_settings_are_changed_and_shown_as_kafka_configs_does(tidelog: Tidelog, topic: str) -> None:
    """Set, shown with synonyms, deleted: Kafka's lines."""
    tidelog("topics", "create", topic)
    altered = tidelog("configs", "alter", "-t", topic, "--set", "retention.ms=1000", "-o", "kafka")
    assert altered == (0, f"Completed updating config for topic {topic}.\n", "")
    title, line = tidelog("configs", "describe", "-t", topic, "-o", "kafka").lines
    assert title == f"Dynamic configs for topic {topic} are:"
    assert line.startswith("  retention.ms=1000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1000")
    assert tidelog("configs", "alter", "-t", topic, "--delete", "retention.ms").code == 0
    assert tidelog("configs", "describe", "-t", topic, "-o", "kafka").lines == [
        f"Dynamic configs for topic {topic} are:"
    ]


@pytest.mark.row("R07")
def test_lists_take_elements_and_brackets(tidelog: Tidelog, topic: str) -> None:
    """Kafka's [a,b] is a list; elements are appended and subtracted."""
    tidelog("topics", "create", topic)

    def policy() -> str:
        (resource,) = tidelog("configs", "describe", "-t", topic, "-k", "cleanup.policy", "-o", "json").json
        return str(resource["configs"][0]["value"])

    tidelog("configs", "alter", "-t", topic, "--set", "cleanup.policy=[compact,delete]")
    assert policy() == "compact,delete"
    tidelog("configs", "alter", "-t", topic, "--subtract", "cleanup.policy=delete")
    assert policy() == "compact"
    tidelog("configs", "alter", "-t", topic, "--append", "cleanup.policy=delete")
    assert policy() == "compact,delete"


def test_all_settings_with_type_and_source(tidelog: Tidelog, topic: str) -> None:
    """--all shows what is in force; JSON says where each value comes from."""
    tidelog("topics", "create", topic, "-c", "flush.messages=7")
    (resource,) = tidelog("configs", "describe", "-t", topic, "--all", "-o", "json").json
    found = {entry["name"]: entry for entry in resource["configs"]}
    assert (resource["type"], resource["name"]) == ("topic", topic)
    assert found["flush.messages"]["source"] == "DYNAMIC_TOPIC_CONFIG"
    assert found["segment.bytes"]["source"] == "DEFAULT_CONFIG"
    assert found["segment.bytes"]["type"] == "int"
    assert list(found) == sorted(found)
    table = tidelog("configs", "describe", "-t", topic).out
    assert f"topic {topic}" in table
    assert "flush.messages" in table
    assert "segment.bytes" not in table


def test_brokers_and_their_defaults(tidelog: Tidelog) -> None:
    """A dynamic setting of one broker and of all, under Kafka's headings."""
    assert tidelog("configs", "describe", "--broker", "0", "-o", "kafka").lines[0] == (
        "Dynamic configs for broker 0 are:"
    )
    assert tidelog("configs", "describe", "--broker-defaults", "-o", "kafka").lines[0] == (
        "Default configs for brokers in the cluster are:"
    )


def test_refusals_are_one_line_each(tidelog: Tidelog, topic: str) -> None:
    """An unknown setting, a bad value, a missing topic: the broker's reason, code 1."""
    tidelog("topics", "create", topic)
    unknown = tidelog("configs", "alter", "-t", topic, "--set", "foo=1")
    assert unknown == (1, "", f"tidelog: topic {topic}: Unknown topic config name: foo\n")
    bad = tidelog("configs", "alter", "-t", topic, "--set", "retention.ms=soon")
    assert bad.code == 1
    assert "retention.ms" in bad.err
    assert tidelog("configs", "alter", "-t", "nope", "--set", "retention.ms=1").code == 1
    assert tidelog("configs", "describe", "-t", "nope", "-o", "kafka").out == (
        "The topic 'nope' doesn't exist and doesn't have dynamic config.\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("alter", "--set", "a=b"),
        ("alter", "-t", "x"),
        ("alter", "-t", "x", "--set", "retention.ms"),
        ("describe", "--broker", "one"),
    ],
)
def test_arguments_that_make_no_sense_are_wrong_usage(tidelog: Tidelog, arguments: tuple[str, ...]) -> None:
    """Code 2, before any broker is asked."""
    assert tidelog("configs", *arguments).code == 2


def test_groups_and_client_metrics_under_kafkas_headings(tidelog: Tidelog, topic: str) -> None:
    """Set, shown, listed among everything while set, deleted; refused in the broker's words."""
    altered = tidelog("configs", "alter", "-g", topic, "--set", "consumer.session.timeout.ms=50000", "-o", "kafka")
    assert altered == (0, f"Completed updating config for group {topic}.\n", "")
    assert tidelog("configs", "describe", "--group", topic, "-o", "kafka").lines == [
        f"Dynamic configs for group {topic} are:",
        "  consumer.session.timeout.ms=50000 sensitive=false synonyms={DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms"
        "=50000, DEFAULT_CONFIG:group.consumer.session.timeout.ms=45000}",
    ]
    altered = tidelog("configs", "alter", "--client-metrics", topic, "--set", "metrics=[a,b]", "-o", "kafka")
    assert altered == (0, f"Completed updating config for client-metric {topic}.\n", "")
    everything = {(each["type"], each["name"]) for each in tidelog("configs", "describe", "-o", "json").json}
    assert {("group", topic), ("client_metrics", topic)} <= everything
    refused = tidelog("configs", "alter", "-g", topic, "--set", "consumer.session.timeout.ms=1")
    assert refused == (
        1,
        "",
        f"tidelog: group {topic}: consumer.session.timeout.ms must be greater than or equal to"
        " group.consumer.min.session.timeout.ms\n",
    )
    tidelog("configs", "alter", "-g", topic, "--delete", "consumer.session.timeout.ms")
    assert tidelog("configs", "describe", "-g", topic).out == (
        f"group {topic}: nothing set (--all shows what is in force)\n"
    )
