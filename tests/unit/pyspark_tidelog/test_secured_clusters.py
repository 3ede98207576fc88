"""A secured cluster through source and sink: Kafka's client properties in the driver and in tasks."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.certificates import Authority
from tests.keeping import KEEPING

from pyspark_tidelog import connections
from pyspark_tidelog.batch import TidelogBatchReader
from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.options import parse_options
from pyspark_tidelog.sink.copying import commit_micro_batch
from pyspark_tidelog.sink.options import parse_sink_options
from pyspark_tidelog.sink.task import stage
from tidelog.client import admin
from tidelog.client.blocking import BlockingCluster
from tidelog.client.errors import AuthenticationError
from tidelog.model.identifiers import TopicPartition
from tidelog.records.batch import build_batch
from tidelog.records.record import Record
from tidelog.security.oauthbearer import unsecured_login
from tidelog.testing import Cluster

pytestmark = [pytest.mark.row("R38")]

ALICE = {"kafka.sasl.username": "alice", "kafka.sasl.password": "secret"}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
VALIDATOR = f"{_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
BY_TOKEN = {"kafka.sasl.mechanism": "OAUTHBEARER"}


@pytest.fixture(scope="module")
def cluster(authority: Authority) -> Iterator[Cluster]:
    """A listener for passwords over TLS, one for none, and a topic with three records."""
    settings = {
        **KEEPING,
        "listeners": "SASL_SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("broker", "/CN=broker")),
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN} user_alice="secret";',
        "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": f'{BEARER} unsecuredLoginStringClaim_sub="broker";',
        "listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class": VALIDATOR,
        "connection.failed.authentication.delay.ms": "10",
    }
    with Cluster(settings) as started, BlockingCluster(started.runtime.addresses[1]) as client:
        client.run(admin.create_topics(client.routing, [admin.NewTopic("t", 1, 1), admin.NewTopic("written", 1, 1)]))
        records = [Record(index, 0, None, b"v%d" % index, ()) for index in range(3)]
        client.produce(TopicPartition("t", 0), build_batch(records))
        yield started
        connections.close_idle()


def secured(cluster: Cluster, trusted: Path) -> dict[str, str]:
    """The options that reads and writes share, but for user and password."""
    return {
        "kafka.bootstrap.servers": cluster.runtime.addresses[0],
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(trusted),
        "kafka.request.timeout.ms": "5000",
    }


def read(cluster: Cluster, trusted: Path, login: dict[str, str], topic: str = "t") -> list[bytes]:
    """As Spark does it: planned here, read by a copy."""
    given = secured(cluster, trusted) | login | {"subscribe": topic, "kafka.isolation.level": "read_committed"}
    reader = TidelogBatchReader(parse_options(given, streaming=False))
    in_task = pickle.loads(pickle.dumps(reader))
    batches = [batch for each in reader.partitions() for batch in in_task.read(each)]
    return [value for batch in batches for value in batch.column("value").to_pylist()]


@pytest.mark.parametrize(
    "login",
    [
        {"kafka.sasl.jaas.config": f'{PLAIN} username="alice" password="secret";'},
        ALICE,
    ],
)
def test_a_secured_topic_is_read(cluster: Cluster, authority: Authority, login: dict[str, str]) -> None:
    """By Java's way to name user and password, which jobs that move here have, and by librdkafka's."""
    assert read(cluster, authority.certificate, login) == [b"v0", b"v1", b"v2"]


def test_a_wrong_password_is_told_at_once(cluster: Cluster, authority: Authority) -> None:
    with pytest.raises(AuthenticationError):
        read(cluster, authority.certificate, {"kafka.sasl.username": "alice", "kafka.sasl.password": "wrong"})


def test_a_broker_that_is_not_trusted_gets_no_password(cluster: Cluster, tmp_path: Path) -> None:
    stranger = Authority(tmp_path)
    with pytest.raises(AuthenticationError, match="TLS handshake"):
        read(cluster, stranger.certificate, {"kafka.sasl.username": "alice", "kafka.sasl.password": "secret"})


@pytest.mark.parametrize(
    "login",
    [
        {"kafka.sasl.oauthbearer.config": "principal=alice"},
        {
            "kafka.sasl.jaas.config": f'{BEARER} unsecuredLoginStringClaim_sub="alice";',
            "kafka.sasl.login.callback.handler.class": f"{_PACKAGE}.OAuthBearerLoginCallbackHandler",
            "kafka.sasl.login.refresh.window.factor": "0.8",
        },
    ],
)
def test_a_topic_is_read_with_a_bearer_token(cluster: Cluster, authority: Authority, login: dict[str, str]) -> None:
    """By librdkafka's way to a token without a signature, and by Java's with all that it must name."""
    assert read(cluster, authority.certificate, BY_TOKEN | login) == [b"v0", b"v1", b"v2"]


def test_a_token_is_read_from_its_file_where_a_connection_is_made(
    cluster: Cluster, authority: Authority, tmp_path: Path
) -> None:
    """A job runs longer than a token is good: the file has a fresh one."""
    file = tmp_path / "token"
    login = BY_TOKEN | {"kafka.sasl.oauthbearer.token.endpoint.url": file.as_uri()}
    file.write_text(unsecured_login({"unsecuredLoginStringClaim_sub": "alice"}, int(time.time()) - 7200))
    with pytest.raises(AuthenticationError):
        read(cluster, authority.certificate, login)
    file.write_text(unsecured_login({"unsecuredLoginStringClaim_sub": "alice"}, int(time.time())))
    assert read(cluster, authority.certificate, login) == [b"v0", b"v1", b"v2"]


@pytest.mark.parametrize("parse", [parse_options, parse_sink_options])
def test_java_handlers_of_others_are_refused(parse: Callable[..., object]) -> None:
    given = {"kafka.bootstrap.servers": "x:1", "kafka.sasl.login.callback.handler.class": "com.example.Handler"}
    more = {"streaming": False} if parse is parse_options else {}
    with pytest.raises(OptionError, match="no Java client"):
        parse(given | {"subscribe" if more else "topic": "t"}, **more)


def test_a_secured_topic_is_written_once(cluster: Cluster, authority: Authority) -> None:
    """Staged by a task, copied by the driver, in a transaction."""
    login = BY_TOKEN | {"kafka.sasl.oauthbearer.config": "principal=alice"}
    given = secured(cluster, authority.certificate) | login | {"topic": "written", "stagingPartitions": "1"}
    options = pickle.loads(pickle.dumps(parse_sink_options(given)))
    rows = pa.RecordBatch.from_arrays([pa.array([b"one", b"two"])], ["value"])
    staged = stage(options, ("value",), [rows], query="q" * 32, batch=0, is_query=True)
    commit_micro_batch(options, [staged], 0)
    assert read(cluster, authority.certificate, ALICE, "written") == [b"one", b"two"]


def test_a_write_with_a_wrong_password_is_refused_at_once(cluster: Cluster, authority: Authority) -> None:
    login = {"kafka.sasl.username": "alice", "kafka.sasl.password": "wrong"}
    options = parse_sink_options(secured(cluster, authority.certificate) | login | {"topic": "written"})
    rows = pa.RecordBatch.from_arrays([pa.array([b"one"])], ["value"])
    with pytest.raises(AuthenticationError):
        stage(options, ("value",), [rows], query="p" * 32, batch=0, is_query=True)


def test_passwords_are_not_printed() -> None:
    """Options come into logs and error messages."""
    given = {"kafka.bootstrap.servers": "x:1", "subscribe": "t", "kafka.security.protocol": "SASL_PLAINTEXT"}
    login = {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "alice", "kafka.sasl.password": "hunter2"}
    options = parse_options(given | login, streaming=False)
    assert ("sasl.password", "hunter2") in options.security
    assert "hunter2" not in repr(options)
    del given["subscribe"]
    sink = parse_sink_options(given | login)
    assert ("sasl.password", "hunter2") in sink.security
    assert "hunter2" not in repr(sink)
