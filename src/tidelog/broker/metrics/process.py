"""Metrics of the process: CPU, memory, descriptors, disk, garbage collection, and how busy the event loop is."""

from __future__ import annotations

import gc
import os
import platform
import resource
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tidelog import __version__
from tidelog.metrics.histogram import Histogram
from tidelog.metrics.page import labels_text

if TYPE_CHECKING:
    from tidelog.broker.shell import Shell, Timer
    from tidelog.metrics.page import Page

LOOK_MS: Final = 1_000
"""Between two looks at the loop's CPU time."""
WINDOW: Final = 60
"""Looks that the idle share is an average of."""


class LoopWatch:
    """How much of its thread's time the event loop is busy, and how late its timers are."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self.lateness = Histogram()
        """Of a timer that is due each second."""
        self._timer: Timer | None = None
        self._due_ns = 0
        self._looks: list[tuple[int, int]] = []
        """Monotonic time and CPU time of the loop's thread at the last looks, in nanoseconds."""

    def start(self) -> None:
        """Begins to look; to be called on the loop's thread."""
        self._look()

    def stop(self) -> None:
        """Looks no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        now_ns = time.monotonic_ns()
        if self._due_ns:
            self.lateness.observe((now_ns - self._due_ns) // 1000)
        self._looks.append((now_ns, time.thread_time_ns()))
        del self._looks[: -WINDOW - 1]
        self._due_ns = now_ns + LOOK_MS * 1_000_000
        self._timer = self._shell.after(LOOK_MS, self._look)

    @property
    def idle_share(self) -> float:
        """The share of the last minute in which the loop's thread used no CPU, from 0 to 1."""
        now = (time.monotonic_ns(), time.thread_time_ns())
        then = self._looks[0] if self._looks else now
        elapsed = now[0] - then[0]
        return max(0.0, min(1.0, 1 - (now[1] - then[1]) / elapsed)) if elapsed > 0 else 1.0


def collect_process(page: Page, watch: LoopWatch) -> Iterator[None]:
    """What the operating system and the interpreter tell of this process."""
    info = page.family("tidelog_info", "gauge", "The version of tidelog and of Python; always 1.")
    info.add(1, labels_text(version=__version__, python=platform.python_version()))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu = page.family("process_cpu_seconds_total", "counter", "CPU time of the process, user and system, in seconds.")
    cpu.add(usage.ru_utime + usage.ru_stime)
    open_fds = page.family("process_open_fds", "gauge", "Descriptors that are open.")
    open_fds.add(len(os.listdir("/proc/self/fd")) - 1)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    max_fds = page.family("process_max_fds", "gauge", "Descriptors that may be open.")
    max_fds.add(float("inf") if limit == resource.RLIM_INFINITY else limit)
    virtual, resident = _memory()
    page.family("process_virtual_memory_bytes", "gauge", "Virtual memory.").add(virtual)
    page.family("process_resident_memory_bytes", "gauge", "Resident memory.").add(resident)
    started = page.family("process_start_time_seconds", "gauge", "When the process began, in seconds since 1970.")
    started.add(_started_seconds())
    read, written = _disk_bytes()
    help = "Bytes that the process has had {} the devices, since it began."
    page.family("kafka_server_kafkaserver_linux_disk_read_bytes", "gauge", help.format("read from")).add(read)
    page.family("kafka_server_kafkaserver_linux_disk_write_bytes", "gauge", help.format("written to")).add(written)
    _collect_garbage(page)
    _collect_loop(page, watch)
    yield


def _collect_garbage(page: Page) -> None:
    collections = page.family("python_gc_collections_total", "counter", "Garbage collections by generation.")
    objects = page.family("python_gc_objects_collected_total", "counter", "Objects collected by generation.")
    for generation, stats in enumerate(gc.get_stats()):
        labels = labels_text(generation=generation)
        collections.add(stats["collections"], labels)
        objects.add(stats["collected"], labels)


def _collect_loop(page: Page, watch: LoopWatch) -> None:
    late = page.family(
        "tidelog_event_loop_lateness_seconds", "histogram", "How late the event loop called a timer that was due."
    )
    late.add_histogram(watch.lateness)
    idle = watch.idle_share
    for name in (
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        "kafka_network_socketserver_networkprocessoravgidlepercent",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate",
    ):
        page.family(name, "gauge", "The share of the last minute in which the event loop was idle, 0 to 1.").add(idle)


def _memory() -> tuple[int, int]:
    """Virtual and resident memory in bytes."""
    with open("/proc/self/statm", encoding="ascii") as file:
        virtual, resident = file.read().split()[:2]
    page_size = os.sysconf("SC_PAGE_SIZE")
    return int(virtual) * page_size, int(resident) * page_size


def _started_seconds() -> float:
    with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
        # The second field is the program's name in brackets, which may hold anything.
        ticks = int(file.read().rpartition(")")[2].split()[19])
    since_boot = ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot


def _disk_bytes() -> tuple[int, int]:
    """Bytes read and written, as /proc/self/io counts them; zero where the kernel does not."""
    counts = {"read_bytes": 0, "write_bytes": 0}
    try:
        with open("/proc/self/io", encoding="ascii") as file:
            for line in file:
                name, _, value = line.partition(": ")
                if name in counts:
                    counts[name] = int(value)
    except OSError:
        # Hardened kernels do not show it, and containers may lack it.
        return 0, 0
    return counts["read_bytes"], counts["write_bytes"]
