"""Fetch sessions by the side of the client: what is named, when it is named again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tidelog.client.fetch_session import FetchSession, Wanted
from tidelog.client.fetching import FetchSettings
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition
from tidelog.protocol import messages

ID_A, ID_B, ID_A_AGAIN = (TopicId(bytes([number]) * 16) for number in (1, 2, 3))
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ALL = {A0: Wanted(5, 3, ID_A), A1: Wanted(6, 3, ID_A), B0: Wanted(7, 3, ID_B)}
BY_ID, BY_NAME, WITHOUT_SESSIONS = 17, 12, 6


def asked(session: FetchSession, wanted: Mapping[TopicPartition, Wanted], version: int = BY_ID) -> Any:
    """The request that goes out."""
    return session.request(wanted, FetchSettings(), "rack").build(version)


def listed(request: Any) -> dict[TopicPartition, int]:
    """The partitions that a request names, with their offsets."""
    return {
        TopicPartition(topic.topic, entry.partition): entry.fetch_offset
        for topic in request.topics
        for entry in topic.partitions
    }


def forgotten(request: Any) -> set[tuple[str, TopicId, int]]:
    """What it names as not wanted any more."""
    return {
        (topic.topic, topic.topic_id, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    }


def answer(session: FetchSession, session_id: int, code: ErrorCode = ErrorCode.NONE) -> bool:
    """The broker answers, without news of any partition."""
    return session.answered(messages.FetchResponse(session_id=session_id, error_code=code))


@pytest.mark.parametrize("version", [BY_ID, BY_NAME])
def test_what_does_not_change_is_named_once(version: int) -> None:
    """The first request names all and asks for a session; the next ones name what changed, and count."""
    session = FetchSession()
    first = asked(session, ALL, version)
    assert (first.session_id, first.session_epoch, first.rack_id) == (0, 0, "rack")
    assert listed(first) == {A0: 5, A1: 6, B0: 7}
    assert answer(session, 77)
    second = asked(session, ALL | {A1: Wanted(8, 3, ID_A)}, version)
    assert (second.session_id, second.session_epoch, listed(second)) == (77, 1, {A1: 8})
    assert answer(session, 77)
    third = asked(session, ALL | {A1: Wanted(8, 4, ID_A)}, version)
    assert (third.session_epoch, listed(third), forgotten(third)) == (2, {A1: 8}, set())
    assert answer(session, 77)
    fourth = asked(session, {A0: ALL[A0]}, version)
    assert (listed(fourth), forgotten(fourth)) == ({}, {("a", ID_A, 1), ("b", ID_B, 0)})


def test_a_topic_made_again_takes_the_place_of_the_former_one() -> None:
    """By id they are two topics: the former one is forgotten. By name it is one."""
    for version, gone in ((BY_ID, {("a", ID_A, 0)}), (BY_NAME, set())):
        session = FetchSession()
        asked(session, {A0: ALL[A0]}, version)
        answer(session, 1)
        request = asked(session, {A0: Wanted(0, 0, ID_A_AGAIN)}, version)
        assert (listed(request), forgotten(request)) == ({A0: 0}, gone)
        assert session.names[ID_A_AGAIN] == "a"


@pytest.mark.parametrize(
    ("code", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 9),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 9),
    ],
)
def test_a_session_that_the_broker_refuses_is_begun_anew(code: ErrorCode, session_id: int) -> None:
    """All is named again; a session that may still be there is ended by that request."""
    session = FetchSession()
    asked(session, ALL)
    answer(session, 9)
    asked(session, ALL)
    assert not answer(session, 0, code)
    assert session.refusals == 1
    again = asked(session, ALL)
    assert (again.session_id, again.session_epoch, len(listed(again))) == (session_id, 0, 3)
    assert answer(session, 10)
    assert (session.refusals, asked(session, ALL).session_epoch) == (0, 1)


def test_a_lost_request_or_an_error_of_the_whole_answer_ends_the_session() -> None:
    """The two sides may count differently now."""
    for end in ("lost", "error", "closed by the broker"):
        session = FetchSession()
        asked(session, ALL)
        answer(session, 9)
        asked(session, ALL)
        if end == "lost":
            session.lost()
        elif end == "error":
            assert answer(session, 0, ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            assert answer(session, 0)
        again = asked(session, ALL)
        assert (again.session_epoch, len(listed(again))) == (0, 3), end
        assert again.session_id == (0 if end == "closed by the broker" else 9)


def test_brokers_without_sessions_or_without_room_are_told_all_each_time() -> None:
    """Before version 7 there are none; a full cache answers with session 0."""
    session = FetchSession()
    for _ in range(2):
        request = asked(session, ALL, WITHOUT_SESSIONS)
        assert (request.session_epoch, len(listed(request))) == (-1, 3)
        assert answer(session, 0)
    for _ in range(2):
        request = asked(session, ALL)
        assert (request.session_id, request.session_epoch, len(listed(request))) == (0, 0, 3)
        assert answer(session, 0)


def test_another_version_of_the_broker_is_told_all() -> None:
    """A broker replaced by one that goes by names has sessions by names."""
    session = FetchSession()
    asked(session, ALL)
    answer(session, 9)
    request = asked(session, ALL, BY_NAME)
    assert (request.session_id, request.session_epoch, len(listed(request))) == (9, 0, 3)


def test_epochs_go_round() -> None:
    """After the greatest comes 1: 0 would begin a session."""
    session = FetchSession()
    session._epoch, session._id, session._by_id = 0x7FFFFFFF, 9, True
    assert asked(session, {A0: Wanted(0, 0, ZERO_TOPIC_ID)}).session_epoch == 0x7FFFFFFF
    answer(session, 9)
    assert asked(session, {A0: Wanted(0, 0, ZERO_TOPIC_ID)}).session_epoch == 1


def test_a_session_that_ends_names_nothing() -> None:
    """Its id, the final epoch, no partition; where there is no session, there is nothing to end."""
    session = FetchSession()
    assert session.ending() is None
    asked(session, ALL)
    assert answer(session, 77)
    asked(session, ALL)  # On its way still.
    ending = session.ending()
    assert ending is not None
    request = ending.build(BY_ID)
    assert (request.session_id, request.session_epoch, request.topics, request.max_wait_ms) == (77, -1, [], 0)
    assert session.ending() is None
