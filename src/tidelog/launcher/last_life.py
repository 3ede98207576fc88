"""What a cluster leaves behind when it was not stopped cleanly: processes that end, sessions that are still open.

Brokers whose supervisor was killed stop by themselves, but not before it is started again by what watches it. Their
directories are locked while they last; and what they leave in the store are sessions that no process uses any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from tidelog.broker.failure import BrokerFailed
from tidelog.config.broker_config import BrokerConfig
from tidelog.launcher.metadata_store import ClusterStore
from tidelog.ports.disk import Disk
from tidelog.storage.file_names import LOCK

LAST_LIFE_S_MAX: Final = 30.0
"""Seconds that brokers of a cluster that did not stop by itself have to end, before new ones take their place."""
LOOK_INTERVAL_S: Final = 0.01
"""Between two looks at a lock, whose release sends no event."""


async def end_last_life(configs: Mapping[int, BrokerConfig], store: ClusterStore, disk: Disk) -> None:
    """Waits until no process uses the brokers' directories, then ends the sessions that are left of these brokers.

    `configs` by broker's id; the store is open and not served yet, so that none of them can begin a session.
    BrokerFailed when a process goes on using a directory.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + LAST_LIFE_S_MAX
    for broker_id, config in configs.items():
        for log_dir in config.log_dirs:
            while _is_used(log_dir, disk):
                if loop.time() > deadline:
                    raise BrokerFailed(f"{log_dir} is used by another running broker: stop that one first")
                await asyncio.sleep(LOOK_INTERVAL_S)
        await store.end_broker_session(broker_id)


def _is_used(log_dir: str, disk: Disk) -> bool:
    """Whether a process has locked a log directory."""
    try:
        disk.lock(f"{log_dir}/{LOCK}").release()
    except BlockingIOError:
        return True
    except OSError:
        # It is not there yet, or cannot be used: its broker says so in better words.
        return False
    return False
