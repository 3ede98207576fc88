"""The supervisor: the owner of a cluster's metadata store, and of the processes of its brokers.

    supervisor --- store (SQLite), served on loopback in ZooKeeper's protocol; or an ensemble elsewhere
        |                 |          |          |
        +-- exec --> broker 0   broker 1   broker 2        each with a session, a log, a properties file

When a broker's process ends, its session with the store is ended at once, instead of after its timeout: what
it led is led by others as soon as the controller can write. Then it is started again, after a delay that grows as long
as it keeps ending. When the supervisor ends, however it does, the brokers' pipes end, and so do they.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from dataclasses import dataclass, field
from typing import Final

from tidelog.broker.descriptors import allot, raise_file_limit
from tidelog.broker.failure import BrokerFailed, disk_refused
from tidelog.client.addresses import Address
from tidelog.client.connection import Connection
from tidelog.client.errors import ClientError
from tidelog.client.security import ClientSecurity
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.properties import render
from tidelog.launcher.broker_process import BrokerProcess
from tidelog.launcher.cluster_store import cluster_store
from tidelog.launcher.foreground import run_all
from tidelog.launcher.last_life import end_last_life
from tidelog.launcher.plan import Plan
from tidelog.launcher.ports import ReservedPort
from tidelog.ports.disk import make_durable_directories
from tidelog.ports.real import SystemClock, SystemDisk, SystemNetwork, SystemRandom
from tidelog.protocol import messages
from tidelog.store.errors import StoreError

logger: Final = logging.getLogger(__name__)

READY_S_MAX: Final = 120.0
"""Seconds until a broker must be ready: it may have to recover its logs."""
STOP_S_MAX: Final = 60.0
"""Seconds that a broker has to stop cleanly, before it is killed."""
RESTART_DELAY_S_MIN: Final = 0.1
RESTART_DELAY_S_MAX: Final = 10.0
"""Before a broker that ended is started again; doubled each time it ends before it has lived for STEADY_S."""
STEADY_S: Final = 30.0
KNOWN_S_MAX: Final = 60.0
"""Seconds until every broker must know of every other."""
DEATHS_KEPT: Final = 100
LOOK_INTERVAL_S: Final = 0.01
"""Between two looks at what sends no event."""

HEADER: Final = """\
# Broker {id} of the cluster in {data}, written by `tidelog start` at each start.
# For one more broker, copy this file, give it another broker.id, listeners and log.dirs, and start it with
# `tidelog broker FILE`.
"""


@dataclass(slots=True)
class _Broker:
    """A broker's place, whether a process fills it or not."""

    id: int
    port: ReservedPort
    broker_port: ReservedPort | None = None
    """Where other brokers come, if they have a listener of their own."""
    process: BrokerProcess | None = None
    """From the start of one until its end is settled."""
    wanted: bool = False
    """Whether it should run: a process that ends then did so by itself."""
    delay_s: float = RESTART_DELAY_S_MIN
    """Before it is started again when it ends the next time."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while no process runs and nothing of it is left in the store."""
    watch: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self.settled.set()


class Supervisor:
    """The processes of a plan. `start`, wait for `failed` or whatever else there is, `stop`."""

    def __init__(self, plan: Plan, *, restart: bool = True, log_level: str = "info") -> None:
        """`restart`: start brokers again that ended by themselves. ConfigError for settings that cannot be."""
        plan.check()
        self.plan = plan
        self._configs = {id: BrokerConfig.from_mapping(plan.settings_of(id, plan.port(id))) for id in plan.ids}
        self._as_broker = (
            ClientSecurity.from_properties({"security.protocol": "SSL", **plan.secured}) if plan.secured else None
        )
        self._loop = asyncio.get_running_loop()
        self._restart = restart
        self._log_level = log_level
        self._brokers: dict[int, _Broker] = {}
        self._started = False
        self._disk = SystemDisk()
        self.store = cluster_store(plan, SystemClock(), SystemRandom(), self._disk, SystemNetwork())
        self.deaths: list[str] = []
        """What is known of each broker that ended by itself, in the order of their ends; the last DEATHS_KEPT."""

    @property
    def addresses(self) -> dict[int, str]:
        """host:port of each broker, by id, whether it runs or not."""
        return {broker_id: f"{self.plan.host}:{broker.port.number}" for broker_id, broker in self._brokers.items()}

    @property
    def metrics_addresses(self) -> list[str]:
        """host:port of each running broker's metrics, of those that serve any, by id."""
        processes = [broker.process for broker in self._brokers.values() if broker.process is not None]
        return [process.metrics_address for process in processes if process.metrics_address is not None]

    def log_path(self, broker_id: int) -> str:
        """The file that a broker logs to."""
        return f"{self.plan.data}/broker-{broker_id}.log"

    def pid(self, broker_id: int) -> int:
        """Of a broker's running process; RuntimeError where there is none."""
        return self._process(broker_id).pid

    async def start(self, *, store_port: int | None = None) -> None:
        """Returns when clients can connect to all brokers. BrokerFailed; nothing is left running then."""
        # The brokers have the same limit: one that is too low is found before anything is touched.
        allot(raise_file_limit())
        try:
            make_durable_directories(self._disk, self.plan.data)
            self.store.open()
            await end_last_life(self._configs, self.plan.data, self.store, self._disk)
            for broker_id in self.plan.ids:
                advice = f"--port, of the first of {self.plan.brokers} brokers"
                place = self._brokers[broker_id] = _Broker(
                    broker_id, ReservedPort(self.plan.host, self.plan.port(broker_id), advice)
                )
                if self.plan.secured:
                    place.broker_port = ReservedPort(self.plan.host, 0, advice)
            await self.store.serve(store_port)
            for broker in self._brokers.values():
                self._launch(broker)
            await run_all(self._ready(broker) for broker in self._brokers.values())
            await asyncio.wait_for(run_all(map(self._knows_all, self._brokers.values())), KNOWN_S_MAX)
            self._started = True
        except BaseException as error:
            await self.stop()
            match error:
                case TimeoutError():
                    raise BrokerFailed(f"the brokers have not heard of each other within {KNOWN_S_MAX:g} s") from error
                case OSError():
                    raise BrokerFailed(disk_refused(error)) from error
                case ClientError():
                    raise BrokerFailed(f"a broker is ready and does not answer: {error}") from error
                case _:
                    raise

    async def stop(self) -> None:
        """Stops all brokers cleanly, without handing over what they lead: no broker will be there. Idempotent."""
        try:
            for broker in self._brokers.values():
                broker.wanted = False
                if broker.process is not None:
                    broker.process.stop_with_cluster()
            await asyncio.gather(*(self._settle(broker) for broker in self._brokers.values()))
        finally:
            await self.store.close()
            for broker in self._brokers.values():
                broker.port.close()
                if broker.broker_port is not None:
                    broker.broker_port.close()
            self._brokers.clear()

    async def failed(self) -> str:
        """Returns when the store, and with it the cluster, cannot go on, with the reason."""
        return await self.store.failed()

    # Single brokers, for tests.

    async def start_broker(self, broker_id: int) -> None:
        """Starts a broker that does not run: same port, same data. Returns when clients can connect. BrokerFailed."""
        broker = self._known(broker_id)
        if broker.process is None:
            self._launch(broker)
        await self._ready(broker)

    async def stop_broker(self, broker_id: int) -> None:
        """SIGTERM: a clean stop, what it leads is led by others first. Nothing happens to one that does not run."""
        await self._end(broker_id, signal.SIGTERM)

    async def kill_broker(self, broker_id: int) -> None:
        """SIGKILL; returns when the process and its session with the store have ended. It stays dead."""
        await self._end(broker_id, signal.SIGKILL)

    def pause_broker(self, broker_id: int) -> None:
        """SIGSTOP: the process hangs, until it is resumed."""
        self._process(broker_id).send(signal.SIGSTOP)

    def resume_broker(self, broker_id: int) -> None:
        """SIGCONT: the process goes on."""
        self._process(broker_id).send(signal.SIGCONT)

    async def _end(self, broker_id: int, number: signal.Signals) -> None:
        broker = self._known(broker_id)
        broker.wanted = False
        if broker.process is not None:
            broker.process.send(number)
            # One that is paused would not notice.
            broker.process.send(signal.SIGCONT)
        await self._settle(broker)

    def _known(self, broker_id: int) -> _Broker:
        self.plan.require(broker_id)
        return self._brokers[broker_id]

    def _process(self, broker_id: int) -> BrokerProcess:
        process = self._known(broker_id).process
        if process is None:
            raise RuntimeError(f"broker {broker_id} does not run")
        return process

    # A broker's process: start, end, and again.

    def _launch(self, broker: _Broker) -> None:
        """Starts a process in a broker's place. OSError."""
        broker_port = 0 if broker.broker_port is None else broker.broker_port.number
        settings = self.plan.settings_of(broker.id, broker.port.number, broker_port)
        settings["zookeeper.connect"] = self.store.address
        properties = f"{self.plan.data}/broker-{broker.id}.properties"
        with open(properties, "w", encoding="utf-8") as file:
            if self.plan.secured:
                # Before there is a key in it.
                os.fchmod(file.fileno(), 0o600)
            file.write(HEADER.format(id=broker.id, data=self.plan.data) + render(settings))
        broker.process = BrokerProcess(properties, self.log_path(broker.id), self._log_level)
        broker.wanted = True
        broker.settled.clear()
        broker.watch = self._loop.create_task(self._watch(broker, broker.process))

    async def _watch(self, broker: _Broker, process: BrokerProcess) -> None:
        """Waits for the end of a process, tells the store, and starts another one where that is wanted."""
        began = self._loop.time()
        await asyncio.shield(process.exited)
        # A store that failed ends everything; there is nothing to add here.
        with contextlib.suppress(StoreError):
            await self.store.end_broker_session(broker.id, process.session)
        broker.process = None
        broker.settled.set()
        if not broker.wanted or not self._started:
            return
        reason = f"broker {broker.id} {process.ending}"
        self.deaths.append(reason)
        del self.deaths[:-DEATHS_KEPT]
        if not self._restart:
            logger.error("%s", reason)
            return
        if self._loop.time() - began >= STEADY_S:
            broker.delay_s = RESTART_DELAY_S_MIN
        while _is_missing(broker):
            logger.error("%s; it is started again in %g s", reason, broker.delay_s)
            await asyncio.sleep(broker.delay_s)
            broker.delay_s = min(broker.delay_s * 2, RESTART_DELAY_S_MAX)
            if _is_missing(broker):
                try:
                    self._launch(broker)
                except OSError as error:
                    reason = f"broker {broker.id} cannot be started: {error}"

    async def _settle(self, broker: _Broker) -> None:
        """Waits until a broker that was told to end has ended; one that does not is killed."""
        try:
            await asyncio.wait_for(broker.settled.wait(), STOP_S_MAX)
        except TimeoutError:
            logger.error("broker %d did not stop within %g s: it is killed", broker.id, STOP_S_MAX)
            if broker.process is not None:
                broker.process.send(signal.SIGKILL)
            await broker.settled.wait()
        if broker.watch is not None:
            # It may be waiting to start the broker again.
            broker.watch.cancel()
            await asyncio.gather(broker.watch, return_exceptions=True)

    async def _ready(self, broker: _Broker) -> None:
        assert broker.process is not None
        try:
            await asyncio.wait_for(broker.process.ready(), READY_S_MAX)
        except BrokerFailed as error:
            raise BrokerFailed(f"broker {broker.id}: {error}") from error
        except TimeoutError:
            raise BrokerFailed(
                f"broker {broker.id} was not ready within {READY_S_MAX:g} s: see {self.log_path(broker.id)}"
            ) from None

    async def _knows_all(self, broker: _Broker) -> None:
        """Waits until a broker names all brokers: then any of them gives a client the same answer."""
        # What is secured is asked as a broker would: no user's password is known here.
        port = broker.port if broker.broker_port is None else broker.broker_port
        connection = await Connection.connect(
            Address(self.plan.host, port.number), client_id="tidelog-start", security=self._as_broker
        )
        try:
            while True:
                answer = await connection.request(messages.MetadataRequest(topics=[]))
                if {each.node_id for each in answer.brokers}.issuperset(self.plan.ids):
                    return
                await asyncio.sleep(LOOK_INTERVAL_S)
        finally:
            connection.close()


def _is_missing(broker: _Broker) -> bool:
    return broker.wanted and broker.process is None
