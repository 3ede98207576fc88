"""Generates the encoder of one version of a message: one function that appends chunks, all structs in line.

Values are not checked one by one: `struct` refuses what is out of range, and `explain` then finds out which field it
was. What `struct` would let through is checked here: fields that the version lacks, sizes of ids and strings.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, pack
from typing import Any

from tidelog.protocol import wire
from tidelog.protocol.classes import Message
from tidelog.protocol.errors import InvalidMessage
from tidelog.protocol.schema import FIXED, Field
from tidelog.protocol.source import Layout, Source


def compile_encoder(cls: type[Message], version: int) -> Callable[[Any, Callable[[Any], object]], None]:
    """The encoder of a version that the message has."""
    source = encoder_source(cls, version)
    exec(compile(source.text(), f"<encoder of {cls.__name__} {version}>", "exec"), source.scope)
    return source.scope["encode"]  # type: ignore[return-value]  # Scopes hold objects.


def encoder_source(cls: type[Message], version: int) -> Source:
    """Its text and globals."""
    source = Source()
    source.scope.update(cls.STRUCTS | wire.HELPERS, pack=pack, uuid_of=uuid_of, write_records=write_records)
    generator = _Generator(source, Layout(version, cls.SCHEMA.is_flexible(version)))
    with source.block("def encode(o, w):"):
        generator.struct("o", cls.SCHEMA.fields, cls.__name__)
    return source


def uuid_of(value: bytes) -> bytes:
    """Guards against what `struct` would pad or cut."""
    if len(value) != 16:
        raise InvalidMessage(f"an id has 16 bytes, not {len(value)}")
    return value


def write_records(records: Any, write: Callable[[Any], object], *, compact: bool) -> None:
    """Records with their length before them; a list's chunks go on uncopied."""
    chunks = records if isinstance(records, list) else (records,)
    size = sum(map(len, chunks))
    write(wire.uvarint(size + 1) if compact else pack(">i", size))
    for chunk in chunks:
        write(chunk)


class _Generator:
    """Writes the body. Names in it: o, o1, ... objects, w appends a chunk, n a length, b bytes."""

    def __init__(self, source: Source, layout: Layout) -> None:
        self._source = source
        self._add = source.add
        self._layout = layout
        self._run: list[tuple[str, str]] = []

    def struct(self, target: str, fields: tuple[Field, ...], path: str) -> None:
        """Encodes a struct; leaves nothing unwritten."""
        layout = self._layout
        for field in layout.absent(fields):
            if not field.ignorable:
                with self._source.block(f"if {self._differs(target, field)}:"):
                    self._add(f"raise absent({path + '.' + field.name!r})")
        for field in layout.present(fields):
            self._field(f"{target}.{field.name}", field, f"{path}.{field.name}")
        if layout.flexible:
            self._tags(target, layout.tagged(fields), path)
        else:
            self._flush()
            with self._source.block(f"if {target}.unknown_tagged_fields:"):
                self._add(f"raise absent({path + '.unknown_tagged_fields'!r})")

    def _differs(self, target: str, field: Field) -> str:
        """An expression: the field is not at its default."""
        place = f"{target}.{field.name}"
        if field.default_is_null:
            return f"{place} is not None"
        if field.is_array:
            return f"{place} or {place} is None"
        if field.is_struct:
            struct: Any = self._source.scope[field.type]
            default = self._source.constant(f"DEFAULT_{field.type}", struct())
            return f"{place} != {default}"
        return f"{place} != {field.default!r}"

    def _field(self, place: str, field: Field, path: str) -> None:
        if field.is_array:
            self._array(place, field, path)
        elif field.is_struct:
            self._nested(place, field, path)
        elif field.is_fixed:
            self._run.append((FIXED[field.type][0], f"uuid_of({place})" if field.type == "uuid" else place))
        else:
            self._text(place, field, path)

    def _flush(self, last: str = "", argument: str = "") -> str:
        """Writes the packing of the fixed fields seen so far, with one more item if given."""
        run, self._run = self._run, []
        line = self._packed(run + ([(last, argument)] if last else []))
        if line:
            self._add(f"w({line})")
        return line

    def _packed(self, run: list[tuple[str, str]]) -> str:
        if not run:
            return ""
        if run == [("x", "")]:
            return repr(bytes(1))
        if len(run) == 1 and run[0][0] == "B":
            return f"UVARINTS[{run[0][1]}]"
        format_ = "".join(letter for letter, _ in run)
        packer = self._source.constant(f"pack_{format_.replace('?', 'Z')}", Struct(f">{format_}").pack)
        return f"{packer}({', '.join(value for letter, value in run if letter != 'x')})"

    def _length(self, field: Field, path: str) -> None:
        """Writes n, the length as it stands on the wire, with the fixed fields before it."""
        letter = self._layout.length_format(field)
        if letter != "B":
            self._flush(letter, "n")
            return
        run = self._run
        with self._source.block("if n < 128:"):
            self._flush("B", "n")
        with self._source.block("else:"):
            if field.type == "string" and not field.is_array:
                with self._source.block("if n > STRING_SIZE_MAX + 1:"):
                    self._add(f"raise too_long({path!r}, n - 1)")
            self._run = run
            self._flush()
            self._add("w(uvarint(n))")

    def _text(self, place: str, field: Field, path: str) -> None:
        """A string, bytes or records."""
        compact = self._layout.is_compact(field)
        if field.type == "records":
            self._records(place, field, compact=compact)
            return
        self._add(f"b = {place}")
        encode = "b = b.encode()" if field.type == "string" else ""
        length = "n = len(b) + 1" if compact else "n = len(b)"
        if self._layout.is_nullable(field):
            with self._source.block("if b is None:"):
                self._add('b = b""')
                self._add("n = 0" if compact else "n = -1")
            with self._source.block("else:"):
                if encode:
                    self._add(encode)
                self._add(length)
        else:
            if encode:
                self._add(encode)
            self._add(length)
        self._length(field, path)
        self._add("w(b)")

    def _records(self, place: str, field: Field, *, compact: bool) -> None:
        self._flush()
        write = f"write_records({place}, w, compact={compact})"
        if not self._layout.is_nullable(field):
            self._add(write)
            return
        with self._source.block(f"if {place} is None:"):
            self._add(f"w({bytes(1) if compact else bytes([255] * 4)!r})")
        with self._source.block("else:"):
            self._add(write)

    def _array(self, place: str, field: Field, path: str) -> None:
        items = self._source.fresh("a")
        compact = self._layout.is_compact(field)
        self._add(f"{items} = {place}")
        length = f"n = len({items}) + 1" if compact else f"n = len({items})"
        if self._layout.is_nullable(field):
            with self._source.block(f"if {items} is None:"):
                self._add(f"{items} = ()")
                self._add("n = 0" if compact else "n = -1")
            with self._source.block("else:"):
                self._add(length)
        else:
            self._add(length)
        if field.type in FIXED and field.type != "uuid":
            self._numbers(items, field, path)
        else:
            self._length(field, path)
            self._elements(items, field, path)

    def _numbers(self, items: str, field: Field, path: str) -> None:
        letter = FIXED[field.type][0]
        before = self._layout.length_format(field)
        self._flush()
        small = self._source.constant(f"small_{before}{letter}", wire.small_packers(before, letter))
        with self._source.block(f"if n < {wire.SMALL}:"):
            # n may be one more than the elements, 0 or -1: the table is asked by the elements.
            self._add(f"w({small}[len({items})](n, *{items}))")
        with self._source.block("else:"):
            self._length(field, path)
            self._add(f'w(pack(f">{{len({items})}}{letter}", *{items}))')

    def _elements(self, items: str, field: Field, path: str) -> None:
        element = self._source.fresh("o")
        with self._source.block(f"for {element} in {items}:"):
            if field.is_struct:
                self.struct(element, field.fields, path)
            else:
                self._field(element, field._replace(is_array=False, null_versions=frozenset()), path)
                self._flush()

    def _nested(self, place: str, field: Field, path: str) -> None:
        element = self._source.fresh("o")
        if not self._layout.is_nullable(field):
            self._add(f"{element} = {place}")
            self.struct(element, field.fields, path)
            return
        self._flush()
        self._add(f"{element} = {place}")
        with self._source.block(f"if {element} is None:"):
            # Kafka marks a null struct by -1 in line, but by 0 in a tagged field.
            self._add(f"w({bytes(1) if self._layout.is_tagged(field) else bytes([255])!r})")
        with self._source.block("else:"):
            self._add('w(b"\\x01")')
            self.struct(element, field.fields, path)

    def _tags(self, target: str, known: list[Field], path: str) -> None:
        run = self._run
        conditions = [f"{target}.unknown_tagged_fields", *(self._differs(target, field) for field in known)]
        with self._source.block(f"if {' or '.join(conditions)}:"):
            self._flush()
            tags = self._source.fresh("tags")
            self._add(f"{tags} = list({target}.unknown_tagged_fields)")
            for field in known:
                with self._source.block(f"if {self._differs(target, field)}:"):
                    chunks, outer = self._source.fresh("chunks"), self._source.fresh("outer")
                    self._add(f"{chunks} = []; {outer} = w; w = {chunks}.append")
                    self._field(f"{target}.{field.name}", field, f"{path}.{field.name}")
                    self._flush()
                    self._add(f'w = {outer}; {tags}.append(({field.tag}, b"".join({chunks})))')
            self._add(f"w(write_tags({tags}))")
        with self._source.block("else:"):
            self._run = run
            self._flush("x")
