"""How long a throttled reassignment takes on four brokers, beside what was predicted: on ours, on Apache Kafka."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.waves import ERROR_MAX, kafka, measure, ours

MEGABYTES = 60
THROTTLE = 1_000_000


@contextlib.contextmanager
def peer(name: str, folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """The addresses of four brokers, and the ids of two of them."""
    if name == "tidelog":
        with ours() as bootstrap:
            yield bootstrap, (0, 1)
        return
    (folder / "libs").symlink_to(Path(os.environ["TIDELOG_KAFKA_JARS"]).absolute())
    with kafka(folder) as bootstrap:
        yield bootstrap, (1, 2)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["tidelog", "kafka"])
def test_a_throttled_run_takes_as_long_as_predicted(name: str, tmp_path: Path) -> None:
    """Within 20 per cent, with a producer going on beside it.

    It takes three quarters of a minute: a throttle lets what one answer brings through before it counts, which are some
    seconds' worth on either cluster.
    """
    with peer(name, tmp_path) as (bootstrap, first):
        found = measure(bootstrap, first, MEGABYTES * 1_000_000, THROTTLE, seconds=5)
    print(f"{name}: measured {found.measured:.1f} s, predicted {found.predicted:.1f} s ({found.error:+.0%})")
    print(f"{name}: p99 of acks=all {found.before[1]:.1f} ms before, {found.meanwhile[1]:.1f} ms meanwhile")
    assert abs(found.error) <= ERROR_MAX
