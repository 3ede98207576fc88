"""A Kafka-compatible distributed log in Python, whose topics are tables in Spark."""

__version__ = "0.1.0"
