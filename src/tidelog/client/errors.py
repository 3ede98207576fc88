"""What can go wrong between a client and a cluster; an error code that a broker answers is `model.errors.KafkaError`.

The types tell whose fault it is, since that decides what to do next: another broker may be asked after
`ConnectionFailed` or `RequestTimedOut`, nothing helps against `InvalidResponse`, and the caller must change something
after the others.
"""

from collections.abc import Mapping
from typing import Final

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId, TopicPartition

RECORDS_NAMED_MAX: Final = 3
"""Records of a refused batch that a message names."""


class ClientError(Exception):
    """Anything that this package raises, error codes of brokers apart."""


class InvalidAddress(ClientError, ValueError):
    """A bootstrap string that names no host and port."""


class ConnectionFailed(ClientError):
    """A broker could not be reached, or the connection broke while an answer was awaited.

    The request may or may not have been carried out when it had been sent.
    """


class RequestTimedOut(ClientError):
    """No answer within the deadline; the request may still be carried out."""


class InvalidResponse(ClientError):
    """The peer sent what is not Kafka's protocol; the connection is closed, asking again is of no use."""


class UnsupportedByBroker(ClientError):
    """The broker has no version of the API (or of a feature of it) that is needed."""


class UnsupportedSecurity(ClientError):
    """A security protocol other than PLAINTEXT was asked for."""


class ProducerClosed(ClientError):
    """The producer is closed: it takes no records, and those not acknowledged by then may be in the log or not."""


class TransactionFailed(ClientError):
    """A transaction that something went wrong in: it can only be aborted, after which the next one may begin."""


class BatchRefused(KafkaError):
    """A batch of which some records are at fault (KIP-467): none of it was appended.

    `record_errors`: [place of a record in the batch, from 0] -> what is wrong with it.
    """

    def __init__(self, code: ErrorCode, message: str, record_errors: Mapping[int, str]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors

    def of(self, index: int) -> Exception:
        """What one record's delivery raises: KafkaError where that record is at fault, else RefusedWithBatch."""
        words = self.record_errors.get(index)
        if words is None:
            places = ", ".join(map(str, sorted(self.record_errors)[:RECORDS_NAMED_MAX]))
            return RefusedWithBatch(
                f"nothing is wrong with record {index}, but it was sent in one batch with {len(self.record_errors)}"
                f" that the broker refused (the first at {places}): send it again without them"
            )
        # The batch's code is that of one of its records, and nobody says of which.
        return KafkaError(self.code if len(self.record_errors) == 1 else ErrorCode.INVALID_RECORD, words)


class RefusedWithBatch(ClientError):
    """A sound record was not appended, for another one of its batch was refused; it may be sent again by itself."""


class OffsetOutOfRange(KafkaError):
    """An offset that the partition no longer has, or does not have yet.

    `start` is the log start offset and `end` the high watermark when the broker was asked; -1 where it did not say.
    """

    def __init__(self, topic_partition: TopicPartition, offset: int, start: int, end: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"{topic_partition} has the offsets from {start} to {end}, without {offset}"
        )
        self.topic_partition = topic_partition
        self.offset = offset
        self.start = start
        self.end = end


class LogTruncated(OffsetOutOfRange):
    """Records that were read before are in the partition's log no more: a replica without them leads now (KIP-320).

    It comes after an unclean election, where the cluster's settings allow one. `offset` is the position, `leader_epoch`
    that of the record before it, `divergent` the offset from which on the log has other records than were read, None
    where the leader knows nothing of that epoch any more. Go on by `seek`.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        offset: int,
        leader_epoch: int,
        divergent: int | None,
        start: int = -1,
        end: int = -1,
    ) -> None:
        where = "at an offset that its leader does not know" if divergent is None else f"at offset {divergent}"
        KafkaError.__init__(
            self,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"the log of {topic_partition} was cut {where}, before the position {offset} (leader epoch {leader_epoch}):"
            " what was read from there on is lost, and other records may be in its place",
        )
        self.topic_partition = topic_partition
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.divergent = divergent
        self.start = start
        self.end = end


class NoOffset(KafkaError):
    """A partition has no position: the group committed nothing for it, and auto.offset.reset is none."""


class CommitRefused(KafkaError):
    """A group does not take a member's offsets: it was given up, or its partitions are changing hands."""


class Fenced(KafkaError):
    """Somebody else goes by this one's name (group.instance.id, transactional.id) now: this one must stop."""


class TopicChanged(KafkaError):
    """The topic was deleted and created again under its name while it was read: these are other records."""

    def __init__(self, topic: str, former: TopicId | None = None, present: TopicId | None = None) -> None:
        ids = "" if former is None or present is None else f" (its id was {former.hex()}, and is {present.hex()} now)"
        super().__init__(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"topic '{topic}' was deleted and created again while it was read{ids}; start over on the new one",
        )


def require_plaintext(security_protocol: str) -> None:
    """Raises `UnsupportedSecurity` for anything but PLAINTEXT: TLS and SASL come with the security work."""
    if security_protocol.upper() != "PLAINTEXT":
        raise UnsupportedSecurity(
            f"security.protocol {security_protocol} is not supported by this client yet; use a PLAINTEXT listener"
        )
