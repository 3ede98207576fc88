"""CRC32C (Castagnoli), the checksum of record batches, from a C library at more than 20 GB/s.

`fastcrc` takes any contiguous buffer, memoryviews included, so a batch inside a received frame is checked without a
copy. Compiled code has a CRC32C of its own: `_crc32c.pxd`.
"""

from fastcrc.crc32 import iscsi

from tidelog.ports.disk import Bytes


def crc32c(buffer: Bytes, initial: int = 0) -> int:
    """The CRC32C of `buffer` as an unsigned 32-bit number; `initial` is the CRC of the bytes that come before."""
    checksum: int = iscsi(buffer, initial) if initial else iscsi(buffer)
    return checksum
