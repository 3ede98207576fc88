"""Options of a write: read once, refused with what would be right."""

from __future__ import annotations

import pytest

from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.sink.options import Delivery, SinkOptions, parse_sink_options
from tidelog.records.compression import Codec


def parse(**given: str) -> SinkOptions:
    return parse_sink_options({"kafka.bootstrap.servers": "h:1"} | given)


def test_defaults() -> None:
    """Exactly once, acks all, a transaction timeout of 15 minutes."""
    options = parse()
    assert options.delivery is Delivery.EXACTLY_ONCE
    assert (options.acks, options.transaction_timeout_ms, options.topic) == (-1, 900_000, None)


def test_producers_settings_by_kafkas_names() -> None:
    """Names have no case; Java's other settings are accepted."""
    options = parse_sink_options(
        {
            "KAFKA.bootstrap.servers": "h:1",
            "topic": "t",
            "delivery": "At-Least-Once",
            "partitioner": "murmur2_random",
            "kafka.acks": "1",
            "kafka.compression.type": "zstd",
            "kafka.compression.zstd.level": "7",
            "kafka.batch.size": "5000",
            "kafka.linger.ms": "5",
        }
    )
    assert (options.topic, options.delivery, options.partitioner) == ("t", Delivery.AT_LEAST_ONCE, "murmur2_random")
    assert (options.acks, options.codec, options.level, options.batch_bytes) == (1, Codec.ZSTD, 7, 5000)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"delivery": "twice"}, "exactly-once or at-least-once"),
        ({"kafka.acks": "1"}, "exactly-once, which needs all"),
        ({"kafka.acks": "2"}, "all, 1 or 0"),
        ({"kafka.compression.type": "rar"}, "gzip"),
        ({"kafka.compression.type": "gzip", "kafka.compression.gzip.level": "12"}, "from 1 to 9"),
        ({"kafka.batch.size": "0"}, "from 1 to"),
        ({"kafka.batch.size": "many"}, "whole number"),
        ({"partitioner": "best"}, "round_robin"),
        ({"topic": "a b"}, "cannot exist"),
        ({"toppic": "a"}, "did you mean topic"),
        ({"kafka.comression.type": "lz4"}, "did you mean kafka.compression.type"),
        ({"kafka.value.serializer": "x"}, "convert them"),
        ({"kafka.partitioner.class": "x"}, "set partitioner"),
        ({"kafka.security.protocol": "TLS"}, "cannot be used"),
        ({"kafka.sasl.pasword": "x"}, "no setting that secures"),
        ({"kafka.ssl.engine.factory.class": "x"}, "cannot be set"),
        ({"kafka.transactional.id": "x", "delivery": "at-least-once"}, "without transactions"),
        ({"stagingPrefix": "a b"}, "begins no topic's name"),
    ],
)
def test_what_is_wrong_is_refused(given: dict[str, str], words: str) -> None:
    """With the option's name and what would be right."""
    with pytest.raises(OptionError, match=words):
        parse(**given)


def test_brokers_must_be_given() -> None:
    """As for reads."""
    with pytest.raises(OptionError, match=r"kafka.bootstrap.servers is missing"):
        parse_sink_options({"topic": "t"})


def test_unknown_names_are_told() -> None:
    """A warning, as for reads."""
    with pytest.warns(UserWarning, match="frobnicate"):
        parse(frobnicate="1")
