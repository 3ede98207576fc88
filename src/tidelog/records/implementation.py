"""Chooses the compiled kernels, or their Python twins where one was not built; a broker says so when it is the twins.

    _sections         records of a batch checked, read as pairs of keys and values, searched for an offset
    _column_builder   records decoded into Arrow's columns
    _row_builder      records decoded into named tuples
    _encoding         Arrow's columns encoded as records
    _integrity        whether stored batches are what was written

The environment variable TIDELOG_PURE=1 makes the kernels refuse to load, for tests and for a second opinion.
"""

from typing import TYPE_CHECKING, Final

from tidelog.records._pure import DONE, END, LIMIT

_absent = ""
if TYPE_CHECKING:
    from tidelog.records._pure import (
        NAME,
        BinarySource,
        ColumnBuilder,
        RowBuilder,
        encode_section,
        find_record,
        read_pairs,
        scan_records,
        sound_prefix,
    )
else:
    try:
        from tidelog.records._column_builder import ColumnBuilder
        from tidelog.records._encoding import BinarySource, encode_section
        from tidelog.records._integrity import sound_prefix
        from tidelog.records._row_builder import RowBuilder
        from tidelog.records._sections import NAME, find_record, read_pairs, scan_records
    except ImportError as reason:
        # All of them, or none: `NAME` and `ABSENT` speak for all.
        _absent = str(reason)
        from tidelog.records._pure import (
            NAME,
            BinarySource,
            ColumnBuilder,
            RowBuilder,
            encode_section,
            find_record,
            read_pairs,
            scan_records,
            sound_prefix,
        )

ABSENT: Final = _absent
"""Why the compiled kernels are not in use; empty where they are."""
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
    "find_record",
    "read_pairs",
    "scan_records",
    "sound_prefix",
]
