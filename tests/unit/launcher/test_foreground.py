"""The loop of a process that runs in the foreground."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tidelog
from tidelog.launcher import foreground
from tidelog.launcher.foreground import COMPILED_MODULES, Stop, first_failure, log_absent_kernel, run, run_all
from tidelog.records import implementation


def test_a_signal_stops_this_process_alone() -> None:
    """SIGTERM and SIGINT ask for a stop in which others take over."""
    for number in (signal.SIGTERM, signal.SIGINT):
        asked: list[bool] = []

        async def main(stop: Stop, number: signal.Signals = number, asked: list[bool] = asked) -> None:
            os.kill(os.getpid(), number)
            await stop.wait()
            asked.append(stop.whole_cluster)

        run(main)
        assert asked == [False]


def test_the_end_of_the_parents_pipe_stops_the_whole_cluster() -> None:
    """And not before it ends."""
    end, other = os.pipe()
    asked: list[bool] = []

    async def main(stop: Stop) -> None:
        asked.append(stop.asked)
        os.close(other)
        await stop.wait()
        asked.append(stop.whole_cluster)

    try:
        run(main, parent_pipe=end)
    finally:
        os.close(end)
    assert asked == [False, True]


def test_the_first_reason_to_stop_counts() -> None:
    """A cluster that stops after its broker was told to changes nothing for that broker."""

    async def main() -> bool:
        stop = Stop()
        stop.ask()
        stop.ask(whole_cluster=True)
        return stop.whole_cluster

    assert not asyncio.run(main())


def test_work_ends_when_the_process_is_to_stop() -> None:
    """It is cancelled, and has ended when that is told; its outcome counts if it was faster."""

    async def main() -> list[str]:
        seen: list[str] = []

        async def endless() -> str:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                seen.append("ended")
            return "never"

        async def quick() -> str:
            return "done"

        stop = Stop()
        seen.append(str(await stop.wait_for(quick())))
        asyncio.get_running_loop().call_soon(stop.ask)
        seen.append(str(await stop.wait_for(endless())))
        return seen

    assert asyncio.run(main()) == ["done", "ended", "None"]


def test_one_failure_ends_what_runs_beside_it() -> None:
    """The error comes when everything has ended, and it is the first task's where two fail at once."""

    async def main() -> list[int]:
        ended: list[int] = []

        async def waits() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                ended.append(0)

        async def fails(number: int) -> None:
            raise ValueError(f"number {number}")

        with pytest.raises(ValueError, match="number 1"):
            await run_all([waits(), fails(1), fails(2)])
        await run_all([])
        return ended

    assert asyncio.run(main()) == [0]


def test_the_first_failure_is_told() -> None:
    """Whichever of those watched it is."""

    async def main() -> str:
        async def fails() -> str:
            return "reason"

        async def lives() -> str:
            await asyncio.get_running_loop().create_future()
            return "never"

        return await first_failure(lives(), fails())

    assert asyncio.run(main()) == "reason"


def test_an_absent_kernel_is_told_with_its_cost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning where plain Python does the work, nothing where the kernel does."""
    monkeypatch.setattr(implementation, "ABSENT", "")
    monkeypatch.setattr(foreground, "find_spec", lambda name: object())
    log_absent_kernel()
    assert caplog.messages == []
    monkeypatch.setattr(implementation, "ABSENT", "No module named 'tidelog.records._sections'")
    monkeypatch.setattr(foreground, "find_spec", lambda name: None)
    log_absent_kernel()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert caplog.messages[0].startswith(
        "kernel_absent: reason=\"No module named 'tidelog.records._sections'\" effect="
    )
    assert "million" in caplog.messages[0]


@pytest.mark.parametrize("absent", COMPILED_MODULES)
def test_what_else_is_not_compiled_is_told(
    absent: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where only one part is missing; without the kernel its warning says it all."""
    monkeypatch.setattr(implementation, "ABSENT", "")
    monkeypatch.setattr(foreground, "find_spec", lambda name: None if name == f"tidelog.{absent}" else object())
    log_absent_kernel()
    (message,) = caplog.messages
    assert message.startswith(f"compiled_parts_absent: modules={absent} ")


def test_all_that_is_compiled_is_looked_for() -> None:
    """Each source of compiled code."""
    package = Path(tidelog.__file__).parent
    sources = {".".join(path.relative_to(package).with_suffix("").parts) for path in package.rglob("*.pyx")}
    assert sources == set(COMPILED_MODULES)


def resident_kib(code: str) -> list[int]:
    """KiB of memory of a process that runs `code`, at each of its calls of `say`."""
    script = (
        "from tidelog.launcher.foreground import settle_memory\n"
        "def say():\n"
        "    with open('/proc/self/status') as file:\n"
        "        print(next(line.split()[1] for line in file if line.startswith('RssAnon:')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script + code], capture_output=True, text=True, timeout=180, check=True
    )
    return [int(line) for line in done.stdout.split()]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only the GNU C library gives back pages on request")
def test_settled_memory_has_no_free_pages() -> None:
    """What start-up has freed below something that stays is the system's again: here 20 MB, below the last block."""
    before, after = resident_kib(
        "blocks = [bytearray(2000) for _ in range(10_000)]\nlast = bytearray(2000)\ndel blocks\n"
        "say(); settle_memory(); say()"
    )
    assert before - after > 15_000
