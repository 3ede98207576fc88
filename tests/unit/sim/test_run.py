"""Whole brokers under faults: every seed keeps every invariant, and every run of a seed is the same run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sim.checks.history import Guarantee, History
from sim.invariants import InvariantBrokenError
from sim.run import RunFailedError, run
from sim.workloads.producers import Lane, Producer
from tests.amount import daily

from tidelog.model.identifiers import TopicPartition

ROOT = Path(__file__).parents[3]
CLIENTS = ("--clients",)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """A broker that is killed a dozen times has much to say."""
    caplog.set_level("CRITICAL")


@pytest.mark.parametrize("seed", daily(2, range(1, 9)))
def test_one_broker(seed: int) -> None:
    """Kills, power cuts, broken connections: nothing acknowledged is lost, nothing is served that should not be."""
    outcome = run(seed, 6, brokers=1)
    assert outcome.acknowledged > 20
    assert outcome.read >= outcome.acknowledged
    assert outcome.faults > 0


@pytest.mark.parametrize("seed", daily(2, range(1, 13)))
def test_clusters(seed: int) -> None:
    """Several brokers, and whatever their seed does to them: every invariant holds."""
    outcome = run(seed, 8)
    assert outcome.acknowledged > 0
    assert outcome.faults > 0


def test_our_own_client() -> None:
    """Our producer, and members of groups of both protocols: what is acknowledged is read, nothing is silent."""
    counts = run(3, 2, brokers=3, clients=True).counts
    assert counts["by our producer"] > 100
    assert counts["by our consumer"] > 300


@pytest.mark.parametrize(
    ("seed", "brokers", "seconds", "more"),
    daily(2, [(7, 3, 4, ()), (1, 1, 3, ()), (2, 1, 2, CLIENTS), (2, 1, 5, CLIENTS), (4, 1, 5, ()), (1, 3, 5, ())]),
)
def test_a_seed_is_one_run(seed: int, brokers: int, seconds: int, more: tuple[str, ...]) -> None:
    """Two processes with different hash seeds agree on every event, to the byte."""
    digests = set()
    for hash_seed in ("0", "12345"):
        finished = subprocess.run(
            [sys.executable, "-m", "sim", f"--seed={seed}", f"--seconds={seconds}", f"--brokers={brokers}", *more],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=600,
        )
        digests.add(finished.stdout.rpartition("digest ")[2])
    assert len(digests) == 1
    assert digests != {""}


def test_a_failure_names_the_command_that_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that loses count of itself breaks invariant 12, and the message says how to see it again."""
    following = Producer._next_batch

    def forgetful(producer: Producer, lane: Lane) -> object:
        pending = following(producer, lane)
        if lane.sequence > 50:
            pending.values[0] = pending.values[0] + b"0"
        return pending

    monkeypatch.setattr(Producer, "_next_batch", forgetful)
    with pytest.raises(RunFailedError, match="python -m sim --seed 2 --seconds 2 --brokers 1") as failed:
        run(2, 2, brokers=1)
    assert isinstance(failed.value.__cause__, InvariantBrokenError)


class TestHistory:
    """The checker itself sees what it is there to see."""

    PARTITION = TopicPartition("topicone", 0)

    def test_a_lost_record(self) -> None:
        """Acknowledged, and not there in the end."""
        history = History()
        history.acknowledged(self.PARTITION, 0, [b"p:0", b"p:1"], Guarantee.EXACTLY_ONCE)
        history.check_final(self.PARTITION, 0, {0: b"p:0", 1: b"p:1"})
        history.check_final(self.PARTITION, 1, {1: b"p:1"})
        with pytest.raises(InvariantBrokenError, match="invariant 1 "):
            history.check_final(self.PARTITION, 0, {0: b"p:0"})

    def test_a_lost_record_of_the_leader_alone(self) -> None:
        """With acks=1 a loss is counted; what a consumer has read may not be lost even so."""
        history = History()
        history.lane("q", Guarantee.LEADER)
        history.acknowledged(self.PARTITION, 0, [b"q:0", b"q:1"], Guarantee.LEADER)
        history.check_final(self.PARTITION, 0, {0: b"q:1"})
        assert history.lost_by_leaders == 2
        history.of(self.PARTITION).values[0] = b"q:0"
        history.of(self.PARTITION).read.add(0)
        with pytest.raises(InvariantBrokenError, match="invariant 1 "):
            history.check_final(self.PARTITION, 0, {0: b"q:1"})

    def test_a_refused_record_that_appears(self) -> None:
        """Jepsen's aborted read."""
        history = History()
        history.lane("q", Guarantee.ALL)
        history.refused([b"q:0"])
        with pytest.raises(InvariantBrokenError, match="invariant 10 "):
            history.check_final(self.PARTITION, 0, {0: b"q:0"})

    def test_a_record_that_was_deleted_unseen(self) -> None:
        """No gap, where a producer is told that what it had sent is gone."""
        history = History()
        history.acknowledged(self.PARTITION, 0, [b"p:0"], Guarantee.EXACTLY_ONCE)
        history.acknowledged(self.PARTITION, 2, [b"p:2"], Guarantee.EXACTLY_ONCE)
        with pytest.raises(InvariantBrokenError, match="invariant 12 "):
            history.check_final(self.PARTITION, 2, {2: b"p:2"})
        history.deleted_unseen([b"p:1"])
        history.check_final(self.PARTITION, 2, {2: b"p:2"})

    def test_two_values_at_one_offset(self) -> None:
        """Acknowledged twice, with different records."""
        history = History()
        history.acknowledged(self.PARTITION, 0, [b"p:0"], Guarantee.ALL)
        with pytest.raises(InvariantBrokenError, match="invariant 2 "):
            history.acknowledged(self.PARTITION, 0, [b"q:0"], Guarantee.ALL)

    @pytest.mark.parametrize("values", [[b"p:0", b"p:0"], [b"p:0", b"p:2"], [b"p:1", b"p:0"]])
    def test_a_duplicate_a_gap_and_a_wrong_order(self, values: list[bytes]) -> None:
        """Each idempotent producer's records count up from 0."""
        with pytest.raises(InvariantBrokenError, match="invariant 12 "):
            History().check_final(self.PARTITION, 0, dict(enumerate(values)))

    def test_order_without_idempotence(self) -> None:
        """A producer that sends each batch once may miss some, and never sees them twice, nor acknowledged ones in
        another order. One that it has given up may come late."""
        history = History()
        history.lane("p", Guarantee.ALL)
        history.check_final(self.PARTITION, 0, {0: b"p:0", 1: b"p:2"})
        history.acknowledged(self.PARTITION, 0, [b"p:1"], Guarantee.ALL)
        history.check_final(self.PARTITION, 0, {0: b"p:1", 1: b"p:0"})
        with pytest.raises(InvariantBrokenError, match=r"invariant 12 .*stands at 2, and before that"):
            history.check_final(self.PARTITION, 0, {0: b"p:1", 1: b"p:0", 2: b"p:0"})
        history.acknowledged(self.PARTITION, 1, [b"p:0"], Guarantee.ALL)
        with pytest.raises(InvariantBrokenError, match=r"invariant 12 .*0 stands at 1, behind 1"):
            history.check_final(self.PARTITION, 0, {0: b"p:1", 1: b"p:0"})

    def test_a_log_start_and_a_high_watermark_that_go_back(self) -> None:
        """Within one life of a broker neither may; another broker, or another life, may not know yet."""
        history = History()
        history.fetched(self.PARTITION, 1, 5, 9, 9, 4, [])
        for high_watermark, start in ((8, 4), (9, 3)):
            with pytest.raises(InvariantBrokenError, match="invariant 6 "):
                history.fetched(self.PARTITION, 1, 5, high_watermark, high_watermark, start, [])
        history.fetched(self.PARTITION, 2, 5, 8, 8, 4, [])
        history.restarted(1)
        history.fetched(self.PARTITION, 1, 5, 8, 8, 4, [])

    def test_a_truncation_of_what_was_read(self) -> None:
        """OFFSET_OUT_OF_RANGE at the reader's own place, and not because of deletion."""
        history = History()
        history.out_of_range(self.PARTITION, 5, 7)
        with pytest.raises(InvariantBrokenError, match="invariant 6 "):
            history.out_of_range(self.PARTITION, 5, 0)
