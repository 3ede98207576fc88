"""Brokers' settings: the log on disk. Most are the defaults of topics' settings (`topics.py`)."""

from typing import Final

from tidelog.config.table import settings

SETTINGS: Final = settings(
    """\
log.dir | string | /tmp/tidelog-logs | | high |
    The directory of the logs, where `log.dirs` is not set. Kafka's default is /tmp/kafka-logs.
log.dirs | list | null | | high |
    The directories of the logs, comma-separated. A new replica goes to the live one with the fewest logs; one that
    fails goes offline with its partitions.
cordoned.log.dirs | list | | | per-broker |
    Directories that get no new replicas; `*` stands for all. While all of a broker's are named, new topics and
    partitions are placed on other brokers, if it is set while the broker runs (KIP-1066).
log.dir.failure.timeout.ms | long | 30000 | [1,...] | low; accepted |
    KRaft: how long a broker may fail to report an offline directory.
log.segment.bytes | int | 1073741824 | [14,...] | high; cluster-wide |
    Size at which a segment is closed and the next one begun. Kafka 4 demands 1 MiB at least; here, as in Kafka 3,
    small ones are allowed.
log.roll.ms | long | null | [1,...] | high; cluster-wide |
    Age at which a segment is closed, by the timestamp of its first batch; overrides `log.roll.hours`.
log.roll.hours | int | 168 | [1,...] | high | As `log.roll.ms`, in hours.
log.roll.jitter.ms | long | null | | high; cluster-wide |
    Each segment rolls earlier by a random time, at most this long, so that not all partitions roll at once; overrides
    `log.roll.jitter.hours`.
log.roll.jitter.hours | int | 0 | [0,...] | high | As `log.roll.jitter.ms`, in hours.
log.index.size.max.bytes | int | 10485760 | [4,...] | cluster-wide |
    Size to which index files are preallocated; a full index closes the segment.
log.index.interval.bytes | int | 4096 | [0,...] | cluster-wide | Bytes of records between two index entries.
log.retention.ms | long | null | [-1,...] | high; cluster-wide |
    How long records are kept, by the largest timestamp of their segment; -1: for ever. Overrides
    `log.retention.minutes` and `log.retention.hours`.
log.retention.minutes | int | null | [-1,...] | high | As `log.retention.ms`, in minutes.
log.retention.hours | int | 168 | [-1,...] | high | As `log.retention.ms`, in hours.
log.retention.bytes | long | -1 | | high; cluster-wide |
    Size of a partition above which its oldest segments go; -1: no bound.
log.retention.check.interval.ms | long | 300000 | [1,...] | | How often retention is looked at.
log.local.retention.ms | long | -2 | [-2,...] | cluster-wide; accepted |
    Tiered storage: how long segments stay on local disk; nothing is tiered here.
log.local.retention.bytes | long | -2 | [-2,...] | cluster-wide; accepted |
    Tiered storage: how much stays on local disk; nothing is tiered here.
log.segment.delete.delay.ms | long | 60000 | [0,...] | high; cluster-wide |
    How long a deleted segment's files stay as `.deleted` before they are removed.
log.cleanup.policy | list | delete | [compact, delete] | cluster-wide |
    What becomes of old records: `delete`, `compact`, both, or (empty) nothing.
log.cleaner.enable | boolean | true | | | Whether topics with `cleanup.policy=compact` are compacted.
log.cleaner.threads | int | 1 | [0,...] | cluster-wide |
    Cleaner: 0 for none. One log is cleaned at a time, however many threads are asked for.
log.cleaner.backoff.ms | long | 15000 | [0,...] | cluster-wide |
    Cleaner: how long it rests when there is nothing to clean.
log.cleaner.dedupe.buffer.size | long | 134217728 | | cluster-wide |
    Cleaner: memory that the keys' map may take; 24 bytes a key.
log.cleaner.io.buffer.load.factor | double | 0.9 | [0,...,1] | cluster-wide | Cleaner: how full the keys' map may get.
log.cleaner.io.buffer.size | int | 524288 | [0,...] | cluster-wide |
    Cleaner: memory for reading and writing, half of it for each; a larger batch takes what it needs.
log.cleaner.io.max.bytes.per.second | double | DOUBLE_MAX | | cluster-wide |
    Cleaner: bytes a second that it reads and writes.
log.cleaner.min.cleanable.ratio | double | 0.5 | [0,...,1] | cluster-wide |
    Cleaner: the share of a log that must be uncleaned before it is cleaned.
log.cleaner.min.compaction.lag.ms | long | 0 | [0,...] | cluster-wide | Cleaner: how long a record stays as it is.
log.cleaner.max.compaction.lag.ms | long | LONG_MAX | [1,...] | cluster-wide |
    Cleaner: how long a record may stay uncleaned.
log.cleaner.delete.retention.ms | long | 86400000 | [0,...] | cluster-wide | Cleaner: how long a tombstone is kept.
log.scrub.max.bytes.per.second | long | 10485760 | [0,...] | cluster-wide |
    tidelog's own: how fast the scrub reads through all logs, looking for damaged batches; 0: not at all.
log.scrub.interval.ms | long | 86400000 | [0,...] | cluster-wide |
    tidelog's own: how long after the beginning of one pass of the scrub the next one begins.
log.flush.interval.messages | long | LONG_MAX | [1,...] | high; cluster-wide |
    Records after which a partition is flushed to disk; with 1, an acknowledged record is on the disk.
log.flush.interval.ms | long | null | [0,...] | high; cluster-wide |
    Time after which unflushed records are flushed. Default: `log.flush.scheduler.interval.ms`.
log.flush.scheduler.interval.ms | long | LONG_MAX | [1,...] | high |
    How often the broker looks for logs that are due to be flushed.
log.flush.offset.checkpoint.interval.ms | int | 60000 | [0,...] | high | How often the recovery points are written.
log.flush.start.offset.checkpoint.interval.ms | int | 60000 | [0,...] | high; accepted |
    How often the log start offsets are written; here together with the recovery points.
log.initial.task.delay.ms | long | 30000 | [0,...] | low |
    From the broker's start to the first retention run; the first checkpoints come after one checkpoint interval.
log.preallocate | boolean | false | | cluster-wide | Whether a new segment's file is made full-size at once.
num.recovery.threads.per.data.dir | int | 2 | [1,...] | high; cluster-wide; accepted |
    Kafka's threads for each directory that recover logs at the start; here one thread recovers all.
message.max.bytes | int | 1048588 | [0,...] | high; cluster-wide | The largest record batch, as it comes, compressed.
compression.type | string | producer | [uncompressed, zstd, lz4, snappy, gzip, producer] | high; cluster-wide |
    How batches are stored: `producer` keeps the producer's codec, another name compresses again with that codec,
    `uncompressed` not at all.
compression.gzip.level | int | -1 | gzip-level | cluster-wide |
    Level of gzip where `compression.type` is gzip; -1: zlib's default.
compression.lz4.level | int | 9 | [1,...,17] | cluster-wide | Level of lz4 where `compression.type` is lz4.
compression.zstd.level | int | 3 | [-131072,...,22] | cluster-wide | Level of zstd where `compression.type` is zstd.
log.message.timestamp.type | string | CreateTime | [CreateTime, LogAppendTime] | cluster-wide |
    Whether a record's timestamp is the producer's (CreateTime) or the time of the append (LogAppendTime).
log.message.timestamp.before.max.ms | long | LONG_MAX | [0,...] | cluster-wide |
    How far in the past a producer's timestamp may be.
log.message.timestamp.after.max.ms | long | 3600000 | [0,...] | cluster-wide |
    How far in the future a producer's timestamp may be.
log.message.timestamp.difference.max.ms | long | LONG_MAX | [0,...] | accepted |
    Kafka 3: both bounds in one; use the two others.
log.message.format.version | string | null | | accepted |
    Kafka 3: the format of old releases. Only the format of 0.11 and later (magic 2) is stored.
log.message.downconversion.enable | boolean | true | | low; accepted |
    Kafka 3: whether records are converted for clients before 0.11; such clients are not served.
producer.id.expiration.ms | int | 86400000 | [1,...] | low; cluster-wide |
    How long an idle producer's sequence numbers are remembered.
producer.id.expiration.check.interval.ms | int | 600000 | [1,...] | low | How often idle producers are looked for.
producer.ids.max | int | 200000 | [1000,...] | low |
    tidelog's own: how many producers a broker remembers, each once for every partition; about 350 bytes each. From 90
    % of it on, the broker forgets those silent longest, ten minutes at least, and gives out new producer ids slowly;
    above 95 % it forgets those silent for three minutes. Never one with an open transaction.
"""
)
