"""Spans on their way out: OpenTelemetry's SDK, and its exporter of OTLP over HTTP, in a thread of their own.

    Tracing.begin, end --> TracerProvider --> BatchSpanProcessor --> POST tracing.otlp.endpoint

The packages are an extra (`tidelog[tracing]`); OpenTelemetry's own environment variables hold for them, such as
OTEL_EXPORTER_OTLP_HEADERS and OTEL_RESOURCE_ATTRIBUTES. A collector that is away costs spans and nothing else.
Names of attributes: https://opentelemetry.io/docs/specs/semconv/
"""

from __future__ import annotations

import importlib
import os
import threading
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.failure import BrokerFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

_SDK: Final = "opentelemetry.sdk.trace"
_EXPORTER: Final = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
_CLOSE_S_MAX: Final = 2.0
"""For the last spans to leave when the broker stops."""


class Tracing:
    """Begins and ends spans; on the loop's thread, which never waits for them."""

    def __init__(self, provider: Any) -> None:
        """`provider` is a TracerProvider of OpenTelemetry's SDK."""
        trace = importlib.import_module("opentelemetry.trace")
        self._provider = provider
        self._tracer = provider.get_tracer("tidelog")
        self._server: Any = trace.SpanKind.SERVER
        self._status: Any = trace.Status
        self._error: Any = trace.StatusCode.ERROR

    def begin(self, attributes: dict[str, Any]) -> Any:
        """A span that begins now, by the name of its API."""
        return self._tracer.start_span(attributes["rpc.method"], kind=self._server, attributes=attributes)

    def end(self, span: Any, errors: Sequence[str], reason: str | None = None) -> None:
        """The operation has ended: with these errors, or well where there are none."""
        if errors:
            span.set_attribute("error.type", errors[0])
            span.set_attribute("tidelog.errors", list(errors))
            span.set_status(self._status(self._error, reason or ", ".join(errors)))
        span.end()

    def close(self) -> None:
        """Sends what is left, for a while; blocks for two seconds at most."""
        closing = threading.Thread(target=self._provider.shutdown, name="tracing", daemon=True)
        closing.start()
        closing.join(_CLOSE_S_MAX)


def require_packages() -> None:
    """BrokerFailed where the extra is not installed."""
    try:
        importlib.import_module(_SDK)
        importlib.import_module(_EXPORTER)
    except ImportError as error:
        raise BrokerFailed(
            "tracing.otlp.endpoint is set, which needs opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http:"
            f" pip install 'tidelog[tracing]' ({error})"
        ) from None


def open_tracing(endpoint: str, broker_id: int, cluster_id: str) -> Tracing:
    """Spans of this broker go to `endpoint` from now on."""
    trace = importlib.import_module(_SDK)
    resources = importlib.import_module("opentelemetry.sdk.resources")
    export = importlib.import_module("opentelemetry.sdk.trace.export")
    attributes = {"service.instance.id": str(broker_id), "tidelog.cluster.id": cluster_id}
    if "OTEL_SERVICE_NAME" not in os.environ:
        attributes["service.name"] = "tidelog"
    provider = trace.TracerProvider(resource=resources.Resource.create(attributes), shutdown_on_exit=False)
    exporter = importlib.import_module(_EXPORTER).OTLPSpanExporter(endpoint=endpoint)
    provider.add_span_processor(export.BatchSpanProcessor(exporter))
    return Tracing(provider)
