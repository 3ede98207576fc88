"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), both ends, as Kafka speaks them.

    client                                server
    n,,n=user,r=NONCE              ->
                                   <-     r=NONCE+MORE,s=SALT,i=ITERATIONS
    c=biws,r=NONCE+MORE,p=PROOF    ->
                                   <-     v=SIGNATURE

The server stores neither the password nor what would let a reader log in: a salt, H(client key) and the server key.
As Kafka, the server does not compare the channel binding that a client repeats, and tells an unknown user at once.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Final, NamedTuple

from tidelog.model.values import value
from tidelog.security.mechanisms import AuthenticationFailed, InvalidCredentials, MalformedExchange

ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
"""Of a credential that the API creates (KIP-554)."""
ITERATIONS_HEEDED_MAX: Final = 1_000_000
"""Beyond which our client does not follow a server: each costs a hash, and a hostile server could name 2**31."""


class Mechanism(NamedTuple):
    """One of the two."""

    name: str
    digest: str
    code: int
    """In Alter- and DescribeUserScramCredentials."""
    size: int
    """Bytes of a hash."""


MECHANISMS: Final[Mapping[str, Mechanism]] = MappingProxyType(
    {
        "SCRAM-SHA-256": Mechanism("SCRAM-SHA-256", "sha256", 1, 32),
        "SCRAM-SHA-512": Mechanism("SCRAM-SHA-512", "sha512", 2, 64),
    }
)
BY_CODE: Final[Mapping[int, Mechanism]] = MappingProxyType({each.code: each for each in MECHANISMS.values()})

_SAFE = r"[\x01-\x2b\x2d-\x3c\x3e-\x7f]"
_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_NAME = rf"(?:{_SAFE}|=2C|=3D)+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
_CLIENT_FIRST = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,(?:m={_VALUE},)?"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<signed>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE})){_EXTENSIONS},p=(?P<proof>{_BASE64})"
)
_SERVER_FIRST = re.compile(
    rf"(?:m={_VALUE},)?r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,10}}){_EXTENSIONS}"
)
_SERVER_FINAL = re.compile(rf"(?:e=(?P<error>{_VALUE})|v=(?P<signature>{_BASE64})){_EXTENSIONS}")


@value
class ScramCredential:
    """What a server keeps of a password. Its `repr` shows the iterations alone."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of_password(cls, mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> ScramCredential:
        """From a password: costs `iterations` hashes."""
        return cls.of_salted(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)

    @classmethod
    def of_salted(cls, mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
        """From a password that a client has salted already."""
        client_key = hmac.digest(salted, b"Client Key", mechanism.digest)
        stored_key = hashlib.new(mechanism.digest, client_key).digest()
        return cls(salt, stored_key, hmac.digest(salted, b"Server Key", mechanism.digest), iterations)

    def encode(self) -> str:
        """As the store keeps it, which Kafka's tools write and read too."""
        parts = {"salt": self.salt, "stored_key": self.stored_key, "server_key": self.server_key}
        texts = [f"{name}={base64.b64encode(value).decode()}" for name, value in parts.items()]
        return ",".join([*texts, f"iterations={self.iterations}"])

    @classmethod
    def decode(cls, text: str) -> ScramCredential:
        """ValueError where the text is none; the text is not in it."""
        parts = dict(part.strip().partition("=")[::2] for part in text.split(","))
        if parts.keys() != {"salt", "stored_key", "server_key", "iterations"}:
            raise ValueError("a SCRAM credential has salt, stored_key, server_key and iterations")
        try:
            salt, stored_key, server_key = (
                base64.b64decode(parts[name], validate=True) for name in ("salt", "stored_key", "server_key")
            )
            return cls(salt, stored_key, server_key, int(parts["iterations"]))
        except (binascii.Error, ValueError):
            raise ValueError("a part of the SCRAM credential cannot be read") from None


def salted_password(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Hi() of RFC 5802. As Kafka, without SASLprep."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)


class TokenLogin(NamedTuple):
    """What a login with a delegation token goes by."""

    owner: str
    """The user that it is in the name of."""
    credential: ScramCredential
    lifetime_ms: int
    """For how long the token is valid."""


class ScramServer:
    """The server's end of one exchange: `mechanisms.ServerMechanism`."""

    def __init__(
        self,
        mechanism: Mechanism,
        credential_of: Callable[[str], ScramCredential | None],
        nonce: Callable[[], str],
        token_of: Callable[[str], TokenLogin | None] = lambda token_id: None,
    ) -> None:
        """`credential_of(user)` is looked up in memory; `nonce` makes an unpredictable printable text; `token_of(id)`
        is what a delegation token logs in by."""
        self._mechanism = mechanism
        self._credential_of = credential_of
        self._new_nonce = nonce
        self._token_of = token_of
        self._token: TokenLogin | None = None
        """Of the token that it shows, if it does."""
        self._credential: ScramCredential | None = None
        self._signed = ""
        """The messages so far, which both proofs are over."""
        self._nonce = ""
        self._user = ""
        self.user: str | None = None
        self.lifetime_ms: int | None = None
        self.by_token = False

    def evaluate(self, token: bytes) -> bytes:
        if self._credential is None:
            return self._first(token)
        return self._final(token, self._credential)

    def _first(self, token: bytes) -> bytes:
        match = _CLIENT_FIRST.fullmatch(_text(token))
        if match is None:
            raise InvalidCredentials("its first message is malformed")
        user = match["name"].replace("=2C", ",").replace("=3D", "=")
        if "tokenauth=true" in (match["extensions"] or "").lower().split(","):
            self._token = self._token_of(user)
            if self._token is None:
                raise InvalidCredentials(f"there is no delegation token {user!r}, or it has expired")
        credential = self._credential_of(user) if self._token is None else self._token.credential
        if credential is None:
            raise InvalidCredentials(f"user {user!r} has no {self._mechanism.name} credential")
        authorization_id = match["authzid"]
        if authorization_id and authorization_id.replace("=2C", ",").replace("=3D", "=") != user:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        if credential.iterations < ITERATIONS_MIN:
            raise InvalidCredentials(f"user {user!r}'s credential has fewer than {ITERATIONS_MIN} iterations")
        self._credential, self._user = credential, user
        self._nonce = match["nonce"] + self._new_nonce()
        salt = base64.b64encode(credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._signed = f"{match['bare']},{answer},"
        return answer.encode()

    def _final(self, token: bytes, credential: ScramCredential) -> bytes:
        match = _CLIENT_FINAL.fullmatch(_text(token))
        if match is None:
            raise InvalidCredentials("its final message is malformed")
        # librdkafka before 2.6.1 says its own nonce once more before the whole one; Kafka 3.9 lets it pass, too.
        if not match["nonce"].endswith(self._nonce):
            raise InvalidCredentials("its final message has another nonce")
        proof = base64.b64decode(match["proof"])
        signed = (self._signed + match["signed"]).encode()
        digest = self._mechanism.digest
        signature = hmac.digest(credential.stored_key, signed, digest)
        if len(proof) != len(signature):
            raise MalformedExchange(f"a proof of {len(proof)} bytes")
        stored_key = hashlib.new(digest, _xor(proof, signature)).digest()
        if not hmac.compare_digest(stored_key, credential.stored_key):
            raise InvalidCredentials(f"user {self._user!r} gave a wrong password")
        self.user = self._user
        if self._token is not None:
            self.user, self.lifetime_ms, self.by_token = self._token.owner, self._token.lifetime_ms, True
        return b"v=" + base64.b64encode(hmac.digest(credential.server_key, signed, digest))


class ScramClient:
    """The client's end of one exchange: `mechanisms.ClientMechanism`. Proves to itself that the server knows the user.

    Making the proof costs `iterations` hashes: some milliseconds.
    """

    def __init__(self, mechanism: Mechanism, user: str, password: str, nonce: str, *, by_token: bool = False) -> None:
        """`by_token`: `user` is the id of a delegation token, `password` its HMAC in base64."""
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}{',tokenauth=true' if by_token else ''}"
        self._signature: bytes | None = None
        self.complete = False

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if self._signature is None:
            return self._final(challenge)
        match = _SERVER_FINAL.fullmatch(_text(challenge))
        if (
            match is None
            or match["error"]
            or not hmac.compare_digest(base64.b64decode(match["signature"]), self._signature)
        ):
            raise AuthenticationFailed("the broker does not prove that it knows the user: is it the right one?")
        self.complete = True
        return None

    def _final(self, challenge: bytes) -> bytes:
        text = _text(challenge)
        match = _SERVER_FIRST.fullmatch(text)
        if match is None or not match["nonce"].startswith(self._nonce) or match["nonce"] == self._nonce:
            raise AuthenticationFailed("the broker's first SCRAM message is malformed")
        iterations = int(match["iterations"])
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_HEEDED_MAX:
            raise AuthenticationFailed(
                f"the broker asks for {iterations} iterations: {ITERATIONS_MIN} to {ITERATIONS_HEEDED_MAX} are sound"
            )
        digest = self._mechanism.digest
        salted = salted_password(self._mechanism, self._password, base64.b64decode(match["salt"]), iterations)
        unproven = f"c=biws,r={match['nonce']}"
        signed = f"{self._bare},{text},{unproven}".encode()
        client_key = hmac.digest(salted, b"Client Key", digest)
        stored_key = hashlib.new(digest, client_key).digest()
        proof = _xor(client_key, hmac.digest(stored_key, signed, digest))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
        return f"{unproven},p={base64.b64encode(proof).decode()}".encode()


def _text(token: bytes) -> str:
    return token.decode("utf-8", "replace")


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
