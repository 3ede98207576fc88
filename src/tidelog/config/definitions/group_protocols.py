"""Brokers' settings: the newer group protocols, consumer groups of KIP-848, share groups and streams groups."""

from typing import Final

from tidelog.config.table import settings

SETTINGS: Final = settings(
    """\
group.consumer.assignment.interval.ms | int | 1000 | [0,...] | cluster-wide |
    Consumer groups (KIP-848): time between assignments.
group.consumer.assignors | list | uniform,range | [uniform, range,
    org.apache.kafka.coordinator.group.assignor.UniformAssignor,
    org.apache.kafka.coordinator.group.assignor.RangeAssignor] | |
    Consumer groups (KIP-848): the coordinator's assignors, the default one first.
group.consumer.heartbeat.interval.ms | int | 5000 | [1,...] | |
    Consumer groups (KIP-848): time between a member's heartbeats.
group.consumer.max.assignment.interval.ms | int | 15000 | [0,...] | |
    Consumer groups (KIP-848): the longest time between assignments that a group may set.
group.consumer.max.heartbeat.interval.ms | int | 15000 | [1,...] | |
    Consumer groups (KIP-848): the longest heartbeat interval that a group may set.
group.consumer.max.session.timeout.ms | int | 60000 | [1,...] | |
    Consumer groups (KIP-848): the longest session that a group may set.
group.consumer.max.size | int | INT_MAX | [1,...] | | Consumer groups (KIP-848): members a group.
group.consumer.migration.policy | string | bidirectional | (any case) [DISABLED, DOWNGRADE, UPGRADE, BIDIRECTIONAL] |
    |
    Consumer groups (KIP-848): whether a classic group may be upgraded, downgraded, both or neither while it runs.
group.consumer.min.assignment.interval.ms | int | 0 | [0,...] | |
    Consumer groups (KIP-848): the shortest time between assignments that a group may set.
group.consumer.min.heartbeat.interval.ms | int | 5000 | [1,...] | |
    Consumer groups (KIP-848): the shortest heartbeat interval that a group may set.
group.consumer.min.session.timeout.ms | int | 45000 | [1,...] | |
    Consumer groups (KIP-848): the shortest session that a group may set.
group.consumer.regex.refresh.interval.ms | int | 600000 | [10000,...] | |
    Consumer groups (KIP-848): how often subscriptions by pattern are looked at again.
group.consumer.session.timeout.ms | int | 45000 | [1,...] | |
    Consumer groups (KIP-848): how long a member lives without a heartbeat.
group.share.assignment.interval.ms | int | 1000 | [0,...] | cluster-wide |
    Share groups: time between assignments.
group.share.assignors | list | simple | | accepted | Share groups: the coordinator's assignors.
group.share.delivery.count.limit | int | 5 | [2,...,10] | |
    Share groups: how often a record is delivered at most.
group.share.enable | boolean | false | | accepted | Share groups: whether they are offered (3.9).
group.share.heartbeat.interval.ms | int | 5000 | [1,...] | |
    Share groups: time between a member's heartbeats.
group.share.initialize.retry.interval.ms | int | 30000 | [1,...] | low |
    Share groups: time between tries to initialise a partition.
group.share.max.assignment.interval.ms | int | 15000 | [0,...] | |
    Share groups: the longest time between assignments that a group may set.
group.share.max.delivery.count.limit | int | 10 | [5,...,25] | |
    Share groups: the greatest delivery limit that a group may set.
group.share.max.groups | short | 10 | [1,...,100] | accepted | Share groups: how many there may be (3.9).
group.share.max.heartbeat.interval.ms | int | 15000 | [1,...] | |
    Share groups: the longest heartbeat interval that a group may set.
group.share.max.partition.max.record.locks | int | 4000 | [2000,...,10000] | |
    Share groups: the most locked records a partition that a group may set.
group.share.max.record.lock.duration.ms | int | 60000 | [30000,...,3600000] | |
    Share groups: the longest lock that a group may set.
group.share.max.session.timeout.ms | int | 60000 | [1,...] | |
    Share groups: the longest session that a group may set.
group.share.max.share.sessions | int | 2000 | [1,...] | | Share groups: sessions on this broker.
group.share.max.size | int | 200 | [1,...,1000] | | Share groups: members a group.
group.share.min.assignment.interval.ms | int | 0 | [0,...] | |
    Share groups: the shortest time between assignments that a group may set.
group.share.min.delivery.count.limit | int | 2 | [2,...,5] | |
    Share groups: the least delivery limit that a group may set.
group.share.min.heartbeat.interval.ms | int | 5000 | [1,...] | |
    Share groups: the shortest heartbeat interval that a group may set.
group.share.min.partition.max.record.locks | int | 100 | [100,...,2000] | |
    Share groups: the fewest locked records a partition that a group may set.
group.share.min.record.lock.duration.ms | int | 15000 | [1000,...,30000] | |
    Share groups: the shortest lock that a group may set.
group.share.min.session.timeout.ms | int | 45000 | [1,...] | |
    Share groups: the shortest session that a group may set.
group.share.partition.max.record.locks | int | 2000 | [100,...,10000] | |
    Share groups: locked records a partition.
group.share.persister.class.name | string | org.apache.kafka.server.share.persister.DefaultStatePersister | | accepted
    |
    Share groups: a class that keeps their state.
group.share.record.lock.duration.ms | int | 30000 | [1000,...,3600000] | |
    Share groups: how long a record is locked for its member.
group.share.session.timeout.ms | int | 45000 | [1,...] | |
    Share groups: how long a member lives without a heartbeat.
group.streams.assignment.interval.ms | int | 1000 | [0,...] | cluster-wide; accepted |
    Streams groups: time between assignments.
group.streams.heartbeat.interval.ms | int | 5000 | [1,...] | accepted |
    Streams groups: time between a member's heartbeats.
group.streams.initial.rebalance.delay.ms | int | 3000 | [0,...] | accepted |
    Streams groups: how long a new group waits for further members.
group.streams.max.assignment.interval.ms | int | 15000 | [0,...] | accepted |
    Streams groups: the longest time between assignments that a group may set.
group.streams.max.heartbeat.interval.ms | int | 15000 | [1,...] | accepted |
    Streams groups: the longest heartbeat interval that a group may set.
group.streams.max.session.timeout.ms | int | 60000 | [1,...] | accepted |
    Streams groups: the longest session that a group may set.
group.streams.max.size | int | INT_MAX | [1,...] | accepted | Streams groups: members a group.
group.streams.max.standby.replicas | int | 2 | [0,...] | accepted |
    Streams groups: the most standby replicas that a group may set.
group.streams.min.assignment.interval.ms | int | 0 | [0,...] | accepted |
    Streams groups: the shortest time between assignments that a group may set.
group.streams.min.heartbeat.interval.ms | int | 5000 | [1,...] | accepted |
    Streams groups: the shortest heartbeat interval that a group may set.
group.streams.min.session.timeout.ms | int | 45000 | [1,...] | accepted |
    Streams groups: the shortest session that a group may set.
group.streams.num.standby.replicas | int | 0 | [0,...] | accepted | Streams groups: standby replicas of a task.
group.streams.session.timeout.ms | int | 45000 | [1,...] | accepted |
    Streams groups: how long a member lives without a heartbeat.
share.coordinator.append.linger.ms | int | -1 | [-1,...] | accepted | Share coordinator: how long it gathers writes.
share.coordinator.cached.buffer.max.bytes | int | 1048588 | [524288,...] | cluster-wide; accepted |
    Share coordinator: the largest write buffer that is kept.
share.coordinator.cold.partition.snapshot.interval.ms | int | 300000 | [1,...] | low; accepted |
    Share coordinator: how often idle partitions are written.
share.coordinator.load.buffer.size | int | 5242880 | [1,...] | high |
    Share coordinator: bytes read at a time when its topic is loaded.
share.coordinator.snapshot.update.records.per.snapshot | int | 500 | [0,...,500] | |
    Share coordinator: updates between snapshots.
share.coordinator.state.topic.compression.codec | int | 0 | | high |
    Share coordinator: codec of its batches.
share.coordinator.state.topic.min.isr | short | 2 | [1,...] | high |
    Share coordinator: in-sync replicas that its topic needs.
share.coordinator.state.topic.num.partitions | int | 50 | [1,...] | high |
    Share coordinator: partitions of its topic.
share.coordinator.state.topic.prune.interval.ms | int | 300000 | [1,...] | low |
    Share coordinator: how often its topic is pruned.
share.coordinator.state.topic.replication.factor | short | 3 | [1,...] | high |
    Share coordinator: replicas of its topic.
share.coordinator.state.topic.segment.bytes | int | 104857600 | [1,...] | high |
    Share coordinator: size of a segment of its topic.
share.coordinator.threads | int | 1 | [1,...] | accepted | Share coordinator: threads.
share.coordinator.write.timeout.ms | int | 5000 | [1,...] | high |
    Share coordinator: how long a write may wait for its replicas.
"""
)
