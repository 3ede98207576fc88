"""A disk that hangs takes the threads of its own log directory, and no others."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from tests.unit.storage.support import NOW_MS, FaultyDisk, batch, fill, open_manager

from tidelog.broker.io_threads import IO_THREADS, IoThreads
from tidelog.broker.shell import InDirectories, blocking_half
from tidelog.model.identifiers import TopicPartition
from tidelog.storage.disk_errors import fails_alone
from tidelog.storage.log_config import LogConfig

PATIENCE_S = 180


def outcome(future: Future[Any]) -> Any:
    return future.result(timeout=PATIENCE_S)


def test_what_hangs_in_one_directory_leaves_the_others_their_threads() -> None:
    """However much is asked of it; work for both is a lane of its own, and the rest another."""
    threads, answered = IoThreads(), threading.Event()
    hanging = [threads.submit(InDirectories(["/a"], answered.wait)) for _ in range(3 * IO_THREADS)]
    hanging += [threads.submit(InDirectories(["/a", "/b"], answered.wait)) for _ in range(3 * IO_THREADS)]
    assert [outcome(threads.submit(InDirectories(["/b"], lambda: "b"))) for _ in range(20)] == ["b"] * 20
    assert outcome(threads.submit(lambda: "elsewhere")) == "elsewhere"
    assert "/a" in threads.busy_directories
    running = [thread for thread in threading.enumerate() if thread.name == "tidelog-io /a"]
    assert len(running) == IO_THREADS
    assert all(thread.daemon for thread in running)
    answered.set()
    assert all(outcome(each) for each in hanging)
    assert outcome(threads.submit(InDirectories(["/a"], lambda: "again"))) == "again"
    threads.shutdown()


def test_what_work_raises_comes_back() -> None:
    """And its thread goes on."""
    threads = IoThreads()

    def broken() -> None:
        raise ValueError("no")

    for _ in range(2 * IO_THREADS):
        assert isinstance(threads.submit(broken).exception(timeout=PATIENCE_S), ValueError)
    assert outcome(threads.submit(lambda: 1)) == 1
    threads.shutdown()


def test_a_hanging_flush_stalls_its_directory_alone(tmp_path: Path) -> None:
    """The other one is flushed, read, written to, and closed cleanly; the one that hangs is let go of."""
    disk, answered = FaultyDisk(), threading.Event()
    config = LogConfig(flush_messages=1)
    manager = open_manager(tmp_path / "a", tmp_path / "b", disk=disk, config=config)
    stuck = manager.create(TopicPartition("stuck", 0), None, log_dir=str(tmp_path / "a"))
    sound = manager.create(TopicPartition("sound", 0), None, log_dir=str(tmp_path / "b"))
    fill(stuck, 3)
    fill(sound, 3)

    def fault(operation: str, path: str) -> OSError | None:
        if operation == "fsync" and "/a/" in path:
            answered.wait()
        return None

    disk.fault = fault
    threads = IoThreads()
    tasks = {task.log_dir: task for task in manager.maintenance.flush_tasks()}
    futures = {log_dir: threads.submit(blocking_half(task)) for log_dir, task in tasks.items()}
    assert outcome(futures[str(tmp_path / "b")]) is None
    tasks[str(tmp_path / "b")].finish(None)
    assert (sound.flushed_offset, stuck.flushed_offset) == (3, 0)
    # What waits for the directory that hangs does not keep the other one's flushes from beginning.
    sound.append(batch(b"more"), leader_epoch=0, now_ms=NOW_MS)
    stuck.append(batch(b"more"), leader_epoch=0, now_ms=NOW_MS)
    again = manager.maintenance.flush_tasks(but={str(tmp_path / "a")})
    assert [task.log_dir for task in again] == [str(tmp_path / "b")]
    assert outcome(threads.submit(blocking_half(again[0]))) is None
    again[0].finish(None)
    assert sound.flushed_offset == 4
    assert threads.busy_directories == {str(tmp_path / "a")}
    manager.close(but=threads.busy_directories)
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    answered.set()
    outcome(futures[str(tmp_path / "a")])
    threads.shutdown()


def test_a_thread_that_cannot_be_started_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system had none left: what is asked then fails alone, and what comes later runs."""
    threads, answered = IoThreads(), threading.Event()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", refuse)
        refused = threads.submit(InDirectories(["/a"], lambda: 1)).exception(timeout=PATIENCE_S)
    assert isinstance(refused, OSError)
    assert fails_alone(refused)
    assert not threads.busy_directories
    first = threads.submit(InDirectories(["/a"], answered.wait))
    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", refuse)
        second = threads.submit(InDirectories(["/a"], lambda: 2))
    answered.set()
    assert (outcome(first), outcome(second)) == (True, 2)
    assert outcome(threads.submit(InDirectories(["/a"], lambda: 3))) == 3
    threads.shutdown()
