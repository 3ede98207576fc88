"""A cluster in this process: brokers in one event loop, with one store among them.

Such a cluster is ready in a blink and easy to look into; what its brokers share is this process's one core, and its
end. `tidelog start` of one broker is one of these, and so are the clusters of `tidelog.testing` unless told otherwise.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tidelog.broker.failure import BrokerFailed, start_unless
from tidelog.broker.runtime import Runtime
from tidelog.config.broker_config import BrokerConfig
from tidelog.launcher.cluster_store import cluster_store
from tidelog.launcher.foreground import first_failure, run_all
from tidelog.launcher.last_life import end_last_life
from tidelog.launcher.plan import Plan
from tidelog.launcher.ports import ReservedPort
from tidelog.model.identifiers import BrokerId
from tidelog.ports.real import SystemClock, SystemDisk, SystemNetwork, SystemRandom

if TYPE_CHECKING:
    from tidelog.store.client import StoreClient

logger: Final = logging.getLogger(__name__)

READY_S_MAX: Final = 60.0
"""Seconds until every broker must know of every other."""
LOOK_INTERVAL_S: Final = 0.002
"""Between two looks at which brokers know each other; memory is looked at, nothing else."""


class InProcessCluster:
    """The brokers of a plan in the running loop. `start`, wait for `failed` or whatever else there is, `stop`."""

    def __init__(self, plan: Plan) -> None:
        """ConfigError for settings that cannot be; nothing is touched yet."""
        plan.check()
        self.plan = plan
        self._clock, self._random = SystemClock(), SystemRandom()
        self._disk, self._network = SystemDisk(), SystemNetwork()
        # Settings are judged here, before anything is opened.
        self._configs = {id: self._config(id, plan.port(id)) for id in plan.ids}
        self._ports: dict[int, ReservedPort] = {}
        self._watchers: dict[int, asyncio.Task[None]] = {}
        self._failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.store = cluster_store(plan, self._clock, self._random, self._disk, self._network, beside_brokers=True)
        self._store_is_open = False
        self._store_port: int | None = None
        self._opening = asyncio.Lock()
        self.runtimes: dict[int, Runtime] = {}
        """The brokers that run, by id."""
        self._addresses: dict[int, str] = {}

    def _config(self, broker_id: int, port: int) -> BrokerConfig:
        return BrokerConfig.from_mapping(self.plan.settings_of(broker_id, port))

    @property
    def configs(self) -> dict[int, BrokerConfig]:
        """Each broker's settings as they were at the start."""
        return self._configs

    @property
    def addresses(self) -> dict[int, str]:
        """host:port of each broker, by id, whether it runs or not."""
        return dict(sorted(self._addresses.items()))

    @property
    def metrics_addresses(self) -> list[str]:
        """host:port of each running broker's metrics, of those that serve any, by id."""
        runtimes = [runtime for _, runtime in sorted(self.runtimes.items())]
        return [runtime.metrics_address for runtime in runtimes if runtime.metrics_address is not None]

    async def start(self, *, store_port: int | None = None) -> None:
        """Returns when clients can connect to all brokers. BrokerFailed; nothing is left running then.

        `store_port` is where the store is served: 0 any, None ZooKeeper's if it is free.
        """
        try:
            if self.plan.brokers > 1:
                for broker_id in self.plan.ids:
                    advice = f"--port, of the first of {self.plan.brokers} brokers"
                    self._ports[broker_id] = ReservedPort(self.plan.host, self.plan.port(broker_id), advice)
            self._store_port = store_port
            await run_all(self._start(broker_id) for broker_id in self.plan.ids)
            await self._known(self.plan.ids)
        except BaseException:
            await self.stop()
            raise

    async def start_broker(self, broker_id: int) -> None:
        """Starts a broker that was stopped: same port, same data. Returns when clients can connect. BrokerFailed."""
        self.plan.require(broker_id)
        if broker_id not in self.runtimes:
            await self._start(broker_id)
            await self._known([broker_id])

    async def stop_broker(self, broker_id: int) -> None:
        """Stops one broker cleanly: what it leads is led by others first. Nothing happens to one that does not run."""
        self.plan.require(broker_id)
        runtime = self.runtimes.pop(broker_id, None)
        if runtime is not None:
            self._watchers.pop(broker_id).cancel()
            await runtime.stop()

    async def failed(self) -> str:
        """Returns when a broker or the store cannot go on, with the reason."""
        return await first_failure(_outcome(self._failed), self.store.failed())

    async def stop(self) -> None:
        """Stops all brokers cleanly, without handing over what they lead: no broker will be there. Idempotent."""
        try:
            for watcher in self._watchers.values():
                watcher.cancel()
            runtimes, self.runtimes = list(self.runtimes.values()), {}
            await asyncio.gather(*(runtime.stop(hand_over=False) for runtime in runtimes))
        finally:
            await self.store.close()
            for port in self._ports.values():
                port.close()
            self._ports.clear()

    async def _start(self, broker_id: int) -> None:
        held = self._ports.get(broker_id)
        if held is not None or broker_id in self._addresses:
            # With the port that is ours; a new object too, for the old one has the changes that its broker made before.
            port = held.number if held is not None else port_of(self._addresses[broker_id])
            self._configs[broker_id] = self._config(broker_id, port)
        runtime = Runtime(
            self._configs[broker_id],
            functools.partial(self._session, broker_id),
            clock=self._clock,
            random=self._random,
            disk=self._disk,
            network=self._network,
            brokers_here=self.plan.brokers,
        )
        await start_unless(self.store.failed(), runtime.start())
        self.runtimes[broker_id] = runtime
        address = runtime.addresses[0]
        # As certificates name it.
        self._addresses[broker_id] = f"{self.plan.host}:{port_of(address)}" if self.plan.secured else address
        self._watchers[broker_id] = asyncio.get_running_loop().create_task(self._watch(broker_id, runtime))

    async def _session(self, broker_id: int) -> StoreClient:
        """A session with the store; the first one opens it: brokers look for their ports before they touch a disk."""
        async with self._opening:
            if not self._store_is_open:
                self.store.open()
                await end_last_life(self._configs, self.plan.data, self.store, self._disk)
                # Before a broker registers: the controller may be one that joined this cluster, and comes back now.
                await self.store.serve(self._store_port)
                self._store_is_open = True
        return await self.store.session(self._configs[broker_id])

    async def _watch(self, broker_id: int, runtime: Runtime) -> None:
        reason = await runtime.failed()
        if self.plan.brokers == 1:
            self._failed.set_result(reason)
            return
        # The others go on, as they would if each had a process of its own.
        logger.error("broker %d: %s", broker_id, reason)
        del self.runtimes[broker_id], self._watchers[broker_id]
        await runtime.stop(hand_over=False)

    async def _known(self, broker_ids: Iterable[int]) -> None:
        """Waits until every broker that runs knows of these: then any of them gives a client the same answer."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + READY_S_MAX
        for runtime in list(self.runtimes.values()):
            while not all(runtime.node.metadata.image.is_live(BrokerId(broker_id)) for broker_id in broker_ids):
                if loop.time() > deadline:
                    raise BrokerFailed(f"the brokers have not heard of each other within {READY_S_MAX:g} s")
                await asyncio.sleep(LOOK_INTERVAL_S)


def port_of(address: str) -> int:
    """The port of host:port."""
    return int(address.rpartition(":")[2])


async def _outcome(future: asyncio.Future[str]) -> str:
    return await asyncio.shield(future)
