"""Tests of plans that are proven minimal need the solver of the extra `plan`."""

from __future__ import annotations

import pytest

from tidelog.placement.plan import exact

needs_solver = pytest.mark.skipif(not exact.is_installed(), reason="needs the extra `plan`")
