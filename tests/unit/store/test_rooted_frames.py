"""Frames moved below a chroot and back: what a client asks without one is what it would ask with one."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.metadata.operations import Check, Create, Delete, SetData
from tidelog.store import jute
from tidelog.store.client import Created, EventType, Stat, WatchEvent
from tidelog.store.jute import MalformedRecord, OpCode
from tidelog.store.rooted_frames import RootedFrames
from tidelog.store.tree import LostWatches

ROOT = "/tidelog/a"
STAT = Stat(*range(11))
ACCESS = jute.acl()


def request(opcode: int, body: bytes, xid: int = 7) -> bytes:
    return struct.pack(">ii", xid, opcode) + body


def answer(body: bytes, xid: int = 7, error: int = 0) -> bytes:
    return struct.pack(">iqi", xid, 99, error) + body


def bodies(root: str) -> list[tuple[int, bytes]]:
    """A request of each type, as a client with that chroot asks it."""

    def at(path: str) -> bytes:
        return jute.string(root + path if path != "/" else root or "/")

    return [
        (OpCode.CREATE, at("/a") + jute.buffer(b"/a") + ACCESS + b"\0\0\0\1"),
        (OpCode.CREATE2, at("/a") + jute.buffer(None) + ACCESS + b"\0\0\0\0"),
        (OpCode.CREATE_CONTAINER, at("/a") + jute.buffer(None) + ACCESS + b"\0\0\0\4"),
        (OpCode.CREATE_TTL, at("/a") + jute.buffer(None) + ACCESS + b"\0\0\0\5" + bytes(8)),
        (OpCode.DELETE, at("/a") + b"\0\0\0\1"),
        (OpCode.EXISTS, at("/ä") + b"\1"),
        (OpCode.GET_DATA, at("/") + b"\0"),
        (OpCode.SET_DATA, at("/a") + jute.buffer(b"/a") + b"\0\0\0\1"),
        (OpCode.GET_ACL, at("/a")),
        (OpCode.SET_ACL, at("/a") + ACCESS + b"\0\0\0\1"),
        (OpCode.GET_CHILDREN, at("/") + b"\1"),
        (OpCode.GET_CHILDREN2, at("/a/b") + b"\0"),
        (OpCode.SYNC, at("/")),
        (OpCode.REMOVE_WATCHES, at("/a") + b"\0\0\0\3"),
        (OpCode.CHECK_WATCHES, at("/a") + b"\0\0\0\1"),
        (OpCode.GET_EPHEMERALS, at("/a")),
        (OpCode.GET_ALL_CHILDREN_NUMBER, at("/")),
        (OpCode.ADD_WATCH, at("/a") + b"\0\0\0\1"),
        (
            OpCode.MULTI,
            jute.multi([Create("/a", b"/a", True), SetData("/b", None, 3), Delete("/c"), Check("/", 4)], root),
        ),
        (OpCode.SET_WATCHES, jute.set_watches(LostWatches(5, [root + "/a"], [root + "/b", root + "/c"], []))),
        (
            OpCode.SET_WATCHES2,
            jute.set_watches(LostWatches(5, [root + "/a"], [], [])) + jute.strings([root + "/d"]) + jute.strings([]),
        ),
        (OpCode.PING, b""),
        (OpCode.AUTH, b"\0\0\0\0" + jute.string("digest") + jute.buffer(b"/me:/secret")),
        (OpCode.CLOSE, b""),
        (OpCode.WHO_AM_I, b""),
    ]


@pytest.mark.parametrize(
    ("opcode", "body", "expected"),
    [(opcode, body, rooted) for (opcode, body), (_, rooted) in zip(bodies(""), bodies(ROOT), strict=True)],
)
def test_requests(opcode: int, body: bytes, expected: bytes) -> None:
    """Each type as a client with the chroot asks it; data that looks like a path stays as it is."""
    assert RootedFrames(ROOT).request(request(opcode, body)) == request(opcode, expected)


def results(root: str) -> bytes:
    opcodes = [OpCode.CREATE, OpCode.CREATE2, OpCode.SET_DATA, OpCode.DELETE, OpCode.CHECK]
    return jute.multi_results(opcodes, [Created(root + "/a", STAT), Created(root + "/b", STAT), STAT, None, None])


@pytest.mark.parametrize(
    ("opcode", "said", "expected"),
    [
        (OpCode.CREATE, jute.string(f"{ROOT}/a"), jute.string("/a")),
        (OpCode.CREATE2, jute.string(f"{ROOT}/a") + jute.stat(STAT), jute.string("/a") + jute.stat(STAT)),
        (OpCode.SYNC, jute.string(ROOT), jute.string("/")),
        (OpCode.GET_EPHEMERALS, jute.strings([f"{ROOT}/a", f"{ROOT}/b"]), jute.strings(["/a", "/b"])),
        (OpCode.MULTI, results(ROOT), results("")),
        (OpCode.MULTI, jute.multi_errors(3, 1, -101), jute.multi_errors(3, 1, -101)),
        (OpCode.GET_DATA, jute.buffer(f"{ROOT}/a".encode()) + jute.stat(STAT), None),
    ],
)
def test_answers(opcode: int, said: bytes, expected: bytes | None) -> None:
    """Paths come back as the client knows them; data does not change."""
    frames = RootedFrames(ROOT)
    for asked, body in bodies(""):
        if asked == opcode:
            frames.request(request(opcode, body))
            assert frames.answer(answer(said)) == answer(said if expected is None else expected)
            assert frames.answer(answer(b"", error=-101)) == answer(b"", error=-101)


def test_answers_belong_to_their_requests() -> None:
    """Pings, events and answers without paths come in between."""
    frames = RootedFrames(ROOT)
    for xid, opcode in ((1, OpCode.CREATE), (2, OpCode.GET_DATA), (3, OpCode.SYNC), (-2, OpCode.PING)):
        frames.request(request(opcode, dict(bodies("")).get(opcode, b""), xid))
    event = jute.event(WatchEvent(EventType.NODE_CREATED, f"{ROOT}/a"))[4:]
    assert frames.answer(event) == jute.event(WatchEvent(EventType.NODE_CREATED, "/a"))[4:]
    assert frames.answer(answer(b"", -2)) == answer(b"", -2)
    refused = answer(b"", 1, -110)
    assert frames.answer(refused) == refused
    looks_like_a_path = answer(jute.string(f"{ROOT}/a"), 2)
    assert frames.answer(looks_like_a_path) == looks_like_a_path
    assert frames.answer(answer(jute.string(ROOT), 3)) == answer(jute.string("/"), 3)


@given(st.sampled_from([opcode for opcode, _ in bodies("")]), st.binary(max_size=80), st.data())
def test_hostile_bytes(opcode: int, garbage: bytes, data: st.DataObject) -> None:
    """Whatever comes is translated, or is MalformedRecord: nothing else, and nothing large is made of it."""
    frames = RootedFrames(ROOT)
    whole = dict(bodies(""))[opcode]
    cut = data.draw(st.integers(0, len(whole)))
    for frame in (request(opcode, garbage), request(opcode, whole[:cut] + garbage), garbage):
        for translate in (frames.request, frames.answer):
            with contextlib.suppress(MalformedRecord):
                assert len(translate(frame)) <= len(frame) * (1 + len(ROOT))
