#!/usr/bin/env bash
# The Spark source's tests on PySpark's other versions, each in an environment of its own that borrows all else from .venv:
# tests/conformance/spark_versions.sh [4.0 4.1 4.2]. Environments are kept for the next run.
set -eu
cd "$(dirname "$0")/../.."
here=$PWD
site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tidelog-conformance
for version in "${@:-4.0 4.1 4.2}"; do
  for each in $version; do
    environment=$cache/pyspark-$each
    if [ ! -e "$environment/ready" ]; then
      .venv/bin/python -m venv --clear "$environment"
      "$environment/bin/pip" install -q "pyspark==$each.*"
      # Behind the environment's own packages, so that its PySpark is the one that is found.
      printf '%s\n' "$here/src" "$here" "$site" >"$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/borrowed.pth"
      touch "$environment/ready"
    fi
    echo "PySpark $each"
    # Older versions leave sockets of their own to the garbage collector.
    "$environment/bin/python" -m pytest -q -p no:randomly -p no:cacheprovider -n0 \
      -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning \
      tests/unit/pyspark_tidelog/test_source_{batch,stream,transactions}.py tests/unit/pipeline/test_table.py::test_a_topic_becomes_a_table
  done
done
