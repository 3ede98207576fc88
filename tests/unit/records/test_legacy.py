"""Message sets of old clients: read by tools, refused by brokers, and damage is found."""

from binascii import crc32
from struct import pack_into

import pytest
from sim.world.disk import SimulatedDisk
from sim.world.randomness import SeededRandom

from tidelog.model.errors import ErrorCode
from tidelog.records.batch import Codec, build_batch
from tidelog.records.compression import compress
from tidelog.records.errors import CorruptData, InvalidBatch
from tidelog.records.legacy import build_messages, read_messages
from tidelog.records.record import Record
from tidelog.storage.dump import dump_lines

RECORDS = [Record(40, 1000, b"k", b"v"), Record(41, 1010, None, b"w" * 300), Record(45, 990, b"", None)]


def as_read(magic: int) -> list[Record]:
    return [record if magic else record._replace(timestamp=-1) for record in RECORDS]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_what_is_built_is_read(magic: int, codec: Codec) -> None:
    """Alone or wrapped, with absolute offsets outside and whatever is inside."""
    messages = list(read_messages(build_messages(RECORDS, magic=magic, codec=codec)))
    assert [record for message in messages for record in message.records] == as_read(magic)
    assert len(messages) == (3 if codec is Codec.NONE else 1)
    assert (messages[0].base_offset, messages[-1].last_offset) == (40, 45)


def test_the_broker_may_stamp_a_whole_wrapper() -> None:
    """With log append time the wrapper's timestamp is that of all."""
    (message,) = read_messages(build_messages(RECORDS, magic=1, codec=Codec.GZIP, log_append_time=7))
    assert message.is_log_append_time
    assert {record.timestamp for record in message.records} == {7}


@pytest.mark.parametrize("magic", [0, 1])
def test_damage_is_found(magic: int) -> None:
    """A changed bit anywhere behind the checksum, and a size that holds no message."""
    data = build_messages(RECORDS[:1], magic=magic)
    for index in range(16, len(data)):
        damaged = bytearray(data)
        damaged[index] ^= 8
        with pytest.raises(InvalidBatch):
            list(read_messages(damaged))
    with pytest.raises(InvalidBatch) as raised:
        list(read_messages(data[:8] + (5).to_bytes(4, "big") + data[12:]))
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    assert list(read_messages(data[:-1])) == []


def test_a_wrapper_within_a_wrapper_is_refused() -> None:
    """Old clients wrap once; a chain of wrappers is an attack on the reader's stack."""
    inner = compress(Codec.GZIP, build_messages(RECORDS, magic=1, codec=Codec.GZIP))
    plain = bytearray(build_messages([Record(45, 1, None, inner)], magic=1))
    (message,) = read_messages(plain)
    assert message.records[0].value == inner, "a value that looks like messages is a value"
    plain[17] = Codec.GZIP
    pack_into(">I", plain, 12, crc32(plain[16:]))
    with pytest.raises(CorruptData, match="within a compressed message"):
        list(read_messages(plain))
    with pytest.raises(CorruptData, match="format 2"):
        list(read_messages(build_batch(RECORDS)))


def test_the_dump_shows_old_segments() -> None:
    """A log that goes from format 0 over 1 to 2 is dumped whole, in Kafka's words."""
    device = SimulatedDisk(SeededRandom(1), lambda: 0)
    mount = device.mount()
    path = "/00000000000000000040.log"
    log = (
        build_messages(RECORDS[:1], magic=0)
        + build_messages(RECORDS[1:2], magic=1, codec=Codec.GZIP)
        + build_batch([Record(50, 1, None, b"new")])
        + build_messages(RECORDS[2:], magic=0)
    )
    mount.open(path, create=True).pwrite(log, 0)
    lines = list(dump_lines(mount, path))
    assert lines[2].startswith("offset: 40 position: 0 NoTimestampType: -1 size: 28 magic: 0 compresscodec: none crc: ")
    assert lines[3].startswith("| offset: 40 NoTimestampType: -1 keySize: 1 valueSize: 1 crc: ")
    assert lines[3].endswith("isvalid: true key: k payload: v")
    assert "CreateTime: 1010 size:" in lines[4]
    assert "magic: 1 compresscodec: gzip" in lines[4]
    assert lines[6].startswith("baseOffset: 50")
    assert lines[-1].startswith("| offset: 45 NoTimestampType: -1 keySize: 0 valueSize: -1")
