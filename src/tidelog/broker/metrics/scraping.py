"""A page of metrics, made in slices between the broker's other work, and shared by requests that come at the same time.

    page() --> collectors, 5 ms at a time --> text, 5 ms at a time --> compressed where asked --> Deferred[body]

A collector that fails leaves its metrics out of the page, and is counted there; nothing else depends on it.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tidelog.broker.deferred import Deferred
from tidelog.metrics.page import Page, pairs_text

if TYPE_CHECKING:
    from tidelog.broker.shell import Shell
    from tidelog.ports.clock import Clock

logger: Final = logging.getLogger(__name__)

SLICE_MS: Final = 3
"""Work between two turns of the loop, by a clock of whole milliseconds. A slice ends with the step in which this time
is up, and a step takes a millisecond at most: a slice is over within five."""
FRESH_MS: Final = 1_000
"""A page that was made this long ago is given again: two scrapers cost as much as one."""
_COMPRESSED_AT_ONCE: Final = 256 << 10
_GZIP: Final = 31
"""Window bits of zlib that ask for gzip's header."""

WAIT_MS_MAX: Final = 1_000
"""How long a page waits for one thing that a collector waits for."""

Steps: TypeAlias = Iterator["Deferred[Any] | None"]
"""Yields where it may be interrupted: None, or what has to be there before it goes on, unless it takes too long."""
Collector: TypeAlias = Callable[[Page], Steps]
"""Adds samples to a page."""


class Scraping:
    """The pages of one broker."""

    def __init__(self, shell: Shell, clock: Clock) -> None:
        self._shell = shell
        self._clock = clock
        self._collectors: list[tuple[str, Collector]] = []
        self._failures: dict[str, int] = {}
        """[collector] -> how often it has failed."""
        self._scrapes = 0
        self._duration_ms = 0
        """Of the last page, from its first slice to its last."""
        self._slice_ms = 0
        """The longest slice so far of the page that is being made."""
        self._longest_slice_ms = 0
        """Of the last page."""
        self._samples = 0
        self._page: Deferred[Sequence[bytes]] | None = None
        self._compressed: Deferred[Sequence[bytes]] | None = None
        self._made_ms = 0

    def add(self, name: str, collector: Collector) -> None:
        """One more collector; `name` is for the log, and for the count of its failures."""
        self._collectors.append((name, collector))
        self._failures[name] = 0

    def page(self, *, compressed: bool = False) -> Deferred[Sequence[bytes]]:
        """A page that is made now, is being made, or was a moment ago."""
        page = self._page
        if page is None or (page.done and self._clock.monotonic_ms() - self._made_ms > FRESH_MS):
            page = self._page = Deferred()
            self._compressed = None
            self._begin(page)
        if not compressed:
            return page
        smaller = self._compressed
        if smaller is None:
            smaller = self._compressed = page.and_then(self._compress)
        return smaller

    def _begin(self, made: Deferred[Sequence[bytes]]) -> None:
        self._scrapes += 1
        page = Page()
        began_ms = self._clock.monotonic_ms()
        body: list[bytes] = []

        def finish() -> None:
            self._made_ms = self._clock.monotonic_ms()
            self._duration_ms = self._made_ms - began_ms
            self._samples = page.samples
            self._longest_slice_ms, self._slice_ms = self._slice_ms, 0
            made.complete(body)

        self._run(self._steps(page, body), finish, made)

    def _steps(self, page: Page, body: list[bytes]) -> Steps:
        for name, collector in self._collectors:
            try:
                yield from collector(page)
            except Exception:  # One collector's fault leaves the others' metrics on the page.
                self._failures[name] += 1
                if self._failures[name] == 1:
                    # Each scrape would say the same.
                    logger.exception("metrics not collected: collector=%s", name)
            yield None
        self._of_itself(page)
        for chunk in page.chunks():
            body.append(chunk)
            yield None

    def _of_itself(self, page: Page) -> None:
        page.family("tidelog_metrics_pages_total", "counter", "Pages of metrics that were made.").add(self._scrapes)
        took = page.family("tidelog_metrics_page_seconds", "gauge", "How long the page before this one took to make.")
        took.add(self._duration_ms / 1000)
        longest = page.family(
            "tidelog_metrics_longest_slice_seconds",
            "gauge",
            "The longest work on that page between two turns of the loop.",
        )
        longest.add(self._longest_slice_ms / 1000)
        page.family("tidelog_metrics_page_samples", "gauge", "Samples on the page before this one.").add(self._samples)
        failures = page.family(
            "tidelog_metrics_collector_failures_total",
            "counter",
            "How often metrics of a kind were left out by a fault.",
        )
        for name, count in self._failures.items():
            failures.add(count, f"{{{pairs_text(collector=name)}}}")

    def _compress(self, body: Sequence[bytes]) -> Deferred[Sequence[bytes]]:
        made: Deferred[Sequence[bytes]] = Deferred()
        smaller: list[bytes] = []

        def steps() -> Steps:
            compressor = zlib.compressobj(1, wbits=_GZIP)
            for chunk in body:
                for start in range(0, len(chunk), _COMPRESSED_AT_ONCE):
                    smaller.append(compressor.compress(chunk[start : start + _COMPRESSED_AT_ONCE]))
                    yield None
            smaller.append(compressor.flush())

        self._run(steps(), lambda: made.complete(smaller), made)
        return made

    def _run(self, steps: Steps, finish: Callable[[], None], made: Deferred[Sequence[bytes]]) -> None:
        """Goes through `steps` in slices, the first at once."""
        began_ms = self._clock.monotonic_ms()
        try:
            for awaited in steps:
                took_ms = self._clock.monotonic_ms() - began_ms
                self._slice_ms = max(self._slice_ms, took_ms)
                if awaited is not None and not awaited.done:
                    self._wait(awaited, steps, finish, made)
                    return
                if took_ms >= SLICE_MS:
                    self._shell.soon(self._run, steps, finish, made)
                    return
        except Exception as error:
            self._page = self._compressed = None
            made.fail(error)
            return
        finish()

    def _wait(
        self, awaited: Deferred[Any], steps: Steps, finish: Callable[[], None], made: Deferred[Sequence[bytes]]
    ) -> None:
        """Goes on when `awaited` is complete, or too much time has passed."""
        gone_on = False

        def go_on(_: object = None) -> None:
            nonlocal gone_on
            if not gone_on:
                gone_on = True
                timer.cancel()
                self._shell.soon(self._run, steps, finish, made)

        timer = self._shell.after(WAIT_MS_MAX, go_on)
        awaited.on_complete(go_on)
