"""A cluster of three broker processes, moved from its embedded store to another one under a load that is checked.

The other store is whatever answers at an address: a second embedded store's server, or a ZooKeeper ensemble.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.chaos.ledger import Ledger
from tests.chaos.load import Load
from tests.chaos.run import TOPIC, Watch
from tests.waiting import DEADLINE_S, until

from tidelog.testing import Cluster

PARTITIONS: Final = 6
PRODUCERS: Final = 2
RATE: Final = 400.0
SERVES_S_MAX: Final = DEADLINE_S
SETTINGS: Final[dict[str, Any]] = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "auto.create.topics.enable": "false",
    "zookeeper.session.timeout.ms": 6000,
}


@dataclass
class Loaded:
    """A load that runs, and what is known of its cluster."""

    load: Load
    ledger: Ledger
    watch: Watch

    def acknowledges(self, within_s: float = SERVES_S_MAX) -> None:
        """Every partition acknowledges something that was sent from now on."""
        awaited = self.load.expect(list(range(PARTITIONS)))
        assert awaited.wait(within_s) is not None, f"partitions {awaited.missing} acknowledge nothing"

    def serves(self) -> None:
        """The same, and every replica is in sync."""
        self.acknowledges()
        self.watch.until_in_sync()

    def again(self, bootstrap: str) -> Load:
        """Readers of the same records, on a cluster that has been started again."""
        return Load(bootstrap, TOPIC, self.ledger, rate=RATE, value_size=100, on_death=lambda: None)


@contextmanager
def watching(bootstrap: str) -> Iterator[Watch]:
    """What the cluster says of itself."""
    watch = Watch(bootstrap, PARTITIONS, SERVES_S_MAX)
    try:
        yield watch
    finally:
        watch.close()


@contextmanager
def load(bootstrap: str) -> Iterator[Loaded]:
    """Producers with acks=all and readers, from a new topic's first record on; at the end nothing may be missing."""
    ledger, died = Ledger(PARTITIONS, PRODUCERS), threading.Event()
    running = Load(bootstrap, TOPIC, ledger, rate=RATE, value_size=100, on_death=died.set)
    with watching(bootstrap) as watch:
        watch.create()
        running.start()
        loaded = Loaded(running, ledger, watch)
        loaded.serves()
        try:
            yield loaded
        except BaseException:
            running.abandon()
            raise
        running.stop_producing()
        watch.until_in_sync()
        ends = running.ends()
        running.finish(ends)
        running.read_all(ends)
        ledger.judge(ends)
        assert ledger.findings == []
        assert ledger.failures == {}
        # A client that began a new epoch may have sent something twice by itself.
        assert ledger.repeated == [] or running.new_epochs
        assert ledger.total_acknowledged > 0


def store(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`tidelog store`, as an operator types it."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "tidelog", "store", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def until_said(address: str, words: str) -> None:
    """Until `tidelog store status` says so: a broker whose session has just moved may be connecting."""
    said = ""

    def says() -> bool:
        nonlocal said
        said = store("status", "--store", address).stdout
        return words in said

    until(says, lambda: f"{words!r}; it says {said!r}")


def start_store(*arguments: str) -> subprocess.Popen[str]:
    """The same, to be killed."""
    command = [sys.executable, "-P", "-m", "tidelog", "store", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def move_under_load(data: Path, to: str, *, between: Callable[[Loaded], object] = lambda loaded: None) -> str:
    """Moves a cluster to the store `to`, and then restarts its brokers, one by one; what the tool said.

    `between` is done when all have gone over and nobody has been restarted.
    """
    with Cluster(SETTINGS, brokers=3, processes=True, data=str(data)) as cluster:
        former = cluster.store
        with load(cluster.bootstrap) as loaded:
            moved = store("move", "--store", former, "--to", to)
            assert moved.returncode == 0, moved.stdout + moved.stderr
            loaded.serves()
            assert cluster.store == to
            # All three come by the former address.
            until_said(former, f"{former}: relay\nmoved to {to}; 3 connections come by this address")
            between(loaded)
            for broker_id in range(3):
                cluster.restart(broker_id)
                loaded.serves()
                until_said(former, f"{2 - broker_id} connections")
            again = store("move", "--store", former, "--to", to)
            assert (again.returncode, again.stdout.splitlines()[0]) == (0, f"The store had moved to {to} already.")
        # The whole cluster, too, comes up where its store is now.
        cluster.restart()
        with watching(cluster.bootstrap) as watch:
            watch.until_in_sync()
    return moved.stdout
