"""One API of the broker as it is called: which versions it has, and what serves it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.protocol import messages

if TYPE_CHECKING:
    from tidelog.model.errors import KafkaError


class Versions(NamedTuple):
    """The versions of an API, both ends included."""

    lowest: int
    """Lowest advertised."""
    highest: int
    served_min: int = 0
    """Lowest served, where that is above `lowest`."""
    advertised: bool = True
    """Whether ApiVersions lists it: requests between brokers of ZooKeeper days are not listed."""

    def serves(self, version: int) -> bool:
        return max(self.lowest, self.served_min) <= version <= self.highest


class Handler:
    """One API as the server calls it."""

    __slots__ = ("error_response", "handle", "handle_body", "key", "name", "requests", "versions")

    def __init__(
        self,
        key: int,
        name: str,
        versions: Versions,
        handle: Callable[[Any, Any, Any], Any],
        error_response: Callable[[Any, int, KafkaError], Any],
        handle_body: Callable[[Any, Any, memoryview], Any] | None,
    ) -> None:
        self.key = key
        self.name = name
        self.versions = versions
        self.handle = handle
        self.error_response = error_response
        self.handle_body = handle_body
        self.requests = [0] * (versions.highest + 1)
        """[version] -> how often it was asked, for metrics."""


def advertised(handlers: Iterable[Handler]) -> list[messages.ApiVersionsResponse.ApiVersion]:
    """What ApiVersions says of `handlers`."""
    return [
        messages.ApiVersionsResponse.ApiVersion(
            api_key=handler.key, min_version=handler.versions.lowest, max_version=handler.versions.highest
        )
        for handler in handlers
        if handler.versions.advertised
    ]
