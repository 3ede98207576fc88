"""A store moved to another one, with its clients: on loopback, by our own client."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from tests.unit.store.serving import Served, ServedInMemory, run
from tests.unit.store.test_embedded import start
from tests.unit.store.test_server import Gate

from tidelog.broker.cluster.membership import generate_broker_id
from tidelog.metadata.operations import Create
from tidelog.metadata.znodes import BROKER_SEQUENCE, PRODUCER_ID_BLOCK, decode_producer_id_block
from tidelog.store import transfer
from tidelog.store.client import SessionState, StoreClient, WatchEvent
from tidelog.store.errors import ConnectionLoss, NodeExists, StoreError
from tidelog.store.export_file import Export, ExportedNode, is_exported, nodes_to_write
from tidelog.store.local import LocalStore
from tidelog.store.moving import IMPORT, MOVED, MOVING, moved_elsewhere
from tidelog.store.persistence import MemoryPersistence
from tidelog.store.transfer import PROBE, TransferRefused, count_up, fill, move, prepare, read_store
from tidelog.store.zookeeper import ZooKeeperStore

EPHEMERAL = struct.pack(">iii", -1, 1, 31) + b"\0\0\0\5world\0\0\0\6anyone" + struct.pack(">i", 1)
"""No data, an open access list, an ephemeral node: the end of a create request."""
STATE = "/brokers/topics/t/partitions/0/state"
STATE_DATA = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,0]}'


@asynccontextmanager
async def client(hosts: str, timeout_ms: int = 4000) -> AsyncIterator[ZooKeeperStore]:
    store = await ZooKeeperStore.connect(hosts, session_timeout_ms=timeout_ms, connection_timeout_ms=5000)
    try:
        yield store
    finally:
        await store.close()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    while not await condition():  # noqa: ASYNC110  (another thread sets no event of this loop)
        await asyncio.sleep(0.01)


async def word(hosts: str, text: str = "srvr") -> str:
    host, _, port = hosts.partition(":")

    def ask() -> str:
        with socket.create_connection((host, int(port)), 5) as connection:
            connection.sendall(text.encode())
            answer = b""
            while data := connection.recv(4096):
                answer += data
            return answer.decode()

    return await asyncio.to_thread(ask)


async def reached(store: ZooKeeperStore, state: SessionState) -> None:
    async def is_there() -> bool:
        return store.state is state

    await until(is_there)


async def some_nodes(store: StoreClient) -> None:
    for path in ("/brokers", "/brokers/ids", "/brokers/topics", "/brokers/topics/t", "/brokers/topics/t/partitions"):
        await store.create(path)
    await store.create("/brokers/topics/t/partitions/0")
    await store.create(STATE, STATE_DATA)
    await store.set(STATE, STATE_DATA)
    await store.create("/brokers/seqid")
    await store.set("/brokers/seqid", b"")
    await store.create("/bytes", b"\xff\x00")
    await store.create("/brokers/ids/1", b"{}", ephemeral=True)


@pytest.mark.parametrize("root", ["", "/tidelog/a"])
def test_a_store_moves_with_its_clients(root: str) -> None:
    """What was there is in the new place; who has the old address finds itself there, in a session of the new store."""

    async def scenario() -> None:
        with Served() as old, Served() as new:
            target = new.hosts + root
            async with client(old.hosts) as broker, client(old.hosts) as tool, client(target) as there:
                await some_nodes(broker)
                last = (await broker.exists("/brokers/ids/1")).czxid  # type: ignore[union-attr]
                done = await move(tool, there, old.hosts, target)
                assert done.nodes == 9
                await reached(broker, SessionState.EXPIRED)
                async with client(old.hosts) as again:
                    events: list[WatchEvent] = []
                    data, stat = await again.get(STATE, events.append)
                    assert data == STATE_DATA.replace(b'"leader_epoch":0', b'"leader_epoch":1')
                    assert stat.version == 0
                    assert (await again.get("/bytes"))[0] == b"\xff\x00"
                    assert (await again.get("/brokers/seqid"))[1].version == 1
                    assert (await again.children("/brokers/ids"))[0] == []
                    assert await again.exists(IMPORT) is None
                    # A registration's transaction is younger than any the former store has made.
                    created = (await again.multi([Create("/brokers/ids/1", b"{}", ephemeral=True)]))[0]
                    assert created.stat.czxid > last  # type: ignore[union-attr]
                    assert created.path == "/brokers/ids/1"  # type: ignore[union-attr]
                    # Whoever comes directly sees the same.
                    assert (await there.exists("/brokers/ids/1")).ephemeral_owner == again.session_id  # type: ignore[union-attr]
                    await there.set(STATE, b"{}")

                    async def told() -> bool:
                        return bool(events)

                    await until(told)
                    assert events[0].path == STATE
                    assert (await again.create("/n-", sequential=True)).path.startswith("/n-0")
                    with pytest.raises(NodeExists):
                        await again.create("/bytes")
                said = await word(old.hosts, "stat")
                assert "Mode: relay" in said
                assert f"Moved to: {target}" in said
                # In its next life, too.
                old.stop()
                old.start()
                async with client(old.hosts) as later:
                    assert (await later.get("/bytes"))[0] == b"\xff\x00"

    run(scenario)


def test_nobody_but_the_mover_is_served_until_it_has_moved() -> None:
    """Else what is written after the export would be lost. Then everybody goes on in the same session."""

    async def scenario() -> None:
        with Served() as old:
            async with client(old.hosts) as broker, client(old.hosts) as tool:
                await some_nodes(broker)
                await tool.create(MOVING, ephemeral=True)
                await reached(broker, SessionState.SUSPENDED)
                assert "Mode: held by a mover" in await word(old.hosts)
                with pytest.raises(ConnectionLoss):
                    await ZooKeeperStore.connect(old.hosts, session_timeout_ms=4000, connection_timeout_ms=300)
                assert await tool.exists("/brokers/ids/1") is not None
                await tool.delete(MOVING)
                await reached(broker, SessionState.CONNECTED)
                await broker.set("/bytes", b"")

    run(scenario)


def test_time_stands_still_for_who_is_held_up() -> None:
    """Sessions end neither while a mover holds the store nor at once when it lets go, but after that as ever."""

    async def scenario() -> None:
        async with ServedInMemory() as served:
            broker, tool = served.dial(), served.dial()
            _, session, password = await broker.connect(6000)
            await tool.connect(60_000)
            tool.send(struct.pack(">iii", 1, 1, len(MOVING)) + MOVING.encode() + EPHEMERAL)
            await tool.frames()
            assert broker.closed
            await served.pass_time(30_000)
            again = served.dial()
            again.send(struct.pack(">iqiqi", 0, 0, 6000, session, 16) + password + b"\0")
            assert await again.frames() == []
            assert again.closed
            tool.hang_up()
            await tool.frames()
            await served.pass_time(5000)
            assert session in served.store.tree.sessions
            assert served.store.tree.exists(MOVING) is None
            await served.pass_time(2000)
            assert session not in served.store.tree.sessions

    run(scenario)


def test_a_session_that_is_ended_while_a_mover_holds_the_store() -> None:
    """Its time may be over before its end is on the disk: the other sessions are looked after all the same."""

    async def scenario() -> None:
        disk = Gate()
        disk.open.set()
        async with ServedInMemory(disk) as served:
            dead, broker, tool = served.dial(), served.dial(), served.dial()
            await dead.connect(6000)
            _, session, _ = await broker.connect(7000)
            await tool.connect(60_000)
            dead.send(struct.pack(">iii", 1, 1, len("/dead")) + b"/dead" + EPHEMERAL)
            tool.send(struct.pack(">iii", 1, 1, len(MOVING)) + MOVING.encode() + EPHEMERAL)
            await tool.frames()
            disk.open.clear()
            ending = asyncio.ensure_future(served.store.end_sessions_of("/dead"))
            await tool.frames()
            assert not ending.done()
            await served.pass_time(6500)
            disk.open.set()
            await ending
            tool.hang_up()
            await tool.frames()
            await served.pass_time(7500)
            assert session not in served.store.tree.sessions

    run(scenario)


def test_a_mover_that_dies_leaves_the_store_as_it_was() -> None:
    """The store waits for no mover whose connection is gone; what it has begun in the new place is done again."""

    async def scenario() -> None:
        with Served() as old, Served() as new:
            async with client(old.hosts) as broker, client(new.hosts) as there:
                await some_nodes(broker)
                async with client(old.hosts) as tool:
                    await prepare(there, old.hosts, "")
                    await tool.create(MOVING, ephemeral=True)
                    await reached(broker, SessionState.SUSPENDED)
                    export = await read_store(tool, old.hosts)
                    await transfer.fill(there, export)
                    tool._client._connection._socket.close()  # As if the process were killed.
                    await reached(broker, SessionState.CONNECTED)
                    await broker.set("/bytes", b"later")
                async with client(old.hosts) as tool:
                    await move(tool, there, old.hosts, new.hosts)
                async with client(old.hosts) as again:
                    assert (await again.get("/bytes"))[0] == b"later"

    run(scenario)


def test_the_last_step_needs_the_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mover that was thought dead cannot move the store any more."""

    async def scenario() -> None:
        with Served() as old, Served() as new:
            async with client(old.hosts) as tool, client(new.hosts) as there:
                await some_nodes(tool)
                read, looks = transfer.read_store, 0

                async def interrupted(store: StoreClient, source: str, *, exact: bool = True) -> Export:
                    nonlocal looks
                    looks += store is tool
                    if looks == 2:
                        await tool.delete(MOVING)
                    return await read(store, source, exact=exact)

                monkeypatch.setattr(transfer, "read_store", interrupted)
                with pytest.raises(StoreError):
                    await move(tool, there, old.hosts, new.hosts)
                assert await tool.exists(MOVED) is None
                assert await there.exists(IMPORT) is not None

    run(scenario)


def test_a_new_store_that_goes_away_does_not_hold_the_former_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its brokers would have no store until it returns: the mover gives up, and they go on in their sessions."""
    monkeypatch.setattr(transfer, "HELD_S_MAX", 0.5)

    async def scenario() -> None:
        with Served() as old, Served() as new:
            async with client(old.hosts) as broker, client(new.hosts) as there:
                await some_nodes(broker)
                read, looks = transfer.read_store, 0
                states: list[SessionState] = []
                broker.add_listener(states.append)

                async def came_back() -> bool:
                    return states[-2:] == [SessionState.SUSPENDED, SessionState.CONNECTED]

                async with client(old.hosts) as tool:

                    async def interrupted(store: StoreClient, source: str, *, exact: bool = True) -> Export:
                        nonlocal looks
                        looks += store is tool
                        export = await read(store, source, exact=exact)
                        if looks == 2 and store is tool:
                            await asyncio.to_thread(new.stop)
                            await reached(there, SessionState.SUSPENDED)
                        return export

                    monkeypatch.setattr(transfer, "read_store", interrupted)
                    with pytest.raises(TransferRefused, match=r"held for 0\.5 s.*nothing has moved"):
                        async with asyncio.timeout(180):
                            await move(tool, there, old.hosts, new.hosts)
                    assert await tool.exists(MOVED) is None
                await until(came_back)
                await broker.set("/bytes", b"")
                await asyncio.to_thread(new.start)

    run(scenario)


@pytest.mark.parametrize("root", ["", "/kafka", "/a/b"])
@pytest.mark.parametrize("replace", [False, True])
def test_a_store_does_not_move_into_itself(root: str, replace: bool) -> None:
    """Whatever name it goes by: the hold would cut off the session that fills it. Nothing there is touched."""

    async def scenario() -> None:
        with Served() as old:
            target = old.hosts.replace("127.0.0.1", "localhost") + root
            async with client(old.hosts) as tool, client(target) as there:
                await tool.create("/bytes", b"1")
                with pytest.raises(TransferRefused, match="the same store"):
                    async with asyncio.timeout(180):
                        await move(tool, there, old.hosts, target, replace=replace)
                assert (await tool.get("/bytes"))[0] == b"1"
                assert await tool.exists(MOVING) is None
                left = (await there.children("/"))[0]
                assert [name for name in left if name.startswith("tidelog_")] == []

    run(scenario)


def test_a_relay_takes_away_the_mark_of_its_own_move_alone() -> None:
    """Brokers would join what a later import into that place has only half filled."""

    async def scenario() -> None:
        persistence = MemoryPersistence()
        with Served(lambda: persistence) as old, Served() as new:
            async with client(old.hosts) as tool, client(new.hosts) as there:
                await some_nodes(tool)
                await move(tool, there, old.hosts, new.hosts)

                async def is_open() -> bool:
                    return "Relay: open" in await word(old.hosts)

                await until(is_open)
                assert await there.exists(IMPORT) is None
                old.stop()
                later = await prepare(there, "a backup", "checksum", replace=True)
                old.start()
                moved = moved_elsewhere(old.store.tree)  # type: ignore[union-attr]
                assert moved is not None
                with pytest.raises(StoreError, match="is being filled by an import or another move"):
                    await transfer.open_for_brokers(moved)
                assert await there.exists(IMPORT) is not None
                assert "Relay: waiting" in await word(old.hosts)
                await transfer.finish(there, later)
                assert await there.exists(IMPORT) is None
                await until(is_open)

    run(scenario)


def test_two_movers() -> None:
    """The second one is told."""

    async def scenario() -> None:
        with Served() as old, Served() as new:
            async with client(old.hosts) as tool, client(new.hosts) as there:
                await tool.create(MOVING)
                with pytest.raises(TransferRefused, match="another process is moving that store"):
                    await move(tool, there, old.hosts, new.hosts)

    run(scenario)


def test_a_killed_movers_probe_is_no_obstacle() -> None:
    """The node by which it asked whether both stores are one: it stays until its session ends."""

    async def scenario() -> None:
        with Served() as old, Served() as new:
            async with client(old.hosts) as tool, client(new.hosts) as there, client(new.hosts) as killed:
                await tool.create("/brokers")
                await killed.create(f"{PROBE}_of_another", ephemeral=True)
                moved = await move(tool, there, old.hosts, new.hosts)
                assert moved.nodes == 1
                assert await there.exists("/brokers") is not None

    run(scenario)


def test_only_an_empty_store_is_filled() -> None:
    """What is there is left alone, unless it is to be replaced, or is the rest of an import; never under brokers."""

    async def scenario() -> None:
        with Served() as new:
            async with client(new.hosts) as there:
                await there.create("/mine")
                with pytest.raises(TransferRefused, match="not empty: it has /mine"):
                    await prepare(there, "x", "")
                await prepare(there, "x", "", replace=True)
                assert (await there.children("/"))[0] == [IMPORT[1:]]
                await there.create("/brokers")
                await there.create("/brokers/ids")
                await prepare(there, "x", "")
                assert (await there.children("/"))[0] == [IMPORT[1:]]
                await there.create("/brokers")
                await there.create("/brokers/ids")
                await there.create("/brokers/ids/7", ephemeral=True)
                with pytest.raises(TransferRefused, match="its brokers 7 are registered"):
                    await prepare(there, "x", "", replace=True)

    run(scenario)


@pytest.mark.parametrize(
    "prefix",
    [
        "/config/changes/config_change_",
        "/isr_change_notification/isr_change_",
        "/log_dir_event_notification/log_dir_event_",
        "/kafka-acl-changes/acl_changes_",
        "/kafka-acl-extended-changes/acl_changes_",
        "/delegation_token/token_changes/token_change_",
    ],
)
def test_further_notifications_find_their_numbers_free(prefix: str) -> None:
    """Where the oldest of those that were copied had been deleted, too: else no change could be told any more."""

    async def scenario() -> None:
        former, new = [await LocalStore.connect(start(MemoryPersistence())) for _ in range(2)]
        parents = prefix.split("/")[1:-1]
        for depth in range(len(parents)):
            await former.create("/" + "/".join(parents[: depth + 1]))
        told = [(await former.create(prefix, b"1", sequential=True)).path for _ in range(4)]
        for path in told[:2]:
            await former.delete(path)
        await prepare(new, "x", "")
        await fill(new, await read_store(former, "x"))
        for _ in range(3):
            await new.create(prefix, b"2", sequential=True)
        names, _ = await new.children(prefix.rpartition("/")[0])
        contents = [(await new.get(prefix + name[-10:]))[0] for name in names]
        assert contents == [b"1"] * 2 + [b"2"] * 3

    run(scenario)


@pytest.mark.parametrize("given", [None, b'{"version":1,"broker":2,"block_start":"5000","block_end":"5999"}'])
def test_producer_ids_that_were_given_since_an_export_are_not_given_again(given: bytes | None) -> None:
    """The logs know them: what another producer sends with such an id could be taken for a duplicate, and lost."""

    async def scenario() -> None:
        former, new = [await LocalStore.connect(start(MemoryPersistence())) for _ in range(2)]
        await former.create(PRODUCER_ID_BLOCK, given)
        await prepare(new, "x", "")
        await fill(new, await read_store(former, "x"))
        before, after = decode_producer_id_block(given), decode_producer_id_block((await new.get(PRODUCER_ID_BLOCK))[0])
        assert after is not None
        assert after.last - (0 if before is None else before.last) >= 10**11

    run(scenario)


def test_broker_ids_that_were_given_since_an_export_are_not_given_again() -> None:
    """Two brokers would have one id: the first to come back would keep the other, and its logs, out of the cluster."""

    async def scenario() -> None:
        former, new = [await LocalStore.connect(start(MemoryPersistence())) for _ in range(2)]
        await former.create("/brokers")
        await former.create(BROKER_SEQUENCE)
        for _ in range(3):
            await generate_broker_id(former)
        export = await read_store(former, "x")
        since = [await generate_broker_id(former) for _ in range(100)]
        await prepare(new, "x", "")
        await fill(new, export)
        assert await generate_broker_id(new) > max(since)

    run(scenario)


def test_a_store_that_is_written_to_is_looked_at_again() -> None:
    """What is read is a picture of one moment, or none."""

    async def scenario() -> None:
        with Served() as old:
            async with client(old.hosts) as store:
                await some_nodes(store)
                zxid = (await store.set("/bytes", b"1")).mzxid
                export = await read_store(store, "here")
                assert export.zxid == zxid
                busy = True

                async def write() -> None:
                    while busy:
                        await store.set("/bytes", b"2")

                writing = asyncio.create_task(write())
                with pytest.raises(TransferRefused, match="written to all the time"):
                    await read_store(store, "here")
                busy = False
                await writing

    run(scenario)


def test_transaction_ids_go_on_growing() -> None:
    """A store is made to count beyond another; where that would take hours, it is said."""

    async def scenario() -> None:
        with Served() as new:
            async with client(new.hosts) as there:
                await prepare(there, "x", "")
                assert await count_up(there, 0) == 0
                await count_up(there, 1234)
                assert 1235 <= (await there.exists(IMPORT)).mzxid < 1300  # type: ignore[union-attr]
                with pytest.raises(TransferRefused, match="transaction ids"):
                    await count_up(there, 1 << 40)

    run(scenario)


def test_a_session_of_the_former_store_is_over() -> None:
    """However much its client has seen there: else no server of the new store would have it, and it would ask for ever.

    What a client has seen of the new store counts, as ever: a server that is behind it turns it away.
    """

    async def scenario() -> None:
        with Served() as old, Served() as new:
            async with client(old.hosts) as tool, client(new.hosts) as there:
                await some_nodes(tool)
                await move(tool, there, old.hosts, new.hosts)

            async def leads_there() -> bool:
                return "Relay: open" in await word(old.hosts)

            await until(leads_there)

            async def connected(seen: int, session: int, password: bytes) -> bytes:
                reader, writer = await asyncio.open_connection("127.0.0.1", old.port)
                first = struct.pack(">iqiqi", 0, seen, 6000, session, 16) + password
                writer.write(struct.pack(">i", len(first)) + first)
                try:
                    return await reader.readexactly(4 + 36)
                except asyncio.IncompleteReadError as error:
                    return error.partial
                finally:
                    writer.close()

            far = 1 << 40
            _, _, timeout_ms, session = struct.unpack_from(">iiiq", await connected(far, 4711, bytes(16)))
            assert (timeout_ms, session) == (0, 0)
            answer = await connected(far, 0, bytes(16))
            _, _, timeout_ms, session = struct.unpack_from(">iiiq", answer)
            assert timeout_ms == 6000
            _, _, timeout_ms, _ = struct.unpack_from(">iiiq", await connected(far, session, answer[24:]))
            assert timeout_ms == 0

    run(scenario)


def test_a_server_of_the_new_place_goes_and_comes_back() -> None:
    """Whoever comes by the former address keeps the session of the new store, as if there were nothing in between."""

    async def scenario() -> None:
        with Served() as old, Served() as new:
            async with client(old.hosts) as tool, client(new.hosts) as there:
                await some_nodes(tool)
                await move(tool, there, old.hosts, new.hosts)
            async with client(old.hosts, 10_000) as broker:
                session = broker.session_id
                await broker.create("/mine", ephemeral=True)
                await asyncio.to_thread(new.stop)
                await reached(broker, SessionState.SUSPENDED)
                await asyncio.to_thread(new.start)
                await reached(broker, SessionState.CONNECTED)
                assert broker.session_id == session
                assert (await broker.exists("/mine")).ephemeral_owner == session  # type: ignore[union-attr]

    run(scenario)


def test_strangers_at_the_relay() -> None:
    """Garbage is cut off; who knows no word of ZooKeeper's does not get any further."""

    async def scenario() -> None:
        with Served() as old, Served() as new:
            async with client(old.hosts) as tool, client(new.hosts) as there:
                await some_nodes(tool)
                await move(tool, there, old.hosts, new.hosts)
            for garbage in (b"\0\0\0\4abcd", b"\xff\xff\xff\xff", b"\x7f\0\0\0", bytes(1 << 16)):
                reader, writer = await asyncio.open_connection("127.0.0.1", old.port)
                writer.write(garbage)
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
                writer.close()
            async with client(old.hosts) as broker:
                assert await broker.exists("/bytes") is not None

    run(scenario)


def test_a_store_that_changes_until_it_is_held() -> None:
    """What was acknowledged before everybody was cut off is in the new store, whatever the copy began with."""

    async def scenario() -> None:
        with Served() as old, Served() as new:
            async with client(old.hosts) as writer, client(old.hosts) as tool, client(new.hosts) as there:
                await some_nodes(writer)
                acknowledged = ["/bytes"]

                async def write() -> None:
                    for number in range(1_000_000):
                        path = f"/w{number % 50}"
                        with suppress(NodeExists):
                            await writer.create(path)
                            await writer.create(f"{path}/below")
                            acknowledged.append(path)
                            continue
                        await writer.delete(f"{path}/below")
                        await writer.delete(path)
                        await writer.set("/bytes", str(number).encode())
                        acknowledged[0] = str(number)

                writing = asyncio.create_task(write())
                while len(acknowledged) < 50:  # noqa: ASYNC110  (the writer counts)
                    await asyncio.sleep(0.001)
                await move(tool, there, old.hosts, new.hosts)
                with pytest.raises(StoreError):
                    await writing
                former, present = old.store, new.store
                assert former is not None
                assert present is not None
                expected = {
                    each.path: each.data
                    for each in nodes_to_write(
                        Export(
                            "",
                            "",
                            0,
                            tuple(
                                ExportedNode(path, former.tree.get(path)[0], 0)
                                for path in former.tree.paths()
                                if is_exported(path) and not former.tree.get(path)[1].ephemeral_owner
                            ),
                        ),
                        1,
                    )
                }
                found = {path: present.tree.get(path)[0] for path in present.tree.paths() if is_exported(path)}
                found["/brokers/seqid"] = expected["/brokers/seqid"]
                assert found == expected
                assert int(found["/bytes"] or b"") >= int(acknowledged[0])

    run(scenario)
