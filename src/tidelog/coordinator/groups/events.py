"""What any group's coordinator is asked, whatever its groups' protocol, and what it answers.

Each request carries a request id, by which its reply is found; 0 where no client waits for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.model.errors import ErrorCode
from tidelog.model.values import value

NOBODY: Final = 0
"""The request id of an event that is not a request."""
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
"""Kinds of groups, as ListGroups names them."""


@value
class ListGroups:
    """Answered by a GroupListing."""

    request_id: int


@value
class ListedGroup:
    """One group of a listing."""

    group: str
    protocol_type: str
    """"consumer" for consumers, "connect" for workers; empty where only offsets were committed."""
    state: str
    kind: str


@value
class GroupListing:
    """Groups by id, sorted."""

    groups: Sequence[ListedGroup]


@value
class DeleteGroups:
    """Answered by DeletedGroups."""

    request_id: int
    groups: Sequence[str]


@value
class DeletedGroups:
    """An error for each group of the request, in its order."""

    errors: Sequence[tuple[str, ErrorCode]]
