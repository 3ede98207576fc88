"""librdkafka pushes its metrics as it is (KIP-714), and the broker's page shows them."""

from __future__ import annotations

import urllib.request

import pytest
from confluent_kafka import Producer

from tests.waiting import until
from tidelog.client.addresses import Address
from tidelog.client.blocking import BlockingConnection
from tidelog.metadata.image import ConfigResourceType
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.testing import Cluster

pytest.importorskip("opentelemetry.proto", reason="the extra tidelog[telemetry] is not installed")


def subscribe(bootstrap: str, **settings: str) -> None:
    """Makes a client metrics resource: confluent-kafka's own admin client cannot."""
    alter = messages.IncrementalAlterConfigsRequest
    configs = [alter.AlterableConfig(name=name, value=value) for name, value in settings.items()]
    configs.append(alter.AlterableConfig(name="interval.ms", value="200"))
    resource = alter.AlterConfigsResource(
        resource_type=ConfigResourceType.CLIENT_METRICS, resource_name="m", configs=configs
    )
    host, _, port = bootstrap.rpartition(":")
    connection = BlockingConnection(Address(host, int(port)))
    answer = connection.request(alter(resources=[resource]), 1)
    connection.close()
    assert answer.responses[0].error_code == ErrorCode.NONE


def test_librdkafka_pushes_what_it_is_asked_for() -> None:
    """A client metrics resource is made, and its producer's metrics of the chosen prefix come, of no other client."""
    with Cluster({"metrics.listener": "0"}) as cluster:
        assert cluster.runtime.metrics_address is not None
        url = f"http://{cluster.runtime.metrics_address}/metrics"

        def page() -> str:
            with urllib.request.urlopen(url, timeout=180) as answer:
                return str(answer.read().decode())

        subscribe(cluster.bootstrap, metrics="org.apache.kafka.producer.node", match="client_id=measured")
        producers = [
            Producer({"bootstrap.servers": cluster.bootstrap, "client.id": id}) for id in ("measured", "other")
        ]
        name = "org_apache_kafka_producer_node_request_latency_avg"
        until(lambda: f'{name}{{client_id="measured"' in page())
        # The first push may come before it has asked this broker anything.
        until(lambda: 'node_id="0"' in page())
        found = page()
        assert 'client_software_name="confluent-kafka-python"' in found
        assert "org_apache_kafka_producer_connection" not in found, "it was not asked for"
        assert 'client_id="other"' not in found
        assert [producer.flush(180) for producer in producers] == [0, 0]
