"""Fixtures of the tests on Spark."""

from tests.unit.pyspark_tidelog.spark_fixtures import broker, spark

__all__ = ["broker", "spark"]
