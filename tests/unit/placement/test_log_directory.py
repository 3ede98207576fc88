"""Which log directory a new replica goes to."""

from __future__ import annotations

import pytest

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.placement.log_directory import choose


@pytest.mark.row("R03")
def test_the_fewest_logs_win() -> None:
    """Logs are counted, bytes are not; among equals the first one configured is taken."""
    assert choose({"/a": 3, "/b": 1, "/c": 1}) == "/b"


@pytest.mark.row("R03")
def test_a_directory_asked_for_wins() -> None:
    """However many logs it has."""
    assert choose({"/a": 300, "/b": 1}, wanted="/a") == "/a"


@pytest.mark.row("R03")
def test_what_is_not_online_is_refused() -> None:
    """A wish for a failed directory, and any replica when none is left."""
    with pytest.raises(KafkaError) as refusal:
        choose({"/a": 1}, wanted="/gone")
    assert refusal.value.code is ErrorCode.LOG_DIR_NOT_FOUND
    with pytest.raises(KafkaError) as refusal:
        choose({})
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_cordoned_directory_gets_no_new_replica() -> None:
    """However few logs it has; unless it is asked for, or all are cordoned."""
    counts = {"/a": 0, "/b": 5, "/c": 7}
    assert choose(counts, cordoned=["/a"]) == "/b"
    assert choose(counts, "/a", ["/a"]) == "/a"
    assert choose(counts, cordoned=["*"]) == "/a"
