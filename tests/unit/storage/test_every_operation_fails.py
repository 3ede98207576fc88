"""Each operation of a log's life fails once: what was acknowledged stays, at its offset, and the files agree with it.

Here with one kind of error each; `python -m tests.unit.storage.life` has all kinds, a clean stop and a kill after each.
"""

from __future__ import annotations

from tests.amount import thorough
from tests.unit.storage.life import ALONE, BROKEN, count_operations, fail_in_life, fail_in_start


@thorough
def test_what_fails_alone_changes_nothing() -> None:
    """No descriptor, no memory, a signal: the step is done again, and the directory stays online."""
    operations = count_operations()
    assert operations > 500
    for number in range(1, operations + 1):
        fail_in_life(number, ALONE[number % len(ALONE)], clean=bool(number % 2))


def test_what_breaks_the_disk_loses_nothing() -> None:
    """EIO, a full disk, a file that is not there: the directory goes offline; a start finds all that was promised."""
    for number in range(1, count_operations() + 1, 3):
        fail_in_life(number, BROKEN[number % len(BROKEN)], clean=False)


def test_a_start_that_fails_loses_nothing() -> None:
    """Recovery may be interrupted anywhere; the next start does it again."""
    codes = (*ALONE, *BROKEN)
    number = 1
    while fail_in_start(number, codes[number % len(codes)]):
        number += 2
    assert number > 50
