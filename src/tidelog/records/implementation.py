"""Chooses the compiled kernel, or its Python twin where there is none; a broker says so when it is the twin.

The environment variable TIDELOG_PURE=1 makes the kernel refuse to load, for tests and for a second opinion.
"""

from typing import TYPE_CHECKING, Final

from tidelog.records._pure import DONE, END, LIMIT

_absent = ""
if TYPE_CHECKING:
    from tidelog.records._pure import NAME, BinarySource, ColumnBuilder, encode_section, read_pairs, scan_records
else:
    try:
        from tidelog.records._kernel import NAME, BinarySource, ColumnBuilder, encode_section, read_pairs, scan_records
    except ImportError as reason:
        _absent = str(reason)
        from tidelog.records._pure import NAME, BinarySource, ColumnBuilder, encode_section, read_pairs, scan_records

if TYPE_CHECKING:
    from tidelog.records._pure import RowBuilder, sound_prefix
else:
    try:
        from tidelog.records._kernel import RowBuilder, sound_prefix
    except ImportError:  # Or one that was built before it had these.
        from tidelog.records._pure import RowBuilder, sound_prefix

ABSENT: Final = _absent
"""Why the compiled kernel is not in use; empty where it is."""
PURE_COST: Final = (
    "plain Python checks 0.25 million produced records a second and core (compiled: 34), "
    "decodes 0.1 (12 to 36), encodes 0.35 (8), compacts 0.1 (1 to 4)"
)
"""What the twins cost, with 100 bytes a record; measured by bench/kernel.py and bench/compaction.py."""

__all__ = [
    "ABSENT",
    "DONE",
    "END",
    "LIMIT",
    "NAME",
    "PURE_COST",
    "BinarySource",
    "ColumnBuilder",
    "RowBuilder",
    "encode_section",
    "read_pairs",
    "scan_records",
    "sound_prefix",
]
