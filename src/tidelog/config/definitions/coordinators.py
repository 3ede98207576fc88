"""Brokers' settings: committed offsets, groups and transactions."""

from typing import Final

from tidelog.config.table import settings

SETTINGS: Final = settings(
    """\
offset.metadata.max.bytes | int | 4096 | [0,...] | high |
    The longest note (metadata) of a committed offset, in characters.
offsets.topic.num.partitions | int | 50 | [1,...] | high |
    Partitions of `__consumer_offsets`; not to be changed once it exists.
offsets.topic.replication.factor | short | 3 | [1,...] | high |
    Replicas of `__consumer_offsets`. Where it is not set, as many as there are brokers, 3 at most.
offsets.topic.segment.bytes | int | 104857600 | [1,...] | high | Size of a segment of `__consumer_offsets`.
offsets.topic.compression.codec | int | 0 | [0,...,4] | high |
    Codec of the coordinator's batches: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
offsets.retention.minutes | int | 10080 | [1,...] | high |
    How long a group's offsets are kept after its last commit or its last member.
offsets.retention.check.interval.ms | long | 600000 | [1,...] | high | How often expired offsets are looked for.
offsets.load.buffer.size | int | 5242880 | [1,...] | high |
    Bytes that are read at a time when a coordinator loads a partition of `__consumer_offsets`.
offsets.commit.timeout.ms | int | 5000 | [1,...] | high | How long a commit may wait for its replicas.
offsets.commit.required.acks | short | -1 | | high; accepted |
    Kafka 3: acknowledgements a commit needs; here, as in Kafka 4, always all (-1).
group.initial.rebalance.delay.ms | int | 0 | | |
    How long a new group waits for further members, and again while they keep coming; 100 at least. Kafka's default is
    3000.
group.min.session.timeout.ms | int | 6000 | | | The shortest session a member may ask for.
group.max.session.timeout.ms | int | 1800000 | | | The longest session a member may ask for.
group.max.size | int | INT_MAX | [1,...] | | Members a group.
group.coordinator.new.enable | boolean | false | | accepted | Kafka 3: which coordinator serves.
group.coordinator.rebalance.protocols | list | classic,consumer,streams | [consumer, classic, share, streams] |
    accepted |
    Which group protocols are offered.
group.coordinator.threads | int | 4 | [1,...] | high; accepted | Kafka's threads of the coordinator.
group.coordinator.background.threads | int | 2 | [1,...] | high; accepted |
    Kafka's threads for assignments and the like.
group.coordinator.append.linger.ms | int | -1 | [-1,...] | accepted |
    How long the coordinator gathers writes; -1: as it sees fit.
group.coordinator.cached.buffer.max.bytes | int | 1048588 | [524288,...] | cluster-wide; accepted |
    The largest write buffer that Kafka keeps.
transaction.max.timeout.ms | int | 900000 | [1,...] | high | The longest transaction a producer may ask for.
transaction.state.log.num.partitions | int | 50 | [1,...] | high | Partitions of `__transaction_state`.
transaction.state.log.replication.factor | short | 3 | [1,...] | high |
    Replicas of `__transaction_state`. Where it is not set, as many as there are brokers, 3 at most.
transaction.state.log.min.isr | int | 2 | [1,...] | high | In-sync replicas that `__transaction_state` needs.
transaction.state.log.segment.bytes | int | 104857600 | [1,...] | high | Size of a segment of `__transaction_state`.
transaction.state.log.load.buffer.size | int | 5242880 | [1,...] | high |
    Bytes read at a time when `__transaction_state` is loaded.
transaction.abort.timed.out.transaction.cleanup.interval.ms | int | 10000 | [1,...] | low |
    How often overdue transactions are looked for.
transaction.remove.expired.transaction.cleanup.interval.ms | int | 3600000 | [1,...] | low |
    How often forgotten transactional ids are looked for.
transactional.id.expiration.ms | int | 604800000 | [1,...] | high | How long an idle transactional id is remembered.
transaction.partition.verification.enable | boolean | true | | low; cluster-wide |
    Whether a partition is checked to be part of its transaction before it is written to (KIP-890).
transaction.two.phase.commit.enable | boolean | false | | low; accepted |
    Whether producers may take part in two-phase commits (KIP-939).
add.partitions.to.txn.retry.backoff.ms | int | 20 | [1,...] | high |
    The longest pause between the broker's own tries to add a partition to a transaction; it begins with 1 ms.
add.partitions.to.txn.retry.backoff.max.ms | int | 100 | [0,...] | high | How long those tries go on.
"""
)
