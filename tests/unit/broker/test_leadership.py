"""LeaderAndIsr, StopReplica, UpdateMetadata: the controller's orders, and which are refused."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.broker.harness import Broker, topic_id_of, whole

from tidelog.broker.deferred import Deferred
from tidelog.broker.orders import leadership, replica_stops
from tidelog.broker.orders.leadership import LOGS_PER_TURN
from tidelog.broker.peer import CloseConnection, Peer
from tidelog.controller.announcements import FULL_UPDATE
from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition, format_topic_id
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.storage.errors import DirectoryOffline
from tidelog.storage.log import Log


def errors(response: messages.LeaderAndIsrResponse) -> list[int]:
    return [error.error_code for topic in response.topics for error in topic.partition_errors]


def test_leading_creates_the_log_with_its_settings(start_broker: Callable[..., Broker]) -> None:
    """A new partition's log takes the topic's settings, read from the store, over the broker's."""
    broker = start_broker(log_segment_bytes=1 << 20)
    broker.settings.topics["t"] = {"retention.ms": "1234", "cleanup.policy": "compact"}
    assert errors(broker.lead("t", 2)) == [0, 0]
    config = broker.replica("t", 1).log.config
    assert (config.retention_ms, config.cleanup_policy, config.segment_bytes) == (1234, {"compact"}, 1 << 20)
    assert (Path(broker.replica("t").log.directory) / "partition.metadata").exists()


def test_an_order_is_carried_out_whatever_the_topics_settings_say(broker: Broker) -> None:
    """They were written past every check; orders behind this one would wait for it for ever."""
    broker.settings.topics["u"] = {"leader.replication.throttled.replicas": "0:" + "9" * 5_000}
    assert errors(broker.lead("u")) == [0]
    assert errors(broker.lead("v")) == [0]


def test_settings_that_cannot_be_taken_in_hold_up_no_order(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever goes wrong as a topic's settings take effect: it is said, and the partitions are led, with them."""

    def fail(topic: str, values: dict[str, str]) -> bool:
        if topic == "u":
            raise RuntimeError("nobody foresaw this")
        return False

    monkeypatch.setattr(broker.node.throttles, "topic_changed", fail)
    broker.settings.topics["u"] = {"retention.ms": "1234"}
    kind = messages.LeaderAndIsrRequest
    topics = [
        kind.LeaderAndIsrTopicState(
            topic_name=name,
            topic_id=TopicId(topic_id_of(name)),
            partition_states=[kind.LeaderAndIsrPartitionState(leader=0, isr=[0], replicas=[0])],
        )
        for name in ("u", "v")
    ]
    order = kind(controller_epoch=1, broker_epoch=7, topic_states=topics)
    assert errors(broker.ask(ApiKey.LEADER_AND_ISR, 7, order)) == [0, 0]
    assert broker.replica("u").log.config.retention_ms == 1234
    assert "nobody foresaw this" in caplog.text


def test_an_epoch_is_entered_at_the_log_end(broker: Broker) -> None:
    """Each leadership is noted in the epoch cache with the offset at which it starts."""
    broker.produce("t", [b"a", b"b"])
    broker.lead("t", 3, leader_epoch=4)
    entries = [(entry.epoch, entry.start_offset) for entry in broker.replica("t").log.epochs.entries]
    assert entries == [(0, 0), (4, 2)]


def test_a_deposed_controller_is_refused(broker: Broker) -> None:
    """Orders with an older controller epoch change nothing: STALE_CONTROLLER_EPOCH."""
    broker.lead("t", 3, epoch=5, leader_epoch=1)
    stale = ErrorCode.STALE_CONTROLLER_EPOCH
    assert broker.lead("t", 3, epoch=4, leader_epoch=2).error_code == stale
    assert broker.tell_brokers(epoch=4).error_code == stale
    assert broker.delete("t").error_code == stale
    assert broker.replica("t").leader_epoch == 1


def test_an_order_that_was_given_twice_is_not_carried_out_behind_a_later_one(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first order of a new controller waits for the store, and comes again, as its connection has broken. The
    store's second answer may come before the first one, and a later order in between."""
    asked: list[Deferred[bool]] = []

    def confirm(controller_id: int, epoch: int) -> Deferred[bool]:
        asked.append(Deferred())
        return asked[-1]

    monkeypatch.setattr(broker.controller, "confirm", confirm)
    update = messages.UpdateMetadataRequest

    def order(name: str, type: int) -> Any:
        state = update.UpdateMetadataPartitionState(leader=0, isr=[0], replicas=[0], controller_epoch=2)
        topic = update.UpdateMetadataTopicState(
            topic_name=name, topic_id=TopicId(topic_id_of(name)), partition_states=[state]
        )
        request = update(controller_id=1, controller_epoch=2, broker_epoch=7, type=type, topic_states=[topic])
        answer = broker.send(ApiKey.UPDATE_METADATA, 8, request)
        broker.shell.run_turns()
        return answer

    first, again = order("old", FULL_UPDATE), order("old", FULL_UPDATE)
    asked[-1].complete(True)
    assert again.done
    order("new", 0)
    for answer in asked[:-1]:
        answer.complete(True)
    assert first.done
    assert set(broker.node.metadata.image.topics) == {"old", "new"}


def test_an_order_on_a_connection_that_was_given_up_is_not_carried_out(broker: Broker) -> None:
    """The network has held it back, the controller has repeated it on another connection, and the topic was made anew:
    by the name alone the old order would delete it."""
    first, second = (Peer("PLAINTEXT", number, "127.0.0.1", 50_000) for number in (2, 3))
    broker.peer = first
    broker.lead("u")
    broker.peer = second
    broker.delete("u")
    broker.lead("u", topic_id=bytes(range(16)))
    broker.produce("u", [b"a"])
    broker.peer = first
    with pytest.raises(CloseConnection):
        broker.delete("u")
    assert broker.replica("u").log.log_end_offset == 1
    broker.peer = second
    assert broker.delete("u").error_code == ErrorCode.NONE


def test_the_connection_of_a_new_controller_may_be_older(broker: Broker) -> None:
    """It controlled the cluster before, and its connection stands since then."""
    former, present = (Peer("PLAINTEXT", number, "127.0.0.1", 50_000) for number in (2, 3))
    broker.peer = former
    assert errors(broker.lead("u", epoch=2)) == [0]
    broker.peer = present
    assert errors(broker.lead("u", epoch=3, leader_epoch=1)) == [0]
    broker.peer = former
    assert errors(broker.lead("u", epoch=4, leader_epoch=2)) == [0]


def test_orders_for_an_earlier_life_are_refused(broker: Broker) -> None:
    """A broker epoch older than the registration: STALE_BROKER_EPOCH (KIP-380)."""
    assert broker.lead("t", 3, leader_epoch=2, broker_epoch=6).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert broker.replica("t").leader_epoch == 0


def test_an_old_leader_epoch_is_refused(broker: Broker) -> None:
    """Orders that were overtaken are ignored, partition by partition."""
    broker.lead("t", 3, leader_epoch=5)
    assert errors(broker.lead("t", 3, leader_epoch=4, leader=1, isr=[1])) == [ErrorCode.STALE_CONTROLLER_EPOCH] * 3
    assert broker.replica("t").leader is not None


def test_a_directory_that_fails_just_now_spares_the_others(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """An I/O thread may take a directory offline at any moment: its partition is told so, and the others are led."""
    failing = broker.replica("t", 1)
    assign = Log.assign_epoch

    def fail(log: Log, epoch: int) -> None:
        if log is failing.log:
            raise DirectoryOffline(log.directory, "just now")
        assign(log, epoch)

    monkeypatch.setattr(Log, "assign_epoch", fail)
    assert errors(broker.lead("t", 3, leader_epoch=4)) == [0, ErrorCode.KAFKA_STORAGE_ERROR, 0]
    assert [broker.replica("t", index).leader_epoch for index in range(3)] == [4, 0, 4]


@pytest.mark.parametrize("step", ["create", "lead"])
def test_an_error_that_nobody_foresaw_spares_the_others(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """One partition's order fails: the others of the same request are led, and this one is tried again."""
    owner, name = (type(broker.node.logs), "create") if step == "create" else (Log, "assign_epoch")
    carry_out = getattr(owner, name)
    faults = [RuntimeError("nobody foresaw this")]

    def fail(subject: Any, *arguments: Any, **options: Any) -> Any:
        topic_partition = arguments[0] if step == "create" else subject.topic_partition
        if topic_partition == TopicPartition("u", 1) and faults:
            raise faults.pop()
        return carry_out(subject, *arguments, **options)

    monkeypatch.setattr(owner, name, fail)
    assert errors(broker.lead("u", 3)) == [0, ErrorCode.UNKNOWN_SERVER_ERROR, 0]
    assert [broker.produce("u", partition=index).error_code for index in (0, 2)] == [0, 0]
    assert broker.produce("u", partition=1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.shell.advance(1_000)
    assert broker.produce("u", partition=1).error_code == 0


@pytest.mark.parametrize("leader", [0, 1])
def test_a_leadership_or_followership_that_is_cut_short_is_tried_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, leader: int
) -> None:
    """What an election brings about may fail, as the coordinator's code is read from the disk: the order holds, and
    is not taken for one that was carried out. Until then the replica does not lead."""
    broker.lead("u")
    changed: list[TopicPartition] = []
    faults = [OSError(24, "Too many open files")]

    def tell(topic_partition: TopicPartition) -> None:
        if faults:
            raise faults.pop()
        changed.append(topic_partition)

    monkeypatch.setattr(broker.node.leadership, "_on_leadership_changed", tell)
    order = {"leader": leader, "leader_epoch": 4, "isr": [0, 1]}
    assert errors(broker.lead("u", **order)) == [ErrorCode.UNKNOWN_SERVER_ERROR]  # type: ignore[arg-type]
    assert broker.produce("u").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert errors(broker.lead("u", **order)) == [0]  # type: ignore[arg-type]
    assert changed == [TopicPartition("u", 0)]
    assert broker.replica("u").leader_epoch == 4
    assert (broker.replica("u").leader is not None) is (leader == 0)
    assert (broker.node.fetcher_manager.get(TopicPartition("u", 0)) is not None) is (leader == 1)


def test_an_append_that_waits_is_refused_whatever_goes_wrong_as_leadership_ends(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left waiting, it would be acknowledged by a later leadership of this broker, when its records may be others."""
    broker.tell_brokers(live=[0, 1])
    broker.lead("u", isr=[0, 1])
    waiting = broker.produce("u", [b"lost"], acks=-1)
    assert not waiting.done

    def fail(key: object) -> None:
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr(broker.node.replicas._purgatory, "check", fail)
    broker.lead("u", leader=1, leader_epoch=1, isr=[1], replicas=[0, 1])
    assert waiting.done
    answer = broker.decode(ApiKey.PRODUCE, 9, whole(waiting.result()))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("step", ["begun", "ended"])
def test_an_error_as_folders_are_made_durable_holds_up_no_other_order(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Orders are carried out one after the other: one that was never answered would be the last."""
    scheduler = broker.node.disk_scheduler
    durable: Deferred[None] = Deferred()

    def fail(*directories: Any) -> Deferred[None]:
        if step == "begun":
            raise RuntimeError("nobody foresaw this")
        return durable

    state = messages.LeaderAndIsrRequest.LeaderAndIsrPartitionState
    states = [state(partition_index=index, leader=0, isr=[0], replicas=[0], is_new=True) for index in range(2)]
    topic = messages.LeaderAndIsrRequest.LeaderAndIsrTopicState(
        topic_name="u", topic_id=TopicId(topic_id_of("u")), partition_states=states
    )
    order = messages.LeaderAndIsrRequest(controller_epoch=1, broker_epoch=7, topic_states=[topic])
    with monkeypatch.context() as patch:
        patch.setattr(leadership, "LOGS_PER_TURN", 1)
        patch.setattr(scheduler, "folders_durable", fail)
        answer = broker.send(ApiKey.LEADER_AND_ISR, 7, order)
        with contextlib.suppress(RuntimeError):
            broker.shell.run_turns()
        if step == "ended":
            patch.setattr(broker.node.logs, "directories", None)
            with contextlib.suppress(TypeError):
                durable.complete(None)
    assert answer.done
    assert broker.decode(ApiKey.LEADER_AND_ISR, 7, answer.result()).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert errors(broker.lead("v")) == [0]


def test_a_leadership_that_damaged_records_keep_from_beginning_is_tried_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """To lead, a log may have to read its producers anew from its batches. What was read wrongly, or is damaged, may
    be mended by then; and where no other replica can lead, nothing else would give the order again."""
    broker.lead("u")
    assign = Log.assign_epoch
    faults = [KafkaError(ErrorCode.CORRUPT_MESSAGE, "no sound batch at position 70")]

    def fail(log: Log, epoch: int) -> None:
        if faults:
            raise faults.pop()
        assign(log, epoch)

    monkeypatch.setattr(Log, "assign_epoch", fail)
    assert errors(broker.lead("u", leader_epoch=4)) == [ErrorCode.CORRUPT_MESSAGE]
    assert "no sound batch at position 70" in caplog.text
    broker.shell.advance(1_000)
    assert broker.replica("u").leader_epoch == 4
    assert broker.produce("u").error_code == 0


def test_a_deletion_that_fails_as_nobody_foresaw_spares_the_others(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller hears of the one that failed, and asks again for that one."""
    broker.lead("u", 3)
    delete = broker.node.logs.delete
    faults = [RuntimeError("nobody foresaw this")]

    def fail(topic_partition: TopicPartition) -> bool:
        if topic_partition.partition == 1 and faults:
            raise faults.pop()
        return delete(topic_partition)

    monkeypatch.setattr(broker.node.logs, "delete", fail)
    kind = messages.StopReplicaRequest
    states = [
        kind.StopReplicaPartitionState(partition_index=index, leader_epoch=-2, delete_partition=True)
        for index in range(3)
    ]
    topics = [kind.StopReplicaTopicState(topic_name="u", partition_states=states)]
    order = kind(controller_epoch=1, broker_epoch=7, topic_states=topics)
    answers = [broker.ask(ApiKey.STOP_REPLICA, 4, order).partition_errors for _ in range(2)]
    assert [[error.error_code for error in answer] for answer in answers] == [
        [0, ErrorCode.UNKNOWN_SERVER_ERROR, 0],
        [0, 0, 0],
    ]
    assert not list(broker.node.replicas.of_topic("u"))


def test_the_same_order_twice_does_nothing(broker: Broker) -> None:
    """The controller repeats itself after a lost answer: the leadership goes on as it was."""
    broker.produce("t")
    before = broker.replica("t").leader
    assert errors(broker.lead("t", 3)) == [0, 0, 0]
    assert broker.replica("t").leader is before


def test_an_isr_change_within_an_epoch_is_taken_over(broker: Broker) -> None:
    """The same leader epoch with a newer partition epoch brings a new ISR."""
    broker.lead("t", 3, isr=[0, 1], partition_epoch=3)
    leader = broker.replica("t").leader
    assert leader.isr == (0, 1)
    broker.produce("t")
    assert broker.fetch("t").high_watermark == 0
    broker.lead("t", 3, isr=[0], partition_epoch=4)
    assert broker.fetch("t").high_watermark == 1


def test_another_topic_of_the_same_name_is_refused(broker: Broker) -> None:
    """A log with another topic's id is not touched: INCONSISTENT_TOPIC_ID."""
    assert (
        errors(broker.lead("t", 3, leader_epoch=1, topic_id=bytes(range(16)))) == [ErrorCode.INCONSISTENT_TOPIC_ID] * 3
    )
    assert broker.replica("t").topic_id == topic_id_of("t")


def test_a_topic_without_an_id_keeps_its_logs(broker: Broker) -> None:
    """A tool of 2.2 has dropped the id from the store: the broker leads with the log that it has, and tells its id."""
    topic_partition = TopicPartition("u", 0)
    log = broker.node.logs.create(topic_partition, topic_id_of("u"), is_new=True)
    answer = broker.lead("u", topic_id=ZERO_TOPIC_ID)
    assert errors(answer) == [0]
    assert [topic.topic_id for topic in answer.topics] == [topic_id_of("u")]
    assert broker.replica("u").log is log
    assert errors(broker.lead("u")) == [0]


def test_a_replica_is_followed_once_its_topic_has_an_id(broker: Broker) -> None:
    """The order of the same epoch, with the id, is enough; it is in the log's folder then."""
    topic_partition = TopicPartition("u", 0)
    answer = broker.lead("u", topic_id=ZERO_TOPIC_ID, leader=1, isr=[1], replicas=[1, 0])
    assert (errors(answer), [topic.topic_id for topic in answer.topics]) == ([0], [ZERO_TOPIC_ID])
    assert broker.node.fetcher_manager.get(topic_partition) is None
    assert errors(broker.lead("u", leader=1, isr=[1], replicas=[1, 0])) == [0]
    assert broker.node.fetcher_manager.get(topic_partition) is not None
    assert broker.replica("u").topic_id == topic_id_of("u")
    folder = Path(broker.replica("u").log.directory)
    assert format_topic_id(topic_id_of("u")) in (folder / "partition.metadata").read_text()


def test_what_a_deleted_topic_left_behind_is_put_aside(broker: Broker) -> None:
    """A folder that a power cut brought back, or a disk that was away, must not keep its name from a new topic."""
    old = broker.node.logs.create(TopicPartition("u", 0), topic_id_of("old u"), is_new=True)
    folder = Path(old.directory)
    assert errors(broker.lead("u")) == [0]
    assert broker.replica("u").log.topic_id == topic_id_of("u")
    assert broker.produce("u").base_offset == 0
    [stray] = [path for path in folder.parent.iterdir() if path.name.endswith("-stray")]
    assert stray.name.startswith("u-0.")
    assert (stray / "partition.metadata").exists()


def another_topic(broker: Broker, name: str, isr: list[int]) -> TopicId:
    """The controller has told that another topic has the name now; its id."""
    other = TopicId(bytes(range(16)))
    states = [messages.UpdateMetadataRequest.UpdateMetadataPartitionState(leader=isr[0], isr=isr, replicas=[0, 1])]
    told = messages.UpdateMetadataRequest.UpdateMetadataTopicState(
        topic_name=name, topic_id=other, partition_states=states
    )
    assert broker.tell_brokers([told]).error_code == 0
    return other


def test_the_replica_of_a_deleted_topic_gives_way_to_a_new_one_of_that_name(broker: Broker) -> None:
    """The broker was away while its replica moved and the topic was deleted, and was told to stop nothing. It has been
    told of the topic that has the name now, and is to make a replica of it."""
    broker.lead("u")
    broker.produce("u", [b"a"])
    folder = Path(broker.replica("u").log.directory)
    other = another_topic(broker, "u", [0])
    assert errors(broker.lead("u", topic_id=other)) == [0]
    assert broker.replica("u").topic_id == other
    assert broker.produce("u").base_offset == 0
    [stray] = [path for path in folder.parent.iterdir() if path.name.endswith("-stray")]
    assert (stray / "00000000000000000000.log").stat().st_size > 0


@pytest.mark.parametrize("isr", [[1], [1, 0]], ids=["out of sync", "in sync"])
def test_the_replica_of_a_deleted_topic_gives_way_to_one_that_a_later_controller_orders(
    broker: Broker, isr: list[int]
) -> None:
    """The first controller ended, or the broker registered anew, before the order of the new replica came: it is not
    called new any more. One that counts as in sync is not given up for it."""
    broker.lead("u")
    broker.produce("u", [b"a"])
    other = another_topic(broker, "u", isr)
    order = messages.LeaderAndIsrRequest.LeaderAndIsrPartitionState(leader=1, isr=isr, replicas=[0, 1], is_new=False)
    topics = [
        messages.LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name="u", topic_id=other, partition_states=[order])
    ]
    request = messages.LeaderAndIsrRequest(controller_epoch=1, broker_epoch=7, topic_states=topics)
    expected = ErrorCode.INCONSISTENT_TOPIC_ID if 0 in isr else ErrorCode.NONE
    assert errors(broker.ask(ApiKey.LEADER_AND_ISR, 7, request)) == [expected]
    assert (broker.replica("u").topic_id == other) is (0 not in isr)


def test_a_namesake_that_cannot_be_ended_holds_up_its_own_partition_only(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others of the same order are led, and it is ended when the order is tried again."""
    broker.lead("u", 2)
    stop_following = type(broker.node.fetcher_manager).stop_following
    faults = [RuntimeError("nobody foresaw this")]

    def fail(manager: Any, topic_partition: TopicPartition) -> None:
        if topic_partition.partition == 0 and faults:
            raise faults.pop()
        stop_following(manager, topic_partition)

    monkeypatch.setattr(type(broker.node.fetcher_manager), "stop_following", fail)
    broker.settings.topics["u"] = {"retention.ms": "1234"}
    other = another_topic(broker, "u", [0])
    assert errors(broker.lead("u", 2, topic_id=other)) == [ErrorCode.UNKNOWN_SERVER_ERROR, 0]
    broker.shell.advance(1_000)
    for partition in range(2):
        assert broker.replica("u", partition).topic_id == other
        assert broker.replica("u", partition).leader is not None
        assert broker.replica("u", partition).log.config.retention_ms == 1234


def test_invalid_names_never_reach_the_disk(broker: Broker) -> None:
    """A topic name is checked again before it becomes a folder."""
    assert errors(broker.lead("../escape")) == [ErrorCode.INVALID_TOPIC_EXCEPTION]


@pytest.mark.parametrize("step", ["brokers changed", "topics deleted", "partitions deleted", "marks"])
def test_an_error_as_metadata_are_taken_in_keeps_nothing_else_from_being_done(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    """A topic was deleted and made again. The controller would tell it again, but what is known already changes
    nothing: the new topic's settings would never be read, and what a group has committed for the old one would stay."""
    node = broker.node
    broker.lead("u")
    read: list[str] = []
    deleted: list[TopicPartition] = []
    looked: list[int] = []

    def fail(*arguments: object, **options: object) -> None:
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr(node.config_handler, "topics_changed", lambda new, gone: read.extend(new))
    monkeypatch.setattr(node, "partitions_deleted", deleted.extend)
    monkeypatch.setattr(node.recopies, "look", lambda: looked.append(1))
    match step:
        case "brokers changed":
            node.metadata.on_brokers_changed.insert(0, fail)
        case "topics deleted":
            node.metadata.on_topics_deleted.insert(0, fail)
        case "partitions deleted":
            monkeypatch.setattr(node, "partitions_deleted", fail)
        case _:
            monkeypatch.setattr(node.marks, "metadata_changed", fail)
    heard: list[object] = []
    node.metadata.on_brokers_changed.append(lambda: heard.append("brokers"))
    node.metadata.on_topics_deleted.append(heard.append)
    broker.live = (0, 1)
    other = another_topic(broker, "u", [0])
    assert node.metadata.image.topics["u"].topic_id == other
    assert heard == ["brokers", frozenset([topic_id_of("u")])]
    assert (read, looked) == (["u"], [1])
    assert deleted == ([] if step == "partitions deleted" else [TopicPartition("u", 0)])
    assert "nobody foresaw this" in caplog.text


def test_many_logs_are_created_over_several_turns(broker: Broker) -> None:
    """The loop gets its turn between logs, and all are there in the end."""
    turns: list[object] = []
    soon = broker.shell.soon
    broker.shell.soon = lambda callback, *arguments: (turns.append(callback), soon(callback, *arguments))  # type: ignore[method-assign]
    assert errors(broker.lead("many", 3 * leadership.LOGS_PER_TURN)) == [0] * 3 * leadership.LOGS_PER_TURN
    assert len(turns) >= 2
    assert len(list(broker.node.replicas.of_topic("many"))) == 3 * leadership.LOGS_PER_TURN


def test_many_partitions_are_taken_up_and_stopped_over_several_turns(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop gets its turn between partitions; what is ordered meanwhile waits until all of them have it."""
    monkeypatch.setattr(leadership, "PARTITIONS_PER_TURN", 2)
    monkeypatch.setattr(replica_stops, "LOGS_PER_TURN", 3)
    broker.lead("many", 5)
    node, shell = broker.node, broker.shell
    lead, stop = messages.LeaderAndIsrRequest, messages.StopReplicaRequest
    state = lead.LeaderAndIsrPartitionState
    followers = node.leadership.lead_or_follow(
        lead(
            controller_epoch=1,
            topic_states=[
                lead.LeaderAndIsrTopicState(
                    topic_name="many",
                    topic_id=topic_id_of("many"),
                    partition_states=[
                        state(partition_index=index, leader=1, leader_epoch=1, isr=[1], replicas=[0, 1])
                        for index in range(5)
                    ],
                )
            ],
        )
    )
    stopped = node.leadership.stop(
        stop(
            controller_epoch=1,
            topic_states=[
                stop.StopReplicaTopicState(
                    topic_name="many",
                    partition_states=[
                        stop.StopReplicaPartitionState(partition_index=index, leader_epoch=1, delete_partition=True)
                        for index in range(5)
                    ],
                )
            ],
        )
    )
    assert [replica.leader_epoch for replica in node.replicas.of_topic("many")] == [1, 1, 0, 0, 0]
    shell.run_turn()
    assert [replica.leader_epoch for replica in node.replicas.of_topic("many")] == [1, 1, 1, 1, 0]
    assert not followers.done
    shell.run_turn()
    assert followers.done
    assert [replica.topic_partition.partition for replica in node.replicas.of_topic("many")] == [3, 4]
    shell.run_turns()
    assert set(followers.result().values()) == set(stopped.result().values()) == {ErrorCode.NONE}
    assert not list(node.replicas.of_topic("many"))


@pytest.mark.row("R08")
def test_deleting_takes_the_partition_and_its_folder(broker: Broker) -> None:
    """StopReplica with delete: the replica is gone, the folder has its .delete name, clients are told."""
    directory = Path(broker.replica("t").log.directory)
    response = broker.delete("t")
    assert [error.error_code for error in response.partition_errors] == [0]
    assert broker.replica("t") is None
    assert not directory.exists()
    assert any(path.name.endswith("-delete") for path in directory.parent.iterdir())
    assert broker.produce("t").error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert [error.error_code for error in broker.delete("t").partition_errors] == [0], "Once more does no harm."


def test_a_log_that_may_lie_in_an_offline_directory_is_not_deleted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller would forget the topic, and its folder would stay. A deletion that was done may be repeated."""
    absent = broker.node.logs.absent
    failed = SimpleNamespace(failure="at the start", removed=set())
    monkeypatch.setattr(absent, "_directories", [*absent._directories, failed])
    for topic, expected in (("t", 0), ("t", 0), ("elsewhere", ErrorCode.KAFKA_STORAGE_ERROR)):
        assert [error.error_code for error in broker.delete(topic).partition_errors] == [expected]


def test_stopping_without_deleting_keeps_the_log(broker: Broker) -> None:
    """StopReplica without delete ends the leadership only; an old leader epoch is fenced."""
    broker.lead("t", 3, leader_epoch=2)
    state = messages.StopReplicaRequest.StopReplicaPartitionState

    def stop(leader_epoch: int) -> int:
        request = messages.StopReplicaRequest(
            controller_epoch=1,
            broker_epoch=7,
            topic_states=[
                messages.StopReplicaRequest.StopReplicaTopicState(
                    topic_name="t", partition_states=[state(partition_index=0, leader_epoch=leader_epoch)]
                )
            ],
        )
        return broker.ask(ApiKey.STOP_REPLICA, 4, request).partition_errors[0].error_code

    assert stop(1) == ErrorCode.FENCED_LEADER_EPOCH
    assert broker.replica("t").leader is not None
    assert stop(2) == 0
    assert broker.replica("t").leader is None
    assert broker.produce("t").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.row("R07")
def test_topic_settings_take_effect_while_running(broker: Broker) -> None:
    """What the store says of a topic holds from then on, and its withdrawal brings the default back."""
    resource = ConfigResource(ConfigResourceType.TOPIC, "t")
    broker.node.config_handler.settings_changed(resource, {"max.message.bytes": "100", "flush.messages": "1"})
    assert broker.produce("t", [bytes(200)]).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert broker.replica("t").leader.flush_before_acknowledge
    broker.node.config_handler.settings_changed(resource, {})
    assert broker.produce("t", [bytes(200)]).error_code == 0
    assert not broker.replica("t").leader.flush_before_acknowledge


def test_broker_settings_take_effect_while_running(broker: Broker) -> None:
    """A dynamic broker setting is the new default of all topics that don't set their own."""
    broker.node.config_handler.settings_changed(ConfigResource(ConfigResourceType.TOPIC, "u"), {"retention.ms": "5"})
    broker.lead("u")
    broker.settings.topics["u"] = {"retention.ms": "5"}
    broker.node.config_handler.settings_changed(
        ConfigResource(ConfigResourceType.BROKER, ""), {"log.retention.ms": "7"}
    )
    assert broker.replica("t").log.config.retention_ms == 7


def all_there_is(
    broker: Broker, replicas: list[list[int]], *, topic_id: bytes | None = None, type: int = FULL_UPDATE
) -> None:
    """The controller tells the whole cluster's metadata: one topic."""
    update = messages.UpdateMetadataRequest
    states = [
        update.UpdateMetadataPartitionState(
            partition_index=index,
            controller_epoch=1,
            leader=ids[0],
            leader_epoch=5,
            isr=ids,
            zk_version=9,
            replicas=ids,
            offline_replicas=[],
        )
        for index, ids in enumerate(replicas)
    ]
    id = topic_id_of("t") if topic_id is None else topic_id
    topic = update.UpdateMetadataTopicState(topic_name="t", topic_id=TopicId(id), partition_states=states)
    assert broker.tell_brokers([topic], live=[0, 1, 2], type=type).error_code == 0


def test_a_replica_that_moved_while_nobody_told_is_put_aside(broker: Broker) -> None:
    """Its broker was away, or the controller died before it gave the order: nothing is served, nothing is deleted."""
    broker.produce("t", [b"a"])
    folder = Path(broker.replica("t").log.directory)
    all_there_is(broker, [[1, 2], [1, 0], [0]])
    assert broker.node.replicas.get(TopicPartition("t", 0)) is None
    assert broker.node.logs.get(TopicPartition("t", 0)) is None
    assert not folder.exists()
    [stray] = [path for path in folder.parent.iterdir() if path.name.endswith("-stray")]
    assert (stray / "00000000000000000000.log").stat().st_size > 0
    assert [broker.node.replicas.get(TopicPartition("t", index)) is None for index in (1, 2)] == [False, False]
    assert errors(broker.lead("t", 1, leader=1, leader_epoch=6, isr=[1, 2], replicas=[1, 2, 0])) == [0]
    assert broker.replica("t").log.log_end_offset == 0


def test_a_replica_that_cannot_be_put_aside_spares_the_others(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What nobody foresaw goes wrong with the first one: it is said, and the others are put aside."""
    broker.lead("t", 2, leader_epoch=1)
    remove = broker.node.replicas.remove

    def fail(topic_partition: TopicPartition) -> Any:
        if topic_partition.partition == 0:
            raise RuntimeError("nobody foresaw this")
        return remove(topic_partition)

    monkeypatch.setattr(broker.node.replicas, "remove", fail)
    all_there_is(broker, [[1, 2], [1, 2]])
    assert broker.node.logs.get(TopicPartition("t", 1)) is None
    assert "nobody foresaw this" in caplog.text


def test_a_folder_whose_topic_was_never_written_down_is_put_aside_too(broker: Broker) -> None:
    """The disk failed as the folder was made, and the partition went elsewhere before the broker was back."""
    broker.lead("t", 4, topic_id=bytes(16), leader_epoch=1)
    folder = Path(broker.replica("t", 3).log.directory)
    assert broker.replica("t", 3).log.topic_id is None
    all_there_is(broker, [[0], [0], [0], [1, 2]])
    assert broker.node.logs.get(TopicPartition("t", 3)) is None
    assert not folder.exists()


@pytest.mark.parametrize("reason", ["another topic of that name", "only what changed", "the topic is not there"])
def test_a_replica_is_put_aside_only_where_the_whole_cluster_says_so(broker: Broker, reason: str) -> None:
    """And of this very topic."""
    match reason:
        case "another topic of that name":
            all_there_is(broker, [[1, 2]], topic_id=bytes(range(16)))
        case "only what changed":
            all_there_is(broker, [[1, 2]], type=0)
        case _:
            broker.tell_brokers(type=FULL_UPDATE)
    assert broker.replica("t").leader is not None


@pytest.mark.row("R07")
def test_settings_altered_while_logs_are_made_hold_for_all_of_them(broker: Broker) -> None:
    """Logs are made in many turns: whenever the change comes, each has it, and so have those that come later."""
    topic, count, turns = ConfigResource(ConfigResourceType.TOPIC, "t"), 5 * LOGS_PER_TURN, 0
    broker.settings.topics["t"] = {"retention.ms": "1"}
    state = messages.LeaderAndIsrRequest.LeaderAndIsrPartitionState
    order = messages.LeaderAndIsrRequest(
        controller_id=0,
        controller_epoch=1,
        broker_epoch=7,
        topic_states=[
            messages.LeaderAndIsrRequest.LeaderAndIsrTopicState(
                topic_name="t",
                topic_id=TopicId(topic_id_of("t")),
                partition_states=[
                    state(partition_index=index, isr=[0], replicas=[0], is_new=True) for index in range(count)
                ],
            )
        ],
    )
    done = broker.node.leadership.lead_or_follow(order)
    while not done.done:
        turns += 1
        if turns == 2:
            assert 0 < len(broker.node.replicas) < count
            broker.node.config_handler.settings_changed(topic, {"retention.ms": "-1"})
        broker.shell.run_turn()
    assert turns > 2
    assert [replica.log.config.retention_ms for replica in broker.node.replicas] == count * [-1]


def test_logs_that_no_controller_has_spoken_of_get_settings_too(broker: Broker) -> None:
    """Retention looks at them."""
    log = broker.logs.create(TopicPartition("u", 0), None)
    broker.node.config_handler.settings_changed(ConfigResource(ConfigResourceType.TOPIC, "u"), {"retention.ms": "-1"})
    assert log.config.retention_ms == -1
    broker.node.config_handler.settings_changed(
        ConfigResource(ConfigResourceType.BROKER, ""), {"log.retention.bytes": "77"}
    )
    assert (log.config.retention_ms, log.config.retention_bytes) == (-1, 77)
