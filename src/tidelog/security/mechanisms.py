"""What a SASL mechanism is, on either side, and how it fails."""

from __future__ import annotations

from typing import Protocol


class SaslError(Exception):
    """An exchange that fails; the text is for the log of the side that raises it, and names no secret."""


class AuthenticationFailed(SaslError):
    """`told` may be told to the peer as it is; `reason` is for the log, where that is to say more."""

    def __init__(self, told: str, reason: str | None = None) -> None:
        super().__init__(told if reason is None else reason)
        self.told = told


class InvalidCredentials(SaslError):
    """The peer is told that its credentials are invalid, and no more."""


class MalformedExchange(SaslError):
    """What came is nothing that an answer fits: the connection ends at once."""


class ServerMechanism(Protocol):
    """The server's end of one exchange."""

    @property
    def user(self) -> str | None:
        """The user that has authenticated; None until then."""
        ...

    @property
    def lifetime_ms(self) -> int | None:
        """For how long what it has shown is good, from then on; None: no end is known."""
        ...

    @property
    def by_token(self) -> bool:
        """Whether it was a delegation token that was shown."""
        ...

    def evaluate(self, token: bytes) -> bytes:
        """The answer to the client's next token; SaslError."""
        ...


class ClientMechanism(Protocol):
    """The client's end of one exchange."""

    @property
    def complete(self) -> bool:
        """Whether the mechanism is content with the server."""
        ...

    def first(self) -> bytes:
        """The first token."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """The next token, None where none follows; SaslError."""
        ...
