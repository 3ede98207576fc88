"""A store's content read and written over a session: exports, imports, and the move of a running cluster.

**Reading.** What is read node by node is a picture of one moment only if nothing was written meanwhile. So every node
is looked at twice, and the second look begins when the first has ended: where no node has another transaction id (of
its data, of its children) then, all of them were as they were read at the moment between the two. Otherwise it is done
again. Where no other client is served (`moving.MOVING`), one look is enough.

**Writing.** A node keeps brokers out while a store is filled, and says that the rest is only a part. What a former
attempt left with that node is wiped away, so an import that broke off is simply done again. Anything else is left
alone.

**Moving** is: copy the former store as it happens to be, hold it, read it again, bring the copy up to date, and create
`moving.MOVED` in the former, in the same transaction that checks that it is still held. That transaction is the move.
Before it, whatever dies, the cluster goes on with its former store; after it, that store never answers again, and its
server relays to the new one.

The broker epochs of a cluster are transaction ids of its store, and must not go back while its brokers live: a broker
that knew a follower by a later one would refuse it. So the new store is first made to count beyond the former
(`count_up`). An ensemble does so by itself, since its elections count in steps of 2**32.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from tidelog.metadata.operations import Check, Create, Delete, Operation, SetData
from tidelog.metadata.znodes import BROKER_IDS, BROKER_SEQUENCE
from tidelog.store.client import Stat, StoreClient
from tidelog.store.errors import NodeExists, NoNode, StoreError
from tidelog.store.export_file import (
    BROKER_IDS_SINCE,
    EPOCHS_SINCE,
    PRODUCER_IDS_SINCE,
    Export,
    ExportedNode,
    differences,
    is_exported,
    nodes_to_write,
    sequence_writes,
)
from tidelog.store.moving import (
    IMPORT,
    MOVED,
    MOVING,
    OWN_NODES,
    RESERVED,
    Destination,
    decode_import,
    encode_import,
    encode_moved,
    parse_servers,
)

logger: Final = logging.getLogger(__name__)

T = TypeVar("T")

REQUESTS_MAX: Final = 500
"""Under way at once."""
OPERATIONS_PER_MULTI_MAX: Final = 500
MULTI_SIZE_MAX: Final = 512 << 10
"""Bytes of paths and data in one multi; a server closes the connection of one that is larger than 1 MiB."""
LOOKS_MAX: Final = 10
"""At a store that is being written to, before reading it is given up."""
TRANSACTIONS_MAX: Final = 20_000_000
"""That a store is made to count up; more would take hours."""
SESSION_TIMEOUT_MS: Final = 10_000
CONNECTION_TIMEOUT_MS: Final = 10_000
HELD_S_MAX: Final = 60.0
"""For which a move may keep the cluster's brokers from their store, ten times what 10,000 partitions take.

Requests to a new store that has gone away wait for its return, and the former one is held as long as the mover lives.
"""
PROBE: Final = "/tidelog_probe"
"""Begins the name of a node that is only there to be looked for."""


_ABSENT: Final = object()
"""In the place of the data of a node that is not there."""


class TransferRefused(Exception):
    """What was asked cannot be done as things are; nothing has changed. The message says why, and what to do."""


# Reading.


async def read_store(store: StoreClient, source: str, *, exact: bool = True) -> Export:
    """The store's persistent nodes at one moment. TransferRefused where too much is written meanwhile; StoreError.

    Not `exact`: a node may be as it was earlier than another; or no other client writes.
    """
    for _ in range(LOOKS_MAX):
        taken_ms = _now_ms()
        found = await _read_once(store, exact)
        if found is not None:
            nodes, zxid = found
            return Export(source, _iso_time(taken_ms), zxid, tuple(nodes))
    raise TransferRefused(
        f"the store is written to all the time: {LOOKS_MAX} attempts to read it as it is at one moment have failed. "
        "Try again when no topics, settings or replicas are being changed"
    )


async def _read_once(store: StoreClient, exact: bool) -> tuple[list[ExportedNode], int] | None:
    """The nodes, sorted by path, and the newest transaction they show; None if something changed meanwhile."""
    await store.sync()
    first: dict[str, tuple[bytes | None, Stat]] = {}
    level = ["/"]
    while level:
        found = await _all(level, store.get)
        parents: list[str] = []
        for path, node in zip(level, found, strict=True):
            if node is not None:
                first[path] = node
                if node[1].num_children:
                    parents.append(path)
            elif exact:
                return None
        lists = await _all(parents, store.children)
        if exact and None in lists:
            return None
        level = [
            f"{path.rstrip('/')}/{name}"
            for path, children in zip(parents, lists, strict=True)
            if children is not None
            for name in children[0]
            if path != "/" or f"/{name}" != RESERVED
        ]
    if exact:
        again = await _all(list(first), store.exists)
        for (_, stat), later in zip(first.values(), again, strict=True):
            if later is None or (later.czxid, later.mzxid, later.pzxid) != (stat.czxid, stat.mzxid, stat.pzxid):
                return None
    zxid = max(max(stat.czxid, stat.mzxid, stat.pzxid) for _, stat in first.values())
    nodes = [
        ExportedNode(path, data, stat.version)
        for path, (data, stat) in sorted(first.items())
        if not stat.ephemeral_owner and is_exported(path)
    ]
    return nodes, zxid


async def _all(paths: Sequence[str], ask: Callable[[str], Awaitable[T]]) -> list[T | None]:
    """Answers in the order of `paths`, None for nodes that are gone; many requests under way at once."""
    answers: list[T | None] = []
    for begin in range(0, len(paths), REQUESTS_MAX):
        pending = [ask(path) for path in paths[begin : begin + REQUESTS_MAX]]
        outcomes = await asyncio.gather(*pending, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, NoNode):
                answers.append(None)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                answers.append(outcome)
    return answers


# Writing.


async def prepare(store: StoreClient, source: str, checksum: str, *, replace: bool = False) -> str:
    """Makes a store ready to be filled: empty but for the node that keeps brokers out; the import's id, for `finish`.

    What an import that broke off has left is removed; anything else only with `replace`. TransferRefused.
    """
    names = await _names(store)
    unfinished = IMPORT[1:] in names
    # The probe of a mover that was killed goes with its session, soon.
    others = [name for name in names if f"/{name}" not in OWN_NODES and not f"/{name}".startswith(PROBE)]
    if MOVED[1:] in names:
        raise TransferRefused(f"the store has itself been moved elsewhere (its node {MOVED} says where)")
    if others:
        brokers = await _brokers(store)
        if brokers:
            ids = ", ".join(brokers)
            raise TransferRefused(f"a cluster runs on that store: its brokers {ids} are registered. Stop them first")
        if not (unfinished or replace):
            shown = ", ".join(f"/{name}" for name in others[:5])
            raise TransferRefused(
                f"the store is not empty: it has {shown}{', ...' if len(others) > 5 else ''}. Choose another chroot, "
                "or, if what is there may be lost, replace it (--replace)"
            )
    import_id = os.urandom(16).hex()
    content = encode_import(source, checksum, import_id)
    try:
        await store.create(IMPORT, content)
    except NodeExists:
        await store.set(IMPORT, content)
    for name in others:
        await _remove(store, f"/{name}")
    return import_id


async def fill(store: StoreClient, export: Export) -> None:
    """Creates what the export holds in a store that `prepare` has made ready; reads it back.

    TransferRefused, StoreError.
    """
    creations = nodes_to_write(export, EPOCHS_SINCE, PRODUCER_IDS_SINCE)
    await _in_multis(store, creations)
    await _require(store, creations)
    await _count_broker_ids(store, sequence_writes(export) + BROKER_IDS_SINCE)


async def _require(store: StoreClient, creations: Sequence[Create]) -> None:
    """TransferRefused unless the store holds what was created, and nothing else."""
    written = await read_store(store, "")
    found = {node.path: node.data for node in written.nodes}
    wrong = [each.path for each in creations if not each.sequential and found.get(each.path, _ABSENT) != each.data]
    if wrong or len(found) != len(creations):
        raise TransferRefused(
            "what was written is not what is there now: another client writes into that store, too "
            f"({', '.join(wrong[:3]) or 'more nodes than were created'})"
        )


async def _count_broker_ids(store: StoreClient, count: int) -> None:
    """Generated broker ids are counted by that node's version; a store of no cluster has none."""
    with contextlib.suppress(NoNode):
        await _in_multis(store, [SetData(BROKER_SEQUENCE, b"")] * count)


async def count_up(store: StoreClient, zxid: int) -> int:
    """Makes transactions until the store has counted beyond `zxid`; how many that took. TransferRefused, StoreError.

    `prepare` was called before.
    """
    made = 0
    content, stat = await store.get(IMPORT)
    missing = zxid - stat.mzxid
    if missing > TRANSACTIONS_MAX:
        raise TransferRefused(
            f"the new store's transaction ids are {missing:,} behind those of the former one, and broker epochs must "
            "not go back: stop all brokers, and move the store's directory instead (--data)"
        )
    while stat.mzxid <= zxid:
        batch = min(REQUESTS_MAX, zxid - stat.mzxid + 1)
        stat = (await asyncio.gather(*(store.set(IMPORT, content) for _ in range(batch))))[-1]
        made += batch
    return made


async def finish(store: StoreClient, import_id: str) -> None:
    """What that import has filled is complete, and brokers may use it. Idempotent.

    NoAuth for a client that may not say so; StoreError where another import has begun there since.
    """
    await store.sync()
    try:
        content, stat = await store.get(IMPORT)
    except NoNode:
        return
    if decode_import(content) != import_id:
        raise StoreError(
            IMPORT,
            "the store is being filled by an import or another move that has not ended: wait for it, or do it again",
        )
    with contextlib.suppress(NoNode):
        await store.delete(IMPORT, stat.version)


async def open_for_brokers(destination: Destination) -> None:
    """`finish`, for the store to which another one has moved, in a session of its own. StoreError."""
    from tidelog.store.zookeeper import ZooKeeperStore

    store = await ZooKeeperStore.connect(
        destination.connect, session_timeout_ms=SESSION_TIMEOUT_MS, connection_timeout_ms=CONNECTION_TIMEOUT_MS
    )
    try:
        await finish(store, destination.import_id)
    finally:
        await store.close()


async def _names(store: StoreClient) -> list[str]:
    names, _ = await store.children("/")
    return [name for name in names if f"/{name}" != RESERVED]


async def _brokers(store: StoreClient) -> Sequence[str]:
    try:
        return (await store.children(BROKER_IDS))[0]
    except NoNode:
        return []


async def _remove(store: StoreClient, path: str) -> None:
    """A node and all below it, children first."""
    paths, level = [path], [path]
    while level:
        lists = await _all(level, store.children)
        level = [f"{above}/{name}" for above, found in zip(level, lists, strict=True) if found for name in found[0]]
        paths += level
    await _in_multis(store, [Delete(each) for each in reversed(paths)])


async def _in_multis(store: StoreClient, operations: Iterable[Operation]) -> None:
    """All operations in order, many in a transaction, some transactions under way at once."""
    multis: list[list[Operation]] = []
    size = 0
    for operation in operations:
        weight = len(operation.path) + len(getattr(operation, "data", None) or b"")
        if not multis or len(multis[-1]) >= OPERATIONS_PER_MULTI_MAX or size + weight > MULTI_SIZE_MAX:
            multis.append([])
            size = 0
        multis[-1].append(operation)
        size += weight
    for outcome in await asyncio.gather(*map(store.multi, multis), return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


# Moving.


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move has done."""

    nodes: int
    held_s: float
    """Seconds for which no other client was served."""
    import_id: str
    """With which the new store is opened to brokers (`finish`)."""


async def move(
    former: StoreClient,
    new: StoreClient,
    source: str,
    target: str,
    *,
    replace: bool = False,
    brokers_run: bool = True,
) -> Moved:
    """Moves what `former` holds to `new`, which brokers reach by `target`; `brokers_run`: some know broker epochs.

    When it returns, or fails in the last step with ConnectionLoss, the former store may have been moved: its node
    `moving.MOVED` says so. Any other error means that it was not, and the hold goes with the session `former`, which is
    to be closed. TransferRefused, StoreError.
    """
    loop = asyncio.get_running_loop()
    # All that takes long is done before other clients are held up.
    await _require_another(former, new, target)
    import_id = await prepare(new, source, "", replace=replace)
    rough = await read_store(former, source, exact=False)
    copied = [creation for creation in nodes_to_write(rough, 1) if not creation.sequential]
    await _in_multis(new, copied)
    await _require(new, copied)
    if brokers_run:
        await count_up(new, rough.zxid)
    try:
        await former.create(MOVING, target.encode(), ephemeral=True)
    except NodeExists:
        raise TransferRefused("another process is moving that store") from None
    began = loop.time()
    try:
        async with asyncio.timeout(HELD_S_MAX):
            export = await read_store(former, source, exact=False)
            await _in_multis(new, differences(copied, nodes_to_write(export, 1)))
            await _count_broker_ids(new, sequence_writes(export))
            if brokers_run:
                await count_up(new, export.zxid)
    except TimeoutError:
        raise TransferRefused(
            f"the store was held for {HELD_S_MAX:g} s, and {target} had not taken over all that it holds: nothing has "
            f"moved, and brokers go on with the store they had. See whether {target} runs, then move again"
        ) from None
    moved = encode_moved(Destination(target, import_id), export.checksum, _now_ms())
    await former.multi([Check(MOVING, 0), Create(MOVED, moved)])
    return Moved(len(export.nodes), loop.time() - began, import_id)


async def _require_another(former: StoreClient, new: StoreClient, target: str) -> None:
    """TransferRefused where both are one store, by whatever names: its hold would cut off the mover that is to fill
    it."""
    probe = f"{PROBE}_{os.urandom(16).hex()}"
    await new.create(probe, ephemeral=True)
    try:
        found = await former.exists(parse_servers(target).root + probe)
    finally:
        await new.delete(probe)
    if found is not None:
        raise TransferRefused(f"{target} is the same store, which cannot move into itself: name another one")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _iso_time(wall_ms: int) -> str:
    """In UTC, to the millisecond, as ISO 8601 has it."""
    seconds, milliseconds = divmod(wall_ms, 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{milliseconds:03d}+00:00"
