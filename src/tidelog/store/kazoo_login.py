"""A session's login by SASL DIGEST-MD5, in kazoo's connection: kazoo would need a library of its own for it."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

from kazoo.exceptions import AuthFailedError, ConnectionDropped
from kazoo.protocol.serialization import SASL

from tidelog.security.digest_md5 import DigestMd5
from tidelog.security.mechanisms import SaslError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.config.zookeeper_security import SaslUser

SERVICE: Final = "zookeeper/zk-sasl-md5"
"""What ZooKeeper's servers are called in this mechanism, wherever they run."""
ROUNDS_MAX: Final = 4
"""Tokens to a server before it is given up: two are enough."""


def log_in(connection: Any, user: SaslUser, on_refused: Callable[[str], object], timeout_s: float) -> None:
    """On the connection's thread, before any request: AuthFailedError where the server refuses, or is none of ours.

    `on_refused` is told why before that is raised.
    """
    try:
        _exchange(connection, DigestMd5(user.user, user.password, secrets.token_hex(16), SERVICE), timeout_s)
    except SaslError as error:
        on_refused(str(error))
        raise AuthFailedError from error
    except AuthFailedError:
        on_refused("the server refuses user or password, or has no users for DIGEST-MD5")
        raise


def _exchange(connection: Any, login: DigestMd5, timeout_s: float) -> None:
    """AuthFailedError, SaslError."""
    token = b""
    for xid in range(1, ROUNDS_MAX):
        connection._submit(SASL(token), timeout_s, xid)
        try:
            header, buffer, offset = connection._read_header(timeout_s)
        except ConnectionDropped as error:
            # A server's way to refuse.
            raise AuthFailedError from error
        if header.err:
            raise AuthFailedError
        token = login.respond(SASL.deserialize(buffer, offset)[0] or b"")
        if login.is_done:
            return
    raise SaslError("the server does not come to an end")
