"""A follower by hand: its fetches as they travel, and the answers decoded."""

from __future__ import annotations

from typing import Any

from tests.unit.broker.harness import Broker, topic_id_of

from tidelog.broker.deferred import Deferred
from tidelog.model.identifiers import TopicId
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

VERSION = 17


class Follower:
    """Broker `broker_id`, which fetches from the leader under test in one session."""

    def __init__(self, leader: Broker, broker_id: int = 1, *, epoch: int = 50) -> None:
        self.leader = leader
        self.broker_id = broker_id
        self.epoch = epoch
        """Of its registration."""
        self.session_id = 0
        self.session_epoch = 0

    def request(
        self,
        offsets: dict[tuple[str, int], int] | None = None,
        *,
        leader_epoch: int = 0,
        last_fetched_epoch: int = -1,
        log_start: int = 0,
        min_bytes: int = 1,
        max_wait_ms: int = 500,
        max_bytes: int = 1 << 20,
        partition_max_bytes: int = 1 << 20,
        forget: tuple[tuple[str, int], ...] = (),
    ) -> messages.FetchRequest:
        request = messages.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
        )
        request.replica_state.replica_id = self.broker_id
        request.replica_state.replica_epoch = self.epoch
        for (topic, partition), offset in (offsets or {}).items():
            request.topics.append(
                messages.FetchRequest.FetchTopic(
                    topic_id=TopicId(topic_id_of(topic)),
                    partitions=[
                        messages.FetchRequest.FetchPartition(
                            partition=partition,
                            current_leader_epoch=leader_epoch,
                            fetch_offset=offset,
                            last_fetched_epoch=last_fetched_epoch,
                            log_start_offset=log_start,
                            partition_max_bytes=partition_max_bytes,
                        )
                    ],
                )
            )
        for topic, partition in forget:
            request.forgotten_topics_data.append(
                messages.FetchRequest.ForgottenTopic(topic_id=TopicId(topic_id_of(topic)), partitions=[partition])
            )
        return request

    def send(self, offsets: dict[tuple[str, int], int] | None = None, **fields: Any) -> Any:
        """The encoded answer, or the deferred of one that waits."""
        answer = self.leader.send(ApiKey.FETCH, VERSION, self.request(offsets, **fields))
        if self.session_id:
            self.session_epoch += 1
        return answer

    def fetch(self, offsets: dict[tuple[str, int], int] | None = None, **fields: Any) -> Any:
        """The whole decoded answer of a request that does not wait."""
        answer = self.send(offsets, **{"max_wait_ms": 0, **fields})
        assert not isinstance(answer, Deferred) or answer.done, "It waits."
        return self.read(answer)

    def read(self, answer: Any) -> Any:
        """Decodes an answer, and takes up the session that it gives."""
        if isinstance(answer, Deferred):
            answer = answer.result()
        response = self.leader.decode(ApiKey.FETCH, VERSION, answer)
        if response.session_id and not self.session_id:
            self.session_id, self.session_epoch = response.session_id, 1
        return response

    def one(self, topic: str = "t", offset: int = 0, **fields: Any) -> Any:
        """The answer's only partition, of a request that names it."""
        (data,) = partitions(self.fetch({(topic, 0): offset}, **fields)).values()
        return data


def partitions(response: messages.FetchResponse) -> dict[tuple[bytes, int], messages.FetchResponse.PartitionData]:
    """`(topic id, partition) -> its data`, in the order of the answer."""
    return {
        (bytes(topic.topic_id), data.partition_index): data for topic in response.responses for data in topic.partitions
    }


def indexes(response: messages.FetchResponse) -> list[int]:
    """The partitions that an answer names."""
    return [data.partition_index for topic in response.responses for data in topic.partitions]


def led(
    broker: Broker,
    topic: str = "t",
    count: int = 1,
    *,
    isr: tuple[int, ...] = (0, 1),
    live: tuple[int, ...] = (0, 1, 2),
    **fields: Any,
) -> Broker:
    """Makes `broker` lead partitions with replicas 0, 1 and 2, of which `live` are."""
    broker.tell_brokers(live=live)
    broker.lead(topic, count, isr=list(isr), replicas=[0, 1, 2], **fields)
    return broker
