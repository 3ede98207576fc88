"""GetTelemetrySubscriptions and PushTelemetry by the rules of Kafka's ClientMetricsManager (KIP-714)."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.harness import Broker

from tidelog.broker.context import RequestContext
from tidelog.broker.handlers import get_telemetry_subscriptions, load_handlers
from tidelog.broker.metrics.client_metrics import collect_client_metrics
from tidelog.broker.peer import Peer
from tidelog.broker.telemetry.client_metrics_manager import INSTANCES_MAX, ClientMetricsManager
from tidelog.broker.telemetry.offer import TELEMETRY_APIS, client_metrics_manager
from tidelog.broker.telemetry.subscriptions import Wanted
from tidelog.config.broker_config import BrokerConfig
from tidelog.metrics.page import Page, joined
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.records.checksum import crc32c
from tidelog.records.compression import Codec, compress

pytest.importorskip("opentelemetry.proto", reason="the extra tidelog[telemetry] is not installed")
from tests.unit.broker import telemetry_payloads as payloads

INTERVAL_MS = 1_000
ID = bytes(range(16))


class Telemetry:
    """A manager, and a client that asks it."""

    def __init__(self, folder: Path, **settings: object) -> None:
        names = {name.replace("_", "."): value for name, value in settings.items()}
        self.broker = Broker(str(folder), names)
        self.manager = ClientMetricsManager(self.broker.node.environment)
        self.subscribe()
        self.subscription_id = 0

    def subscribe(self, name: str = "all", **settings: str) -> None:
        texts = settings or {"interval.ms": str(INTERVAL_MS), "metrics": "*"}
        self.manager.subscription_changed(name, {key.replace("_", "."): value for key, value in texts.items()})

    def context(self, client_id: str | None = "app", connection_id: int = 1) -> RequestContext:
        peer = Peer("PLAINTEXT", connection_id, "127.0.0.1", 50_000)
        peer.software = "librdkafka", "2.16.0"
        return RequestContext(
            71, 0, 1, client_id, 0, client_address="127.0.0.1", connection_id=connection_id, peer=peer
        )

    def get(
        self, id: bytes = ID, client_id: str | None = "app", connection_id: int = 1
    ) -> messages.GetTelemetrySubscriptionsResponse:
        request = messages.GetTelemetrySubscriptionsRequest(client_instance_id=id)
        try:
            answer = self.manager.get(self.context(client_id, connection_id), request)
        except KafkaError as error:
            return get_telemetry_subscriptions.error_response(request, 0, error)
        self.subscription_id = answer.subscription_id
        return answer

    def push(
        self,
        payload: bytes = b"",
        id: bytes = ID,
        codec: int = Codec.NONE,
        terminating: bool = False,
        subscription_id: int | None = None,
        client_id: str = "app",
    ) -> ErrorCode:
        request = messages.PushTelemetryRequest(
            client_instance_id=id,
            subscription_id=self.subscription_id if subscription_id is None else subscription_id,
            terminating=terminating,
            compression_type=codec,
            metrics=payload,
        )
        return self.manager.push(self.context(client_id), request).result()

    def wait(self, milliseconds: int = INTERVAL_MS) -> None:
        self.broker.shell.advance(milliseconds)

    def page(self) -> str:
        page = Page()
        for _ in collect_client_metrics(page, self.manager):
            pass
        return joined(list(page.chunks())).decode()


@pytest.fixture
def telemetry(tmp_path: Path) -> Any:
    made = Telemetry(tmp_path)
    yield made
    made.broker.close()


def queue_time(value: float = 1.5, **resource: object) -> bytes:
    return payloads.librdkafka(
        payloads.gauge(f"{payloads.PREFIX}record.queue.time.avg", payloads.point(value)), **resource
    )


def created(count: int) -> bytes:
    return payloads.librdkafka(
        payloads.counted(f"{payloads.PREFIX}connection.creation.total", payloads.point(count, node__id=2))
    )


def test_what_a_client_is_told(telemetry: Telemetry) -> None:
    """One without an id gets one; codecs in Kafka's order."""
    answer = telemetry.get(bytes(16))
    assert any(answer.client_instance_id)
    assert answer.accepted_compression_types == [4, 3, 1, 2]
    assert (answer.push_interval_ms, answer.telemetry_max_bytes, answer.delta_temporality) == (1_000, 1 << 20, True)
    assert answer.requested_metrics == ["*"]
    assert telemetry.get(ID).client_instance_id == ID


def test_subscriptions_that_match_add_up(telemetry: Telemetry) -> None:
    """All their metrics, the shortest interval; a pattern matches a whole value, and all patterns of a resource."""
    telemetry.subscribe("all", metrics="")
    telemetry.subscribe(
        "one", metrics="b,a", interval_ms="500", match="client_id=app.*,client_software_name=librdkafka"
    )
    telemetry.subscribe("two", metrics="b,c", interval_ms="200000", match="client_source_port=50000")
    telemetry.subscribe("not", metrics="d", interval_ms="100", match="client_id=ap")
    telemetry.subscribe("unknown", metrics="*", match="client_id=app,client_software_version=2")
    answer = telemetry.get(client_id="app-1")
    assert (answer.requested_metrics, answer.push_interval_ms) == (["a", "b", "c"], 500)
    assert telemetry.get(bytes([1] * 16), client_id=None).requested_metrics == ["b", "c"]


def test_without_subscriptions_a_client_is_to_push_nothing(telemetry: Telemetry) -> None:
    """And asks again after Kafka's default of five minutes, which no resource can make longer."""
    telemetry.subscribe("all", interval_ms="3600000", metrics="*")
    assert telemetry.get().push_interval_ms == 300_000
    telemetry.manager.subscription_changed("all", {})
    answer = telemetry.get()
    assert (answer.requested_metrics, answer.push_interval_ms) == ([], 300_000)


def test_the_subscription_id_is_kafkas_arithmetic() -> None:
    """CRC32C of the metrics and the interval, XOR the id's hash code in Java."""
    most, least = struct.unpack(">QQ", ID)
    folded = most ^ least
    expected = crc32c(b"[a, b]1000") ^ (folded >> 32) ^ (folded & 0xFFFFFFFF)
    assert Wanted(("a", "b"), 1000).subscription_id(ID) & 0xFFFFFFFF == expected


def test_a_client_asks_once_an_interval(telemetry: Telemetry) -> None:
    """Unless other subscriptions hold now, or its push was refused for an unknown subscription."""
    assert telemetry.get().error_code == ErrorCode.NONE
    refused = telemetry.get()
    assert (refused.error_code, refused.client_instance_id) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, bytes(16))
    assert telemetry.push(subscription_id=5) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert telemetry.get().error_code == ErrorCode.NONE
    assert telemetry.get().error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    telemetry.subscribe("more", metrics="a", interval_ms="900")
    assert telemetry.get().push_interval_ms == 900
    telemetry.wait()
    assert telemetry.get().error_code == ErrorCode.NONE


def test_a_client_pushes_once_an_interval(telemetry: Telemetry) -> None:
    """The first time at once after it was told subscriptions; its last push comes whenever it ends."""
    telemetry.get()
    telemetry.wait(10)
    assert telemetry.push(queue_time()) == ErrorCode.NONE
    assert telemetry.push(queue_time()) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    telemetry.wait(INTERVAL_MS - 1)
    assert telemetry.push(queue_time()) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    telemetry.wait(1)
    assert telemetry.push(queue_time()) == ErrorCode.NONE
    assert telemetry.push(queue_time(9.0), terminating=True) == ErrorCode.NONE
    assert "} 9.0\n" in telemetry.page()
    telemetry.wait()
    assert telemetry.push(queue_time()) == ErrorCode.INVALID_REQUEST, "it had ended"


@pytest.mark.parametrize("reserved", [bytes(16), bytes(15) + b"\x01"])
def test_a_push_without_an_id_is_refused(telemetry: Telemetry, reserved: bytes) -> None:
    assert telemetry.push(queue_time(), reserved) == ErrorCode.INVALID_REQUEST
    assert len(telemetry.manager.instances) == 0


def test_what_is_wrong_with_a_push_is_said_in_kafkas_order(tmp_path: Path) -> None:
    """Subscription, codec, size, content; each at its own turn of an interval."""
    telemetry = Telemetry(tmp_path, telemetry_max_bytes=100)
    telemetry.get()
    large = bytes(101)
    assert telemetry.push(large, codec=9, subscription_id=1) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    telemetry.wait()
    assert telemetry.push(large, codec=9) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    telemetry.wait()
    assert telemetry.push(large) == ErrorCode.TELEMETRY_TOO_LARGE
    telemetry.wait()
    assert telemetry.push(b"not compressed", codec=Codec.GZIP) == ErrorCode.INVALID_RECORD
    telemetry.wait()
    bomb = compress(Codec.ZSTD, bytes(100_000))
    assert telemetry.push(bomb, codec=Codec.ZSTD) == ErrorCode.TELEMETRY_TOO_LARGE
    telemetry.wait()
    assert telemetry.push(b"\xff\xff", codec=Codec.NONE) == ErrorCode.INVALID_RECORD
    telemetry.wait()
    assert telemetry.push() == ErrorCode.NONE, "nothing to say is fine"
    assert 'tidelog_client_metrics_pushes_total{error="INVALID_RECORD"} 2' in telemetry.page()
    telemetry.broker.close()


@pytest.mark.parametrize("codec", Codec)
def test_every_codec_is_read(telemetry: Telemetry, codec: Codec) -> None:
    telemetry.get()
    assert telemetry.push(compress(codec, queue_time(3.25)), codec=codec) == ErrorCode.NONE
    assert "record_queue_time_avg" in telemetry.page()


def test_what_a_page_shows_of_a_client(telemetry: Telemetry) -> None:
    """Gauges as they were pushed last, counters added up, and who the client is."""
    telemetry.get()
    telemetry.push(queue_time(1.5, group_id='a"g', client_id="forged"))
    telemetry.wait()
    telemetry.push(created(3))
    telemetry.wait()
    telemetry.push(created(4))
    own = 'client_id="app",client_instance_id="AAECAwQFBgcICQoLDA0ODw"'
    page = telemetry.page()
    assert f'org_apache_kafka_producer_connection_creation_total{{{own},node_id="2"}} 7\n' in page
    assert "record_queue_time_avg" not in page, "a gauge holds until the next push"
    assert "# TYPE org_apache_kafka_producer_connection_creation_total counter" in page
    assert "kafka_server_client_metrics_instance_count 1\n" in page
    info = next(line for line in page.splitlines() if line.startswith("tidelog_client_info{"))
    for label in ('client_software_name="librdkafka"', 'client_source_address="127.0.0.1"', 'client_id="app"'):
        assert label in info
    assert "forged" not in page


def test_a_resource_is_shown_escaped(telemetry: Telemetry) -> None:
    telemetry.get()
    telemetry.push(queue_time(1.5, group_id='a"\n\\g'))
    assert r'group_id="a\"\n\\g"' in telemetry.page()


def test_a_clients_words_are_cut(telemetry: Telemetry) -> None:
    """A client id of 32 KiB would stand on each of its series."""
    telemetry.get(client_id="x" * 32_767)
    telemetry.push(queue_time())
    assert f'{{client_id="{"x" * 256}",client_instance_id' in telemetry.page()


def test_a_silent_client_is_forgotten(telemetry: Telemetry) -> None:
    """After a minute or three intervals; its connection's end makes it new at once, and leaves what it has pushed."""
    telemetry.get()
    telemetry.push(queue_time())
    telemetry.manager.connection_closed(1)
    assert not telemetry.manager.instances
    assert "record_queue_time_avg" in telemetry.page()
    assert telemetry.get().error_code == ErrorCode.NONE
    telemetry.wait(60_000)
    page = telemetry.page()
    assert "record_queue_time_avg" not in page
    assert "instance_count 0\n" in page
    assert "tidelog_client_metrics_series 0\n" in page


def test_clients_are_bounded(telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one unheard for longest goes first."""
    assert INSTANCES_MAX == 16_384
    monkeypatch.setattr("tidelog.broker.telemetry.client_metrics_manager.INSTANCES_MAX", 3)
    for number in (1, 2, 3, 1, 4):
        telemetry.get(bytes([number] * 16), connection_id=number)
    assert [id[0] for id in telemetry.manager.instances] == [3, 1, 4]


def test_series_are_bounded(tmp_path: Path) -> None:
    """By the setting, a quarter of them for one client; what is left out is counted."""
    telemetry = Telemetry(tmp_path, metrics_client_series=8)
    points = [payloads.point(float(number), topic=f"t{number}") for number in range(5)]
    for number in range(1, 6):
        id = bytes([number] * 16)
        telemetry.get(id)
        assert telemetry.push(payloads.librdkafka(payloads.gauge(f"{payloads.PREFIX}x", *points)), id) == 0
    page = telemetry.page()
    assert page.count("org_apache_kafka_producer_x{") == 8
    assert "tidelog_client_metrics_series 8\n" in page
    assert f"tidelog_client_metrics_left_out_total {5 * 5 - 8}\n" in page
    telemetry.broker.close()


def test_clients_are_asked_only_where_a_page_shows_what_they_push(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a listener, or the extra, the APIs are not there, and a resource that asks for metrics is remarked on."""
    broker = Broker(str(tmp_path))
    assert not TELEMETRY_APIS & broker.node.handlers.keys()
    assert load_handlers().keys() >= TELEMETRY_APIS
    assert client_metrics_manager(broker.node.environment) is None
    broker.node._client_metrics_changed("m", {"metrics": "*"})
    assert "client metrics not collected: resource=m reason='metrics.listener is not set'" in caplog.text
    values = {"broker.id": 0, "log.dirs": str(tmp_path), "listeners": "PLAINTEXT://:0", "metrics.listener": "0"}
    broker.node.environment.config = broker.node.config = BrokerConfig.from_mapping(values)
    assert client_metrics_manager(broker.node.environment) is not None
    monkeypatch.setattr("tidelog.broker.telemetry.otlp.is_installed", lambda: False)
    assert client_metrics_manager(broker.node.environment) is None
    broker.node._client_metrics_changed("m", {"metrics": "*"})
    assert "tidelog[telemetry]" in caplog.text
    broker.close()
