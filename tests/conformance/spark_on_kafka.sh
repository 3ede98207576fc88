#!/usr/bin/env bash
# The Spark source's and sink's own tests, against Apache Kafka instead of tidelog. Needs $TIDELOG_KAFKA_JARS (kafka_jars.sh) and a JDK.
set -eu
cd "$(dirname "$0")/../.."
export PATH="$PWD/.venv/bin:$PATH"
work=$(mktemp -d)
port=$(python -c 'from tests.ports import free_port; print(free_port())')
stop() {
  bench/peers/kafka.sh stop "$work"
  rm -rf "$work"
}
trap stop EXIT
mkdir -p "$work"
ln -s "$TIDELOG_KAFKA_JARS" "$work/libs"
HEAP="-Xmx512M -Xms256M" bench/peers/kafka.sh start "$work" 1 "$port"
deadline=$((SECONDS + 180))
until python -c "
import sys
from tidelog.client.blocking import BlockingCluster
BlockingCluster(sys.argv[1], fail_fast=True).topics()" "127.0.0.1:$port" 2>/dev/null; do
  [ "$SECONDS" -lt "$deadline" ] || { echo "Apache Kafka did not start; its log:" >&2; tail "$work/1.log" >&2; exit 1; }
done
TIDELOG_TEST_BOOTSTRAP="127.0.0.1:$port" python -m pytest -q -p no:randomly -n0 -m spark tests/unit/pyspark_tidelog
# What the sink does on a cluster, without Spark.
TIDELOG_TEST_BOOTSTRAP="127.0.0.1:$port" python -m pytest -q -p no:randomly -n0 tests/unit/pyspark_tidelog/sink/test_copying.py
