"""What the run with a broken Spark job finds wrong. Pure."""

from collections import Counter

from tests.chaos.spark import judge


def test_every_row_once_is_no_finding() -> None:
    """As many as were sent."""
    assert judge(Counter({b"0": 1, b"1": 1, b"2": 1}), 3) == []


def test_lost_doubled_and_strange_rows_are_findings() -> None:
    """Each kind with how many there are, and some of them."""
    findings = judge(Counter({b"0": 2, b"2": 1, b"7": 1}), 3)
    assert findings == [
        "1 rows are missing, the first [b'1']",
        "1 rows are there more than once, the first [b'0']",
        "1 rows were never sent, the first [b'7']",
    ]
