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
request through `handle`. And `ordinary(node, handler, resume) -> OrdinaryRequests | None`: a compiled way of ordinary
requests, which takes them from the receive buffer before anything else looks at them; None where it was not built.
`frames(node, context_of) -> Frames | None` is the same for requests that are taken one at a time, by
`Dispatcher.request`. And `preprocess(node, context, request) -> Preprocessed | None`: what the broker that a client
asked refuses by itself, of an API that only the controller carries out.

To add an API, add a file here: the registry finds it. A file whose name stands in `_later.LATER` is loaded when its API
is first asked for. What only the controller carries out is forwarded to it, if its key stands in
`tidelog.broker.cluster.forwarding.FORWARDED`. What else belongs to an API, and to one of groups above all, stands in
docs/extending.md.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING, Any

from tidelog.broker.handler import Handler, Preprocessed, Versions
from tidelog.broker.handlers._later import LATER
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.model.errors import KafkaError

__all__ = ["Handler", "Versions", "load_handlers"]


def load_handlers() -> dict[int, Handler]:
    """Imports the modules of this package, but for those that LATER names; handlers by API key, ascending."""
    handlers: dict[int, Handler] = {}
    for found in pkgutil.iter_modules(__path__):
        if found.name.startswith("_"):
            continue
        handler = _later(found.name, LATER[found.name]) if found.name in LATER else _now(found.name)
        if handler is None:
            continue
        if handler.key in handlers:
            raise RuntimeError(f"{handler.name} and {handlers[handler.key].name} both serve API key {handler.key}.")
        handlers[handler.key] = handler
    return dict(sorted(handlers.items()))


def _now(name: str) -> Handler | None:
    """The handler in the module `name`; None where that is none."""
    module = importlib.import_module(f"{__name__}.{name}")
    if not hasattr(module, "KEY"):
        return None
    return Handler(
        int(module.KEY),
        name,
        module.VERSIONS,
        module.handle,
        module.error_response,
        getattr(module, "handle_body", None),
        getattr(module, "ordinary", None),
        getattr(module, "preprocess", None),
        getattr(module, "frames", None),
    )


def _later(name: str, versions: Versions) -> Handler:
    """A handler whose functions are those of the module `name`, which is imported with the first call of one."""

    @cache
    def module() -> Any:
        return importlib.import_module(f"{__name__}.{name}")

    # None of these refers to the handler: it would be garbage that only a collection frees.
    def handle(node: Any, context: Any, request: Any) -> Any:
        return module().handle(node, context, request)

    def error_response(request: Any, version: int, error: KafkaError) -> Any:
        return module().error_response(request, version, error)

    def preprocess(node: Any, context: Any, request: Any) -> Preprocessed | None:
        split: Callable[[Any, Any, Any], Preprocessed | None] | None = getattr(module(), "preprocess", None)
        return None if split is None else split(node, context, request)

    return Handler(int(ApiKey[name.upper()]), name, versions, handle, error_response, None, preprocess=preprocess)
