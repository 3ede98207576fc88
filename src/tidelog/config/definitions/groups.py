"""Groups' own settings (KIP-848), with the brokers' settings that give their defaults."""

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
"""
)
