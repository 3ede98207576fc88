"""Authorization and authentication, from the folder `security`: Kafka's own authorizer, and its SASL byte for byte.

A file is `NAME.json` or `NAME.json.gz`. Files and flows of what tidelog does not serve are named by `unjudged`.
"""

from __future__ import annotations

import base64
import functools
import gzip
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from tidelog.broker.handlers import Handler, load_handlers
from tidelog.broker.requests.dispatch import Dispatcher
from tidelog.config.listener_security import parse_super_users
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import codec, framing, messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType
from tidelog.security.acls import AclEntry, PatternType, Permission, ResourcePattern
from tidelog.security.authorizer import Authorizer, java_host
from tidelog.security.delegation_tokens import password_of
from tidelog.security.mechanisms import ServerMechanism
from tidelog.security.oauthbearer import OauthServer, Unsecured, verify_unsecured
from tidelog.security.plain import PlainServer, StaticUsers
from tidelog.security.sasl_server import Ending, SaslServer, Step
from tidelog.security.scram import BY_CODE, ITERATIONS_MIN, MECHANISMS, ScramCredential, ScramServer, TokenLogin

FOLDER = "security"
REAUTHENTICATION_MS = 3_000
"""connections.max.reauth.ms of the flows' second listener."""
PASSWORDS = {"alice": "pw", "bob": "pw"}
"""Of PLAIN, as the files' README says."""
TOKEN_LIFETIME_MS = 3_600_000


def cases(directory: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """Every case of the files that are judged."""
    for name, data in security_files(directory):
        if name == "acl-rules":
            for index, case in enumerate(data["cases"]):
                yield f"acl-rules[{index}] {case['kind']}", lambda case=case: _check_rules(case)
        elif name == "sasl-flows":
            credentials = _credentials(data)
            for flow in data["flows"]:
                if not _is_unserved(flow):
                    hmac = _token_hmac(data["flows"])
                    yield f"sasl-flows {flow['name']}", functools.partial(_replay, flow, credentials, hmac)


def unjudged(directory: str) -> list[str]:
    """What lies there and is not judged."""
    found = []
    for name, data in security_files(directory):
        if name == "sasl-flows":
            flows = sum(map(_is_unserved, data["flows"]))
            if flows:
                found.append(f"{name}: {flows} flows that are too long to be written whole in the file")
        elif name not in ("acl-rules", "acl-matrix", "quotas"):
            found.append(name)
    return found


def security_files(directory: str) -> Iterator[tuple[str, Any]]:
    """Name and content of each file of the folder."""
    for path in sorted((Path(directory) / FOLDER).glob("*.json*")):
        if path.suffix == ".gz":
            with gzip.open(path, "rt") as stream:
                yield path.name.removesuffix(".json.gz"), json.load(stream)
        else:
            yield path.stem, json.loads(path.read_text())


# acl-rules


def _check_rules(case: dict[str, Any]) -> None:
    given = case["input"]
    authorizer = Authorizer(parse_super_users(given["super_users"]), allow_everyone=given["allow_everyone"])
    acls: dict[ResourcePattern, set[AclEntry]] = {}
    for kind, name, pattern_type, principal, host, operation, permission in given["acls"]:
        pattern = ResourcePattern(ResourceType[kind], name, PatternType[pattern_type])
        acls.setdefault(pattern, set()).add(AclEntry(principal, host, Operation[operation], Permission[permission]))
    authorizer.replace_all(acls)
    for question, expected in zip(given["questions"], case["expected"], strict=True):
        principal, host, operation, kind, name = question
        asked = (principal, java_host(host), Operation[operation], ResourceType[kind])
        decision = authorizer.authorize_any(*asked) if name is None else authorizer.authorize(*asked, name)
        # One client is named as the wildcard: Kafka's authorizer throws, which denies it too.
        wanted = "DENIED" if expected.startswith("error") else expected
        assert ("ALLOWED" if decision else "DENIED") == wanted, question


# sasl-flows


def _is_unserved(flow: dict[str, Any]) -> bool:
    """Whether it is too long to be written whole in the file."""
    return any("..." in step.get("sent", "") for step in flow["steps"])


def _credentials(data: dict[str, Any]) -> dict[tuple[str, str], ScramCredential]:
    """(user, mechanism) -> credential, as the file's own requests made them."""
    credentials = {}
    for case in data["alter_user_scram_credentials"]:
        failed = {result["user"] for result in case["answer"]["results"] if result["errorCode"]}
        for entry in case["request"]["upsertions"]:
            mechanism = BY_CODE.get(entry["mechanism"])
            if mechanism is not None and entry["name"] not in failed:
                salted, salt = base64.b64decode(entry["saltedPassword"]), base64.b64decode(entry["salt"])
                credential = ScramCredential.of_salted(mechanism, salted, salt, entry["iterations"])
                credentials[entry["name"], mechanism.name] = credential
    return credentials


def _token_hmac(flows: list[dict[str, Any]]) -> bytes:
    """Of the one delegation token of the file: a worker tries to renew it."""
    for flow in flows:
        for step in flow["steps"]:
            if step["what"].startswith("RenewDelegationToken"):
                header, position = framing.decode_request_header(memoryview(bytes.fromhex(step["sent"]))[4:])
                version, body = header.request_api_version, bytes.fromhex(step["sent"])[4 + position :]
                request, _ = codec.decode(messages.RenewDelegationTokenRequest, version, memoryview(body))
                return bytes(request.hmac)
    return b""


def _replay(flow: dict[str, Any], credentials: dict[tuple[str, str], ScramCredential], hmac: bytes) -> None:
    _Replay(flow, credentials, hmac).check()


class _Replay:
    """One connection: what Kafka was sent is given to our machine, at times that give Kafka's outcome a reason."""

    def __init__(self, flow: dict[str, Any], credentials: dict[tuple[str, str], ScramCredential], hmac: bytes) -> None:
        """`hmac` is that of the delegation token, where the flow shows one."""
        self._flow = flow
        self._hmac = hmac
        self._credentials = credentials
        self._lifetime_ms = REAUTHENTICATION_MS if flow["listener"].startswith("REAUTH") else 0
        enabled = ("PLAIN", "SCRAM-SHA-512", "SCRAM-SHA-256", "OAUTHBEARER")
        self._machine = SaslServer(enabled, self._mechanism, lambda mechanism: self._lifetime_ms)
        self._now_ms = 0
        self._nonce = ""
        self._handlers: dict[int, Handler] = load_handlers()
        self._refuser = Dispatcher(cast(Any, None), self._handlers)

    def _mechanism(self, name: str) -> ServerMechanism:
        if name == "PLAIN":
            return PlainServer(StaticUsers(PASSWORDS))
        if name == "OAUTHBEARER":
            return OauthServer(lambda token: verify_unsecured(token, Unsecured(), self._wall_ms()))
        return ScramServer(
            MECHANISMS[name],
            lambda user: self._credentials.get((user, name)),
            lambda: self._nonce,
            lambda _: self._token_login(name),
        )

    def _wall_ms(self) -> int:
        """When Kafka was shown the token: as its answer about the lifetime says, else a moment after it was issued."""
        for step in self._flow["steps"]:
            found = re.search(r"Bearer [^.]*\.([^.]+)\.", step["what"])
            if found is None:
                continue
            try:
                claims = json.loads(base64.urlsafe_b64decode(found[1] + "=" * (-len(found[1]) % 4)))
            except ValueError:
                return 0
            lifetime_ms = (step.get("decoded") or {}).get("session_lifetime_ms")
            if lifetime_ms and not self._lifetime_ms:
                return int(claims["exp"]) * 1000 - int(lifetime_ms)
            if self._lifetime_ms and lifetime_ms and lifetime_ms < self._lifetime_ms:
                return int(claims["exp"]) * 1000 - int(lifetime_ms)
            issued = "future" not in self._flow["name"]
            return int(claims.get("iat", 0)) * 1000 + (1 if issued else -1)
        return 0

    def _token_login(self, mechanism: str) -> TokenLogin | None:
        """With the salt that Kafka drew, and the lifetime that was left."""
        answers = [step["decoded"] for step in self._flow["steps"] if isinstance(step.get("decoded"), dict)]
        salts = [found[1] for each in answers if (found := re.search(r",s=([^,]+)", each.get("auth_bytes", "")))]
        if not salts:
            return None
        salt, password = base64.b64decode(salts[0]), password_of(self._hmac)
        credential = ScramCredential.of_password(MECHANISMS[mechanism], password, salt, ITERATIONS_MIN)
        lifetimes = [each["session_lifetime_ms"] for each in answers if each.get("session_lifetime_ms")]
        return TokenLogin("alice", credential, lifetimes[0] if lifetimes else TOKEN_LIFETIME_MS)

    def check(self) -> None:
        lapses = any(words in self._flow["name"] for words in ("lapsed", "in time", "expires in"))
        ended = False
        steps = self._flow["steps"]
        late = b""
        for number, step in enumerate(steps):
            sent = bytes.fromhex(step.get("sent", ""))
            if ended:
                assert "closed_after_ms" in step
                continue
            renewed = number == 2 and self._flow["name"] == "re-authentication after the session lapsed"
            if lapses and self._machine.is_open and ("closed_after_ms" in step or renewed):
                self._now_ms += REAUTHENTICATION_MS
            answers = []
            while len(sent) >= 4 and not ended:
                size = int.from_bytes(sent[:4], "big", signed=True)
                if len(sent) < 4 + size or not 0 <= size <= 524_288:
                    # The bound of a frame is the connection's affair: tests of the server show it.
                    return
                answer, ended = self._take(memoryview(sent[4 : 4 + size]), step)
                sent = sent[4 + size :]
                answers += [answer] if answer is not None else []
            # What was sent together is answered in the order of the steps that wait for it.
            answered, late = late + b"".join(answers), b""
            if len(answers) > 1:
                answered, late = answers[0], b"".join(answers[1:])
            following = steps[number + 1] if number + 1 < len(steps) else {}
            self._compare(step, following, answered, ended)

    def _take(self, frame: memoryview, step: dict[str, Any]) -> tuple[bytes | None, bool]:
        machine = self._machine
        if machine.is_open and not machine.begins_again(frame, self._now_ms):
            if machine.session_end_ms is not None and self._now_ms >= machine.session_end_ms:
                return None, True
            return self._handled(frame, step), False
        self._foresee_nonce(step)
        taken: Step = machine.receive(frame, self._now_ms)
        if taken.for_handler:
            return self._handled(frame, step), False
        answer = taken.answer
        if taken.is_illegal:
            answer = self._refuser.refuse(frame, KafkaError(ErrorCode.ILLEGAL_SASL_STATE))
        if taken.ending is not Ending.NOT:
            delayed = step.get("answer_after_ms", step.get("closed_after_ms")) >= 100
            assert delayed == (taken.ending is Ending.DELAYED), taken.reason
        return answer, taken.ending is not Ending.NOT

    def _handled(self, frame: memoryview, step: dict[str, Any]) -> bytes | None:
        """What a handler answers is the handlers' affair, but for SASL's own requests."""
        header, _ = framing.decode_request_header(frame)
        if header.request_api_key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
            late = KafkaError(
                ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate request received after successful authentication"
            )
            return self._refuser.refuse(frame, late)
        return bytes.fromhex(step["answer"])

    def _foresee_nonce(self, step: dict[str, Any]) -> None:
        """Has our machine draw the random part that Kafka drew, so that all that follows is the same."""
        decoded = step.get("decoded")
        token = (decoded.get("auth_bytes") or decoded.get("token") or "") if isinstance(decoded, dict) else ""
        if token.startswith("r="):
            sent = bytes.fromhex(step["sent"]).decode("latin-1")
            client = sent.split(",r=")[1].split(",")[0].rstrip("\0")
            self._nonce = token[2:].split(",")[0][len(client) :]

    def _compare(self, step: dict[str, Any], following: dict[str, Any], answer: bytes, ended: bool) -> None:
        closed = "closed_after_ms" in step or step.get("then", "").startswith("closed")
        # Where nothing is said, the next request shows it; a delayed answer is one to a failure.
        closed_later = step.get("answer_after_ms", 0) >= 100 and "closed_after_ms" in following
        assert ended == (closed or closed_later), step["what"]
        if "answer" in step:
            assert answer.hex() == step["answer"] or _error_codes(step, answer), step["what"]
        elif "closed_after_ms" in step:
            assert not answer


def _error_codes(step: dict[str, Any], answer: bytes) -> bool:
    """Whether both answers to a request that has no place name the same error: the rest is that API's affair."""
    header, _ = framing.decode_request_header(memoryview(bytes.fromhex(step["sent"]))[4:])
    key = ApiKey(header.request_api_key)
    if key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
        return False
    ours, kafkas = (
        framing.decode_response(key, header.request_api_version, memoryview(data)[4:])[1]
        for data in (answer, bytes.fromhex(step["answer"]))
    )
    return getattr(ours, "error_code", 0) == getattr(kafkas, "error_code", 0)
