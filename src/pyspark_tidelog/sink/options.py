"""The options of a write: the official connector's sink and Kafka's producer settings, read once and checked whole."""

import difflib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from pyspark_tidelog import kafka_settings
from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.options import STAGING_PREFIX_DEFAULT, parse_brokers
from pyspark_tidelog.security_options import parse_security
from tidelog.client.partitioners import DEFAULT, PARTITIONERS
from tidelog.model.topics import invalid_topic_name_reason
from tidelog.records.compression import LEVELS, Codec

KAFKA_PREFIX: Final = "kafka."
BATCH_BYTES_DEFAULT: Final = 1_000_000
"""Bytes of records in a batch before compression: under the default max.message.bytes."""
BUFFER_BYTES_DEFAULT: Final = 16 << 20
TRANSACTION_TIMEOUT_MS_DEFAULT: Final = 15 * 60 * 1000
"""The most that brokers allow unless transaction.max.timeout.ms says otherwise."""
STAGING_PARTITIONS_DEFAULT: Final = 8


class Delivery(Enum):
    """What a write promises."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Everything that the options of one write say; immutable and cheap to pickle."""

    bootstrap: str
    topic: str | None = None
    """Where all rows go; None: each row's `topic` column says it."""
    delivery: Delivery = Delivery.EXACTLY_ONCE
    partitioner: str = DEFAULT
    """A name of `client.partitioners`, or `module:name` of a user's own."""
    acks: int = -1
    codec: Codec = Codec.NONE
    level: int | None = None
    batch_bytes: int = BATCH_BYTES_DEFAULT
    buffer_bytes: int = BUFFER_BYTES_DEFAULT
    """Of rows that a task gathers before it encodes them; a task takes some seven times as much memory."""
    record_bytes_max: int | None = None
    """None: the topic's max.message.bytes alone bounds a record."""
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS_DEFAULT
    transactional_id: str | None = None
    """None: one of the query's, or of the batch job's, own."""
    client_id: str = "tidelog-spark"
    security: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Kafka's client properties of security, name and value, passwords among them."""
    staging_prefix: str = STAGING_PREFIX_DEFAULT
    staging_partitions: int = STAGING_PARTITIONS_DEFAULT
    staging_replication_factor: int = -1
    """-1: the cluster's default."""
    first_batch: int = 0
    """The batch that a query may begin with where the private topic has no mark of it."""


_OWN: Final = (
    "topic",
    "delivery",
    "partitioner",
    "firstBatch",
    "stagingPrefix",
    "stagingPartitions",
    "stagingReplicationFactor",
)
_SPARKS: Final = frozenset({"path", "checkpointlocation", "includeheaders", "queryname", "outputmode"})
"""Spark hands these on, or the connector's readers and writers share them."""
_KAFKA_USED: Final = frozenset(
    {
        "bootstrap.servers",
        "acks",
        "compression.type",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "batch.size",
        "buffer.memory",
        "max.request.size",
        "request.timeout.ms",
        "delivery.timeout.ms",
        "transaction.timeout.ms",
        "transactional.id",
        "client.id",
        *kafka_settings.SECURITY,
    }
)
_KAFKA_ACCEPTED: Final = frozenset(
    {
        "enable.idempotence",
        "linger.ms",
        "retries",
        "max.in.flight.requests.per.connection",
        "max.block.ms",
        "metadata.max.age.ms",
        "metadata.max.idle.ms",
        "retry.backoff.ms",
        "retry.backoff.max.ms",
        "reconnect.backoff.ms",
        "reconnect.backoff.max.ms",
        "connections.max.idle.ms",
        "receive.buffer.bytes",
        "send.buffer.bytes",
        "client.dns.lookup",
        "socket.connection.setup.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        *kafka_settings.SECURITY_ACCEPTED,
        kafka_settings.LOGIN_HANDLER,
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "enable.metrics.push",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
    }
)
"""Settings of Kafka's Java producer without a counterpart here: moving over needs no edit."""
_KAFKA_REFUSED: Final = {
    "key.serializer": "keys are binary or strings; convert them with DataFrame operations",
    "value.serializer": "values are binary or strings; convert them with DataFrame operations",
    "interceptor.classes": "there is no Java producer that could run an interceptor",
    "partitioner.class": f"there is no Java here; set partitioner to one of {', '.join(PARTITIONERS)}, or module:name",
    "partitioner.ignore.keys": "set partitioner to uniform_sticky, round_robin or random",
}


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """The meaning of `given`; raises `OptionError` for the first thing that is wrong."""
    options = {name.lower(): value for name, value in given.items()}
    _check_names(given)
    kafka = {name.removeprefix(KAFKA_PREFIX): value for name, value in options.items() if name.startswith(KAFKA_PREFIX)}
    bootstrap = parse_brokers(kafka)
    delivery = _parse_delivery(options)
    codec = _parse_codec(kafka)
    transactional_id = kafka.get("transactional.id")
    if transactional_id is not None and not transactional_id.strip():
        raise OptionError("kafka.transactional.id", "is empty; leave it out for one of the query's own")
    if transactional_id is not None and delivery is Delivery.AT_LEAST_ONCE:
        raise OptionError("kafka.transactional.id", "is set, but delivery is at-least-once, without transactions")
    return SinkOptions(
        bootstrap=bootstrap,
        topic=_parse_topic(options),
        delivery=delivery,
        partitioner=_parse_partitioner(options),
        acks=_parse_acks(kafka, delivery),
        codec=codec,
        level=_parse_level(kafka, codec),
        batch_bytes=_positive(options, "kafka.batch.size", BATCH_BYTES_DEFAULT, most=1 << 30),
        buffer_bytes=_positive(options, "kafka.buffer.memory", BUFFER_BYTES_DEFAULT, most=1 << 30),
        record_bytes_max=_positive(options, "kafka.max.request.size", 0, most=1 << 30) or None,
        request_timeout_ms=_positive(options, "kafka.request.timeout.ms", 30_000),
        delivery_timeout_ms=_positive(options, "kafka.delivery.timeout.ms", 120_000),
        transaction_timeout_ms=_positive(options, "kafka.transaction.timeout.ms", TRANSACTION_TIMEOUT_MS_DEFAULT),
        transactional_id=transactional_id,
        client_id=kafka.get("client.id", "tidelog-spark"),
        security=parse_security(kafka),
        staging_prefix=_parse_prefix(options),
        staging_partitions=_positive(options, "stagingPartitions", STAGING_PARTITIONS_DEFAULT, most=1000),
        staging_replication_factor=_positive(options, "stagingReplicationFactor", -1, most=32767),
        first_batch=_whole(options, "firstBatch", 0),
    )


def _check_names(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in _OWN}
    for name, value in given.items():
        lower = name.lower()
        if lower in known or lower in _SPARKS:
            continue
        if lower.startswith(KAFKA_PREFIX):
            setting = lower.removeprefix(KAFKA_PREFIX)
            if reason := _refusal(setting, value):
                raise OptionError(name, f"cannot be set: {reason}")
            if setting in _KAFKA_USED or setting in _KAFKA_ACCEPTED:
                continue
            if setting.startswith(("ssl.", "sasl.")):
                raise OptionError(name, "is no setting that secures the sink's connections; docs/spark.md lists those")
            candidates = {KAFKA_PREFIX + setting: KAFKA_PREFIX + setting for setting in _KAFKA_USED | _KAFKA_ACCEPTED}
        else:
            candidates = known | {"kafka.bootstrap.servers": "kafka.bootstrap.servers"}
        close = difflib.get_close_matches(lower, candidates, n=1, cutoff=0.85)
        if close:
            raise OptionError(name, f"is not an option; did you mean {candidates[close[0]]}?")
        warnings.warn(f"option {name} is not known to the sink of format('tidelog') and has no effect", stacklevel=4)


def _refusal(setting: str, value: str) -> str | None:
    if setting.startswith(("ssl.", "sasl.")):
        return kafka_settings.refusal(setting, value)
    return _KAFKA_REFUSED.get(setting)


def _parse_topic(options: Mapping[str, str]) -> str | None:
    topic = options.get("topic")
    if topic is not None and (reason := invalid_topic_name_reason(topic)):
        raise OptionError("topic", f"names a topic that cannot exist: {reason}")
    return topic


def _parse_delivery(options: Mapping[str, str]) -> Delivery:
    text = options.get("delivery", Delivery.EXACTLY_ONCE.value).strip().lower()
    try:
        return Delivery(text)
    except ValueError:
        raise OptionError("delivery", f"is {text!r}; it can be exactly-once or at-least-once") from None


def _parse_partitioner(options: Mapping[str, str]) -> str:
    text = options.get("partitioner", DEFAULT).strip()
    if ":" not in text and text not in PARTITIONERS:
        names = ", ".join(PARTITIONERS)
        raise OptionError("partitioner", f"is {text!r}; it can be one of {names}, or module:name of your own")
    return text


def _parse_acks(kafka: Mapping[str, str], delivery: Delivery) -> int:
    text = kafka.get("acks", "all").strip().lower()
    acks = {"all": -1, "-1": -1, "0": 0, "1": 1}.get(text)
    if acks is None:
        raise OptionError("kafka.acks", f"is {text!r}; it can be all, 1 or 0")
    if acks != -1 and delivery is Delivery.EXACTLY_ONCE:
        raise OptionError("kafka.acks", f"is {text}, but delivery is exactly-once, which needs all")
    return acks


def _parse_codec(kafka: Mapping[str, str]) -> Codec:
    text = kafka.get("compression.type", "none").strip().lower()
    try:
        return Codec.of_name(text)
    except ValueError:
        names = ", ".join(codec.codec_name for codec in Codec)
        raise OptionError("kafka.compression.type", f"is {text!r}; it can be one of {names}") from None


def _parse_level(kafka: Mapping[str, str], codec: Codec) -> int | None:
    setting = f"compression.{codec.codec_name}.level"
    text = kafka.get(setting)
    if text is None or codec not in LEVELS:
        return None
    lowest, highest, default = LEVELS[codec]
    try:
        level = int(text)
    except ValueError:
        level = lowest - 1
    if not (lowest <= level <= highest or level == default):
        raise OptionError(KAFKA_PREFIX + setting, f"is {text!r}; give a whole number from {lowest} to {highest}")
    return level


def _parse_prefix(options: Mapping[str, str]) -> str:
    prefix = options.get("stagingprefix", STAGING_PREFIX_DEFAULT).strip()
    if (reason := invalid_topic_name_reason(prefix + "0" * 60)) or not prefix:
        raise OptionError("stagingPrefix", f"{prefix!r} begins no topic's name: {reason or 'it is empty'}")
    return prefix


def _positive(options: Mapping[str, str], name: str, default: int, *, most: int = 2**31 - 1) -> int:
    if name.lower() not in options:
        return default
    number = _whole(options, name, default)
    if not 1 <= number <= most:
        raise OptionError(name, f"is {number}; give a whole number from 1 to {most}")
    return number


def _whole(options: Mapping[str, str], name: str, default: int) -> int:
    if (text := options.get(name.lower())) is None:
        return default
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise OptionError(name, f"is {text!r}; give a whole number from 0 on")
    return int(text)
