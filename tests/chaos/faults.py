"""What can be done to a cluster, how it is undone, and what that needs.

kill         SIGKILL for a broker: the leader of some partition, the controller, or any
pause        SIGSTOP for longer than the broker's session lives, then SIGCONT: it comes back believing the old world
full         a broker may write no further: a full tmpfs under its logs where we may mount one (root), else a limit
             on the size of its files, which the kernel enforces just so (EFBIG where a full disk says ENOSPC)
failing      a log directory disappears under a broker, as an unmounted disk does
all          SIGKILL for all brokers at once
supervisor   SIGKILL for the process that holds the metadata store and starts the brokers
descriptors  more idle connections to a broker than it may open files: acknowledgements go on, within a second, no
             directory goes offline, memory stays (from a minute on), and after a clean restart every record is there
clock        the wall clock of a broker jumps, forward by up to two days or back by most of an hour, and back again
rot          a bit turns over in a file of a broker: `rot`

On ZooKeeper (--zookeeper N) also
server       SIGKILL for one of its servers, every other time the leader of the ensemble, which comes back
hang         SIGSTOP for one of its servers, then SIGCONT
quorum       SIGKILL or SIGSTOP for so many that no majority is left, for some seconds: brokers serve on
both         SIGKILL for the leader of the ensemble and for a broker, at once
"""

from __future__ import annotations

import math
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from bench.peers.kafka import until

from tests.chaos.targets import StartedCluster, Target, ZooKeeperCluster, anonymous_mib, gone

CROWD_GATHERS_S: Final = 20.0
"""Until all connections of a crowd have been begun, and the broker has come to rest."""
MEMORY_S_MIN: Final = 60.0
"""Below that a crowd stays too briefly for memory to be judged."""
MEMORY_GROWTH_MAX: Final = 1.05
MEMORY_LOOKS: Final = 100
"""At memory while the crowd stays; the median of the first tenth is compared with that of the last."""
CLOCK_BACK_S_MAX: Final = 3_300.0
CLOCK_FORWARD_S_MAX: Final = 2 * 86_400.0
ENDS_S_MAX: Final = 30.0
"""For a broker that can write nowhere to find out and end."""


class Fault(Protocol):
    """One way to break a cluster; an object serves one cycle after another."""

    name: str
    everything: bool
    """Whether it takes all brokers, so that nothing is acknowledged before it is mended."""
    creeps: bool
    """Whether the broker has to find out first: until then it goes on, and only then partitions lose their leader."""
    of_store: bool
    """Whether no broker is hit: each partition is expected to go on."""
    slowest_s_max: float
    """For an acknowledgement, while it lasts; longer is a finding."""
    findings: list[str]
    """What it saw of the cluster that should not be."""
    notes: list[str]
    """Figures of what it saw, right or wrong."""

    def strike(self, target: Target, victim: int) -> None: ...
    def mend(self, target: Target, victim: int) -> None:
        """Returns when the broker serves again."""

    def hits(self, target: Target, victim: int, partition: str) -> bool:
        """Whether a partition that the victim leads, "topic-0", loses its leader by it."""


class Kill:
    name = "kill"
    everything = False
    creeps = False
    of_store = False
    slowest_s_max = math.inf
    findings: list[str] = []  # noqa: RUF012 - those that find something have one of their own
    notes: list[str] = []  # noqa: RUF012 - as above

    def strike(self, target: Target, victim: int) -> None:
        target.kill(victim)

    def mend(self, target: Target, victim: int) -> None:
        target.restart(victim)

    def hits(self, target: Target, victim: int, partition: str) -> bool:
        return True


class Pause(Kill):
    name = "pause"

    def __init__(self, seconds: float) -> None:
        """`seconds`: for how long, at least; longer than the session."""
        self._seconds = seconds
        self._until = 0.0
        self._pid = 0

    def strike(self, target: Target, victim: int) -> None:
        self._pid = target.pid(victim)
        os.kill(self._pid, signal.SIGSTOP)
        self._until = time.monotonic() + self._seconds

    def mend(self, target: Target, victim: int) -> None:
        time.sleep(max(0.0, self._until - time.monotonic()))
        os.kill(self._pid, signal.SIGCONT)


class Full(Kill):
    """By a limit on the size of files, which needs no privilege."""

    name = "full"
    creeps = True

    def strike(self, target: Target, victim: int) -> None:
        self._pid = target.pid(victim)
        _, hard = resource.prlimit(self._pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (0, hard))

    def mend(self, target: Target, victim: int) -> None:
        until(lambda: gone(self._pid), "a broker without a directory to write to ends", ENDS_S_MAX)
        target.restart(victim)


class FullDisk(Kill):
    """By a tmpfs under one log directory of each victim, and a ballast in it that takes all that is left."""

    name = "full"
    creeps = True

    def __init__(self, size_mib: int = 512) -> None:
        self._size_mib = size_mib
        self._mounted: list[Path] = []

    def prepare(self, target: Target) -> None:
        """Before the cluster starts."""
        for victim in target.ids:
            folder = target.log_dirs(victim)[-1]
            folder.mkdir(parents=True, exist_ok=True)
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={self._size_mib}m", "tidelog-chaos", folder], check=True
            )
            self._mounted.append(folder)

    def strike(self, target: Target, victim: int) -> None:
        folder = target.log_dirs(victim)[-1]
        with (folder / "ballast").open("wb") as ballast:
            step, size = self._size_mib << 20, 0
            while step >= 4096:
                # The broker writes meanwhile, so that what is free is known only by trying.
                try:
                    os.posix_fallocate(ballast.fileno(), size, step)
                    size += step
                except OSError:
                    step //= 2

    def mend(self, target: Target, victim: int) -> None:
        (target.log_dirs(victim)[-1] / "ballast").unlink()
        target.restart(victim)

    def hits(self, target: Target, victim: int, partition: str) -> bool:
        return (target.log_dirs(victim)[-1] / partition).exists()

    def clean_up(self) -> None:
        """After the cluster has stopped and its files have been read."""
        for folder in self._mounted:
            subprocess.run(["umount", "-l", folder], check=False)
        self._mounted.clear()


class Failing(Kill):
    name = "failing"
    creeps = True

    def strike(self, target: Target, victim: int) -> None:
        folder = target.log_dirs(victim)[0]
        folder.rename(_away(folder))

    def mend(self, target: Target, victim: int) -> None:
        folder = target.log_dirs(victim)[0]
        if folder.exists():
            raise RuntimeError(f"broker {victim} made {folder} anew, which was gone: a disk that is not mounted")
        _away(folder).rename(folder)
        target.restart(victim)

    def hits(self, target: Target, victim: int, partition: str) -> bool:
        folder = target.log_dirs(victim)[0]
        return (folder / partition).exists() or (_away(folder) / partition).exists()


class All(Kill):
    name = "all"
    everything = True

    def strike(self, target: Target, victim: int) -> None:
        together([partial(target.kill, broker_id) for broker_id in target.ids])

    def mend(self, target: Target, victim: int) -> None:
        together([partial(target.restart, broker_id) for broker_id in target.ids])


class Supervisor(Kill):
    name = "supervisor"
    everything = True

    def strike(self, target: Target, victim: int) -> None:
        assert isinstance(target, StartedCluster)
        target.kill_supervisor()

    def mend(self, target: Target, victim: int) -> None:
        target.start()


class Server(Kill):
    """By the ensemble's own leader or any other of its servers."""

    name = "server"
    of_store = True

    def __init__(self, random: random.Random) -> None:
        self._random = random
        self._struck: list[int] = []

    def strike(self, target: Target, victim: int) -> None:
        assert isinstance(target, ZooKeeperCluster)
        ensemble = target.ensemble
        self._struck = [self._one(target)]
        ensemble.kill(self._struck[0])

    def mend(self, target: Target, victim: int) -> None:
        assert isinstance(target, ZooKeeperCluster)
        for server in self._struck:
            target.ensemble.restart(server, wait=False)
        self._await(target)

    def _one(self, target: ZooKeeperCluster) -> int:
        return target.ensemble.leader if self._random.random() < 0.5 else self._any(target, 1)[0]

    def _any(self, target: ZooKeeperCluster, count: int) -> list[int]:
        return self._random.sample(range(len(target.ensemble.servers)), count)

    def _await(self, target: ZooKeeperCluster) -> None:
        """Returns when every server serves."""
        for server in range(len(target.ensemble.servers)):
            target.ensemble.await_serving(server)


class Hang(Server):
    name = "hang"

    def strike(self, target: Target, victim: int) -> None:
        assert isinstance(target, ZooKeeperCluster)
        self._struck = [self._one(target)]
        target.ensemble.pause(self._struck[0])

    def mend(self, target: Target, victim: int) -> None:
        assert isinstance(target, ZooKeeperCluster)
        # How long the fault lasts, below the session timeout and above it.
        time.sleep(self._random.uniform(0.1, 4.0))
        target.ensemble.resume(self._struck[0])
        self._await(target)


class Quorum(Server):
    name = "quorum"

    def __init__(self, random: random.Random) -> None:
        super().__init__(random)
        self._hung = False

    def strike(self, target: Target, victim: int) -> None:
        assert isinstance(target, ZooKeeperCluster)
        self._struck = self._any(target, len(target.ensemble.servers) // 2 + 1)
        self._hung = self._random.random() < 0.5
        for server in self._struck:
            (target.ensemble.pause if self._hung else target.ensemble.kill)(server)

    def mend(self, target: Target, victim: int) -> None:
        assert isinstance(target, ZooKeeperCluster)
        # How long the fault lasts.
        time.sleep(self._random.uniform(0.5, 8.0))
        if self._hung:
            for server in self._struck:
                target.ensemble.resume(server)
            self._await(target)
        else:
            super().mend(target, victim)


class Both(Server):
    name = "both"
    of_store = False

    def strike(self, target: Target, victim: int) -> None:
        assert isinstance(target, ZooKeeperCluster)
        self._struck = [target.ensemble.leader]
        together([partial(target.kill, victim), partial(target.ensemble.kill, self._struck[0])])

    def mend(self, target: Target, victim: int) -> None:
        super().mend(target, victim)
        target.restart(victim)


class Descriptors(Kill):
    """By a crowd of idle connections, to a cluster whose processes may open few files."""

    name = "descriptors"
    of_store = True
    slowest_s_max = 1.0

    def __init__(self, connections: int, seconds: float) -> None:
        """`seconds`: for how long the crowd stays."""
        self._connections = connections
        self._seconds = seconds
        self._crowd: subprocess.Popen[bytes] | None = None
        self.findings = []
        self.notes = []

    def strike(self, target: Target, victim: int) -> None:
        pids = {broker_id: target.pid(broker_id) for broker_id in target.ids}
        host, port = target.bootstrap.split(",")[victim].split(":")
        command = [sys.executable, "-m", "tests.chaos.crowd", host, port, str(self._connections)]
        self._crowd = subprocess.Popen(command, stdin=subprocess.PIPE)
        # How long the fault lasts; memory counts from when the crowd is there.
        gathering_s = min(self._seconds / 2, CROWD_GATHERS_S)
        time.sleep(gathering_s)
        memory: dict[int, list[float]] = {broker_id: [] for broker_id in target.ids}
        for _ in range(MEMORY_LOOKS):
            ended = [broker_id for broker_id, pid in pids.items() if gone(pid)]
            if ended:
                self.findings.append(f"brokers {ended} ended under {self._connections} idle connections to {victim}")
                break
            for broker_id, pid in pids.items():
                memory[broker_id].append(anonymous_mib(pid))
            time.sleep((self._seconds - gathering_s) / MEMORY_LOOKS)  # As long as the fault lasts, looked at evenly.
        else:
            self._judge_memory(memory)
        if self._crowd.poll() is not None:
            self.findings.append(f"the crowd ended with {self._crowd.returncode}")
        log = target.data / f"broker-{victim}.log"
        if "log_directory_offline" in log.read_text(errors="replace"):
            self.findings.append(f"broker {victim} took a log directory offline: {log}")

    def _judge_memory(self, memory: dict[int, list[float]]) -> None:
        """[broker id] -> MiB, one look after the other."""
        for broker_id, looks in memory.items():
            tenth = len(looks) // 10
            first, last = statistics.median(looks[:tenth]), statistics.median(looks[-tenth:])
            grew = f"broker {broker_id}: memory {first:.1f} MiB, at the end of {self._seconds:g} s {last:.1f} MiB"
            self.notes.append(grew)
            if self._seconds >= MEMORY_S_MIN and last > first * MEMORY_GROWTH_MAX:
                self.findings.append(grew)

    def mend(self, target: Target, victim: int) -> None:
        if self._crowd is not None:
            self._crowd.communicate()
            self._crowd = None

    def clean_up(self) -> None:
        """After a run that ended in between."""
        if self._crowd is not None:
            self._crowd.kill()
            self._crowd.wait()


class Clock(Kill):
    """By `clock_shift.c`, preloaded into the brokers."""

    name = "clock"
    of_store = True

    def __init__(self, random: random.Random, seconds: float = 3.0) -> None:
        """`seconds`: for how long the clock is wrong."""
        self._random = random
        self._seconds = seconds
        self._struck = 0
        self.findings = []

    def strike(self, target: Target, victim: int) -> None:
        assert isinstance(target, StartedCluster)
        self._struck = target.pid(victim)
        # Back by less than an hour: what is more than that ahead of the broker is refused, as Kafka does
        # (log.message.timestamp.after.max.ms).
        target.shift_clock(self._struck, self._random.uniform(-CLOCK_BACK_S_MAX, CLOCK_FORWARD_S_MAX))
        time.sleep(self._seconds)
        if gone(self._struck):
            self.findings.append(f"broker {victim} ended when its clock jumped")

    def mend(self, target: Target, victim: int) -> None:
        assert isinstance(target, StartedCluster)
        target.shift_clock(self._struck, 0)


MIX: Final = {"kill": 12, "pause": 1, "full": 2, "failing": 2, "all": 3}
"""How often each comes up in a mix of twenty; what waits for a session to end is slow, so it is rare."""
ZOOKEEPER_MIX: Final = {"kill": 10, "pause": 1, "all": 1, "server": 3, "hang": 2, "quorum": 2, "both": 1}
"""The same on ZooKeeper."""
OF_ZOOKEEPER: Final = (Server, Hang, Quorum, Both)


def draw(name: str, randomness: random.Random, mix: Mapping[str, int]) -> str:
    """The fault of the next cycle."""
    return randomness.choices(list(mix), list(mix.values()))[0] if name == "mix" else name


def can_mount() -> str | None:
    """Why no tmpfs can be mounted here; None if it can."""
    if os.geteuid() != 0:
        return "mounting a tmpfs needs root"
    probe = Path("/tmp") / f"tidelog-chaos-{os.getpid()}"
    probe.mkdir()
    try:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tidelog-chaos", probe], capture_output=True)
        if done.returncode:
            return f"mounting a tmpfs is refused: {done.stderr.decode().strip()}"
        subprocess.run(["umount", probe], check=True)
    finally:
        probe.rmdir()
    return None


def together(calls: Sequence[Callable[[], object]]) -> None:
    """Makes all calls at once; raises the first error."""
    errors: list[BaseException] = []

    def guarded(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _away(folder: Path) -> Path:
    return folder.with_name(folder.name + ".away")
