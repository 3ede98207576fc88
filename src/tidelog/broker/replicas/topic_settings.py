"""From a topic's settings, resolved, to those of its logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidelog.config import topic_config
from tidelog.records.batch import Codec, TimestampType
from tidelog.storage.log_config import LogConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.config.broker_config import BrokerConfig

_CODECS: Final[dict[str, Codec | None]] = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_shared: dict[LogConfig, LogConfig] = {}
"""Equal settings are one object: most topics of a cluster have the same."""
_SHARED_MAX: Final = 1024


def log_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """What a topic with `overrides` asks of its logs, with the broker's defaults."""
    values: dict[str, Any] = dict(topic_config.resolve(overrides, broker))
    config = LogConfig(
        segment_bytes=values["segment.bytes"],
        segment_ms=values["segment.ms"],
        segment_jitter_ms=values["segment.jitter.ms"],
        segment_index_bytes=values["segment.index.bytes"],
        index_interval_bytes=values["index.interval.bytes"],
        flush_messages=values["flush.messages"],
        flush_ms=values["flush.ms"],
        retention_ms=values["retention.ms"],
        retention_bytes=values["retention.bytes"],
        cleanup_policy=frozenset(values["cleanup.policy"]),
        file_delete_delay_ms=values["file.delete.delay.ms"],
        max_message_bytes=values["max.message.bytes"],
        compression_type=_CODECS[values["compression.type"]],
        compression_gzip_level=values["compression.gzip.level"],
        compression_lz4_level=values["compression.lz4.level"],
        compression_zstd_level=values["compression.zstd.level"],
        message_timestamp_type=TimestampType.LOG_APPEND_TIME
        if values["message.timestamp.type"] == "LogAppendTime"
        else TimestampType.CREATE_TIME,
        message_timestamp_before_max_ms=values["message.timestamp.before.max.ms"],
        message_timestamp_after_max_ms=values["message.timestamp.after.max.ms"],
        preallocate=values["preallocate"],
        min_insync_replicas=values["min.insync.replicas"],
        delete_retention_ms=values["delete.retention.ms"],
        min_compaction_lag_ms=values["min.compaction.lag.ms"],
        max_compaction_lag_ms=values["max.compaction.lag.ms"],
        min_cleanable_dirty_ratio=values["min.cleanable.dirty.ratio"],
    )
    if len(_shared) >= _SHARED_MAX:
        _shared.clear()
    return _shared.setdefault(config, config)
