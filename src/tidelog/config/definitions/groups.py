"""Groups' own settings (KIP-848, KIP-932), with the brokers' settings that give their defaults."""

from typing import Final

from tidelog.config.table import settings

SETTINGS: Final = settings(
    """\
consumer.assignment.interval.ms | int | 1000 | [0,...] | from group.consumer.assignment.interval.ms |
    Consumer groups (KIP-848): time between assignments; within `group.consumer.min.assignment.interval.ms` and
    `group.consumer.max.assignment.interval.ms`.
consumer.heartbeat.interval.ms | int | 5000 | [1,...] | from group.consumer.heartbeat.interval.ms |
    Consumer groups (KIP-848): time between a member's heartbeats; within `group.consumer.min.heartbeat.interval.ms`
    and `group.consumer.max.heartbeat.interval.ms`.
consumer.session.timeout.ms | int | 45000 | [1,...] | from group.consumer.session.timeout.ms |
    Consumer groups (KIP-848): how long a member lives without a heartbeat; within
    `group.consumer.min.session.timeout.ms` and `group.consumer.max.session.timeout.ms`, and above the heartbeat
    interval. A member's session has the new length from its next heartbeat on.
share.assignment.interval.ms | int | 1000 | [0,...] | from group.share.assignment.interval.ms |
    Share groups (KIP-932): time between assignments; within
    `group.share.min.assignment.interval.ms` and `group.share.max.assignment.interval.ms`.
share.auto.offset.reset | string | latest | offset-reset | |
    Share groups (KIP-932): where a group begins in a partition: `earliest`, `latest`, or `by_duration:` and an ISO 8601
    duration such as PT1H, with the records that are no older.
share.delivery.count.limit | int | 5 | [2,...] | from group.share.delivery.count.limit |
    Share groups (KIP-932): how often a record is delivered at most; within
    `group.share.min.delivery.count.limit` and `group.share.max.delivery.count.limit`.
share.heartbeat.interval.ms | int | 5000 | [1,...] | from group.share.heartbeat.interval.ms |
    Share groups (KIP-932): time between a member's heartbeats; within
    `group.share.min.heartbeat.interval.ms` and `group.share.max.heartbeat.interval.ms`.
share.isolation.level | string | read_uncommitted | [read_committed, read_uncommitted] | |
    Share groups (KIP-932): whether records of transactions are delivered before these are committed.
share.partition.max.record.locks | int | 2000 | [100,...] | from group.share.partition.max.record.locks |
    Share groups (KIP-932): records of a partition that may be in flight at once; within
    `group.share.min.partition.max.record.locks` and `group.share.max.partition.max.record.locks`.
share.record.lock.duration.ms | int | 30000 | [1000,...] | from group.share.record.lock.duration.ms |
    Share groups (KIP-932): how long a record is locked for the member that got it; within
    `group.share.min.record.lock.duration.ms` and `group.share.max.record.lock.duration.ms`.
share.renew.acknowledge.enable | boolean | true | | |
    Share groups (KIP-1222): whether members may renew the locks of their records.
share.session.timeout.ms | int | 45000 | [1,...] | from group.share.session.timeout.ms |
    Share groups (KIP-932): how long a member lives without a heartbeat; within
    `group.share.min.session.timeout.ms` and `group.share.max.session.timeout.ms`.
"""
)
