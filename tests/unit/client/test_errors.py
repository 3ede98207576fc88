"""Errors: what each says, whether trying again helps, and codes that are younger than the client."""

from __future__ import annotations

import pickle

import pytest

from tidelog.client import errors
from tidelog.client.errors import (
    BatchRefused,
    ClientError,
    ConnectionFailed,
    ErrorCode,
    Fenced,
    KafkaError,
    LogTruncated,
    OffsetOutOfRange,
    TidelogError,
    TopicChanged,
    refusal,
)
from tidelog.client.explanations import EXPLANATIONS
from tidelog.client.views import partition_error, topic_error
from tidelog.model.errors import error_code
from tidelog.model.identifiers import TopicPartition

T = TopicPartition("t", 3)
YOUNGER = 9999


def test_every_code_is_explained() -> None:
    """In words that can be joined to a sentence."""
    assert EXPLANATIONS.keys() == set(ErrorCode)
    for code, (what, advice) in EXPLANATIONS.items():
        assert what, code
        assert not what.endswith("."), code
        assert not advice.endswith("."), code


def test_every_error_is_of_one_family() -> None:
    """And each kind says what to do, but where only the broker can."""
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    assert len(kinds) > 15
    for kind in kinds:
        assert issubclass(kind, TidelogError), kind
        assert isinstance(kind.retriable, bool), kind
    advised = [kind for kind in kinds if issubclass(kind, ClientError) and kind is not ClientError]
    assert [kind for kind in advised if not kind.advice] == [errors.InvalidResponse]


def test_a_code_without_a_word_is_put_into_words() -> None:
    """What happened, to what, what to do, and whether trying again helps."""
    error = partition_error(T, ErrorCode.NOT_ENOUGH_REPLICAS, None)
    assert str(error) == (
        "t-3: NOT_ENOUGH_REPLICAS: fewer replicas are in sync than min.insync.replicas asks for; nothing was written;"
        " bring brokers back, or lower min.insync.replicas"
    )
    assert (error.topic, error.partition, error.group, error.retriable) == ("t", 3, None, True)
    error = refusal(ErrorCode.NON_EMPTY_GROUP, "group 'g'", group="g")
    assert str(error) == "group 'g': NON_EMPTY_GROUP: the group has members; stop them first"
    assert (error.advice, error.group, error.retriable) == ("stop them first", "g", False)
    assert topic_error("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION).topic == "t"


def test_the_brokers_words_stand() -> None:
    error = partition_error(T, ErrorCode.INVALID_RECORD, "a record without a key")
    assert error.message == "a record without a key"
    assert str(error) == "INVALID_RECORD: a record without a key"


@pytest.mark.parametrize("number", [YOUNGER, -2, 134, 32767, -32768])
def test_a_code_that_is_younger_than_the_client(number: int) -> None:
    """Keeps its number, everywhere; it is as good as any code, and is not tried again."""
    for code in (ErrorCode(number), error_code(number)):
        assert (code, code.name, code.retriable) == (number, f"UNKNOWN_ERROR_CODE_{number}", False)
        assert code not in set(ErrorCode)
        assert str(number) in str(refusal(code, "group 'g'"))
        assert pickle.loads(pickle.dumps(code)) == number
    with pytest.raises(ValueError, match="nonsense"):
        ErrorCode("nonsense")


@pytest.mark.parametrize(
    "error",
    [
        KafkaError(ErrorCode.INVALID_CONFIG, "words").about(topic="t"),
        OffsetOutOfRange(T, 5, 0, 3),
        LogTruncated(T, 5, 1, None),
        TopicChanged("t"),
        BatchRefused(ErrorCode.INVALID_RECORD, "words", {1: "no key"}),
        Fenced(ErrorCode.PRODUCER_FENCED, "another one").about(transactional_id="x"),
        ConnectionFailed("no").about(broker="h:1"),
    ],
)
def test_errors_cross_processes(error: TidelogError) -> None:
    """As a pool of workers sends them back."""
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.__dict__) == (type(error), str(error), error.__dict__)


def test_what_another_topic_is_is_not_asked_again() -> None:
    """Its code is retriable, the topic's former records are gone."""
    assert not TopicChanged("t").retriable
    assert OffsetOutOfRange(T, 5, 0, 3).partition == 3
