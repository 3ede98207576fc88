"""The archive for Spark's executors: complete, by itself."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pyarrow
import pyspark
import pytest
from tests.amount import thorough

from tidelog import cli
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.package import write_package
from tidelog.records.column_implementation import ABSENT

pytestmark = [pytest.mark.row("R38")]

SEEN_FROM_A_TASK = """
import json, sys
sys.path[:0] = sys.argv[1:]
import pyspark_tidelog.batch, pyspark_tidelog.stream, pyspark_tidelog.reading, tidelog.pipeline.table
import cramjam, deltalake, fastcrc
from tidelog.records.column_implementation import ABSENT
modules = (pyspark_tidelog, tidelog, cramjam, deltalake, fastcrc)
print(json.dumps([ABSENT, [each.__file__ for each in modules]]))
"""


@thorough
def test_a_python_without_tidelog_runs_tasks_from_the_archive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All that tasks import comes from the archive, with the kernel; PySpark and pyarrow are the executor's."""
    archive = tmp_path / "tidelog.tar.gz"
    assert cli.run(["spark-package", str(archive)]) == 0
    assert f"spark.archives={archive}#tidelog" in capsys.readouterr().out
    unpacked = tmp_path / "unpacked"
    with tarfile.open(archive) as packed:
        packed.extractall(unpacked, filter="data")
    site = {str(Path(each.__file__).parents[1]) for each in (pyspark, pyarrow)}
    program = [sys.executable, "-I", "-S", "-c", SEEN_FROM_A_TASK, str(unpacked), *site]
    answer = subprocess.run(program, capture_output=True, text=True, timeout=180, check=False)
    assert answer.returncode == 0, answer.stderr
    absent, places = json.loads(answer.stdout)
    assert bool(absent) == bool(ABSENT)
    assert [place for place in places if not place.startswith(str(unpacked))] == []


def test_an_archive_that_spark_would_not_unpack_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"must end with \.tar\.gz"):
        write_package(tmp_path / "tidelog.rar")
