"""Brokers' settings: tiered storage (KIP-405). There is none: switching it on is refused, its details are accepted."""

from typing import Final

from tidelog.config.table import settings

SETTINGS: Final = settings(
    """\
remote.log.storage.system.enable | boolean | false | | refused: there is no tiered storage in this release: set it to
    false |
    Whether segments go to tiered storage (KIP-405).
remote.fetch.max.wait.ms | int | 500 | [1,...] | cluster-wide; accepted |
    Tiered storage: how long a fetch from it may take.
remote.list.offsets.request.timeout.ms | long | 30000 | [1,...] | cluster-wide; accepted |
    Tiered storage: how long a search by timestamp in it may take.
remote.log.index.file.cache.total.size.bytes | long | 1073741824 | [1,...] | low; cluster-wide; accepted |
    Tiered storage: disk space for cached indexes.
remote.log.index.file.cache.ttl.ms | long | 900000 | [-1,...] | low; accepted |
    Tiered storage: how long a cached index is kept.
remote.log.manager.copier.thread.pool.size | int | 10 | [1,...] | cluster-wide; accepted |
    Tiered storage: threads that copy segments.
remote.log.manager.copy.max.bytes.per.second | long | LONG_MAX | [1,...] | cluster-wide; accepted |
    Tiered storage: bytes copied a second.
remote.log.manager.copy.quota.window.num | int | 11 | [1,...] | accepted |
    Tiered storage: samples of the copying quota.
remote.log.manager.copy.quota.window.size.seconds | int | 1 | [1,...] | accepted |
    Tiered storage: seconds a sample of the copying quota.
remote.log.manager.expiration.thread.pool.size | int | 10 | [1,...] | cluster-wide; accepted |
    Tiered storage: threads that remove expired segments.
remote.log.manager.fetch.max.bytes.per.second | long | LONG_MAX | [1,...] | cluster-wide; accepted |
    Tiered storage: bytes fetched a second.
remote.log.manager.fetch.quota.window.num | int | 11 | [1,...] | accepted |
    Tiered storage: samples of the fetching quota.
remote.log.manager.fetch.quota.window.size.seconds | int | 1 | [1,...] | accepted |
    Tiered storage: seconds a sample of the fetching quota.
remote.log.manager.follower.thread.pool.size | int | 2 | [1,...] | cluster-wide; accepted |
    Tiered storage: threads for partitions that are followed.
remote.log.manager.task.interval.ms | long | 30000 | [1,...] | low; accepted |
    Tiered storage: how often its tasks run.
remote.log.manager.task.retry.backoff.max.ms | long | 30000 | [1,...] | low; accepted |
    Tiered storage: the most to wait between tries.
remote.log.manager.task.retry.backoff.ms | long | 500 | [1,...] | low; accepted |
    Tiered storage: the least to wait between tries.
remote.log.manager.task.retry.jitter | double | 0.2 | [0,...,0.5] | low; accepted |
    Tiered storage: random share of that wait.
remote.log.manager.thread.pool.size | int | 2 | [1,...] | accepted | Tiered storage: threads.
remote.log.metadata.custom.metadata.max.bytes | int | 128 | [0,...] | low; accepted |
    Tiered storage: the largest custom metadata of a segment.
remote.log.metadata.manager.class.name | string |
    org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager | not-empty | accepted |
    Tiered storage: a class that keeps its metadata.
remote.log.metadata.manager.class.path | string | null | | accepted | Tiered storage: where that class is.
remote.log.metadata.manager.impl.prefix | string | rlmm.config. | not-empty | accepted |
    Tiered storage: prefix of that class's settings.
remote.log.metadata.manager.listener.name | string | null | not-empty | accepted |
    Tiered storage: the listener that class connects to.
remote.log.reader.max.pending.tasks | int | 100 | [1,...] | accepted | Tiered storage: reads that may wait.
remote.log.reader.threads | int | 10 | [1,...] | cluster-wide; accepted | Tiered storage: threads that read.
remote.log.storage.manager.class.name | string | null | not-empty | accepted |
    Tiered storage: a class that stores segments.
remote.log.storage.manager.class.path | string | null | | accepted | Tiered storage: where that class is.
remote.log.storage.manager.impl.prefix | string | rsm.config. | not-empty | accepted |
    Tiered storage: prefix of that class's settings.
"""
)
