"""kazoo as people use it, recipes and all, on whatever serves ZooKeeper's protocol at an address."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, LockTimeout, NoNodeError, RolledBackError, RuntimeInconsistency

DEADLINE_S = 180.0


@contextmanager
def client(hosts: str, root: str) -> Iterator[KazooClient]:
    """A started client in a chroot, which exists."""
    with_root = KazooClient(hosts, timeout=30)
    with_root.start(DEADLINE_S)
    with_root.ensure_path(root)
    with_root.chroot = root
    try:
        yield with_root
    finally:
        with_root.stop()
        with_root.close()


def counter(hosts: str, root: str) -> None:
    """Two clients count together, by versions."""
    with client(hosts, root) as one, client(hosts, root) as other:
        counters = [one.Counter("/count"), other.Counter("/count")]
        threads = [threading.Thread(target=_count, args=(each, 25)) for each in counters]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert one.Counter("/count").value == 50


def _count(counter: object, times: int) -> None:
    for _ in range(times):
        counter += 1  # type: ignore[operator]  # kazoo's counters add in place


def lock(hosts: str, root: str) -> None:
    """One at a time; who leaves without a word makes room."""
    with client(hosts, root) as waiter:
        with client(hosts, root) as holder:
            held = holder.Lock("/lock", "holder")
            assert held.acquire(timeout=DEADLINE_S)
            wanted = waiter.Lock("/lock", "waiter")
            assert wanted.contenders() == ["holder"]
            with pytest.raises(LockTimeout):
                wanted.acquire(timeout=0.1)
        assert wanted.acquire(timeout=DEADLINE_S)
        wanted.release()


def election(hosts: str, root: str) -> None:
    """One leads, then the other."""
    led: list[str] = []
    with client(hosts, root) as one, client(hosts, root) as other:
        threads = [
            threading.Thread(target=each.Election("/election", name).run, args=(led.append, name))
            for each, name in ((one, "one"), (other, "other"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
    assert sorted(led) == ["one", "other"]


def watchers(hosts: str, root: str) -> None:
    """kazoo's lasting watches see each state of a node and of its children."""
    with client(hosts, root) as one, client(hosts, root) as other:
        one.create("/w", b"0")
        seen: list[bytes | None] = []
        names: list[list[str]] = []
        changed, grown = threading.Semaphore(0), threading.Semaphore(0)

        @one.DataWatch("/w")  # type: ignore[untyped-decorator]
        def data(value: bytes | None, _stat: object) -> None:
            seen.append(value)
            changed.release()

        @one.ChildrenWatch("/w")  # type: ignore[untyped-decorator]
        def children(found: list[str]) -> None:
            names.append(sorted(found))
            grown.release()

        assert changed.acquire(timeout=DEADLINE_S)
        assert grown.acquire(timeout=DEADLINE_S)
        for number in (b"1", b"2"):
            other.set("/w", number)
            assert changed.acquire(timeout=DEADLINE_S)
        for name in ("a", "b"):
            other.create(f"/w/{name}")
            assert grown.acquire(timeout=DEADLINE_S)
        other.delete("/w", recursive=True)
        assert changed.acquire(timeout=DEADLINE_S)
        assert seen == [b"0", b"1", b"2", None]
        assert names[:3] == [[], ["a"], ["a", "b"]]


def transactions(hosts: str, root: str) -> None:
    """kazoo's own transactions, done and not done."""
    with client(hosts, root) as one:
        transaction = one.transaction()
        transaction.create("/t", b"1")
        transaction.set_data("/t", b"2")
        transaction.check("/t", 1)
        created, stat, checked = transaction.commit()
        assert (created, stat.version, checked) == ("/t", 1, True)
        transaction = one.transaction()
        transaction.create("/t/a")
        transaction.check("/t", 7)
        transaction.delete("/t")
        assert [type(each) for each in transaction.commit()] == [RolledBackError, BadVersionError, RuntimeInconsistency]
        with pytest.raises(NoNodeError):
            one.get("/t/a")


def queue_party_barrier(hosts: str, root: str) -> None:
    """Sequential and ephemeral nodes as other recipes use them."""
    with client(hosts, root) as one, client(hosts, root) as other:
        line = one.LockingQueue("/queue")
        line.put_all([b"a", b"b"], priority=10)
        line.put(b"first", priority=1)
        taken = []
        for each in (other.LockingQueue("/queue"), line, line):
            taken.append(each.get(DEADLINE_S))
            assert each.consume()
        assert taken == [b"first", b"a", b"b"]
        party = one.Party("/party", "one")
        party.join()
        other.Party("/party", "other").join()
        assert sorted(party) == ["one", "other"]
        one.Barrier("/barrier").create()
        opened = threading.Thread(target=other.Barrier("/barrier").remove)
        opened.start()
        assert one.Barrier("/barrier").wait(DEADLINE_S)
        opened.join(DEADLINE_S)


RECIPES: list[Callable[[str, str], None]] = [
    counter,
    lock,
    election,
    watchers,
    transactions,
    queue_party_barrier,
]


def own_root() -> str:
    """A chroot that nobody else uses."""
    return f"/recipes-{uuid.uuid4().hex}"
