"""Pages of metrics: in slices, shared, and whole without what fails."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.broker.harness import ManualClock, ManualShell

from tidelog.broker.deferred import Deferred
from tidelog.broker.metrics.health import BrokerState, readiness, readiness_text
from tidelog.broker.metrics.scraping import FRESH_MS, SLICE_MS, WAIT_MS_MAX, Scraping
from tidelog.metrics.page import Page


@pytest.fixture
def shell() -> ManualShell:
    return ManualShell(ManualClock())


@pytest.fixture
def scraping(shell: ManualShell) -> Scraping:
    return Scraping(shell, shell.clock)


def test_a_long_page_leaves_the_loop_its_turns(shell: ManualShell, scraping: Scraping) -> None:
    """A slice ends with the step in which its time is up; the page comes some turns later."""
    steps = 0

    def slow(page: Page) -> Iterator[None]:
        nonlocal steps
        for number in range(10):
            steps += 1
            shell.clock.now_ms += SLICE_MS
            page.family("a", "gauge", "A.").add(number, f'{{n="{number}"}}')
            yield

    scraping.add("slow", slow)
    page = scraping.page()
    assert (page.done, steps) == (False, 1)
    shell.run_turn()
    assert steps == 2
    shell.run_turns()
    assert b"".join(page.result()).count(b"\na{") == 10


def test_those_who_ask_together_share_a_page(shell: ManualShell, scraping: Scraping) -> None:
    """A hundred scrapers cost one page a second; later ones get a new one."""
    calls = 0

    def counted(page: Page) -> Iterator[None]:
        nonlocal calls
        calls += 1
        page.family("a", "gauge", "A.").add(calls)
        yield

    scraping.add("counted", counted)
    pages = [scraping.page() for _ in range(100)]
    shell.run_turns()
    assert len({id(page.result()) for page in pages}) == 1
    shell.clock.now_ms += FRESH_MS + 1
    scraping.page()
    assert calls == 2


def test_a_compressed_page_is_the_same_page(shell: ManualShell, scraping: Scraping) -> None:
    """Made from the plain one, and shared as it is."""

    def large(page: Page) -> Iterator[None]:
        for number in range(20_000):
            page.family("a", "gauge", "A.").add(number, f'{{n="{number}"}}')
        yield

    scraping.add("large", large)
    plain, packed, again = scraping.page(), scraping.page(compressed=True), scraping.page(compressed=True)
    shell.run_turns()
    assert gzip.decompress(b"".join(packed.result())) == b"".join(plain.result())
    assert again is packed


def test_a_collector_that_fails_is_left_out_and_counted(
    shell: ManualShell, scraping: Scraping, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are on the page; the log tells of it once."""

    def broken(page: Page) -> Iterator[None]:
        page.family("half", "gauge", "Half.").add(1)
        yield
        raise ZeroDivisionError

    def sound(page: Page) -> Iterator[None]:
        page.family("sound", "gauge", "Sound.").add(1)
        yield

    scraping.add("broken", broken)
    scraping.add("sound", sound)
    for _ in range(2):
        page = scraping.page()
        shell.run_turns()
        text = b"".join(page.result()).decode()
        shell.clock.now_ms += FRESH_MS + 1
    assert "\nsound 1\n" in text
    assert 'tidelog_metrics_collector_failures_total{collector="broken"} 2' in text
    assert caplog.text.count("metrics not collected: collector=broken") == 1


def test_a_page_waits_a_while_for_others_and_goes_on_without_them(shell: ManualShell, scraping: Scraping) -> None:
    """What a collector waits for comes, or does not: the page is made either way, once."""
    answers: list[Deferred[None]] = []

    def asking(page: Page) -> Iterator[Deferred[Any] | None]:
        answer: Deferred[None] = Deferred()
        answers.append(answer)
        yield answer
        page.family("known", "gauge", "Known.").add(int(answer.done))

    scraping.add("asking", asking)
    page = scraping.page()
    shell.run_turns()
    assert not page.done
    answers[0].complete(None)
    shell.run_turns()
    assert b"\nknown 1\n" in b"".join(page.result())
    shell.clock.now_ms += FRESH_MS + 1
    late = scraping.page()
    shell.advance(WAIT_MS_MAX)
    assert b"\nknown 0\n" in b"".join(late.result())
    answers[1].complete(None)
    shell.run_turns()
    assert shell.waiting_timers == 0


def test_what_makes_a_broker_ready() -> None:
    """It runs, has the store, and one log directory at least; each condition that does not hold is named."""
    ready = readiness(BrokerState.RUNNING, has_store=True, log_dirs=2, log_dirs_offline=1)
    assert readiness_text(ready, verbose=False) == "ok\n"
    assert readiness_text(ready, verbose=True) == "[+]broker ok\n[+]store ok\n[+]log-dirs ok\nok\n"
    unready = readiness(BrokerState.PENDING_CONTROLLED_SHUTDOWN, has_store=False, log_dirs=1, log_dirs_offline=1)
    assert [check.holds for check in unready] == [False, False, False]
    assert readiness_text(unready, verbose=False).splitlines()[0] == (
        "[-]broker failed: the broker's state is pending controlled shutdown"
    )
