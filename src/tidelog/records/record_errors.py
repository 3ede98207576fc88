"""Which records of a batch its topic does not take, and why (KIP-467).

The walk over each batch in C tells that something may be wrong. Only then the records are looked at one by one, here,
so that the answer names each that is at fault: a batch is appended as a whole or not at all, and its producer is to
know which records kept the others out. The words are those of Kafka's LogValidator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.model.errors import ErrorCode
from tidelog.records.errors import InvalidBatch, RecordError
from tidelog.records.record import NO_TIMESTAMP, Record, decode_records

if TYPE_CHECKING:
    from tidelog.model.identifiers import TopicPartition
    from tidelog.ports.disk import Bytes
    from tidelog.records.batch_header import BatchHeader

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
        """Looks at each record of an uncompressed section. InvalidBatch, with `record_errors`, if it finds any."""
        errors: list[RecordError] = []
        code = ErrorCode.INVALID_RECORD
        records = decode_records(section, header.records_count, header.base_offset, header.base_timestamp)
        for index, record in enumerate(records):
            if self.keys_required and record.key is None:
                where = "" if self.topic_partition is None else f" in topic partition {self.topic_partition}"
                errors.append(RecordError(index, f"Compacted topic cannot accept message without key{where}"))
            elif self._is_out_of_range(record):
                code = ErrorCode.INVALID_TIMESTAMP
                errors.append(RecordError(index, self._out_of_range(record)))
        if errors:
            raise InvalidBatch(code, _summary(code, errors), errors)

    def _is_out_of_range(self, record: Record) -> bool:
        if record.timestamp == NO_TIMESTAMP:
            return False
        too_old = self.lowest is not None and record.timestamp < self.lowest
        return too_old or (self.highest is not None and record.timestamp > self.highest)

    def _out_of_range(self, record: Record) -> str:
        lowest, highest = ("any" if bound is None else bound for bound in (self.lowest, self.highest))
        return (
            f"Timestamp {record.timestamp} of message with offset {record.offset} is out of range."
            f" The timestamp should be within [{lowest}, {highest}]"
        )


def _summary(code: ErrorCode, errors: list[RecordError]) -> str:
    if code is ErrorCode.INVALID_TIMESTAMP:
        return "One or more records have been rejected due to invalid timestamp"
    shown = ", ".join(
        f"RecordError(batchIndex={each.batch_index}, message='{each.message}')" for each in errors[:SHOWN_MAX]
    )
    return (
        f"One or more records have been rejected due to {len(errors)} record errors in total, and only showing the"
        f" first three errors at most: [{shown}]"
    )
