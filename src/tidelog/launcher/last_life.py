"""What a cluster leaves behind when it was not stopped cleanly: processes that end, sessions that are still open.

Brokers whose supervisor was killed stop by themselves, but not before it is started again by what watches it. Their
directories are locked while they last; and what they leave in the store are sessions that no process uses any more.

A cluster that is started again may have fewer brokers. Those that are missing have left their directories beside the
others' and their sessions too; one of them may have been the controller, which nobody replaces before its session ends.
A broker that joined, and lives, keeps its directory locked, and its session.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from typing import Final

from tidelog.broker.failure import BrokerFailed
from tidelog.config.broker_config import BrokerConfig
from tidelog.launcher.metadata_store import ClusterStore
from tidelog.ports.disk import Disk
from tidelog.storage.file_names import LOCK

logger: Final = logging.getLogger(__name__)
_LOG_DIR: Final = re.compile(r"broker-(0|[1-9]\d*)")

LAST_LIFE_S_MAX: Final = 30.0
"""Seconds that brokers of a cluster that did not stop by itself have to end, before new ones take their place."""
ABSENT_S_MAX: Final = 0.5
"""Seconds that brokers which are not to be started again have to end: one that lives longer has joined, and stays."""
LOOK_INTERVAL_S: Final = 0.01
"""Between two looks at a lock, whose release sends no event."""


async def end_last_life(configs: Mapping[int, BrokerConfig], data: str, store: ClusterStore, disk: Disk) -> None:
    """Waits until no process uses the brokers' directories, then ends the sessions that are left of these brokers.

    `configs` by broker's id; `data` is the cluster's folder. The store is open and not served yet, so that none of
    them can begin a session. BrokerFailed when a process goes on using a directory.
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
    absent = {broker_id: path for broker_id, path in _log_dirs(data, disk).items() if broker_id not in configs}
    deadline = loop.time() + ABSENT_S_MAX
    for broker_id, log_dir in absent.items():
        while not await _end_absent(broker_id, log_dir, store, disk):
            if loop.time() > deadline:
                break
            await asyncio.sleep(LOOK_INTERVAL_S)


def _log_dirs(data: str, disk: Disk) -> dict[int, str]:
    """[broker id] -> log directory, of those in the cluster's folder that a broker has used."""
    try:
        names = disk.list(data)
    except OSError:
        return {}
    found = {int(name.removeprefix("broker-")): f"{data}/{name}" for name in names if _LOG_DIR.fullmatch(name)}
    return {broker_id: log_dir for broker_id, log_dir in found.items() if disk.exists(f"{log_dir}/{LOCK}")}


async def _end_absent(broker_id: int, log_dir: str, store: ClusterStore, disk: Disk) -> bool:
    """Ends the session of a broker that does not run any more; false where it does."""
    try:
        lock = disk.lock(f"{log_dir}/{LOCK}")
    except BlockingIOError:
        return False
    except OSError as error:
        logger.warning("session_left_to_its_timeout: broker=%d log_dir=%s error=%s", broker_id, log_dir, error)
        return True
    try:
        # It cannot be started meanwhile.
        await store.end_broker_session(broker_id)
    finally:
        lock.release()
    return True


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
