"""Small reads that other consumers of the same records share: an append sets free all that wait at a log's end.

They all ask for what is between the same two offsets. The first one reads and checks it; the others get the same bytes.
Compacted logs have none: the cleaner may have taken some of the records since, and what it knew of aborted ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidelog.ports.clock import Clock
    from tidelog.storage.log import Log
    from tidelog.storage.log_reader import ReadResult

BYTES_MAX: Final = 16 << 10
"""Bytes of a read that is kept: what is larger goes from the file to the socket."""
READS_MAX: Final = 16
"""Reads that are kept, of logs whose consumers are at different offsets just now; so all of them have 256 KiB."""
SHARED_MS: Final = 100
"""For how long they are, from the first one on: consumers that are later have other offsets."""


class SharedReads:
    """Those of one broker; on its loop's thread."""

    __slots__ = ("_clock", "_reads", "_until_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reads: dict[tuple[Log, int, int, int], bytes] = {}
        """[log, how often it was truncated, from which offset, to below which one] -> batches"""
        self._until_ms = 0

    def find(self, log: Log, offset: int, limit: int) -> bytes | None:
        """All batches from the one with `offset` to below `limit`, if that was read just now."""
        reads = self._reads
        if not reads or log.config.compacted:
            return None
        if self._clock.monotonic_ms() >= self._until_ms:
            reads.clear()
            return None
        return reads.get((log, log.truncations, offset, limit))

    def take(self, log: Log, offset: int, limit: int, result: ReadResult) -> bytes | None:
        """The bytes of a read of those batches, for others too; its ranges are released then.

        None, and nothing is done, where they are not in memory, are too many or not all that there is.
        """
        if log.config.compacted:
            return None
        if result.size > BYTES_MAX or len(result.ranges) != 1 or result.first_batch_size or log.rot:
            return None
        source = result.ranges[0]
        data = source.file.probe(source.size, source.position)
        if data is None or len(data) != source.size:
            return None
        source.release()
        reads = self._reads
        now_ms = self._clock.monotonic_ms()
        if len(reads) >= READS_MAX or now_ms >= self._until_ms:
            reads.clear()
        if not reads:
            self._until_ms = now_ms + SHARED_MS
        reads[log, log.truncations, offset, limit] = data
        return data
