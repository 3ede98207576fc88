"""What can be wrong with record batches, one class a kind, each with Kafka's code for it.

All of these are faults of the client that wrote the bytes. The message says what was found; the code is what a producer
sees.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.model.errors import ErrorCode, KafkaError


class RecordError(NamedTuple):
    """What is wrong with one record of a batch (KIP-467)."""

    batch_index: int
    """The record's place in its batch, from 0."""
    message: str


class InvalidBatch(KafkaError):
    """A batch refused. `code` is CORRUPT_MESSAGE (retriable: the bytes broke on their way), INVALID_RECORD (they were
    built wrongly), INVALID_TIMESTAMP, UNSUPPORTED_FOR_MESSAGE_FORMAT (magic 0 or 1) or UNSUPPORTED_COMPRESSION_TYPE.

    `record_errors` names the records for which it is refused, in their order; empty where the whole batch is wrong.
    """

    def __init__(self, code: ErrorCode, message: str = "", record_errors: Sequence[RecordError] = ()) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class CorruptData(InvalidBatch):
    """Compressed bytes that their codec cannot read, or records that are not shaped as records, or not as the header
    says.

    The code is INVALID_RECORD, which clients do not retry: where the checksum held, the writer built them so.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


class DecompressionBomb(InvalidBatch):
    """Compressed bytes that would grow past what the reader allows; the bound is the reader's `size_max`."""

    def __init__(self, codec_name: str, compressed_size: int, size_max: int) -> None:
        super().__init__(
            ErrorCode.INVALID_RECORD,
            f"{compressed_size} bytes compressed by {codec_name} grow past {size_max} bytes: refused as a decompression"
            " bomb; send smaller batches, or raise the limit (of a topic: max.message.bytes)",
        )
        self.size_max = size_max
