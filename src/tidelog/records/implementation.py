"""Chooses the compiled kernel, or its Python twin where the kernel was not built, and says so once if it is the twin.

The environment variable TIDELOG_PURE=1 makes the kernel refuse to load, for tests and for a second opinion.
"""

import logging
from typing import TYPE_CHECKING

from tidelog.records._pure import DONE, END, LIMIT

if TYPE_CHECKING:
    from tidelog.records._pure import NAME, BinarySource, ColumnBuilder, encode_section, read_pairs, scan_records
else:
    try:
        from tidelog.records._kernel import NAME, BinarySource, ColumnBuilder, encode_section, read_pairs, scan_records
    except ImportError as reason:
        from tidelog.records._pure import NAME, BinarySource, ColumnBuilder, encode_section, read_pairs, scan_records

        logging.getLogger(__name__).warning(
            "records.kernel.absent reason=%s effect=records are read and written by pure Python, far slower", reason
        )

__all__ = [
    "DONE",
    "END",
    "LIMIT",
    "NAME",
    "BinarySource",
    "ColumnBuilder",
    "encode_section",
    "read_pairs",
    "scan_records",
]
