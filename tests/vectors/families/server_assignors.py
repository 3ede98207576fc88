"""The broker's assignors of 4.3.0, for groups of the next-generation protocol."""

from __future__ import annotations

from typing import Any

from tests.vectors.assigned import check_round
from tidelog.assignors import BROKERS, assignor_named

FILES = ("server-assignors.json.gz",)


def check(case: dict[str, Any]) -> None:
    assignor = assignor_named(case["input"]["assignor"], among=BROKERS)
    for given, expected in zip(case["input"]["rounds"], case["expected"]["rounds"], strict=True):
        check_round(assignor, given, expected)
