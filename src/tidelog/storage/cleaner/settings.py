"""What a broker's settings `log.cleaner.*` say; a topic's own are in `LogConfig`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerSettings:
    """Defaults are Kafka's."""

    enabled: bool = True
    """`log.cleaner.enable`, and at least one of `log.cleaner.threads`; more than one are as one."""
    dedupe_buffer_bytes: int = 128 << 20
    """Bytes that the map of keys takes at most; a cleaning takes no more than its records need."""
    dedupe_load_factor: float = 0.9
    """Share of the map that keys may fill; the rest keeps it quick."""
    io_buffer_bytes: int = 512 << 10
    """Half of it is read at once; a larger batch takes as much as it needs."""
    io_bytes_per_second_max: float = float("inf")
    """Bytes read and written by all cleanings."""
    backoff_ms: int = 15_000
    """Rest when no log was due."""
    slice_bytes: int = 4 << 20
    """Bytes that are read and written before others get the I/O thread."""
