"""Brokers' settings: the metrics listener and spans, which are tidelog's own, and Kafka's reporters, not loaded."""

from typing import Final

from tidelog.config.table import settings

SETTINGS: Final = settings(
    """\
auto.include.jmx.reporter | boolean | true | | low; accepted | Whether Kafka 3 reports metrics to JMX by itself.
kafka.metrics.polling.interval.secs | int | 10 | [1,...] | low; accepted |
    How often Kafka's metrics reporters are asked.
kafka.metrics.reporters | list | | | low; accepted | Classes that report Kafka's metrics.
logging.format | string | text | [text, json] | |
    tidelog's own: how the broker's log is written: lines of text, or an object of JSON a line.
metric.reporters | list | | | low; cluster-wide; accepted |
    Classes that report metrics; Kafka's default is its JMX reporter.
metrics.client.series | int | 20000 | [0,...] | cluster-wide |
    tidelog's own: how many series the metrics that clients push (KIP-714) may have on this broker, a quarter of them of
    one client; what is beyond is left out, and counted.
metrics.groups | string | .* | regular-expression | cluster-wide |
    tidelog's own: a regular expression (RE2); groups whose whole id matches have series of their own.
metrics.listener | string | null | | |
    tidelog's own: where `/metrics`, `/healthz` and `/readyz` are served by HTTP: `9404`, which is on loopback, or
    `0.0.0.0:9404`. Port 0 is any free one; not set: nowhere.
metrics.num.samples | int | 2 | [1,...] | low; accepted | Samples kept for a metric.
metrics.partitions | boolean | true | | cluster-wide |
    tidelog's own: whether partitions have series of their own, about 20 for each replica; topics have theirs in any
    case.
metrics.recording.level | string | INFO | | low; accepted | How detailed metrics are.
metrics.sample.window.ms | long | 30000 | [1,...] | low; accepted | Milliseconds a sample of a metric.
metrics.topics | string | .* | regular-expression | cluster-wide |
    tidelog's own: a regular expression (RE2); topics whose whole name matches have series of their own, and so have
    their partitions. Sums over all topics are not touched.
slow.request.ms | int | null | [0,...] | |
    tidelog's own: requests that take longer are logged with their phases, ten in ten seconds at most, and counted. It
    works with `metrics.listener`; each request is timed then, on a busy broker too. Not set: none is.
telemetry.max.bytes | int | 1048576 | [1,...] | low |
    The largest metrics message of a client (KIP-714), also when it is decompressed.
tracing.otlp.endpoint | string | null | | |
    tidelog's own: where OpenTelemetry spans of admin operations are sent, by OTLP over HTTP:
    `http://127.0.0.1:4318/v1/traces`. Needs `tidelog[tracing]`. Not set: there are none.
"""
)
