"""server.properties as Java's Properties reads it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amount import examples

from tidelog.config.properties import ConfigError, Entry, entries_of, parse


def pairs(text: str) -> list[tuple[str, str]]:
    return [(entry.name, entry.value) for entry in parse(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", [("a", "b")]),
        ("a:b", [("a", "b")]),
        ("a b", [("a", "b")]),
        ("a\tb", [("a", "b")]),
        ("  a  =  b  ", [("a", "b  ")]),
        ("a==b", [("a", "=b")]),
        ("a = : b", [("a", ": b")]),
        ("a", [("a", "")]),
        ("a=", [("a", "")]),
        ("# a=b\n! c=d\n\n  # e\nf=g", [("f", "g")]),
        ("a=b,\\\n   c,\\\n\td\ne=f", [("a", "b,c,d"), ("e", "f")]),
        ("a=b\\\\\nc=d", [("a", "b\\"), ("c", "d")]),
        ("a=b\\\n# not a comment", [("a", "b# not a comment")]),
        ("a=b\\", [("a", "b")]),
        ("a\\=b=c", [("a=b", "c")]),
        ("a\\ b=c", [("a b", "c")]),
        ("a=C:\\\\logs\\tx", [("a", "C:\\logs\tx")]),
        ("a=\\u00e9\\q", [("a", "éq")]),
        ("a=1\r\nb=2\rc=3", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("a=1\na=2", [("a", "1"), ("a", "2")]),
        ("a=x\u2028y", [("a", "x\u2028y")]),
    ],
)
def test_forms(text: str, expected: list[tuple[str, str]]) -> None:
    """Separators, blanks, comments, continuation lines and escapes mean what they mean to Java."""
    assert pairs(text) == expected


def test_entries_know_where_they_stand() -> None:
    """A setting that goes over several lines has the number of its first."""
    text = "# first\n\nlog.dirs=/a,\\\n  /b\nnum.partitions=3\n"
    assert parse(text, "server.properties") == [
        Entry("log.dirs", "/a,/b", "server.properties", 3),
        Entry("num.partitions", "3", "server.properties", 5),
    ]


def test_a_broken_escape_is_refused_with_its_line() -> None:
    """The one thing that makes the text itself malformed."""
    with pytest.raises(ConfigError) as refused:
        parse("a=1\nb=\\u12x4\nc=\\u1", "f")
    assert str(refused.value).splitlines() == [
        "f, line 2: \\u12x4 is not a character: four hexadecimal digits must follow \\u",
        "f, line 3: \\u1 is not a character: four hexadecimal digits must follow \\u",
    ]


def test_settings_of_the_command_line_have_no_line() -> None:
    """They say where they come from all the same."""
    assert entries_of({"a": "b"}, "command line") == [Entry("a", "b", "command line", 0)]


@settings(max_examples=examples(2000))
@given(st.text(alphabet=st.sampled_from("ab=: \t\f\\\n\r#!u0é,"), max_size=60))
def test_any_text_gives_entries_or_a_refusal(text: str) -> None:
    """No text makes the parser fail otherwise; lines are numbered upwards within the text."""
    entries = []
    try:
        entries = parse(text)
    except ConfigError as error:
        refused = error
    else:
        refused = None
    if refused is not None:
        assert all(problem.line for problem in refused.problems)
        return
    lines = [entry.line for entry in entries]
    assert lines == sorted(set(lines))
    assert not lines or lines[-1] <= text.count("\n") + text.count("\r") + 1


def _escape(text: str) -> str:
    return "".join(f"\\u{ord(character):04x}" for character in text)


@given(
    st.text(alphabet=st.characters(max_codepoint=0xFFFF), min_size=1, max_size=20),
    st.text(alphabet=st.characters(max_codepoint=0xFFFF), max_size=20),
)
def test_escaped_texts_come_back(name: str, value: str) -> None:
    """Whatever a name and a value hold, there is a way to write them."""
    assert pairs(f"{_escape(name)}={_escape(value)}") == [(name, value)]
