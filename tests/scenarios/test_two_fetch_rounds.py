"""Log ends, high watermark and the two fetch rounds, on two brokers.

Both are real nodes with logs on disk. Their network is this test: a request arrives when the test says so, an answer
too, so that every step can be looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.followers import led
from tests.unit.broker.harness import Broker, ManualClock, ManualShell

from tidelog.broker.deferred import Deferred
from tidelog.model.identifiers import BrokerId
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

pytestmark = pytest.mark.row("R26")

COLUMNS = ("step", "leader LEO", "remote LEO", "leader HW", "follower LEO", "follower HW")
THE_TABLE = """
step                                        leader LEO  remote LEO  leader HW  follower LEO  follower HW
in the beginning                                     0           0          0             0            0
a producer sends a record                            1           0          0             0            0
first round: the leader has read for it              1           0          0             0            0
first round: the follower has written                1           0          0             1            0
second round: the leader has read for it             1           1          1             1            0
second round: the follower has taken it in           1           1          1             1            1
"""


class Pair:
    """Broker 0 leads t-0, broker 1 follows."""

    def __init__(self, folder: Path) -> None:
        self.shell = ManualShell(ManualClock())
        self.leader = led(Broker(str(folder / "0"), shell=self.shell))
        self.follower = Broker(str(folder / "1"), broker_id=1, shell=self.shell)
        self.table: list[tuple[object, ...]] = [COLUMNS]
        self.follower.tell_brokers(live=(0, 1, 2))
        self.follower.lead("t", leader=0, isr=[0, 1], replicas=[0, 1, 2])
        self.shell.run_turns()
        # The session's first fetch is answered at once, the second waits at the leader.
        self.arrive(self.leave())

    def leave(self) -> tuple[messages.FetchRequest, Deferred[Any], Any]:
        """The follower's next request reaches the leader: the request, where its answer goes, and the answer."""
        self.shell.run_turns()
        broker_id, request, place = self.shell.asked.pop(0)
        assert (broker_id, type(request)) == (0, messages.FetchRequest)
        return request, place, self.leader.send(ApiKey.FETCH, 17, request)

    def arrive(self, fetch: tuple[messages.FetchRequest, Deferred[Any], Any]) -> None:
        """The leader's answer reaches the follower, which takes it in and makes its next request."""
        _, place, answer = fetch
        self.shell.run_turns()
        if isinstance(answer, Deferred):
            assert answer.done, "The leader does not answer yet."
            answer = answer.result()
        place.complete(self.leader.decode(ApiKey.FETCH, 17, answer))
        self.shell.run_turns()

    def note(self, step: str) -> None:
        """A line of the table."""
        leads, follows = self.leader.replica("t"), self.follower.replica("t")
        progress = leads.leader.followers[BrokerId(1)]
        self.table.append(
            (
                step,
                leads.leader.log_end,
                progress.log_end,
                leads.high_watermark,
                follows.log.log_end_offset,
                follows.high_watermark,
            )
        )

    def written(self) -> str:
        """The table as text."""
        widths = [max(len(str(row[column])) for row in self.table) for column in range(len(COLUMNS))]
        lines = []
        for row in self.table:
            numbers = (f"  {cell!s:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
            lines.append(str(row[0]).ljust(widths[0]) + "".join(numbers))
        return "\n".join(["", *lines, ""])


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    for broker in (made.leader, made.follower):
        broker.close()


def test_the_two_rounds_as_the_document_traces_them(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    """The first round brings the record, the second the high watermark; the fetch that waits is woken by the record."""
    pair.note("in the beginning")
    first = pair.leave()
    assert not first[2].done, "Without data the request lies in the purgatory."
    produced = pair.leader.produce("t", [b"m"], acks=-1)
    pair.note("a producer sends a record")
    pair.shell.run_turns()
    assert first[2].done, "The record has woken it."
    pair.note("first round: the leader has read for it")
    pair.arrive(first)
    pair.note("first round: the follower has written")
    assert not produced.done
    second = pair.leave()
    assert [topic.partitions[0].fetch_offset for topic in second[0].topics] == [1], "By this the leader knows."
    assert produced.done, "Both have the record: acks=all is answered before the follower is."
    pair.note("second round: the leader has read for it")
    pair.shell.advance(50)
    pair.arrive(second)
    pair.note("second round: the follower has taken it in")
    assert pair.written() == THE_TABLE
    with capsys.disabled():
        print(pair.written())


def test_a_fetch_without_data_waits_for_replica_fetch_wait_max_ms(pair: Pair) -> None:
    """500 ms, then it is answered with nothing, and the follower asks again."""
    fetch = pair.leave()
    pair.shell.advance(499)
    assert not fetch[2].done
    pair.shell.advance(1)
    pair.arrive(fetch)
    assert pair.follower.replica("t").log.log_end_offset == 0
    assert len(pair.shell.asked) == 1


def test_the_four_moments_that_move_the_high_watermark(pair: Pair) -> None:
    """An election, a replica that leaves the ISR, a produce, and a follower's fetch; nothing else."""
    replica = pair.leader.replica("t")
    fetch = pair.leave()
    pair.leader.produce("t", [b"a"], acks=1)
    assert replica.high_watermark == 0
    pair.arrive(fetch)
    pair.leave()
    assert replica.high_watermark == 1, "A follower's fetch."
    pair.leader.produce("t", [b"b"], acks=1)
    assert replica.high_watermark == 1
    led(pair.leader, isr=(0,), partition_epoch=1)
    assert replica.high_watermark == 2, "A replica left the ISR."
    pair.leader.produce("t", [b"c"], acks=1)
    assert replica.high_watermark == 3, "A produce: the leader is alone."
    led(pair.leader, isr=(0, 1), partition_epoch=2)
    pair.leader.produce("t", [b"d"], acks=1)
    assert replica.high_watermark == 3
    led(pair.leader, isr=(0,), leader_epoch=1, partition_epoch=3)
    assert replica.high_watermark == 4, "An election."
