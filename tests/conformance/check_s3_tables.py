"""Tables on S3: files by pyarrow, commits by delta-rs, a RESTORE and the way back, against moto's server.

TIDELOG_MOTO_SERVER names its program; `tests/conformance/run` installs it.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.fs
import pytest
from deltalake import DeltaTable

from pyspark_tidelog.offsets import OffsetRange
from tests.ports import free_port
from tests.waiting import until
from tidelog.model.identifiers import TopicPartition
from tidelog.pipeline import delta
from tidelog.pipeline.history import rewind
from tidelog.pipeline.parquet import RangeWriter, remove_files
from tidelog.pipeline.shape import raw_shape

SHAPE = raw_shape(("offset",))
URI = "s3://lake/flights"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An S3 server with the bucket lake, which AWS_ENDPOINT_URL names."""
    port = free_port()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "y",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }.items():
        monkeypatch.setenv(name, value)
    program = [os.environ["TIDELOG_MOTO_SERVER"], "-H", "127.0.0.1", "-p", str(port)]
    started = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def is_up() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        until(is_up, "moto listens")
        bucket_maker = pyarrow.fs.S3FileSystem(
            endpoint_override=f"http://127.0.0.1:{port}", region="us-east-1", allow_bucket_creation=True
        )
        bucket_maker.create_dir("lake")
        yield
    finally:
        started.terminate()
        started.wait()


def written(start: int) -> delta.WrittenRange:
    writer = RangeWriter(URI, SHAPE, OffsetRange("flights", 0, start, start + 10, "id"))
    writer.add(pa.RecordBatch.from_arrays([pa.array(range(start, start + 10), pa.int64())], schema=SHAPE.schema))
    return writer.finish()


def test_a_table_on_s3(server: None) -> None:
    """Batches are committed once, files of a replay are removed, a restored table is set back and goes on."""
    table = delta.open_table(URI, SHAPE.schema, description="")
    for start in (0, 10, 20):
        assert delta.commit_batch(table, "q", 0, [written(start)], table.version(), {})
    replayed = written(20)
    assert not delta.commit_batch(table, "q", 0, [replayed], table.version(), {})
    remove_files(URI, [replayed.path])
    DeltaTable(URI).restore(1)
    table.update_incremental()
    apps = delta.progress_ids([TopicPartition("flights", 0)], "id")
    assert rewind(table, apps, "flights") is not None
    assert delta.next_offsets(table, [*apps], "id") == {TopicPartition("flights", 0): 10}
    assert delta.commit_batch(table, "q", 0, [written(10)], table.version(), {})
    assert sorted(DeltaTable(URI).to_pyarrow_table()["offset"].to_pylist()) == list(range(20))
