"""The notation of the settings' tables."""

from __future__ import annotations

import pytest

from tidelog.config.setting import EachOf, Effect, Importance, OneOf, Range, Setting, Type, UpdateMode
from tidelog.config.table import settings


def test_a_row_says_all_of_a_setting() -> None:
    """Each column becomes the field that it stands for; indented lines go on with the row before."""
    (setting,) = settings(
        "a.b | int | INT_MAX | [1,...,9] | high; cluster-wide; from c, d |\n    What it does,\n    in words.\n"
    )
    assert setting == Setting(
        "a.b",
        Type.INT,
        2**31 - 1,
        "What it does, in words.",
        valid=Range(1, 9),
        importance=Importance.HIGH,
        mode=UpdateMode.CLUSTER_WIDE,
        synonyms=("c", "d"),
    )


def test_defaults_and_valid_values_follow_the_type() -> None:
    """`null` is not empty; a bracket holds bounds, choices of a text, or choices of a list's members."""
    rows = settings(
        "n | string | null | | | -\n"
        "e | string | | [, A] | | -\n"
        "l | list | a,b | [a, b] | | -\n"
        "d | double | 0.5 | [0,...,0.5] | accepted | -\n"
        "c | string | x | (any case) [X, Y] | refused: use `y`, it is newer | -\n"
    )
    assert [row.default for row in rows] == [None, "", ("a", "b"), 0.5, "x"]
    assert [row.valid for row in rows] == [
        None,
        OneOf(("", "A")),
        EachOf(("a", "b")),
        Range(0, 0.5),
        OneOf(("X", "Y"), any_case=True),
    ]
    assert [row.effect for row in rows] == [*[Effect.EFFECTIVE] * 3, Effect.ACCEPTED, Effect.REFUSED]
    assert rows[4].advice == "use `y`, it is newer"


@pytest.mark.parametrize(
    "row",
    [
        "a | int | 1 | [1,...] | high",
        "a | whole | 1 | | | -",
        "a | int | 0 | [1,...] | | -",
        "a | int | 1 | | hihg | -",
    ],
)
def test_a_malformed_row_is_named(row: str) -> None:
    """A column too few, an unknown type or note, or a default that is not valid."""
    with pytest.raises(ValueError, match="not a row of settings"):
        settings(row)
