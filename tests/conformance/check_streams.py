"""A word count with Kafka Streams, 3.9 and 4.3: its group, its internal topics, exactly once where it asks for it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conformance.clients import scenarios
from tests.conformance.clients.harness import BUILT
from tests.conformance.clients.scenarios import Site, killed, name_of
from tests.waiting import until

RELEASES = {"3.9": "3.9.1", "4.3": "4.3.0"}
LINES = ("the quick brown fox", "jumps over the lazy dog", "the end of the line", "over and over again")
PARTITIONS = 4


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with scenarios.site(tmp_path_factory.mktemp("workers"), brokers=3, processes=True) as site:
        yield site


@contextmanager
def word_count(site: Site, release: str, source: str, output: str, guarantee: str, state: Path) -> Iterator[int]:
    """The application, in a process of its own; its pid. Ended with SIGTERM, if it still runs."""
    jars = f"{BUILT / 'java'}:{BUILT / f'kafka-clients-{RELEASES[release]}'}/*"
    command = ["java", "-Xmx192M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", jars, "WordCount"]
    with (site.logs / f"{output}.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, site.bootstrap, f"application-{output}", source, output, guarantee, str(state)],
            stdout=log,
            stderr=log,
        )
        try:
            yield process.pid
        finally:
            process.terminate()
            process.wait(60)


def counts(site: Site, output: str) -> dict[str | None, int]:
    """The last count of each word."""
    return {record.key: int(record.value) for record in site.observer.read(output, PARTITIONS)}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_words_are_counted(site: Site, release: str, guarantee: str, tmp_path: Path) -> None:
    """Each word as often as it is there; exactly once also over kills of the application and of a coordinator."""
    source, output = name_of("lines"), name_of("counts")
    for topic in (source, output):
        site.observer.create(topic, PARTITIONS)
    written: Counter[str] = Counter()

    def write(times: int) -> None:
        for line in LINES:
            site.observer.write(source, [line] * times)
            written.update({word: count * times for word, count in Counter(line.split()).items()})

    def counted() -> bool:
        return counts(site, output) == dict(written)

    write(200)
    with word_count(site, release, source, output, guarantee, tmp_path / "state") as pid:
        until(counted, lambda: f"{counts(site, output)} is not {dict(written)}", limit_s=60, every_s=0.5)
        write(200)
        if guarantee == "exactly_once_v2":
            os.kill(pid, signal.SIGKILL)
    with word_count(site, release, source, output, guarantee, tmp_path / "state"):
        write(200)
        if guarantee == "exactly_once_v2":
            with killed(site, site.coordinator_of(f"application-{output}")):
                write(200)
                until(counted, lambda: f"{counts(site, output)} is not {dict(written)}", limit_s=90, every_s=0.5)
        until(counted, lambda: f"{counts(site, output)} is not {dict(written)}", limit_s=90, every_s=0.5)
