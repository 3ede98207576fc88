"""Requests for `tidelog top --metrics`: slow ones, errors and times, which Kafka's protocol does not tell.

HOST:PORT of brokers' metrics listeners --> their pages --> one line for each broker and API, slow ones first
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import RenderableType

ROWS_MAX: Final = 12
PAGE_BYTES_MAX: Final = 256 << 20
"""What is read of a page: one of 10,000 partitions has 20 MiB."""
_SAMPLE: Final = re.compile(
    r'^(tidelog_slow_requests_total|kafka_network_requestmetrics_(?:totaltimems(?:_count)?|errors_total))\{request="(\w+)"'
    r'(?:,(?:quantile|error)="([\w.]+)")?\} (\S+)$',
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Requests:
    """What one broker tells of the requests of one API."""

    requests: int
    failed: int
    """Error codes in answers."""
    slow: int | None
    """Slower than `slow.request.ms`; None where that is not set."""
    p99_ms: float | None
    """Of the last minutes; None where there was none."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Of all brokers that were asked."""

    by_broker: Mapping[str, Mapping[str, Requests]]
    """[HOST:PORT][API] -> its requests."""
    missing: Sequence[str]
    """Brokers that did not answer, and why."""

    def rows(self, before: Reading | None) -> list[dict[str, Any]]:
        """One for each broker and API that was asked since `before`, or ever; slow ones first, then the many."""
        found = []
        for broker, by_api in self.by_broker.items():
            earlier = {} if before is None else before.by_broker.get(broker, {})
            for api, now in by_api.items():
                then = earlier.get(api)
                found.append(
                    {
                        "broker": broker,
                        "request": api,
                        "requests": now.requests - (0 if then is None else then.requests),
                        "errors": now.failed - (0 if then is None else then.failed),
                        "slow": None if now.slow is None else now.slow - ((then.slow or 0) if then is not None else 0),
                        "slowSinceStart": now.slow,
                        "p99Ms": now.p99_ms,
                    }
                )
        return sorted(found, key=lambda row: (-(row["slow"] or 0), -(row["slowSinceStart"] or 0), -row["requests"]))


def read_requests(addresses: Iterable[str], timeout_s: float) -> Reading:
    """Asks all brokers at once."""
    chosen = list(addresses)
    by_broker: dict[str, Mapping[str, Requests]] = {}
    missing: list[str] = []
    with ThreadPoolExecutor(max(len(chosen), 1)) as pool:
        for address, page in zip(chosen, pool.map(lambda each: _page(each, timeout_s), chosen), strict=True):
            if isinstance(page, Exception):
                missing.append(f"metrics of {address}: {page}")
            else:
                by_broker[address] = parse(page)
    return Reading(by_broker, missing)


def _page(address: str, timeout_s: float) -> str | Exception:
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host or "127.0.0.1", int(port), timeout=timeout_s)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        if answer.status != 200:
            return OSError(f"HTTP status {answer.status}")
        return answer.read(PAGE_BYTES_MAX).decode("utf-8", "replace")
    except (OSError, UnicodeError, OverflowError, http.client.HTTPException) as error:
        return error  # The middle two: no host is called so, no port is so high.
    finally:
        connection.close()


def parse(page: str) -> dict[str, Requests]:
    """[API] -> its requests, as a page of metrics tells."""
    counts: dict[str, int] = {}
    failed: dict[str, int] = {}
    slow: dict[str, int] = {}
    times: dict[str, float] = {}
    for name, api, label, text in _SAMPLE.findall(page):
        value = float(text)
        if name.endswith("_count"):
            counts[api] = int(value)
        elif name.endswith("totaltimems"):
            if label == "0.99" and value == value:
                times[api] = value
        elif name.startswith("tidelog_slow"):
            slow[api] = int(value)
        elif label != "NONE":
            failed[api] = failed.get(api, 0) + int(value)
    return {api: Requests(count, failed.get(api, 0), slow.get(api), times.get(api)) for api, count in counts.items()}


def table(now: Reading, before: Reading | None) -> RenderableType:
    """The rows for eyes."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    shown.add_column("Metrics")
    shown.add_column("Request")
    for column in ("Requests", "Errors", "Slow", "Slow ever", "p99 ms"):
        shown.add_column(column, justify="right")
    for row in now.rows(before)[:ROWS_MAX]:
        p99 = "" if row["p99Ms"] is None else f"{row['p99Ms']:,.1f}"
        slow = ["" if row[name] is None else str(row[name]) for name in ("slow", "slowSinceStart")]
        style = "bold red" if row["slow"] else ""
        cells = [row["broker"], row["request"], str(row["requests"]), str(row["errors"]), *slow, p99]
        shown.add_row(*(Text(cell, style=style) for cell in cells))
    return shown
