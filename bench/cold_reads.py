"""What the check of cold reads costs: a log is read from the device with the check switched off, and with it.

    python bench/cold_reads.py [--batch-bytes 16384] [--fetch-bytes 1048576] [--log-mib 64] [--pairs 15] [--dir .]

A reader goes through the log as a consumer far behind does, a fetch at a time: the range is looked up, brought in from
the device by pieces as the broker's outbox does, and sent through a socket by sendfile, while another thread checks
what comes next, as the broker's I/O threads do. Before each pass the file leaves the page cache (posix_fadvise). Passes
with and without the check follow one another in pairs, every other pair the other way round; the figures are medians of
the pairs' ratios of elapsed time, and of the process's processor time, the socket's other end included.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import tempfile
import threading
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path

from tidelog.model.identifiers import TopicPartition
from tidelog.ports.real import SystemClock, SystemDisk
from tidelog.records import implementation
from tidelog.records.batch import Record, build_batch
from tidelog.records.integrity import check_batches
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager import LogManager

WARMED_BYTES = 1 << 20
"""What the outbox has an I/O thread read at once."""


def filled_log(directory: str, size: int, batch_bytes: int) -> tuple[LogManager, Log]:
    """A log of `size` bytes in one closed segment."""
    manager = LogManager(
        disk=SystemDisk(), clock=SystemClock(), log_dirs=[directory], broker_id=0, cluster_id=None,
        default_config=LogConfig(segment_bytes=1 << 30),
    )  # fmt: skip
    manager.open()
    log = manager.create(TopicPartition("t", 0), None)
    value = os.urandom(1000)
    records = [Record(index, 1_700_000_000_000, None, value) for index in range(max(1, batch_bytes // 1010))]
    batch = bytes(build_batch(records))
    while log.size < size:
        log.append(bytearray(batch), leader_epoch=0, now_ms=1_700_000_000_000)
    log.roll(1_700_000_000_000)
    os.sync()
    return manager, log


def forget(log: Log) -> None:
    """Drops the log from the page cache, and what is known of it."""
    for path in Path(log.directory).glob("*.log"):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    for segment in log.segments:
        segment.verified = ()
        segment.forget_files()


class Ahead:
    """Has what follows checked, one range after the other, as the broker's `DiskScheduler.check_ahead` does."""

    def __init__(self, log: Log, threads: Executor) -> None:
        self._log = log
        self._threads = threads
        self._is_checking = False

    def check(self) -> None:
        if not self._is_checking:
            self._is_checking = True
            self._threads.submit(self._log.check_ahead).add_done_callback(self._checked)

    def _checked(self, _: Future[None]) -> None:
        self._is_checking = False
        if self._log.ahead is not None:
            self.check()


def read_through(log: Log, fetch_bytes: int, out: socket.socket, threads: Executor, *, checked: bool) -> None:
    """All of the log, a fetch at a time."""
    offset = 0
    ahead = Ahead(log, threads)
    while offset < log.log_end_offset:
        result = log.read(offset, fetch_bytes, up_to_offset=log.log_end_offset, checked=checked)
        if log.ahead is not None:
            ahead.check()
        for part in result.ranges:
            descriptor = part.file.fileno()
            assert descriptor is not None
            position, end = part.position, part.position + part.size
            while position < end:
                size = min(WARMED_BYTES, end - position)
                if part.file.probe(1, position) is None or part.file.probe(1, position + size - 1) is None:
                    part.file.pread(size, position)
                sent = 0
                while sent < size:
                    sent += os.sendfile(out.fileno(), descriptor, position + sent, size - sent)
                position += size
            part.release()
        offset = next_offset(log, offset, result.size)


def next_offset(log: Log, offset: int, size: int) -> int:
    """Behind the whole batches of `size` bytes that were read from `offset` on; all batches are alike."""
    batch = next(log.segments[0].headers(0)).header
    return offset + size // batch.size * (batch.last_offset_delta + 1)


def drain(receiver: socket.socket) -> None:
    buffer = bytearray(1 << 20)
    while receiver.recv_into(buffer):
        pass


def timed(log: Log, fetch_bytes: int, out: socket.socket, *, checked: bool) -> tuple[float, float]:
    """Elapsed seconds and the process's processor seconds of a pass."""
    forget(log)
    with ThreadPoolExecutor(4) as threads:
        began, cpu = time.perf_counter(), time.process_time()
        read_through(log, fetch_bytes, out, threads, checked=checked)
        elapsed = time.perf_counter() - began
    return elapsed, time.process_time() - cpu


def check_time(log: Log) -> float:
    """Seconds that a MiB in memory takes."""
    with log.segments[0].log_file as file:
        data = file.pread(1 << 20, 0)
    began = time.perf_counter()
    check_batches(data, next_offset=0, epochs=log.epochs.entries)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-bytes", type=int, default=16_384)
    parser.add_argument("--fetch-bytes", type=int, default=1 << 20)
    parser.add_argument("--log-mib", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--dir", default=".", help="a folder on the device to be read")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.dir) as directory:
        manager, log = filled_log(directory, arguments.log_mib << 20, arguments.batch_bytes)
        out, receiver = socket.socketpair()
        threading.Thread(target=drain, args=(receiver,), daemon=True).start()
        timed(log, arguments.fetch_bytes, out, checked=True)
        ratios: list[float] = []
        cpu_ratios: list[float] = []
        speeds: list[float] = []
        for pair in range(arguments.pairs):
            passes: dict[bool, tuple[float, float]] = {}
            for checked in (False, True) if pair % 2 else (True, False):
                passes[checked] = timed(log, arguments.fetch_bytes, out, checked=checked)
            ratios.append(passes[True][0] / passes[False][0])
            cpu_ratios.append(passes[True][1] / passes[False][1])
            speeds.append(log.size / passes[False][0] / 1e6)
        check_us = 1e6 * min(check_time(log) for _ in range(50))
        manager.close()
    print(
        f"{implementation.NAME} kernel, batches of {arguments.batch_bytes} B, fetches of {arguments.fetch_bytes} B:"
        f" elapsed {statistics.median(ratios):.3f}, processor {statistics.median(cpu_ratios):.3f} of what it takes"
        f" without the check ({statistics.median(speeds):.0f} MB/s); the check alone {check_us:.0f} us a MiB"
    )


if __name__ == "__main__":
    main()
