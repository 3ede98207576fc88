"""Whether logs may lose records by the settings that they have: retention and compaction ask before they do.

A broker that stood still, or was cut off from the metadata store, may have settings that were altered since. What it
would delete by them is gone for good, so it deletes only by settings that were found to be today's a moment ago.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class SettingsGate(Protocol):
    """Asked on the thread that owns the logs."""

    @property
    def are_current(self) -> bool:
        """Whether the settings that logs have now were confirmed recently enough to delete by them."""
        ...

    def when_current(self, then: Callable[[], None]) -> None:
        """Has the settings confirmed, and calls `then`, on the same thread: also where they could not be, which
        `are_current` says."""
        ...


class AlwaysCurrent:
    """For logs whose settings no broker alters: tools and tests."""

    are_current = True

    def when_current(self, then: Callable[[], None]) -> None:
        then()
