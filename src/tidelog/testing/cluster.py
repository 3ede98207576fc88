"""A broker in a thread of this process."""

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

from tidelog.config.broker_config import BrokerConfig
from tidelog.launcher.single import STORE_FOLDER, serve

if TYPE_CHECKING:
    from tidelog.broker.runtime import Runtime

TEST_SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
}
"""What differs from a broker's defaults: nobody waits for members who never come, fewer files."""


class Cluster:
    """A cluster of one broker. Use it in a `with` statement, or `start` and `stop` it."""

    def __init__(self, settings: Mapping[str, object] | None = None, *, data: str | None = None, port: int = 0) -> None:
        """`settings` by Kafka's names; `data` is the folder to use and keep, a temporary one if None; `port` 0: any."""
        self._settings = dict(settings or {})
        self._keep = data is not None
        self.data = data or ""
        """The folder with everything in it, from `start` on."""
        self._port = port
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._runtime: Runtime | None = None

    @property
    def bootstrap(self) -> str:
        """host:port, for `bootstrap.servers`."""
        return self.runtime.addresses[0]

    @property
    def runtime(self) -> Runtime:
        """The broker itself. Its objects belong to its thread: look, don't touch; to touch, `call`."""
        if self._runtime is None:
            raise RuntimeError("The cluster is not running.")
        return self._runtime

    def start(self) -> None:
        """Returns when clients can connect; raises what kept the broker from starting."""
        if not self.data:
            self.data = tempfile.mkdtemp(prefix="tidelog-")
        self._ready.clear()
        self._error = None
        self._thread = threading.Thread(target=self._run, name="tidelog-cluster", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._runtime is None:
            self._thread.join()
            self._thread = None
            self._remove_data()
            self._raise()

    def stop(self) -> None:
        """Stops the broker cleanly; raises what made it fail meanwhile."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # It may have ended by itself; `_error` says why.
            self._loop.call_soon_threadsafe(self._stop_soon)
        thread.join()
        self._runtime = None
        self._remove_data()
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def restart(self) -> None:
        """Stops the broker cleanly and starts it again, on the same port with the same data."""
        keep, self._keep = self._keep, True
        self._port = int(self.bootstrap.rpartition(":")[2])
        try:
            self.stop()
        finally:
            self._keep = keep
        self.start()

    def call(self, function: Any, *arguments: Any) -> Any:
        """Runs `function(*arguments)` on the broker's thread and returns its result."""
        assert self._loop is not None

        async def run() -> Any:
            return function(*arguments)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

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
        self._stopping = asyncio.Event()
        own = {
            "broker.id": "0",
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "log.dirs": f"{self.data}/broker-0",
        }
        config = BrokerConfig.from_mapping({**own, **TEST_SETTINGS, **self._settings})
        await serve(config, f"{self.data}/{STORE_FOLDER}", self._is_ready, self._stopping)

    def _is_ready(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._ready.set()

    def _stop_soon(self) -> None:
        assert self._stopping is not None
        self._stopping.set()

    def _remove_data(self) -> None:
        if not self._keep:
            shutil.rmtree(self.data, ignore_errors=True)
            self.data = ""
