#!/usr/bin/env bash
# Fetches Apache Kafka's jars from Maven Central, once, and prints the folder they are in. KAFKA_VERSION chooses a release.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
version=${KAFKA_VERSION:-4.3.0}
target=$(cd "$here/../.." && pwd)/build/kafka-$version
if [ ! -e "$target/.complete" ]; then
  echo "fetching Apache Kafka $version (about 60 MB) into $target" >&2
  mvn -q -B -f "$here/pom.xml" -Dkafka.version="$version" dependency:copy-dependencies \
    -DoutputDirectory="$target" >&2
  touch "$target/.complete"
fi
echo "$target"
