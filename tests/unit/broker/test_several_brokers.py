"""Several brokers: who controls, how the others reach it, what happens when sessions end and brokers leave."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from tests.unit.broker.harness import make_batch
from tests.unit.broker.several import Brokers, brokers_of, run
from tests.waiting import eventually

from tidelog.broker.cluster import controller_term, forwarding
from tidelog.broker.deferred import Deferred
from tidelog.broker.failure import BrokerFailed
from tidelog.broker.requests.starting import StartingDispatcher
from tidelog.client.connection import Connection
from tidelog.metadata import znodes
from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import format_topic_id
from tidelog.protocol import messages
from tidelog.storage.log_directory import LogDirectory
from tidelog.store.local import LocalStore

SPREAD = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]


def names(brokers: Brokers, number: int) -> set[str]:
    return set(brokers.running[number].node.metadata.image.topics)


def epoch_of(brokers: Brokers, number: int) -> int:
    """czxid of a broker's registration as the store has it; -1 where there is none."""
    stat = brokers.store.tree.exists(znodes.broker_path(number))
    return -1 if stat is None else stat.czxid


def epoch_of_controller(brokers: Brokers) -> bytes | None:
    """As the store has it."""
    return brokers.store.tree.get(znodes.CONTROLLER_EPOCH)[0]


async def metadata(connection: Connection, topic: str) -> messages.MetadataResponse.MetadataResponseTopic:
    topics = [messages.MetadataRequest.MetadataRequestTopic(name=topic)]
    response = await connection.request(messages.MetadataRequest(topics=topics, allow_auto_topic_creation=True), 12)
    return response.topics[0]


async def alter(brokers: Brokers, asked: int, topic: str, name: str, value: str) -> None:
    """IncrementalAlterConfigs of one setting of a topic."""
    request = messages.IncrementalAlterConfigsRequest
    connection = await brokers.connect(asked)
    response = await connection.request(
        request(
            resources=[
                request.AlterConfigsResource(
                    resource_type=ConfigResourceType.TOPIC,
                    resource_name=topic,
                    configs=[request.AlterableConfig(name=name, value=value)],
                )
            ]
        )
    )
    assert response.responses[0].error_code == ErrorCode.NONE


async def produce(connection: Connection, topic: str, value: bytes) -> int:
    """One record into partition 0, acknowledged by all replicas in sync; the error code."""
    request = messages.ProduceRequest
    data = request.PartitionProduceData(index=0, records=make_batch([value]))
    topics = [request.TopicProduceData(name=topic, partition_data=[data])]
    response = await connection.request(request(acks=-1, timeout_ms=5_000, topic_data=topics), 9)
    return int(response.responses[0].partition_responses[0].error_code)


def test_any_broker_creates_topics_and_tells_of_them(tmp_path: Path) -> None:
    """The answer comes when the broker that was asked, and those that lead, know the topic."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 3) as brokers:
            for asked in range(3):
                result = await brokers.create(asked, f"t{asked}", SPREAD)
                assert (result.error_code, result.num_partitions) == (ErrorCode.NONE, 3)
                assert brokers.leaders(asked, f"t{asked}") == [0, 1, 2]
                for number, runtime in brokers.running.items():
                    assert [replica.leader is not None for replica in runtime.node.replicas.of_topic(f"t{asked}")] == [
                        partition == number for partition in range(3)
                    ]
            refused = await brokers.create(2, "t0", SPREAD)
            assert refused.error_code == ErrorCode.TOPIC_ALREADY_EXISTS

    run(check())


def test_a_topic_is_created_by_asking_any_broker_for_it(tmp_path: Path) -> None:
    """auto.create.topics.enable: a broker that does not control asks the controller, and names the leader."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2) as brokers:
            asked = 1 - brokers.controller
            topic = await metadata(await brokers.connect(asked), "auto")
            assert topic.error_code == ErrorCode.NONE
            assert topic.partitions[0].leader_id in (0, 1)

    run(check())


def test_partitions_and_settings_changed_by_any_broker_are_in_force_there(tmp_path: Path) -> None:
    """CreatePartitions, IncrementalAlterConfigs and DeleteTopics, each asked of a broker that does not control."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2) as brokers:
            asked = 1 - brokers.controller
            node = brokers.running[asked].node
            await brokers.create(asked, "t", [[asked]])
            connection = await brokers.connect(asked)
            more = messages.CreatePartitionsRequest
            response = await connection.request(
                more(topics=[more.CreatePartitionsTopic(name="t", count=4, assignments=None)], timeout_ms=5_000)
            )
            assert response.results[0].error_code == ErrorCode.NONE
            assert len(brokers.leaders(asked, "t")) == 4
            await alter(brokers, asked, "t", "retention.ms", "12345")
            (first, *_) = [log for log in node.logs.logs() if log.topic_partition.topic == "t"]
            assert first.config.retention_ms == 12_345
            delete = messages.DeleteTopicsRequest
            response = await connection.request(delete(topics=[delete.DeleteTopicState(name="t")], timeout_ms=5_000), 6)
            assert response.responses[0].error_code == ErrorCode.NONE
            assert "t" not in names(brokers, asked)

    run(check())


def test_producer_ids_of_all_brokers_are_different(tmp_path: Path) -> None:
    """Each broker has blocks of its own from the controller."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 3) as brokers:
            given = []
            for asked in range(3):
                connection = await brokers.connect(asked)
                request = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
                given += [(await connection.request(request, 4)).producer_id for _ in range(2)]
            assert len(set(given)) == 6

    run(check())


def test_a_controller_that_dies_is_followed_by_another_while_clients_ask(tmp_path: Path) -> None:
    """Requests that come while nobody controls wait for the next controller."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 3) as brokers:
            first = brokers.controller
            asked = (first + 1) % 3
            expiring = brokers.sessions[first].expire()
            creating = brokers.create(asked, "t", [[asked]])
            _, result = await asyncio.gather(expiring, creating)
            assert result.error_code == ErrorCode.NONE
            await eventually(lambda: brokers.controller >= 0)

    run(check())


def test_a_broker_whose_session_expired_registers_anew(tmp_path: Path) -> None:
    """It gets a new epoch and follows the cluster again; what it led, another leads meanwhile."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 3) as brokers:
            await brokers.create(0, "t", SPREAD)
            lost = (brokers.controller + 1) % 3
            node, before = brokers.running[lost].node, epoch_of(brokers, lost)
            assert node.broker_epoch == before
            await brokers.sessions[lost].expire()
            await eventually(lambda: node.broker_epoch > before, "a new epoch")
            assert node.broker_epoch == epoch_of(brokers, lost)
            other = (lost + 1) % 3
            await eventually(lambda: lost not in brokers.leaders(other, "t"), "another leader")
            await eventually(lambda: brokers.leaders(lost, "t") == brokers.leaders(other, "t"), "the same picture")
            assert (await brokers.create(lost, "u", [[lost]])).error_code == ErrorCode.NONE

    run(check())


def test_a_broker_whose_session_ends_while_it_starts_opens_another(tmp_path: Path) -> None:
    """At whichever call it happens, the last one too; what is altered meanwhile is known when the broker is ready."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 1) as brokers:
            await brokers.create(0, "t", [[0]])
            for calls in range(60):
                brokers.calls_left = calls
                await brokers.start(1)
                ended = brokers.sessions[1].calls_left is None
                assert brokers.running[1].node.broker_epoch == epoch_of(brokers, 1) > 0
                assert names(brokers, 1) == {"t"}
                await brokers.stop(1, hand_over=False)
                if not ended:
                    break
            assert not ended, "the broker makes more calls than this test tries"
            assert calls > 10

    run(check())


def test_a_topic_that_was_deleted_while_a_broker_was_away_is_forgotten_there(tmp_path: Path) -> None:
    """The broker was not told of the deletion, but comes back without having been restarted."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2) as brokers:
            staying = brokers.controller
            away = 1 - staying
            for topic in ("kept", "deleted"):
                await brokers.create(staying, topic, [[staying]])
            brokers.store_away = asyncio.Event()
            await brokers.sessions[away].expire()
            delete = messages.DeleteTopicsRequest
            connection = await brokers.connect(staying)
            await connection.request(delete(topics=[delete.DeleteTopicState(name="deleted")], timeout_ms=5_000), 6)
            assert names(brokers, staying) == {"kept"}
            assert names(brokers, away) == {"kept", "deleted"}
            brokers.store_away.set()
            await eventually(lambda: names(brokers, away) == {"kept"})

    run(check())


def test_the_controller_itself_loses_its_session(tmp_path: Path) -> None:
    """It resigns at once, another takes over, and it comes back as an ordinary broker."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2) as brokers:
            first = brokers.controller
            await brokers.sessions[first].expire()
            assert not brokers.running[first].node.controller.is_here
            await eventually(lambda: brokers.controller == 1 - first, "another controller")
            await eventually(lambda: epoch_of(brokers, first) == brokers.running[first].node.broker_epoch)
            assert (await brokers.create(first, "t", [[0, 1]])).error_code == ErrorCode.NONE

    run(check())


def test_a_suspected_controller_waits_until_its_connection_is_back(tmp_path: Path) -> None:
    """Without connection it decides nothing; with its session still alive it goes on, knowing what changed."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2) as brokers:
            first = brokers.controller
            epoch = epoch_of_controller(brokers)
            brokers.sessions[first].suspend()
            asked = asyncio.create_task(brokers.create(1 - first, "t", [[0, 1]]))
            # A tool writes meanwhile: the watch tells of it when the connection is back.
            tool = await LocalStore.connect(brokers.store)
            await tool.create(znodes.topic_path("old"), b'{"version":1,"partitions":{"0":[0]}}')
            brokers.sessions[first].resume()
            assert (await asked).error_code == ErrorCode.NONE
            assert brokers.controller == first
            await eventually(lambda: brokers.leaders(1 - first, "old") == [0])
            assert epoch_of_controller(brokers) == epoch, "it was the controller all the while"

    run(check())


def test_settings_altered_while_a_broker_had_no_connection_are_in_force_there_afterwards(tmp_path: Path) -> None:
    """Its watch was lost with the connection: it looks for notifications when that is back."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2) as brokers:
            suspended = 1 - brokers.controller
            await brokers.create(suspended, "t", [[suspended]])
            (log,) = brokers.running[suspended].node.logs.logs()
            brokers.sessions[suspended].suspend()
            await alter(brokers, brokers.controller, "t", "retention.ms", "12345")
            assert log.config.retention_ms != 12_345
            brokers.sessions[suspended].resume()
            await eventually(lambda: log.config.retention_ms == 12_345)

    run(check())


def silence(brokers: Brokers, number: int) -> None:
    """The broker answers nothing any more, but its connections stand: as if it were paused."""
    server = brokers.running[number]._server
    mute = StartingDispatcher(server.dispatcher._node, {})
    mute.request = lambda *_: Deferred()  # type: ignore[method-assign,assignment]
    server.dispatcher = mute


def test_a_controller_that_hangs_is_left_when_another_is_elected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked of it is asked of the next one at once, not when its time is over, an hour later."""
    monkeypatch.setattr(forwarding, "FORWARDED_MS_MAX", 3_600_000)

    async def check() -> None:
        async with brokers_of(str(tmp_path), 3) as brokers:
            hung = brokers.controller
            asked = (hung + 1) % 3
            silence(brokers, hung)
            creating = asyncio.create_task(brokers.create(asked, "t", [[asked]], timeout_ms=3_600_000))
            # In that order: the request is on its way, and the broker that hangs does not come back.
            await brokers.connect(asked)
            brokers.store_away = asyncio.Event()
            await brokers.sessions[hung].expire()
            result = await creating
            assert result.error_code == ErrorCode.NONE

    run(check())


def test_a_broker_that_hangs_is_waited_for_only_while_it_is_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer waits for those who have to be told, an hour here; whoever is gone need not be."""
    monkeypatch.setattr(controller_term, "ANNOUNCEMENT_WAIT_MS_MAX", 3_600_000)

    async def check() -> None:
        async with brokers_of(str(tmp_path), 3) as brokers:
            asked = brokers.controller
            hung = (asked + 1) % 3
            silence(brokers, hung)
            creating = asyncio.create_task(brokers.create(asked, "t", [[asked]]))
            await eventually(lambda: brokers.leaders(asked, "t") == [asked])
            assert not creating.done()
            await brokers.store.close_session(brokers.sessions[hung].session_id)
            result = await creating
            assert result.error_code == ErrorCode.NONE

    run(check())


@pytest.mark.parametrize("lost", [1, 2, 3, 8])
def test_answers_that_are_lost_are_read_back(tmp_path: Path, lost: int) -> None:
    """Containers, cluster id, registration and election: what was done although nobody said so is found done."""

    async def check() -> None:
        async with Brokers(str(tmp_path)) as brokers:
            brokers.lost_answers = lost
            await brokers.start(0)
            node = brokers.running[0].node
            assert node.broker_epoch == epoch_of(brokers, 0)
            brokers.sessions[0].lost_answers = lost
            # Asked again after its answer was lost, the creation may find its own topic.
            result = await brokers.create(0, "t", [[0]])
            assert result.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
            assert brokers.leaders(0, "t") == [0]

    run(check())


def test_a_lost_answer_to_the_registration_is_read_back(tmp_path: Path) -> None:
    """The node that this very session owns is its registration."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 1) as brokers:
            # All containers are there: the registration is the new session's first write.
            brokers.lost_answers = 1
            await brokers.start(1)
            assert brokers.running[1].node.broker_epoch == epoch_of(brokers, 1)

    run(check())


def test_an_id_that_another_broker_has_is_refused(tmp_path: Path) -> None:
    """The second broker says what to do, and the first goes on."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 1) as brokers:
            first = brokers.running.pop(0)
            with pytest.raises(BrokerFailed, match="Broker id 0 is in use by another running broker"):
                await brokers.start(0, log_dirs=str(tmp_path / "elsewhere"))
            brokers.running[0] = first
            assert (await brokers.create(0, "t", [[0]])).error_code == ErrorCode.NONE

    run(check())


def test_a_session_of_the_former_life_is_waited_for(tmp_path: Path) -> None:
    """A broker that was killed and comes back before its session ended starts when that has ended."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 1) as brokers:
            tool = await LocalStore.connect(brokers.store)
            await tool.create(znodes.broker_path(1), b"{}", ephemeral=True)
            starting = asyncio.create_task(brokers.start(1))
            await eventually(lambda: 1 in brokers.sessions)
            await tool.close()
            await starting
            assert brokers.running[1].node.broker_epoch == epoch_of(brokers, 1)

    run(check())


def test_a_stranger_who_claims_to_control_is_refused_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A higher epoch counts only if the store names its holder; afterwards the real controller is still obeyed."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2) as brokers:
            asked = 1 - brokers.controller
            connection = await brokers.connect(asked)
            for claimed in (brokers.controller, 7):
                for request, version in (
                    (messages.UpdateMetadataRequest(controller_id=claimed, controller_epoch=99), 8),
                    (messages.LeaderAndIsrRequest(controller_id=claimed, controller_epoch=99), 7),
                    (messages.StopReplicaRequest(controller_id=claimed, controller_epoch=99), 4),
                ):
                    response = await connection.request(request, version)
                    assert response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
            same = brokers.running[asked].node.metadata.image.controller_epoch
            response = await connection.request(messages.LeaderAndIsrRequest(controller_id=7, controller_epoch=same), 7)
            assert response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
            assert (await brokers.create(asked, "t", [[asked]])).error_code == ErrorCode.NONE

    with caplog.at_level(logging.WARNING):
        run(check())
    assert sum("is not the controller of epoch" in record.getMessage() for record in caplog.records) == 1


def test_brokers_are_asked_by_their_own_listener_only(tmp_path: Path) -> None:
    """What only brokers may ask is refused to whoever comes by a listener for clients."""

    async def check() -> None:
        async with brokers_of(
            str(tmp_path),
            2,
            listeners="CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
            listener_security_protocol_map="CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
            inter_broker_listener_name="BROKERS",
        ) as brokers:
            assert (await brokers.create(1 - brokers.controller, "t", [[0, 1]])).error_code == ErrorCode.NONE
            connection = await brokers.connect(brokers.controller)
            for request, version in (
                (messages.LeaderAndIsrRequest(controller_id=0, controller_epoch=9), 7),
                (messages.AlterPartitionRequest(broker_id=0), 3),
                (messages.AllocateProducerIdsRequest(broker_id=0), 0),
                (messages.ControlledShutdownRequest(broker_id=0), 3),
                (messages.EnvelopeRequest(request_data=b"", request_principal=None, client_host_address=b""), 0),
                (messages.FetchRequest(replica_state=messages.FetchRequest.ReplicaState(replica_id=1)), 17),
            ):
                response = await connection.request(request, version)
                assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    run(check())


async def leave(leaving: int, staying: int, brokers: Brokers) -> None:
    stopping = asyncio.create_task(brokers.running[leaving].stop())
    await eventually(lambda: leaving not in brokers.leaders(staying, "t"), "another leader")
    assert epoch_of(brokers, leaving) >= 0
    # Whoever asks the leaving broker is told where to go.
    await eventually(lambda: leaving not in brokers.leaders(leaving, "t"), "the news")
    await stopping
    del brokers.running[leaving]
    assert epoch_of(brokers, leaving) == -1


def test_a_broker_that_stops_hands_its_leaderships_over(tmp_path: Path) -> None:
    """When it is gone, the others lead, and had been told before it closed."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 3) as brokers:
            await brokers.create(0, "t", SPREAD)
            controller = brokers.controller
            await leave((controller + 1) % 3, controller, brokers)
            await leave(controller, (controller + 2) % 3, brokers)

    run(check())


def test_a_failed_directory_of_a_broker_that_does_not_control(tmp_path: Path) -> None:
    """The controller learns of it by its notification, takes the leaderships away, and removes the notification."""

    async def check() -> None:
        async with Brokers(str(tmp_path)) as brokers:
            await brokers.start(0)
            await brokers.start(1, log_dirs=f"{tmp_path}/1a,{tmp_path}/1b")
            await brokers.create(0, "t", [[1, 0], [1, 0]])
            node = brokers.running[1].node
            (first, second) = sorted(node.logs.logs(), key=lambda log: log.topic_partition.partition)
            failed = first.folder.owner
            assert isinstance(failed, LogDirectory)
            failed.failed(OSError(5, "Input/output error"), "writing")
            await eventually(lambda: brokers.leaders(0, "t") == [0, 1], "another leader for the failed replica")
            assert second.folder.owner is not failed
            names, _ = brokers.store.tree.children(znodes.LOG_DIRECTORY_EVENTS)
            assert names == []

    run(check())


def test_a_dead_brokers_leaders_are_elsewhere_at_once(tmp_path: Path) -> None:
    """The others lead as soon as its registration is gone."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 3) as brokers:
            await brokers.create(0, "t", SPREAD)
            dead = (brokers.controller + 1) % 3
            runtime = brokers.running[dead]
            runtime._server.stop()
            runtime._peers.close()
            await brokers.store.close_session(brokers.sessions[dead].session_id)
            other = brokers.controller
            loop = asyncio.get_running_loop()
            began = loop.time()
            await eventually(lambda: dead not in brokers.leaders(other, "t"))
            assert loop.time() - began < 1

    run(check())


def test_broken_nodes_are_left_out_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A broken registration, topic, notification or election node harms nothing else; the log has its path."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2) as brokers:
            tool = await LocalStore.connect(brokers.store)
            await tool.create(znodes.broker_path(9), b"{broken", ephemeral=True)
            await tool.create(znodes.topic_path("bad"), b"[]")
            await tool.create(znodes.LOG_DIRECTORY_EVENT_PREFIX, b"{", sequential=True)
            await tool.create(znodes.CONFIG_CHANGE_PREFIX, b"{", sequential=True)
            await tool.create(znodes.PREFERRED_ELECTION, b"{")
            await eventually(lambda: brokers.store.tree.exists(znodes.PREFERRED_ELECTION) is None)
            await eventually(lambda: not brokers.store.tree.children(znodes.LOG_DIRECTORY_EVENTS)[0])
            assert (await brokers.create(1 - brokers.controller, "t", [[0, 1]])).error_code == ErrorCode.NONE

    with caplog.at_level(logging.WARNING):
        run(check())
    for path in (znodes.broker_path(9), znodes.LOG_DIRECTORY_EVENT_PREFIX, znodes.PREFERRED_ELECTION):
        assert any(path in record.getMessage() for record in caplog.records), path


@pytest.mark.parametrize("found", [b"?", b"0"])
def test_a_controller_epoch_that_is_unreadable_or_of_older_data_is_mended(
    tmp_path: Path, found: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The next controller says so, counts on from what is known, and the brokers obey it."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2) as brokers:
            first = brokers.controller
            tool = await LocalStore.connect(brokers.store)
            known = brokers.running[1 - first].node.metadata.image.controller_epoch
            await tool.set(znodes.CONTROLLER_EPOCH, found)
            await tool.delete(znodes.CONTROLLER)
            await eventually(
                lambda: brokers.controller >= 0 and brokers.store.tree.get(znodes.CONTROLLER_EPOCH)[0] != found
            )
            assert (await brokers.create(1 - first, "t", [[0, 1]])).error_code == ErrorCode.NONE
            assert brokers.running[first].node.metadata.image.controller_epoch > known

    with caplog.at_level(logging.ERROR):
        run(check())
    assert any(
        "older data" in record.getMessage() or znodes.CONTROLLER_EPOCH in record.getMessage()
        for record in caplog.records
    )


def test_a_store_that_is_away_stops_no_client(tmp_path: Path) -> None:
    """Records are written and read, metadata told; what needs the store waits, and is done when it is back."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2) as brokers:
            await brokers.create(0, "t", [[0, 1]])
            for session in brokers.sessions.values():
                session.suspend()
            connection = await brokers.connect(0)
            produce = messages.ProduceRequest
            response = await connection.request(
                produce(
                    acks=-1,
                    timeout_ms=5_000,
                    topic_data=[
                        produce.TopicProduceData(
                            name="t",
                            partition_data=[produce.PartitionProduceData(index=0, records=make_batch([b"value"]))],
                        )
                    ],
                ),
                9,
            )
            assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            assert (await metadata(connection, "t")).partitions[0].leader_id == 0
            creating = asyncio.create_task(brokers.create(0, "u", [[0, 1]]))
            await metadata(connection, "t")
            assert not creating.done()
            for session in brokers.sessions.values():
                session.resume()
            assert (await creating).error_code == ErrorCode.NONE

    run(check())


def test_a_controller_that_reads_everything_anew_without_a_store_follows_on(tmp_path: Path) -> None:
    """It knows no brokers until it has read them. What it follows is led by another, which waits for it."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2) as brokers:
            controller = brokers.controller
            leader = 1 - controller
            assert (await brokers.create(leader, "t", [[leader, controller]])).error_code == ErrorCode.NONE
            elections = brokers.running[controller]._driver_of_start().elections
            brokers.sessions[controller].suspend()
            elections.config_changed(ConfigResource(ConfigResourceType.TOPIC, "t"))
            await eventually(lambda: elections.image is not None and not elections.image.brokers)
            connection = await brokers.connect(leader)
            assert await produce(connection, "t", b"value") == ErrorCode.NONE
            brokers.sessions[controller].resume()

    run(check())


def test_topic_ids_agree_everywhere(tmp_path: Path) -> None:
    """The id of the answer is the store's, and every broker's."""

    async def check() -> None:
        async with brokers_of(str(tmp_path), 2) as brokers:
            result = await brokers.create(1 - brokers.controller, "t", [[0, 1]])
            data, _ = brokers.store.tree.get(znodes.topic_path("t"))
            assert format_topic_id(result.topic_id) in (data or b"").decode()
            for runtime in brokers.running.values():
                assert runtime.node.metadata.image.topics["t"].topic_id == result.topic_id

    run(check())
