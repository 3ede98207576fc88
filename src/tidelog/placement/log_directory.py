"""In which of a broker's log directories a new replica is kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from tidelog.model.errors import ErrorCode, KafkaError

ALL_DIRECTORIES: Final = "*"
"""In `cordoned.log.dirs`: every directory of the broker."""


def choose(log_counts: Mapping[str, int], wanted: str | None = None, cordoned: Collection[str] = ()) -> str:
    """The live directory with the fewest logs; among equals the one configured first.

    `log_counts` holds the live directories in the order of `log.dirs`, each with the number of logs in it: counts,
    never bytes, as Kafka has it. `wanted` is what AlterReplicaLogDirs asked for, and wins. KafkaError
    LOG_DIR_NOT_FOUND when that one is not live, KAFKA_STORAGE_ERROR when none is. `cordoned` directories are passed
    over, unless all are: the replica was given to this broker, and has to lie somewhere.
    """
    if wanted is not None:
        if wanted not in log_counts:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{wanted} is not a live log directory of this broker")
        return wanted
    if not log_counts:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no log directory of this broker is online")
    open_ones = [path for path in log_counts if not is_cordoned(path, cordoned)]
    return min(open_ones or log_counts, key=lambda directory: log_counts[directory])


def is_cordoned(path: str, cordoned: Collection[str]) -> bool:
    """Whether a directory gets no new replicas, by the value of `cordoned.log.dirs`."""
    return ALL_DIRECTORIES in cordoned or path in cordoned
