"""A cluster for tests: brokers in a thread of this process, or in processes of their own.

Both are what people run: the first is what `tidelog start` runs for one broker, with more of them; the second is the
supervisor of `tidelog start --brokers N`, in a thread of this process, which leaves dead what a test has killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import uvloop

from tidelog.broker.failure import BrokerFailed
from tidelog.launcher.foreground import Stop
from tidelog.launcher.in_process import InProcessCluster
from tidelog.launcher.plan import HOST, Plan
from tidelog.launcher.secure_folder import DEFAULT_USER, SecureFolder, make
from tidelog.launcher.supervisor import Supervisor
from tidelog.testing.chroot import Chroot

if TYPE_CHECKING:
    from tidelog.broker.runtime import Runtime

T = TypeVar("T")

TEST_SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
}
"""What differs from a broker's defaults: groups do not wait for further members, fewer files."""


SECURE_FOLDER: Final = "secure"
"""Name of the folder with what secures the cluster, beside the brokers' own."""


class Cluster:
    """A cluster. Use it in a `with` statement, or `start` and `stop` it.

    Methods may be called from any thread; they return when what they say has happened.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        brokers: int = 1,
        processes: bool = False,
        data: str | None = None,
        port: int = 0,
        of_broker: Mapping[int, Mapping[str, object]] | None = None,
        zookeeper: str | None = None,
        security: bool | Sequence[str] = False,
    ) -> None:
        """`brokers` of them, with ids 0, 1, ..., in this process, or with `processes` in one each.

        `settings` by Kafka's names; `of_broker` by broker's id, such as `{1: {"broker.rack": "b"}}`. `data` is the
        folder to use and keep, a temporary one if None; `port` is broker 0's, the others follow, 0: any free ones.
        `zookeeper` is the ensemble that has the metadata, `host:port,.../chroot`; None: a store of the cluster's own,
        or with TIDELOG_ZOOKEEPER in the environment a fresh chroot there.

        `security` names users: clients come by SASL_SSL with their passwords (`client`), the first may do everything,
        the others what ACLs allow; True: one user, admin.
        """
        self._users = [DEFAULT_USER] if security is True else list(security or ())
        self._secure: SecureFolder | None = None
        self._settings = {**TEST_SETTINGS, **_texts(settings or {})}
        self._of_broker = {broker_id: _texts(own) for broker_id, own in (of_broker or {}).items()}
        self._processes = processes
        self._keep = data is not None
        self.data = data or ""
        """The folder with everything in it, from `start` on."""
        self._zookeeper = zookeeper
        self._chroot = Chroot.of_environment() if zookeeper is None else None
        self._ports = tuple(port + broker_id if port else 0 for broker_id in range(brokers))
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: Stop | None = None
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._brokers: InProcessCluster | Supervisor | None = None

    # What it is.

    @property
    def bootstrap(self) -> str:
        """host:port of every broker, comma-separated, for `bootstrap.servers`; those that do not run are among them."""
        return ",".join(self._running().addresses.values())

    def client(self, user: str | None = None) -> dict[str, str]:
        """librdkafka's settings, complete, for `confluent_kafka` and the like; those of a user where users log in.

        Without `user` the first one's. ValueError where the cluster was not made with that user.
        """
        return {"bootstrap.servers": self.bootstrap, **(self._folder.client(self._named(user)) if self._users else {})}

    def client_properties(self, user: str | None = None) -> str:
        """The properties file of a user, for Java's clients and `--command-config`. ValueError as above."""
        return f"{self._folder.path}/clients/{self._named(user)}.properties"

    @property
    def certificate_authority(self) -> str:
        """The PEM file with what clients of a secured cluster trust, such as kafka-python's ssl_cafile."""
        return f"{self._folder.path}/ca.pem"

    @property
    def _folder(self) -> SecureFolder:
        if self._secure is None:
            raise ValueError("the cluster is open to all: make it with Cluster(security=[USER, ...])")
        return self._secure

    def _named(self, user: str | None) -> str:
        named = self._users[0] if self._users and user is None else user
        if named not in self._users:
            raise ValueError(f"the cluster was made without a user {user}: it has {', '.join(self._users) or 'none'}")
        assert named is not None
        return named

    def address(self, broker_id: int) -> str:
        """host:port of one broker, whether it runs or not."""
        return self._running().addresses[broker_id]

    @property
    def store(self) -> str:
        """host:port of the metadata store, which speaks ZooKeeper's protocol; of an ensemble all, and the chroot."""
        return self._running().store.address

    @property
    def is_running(self) -> bool:
        """Whether the cluster is there: started, not stopped, and not ended by a failure of its own."""
        return self._brokers is not None and self._thread is not None and self._thread.is_alive()

    def data_of(self, broker_id: int) -> str:
        """The folder of a broker's logs."""
        return self._running().plan.log_dir(broker_id)

    @property
    def runtime(self) -> Runtime:
        """Broker 0 itself. Its objects belong to the cluster's thread: look, don't touch; to touch, `call`."""
        return self.runtimes[0]

    @property
    def runtimes(self) -> Mapping[int, Runtime]:
        """The brokers that run in this process, by id; of these, too, everything belongs to the cluster's thread."""
        running = self._running()
        if not isinstance(running, InProcessCluster):
            raise RuntimeError("The brokers run in processes of their own: there is nothing of them here.")
        return running.runtimes

    # The whole cluster, or one of its brokers.

    def start(self, broker_id: int | None = None) -> None:
        """Starts the cluster, or one of its brokers that does not run: on the same port, with the same data.

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
        """Stops the cluster cleanly, or one broker of it, whose leaders move first (SIGTERM to a process).

        Raises what made the cluster fail meanwhile.
        """
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

    def restart(self, broker_id: int | None = None) -> None:
        """Starts the cluster again, or one broker, same ports, same data; stops it cleanly first if it runs."""
        if broker_id is not None:
            self.stop(broker_id)
            self.start(broker_id)
            return
        keep, self._keep = self._keep, True
        self._ports = tuple(int(address.rpartition(":")[2]) for address in self._running().addresses.values())
        try:
            self.stop()
        finally:
            self._keep = keep
        self.start()

    # Processes.

    def kill(self, broker_id: int) -> None:
        """SIGKILL: nothing is flushed, closed or handed over. It stays dead until `restart`.

        As in a real cluster here, the broker's session with the metadata store ends with it.
        """
        self._wait(self._supervisor().kill_broker(broker_id))

    def pause(self, broker_id: int) -> None:
        """SIGSTOP: the process hangs, connections stay open; after zookeeper.session.timeout.ms others take over."""
        self.call(self._supervisor().pause_broker, broker_id)

    def resume(self, broker_id: int) -> None:
        """SIGCONT: a paused process goes on."""
        self.call(self._supervisor().resume_broker, broker_id)

    def pid(self, broker_id: int) -> int:
        """Of a broker's process; RuntimeError where it does not run."""
        pid: int = self.call(self._supervisor().pid, broker_id)
        return pid

    def log_path(self, broker_id: int) -> str:
        """The file that a broker's process logs to."""
        return self._supervisor().log_path(broker_id)

    # For tests of tidelog itself.

    def call(self, function: Any, *arguments: Any) -> Any:
        """Runs `function(*arguments)` on the cluster's thread and returns its result."""

        async def run() -> Any:
            return function(*arguments)

        return self._wait(run())

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _running(self) -> InProcessCluster | Supervisor:
        if self._brokers is None:
            raise RuntimeError("The cluster is not running.")
        return self._brokers

    def _supervisor(self) -> Supervisor:
        running = self._running()
        if not isinstance(running, Supervisor):
            raise RuntimeError("The brokers run in this process: for processes of their own, Cluster(processes=True).")
        return running

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # The cluster's thread.

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
        zookeeper = self._zookeeper if self._chroot is None else self._chroot.address
        host, secured = self._secured()
        plan = Plan(self.data, self._ports, self._settings, self._of_broker, zookeeper, host=host, secured=secured)
        brokers: InProcessCluster | Supervisor
        if self._processes:
            brokers = Supervisor(plan, restart=False)
        else:
            brokers = InProcessCluster(plan)
        await brokers.start(store_port=0)
        self._brokers = brokers
        self._ready.set()
        try:
            reason = await self._stop.wait_for(brokers.failed())
        finally:
            await brokers.stop()
        if reason is not None:
            raise BrokerFailed(reason)

    def _secured(self) -> tuple[str, Mapping[str, str]]:
        """Where brokers listen, and what they have for it; made at the first start."""
        if not self._users:
            return HOST, {}
        path = f"{self.data}/{SECURE_FOLDER}"
        if os.path.exists(path):
            self._secure = SecureFolder.read(path)
        else:
            self._secure = make(path, [HOST], self._users)
        return self._secure.here()

    def _stop_soon(self) -> None:
        assert self._stop is not None
        self._stop.ask(whole_cluster=True)

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _remove_data(self) -> None:
        if not self._keep:
            shutil.rmtree(self.data, ignore_errors=True)
            self.data = ""
            if self._chroot is not None:
                self._chroot.remove()


def _texts(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings as a properties file writes them."""
    return {name: _text(value) for name, value in settings.items()}


def _text(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
