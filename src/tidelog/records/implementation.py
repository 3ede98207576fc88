"""Chooses the compiled kernels, or their Python twins where one was not built; a broker says so when it is the twins.

    _sections         records of a batch checked, read as pairs of keys and values, searched for an offset or a time
    _integrity        whether stored batches are what was written

What a broker does not need is chosen by `column_implementation`.
The environment variable TIDELOG_PURE=1 makes the kernels refuse to load, for tests and for a second opinion.
"""

from typing import TYPE_CHECKING, Final

from tidelog.records._pure import (
    DONE,
    END,
    LIMIT,
    NAME,
    find_faults,
    find_record,
    find_timestamp,
    read_pairs,
    scan_records,
    sound_prefix,
)

_absent = ""
if not TYPE_CHECKING:
    try:
        from tidelog.records import _integrity, _sections
    except ImportError as reason:
        # Both of them, or none: `NAME` and `ABSENT` speak for both.
        _absent = str(reason)
    else:
        sound_prefix = _integrity.sound_prefix
        NAME, find_faults = _sections.NAME, _sections.find_faults
        find_record, find_timestamp = _sections.find_record, _sections.find_timestamp
        read_pairs, scan_records = _sections.read_pairs, _sections.scan_records

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
    "find_faults",
    "find_record",
    "find_timestamp",
    "read_pairs",
    "scan_records",
    "sound_prefix",
]
