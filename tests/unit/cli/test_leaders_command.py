"""`tidelog leaders` against a real broker: where everything is as it should be, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli.conftest import Tidelog


@pytest.mark.row("R29")
def test_elections_that_are_not_needed_are_told_in_kafkas_words(tidelog: Tidelog, topic: str) -> None:
    """By topic, by partition, from a file: done is done, exit code 0."""
    tidelog("topics", "create", topic, "-p", "2")
    by_topic = tidelog("leaders", "elect", "--election-type", "PREFERRED", "--topic", topic)
    assert by_topic == (0, f"Valid replica already elected for partitions {topic}-0, {topic}-1\n", "")
    by_partition = tidelog("leaders", "elect", "-e", "unclean", "-t", topic, "-p", "1", "-o", "json")
    [result] = by_partition.json
    assert (result["topic"], result["partition"], result["error"]) == (topic, 1, "ELECTION_NOT_NEEDED")


def test_elections_from_a_file(tidelog: Tidelog, topic: str, tmp_path: Path) -> None:
    """Kafka's form; an unknown partition is a failure with its reason, the others are answered nevertheless."""
    tidelog("topics", "create", topic, "-p", "1")
    plan = tmp_path / "plan.json"
    entries = ", ".join(f'{{"topic": "{topic}", "partition": {index}}}' for index in (0, 5))
    plan.write_text(f'{{"partitions": [{entries}]}}')
    outcome = tidelog("leaders", "elect", "-e", "preferred", "--path-to-json-file", str(plan))
    assert outcome.code == 1
    assert outcome.out == f"Valid replica already elected for partitions {topic}-0\n"
    assert outcome.err == (
        f"tidelog: Error completing leader election (PREFERRED) for partition: {topic}-5: The partition does not exist."
        "\ntidelog: 1 replica(s) could not be elected\n"
    )


def test_elections_of_everything(tidelog: Tidelog) -> None:
    """What needs none is not listed."""
    outcome = tidelog("leaders", "elect", "-e", "preferred", "--all")
    assert outcome == (0, "Every partition has the leader that it should have.\n", "")


@pytest.mark.parametrize(
    "arguments",
    [(), ("--topic", "t", "--all"), ("--all", "--partition", "0"), ("--file", "/dev/null")],
    ids=["nothing", "too much", "partition of what", "not JSON"],
)
def test_wrong_usage_of_elect(tidelog: Tidelog, arguments: tuple[str, ...]) -> None:
    """Exit code 2, one line that says what to write."""
    outcome = tidelog("leaders", "elect", "-e", "preferred", *arguments)
    assert outcome.code == 2
    assert outcome.err.startswith("tidelog: ")


@pytest.mark.row("R29")
def test_shows_who_leads_what(tidelog: Tidelog, topic: str) -> None:
    """A line a broker; one broker leads all that it should."""
    tidelog("topics", "create", topic, "-p", "3")
    [share] = tidelog("leaders", "show", "-o", "json").json
    assert share["leads"] == share["shouldLead"] >= 3
    assert (share["ledByOthers"], share["imbalancePercent"]) == (0, 0.0)
    assert "0 %" in tidelog("leaders", "show").out
