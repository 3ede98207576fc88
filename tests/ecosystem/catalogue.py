"""What is tried, in which version, and what is not, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Software:
    """One piece of software: installed by pip into an environment of its own, where `software/with_<name>.py` runs."""

    name: str
    title: str
    requirements: tuple[str, ...]
    """Pinned; what these need in turn is pip's choice."""
    shows: str
    """What its script does beyond reading and writing topics."""


SOFTWARE: Final = (
    Software(
        "quixstreams",
        "Quix Streams 3.28",
        ("quixstreams==3.28.1",),
        "exactly once: state with a changelog topic, offsets in transactions",
    ),
    Software(
        "faust",
        "faust-streaming 0.15",
        ("faust-streaming==0.15.3", "aiokafka==0.14.0"),
        "an agent, and a table with a changelog topic",
    ),
    Software(
        "bytewax",
        "Bytewax 0.21",
        ("bytewax==0.21.1", "confluent-kafka==2.16.1"),
        "a dataflow that reads to the end of its topic",
    ),
    Software(
        "faststream",
        "FastStream 0.7",
        ("faststream[confluent]==0.7.8", "confluent-kafka==2.16.1"),
        "a subscriber that publishes",
    ),
    Software(
        "celery",
        "Celery 5.7 with kombu's Kafka transport",
        ("celery==5.7.0", "kombu[confluentkafka]==5.7.0"),
        "tasks through topics, a worker that acknowledges",
    ),
    Software(
        "pathway",
        "Pathway 0.33",
        ("pathway==0.33.0",),
        "a table that follows a topic",
    ),
)

SKIPPED: Final = {
    "Debezium on PostgreSQL": "a PostgreSQL server with logical decoding is needed",
    "PyFlink's Kafka connector": "Flink with its Python package takes hundreds of megabytes",
    "rsyslog (omkafka), syslog-ng (kafka-c)": "packages of a distribution with services of their own",
}
"""Not run by `make ecosystem`, and why."""
