"""What a disk holds, in the page cache and on the platter: files, and directories of names.

A write changes the page cache. `sync` brings it to the platter, `power_cut` takes back what was not synced, in whole or
in part. The rules are those of POSIX, at their strictest: see `sim.world.disk`, which is what processes use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from sim.world.randomness import SeededRandom

PAGE: Final = 4096
SECTOR: Final = 512
"""Bytes that reach the platter whole or not at all."""


class Inode:
    """A file: what the page cache shows, and what a power cut would leave."""

    __slots__ = (
        "content",
        "dirty",
        "durable",
        "modified_ms",
        "rewritten",
        "rotten",
        "rotten_durable",
        "size_dirty",
    )

    def __init__(self, now_ms: int) -> None:
        self.content = bytearray()
        self.durable = bytearray()
        self.dirty: set[int] = set()
        self.size_dirty = False
        self.modified_ms = now_ms
        self.rotten: dict[int, int] = {}
        """[position] -> bits of the byte there that are not what was written."""
        self.rotten_durable: dict[int, int] = {}
        """The same of what is on the platter: what mends it has to be synced."""
        self.rewritten = 0
        """Counts what changed bytes that were there before: a check that reads along has to begin anew."""

    @staticmethod
    def sound(content: bytearray, rotten: dict[int, int]) -> bytearray:
        """A content as it was before it began to rot."""
        if rotten:
            content = bytearray(content)
            for position, bits in rotten.items():
                if position < len(content):
                    content[position] ^= bits
        return content

    def heal(self, start: int, end: int) -> None:
        """Bytes are written anew, or are no more."""
        if self.rotten:
            self.rotten = {at: bits for at, bits in self.rotten.items() if not start <= at < end}

    def touch(self, start: int, end: int) -> None:
        self.dirty.update(range(start // PAGE, (end + PAGE - 1) // PAGE))

    def sync(self) -> None:
        size = len(self.content)
        if len(self.durable) < size:
            self.durable += bytes(size - len(self.durable))
        del self.durable[size:]
        for page in self.dirty:
            start = page * PAGE
            if start < size:
                self.durable[start : start + PAGE] = self.content[start : start + PAGE]
        self.rotten_durable = dict(self.rotten)
        self.forget_dirt()

    def forget_dirt(self) -> None:
        self.dirty.clear()
        self.size_dirty = False

    def power_cut(self, random: SeededRandom, *, nothing_survives: bool) -> None:
        self.rewritten += 1
        if nothing_survives:
            self.content = bytearray(self.durable)
            self.rotten = dict(self.rotten_durable)
            self.forget_dirt()
            return
        old, new = self.durable, self.content
        size = len(old)
        if self.size_dirty:
            between = range(min(len(old), len(new)) // PAGE + 1, max(len(old), len(new)) // PAGE + 1)
            sizes = (len(old), len(new), *(page * PAGE for page in between))
            size = sizes[random.below(len(sizes))]
        left = old[:size] + bytes(max(size - len(old), 0))
        for page in sorted(self.dirty):
            start = page * PAGE
            fate = random.below(4)
            for sector in range(start, min(start + PAGE, size, len(new)), SECTOR):
                if fate == 0 or (fate == 1 and random.chance(0.5)):
                    part = new[sector : min(sector + SECTOR, size)]
                    left[sector : sector + len(part)] = part
        self.rotten_durable = {
            position: bits
            for position, bits in self.rotten_durable.items()
            if position < len(left) and left[position] == old[position]
        }
        self.rotten = dict(self.rotten_durable)
        self.content = left
        self.durable = bytearray(left)
        self.forget_dirt()


class Directory:
    """Names: as they are, as a power cut would leave them at least, and the changes between the two."""

    __slots__ = ("changes", "durable", "entries", "listed")

    def __init__(self) -> None:
        self.entries: dict[str, Inode | Directory] = {}
        self.durable: dict[str, Inode | Directory] = {}
        self.changes: list[tuple[str | None, str | None, Inode | Directory]] = []
        """(name that went, name that came, what it names), in order."""
        self.listed: dict[str, dict[str, FileContent]] = {}
        """[suffix] -> the files whose names end so: as long as no name changes, checks list them once."""

    def contents(self, suffix: str) -> dict[str, FileContent]:
        """The files whose names end so, by name; not to be changed."""
        found = self.listed.get(suffix)
        if found is None:
            found = self.listed[suffix] = {
                name: FileContent(inode)
                for name, inode in sorted(self.entries.items())
                if name.endswith(suffix) and isinstance(inode, Inode)
            }
        return found

    def change(self, gone: str | None, come: str | None, node: Inode | Directory) -> None:
        self.listed.clear()
        _apply(self.entries, gone, come, node)
        self.changes.append((gone, come, node))

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.changes.clear()

    def sync_below(self) -> None:
        self.sync()
        for node in self.entries.values():
            if isinstance(node, Directory):
                node.sync_below()
            else:
                node.sync()

    def power_cut(self, random: SeededRandom, *, nothing_survives: bool, names_in_order: bool) -> None:
        for gone, come, node in [] if nothing_survives else _survivors(self.changes, random, in_order=names_in_order):
            _apply(self.durable, gone, come, node)
        self.entries = dict(self.durable)
        self.listed.clear()
        self.changes.clear()
        for name in sorted(self.entries):
            node = self.entries[name]
            if isinstance(node, Directory):
                node.power_cut(random, nothing_survives=nothing_survives, names_in_order=names_in_order)
            else:
                node.power_cut(random, nothing_survives=nothing_survives)

    def files(self) -> Iterator[Inode]:
        for node in self.entries.values():
            if isinstance(node, Directory):
                yield from node.files()
            else:
                yield node


_Change: TypeAlias = tuple[str | None, str | None, "Inode | Directory"]


def _survivors(changes: list[_Change], random: SeededRandom, *, in_order: bool) -> list[_Change]:
    """A beginning of them, or any of them."""
    if in_order or random.chance(0.5):
        return changes[: random.below(len(changes) + 1)]
    return [change for change in changes if random.chance(0.5)]


def _apply(entries: dict[str, Inode | Directory], gone: str | None, come: str | None, node: Inode | Directory) -> None:
    if gone is not None:
        entries.pop(gone, None)
    if come is not None:
        entries[come] = node


class FileContent:
    """A file to be looked at from outside, as it is now, or would be had nothing of it rotted."""

    __slots__ = ("_inode",)

    def __init__(self, inode: Inode) -> None:
        self._inode = inode

    @property
    def content(self) -> bytearray:
        return self._inode.sound(self._inode.content, self._inode.rotten)

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self._inode.content)

    @property
    def durable(self) -> bytearray:
        """What is on the platter."""
        return self._inode.sound(self._inode.durable, self._inode.rotten_durable)

    @property
    def is_clean(self) -> bool:
        """Whether nothing of it waits for a sync."""
        return not self._inode.dirty and not self._inode.size_dirty

    @property
    def state(self) -> tuple[object, int]:
        """Equal as long as all that happened is that the file grew."""
        return self._inode, self._inode.rewritten
