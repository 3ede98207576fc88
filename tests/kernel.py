"""Tests that compare the compiled kernel with its twin in plain Python need both."""

from __future__ import annotations

import pytest

from tidelog.records import column_implementation

needs_kernel = pytest.mark.skipif(
    bool(column_implementation.ABSENT),
    reason=f"compares the compiled kernel with its Python twin, and there is none: {column_implementation.ABSENT}",
)
