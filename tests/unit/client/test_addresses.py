"""Bootstrap strings: what people type, and what is refused with a reason."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amount import examples

from tidelog.client.addresses import Address, parse_bootstrap
from tidelog.client.errors import InvalidAddress


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("a:1, b:2 ,c", [("a", 1), ("b", 2), ("c", 9092)]),
        ("a:1,a:1", [("a", 1)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("fe80::1", [("fe80::1", 9092)]),
        ("[fe80::1]", [("fe80::1", 9092)]),
        ("PLAINTEXT://kafka:19092", [("kafka", 19092)]),
    ],
)
def test_reads_lists_of_hosts_and_ports(text: str, addresses: list[tuple[str, int]]) -> None:
    """Ports may be left out, IPv6 is bracketed, repetitions count once."""
    assert parse_bootstrap(text) == tuple(Address(*address) for address in addresses)


@pytest.mark.parametrize(
    "text", ["", " , ", ":9092", "a:b", "a:0", "a:65536", "a:-1", "[::1:9092", "[::1]x", "SSL://a:1", "a b:1", "a:１"]
)
def test_refuses_what_names_no_broker(text: str) -> None:
    """The error is a client error that quotes what was typed."""
    with pytest.raises(InvalidAddress):
        parse_bootstrap(text)


@settings(max_examples=examples(2000))
@given(st.text(max_size=40))
def test_any_text_is_addresses_or_invalid(text: str) -> None:
    """Whatever is typed, the outcome is addresses that print as they parse, or InvalidAddress."""
    try:
        addresses = parse_bootstrap(text)
    except InvalidAddress:
        return
    assert parse_bootstrap(",".join(map(str, addresses))) == addresses
