"""A ShareFetch whose client goes away."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tidelog.broker.sharing.fetching import ShareFetch
from tidelog.protocol import messages
from tidelog.sharing.sessions import SharedPlace, ShareSession
from tidelog.sharing.settings import ShareSettings


def fetch(looked_for: list[bytes]) -> ShareFetch:
    """Of one partition; `looked_for` gets the topics that it looks for."""

    def topic_name(topic_id: bytes) -> None:
        looked_for.append(topic_id)

    node: Any = SimpleNamespace(
        clock=SimpleNamespace(monotonic_ms=lambda: 0),
        config=SimpleNamespace(fetch_max_bytes=1 << 20),
        metadata=SimpleNamespace(topic_name=topic_name),
        purgatory=SimpleNamespace(wait=lambda operation, keys, timeout_ms: operation.try_complete()),
    )
    partitions: Any = SimpleNamespace(settings=lambda group: ShareSettings())
    context: Any = SimpleNamespace(quota=None)
    session = ShareSession("g", "m", 1, places={SharedPlace(bytes(16), 0): None})  # type: ignore[arg-type]  # A topic id.
    return ShareFetch(node, partitions, context, session, messages.ShareFetchRequest(max_wait_ms=500))


def test_a_client_that_is_gone_when_its_acknowledgements_are_stored_gets_no_records() -> None:
    """They would be locked for a member that is not there, until their time is over."""
    looked_for: list[bytes] = []
    gone, there = fetch(looked_for), fetch(looked_for)
    gone.answer.abandon()
    gone.begin()
    assert looked_for == []
    there.begin()
    assert looked_for == [bytes(16)]
    assert there.answer.done
