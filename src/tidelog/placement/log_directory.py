"""In which of a broker's log directories a new replica is kept."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.model.errors import ErrorCode, KafkaError


def choose(log_counts: Mapping[str, int], wanted: str | None = None) -> str:
    """The live directory with the fewest logs; among equals the one configured first.

    `log_counts` holds the live directories in the order of `log.dirs`, each with the number of logs in it: counts,
    never bytes, as Kafka has it. `wanted` is what AlterReplicaLogDirs asked for, and wins. KafkaError
    LOG_DIR_NOT_FOUND when that one is not live, KAFKA_STORAGE_ERROR when none is.
    """
    if wanted is not None:
        if wanted not in log_counts:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{wanted} is not a live log directory of this broker")
        return wanted
    if not log_counts:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no log directory of this broker is online")
    return min(log_counts, key=lambda directory: log_counts[directory])
