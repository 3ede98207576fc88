"""ACLs, what selects them, and what the store has of them. Kafka's decisions themselves: tests/vectors, acl-rules."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from tidelog.config.listener_security import parse_super_users
from tidelog.security import acls, stored
from tidelog.security.access import Operation, Principal, ResourceType
from tidelog.security.acls import AclBinding, AclEntry, AclFilter, PatternType, Permission, ResourcePattern
from tidelog.security.authorizer import DENIALS_TOLD_MAX, Access, Authorizer, java_host
from tidelog.store.tree import invalid_path_reason

TOPIC = ResourcePattern(ResourceType.TOPIC, "orders")
PREFIX = ResourcePattern(ResourceType.TOPIC, "or", PatternType.PREFIXED)
WILDCARD = ResourcePattern(ResourceType.TOPIC, "*")
READ = AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW)


def test_remembered_decisions_end_when_the_acls_change() -> None:
    """A denial that a connection was given does not outlive the ACL that would allow it, nor an allowance its ACL."""
    authorizer = Authorizer()
    access = Access(authorizer, Principal("alice"), "127.0.0.1")
    assert not access.allows(Operation.READ, ResourceType.TOPIC, "orders")
    authorizer.set_acls(TOPIC, [READ])
    assert access.allows(Operation.READ, ResourceType.TOPIC, "orders")
    assert access.allows(Operation.DESCRIBE, ResourceType.TOPIC, "orders")
    authorizer.set_acls(TOPIC, [])
    assert not access.allows(Operation.READ, ResourceType.TOPIC, "orders")
    assert authorizer.patterns() == []


def test_a_decision_that_ends_after_a_change_of_the_acls_is_not_remembered() -> None:
    """Fetches are authorized by I/O threads too: what one of them decided before a change does not hold after it."""
    authorizer = Authorizer()
    authorizer.set_acls(TOPIC, [READ])
    access = Access(authorizer, Principal("alice"), "127.0.0.1")
    decide = authorizer.authorize

    def meanwhile(*question: Any) -> bool:
        decision = decide(*question)
        authorizer.authorize = decide  # type: ignore[method-assign]
        authorizer.set_acls(TOPIC, [])
        # The loop's thread asks something, and finds that the ACLs are others.
        assert not access.allows(Operation.READ, ResourceType.GROUP, "g")
        return decision

    authorizer.authorize = meanwhile  # type: ignore[method-assign]
    access.allows(Operation.READ, ResourceType.TOPIC, "orders")
    assert not access.allows(Operation.READ, ResourceType.TOPIC, "orders")


def test_replacing_all_removes_what_is_not_named() -> None:
    """A new session reads all ACLs: those that went meanwhile go here too."""
    authorizer = Authorizer()
    authorizer.replace_all({TOPIC: [READ], PREFIX: [READ]})
    version = authorizer.version
    authorizer.replace_all({PREFIX: [READ], TOPIC: [READ]})
    assert authorizer.version == version
    authorizer.replace_all({PREFIX: [READ]})
    assert authorizer.patterns() == [PREFIX]
    assert authorizer.version == version + 1


def test_each_denial_is_logged_with_the_acl_that_would_allow(caplog: pytest.LogCaptureFixture) -> None:
    """Who, what and on which resource; or the ACL that denies. What is only left out of a list is not told."""
    authorizer = Authorizer()
    access = Access(authorizer, Principal("alice"), "::1")
    asked = "access_denied: principal=User:alice host=0:0:0:0:0:0:0:1 operation=WRITE resource=TOPIC:LITERAL:orders "
    with caplog.at_level(logging.INFO, "tidelog.security"):
        for quiet in (False, True, False):
            assert not access.allows(Operation.WRITE, ResourceType.TOPIC, "orders", quiet=quiet)
        allowing = "allowed_by=TOPIC:LITERAL:orders(principal=User:alice,host=*,operation=WRITE,permission=ALLOW)"
        assert caplog.messages == [asked + allowing] * 2
        assert not access.allows_any(Operation.WRITE, ResourceType.TOPIC)
        assert "allowed_by=TOPIC:LITERAL:*(principal=User:alice," in caplog.messages[-1]
        authorizer.set_acls(TOPIC, [AclEntry("User:alice", "*", Operation.WRITE, Permission.ALLOW)])
        authorizer.set_acls(PREFIX, [AclEntry("User:*", "*", Operation.ALL, Permission.DENY)])
        assert not access.allows(Operation.WRITE, ResourceType.TOPIC, "orders")
    denying = f"denied_by=TOPIC:PREFIXED:{PREFIX.name}(principal=User:*,host=*,operation=ALL,permission=DENY)"
    assert caplog.messages[-1] == asked + denying


def test_what_produce_requests_ask_follows_the_acls(caplog: pytest.LogCaptureFixture) -> None:
    """Silently: what is denied is asked once more by what logs it."""
    authorizer = Authorizer()
    access = authorizer.access(Principal("alice"), "h")
    with caplog.at_level(logging.INFO, "tidelog.security"):
        assert not access.may_write("orders")
        authorizer.set_acls(TOPIC, [AclEntry("User:alice", "*", Operation.WRITE, Permission.ALLOW)])
        assert [access.may_write("orders") for _ in range(2)] == [True, True]
        authorizer.set_acls(TOPIC, [])
        assert not access.may_write("orders")
        assert Authorizer(["User:alice"]).access(Principal("alice"), "h").may_write("orders")
    assert caplog.messages == []


def test_denials_without_end_fill_no_disk(caplog: pytest.LogCaptureFixture) -> None:
    """A hundred lines in a second for a connection; the next one says how many are missing."""
    now = 0
    access = Access(Authorizer(now_ms=lambda: now), Principal("alice"), "::1")
    with caplog.at_level(logging.INFO, "tidelog.security"):
        for _ in range(DENIALS_TOLD_MAX + 7):
            access.allows(Operation.WRITE, ResourceType.TOPIC, "orders")
        assert len(caplog.messages) == DENIALS_TOLD_MAX
        now = 1_000
        for _ in range(2):
            access.allows(Operation.WRITE, ResourceType.TOPIC, "orders")
    assert [" untold=7" in line for line in caplog.messages[-3:]] == [False, True, False]


def test_allowances_are_logged_where_that_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    authorizer = Authorizer(["User:admin"], audits_allowances=True)
    with caplog.at_level(logging.INFO, "tidelog.security"):
        assert authorizer.access(Principal("admin"), "10.0.0.1").allows(Operation.READ, ResourceType.TOPIC, "orders")
        authorizer.access(Principal("alice"), "10.0.0.1").allows(
            Operation.READ, ResourceType.TOPIC, "orders", quiet=True
        )
        Authorizer(["User:admin"]).access(Principal("admin"), "h").allows(Operation.READ, ResourceType.TOPIC, "orders")
    assert caplog.messages == [
        "access_allowed: principal=User:admin host=10.0.0.1 operation=READ resource=TOPIC:LITERAL:orders"
    ]


def test_names_cannot_forge_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A group may be called anything, and so may a user of SCRAM."""
    access = Access(Authorizer(), Principal("a\nb"), "::1")
    with caplog.at_level(logging.INFO, "tidelog.security"):
        assert not access.allows(Operation.READ, ResourceType.GROUP, "g\naccess_denied: principal=User:admin")
    (line,) = caplog.messages
    assert "\n" not in line


def test_a_client_named_as_the_wildcard_is_denied() -> None:
    """Its name would match every ACL that is meant for all."""
    authorizer = Authorizer()
    authorizer.set_acls(TOPIC, [AclEntry("User:*", "*", Operation.ALL, Permission.ALLOW)])
    assert authorizer.authorize("User:bob", "h", Operation.READ, ResourceType.TOPIC, "orders")
    assert not authorizer.authorize("User:*", "h", Operation.READ, ResourceType.TOPIC, "orders")


@pytest.mark.parametrize(
    ("wanted", "patterns"),
    [
        (AclFilter(), {TOPIC, PREFIX, WILDCARD}),
        (AclFilter(name="orders"), {TOPIC}),
        (AclFilter(name="orders", pattern_type=acls.MATCH), {TOPIC, PREFIX, WILDCARD}),
        (AclFilter(name="or", pattern_type=acls.MATCH), {PREFIX, WILDCARD}),
        (AclFilter(name="or", pattern_type=PatternType.PREFIXED), {PREFIX}),
        (AclFilter(pattern_type=PatternType.LITERAL), {TOPIC, WILDCARD}),
        (AclFilter(name="*", pattern_type=PatternType.LITERAL), {WILDCARD}),
        (AclFilter(resource_type=ResourceType.GROUP), set()),
        (AclFilter(principal="User:bob"), set()),
        (
            AclFilter(principal="User:alice", host="*", operation=Operation.READ, permission=3),
            {TOPIC, PREFIX, WILDCARD},
        ),
        (AclFilter(permission=Permission.DENY), set()),
    ],
)
def test_filters_select_as_kafkas(wanted: AclFilter, patterns: set[ResourcePattern]) -> None:
    """MATCH finds what a resource of that name would meet; the others compare."""
    authorizer = Authorizer()
    authorizer.replace_all({pattern: [READ] for pattern in (TOPIC, PREFIX, WILDCARD)})
    assert {binding.pattern for binding in authorizer.select(wanted)} == patterns


def test_acls_are_stored_as_kafka_39_does() -> None:
    """Node names, JSON and its order, changes: as its tools left them (shared vectors, tools.txt)."""
    entries = [
        AclEntry("User:Kate", "*", Operation.ALTER, Permission.ALLOW),
        AclEntry("User:BadBob", "198.51.100.0", Operation.DESCRIBE_CONFIGS, Permission.DENY),
    ]
    data = stored.encode_acls(entries)
    assert data == (
        b'{"acls":[{"principal":"User:Kate","permissionType":"Allow","host":"*","operation":"Alter"},'
        b'{"principal":"User:BadBob","permissionType":"Deny","host":"198.51.100.0","operation":"DescribeConfigs"}],'
        b'"version":1}'
    )
    assert stored.decode_acls("/x", data) == entries
    assert stored.acl_path(TOPIC) == "/kafka-acl/Topic/orders"
    transactional = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "tx", PatternType.PREFIXED)
    assert stored.acl_path(transactional) == "/kafka-acl-extended/prefixed/TransactionalId/tx"
    owner = ResourcePattern(ResourceType.USER, "User:owner1")
    assert stored.change_node(owner) == ("/kafka-acl-changes/acl_changes_", b"USER:User:owner1")
    assert stored.change_node(transactional)[1] == (
        b'{"version":1,"resourceType":"TRANSACTIONAL_ID","name":"tx","patternType":"PREFIXED"}'
    )
    for pattern in (owner, transactional, WILDCARD):
        path, told = stored.change_node(pattern)
        assert stored.decode_change(path + "0000000001", told) == pattern


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b'{"version":1,"acls":' + b"[" * 100_000,
        b'{"version":2,"acls":[]}',
        b'{"version":1}',
        b'{"version":1,"acls":[1]}',
        json.dumps(
            {"version": 1, "acls": [{"principal": "User:a", "permissionType": "Deny", "operation": "New"}]}
        ).encode(),
    ],
)
def test_an_acl_node_that_cannot_be_read_is_never_taken_for_empty(content: bytes) -> None:
    """A DENY may be in it."""
    with pytest.raises(stored.MalformedNode, match="/kafka-acl/Topic/t"):
        stored.decode_acls("/kafka-acl/Topic/t", content)


def test_user_names_are_sanitized_as_kafkas() -> None:
    """As a node of Kafka 3.9's shows it."""
    assert stored.sanitized("CN=a, O=b/c*") == "CN%3Da%2C%20O%3Db%2Fc%2A"
    assert stored.desanitized(stored.sanitized("ü~x y")) == "ü~x y"


def test_hosts_print_as_javas() -> None:
    """ACLs name hosts as Java prints addresses."""
    assert java_host("::1") == "0:0:0:0:0:0:0:1"
    assert java_host("::ffff:10.0.0.1") == "10.0.0.1"
    assert java_host("10.0.0.1") == "10.0.0.1"
    assert java_host("2001:db8::a") == "2001:db8:0:0:0:0:0:a"


def test_super_users_are_principals() -> None:
    """A name without its type would be a super user that never comes."""
    assert parse_super_users("User:admin; User:CN=x,O=y ;") == {"User:admin", "User:CN=x,O=y"}
    with pytest.raises(ValueError, match="'admin' is not a principal"):
        parse_super_users("admin")


def test_new_acls_are_checked() -> None:
    """The cluster has one name, and no resource is nameless."""
    for pattern in (ResourcePattern(ResourceType.CLUSTER, "other"), ResourcePattern(ResourceType.TOPIC, "")):
        with pytest.raises(acls.InvalidAcl):
            acls.check_new(AclBinding(pattern, READ))
    assert not stored.can_be_stored(ResourcePattern(ResourceType.TOPIC, "a/b"))


@pytest.mark.parametrize(
    "name", ["a", "ä", "*", "a\U0001f600", "a b", "%2F", "a/b", ".", "..", "a\0", "a\x01", "\x85", "\ue000", "\ufffd"]
)
def test_what_can_be_stored_is_what_the_store_takes(name: str) -> None:
    """What it does not take is refused by itself: found out later it would fail the whole request, of which a part was
    carried out."""
    pattern = ResourcePattern(ResourceType.GROUP, name)
    takes = invalid_path_reason(stored.acl_path(pattern)) is None
    assert stored.can_be_stored(pattern) == (takes and "/" not in name)
