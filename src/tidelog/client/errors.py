"""What can go wrong between a client and a cluster.

    TidelogError              everything below; `retriable`, `advice`, and what it is about: `topic`, `partition`, ...
      KafkaError              a broker refused: `code` is Kafka's, `message` the broker's words, or ours
        BatchRefused          ... a batch, for some of its records (KIP-467)
        OffsetOutOfRange      ... an offset
          LogTruncated        ... for the log was cut (KIP-320)
        NoOffset              no position, and none to begin at
        CommitRefused         the group has given the member up, or is being rebalanced
        Fenced                another one goes by this name
        TopicChanged          another topic has the name now
      ClientError             it did not come to an answer, or was not asked
        ConnectionFailed, RequestTimedOut       retriable: perhaps carried out, perhaps not
        InvalidResponse, UnsupportedByBroker    the peer's fault; trying again is of no use
        InvalidAddress, InvalidRequest, UnsupportedSecurity, ProducerClosed, TransactionFailed, RefusedWithBatch

What a caller got wrong in the program itself (types, values, calls out of order) is TypeError, ValueError or KeyError.
"""

from collections.abc import Mapping
from typing import Final

from tidelog.client.explanations import explain
from tidelog.model.errors import ErrorCode, KafkaError, TidelogError
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition

__all__ = [
    "AuthenticationError",
    "BatchRefused",
    "ClientError",
    "CommitRefused",
    "ConnectionFailed",
    "ErrorCode",
    "Fenced",
    "InvalidAddress",
    "InvalidRequest",
    "InvalidResponse",
    "KafkaError",
    "LogTruncated",
    "NoOffset",
    "OffsetOutOfRange",
    "ProducerClosed",
    "RefusedWithBatch",
    "RequestTimedOut",
    "TidelogError",
    "TopicChanged",
    "TransactionFailed",
    "UnsupportedByBroker",
    "UnsupportedSecurity",
    "refusal",
]

RECORDS_NAMED_MAX: Final = 3
"""Records of a refused batch that a message names."""


def refusal(
    code: ErrorCode,
    subject: str,
    text: str | None = None,
    *,
    topic: str | None = None,
    partition: int | None = None,
    group: str | None = None,
    transactional_id: str | None = None,
    broker: str | None = None,
) -> KafkaError:
    """What a broker's error code comes to: its own words (`text`), or what the code says of `subject`."""
    what, advice = explain(code)
    error = KafkaError(code, text or f"{subject}: {code.name}: {what}" + (f"; {advice}" if advice else ""))
    error.advice = advice
    if text and advice:
        error.add_note(advice)
    return error.about(topic=topic, partition=partition, group=group, transactional_id=transactional_id, broker=broker)


class ClientError(TidelogError):
    """Anything that this package raises, error codes of brokers apart."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        if self.advice:
            self.add_note(self.advice)


class InvalidAddress(ClientError, ValueError):
    """A bootstrap string that names no host and port."""

    advice = "give host:port,host:port,..."


class InvalidRequest(ClientError, ValueError):
    """What was asked for cannot be put into a request: a name or a value is longer than the protocol allows."""

    advice = "shorten what the message names"


class ConnectionFailed(ClientError):
    """A broker could not be reached, or the connection broke while an answer was awaited.

    The request may or may not have been carried out when it had been sent.
    """

    retriable = True
    advice = "look whether the broker runs, and can be reached under the address that it advertises"


class RequestTimedOut(ClientError):
    """No answer within the deadline; the request may still be carried out."""

    retriable = True
    advice = "look whether the broker is overloaded, or allow more time"


class InvalidResponse(ClientError):
    """The peer sent what is not Kafka's protocol; the connection is closed, asking again is of no use."""


class UnsupportedByBroker(ClientError):
    """The broker has no version of the API (or of a feature of it) that is needed."""

    advice = "update the brokers, or do without it"


class UnsupportedSecurity(ClientError):
    """A security protocol or mechanism was asked for that this client does not speak, or without what it needs."""

    advice = "use a listener and a mechanism that are spoken"


class AuthenticationError(ClientError):
    """A broker refuses the client's credentials, or does not prove what it should: asking again is of no use."""

    advice = "check user, password and mechanism"


class ProducerClosed(ClientError):
    """The producer is closed: it takes no records, and those not acknowledged by then may be in the log or not."""

    advice = "make another producer"


class TransactionFailed(ClientError):
    """A transaction that something went wrong in: it can only be aborted, after which the next one may begin."""

    advice = "abort it, and do it again"


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
        # The batch's code is that of one of its records; the broker does not say of which.
        return KafkaError(self.code if len(self.record_errors) == 1 else ErrorCode.INVALID_RECORD, words)


class RefusedWithBatch(ClientError):
    """A sound record was not appended, for another one of its batch was refused; it may be sent again by itself."""

    retriable = True
    advice = "send it again, without those that were refused"


class OffsetOutOfRange(KafkaError):
    """An offset that the partition no longer has, or does not have yet.

    `start` is the log start offset and `end` the high watermark (for a reader of committed records the last stable
    offset) when the broker was asked; -1 where it did not say.
    """

    def __init__(self, topic_partition: TopicPartition, offset: int, start: int, end: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"{topic_partition} has the offsets from {start} to {end}, without {offset}"
        )
        self.about(topic=topic_partition.topic, partition=topic_partition.partition)
        self.advice = "seek to an offset that it has"
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
        self.about(topic=topic_partition.topic, partition=topic_partition.partition)
        self.advice = "seek to where the log was cut, and read what is there now"
        self.topic_partition = topic_partition
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.divergent = divergent
        self.start = start
        self.end = end


class NoOffset(KafkaError):
    """A partition has no position: the group committed nothing for it, and auto.offset.reset is none."""

    advice = "seek, commit an offset, or set auto_offset_reset"


class CommitRefused(KafkaError):
    """A group does not take a member's offsets: it was given up, or its partitions are changing hands."""

    advice = "go on polling: it joins again, and reads what was not committed once more"


class Fenced(KafkaError):
    """Another client has this one's name (group.instance.id, transactional.id) now: this one must stop."""

    advice = "stop this one: the other goes on"


class TopicChanged(KafkaError):
    """The topic was deleted and created again under its name while it was read: these are other records."""

    def __init__(self, topic: str, former: TopicId | None = None, present: TopicId | None = None) -> None:
        ids = "" if former is None or present is None else f" (its id was {former.hex()}, and is {present.hex()} now)"
        super().__init__(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"topic '{topic}' was deleted and created again while it was read{ids}; start over on the new one",
        )
        self.former = former or ZERO_TOPIC_ID
        self.about(topic=topic)
        self.retriable = False
        self.advice = "start over on the new topic, or set auto_offset_reset"
