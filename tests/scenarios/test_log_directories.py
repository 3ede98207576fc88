"""Several log directories: replicas spread over them, one that fails takes only its own partitions along.

The failure is real: the process may not write files past a size, so that the kernel refuses the write that would grow
one, as a full disk does.
"""

from __future__ import annotations

import io
import json
import resource
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, redirect_stdout
from pathlib import Path

import pytest
from tests.keeping import KEEPING
from tests.scenarios.observing import create, read, send
from tests.waiting import until

from tidelog import cli
from tidelog.client.addresses import Address
from tidelog.client.blocking import BlockingConnection
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import LATEST_TIMESTAMP
from tidelog.protocol import messages
from tidelog.testing import ProcessBroker

pytestmark = pytest.mark.row("R03")

LIMIT = 256 << 10
"""Bytes that a file may have once the test says so."""


@pytest.fixture
def directories(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in ("one", "two", "three")]


@pytest.fixture
def broker(tmp_path: Path, directories: list[Path]) -> Iterator[ProcessBroker]:
    """A broker with three directories, its indexes small."""
    settings = {
        **KEEPING,
        "log.dirs": ",".join(map(str, directories)),
        "log.index.size.max.bytes": 4096,
        "auto.create.topics.enable": False,
        "offsets.topic.num.partitions": 1,
    }
    with ProcessBroker(settings, data=str(tmp_path / "data")) as started:
        yield started


def held_by(directory: Path) -> list[str]:
    """Partitions in a directory."""
    return sorted(path.name for path in directory.iterdir() if path.is_dir() and not path.name.startswith("."))


def test_replicas_go_where_the_fewest_are(broker: ProcessBroker, directories: list[Path]) -> None:
    """Counts, never bytes: nine partitions are three in each."""
    create(broker, "spread", 9)
    assert Counter(len(held_by(directory)) for directory in directories) == {3: 3}


def test_one_fails_and_the_others_serve(broker: ProcessBroker, directories: list[Path]) -> None:
    """KAFKA_STORAGE_ERROR for the partition that can't be written, what it acknowledged stays, the others go on.

    After the cause is gone and the broker has been started again, all is there.
    """
    create(broker, "t", 3)
    (home,) = [directory for directory in directories if "t-0" in held_by(directory)]
    before = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (LIMIT, before[1]))
    acknowledged = LIMIT // 50_100
    values = [b"%d" % number + bytes(50_000) for number in range(acknowledged + 3)]
    errors = send(broker, "t", values, **{"max.in.flight": 1})
    assert errors == ["KAFKA_STORAGE_ERROR"] * 3

    for partition in (1, 2):
        assert not send(broker, "t", [b"fine"], partition=partition)
        assert read(broker, "t", 0, 1, partition) == [b"fine"]
    assert offline(broker) == [str(home)]
    assert latest(broker) == ErrorCode.KAFKA_STORAGE_ERROR
    assert f"log_directory_offline: path={home} while=" in Path(broker.log_path).read_text()

    broker.restart()
    assert offline(broker) == []
    assert read(broker, "t", 0, acknowledged) == values[:acknowledged]
    assert not send(broker, "t", [b"again"])


def test_the_last_one_ends_the_broker(broker: ProcessBroker, directories: list[Path]) -> None:
    """With no directory left it stops by itself, with code 1 and the reason as its last words."""
    create(broker, "t", 3)
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (LIMIT, resource.RLIM_INFINITY))
    pid = broker.pid
    for partition in range(3):
        send(broker, "t", [bytes(50_000)] * 8, partition=partition, **{"message.timeout.ms": 2000})
    until(lambda: has_ended(pid), "the broker has stopped")
    with pytest.raises(RuntimeError, match=r"The broker ended with 1: .*log director"):
        broker.stop()


def latest(broker: ProcessBroker) -> int:
    """What ListOffsets answers for the latest offset of t-0, without a look at the metadata: an error code."""
    host, _, port = broker.bootstrap.rpartition(":")
    request = messages.ListOffsetsRequest
    wanted = request.ListOffsetsPartition(partition_index=0, timestamp=LATEST_TIMESTAMP, current_leader_epoch=-1)
    with closing(BlockingConnection(Address(host, int(port)))) as connection:
        answer = connection.request(
            request(replica_id=-1, topics=[request.ListOffsetsTopic(name="t", partitions=[wanted])]), 7
        )
    code: int = answer.topics[0].partitions[0].error_code
    return code


def has_ended(pid: int) -> bool:
    """Whether the process runs no more; it is our child, not yet waited for."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def offline(broker: ProcessBroker) -> list[str]:
    """Directories that `tidelog log-dirs` tells to be offline."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert cli.run(["log-dirs", "-o", "json", "--bootstrap-server", broker.bootstrap]) == 0
    return [
        directory["logDir"]
        for entry in json.loads(printed.getvalue())
        for directory in entry["logDirs"]
        if directory["error"] is not None
    ]
