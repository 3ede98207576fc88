"""Bearer tokens from an issuer's endpoint, as Java's clients name it."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import pytest

from tidelog.client.blocking import BlockingCluster
from tidelog.client.cluster import Cluster as ClientCluster
from tidelog.client.errors import AuthenticationError, UnsupportedSecurity
from tidelog.client.security import ClientSecurity
from tidelog.client.token_endpoint import Endpoint, IssuedTokens
from tidelog.security.oauthbearer import unsecured_token
from tidelog.testing import Cluster

SECRET = "s3cret/+ :"
PACKAGE = "org.apache.kafka.common.security.oauthbearer"
LOGIN = f"{PACKAGE}.OAuthBearerLoginModule required"


class Issuer(ThreadingHTTPServer):
    """An identity provider: answers from a list, the last of which stays."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[tuple[int, Any]] = [(200, {"access_token": token("alice"), "expires_in": 60})]
        self.asked: list[tuple[Mapping[str, str], dict[str, list[str]]]] = []
        """Headers and form of each request."""
        self.location = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/token"


class _Handler(BaseHTTPRequestHandler):
    server: Issuer

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.server.asked.append((dict(self.headers), form))
        answers = self.server.answers
        code, content = answers.pop(0) if len(answers) > 1 else answers[0]
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        if code == 302:
            self.send_header("Location", self.server.location)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing is logged."""


def token(user: str, lifetime_s: int = 3_600) -> str:
    now = int(time.time())
    return unsecured_token({"sub": user, "iat": now - 1, "exp": now + lifetime_s})


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def tokens(issuer: Issuer, wall: Callable[[], float] = time.time, **more: Any) -> tuple[IssuedTokens, list[float]]:
    """Tokens of the issuer on a clock that sleeping moves; the sleeps."""
    slept: list[float] = []
    endpoint = Endpoint(issuer.url, "client one", SECRET, **more)
    return IssuedTokens(endpoint, now=lambda: sum(slept), wall=wall, sleep=slept.append), slept


def test_a_client_names_itself_and_its_scope(issuer: Issuer) -> None:
    found, _ = tokens(issuer, scope="kafka read")
    found.prepare()
    ((headers, form),) = issuer.asked
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka read"]}
    named = base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode()
    assert named == f"client one:{SECRET}"
    assert headers["Content-Type"] == "application/x-www-form-urlencoded"


def test_names_in_the_header_can_be_encoded(issuer: Issuer) -> None:
    tokens(issuer, encodes_header=True)[0].prepare()
    named = base64.b64decode(issuer.asked[0][0]["Authorization"].removeprefix("Basic ")).decode()
    assert named == "client%20one:s3cret%2F%2B%20%3A"


def test_a_token_is_used_until_most_of_its_lifetime_is_over(issuer: Issuer) -> None:
    """What it says of its end counts, not what the endpoint says beside it."""
    issuer.answers = [(200, {"access_token": token("alice", 1_000), "expires_in": 5})]
    found, slept = tokens(issuer)
    for _ in range(3):
        found.begin("")
    assert len(issuer.asked) == 1
    slept.append(790.0)
    assert found.is_ready
    slept.append(20.0)
    assert not found.is_ready
    found.begin("")
    assert len(issuer.asked) == 2


@pytest.mark.parametrize("jump_s", [-1e6, 1e6])
def test_a_clock_that_is_set_changes_nothing_of_a_token(issuer: Issuer, jump_s: float) -> None:
    """What has passed since it was fetched counts: it is not over at once, nor good for ever."""
    issuer.answers = [(200, {"access_token": token("alice", 1_000)}), (503, b"")]
    jumped = 0.0
    found, slept = tokens(issuer, lambda: time.time() + jumped, tries_s_max=1.0)
    found.begin("")
    jumped = jump_s
    assert found.is_ready
    slept.append(810.0)
    assert not found.is_ready
    found.begin("")
    slept.append(190.0)
    with pytest.raises(ConnectionError, match="answers 503"):
        found.begin("")


def test_a_token_lives_no_longer_than_it_was_issued_for(issuer: Issuer) -> None:
    """A clock that is a year behind does not keep it in use for that year."""
    issuer.answers = [(200, {"access_token": token("alice", 999)})]
    found, slept = tokens(issuer, lambda: time.time() - 3e7)
    found.begin("")
    slept.append(799.0)
    assert found.is_ready
    slept.append(2.0)
    assert not found.is_ready


def test_an_opaque_token_lives_as_long_as_the_endpoint_says(issuer: Issuer) -> None:
    issuer.answers = [(200, {"access_token": "opaque", "expires_in": 100})]
    found, slept = tokens(issuer)
    found.begin("")
    slept.append(79.0)
    assert found.is_ready
    slept.append(2.0)
    assert not found.is_ready


def test_a_token_that_is_good_is_used_while_no_other_is_to_be_had(issuer: Issuer) -> None:
    """An issuer that is away for a while costs no connection, nor a try for each; it is asked again before the end."""
    issuer.answers = [(200, {"access_token": token("alice", 1_000)}), (503, b"")]
    found, slept = tokens(issuer, tries_s_max=1.0)
    found.begin("")
    slept.append(810.0)
    found.begin("")
    assert len(issuer.asked) == 1 + 4
    assert found.is_ready
    found.begin("")
    assert len(issuer.asked) == 1 + 4
    slept.append(60.0)
    assert not found.is_ready
    issuer.answers = [(200, {"access_token": token("alice", 9_000)})]
    found.begin("")
    assert len(issuer.asked) == 1 + 4 + 1
    slept.append(2_000.0)
    assert found.is_ready


def test_a_token_whose_time_is_over_is_not_used(issuer: Issuer) -> None:
    issuer.answers = [(200, {"access_token": token("alice", 1_000)}), (503, b"")]
    found, slept = tokens(issuer, tries_s_max=1.0)
    found.begin("")
    slept.append(1_000.0)
    with pytest.raises(ConnectionError, match="answers 503"):
        found.begin("")


@pytest.mark.parametrize("code", [500, 503, 408, 429])
def test_what_may_pass_is_tried_again(issuer: Issuer, code: int) -> None:
    issuer.answers = [(code, b""), (code, b"<html>"), (200, {"id_token": token("alice")})]
    found, slept = tokens(issuer)
    found.prepare()
    assert slept == [0.1, 0.2]


class _BrokenOff(BaseHTTPRequestHandler):
    """An answer in chunks, which ends in the middle of one."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        code = self.server.answers[0][0]  # type: ignore[attr-defined]
        self.wfile.write(b"HTTP/1.1 %d X\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{" % code)
        self.close_connection = True

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing is logged."""


class _NoHttp(_BrokenOff):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")


@pytest.mark.parametrize(("handler", "code"), [(_BrokenOff, 200), (_BrokenOff, 400), (_NoHttp, 200)])
def test_an_answer_that_is_no_http_is_no_token(issuer: Issuer, handler: Any, code: int) -> None:
    """It breaks off, or comes from something else: tried again, and in the end an error that connections expect."""
    issuer.RequestHandlerClass, issuer.answers = handler, [(code, b"")]
    security = ClientSecurity.from_properties(properties(issuer, "new") | {"sasl.login.retry.backoff.max.ms": "1"})
    prepare = security.preparation()
    assert prepare is not None
    with pytest.raises(AuthenticationError, match="no bearer token"):
        prepare()


def test_tries_end(issuer: Issuer) -> None:
    issuer.answers = [(503, b"")]
    found, slept = tokens(issuer, tries_s_max=1.0)
    with pytest.raises(ConnectionError, match="answers 503"):
        found.prepare()
    assert slept == [0.1, 0.2, 0.4]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((401, {"error": "invalid_client", "error_description": "no\nsuch client"}), r"401: invalid_client: no\\nsuch"),
        ((400, b"[]"), "answers 400: Bad Request"),
        ((302, b""), "answers 302"),
        ((200, b"<html>"), "what is no JSON"),
        ((200, []), "no object"),
        ((200, {"token": "x"}), "without access_token"),
        ((200, {"access_token": 7}), "without access_token"),
        ((200, {"access_token": "two words"}), "characters that none has"),
        ((200, b" " * (1 << 20) + b"{}"), "more than 1048576 bytes"),
    ],
)
def test_what_gives_no_token(issuer: Issuer, answer: tuple[int, Any], reason: str) -> None:
    """Said at once, and without the secret; the secret goes to no other address."""
    issuer.answers, issuer.location = [answer], f"http://127.0.0.1:{issuer.server_port}/elsewhere"
    found, slept = tokens(issuer)
    with pytest.raises((OSError, ValueError), match=reason) as caught:
        found.prepare()
    assert (slept, len(issuer.asked)) == ([], 1)
    assert "s3cret" not in f"{caught.value} {found!r}"


def properties(issuer: Issuer, names: str) -> dict[str, str]:
    by_names = {
        "new": {
            "sasl.oauthbearer.client.credentials.client.id": "one",
            "sasl.oauthbearer.client.credentials.client.secret": SECRET,
            "sasl.oauthbearer.scope": "read",
            "sasl.oauthbearer.jwt.retriever.class": f"{PACKAGE}.ClientCredentialsJwtRetriever",
        },
        "old": {"sasl.jaas.config": f'{LOGIN} clientId="one" clientSecret="{SECRET}" scope="read";'},
        "librdkafka": {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "one",
            "sasl.oauthbearer.client.secret": SECRET,
            "sasl.oauthbearer.scope": "read",
        },
    }
    common = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    return common | {"sasl.oauthbearer.token.endpoint.url": issuer.url} | by_names[names]


@pytest.mark.parametrize("names", ["new", "old", "librdkafka"])
def test_names_of_java_and_librdkafka(issuer: Issuer, names: str) -> None:
    security = ClientSecurity.from_properties(properties(issuer, names))
    assert security.log_in() is not None
    assert issuer.asked[0][1]["scope"] == ["read"]
    named = base64.b64decode(issuer.asked[0][0]["Authorization"].removeprefix("Basic ")).decode()
    assert named == f"one:{SECRET}"
    assert "s3cret" not in repr(security)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"sasl.oauthbearer.client.credentials.client.secret": ""}, "needs sasl.oauthbearer.client.credentials"),
        ({"sasl.oauthbearer.token.endpoint.url": "ftp://x"}, "an https:// URL"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://[::1/token"}, "https://\\[::1/token: Invalid IPv6 URL"),
        ({"sasl.oauthbearer.jwt.retriever.class": f"{PACKAGE}.JwtBearerJwtRetriever"}, "JwtBearerJwtRetriever is not"),
        ({"sasl.login.read.timeout.ms": "soon"}, "sasl.login.read.timeout.ms: 'soon'"),
        ({"https.ca.location": "/nowhere.pem"}, "/nowhere.pem cannot be read"),
    ],
)
def test_settings_that_cannot_be_used(issuer: Issuer, changed: dict[str, str], reason: str) -> None:
    with pytest.raises(UnsupportedSecurity, match=reason) as caught:
        ClientSecurity.from_properties(properties(issuer, "new") | changed)
    assert "s3cret" not in str(caught.value)


def test_both_clients_log_in_with_a_fetched_token(issuer: Issuer) -> None:
    """The asyncio client's loop goes on meanwhile; without a token both fail at once."""
    listener = "listener.name.sasl_plaintext"
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{listener}.oauthbearer.sasl.jaas.config": f'{LOGIN} unsecuredLoginStringClaim_sub="broker";',
        f"{listener}.oauthbearer.sasl.server.callback.handler.class": (
            f"{PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
        ),
    }
    with Cluster(settings) as cluster:
        address = cluster.runtime.addresses[1]
        security = ClientSecurity.from_properties(properties(issuer, "new"))
        with BlockingCluster(address, security=security) as client:
            client.topics()

        async def ask(security: ClientSecurity) -> None:
            async with ClientCluster(address, security=security) as client:
                await client.run(client.routing.refresh(None, client.routing.deadline()))

        asyncio.run(ask(security))
        assert len(issuer.asked) == 1
        issuer.answers = [(401, {"error": "invalid_client"})]
        refused = ClientSecurity.from_properties(properties(issuer, "new"))
        with pytest.raises(AuthenticationError, match=r"no bearer token to log in with: .* 401: invalid_client"):
            asyncio.run(ask(refused))
        with (
            BlockingCluster(address, security=refused) as client,
            pytest.raises(AuthenticationError, match="invalid_client"),
        ):
            client.topics()
