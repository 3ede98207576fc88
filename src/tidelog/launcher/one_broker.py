"""One broker, as a properties file describes it: what `tidelog broker` runs, and each process of a cluster is.

With zookeeper.connect it joins the cluster whose store is there; without, it is a cluster of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from tidelog.broker.failure import BrokerFailed
from tidelog.broker.runtime import Runtime
from tidelog.launcher.ensemble import join
from tidelog.launcher.foreground import Stop, first_failure, log_warnings, settle_memory
from tidelog.launcher.kept_modules import keep_modules
from tidelog.ports.real import SystemClock, SystemDisk, SystemNetwork, SystemRandom

if TYPE_CHECKING:
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.launcher.metadata_store import MetadataStore
    from tidelog.store.client import SessionKey, StoreClient

OWN_STORE_FOLDER: Final = ".store"
"""Name of the store's directory in the first log directory: no topic can be called so."""


async def serve(
    config: BrokerConfig,
    stop: Stop,
    on_ready: Callable[[Runtime], object],
    on_session: Callable[[SessionKey], object] | None = None,
) -> None:
    """Runs the broker until it is asked to stop; calls `on_ready` when clients can connect. BrokerFailed.

    `on_session` is told the key of each session with the store of a cluster that the broker joins.
    """
    log_warnings(config)
    if config.zookeeper_connect:
        connect = config.zookeeper_connect
        await _serve(config, lambda: join(connect, config, on_session), stop, on_ready)
        return
    # With SQLite, it takes two megabytes, and a broker that joins a cluster has no store.
    from tidelog.launcher.metadata_store import MetadataStore

    store = MetadataStore(
        f"{config.log_dirs[0].rstrip('/')}/{OWN_STORE_FOLDER}",
        clock=SystemClock(),
        random=SystemRandom(),
        disk=SystemDisk(),
        network=SystemNetwork(),
    )
    try:
        await _serve(config, lambda: store.session(config), stop, on_ready, store)
    finally:
        await store.close()


async def _serve(
    config: BrokerConfig,
    connect_store: Callable[[], Awaitable[StoreClient]],
    stop: Stop,
    on_ready: Callable[[Runtime], object],
    own_store: MetadataStore | None = None,
) -> None:
    runtime = Runtime(
        config,
        connect_store,
        clock=SystemClock(),
        random=SystemRandom(),
        disk=SystemDisk(),
        network=SystemNetwork(),
    )
    hand_over = False
    try:
        await stop.wait_for(runtime.start())
        if stop.asked:
            return
        keep_modules()
        settle_memory()
        on_ready(runtime)
        failures = [runtime.failed()] if own_store is None else [runtime.failed(), own_store.failed()]
        reason = await stop.wait_for(first_failure(*failures))
        # Where the whole cluster stops no broker is left to take over, and one that failed has nothing to give.
        hand_over = reason is None and not stop.whole_cluster
    finally:
        await runtime.stop(hand_over=hand_over)
    if reason is not None:
        raise BrokerFailed(reason)
