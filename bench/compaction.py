"""How fast a log is compacted: from the first read for the key map to the last segment in its place, on one core.

    python -m bench.compaction [--mb 512] [--directory DIR]

A log of two values a key, in batches of 16 KiB, is filled and closed; then the cleaner runs in this thread, syncs
included. The figure is the size of the records before, uncompressed, by the time that took; the log is read twice.
"""

from __future__ import annotations

import argparse
import tempfile
import time

from tidelog.model.identifiers import TopicPartition
from tidelog.ports.real import SystemClock, SystemDisk
from tidelog.records.batch import Codec, build_batch
from tidelog.records.compaction import NAME
from tidelog.records.record import Record
from tidelog.storage.cleaner.settings import CleanerSettings
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager import LogManager
from tidelog.storage.log_manager_settings import LogManagerSettings

BATCH_BYTES = 16_384
WORDS = b"the quick brown fox jumps over the lazy dog and runs away from it again and again "


def measure(directory: str, record_bytes: int, codec: Codec, size: int) -> str:
    """Fills a log of `size` bytes of records, has it cleaned, and says how that went."""
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=128 << 20, file_delete_delay_ms=0)
    manager = LogManager(
        disk=SystemDisk(),
        clock=SystemClock(),
        log_dirs=[directory],
        broker_id=0,
        cluster_id=None,
        default_config=config,
        settings=LogManagerSettings(cleaner=CleanerSettings()),
    )
    manager.open()
    log = manager.create(TopicPartition(f"bench-{record_bytes}-{codec.codec_name}", 0), None)
    records_count = size // record_bytes
    per_batch = max(BATCH_BYTES // record_bytes, 1)
    value = (WORDS * (record_bytes // len(WORDS) + 1))[: record_bytes - 30]
    for base in range(0, records_count, per_batch):
        now_ms = time.time_ns() // 1_000_000
        records = [
            Record(offset - base, now_ms, b"key-%012d" % (offset * 7919 % (records_count // 2)), value)
            for offset in range(base, base + per_batch)
        ]
        log.append(build_batch(records, codec=codec), leader_epoch=0, now_ms=now_ms)
    log.roll(time.time_ns() // 1_000_000)
    log.update_high_watermark(log.log_end_offset)
    before = log.size
    for task in manager.maintenance.flush_tasks():
        task.run()
        task.finish(None)
    started, used = time.perf_counter(), time.process_time()
    assert manager.cleaner.run_due() == 1
    took, used = time.perf_counter() - started, time.process_time() - used
    after = log.size
    manager.close()
    mb = 1e6
    return (
        f"{record_bytes:5d} B {codec.codec_name:7} {before / mb:7.0f} MB to {after / mb:5.0f} MB in {took:5.2f} s:"
        f" {records_count * record_bytes / mb / took:5.0f} MB/s of records, {records_count / took / mb:5.2f} million/s,"
        f" {used / took:4.0%} of a core"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--mb", type=int, default=512, help="size of a log before, uncompressed")
    parser.add_argument("--directory", help="where to put it; a temporary folder by default")
    options = parser.parse_args()
    print(f"kernel: {NAME}")
    for record_bytes, codec in ((1024, Codec.NONE), (100, Codec.NONE), (1024, Codec.LZ4), (1024, Codec.ZSTD)):
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            print(measure(directory, record_bytes, codec, options.mb << 20), flush=True)


if __name__ == "__main__":
    main()
