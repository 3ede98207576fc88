"""Generates the decoder of one version of a message: one function, all structs in line.

Neighbouring fields of fixed size are unpacked together, and with them the length that follows: for Metadata's
partitions that is one call for four fields. See `wire` for what a decoder may rely on.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, calcsize, unpack_from
from typing import Any, Final

from tidelog.protocol import wire
from tidelog.protocol.classes import Message, empty, is_made_anew
from tidelog.protocol.schema import FIXED, Field
from tidelog.protocol.source import Layout, Source

_BOUNDED: Final = ("request", "data")
"""Kinds of messages that anybody can send, whose elements are counted (`wire.ELEMENTS_MAX`)."""
_UNBOUNDED: Final = frozenset({"LeaderAndIsrRequest", "StopReplicaRequest", "UpdateMetadataRequest"})
"""Requests of the controller about all partitions of a cluster, by the listener between brokers only."""


def compile_decoder(cls: type[Message], version: int) -> Callable[[Any, int, int], tuple[Any, int]]:
    """The decoder of a version that the message has."""
    source = decoder_source(cls, version)
    exec(compile(source.text(), f"<decoder of {cls.__name__} {version}>", "exec"), source.scope)
    return source.scope["decode"]  # type: ignore[return-value]  # Scopes hold objects.


def decoder_source(cls: type[Message], version: int) -> Source:
    """Its text and globals."""
    source = Source()
    source.scope.update(cls.STRUCTS | wire.HELPERS, new=object.__new__, root=cls, unpack_from=unpack_from)
    is_bounded = cls.KIND in _BOUNDED and cls.__name__ not in _UNBOUNDED
    generator = _Generator(source, Layout(version, cls.SCHEMA.is_flexible(version)), is_bounded=is_bounded)
    with source.block("def decode(d, p, end):"):
        if is_bounded:
            source.add("left = ELEMENTS_MAX")
        generator.struct("o", "root", cls.SCHEMA.fields, cls.__name__)
        source.add("return o, p")
    return source


class _Generator:
    """Writes the body. Names in it: d data, p position, n a length, e the end of a value, o, o1, ... objects.

    `is_bounded`: `left` counts down the elements that the message may still have.
    """

    def __init__(self, source: Source, layout: Layout, *, is_bounded: bool) -> None:
        self._source = source
        self._add = source.add
        self._layout = layout
        self._is_bounded = is_bounded
        self._run: list[tuple[str, str]] = []

    def struct(self, target: str, constructor: str, fields: tuple[Field, ...], path: str) -> None:
        """Decodes a struct into a new local."""
        self._flush()
        self._add(f"{target} = new({constructor})")
        layout = self._layout
        for field in layout.absent(fields) + layout.tagged(fields):
            self._add(f"{target}.{field.name} = {_default(field)}")
        for field in layout.present(fields):
            self._field(target, field, f"{path}.{field.name}")
        if layout.flexible:
            self._tags(target, layout.tagged(fields), path)
        else:
            self._flush()
            self._add(f"{target}.unknown_tagged_fields = ()")

    def _field(self, target: str, field: Field, path: str) -> None:
        place = f"{target}.{field.name}"
        if field.is_array:
            self._array(place, field, path)
        elif field.is_struct:
            self._nested(place, field, path)
        elif field.is_fixed:
            self._run.append((FIXED[field.type][0], place))
        else:
            self._text(place, field, path)

    def _flush(self) -> None:
        """Writes the unpacking of the fixed fields seen so far."""
        run, self._run = self._run, []
        if not run:
            return
        if run[0][0] == "B" and len(run) == 1:
            self._add(f"{run[0][1]} = d[p]")
            self._add("p += 1")
            return
        format_ = "".join(letter for letter, _ in run)
        unpack = self._source.constant(f"unpack_{format_.replace('?', 'Z')}", Struct(f">{format_}").unpack_from)
        targets = ", ".join(place for _, place in run) + ("," if len(run) == 1 else "")
        self._add(f"{targets} = {unpack}(d, p)")
        self._add(f"p += {calcsize('>' + format_)}")

    def _length(self, field: Field) -> None:
        """Leaves in n the length or count, -1 for null."""
        letter = self._layout.length_format(field)
        self._run.append((letter, "n"))
        self._flush()
        if letter == "B":
            with self._source.block("if n > 127:"):
                self._add("n, p = more_of_uvarint(d, p, n)")
            self._add("n -= 1")

    def _text(self, place: str, field: Field, path: str) -> None:
        """A string, bytes or records."""
        self._length(field)
        is_string = field.type == "string"
        test = "e > end or n < 0" + (" or n > STRING_SIZE_MAX" if is_string and self._layout.is_compact(field) else "")

        def value() -> None:
            self._add("e = p + n")
            with self._source.block(f"if {test}:"):
                self._add(f"raise bad_length({path!r}, n, end - p)")
            self._add(f"{place} = d[p:e]" + (".decode()" if is_string else ""))
            self._add("p = e")

        self._unless_null(place, field, value)

    def _unless_null(self, place: str, field: Field, value: Callable[[], None]) -> None:
        if not self._layout.is_nullable(field):
            value()
            return
        with self._source.block("if n == -1:"):
            self._add(f"{place} = None")
        with self._source.block("else:"):
            value()

    def _array(self, place: str, field: Field, path: str) -> None:
        self._length(field)
        size = self._layout.least_size(field, element=True)
        if not size:
            raise ValueError(f"{path}: nothing bounds the count of elements without bytes")

        def value() -> None:
            with self._source.block(f"if not 0 <= n <= (end - p) // {size}:"):
                self._add(f"raise bad_length({path!r}, n, end - p)")
            self._count("n", path)
            if field.type in FIXED and field.type != "uuid":
                self._numbers(place, field)
            else:
                self._elements(place, field, path)

        self._unless_null(place, field, value)

    def _count(self, elements: str, path: str) -> None:
        """Refuses a message that has too many elements, before any of these is made."""
        if not self._is_bounded:
            return
        self._add(f"left -= {elements}")
        with self._source.block("if left < 0:"):
            self._add(f"raise too_many({path!r})")

    def _numbers(self, place: str, field: Field) -> None:
        letter, size = FIXED[field.type]
        small = self._source.constant(f"small_{letter}", wire.small_unpackers(letter))
        self._add(f'{place} = list({small}[n](d, p) if n < {wire.SMALL} else unpack_from(f">{{n}}{letter}", d, p))')
        self._add(f"p += n * {size}" if size > 1 else "p += n")

    def _elements(self, place: str, field: Field, path: str) -> None:
        items, element = self._source.fresh("a"), self._source.fresh("o")
        self._add(f"{place} = {items} = []")
        with self._source.block("for _ in range(n):"):
            if field.is_struct:
                self.struct(element, field.type, field.fields, path)
            else:
                one = field._replace(is_array=False, null_versions=frozenset())
                if one.is_fixed:
                    self._run.append((FIXED[one.type][0], element))
                    self._flush()
                else:
                    self._text(element, one, path)
            self._add(f"{items}.append({element})")

    def _nested(self, place: str, field: Field, path: str) -> None:
        element = self._source.fresh("o")
        if not self._layout.is_nullable(field):
            self.struct(element, field.type, field.fields, path)
            self._add(f"{place} = {element}")
            return
        self._run.append(("b", "n"))
        self._flush()
        # Kafka marks a null struct by -1 in line, but by 0 in a tagged field.
        with self._source.block("if n <= 0:" if self._layout.is_tagged(field) else "if n < 0:"):
            self._add(f"{place} = None")
        with self._source.block("else:"):
            self.struct(element, field.type, field.fields, path)
            self._add(f"{place} = {element}")

    def _tags(self, target: str, known: list[Field], path: str) -> None:
        """The tagged fields at the end of every struct of a flexible version; mostly a zero byte."""
        self._run.append(("B", "n"))
        self._flush()
        if not known:
            with self._source.block("if n:"):
                self._add(f"{target}.unknown_tagged_fields, p = read_unknown_tags(d, p, end, n)")
                self._count(f"len({target}.unknown_tagged_fields)", path)
            with self._source.block("else:"):
                self._add(f"{target}.unknown_tagged_fields = ()")
            return
        found, after, tag, start, stop = (
            self._source.fresh(stem) for stem in ("tags", "after", "tag", "start", "stop")
        )
        self._add(f"{target}.unknown_tagged_fields = ()")
        with self._source.block("if n:"):
            self._add(f"{found}, {after} = read_tags(d, p, end, n)")
            self._count(f"len({found})", path)
            with self._source.block(f"for {tag}, {start}, {stop} in {found}:"):
                for index, field in enumerate(known):
                    with self._source.block(f"{'el' if index else ''}if {tag} == {field.tag}:"):
                        self._add(f"p = {start}")
                        self._field(target, field, f"{path}.{field.name}")
                        self._flush()
                        with self._source.block(f"if p != {stop}:"):
                            self._add(f"raise bad_tag({path + '.' + field.name!r})")
                with self._source.block("else:"):
                    # A tuple that grows: more than one unknown tag is rare.
                    self._add(f"{target}.unknown_tagged_fields += (({tag}, bytes(d[{start}:{stop}])),)")
            self._add(f"p = {after}")


def _default(field: Field) -> str:
    return empty(field) if is_made_anew(field) else repr(None if field.default_is_null else field.default)
