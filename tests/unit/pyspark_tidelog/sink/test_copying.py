"""Staging and copying on a broker, without Spark: attempts that lose, drivers that die, and what readers see."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.pyspark_tidelog.sink.site import Site, values
from tests.unit.pyspark_tidelog.spark_fixtures import Broker
from tests.waiting import until

from pyspark_tidelog.sink import copying, private_topic
from pyspark_tidelog.sink.copying import commit_batch_job, commit_micro_batch
from pyspark_tidelog.sink.errors import RowRefused, SinkError, WriteStopped
from pyspark_tidelog.sink.options import Delivery, parse_sink_options
from pyspark_tidelog.sink.staged import Decision, StagedWrite, pack
from pyspark_tidelog.sink.task import stage
from pyspark_tidelog.sink.writers import TidelogBatchWriter
from tidelog.client import admin
from tidelog.client.errors import RequestTimedOut
from tidelog.client.routing import Routing
from tidelog.client.transacting import TransactionIdentity, begin_transaction
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.ports.disk import Bytes


@pytest.fixture
def site(broker: Broker) -> Site:
    return Site(broker)


def test_winners_alone_are_copied(site: Site) -> None:
    """A failed attempt, a speculative loser that is done too, and a zombie that stages on during the commit."""
    rows, others = values("a", 100), values("b", 50)
    site.attempt(0, *rows[:30])
    winner = site.attempt(0, *rows)
    site.attempt(0, *rows)
    second = site.attempt(0, *others)
    site.attempt(0, *rows)
    assert site.commit(0, winner, second) is Decision.WRITE
    assert site.committed() == sorted(rows + others)


def test_the_copy_takes_little_memory_beside_what_it_has_received(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch becomes the transaction's in the memory into which it was received, and is sent from there."""
    sent: list[object] = []
    real = copying.append_batches

    def append(routing: Routing, identity: TransactionIdentity, batches: Mapping[TopicPartition, Bytes]) -> object:
        sent.extend(batches.values())
        return real(routing, identity, batches)

    monkeypatch.setattr(copying, "append_batches", append)
    rows = values("a", 60)
    site.commit(0, site.attempt(0, *rows))
    copied = [each for each in sent if isinstance(each, memoryview)]
    assert len(copied) == len(sent) - 1, "all but the mark"
    assert len({id(each.obj) for each in copied}) < len(copied)
    assert site.committed() == sorted(rows)


def test_an_equal_batch_is_skipped_and_the_next_one_written(site: Site) -> None:
    """Also by another driver, which knows nothing but the private topic."""
    assert site.commit(0, site.attempt(0, "a")) is Decision.WRITE
    assert site.commit(0, site.attempt(0, "a")) is Decision.SKIP
    assert site.commit(1, site.attempt(1)) is Decision.WRITE, "an empty batch moves the mark"
    assert site.commit(2, site.attempt(2, "b")) is Decision.WRITE
    with pytest.raises(WriteStopped, match="batch 2 was the last one written"):
        site.commit(4, site.attempt(4, "c"))
    with pytest.raises(WriteStopped, match="was written with 1 rows, and has 2 now"):
        site.commit(2, site.attempt(2, "b", "c"))
    assert site.committed() == ["a", "b"]


@pytest.mark.parametrize("step", ["add_partitions", "append_batches", "end_transaction"])
def test_a_driver_that_dies_in_the_copy_leaves_nothing_to_see(
    site: Site, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Its successor stages and writes the batch again; readers see it once."""
    site.commit(0, site.attempt(0, "before"))
    assert site.committed() == ["before"]
    rows = values("a", 60)
    dead = site.attempt(1, *rows)

    class Killed(BaseException):
        """As SIGKILL, it lets nothing be tidied up."""

    def killed(*arguments: object, **named: object) -> object:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(copying, "end_transaction", killed)
        if step != "end_transaction":
            patch.setattr(copying, step, killed)
        with pytest.raises(Killed):
            site.commit(1, dead)
    assert site.committed_so_far() == ["before"]
    assert site.commit(1, site.attempt(1, *rows)) is Decision.WRITE
    assert site.committed() == sorted(["before", *rows])


def test_a_driver_that_dies_behind_the_decision_is_not_repeated(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark is in the transaction."""

    class Killed(BaseException):
        """As SIGKILL."""

    def killed(*arguments: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(copying, "delete_staged", killed)
        with pytest.raises(Killed):
            site.commit(0, site.attempt(0, "a"))
    assert site.commit(0, site.attempt(0, "a")) is Decision.SKIP
    assert site.committed() == ["a"]


def test_a_driver_that_was_replaced_cannot_commit(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands still in its copy; the new driver writes the batch; the old one is told, and nothing is doubled."""
    first, second = site.attempt(0, *values("a", 20)), site.attempt(0, *values("a", 20))
    real, passed = copying.end_transaction, []

    def overtaken(*arguments: object, **named: object) -> object:
        if not passed:
            passed.append(True)
            assert site.commit(0, second) is Decision.WRITE
        return real(*arguments, **named)  # type: ignore[arg-type]  # Handed on as they come.

    monkeypatch.setattr(copying, "end_transaction", overtaken)
    with pytest.raises(WriteStopped, match=r"took the transactional id .* over"):
        site.commit(0, first)
    assert site.committed() == values("a", 20)


def test_a_driver_with_another_id_does_not_double_a_batch(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not fence the one before it, which has copied its rows already: whose mark comes second, stops."""
    other = dataclasses.replace(site.options, transactional_id=f"other-{site.query}")
    first, second = site.attempt(0, *values("a", 20)), site.attempt(0, *values("a", 20))
    built, passed = copying.build_batch, []

    def overtaken(*arguments: Any, **named: Any) -> Any:
        if not passed:
            passed.append(True)
            assert commit_micro_batch(other, [second], 0) is Decision.WRITE
        return built(*arguments, **named)

    monkeypatch.setattr(copying, "build_batch", overtaken)
    with pytest.raises(WriteStopped, match="another driver writes a batch of the same query"):
        site.commit(0, first)
    assert site.commit(0, site.attempt(0, *values("a", 20))) is Decision.SKIP
    assert site.committed() == values("a", 20)


def test_a_driver_with_another_id_waits_for_what_is_open(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator may have decided it already: a mark that is not to be seen yet may be there in a moment."""
    other = dataclasses.replace(site.options, transactional_id=f"other-{site.query}")

    class Killed(BaseException):
        """As SIGKILL."""

    def killed(*arguments: object, **named: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(copying, "end_transaction", killed)
        with pytest.raises(Killed):
            site.commit(0, site.attempt(0, "a"))
    monkeypatch.setattr(private_topic, "OPEN_WAIT_S", 0.0)
    with pytest.raises(WriteStopped, match=r"has an open transaction\. Start the query again when"):
        commit_micro_batch(other, [site.attempt(0, "a")], 0)
    assert site.commit(0, site.attempt(0, "a")) is Decision.WRITE
    assert site.committed() == ["a"]


def test_a_transaction_that_timed_out_is_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told apart from one that was fenced."""
    options = parse_sink_options(
        {"kafka.bootstrap.servers": site.options.bootstrap, "topic": site.topic, "kafka.transaction.timeout.ms": "1"}
    )
    real = copying.end_transaction

    def late(*arguments: object, **named: object) -> object:
        site.client.run(begin_transaction(site.client.routing, f"tidelog-sink-{site.query}", timeout_ms=60_000))
        return real(*arguments, **named)  # type: ignore[arg-type]  # Handed on as they come.

    monkeypatch.setattr(copying, "end_transaction", late)
    with pytest.raises(WriteStopped, match=r"aborted the transaction .* after kafka.transaction.timeout.ms"):
        commit_micro_batch(options, [site.attempt(0, "a")], 0)
    assert site.committed() == []


def test_staged_rows_that_are_gone_stop_the_batch(site: Site) -> None:
    """Another batch at the offset, or none: nothing is written."""
    write = site.attempt(0, *values("a", 30))
    batches = list(write.batches())
    wrong = batches[0]._replace(crc=batches[0].crc ^ 1)
    changed = StagedWrite(write.query, 0, write.topic, write.targets, pack([wrong, *batches[1:]]), write.rows)
    with pytest.raises(WriteStopped, match="is not the one that a task staged"):
        site.commit(0, changed)
    site.attempt(0, *values("a", 30))
    moved = [batches[0]._replace(offset=batches[0].offset + 1)]
    lost = StagedWrite(write.query, 0, write.topic, write.targets, pack(moved), moved[0].rows)
    with pytest.raises(WriteStopped, match=r"0 of \d+ staged rows were found"):
        site.commit(0, lost)
    moved = [each._replace(offset=10_000) for each in batches[:1]]
    beyond = StagedWrite(write.query, 0, write.topic, write.targets, pack(moved), moved[0].rows)
    with pytest.raises(WriteStopped, match="staged rows are gone"):
        site.commit(0, beyond)
    assert site.committed() == []


def test_a_batch_job_is_whole_and_leaves_nothing(site: Site) -> None:
    """Its private topic goes with it."""
    rows = values("a", 200)
    writes = [site.attempt(0, *rows[:120], is_query=False), site.attempt(0, *rows[120:], is_query=False)]
    commit_batch_job(site.options, writes)
    assert site.committed() == rows
    assert writes[0].topic not in site.client.run(admin.list_topics(site.client.routing))


def test_a_task_that_lives_on_behind_its_batch_job_leaves_no_topic(site: Site) -> None:
    """Nothing would delete it: its job is over."""
    write = site.attempt(0, "a", is_query=False)
    commit_batch_job(site.options, [write])
    options = dataclasses.replace(site.options, request_timeout_ms=1000)
    with pytest.raises(SinkError, match="is gone: the write is over"):
        site.attempt(0, "a", is_query=False, options=options)
    assert write.topic not in site.client.run(admin.list_topics(site.client.routing))


@pytest.mark.parametrize("decided", [False, True], ids=["not arrived", "answer lost"])
def test_a_decision_that_is_not_confirmed_is_told(
    site: Site, monkeypatch: pytest.MonkeyPatch, *, decided: bool
) -> None:
    """A user who repeats a batch write must know whether its rows are there; where the sink cannot tell, it says so."""
    real = copying.end_transaction

    def unanswered(*arguments: Any, committed: bool, **named: Any) -> Any:
        if committed:
            if decided:
                yield from real(*arguments, committed=True, **named)
            raise RequestTimedOut("no answer")
        yield from real(*arguments, committed=False, **named)

    monkeypatch.setattr(copying, "end_transaction", unanswered)
    message = "whether its rows are visible is not known" if decided else "was aborted: nothing of the batch is visible"
    with pytest.raises(WriteStopped, match=message):
        commit_batch_job(site.options, [site.attempt(0, "a", is_query=False)])
    assert site.committed() == (["a"] if decided else [])


def test_copied_records_are_deleted_and_the_mark_stays(site: Site) -> None:
    """The private topic does not grow with the query."""
    for batch in range(3):
        site.commit(batch, site.attempt(batch, *values("a", 40)))
    private = site.options.staging_prefix + site.query
    partitions = [TopicPartition(private, number) for number in range(3)]

    def held() -> list[int]:
        ends = site.client.offsets(dict.fromkeys(partitions, -1))
        starts = site.client.offsets(dict.fromkeys(partitions, -2))
        return [ends[each].offset - starts[each].offset for each in partitions]

    # A mark and its marker, which Kafka may write after its answer.
    until(lambda: held() == [2, 0, 0], lambda: f"offsets held: {held()}")


def test_a_topics_own_bound_is_kept(site: Site) -> None:
    """Batches are no larger than max.message.bytes; a row that is fails with its key's partition and both sizes."""
    small = f"{site.topic}-small"
    site.create(small, 2, max_message_bytes="1000")
    options = parse_sink_options({"kafka.bootstrap.servers": site.options.bootstrap, "topic": small})
    rows = values("a" * 50, 100)
    commit_micro_batch(options, [site.attempt(0, *rows, options=options)], 0)
    assert site.committed(small) == rows
    with pytest.raises(RowRefused, match=rf"row 1 of the task for topic '{small}'-\d .*max.message.bytes is 1000"):
        site.attempt(1, "fits", "x" * 2000, options=options)


def test_a_partition_that_is_not_there_is_named(site: Site) -> None:
    """With how many the topic has."""
    rows = pa.RecordBatch.from_arrays([pa.array([b"a", b"b"]), pa.array([1, 2], pa.int32())], ["value", "partition"])
    with pytest.raises(RowRefused, match=rf"row 1 of the task for topic '{site.topic}'-2 .*it has 2, from 0 to 1"):
        stage(site.options, ("value", "partition"), [rows], query=site.query, batch=0, is_query=True)


def test_at_least_once_appends(site: Site) -> None:
    """Without a private topic, and without a commit."""
    options = dataclasses.replace(site.options, delivery=Delivery.AT_LEAST_ONCE)
    rows = pa.RecordBatch.from_arrays([pa.array([each.encode() for each in values("a", 90)])], ["value"])
    writer = TidelogBatchWriter(options, ("value",))
    written = writer.write(iter([rows]))
    assert (written.rows, written.staged) == (90, None)
    assert site.committed() == values("a", 90)
    writer.commit([written])
    assert site.committed() == values("a", 90)


def test_batches_of_a_fenced_producer_are_refused(site: Site) -> None:
    """What the client's operations say where an epoch is over."""
    routing = site.client.routing
    former = site.client.run(begin_transaction(routing, f"x-{site.query}", timeout_ms=60_000))
    site.client.run(begin_transaction(routing, f"x-{site.query}", timeout_ms=60_000))
    with pytest.raises(KafkaError):
        site.client.run(copying.add_partitions(routing, former, [TopicPartition(site.topic, 0)]))


def test_a_private_topic_keeps_its_partitions(site: Site) -> None:
    """A query that goes on with another stagingPartitions uses those that there are."""
    site.commit(0, site.attempt(0, *values("a", 20)))
    more = dataclasses.replace(site.options, staging_partitions=7)
    assert commit_micro_batch(more, [site.attempt(1, *values("b", 20), options=more)], 1) is Decision.WRITE
    assert site.committed() == values("a", 20) + values("b", 20)
