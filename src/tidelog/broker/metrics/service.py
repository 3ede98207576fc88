"""A broker's metrics as a whole: the listener, the pages, what is measured for them, and health.

    Runtime --- bind, attach, state ---> BrokerMetrics --- reads ---> node, server, store, logs
                                             |
    Prometheus --- GET /metrics --> HttpServer --> Scraping --> collectors
    a probe    --- GET /readyz  --/

Collectors read what the broker's parts hold anyway; only requests are measured, by a dispatcher of its own.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from typing import TYPE_CHECKING, Final

from tidelog.broker.deferred import Deferred
from tidelog.broker.metrics.client_metrics import collect_client_metrics
from tidelog.broker.metrics.cluster_metrics import collect_controller, collect_topics
from tidelog.broker.metrics.coordinator_metrics import collect_groups_by_state, collect_transactions
from tidelog.broker.metrics.health import BrokerState, readiness, readiness_text
from tidelog.broker.metrics.http import HttpServer, Request, Response
from tidelog.broker.metrics.lag import Lags
from tidelog.broker.metrics.lag_metrics import collect_lag
from tidelog.broker.metrics.log_metrics import DiskRoom, collect_logs, collect_start
from tidelog.broker.metrics.process import LoopWatch, collect_process
from tidelog.broker.metrics.quota_metrics import collect_quotas
from tidelog.broker.metrics.replica_metrics import collect_followers, collect_replicas
from tidelog.broker.metrics.request_metrics import ConnectionRates, collect_connections, collect_requests
from tidelog.broker.metrics.requests import MeasuredDispatcher, RequestMetrics
from tidelog.broker.metrics.scraping import Scraping
from tidelog.broker.metrics.slow_requests import SlowRequests
from tidelog.broker.metrics.store_metrics import StoreTimes, collect_store
from tidelog.broker.metrics.traffic_metrics import collect_traffic
from tidelog.config.metrics_listener import MetricsListener
from tidelog.metrics.page import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from tidelog.broker.cluster.controller_driver import ControllerDriver
    from tidelog.broker.cluster.forwarding import Forwarding
    from tidelog.broker.connections.server import Server
    from tidelog.broker.node import Node
    from tidelog.broker.shell import Shell, Timer
    from tidelog.metrics.page import Page
    from tidelog.ports.clock import Clock
    from tidelog.ports.network import Listener, Network
    from tidelog.storage.log_manager import LogManager
    from tidelog.store.client import StoreClient

logger: Final = logging.getLogger(__name__)

BIND_RETRY_MS: Final = 5_000
"""Between attempts to bind an address that is taken: the broker serves its clients meanwhile."""
WINDOW_MS: Final = 60_000
"""Of `Histogram.roll`: quantiles are those of the last five minutes."""
LOOK_MS: Final = 10_000
"""Between looks at how many connections came and went."""
_INDEX: Final = "tidelog: /metrics for Prometheus, /healthz (alive?), /readyz (ready for clients? ?verbose)\n"


class BrokerMetrics:
    """What one broker tells of itself. Made, bound and stopped with it; all methods are called on the loop's thread."""

    def __init__(self, address: MetricsListener, shell: Shell, clock: Clock, server: Server) -> None:
        self._address = address
        self._shell = shell
        self._server = server
        self.state = BrokerState.STARTING
        """Set by the runtime."""
        self._node: Node | None = None
        self._driver: ControllerDriver | None = None
        self._dispatcher: MeasuredDispatcher | None = None
        self.requests = RequestMetrics(time.monotonic_ns)
        self._store = StoreTimes()
        self._clock = clock
        self._rates = ConnectionRates(server)
        self._look_timer: Timer | None = None
        self._watch = LoopWatch(shell)
        self._scraping = Scraping(shell, clock)
        self._http = HttpServer(shell, self._respond)
        self._listener: Listener | None = None
        self._timer: Timer | None = None
        self._bind_timer: Timer | None = None
        self._complained = False
        self._stopped = False
        add = self._scraping.add
        add("process", functools.partial(collect_process, watch=self._watch))
        add("broker", self._collect_state)
        add("requests", functools.partial(collect_requests, metrics=self.requests))
        add("connections", functools.partial(collect_connections, server=server, rates=self._rates))
        add("store", functools.partial(collect_store, times=self._store))

    @property
    def address(self) -> str:
        """host:port where metrics are served, or are to be."""
        if self._listener is None:
            return str(self._address)
        return str(MetricsListener(self._address.host, self._listener.address[1]))

    @property
    def is_bound(self) -> bool:
        """Whether metrics are served; false where the address is taken."""
        return self._listener is not None

    async def bind(self, network: Network) -> None:
        """Serves metrics from now on. Where the address is taken it is tried again, and the broker goes on."""
        self._watch.start()
        self._roll_later()
        self._look()
        await self._try_to_bind(network)

    async def _try_to_bind(self, network: Network) -> None:
        try:
            listener = await network.listen(self._http.connection, self._address.host, self._address.port)
        except OSError as error:
            if not self._complained:
                self._complained = True
                logger.error("metrics not served: address=%s error=%s", self._address, error.strerror or error)
            self._bind_timer = self._shell.after(BIND_RETRY_MS, self._bind_again, network)
            return
        if self._stopped:
            listener.close()
            return
        self._listener = listener
        logger.info("metrics served: address=%s", self.address)

    def _bind_again(self, network: Network) -> None:
        if not self._stopped:
            task = asyncio.ensure_future(self._try_to_bind(network))
            task.add_done_callback(lambda done: done.exception())

    def opening(self, logs: LogManager) -> None:
        """The broker is about to open its logs, which may take long: how far it has come is shown from now on."""
        logs.progress.measures_bytes = True
        self._scraping.add("start", functools.partial(collect_start, progress=logs.progress))

    def attach(self, node: Node, driver: ControllerDriver) -> None:
        """The broker has its parts: they are shown from now on."""
        self._node = node
        self._driver = driver
        add = self._scraping.add
        add("traffic", functools.partial(collect_traffic, node=node))
        add("replicas", functools.partial(collect_replicas, node=node))
        add("followers", functools.partial(collect_followers, node=node))
        add("controller", functools.partial(collect_controller, driver=driver))
        add("topics", functools.partial(collect_topics, node=node))
        add("logs", functools.partial(collect_logs, node=node, room=DiskRoom()))
        add("groups", functools.partial(collect_groups_by_state, node=node))
        add("lag", functools.partial(collect_lag, node=node, lags=Lags(node)))
        add("transactions", functools.partial(collect_transactions, node=node))
        add("quotas", functools.partial(collect_quotas, node=node))
        if node.client_metrics is not None:
            add("clients", functools.partial(collect_client_metrics, manager=node.client_metrics))

    def measured_store(self, connect: Callable[[], Awaitable[StoreClient]]) -> Callable[[], Awaitable[StoreClient]]:
        """As `connect`, for sessions that are measured."""

        async def measured() -> StoreClient:
            return self._store.session(await connect())

        return measured

    def dispatcher(self, node: Node, forwarding: Forwarding) -> MeasuredDispatcher:
        """A dispatcher whose requests are measured."""
        threshold_ms = node.config.slow_request_ms
        if threshold_ms is not None:
            self.requests.slow = SlowRequests(threshold_ms, self.requests.now_ns)
        self._dispatcher = MeasuredDispatcher(node, node.handlers, forwarding, self.requests)
        return self._dispatcher

    def stop(self) -> None:
        """Closes the listener and its connections."""
        self._stopped = True
        self.state = BrokerState.NOT_RUNNING
        self._watch.stop()
        for timer in (self._timer, self._bind_timer, self._look_timer):
            if timer is not None:
                timer.cancel()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._http.close()

    def _look(self) -> None:
        self._rates.look(self._clock.monotonic_ms())
        if self._dispatcher is not None:
            self._dispatcher.adapt()
        self._look_timer = self._shell.after(LOOK_MS, self._look)

    def _roll_later(self) -> None:
        self._timer = self._shell.after(WINDOW_MS, self._roll)

    def _roll(self) -> None:
        self._roll_later()
        self.requests.roll()
        self._watch.lateness.roll()
        self._store.latency.roll()
        if self._node is not None:
            self._node.disk_scheduler.flush_times.roll()

    # Requests.

    def _respond(self, request: Request) -> Deferred[Response]:
        match request.path:
            case "/metrics":
                return self._scraping.page(compressed=request.accepts_gzip).then(
                    lambda body: _page(body, is_gzip=request.accepts_gzip)
                )
            case "/healthz" | "/livez":
                return Deferred.of(Response.text(200, "ok\n"))
            case "/readyz":
                return Deferred.of(self._readiness(verbose="verbose" in request.query))
            case "/":
                return Deferred.of(Response.text(200, _INDEX))
            case _:
                return Deferred.of(Response.text(404, _INDEX))

    def _readiness(self, *, verbose: bool) -> Response:
        directories = [] if self._node is None else self._node.logs.directories
        checks = readiness(
            self.state,
            has_store=self._driver is not None and not self._driver.lacks_store,
            log_dirs=len(directories),
            log_dirs_offline=sum(directory.failure is not None for directory in directories),
        )
        ready = all(check.holds for check in checks)
        return Response.text(200 if ready else 503, readiness_text(checks, verbose=verbose))

    def _collect_state(self, page: Page) -> Iterator[None]:
        help = "0 not running, 1 starting, 2 recovering logs, 3 running, 6 handing over leaderships, 7 stopping."
        page.family("kafka_server_kafkaserver_brokerstate", "gauge", help).add(int(self.state))
        yield


def _page(body: Sequence[bytes], *, is_gzip: bool) -> Response:
    return Response(200, body, CONTENT_TYPE, is_gzip, (("Vary", "Accept-Encoding"),))
