"""Brokers' settings: the metrics listener, which is tidelog's own, and Kafka's reporters, which are not loaded."""

from typing import Final

from tidelog.config.definitions.vocabulary import ACCEPTED, BOOLEAN, CLUSTER_WIDE, INT, LIST, LONG, LOW, STRING
from tidelog.config.setting import Range, Setting

SETTINGS: Final = (
    Setting(
        "auto.include.jmx.reporter",
        BOOLEAN,
        True,
        "Whether Kafka 3 reports metrics to JMX by itself.",
        importance=LOW,
        effect=ACCEPTED,
    ),
    Setting(
        "kafka.metrics.polling.interval.secs",
        INT,
        10,
        "How often Kafka's metrics reporters are asked.",
        valid=Range(1),
        importance=LOW,
        effect=ACCEPTED,
    ),
    Setting(
        "kafka.metrics.reporters", LIST, (), "Classes that report Kafka's metrics.", importance=LOW, effect=ACCEPTED
    ),
    Setting(
        "metric.reporters",
        LIST,
        (),
        "Classes that report metrics; Kafka's default is its JMX reporter.",
        importance=LOW,
        mode=CLUSTER_WIDE,
        effect=ACCEPTED,
    ),
    Setting(
        "metrics.listener",
        STRING,
        None,
        "tidelog's own: where `/metrics`, `/healthz` and `/readyz` are served by HTTP: `9404`, which is on loopback, or"
        " `0.0.0.0:9404`. Port 0 is any free one; not set: nowhere.",
    ),
    Setting(
        "metrics.num.samples", INT, 2, "Samples kept for a metric.", valid=Range(1), importance=LOW, effect=ACCEPTED
    ),
    Setting("metrics.recording.level", STRING, "INFO", "How detailed metrics are.", importance=LOW, effect=ACCEPTED),
    Setting(
        "metrics.sample.window.ms",
        LONG,
        30000,
        "Milliseconds a sample of a metric.",
        valid=Range(1),
        importance=LOW,
        effect=ACCEPTED,
    ),
    Setting(
        "telemetry.max.bytes",
        INT,
        1_048_576,
        "The largest metrics message of a client (KIP-714).",
        valid=Range(1),
        importance=LOW,
        effect=ACCEPTED,
    ),
)
