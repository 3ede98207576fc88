"""Which logs may lack their tails: those of an unclean stop, where the machine was booted anew since."""

from __future__ import annotations

import errno
import os

import pytest
from tests.unit.storage.support import TP, FaultyMemoryDisk, open_manager

from tidelog.ports.real import SystemDisk
from tidelog.storage.file_names import BOOT_ID
from tidelog.storage.log_manager import LogManager

DIRECTORY = "/memory/boots"
FILE = f"{DIRECTORY}/{BOOT_ID}"


def opened(disk: FaultyMemoryDisk) -> LogManager:
    """A manager with one log."""
    manager = open_manager(DIRECTORY, disk=disk)
    if manager.get(TP) is None:
        manager.create(TP, None)
    return manager


def test_a_kill_leaves_the_page_cache() -> None:
    disk = FaultyMemoryDisk()
    opened(disk).abandon()
    manager = opened(disk)
    assert manager.stopped_uncleanly
    assert not manager.may_lack_tails


def test_a_boot_after_an_unclean_stop_does_not() -> None:
    disk = FaultyMemoryDisk()
    opened(disk).abandon()
    disk.boot = "second boot"
    assert opened(disk).may_lack_tails


def test_a_boot_after_a_clean_stop_takes_nothing() -> None:
    """From then on the new boot counts."""
    disk = FaultyMemoryDisk()
    opened(disk).close()
    disk.boot = "second boot"
    manager = opened(disk)
    assert not manager.may_lack_tails
    manager.abandon()
    assert not opened(disk).may_lack_tails


def test_what_may_be_lost_is_remembered_until_elections_know() -> None:
    """The broker is killed, on the same boot, before that: its logs lack what they lacked."""
    disk = FaultyMemoryDisk()
    opened(disk).abandon()
    disk.boot = "second boot"
    opened(disk).abandon()
    manager = opened(disk)
    assert manager.may_lack_tails
    manager.keep_boot_id()
    assert not manager.may_lack_tails
    manager.abandon()
    assert not opened(disk).may_lack_tails


def test_what_may_be_lost_is_remembered_by_a_clean_stop() -> None:
    """Before elections know, too: no log has become longer by it."""
    disk = FaultyMemoryDisk()
    opened(disk).abandon()
    disk.boot = "second boot"
    opened(disk).close()
    manager = opened(disk)
    assert manager.may_lack_tails
    manager.keep_boot_id()
    manager.close()
    manager = opened(disk)
    assert not manager.may_lack_tails
    assert not manager.stopped_uncleanly


@pytest.mark.parametrize("boot", [None, "first boot"])
def test_what_is_not_known_counts_as_another_boot(boot: str | None) -> None:
    """A machine that does not say; an earlier version, which has left no file."""
    disk = FaultyMemoryDisk()
    disk.boot = boot
    opened(disk).abandon()
    disk.files.pop(FILE, None)
    manager = opened(disk)
    assert manager.may_lack_tails
    manager.keep_boot_id()
    manager.abandon()
    assert opened(disk).may_lack_tails == (boot is None)


def test_a_directory_without_logs_lacks_nothing() -> None:
    assert not open_manager(DIRECTORY, disk=FaultyMemoryDisk()).may_lack_tails


def test_a_full_disk_does_not_stand_in_the_way_of_a_start() -> None:
    """The next unclean stop then counts as one before another boot."""
    disk = FaultyMemoryDisk()
    opened(disk).close()
    disk.boot = "second boot"
    disk.fault = lambda operation, path: (
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path) if operation == "rename" and BOOT_ID in path else None
    )
    manager = opened(disk)
    assert manager.offline_directories == []
    manager.abandon()
    disk.fault = lambda operation, path: None
    assert opened(disk).may_lack_tails


def test_linux_says_which_boot_it_is() -> None:
    """The same in every process; where there is no Linux there is None."""
    boot_id = SystemDisk().boot_id()
    assert boot_id == SystemDisk().boot_id()
    assert boot_id is None or len(boot_id) == 36
