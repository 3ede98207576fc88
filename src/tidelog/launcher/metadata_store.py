"""The metadata store of a cluster on this machine: opened where the cluster is started, and served on loopback.

`ClusterStore` is what such a cluster needs of its store, whether that is this one or an ensemble (`launcher.ensemble`).

A store that was moved to an ensemble (`tidelog store move`) stays open, to say where it is now: its server relays there
for clients that know no other address yet, and a broker that is started from now on is told the new one.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import TYPE_CHECKING, Final, Protocol

from tidelog.broker.descriptors import raise_file_limit, store_connections
from tidelog.broker.failure import BrokerFailed, disk_refused
from tidelog.launcher.ensemble import Ensemble, join
from tidelog.launcher.plan import HOST
from tidelog.metadata.znodes import broker_path
from tidelog.model.identifiers import BrokerId
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.errors import StoreCorrupt, StoreLocked
from tidelog.store.local import LocalStore
from tidelog.store.moving import moved_elsewhere
from tidelog.store.sqlite import SqlitePersistence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.config.broker_config import BrokerConfig
    from tidelog.ports.clock import Clock
    from tidelog.ports.disk import Disk
    from tidelog.ports.network import Network
    from tidelog.ports.random import Random
    from tidelog.store.client import SessionKey, StoreClient
    from tidelog.store.server import StoreServer

logger: Final = logging.getLogger(__name__)

DEFAULT_STORE_PORT: Final = 2181
"""ZooKeeper's, which is what its tools try."""


class ClusterStore(Protocol):
    """The store of a cluster on this machine, as what runs its brokers sees it."""

    @property
    def address(self) -> str:
        """What brokers get as zookeeper.connect; empty where the store is not served."""
        ...

    def open(self) -> None:
        """Before anything else; may block. Idempotent. BrokerFailed."""
        ...

    async def serve(self, port: int | None) -> None:
        """Lets others connect; see `MetadataStore.serve`. BrokerFailed."""
        ...

    async def session(self, config: BrokerConfig) -> StoreClient:
        """A session of this process, for a broker with those settings. StoreError, BrokerFailed."""
        ...

    async def end_broker_session(self, broker_id: int, key: SessionKey | None = None) -> None:
        """Ends the session of a broker that is known to be dead; `key` is the one it told. StoreError."""
        ...

    async def failed(self) -> str:
        """Returns when the store is of no more use, with the reason."""
        ...

    async def close(self) -> None:
        """Idempotent."""
        ...


class MetadataStore:
    """The embedded store in one directory; nothing is touched before `open`."""

    def __init__(
        self,
        directory: str,
        *,
        clock: Clock,
        random: Random,
        disk: Disk,
        network: Network,
        beside_brokers: bool = False,
    ) -> None:
        """`beside_brokers`: in the process of brokers, which need most of its descriptors."""
        self._beside_brokers = beside_brokers
        self._clock = clock
        self._network = network
        self._server: StoreServer | None = None
        self._failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.embedded = EmbeddedStore(
            SqlitePersistence(directory, disk),
            clock,
            random,
            lambda failure: self._failed.set_result(f"the metadata store failed: {failure}"),
        )
        """The tree and its sessions."""
        self._served = ""

    @property
    def address(self) -> str:
        """host:port where it is served, empty where it is not; or where it has moved to, as zookeeper.connect."""
        moved = moved_elsewhere(self.embedded.tree)
        return self._served if moved is None else moved.connect

    async def failed(self) -> str:
        """Returns when the store is of no more use, with the reason."""
        return await asyncio.shield(self._failed)

    def open(self) -> None:
        """Loads the tree; may block. Idempotent. BrokerFailed."""
        if self.embedded.started:
            return
        try:
            self.embedded.start()
            moved = moved_elsewhere(self.embedded.tree)
        except (StoreCorrupt, StoreLocked, ValueError) as error:
            raise BrokerFailed(str(error)) from error
        except OSError as error:
            raise BrokerFailed(disk_refused(error)) from error
        if moved is not None:
            logger.warning("this cluster's metadata has moved to %s", moved.connect)

    async def session(self, config: BrokerConfig) -> StoreClient:
        """A session of this process; opens the store if it is not yet: brokers look for their ports first."""
        self.open()
        moved = moved_elsewhere(self.embedded.tree)
        if moved is None:
            return await LocalStore.connect(self.embedded)
        from tidelog.store.transfer import open_for_brokers

        await open_for_brokers(moved)
        return await join(moved.connect, config)

    async def serve(self, port: int | None) -> None:
        """Serves the open store in ZooKeeper's protocol; `port` None: ZooKeeper's if it is free, else any; 0: any.

        BrokerFailed when `port` is taken.
        """
        from tidelog.store.server import StoreServer

        connections_max = store_connections(raise_file_limit(), beside_brokers=self._beside_brokers)
        self._server = StoreServer(self.embedded, self._clock, connections_max)
        candidates: Iterable[int] = (DEFAULT_STORE_PORT, 0) if port is None else (port,)
        for candidate in candidates:
            try:
                host, bound = await self._server.start(self._network, HOST, candidate)
            except OSError as error:
                if port is None and candidate and error.errno == errno.EADDRINUSE:
                    continue
                place = f"the metadata store cannot be served on {HOST}:{candidate}"
                if error.errno == errno.EADDRINUSE:
                    raise BrokerFailed(
                        f"{place}: something listens there; stop that, or choose another port (--store-port)"
                    ) from error
                raise BrokerFailed(f"{place}: {error.strerror or error}") from error
            self._served = f"{host}:{bound}"
            return

    async def end_broker_session(self, broker_id: int, key: SessionKey | None = None) -> None:
        """Ends the session of a broker that is known to be dead, so that the cluster need not wait for it to time out.

        Whichever session that is: no other supervisor uses this store. The supervisor does so when a process has
        ended, and, before it starts, for what a cluster that was not stopped cleanly left behind.
        """
        moved = moved_elsewhere(self.embedded.tree)
        if moved is None:
            await self.embedded.end_sessions_of(broker_path(BrokerId(broker_id)))
        else:
            await Ensemble(moved.connect).end_broker_session(broker_id, key)

    async def close(self) -> None:
        """Idempotent."""
        if self._server is not None:
            await self._server.close()
        await self.embedded.close()
