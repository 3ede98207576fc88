"""The bytes that members of classic groups tell each other, to the letter, in every version."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.assignors.assignor import Assignment, Subscription
from tidelog.client.member_data import (
    InvalidMemberData,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tidelog.model.identifiers import TopicPartition

TOPICS = "00000002000161000162"
USER_DATA = "00000001ff"
OWNED = "00000001000161000000020000000000000003"
SUBSCRIPTION = Subscription(
    frozenset({"b", "a"}),
    owned=(TopicPartition("a", 3), TopicPartition("a", 0)),
    generation=7,
    rack="r",
    user_data=b"\xff",
)


@pytest.mark.parametrize(
    ("version", "wanted"),
    [
        (0, "0000" + TOPICS + USER_DATA),
        (1, "0001" + TOPICS + USER_DATA + OWNED),
        (2, "0002" + TOPICS + USER_DATA + OWNED + "00000007"),
        (3, "0003" + TOPICS + USER_DATA + OWNED + "00000007" + "000172"),
    ],
)
def test_subscriptions_of_every_version(version: int, wanted: str) -> None:
    """Topics and partitions in order; fields that a version does not have are left out, and read as not told."""
    data = encode_subscription(SUBSCRIPTION, version)
    assert data.hex() == wanted
    read = decode_subscription(data, "instance")
    assert read == Subscription(
        SUBSCRIPTION.topics,
        owned=(TopicPartition("a", 0), TopicPartition("a", 3)) if version >= 1 else (),
        generation=7 if version >= 2 else None,
        instance_id="instance",
        rack="r" if version >= 3 else None,
        user_data=b"\xff",
    )


def test_a_member_without_a_generation_says_minus_one() -> None:
    """And no user data is null, not empty."""
    assert encode_subscription(Subscription(frozenset())).hex() == "000300000000ffffffff00000000ffffffffffff"


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_assignments_of_every_version(version: int) -> None:
    """They differ in the number alone."""
    assignment = Assignment((TopicPartition("a", 0), TopicPartition("b", 1)), b"")
    data = encode_assignment(assignment, version)
    partitions = "0000000200016100000001000000000001620000000100000001"
    assert data.hex() == f"000{version}" + partitions + "00000000"
    assert decode_assignment(data) == assignment


def test_newer_versions_are_read_as_the_newest_known() -> None:
    """What comes behind the fields that are known is left aside, as in Kafka."""
    data = b"\x00\x09" + encode_subscription(SUBSCRIPTION)[2:] + b"more"
    assert decode_subscription(data).topics == {"a", "b"}


def test_no_bytes_are_an_empty_assignment() -> None:
    """What a member gets whom the leader left out."""
    assert decode_assignment(b"") == Assignment()


@given(st.binary(max_size=64))
def test_hostile_bytes_are_told(data: bytes) -> None:
    """They come from other people's clients: read, or refused in one way."""
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(data)
        except InvalidMemberData:
            continue
