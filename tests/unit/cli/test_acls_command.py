"""`tidelog acls` and `tidelog users` on a secured cluster: tables, JSON, and what Kafka's tools print."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Outcome

from tidelog import cli
from tidelog.testing import Cluster

Tidelog = Callable[..., Outcome]


@pytest.fixture(scope="module")
def secured() -> Iterator[Cluster]:
    """Users admin, who may do everything, and alice."""
    with Cluster(security=["admin", "alice"]) as cluster:
        yield cluster


@pytest.fixture
def secure_tidelog(
    secured: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Outcome]:
    """Runs a command as a user, admin unless said."""
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", secured.bootstrap)

    def run(*arguments: str, user: str = "admin") -> Outcome:
        capsys.readouterr()
        code = cli.run([*arguments, "--command-config", secured.client_properties(user)])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


def acls(outcome: Outcome) -> set[tuple[str, ...]]:
    return {tuple(each.values()) for each in outcome.json}


def test_added_listed_and_removed(secure_tidelog: Tidelog) -> None:
    """What a consumer needs; the user's ACLs of one topic go, the others stay."""
    added = secure_tidelog(
        *("acls", "add", "--allow", "bob", "--consumer", "--topic", "one", "--topic", "two", "--group", "g"),
        *("-o", "json"),
    )
    expected = {
        ("TOPIC", name, "LITERAL", "User:bob", "*", operation, "ALLOW")
        for name in ("one", "two")
        for operation in ("READ", "DESCRIBE")
    } | {("GROUP", "g", "LITERAL", "User:bob", "*", "READ", "ALLOW")}
    assert (added.code, acls(added)) == (0, expected)
    table = secure_tidelog("acls", "list", "--topic", "one")
    assert [line.split() for line in table.lines[2:]] == [
        ["User:bob", "allow", each, "topic", "one", "anywhere"] for each in ("read", "describe")
    ]
    assert acls(secure_tidelog("acls", "list", "--user", "bob", "-o", "json")) == expected
    gone = secure_tidelog("acls", "remove", "--allow", "bob", "--topic", "one", "-o", "json")
    assert acls(gone) == {each for each in expected if each[1] == "one"}
    assert acls(secure_tidelog("acls", "list", "-o", "json", "--user", "User:bob")) == expected - acls(gone)
    assert secure_tidelog("acls", "remove", "--topic", "two").code == 0
    assert (
        secure_tidelog("acls", "remove", "--group", "g", "--allow", "bob", "--operation", "delete").out == "no ACLs\n"
    )
    assert secure_tidelog("acls", "remove", "--group", "g").code == 0
    assert secure_tidelog("acls", "list", "--user", "bob").out == "no ACLs\n"


def test_as_kafkas_tool(secure_tidelog: Tidelog) -> None:
    """Line for line what kafka-acls prints (tools.txt), but for Java's order within a resource."""
    said = secure_tidelog(
        *("acls", "add", "--allow-principal", "User:Jane", "--operation", "Read", "--topic", "Test-topic"),
        *("--deny-principal", "User:BadBob", "--deny-host", "198.51.100.3", "-o", "kafka"),
    )
    resource = "`ResourcePattern(resourceType=TOPIC, name=Test-topic, patternType=LITERAL)`"
    jane = "(principal=User:Jane, host=*, operation=READ, permissionType=ALLOW)"
    bob = "(principal=User:BadBob, host=198.51.100.3, operation=READ, permissionType=DENY)"
    assert said.out == f"Adding ACLs for resource {resource}: \n \t{jane}\n\t{bob}\n\n"
    again = secure_tidelog(
        "acls", "add", "--allow", "Jane", "--operation", "read", "--topic", "Test-topic", "-o", "kafka"
    )
    assert again.out == f"Acl (pattern={resource.strip('`')}, entry={jane}) already exists.\n"
    listed = secure_tidelog("acls", "list", "--topic", "Test-topic", "-o", "kafka")
    assert listed.out == f"Current ACLs for resource {resource}:\n\t{bob}\n\t{jane}\n\n"
    by_user = secure_tidelog("acls", "list", "--user", "Jane", "--user", "Kate", "-o", "kafka")
    assert by_user.out == (
        f"ACLs for principal `User:Jane`\nCurrent ACLs for resource {resource}:\n\t{jane}\n\n"
        "ACLs for principal `User:Kate`\n"
    )
    assert secure_tidelog("acls", "remove", "--topic", "Test-topic", "-o", "kafka").out == ""


def test_prefixes_and_what_is_in_force_for_a_name(secure_tidelog: Tidelog) -> None:
    """`match` finds every ACL that counts for a name."""
    secure_tidelog("acls", "add", "--allow", "bob", "--producer", "--topic", "logs-", "--pattern", "prefixed")
    secure_tidelog("acls", "add", "--allow", "*", "--operation", "describe", "--topic", "*")
    in_force = acls(secure_tidelog("acls", "list", "--topic", "logs-7", "--pattern", "match", "-o", "json"))
    assert {(name, kind, operation) for _, name, kind, _, _, operation, _ in in_force} == {
        *(("logs-", "PREFIXED", operation) for operation in ("WRITE", "DESCRIBE", "CREATE")),
        ("*", "LITERAL", "DESCRIBE"),
    }
    assert secure_tidelog("acls", "list", "--topic", "logs-7").out == "no ACLs\n"
    for name, kind in (("logs-", "prefixed"), ("*", "literal")):
        assert secure_tidelog("acls", "remove", "--topic", name, "--pattern", kind).code == 0


def test_in_force_at_once(secure_tidelog: Tidelog) -> None:
    """What was denied a moment ago is allowed when the command has ended."""
    assert secure_tidelog("topics", "create", "mine").code == 0
    assert "mine" not in secure_tidelog("topics", "list", user="alice").out
    assert secure_tidelog("acls", "add", "--allow", "alice", "--consumer", "--topic", "mine", "--group", "*").code == 0
    assert "mine" in secure_tidelog("topics", "list", user="alice").out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("add --allow bob", "name a resource"),
        ("add --topic t --operation read", "name a user"),
        ("add --allow bob --topic t --operation fly", "is none of ALL, READ"),
        ("add --allow bob --topic t --operation clusteraction", "is none of ALL, READ"),
        ("add --allow bob --topic t --pattern match", "literal or prefixed"),
        ("add --allow bob --topic t --consumer", "needs a --topic and a --group"),
        ("add --allow bob --group g --producer", "needs a --topic"),
        ("add --allow bob --topic t --producer --operation read", "does not go with"),
        ("remove", "name a resource"),
        ("remove --topic t --operation read", "name whose ACLs"),
    ],
)
def test_wrong_usage(secure_tidelog: Tidelog, arguments: str, reason: str) -> None:
    """Nothing is changed, and a line says what is missing."""
    outcome = secure_tidelog("acls", *arguments.split())
    assert outcome.code == 2
    assert reason in outcome.err


def test_without_the_right(secure_tidelog: Tidelog) -> None:
    """The broker's own words; exit code 1."""
    for arguments in (
        ("acls", "list"),
        ("acls", "remove", "--topic", "t"),
        ("users", "list"),
        ("users", "remove", "admin"),
    ):
        outcome = secure_tidelog(*arguments, user="alice")
        assert outcome.code == 1
        assert outcome.err.startswith("tidelog: ")
        assert "Traceback" not in outcome.err


def test_a_password_that_is_no_text_is_refused(
    secure_tidelog: Tidelog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a file in another encoding, or a pipe, whichever way the terminal's encoding treats such bytes."""
    (tmp_path / "password").write_bytes(b"p\xe9w\n")
    wrong = (2, "", "tidelog: the password is no UTF-8 text\n")
    assert secure_tidelog("users", "add", "dora", "--password-file", f"{tmp_path}/password") == wrong
    for errors in ("strict", "surrogateescape"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"p\xe9w\n"), "utf-8", errors))
        assert secure_tidelog("users", "add", "dora") == wrong


def test_users(secure_tidelog: Tidelog, secured: Cluster, tmp_path: Path) -> None:
    """Added with a password of one's own, or with ready files; changed, listed, removed."""
    (tmp_path / "password").write_text('s,e=c r"e\\t\nsecond line\n')
    assert secure_tidelog("users", "add", "dora", "--password-file", f"{tmp_path}/password").code == 0
    folder = str(Path(secured.certificate_authority).parent)
    added = secure_tidelog("users", "add", "carol", "--secure", folder, "-o", "json")
    files = added.json["files"]
    assert [Path(each).name for each in files] == ["carol.json", "carol.properties"]
    password = json.loads(Path(files[0]).read_text())["sasl.password"]
    assert password not in added.out
    listed = secure_tidelog("users", "list", "carol", "dora", "-o", "json")
    both = {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192}
    assert listed.json == [{"user": "carol", "mechanisms": both}, {"user": "dora", "mechanisms": both}]
    assert secure_tidelog("topics", "list", "--command-config", files[1]).code == 0
    dora = tmp_path / "dora.properties"
    dora.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\nsasl.username=dora\n"
        f'sasl.password=s,e=c r"e\\\\t\nssl.ca.location={secured.certificate_authority}\n'
    )
    run = ["topics", "list", "-b", secured.bootstrap, "--command-config", str(dora)]
    assert cli.run(run) == 0
    refused = secure_tidelog("users", "add", "carol", "--secure", folder)
    assert (refused.code, "not overwritten" in refused.err) == (1, True)
    kafka = secure_tidelog("users", "list", "carol", "-o", "kafka")
    assert kafka.out == (
        "SCRAM credential configs for user-principal 'carol' are SCRAM-SHA-256=iterations=8192, "
        "SCRAM-SHA-512=iterations=8192\n"
    )
    assert secure_tidelog("users", "remove", "dora", "--mechanism", "SCRAM-SHA-256").code == 0
    assert cli.run(run) == 1
    for user in ("carol", "dora"):
        assert secure_tidelog("users", "remove", user).code == 0
    gone = secure_tidelog("users", "remove", "dora")
    assert (gone.code, "dora" in gone.err) == (1, True)


def test_a_user_that_the_cluster_refuses_leaves_no_files(secure_tidelog: Tidelog, secured: Cluster) -> None:
    """Only who may alter the cluster adds users."""
    folder = Path(secured.certificate_authority).parent
    assert secure_tidelog("users", "add", "eve", "--secure", str(folder), user="alice").code == 1
    assert not (folder / "clients" / "eve.json").exists()
