"""What each API answers to a user without the right, with it, and with half of it: Kafka's answers, on our broker.

From `security/acl-matrix.json[.gz]`. Error codes, what is left out of lists, `authorized_operations`, and whether the
connection ends are compared; what else an answer says is other tests' affair. Cases that need a group, a transaction or
a share group in a certain state, and APIs that are not served, are named by `unjudged`.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tests.vectors.families.security import security_files
from tests.vectors.json_form import from_json, to_json
from tidelog.broker.deferred import Deferred
from tidelog.broker.handlers import load_handlers
from tidelog.broker.peer import CloseConnection, Peer
from tidelog.broker.telemetry import otlp
from tidelog.broker.telemetry.offer import TELEMETRY_APIS
from tidelog.model.identifiers import format_topic_id
from tidelog.protocol import framing, messages
from tidelog.protocol.apis import ApiKey
from tidelog.protocol.classes import Message
from tidelog.protocol.schema import Field, camel_case
from tidelog.protocol.source import Layout
from tidelog.security.access import Operation, Principal, ResourceType
from tidelog.security.acls import AclEntry, PatternType, Permission, ResourcePattern
from tidelog.security.authorizer import Authorizer
from tidelog.testing import Cluster

NAME = "acl-matrix"
TOPICS = ("a-t", "z-t")
AUTHORIZATION_ERRORS = frozenset({29, 30, 31, 53, 65})
ANSWER_S_MAX = 30.0
WAYS_MAX = 6
"""Sets of ACLs that are tried for one answer."""
CLUSTER_PATTERN = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster")
PATTERNS = {
    "Topic": ResourcePattern(ResourceType.TOPIC, "a-", PatternType.PREFIXED),
    "Group": ResourcePattern(ResourceType.GROUP, "a-", PatternType.PREFIXED),
    "TransactionalId": ResourcePattern(ResourceType.TRANSACTIONAL_ID, "a-", PatternType.PREFIXED),
    "Cluster": CLUSTER_PATTERN,
    "DelegationToken": ResourcePattern(ResourceType.DELEGATION_TOKEN, "*"),
    "User": ResourcePattern(ResourceType.USER, "User:", PatternType.PREFIXED),
}
NEEDS_STATE = {
    "OFFSET_FETCH",
    "OFFSET_DELETE",
    "JOIN_GROUP",
    "CONSUMER_GROUP_DESCRIBE",
    "DESCRIBE_TRANSACTIONS",
    "LIST_GROUPS",
    "SHARE_GROUP_DESCRIBE",
    "ALTER_SHARE_GROUP_OFFSETS",
    "DELETE_SHARE_GROUP_OFFSETS",
}
"""APIs whose answers to those who have some right depend on a group or transaction: those without any are judged."""
UNLIKE_KAFKA = {
    ("ENVELOPE", "broker listener: not served there"): "it is served, between brokers",
    ("DESCRIBE_USER_SCRAM_CREDENTIALS", "all (null)"): "Kafka never answers; here the error is told",
    ("CREATE_TOPICS", "created"): "the topic exists once it was created",
}
COUNTED_ELSEWHERE = frozenset(
    {"configs", "synonyms", "brokers", "records", "abortedTransactions", "isrNodes", "replicaNodes", "offlineReplicas"}
)


def cases(directory: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """A case of the file, with all sets of ACLs that change its answer."""
    found = [data for name, data in security_files(directory) if name == NAME]
    if not found:
        return
    with _Broker() as broker:
        for case in found[0]["cases"]:
            if _why_unjudged(case) is None:
                yield f"{case['api']} v{case['version']} {case['case']}", functools.partial(_check, broker, case)


def unjudged(directory: str) -> list[str]:
    """How many cases are not judged, by reason."""
    reasons: dict[str, int] = {}
    for name, data in security_files(directory):
        for case in data["cases"] if name == NAME else ():
            reason = _why_unjudged(case)
            if reason is not None:
                reasons[reason] = reasons.get(reason, 0) + 1
    return [f"{count} cases: {reason}" for reason, count in reasons.items()]


def _why_unjudged(case: dict[str, Any]) -> str | None:
    key = ApiKey[case["api"]]
    handler = load_handlers().get(key)
    if key in TELEMETRY_APIS and not otlp.is_installed():
        return "what needs the extra tidelog[telemetry]"
    if handler is None or not handler.versions.serves(case["version"]) or case.get("listener"):
        return "APIs and versions that are not served"
    if "<" in str(case["request"]).replace("<id of a-t>", "").replace("<id of z-t>", ""):
        return "of a certain producer, member or directory"
    return UNLIKE_KAFKA.get((case["api"], case["case"]))


def _check(broker: _Broker, case: dict[str, Any]) -> None:
    assert _differences(case["no_acl"], broker.ask(case, ())) is None, "without any ACL"
    if case["api"] in NEEDS_STATE:
        return
    for change in case.get("changed_by") or ():
        whole = change["answer"] == "super_user"
        expected = case["super_user"] if whole else change["answer"]
        if isinstance(expected, str):
            expected = case["no_acl"]
        for way in change["by"][:WAYS_MAX]:
            for acls in itertools.islice(itertools.product(*way), WAYS_MAX):
                got = broker.ask(case, acls)
                assert _differences(expected, got, only_refusals=whole) is None, acls


def _differences(expected: Any, got: Any, *, only_refusals: bool = False) -> str | None:
    """What differs in the two answers' codes and lists; None where nothing does."""
    ends = [{"closed", "timeout"} & set(answer or ()) for answer in (expected, got)]
    if ends[0] or ends[1]:
        return None if ends[0] == ends[1] else f"{expected} was expected, and came: {got}"
    sides = [set(_codes(answer, "")) for answer in (expected, got)]
    if only_refusals:
        sides = [
            {each for each in side if each[1] in AUTHORIZATION_ERRORS and not each[0].endswith("#")} for side in sides
        ]
    return None if sides[0] == sides[1] else f"Kafka's alone: {sides[0] - sides[1]}, ours alone: {sides[1] - sides[0]}"


def _codes(form: Any, path: str) -> Iterator[tuple[str, Any]]:
    """(place, code) for each error code and set of operations, (place#, 0 or 1) for whether a list is empty."""
    if isinstance(form, dict):
        for name, value in form.items():
            if name == "errorCode" or name.endswith("uthorizedOperations"):
                yield f"{path}/{name}", value
            else:
                yield from _codes(value, f"{path}/{name}")
    elif isinstance(form, list):
        if path.rpartition("/")[2] not in COUNTED_ELSEWHERE:
            yield f"{path}#", min(len(form), 1)
        for item in form:
            yield from _codes(item, path)


class _Broker:
    """A broker with the topics of the file, asked without a socket in the name of a user with some ACLs."""

    def __init__(self) -> None:
        self._cluster = Cluster(
            {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:admin",
                "auto.create.topics.enable": "false",
                "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
                "inter.broker.listener.name": "PLAINTEXT",
                "listener.name.clients.sasl.enabled.mechanisms": "SCRAM-SHA-256",
                "delegation.token.secret.key": "of-the-cluster",
                "metrics.listener": "0",
            }
        )
        self._topic_ids: dict[str, str] = {}

    def __enter__(self) -> _Broker:
        self._cluster.start()
        topics = [{"name": name, "numPartitions": 1, "replicationFactor": 1} for name in TOPICS]
        create = {"api": "CREATE_TOPICS", "version": 7, "request": {"topics": topics, "timeoutMs": 10_000}}
        answer = self.ask(create, (), user="admin")
        token = {"api": "CREATE_DELEGATION_TOKEN", "version": 3, "request": {"maxLifetimeMs": 3_600_000}}
        self.ask(token, (), user="bob")
        self._topic_ids = {f"<id of {topic['name']}>": topic["topicId"] for topic in answer["topics"]}
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.stop()

    def ask(self, case: dict[str, Any], acls: tuple[str, ...], user: str = "alice") -> Any:
        """The answer in JSON form, `{"closed": True}`, or `{"timeout": True}`."""
        key, version = ApiKey[case["api"]], case["version"]
        cls = messages.request_class(key)
        request = from_json(cls, version, _completed(cls, version, self._filled(case["request"])))
        frame = framing.encode_request(key, version, 7, "c", request)[4:]
        # Tokens are for those alone who come with authentication.
        listener = "CLIENTS" if "DELEGATION_TOKEN" in case["api"] else "PLAINTEXT"
        peer = Peer(listener, 1, "127.0.0.1", 1)
        peer.authorizer = _authorizer(acls)
        peer.authenticated(Principal(user))
        answers: list[Any] = []
        answered = threading.Event()
        runtime = self._cluster.runtime

        def settle(settled: Deferred[Any]) -> None:
            try:
                answers.append(settled.result())
            except CloseConnection:
                answers.append({"closed": True})
            answered.set()

        def begin() -> None:
            try:
                answer = runtime._server.dispatcher.request(
                    peer, memoryview(frame), 0, len(frame), runtime.node.clock.monotonic_ms()
                )
            except CloseConnection:
                answer = Deferred()
                answer.fail(CloseConnection())
            (answer if isinstance(answer, Deferred) else Deferred.of(answer)).on_complete(settle)

        self._cluster.call(begin)
        if not answered.wait(ANSWER_S_MAX):
            return {"timeout": True}
        if answers[0] is None or isinstance(answers[0], dict):
            return answers[0]
        chunks = [answers[0]] if isinstance(answers[0], bytes) else answers[0]
        data = b"".join(chunk if isinstance(chunk, bytes) else b"\0" * chunk.size for chunk in chunks)
        return to_json(framing.decode_response(key, version, memoryview(data)[4:])[1], version)

    def _filled(self, form: Any) -> Any:
        if isinstance(form, dict):
            return {name: self._filled(value) for name, value in form.items()}
        if isinstance(form, list):
            return [self._filled(item) for item in form]
        return self._topic_ids.get(form, form) if isinstance(form, str) else form


def _authorizer(acls: tuple[str, ...]) -> Authorizer:
    """With ACLs such as `READ Topic` for alice."""
    entries: dict[ResourcePattern, list[AclEntry]] = {}
    for acl in acls:
        operation, kind = acl.split(" ")
        entry = AclEntry("User:alice", "*", Operation[operation], Permission.ALLOW)
        entries.setdefault(PATTERNS[kind], []).append(entry)
    authorizer = Authorizer({"User:admin"})
    authorizer.replace_all(entries)
    return authorizer


def _completed(cls: type[Message], version: int, form: dict[str, Any]) -> dict[str, Any]:
    """The form with what was left out of it, and without what the version lacks."""
    layout = Layout(version, cls.SCHEMA.is_flexible(version))

    def struct(fields: tuple[Field, ...], given: dict[str, Any]) -> dict[str, Any]:
        completed = {}
        for field in layout.present(fields) + layout.tagged(fields):
            name = camel_case(field.name)
            if name in given:
                completed[name] = value(field, given[name])
            elif not layout.is_tagged(field):
                completed[name] = [] if field.is_array else _NOTHING.get(field.type, 0)
        return completed

    def value(field: Field, given: Any) -> Any:
        if not field.is_struct or given is None:
            return given
        return [struct(field.fields, item) for item in given] if field.is_array else struct(field.fields, given)

    return struct(cls.SCHEMA.fields, form)


_NOTHING = {"string": "", "bytes": "", "records": None, "uuid": format_topic_id(b"\0" * 16), "bool": False}
