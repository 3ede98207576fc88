#!/usr/bin/env bash
# The tests of the Spark source, sink and tables on PySpark's versions, each in an environment of its own that borrows all else from .venv:
# tests/conformance/spark_versions.sh [4.0 4.1 4.2 4.3]. Environments are kept for the next run; a version that cannot be had is named.
set -eu
cd "$(dirname "$0")/../.."
here=$PWD
site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
own=$(.venv/bin/python -c 'import pyspark; print(".".join(pyspark.__version__.split(".")[:2]))')
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tidelog-conformance
if [ $# -eq 0 ]; then set -- 4.0 4.1 4.2 4.3; fi
status=0
for version; do
  environment=$cache/pyspark-$version
  if [ "$version" = "$own" ]; then
    python=.venv/bin/python
  else
    python=$environment/bin/python
    if [ ! -e "$environment/ready" ]; then
      .venv/bin/python -m venv --clear "$environment"
      if ! "$environment/bin/pip" install -q "pyspark==$version.*"; then
        echo "SKIPPED PySpark $version: it cannot be installed here"
        continue
      fi
      touch "$environment/ready"
    fi
    # Behind the environment's own packages, so that its PySpark is the one that is found.
    printf '%s\n' "$here/src" "$here" "$site" >"$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/borrowed.pth"
  fi
  "$python" -c 'import pyspark; print("PySpark", pyspark.__version__)'
  # Older versions leave sockets of their own to the garbage collector.
  "$python" -m pytest -q -p no:randomly -p no:cacheprovider -n0 \
    -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning \
    tests/unit/pyspark_tidelog/test_{source_batch,source_stream,source_transactions,source_pushdown,sink_batch,sink_stream,lag}.py \
    tests/unit/pipeline/test_table.py::test_a_topic_becomes_a_table || status=$?
done
exit "$status"
