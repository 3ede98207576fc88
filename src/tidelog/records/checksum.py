"""CRC32C (Castagnoli), the checksum of record batches, in C: 20 GB/s where the processor has an instruction for it.

Any contiguous buffer is taken, memoryviews included, so a batch inside a received frame is checked without a copy.
Compiled code that finds the processor's instruction sums by it (`_crc32c.pxd`). Elsewhere `fastcrc` does, which takes
0.7 MiB.
"""

from typing import TYPE_CHECKING

from tidelog.ports.disk import Bytes

if TYPE_CHECKING:

    def crc32c(buffer: Bytes, initial: int = 0) -> int:
        """The CRC32C of `buffer` as an unsigned 32-bit number; `initial` is the CRC of the bytes that come before."""
        ...
else:
    try:
        from tidelog.records._integrity import HAS_INSTRUCTION, crc32c
    except ImportError:  # `tidelog.records.implementation` knows why.
        HAS_INSTRUCTION = False
    if not HAS_INSTRUCTION:
        from fastcrc.crc32 import iscsi

        def crc32c(buffer: Bytes, initial: int = 0) -> int:
            return iscsi(buffer, initial) if initial else iscsi(buffer)
