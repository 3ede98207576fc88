"""The notation of the message table."""

from __future__ import annotations

import pytest

from tidelog.protocol import catalogue
from tidelog.protocol.schema import camel_case, parse, structs

BLOCK = """
TeaRequest request 900 versions 1-4 flexible 3+
  struct Leaf
    name      string  1+  null 2+, = null
  kettle_ids  []int32  1,3+  ignorable
  leaves      []Leaf  1+
  spout       Spout  2-3  tag 7 in 3
    angle     int8  2+  = -1
"""


def test_a_block_is_a_message_in_all_its_versions() -> None:
    """Heading, versions, modifiers and nesting come out as written."""
    schema = parse(BLOCK)
    assert (schema.name, schema.kind, schema.key) == ("TeaRequest", "request", 900)
    assert (schema.lowest, schema.highest, schema.flexible_since) == (1, 4, 3)
    kettles, leaves, spout = schema.fields
    assert kettles.is_array
    assert kettles.versions == {1, 3, 4}
    assert kettles.ignorable
    assert leaves.fields[0].null_versions == {2, 3, 4}
    assert leaves.fields[0].default is None
    assert (spout.tag, spout.tagged_versions) == (7, {3})
    assert spout.fields[0].default == -1
    assert [name for name, _ in structs(schema.fields)] == ["Leaf", "Spout"]


def test_fields_share_what_is_alike() -> None:
    """A broker keeps some hundreds of fields: sets of versions of their own would be a third of a megabyte."""
    kettles, leaves, spout = parse(BLOCK).fields
    assert leaves.versions is leaves.fields[0].versions
    assert kettles.null_versions is leaves.null_versions is kettles.tagged_versions
    assert spout.fields[0].versions is leaves.fields[0].null_versions


@pytest.mark.parametrize(
    "block",
    [
        "NoKind versions 0",
        "A data versions 0\n  x  int32  0+  nullable 0+",
        "A data versions 0\n  x  Missing  0+",
        "A data versions 0\n      x  int32  0+",
    ],
)
def test_what_breaks_the_notation_is_refused(block: str) -> None:
    """A slip in the table is an error when the message is first used, not a wrong codec."""
    with pytest.raises(ValueError, match=r"."):
        parse(block)


@pytest.mark.parametrize("name", list(catalogue.places()))
def test_every_block_of_the_table_parses(name: str) -> None:
    """Tags are distinct and count from 0, names are not Python's, null defaults are nullable."""

    def check(fields: tuple) -> None:
        names = [field.name for field in fields]
        assert len(set(names)) == len(names)
        tags = sorted(field.tag for field in fields if field.tag is not None)
        assert len(set(tags)) == len(tags)
        for field in fields:
            assert field.name.isidentifier()
            assert field.versions
            assert field.null_versions or not field.default_is_null
            check(field.fields)

    schema = catalogue.schema(name)
    assert schema.name == name
    check(schema.fields)


def test_camel_case_is_kafkas_own_name() -> None:
    """Which its JSON form uses."""
    assert camel_case("is_k_raft_controller") == "isKRaftController"
    assert camel_case("v0_host") == "v0Host"
