"""Groups' own settings (KIP-848), with the brokers' settings that give their defaults."""

from typing import Final

from tidelog.config.definitions.vocabulary import INT
from tidelog.config.setting import Range, Setting

SETTINGS: Final = (
    Setting(
        "consumer.assignment.interval.ms",
        INT,
        1000,
        "Consumer groups (KIP-848): time between assignments; within `group.consumer.min.assignment.interval.ms` and"
        " `group.consumer.max.assignment.interval.ms`.",
        valid=Range(0),
        synonyms=("group.consumer.assignment.interval.ms",),
    ),
    Setting(
        "consumer.heartbeat.interval.ms",
        INT,
        5000,
        "Consumer groups (KIP-848): time between a member's heartbeats; within"
        " `group.consumer.min.heartbeat.interval.ms` and `group.consumer.max.heartbeat.interval.ms`.",
        valid=Range(1),
        synonyms=("group.consumer.heartbeat.interval.ms",),
    ),
    Setting(
        "consumer.session.timeout.ms",
        INT,
        45000,
        "Consumer groups (KIP-848): how long a member lives without a heartbeat; within"
        " `group.consumer.min.session.timeout.ms` and `group.consumer.max.session.timeout.ms`, and above the heartbeat"
        " interval. A member's session has the new length from its next heartbeat on.",
        valid=Range(1),
        synonyms=("group.consumer.session.timeout.ms",),
    ),
)
