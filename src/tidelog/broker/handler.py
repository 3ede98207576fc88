"""One API of the broker as it is called: which versions it has, and what serves it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.peer import Peer
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


class OrdinaryRequests(Protocol):
    """A compiled way of the requests that nearly all clients send, many of them in one call."""

    def take(
        self,
        peer: Peer,
        view: memoryview,
        position: int,
        end: int,
        count_max: int,
        size_max: int,
        outgoing: list[Any],
    ) -> tuple[int, int, Deferred[Any] | None]:
        """Handles the ordinary requests at the start of `view[position:end]`, which is writable, `count_max` at most.

        `size_max`: bytes of the largest request. What is to be sent is added to `outgoing`. Gives the position behind
        what was handled, how many that were, and the answer of the last one where that comes later, else None.
        What is not ordinary stays where it is, with nothing changed, and so does all behind it. CloseConnection after
        a fault of the broker; what was handled before it is answered in `outgoing`.
        """
        ...


class Frames(Protocol):
    """A compiled way of an API's ordinary requests, one at a time."""

    def answer(self, peer: Peer, view: memoryview, position: int, end: int, received_ms: int) -> Any:
        """The answer to the request in `view[position:end]`, at least 10 bytes, as `Dispatcher.request` gives it.

        NotImplemented, with nothing changed, where it is not ordinary.
        """
        ...


class ContextOf(Protocol):
    """Makes the context of a request that compiled code leaves to others, as the dispatcher makes it."""

    def __call__(
        self, peer: Peer, version: int, correlation_id: int, has_client_id: bool, received_ms: int
    ) -> RequestContext:
        """Of a request that no quota limits, under the client id that `peer` had last, if any."""
        ...


class Resume(Protocol):
    """The dispatcher's way of a request that compiled code has begun and leaves to `handle`."""

    def __call__(
        self,
        peer: Peer,
        version: int,
        correlation_id: int,
        has_client_id: bool,
        body: memoryview,
        handle: Callable[[Any, Any, Any], Any],
    ) -> Any:
        """The answer as `Dispatcher.request` gives it; `handle(node, context, request)` is called as an API's is."""
        ...


class Preprocessed(NamedTuple):
    """A request of which the broker that was asked refuses a part, before the controller carries out the rest."""

    rest: Any
    """The request without that part; None where nothing is left."""
    complete: Callable[[Any], Any]
    """Makes the whole answer of that to the rest, or of None."""


class Handler:
    """One API as the server calls it."""

    __slots__ = (
        "api_key",
        "error_response",
        "frames",
        "handle",
        "handle_body",
        "key",
        "name",
        "ordinary",
        "preprocess",
        "requests",
        "version_max",
        "version_min",
        "versions",
    )

    def __init__(
        self,
        key: int,
        name: str,
        versions: Versions,
        handle: Callable[[Any, Any, Any], Any],
        error_response: Callable[[Any, int, KafkaError], Any],
        handle_body: Callable[[Any, Any, memoryview], Any] | None,
        ordinary: Callable[[Any, Handler, Resume], OrdinaryRequests | None] | None = None,
        preprocess: Callable[[Any, Any, Any], Preprocessed | None] | None = None,
        frames: Callable[[Any, ContextOf], Frames | None] | None = None,
    ) -> None:
        self.key = key
        self.api_key = ApiKey(key)
        self.name = name
        self.versions = versions
        self.version_min = max(versions.lowest, versions.served_min)
        """Lowest version that is served."""
        self.version_max = versions.highest
        self.handle = handle
        self.error_response = error_response
        self.handle_body = handle_body
        self.ordinary = ordinary
        """Makes the compiled way of a node's ordinary requests; None where the API has none."""
        self.frames = frames
        """Makes the compiled way of a node's single requests; None where the API has none."""
        self.preprocess = preprocess
        """Splits a client's request before it goes to the controller; None where nothing is refused before that."""
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
