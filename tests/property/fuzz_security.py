"""What `make fuzz` does to authentication: frames before there is a principal, bearer tokens, certificates, nodes of
users, and what a server of ZooKeeper says to a broker that logs in.
"""

from __future__ import annotations

import base64
import datetime
import json
import ssl
from random import Random
from typing import Any

from tests.property.fuzz_families import Stateless, damaged_json, refuses
from tests.property.fuzz_protocol import mutate

from tidelog.launcher.certificates import make_authority
from tidelog.model.errors import KafkaError
from tidelog.protocol import framing, messages
from tidelog.protocol.apis import ApiKey
from tidelog.quotas.entities import (
    Filter,
    Match,
    QuotaKey,
    decode_values,
    entity_of,
    entity_path,
    parse_entity,
    parse_value,
)
from tidelog.security.delegation_tokens import decode_token, encode_token, token_path
from tidelog.security.digest_md5 import DigestMd5, directives
from tidelog.security.distinguished_names import MalformedCertificate, subject
from tidelog.security.mechanisms import SaslError, ServerMechanism
from tidelog.security.oauthbearer import (
    InvalidToken,
    OauthClient,
    OauthServer,
    Unsecured,
    unsecured_token,
    verify_unsecured,
)
from tidelog.security.plain import PlainClient, PlainServer, StaticUsers
from tidelog.security.principals import NoMatchingRule, PrincipalMapper
from tidelog.security.sasl_server import Ending, SaslServer
from tidelog.security.scram import ITERATIONS_MIN, MECHANISMS, ScramClient, ScramCredential, ScramServer
from tidelog.security.stored import MalformedNode

_NOW_MS = 1_700_000_000_000
_CLAIMS = {"sub": "alice", "iat": _NOW_MS // 1000, "exp": _NOW_MS // 1000 + 60, "scope": ["a"], "aud": "kafka"}
_CREDENTIALS = {
    name: ScramCredential.of_password(mechanism, "secret", b"salt", ITERATIONS_MIN)
    for name, mechanism in MECHANISMS.items()
}
_TOKEN: dict[str, Any] = {
    "issueTimestamp": 1,
    "renewers": ["User%3Abob"],
    "tokenRequester": "User%3Aalice",
    "tokenId": "UF9a_jorRyiSCYtKig-MGQ",
    "owner": "User%3Aalice",
    "expiryTimestamp": 2,
    "maxTimestamp": 3,
    "version": 3,
}
_NAMES = ("PLAIN", *MECHANISMS, "OAUTHBEARER")


class Sasl(Stateless):
    """A connection that authenticates, right up to a damaged frame: nobody is anybody but by what a client can show."""

    def attempt(self, draw: Random) -> bool:
        machine = SaslServer(_NAMES, self._mechanism, lambda mechanism: 0)
        name = draw.choice(_NAMES)
        hello = messages.ApiVersionsRequest(client_software_name="c", client_software_version="1")
        token = messages.SaslAuthenticateRequest(auth_bytes=self._bytes(self._first(name, draw), draw))
        sent: list[tuple[ApiKey, int, Any]] = [
            (ApiKey.API_VERSIONS, 3, hello),
            (ApiKey.SASL_HANDSHAKE, draw.choice((0, 1)), messages.SaslHandshakeRequest(mechanism=name)),
            (ApiKey.SASL_AUTHENTICATE, 2, token),
            (ApiKey.SASL_AUTHENTICATE, 2, token),
        ]
        for key, version, request in sent[draw.randrange(2) :]:
            frame = framing.encode_request(key, version, 1, "c", request)[4:]
            if draw.random() < 0.3:
                frame = mutate(frame, draw)
            if draw.random() < 0.1:
                frame = self._bytes(self._first(name, draw), draw)
            step = machine.receive(memoryview(frame), 0)
            if step.ending is not Ending.NOT:
                return True
        if machine.user is not None:
            raise AssertionError(f"{machine.user} has shown nothing")
        return False

    def _first(self, name: str, draw: Random) -> bytes:
        """What a client of the mechanism begins with."""
        if name == "PLAIN":
            return PlainClient("alice", "guess").first()
        if name == "OAUTHBEARER":
            return OauthClient(self._token(draw)).first()
        return ScramClient(MECHANISMS[name], "alice", "guess", "nonce", by_token=draw.random() < 0.2).first()

    def _mechanism(self, name: str) -> ServerMechanism:
        if name == "PLAIN":
            return PlainServer(StaticUsers({"alice": "secret"}))
        if name == "OAUTHBEARER":
            # Whatever a token says of itself is not enough here.
            return OauthServer(lambda token: verify_unsecured(token, Unsecured("none of these"), _NOW_MS))
        return ScramServer(
            MECHANISMS[name], lambda user: _CREDENTIALS[name] if user == "alice" else None, lambda: "more"
        )

    def _token(self, draw: Random) -> str:
        claims = damaged_json(_CLAIMS, draw)
        return unsecured_token(claims if isinstance(claims, dict) else _CLAIMS)

    def _bytes(self, token: bytes, draw: Random) -> bytes:
        return mutate(token, draw) if draw.random() < 0.6 else token


class BearerTokens(Stateless):
    """Tokens without a signature, and with one that is not checked here."""

    def attempt(self, draw: Random) -> bool:
        token = unsecured_token(damaged_json(_CLAIMS, draw))
        if draw.random() < 0.5:
            token = mutate(token.encode(), draw).decode("latin-1")
        if draw.random() < 0.3:
            token = f"{base64.urlsafe_b64encode(mutate(b'{}', draw)).decode()}.{token}"
        return refuses(lambda: verify_unsecured(token, Unsecured(), _NOW_MS), InvalidToken)


class Certificates(Stateless):
    """Subjects of clients' certificates, and the principals that rules make of them."""

    _RULES = "RULE:^CN=([^,]+).*$/$1/L,RULE:^.*O=(.*?),.*$/$1@/,DEFAULT"

    def __init__(self) -> None:
        authority = make_authority("fuzz", datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
        self._certificate = ssl.PEM_cert_to_DER_cert(authority.certificate)
        self._mapper = PrincipalMapper(self._RULES)

    def attempt(self, draw: Random) -> bool:
        certificate = mutate(self._certificate, draw)
        return refuses(lambda: self._mapper.name(subject(certificate)), MalformedCertificate, NoMatchingRule)


class ZooKeeperLogins(Stateless):
    """What comes back in a login by SASL DIGEST-MD5, before the broker knows that it speaks with its ensemble."""

    _CHALLENGE = b'realm="zk-sasl-md5",nonce="a\\"b",qop="auth,auth-int",charset=utf-8,algorithm=md5-sess,cipher="rc4"'

    def attempt(self, draw: Random) -> bool:
        login = DigestMd5("al\u00e9x", "secret", "cnonce", "zookeeper/zk-sasl-md5")
        challenge = self._CHALLENGE if draw.random() < 0.3 else mutate(self._CHALLENGE, draw)

        def exchange() -> None:
            said = directives(login.respond(challenge))
            if said["cnonce"] != b"cnonce" or b"secret" in b"".join(said.values()):
                raise AssertionError("a login does not say what it should")
            login.respond(mutate(b"rspauth=0123456789abcdef0123456789abcdef", draw))

        refused = refuses(exchange, SaslError)
        if login.is_done:
            raise AssertionError("a server that does not know the password is believed")
        return refused


class SecurityNodes(Stateless):
    """Nodes of delegation tokens and quotas, and what requests say of quotas."""

    def attempt(self, draw: Random) -> bool:
        return draw.choice((self._token, self._quota, self._path, self._filter))(draw)

    def _token(self, draw: Random) -> bool:
        data = json.dumps(damaged_json(_TOKEN, draw)).encode()
        if draw.random() < 0.4:
            data = mutate(data, draw)
        path = token_path("UF9a_jorRyiSCYtKig-MGQ")

        def read() -> None:
            token = decode_token(path, data)
            if decode_token(path, encode_token(token)) != token:
                raise AssertionError("a token is not what it was written as")

        return refuses(read, MalformedNode)

    def _quota(self, draw: Random) -> bool:
        entity = parse_entity([("user", "u")])
        text = mutate(draw.choice((b"1024", b"1e9", b"Infinity", b"200.0", b"-1")), draw).decode("latin-1")
        values, unreadable = decode_values(entity, {QuotaKey.PRODUCER_BYTE_RATE: text})
        if any(not value > 0 for value in values.values()):
            raise AssertionError(f"{text!r} is a quota")
        return bool(unreadable)

    def _path(self, draw: Random) -> bool:
        path = draw.choice((b"users/CN%3Da", b"users/u/clients/<default>", b"ips/127.0.0.1", b"clients/c"))
        entity = entity_of(mutate(path, draw).decode("utf-8", "replace"))
        if entity is not None and entity_of(entity_path(entity)) != entity:
            raise AssertionError(f"{entity} is kept elsewhere than it is read")
        return entity is None

    def _filter(self, draw: Random) -> bool:
        kinds, names = ("user", "client-id", "ip", "", "group"), ("u", None, "", "127.0.0.1", "::1", "x/y")

        def parse() -> None:
            parts = [(draw.choice(kinds), draw.choice(names)) for _ in range(draw.randrange(4))]
            Filter.parse([Match(kind, draw.randrange(-1, 4), name) for kind, name in parts], draw.random() < 0.5)
            entity = parse_entity(parts)
            value = draw.choice((1.0, 0.0, float("nan"), float("inf"), 1e40, 2.5))
            parse_value(entity, draw.choice([*QuotaKey, "x"]), value)

        return refuses(parse, KafkaError)
