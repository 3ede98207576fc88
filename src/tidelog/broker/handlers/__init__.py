"""The APIs that this broker serves, a file each; the ApiVersions answer is built from them.

A handler module has:

- `KEY: Final = ApiKey.X`
- `VERSIONS: Final = Versions(lowest, highest)`: the range that is advertised, Apache Kafka 4.3's. Where versions are
  advertised that are not served (Produce 0-2), `served_min` says where serving begins.
- `handle(node, context, request) -> response | Deferred[response] | None`: called on the loop's thread, must not
  block. `request` is the decoded message; its `records` are views into the receive buffer, valid during the call only.
  None means that no answer is due (acks=0).
- `error_response(request, version, error: KafkaError) -> response`: the answer when `handle` raises, or its deferred
  fails with, a `KafkaError`; any other exception is logged and comes here as UNKNOWN_SERVER_ERROR.

Optionally `handle_body(node, context, body: memoryview) -> bytes | list[Chunk] | Deferred | None | NotImplemented`: a
fast path that takes the undecoded body and gives the encoded answer, size prefix included; `NotImplemented` sends the
request through `handle`. A compiled path takes this place.

To add an API, add a file here: the registry finds it. What only the controller carries out is forwarded
to it, if its key stands in `tidelog.broker.cluster.forwarding.FORWARDED`. What else belongs to an API, and to one of
groups above all, stands in docs/extending.md.
"""

from __future__ import annotations

import importlib
import pkgutil
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

    __slots__ = ("error_response", "handle", "handle_body", "key", "name", "versions")

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


def load_handlers() -> dict[int, Handler]:
    """Imports every module of this package; handlers by API key, ascending."""
    handlers: dict[int, Handler] = {}
    for found in pkgutil.iter_modules(__path__):
        if found.name.startswith("_"):
            continue
        module = importlib.import_module(f"{__name__}.{found.name}")
        if not hasattr(module, "KEY"):
            continue
        key = int(module.KEY)
        if key in handlers:
            raise RuntimeError(f"{found.name} and {handlers[key].name} both serve API key {key}.")
        handlers[key] = Handler(
            key,
            found.name,
            module.VERSIONS,
            module.handle,
            module.error_response,
            getattr(module, "handle_body", None),
        )
    return dict(sorted(handlers.items()))


def advertised(handlers: Iterable[Handler]) -> list[messages.ApiVersionsResponse.ApiVersion]:
    """What ApiVersions says of `handlers`."""
    return [
        messages.ApiVersionsResponse.ApiVersion(
            api_key=handler.key, min_version=handler.versions.lowest, max_version=handler.versions.highest
        )
        for handler in handlers
        if handler.versions.advertised
    ]
