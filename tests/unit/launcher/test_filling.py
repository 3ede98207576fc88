"""`tidelog start --brokers auto`: what a process may use of its machine, and how many brokers that is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.launcher.filling import NoFilling, brokers_with_data, fill
from tidelog.launcher.machine import Machine, read_machine

MIB = 1 << 20


def tree(root: Path, files: dict[str, str]) -> str:
    """A folder that looks like the kernel's, with 8 GiB of memory."""
    for name, text in {"proc/meminfo": "MemTotal:        8388608 kB\nMemFree: 1 kB\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def machine(cores: int, memory_mib: int) -> Machine:
    return Machine("m1", cores, "all cores of the machine", memory_mib * MIB, "the machine's")


@pytest.mark.parametrize(
    ("files", "affinity", "cores", "memory_mib", "bound"),
    [
        ({}, 8, 8, 8192, "all cores"),
        ({}, 3, 3, 8192, "affinity"),
        # Version 2, as in a container: the group is the root of what can be seen.
        (
            {
                "proc/self/cgroup": "0::/\n",
                "sys/fs/cgroup/cpu.max": "250000 100000\n",
                "sys/fs/cgroup/memory.max": "1073741824\n",
            },
            8,
            2,
            1024,
            "quota of 2.5 cores",
        ),
        # A unit of systemd inside a slice: the parent's bound holds, too.
        (
            {
                "proc/self/cgroup": "0::/tidelog.slice/broker.service\n",
                "sys/fs/cgroup/tidelog.slice/cpu.max": "400000 100000\n",
                "sys/fs/cgroup/tidelog.slice/broker.service/cpu.max": "max 100000\n",
                "sys/fs/cgroup/tidelog.slice/memory.max": "max\n",
                "sys/fs/cgroup/tidelog.slice/broker.service/memory.max": "2147483648\n",
            },
            8,
            4,
            2048,
            "tidelog.slice/cpu.max",
        ),
        # Version 1: a folder for each controller; what is said in the process's path may not be mounted here.
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/docker/abc\n3:memory:/docker/abc\n1:name=systemd:/docker/abc\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            8,
            1,
            8192,
            "quota of 0.5 cores",
        ),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            8,
            8,
            8192,
            "all cores",
        ),
    ],
)
def test_what_bounds_a_process(
    tmp_path: Path, files: dict[str, str], affinity: int, cores: int, memory_mib: int, bound: str
) -> None:
    """The least of the machine, the affinity, and the quotas of the control group and its parents."""
    found = read_machine(tree(tmp_path, files), affinity, 8)
    assert (found.cores, found.memory_bytes) == (cores, memory_mib * MIB)
    assert bound in found.cores_bound


def test_this_machine_can_be_asked() -> None:
    """Whatever it is, it has a core and some memory."""
    found = read_machine()
    assert found.cores >= 1
    assert found.memory_bytes > 16 * MIB


@pytest.mark.parametrize(
    ("cores", "memory_mib", "held", "brokers", "reason"),
    [
        (1, 8192, (), 1, "one for each core"),
        (4, 8192, (), 4, "one for each core"),
        (16, 4096, (), 8, "MiB of memory; the cores would do for 16"),
        (4, 100, (), 1, "MiB of memory"),
        (256, 1 << 20, (), 100, "the cores would do for 256"),
        (2, 8192, (0, 1, 2, 3), 4, "data here; the machine would do for 2"),
        (2, 8192, (0,), 2, "one for each core"),
        (2, 8192, (7,), 8, "data here"),
    ],
)
def test_a_broker_for_each_core_that_has_memory(
    cores: int, memory_mib: int, held: tuple[int, ...], brokers: int, reason: str
) -> None:
    """But none that has data is left out."""
    filling = fill(machine(cores, memory_mib), held)
    assert filling.brokers == brokers
    assert reason in filling.reason
    assert filling.rack == "m1"
    assert f"{memory_mib} MiB" in filling.memory


def test_ids_of_one_machine_among_several() -> None:
    """Data of the brokers from the first id on counts; what it would leave out is refused."""
    assert fill(machine(2, 8192), (100, 104), 100).brokers == 5
    with pytest.raises(NoFilling, match="choose --first-id 3"):
        fill(machine(2, 8192), (3, 100), 100)
    with pytest.raises(NoFilling, match="brokers up to 100"):
        fill(machine(2, 8192), (100,))


def test_brokers_that_have_data(tmp_path: Path) -> None:
    """Those whose log directory was used; no folder, no broker."""
    assert brokers_with_data(str(tmp_path / "none")) == set()
    for name in ("broker-0", "broker-12", "broker-3", "broker-x", "broker-01"):
        (tmp_path / name).mkdir()
        if name != "broker-3":
            (tmp_path / name / "meta.properties").write_text("version=0\n")
    (tmp_path / "broker-0.log").write_text("")
    assert brokers_with_data(str(tmp_path)) == {0, 12}
