"""Share partitions of one broker, while they are loaded and read: what may happen meanwhile."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from tests.unit.broker.harness import Broker, topic_id_of

from tidelog.broker.deferred import Deferred
from tidelog.broker.sharing.partitions import SETTINGS_KEPT_MAX
from tidelog.broker.sharing.state_requests import StateRequests
from tidelog.coordinator.share_state.events import StateReply
from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId
from tidelog.ports.disk import FileRange
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.storage.errors import CorruptIndex

TOPIC_ID = TopicId(topic_id_of("t"))
MAX_WAIT_MS = 500


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> list[Deferred[StateReply]]:
    """What the share coordinator is asked; it is silent until a test completes it."""
    asked: list[Deferred[StateReply]] = []

    def ask(requests: StateRequests, event: Any) -> Deferred[StateReply]:
        asked.append(Deferred())
        return asked[-1]

    monkeypatch.setattr(StateRequests, "ask", ask)
    return asked


def fetch(broker: Broker, member: str) -> Any:
    """The first ShareFetch of a member."""
    request = messages.ShareFetchRequest
    partition = request.FetchPartition(partition_index=0)
    wanted = request(
        group_id="g",
        member_id=member,
        share_session_epoch=0,
        max_wait_ms=MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=1 << 20,
        max_records=100,
        batch_size=100,
        topics=[request.FetchTopic(topic_id=TOPIC_ID, partitions=[partition])],
    )
    answer = broker.send(ApiKey.SHARE_FETCH, 1, wanted)
    broker.shell.run_turns()
    return answer


def test_settings_that_are_altered_while_it_is_loaded_hold(broker: Broker, stored: list[Deferred[StateReply]]) -> None:
    broker.lead("t")
    led = broker.node.sharing.partitions.find("g", TOPIC_ID, broker.replica("t"))
    group = ConfigResource(ConfigResourceType.GROUP, "g")
    broker.node.config_handler.settings_changed(group, {"share.record.lock.duration.ms": "20000"})
    stored[0].complete(StateReply(start_offset=0))
    assert led.machine is not None
    assert led.machine.settings.record_lock_duration_ms == 20_000


def test_a_start_that_is_not_found_is_told(
    broker: Broker, stored: list[Deferred[StateReply]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the I/O thread that looked for it met: members are told; their next fetch has it looked for again."""
    broker.lead("t")
    group = ConfigResource(ConfigResourceType.GROUP, "g")
    broker.node.config_handler.settings_changed(group, {"share.auto.offset.reset": "by_duration:PT1H"})

    def look_up(*_: object, **__: object) -> None:
        raise CorruptIndex("An index written anew contradicts its log again.")

    monkeypatch.setattr(type(broker.replica("t").log), "offset_for_timestamp", look_up)
    broker.shell.pool_waits = True
    answer = fetch(broker, "a")
    stored[0].complete(StateReply(start_offset=-1))
    broker.shell.run_pool()
    [refused] = broker.decode_any(ApiKey.SHARE_FETCH, 1, answer.result()).responses[0].partitions
    assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    fetch(broker, "a")
    assert len(stored) == 2


def test_a_start_is_stored_before_it_holds_and_looked_for_anew_where_the_group_begins_anew(
    broker: Broker, stored: list[Deferred[StateReply]]
) -> None:
    """Of the group's state that was made anew meanwhile, members are told nothing."""
    broker.lead("t")
    led = broker.node.sharing.partitions.find("g", TOPIC_ID, broker.replica("t"))
    stored[0].complete(StateReply(state_epoch=1, start_offset=-1))
    assert led.machine is None
    stored[1].fail(KafkaError(ErrorCode.FENCED_STATE_EPOCH))
    assert led.is_current
    stored[2].complete(StateReply(state_epoch=2, start_offset=7))
    assert led.machine is not None
    assert (led.state_epoch, led.machine.start_offset) == (2, 7)


def test_of_a_group_that_is_not_known_nothing_is_kept(broker: Broker, stored: list[Deferred[StateReply]]) -> None:
    """A client that made up groups would fill the memory."""
    broker.lead("t")
    answer = fetch(broker, "a")
    stored[0].fail(KafkaError(ErrorCode.INVALID_REQUEST))
    [refused] = broker.decode_any(ApiKey.SHARE_FETCH, 1, answer.result()).responses[0].partitions
    assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    partitions = broker.node.sharing.partitions
    assert list(partitions) == []
    for number in range(SETTINGS_KEPT_MAX + 1):
        assert partitions.settings(f"group {number}") == partitions.settings("g")
    assert len(partitions._settings) <= SETTINGS_KEPT_MAX


def test_a_read_that_fails_holds_up_no_other_member(
    broker: Broker, stored: list[Deferred[StateReply]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that has to be opened again cannot be, for a moment: the member whose fetch reads is told so, and another
    one's, which waited for that read, goes on."""
    broker.lead("t")
    broker.produce("t", [b"a"])
    broker.shell.pool_waits = True
    first, second = fetch(broker, "a"), fetch(broker, "b")
    stored[0].complete(StateReply(start_offset=0))

    def refuse(_: FileRange) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(FileRange, "read", refuse)
        broker.shell.run_pool()
    [refused] = broker.decode_any(ApiKey.SHARE_FETCH, 1, first.result()).responses[0].partitions
    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    broker.shell.run_pool()
    [found] = broker.decode_any(ApiKey.SHARE_FETCH, 1, second.result()).responses[0].partitions
    assert [(each.first_offset, each.last_offset) for each in found.acquired_records] == [(0, 0)]
