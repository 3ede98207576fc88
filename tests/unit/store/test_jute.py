"""ZooKeeper's records: bytes as ZooKeeper writes them, and hostile ones."""

from __future__ import annotations

import struct

import pytest

from tidelog.metadata.operations import Check, Create, Delete, SetData
from tidelog.store import jute
from tidelog.store.client import Created, EventType, Stat, WatchEvent
from tidelog.store.errors import BadArguments, InvalidAcl, Unimplemented
from tidelog.store.jute import MalformedRecord, OpCode, Reader
from tidelog.store.tree import LostWatches

STAT = Stat(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
OPEN = jute.acl()


def test_records_are_zookeepers() -> None:
    """Bytes by hand, from zookeeper.jute."""
    assert jute.answer(7, 9, -101) == bytes.fromhex("00000010 00000007 0000000000000009 ffffff9b")
    assert jute.event(WatchEvent(EventType.NODE_DELETED, "/a")) == bytes.fromhex(
        "0000001e ffffffff ffffffffffffffff 00000000 00000002 00000003 00000002 2f61"
    )
    assert jute.stat(STAT) == struct.pack(">qqqqiiiqiiq", *STAT)
    assert jute.connected(6000, 5, bytes(16), with_read_only=True) == bytes.fromhex(
        "00000025 00000000 00001770 0000000000000005 00000010" + 32 * "0" + "00"
    )
    assert bytes.fromhex("00000001 0000001f 00000005") + b"world" + bytes.fromhex("00000006") + b"anyone" == OPEN


def test_what_is_written_is_read() -> None:
    """Our client's requests are what our server understands, chroot and all."""
    operations = [
        Create("/a", None),
        Create("/b-", b"", ephemeral=True, sequential=True),
        SetData("/", b"x", 3),
        Delete("/a", -1),
        Check("/a", 0),
    ]
    read = jute.read_operations(Reader(jute.multi(operations, "/chroot")))
    assert [operation for _, operation in read] == [
        Create("/chroot/a", None),
        Create("/chroot/b-", b"", ephemeral=True, sequential=True),
        SetData("/chroot", b"x", 3),
        Delete("/chroot/a", -1),
        Check("/chroot/a", 0),
    ]
    assert jute.read_operations(Reader(jute.multi(operations))) == [
        (jute.OPCODES[type(operation)], operation) for operation in operations
    ]
    lost = LostWatches(5, ["/a", "/b"], [], ["/c"])
    assert jute.read_set_watches(Reader(jute.set_watches(lost))) == lost


def test_many_watches_take_many_requests() -> None:
    """None of them is larger than a server takes, and none is lost."""
    data, exist, child = ([f"/{kind}/{number:05}/{'x' * 90}" for number in range(2000)] for kind in "dec")
    parts = jute.lost_watches(7, data, exist, child)
    assert len(parts) > 4
    assert all(len(jute.set_watches(part)) <= jute.SET_WATCHES_SIZE + 20 for part in parts)
    assert {part.zxid for part in parts} == {7}
    assert [path for part in parts for path in part.data] == data
    assert [path for part in parts for path in part.exist] == exist
    assert [path for part in parts for path in part.child] == child
    assert jute.lost_watches(7, [], [], []) == []


def test_results_of_a_multi() -> None:
    """Of one that was done, by each operation; of one that was not, the codes before, at and behind the failure."""
    opcodes = [OpCode.CREATE, OpCode.CREATE2, OpCode.SET_DATA, OpCode.DELETE, OpCode.CHECK]
    done = jute.multi_results(opcodes, [Created("/a", STAT), Created("/b", STAT), STAT, None, None])
    assert jute.read_multi_results(Reader(done)) == ["/a", Created("/b", STAT), STAT, None, None]
    assert jute.failed_operation(jute.read_multi_results(Reader(done))) is None
    failed = jute.read_multi_results(Reader(jute.multi_errors(4, 2, -103)))
    assert failed == [0, 0, -103, -2]
    assert jute.failed_operation(failed) == (2, -103)


@pytest.mark.parametrize(
    ("read", "data"),
    [
        ("int32", b"\0\0\0"),
        ("int64", b"\0" * 7),
        ("boolean", b""),
        ("buffer", b"\x7f\xff\xff\xff"),
        ("buffer", b"\xff\xff\xff\xfe"),
        ("buffer", b"\0\0\0\x02a"),
        ("string", b"\0\0\0\x01\xff"),
        ("path", b"\xff\xff\xff\xff"),
        ("stat", b"\0" * 67),
    ],
)
def test_lengths_are_not_believed(read: str, data: bytes) -> None:
    """A record that ends early, or says more than there is, is malformed."""
    with pytest.raises(MalformedRecord):
        getattr(Reader(data), read)()


def test_counts_are_not_believed() -> None:
    """A vector of two thousand million elements costs nothing; null is an empty one."""
    for count in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\0\0\0\x03"):
        reader = Reader(count + bytes(8))
        with pytest.raises(MalformedRecord, match="elements can't be in 8 bytes"):
            reader.vector(reader.path, 4)
    reader = Reader(b"\xff\xff\xff\xff")
    assert reader.vector(reader.path, 4) == []


def test_connect_with_and_without_read_only() -> None:
    """Clients from before ZooKeeper 3.4 leave the last byte away; a null password is one of zeros."""
    frame = struct.pack(">iqiqi", 0, 9, 6000, 5, 16) + b"p" * 16
    assert jute.read_connect(frame) == (9, 6000, 5, b"p" * 16, None)
    assert jute.read_connect(frame + b"\1") == (9, 6000, 5, b"p" * 16, True)
    null = struct.pack(">iqiqi", 0, 0, 6000, 0, -1)
    assert jute.read_connect(null).password == bytes(16)


def create(flags: int, acl: bytes = OPEN) -> Reader:
    return Reader(jute.string("/a") + jute.buffer(b"x") + acl + struct.pack(">i", flags))


def test_creations_refused() -> None:
    """Containers and lifetimes, unknown kinds of nodes, access lists that would not be kept."""
    assert jute.read_create(create(3), OpCode.CREATE2) == Create("/a", b"x", ephemeral=True, sequential=True)
    for flags, opcode in [(4, OpCode.CREATE_CONTAINER), (5, OpCode.CREATE_TTL), (6, OpCode.CREATE)]:
        with pytest.raises(Unimplemented):
            jute.read_create(create(flags), opcode)
    with pytest.raises(BadArguments):
        jute.read_create(create(7), OpCode.CREATE)
    for acl in (
        b"\0\0\0\0",
        struct.pack(">ii", 1, 1) + jute.string("world") + jute.string("anyone"),
        struct.pack(">ii", 1, 31) + jute.string("auth") + jute.string(""),
    ):
        with pytest.raises(InvalidAcl):
            jute.read_create(create(0, acl), OpCode.CREATE)


def test_a_multi_that_no_store_could_do() -> None:
    """The first operation refused is named, and the rest is read nevertheless; an unknown one makes all unreadable."""
    header = struct.Struct(">ibi")
    refused = header.pack(1, 0, -1) + jute.string("/a") + jute.buffer(b"") + OPEN + struct.pack(">i", 9)
    body = jute.multi([Delete("/x")])[: -header.size] + refused + refused + header.pack(-1, 1, -1)
    with pytest.raises(jute.MultiRefused) as found:
        jute.read_operations(Reader(body))
    assert (found.value.error.index, found.value.error.code, found.value.count) == (1, -8, 3)
    with pytest.raises(Unimplemented):
        jute.read_operations(Reader(header.pack(99, 0, -1) + b"whatever"))
