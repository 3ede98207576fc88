"""What can be done to a cluster, how it is undone, and what that needs.

kill         SIGKILL for a broker: the leader of some partition, the controller, or any
pause        SIGSTOP for longer than the broker's session lives, then SIGCONT: it comes back believing the old world
full         a broker may write no further: a full tmpfs under its logs where we may mount one (root), else a limit
             on the size of its files, which the kernel enforces just so (EFBIG where a full disk says ENOSPC)
failing      a log directory disappears under a broker, as an unmounted disk does
all          SIGKILL for all brokers at once
supervisor   SIGKILL for the process that holds the metadata store and starts the brokers
"""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from bench.peers.kafka import until

from tests.chaos.targets import StartedCluster, Target, gone

ENDS_S_MAX: Final = 30.0
"""For a broker that can write nowhere to find out and end."""


class Fault(Protocol):
    """One way to break a cluster; an object serves one cycle after another."""

    name: str
    everything: bool
    """Whether it takes all brokers, so that nothing is acknowledged before it is mended."""
    creeps: bool
    """Whether the broker has to find out first: until then it goes on, and only then partitions lose their leader."""

    def strike(self, target: Target, victim: int) -> None: ...
    def mend(self, target: Target, victim: int) -> None:
        """Returns when the broker serves again."""

    def hits(self, target: Target, victim: int, partition: str) -> bool:
        """Whether a partition that the victim leads, "topic-0", loses its leader by it."""


class Kill:
    name = "kill"
    everything = False
    creeps = False

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


MIX: Final = {"kill": 12, "pause": 1, "full": 2, "failing": 2, "all": 3}
"""How often each comes up in a mix of twenty; what waits for a session to end is slow, so it is rare."""


def draw(name: str, randomness: random.Random) -> str:
    """The fault of the next cycle."""
    return randomness.choices(list(MIX), list(MIX.values()))[0] if name == "mix" else name


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
