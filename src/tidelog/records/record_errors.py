"""Which records of a batch its topic does not take, and why (KIP-467).

The walk over each batch in C tells that something may be wrong. Only then the records are looked at one by one, by
another walk, so that the answer names those that are at fault: a batch is appended as a whole or not at all, and its
producer is to know which records kept the others out. The words are those of Kafka's LogValidator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.model.errors import ErrorCode
from tidelog.records.errors import InvalidBatch, RecordError
from tidelog.records.implementation import find_faults
from tidelog.records.record import NO_TIMESTAMP

if TYPE_CHECKING:
    from tidelog.model.identifiers import TopicPartition
    from tidelog.ports.disk import Bytes
    from tidelog.records.batch_header import BatchHeader

NAMED_MAX: Final = 10_000
"""Records that are named: as many as a client puts into a batch (librdkafka's batch.num.messages). A hostile batch has
millions, whose names would take longer, and more memory, than all else about it."""
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
SHOWN_MAX: Final = 3
"""Record errors in the message for the whole batch."""


def may_be_out_of_range(earliest: int, latest: int, lowest: int | None, highest: int | None) -> bool:
    """Whether a batch with these least and greatest timestamps may have a record out of range; bounds None: none.

    A record without timestamp (-1) is never too old, but as the least one it may hide another that is.
    """
    if highest is not None and latest > highest:
        return True
    return lowest is not None and earliest < lowest and not earliest == latest == NO_TIMESTAMP


class RecordRules(NamedTuple):
    """What a topic asks of each record."""

    lowest: int | None
    """Least timestamp, milliseconds since 1970; None: any."""
    highest: int | None
    """Greatest timestamp; None: any."""
    keys_required: bool
    topic_partition: TopicPartition | None = None
    """Named in messages."""

    def check(self, section: Bytes, header: BatchHeader) -> None:
        """Looks at each record of an uncompressed section. InvalidBatch, with `record_errors`, if it finds any; of more
        than `NAMED_MAX` the first ones."""
        named, null_keys, out_of_range = find_faults(
            section,
            header.records_count,
            header.base_timestamp,
            INT64_MIN if self.lowest is None else max(self.lowest, INT64_MIN),
            INT64_MAX if self.highest is None else min(self.highest, INT64_MAX),
            self.keys_required,
            NAMED_MAX,
        )
        if not named:
            return
        where = "" if self.topic_partition is None else f" in topic partition {self.topic_partition}"
        keyless = f"Compacted topic cannot accept message without key{where}"
        errors = [
            RecordError(index, keyless if is_null else self._out_of_range(timestamp, header.base_offset + offset_delta))
            for index, offset_delta, timestamp, is_null in named
        ]
        code = ErrorCode.INVALID_TIMESTAMP if out_of_range else ErrorCode.INVALID_RECORD
        raise InvalidBatch(code, _summary(code, errors, null_keys + out_of_range), errors)

    def _out_of_range(self, timestamp: int, offset: int) -> str:
        lowest, highest = ("any" if bound is None else bound for bound in (self.lowest, self.highest))
        return (
            f"Timestamp {timestamp} of message with offset {offset} is out of range."
            f" The timestamp should be within [{lowest}, {highest}]"
        )


def _summary(code: ErrorCode, errors: list[RecordError], count: int) -> str:
    if code is ErrorCode.INVALID_TIMESTAMP:
        return "One or more records have been rejected due to invalid timestamp"
    shown = ", ".join(
        f"RecordError(batchIndex={each.batch_index}, message='{each.message}')" for each in errors[:SHOWN_MAX]
    )
    return (
        f"One or more records have been rejected due to {count} record errors in total, and only showing the"
        f" first three errors at most: [{shown}]"
    )
