"""`tidelog tokens` against a broker with users."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.broker.test_delegation_tokens import MODULE
from tests.unit.broker.test_sasl_listeners import LISTENERS, SECURED
from tests.unit.cli.conftest import Outcome, Tidelog

from tidelog import cli
from tidelog.testing import Cluster

ALICE = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=alice\nsasl.password=alice-secret\n"


@pytest.fixture(scope="module")
def secured() -> Iterator[str]:
    with Cluster({**SECURED, **LISTENERS, "delegation.token.secret.key": "of-the-cluster"}) as cluster:
        yield cluster.bootstrap


@pytest.fixture
def alices(secured: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Tidelog:
    """The command line, as alice."""
    file = tmp_path / "alice.properties"
    file.write_text(ALICE)

    def run(*arguments: str, config: Path = file) -> Outcome:
        capsys.readouterr()
        code = cli.run([*arguments, "-b", secured, "--command-config", str(config)])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


def test_a_token_is_made_shown_renewed_and_ended(alices: Tidelog, tmp_path: Path) -> None:
    """What `create` prints is a worker's file."""
    assert alices("tokens", "list").lines == ["No tokens."]
    made = alices("tokens", "create", "--renewer", "bob", "--max-lifetime", "PT2H", "-o", "json").json
    assert (made["owner"], made["requester"], made["renewers"]) == ("alice", "alice", ["bob"])
    assert made["max_ms"] - made["issued_ms"] == 7_200_000
    assert len(base64.b64decode(made["hmac"])) == 64
    (listed,) = alices("tokens", "list", "-o", "json").json
    assert listed == {name: value for name, value in made.items() if name != "hmac"}
    assert alices("tokens", "list", "--hmac", "-o", "json").json == [made]
    table = alices("tokens", "list", "--owner", "User:alice")
    assert made["token"] in table.out
    assert made["hmac"] not in table.out
    assert alices("tokens", "list", "--owner", "nobody").lines == ["No tokens."]
    renewed = alices("tokens", "renew", made["token"], "--for", "PT1H", "-o", "json").json
    assert 0 < renewed["expiry_ms"] - made["issued_ms"] < 3_700_000
    assert alices("tokens", "expire", made["token"]).out.startswith(f"token {made['token']} of alice: ends ")
    gone = alices("tokens", "renew", made["token"])
    assert (gone.code, "there is no token" in gone.err) == (1, True)

    words = alices("tokens", "create").lines
    worker = tmp_path / "worker.properties"
    worker.write_text("\n".join(words[1:]).replace("SASL_SSL", "SASL_PLAINTEXT"))
    assert MODULE in words[-1]
    assert alices("topics", "list", config=worker).code == 0
    refused = alices("tokens", "create", config=worker)
    assert (refused.code, refused.out) == (1, "")


def test_kafkas_words(alices: Tidelog) -> None:
    """Lines of kafka-delegation-tokens (shared vectors, tools.txt)."""
    made = alices("tokens", "create", "--renewer", "bob", "-o", "kafka").lines
    assert made[0] == "Calling create token operation with renewers :[User:bob] , max-life-time-period :-1"
    assert made[1].startswith("Created delegation token with tokenId : ")
    header = (
        "TOKENID         HMAC                           OWNER           REQUESTER       RENEWERS                  "
        "ISSUEDATE       EXPIRYDATE      MAXDATE        "
    )
    assert [made[2], made[3], made[4]] == ["", header, ""]
    token, hmac, *names = made[5].split()[:5]
    assert made[1].endswith(token)
    assert names == ["User:alice", "User:alice", "[User:bob]"]
    described = alices("tokens", "list", "--owner", "nobody", "-o", "kafka").lines
    assert described == [
        "Calling describe token operation for owners: [User:nobody]",
        "Total number of tokens : 0",
        header,
    ]
    renewed = alices("tokens", "renew", token, "-o", "kafka").lines
    assert renewed[0] == f"Calling renew token operation with hmac :{hmac} , renew-time-period :-1"
    assert renewed[1].startswith("Completed renew operation. New expiry date : 20")
    ended = alices("tokens", "expire", token, "-o", "kafka").lines
    assert ended[0] == f"Calling expire token operation with hmac :{hmac} , expire-time-period :-1"
    assert ended[1].startswith("Completed expire operation. New expiry date : 20")


def test_what_is_no_duration_is_wrong_usage(alices: Tidelog) -> None:
    assert alices("tokens", "create", "--max-lifetime", "7 days").code == 2
    assert "--for 'soon' is no duration" in alices("tokens", "renew", "x", "--for", "soon").err


@pytest.mark.parametrize("lifetime_ms", [315_360_000_000_000, (1 << 63) - 1])
def test_tokens_for_longer_than_calendars_go(
    lifetime_ms: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Brokers that let tokens live for ever, as it is often said: the token that was made is shown all the same."""
    bounds = dict.fromkeys(("delegation.token.max.lifetime.ms", "delegation.token.expiry.time.ms"), str(lifetime_ms))
    file = tmp_path / "alice.properties"
    file.write_text(ALICE)
    with Cluster({**SECURED, **LISTENERS, "delegation.token.secret.key": "of-the-cluster", **bounds}) as cluster:
        for form in ("table", "kafka", "json"):
            for command in (["create"], ["list"]):
                arguments = ["tokens", *command, "-o", form, "-b", cluster.bootstrap, "--command-config", str(file)]
                assert cli.run(arguments) == 0, (command, form, capsys.readouterr().err)
        capsys.readouterr()
        assert cli.run(["tokens", "create", "-b", cluster.bootstrap, "--command-config", str(file)]) == 0
        worker = tmp_path / "worker.properties"
        lines = capsys.readouterr().out.replace("SASL_SSL", "SASL_PLAINTEXT").splitlines()
        worker.write_text("\n".join(lines[1:]))
        assert cli.run(["topics", "list", "-b", cluster.bootstrap, "--command-config", str(worker)]) == 0
