"""`tidelog produce` and `consume` against a real broker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.cli.conftest import Tidelog

from tidelog.cli import INTERRUPTED, consumption
from tidelog.cli.records import InvalidRecord, json_parser
from tidelog.client.consumer import ConsumerSettings
from tidelog.model.identifiers import TopicPartition

Process = Callable[..., "subprocess.Popen[bytes]"]


def test_lines_in_lines_out(tidelog: Tidelog, topic: str, tmp_path: Path) -> None:
    """A file's lines are values, in order; the last one needs no newline, Windows' ends are taken off."""
    tidelog("topics", "create", topic)
    (tmp_path / "one").write_bytes(b"a\r\nb\n\nc")
    (tmp_path / "two").write_bytes(b"d\n")
    sent = tidelog("produce", topic, str(tmp_path / "one"), str(tmp_path / "two"), "-o", "json")
    assert sent.code == 0
    assert (sent.json["records"], sent.json["bytes"]) == (5, 4)
    assert tidelog("consume", topic).out == "a\nb\n\nc\nd\n"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.row("R37")
def test_each_codec_and_acks(tidelog: Tidelog, topic: str, tmp_path: Path, codec: str) -> None:
    """Whatever a batch is compressed by, the same lines come out."""
    tidelog("topics", "create", topic)
    lines = "".join(f"line {i}\n" for i in range(1000))
    (tmp_path / "lines").write_text(lines)
    for acks in ("all", "1"):
        assert tidelog("produce", topic, str(tmp_path / "lines"), "-z", codec, "--acks", acks).code == 0
    assert tidelog("consume", topic).out == lines * 2


def test_keys_headers_nulls_and_json(tidelog: Tidelog, topic: str) -> None:
    """What went in by flags comes out as JSON, and in again."""
    tidelog("topics", "create", topic, "-p", "3")
    arguments = ("-m", "k\tv", "-m", "k\t-", "-K", "\\t", "--null", "-", "-H", "h=1", "--timestamp", "5")
    assert tidelog("produce", topic, *arguments, "--idempotent").code == 0
    found = [json.loads(line) for line in tidelog("consume", topic, "-f", "json").lines]
    (partition,) = {record["partition"] for record in found}
    common: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "timestamp": 5,
        "timestamp_type": "CreateTime",
        "key": "k",
        "headers": [{"key": "h", "value": "1"}],
    }
    assert found == [common | {"offset": 0, "value": "v"}, common | {"offset": 1, "value": None}]
    assert tidelog("consume", topic, "-f", "key-value", "--null", "NULL").out == "k\tv\nk\tNULL\n"
    again = tidelog("produce", topic, "-f", "json", "-m", json.dumps(found[0]))
    assert again.code == 0
    assert tidelog("consume", topic, "-o", "json").lines[-1] == json.dumps(
        found[0] | {"offset": 2}, separators=(",", ":")
    )


def test_binary_values_in_base64(tidelog: Tidelog, topic: str) -> None:
    """Bytes that are no text survive."""
    tidelog("topics", "create", topic)
    tidelog("produce", topic, "-m", "/wA=", "--base64")
    assert tidelog("consume", topic, "--base64").out == "/wA=\n"
    assert json.loads(tidelog("consume", topic, "-f", "json").out)["value_base64"] == "/wA="


def test_where_consuming_begins_and_ends(tidelog: Tidelog, topic: str) -> None:
    """By offset, by time, from the last ones, so many, one partition."""
    tidelog("topics", "create", topic, "-p", "2")
    for i in range(10):
        tidelog("produce", topic, "-m", str(i), "-p", "0", "--timestamp", str(1000 + i))
    tidelog("produce", topic, "-m", "other", "-p", "1", "--timestamp", "5")
    assert tidelog("consume", topic, "-p", "0", "--from", "8").lines == ["8", "9"]
    assert tidelog("consume", topic, "-p", "0", "--from", "-3").lines == ["7", "8", "9"]
    assert tidelog("consume", topic, "--from", "@1009").lines == ["9"]
    assert tidelog("consume", topic, "-p", "0", "-n", "2").lines == ["0", "1"]
    assert tidelog("consume", topic, "-p", "1").lines == ["other"]
    gone = tidelog("consume", topic, "-p", "0", "--from", "11")
    assert gone == (1, "", f"tidelog: {topic}-0 has the offsets from 0 to 10, without 11\n")
    assert tidelog("consume", topic, "-p", "0", "-n", "2", "-o", "kafka").err == "Processed a total of 2 messages\n"


def test_what_cannot_be_read_ends_a_run_after_what_was_before(tidelog: Tidelog, topic: str, tmp_path: Path) -> None:
    """A file that is missing, a partition that does not exist, a line that never ends: the lines before are sent."""
    tidelog("topics", "create", topic)
    (tmp_path / "lines").write_text("a\nb\n")
    (tmp_path / "json").write_text('{"value": "c"}\n{"value": "d", "partition": 7}\n{"value": "e"}\n')
    missing = tidelog("produce", topic, str(tmp_path / "lines"), str(tmp_path / "missing"))
    assert missing.code == 1
    assert missing.err.endswith("/missing:1: No such file or directory; 2 records before it were sent\n")
    nowhere = tidelog("produce", topic, str(tmp_path / "json"), "-f", "json")
    assert nowhere.code == 1
    assert nowhere.err.endswith(
        f"/json:2: topic '{topic}' has no partition 7: it has 1; 1 records before it were sent\n"
    )
    assert tidelog("consume", topic).lines == ["a", "b", "c"]


def test_json_that_is_nested_as_deeply_as_can_be_read_is_told() -> None:
    """One level less can be read, and not be written again."""
    parse = json_parser(key=None, is_base64=False, headers=[])
    for depth in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit()):
        with contextlib.suppress(InvalidRecord):
            parse(b'{"value": %b%b}' % (b"[" * depth, b"]" * depth))


def test_a_member_that_gets_no_partition_ends(
    tidelog: Tidelog, topic: str, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other members have them all; a group of KIP-848 tells of no assignment then."""
    monkeypatch.setattr(consumption, "UNASSIGNED_S", 0.1)
    tidelog("topics", "create", topic)
    tidelog("produce", topic, "-m", "one")
    member = ("consume", topic, "--group", topic, "--group-protocol", "consumer")
    holder = process(*member, "--follow", stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"one\n"
    idle = tidelog(*member)
    assert (idle.code, idle.lines) == (0, [])
    assert f"group '{topic}' has given this member no partition" in idle.err


def test_a_member_waits_for_partitions_that_others_give_up(capsys: pytest.CaptureFixture[str]) -> None:
    """The first assignment is empty until they have: a run that ended then would have read nothing."""
    place = TopicPartition("t", 0)

    class Waiting:
        """A consumer that gets its partition with the third poll."""

        polls = 0

        @property
        def assignment(self) -> frozenset[TopicPartition]:
            return frozenset({place}) if self.polls >= 3 else frozenset()

        def position(self, topic_partition: TopicPartition) -> int:
            return 0

        async def poll(self, timeout_s: float | None) -> None:
            self.polls += 1
            if self.polls in (1, 3):
                starting._ends = {place: 0} if self.assignment else {}

    plan: Any = SimpleNamespace(follow=False, lag=False, count_max=None, group="g")
    consumer: Any = Waiting()
    starting = consumption._Starting(None, consumer, plan)  # type: ignore[arg-type]  # It asks for nothing here.
    asyncio.run(consumption.GroupConsumption(plan, ConsumerSettings())._print(consumer, starting))
    assert consumer.polls == 3
    assert capsys.readouterr().err == ""


def test_a_group_goes_on_where_it_stopped(tidelog: Tidelog, topic: str) -> None:
    """Commits without membership: what was printed is not printed again."""
    tidelog("topics", "create", topic)
    tidelog("produce", topic, *(part for i in range(5) for part in ("-m", str(i))))
    assert tidelog("consume", topic, "--group", topic, "-n", "2").lines == ["0", "1"]
    assert tidelog("consume", topic, "--group", topic).lines == ["2", "3", "4"]
    assert tidelog("consume", topic, "--group", topic).lines == []
    assert tidelog("consume", topic, "--group", topic, "--from", "beginning", "-n", "1").lines == ["0"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("consume", "nope"), "tidelog: topic 'nope' does not exist\n"),
        (("produce", "nope", "-m", "x"), "tidelog: topic 'nope' does not exist\n"),
        (("consume", "a b"), "tidelog: "),
    ],
)
def test_missing_topics_are_one_line(tidelog: Tidelog, arguments: tuple[str, ...], reason: str) -> None:
    """And code 1."""
    outcome = tidelog(*arguments)
    assert outcome.code == 1
    assert outcome.err.startswith(reason)
    assert outcome.err.count("\n") == 1


def test_a_bad_line_is_told_by_its_place(tidelog: Tidelog, topic: str, tmp_path: Path) -> None:
    """What came before it was sent, and the message says so."""
    tidelog("topics", "create", topic)
    path = tmp_path / "lines"
    path.write_text('{"value": "good"}\n{"value": }\n{"value": "never"}\n')
    refused = tidelog("produce", topic, "-f", "json", str(path))
    assert refused.code == 1
    assert refused.err.startswith(f"tidelog: {path}:2: not JSON")
    assert refused.err.endswith("1 records before it were sent\n")
    assert tidelog("consume", topic).lines == ["good"]
    missing = tidelog("produce", topic, str(tmp_path / "missing"))
    assert missing == (1, "", f"tidelog: {tmp_path / 'missing'}: No such file or directory\n")


@pytest.mark.row("R22")
def test_partitioners_by_name_and_of_ones_own(
    tidelog: Tidelog, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of ours by its name, a function and a class of the user's from a module beside the shell."""
    tidelog("topics", "create", topic, "--partitions", "3")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    (tmp_path / f"own_{topic}.py").write_text(
        "def last(key, value, partitions):\n    return partitions.count - 1\n\n"
        "class Wrong:\n    def partition(self, key, value, partitions):\n        return 7\n"
    )
    assert tidelog("produce", topic, "-m", "a", "-m", "b", "--partitioner", "round_robin").code == 0
    assert tidelog("produce", topic, "-m", "c", "--partitioner", f"own_{topic}:last").code == 0
    assert [tidelog("consume", topic, "-p", str(partition)).out for partition in range(3)] == ["a\n", "b\n", "c\n"]
    wrong = tidelog("produce", topic, "-m", "d", "--partitioner", f"own_{topic}:Wrong")
    assert wrong.code == 1
    assert "the partitioner chose 7" in wrong.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("consume", "t", "--from", "end"),
        ("consume", "t", "--from", "committed"),
        ("consume", "t", "--from", "x"),
        ("consume",),
        ("produce", "t", "f", "-m", "x"),
        ("produce", "t", "-m", "x", "-k", "k", "-K", ":"),
        ("produce", "t", "-m", "x", "--idempotent", "--acks", "1"),
        ("produce", "t", "-m", "x", "-f", "json", "--null", "x"),
        ("produce", "t", "-m", "x", "-z", "lzma"),
        ("produce", "t", "-m", "x", "-H", "novalue"),
        ("produce", "t", "-m", "x", "--partitioner", "nonsense"),
        ("produce", "t", "-m", "x", "--partitioner", "no_such_module:f"),
        ("produce", "t", "-m", "x", "--partitioner", "json:no_such_function"),
        ("produce", "t", "-m", "x", "--partitioner", "json:__name__"),
        ("produce", "t", "-m", "x", "--partitioner", "random", "-p", "0"),
        ("nonsense",),
        (),
    ],
)
def test_wrong_usage_is_code_two(tidelog: Tidelog, arguments: tuple[str, ...]) -> None:
    """Before any broker is asked."""
    assert tidelog(*arguments).code == 2


def test_nobody_listening_is_one_line(tidelog: Tidelog) -> None:
    """It names the address and how to choose another."""
    outcome = tidelog("topics", "list", "-b", "127.0.0.1:1")
    assert outcome.code == 1
    assert outcome.err.startswith("tidelog: cannot connect to 127.0.0.1:1: ")
    assert outcome.err.count("\n") == 1
    assert tidelog("topics", "list", "-b", "127.0.0.1:x").code == 1


def test_a_pipe_in_and_out(process: Process, tidelog: Tidelog, topic: str) -> None:
    """Lines are sent as they come, followed as they arrive; Ctrl-C ends following with code 0."""
    tidelog("topics", "create", topic)
    consumer = process("consume", topic, "--follow", stdout=subprocess.PIPE)
    producer = process("produce", topic, stdin=subprocess.PIPE)
    assert producer.stdin is not None
    assert consumer.stdout is not None
    for line in (b"one\n", b"two\n"):
        producer.stdin.write(line)
        producer.stdin.flush()
        assert consumer.stdout.readline() == line
    producer.stdin.write(b"three")
    producer.stdin.close()
    assert producer.wait(180) == 0
    assert consumer.stdout.readline() == b"three\n"
    consumer.send_signal(signal.SIGINT)
    assert consumer.wait(180) == 0
    consumer.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_following_ends_when_told_and_commits(
    process: Process, tidelog: Tidelog, topic: str, number: signal.Signals
) -> None:
    """Ctrl-C and a service manager's SIGTERM are both its clean end; what was printed is committed."""
    tidelog("topics", "create", topic)
    tidelog("produce", topic, "-m", "one")
    consumer = process("consume", topic, "--follow", "--group", topic, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert consumer.stdout.readline() == b"one\n"
    consumer.send_signal(number)
    assert consumer.communicate(timeout=180) == (b"", b"")
    assert consumer.returncode == 0
    tidelog("produce", topic, "-m", "two")
    assert tidelog("consume", topic, "--group", topic).lines == ["two"]


def test_following_in_the_background_ends_by_sigterm_alone(process: Process, tidelog: Tidelog, topic: str) -> None:
    """A shell's `&` makes SIGINT ignored: Ctrl-C for the foreground passes by, and SIGTERM is the clean end."""
    tidelog("topics", "create", topic)
    tidelog("produce", topic, "-m", "one")
    consumer = process("consume", topic, "--follow", background=True, stdout=subprocess.PIPE)
    assert consumer.stdout.readline() == b"one\n"
    consumer.send_signal(signal.SIGINT)
    tidelog("produce", topic, "-m", "two")
    assert consumer.stdout.readline() == b"two\n"
    consumer.send_signal(signal.SIGTERM)
    assert consumer.communicate(timeout=180) == (b"", None)
    assert consumer.returncode == 0


def test_a_second_ctrl_c_ends_what_the_first_one_left(
    monkeypatch: pytest.MonkeyPatch, tidelog: Tidelog, topic: str
) -> None:
    """When the commit after the first Ctrl-C hangs, the second one ends the program as it ends any other: code 130."""
    tidelog("topics", "create", topic)
    tidelog("produce", topic, "-m", "one")

    async def interrupted(self: object, *arguments: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    monkeypatch.setattr(consumption.Consumption, "_print", interrupted)
    monkeypatch.setattr(consumption.Consumption, "_commit", interrupted)
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert tidelog("consume", topic, "--follow").code == INTERRUPTED
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, previous)


def test_from_beginning_as_kafkas_tool_has_it(tidelog: Tidelog, topic: str) -> None:
    """It is --from beginning, for a group too."""
    tidelog("topics", "create", topic)
    tidelog("produce", topic, "-m", "one")
    assert tidelog("consume", topic, "--group", topic).lines == ["one"]
    assert tidelog("consume", topic, "--group", topic).lines == []
    assert tidelog("consume", topic, "--group", topic, "--from-beginning").lines == ["one"]
    assert tidelog("consume", topic, "--from-beginning", "--from", "beginning").lines == ["one"]
    assert tidelog("consume", topic, "--from-beginning", "--from", "3").code == 2


def test_a_reader_that_left_ends_it_quietly(process: Process, tidelog: Tidelog, topic: str, tmp_path: Path) -> None:
    """`| head` is no error, and nothing is on stderr."""
    tidelog("topics", "create", topic)
    (tmp_path / "lines").write_text("x" * 99 + "\n")
    tidelog("produce", topic, *[str(tmp_path / "lines")] * 5)
    (tmp_path / "many").write_text(("x" * 99 + "\n") * 20_000)
    tidelog("produce", topic, str(tmp_path / "many"))
    reading, writing = os.pipe()
    consumer = process("consume", topic, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert os.read(reading, 100)
    os.close(reading)
    _, errors = consumer.communicate(timeout=180)
    assert (consumer.returncode, errors) == (0, b"")


def test_lines_that_were_refused_before_one_that_cannot_be_read_are_named(
    tidelog: Tidelog, topic: str, tmp_path: Path
) -> None:
    """They do not count among those that were sent."""
    tidelog("topics", "create", topic, "-c", "max.message.bytes=1000")
    path = tmp_path / "lines"
    path.write_text("".join(f'{{"value": "{value}"}}\n' for value in ("a", "x" * 3000, "b")) + "no JSON\n")
    sent = tidelog("produce", topic, "-f", "json", str(path))
    assert sent.code == 1
    assert f"{path}:2: " in sent.err
    assert f"{path}:4: not JSON" in sent.err
    assert sent.err.endswith("2 records before it were sent\n")
    assert tidelog("consume", topic).lines == ["a", "b"]


@pytest.mark.parametrize(
    ("bound", "reason"),
    [("max.message.bytes=1000", "max.message.bytes"), ("segment.bytes=1000", "the maximum configured segment size")],
)
def test_a_line_that_is_too_large_fails_alone(
    tidelog: Tidelog, topic: str, tmp_path: Path, bound: str, reason: str
) -> None:
    """The command names it, sends the rest, and exits with 1."""
    tidelog("topics", "create", topic, "-c", bound)
    (tmp_path / "lines").write_text("".join(f"{'x' * 3000 if i == 50 else i}\n" for i in range(101)))
    sent = tidelog("produce", topic, str(tmp_path / "lines"))
    assert sent.code == 1
    assert f"{tmp_path / 'lines'}:51: " in sent.err
    assert reason in sent.err
    assert "1 of 101 records were refused; the others were sent" in sent.err
    assert tidelog("consume", topic).lines == [str(i) for i in range(101) if i != 50]


def test_bytes_that_are_no_text_are_sent_as_they_are(tidelog: Tidelog, topic: str) -> None:
    """The shell hands them over as lone surrogates; in a topic's name they make no sense."""
    tidelog("topics", "create", topic)
    argument = os.fsdecode(b"\xff\xfe")
    assert tidelog("produce", topic, "-m", argument, "-k", argument, "-H", f"h={argument}").code == 0
    assert tidelog("consume", topic, "--base64").out == "//4=\n"
    refused = tidelog("topics", "create", argument)
    assert (refused.code, "not valid UTF-8" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("produce", "t", "-m", "x", "--timestamp", str(2**63)), "--timestamp"),
        (("produce", "t", "-m", "x", "--linger", "inf"), "--linger"),
        (("produce", "t", "-m", "x", "--transactional-id", ""), "--transactional-id is empty"),
        (("consume", "t", "-g", "g", "--instance-id", ""), "--instance-id is empty"),
        (("topics", "list", "--timeout", "inf"), "--timeout"),
        (("groups", "list", "--state", "Nonsense"), "--state 'Nonsense' is none of PreparingRebalance"),
        (("groups", "list", "--type", "nonsense"), "--type 'nonsense' is none of Classic"),
        (("transactions", "list", "--state", "Nonsense"), "--state 'Nonsense' is none of Empty"),
    ],
)
def test_values_that_make_no_sense_are_wrong_usage(tidelog: Tidelog, arguments: tuple[str, ...], what: str) -> None:
    """Exit code 2, and the option's name; no empty table, no traceback."""
    refused = tidelog(*arguments)
    assert (refused.code, what in refused.err) == (2, True), refused.err


def test_closed_streams_are_told(tidelog: Tidelog, process: Process, topic: str) -> None:
    """Without stdin there is nothing to send, without stdout nowhere to write to."""
    tidelog("topics", "create", topic)
    for arguments, closed, what in (
        (("produce", topic), 0, b"stdin is closed"),
        (("topics", "list"), 1, b"stdout is closed"),
    ):
        started = process(*arguments, stderr=subprocess.PIPE, preexec_fn=lambda closed=closed: os.close(closed))
        _, error = started.communicate(timeout=180)
        assert started.returncode in (1, 2)
        assert error.startswith(b"tidelog: "), error
        assert what in error


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_reader_that_has_gone_is_no_failure(process: Process, form: str) -> None:
    """As for `| head`."""
    reading, writing = os.pipe()
    os.close(reading)
    started = process("topics", "list", "-o", form, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    _, error = started.communicate(timeout=180)
    assert (started.returncode, error) == (0, b"")


def test_the_cluster_may_be_named_before_the_command(tidelog: Tidelog, bootstrap: str) -> None:
    """`tidelog -b HOST:PORT COMMAND`, as the program's help says."""
    assert tidelog("-b", bootstrap, "topics", "list").code == 0
    assert tidelog(f"--bootstrap-server={bootstrap}", "topics", "list").code == 0
    assert tidelog("-b", "127.0.0.1:1", "topics", "list", "--timeout", "0.2").code == 1
