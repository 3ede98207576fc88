"""`tidelog store`: what a metadata store holds, written to a file, made of a file, and moved elsewhere.

export and import copy. `move` takes a cluster with it: while it runs, if its store is served by `tidelog start`, or by
its directory when it is stopped. `status` says where a store is, and which clients still use its former address.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from tidelog.cli.errors import Refused, WrongUsage
from tidelog.cli.options import Form, Output
from tidelog.cli.output import print_json
from tidelog.ports.real import SystemDisk
from tidelog.store.errors import ConnectionLoss
from tidelog.store.export_file import Export, ExportUnreadable, decode, encode
from tidelog.store.moving import moved_elsewhere, parse_servers
from tidelog.store.reachability import waiting_at_most
from tidelog.store.security import OPEN, StoreSecurity, security_of
from tidelog.store.sqlite import FILE_NAME
from tidelog.store.transfer import (
    CONNECTION_TIMEOUT_MS,
    HELD_S_MAX,
    SESSION_TIMEOUT_MS,
    Moved,
    TransferRefused,
    fill,
    finish,
    move,
    prepare,
    read_store,
)

if TYPE_CHECKING:
    from tidelog.store.client import StoreClient
    from tidelog.store.embedded import EmbeddedStore

T = TypeVar("T")

WORD_S_MAX: Final = 5.0
"""For a server to answer a four-letter word."""
RELAY_S_MAX: Final = 60.0
"""For a store that has moved to let its clients through."""
FORMER_AWAY_S_MAX: Final = SESSION_TIMEOUT_MS / 1000
"""Without a connection to the store that is to move: by then the mover's session has ended, and so has its hold."""
AWAY_S_MAX: Final = HELD_S_MAX
"""Without a connection to another store, as long as a store may be held."""
LOOK_INTERVAL_S: Final = 0.05
STORE_FOLDERS: Final = ("", "store", ".store")
"""Where the store's file is in a directory: its own, that of `tidelog start`, that of a broker with a store."""

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="What a metadata store holds: written to a file, made of a file, moved elsewhere.",
)

Served = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="HOST:PORT,.../CHROOT",
        help="A store that runs: `tidelog start` says where its own is served, or zookeeper.connect of an ensemble.",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", help="The directory of a store that does not run: that of `tidelog start --data`."
    ),
]
Properties = Annotated[
    Path | None,
    typer.Option(
        "--properties",
        metavar="FILE",
        help="A broker's properties: with an ensemble, its zookeeper.digest and zookeeper.set.acl are used.",
    ),
]
Replace = Annotated[bool, typer.Option("--replace", help="What is there already is lost. Never where brokers run.")]


@app.command("export")
def export_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False)],
    store: Served = None,
    data: Data = None,
    properties: Properties = None,
) -> None:
    """Write what a store holds to a file: topics, replicas, settings, ids; a picture of one moment.

    A backup, or one half of a copy. Registrations of brokers and the controller's are not in it, nor are access lists:
    an import makes them anew. Only its owner may read the file, for users' credentials are in it.
    """
    rights = _rights(properties)

    async def read() -> Export:
        async with _opened(store, data, rights) as (client, name):
            return await read_store(client, name)

    taken = _run(read())
    # Whole or not at all: a file that was there before stays until this one is on the disk.
    partial = file.with_name(f"{file.name}.partial")
    partial.unlink(missing_ok=True)
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as output:
        output.write(encode(taken))
        output.flush()
        os.fsync(output.fileno())
    partial.replace(file)
    SystemDisk().fsync_directory(str(file.absolute().parent))
    print(f"{len(taken.nodes)} nodes in {file}")


@app.command("import")
def import_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False)],
    store: Served = None,
    data: Data = None,
    properties: Properties = None,
    replace: Replace = False,
) -> None:
    """Make of a file what a store holds. No broker of that cluster may run; start them when this has ended.

    The store must be empty. An import that broke off is done again by the same command.
    """
    try:
        content = decode(file.read_text(encoding="utf-8"))
    except (ExportUnreadable, UnicodeDecodeError) as error:
        raise Refused([f"{file}: {error}"]) from error

    rights = _rights(properties)

    async def fill_store() -> None:
        async with _opened(store, data, rights, create=True) as (client, _):
            import_id = await prepare(client, str(file), content.checksum, replace=replace)
            await fill(client, content)
            await finish(client, import_id)

    _run(fill_store())
    print(f"{len(content.nodes)} nodes written")


@app.command("move")
def move_command(
    to: Annotated[
        str, typer.Option("--to", metavar="HOST:PORT,.../CHROOT", help="The new store, as zookeeper.connect names it.")
    ],
    store: Served = None,
    data: Data = None,
    properties: Properties = None,
    replace: Replace = False,
) -> None:
    """Move a cluster's metadata to another store, such as a ZooKeeper ensemble; its brokers serve on.

    Brokers that run find their store by the address they know, which leads to the new one from then on, until they are
    restarted with the new address. Nothing changes unless the last step succeeds; a move that broke off is done again
    by the same command.
    """
    _servers(to)
    rights = _rights(properties)
    if data is not None:
        moved = _run(_move_directory(data, store, to, rights, replace))
    else:
        if store is None:
            raise WrongUsage("which store? --store HOST:PORT of one that runs, or --data DIR")
        moved = _run(_move_served(store, to, rights, replace))
    if moved is None:
        print(f"The store had moved to {to} already.")
    else:
        print(f"{moved.nodes} nodes moved to {to}; nobody else was served for {moved.held_s:.1f} s.")
    if store is not None:
        print(f"{store} leads there now. Restart the brokers one by one, with zookeeper.connect={to}")


@app.command()
def status(
    store: Annotated[str, typer.Option("--store", metavar="HOST:PORT", help="Where the store is, or was, served.")],
    output: Output = Form.TABLE,
) -> None:
    """Say where a store is, and who still comes by its former address."""
    said = _run(_look(store))
    if output is Form.JSON:
        print_json({"mode": said.mode, "movedTo": said.moved_to, "relayed": said.relayed})
        return
    print(f"{store}: {said.mode}")
    if said.moved_to is not None:
        print(f"moved to {said.moved_to}; {len(said.relayed)} connections come by this address")
        for peer in said.relayed:
            print(f"  {peer}")


# Moving.


async def _move_served(store: str, to: str, rights: StoreSecurity, replace: bool) -> Moved | None:
    """Moves a store that is served; None where it had moved to that place already."""
    if _servers(store).root:
        raise WrongUsage(f"a store moves as a whole, and so its cluster: --store {store.partition('/')[0]}")
    before = await _look(store)
    if before.moved_to is not None:
        if before.moved_to != to:
            raise Refused([f"{store} has moved to {before.moved_to} already: move it on from there"])
        # The process that moved it may have died before this.
        async with _session(to, rights) as new:
            await finish(new, before.import_id)
        await _await_relay(store, to)
        return None
    if not before.is_ours:
        raise Refused(
            [
                f"{store} is no store of tidelog's, but {before.version}: only that of `tidelog start` can be moved "
                "while its brokers run. Stop them all, then `tidelog store export` and `tidelog store import`"
            ]
        )
    if before.local_sessions:
        raise Refused(
            [
                f"a broker runs in the store's own process, that of {store}, and cannot go elsewhere while it runs: "
                "stop it, and move the store's directory (--data)"
            ]
        )
    try:
        moved = await _move_between(store, to, rights, replace)
    except ConnectionLoss as error:
        raise Refused(
            [
                str(error),
                f"the cluster goes on with {store} unless the last step was carried out. When both stores answer, the "
                "same command moves it, or says that it has moved",
            ]
        ) from error
    await _await_relay(store, to)
    return moved


async def _move_between(store: str, to: str, rights: StoreSecurity, replace: bool) -> Moved | None:
    """Moves a store that is served; None where the answer to the last step was lost. ConnectionLoss."""
    async with _session(to, rights) as new, _session(store, OPEN, FORMER_AWAY_S_MAX) as former:
        moved: Moved | None = None
        try:
            moved = await move(former, new, store, to, replace=replace)
        except Exception as error:
            # The last step may have been carried out although its answer was lost: the server knows.
            try:
                after = await _look(store)
            except Refused:
                raise error from None
            if after.moved_to != to:
                raise
            import_id = after.import_id
        else:
            import_id = moved.import_id
        # The relay does this too, but has no credentials.
        await finish(new, import_id)
    return moved


async def _await_relay(store: str, to: str) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + RELAY_S_MAX
    while not (await _look(store)).is_open:
        if loop.time() > deadline:
            raise Refused([f"the store has moved, but {store} does not reach {to}: see its log; no need to move again"])
        await asyncio.sleep(LOOK_INTERVAL_S)


async def _move_directory(data: Path, store: str | None, to: str, rights: StoreSecurity, replace: bool) -> Moved | None:
    if store is not None:
        raise WrongUsage("--store is for a store that runs, --data for one that does not: one of them")
    async with _embedded(data, create=False) as embedded, _session(to, rights) as new:
        from tidelog.store.local import LocalStore

        before = moved_elsewhere(embedded.tree)
        if before is None:
            former = await LocalStore.connect(embedded)
            moved = await move(former, new, str(data), to, replace=replace, brokers_run=False)
            await finish(new, moved.import_id)
            return moved
        if before.connect != to:
            raise Refused([f"{data} has moved to {before.connect} already"])
        await finish(new, before.import_id)
        return None


# Stores.


def _rights(properties: Path | None) -> StoreSecurity:
    """How an ensemble knows us, and who may write what we make: as brokers have it in that file."""
    if properties is None:
        return OPEN
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.config.properties import ConfigError

    try:
        config = BrokerConfig.from_text(properties.read_text(encoding="utf-8"), str(properties), {})
    except ConfigError as error:
        raise Refused(str(error).splitlines()) from error
    return security_of(config)


class _Said:
    """What a server says of itself when it is asked `stat`."""

    def __init__(self, text: str) -> None:
        self._fields = [line.partition(": ")[::2] for line in text.splitlines()]
        self.version = self._field("Zookeeper version") or "something that says nothing of its version"
        self.mode = self._field("Mode") or "unknown"
        self.moved_to = self._field("Moved to")
        self.import_id = self._field("Moved by") or ""
        self.local_sessions = int(self._field("Local sessions") or 0)

    def _field(self, name: str) -> str | None:
        return next((value for key, value in self._fields if key == name), None)

    @property
    def is_ours(self) -> bool:
        return self.version.endswith("-tidelog")

    @property
    def is_open(self) -> bool:
        """Whether it lets clients through to where it has moved."""
        return self._field("Relay") == "open"

    @property
    def relayed(self) -> list[str]:
        """Addresses of those."""
        return [value for key, value in self._fields if key == "Relayed"]


async def _look(store: str) -> _Said:
    (host, port), *_ = _servers(store).addresses

    def ask() -> str:
        with socket.create_connection((host, port), WORD_S_MAX) as connection:
            connection.sendall(b"stat")
            answer = b""
            while data := connection.recv(1 << 16):
                answer += data
            return answer.decode(errors="replace")

    try:
        return _Said(await asyncio.to_thread(ask))
    except OSError as error:
        raise Refused([f"no store answers at {host}:{port}: {error.strerror or error}"]) from error


def _servers(connect: str) -> Any:
    try:
        return parse_servers(connect)
    except ValueError as error:
        raise WrongUsage(str(error)) from error


@contextlib.asynccontextmanager
async def _opened(
    store: str | None, data: Path | None, rights: StoreSecurity, *, create: bool = False
) -> AsyncIterator[tuple[StoreClient, str]]:
    """A session with the store that the options name, and its name."""
    if (store is None) == (data is None):
        raise WrongUsage("which store? --store HOST:PORT,.../CHROOT of one that runs, or --data DIR: one of them")
    if store is not None:
        async with _session(store, rights) as client:
            yield client, store
    else:
        assert data is not None
        from tidelog.store.local import LocalStore

        async with _embedded(data, create=create) as embedded:
            moved = moved_elsewhere(embedded.tree)
            if moved is not None:
                raise Refused([f"{data} has moved to {moved.connect}: that is the store now"])
            yield await LocalStore.connect(embedded), str(data)


@contextlib.asynccontextmanager
async def _session(connect: str, rights: StoreSecurity, away_s_max: float | None = None) -> AsyncIterator[StoreClient]:
    """A session with a store that is served; ConnectionLoss once the store has been away for `away_s_max` seconds.

    None: AWAY_S_MAX.
    """
    from tidelog.store.zookeeper import ZooKeeperStore

    _servers(connect)
    client = await ZooKeeperStore.connect(
        connect,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        connection_timeout_ms=CONNECTION_TIMEOUT_MS,
        security=rights,
    )
    try:
        async with waiting_at_most(client, connect, AWAY_S_MAX if away_s_max is None else away_s_max):
            yield client
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def _embedded(data: Path, *, create: bool) -> AsyncIterator[EmbeddedStore]:
    """The store of a directory that no process uses."""
    from tidelog.ports.real import SystemClock, SystemRandom
    from tidelog.store.embedded import EmbeddedStore
    from tidelog.store.sqlite import SqlitePersistence

    places = [data / folder for folder in STORE_FOLDERS]
    place = next((each for each in places if (each / FILE_NAME).exists()), None)
    if place is None:
        if not create:
            looked = ", ".join(str(each / FILE_NAME) for each in places)
            raise Refused([f"there is no metadata store in {data}: none of {looked}"])
        place = data / "store"
    embedded = EmbeddedStore(SqlitePersistence(str(place), SystemDisk()), SystemClock(), SystemRandom())
    embedded.start()
    try:
        yield embedded
    finally:
        await embedded.close()


def _run(work: Coroutine[Any, Any, T]) -> T:
    from tidelog.store.errors import StoreCorrupt, StoreError, StoreLocked

    try:
        return asyncio.run(work)
    except (TransferRefused, StoreError, StoreCorrupt, StoreLocked) as error:
        sys.stdout.flush()
        raise Refused([str(error)]) from error
