"""The checksum of batches, whichever code sums."""

from __future__ import annotations

import random

import pytest
from fastcrc.crc32 import iscsi

from tidelog.records.checksum import crc32c


def test_the_checksum_is_crc32c() -> None:
    """The check value of the algorithm's catalogue (CRC-32/ISCSI)."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0


@pytest.mark.parametrize("size", [0, 1, 7, 8, 100, 767, 768, 6143, 6144, 100_001])
def test_a_checksum_goes_on_where_another_ended(size: int) -> None:
    """It is the library's, for buffers of all kinds and lengths around those of the compiled code's steps."""
    data = random.Random(size).randbytes(size)
    whole = iscsi(data)
    cut = size // 3
    assert crc32c(data) == crc32c(bytearray(data)) == crc32c(memoryview(data)) == whole
    assert crc32c(memoryview(data)[cut:], crc32c(data[:cut])) == whole
