"""The check of stored batches: the compiled kernel and plain Python come to the same, whatever the bytes are."""

from __future__ import annotations

from struct import pack
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amount import examples

from tidelog.model.identifiers import LeaderEpoch, Offset
from tidelog.records import _pure, implementation
from tidelog.records.checksum import crc32c
from tidelog.records.epochs import EpochEntry
from tidelog.records.integrity import Soundness, check_batches


def batch(base: int, records: int, body: bytes, epoch: int) -> bytes:
    """A batch whose checksum is right, with a body that need hold no records."""
    covered = pack(">hiqqqhii", 0, records - 1, 0, 0, -1, -1, -1, records) + body
    return pack(">qiibI", base, 9 + len(covered), epoch, 2, crc32c(covered)) + covered


@st.composite
def segments(draw: st.DrawFn) -> tuple[bytes, list[EpochEntry], int, int]:
    """Bytes of batches, perhaps with gaps; the epochs of the log; the first offset, and the one behind the last."""
    base = first = draw(st.sampled_from([0, 1, 1_000, 1 << 40]))
    data, epoch = b"", draw(st.integers(0, 3))
    entries = [EpochEntry(LeaderEpoch(epoch), Offset(first))]
    for _ in range(draw(st.integers(1, 6))):
        base += draw(st.sampled_from([0, 0, 0, 5]))
        if draw(st.booleans()):
            epoch += 1
            entries.append(EpochEntry(LeaderEpoch(epoch), Offset(base)))
        records = draw(st.integers(1, 3))
        size = draw(st.sampled_from([0, 1, 7, 8, 9, 255, 767, 768, 769, 6_144, 6_145, 20_000]))
        data += batch(base, records, bytes(draw(st.integers(0, 255)) for _ in range(4)) * (size // 4 + 1), epoch)
        base += records
    return data, entries, first, base


def judged(data: bytes, epochs: list[EpochEntry], next_offset: int | None, end_offset: int | None) -> Soundness:
    """What both say."""
    found = check_batches(data, next_offset=next_offset, epochs=epochs, end_offset=end_offset)
    with patch.object(implementation, "sound_prefix", _pure.sound_prefix):
        assert found == check_batches(data, next_offset=next_offset, epochs=epochs, end_offset=end_offset)
    return found


@given(segment=segments(), data=st.data())
@settings(max_examples=examples(1000), deadline=None)
def test_the_kernel_and_its_twin_judge_alike(
    segment: tuple[bytes, list[EpochEntry], int, int], data: st.DataObject
) -> None:
    """Sound batches, cut ones, and such of which a bit was turned over; whatever is known of what lies around."""
    whole, epochs, first, end = segment
    assert judged(whole, epochs, first, end).flaw is None
    damaged = bytearray(whole)
    if data.draw(st.booleans()):
        # Mostly in headers: the rest is for the checksum.
        at = data.draw(st.integers(0, min(len(damaged) - 1, 70)) | st.integers(0, len(damaged) - 1))
        damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    cut = data.draw(st.just(len(damaged)) | st.integers(0, len(damaged)))
    next_offset = data.draw(st.sampled_from([None, first, first + 1, max(first - 3, 0)]))
    end_offset = data.draw(st.sampled_from([None, end, end - 1, end + 5]))
    judged(bytes(damaged[:cut]), epochs, next_offset, end_offset)


def test_more_epochs_than_the_kernel_takes_at_once() -> None:
    """A log with a leader for each batch, read from anywhere."""
    epochs = [EpochEntry(LeaderEpoch(epoch), Offset(epoch)) for epoch in range(300)]
    batches = [batch(offset, 1, b"", offset) for offset in range(300)]
    for start in (0, 1, 63, 64, 200, 299):
        data = b"".join(batches[start:])
        assert judged(data, epochs, start, 300) == Soundness(len(data), 300, None, 0)
    wrong = [*batches[:150], batch(150, 1, b"", 149), *batches[151:]]
    assert judged(b"".join(wrong), epochs, 0, 300).end == len(b"".join(batches[:150]))


@pytest.mark.skipif(implementation.sound_prefix is _pure.sound_prefix, reason="the kernel that has it is not built")
def test_the_kernels_checksum_is_crc32c() -> None:
    """By the processor's instruction, in streams of both lengths and without, and by tables."""
    sound_prefix: Any = implementation.sound_prefix
    body = bytes((at * 131 + at // 256) % 256 for at in range(3 * 2048 + 3 * 256 + 20))
    for size in [*range(40), *range(700, 830), *range(6_090, 6_170), len(body)]:
        data = batch(7, 1, body[:size], 0)
        for by_tables in (False, True):
            assert sound_prefix(data, 7, [], by_tables) == (len(data), 8, 0, 7, False)
            assert sound_prefix(data[:-1] + bytes([data[-1] ^ 1]), 7, [], by_tables)[0] == 0
