"""SASL DIGEST-MD5, a client's side (RFC 2831): how brokers log in to a ZooKeeper ensemble that wants passwords.

    (empty) -> realm="zk-sasl-md5",nonce="...",algorithm=md5-sess,...      the server's challenge
    username="...",nonce="...",response=...,... -> rspauth=...      which only a server with the password knows

ZooKeeper's servers know this mechanism and Kerberos. It is obsolete elsewhere (RFC 6331): MD5 is of no use against
guessing by an eavesdropper, so the connection should be encrypted as well.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final

from tidelog.security.mechanisms import SaslError

MECHANISM: Final = "DIGEST-MD5"
_NONCE_COUNT: Final = "00000001"
_QOP: Final = "auth"
_DIRECTIVE: Final = re.compile(
    rb"""[\x20\t]*(?P<name>[A-Za-z-]+)[\x20\t]*=[\x20\t]*
    (?:"(?P<quoted>(?:[^"\\]|\\.)*)" | (?P<token>[^\s",]+))[\x20\t]*(?:,|$)""",
    re.VERBOSE | re.DOTALL,
)


class DigestMd5:
    """One login. `respond` takes what the server says, in order, and gives the answer; `is_done` after the last."""

    def __init__(self, user: str, password: str, nonce: str, digest_uri: str) -> None:
        """`nonce` is of chance, and new for each login; `digest_uri` names the service, as `zookeeper/zk-sasl-md5`."""
        self._user = user
        self._password = password
        self._nonce = nonce
        self._digest_uri = digest_uri
        self._expected: bytes | None = None
        """What the server has to say at the end."""
        self.is_done = False
        """Whether the server has shown that it knows the password, too."""

    def __repr__(self) -> str:
        return f"DigestMd5(user={self._user!r})"

    def respond(self, challenge: bytes) -> bytes:
        """SaslError where the challenge cannot be met, or the server does not know the password."""
        if self._expected is not None:
            said = directives(challenge).get("rspauth", b"")
            if not hmac.compare_digest(said, self._expected):
                raise SaslError("the server does not know the password")
            self.is_done = True
            return b""
        return self._meet(directives(challenge))

    def _meet(self, challenge: dict[str, bytes]) -> bytes:
        nonce = challenge.get("nonce")
        if not nonce:
            raise SaslError("the server's challenge has no nonce")
        if challenge.get("algorithm") != b"md5-sess":
            raise SaslError("the server wants another algorithm than md5-sess")
        if _QOP.encode() not in re.split(rb"[\s,]+", challenge.get("qop", _QOP.encode())):
            raise SaslError("the server wants more than authentication (qop)")
        encoding = "utf-8" if challenge.get("charset", b"").lower() == b"utf-8" else "latin-1"
        try:
            user, password = self._user.encode(encoding), self._password.encode(encoding)
        except UnicodeEncodeError:
            raise SaslError("the server does not take names and passwords in UTF-8") from None
        realm = challenge.get("realm", b"")
        # Of names that ISO 8859-1 has, that encoding counts (RFC 2831, 2.1.2.1); Java's servers do so, too.
        secret = _md5(b":".join((_narrow(user), _narrow(realm), _narrow(password))))
        key = _hex(b":".join((secret, nonce, self._nonce.encode())))
        uri = self._digest_uri.encode()

        def proof(method: bytes) -> bytes:
            parts = (key, nonce, _NONCE_COUNT.encode(), self._nonce.encode(), _QOP.encode(), _hex(method + b":" + uri))
            return _hex(b":".join(parts))

        self._expected = proof(b"")
        said = {
            "username": _quoted(user),
            "realm": _quoted(realm),
            "nonce": _quoted(nonce),
            "nc": _NONCE_COUNT.encode(),
            "cnonce": _quoted(self._nonce.encode()),
            "digest-uri": _quoted(uri),
            "response": proof(b"AUTHENTICATE"),
            "qop": _QOP.encode(),
        }
        if encoding == "utf-8":
            said["charset"] = b"utf-8"
        return b",".join(name.encode() + b"=" + value for name, value in said.items())


def directives(text: bytes) -> dict[str, bytes]:
    """[name] -> value; the first counts where one is said twice. SaslError where the text is none of RFC 2831's."""
    found: dict[str, bytes] = {}
    position = 0
    while position < len(text):
        match = _DIRECTIVE.match(text, position)
        if match is None:
            raise SaslError("the server's challenge cannot be read")
        quoted = match["quoted"]
        value = match["token"] if quoted is None else re.sub(rb"\\(.)", rb"\1", quoted, flags=re.DOTALL)
        found.setdefault(match["name"].decode().lower(), value)
        position = match.end()
    return found


def _quoted(value: bytes) -> bytes:
    return b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def _narrow(value: bytes) -> bytes:
    """UTF-8 as ISO 8859-1, where that has all of its characters."""
    try:
        return value.decode().encode("latin-1")
    except UnicodeError:
        return value


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _hex(data: bytes) -> bytes:
    return _md5(data).hex().encode()
