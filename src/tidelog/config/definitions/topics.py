"""Topics' settings, with the brokers' settings that give their defaults."""

from typing import Final

from tidelog.config.table import settings

SETTINGS: Final = settings(
    """\
cleanup.policy | list | delete | [compact, delete] | from log.cleanup.policy |
    What becomes of old records: `delete` drops old segments, `compact` keeps the last record of each key, both
    together do both, and an empty list keeps everything.
compression.gzip.level | int | -1 | gzip-level | from compression.gzip.level |
    Level of gzip where `compression.type` is gzip; -1: zlib's default.
compression.lz4.level | int | 9 | [1,...,17] | from compression.lz4.level |
    Level of lz4 where `compression.type` is lz4.
compression.type | string | producer | [uncompressed, zstd, lz4, snappy, gzip, producer] | from compression.type |
    How batches are stored: `producer` keeps the producer's codec, another name compresses again with that codec,
    `uncompressed` not at all.
compression.zstd.level | int | 3 | [-131072,...,22] | from compression.zstd.level |
    Level of zstd where `compression.type` is zstd.
delete.retention.ms | long | 86400000 | [0,...] | from log.cleaner.delete.retention.ms |
    How long a compacted topic keeps a tombstone.
file.delete.delay.ms | long | 60000 | [0,...] | from log.segment.delete.delay.ms |
    How long a deleted segment's files stay as `.deleted` before they are removed.
flush.messages | long | LONG_MAX | [1,...] | from log.flush.interval.messages |
    Records after which a partition is flushed to disk; with 1, an acknowledged record is on the disk.
flush.ms | long | LONG_MAX | [0,...] | from log.flush.interval.ms, log.flush.scheduler.interval.ms |
    Time after which unflushed records are flushed.
follower.replication.throttled.replicas | list | | throttled-replicas | |
    Replicas that are throttled where they follow: partition:broker, comma-separated, or `*`. The rate is the broker's
    `follower.replication.throttled.rate`.
index.interval.bytes | int | 4096 | [0,...] | from log.index.interval.bytes |
    Bytes of records between two index entries.
leader.replication.throttled.replicas | list | | throttled-replicas | |
    Replicas that are throttled where they lead: partition:broker, comma-separated, or `*`. The rate is the broker's
    `leader.replication.throttled.rate`.
local.retention.bytes | long | -2 | [-2,...] | accepted; from log.local.retention.bytes |
    Tiered storage: how much stays on local disk; nothing is tiered here.
local.retention.ms | long | -2 | [-2,...] | accepted; from log.local.retention.ms |
    Tiered storage: how long segments stay on local disk; nothing is tiered here.
max.compaction.lag.ms | long | LONG_MAX | [1,...] | from log.cleaner.max.compaction.lag.ms |
    How long a compacted topic may leave a record uncleaned.
max.message.bytes | int | 1048588 | [0,...] | from message.max.bytes |
    The largest record batch, as it comes, compressed.
message.timestamp.after.max.ms | long | 3600000 | [0,...] | from log.message.timestamp.after.max.ms |
    How far in the future a producer's timestamp may be.
message.timestamp.before.max.ms | long | LONG_MAX | [0,...] | from log.message.timestamp.before.max.ms |
    How far in the past a producer's timestamp may be.
message.timestamp.type | string | CreateTime | [CreateTime, LogAppendTime] | from log.message.timestamp.type |
    Whether a record's timestamp is the producer's (CreateTime) or the time of the append (LogAppendTime).
min.cleanable.dirty.ratio | double | 0.5 | [0,...,1] | from log.cleaner.min.cleanable.ratio |
    The share of a compacted log that must be uncleaned before it is cleaned.
min.compaction.lag.ms | long | 0 | [0,...] | from log.cleaner.min.compaction.lag.ms |
    How long a compacted topic keeps a record as it is.
min.insync.replicas | int | 1 | [1,...] | from min.insync.replicas | In-sync replicas that acks=all needs.
preallocate | boolean | false | | from log.preallocate | Whether a new segment's file is made full-size at once.
remote.log.copy.disable | boolean | false | | accepted |
    Tiered storage: whether copying to it has stopped; nothing is tiered here.
remote.log.delete.on.disable | boolean | false | | accepted |
    Tiered storage: whether its data goes when it is disabled; nothing is tiered here.
remote.storage.enable | boolean | false | | refused: there is no tiered storage in this release: leave it out |
    Whether segments go to tiered storage (KIP-405).
retention.bytes | long | -1 | | from log.retention.bytes |
    Size of a partition above which its oldest segments go; -1: no bound.
retention.ms | long | 604800000 | [-1,...] | from log.retention.ms, log.retention.minutes, log.retention.hours |
    How long records are kept, by the largest timestamp of their segment; -1: for ever.
segment.bytes | int | 1073741824 | [14,...] | from log.segment.bytes |
    Size at which a segment is closed and the next one begun. Kafka 4 demands 1 MiB at least; here, as in Kafka 3,
    small ones are allowed.
segment.index.bytes | int | 10485760 | [4,...] | from log.index.size.max.bytes |
    Size to which index files are preallocated; a full index closes the segment.
segment.jitter.ms | long | 0 | [0,...] | from log.roll.jitter.ms, log.roll.jitter.hours |
    The most by which rolling is spread, at random.
segment.ms | long | 604800000 | [1,...] | from log.roll.ms, log.roll.hours |
    Age at which a segment is closed, by the timestamp of its first batch.
unclean.leader.election.enable | boolean | false | | from unclean.leader.election.enable |
    Whether a replica outside the ISR may lead when none inside is left; records may be lost.
"""
)
