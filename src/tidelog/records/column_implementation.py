"""Chooses what turns records into columns and rows, and columns into records: compiled, or its Python twin.

    _column_builder  records decoded into Arrow's columns
    _row_builder     records decoded into named tuples
    _encoding        Arrow's columns encoded as records

Clients and Spark's source and sink need these. A broker does not load them: it does with `implementation` alone.
"""

from typing import TYPE_CHECKING, Final

from tidelog.records import implementation
from tidelog.records._pure import BinarySource, ColumnBuilder, RowBuilder, encode_section

_absent = implementation.ABSENT
if not TYPE_CHECKING and not _absent:
    try:
        from tidelog.records import _column_builder, _encoding, _row_builder
    except ImportError as reason:
        # All of them, or none.
        _absent = str(reason)
    else:
        ColumnBuilder, RowBuilder = _column_builder.ColumnBuilder, _row_builder.RowBuilder
        BinarySource, encode_section = _encoding.BinarySource, _encoding.encode_section

ABSENT: Final = _absent
"""Why some compiled kernel, of these or of `implementation`, is not in use; empty where all are."""

__all__ = ["ABSENT", "BinarySource", "ColumnBuilder", "RowBuilder", "encode_section"]
