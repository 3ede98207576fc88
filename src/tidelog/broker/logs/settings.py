"""What a broker's settings ask of its log manager, cleaner included."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.storage.cleaner.settings import CleanerSettings
from tidelog.storage.log_manager_settings import LogManagerSettings

if TYPE_CHECKING:
    from tidelog.config.broker_config import BrokerConfig


def log_manager_settings(config: BrokerConfig, *, open_files_max: int) -> LogManagerSettings:
    """Those of all logs of a broker; those of one topic's are `replicas.topic_settings`."""
    return LogManagerSettings(
        initial_task_delay_ms=config.log_initial_task_delay_ms,
        retention_check_interval_ms=config.log_retention_check_interval_ms,
        flush_offset_checkpoint_interval_ms=config.log_flush_offset_checkpoint_interval_ms,
        high_watermark_checkpoint_interval_ms=config.replica_high_watermark_checkpoint_interval_ms,
        producer_expiration_ms=config.producer_id_expiration_ms,
        producer_expiration_check_interval_ms=config.producer_id_expiration_check_interval_ms,
        producers_max=config.producer_ids_max,
        cleaner=cleaner_settings(config),
        open_files_max=open_files_max,
    )


def cleaner_settings(config: BrokerConfig) -> CleanerSettings:
    """What a broker's settings ask of its cleaner."""
    return CleanerSettings(
        enabled=config.log_cleaner_enable and config.log_cleaner_threads > 0,
        dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
        dedupe_load_factor=config.log_cleaner_io_buffer_load_factor,
        io_buffer_bytes=config.log_cleaner_io_buffer_size,
        io_bytes_per_second_max=config.log_cleaner_io_max_bytes_per_second,
        backoff_ms=config.log_cleaner_backoff_ms,
    )
