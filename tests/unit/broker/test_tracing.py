"""OpenTelemetry spans of admin operations: who asked for what, how long it took, and how it ended."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.unit.broker.harness import Broker
from tests.unit.broker.test_runtime import create

from tidelog.broker.deferred import Deferred
from tidelog.broker.failure import BrokerFailed
from tidelog.broker.handlers import load_handlers
from tidelog.broker.peer import CloseConnection
from tidelog.broker.tracing.dispatcher import TracedDispatcher
from tidelog.broker.tracing.exporting import Tracing
from tidelog.broker.tracing.operations import NAMES_MAX, RESOURCES
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.properties import ConfigError
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.testing import Cluster

SETTING = "tracing.otlp.endpoint"


class Spans:
    """A broker's spans, kept by OpenTelemetry's exporter for tests."""

    def __init__(self, broker: Broker) -> None:
        trace = pytest.importorskip("opentelemetry.sdk.trace")
        export = importlib.import_module("opentelemetry.sdk.trace.export")
        self._exporter = importlib.import_module(
            "opentelemetry.sdk.trace.export.in_memory_span_exporter"
        ).InMemorySpanExporter()
        provider = trace.TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(export.SimpleSpanProcessor(self._exporter))
        self.tracing = Tracing(provider)
        broker.dispatcher = TracedDispatcher(broker.dispatcher, self.tracing)

    def take(self) -> list[Any]:
        """Those that have ended since the last call."""
        found = list(self._exporter.get_finished_spans())
        self._exporter.clear()
        return found


@pytest.fixture
def spans(broker: Broker) -> Spans:
    return Spans(broker)


def delete_groups(*names: str) -> messages.DeleteGroupsRequest:
    return messages.DeleteGroupsRequest(groups_names=list(names))


def test_an_operation_has_a_span_with_its_outcome(broker: Broker, spans: Spans) -> None:
    """Client, principal, address, what was named, and each error once; what only looks has none."""
    updates = [messages.UpdateFeaturesRequest.FeatureUpdateKey(feature="x", max_version_level=1)] * 2
    broker.ask(ApiKey.UPDATE_FEATURES, 0, messages.UpdateFeaturesRequest(feature_updates=updates), "app")
    broker.ask(ApiKey.DESCRIBE_CLUSTER, 0, messages.DescribeClusterRequest())
    broker.produce("t", [b"v"])
    (span,) = spans.take()
    assert (span.name, span.kind.name, span.parent) == ("UpdateFeatures", "SERVER", None)
    assert dict(span.attributes) == {
        "rpc.system": "kafka",
        "rpc.method": "UpdateFeatures",
        "messaging.system": "kafka",
        "messaging.client.id": "app",
        "network.peer.address": "127.0.0.1",
        "enduser.id": "User:ANONYMOUS",
        "tidelog.api.version": 0,
        "tidelog.resources": ("x",),
        "tidelog.resources.count": 2,
        "tidelog.validate_only": False,
        "tidelog.forwarded": False,
        "error.type": "INVALID_UPDATE_VERSION",
        "tidelog.errors": ("INVALID_UPDATE_VERSION",),
    }
    assert (span.status.status_code.name, span.status.description) == ("ERROR", "INVALID_UPDATE_VERSION")
    updates = [messages.UpdateFeaturesRequest.FeatureUpdateKey(feature="group.version", max_version_level=1)]
    broker.ask(ApiKey.UPDATE_FEATURES, 2, messages.UpdateFeaturesRequest(feature_updates=updates))
    (span,) = spans.take()
    assert (span.status.status_code.name, "error.type" in span.attributes) == ("UNSET", False)


def test_a_span_ends_with_a_late_answer(broker: Broker, spans: Spans) -> None:
    """Also with one that ends the connection, or never comes to be because the request was malformed."""
    for ends_well in (True, False):
        late: Deferred[Any] = Deferred()
        broker.node.handlers[ApiKey.DELETE_GROUPS].handle = lambda *_, late=late: late
        broker.send(ApiKey.DELETE_GROUPS, 2, delete_groups("a", "b"))
        assert spans.take() == []
        if ends_well:
            result = messages.DeleteGroupsResponse.DeletableGroupResult
            codes = (("a", ErrorCode.NONE), ("b", ErrorCode.NON_EMPTY_GROUP))
            late.complete(
                messages.DeleteGroupsResponse(results=[result(group_id=name, error_code=code) for name, code in codes])
            )
        else:
            late.fail(CloseConnection("it says nonsense"))
        (span,) = spans.take()
        assert span.attributes["tidelog.resources"] == ("a", "b")
        assert span.attributes["error.type"] == ("NON_EMPTY_GROUP" if ends_well else "UNKNOWN_SERVER_ERROR")
    frame = bytearray(broker.frame(ApiKey.DELETE_GROUPS, 2, delete_groups("a")))[:-2]
    with pytest.raises(CloseConnection):
        broker.dispatcher.request(broker.peer, memoryview(frame), 4, len(frame), 0)
    assert spans.take() == []


def test_a_fault_of_tracing_fails_no_request(
    broker: Broker, spans: Spans, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is logged once, whether the beginning of a span fails or its end."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    for name in ("begin", "end"):
        monkeypatch.setattr(spans.tracing, name, broken)
        assert broker.ask(ApiKey.DELETE_GROUPS, 2, delete_groups("a")).results[0].group_id == "a"
        monkeypatch.undo()
    assert caplog.text.count("request not traced") == 1


def test_names_are_bounded(broker: Broker, spans: Spans) -> None:
    """A request may name thousands."""
    broker.ask(ApiKey.DELETE_GROUPS, 2, delete_groups(*("g" * 1_000 + str(number) for number in range(100))))
    broker.ask(ApiKey.DELETE_GROUPS, 2, delete_groups(*(f"g{number}" for number in range(100))))
    long, many = spans.take()
    assert {len(name) for name in long.attributes["tidelog.resources"]} == {256}
    assert len(many.attributes["tidelog.resources"]) == NAMES_MAX
    assert many.attributes["tidelog.resources.count"] == 100


def test_what_each_request_names_can_be_told() -> None:
    """Of every API that is traced: its newest request without anything, and nothing that is not served."""
    handlers = load_handlers()
    for key, names in RESOURCES.items():
        assert key in handlers
        assert [name for name in names(messages.request_class(key)()) if name] == []


class Receiver:
    """Stands for a collector: keeps what is posted to it."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, bytes]] = []
        posted = self.posted

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                posted.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}/v1/traces"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    started = Receiver()
    yield started
    started.close()


def test_spans_leave_by_otlp(receiver: Receiver) -> None:
    """From the broker that was asked and from the controller that has carried it out, by the time they have stopped."""
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    service = importlib.import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    with Cluster({SETTING: receiver.endpoint}, brokers=2) as cluster:
        create(cluster.bootstrap, "traced")
    found = []
    for path, body in receiver.posted:
        assert path == "/v1/traces"
        for of_broker in service.ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = {each.key: each.value.string_value for each in of_broker.resource.attributes}
            assert resource["service.name"] == "tidelog"
            for scope in of_broker.scope_spans:
                found += [(resource["service.instance.id"], span) for span in scope.spans]
    assert found
    for _, span in found:
        attributes = {each.key: each.value for each in span.attributes}
        assert span.name == "CreateTopics"
        assert [each.string_value for each in attributes["tidelog.resources"].array_value.values] == ["traced"]
        assert span.end_time_unix_nano >= span.start_time_unix_nano > 0
    forwarded = {
        broker
        for broker, span in found
        if any(each.key == "tidelog.forwarded" and each.value.bool_value for each in span.attributes)
    }
    asked = {broker for broker, _ in found} - forwarded
    assert len(asked) == 1
    assert len(found) == len(asked) + len(forwarded)


def test_without_the_packages_the_broker_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not start, rather than leave out what was asked for."""

    def missing(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    exporting = importlib.import_module("tidelog.broker.tracing.exporting")
    monkeypatch.setattr(exporting.importlib, "import_module", missing)
    with (
        pytest.raises(BrokerFailed, match=r"needs opentelemetry-sdk.*pip install 'tidelog\[tracing\]'"),
        Cluster({SETTING: "http://127.0.0.1:4318/v1/traces"}),
    ):
        raise AssertionError("it has started")


def test_nothing_is_loaded_without_the_setting() -> None:
    """Neither the package nor tidelog's part of it."""
    code = (
        "import sys, tidelog.broker.runtime, tidelog.broker.metrics.service;"
        "print([name for name in sys.modules if 'opentelemetry' in name or 'tidelog.broker.tracing' in name])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


@pytest.mark.parametrize("text", ["127.0.0.1:4318", "ftp://a/b", "http://", "4318"])
def test_what_is_no_url_is_refused(text: str) -> None:
    """The broker does not start, and says which setting it is."""
    with pytest.raises(ConfigError, match=r"tracing\.otlp\.endpoint"):
        BrokerConfig.from_mapping({SETTING: text})
    assert BrokerConfig.from_mapping({}).tracing_otlp_endpoint is None
