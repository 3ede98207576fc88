"""The metadata store of a cluster on this machine, where that is a ZooKeeper ensemble that others run.

Nothing is opened or served then. What is left to do is to join it, and to end the session of a broker whose process has
ended: a session can be taken over by a client that knows its password, which each broker tells the process that started
it; and closing it ends that session and no other, even if another broker is registered by then.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from tidelog.store.errors import StoreError
from tidelog.store.security import OPEN, security_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.config.broker_config import BrokerConfig
    from tidelog.store.client import SessionKey, StoreClient
    from tidelog.store.security import StoreSecurity

logger: Final = logging.getLogger(__name__)

END_SESSION_MS_MAX: Final = 3_000
"""For the end of a dead broker's session to reach the ensemble; after that, the session is left to its timeout."""


async def join(
    address: str, config: BrokerConfig, on_session: Callable[[SessionKey], object] | None = None
) -> StoreClient:
    """A session with the store at `address`, with a broker's timeouts; `on_session` is told its key. StoreError."""
    # kazoo takes a while to load: it is loaded where it is needed.
    from tidelog.store.zookeeper import ZooKeeperStore

    store = await ZooKeeperStore.connect(
        address,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        connection_timeout_ms=config.zookeeper_connection_timeout_ms,
        security=security_of(config),
    )
    if on_session is not None:
        on_session(store.key)
    return store


class Ensemble:
    """A `ClusterStore`: the ensemble at `address`, host:port, ... with an optional chroot."""

    def __init__(self, address: str, security: StoreSecurity = OPEN) -> None:
        """`security` is what the sessions of dead brokers are ended with; those of brokers have their own."""
        self.address = address
        self._security = security

    def open(self) -> None:
        """There is nothing to open."""

    async def serve(self, port: int | None) -> None:
        """Others do."""

    async def session(self, config: BrokerConfig) -> StoreClient:
        """A session of this process. StoreError."""
        return await join(self.address, config)

    async def end_broker_session(self, broker_id: int, key: SessionKey | None = None) -> None:
        """Ends the session that the broker had; where that cannot be done, says that its timeout will.

        Without a key nothing is done: a registered broker may live somewhere else. What the last life of a whole
        cluster left behind, a registering broker waits for.
        """
        if key is None:
            return
        from tidelog.store.zookeeper import end_session

        try:
            await end_session(self.address, key, END_SESSION_MS_MAX, self._security)
        except StoreError as error:
            logger.warning(
                "the session of broker %d, which has ended, is left to its timeout: others lead what it led only then "
                "(%s)",
                broker_id,
                error,
            )

    async def failed(self) -> str:
        """Never returns: brokers serve on without their store, until it is back."""
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never

    async def close(self) -> None:
        """It is not ours to close."""
