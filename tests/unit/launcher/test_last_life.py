"""What a killed cluster leaves behind is waited for, and cleared away."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import uvloop

from tidelog.broker.failure import BrokerFailed
from tidelog.config.broker_config import BrokerConfig
from tidelog.launcher import last_life
from tidelog.launcher.last_life import end_last_life
from tidelog.launcher.metadata_store import MetadataStore
from tidelog.metadata.operations import Create
from tidelog.ports.real import SystemClock, SystemDisk, SystemNetwork, SystemRandom
from tidelog.storage.file_names import LOCK


def a_store(folder: Path) -> MetadataStore:
    disk, network = SystemDisk(), SystemNetwork()
    return MetadataStore(str(folder), clock=SystemClock(), random=SystemRandom(), disk=disk, network=network)


def config(log_dir: Path) -> BrokerConfig:
    return BrokerConfig.from_mapping({"log.dirs": str(log_dir)})


def test_directories_in_use_are_waited_for(tmp_path: Path) -> None:
    """Until the last one is given back; those that are not there yet keep nobody waiting."""

    async def main() -> bool:
        store = a_store(tmp_path / "store")
        store.open()
        (tmp_path / "b").mkdir()
        held = SystemDisk().lock(str(tmp_path / "b" / LOCK))
        configs = {0: config(tmp_path / "a"), 1: config(tmp_path / "b")}
        waiting = asyncio.ensure_future(end_last_life(configs, str(tmp_path), store, SystemDisk()))
        done, _ = await asyncio.wait({waiting}, timeout=5 * last_life.LOOK_INTERVAL_S)
        held.release()
        await asyncio.wait_for(waiting, 180)
        await store.close()
        return bool(done)

    assert uvloop.run(main()) is False


def test_a_directory_that_stays_in_use_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else's broker is not ours to wait for."""
    monkeypatch.setattr(last_life, "LAST_LIFE_S_MAX", 0.0)

    async def main() -> None:
        store = a_store(tmp_path / "store")
        store.open()
        held = SystemDisk().lock(str(tmp_path / LOCK))
        try:
            await end_last_life({0: config(tmp_path)}, str(tmp_path), store, SystemDisk())
        finally:
            held.release()
            await store.close()

    with pytest.raises(BrokerFailed, match=f"{tmp_path} is used by another running broker"):
        uvloop.run(main())


def test_sessions_of_these_brokers_end_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a broker that is not started again, whose directory no process uses; one that joined comes back to its
    own, wherever its directory is.
    """
    monkeypatch.setattr(last_life, "ABSENT_S_MAX", 0.0)

    async def main() -> list[str]:
        first = a_store(tmp_path / "store")
        first.open()
        for path in ("/brokers", "/brokers/ids"):
            await (await first.session(config(tmp_path))).create(path)
        for broker_id in (0, 1, 3, 4, 7):
            session, _ = await first.embedded.open_session(60_000, local=False)
            await first.embedded.transact(session, [Create(f"/brokers/ids/{broker_id}", ephemeral=True)])
        await first.close()
        second = a_store(tmp_path / "store")
        second.open()
        for broker_id in (0, 3, 4):
            (tmp_path / f"broker-{broker_id}").mkdir()
            (tmp_path / f"broker-{broker_id}" / LOCK).touch()
        joined = SystemDisk().lock(str(tmp_path / "broker-4" / LOCK))
        configs = {broker_id: config(tmp_path / f"broker-{broker_id}") for broker_id in (0, 1, 2)}
        await end_last_life(configs, str(tmp_path), second, SystemDisk())
        joined.release()
        names, _ = await (await second.session(config(tmp_path))).children("/brokers/ids")
        await second.close()
        return sorted(names)

    assert uvloop.run(main()) == ["4", "7"]
