"""Both ends of SASL, joined in memory. What Kafka answers byte for byte: tests/vectors, sasl-flows."""

from __future__ import annotations

import base64
import hashlib
import hmac
import random

import pytest

from tidelog.config import jaas
from tidelog.protocol import framing, messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.mechanisms import AuthenticationFailed, InvalidCredentials, SaslError, ServerMechanism
from tidelog.security.plain import PlainServer, StaticUsers
from tidelog.security.sasl_client import Credentials
from tidelog.security.sasl_server import Ending, SaslServer
from tidelog.security.scram import MECHANISMS, ScramClient, ScramCredential, ScramServer, salted_password

SHA_256 = MECHANISMS["SCRAM-SHA-256"]
CREDENTIAL = ScramCredential.of_password(SHA_256, "secret", b"salt", 4096)


def server(*, lifetime_ms: int = 0) -> SaslServer:
    """A machine that knows PLAIN alice/pw and SCRAM carol/secret."""

    def mechanism(name: str) -> ServerMechanism:
        if name == "PLAIN":
            return PlainServer(StaticUsers({"alice": "pw"}))
        return ScramServer(MECHANISMS[name], {"carol": CREDENTIAL}.get, lambda: "theirs")

    return SaslServer(("PLAIN", "SCRAM-SHA-256"), mechanism, lambda name: lifetime_ms)


def authenticate(machine: SaslServer, credentials: Credentials, version: int = 2, now_ms: int = 0) -> int:
    """Joins both ends; the session's lifetime."""
    client = credentials.begin("ours")
    message: messages.Message | None = client.first()
    while message is not None:
        key = message.API_KEY
        asked_in = 1 if key is ApiKey.SASL_HANDSHAKE else version
        frame = memoryview(framing.encode_request(key, asked_in, 7, "c", message))[4:]
        machine.begins_again(frame, now_ms) if machine.is_open else None
        step = machine.receive(frame, now_ms)
        assert step.answer is not None, step.reason
        _, answer = framing.decode_response(key, asked_in, memoryview(step.answer)[4:])
        message = client.answered(answer)
    return client.session_lifetime_ms


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(("name", "user", "password"), [("PLAIN", "alice", "pw"), ("SCRAM-SHA-256", "carol", "secret")])
def test_client_and_server_agree(name: str, user: str, password: str, version: int) -> None:
    """Both mechanisms, each version of SaslAuthenticate."""
    machine = server()
    authenticate(machine, Credentials(name, user, password), version)
    assert machine.is_open
    assert machine.user == user


@pytest.mark.parametrize(("name", "user"), [("PLAIN", "alice"), ("SCRAM-SHA-256", "carol"), ("SCRAM-SHA-256", "x")])
def test_wrong_credentials_are_told_and_nothing_opens(name: str, user: str) -> None:
    """The client's error says what Kafka's clients are told."""
    machine = server()
    with pytest.raises(AuthenticationFailed, match=r"[Ii]nvalid (username or password|credentials)"):
        authenticate(machine, Credentials(name, user, "wrong"))
    assert not machine.is_open
    assert machine.user is None


def test_a_session_ends_and_is_renewed() -> None:
    """connections.max.reauth.ms: the client is told, a renewal moves the end, at most one begins a second."""
    machine = server(lifetime_ms=3_000)
    assert authenticate(machine, Credentials("PLAIN", "alice", "pw")) == 3_000
    assert machine.session_end_ms == 3_000
    assert authenticate(machine, Credentials("PLAIN", "alice", "pw"), now_ms=2_000) == 3_000
    assert machine.session_end_ms == 5_000
    again = memoryview(
        framing.encode_request(ApiKey.SASL_HANDSHAKE, 1, 1, "c", messages.SaslHandshakeRequest(mechanism="PLAIN"))
    )[4:]
    assert not machine.begins_again(again, 2_999)
    assert machine.begins_again(again, 3_000)


@pytest.mark.parametrize(
    "frame",
    [b"", b"\0", b"\0\x11", b"\xff" * 10, b"\0\x11\0\x01" + b"\0" * 4 + b"\xff\xff", b"\0\x24\0\x02" + b"\0" * 8],
)
def test_what_is_no_sasl_ends_the_connection(frame: bytes) -> None:
    """Cut headers, unknown keys, a handshake without a body, a token too soon: no answer, no exception."""
    step = server().receive(memoryview(frame), 0)
    assert (step.answer, step.ending) == (None, Ending.AT_ONCE)


def test_a_server_that_does_not_know_the_user_is_found_out() -> None:
    """Its signature is wrong, or it asks for too few iterations, or for work without end."""
    client = ScramClient(SHA_256, "carol", "secret", "ours")
    client.answer(b"r=ourstheirs,s=c2FsdA==,i=4096")
    with pytest.raises(AuthenticationFailed, match="does not prove"):
        client.answer(b"v=AAAA")
    for iterations in (1, 2_147_483_647):
        with pytest.raises(AuthenticationFailed, match="iterations"):
            ScramClient(SHA_256, "carol", "secret", "ours").answer(f"r=ours1,s=c2FsdA==,i={iterations}".encode())
    with pytest.raises(AuthenticationFailed, match="malformed"):
        ScramClient(SHA_256, "carol", "secret", "ours").answer(b"r=others,s=c2FsdA==,i=4096")


@pytest.mark.parametrize(
    "token", [b"", b"n,,", b"y,,n=carol,r=x", b"n,,n=carol,r=", b"\xff\xfe", b"n,,n=carol,r=x,=" * 99]
)
def test_malformed_scram_is_refused(token: bytes) -> None:
    """As a wrong password is."""
    with pytest.raises(InvalidCredentials):
        ScramServer(SHA_256, {"carol": CREDENTIAL}.get, lambda: "theirs").evaluate(token)


def test_secrets_are_in_no_repr() -> None:
    """What is logged or shown in a traceback says who, never the secret."""
    module = jaas.parse(f'{jaas.PLAIN_MODULE} required username="admin" password="hunter2" user_bob="hunter3";')
    shown = repr([CREDENTIAL, Credentials("PLAIN", "alice", "hunter2"), module])
    assert "hunter" not in shown
    assert "salt" not in shown
    assert module.users() == {"bob": "hunter3"}


def test_stored_credentials_are_kafkas() -> None:
    """As kafka-configs 3.9 wrote it for the password `pw`."""
    text = (
        "salt=ZmYyZ2kwN3J4cWlrb3Jnb3NjbGhkMzc0aw==,stored_key=AblymH8K7CfXIX6Kx/nJSx0vI6uow5FIghkYTNefxKk=,"
        "server_key=G6qt+WE9HH7FL9woja/oNELN/x76Qe5pTav4izaEx80=,iterations=4096"
    )
    credential = ScramCredential.decode(text)
    assert credential == ScramCredential.of_password(SHA_256, "pw", credential.salt, 4096)
    assert credential.encode() == text
    for broken in ("", "salt=x", text.replace("4096", "many"), text.replace("salt=Z", "salt=%")):
        with pytest.raises(ValueError, match="SCRAM credential"):
            ScramCredential.decode(broken)


def test_jaas_texts() -> None:
    """Quotes, escapes, comments, bare words; what is wrong is said without the text."""
    text = """ // a comment
      org.example.X required a="b \\"c\\" = d;" 'x'"""
    with pytest.raises(jaas.InvalidJaas):
        jaas.parse(text)
    module = jaas.parse('org.example.X Required a="b \\"c\\"; d" e=\'f\' /* g */ h=i-j ;')
    assert module.name == "org.example.X"
    assert module.options == {"a": 'b "c"; d', "e": "f", "h": "i-j"}
    assert jaas.parse(jaas.render(module)) == module
    for broken in (
        "",
        "X",
        "X maybe;",
        'X required a="secret"',
        "X required a=;",
        "X required;Y required;",
        'X required a="secret',
    ):
        with pytest.raises(jaas.InvalidJaas) as caught:
            jaas.parse(broken)
        assert "secret" not in str(caught.value)


def test_every_failure_of_a_mechanism_is_a_sasl_error() -> None:
    """PLAIN tokens of any shape end in an answer."""
    for token in (b"", b"\0", b"\0\0\0\0\0", b"\xff\0\xff\0\xff", b"bob\0alice\0pw"):
        with pytest.raises(SaslError):
            PlainServer(StaticUsers({"alice": "pw"})).evaluate(token)


def test_mutated_frames_raise_nothing() -> None:
    """What comes before authentication is anybody's: each frame leads to a step, and none opens the door by chance."""
    draw = random.Random(5)
    handshakes: list[messages.Message] = [
        messages.SaslHandshakeRequest(mechanism=name) for name in ("PLAIN", "SCRAM-SHA-256")
    ]
    tokens = [b"\0alice\0no", b"n,,n=carol,r=abc", b"c=biws,r=abctheirs,p=AAAA"]
    frames = [
        framing.encode_request(ApiKey.SASL_HANDSHAKE, version, 1, "c", each)[4:]
        for version in (0, 1)
        for each in handshakes
    ]
    frames += [
        framing.encode_request(
            ApiKey.SASL_AUTHENTICATE, version, 1, "c", messages.SaslAuthenticateRequest(auth_bytes=token)
        )[4:]
        for version in (0, 1, 2)
        for token in tokens
    ]
    for _ in range(3_000):
        machine = server()
        for _ in range(4):
            frame = bytearray(draw.choice([*frames, *tokens]))
            for _ in range(draw.randint(0, 3)):
                frame[draw.randrange(len(frame))] = draw.randrange(256)
            if machine.receive(memoryview(bytes(frame)), 0).ending is not Ending.NOT:
                break
        assert machine.user is None


def test_old_librdkafka_says_its_nonce_twice() -> None:
    """Before 2.6.1, as in Debian's kcat: its final message has its own nonce before the whole one."""
    mechanism = MECHANISMS["SCRAM-SHA-256"]
    credential = ScramCredential.of_password(mechanism, "secret", b"salt", 4096)
    for before in ("", "mine"):
        machine = ScramServer(mechanism, lambda user: credential, lambda: "theirs")
        first = machine.evaluate(b"n,,n=alice,r=mine").decode()
        unsigned = f"c=biws,r={before}minetheirs"
        signed = f"n=alice,r=mine,{first},{unsigned}".encode()
        salted = salted_password(mechanism, "secret", b"salt", 4096)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        machine.evaluate(f"{unsigned},p={base64.b64encode(proof).decode()}".encode())
        assert machine.user == "alice"
    machine = ScramServer(mechanism, lambda user: credential, lambda: "theirs")
    machine.evaluate(b"n,,n=alice,r=mine")
    with pytest.raises(InvalidCredentials, match="another nonce"):
        machine.evaluate(b"c=biws,r=theirs,p=AAAA")
