"""What a topic's settings mean to its logs: plain values, with Kafka's defaults.

The names are Kafka's topic settings with underscores; the broker resolves topic overrides, its own defaults and their
synonyms (`tidelog.config`) and hands the outcome over as one value, replaced whole when a setting changes.
"""

from dataclasses import dataclass
from typing import Final

from tidelog.records.batch import Codec, TimestampType

LONG_MAX: Final = 2**63 - 1
"""Kafka's "never" for sizes and times."""

PRODUCER_CODEC: Final = None
"""`compression.type=producer`: batches stay as their producer compressed them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The settings of one topic's logs. Bytes and milliseconds; -1 means no limit where a field says so."""

    segment_bytes: int = 1 << 30
    """A segment rolls before it would grow past this."""
    segment_ms: int = 7 * 24 * 3600 * 1000
    """A segment rolls when the time between its first batch and the one to append reaches this."""
    segment_jitter_ms: int = 0
    """Bound of the random time subtracted from `segment_ms`, so that many partitions don't roll at once."""
    segment_index_bytes: int = 10 << 20
    """Size to which an index is preallocated; a full index rolls the segment."""
    index_interval_bytes: int = 4096
    """Bytes of log between two index entries."""
    flush_messages: int = LONG_MAX
    """Records after which a flush is due; with 1 only flushed records are acknowledged."""
    flush_ms: int = LONG_MAX
    """Age of the oldest record not yet flushed at which a flush is due."""
    retention_ms: int = 7 * 24 * 3600 * 1000
    """Age of a segment's largest timestamp at which it is deleted; -1: never."""
    retention_bytes: int = -1
    """Size of the log above which its oldest segments are deleted; -1: unlimited."""
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    """Any of "delete" and "compact"; empty: nothing is ever removed."""
    file_delete_delay_ms: int = 60_000
    """How long a deleted segment's files keep their `.deleted` name before they go."""
    max_message_bytes: int = 1_048_588
    """Largest batch accepted from a client."""
    compression_type: Codec | None = PRODUCER_CODEC
    """Codec every batch is stored with; None: the producer's own."""
    compression_gzip_level: int = -1
    """-1: the codec's default, as in the two below."""
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = LONG_MAX
    """How far a record's timestamp may lie before the broker's clock."""
    message_timestamp_after_max_ms: int = 3_600_000
    """How far a record's timestamp may lie after the broker's clock."""
    preallocate: bool = False
    """Whether a new segment's file takes its full size at once."""
    min_insync_replicas: int = 1
    delete_retention_ms: int = 24 * 3600 * 1000
    """How long compaction keeps tombstones and markers."""
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    min_cleanable_dirty_ratio: float = 0.5

    @property
    def compacted(self) -> bool:
        """Whether records need keys."""
        return "compact" in self.cleanup_policy

    @property
    def deleted(self) -> bool:
        """Whether retention by time and size applies."""
        return "delete" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """Time after which the active segment rolls: compaction must not wait longer than its own bound."""
        return min(self.max_compaction_lag_ms, self.segment_ms) if self.compacted else self.segment_ms

    def compression_level(self, codec: Codec) -> int | None:
        """The level asked for with `codec`; None: the codec's default."""
        match codec:
            case Codec.GZIP:
                return None if self.compression_gzip_level == -1 else self.compression_gzip_level
            case Codec.LZ4:
                return self.compression_lz4_level
            case Codec.ZSTD:
                return self.compression_zstd_level
            case _:
                return None
