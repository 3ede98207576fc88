"""Access lists as Kafka's brokers set them."""

from __future__ import annotations

import pytest

from tidelog.store.access import ALL, READ, access_list


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/brokers/topics/t", [(ALL, "auth", ""), (READ, "world", "anyone")]),
        ("/config/topics/users", [(ALL, "auth", ""), (READ, "world", "anyone")]),
        ("/config/users", [(ALL, "auth", "")]),
        ("/config/users/alice", [(ALL, "auth", "")]),
        ("/config/brokers/1", [(ALL, "auth", "")]),
        ("/delegation_token/tokens", [(ALL, "auth", "")]),
        ("/consumers", [(ALL, "world", "anyone")]),
    ],
)
def test_nodes_belong_to_their_creator(path: str, expected: list[tuple[int, str, str]]) -> None:
    """All may read, but not passwords; old consumers write where they always did. Unless it is set, all may write."""
    assert list(access_list(path, owned=True)) == expected
    assert list(access_list(path, owned=False)) == [(ALL, "world", "anyone")]
