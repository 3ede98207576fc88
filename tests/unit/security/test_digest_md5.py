"""DIGEST-MD5: the exchange that RFC 2831 prints, and servers that say what they should not."""

from __future__ import annotations

import pytest

from tidelog.security.digest_md5 import DigestMd5, directives
from tidelog.security.mechanisms import SaslError

CHALLENGE = b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'
PROOF = b"rspauth=ea40f60335c427b5527b84dbabcdfffd"


def login(user: str = "chris", password: str = "secret") -> DigestMd5:
    return DigestMd5(user, password, "OA6MHXh6VqTrRk", "imap/elwood.innosoft.com")


def test_the_example_of_the_rfc() -> None:
    """Section 4: the response, and the server's proof."""
    client = login()
    said = directives(client.respond(CHALLENGE))
    assert said == {
        "username": b"chris",
        "realm": b"elwood.innosoft.com",
        "nonce": b"OA6MG9tEQGm2hh",
        "nc": b"00000001",
        "cnonce": b"OA6MHXh6VqTrRk",
        "digest-uri": b"imap/elwood.innosoft.com",
        "response": b"d388dad90d4bbd760a152321f2143af7",
        "qop": b"auth",
        "charset": b"utf-8",
    }
    assert not client.is_done
    assert client.respond(PROOF) == b""
    assert client.is_done


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        (b"", "no nonce"),
        (CHALLENGE.replace(b"md5-sess", b"md5"), "another algorithm"),
        (CHALLENGE.replace(b'"auth"', b'"auth-conf,auth-int"'), "more than authentication"),
        (b'nonce="never ends', "cannot be read"),
        (b"\xff\x00=1", "cannot be read"),
    ],
)
def test_challenges_that_cannot_be_met(challenge: bytes, reason: str) -> None:
    with pytest.raises(SaslError, match=reason):
        login().respond(challenge)


def test_a_server_that_does_not_know_the_password() -> None:
    """Nothing is believed of one whose proof is wrong or missing."""
    for said in (PROOF.replace(b"f", b"e"), b"", b"rspauth=\xc3\xa4"):
        client = login()
        client.respond(CHALLENGE)
        with pytest.raises(SaslError, match=r"does not know the password|cannot be read"):
            client.respond(said)
        assert not client.is_done


def test_names_of_all_kinds() -> None:
    """Quotes and backslashes are escaped; what ISO 8859-1 has counts in it; without UTF-8 the rest is refused."""
    said = directives(login(user='a"b\\c').respond(CHALLENGE))
    assert said["username"] == b'a"b\\c'
    wide = directives(login(password="\u20ac").respond(CHALLENGE))["response"]
    assert wide != directives(login(password="e").respond(CHALLENGE))["response"]
    with pytest.raises(SaslError, match="UTF-8"):
        login(user="\u20ac").respond(CHALLENGE.replace(b",charset=utf-8", b""))


def test_nothing_shows_the_password() -> None:
    assert "secret" not in repr(login())
