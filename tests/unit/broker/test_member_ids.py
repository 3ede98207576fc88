"""The ids that the coordinator's broker gives to members of classic groups."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.handlers._members import random_uuid


@given(st.binary(min_size=16, max_size=16))
def test_they_end_with_a_random_uuid(data: bytes) -> None:
    """As Python's own module writes one of version 4."""
    assert random_uuid(data) == str(uuid.UUID(bytes=data, version=4))
