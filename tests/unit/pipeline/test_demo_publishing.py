"""What the demo says of the answers' topic follows from what the consumer got."""

from collections import Counter
from decimal import Decimal

from pyspark.sql import Row

from tidelog.pipeline.demo.publishing import _faults, rows_of
from tidelog.pipeline.demo.questions import Answers

ROWS = [("airline/A", "{1}"), ("airline/B", "{2}"), ("destination/C", "{3}")]


def test_each_answer_once_is_no_fault() -> None:
    """In any order."""
    assert _faults(ROWS, Counter(reversed(ROWS))) == []


def test_answers_that_are_missing_doubled_or_changed_are_faults() -> None:
    """With one of each as an example."""
    seen = Counter([ROWS[0], ROWS[0], ("airline/B", "{other}")])
    missing, extra = _faults(ROWS, seen)
    assert "2 answers are missing, such as airline/B" in missing
    assert "2 answers are there twice, or changed" in extra


def test_answers_become_keys_and_json() -> None:
    """Spark's averages of decimals are decimals."""
    airline = Row(name="A", flights=3, delay=1.5, late=Decimal("12.5"))
    destination = Row(faa="BTV", name="Burlington", delay=None)
    assert rows_of(Answers([airline], [destination], [], [])) == [
        ("airline/A", '{"delay": 1.5, "flights": 3, "late": 12.5, "name": "A"}'),
        ("destination/BTV", '{"delay": null, "faa": "BTV", "name": "Burlington"}'),
    ]
