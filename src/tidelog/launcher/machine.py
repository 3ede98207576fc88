"""What this process may use of its machine: cores and memory, and what allows no more.

A machine's cores and memory are bounded for a process by its processor affinity (`taskset`, cpusets) and by its control
groups (containers, units of systemd): `cpu.max` and `memory.max` in version 2, `cpu.cfs_quota_us` and
`memory.limit_in_bytes` in version 1. A group's parents bound it too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

CGROUPS: Final = "sys/fs/cgroup"
"""Where control groups are mounted: version 2, or a folder for each controller of version 1."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What this process may use."""

    name: str
    """Of the machine, as its kernel tells it."""
    cores: int
    """How many threads can run at once; at least 1. A share of a core does not count."""
    cores_bound: str
    """What allows no more cores, in words."""
    memory_bytes: int
    memory_bound: str
    """What allows no more memory, in words."""


def read_machine(root: str = "/", affinity: int | None = None, cores_present: int | None = None) -> Machine:
    """The machine as its kernel shows it below `root`. OSError where there is no /proc.

    `affinity`: how many processors this process may run on, `cores_present`: how many there are; None: those of the
    process that calls.
    """
    present = cores_present or os.cpu_count() or 1
    allowed = affinity or len(os.sched_getaffinity(0))
    cores = [(float(present), "all cores of the machine")]
    if allowed < present:
        cores.append((float(allowed), f"{allowed} of {present} cores, by the processor affinity of this process"))
    memory = [(_total_memory(root), "the machine's")]
    for folder in _groups(root, "cpu"):
        cores += [(quota, f"a quota of {quota:g} cores: {path}") for quota, path in _quotas(folder)]
    for folder in _groups(root, "memory"):
        memory += [(limit, f"the limit of a control group: {path}") for limit, path in _limits(folder)]
    count, cores_bound = min(cores, key=lambda each: each[0])
    size, memory_bound = min(memory, key=lambda each: each[0])
    return Machine(os.uname().nodename, max(1, int(count)), cores_bound, size, memory_bound)


def _groups(root: str, controller: str) -> Iterator[str]:
    """The folders of this process's control group and its parents that may bound what `controller` shares out."""
    text = _text(os.path.join(root, "proc/self/cgroup")) or ""
    for line in text.splitlines():
        _, names, group = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        mounted = os.path.join(root, CGROUPS, names)
        # Inside a container the path may be the host's, where only what is mounted can be seen.
        while True:
            yield os.path.join(mounted, group.strip("/")).rstrip("/")
            if not group.strip("/"):
                break
            group = os.path.dirname(group.rstrip("/"))


def _quotas(folder: str) -> Iterator[tuple[float, str]]:
    """Cores that a control group may use, and the file that says so."""
    path = f"{folder}/cpu.max"
    if (words := (_text(path) or "").split()) and words[0] != "max":
        yield int(words[0]) / int(words[1]), path
    path = f"{folder}/cpu.cfs_quota_us"
    quota, period = _text(path), _text(f"{folder}/cpu.cfs_period_us")
    if quota and period and int(quota) > 0:
        yield int(quota) / int(period), path


def _limits(folder: str) -> Iterator[tuple[int, str]]:
    """Bytes of memory that a control group may use, and the file that says so."""
    for path in (f"{folder}/memory.max", f"{folder}/memory.limit_in_bytes"):
        limit = (_text(path) or "").strip()
        if limit and limit != "max":
            yield int(limit), path


def _total_memory(root: str) -> int:
    """Bytes of the machine's memory."""
    with open(os.path.join(root, "proc/meminfo"), encoding="ascii") as file:
        for line in file:
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    raise OSError("/proc/meminfo has no MemTotal")


def _text(path: str) -> str | None:
    """A file's text; None where there is no such file, or it may not be read."""
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except OSError:
        return None
