"""The other end of a connection: its principal, and what it may do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.security.access import ANONYMOUS
from tidelog.security.authorizer import Access

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.security.access import Principal
    from tidelog.security.authorizer import Authorizer


class Peer:
    """The client, or broker, at the other end of a connection."""

    __slots__ = (
        "access",
        "address",
        "authorizer",
        "by_token",
        "client_id",
        "connection_id",
        "listener",
        "on_throttled",
        "port",
        "principal",
        "raw_client_id",
        "software",
    )

    def __init__(self, listener: str, connection_id: int, address: str = "", port: int = 0) -> None:
        self.listener = listener
        self.connection_id = connection_id
        self.address = address
        self.port = port
        self.principal = ANONYMOUS
        self.access: Access | None = None
        """What the principal may do; None where there is no authorizer: everything."""
        self.software: tuple[str, str] | None = None
        """Name and version of the client's software, as it told with ApiVersions (KIP-511); None before."""
        self.raw_client_id = b""
        """The client id of the last request, so that the next one need not decode it again."""
        self.client_id: str | None = ""
        self.authorizer: Authorizer | None = None
        self.by_token = False
        """Whether it has authenticated with a delegation token."""
        self.on_throttled: Callable[[int], None] | None = None
        """Told for how many milliseconds nothing more is to be read from the peer."""

    def authenticated(self, principal: Principal) -> None:
        """The peer has authenticated, or need not; its address is known."""
        self.principal = principal
        self.access = None if self.authorizer is None else self.authorizer.access(principal, self.address)

    def throttle(self, milliseconds: int) -> None:
        """The client is over a quota: it is not heard for so long (KIP-219)."""
        if milliseconds > 0 and self.on_throttled is not None:
            self.on_throttled(milliseconds)


class CloseConnection(Exception):
    """The peer sent what no answer fits; the text is the reason for the log."""
