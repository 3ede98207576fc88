"""When sessions end: by silence, never by the server's own absence."""

from __future__ import annotations

from tidelog.store.session_deadlines import SessionDeadlines


def test_silence_ends_a_session() -> None:
    """A session lives its timeout from when it was last heard from, to the millisecond."""
    deadlines = SessionDeadlines()
    deadlines.add(1, 1000, 0)
    deadlines.add(2, 3000, 0)
    assert deadlines.next_ms == 1000
    deadlines.heard_from(1, 600)
    assert deadlines.due(1000) == []
    assert deadlines.next_ms == 1600
    assert deadlines.due(1600) == [1]
    assert 1 not in deadlines
    assert deadlines.next_ms == 3000
    assert deadlines.due(3000) == [2]
    assert deadlines.next_ms is None
    assert deadlines.due(9000) == []


def test_a_session_that_ended_otherwise() -> None:
    """What was removed is never due, and unknown sessions are not heard from."""
    deadlines = SessionDeadlines()
    deadlines.add(1, 1000, 0)
    deadlines.remove(1)
    deadlines.heard_from(1, 10)
    assert len(deadlines) == 0
    assert deadlines.due(1000) == []
    assert deadlines.next_ms is None


def test_a_pause_of_the_server_counts_for_nobody() -> None:
    """A wake-up that comes late gives every session that much longer: what clients said meanwhile was not heard."""
    deadlines = SessionDeadlines()
    deadlines.add(1, 1000, 0)
    deadlines.add(2, 1500, 0)
    assert deadlines.due(11_000) == [1]
    assert deadlines.next_ms == 11_500
    deadlines.heard_from(2, 11_400)
    assert deadlines.due(11_500) == []
    assert deadlines.next_ms == 12_900
    assert deadlines.due(12_900) == [2]


def test_a_pause_is_left_out_once() -> None:
    """What the server reads as it wakes up is heard at that moment: its sender has its timeout, no pause besides."""
    deadlines = SessionDeadlines()
    deadlines.add(1, 1000, 0)
    deadlines.heard_from(1, 60_000)
    deadlines.add(2, 1000, 60_000)
    assert deadlines.due(60_000) == []
    assert deadlines.next_ms == 61_000
    assert deadlines.due(61_000) == [1, 2]
