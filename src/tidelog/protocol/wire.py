"""What generated and handwritten codecs share: varints, tagged fields, packers of small arrays, and refusals.

A decoder is a function (data, position, end) -> (message, position after it). It relies on indexing and `struct` to
raise at the end of the data, and checks by itself whatever slicing would cut short in silence; `codec` turns all of it
into ProtocolError. Nothing is allocated from a count before the count was held against the bytes that remain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from struct import Struct
from typing import Final, TypeAlias

from tidelog.protocol.errors import InvalidMessage, ProtocolError

Buffer: TypeAlias = bytes | bytearray | memoryview
Tags: TypeAlias = Sequence[tuple[int, bytes]]
"""Tagged fields that the table doesn't know, [(tag, content)]: written back as they came."""

STRING_SIZE_MAX: Final = 0x7FFF
"""Bytes: flexible versions keep the bound that the old 16-bit length imposed."""
ELEMENTS_MAX: Final = 1_000_000
"""Elements of all arrays of one request, and its unknown tagged fields: an element of a byte or two takes hundreds once
it is decoded, so the bytes of a request are no bound of the memory and the time that it takes."""
TAGS_MAX: Final = 1_000
"""Tagged fields of one struct."""
SMALL: Final = 9
"""Arrays of fewer elements are packed and unpacked by a prepared `Struct`."""


def more_of_uvarint(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """Goes on with an unsigned varint whose `first` byte has the top bit set; `position` is after that byte."""
    value, shift = first & 0x7F, 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise ProtocolError(f"the varint {value} does not fit into 32 bits")
            return value, position
        shift += 7
        if shift > 28:
            raise ProtocolError("a varint has more than 5 bytes")


def uvarint(value: int) -> bytes:
    """An unsigned varint of at most 32 bits."""
    if 0 <= value < 128:
        return UVARINTS[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


UVARINTS: Final = tuple(bytes([value]) for value in range(128))
"""[value] -> its only byte."""


def read_tags(data: Buffer, position: int, end: int, count: int) -> tuple[list[tuple[int, int, int]], int]:
    """A section of tagged fields after the first byte of its count: [(tag, start, end)], and the position after it."""
    if count > 0x7F:
        count, position = more_of_uvarint(data, position, count)
    if count > TAGS_MAX:
        raise ProtocolError(f"a struct has {TAGS_MAX} tagged fields at most, not {count}")
    if count * 2 > end - position:
        raise ProtocolError(f"{count} tagged fields cannot be in {end - position} bytes")
    found: dict[int, tuple[int, int, int]] = {}
    for _ in range(count):
        tag = data[position]
        position += 1
        if tag > 0x7F:
            tag, position = more_of_uvarint(data, position, tag)
        size = data[position]
        position += 1
        if size > 0x7F:
            size, position = more_of_uvarint(data, position, size)
        if size > end - position:
            raise ProtocolError(f"tagged field {tag} of {size} bytes goes beyond the {end - position} that remain")
        if tag in found:
            raise ProtocolError(f"tagged field {tag} is there twice")
        found[tag] = (tag, position, position + size)
        position += size
    return list(found.values()), position


def read_unknown_tags(data: Buffer, position: int, end: int, count: int) -> tuple[Tags, int]:
    """As `read_tags`, of a struct without known tagged fields: their contents."""
    found, position = read_tags(data, position, end, count)
    return [(tag, bytes(data[first:last])) for tag, first, last in found], position


def write_tags(tags: Tags) -> bytes:
    """A whole section of tagged fields, in ascending order as KIP-482 asks."""
    if len(tags) == 1 and tags[0][0] >= 0:
        # As a follower's fetch has it.
        tag, content = tags[0]
        return b"".join((UVARINTS[1], uvarint(tag), uvarint(len(content)), content))
    parts = [uvarint(len(tags))]
    last = -1
    for tag, content in sorted(tags):
        if tag == last or tag < 0:
            raise InvalidMessage(f"unknown_tagged_fields: the tag {tag} is negative, known, or there twice")
        last = tag
        parts += (uvarint(tag), uvarint(len(content)), content)
    return b"".join(parts)


@cache
def small_packers(before: str, element: str) -> tuple[Callable[..., bytes], ...]:
    """[count] -> packs the fields of `before` and then `count` elements."""
    return tuple(Struct(f">{before}{count}{element}").pack for count in range(SMALL))


@cache
def small_unpackers(element: str) -> tuple[Callable[[Buffer, int], tuple[int, ...]], ...]:
    """[count] -> unpacks `count` elements."""
    return tuple(Struct(f">{count}{element}").unpack_from for count in range(SMALL))


def bad_length(path: str, length: int, remaining: int) -> ProtocolError:
    """The refusal of a length or a count."""
    if length < 0:
        return ProtocolError(f"{path} is null or has a negative length ({length})")
    return ProtocolError(f"{path} of length {length} cannot be in the {remaining} bytes that remain")


def too_many(path: str) -> ProtocolError:
    """The refusal of a request that would take more than its bytes let expect."""
    return ProtocolError(f"{path}: a request has {ELEMENTS_MAX} elements at most")


def bad_tag(path: str) -> ProtocolError:
    """The refusal of a tagged field whose content is longer or shorter than its size."""
    return ProtocolError(f"tagged field {path} does not have the size that it says")


def absent(path: str) -> InvalidMessage:
    """The refusal to drop a value that this version cannot carry."""
    return InvalidMessage(f"{path} is set, but this version of the message has no such field")


def too_long(path: str, size: int) -> InvalidMessage:
    """The refusal of a string."""
    return InvalidMessage(f"{path} has {size} bytes; a string has {STRING_SIZE_MAX} at most")


HELPERS: Final[dict[str, object]] = {
    helper.__name__: helper
    for helper in (
        more_of_uvarint,
        uvarint,
        read_tags,
        read_unknown_tags,
        write_tags,
        bad_length,
        too_many,
        bad_tag,
        absent,
        too_long,
    )
} | {"UVARINTS": UVARINTS, "STRING_SIZE_MAX": STRING_SIZE_MAX, "ELEMENTS_MAX": ELEMENTS_MAX}
"""What generated functions call, by name."""
