"""A cluster for tests: brokers in a thread of this process."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import uvloop

from tidelog.broker.runtime import BrokerFailed
from tidelog.launcher.foreground import Stop
from tidelog.launcher.in_process import InProcessCluster
from tidelog.launcher.plan import Plan

if TYPE_CHECKING:
    from tidelog.broker.runtime import Runtime

TEST_SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
}
"""What differs from a broker's defaults: nobody waits for members who never come, fewer files."""


class Cluster:
    """A cluster. Use it in a `with` statement, or `start` and `stop` it."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        brokers: int = 1,
        data: str | None = None,
        port: int = 0,
        of_broker: Mapping[int, Mapping[str, object]] | None = None,
    ) -> None:
        """`brokers` of them, with ids 0, 1, ...

        `settings` by Kafka's names; `of_broker` by broker's id, such as `{1: {"broker.rack": "b"}}`. `data` is the
        folder to use and keep, a temporary one if None; `port` is broker 0's, the others follow, 0: any free ones.
        """
        self._settings = {**TEST_SETTINGS, **_texts(settings or {})}
        self._of_broker = {broker_id: _texts(own) for broker_id, own in (of_broker or {}).items()}
        self._keep = data is not None
        self.data = data or ""
        """The folder with everything in it, from `start` on."""
        self._ports = tuple(port + broker_id if port else 0 for broker_id in range(brokers))
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: Stop | None = None
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._brokers: InProcessCluster | None = None

    @property
    def bootstrap(self) -> str:
        """host:port of every broker, comma-separated, for `bootstrap.servers`; stopped ones are among them."""
        return ",".join(self._running().addresses.values())

    @property
    def runtime(self) -> Runtime:
        """Broker 0 itself. Its objects belong to the cluster's thread: look, don't touch; to touch, `call`."""
        return self.runtimes[0]

    @property
    def runtimes(self) -> Mapping[int, Runtime]:
        """The brokers that run, by id; of these, too, everything belongs to the cluster's thread."""
        return self._running().runtimes

    def data_of(self, broker_id: int) -> str:
        """The folder of a broker's logs."""
        return self._running().plan.log_dir(broker_id)

    def _running(self) -> InProcessCluster:
        if self._brokers is None:
            raise RuntimeError("The cluster is not running.")
        return self._brokers

    def start(self, broker_id: int | None = None) -> None:
        """Starts the cluster, or one of its brokers that was stopped: on the same port, with the same data.

        Returns when clients can connect; raises what kept it from starting.
        """
        if broker_id is not None:
            self._wait(self._running().start_broker(broker_id))
            return
        if not self.data:
            self.data = tempfile.mkdtemp(prefix="tidelog-")
        self._ready.clear()
        self._error = None
        self._thread = threading.Thread(target=self._run, name="tidelog-cluster", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._brokers is None:
            self._thread.join()
            self._thread = None
            self._remove_data()
            self._raise()

    def stop(self, broker_id: int | None = None) -> None:
        """Stops the cluster cleanly, or one broker of it; raises what made the cluster fail meanwhile."""
        if broker_id is not None:
            self._wait(self._running().stop_broker(broker_id))
            return
        thread, self._thread = self._thread, None
        if thread is None:
            return
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # It may have ended by itself; `_error` says why.
            self._loop.call_soon_threadsafe(self._stop_soon)
        thread.join()
        self._brokers = None
        self._remove_data()
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def restart(self, broker_id: int | None = None) -> None:
        """Stops the cluster, or one broker, cleanly, and starts it again, on the same ports with the same data."""
        if broker_id is not None:
            self.stop(broker_id)
            self.start(broker_id)
            return
        keep, self._keep = self._keep, True
        self._ports = tuple(int(address.rpartition(":")[2]) for address in self.bootstrap.split(","))
        try:
            self.stop()
        finally:
            self._keep = keep
        self.start()

    def call(self, function: Any, *arguments: Any) -> Any:
        """Runs `function(*arguments)` on the cluster's thread and returns its result."""

        async def run() -> Any:
            return function(*arguments)

        return self._wait(run())

    def _wait(self, work: Any) -> Any:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._main())
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = Stop()
        brokers = InProcessCluster(Plan(self.data, self._ports, self._settings, self._of_broker))
        await brokers.start()
        self._brokers = brokers
        self._ready.set()
        try:
            reason = await self._stop.wait_for(brokers.failed())
        finally:
            await brokers.stop()
        if reason is not None:
            raise BrokerFailed(reason)

    def _stop_soon(self) -> None:
        assert self._stop is not None
        self._stop.ask(whole_cluster=True)

    def _remove_data(self) -> None:
        if not self._keep:
            shutil.rmtree(self.data, ignore_errors=True)
            self.data = ""


def _texts(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings as a properties file writes them."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}
