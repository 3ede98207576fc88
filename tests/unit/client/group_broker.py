"""A scripted broker that coordinates one group, of one member unless a test says otherwise, and transactions."""

from __future__ import annotations

import threading
from typing import Any

from tests.unit.client.log_broker import LogBroker

from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

MEMBER = "member-1"


class GroupBroker(LogBroker):
    """Every JoinGroup is answered at once, with the member as leader; its own assignment comes back from SyncGroup.

    `fail_next` answers so many requests of an API with an error; `committed` is [partition] -> offset.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.generation = 0
        self.others: list[Any] = []
        """Members beside ours, as a JoinGroup response lists them."""
        self.rejoins = threading.Event()
        """A JoinGroup after the first generation waits for it, as for other members."""
        self.rejoins.set()
        self.committed: dict[int, int] = {}
        self.transaction_version = 2
        self.epoch = 0
        self.ended: list[bool] = []
        """Of each transaction, whether it was committed."""
        self.handlers |= {
            ApiKey.FIND_COORDINATOR: self._find,
            ApiKey.JOIN_GROUP: self._join,
            ApiKey.SYNC_GROUP: self._sync,
            ApiKey.HEARTBEAT: lambda request, version: self._code(ApiKey.HEARTBEAT, messages.HeartbeatResponse),
            ApiKey.LEAVE_GROUP: lambda request, version: messages.LeaveGroupResponse(),
            ApiKey.OFFSET_COMMIT: self._commit,
            ApiKey.OFFSET_FETCH: self._committed,
            ApiKey.INIT_PRODUCER_ID: self._init,
            ApiKey.ADD_PARTITIONS_TO_TXN: self._add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: lambda request, version: self._code(
                ApiKey.ADD_OFFSETS_TO_TXN, messages.AddOffsetsToTxnResponse
            ),
            ApiKey.TXN_OFFSET_COMMIT: self._commit,
            ApiKey.END_TXN: self._end,
        }

    def _api_versions(self, request: Any, version: int) -> Any:
        response = super()._api_versions(request, version)
        if version >= 3:
            feature = messages.ApiVersionsResponse.FinalizedFeatureKey
            level = self.transaction_version
            response.finalized_features = [
                feature(name="transaction.version", max_version_level=level, min_version_level=level)
            ]
            response.finalized_features_epoch = 1
        return response

    def _code(self, key: ApiKey, response: Any) -> Any:
        failure = self._failure(key)
        if failure is not None and not isinstance(failure, ErrorCode):
            return failure
        return response(error_code=failure or ErrorCode.NONE)

    def _find(self, request: Any, version: int) -> Any:
        kind = messages.FindCoordinatorResponse
        if version < 4:
            return kind(node_id=1, host="127.0.0.1", port=self.port)
        return kind(
            coordinators=[
                kind.Coordinator(key=key, node_id=1, host="127.0.0.1", port=self.port)
                for key in request.coordinator_keys
            ]
        )

    def _join(self, request: Any, version: int) -> Any:
        kind = messages.JoinGroupResponse
        failure = self._failure(ApiKey.JOIN_GROUP)
        if failure is not None:
            return kind(error_code=failure, generation_id=-1, protocol_name="", member_id=request.member_id)
        if not request.member_id and request.group_instance_id is None:
            return kind(error_code=ErrorCode.MEMBER_ID_REQUIRED, generation_id=-1, protocol_name="", member_id=MEMBER)
        if self.generation:
            assert self.rejoins.wait(180)
        self.generation += 1
        protocol = request.protocols[0]
        ours = kind.JoinGroupResponseMember(
            member_id=MEMBER, group_instance_id=request.group_instance_id, metadata=bytes(protocol.metadata)
        )
        return kind(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=protocol.name,
            leader=MEMBER,
            member_id=MEMBER,
            members=[ours, *self.others],
        )

    def _sync(self, request: Any, version: int) -> Any:
        kind = messages.SyncGroupResponse
        failure = self._failure(ApiKey.SYNC_GROUP)
        if failure is not None:
            return kind(error_code=failure, assignment=b"")
        assignment = {entry.member_id: bytes(entry.assignment) for entry in request.assignments}
        return kind(protocol_type="consumer", protocol_name=request.protocol_name, assignment=assignment[MEMBER])

    def _commit(self, request: Any, version: int) -> Any:
        failure = self._failure(request.API_KEY) or ErrorCode.NONE
        transactional = request.API_KEY is ApiKey.TXN_OFFSET_COMMIT
        kind: Any = messages.TxnOffsetCommitResponse if transactional else messages.OffsetCommitResponse
        topic_kind = kind.TxnOffsetCommitResponseTopic if transactional else kind.OffsetCommitResponseTopic
        part_kind = kind.TxnOffsetCommitResponsePartition if transactional else kind.OffsetCommitResponsePartition
        topics = []
        for topic in request.topics:
            if failure is ErrorCode.NONE:
                self.committed |= {entry.partition_index: entry.committed_offset for entry in topic.partitions}
            partitions = [
                part_kind(partition_index=entry.partition_index, error_code=failure) for entry in topic.partitions
            ]
            answer = topic_kind(name=topic.name, partitions=partitions)
            if not transactional and version >= 10:
                answer.name, answer.topic_id = "", topic.topic_id
            topics.append(answer)
        return kind(topics=topics)

    def _committed(self, request: Any, version: int) -> Any:
        kind = messages.OffsetFetchResponse
        failure = self._failure(ApiKey.OFFSET_FETCH) or ErrorCode.NONE
        (group,) = request.groups
        topics = [
            kind.OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    kind.OffsetFetchResponsePartitions(
                        partition_index=partition,
                        committed_offset=self.committed.get(partition, -1),
                        metadata="",
                        error_code=failure,
                    )
                    for partition in topic.partition_indexes
                ],
            )
            for topic in group.topics
        ]
        return kind(groups=[kind.OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)])

    def _init(self, request: Any, version: int) -> Any:
        failure = self._failure(ApiKey.INIT_PRODUCER_ID)
        if failure is not None:
            return messages.InitProducerIdResponse(error_code=failure, producer_id=-1, producer_epoch=-1)
        self.epoch += 1
        return messages.InitProducerIdResponse(producer_id=42, producer_epoch=self.epoch)

    def _add_partitions(self, request: Any, version: int) -> Any:
        kind = messages.AddPartitionsToTxnResponse
        failure = self._failure(ApiKey.ADD_PARTITIONS_TO_TXN) or ErrorCode.NONE
        return kind(
            results_by_topic_v3_and_below=[
                kind.AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        kind.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=failure)
                        for index in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        )

    def _end(self, request: Any, version: int) -> Any:
        failure = self._failure(ApiKey.END_TXN)
        if failure is not None:
            return messages.EndTxnResponse(error_code=failure)
        self.ended.append(request.committed)
        if version >= 5:
            self.epoch += 1
            return messages.EndTxnResponse(producer_id=42, producer_epoch=self.epoch)
        return messages.EndTxnResponse()
