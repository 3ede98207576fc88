"""Another implementation of the protocol agrees: kio, for every message and version that it has, both directions."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import io
import uuid
import zlib
from typing import Any

import pytest

kio_index = pytest.importorskip("kio.schema.index")

from kio.index import load_entity_schema  # noqa: E402
from kio.serial import entity_reader, entity_writer  # noqa: E402
from kio.static.constants import EntityType  # noqa: E402
from tests.property.protocol_samples import Sampler  # noqa: E402

from tidelog.protocol import catalogue, codec, messages  # noqa: E402
from tidelog.protocol.schema import Field, Schema  # noqa: E402
from tidelog.protocol.source import Layout  # noqa: E402

SAMPLES = 2


def kio_names() -> dict[tuple[str, EntityType], list[int]]:
    """[(kio's name, type)] -> versions."""
    found: dict[tuple[str, EntityType], list[int]] = {}
    for name, versions in kio_index.schema_name_map.items():
        for version, types in versions.items():
            for type_ in types:
                found.setdefault((name, type_), []).append(version)
    return found


def pascal(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def our_name(name: str, type_: EntityType) -> str:
    suffix = {EntityType.request: "Request", EntityType.response: "Response"}.get(type_, "")
    return pascal(name) + suffix


CASES = {our_name(name, type_): (name, type_, versions) for (name, type_), versions in kio_names().items()}


def plain(value: Any, field: Field) -> Any:
    """A value of kio's in our terms."""
    match value:
        case enum.Enum():
            return value.value
        case datetime.timedelta():
            return value // datetime.timedelta(milliseconds=1)
        case datetime.datetime():
            return (value - datetime.datetime.fromtimestamp(0, datetime.UTC)) // datetime.timedelta(milliseconds=1)
        case uuid.UUID():
            return value.bytes
        case None if field.type == "uuid":
            return bytes(16)
        case tuple() | list():
            return [plain(item, field) for item in value]
        case _:
            return value


def assert_same(ours: Any, theirs: Any, fields: tuple[Field, ...], layout: Layout) -> None:
    """Every field has the value that kio has at the same place."""
    present = sorted(layout.present(fields) + layout.tagged(fields), key=fields.index)
    names = [field.name for field in dataclasses.fields(theirs)]
    assert len(present) == len(names)
    for field, name in zip(present, names, strict=True):
        assert field.name.removesuffix("_ms") == name.removesuffix("_").removesuffix("_ms")
        one, other = getattr(ours, field.name), getattr(theirs, name)
        if field.is_struct and one is not None and other is not None:
            pairs = zip(one, other, strict=True) if field.is_array else [(one, other)]
            for inner, outer in pairs:
                assert_same(inner, outer, field.fields, layout)
        else:
            assert (None if other is None and field.is_array else plain(other, field)) == one


def test_kio_has_most_of_the_table() -> None:
    """The oracle judges what we think it judges: nothing it has is missing in the table."""
    assert set(CASES) <= set(catalogue.places())
    assert len(CASES) > 180


@pytest.mark.parametrize("name", sorted(CASES))
def test_kio_agrees(name: str) -> None:
    """kio reads what we write with the same values, writes the same bytes, and we read these back."""
    kio_name, type_, versions = CASES[name]
    cls = getattr(messages, name)
    schema: Schema = cls.SCHEMA
    for version in versions:
        layout = Layout(version, schema.is_flexible(version))
        entity = load_entity_schema(kio_name, version, type_)
        read, write = entity_reader(entity), entity_writer(entity)
        for sample in range(SAMPLES):
            ours = Sampler(zlib.crc32(f"{name}{version}{sample}".encode()), tame=True).message(cls, version)
            data = codec.encode(ours, version)
            theirs, size = read(data, 0)
            assert size == len(data)
            assert_same(ours, theirs, schema.fields, layout)
            buffer = io.BytesIO()
            write(buffer, theirs)
            assert buffer.getvalue() == data
            assert codec.decode_exactly(cls, version, buffer.getvalue()) == ours
