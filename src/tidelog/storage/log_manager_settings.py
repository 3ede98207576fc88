"""Broker-wide settings of the log manager, and of what it has done from time to time."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.storage.cleaner.settings import CleanerSettings
from tidelog.storage.file_pool import DEFAULT_CAPACITY
from tidelog.storage.producer_limit import PRODUCERS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class LogManagerSettings:
    """Broker-wide settings, milliseconds unless named otherwise; defaults are Kafka's."""

    initial_task_delay_ms: int = 30_000
    """`log.initial.task.delay.ms`: until retention is looked at first; clients come before."""
    retention_check_interval_ms: int = 300_000
    flush_offset_checkpoint_interval_ms: int = 60_000
    """`log.flush.offset.checkpoint.interval.ms`, and that of start offsets."""
    high_watermark_checkpoint_interval_ms: int = 5_000
    """`replica.high.watermark.checkpoint.interval.ms`"""
    producer_expiration_ms: int = 86_400_000
    """`producer.id.expiration.ms`"""
    producer_expiration_check_interval_ms: int = 600_000
    producers_max: int = PRODUCERS_MAX
    """`producer.ids.max`"""
    cleaner: CleanerSettings = field(default_factory=CleanerSettings)
    open_files_max: int = DEFAULT_CAPACITY
    """Descriptors of logs and indexes open at once."""
