"""Pathway: a table that follows a topic, its doubles written as they come."""

import sys

import pathway as pw

bootstrap, source, sink = sys.argv[1:]
settings = {"bootstrap.servers": bootstrap, "group.id": "pathway", "auto.offset.reset": "earliest"}
numbers = pw.io.kafka.read(settings, topic=source, format="plaintext", autocommit_duration_ms=500)
doubled = numbers.select(value=2 * pw.cast(int, pw.this.data))
pw.io.kafka.write(doubled, settings, topic_name=sink, format="json")
pw.run(monitoring_level=pw.MonitoringLevel.NONE)
