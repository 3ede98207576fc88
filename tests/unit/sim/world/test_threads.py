"""I/O tasks give way before each operation; locks that they hold meanwhile are no deadlock."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sim.world import threads
from sim.world.disk import Mount, ProcessDeath, SimulatedDisk
from sim.world.loop import VirtualLoop
from sim.world.process import Process, SimulatedExecutor
from sim.world.randomness import SeededRandom


class Machine:
    """A process with a disk and a pool of I/O threads."""

    def __init__(self, seed: int) -> None:
        self.loop = VirtualLoop(SeededRandom(seed))
        self.process = Process("process", self.loop)
        self.disk = SimulatedDisk(SeededRandom(seed, "disk"), lambda: 0)
        self.mount: Mount = self.disk.mount()
        self.process.on_kill(self.disk.kill)
        random, latency = SeededRandom(seed, "executor"), (0.005, 0.01)
        self.executor = self.process.context.run(SimulatedExecutor, self.loop, random, latency)

    def submit(self, work: Any) -> Any:
        return self.process.context.run(self.executor.submit, work)

    def run(self, seconds: float = 5.0) -> None:
        async def main() -> None:
            end = self.loop.create_future()
            self.loop.call_later(seconds, end.set_result, None)
            await end

        self.loop.run_until_complete(main())


def writer(machine: Machine, name: str, order: list[str]) -> Any:
    def work() -> str:
        file = machine.mount.open(f"/{name}", create=True)
        for number in range(5):
            file.pwrite(b"x", number)
            order.append(name)
        return name

    return work


def order_of(seed: int) -> list[str]:
    """Who wrote when, of two tasks."""
    machine, order = Machine(seed), list[str]()
    futures = [machine.submit(writer(machine, name, order)) for name in "ab"]
    machine.run()
    machine.loop.close()
    assert [future.result() for future in futures] == ["a", "b"]
    return order


def test_tasks_interleave_as_the_seed_says() -> None:
    """Between two operations of one task come those of another; a seed's order is always the same."""
    orders = [order_of(seed) for seed in range(8)]
    assert orders == [order_of(seed) for seed in range(8)]
    assert any(sorted(order) != order and sorted(order, reverse=True) != order for order in orders)


def test_who_wants_a_lock_runs_its_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop waits for a lock by letting the task go on that holds it."""
    machine, events = Machine(1), list[str]()
    monkeypatch.setattr(threads, "PRODUCT", __name__)
    with threads.cooperative_locks():
        lock = threading.RLock()
    assert isinstance(lock, threads.CooperativeLock)
    assert not isinstance(threading.RLock(), threads.CooperativeLock)

    def work() -> None:
        with lock, lock:
            machine.mount.open("/f", create=True)
            events.append("task")

    machine.submit(work)
    while not lock.locked():
        machine.run(0.001)
    assert events == []
    with lock:
        events.append("loop")
    machine.run()
    assert events == ["task", "loop"]
    machine.loop.close()


def test_a_task_waits_for_a_condition_that_another_one_brings_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives way until the condition holds; on the loop's own stack nothing could come about meanwhile."""
    machine, events = Machine(6), list[str]()
    monkeypatch.setattr(threads, "PRODUCT", __name__)
    with threads.cooperative_locks():
        condition = threading.Condition()

    def wait() -> None:
        with condition:
            condition.wait_for(lambda: "done" in events)
            events.append("waited")

    machine.submit(wait)
    machine.run(1)
    assert events == []
    with pytest.raises(RuntimeError, match="the loop waits for a condition"), condition:
        condition.wait_for(lambda: "done" in events)

    def bring_about() -> None:
        with condition:
            machine.mount.open("/f", create=True)
            events.append("done")
            condition.notify_all()

    machine.submit(bring_about)
    machine.run(1)
    assert events == ["done", "waited"]
    machine.loop.close()


def test_a_task_of_a_dead_process_ends_at_its_next_operation() -> None:
    """It does nothing more to the disk, and its thread is free again."""
    machine, order = Machine(2), list[str]()
    future = machine.submit(writer(machine, "a", order))
    while not order:
        machine.run(0.001)
    machine.process.kill()
    done = list(order)
    machine.process.close()
    assert order == done
    assert not future.done()
    machine.loop.close()


def test_an_operation_that_hangs_stops_its_task_only() -> None:
    """Others go on for as long as it takes; on the loop's own thread the process stands still."""
    machine, order, stalls = Machine(3), list[str](), list[float]()
    machine.disk.slowness = lambda kind, path: 3.0 if path == "/a" and kind == "write" else 0.0
    machine.disk.on_stall = stalls.append
    machine.submit(writer(machine, "a", order))
    machine.submit(writer(machine, "b", order))
    machine.run(2)
    assert order == ["b"] * 5
    machine.run(20)
    assert order.count("a") == 5
    machine.mount.open("/a").pwrite(b"y", 0)
    assert stalls == [3.0]
    machine.loop.close()


def test_death_reaches_the_task() -> None:
    """A task that is killed from outside while it waits for its turn raises ProcessDeath inside of itself."""
    machine, seen = Machine(4), list[type[BaseException]]()

    def work() -> None:
        try:
            for number in range(100):
                machine.mount.open(f"/{number}", create=True)
        except ProcessDeath as death:
            seen.append(type(death))
            raise

    machine.submit(work)
    machine.run(0.02)
    machine.process.kill()
    machine.process.close()
    assert seen == [ProcessDeath]
    machine.loop.close()
