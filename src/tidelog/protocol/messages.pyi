"""Generated from the message table by `python -m tidelog.protocol.stubs`. Change the table instead."""

from collections.abc import Sequence
from typing import Any

from tidelog.model.identifiers import TopicId
from tidelog.ports.disk import Chunk
from tidelog.protocol.apis import ApiKey
from tidelog.protocol.classes import Message as Message
from tidelog.protocol.classes import Structure as Structure

def request_class(key: ApiKey) -> type[Any]: ...
def response_class(key: ApiKey) -> type[Any]: ...

class RequestHeader(Message):
    request_api_key: int
    request_api_version: int
    correlation_id: int
    client_id: str | None
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        request_api_key: int = 0,
        request_api_version: int = 0,
        correlation_id: int = 0,
        client_id: str | None = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ResponseHeader(Message):
    correlation_id: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        correlation_id: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ProduceRequest(Message):
    class PartitionProduceData(Structure):
        index: int
        records: bytes | memoryview | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            index: int = 0,
            records: bytes | memoryview | None = b"",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TopicProduceData(Structure):
        name: str
        topic_id: TopicId
        partition_data: list[ProduceRequest.PartitionProduceData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            topic_id: TopicId = ...,
            partition_data: list[ProduceRequest.PartitionProduceData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic_data: list[ProduceRequest.TopicProduceData]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        transactional_id: str | None = None,
        acks: int = 0,
        timeout_ms: int = 0,
        topic_data: list[ProduceRequest.TopicProduceData] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ProduceResponse(Message):
    class BatchIndexAndErrorMessage(Structure):
        batch_index: int
        batch_index_error_message: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            batch_index: int = 0,
            batch_index_error_message: str | None = None,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class LeaderIdAndEpoch(Structure):
        leader_id: int
        leader_epoch: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            leader_id: int = -1,
            leader_epoch: int = -1,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class PartitionProduceResponse(Structure):
        index: int
        error_code: int
        base_offset: int
        log_append_time_ms: int
        log_start_offset: int
        record_errors: list[ProduceResponse.BatchIndexAndErrorMessage]
        error_message: str | None
        current_leader: ProduceResponse.LeaderIdAndEpoch
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            index: int = 0,
            error_code: int = 0,
            base_offset: int = 0,
            log_append_time_ms: int = -1,
            log_start_offset: int = -1,
            record_errors: list[ProduceResponse.BatchIndexAndErrorMessage] = ...,
            error_message: str | None = None,
            current_leader: ProduceResponse.LeaderIdAndEpoch = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TopicProduceResponse(Structure):
        name: str
        topic_id: TopicId
        partition_responses: list[ProduceResponse.PartitionProduceResponse]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            topic_id: TopicId = ...,
            partition_responses: list[ProduceResponse.PartitionProduceResponse] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class NodeEndpoint(Structure):
        node_id: int
        host: str
        port: int
        rack: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            node_id: int = 0,
            host: str = "",
            port: int = 0,
            rack: str | None = None,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    responses: list[ProduceResponse.TopicProduceResponse]
    throttle_time_ms: int
    node_endpoints: list[ProduceResponse.NodeEndpoint]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        responses: list[ProduceResponse.TopicProduceResponse] = ...,
        throttle_time_ms: int = 0,
        node_endpoints: list[ProduceResponse.NodeEndpoint] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class FetchRequest(Message):
    class ReplicaState(Structure):
        replica_id: int
        replica_epoch: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            replica_id: int = -1,
            replica_epoch: int = -1,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class FetchPartition(Structure):
        partition: int
        current_leader_epoch: int
        fetch_offset: int
        last_fetched_epoch: int
        log_start_offset: int
        partition_max_bytes: int
        replica_directory_id: bytes
        high_watermark: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition: int = 0,
            current_leader_epoch: int = -1,
            fetch_offset: int = 0,
            last_fetched_epoch: int = -1,
            log_start_offset: int = -1,
            partition_max_bytes: int = 0,
            replica_directory_id: bytes = ...,
            high_watermark: int = 9223372036854775807,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class FetchTopic(Structure):
        topic: str
        topic_id: TopicId
        partitions: list[FetchRequest.FetchPartition]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic: str = "",
            topic_id: TopicId = ...,
            partitions: list[FetchRequest.FetchPartition] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class ForgottenTopic(Structure):
        topic: str
        topic_id: TopicId
        partitions: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic: str = "",
            topic_id: TopicId = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    cluster_id: str | None
    replica_id: int
    replica_state: FetchRequest.ReplicaState
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchRequest.FetchTopic]
    forgotten_topics_data: list[FetchRequest.ForgottenTopic]
    rack_id: str
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        cluster_id: str | None = None,
        replica_id: int = -1,
        replica_state: FetchRequest.ReplicaState = ...,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        max_bytes: int = 2147483647,
        isolation_level: int = 0,
        session_id: int = 0,
        session_epoch: int = -1,
        topics: list[FetchRequest.FetchTopic] = ...,
        forgotten_topics_data: list[FetchRequest.ForgottenTopic] = ...,
        rack_id: str = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class FetchResponse(Message):
    class EpochEndOffset(Structure):
        epoch: int
        end_offset: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            epoch: int = -1,
            end_offset: int = -1,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class LeaderIdAndEpoch(Structure):
        leader_id: int
        leader_epoch: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            leader_id: int = -1,
            leader_epoch: int = -1,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class SnapshotId(Structure):
        end_offset: int
        epoch: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            end_offset: int = -1,
            epoch: int = -1,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class AbortedTransaction(Structure):
        producer_id: int
        first_offset: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            producer_id: int = 0,
            first_offset: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class PartitionData(Structure):
        partition_index: int
        error_code: int
        high_watermark: int
        last_stable_offset: int
        log_start_offset: int
        diverging_epoch: FetchResponse.EpochEndOffset
        current_leader: FetchResponse.LeaderIdAndEpoch
        snapshot_id: FetchResponse.SnapshotId
        aborted_transactions: list[FetchResponse.AbortedTransaction] | None
        preferred_read_replica: int
        records: bytes | memoryview | list[Chunk] | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            high_watermark: int = 0,
            last_stable_offset: int = -1,
            log_start_offset: int = -1,
            diverging_epoch: FetchResponse.EpochEndOffset = ...,
            current_leader: FetchResponse.LeaderIdAndEpoch = ...,
            snapshot_id: FetchResponse.SnapshotId = ...,
            aborted_transactions: list[FetchResponse.AbortedTransaction] | None = ...,
            preferred_read_replica: int = -1,
            records: bytes | memoryview | list[Chunk] | None = b"",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class FetchableTopicResponse(Structure):
        topic: str
        topic_id: TopicId
        partitions: list[FetchResponse.PartitionData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic: str = "",
            topic_id: TopicId = ...,
            partitions: list[FetchResponse.PartitionData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class NodeEndpoint(Structure):
        node_id: int
        host: str
        port: int
        rack: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            node_id: int = 0,
            host: str = "",
            port: int = 0,
            rack: str | None = None,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    session_id: int
    responses: list[FetchResponse.FetchableTopicResponse]
    node_endpoints: list[FetchResponse.NodeEndpoint]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        session_id: int = 0,
        responses: list[FetchResponse.FetchableTopicResponse] = ...,
        node_endpoints: list[FetchResponse.NodeEndpoint] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ListOffsetsRequest(Message):
    class ListOffsetsPartition(Structure):
        partition_index: int
        current_leader_epoch: int
        timestamp: int
        max_num_offsets: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            current_leader_epoch: int = -1,
            timestamp: int = 0,
            max_num_offsets: int = 1,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class ListOffsetsTopic(Structure):
        name: str
        partitions: list[ListOffsetsRequest.ListOffsetsPartition]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partitions: list[ListOffsetsRequest.ListOffsetsPartition] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    replica_id: int
    isolation_level: int
    topics: list[ListOffsetsRequest.ListOffsetsTopic]
    timeout_ms: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        replica_id: int = 0,
        isolation_level: int = 0,
        topics: list[ListOffsetsRequest.ListOffsetsTopic] = ...,
        timeout_ms: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ListOffsetsResponse(Message):
    class ListOffsetsPartitionResponse(Structure):
        partition_index: int
        error_code: int
        old_style_offsets: list[int]
        timestamp: int
        offset: int
        leader_epoch: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            old_style_offsets: list[int] = ...,
            timestamp: int = -1,
            offset: int = -1,
            leader_epoch: int = -1,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class ListOffsetsTopicResponse(Structure):
        name: str
        partitions: list[ListOffsetsResponse.ListOffsetsPartitionResponse]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partitions: list[ListOffsetsResponse.ListOffsetsPartitionResponse] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    topics: list[ListOffsetsResponse.ListOffsetsTopicResponse]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[ListOffsetsResponse.ListOffsetsTopicResponse] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class MetadataRequest(Message):
    class MetadataRequestTopic(Structure):
        topic_id: TopicId
        name: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            name: str | None = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    topics: list[MetadataRequest.MetadataRequestTopic] | None
    allow_auto_topic_creation: bool
    include_cluster_authorized_operations: bool
    include_topic_authorized_operations: bool
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        topics: list[MetadataRequest.MetadataRequestTopic] | None = ...,
        allow_auto_topic_creation: bool = True,
        include_cluster_authorized_operations: bool = False,
        include_topic_authorized_operations: bool = False,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class MetadataResponse(Message):
    class MetadataResponseBroker(Structure):
        node_id: int
        host: str
        port: int
        rack: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            node_id: int = 0,
            host: str = "",
            port: int = 0,
            rack: str | None = None,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class MetadataResponsePartition(Structure):
        error_code: int
        partition_index: int
        leader_id: int
        leader_epoch: int
        replica_nodes: list[int]
        isr_nodes: list[int]
        offline_replicas: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            error_code: int = 0,
            partition_index: int = 0,
            leader_id: int = 0,
            leader_epoch: int = -1,
            replica_nodes: list[int] = ...,
            isr_nodes: list[int] = ...,
            offline_replicas: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class MetadataResponseTopic(Structure):
        error_code: int
        name: str | None
        topic_id: TopicId
        is_internal: bool
        partitions: list[MetadataResponse.MetadataResponsePartition]
        topic_authorized_operations: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            error_code: int = 0,
            name: str | None = "",
            topic_id: TopicId = ...,
            is_internal: bool = False,
            partitions: list[MetadataResponse.MetadataResponsePartition] = ...,
            topic_authorized_operations: int = -2147483648,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    brokers: list[MetadataResponse.MetadataResponseBroker]
    cluster_id: str | None
    controller_id: int
    topics: list[MetadataResponse.MetadataResponseTopic]
    cluster_authorized_operations: int
    error_code: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        brokers: list[MetadataResponse.MetadataResponseBroker] = ...,
        cluster_id: str | None = None,
        controller_id: int = -1,
        topics: list[MetadataResponse.MetadataResponseTopic] = ...,
        cluster_authorized_operations: int = -2147483648,
        error_code: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ApiVersionsRequest(Message):
    client_software_name: str
    client_software_version: str
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        client_software_name: str = "",
        client_software_version: str = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ApiVersionsResponse(Message):
    class ApiVersion(Structure):
        api_key: int
        min_version: int
        max_version: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            api_key: int = 0,
            min_version: int = 0,
            max_version: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class SupportedFeatureKey(Structure):
        name: str
        min_version: int
        max_version: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            min_version: int = 0,
            max_version: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class FinalizedFeatureKey(Structure):
        name: str
        max_version_level: int
        min_version_level: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            max_version_level: int = 0,
            min_version_level: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    error_code: int
    api_keys: list[ApiVersionsResponse.ApiVersion]
    throttle_time_ms: int
    supported_features: list[ApiVersionsResponse.SupportedFeatureKey]
    finalized_features_epoch: int
    finalized_features: list[ApiVersionsResponse.FinalizedFeatureKey]
    zk_migration_ready: bool
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        error_code: int = 0,
        api_keys: list[ApiVersionsResponse.ApiVersion] = ...,
        throttle_time_ms: int = 0,
        supported_features: list[ApiVersionsResponse.SupportedFeatureKey] = ...,
        finalized_features_epoch: int = -1,
        finalized_features: list[ApiVersionsResponse.FinalizedFeatureKey] = ...,
        zk_migration_ready: bool = False,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class OffsetForLeaderEpochRequest(Message):
    class OffsetForLeaderPartition(Structure):
        partition: int
        current_leader_epoch: int
        leader_epoch: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition: int = 0,
            current_leader_epoch: int = -1,
            leader_epoch: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class OffsetForLeaderTopic(Structure):
        topic: str
        partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic: str = "",
            partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    replica_id: int
    topics: list[OffsetForLeaderEpochRequest.OffsetForLeaderTopic]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        replica_id: int = -2,
        topics: list[OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class OffsetForLeaderEpochResponse(Message):
    class EpochEndOffset(Structure):
        error_code: int
        partition: int
        leader_epoch: int
        end_offset: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            error_code: int = 0,
            partition: int = 0,
            leader_epoch: int = -1,
            end_offset: int = -1,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class OffsetForLeaderTopicResult(Structure):
        topic: str
        partitions: list[OffsetForLeaderEpochResponse.EpochEndOffset]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic: str = "",
            partitions: list[OffsetForLeaderEpochResponse.EpochEndOffset] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    topics: list[OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DescribeClusterRequest(Message):
    include_cluster_authorized_operations: bool
    endpoint_type: int
    include_fenced_brokers: bool
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        include_cluster_authorized_operations: bool = False,
        endpoint_type: int = 1,
        include_fenced_brokers: bool = False,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DescribeClusterResponse(Message):
    class DescribeClusterBroker(Structure):
        broker_id: int
        host: str
        port: int
        rack: str | None
        is_fenced: bool
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            broker_id: int = 0,
            host: str = "",
            port: int = 0,
            rack: str | None = None,
            is_fenced: bool = False,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    endpoint_type: int
    cluster_id: str
    controller_id: int
    brokers: list[DescribeClusterResponse.DescribeClusterBroker]
    cluster_authorized_operations: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        endpoint_type: int = 1,
        cluster_id: str = "",
        controller_id: int = -1,
        brokers: list[DescribeClusterResponse.DescribeClusterBroker] = ...,
        cluster_authorized_operations: int = -2147483648,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DescribeTopicPartitionsRequest(Message):
    class TopicRequest(Structure):
        name: str
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class Cursor(Structure):
        topic_name: str
        partition_index: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            partition_index: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    topics: list[DescribeTopicPartitionsRequest.TopicRequest]
    response_partition_limit: int
    cursor: DescribeTopicPartitionsRequest.Cursor | None
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        topics: list[DescribeTopicPartitionsRequest.TopicRequest] = ...,
        response_partition_limit: int = 2000,
        cursor: DescribeTopicPartitionsRequest.Cursor | None = None,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DescribeTopicPartitionsResponse(Message):
    class DescribeTopicPartitionsResponsePartition(Structure):
        error_code: int
        partition_index: int
        leader_id: int
        leader_epoch: int
        replica_nodes: list[int]
        isr_nodes: list[int]
        eligible_leader_replicas: list[int] | None
        last_known_elr: list[int] | None
        offline_replicas: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            error_code: int = 0,
            partition_index: int = 0,
            leader_id: int = 0,
            leader_epoch: int = -1,
            replica_nodes: list[int] = ...,
            isr_nodes: list[int] = ...,
            eligible_leader_replicas: list[int] | None = None,
            last_known_elr: list[int] | None = None,
            offline_replicas: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class DescribeTopicPartitionsResponseTopic(Structure):
        error_code: int
        name: str | None
        topic_id: TopicId
        is_internal: bool
        partitions: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition]
        topic_authorized_operations: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            error_code: int = 0,
            name: str | None = "",
            topic_id: TopicId = ...,
            is_internal: bool = False,
            partitions: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition] = ...,
            topic_authorized_operations: int = -2147483648,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class Cursor(Structure):
        topic_name: str
        partition_index: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            partition_index: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    topics: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic]
    next_cursor: DescribeTopicPartitionsResponse.Cursor | None
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic] = ...,
        next_cursor: DescribeTopicPartitionsResponse.Cursor | None = None,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class CreateTopicsRequest(Message):
    class CreatableReplicaAssignment(Structure):
        partition_index: int
        broker_ids: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            broker_ids: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class CreatableTopicConfig(Structure):
        name: str
        value: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            value: str | None = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class CreatableTopic(Structure):
        name: str
        num_partitions: int
        replication_factor: int
        assignments: list[CreateTopicsRequest.CreatableReplicaAssignment]
        configs: list[CreateTopicsRequest.CreatableTopicConfig]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            num_partitions: int = 0,
            replication_factor: int = 0,
            assignments: list[CreateTopicsRequest.CreatableReplicaAssignment] = ...,
            configs: list[CreateTopicsRequest.CreatableTopicConfig] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    topics: list[CreateTopicsRequest.CreatableTopic]
    timeout_ms: int
    validate_only: bool
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        topics: list[CreateTopicsRequest.CreatableTopic] = ...,
        timeout_ms: int = 60000,
        validate_only: bool = False,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class CreateTopicsResponse(Message):
    class CreatableTopicConfigs(Structure):
        name: str
        value: str | None
        read_only: bool
        config_source: int
        is_sensitive: bool
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            value: str | None = "",
            read_only: bool = False,
            config_source: int = -1,
            is_sensitive: bool = False,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class CreatableTopicResult(Structure):
        name: str
        topic_id: TopicId
        error_code: int
        error_message: str | None
        topic_config_error_code: int
        num_partitions: int
        replication_factor: int
        configs: list[CreateTopicsResponse.CreatableTopicConfigs] | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            topic_id: TopicId = ...,
            error_code: int = 0,
            error_message: str | None = "",
            topic_config_error_code: int = 0,
            num_partitions: int = -1,
            replication_factor: int = -1,
            configs: list[CreateTopicsResponse.CreatableTopicConfigs] | None = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    topics: list[CreateTopicsResponse.CreatableTopicResult]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[CreateTopicsResponse.CreatableTopicResult] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DeleteTopicsRequest(Message):
    class DeleteTopicState(Structure):
        name: str | None
        topic_id: TopicId
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str | None = None,
            topic_id: TopicId = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    topics: list[DeleteTopicsRequest.DeleteTopicState]
    topic_names: list[str]
    timeout_ms: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        topics: list[DeleteTopicsRequest.DeleteTopicState] = ...,
        topic_names: list[str] = ...,
        timeout_ms: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DeleteTopicsResponse(Message):
    class DeletableTopicResult(Structure):
        name: str | None
        topic_id: TopicId
        error_code: int
        error_message: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str | None = "",
            topic_id: TopicId = ...,
            error_code: int = 0,
            error_message: str | None = None,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    responses: list[DeleteTopicsResponse.DeletableTopicResult]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        responses: list[DeleteTopicsResponse.DeletableTopicResult] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DeleteRecordsRequest(Message):
    class DeleteRecordsPartition(Structure):
        partition_index: int
        offset: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            offset: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class DeleteRecordsTopic(Structure):
        name: str
        partitions: list[DeleteRecordsRequest.DeleteRecordsPartition]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partitions: list[DeleteRecordsRequest.DeleteRecordsPartition] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    topics: list[DeleteRecordsRequest.DeleteRecordsTopic]
    timeout_ms: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        topics: list[DeleteRecordsRequest.DeleteRecordsTopic] = ...,
        timeout_ms: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DeleteRecordsResponse(Message):
    class DeleteRecordsPartitionResult(Structure):
        partition_index: int
        low_watermark: int
        error_code: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            low_watermark: int = 0,
            error_code: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class DeleteRecordsTopicResult(Structure):
        name: str
        partitions: list[DeleteRecordsResponse.DeleteRecordsPartitionResult]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partitions: list[DeleteRecordsResponse.DeleteRecordsPartitionResult] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    topics: list[DeleteRecordsResponse.DeleteRecordsTopicResult]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[DeleteRecordsResponse.DeleteRecordsTopicResult] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class CreatePartitionsRequest(Message):
    class CreatePartitionsAssignment(Structure):
        broker_ids: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            broker_ids: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class CreatePartitionsTopic(Structure):
        name: str
        count: int
        assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            count: int = 0,
            assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    topics: list[CreatePartitionsRequest.CreatePartitionsTopic]
    timeout_ms: int
    validate_only: bool
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        topics: list[CreatePartitionsRequest.CreatePartitionsTopic] = ...,
        timeout_ms: int = 0,
        validate_only: bool = False,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class CreatePartitionsResponse(Message):
    class CreatePartitionsTopicResult(Structure):
        name: str
        error_code: int
        error_message: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            error_code: int = 0,
            error_message: str | None = None,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    results: list[CreatePartitionsResponse.CreatePartitionsTopicResult]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[CreatePartitionsResponse.CreatePartitionsTopicResult] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ElectLeadersRequest(Message):
    class TopicPartitions(Structure):
        topic: str
        partitions: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic: str = "",
            partitions: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    election_type: int
    topic_partitions: list[ElectLeadersRequest.TopicPartitions] | None
    timeout_ms: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        election_type: int = 0,
        topic_partitions: list[ElectLeadersRequest.TopicPartitions] | None = ...,
        timeout_ms: int = 60000,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ElectLeadersResponse(Message):
    class PartitionResult(Structure):
        partition_id: int
        error_code: int
        error_message: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_id: int = 0,
            error_code: int = 0,
            error_message: str | None = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class ReplicaElectionResult(Structure):
        topic: str
        partition_result: list[ElectLeadersResponse.PartitionResult]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic: str = "",
            partition_result: list[ElectLeadersResponse.PartitionResult] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    replica_election_results: list[ElectLeadersResponse.ReplicaElectionResult]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        replica_election_results: list[ElectLeadersResponse.ReplicaElectionResult] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class AlterPartitionReassignmentsRequest(Message):
    class ReassignablePartition(Structure):
        partition_index: int
        replicas: list[int] | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            replicas: list[int] | None = None,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class ReassignableTopic(Structure):
        name: str
        partitions: list[AlterPartitionReassignmentsRequest.ReassignablePartition]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partitions: list[AlterPartitionReassignmentsRequest.ReassignablePartition] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    timeout_ms: int
    allow_replication_factor_change: bool
    topics: list[AlterPartitionReassignmentsRequest.ReassignableTopic]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        timeout_ms: int = 60000,
        allow_replication_factor_change: bool = True,
        topics: list[AlterPartitionReassignmentsRequest.ReassignableTopic] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class AlterPartitionReassignmentsResponse(Message):
    class ReassignablePartitionResponse(Structure):
        partition_index: int
        error_code: int
        error_message: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            error_message: str | None = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class ReassignableTopicResponse(Structure):
        name: str
        partitions: list[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partitions: list[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    allow_replication_factor_change: bool
    error_code: int
    error_message: str | None
    responses: list[AlterPartitionReassignmentsResponse.ReassignableTopicResponse]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        allow_replication_factor_change: bool = True,
        error_code: int = 0,
        error_message: str | None = "",
        responses: list[AlterPartitionReassignmentsResponse.ReassignableTopicResponse] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ListPartitionReassignmentsRequest(Message):
    class ListPartitionReassignmentsTopics(Structure):
        name: str
        partition_indexes: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partition_indexes: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    timeout_ms: int
    topics: list[ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics] | None
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        timeout_ms: int = 60000,
        topics: list[ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics] | None = None,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ListPartitionReassignmentsResponse(Message):
    class OngoingPartitionReassignment(Structure):
        partition_index: int
        replicas: list[int]
        adding_replicas: list[int]
        removing_replicas: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            replicas: list[int] = ...,
            adding_replicas: list[int] = ...,
            removing_replicas: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class OngoingTopicReassignment(Structure):
        name: str
        partitions: list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partitions: list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    topics: list[ListPartitionReassignmentsResponse.OngoingTopicReassignment]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        topics: list[ListPartitionReassignmentsResponse.OngoingTopicReassignment] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class AlterReplicaLogDirsRequest(Message):
    class AlterReplicaLogDirTopic(Structure):
        name: str
        partitions: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partitions: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class AlterReplicaLogDir(Structure):
        path: str
        topics: list[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            path: str = "",
            topics: list[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    dirs: list[AlterReplicaLogDirsRequest.AlterReplicaLogDir]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        dirs: list[AlterReplicaLogDirsRequest.AlterReplicaLogDir] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class AlterReplicaLogDirsResponse(Message):
    class AlterReplicaLogDirPartitionResult(Structure):
        partition_index: int
        error_code: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class AlterReplicaLogDirTopicResult(Structure):
        topic_name: str
        partitions: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            partitions: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    results: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DescribeLogDirsRequest(Message):
    class DescribableLogDirTopic(Structure):
        topic: str
        partitions: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic: str = "",
            partitions: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    topics: list[DescribeLogDirsRequest.DescribableLogDirTopic] | None
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        topics: list[DescribeLogDirsRequest.DescribableLogDirTopic] | None = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DescribeLogDirsResponse(Message):
    class DescribeLogDirsPartition(Structure):
        partition_index: int
        partition_size: int
        offset_lag: int
        is_future_key: bool
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            partition_size: int = 0,
            offset_lag: int = 0,
            is_future_key: bool = False,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class DescribeLogDirsTopic(Structure):
        name: str
        partitions: list[DescribeLogDirsResponse.DescribeLogDirsPartition]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partitions: list[DescribeLogDirsResponse.DescribeLogDirsPartition] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class DescribeLogDirsResult(Structure):
        error_code: int
        log_dir: str
        topics: list[DescribeLogDirsResponse.DescribeLogDirsTopic]
        total_bytes: int
        usable_bytes: int
        is_cordoned: bool
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            error_code: int = 0,
            log_dir: str = "",
            topics: list[DescribeLogDirsResponse.DescribeLogDirsTopic] = ...,
            total_bytes: int = -1,
            usable_bytes: int = -1,
            is_cordoned: bool = False,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    results: list[DescribeLogDirsResponse.DescribeLogDirsResult]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        results: list[DescribeLogDirsResponse.DescribeLogDirsResult] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class OffsetCommitRequest(Message):
    class OffsetCommitRequestPartition(Structure):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        commit_timestamp: int
        committed_metadata: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            committed_offset: int = 0,
            committed_leader_epoch: int = -1,
            commit_timestamp: int = -1,
            committed_metadata: str | None = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class OffsetCommitRequestTopic(Structure):
        name: str
        topic_id: TopicId
        partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            topic_id: TopicId = ...,
            partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    topics: list[OffsetCommitRequest.OffsetCommitRequestTopic]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        generation_id_or_member_epoch: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
        retention_time_ms: int = -1,
        topics: list[OffsetCommitRequest.OffsetCommitRequestTopic] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class OffsetCommitResponse(Message):
    class OffsetCommitResponsePartition(Structure):
        partition_index: int
        error_code: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class OffsetCommitResponseTopic(Structure):
        name: str
        topic_id: TopicId
        partitions: list[OffsetCommitResponse.OffsetCommitResponsePartition]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            topic_id: TopicId = ...,
            partitions: list[OffsetCommitResponse.OffsetCommitResponsePartition] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    topics: list[OffsetCommitResponse.OffsetCommitResponseTopic]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[OffsetCommitResponse.OffsetCommitResponseTopic] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class OffsetFetchRequest(Message):
    class OffsetFetchRequestTopic(Structure):
        name: str
        partition_indexes: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partition_indexes: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class OffsetFetchRequestTopics(Structure):
        name: str
        topic_id: TopicId
        partition_indexes: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            topic_id: TopicId = ...,
            partition_indexes: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class OffsetFetchRequestGroup(Structure):
        group_id: str
        member_id: str | None
        member_epoch: int
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            group_id: str = "",
            member_id: str | None = None,
            member_epoch: int = -1,
            topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    group_id: str
    topics: list[OffsetFetchRequest.OffsetFetchRequestTopic] | None
    groups: list[OffsetFetchRequest.OffsetFetchRequestGroup]
    require_stable: bool
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopic] | None = ...,
        groups: list[OffsetFetchRequest.OffsetFetchRequestGroup] = ...,
        require_stable: bool = False,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class OffsetFetchResponse(Message):
    class OffsetFetchResponsePartition(Structure):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        metadata: str | None
        error_code: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            committed_offset: int = 0,
            committed_leader_epoch: int = -1,
            metadata: str | None = "",
            error_code: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class OffsetFetchResponseTopic(Structure):
        name: str
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartition]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partitions: list[OffsetFetchResponse.OffsetFetchResponsePartition] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class OffsetFetchResponsePartitions(Structure):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        metadata: str | None
        error_code: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            committed_offset: int = 0,
            committed_leader_epoch: int = -1,
            metadata: str | None = "",
            error_code: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class OffsetFetchResponseTopics(Structure):
        name: str
        topic_id: TopicId
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartitions]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            topic_id: TopicId = ...,
            partitions: list[OffsetFetchResponse.OffsetFetchResponsePartitions] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class OffsetFetchResponseGroup(Structure):
        group_id: str
        topics: list[OffsetFetchResponse.OffsetFetchResponseTopics]
        error_code: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            group_id: str = "",
            topics: list[OffsetFetchResponse.OffsetFetchResponseTopics] = ...,
            error_code: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    topics: list[OffsetFetchResponse.OffsetFetchResponseTopic]
    error_code: int
    groups: list[OffsetFetchResponse.OffsetFetchResponseGroup]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[OffsetFetchResponse.OffsetFetchResponseTopic] = ...,
        error_code: int = 0,
        groups: list[OffsetFetchResponse.OffsetFetchResponseGroup] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class FindCoordinatorRequest(Message):
    key: str
    key_type: int
    coordinator_keys: list[str]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        key: str = "",
        key_type: int = 0,
        coordinator_keys: list[str] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class FindCoordinatorResponse(Message):
    class Coordinator(Structure):
        key: str
        node_id: int
        host: str
        port: int
        error_code: int
        error_message: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            key: str = "",
            node_id: int = 0,
            host: str = "",
            port: int = 0,
            error_code: int = 0,
            error_message: str | None = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    node_id: int
    host: str
    port: int
    coordinators: list[FindCoordinatorResponse.Coordinator]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        node_id: int = 0,
        host: str = "",
        port: int = 0,
        coordinators: list[FindCoordinatorResponse.Coordinator] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class JoinGroupRequest(Message):
    class JoinGroupRequestProtocol(Structure):
        name: str
        metadata: bytes
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            metadata: bytes = b"",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: list[JoinGroupRequest.JoinGroupRequestProtocol]
    reason: str | None
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        session_timeout_ms: int = 0,
        rebalance_timeout_ms: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
        protocol_type: str = "",
        protocols: list[JoinGroupRequest.JoinGroupRequestProtocol] = ...,
        reason: str | None = None,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class JoinGroupResponse(Message):
    class JoinGroupResponseMember(Structure):
        member_id: str
        group_instance_id: str | None
        metadata: bytes
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            member_id: str = "",
            group_instance_id: str | None = None,
            metadata: bytes = b"",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    skip_assignment: bool
    member_id: str
    members: list[JoinGroupResponse.JoinGroupResponseMember]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        generation_id: int = -1,
        protocol_type: str | None = None,
        protocol_name: str | None = "",
        leader: str = "",
        skip_assignment: bool = False,
        member_id: str = "",
        members: list[JoinGroupResponse.JoinGroupResponseMember] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class HeartbeatRequest(Message):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        generation_id: int = 0,
        member_id: str = "",
        group_instance_id: str | None = None,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class HeartbeatResponse(Message):
    throttle_time_ms: int
    error_code: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class LeaveGroupRequest(Message):
    class MemberIdentity(Structure):
        member_id: str
        group_instance_id: str | None
        reason: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            member_id: str = "",
            group_instance_id: str | None = None,
            reason: str | None = None,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    group_id: str
    member_id: str
    members: list[LeaveGroupRequest.MemberIdentity]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        members: list[LeaveGroupRequest.MemberIdentity] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class LeaveGroupResponse(Message):
    class MemberResponse(Structure):
        member_id: str
        group_instance_id: str | None
        error_code: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            member_id: str = "",
            group_instance_id: str | None = "",
            error_code: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    members: list[LeaveGroupResponse.MemberResponse]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        members: list[LeaveGroupResponse.MemberResponse] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class SyncGroupRequest(Message):
    class SyncGroupRequestAssignment(Structure):
        member_id: str
        assignment: bytes
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            member_id: str = "",
            assignment: bytes = b"",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: list[SyncGroupRequest.SyncGroupRequestAssignment]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        generation_id: int = 0,
        member_id: str = "",
        group_instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        assignments: list[SyncGroupRequest.SyncGroupRequestAssignment] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class SyncGroupResponse(Message):
    throttle_time_ms: int
    error_code: int
    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        assignment: bytes = b"",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DescribeGroupsRequest(Message):
    groups: list[str]
    include_authorized_operations: bool
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        groups: list[str] = ...,
        include_authorized_operations: bool = False,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DescribeGroupsResponse(Message):
    class DescribedGroupMember(Structure):
        member_id: str
        group_instance_id: str | None
        client_id: str
        client_host: str
        member_metadata: bytes
        member_assignment: bytes
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            member_id: str = "",
            group_instance_id: str | None = None,
            client_id: str = "",
            client_host: str = "",
            member_metadata: bytes = b"",
            member_assignment: bytes = b"",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class DescribedGroup(Structure):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        protocol_type: str
        protocol_data: str
        members: list[DescribeGroupsResponse.DescribedGroupMember]
        authorized_operations: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            error_code: int = 0,
            error_message: str | None = None,
            group_id: str = "",
            group_state: str = "",
            protocol_type: str = "",
            protocol_data: str = "",
            members: list[DescribeGroupsResponse.DescribedGroupMember] = ...,
            authorized_operations: int = -2147483648,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    groups: list[DescribeGroupsResponse.DescribedGroup]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        groups: list[DescribeGroupsResponse.DescribedGroup] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ListGroupsRequest(Message):
    states_filter: list[str]
    types_filter: list[str]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        states_filter: list[str] = ...,
        types_filter: list[str] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ListGroupsResponse(Message):
    class ListedGroup(Structure):
        group_id: str
        protocol_type: str
        group_state: str
        group_type: str
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            group_id: str = "",
            protocol_type: str = "",
            group_state: str = "",
            group_type: str = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    groups: list[ListGroupsResponse.ListedGroup]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        groups: list[ListGroupsResponse.ListedGroup] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DeleteGroupsRequest(Message):
    groups_names: list[str]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        groups_names: list[str] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DeleteGroupsResponse(Message):
    class DeletableGroupResult(Structure):
        group_id: str
        error_code: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            group_id: str = "",
            error_code: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    results: list[DeleteGroupsResponse.DeletableGroupResult]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[DeleteGroupsResponse.DeletableGroupResult] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class OffsetDeleteRequest(Message):
    class OffsetDeleteRequestPartition(Structure):
        partition_index: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class OffsetDeleteRequestTopic(Structure):
        name: str
        partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    group_id: str
    topics: list[OffsetDeleteRequest.OffsetDeleteRequestTopic]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[OffsetDeleteRequest.OffsetDeleteRequestTopic] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class OffsetDeleteResponse(Message):
    class OffsetDeleteResponsePartition(Structure):
        partition_index: int
        error_code: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class OffsetDeleteResponseTopic(Structure):
        name: str
        partitions: list[OffsetDeleteResponse.OffsetDeleteResponsePartition]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partitions: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    error_code: int
    throttle_time_ms: int
    topics: list[OffsetDeleteResponse.OffsetDeleteResponseTopic]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        error_code: int = 0,
        throttle_time_ms: int = 0,
        topics: list[OffsetDeleteResponse.OffsetDeleteResponseTopic] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ConsumerGroupHeartbeatRequest(Message):
    class TopicPartitions(Structure):
        topic_id: TopicId
        partitions: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: list[str] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    topic_partitions: list[ConsumerGroupHeartbeatRequest.TopicPartitions] | None
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        member_epoch: int = 0,
        instance_id: str | None = None,
        rack_id: str | None = None,
        rebalance_timeout_ms: int = -1,
        subscribed_topic_names: list[str] | None = None,
        subscribed_topic_regex: str | None = None,
        server_assignor: str | None = None,
        topic_partitions: list[ConsumerGroupHeartbeatRequest.TopicPartitions] | None = None,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ConsumerGroupHeartbeatResponse(Message):
    class TopicPartitions(Structure):
        topic_id: TopicId
        partitions: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class Assignment(Structure):
        topic_partitions: list[ConsumerGroupHeartbeatResponse.TopicPartitions]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_partitions: list[ConsumerGroupHeartbeatResponse.TopicPartitions] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: ConsumerGroupHeartbeatResponse.Assignment | None
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        member_id: str | None = None,
        member_epoch: int = 0,
        heartbeat_interval_ms: int = 0,
        assignment: ConsumerGroupHeartbeatResponse.Assignment | None = None,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ConsumerGroupDescribeRequest(Message):
    group_ids: list[str]
    include_authorized_operations: bool
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_ids: list[str] = ...,
        include_authorized_operations: bool = False,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ConsumerGroupDescribeResponse(Message):
    class TopicPartitions(Structure):
        topic_id: TopicId
        topic_name: str
        partitions: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            topic_name: str = "",
            partitions: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class Assignment(Structure):
        topic_partitions: list[ConsumerGroupDescribeResponse.TopicPartitions]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_partitions: list[ConsumerGroupDescribeResponse.TopicPartitions] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class Member(Structure):
        member_id: str
        instance_id: str | None
        rack_id: str | None
        member_epoch: int
        client_id: str
        client_host: str
        subscribed_topic_names: list[str]
        subscribed_topic_regex: str | None
        assignment: ConsumerGroupDescribeResponse.Assignment
        target_assignment: ConsumerGroupDescribeResponse.Assignment
        member_type: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            member_id: str = "",
            instance_id: str | None = None,
            rack_id: str | None = None,
            member_epoch: int = 0,
            client_id: str = "",
            client_host: str = "",
            subscribed_topic_names: list[str] = ...,
            subscribed_topic_regex: str | None = None,
            assignment: ConsumerGroupDescribeResponse.Assignment = ...,
            target_assignment: ConsumerGroupDescribeResponse.Assignment = ...,
            member_type: int = -1,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class DescribedGroup(Structure):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        assignor_name: str
        members: list[ConsumerGroupDescribeResponse.Member]
        authorized_operations: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            error_code: int = 0,
            error_message: str | None = None,
            group_id: str = "",
            group_state: str = "",
            group_epoch: int = 0,
            assignment_epoch: int = 0,
            assignor_name: str = "",
            members: list[ConsumerGroupDescribeResponse.Member] = ...,
            authorized_operations: int = -2147483648,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    groups: list[ConsumerGroupDescribeResponse.DescribedGroup]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        groups: list[ConsumerGroupDescribeResponse.DescribedGroup] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class InitProducerIdRequest(Message):
    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int
    producer_epoch: int
    enable2_pc: bool
    keep_prepared_txn: bool
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        transactional_id: str | None = "",
        transaction_timeout_ms: int = 0,
        producer_id: int = -1,
        producer_epoch: int = -1,
        enable2_pc: bool = False,
        keep_prepared_txn: bool = False,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class InitProducerIdResponse(Message):
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    ongoing_txn_producer_id: int
    ongoing_txn_producer_epoch: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        producer_id: int = -1,
        producer_epoch: int = 0,
        ongoing_txn_producer_id: int = -1,
        ongoing_txn_producer_epoch: int = -1,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class AddPartitionsToTxnRequest(Message):
    class AddPartitionsToTxnTopic(Structure):
        name: str
        partitions: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partitions: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class AddPartitionsToTxnTransaction(Structure):
        transactional_id: str
        producer_id: int
        producer_epoch: int
        verify_only: bool
        topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            transactional_id: str = "",
            producer_id: int = 0,
            producer_epoch: int = 0,
            verify_only: bool = False,
            topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    transactions: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction]
    v3_and_below_transactional_id: str
    v3_and_below_producer_id: int
    v3_and_below_producer_epoch: int
    v3_and_below_topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        transactions: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction] = ...,
        v3_and_below_transactional_id: str = "",
        v3_and_below_producer_id: int = 0,
        v3_and_below_producer_epoch: int = 0,
        v3_and_below_topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class AddPartitionsToTxnResponse(Message):
    class AddPartitionsToTxnPartitionResult(Structure):
        partition_index: int
        partition_error_code: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            partition_error_code: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class AddPartitionsToTxnTopicResult(Structure):
        name: str
        results_by_partition: list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            results_by_partition: list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class AddPartitionsToTxnResult(Structure):
        transactional_id: str
        topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            transactional_id: str = "",
            topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    results_by_transaction: list[AddPartitionsToTxnResponse.AddPartitionsToTxnResult]
    results_by_topic_v3_and_below: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        results_by_transaction: list[AddPartitionsToTxnResponse.AddPartitionsToTxnResult] = ...,
        results_by_topic_v3_and_below: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class AddOffsetsToTxnRequest(Message):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        transactional_id: str = "",
        producer_id: int = 0,
        producer_epoch: int = 0,
        group_id: str = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: int
    error_code: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class EndTxnRequest(Message):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        transactional_id: str = "",
        producer_id: int = 0,
        producer_epoch: int = 0,
        committed: bool = False,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class EndTxnResponse(Message):
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        producer_id: int = -1,
        producer_epoch: int = -1,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class WriteTxnMarkersRequest(Message):
    class WritableTxnMarkerTopic(Structure):
        name: str
        partition_indexes: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partition_indexes: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class WritableTxnMarker(Structure):
        producer_id: int
        producer_epoch: int
        transaction_result: bool
        topics: list[WriteTxnMarkersRequest.WritableTxnMarkerTopic]
        coordinator_epoch: int
        transaction_version: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            producer_id: int = 0,
            producer_epoch: int = 0,
            transaction_result: bool = False,
            topics: list[WriteTxnMarkersRequest.WritableTxnMarkerTopic] = ...,
            coordinator_epoch: int = 0,
            transaction_version: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    markers: list[WriteTxnMarkersRequest.WritableTxnMarker]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        markers: list[WriteTxnMarkersRequest.WritableTxnMarker] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class WriteTxnMarkersResponse(Message):
    class WritableTxnMarkerPartitionResult(Structure):
        partition_index: int
        error_code: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class WritableTxnMarkerTopicResult(Structure):
        name: str
        partitions: list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partitions: list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class WritableTxnMarkerResult(Structure):
        producer_id: int
        topics: list[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            producer_id: int = 0,
            topics: list[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    markers: list[WriteTxnMarkersResponse.WritableTxnMarkerResult]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        markers: list[WriteTxnMarkersResponse.WritableTxnMarkerResult] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class TxnOffsetCommitRequest(Message):
    class TxnOffsetCommitRequestPartition(Structure):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        committed_metadata: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            committed_offset: int = 0,
            committed_leader_epoch: int = -1,
            committed_metadata: str | None = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TxnOffsetCommitRequestTopic(Structure):
        name: str
        partitions: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partitions: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id: int
    member_id: str
    group_instance_id: str | None
    topics: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        transactional_id: str = "",
        group_id: str = "",
        producer_id: int = 0,
        producer_epoch: int = 0,
        generation_id: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
        topics: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class TxnOffsetCommitResponse(Message):
    class TxnOffsetCommitResponsePartition(Structure):
        partition_index: int
        error_code: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TxnOffsetCommitResponseTopic(Structure):
        name: str
        partitions: list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partitions: list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    topics: list[TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DescribeProducersRequest(Message):
    class TopicRequest(Structure):
        name: str
        partition_indexes: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partition_indexes: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    topics: list[DescribeProducersRequest.TopicRequest]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        topics: list[DescribeProducersRequest.TopicRequest] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DescribeProducersResponse(Message):
    class ProducerState(Structure):
        producer_id: int
        producer_epoch: int
        last_sequence: int
        last_timestamp: int
        coordinator_epoch: int
        current_txn_start_offset: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            producer_id: int = 0,
            producer_epoch: int = 0,
            last_sequence: int = -1,
            last_timestamp: int = -1,
            coordinator_epoch: int = 0,
            current_txn_start_offset: int = -1,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class PartitionResponse(Structure):
        partition_index: int
        error_code: int
        error_message: str | None
        active_producers: list[DescribeProducersResponse.ProducerState]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            error_message: str | None = None,
            active_producers: list[DescribeProducersResponse.ProducerState] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TopicResponse(Structure):
        name: str
        partitions: list[DescribeProducersResponse.PartitionResponse]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partitions: list[DescribeProducersResponse.PartitionResponse] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    topics: list[DescribeProducersResponse.TopicResponse]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[DescribeProducersResponse.TopicResponse] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DescribeTransactionsRequest(Message):
    transactional_ids: list[str]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        transactional_ids: list[str] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DescribeTransactionsResponse(Message):
    class TopicData(Structure):
        topic: str
        partitions: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic: str = "",
            partitions: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TransactionState(Structure):
        error_code: int
        transactional_id: str
        transaction_state: str
        transaction_timeout_ms: int
        transaction_start_time_ms: int
        producer_id: int
        producer_epoch: int
        topics: list[DescribeTransactionsResponse.TopicData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            error_code: int = 0,
            transactional_id: str = "",
            transaction_state: str = "",
            transaction_timeout_ms: int = 0,
            transaction_start_time_ms: int = 0,
            producer_id: int = 0,
            producer_epoch: int = 0,
            topics: list[DescribeTransactionsResponse.TopicData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    transaction_states: list[DescribeTransactionsResponse.TransactionState]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        transaction_states: list[DescribeTransactionsResponse.TransactionState] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ListTransactionsRequest(Message):
    state_filters: list[str]
    producer_id_filters: list[int]
    duration_filter: int
    transactional_id_pattern: str | None
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        state_filters: list[str] = ...,
        producer_id_filters: list[int] = ...,
        duration_filter: int = -1,
        transactional_id_pattern: str | None = None,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ListTransactionsResponse(Message):
    class TransactionState(Structure):
        transactional_id: str
        producer_id: int
        transaction_state: str
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            transactional_id: str = "",
            producer_id: int = 0,
            transaction_state: str = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    unknown_state_filters: list[str]
    transaction_states: list[ListTransactionsResponse.TransactionState]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        unknown_state_filters: list[str] = ...,
        transaction_states: list[ListTransactionsResponse.TransactionState] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DescribeConfigsRequest(Message):
    class DescribeConfigsResource(Structure):
        resource_type: int
        resource_name: str
        configuration_keys: list[str] | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            resource_type: int = 0,
            resource_name: str = "",
            configuration_keys: list[str] | None = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    resources: list[DescribeConfigsRequest.DescribeConfigsResource]
    include_synonyms: bool
    include_documentation: bool
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        resources: list[DescribeConfigsRequest.DescribeConfigsResource] = ...,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DescribeConfigsResponse(Message):
    class DescribeConfigsSynonym(Structure):
        name: str
        value: str | None
        source: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            value: str | None = "",
            source: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class DescribeConfigsResourceResult(Structure):
        name: str
        value: str | None
        read_only: bool
        is_default: bool
        config_source: int
        is_sensitive: bool
        synonyms: list[DescribeConfigsResponse.DescribeConfigsSynonym]
        config_type: int
        documentation: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            value: str | None = "",
            read_only: bool = False,
            is_default: bool = False,
            config_source: int = -1,
            is_sensitive: bool = False,
            synonyms: list[DescribeConfigsResponse.DescribeConfigsSynonym] = ...,
            config_type: int = 0,
            documentation: str | None = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class DescribeConfigsResult(Structure):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            error_code: int = 0,
            error_message: str | None = "",
            resource_type: int = 0,
            resource_name: str = "",
            configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    results: list[DescribeConfigsResponse.DescribeConfigsResult]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[DescribeConfigsResponse.DescribeConfigsResult] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class AlterConfigsRequest(Message):
    class AlterableConfig(Structure):
        name: str
        value: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            value: str | None = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class AlterConfigsResource(Structure):
        resource_type: int
        resource_name: str
        configs: list[AlterConfigsRequest.AlterableConfig]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            resource_type: int = 0,
            resource_name: str = "",
            configs: list[AlterConfigsRequest.AlterableConfig] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    resources: list[AlterConfigsRequest.AlterConfigsResource]
    validate_only: bool
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        resources: list[AlterConfigsRequest.AlterConfigsResource] = ...,
        validate_only: bool = False,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class AlterConfigsResponse(Message):
    class AlterConfigsResourceResponse(Structure):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            error_code: int = 0,
            error_message: str | None = "",
            resource_type: int = 0,
            resource_name: str = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    responses: list[AlterConfigsResponse.AlterConfigsResourceResponse]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        responses: list[AlterConfigsResponse.AlterConfigsResourceResponse] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class IncrementalAlterConfigsRequest(Message):
    class AlterableConfig(Structure):
        name: str
        config_operation: int
        value: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            config_operation: int = 0,
            value: str | None = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class AlterConfigsResource(Structure):
        resource_type: int
        resource_name: str
        configs: list[IncrementalAlterConfigsRequest.AlterableConfig]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            resource_type: int = 0,
            resource_name: str = "",
            configs: list[IncrementalAlterConfigsRequest.AlterableConfig] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    resources: list[IncrementalAlterConfigsRequest.AlterConfigsResource]
    validate_only: bool
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        resources: list[IncrementalAlterConfigsRequest.AlterConfigsResource] = ...,
        validate_only: bool = False,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class IncrementalAlterConfigsResponse(Message):
    class AlterConfigsResourceResponse(Structure):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            error_code: int = 0,
            error_message: str | None = "",
            resource_type: int = 0,
            resource_name: str = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    responses: list[IncrementalAlterConfigsResponse.AlterConfigsResourceResponse]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        responses: list[IncrementalAlterConfigsResponse.AlterConfigsResourceResponse] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DescribeClientQuotasRequest(Message):
    class ComponentData(Structure):
        entity_type: str
        match_type: int
        match: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            entity_type: str = "",
            match_type: int = 0,
            match: str | None = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    components: list[DescribeClientQuotasRequest.ComponentData]
    strict: bool
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        components: list[DescribeClientQuotasRequest.ComponentData] = ...,
        strict: bool = False,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DescribeClientQuotasResponse(Message):
    class EntityData(Structure):
        entity_type: str
        entity_name: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            entity_type: str = "",
            entity_name: str | None = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class ValueData(Structure):
        key: str
        value: float
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            key: str = "",
            value: float = 0.0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class EntryData(Structure):
        entity: list[DescribeClientQuotasResponse.EntityData]
        values: list[DescribeClientQuotasResponse.ValueData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            entity: list[DescribeClientQuotasResponse.EntityData] = ...,
            values: list[DescribeClientQuotasResponse.ValueData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    entries: list[DescribeClientQuotasResponse.EntryData] | None
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        entries: list[DescribeClientQuotasResponse.EntryData] | None = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class AlterClientQuotasRequest(Message):
    class EntityData(Structure):
        entity_type: str
        entity_name: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            entity_type: str = "",
            entity_name: str | None = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class OpData(Structure):
        key: str
        value: float
        remove: bool
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            key: str = "",
            value: float = 0.0,
            remove: bool = False,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class EntryData(Structure):
        entity: list[AlterClientQuotasRequest.EntityData]
        ops: list[AlterClientQuotasRequest.OpData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            entity: list[AlterClientQuotasRequest.EntityData] = ...,
            ops: list[AlterClientQuotasRequest.OpData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    entries: list[AlterClientQuotasRequest.EntryData]
    validate_only: bool
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        entries: list[AlterClientQuotasRequest.EntryData] = ...,
        validate_only: bool = False,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class AlterClientQuotasResponse(Message):
    class EntityData(Structure):
        entity_type: str
        entity_name: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            entity_type: str = "",
            entity_name: str | None = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class EntryData(Structure):
        error_code: int
        error_message: str | None
        entity: list[AlterClientQuotasResponse.EntityData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            error_code: int = 0,
            error_message: str | None = "",
            entity: list[AlterClientQuotasResponse.EntityData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    entries: list[AlterClientQuotasResponse.EntryData]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        entries: list[AlterClientQuotasResponse.EntryData] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class UpdateFeaturesRequest(Message):
    class FeatureUpdateKey(Structure):
        feature: str
        max_version_level: int
        allow_downgrade: bool
        upgrade_type: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            feature: str = "",
            max_version_level: int = 0,
            allow_downgrade: bool = False,
            upgrade_type: int = 1,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    timeout_ms: int
    feature_updates: list[UpdateFeaturesRequest.FeatureUpdateKey]
    validate_only: bool
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        timeout_ms: int = 60000,
        feature_updates: list[UpdateFeaturesRequest.FeatureUpdateKey] = ...,
        validate_only: bool = False,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class UpdateFeaturesResponse(Message):
    class UpdatableFeatureResult(Structure):
        feature: str
        error_code: int
        error_message: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            feature: str = "",
            error_code: int = 0,
            error_message: str | None = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: list[UpdateFeaturesResponse.UpdatableFeatureResult]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        results: list[UpdateFeaturesResponse.UpdatableFeatureResult] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class UnregisterBrokerRequest(Message):
    broker_id: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        broker_id: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class UnregisterBrokerResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class GetTelemetrySubscriptionsRequest(Message):
    client_instance_id: bytes
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        client_instance_id: bytes = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class GetTelemetrySubscriptionsResponse(Message):
    throttle_time_ms: int
    error_code: int
    client_instance_id: bytes
    subscription_id: int
    accepted_compression_types: list[int]
    push_interval_ms: int
    telemetry_max_bytes: int
    delta_temporality: bool
    requested_metrics: list[str]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        client_instance_id: bytes = ...,
        subscription_id: int = 0,
        accepted_compression_types: list[int] = ...,
        push_interval_ms: int = 0,
        telemetry_max_bytes: int = 0,
        delta_temporality: bool = False,
        requested_metrics: list[str] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class PushTelemetryRequest(Message):
    client_instance_id: bytes
    subscription_id: int
    terminating: bool
    compression_type: int
    metrics: bytes
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        client_instance_id: bytes = ...,
        subscription_id: int = 0,
        terminating: bool = False,
        compression_type: int = 0,
        metrics: bytes = b"",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class PushTelemetryResponse(Message):
    throttle_time_ms: int
    error_code: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ListConfigResourcesRequest(Message):
    resource_types: list[int]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        resource_types: list[int] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ListConfigResourcesResponse(Message):
    class ConfigResource(Structure):
        resource_name: str
        resource_type: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            resource_name: str = "",
            resource_type: int = 16,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    config_resources: list[ListConfigResourcesResponse.ConfigResource]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        config_resources: list[ListConfigResourcesResponse.ConfigResource] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ListClientMetricsResourcesRequest(Message):
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ListClientMetricsResourcesResponse(Message):
    class ClientMetricsResource(Structure):
        name: str
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    client_metrics_resources: list[ListClientMetricsResourcesResponse.ClientMetricsResource]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        client_metrics_resources: list[ListClientMetricsResourcesResponse.ClientMetricsResource] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class SaslHandshakeRequest(Message):
    mechanism: str
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        mechanism: str = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class SaslHandshakeResponse(Message):
    error_code: int
    mechanisms: list[str]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        error_code: int = 0,
        mechanisms: list[str] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class SaslAuthenticateRequest(Message):
    auth_bytes: bytes
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        auth_bytes: bytes = b"",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class SaslAuthenticateResponse(Message):
    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = "",
        auth_bytes: bytes = b"",
        session_lifetime_ms: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DescribeAclsRequest(Message):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        resource_type_filter: int = 0,
        resource_name_filter: str | None = "",
        pattern_type_filter: int = 3,
        principal_filter: str | None = "",
        host_filter: str | None = "",
        operation: int = 0,
        permission_type: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DescribeAclsResponse(Message):
    class AclDescription(Structure):
        principal: str
        host: str
        operation: int
        permission_type: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            principal: str = "",
            host: str = "",
            operation: int = 0,
            permission_type: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class DescribeAclsResource(Structure):
        resource_type: int
        resource_name: str
        pattern_type: int
        acls: list[DescribeAclsResponse.AclDescription]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            resource_type: int = 0,
            resource_name: str = "",
            pattern_type: int = 3,
            acls: list[DescribeAclsResponse.AclDescription] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    resources: list[DescribeAclsResponse.DescribeAclsResource]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        resources: list[DescribeAclsResponse.DescribeAclsResource] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class CreateAclsRequest(Message):
    class AclCreation(Structure):
        resource_type: int
        resource_name: str
        resource_pattern_type: int
        principal: str
        host: str
        operation: int
        permission_type: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            resource_type: int = 0,
            resource_name: str = "",
            resource_pattern_type: int = 3,
            principal: str = "",
            host: str = "",
            operation: int = 0,
            permission_type: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    creations: list[CreateAclsRequest.AclCreation]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        creations: list[CreateAclsRequest.AclCreation] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class CreateAclsResponse(Message):
    class AclCreationResult(Structure):
        error_code: int
        error_message: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            error_code: int = 0,
            error_message: str | None = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    results: list[CreateAclsResponse.AclCreationResult]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[CreateAclsResponse.AclCreationResult] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DeleteAclsRequest(Message):
    class DeleteAclsFilter(Structure):
        resource_type_filter: int
        resource_name_filter: str | None
        pattern_type_filter: int
        principal_filter: str | None
        host_filter: str | None
        operation: int
        permission_type: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            resource_type_filter: int = 0,
            resource_name_filter: str | None = "",
            pattern_type_filter: int = 3,
            principal_filter: str | None = "",
            host_filter: str | None = "",
            operation: int = 0,
            permission_type: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    filters: list[DeleteAclsRequest.DeleteAclsFilter]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        filters: list[DeleteAclsRequest.DeleteAclsFilter] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DeleteAclsResponse(Message):
    class DeleteAclsMatchingAcl(Structure):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        pattern_type: int
        principal: str
        host: str
        operation: int
        permission_type: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            error_code: int = 0,
            error_message: str | None = "",
            resource_type: int = 0,
            resource_name: str = "",
            pattern_type: int = 3,
            principal: str = "",
            host: str = "",
            operation: int = 0,
            permission_type: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class DeleteAclsFilterResult(Structure):
        error_code: int
        error_message: str | None
        matching_acls: list[DeleteAclsResponse.DeleteAclsMatchingAcl]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            error_code: int = 0,
            error_message: str | None = "",
            matching_acls: list[DeleteAclsResponse.DeleteAclsMatchingAcl] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    filter_results: list[DeleteAclsResponse.DeleteAclsFilterResult]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        filter_results: list[DeleteAclsResponse.DeleteAclsFilterResult] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class CreateDelegationTokenRequest(Message):
    class CreatableRenewers(Structure):
        principal_type: str
        principal_name: str
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            principal_type: str = "",
            principal_name: str = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    owner_principal_type: str | None
    owner_principal_name: str | None
    renewers: list[CreateDelegationTokenRequest.CreatableRenewers]
    max_lifetime_ms: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        owner_principal_type: str | None = "",
        owner_principal_name: str | None = "",
        renewers: list[CreateDelegationTokenRequest.CreatableRenewers] = ...,
        max_lifetime_ms: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class CreateDelegationTokenResponse(Message):
    error_code: int
    principal_type: str
    principal_name: str
    token_requester_principal_type: str
    token_requester_principal_name: str
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int
    token_id: str
    hmac: bytes
    throttle_time_ms: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        error_code: int = 0,
        principal_type: str = "",
        principal_name: str = "",
        token_requester_principal_type: str = "",
        token_requester_principal_name: str = "",
        issue_timestamp_ms: int = 0,
        expiry_timestamp_ms: int = 0,
        max_timestamp_ms: int = 0,
        token_id: str = "",
        hmac: bytes = b"",
        throttle_time_ms: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class RenewDelegationTokenRequest(Message):
    hmac: bytes
    renew_period_ms: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        hmac: bytes = b"",
        renew_period_ms: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class RenewDelegationTokenResponse(Message):
    error_code: int
    expiry_timestamp_ms: int
    throttle_time_ms: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        error_code: int = 0,
        expiry_timestamp_ms: int = 0,
        throttle_time_ms: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ExpireDelegationTokenRequest(Message):
    hmac: bytes
    expiry_time_period_ms: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        hmac: bytes = b"",
        expiry_time_period_ms: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ExpireDelegationTokenResponse(Message):
    error_code: int
    expiry_timestamp_ms: int
    throttle_time_ms: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        error_code: int = 0,
        expiry_timestamp_ms: int = 0,
        throttle_time_ms: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DescribeDelegationTokenRequest(Message):
    class DescribeDelegationTokenOwner(Structure):
        principal_type: str
        principal_name: str
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            principal_type: str = "",
            principal_name: str = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    owners: list[DescribeDelegationTokenRequest.DescribeDelegationTokenOwner] | None
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        owners: list[DescribeDelegationTokenRequest.DescribeDelegationTokenOwner] | None = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DescribeDelegationTokenResponse(Message):
    class DescribedDelegationTokenRenewer(Structure):
        principal_type: str
        principal_name: str
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            principal_type: str = "",
            principal_name: str = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class DescribedDelegationToken(Structure):
        principal_type: str
        principal_name: str
        token_requester_principal_type: str
        token_requester_principal_name: str
        issue_timestamp: int
        expiry_timestamp: int
        max_timestamp: int
        token_id: str
        hmac: bytes
        renewers: list[DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            principal_type: str = "",
            principal_name: str = "",
            token_requester_principal_type: str = "",
            token_requester_principal_name: str = "",
            issue_timestamp: int = 0,
            expiry_timestamp: int = 0,
            max_timestamp: int = 0,
            token_id: str = "",
            hmac: bytes = b"",
            renewers: list[DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    error_code: int
    tokens: list[DescribeDelegationTokenResponse.DescribedDelegationToken]
    throttle_time_ms: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        error_code: int = 0,
        tokens: list[DescribeDelegationTokenResponse.DescribedDelegationToken] = ...,
        throttle_time_ms: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DescribeUserScramCredentialsRequest(Message):
    class UserName(Structure):
        name: str
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    users: list[DescribeUserScramCredentialsRequest.UserName] | None
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        users: list[DescribeUserScramCredentialsRequest.UserName] | None = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DescribeUserScramCredentialsResponse(Message):
    class CredentialInfo(Structure):
        mechanism: int
        iterations: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            mechanism: int = 0,
            iterations: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class DescribeUserScramCredentialsResult(Structure):
        user: str
        error_code: int
        error_message: str | None
        credential_infos: list[DescribeUserScramCredentialsResponse.CredentialInfo]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            user: str = "",
            error_code: int = 0,
            error_message: str | None = "",
            credential_infos: list[DescribeUserScramCredentialsResponse.CredentialInfo] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: list[DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        results: list[DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class AlterUserScramCredentialsRequest(Message):
    class ScramCredentialDeletion(Structure):
        name: str
        mechanism: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            mechanism: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class ScramCredentialUpsertion(Structure):
        name: str
        mechanism: int
        iterations: int
        salt: bytes
        salted_password: bytes
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            mechanism: int = 0,
            iterations: int = 0,
            salt: bytes = b"",
            salted_password: bytes = b"",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    deletions: list[AlterUserScramCredentialsRequest.ScramCredentialDeletion]
    upsertions: list[AlterUserScramCredentialsRequest.ScramCredentialUpsertion]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        deletions: list[AlterUserScramCredentialsRequest.ScramCredentialDeletion] = ...,
        upsertions: list[AlterUserScramCredentialsRequest.ScramCredentialUpsertion] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class AlterUserScramCredentialsResponse(Message):
    class AlterUserScramCredentialsResult(Structure):
        user: str
        error_code: int
        error_message: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            user: str = "",
            error_code: int = 0,
            error_message: str | None = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    results: list[AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class LeaderAndIsrRequest(Message):
    class LeaderAndIsrPartitionState(Structure):
        topic_name: str
        partition_index: int
        controller_epoch: int
        leader: int
        leader_epoch: int
        isr: list[int]
        partition_epoch: int
        replicas: list[int]
        adding_replicas: list[int]
        removing_replicas: list[int]
        is_new: bool
        leader_recovery_state: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            partition_index: int = 0,
            controller_epoch: int = 0,
            leader: int = 0,
            leader_epoch: int = 0,
            isr: list[int] = ...,
            partition_epoch: int = 0,
            replicas: list[int] = ...,
            adding_replicas: list[int] = ...,
            removing_replicas: list[int] = ...,
            is_new: bool = False,
            leader_recovery_state: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class LeaderAndIsrTopicState(Structure):
        topic_name: str
        topic_id: TopicId
        partition_states: list[LeaderAndIsrRequest.LeaderAndIsrPartitionState]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            topic_id: TopicId = ...,
            partition_states: list[LeaderAndIsrRequest.LeaderAndIsrPartitionState] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class LeaderAndIsrLiveLeader(Structure):
        broker_id: int
        host_name: str
        port: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            broker_id: int = 0,
            host_name: str = "",
            port: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    controller_id: int
    is_k_raft_controller: bool
    controller_epoch: int
    broker_epoch: int
    type: int
    ungrouped_partition_states: list[LeaderAndIsrRequest.LeaderAndIsrPartitionState]
    topic_states: list[LeaderAndIsrRequest.LeaderAndIsrTopicState]
    live_leaders: list[LeaderAndIsrRequest.LeaderAndIsrLiveLeader]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        controller_id: int = 0,
        is_k_raft_controller: bool = False,
        controller_epoch: int = 0,
        broker_epoch: int = -1,
        type: int = 0,
        ungrouped_partition_states: list[LeaderAndIsrRequest.LeaderAndIsrPartitionState] = ...,
        topic_states: list[LeaderAndIsrRequest.LeaderAndIsrTopicState] = ...,
        live_leaders: list[LeaderAndIsrRequest.LeaderAndIsrLiveLeader] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class LeaderAndIsrResponse(Message):
    class LeaderAndIsrPartitionError(Structure):
        topic_name: str
        partition_index: int
        error_code: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            partition_index: int = 0,
            error_code: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class LeaderAndIsrTopicError(Structure):
        topic_id: TopicId
        partition_errors: list[LeaderAndIsrResponse.LeaderAndIsrPartitionError]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            partition_errors: list[LeaderAndIsrResponse.LeaderAndIsrPartitionError] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    error_code: int
    partition_errors: list[LeaderAndIsrResponse.LeaderAndIsrPartitionError]
    topics: list[LeaderAndIsrResponse.LeaderAndIsrTopicError]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        error_code: int = 0,
        partition_errors: list[LeaderAndIsrResponse.LeaderAndIsrPartitionError] = ...,
        topics: list[LeaderAndIsrResponse.LeaderAndIsrTopicError] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class StopReplicaRequest(Message):
    class StopReplicaPartitionV0(Structure):
        topic_name: str
        partition_index: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            partition_index: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class StopReplicaTopicV1(Structure):
        name: str
        partition_indexes: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partition_indexes: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class StopReplicaPartitionState(Structure):
        partition_index: int
        leader_epoch: int
        delete_partition: bool
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            leader_epoch: int = -1,
            delete_partition: bool = False,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class StopReplicaTopicState(Structure):
        topic_name: str
        partition_states: list[StopReplicaRequest.StopReplicaPartitionState]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            partition_states: list[StopReplicaRequest.StopReplicaPartitionState] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    controller_id: int
    is_k_raft_controller: bool
    controller_epoch: int
    broker_epoch: int
    delete_partitions: bool
    ungrouped_partitions: list[StopReplicaRequest.StopReplicaPartitionV0]
    topics: list[StopReplicaRequest.StopReplicaTopicV1]
    topic_states: list[StopReplicaRequest.StopReplicaTopicState]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        controller_id: int = 0,
        is_k_raft_controller: bool = False,
        controller_epoch: int = 0,
        broker_epoch: int = -1,
        delete_partitions: bool = False,
        ungrouped_partitions: list[StopReplicaRequest.StopReplicaPartitionV0] = ...,
        topics: list[StopReplicaRequest.StopReplicaTopicV1] = ...,
        topic_states: list[StopReplicaRequest.StopReplicaTopicState] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class StopReplicaResponse(Message):
    class StopReplicaPartitionError(Structure):
        topic_name: str
        partition_index: int
        error_code: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            partition_index: int = 0,
            error_code: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    error_code: int
    partition_errors: list[StopReplicaResponse.StopReplicaPartitionError]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        error_code: int = 0,
        partition_errors: list[StopReplicaResponse.StopReplicaPartitionError] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class UpdateMetadataRequest(Message):
    class UpdateMetadataPartitionState(Structure):
        topic_name: str
        partition_index: int
        controller_epoch: int
        leader: int
        leader_epoch: int
        isr: list[int]
        zk_version: int
        replicas: list[int]
        offline_replicas: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            partition_index: int = 0,
            controller_epoch: int = 0,
            leader: int = 0,
            leader_epoch: int = 0,
            isr: list[int] = ...,
            zk_version: int = 0,
            replicas: list[int] = ...,
            offline_replicas: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class UpdateMetadataTopicState(Structure):
        topic_name: str
        topic_id: TopicId
        partition_states: list[UpdateMetadataRequest.UpdateMetadataPartitionState]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            topic_id: TopicId = ...,
            partition_states: list[UpdateMetadataRequest.UpdateMetadataPartitionState] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class UpdateMetadataEndpoint(Structure):
        port: int
        host: str
        listener: str
        security_protocol: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            port: int = 0,
            host: str = "",
            listener: str = "",
            security_protocol: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class UpdateMetadataBroker(Structure):
        id: int
        v0_host: str
        v0_port: int
        endpoints: list[UpdateMetadataRequest.UpdateMetadataEndpoint]
        rack: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            id: int = 0,
            v0_host: str = "",
            v0_port: int = 0,
            endpoints: list[UpdateMetadataRequest.UpdateMetadataEndpoint] = ...,
            rack: str | None = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    controller_id: int
    is_k_raft_controller: bool
    type: int
    controller_epoch: int
    broker_epoch: int
    ungrouped_partition_states: list[UpdateMetadataRequest.UpdateMetadataPartitionState]
    topic_states: list[UpdateMetadataRequest.UpdateMetadataTopicState]
    live_brokers: list[UpdateMetadataRequest.UpdateMetadataBroker]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        controller_id: int = 0,
        is_k_raft_controller: bool = False,
        type: int = 0,
        controller_epoch: int = 0,
        broker_epoch: int = -1,
        ungrouped_partition_states: list[UpdateMetadataRequest.UpdateMetadataPartitionState] = ...,
        topic_states: list[UpdateMetadataRequest.UpdateMetadataTopicState] = ...,
        live_brokers: list[UpdateMetadataRequest.UpdateMetadataBroker] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class UpdateMetadataResponse(Message):
    error_code: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        error_code: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ControlledShutdownRequest(Message):
    broker_id: int
    broker_epoch: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = -1,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ControlledShutdownResponse(Message):
    class RemainingPartition(Structure):
        topic_name: str
        partition_index: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            partition_index: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    error_code: int
    remaining_partitions: list[ControlledShutdownResponse.RemainingPartition]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        error_code: int = 0,
        remaining_partitions: list[ControlledShutdownResponse.RemainingPartition] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class AlterPartitionRequest(Message):
    class BrokerState(Structure):
        broker_id: int
        broker_epoch: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            broker_id: int = 0,
            broker_epoch: int = -1,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class PartitionData(Structure):
        partition_index: int
        leader_epoch: int
        new_isr: list[int]
        new_isr_with_epochs: list[AlterPartitionRequest.BrokerState]
        leader_recovery_state: int
        partition_epoch: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            leader_epoch: int = 0,
            new_isr: list[int] = ...,
            new_isr_with_epochs: list[AlterPartitionRequest.BrokerState] = ...,
            leader_recovery_state: int = 0,
            partition_epoch: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TopicData(Structure):
        topic_name: str
        topic_id: TopicId
        partitions: list[AlterPartitionRequest.PartitionData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            topic_id: TopicId = ...,
            partitions: list[AlterPartitionRequest.PartitionData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    broker_id: int
    broker_epoch: int
    topics: list[AlterPartitionRequest.TopicData]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = -1,
        topics: list[AlterPartitionRequest.TopicData] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class AlterPartitionResponse(Message):
    class PartitionData(Structure):
        partition_index: int
        error_code: int
        leader_id: int
        leader_epoch: int
        isr: list[int]
        leader_recovery_state: int
        partition_epoch: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            leader_id: int = 0,
            leader_epoch: int = 0,
            isr: list[int] = ...,
            leader_recovery_state: int = 0,
            partition_epoch: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TopicData(Structure):
        topic_name: str
        topic_id: TopicId
        partitions: list[AlterPartitionResponse.PartitionData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            topic_id: TopicId = ...,
            partitions: list[AlterPartitionResponse.PartitionData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    topics: list[AlterPartitionResponse.TopicData]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        topics: list[AlterPartitionResponse.TopicData] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class EnvelopeRequest(Message):
    request_data: bytes
    request_principal: bytes | None
    client_host_address: bytes
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        request_data: bytes = b"",
        request_principal: bytes | None = b"",
        client_host_address: bytes = b"",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class EnvelopeResponse(Message):
    response_data: bytes | None
    error_code: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        response_data: bytes | None = None,
        error_code: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class BrokerRegistrationRequest(Message):
    class Listener(Structure):
        name: str
        host: str
        port: int
        security_protocol: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            host: str = "",
            port: int = 0,
            security_protocol: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class Feature(Structure):
        name: str
        min_supported_version: int
        max_supported_version: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            min_supported_version: int = 0,
            max_supported_version: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    broker_id: int
    cluster_id: str
    incarnation_id: bytes
    listeners: list[BrokerRegistrationRequest.Listener]
    features: list[BrokerRegistrationRequest.Feature]
    rack: str | None
    is_migrating_zk_broker: bool
    log_dirs: list[bytes]
    previous_broker_epoch: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        broker_id: int = 0,
        cluster_id: str = "",
        incarnation_id: bytes = ...,
        listeners: list[BrokerRegistrationRequest.Listener] = ...,
        features: list[BrokerRegistrationRequest.Feature] = ...,
        rack: str | None = "",
        is_migrating_zk_broker: bool = False,
        log_dirs: list[bytes] = ...,
        previous_broker_epoch: int = -1,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class BrokerRegistrationResponse(Message):
    throttle_time_ms: int
    error_code: int
    broker_epoch: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        broker_epoch: int = -1,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class BrokerHeartbeatRequest(Message):
    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: list[bytes]
    cordoned_log_dirs: list[bytes] | None
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = -1,
        current_metadata_offset: int = 0,
        want_fence: bool = False,
        want_shut_down: bool = False,
        offline_log_dirs: list[bytes] = ...,
        cordoned_log_dirs: list[bytes] | None = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class BrokerHeartbeatResponse(Message):
    throttle_time_ms: int
    error_code: int
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        is_caught_up: bool = False,
        is_fenced: bool = True,
        should_shut_down: bool = False,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class AllocateProducerIdsRequest(Message):
    broker_id: int
    broker_epoch: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = -1,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class AllocateProducerIdsResponse(Message):
    throttle_time_ms: int
    error_code: int
    producer_id_start: int
    producer_id_len: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        producer_id_start: int = 0,
        producer_id_len: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ControllerRegistrationRequest(Message):
    class Listener(Structure):
        name: str
        host: str
        port: int
        security_protocol: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            host: str = "",
            port: int = 0,
            security_protocol: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class Feature(Structure):
        name: str
        min_supported_version: int
        max_supported_version: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            min_supported_version: int = 0,
            max_supported_version: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    controller_id: int
    incarnation_id: bytes
    zk_migration_ready: bool
    listeners: list[ControllerRegistrationRequest.Listener]
    features: list[ControllerRegistrationRequest.Feature]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        controller_id: int = 0,
        incarnation_id: bytes = ...,
        zk_migration_ready: bool = False,
        listeners: list[ControllerRegistrationRequest.Listener] = ...,
        features: list[ControllerRegistrationRequest.Feature] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ControllerRegistrationResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class AssignReplicasToDirsRequest(Message):
    class PartitionData(Structure):
        partition_index: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TopicData(Structure):
        topic_id: TopicId
        partitions: list[AssignReplicasToDirsRequest.PartitionData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            partitions: list[AssignReplicasToDirsRequest.PartitionData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class DirectoryData(Structure):
        id: bytes
        topics: list[AssignReplicasToDirsRequest.TopicData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            id: bytes = ...,
            topics: list[AssignReplicasToDirsRequest.TopicData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    broker_id: int
    broker_epoch: int
    directories: list[AssignReplicasToDirsRequest.DirectoryData]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = -1,
        directories: list[AssignReplicasToDirsRequest.DirectoryData] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class AssignReplicasToDirsResponse(Message):
    class PartitionData(Structure):
        partition_index: int
        error_code: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TopicData(Structure):
        topic_id: TopicId
        partitions: list[AssignReplicasToDirsResponse.PartitionData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            partitions: list[AssignReplicasToDirsResponse.PartitionData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class DirectoryData(Structure):
        id: bytes
        topics: list[AssignReplicasToDirsResponse.TopicData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            id: bytes = ...,
            topics: list[AssignReplicasToDirsResponse.TopicData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    directories: list[AssignReplicasToDirsResponse.DirectoryData]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        directories: list[AssignReplicasToDirsResponse.DirectoryData] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class VoteRequest(Message):
    class PartitionData(Structure):
        partition_index: int
        replica_epoch: int
        replica_id: int
        replica_directory_id: bytes
        voter_directory_id: bytes
        last_offset_epoch: int
        last_offset: int
        pre_vote: bool
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            replica_epoch: int = 0,
            replica_id: int = 0,
            replica_directory_id: bytes = ...,
            voter_directory_id: bytes = ...,
            last_offset_epoch: int = 0,
            last_offset: int = 0,
            pre_vote: bool = False,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TopicData(Structure):
        topic_name: str
        partitions: list[VoteRequest.PartitionData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            partitions: list[VoteRequest.PartitionData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    cluster_id: str | None
    voter_id: int
    topics: list[VoteRequest.TopicData]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        cluster_id: str | None = None,
        voter_id: int = -1,
        topics: list[VoteRequest.TopicData] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class VoteResponse(Message):
    class PartitionData(Structure):
        partition_index: int
        error_code: int
        leader_id: int
        leader_epoch: int
        vote_granted: bool
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            leader_id: int = 0,
            leader_epoch: int = 0,
            vote_granted: bool = False,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TopicData(Structure):
        topic_name: str
        partitions: list[VoteResponse.PartitionData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            partitions: list[VoteResponse.PartitionData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class NodeEndpoint(Structure):
        node_id: int
        host: str
        port: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            node_id: int = 0,
            host: str = "",
            port: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    error_code: int
    topics: list[VoteResponse.TopicData]
    node_endpoints: list[VoteResponse.NodeEndpoint]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        error_code: int = 0,
        topics: list[VoteResponse.TopicData] = ...,
        node_endpoints: list[VoteResponse.NodeEndpoint] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class BeginQuorumEpochRequest(Message):
    class PartitionData(Structure):
        partition_index: int
        voter_directory_id: bytes
        leader_id: int
        leader_epoch: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            voter_directory_id: bytes = ...,
            leader_id: int = 0,
            leader_epoch: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TopicData(Structure):
        topic_name: str
        partitions: list[BeginQuorumEpochRequest.PartitionData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            partitions: list[BeginQuorumEpochRequest.PartitionData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class LeaderEndpoint(Structure):
        name: str
        host: str
        port: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            host: str = "",
            port: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    cluster_id: str | None
    voter_id: int
    topics: list[BeginQuorumEpochRequest.TopicData]
    leader_endpoints: list[BeginQuorumEpochRequest.LeaderEndpoint]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        cluster_id: str | None = None,
        voter_id: int = -1,
        topics: list[BeginQuorumEpochRequest.TopicData] = ...,
        leader_endpoints: list[BeginQuorumEpochRequest.LeaderEndpoint] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class BeginQuorumEpochResponse(Message):
    class PartitionData(Structure):
        partition_index: int
        error_code: int
        leader_id: int
        leader_epoch: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            leader_id: int = 0,
            leader_epoch: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TopicData(Structure):
        topic_name: str
        partitions: list[BeginQuorumEpochResponse.PartitionData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            partitions: list[BeginQuorumEpochResponse.PartitionData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class NodeEndpoint(Structure):
        node_id: int
        host: str
        port: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            node_id: int = 0,
            host: str = "",
            port: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    error_code: int
    topics: list[BeginQuorumEpochResponse.TopicData]
    node_endpoints: list[BeginQuorumEpochResponse.NodeEndpoint]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        error_code: int = 0,
        topics: list[BeginQuorumEpochResponse.TopicData] = ...,
        node_endpoints: list[BeginQuorumEpochResponse.NodeEndpoint] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class EndQuorumEpochRequest(Message):
    class ReplicaInfo(Structure):
        candidate_id: int
        candidate_directory_id: bytes
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            candidate_id: int = 0,
            candidate_directory_id: bytes = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class PartitionData(Structure):
        partition_index: int
        leader_id: int
        leader_epoch: int
        preferred_successors: list[int]
        preferred_candidates: list[EndQuorumEpochRequest.ReplicaInfo]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            leader_id: int = 0,
            leader_epoch: int = 0,
            preferred_successors: list[int] = ...,
            preferred_candidates: list[EndQuorumEpochRequest.ReplicaInfo] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TopicData(Structure):
        topic_name: str
        partitions: list[EndQuorumEpochRequest.PartitionData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            partitions: list[EndQuorumEpochRequest.PartitionData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class LeaderEndpoint(Structure):
        name: str
        host: str
        port: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            host: str = "",
            port: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    cluster_id: str | None
    topics: list[EndQuorumEpochRequest.TopicData]
    leader_endpoints: list[EndQuorumEpochRequest.LeaderEndpoint]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        cluster_id: str | None = None,
        topics: list[EndQuorumEpochRequest.TopicData] = ...,
        leader_endpoints: list[EndQuorumEpochRequest.LeaderEndpoint] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class EndQuorumEpochResponse(Message):
    class PartitionData(Structure):
        partition_index: int
        error_code: int
        leader_id: int
        leader_epoch: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            leader_id: int = 0,
            leader_epoch: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TopicData(Structure):
        topic_name: str
        partitions: list[EndQuorumEpochResponse.PartitionData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            partitions: list[EndQuorumEpochResponse.PartitionData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class NodeEndpoint(Structure):
        node_id: int
        host: str
        port: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            node_id: int = 0,
            host: str = "",
            port: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    error_code: int
    topics: list[EndQuorumEpochResponse.TopicData]
    node_endpoints: list[EndQuorumEpochResponse.NodeEndpoint]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        error_code: int = 0,
        topics: list[EndQuorumEpochResponse.TopicData] = ...,
        node_endpoints: list[EndQuorumEpochResponse.NodeEndpoint] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DescribeQuorumRequest(Message):
    class PartitionData(Structure):
        partition_index: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TopicData(Structure):
        topic_name: str
        partitions: list[DescribeQuorumRequest.PartitionData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            partitions: list[DescribeQuorumRequest.PartitionData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    topics: list[DescribeQuorumRequest.TopicData]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        topics: list[DescribeQuorumRequest.TopicData] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DescribeQuorumResponse(Message):
    class ReplicaState(Structure):
        replica_id: int
        replica_directory_id: bytes
        log_end_offset: int
        last_fetch_timestamp: int
        last_caught_up_timestamp: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            replica_id: int = 0,
            replica_directory_id: bytes = ...,
            log_end_offset: int = 0,
            last_fetch_timestamp: int = -1,
            last_caught_up_timestamp: int = -1,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class PartitionData(Structure):
        partition_index: int
        error_code: int
        error_message: str | None
        leader_id: int
        leader_epoch: int
        high_watermark: int
        current_voters: list[DescribeQuorumResponse.ReplicaState]
        observers: list[DescribeQuorumResponse.ReplicaState]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            error_message: str | None = "",
            leader_id: int = 0,
            leader_epoch: int = 0,
            high_watermark: int = 0,
            current_voters: list[DescribeQuorumResponse.ReplicaState] = ...,
            observers: list[DescribeQuorumResponse.ReplicaState] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TopicData(Structure):
        topic_name: str
        partitions: list[DescribeQuorumResponse.PartitionData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            partitions: list[DescribeQuorumResponse.PartitionData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class Listener(Structure):
        name: str
        host: str
        port: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            host: str = "",
            port: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class Node(Structure):
        node_id: int
        listeners: list[DescribeQuorumResponse.Listener]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            node_id: int = 0,
            listeners: list[DescribeQuorumResponse.Listener] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    error_code: int
    error_message: str | None
    topics: list[DescribeQuorumResponse.TopicData]
    nodes: list[DescribeQuorumResponse.Node]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = "",
        topics: list[DescribeQuorumResponse.TopicData] = ...,
        nodes: list[DescribeQuorumResponse.Node] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class FetchSnapshotRequest(Message):
    class SnapshotId(Structure):
        end_offset: int
        epoch: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            end_offset: int = 0,
            epoch: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class PartitionSnapshot(Structure):
        partition: int
        current_leader_epoch: int
        snapshot_id: FetchSnapshotRequest.SnapshotId
        position: int
        replica_directory_id: bytes
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition: int = 0,
            current_leader_epoch: int = 0,
            snapshot_id: FetchSnapshotRequest.SnapshotId = ...,
            position: int = 0,
            replica_directory_id: bytes = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TopicSnapshot(Structure):
        name: str
        partitions: list[FetchSnapshotRequest.PartitionSnapshot]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partitions: list[FetchSnapshotRequest.PartitionSnapshot] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    cluster_id: str | None
    replica_id: int
    max_bytes: int
    topics: list[FetchSnapshotRequest.TopicSnapshot]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        cluster_id: str | None = None,
        replica_id: int = -1,
        max_bytes: int = 2147483647,
        topics: list[FetchSnapshotRequest.TopicSnapshot] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class FetchSnapshotResponse(Message):
    class SnapshotId(Structure):
        end_offset: int
        epoch: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            end_offset: int = 0,
            epoch: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class LeaderIdAndEpoch(Structure):
        leader_id: int
        leader_epoch: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            leader_id: int = 0,
            leader_epoch: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class PartitionSnapshot(Structure):
        index: int
        error_code: int
        snapshot_id: FetchSnapshotResponse.SnapshotId
        current_leader: FetchSnapshotResponse.LeaderIdAndEpoch
        size: int
        position: int
        unaligned_records: bytes | memoryview | list[Chunk]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            index: int = 0,
            error_code: int = 0,
            snapshot_id: FetchSnapshotResponse.SnapshotId = ...,
            current_leader: FetchSnapshotResponse.LeaderIdAndEpoch = ...,
            size: int = 0,
            position: int = 0,
            unaligned_records: bytes | memoryview | list[Chunk] = b"",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TopicSnapshot(Structure):
        name: str
        partitions: list[FetchSnapshotResponse.PartitionSnapshot]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partitions: list[FetchSnapshotResponse.PartitionSnapshot] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class NodeEndpoint(Structure):
        node_id: int
        host: str
        port: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            node_id: int = 0,
            host: str = "",
            port: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    topics: list[FetchSnapshotResponse.TopicSnapshot]
    node_endpoints: list[FetchSnapshotResponse.NodeEndpoint]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        topics: list[FetchSnapshotResponse.TopicSnapshot] = ...,
        node_endpoints: list[FetchSnapshotResponse.NodeEndpoint] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class AddRaftVoterRequest(Message):
    class Listener(Structure):
        name: str
        host: str
        port: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            host: str = "",
            port: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    cluster_id: str | None
    timeout_ms: int
    voter_id: int
    voter_directory_id: bytes
    listeners: list[AddRaftVoterRequest.Listener]
    ack_when_committed: bool
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        cluster_id: str | None = "",
        timeout_ms: int = 0,
        voter_id: int = 0,
        voter_directory_id: bytes = ...,
        listeners: list[AddRaftVoterRequest.Listener] = ...,
        ack_when_committed: bool = True,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class AddRaftVoterResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class RemoveRaftVoterRequest(Message):
    cluster_id: str | None
    voter_id: int
    voter_directory_id: bytes
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        cluster_id: str | None = "",
        voter_id: int = 0,
        voter_directory_id: bytes = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class RemoveRaftVoterResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class UpdateRaftVoterRequest(Message):
    class Listener(Structure):
        name: str
        host: str
        port: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            host: str = "",
            port: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class KRaftVersionFeature(Structure):
        min_supported_version: int
        max_supported_version: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            min_supported_version: int = 0,
            max_supported_version: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    cluster_id: str | None
    current_leader_epoch: int
    voter_id: int
    voter_directory_id: bytes
    listeners: list[UpdateRaftVoterRequest.Listener]
    k_raft_version_feature: UpdateRaftVoterRequest.KRaftVersionFeature
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        cluster_id: str | None = "",
        current_leader_epoch: int = 0,
        voter_id: int = 0,
        voter_directory_id: bytes = ...,
        listeners: list[UpdateRaftVoterRequest.Listener] = ...,
        k_raft_version_feature: UpdateRaftVoterRequest.KRaftVersionFeature = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class UpdateRaftVoterResponse(Message):
    class CurrentLeader(Structure):
        leader_id: int
        leader_epoch: int
        host: str
        port: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            leader_id: int = -1,
            leader_epoch: int = -1,
            host: str = "",
            port: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    current_leader: UpdateRaftVoterResponse.CurrentLeader
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        current_leader: UpdateRaftVoterResponse.CurrentLeader = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ShareGroupHeartbeatRequest(Message):
    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None
    subscribed_topic_names: list[str] | None
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        member_epoch: int = 0,
        rack_id: str | None = None,
        subscribed_topic_names: list[str] | None = None,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ShareGroupHeartbeatResponse(Message):
    class TopicPartitions(Structure):
        topic_id: TopicId
        partitions: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class Assignment(Structure):
        topic_partitions: list[ShareGroupHeartbeatResponse.TopicPartitions]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_partitions: list[ShareGroupHeartbeatResponse.TopicPartitions] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: ShareGroupHeartbeatResponse.Assignment | None
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        member_id: str | None = None,
        member_epoch: int = 0,
        heartbeat_interval_ms: int = 0,
        assignment: ShareGroupHeartbeatResponse.Assignment | None = None,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ShareGroupDescribeRequest(Message):
    group_ids: list[str]
    include_authorized_operations: bool
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_ids: list[str] = ...,
        include_authorized_operations: bool = False,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ShareGroupDescribeResponse(Message):
    class TopicPartitions(Structure):
        topic_id: TopicId
        topic_name: str
        partitions: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            topic_name: str = "",
            partitions: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class Assignment(Structure):
        topic_partitions: list[ShareGroupDescribeResponse.TopicPartitions]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_partitions: list[ShareGroupDescribeResponse.TopicPartitions] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class Member(Structure):
        member_id: str
        rack_id: str | None
        member_epoch: int
        client_id: str
        client_host: str
        subscribed_topic_names: list[str]
        assignment: ShareGroupDescribeResponse.Assignment
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            member_id: str = "",
            rack_id: str | None = None,
            member_epoch: int = 0,
            client_id: str = "",
            client_host: str = "",
            subscribed_topic_names: list[str] = ...,
            assignment: ShareGroupDescribeResponse.Assignment = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class DescribedGroup(Structure):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        assignor_name: str
        members: list[ShareGroupDescribeResponse.Member]
        authorized_operations: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            error_code: int = 0,
            error_message: str | None = None,
            group_id: str = "",
            group_state: str = "",
            group_epoch: int = 0,
            assignment_epoch: int = 0,
            assignor_name: str = "",
            members: list[ShareGroupDescribeResponse.Member] = ...,
            authorized_operations: int = -2147483648,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    groups: list[ShareGroupDescribeResponse.DescribedGroup]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        groups: list[ShareGroupDescribeResponse.DescribedGroup] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ShareFetchRequest(Message):
    class AcknowledgementBatch(Structure):
        first_offset: int
        last_offset: int
        acknowledge_types: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            first_offset: int = 0,
            last_offset: int = 0,
            acknowledge_types: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class FetchPartition(Structure):
        partition_index: int
        partition_max_bytes: int
        acknowledgement_batches: list[ShareFetchRequest.AcknowledgementBatch]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            partition_max_bytes: int = 0,
            acknowledgement_batches: list[ShareFetchRequest.AcknowledgementBatch] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class FetchTopic(Structure):
        topic_id: TopicId
        partitions: list[ShareFetchRequest.FetchPartition]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            partitions: list[ShareFetchRequest.FetchPartition] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class ForgottenTopic(Structure):
        topic_id: TopicId
        partitions: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    share_acquire_mode: int
    is_renew_ack: bool
    topics: list[ShareFetchRequest.FetchTopic]
    forgotten_topics_data: list[ShareFetchRequest.ForgottenTopic]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str | None = None,
        member_id: str | None = "",
        share_session_epoch: int = 0,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        max_bytes: int = 2147483647,
        max_records: int = 0,
        batch_size: int = 0,
        share_acquire_mode: int = 0,
        is_renew_ack: bool = False,
        topics: list[ShareFetchRequest.FetchTopic] = ...,
        forgotten_topics_data: list[ShareFetchRequest.ForgottenTopic] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ShareFetchResponse(Message):
    class LeaderIdAndEpoch(Structure):
        leader_id: int
        leader_epoch: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            leader_id: int = 0,
            leader_epoch: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class AcquiredRecords(Structure):
        first_offset: int
        last_offset: int
        delivery_count: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            first_offset: int = 0,
            last_offset: int = 0,
            delivery_count: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class PartitionData(Structure):
        partition_index: int
        error_code: int
        error_message: str | None
        acknowledge_error_code: int
        acknowledge_error_message: str | None
        current_leader: ShareFetchResponse.LeaderIdAndEpoch
        records: bytes | memoryview | list[Chunk] | None
        acquired_records: list[ShareFetchResponse.AcquiredRecords]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            error_message: str | None = None,
            acknowledge_error_code: int = 0,
            acknowledge_error_message: str | None = None,
            current_leader: ShareFetchResponse.LeaderIdAndEpoch = ...,
            records: bytes | memoryview | list[Chunk] | None = b"",
            acquired_records: list[ShareFetchResponse.AcquiredRecords] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class ShareFetchableTopicResponse(Structure):
        topic_id: TopicId
        partitions: list[ShareFetchResponse.PartitionData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            partitions: list[ShareFetchResponse.PartitionData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class NodeEndpoint(Structure):
        node_id: int
        host: str
        port: int
        rack: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            node_id: int = 0,
            host: str = "",
            port: int = 0,
            rack: str | None = None,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout_ms: int
    responses: list[ShareFetchResponse.ShareFetchableTopicResponse]
    node_endpoints: list[ShareFetchResponse.NodeEndpoint]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        acquisition_lock_timeout_ms: int = 0,
        responses: list[ShareFetchResponse.ShareFetchableTopicResponse] = ...,
        node_endpoints: list[ShareFetchResponse.NodeEndpoint] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ShareAcknowledgeRequest(Message):
    class AcknowledgementBatch(Structure):
        first_offset: int
        last_offset: int
        acknowledge_types: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            first_offset: int = 0,
            last_offset: int = 0,
            acknowledge_types: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class AcknowledgePartition(Structure):
        partition_index: int
        acknowledgement_batches: list[ShareAcknowledgeRequest.AcknowledgementBatch]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            acknowledgement_batches: list[ShareAcknowledgeRequest.AcknowledgementBatch] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class AcknowledgeTopic(Structure):
        topic_id: TopicId
        partitions: list[ShareAcknowledgeRequest.AcknowledgePartition]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            partitions: list[ShareAcknowledgeRequest.AcknowledgePartition] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    is_renew_ack: bool
    topics: list[ShareAcknowledgeRequest.AcknowledgeTopic]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str | None = None,
        member_id: str | None = "",
        share_session_epoch: int = 0,
        is_renew_ack: bool = False,
        topics: list[ShareAcknowledgeRequest.AcknowledgeTopic] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ShareAcknowledgeResponse(Message):
    class LeaderIdAndEpoch(Structure):
        leader_id: int
        leader_epoch: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            leader_id: int = 0,
            leader_epoch: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class PartitionData(Structure):
        partition_index: int
        error_code: int
        error_message: str | None
        current_leader: ShareAcknowledgeResponse.LeaderIdAndEpoch
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            error_message: str | None = None,
            current_leader: ShareAcknowledgeResponse.LeaderIdAndEpoch = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class ShareAcknowledgeTopicResponse(Structure):
        topic_id: TopicId
        partitions: list[ShareAcknowledgeResponse.PartitionData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            partitions: list[ShareAcknowledgeResponse.PartitionData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class NodeEndpoint(Structure):
        node_id: int
        host: str
        port: int
        rack: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            node_id: int = 0,
            host: str = "",
            port: int = 0,
            rack: str | None = None,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout_ms: int
    responses: list[ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse]
    node_endpoints: list[ShareAcknowledgeResponse.NodeEndpoint]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        acquisition_lock_timeout_ms: int = 0,
        responses: list[ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse] = ...,
        node_endpoints: list[ShareAcknowledgeResponse.NodeEndpoint] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class InitializeShareGroupStateRequest(Message):
    class PartitionData(Structure):
        partition: int
        state_epoch: int
        start_offset: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition: int = 0,
            state_epoch: int = 0,
            start_offset: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class InitializeStateData(Structure):
        topic_id: TopicId
        partitions: list[InitializeShareGroupStateRequest.PartitionData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            partitions: list[InitializeShareGroupStateRequest.PartitionData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    group_id: str
    topics: list[InitializeShareGroupStateRequest.InitializeStateData]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[InitializeShareGroupStateRequest.InitializeStateData] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class InitializeShareGroupStateResponse(Message):
    class PartitionResult(Structure):
        partition: int
        error_code: int
        error_message: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition: int = 0,
            error_code: int = 0,
            error_message: str | None = None,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class InitializeStateResult(Structure):
        topic_id: TopicId
        partitions: list[InitializeShareGroupStateResponse.PartitionResult]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            partitions: list[InitializeShareGroupStateResponse.PartitionResult] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    results: list[InitializeShareGroupStateResponse.InitializeStateResult]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        results: list[InitializeShareGroupStateResponse.InitializeStateResult] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ReadShareGroupStateRequest(Message):
    class PartitionData(Structure):
        partition: int
        leader_epoch: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition: int = 0,
            leader_epoch: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class ReadStateData(Structure):
        topic_id: TopicId
        partitions: list[ReadShareGroupStateRequest.PartitionData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            partitions: list[ReadShareGroupStateRequest.PartitionData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    group_id: str
    topics: list[ReadShareGroupStateRequest.ReadStateData]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[ReadShareGroupStateRequest.ReadStateData] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ReadShareGroupStateResponse(Message):
    class StateBatch(Structure):
        first_offset: int
        last_offset: int
        delivery_state: int
        delivery_count: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            first_offset: int = 0,
            last_offset: int = 0,
            delivery_state: int = 0,
            delivery_count: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class PartitionResult(Structure):
        partition: int
        error_code: int
        error_message: str | None
        state_epoch: int
        start_offset: int
        state_batches: list[ReadShareGroupStateResponse.StateBatch]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition: int = 0,
            error_code: int = 0,
            error_message: str | None = None,
            state_epoch: int = 0,
            start_offset: int = 0,
            state_batches: list[ReadShareGroupStateResponse.StateBatch] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class ReadStateResult(Structure):
        topic_id: TopicId
        partitions: list[ReadShareGroupStateResponse.PartitionResult]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            partitions: list[ReadShareGroupStateResponse.PartitionResult] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    results: list[ReadShareGroupStateResponse.ReadStateResult]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        results: list[ReadShareGroupStateResponse.ReadStateResult] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class WriteShareGroupStateRequest(Message):
    class StateBatch(Structure):
        first_offset: int
        last_offset: int
        delivery_state: int
        delivery_count: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            first_offset: int = 0,
            last_offset: int = 0,
            delivery_state: int = 0,
            delivery_count: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class PartitionData(Structure):
        partition: int
        state_epoch: int
        leader_epoch: int
        start_offset: int
        delivery_complete_count: int
        state_batches: list[WriteShareGroupStateRequest.StateBatch]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition: int = 0,
            state_epoch: int = 0,
            leader_epoch: int = 0,
            start_offset: int = 0,
            delivery_complete_count: int = -1,
            state_batches: list[WriteShareGroupStateRequest.StateBatch] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class WriteStateData(Structure):
        topic_id: TopicId
        partitions: list[WriteShareGroupStateRequest.PartitionData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            partitions: list[WriteShareGroupStateRequest.PartitionData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    group_id: str
    topics: list[WriteShareGroupStateRequest.WriteStateData]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[WriteShareGroupStateRequest.WriteStateData] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class WriteShareGroupStateResponse(Message):
    class PartitionResult(Structure):
        partition: int
        error_code: int
        error_message: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition: int = 0,
            error_code: int = 0,
            error_message: str | None = None,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class WriteStateResult(Structure):
        topic_id: TopicId
        partitions: list[WriteShareGroupStateResponse.PartitionResult]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            partitions: list[WriteShareGroupStateResponse.PartitionResult] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    results: list[WriteShareGroupStateResponse.WriteStateResult]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        results: list[WriteShareGroupStateResponse.WriteStateResult] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DeleteShareGroupStateRequest(Message):
    class PartitionData(Structure):
        partition: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class DeleteStateData(Structure):
        topic_id: TopicId
        partitions: list[DeleteShareGroupStateRequest.PartitionData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            partitions: list[DeleteShareGroupStateRequest.PartitionData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    group_id: str
    topics: list[DeleteShareGroupStateRequest.DeleteStateData]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[DeleteShareGroupStateRequest.DeleteStateData] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DeleteShareGroupStateResponse(Message):
    class PartitionResult(Structure):
        partition: int
        error_code: int
        error_message: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition: int = 0,
            error_code: int = 0,
            error_message: str | None = None,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class DeleteStateResult(Structure):
        topic_id: TopicId
        partitions: list[DeleteShareGroupStateResponse.PartitionResult]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            partitions: list[DeleteShareGroupStateResponse.PartitionResult] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    results: list[DeleteShareGroupStateResponse.DeleteStateResult]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        results: list[DeleteShareGroupStateResponse.DeleteStateResult] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ReadShareGroupStateSummaryRequest(Message):
    class PartitionData(Structure):
        partition: int
        leader_epoch: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition: int = 0,
            leader_epoch: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class ReadStateSummaryData(Structure):
        topic_id: TopicId
        partitions: list[ReadShareGroupStateSummaryRequest.PartitionData]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            partitions: list[ReadShareGroupStateSummaryRequest.PartitionData] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    group_id: str
    topics: list[ReadShareGroupStateSummaryRequest.ReadStateSummaryData]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[ReadShareGroupStateSummaryRequest.ReadStateSummaryData] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ReadShareGroupStateSummaryResponse(Message):
    class PartitionResult(Structure):
        partition: int
        error_code: int
        error_message: str | None
        state_epoch: int
        leader_epoch: int
        start_offset: int
        delivery_complete_count: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition: int = 0,
            error_code: int = 0,
            error_message: str | None = None,
            state_epoch: int = 0,
            leader_epoch: int = 0,
            start_offset: int = 0,
            delivery_complete_count: int = -1,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class ReadStateSummaryResult(Structure):
        topic_id: TopicId
        partitions: list[ReadShareGroupStateSummaryResponse.PartitionResult]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            partitions: list[ReadShareGroupStateSummaryResponse.PartitionResult] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    results: list[ReadShareGroupStateSummaryResponse.ReadStateSummaryResult]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        results: list[ReadShareGroupStateSummaryResponse.ReadStateSummaryResult] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DescribeShareGroupOffsetsRequest(Message):
    class DescribeShareGroupOffsetsRequestTopic(Structure):
        topic_name: str
        partitions: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            partitions: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class DescribeShareGroupOffsetsRequestGroup(Structure):
        group_id: str
        topics: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic] | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            group_id: str = "",
            topics: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic] | None = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    groups: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        groups: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DescribeShareGroupOffsetsResponse(Message):
    class DescribeShareGroupOffsetsResponsePartition(Structure):
        partition_index: int
        start_offset: int
        leader_epoch: int
        lag: int
        error_code: int
        error_message: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            start_offset: int = 0,
            leader_epoch: int = 0,
            lag: int = -1,
            error_code: int = 0,
            error_message: str | None = None,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class DescribeShareGroupOffsetsResponseTopic(Structure):
        topic_name: str
        topic_id: TopicId
        partitions: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            topic_id: TopicId = ...,
            partitions: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class DescribeShareGroupOffsetsResponseGroup(Structure):
        group_id: str
        topics: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic]
        error_code: int
        error_message: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            group_id: str = "",
            topics: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic] = ...,
            error_code: int = 0,
            error_message: str | None = None,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    groups: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        groups: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class AlterShareGroupOffsetsRequest(Message):
    class AlterShareGroupOffsetsRequestPartition(Structure):
        partition_index: int
        start_offset: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            start_offset: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class AlterShareGroupOffsetsRequestTopic(Structure):
        topic_name: str
        partitions: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            partitions: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    group_id: str
    topics: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class AlterShareGroupOffsetsResponse(Message):
    class AlterShareGroupOffsetsResponsePartition(Structure):
        partition_index: int
        error_code: int
        error_message: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            error_message: str | None = None,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class AlterShareGroupOffsetsResponseTopic(Structure):
        topic_name: str
        topic_id: TopicId
        partitions: list[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            topic_id: TopicId = ...,
            partitions: list[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    responses: list[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        responses: list[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DeleteShareGroupOffsetsRequest(Message):
    class DeleteShareGroupOffsetsRequestTopic(Structure):
        topic_name: str
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    group_id: str
    topics: list[DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DeleteShareGroupOffsetsResponse(Message):
    class DeleteShareGroupOffsetsResponseTopic(Structure):
        topic_name: str
        topic_id: TopicId
        error_code: int
        error_message: str | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_name: str = "",
            topic_id: TopicId = ...,
            error_code: int = 0,
            error_message: str | None = None,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    responses: list[DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        responses: list[DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class StreamsGroupHeartbeatRequest(Message):
    class KeyValue(Structure):
        key: str
        value: str
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            key: str = "",
            value: str = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TopicInfo(Structure):
        name: str
        partitions: int
        replication_factor: int
        topic_configs: list[StreamsGroupHeartbeatRequest.KeyValue]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partitions: int = 0,
            replication_factor: int = 0,
            topic_configs: list[StreamsGroupHeartbeatRequest.KeyValue] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class CopartitionGroup(Structure):
        source_topics: list[int]
        source_topic_regex: list[int]
        repartition_source_topics: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            source_topics: list[int] = ...,
            source_topic_regex: list[int] = ...,
            repartition_source_topics: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class Subtopology(Structure):
        subtopology_id: str
        source_topics: list[str]
        source_topic_regex: list[str]
        state_changelog_topics: list[StreamsGroupHeartbeatRequest.TopicInfo]
        repartition_sink_topics: list[str]
        repartition_source_topics: list[StreamsGroupHeartbeatRequest.TopicInfo]
        copartition_groups: list[StreamsGroupHeartbeatRequest.CopartitionGroup]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            subtopology_id: str = "",
            source_topics: list[str] = ...,
            source_topic_regex: list[str] = ...,
            state_changelog_topics: list[StreamsGroupHeartbeatRequest.TopicInfo] = ...,
            repartition_sink_topics: list[str] = ...,
            repartition_source_topics: list[StreamsGroupHeartbeatRequest.TopicInfo] = ...,
            copartition_groups: list[StreamsGroupHeartbeatRequest.CopartitionGroup] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class Topology(Structure):
        epoch: int
        subtopologies: list[StreamsGroupHeartbeatRequest.Subtopology]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            epoch: int = 0,
            subtopologies: list[StreamsGroupHeartbeatRequest.Subtopology] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TaskIds(Structure):
        subtopology_id: str
        partitions: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            subtopology_id: str = "",
            partitions: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class Endpoint(Structure):
        host: str
        port: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            host: str = "",
            port: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TaskOffset(Structure):
        subtopology_id: str
        partition: int
        offset: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            subtopology_id: str = "",
            partition: int = 0,
            offset: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    group_id: str
    member_id: str
    member_epoch: int
    endpoint_information_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    topology: StreamsGroupHeartbeatRequest.Topology | None
    active_tasks: list[StreamsGroupHeartbeatRequest.TaskIds] | None
    standby_tasks: list[StreamsGroupHeartbeatRequest.TaskIds] | None
    warmup_tasks: list[StreamsGroupHeartbeatRequest.TaskIds] | None
    process_id: str | None
    user_endpoint: StreamsGroupHeartbeatRequest.Endpoint | None
    client_tags: list[StreamsGroupHeartbeatRequest.KeyValue] | None
    task_offsets: list[StreamsGroupHeartbeatRequest.TaskOffset] | None
    task_end_offsets: list[StreamsGroupHeartbeatRequest.TaskOffset] | None
    shutdown_application: bool
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        member_epoch: int = 0,
        endpoint_information_epoch: int = 0,
        instance_id: str | None = None,
        rack_id: str | None = None,
        rebalance_timeout_ms: int = -1,
        topology: StreamsGroupHeartbeatRequest.Topology | None = None,
        active_tasks: list[StreamsGroupHeartbeatRequest.TaskIds] | None = None,
        standby_tasks: list[StreamsGroupHeartbeatRequest.TaskIds] | None = None,
        warmup_tasks: list[StreamsGroupHeartbeatRequest.TaskIds] | None = None,
        process_id: str | None = None,
        user_endpoint: StreamsGroupHeartbeatRequest.Endpoint | None = None,
        client_tags: list[StreamsGroupHeartbeatRequest.KeyValue] | None = None,
        task_offsets: list[StreamsGroupHeartbeatRequest.TaskOffset] | None = None,
        task_end_offsets: list[StreamsGroupHeartbeatRequest.TaskOffset] | None = None,
        shutdown_application: bool = False,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class StreamsGroupHeartbeatResponse(Message):
    class Status(Structure):
        status_code: int
        status_detail: str
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            status_code: int = 0,
            status_detail: str = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TaskIds(Structure):
        subtopology_id: str
        partitions: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            subtopology_id: str = "",
            partitions: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class Endpoint(Structure):
        host: str
        port: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            host: str = "",
            port: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TopicPartition(Structure):
        topic: str
        partitions: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic: str = "",
            partitions: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class EndpointToPartitions(Structure):
        user_endpoint: StreamsGroupHeartbeatResponse.Endpoint
        active_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition]
        standby_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            user_endpoint: StreamsGroupHeartbeatResponse.Endpoint = ...,
            active_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition] = ...,
            standby_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    acceptable_recovery_lag: int
    task_offset_interval_ms: int
    status: list[StreamsGroupHeartbeatResponse.Status] | None
    active_tasks: list[StreamsGroupHeartbeatResponse.TaskIds] | None
    standby_tasks: list[StreamsGroupHeartbeatResponse.TaskIds] | None
    warmup_tasks: list[StreamsGroupHeartbeatResponse.TaskIds] | None
    endpoint_information_epoch: int
    partitions_by_user_endpoint: list[StreamsGroupHeartbeatResponse.EndpointToPartitions] | None
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        member_id: str = "",
        member_epoch: int = 0,
        heartbeat_interval_ms: int = 0,
        acceptable_recovery_lag: int = 0,
        task_offset_interval_ms: int = 0,
        status: list[StreamsGroupHeartbeatResponse.Status] | None = ...,
        active_tasks: list[StreamsGroupHeartbeatResponse.TaskIds] | None = None,
        standby_tasks: list[StreamsGroupHeartbeatResponse.TaskIds] | None = None,
        warmup_tasks: list[StreamsGroupHeartbeatResponse.TaskIds] | None = None,
        endpoint_information_epoch: int = 0,
        partitions_by_user_endpoint: list[StreamsGroupHeartbeatResponse.EndpointToPartitions] | None = None,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class StreamsGroupDescribeRequest(Message):
    group_ids: list[str]
    include_authorized_operations: bool
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_ids: list[str] = ...,
        include_authorized_operations: bool = False,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class StreamsGroupDescribeResponse(Message):
    class KeyValue(Structure):
        key: str
        value: str
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            key: str = "",
            value: str = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TopicInfo(Structure):
        name: str
        partitions: int
        replication_factor: int
        topic_configs: list[StreamsGroupDescribeResponse.KeyValue]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partitions: int = 0,
            replication_factor: int = 0,
            topic_configs: list[StreamsGroupDescribeResponse.KeyValue] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class Subtopology(Structure):
        subtopology_id: str
        source_topics: list[str]
        repartition_sink_topics: list[str]
        state_changelog_topics: list[StreamsGroupDescribeResponse.TopicInfo]
        repartition_source_topics: list[StreamsGroupDescribeResponse.TopicInfo]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            subtopology_id: str = "",
            source_topics: list[str] = ...,
            repartition_sink_topics: list[str] = ...,
            state_changelog_topics: list[StreamsGroupDescribeResponse.TopicInfo] = ...,
            repartition_source_topics: list[StreamsGroupDescribeResponse.TopicInfo] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class Topology(Structure):
        epoch: int
        subtopologies: list[StreamsGroupDescribeResponse.Subtopology] | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            epoch: int = 0,
            subtopologies: list[StreamsGroupDescribeResponse.Subtopology] | None = None,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class Endpoint(Structure):
        host: str
        port: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            host: str = "",
            port: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TaskOffset(Structure):
        subtopology_id: str
        partition: int
        offset: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            subtopology_id: str = "",
            partition: int = 0,
            offset: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TaskIds(Structure):
        subtopology_id: str
        partitions: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            subtopology_id: str = "",
            partitions: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class Assignment(Structure):
        active_tasks: list[StreamsGroupDescribeResponse.TaskIds]
        standby_tasks: list[StreamsGroupDescribeResponse.TaskIds]
        warmup_tasks: list[StreamsGroupDescribeResponse.TaskIds]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            active_tasks: list[StreamsGroupDescribeResponse.TaskIds] = ...,
            standby_tasks: list[StreamsGroupDescribeResponse.TaskIds] = ...,
            warmup_tasks: list[StreamsGroupDescribeResponse.TaskIds] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class Member(Structure):
        member_id: str
        member_epoch: int
        instance_id: str | None
        rack_id: str | None
        client_id: str
        client_host: str
        topology_epoch: int
        process_id: str
        user_endpoint: StreamsGroupDescribeResponse.Endpoint | None
        client_tags: list[StreamsGroupDescribeResponse.KeyValue]
        task_offsets: list[StreamsGroupDescribeResponse.TaskOffset]
        task_end_offsets: list[StreamsGroupDescribeResponse.TaskOffset]
        assignment: StreamsGroupDescribeResponse.Assignment
        target_assignment: StreamsGroupDescribeResponse.Assignment
        is_classic: bool
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            member_id: str = "",
            member_epoch: int = 0,
            instance_id: str | None = None,
            rack_id: str | None = None,
            client_id: str = "",
            client_host: str = "",
            topology_epoch: int = 0,
            process_id: str = "",
            user_endpoint: StreamsGroupDescribeResponse.Endpoint | None = None,
            client_tags: list[StreamsGroupDescribeResponse.KeyValue] = ...,
            task_offsets: list[StreamsGroupDescribeResponse.TaskOffset] = ...,
            task_end_offsets: list[StreamsGroupDescribeResponse.TaskOffset] = ...,
            assignment: StreamsGroupDescribeResponse.Assignment = ...,
            target_assignment: StreamsGroupDescribeResponse.Assignment = ...,
            is_classic: bool = False,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class DescribedGroup(Structure):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        topology: StreamsGroupDescribeResponse.Topology | None
        members: list[StreamsGroupDescribeResponse.Member]
        authorized_operations: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            error_code: int = 0,
            error_message: str | None = None,
            group_id: str = "",
            group_state: str = "",
            group_epoch: int = 0,
            assignment_epoch: int = 0,
            topology: StreamsGroupDescribeResponse.Topology | None = None,
            members: list[StreamsGroupDescribeResponse.Member] = ...,
            authorized_operations: int = -2147483648,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    throttle_time_ms: int
    groups: list[StreamsGroupDescribeResponse.DescribedGroup]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        groups: list[StreamsGroupDescribeResponse.DescribedGroup] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class LegacyOffsetCommitKey(Message):
    group: str
    topic: str
    partition: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group: str = "",
        topic: str = "",
        partition: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class LegacyOffsetCommitValue(Message):
    offset: int
    metadata: str
    commit_timestamp: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        offset: int = 0,
        metadata: str = "",
        commit_timestamp: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class OffsetCommitKey(Message):
    group: str
    topic: str
    partition: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group: str = "",
        topic: str = "",
        partition: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class OffsetCommitValue(Message):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    topic_id: TopicId
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        offset: int = 0,
        leader_epoch: int = -1,
        metadata: str = "",
        commit_timestamp: int = 0,
        expire_timestamp: int = -1,
        topic_id: TopicId = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class GroupMetadataKey(Message):
    group: str
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group: str = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class GroupMetadataValue(Message):
    class MemberMetadata(Structure):
        member_id: str
        group_instance_id: str | None
        client_id: str
        client_host: str
        rebalance_timeout: int
        session_timeout: int
        subscription: bytes
        assignment: bytes
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            member_id: str = "",
            group_instance_id: str | None = None,
            client_id: str = "",
            client_host: str = "",
            rebalance_timeout: int = -1,
            session_timeout: int = 0,
            subscription: bytes = b"",
            assignment: bytes = b"",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: int
    members: list[GroupMetadataValue.MemberMetadata]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        protocol_type: str = "",
        generation: int = 0,
        protocol: str | None = "",
        leader: str | None = "",
        current_state_timestamp: int = -1,
        members: list[GroupMetadataValue.MemberMetadata] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ConsumerGroupMetadataKey(Message):
    group_id: str
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ConsumerGroupMetadataValue(Message):
    epoch: int
    metadata_hash: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        epoch: int = 0,
        metadata_hash: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ConsumerGroupPartitionMetadataKey(Message):
    group_id: str
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ConsumerGroupPartitionMetadataValue(Message):
    class PartitionMetadata(Structure):
        partition: int
        racks: list[str]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            partition: int = 0,
            racks: list[str] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TopicMetadata(Structure):
        topic_id: TopicId
        topic_name: str
        num_partitions: int
        partition_metadata: list[ConsumerGroupPartitionMetadataValue.PartitionMetadata]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            topic_name: str = "",
            num_partitions: int = 0,
            partition_metadata: list[ConsumerGroupPartitionMetadataValue.PartitionMetadata] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    topics: list[ConsumerGroupPartitionMetadataValue.TopicMetadata]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        topics: list[ConsumerGroupPartitionMetadataValue.TopicMetadata] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ConsumerGroupMemberMetadataKey(Message):
    group_id: str
    member_id: str
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ConsumerGroupMemberMetadataValue(Message):
    class ClassicProtocol(Structure):
        name: str
        metadata: bytes
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            metadata: bytes = b"",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class ClassicMemberMetadata(Structure):
        session_timeout_ms: int
        supported_protocols: list[ConsumerGroupMemberMetadataValue.ClassicProtocol]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            session_timeout_ms: int = 0,
            supported_protocols: list[ConsumerGroupMemberMetadataValue.ClassicProtocol] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic_member_metadata: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        instance_id: str | None = "",
        rack_id: str | None = "",
        client_id: str = "",
        client_host: str = "",
        subscribed_topic_names: list[str] = ...,
        subscribed_topic_regex: str | None = "",
        rebalance_timeout_ms: int = -1,
        server_assignor: str | None = "",
        classic_member_metadata: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ConsumerGroupTargetAssignmentMetadataKey(Message):
    group_id: str
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ConsumerGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: int
    assignment_timestamp: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        assignment_epoch: int = 0,
        assignment_timestamp: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ConsumerGroupTargetAssignmentMemberKey(Message):
    group_id: str
    member_id: str
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ConsumerGroupTargetAssignmentMemberValue(Message):
    class TopicPartition(Structure):
        topic_id: TopicId
        partitions: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    topic_partitions: list[ConsumerGroupTargetAssignmentMemberValue.TopicPartition]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        topic_partitions: list[ConsumerGroupTargetAssignmentMemberValue.TopicPartition] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ConsumerGroupCurrentMemberAssignmentKey(Message):
    group_id: str
    member_id: str
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ConsumerGroupCurrentMemberAssignmentValue(Message):
    class TopicPartitions(Structure):
        topic_id: TopicId
        partitions: list[int]
        assignment_epochs: list[int] | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            partitions: list[int] = ...,
            assignment_epochs: list[int] | None = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]
    partitions_pending_revocation: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        member_epoch: int = 0,
        previous_member_epoch: int = 0,
        state: int = 0,
        assigned_partitions: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions] = ...,
        partitions_pending_revocation: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ConsumerGroupRegularExpressionKey(Message):
    group_id: str
    regular_expression: str
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        regular_expression: str = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ConsumerGroupRegularExpressionValue(Message):
    topics: list[str]
    version: int
    timestamp: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        topics: list[str] = ...,
        version: int = 0,
        timestamp: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class TransactionLogKey(Message):
    transactional_id: str
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        transactional_id: str = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class TransactionLogValue(Message):
    class PartitionsSchema(Structure):
        topic: str
        partition_ids: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic: str = "",
            partition_ids: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    producer_epoch: int
    next_producer_epoch: int
    transaction_timeout_ms: int
    transaction_status: int
    transaction_partitions: list[TransactionLogValue.PartitionsSchema] | None
    transaction_last_update_timestamp_ms: int
    transaction_start_timestamp_ms: int
    client_transaction_version: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        producer_id: int = 0,
        previous_producer_id: int = -1,
        next_producer_id: int = -1,
        producer_epoch: int = 0,
        next_producer_epoch: int = -1,
        transaction_timeout_ms: int = 0,
        transaction_status: int = 0,
        transaction_partitions: list[TransactionLogValue.PartitionsSchema] | None = ...,
        transaction_last_update_timestamp_ms: int = 0,
        transaction_start_timestamp_ms: int = 0,
        client_transaction_version: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ShareSnapshotKey(Message):
    group_id: str
    topic_id: TopicId
    partition: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        topic_id: TopicId = ...,
        partition: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ShareSnapshotValue(Message):
    class StateBatch(Structure):
        first_offset: int
        last_offset: int
        delivery_state: int
        delivery_count: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            first_offset: int = 0,
            last_offset: int = 0,
            delivery_state: int = 0,
            delivery_count: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_timestamp: int
    write_timestamp: int
    state_batches: list[ShareSnapshotValue.StateBatch]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        snapshot_epoch: int = 0,
        state_epoch: int = 0,
        leader_epoch: int = 0,
        start_offset: int = 0,
        delivery_complete_count: int = -1,
        create_timestamp: int = 0,
        write_timestamp: int = 0,
        state_batches: list[ShareSnapshotValue.StateBatch] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ShareUpdateKey(Message):
    group_id: str
    topic_id: TopicId
    partition: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        topic_id: TopicId = ...,
        partition: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ShareUpdateValue(Message):
    class StateBatch(Structure):
        first_offset: int
        last_offset: int
        delivery_state: int
        delivery_count: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            first_offset: int = 0,
            last_offset: int = 0,
            delivery_state: int = 0,
            delivery_count: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    state_batches: list[ShareUpdateValue.StateBatch]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        snapshot_epoch: int = 0,
        leader_epoch: int = 0,
        start_offset: int = 0,
        delivery_complete_count: int = -1,
        state_batches: list[ShareUpdateValue.StateBatch] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ShareGroupMemberMetadataKey(Message):
    group_id: str
    member_id: str
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ShareGroupMemberMetadataValue(Message):
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        rack_id: str | None = "",
        client_id: str = "",
        client_host: str = "",
        subscribed_topic_names: list[str] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ShareGroupMetadataKey(Message):
    group_id: str
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ShareGroupMetadataValue(Message):
    epoch: int
    metadata_hash: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        epoch: int = 0,
        metadata_hash: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ShareGroupTargetAssignmentMetadataKey(Message):
    group_id: str
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ShareGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: int
    assignment_timestamp: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        assignment_epoch: int = 0,
        assignment_timestamp: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ShareGroupTargetAssignmentMemberKey(Message):
    group_id: str
    member_id: str
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ShareGroupTargetAssignmentMemberValue(Message):
    class TopicPartition(Structure):
        topic_id: TopicId
        partitions: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    topic_partitions: list[ShareGroupTargetAssignmentMemberValue.TopicPartition]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        topic_partitions: list[ShareGroupTargetAssignmentMemberValue.TopicPartition] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ShareGroupCurrentMemberAssignmentKey(Message):
    group_id: str
    member_id: str
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ShareGroupCurrentMemberAssignmentValue(Message):
    class TopicPartitions(Structure):
        topic_id: TopicId
        partitions: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: list[ShareGroupCurrentMemberAssignmentValue.TopicPartitions]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        member_epoch: int = 0,
        previous_member_epoch: int = 0,
        state: int = 0,
        assigned_partitions: list[ShareGroupCurrentMemberAssignmentValue.TopicPartitions] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ShareGroupStatePartitionMetadataKey(Message):
    group_id: str
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ShareGroupStatePartitionMetadataValue(Message):
    class TopicPartitionsInfo(Structure):
        topic_id: TopicId
        topic_name: str
        partitions: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            topic_name: str = "",
            partitions: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TopicInfo(Structure):
        topic_id: TopicId
        topic_name: str
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            topic_name: str = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    initializing_topics: list[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo]
    initialized_topics: list[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo]
    deleting_topics: list[ShareGroupStatePartitionMetadataValue.TopicInfo]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        initializing_topics: list[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo] = ...,
        initialized_topics: list[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo] = ...,
        deleting_topics: list[ShareGroupStatePartitionMetadataValue.TopicInfo] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ShareGroupPartitionMetadataKey(Message):
    group_id: str
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ShareGroupPartitionMetadataValue(Message):
    class TopicPartitionsInfo(Structure):
        topic_id: TopicId
        topic_name: str
        partitions: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            topic_name: str = "",
            partitions: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TopicInfo(Structure):
        topic_id: TopicId
        topic_name: str
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic_id: TopicId = ...,
            topic_name: str = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    initialized_topics: list[ShareGroupPartitionMetadataValue.TopicPartitionsInfo]
    deleting_topics: list[ShareGroupPartitionMetadataValue.TopicInfo]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        initialized_topics: list[ShareGroupPartitionMetadataValue.TopicPartitionsInfo] = ...,
        deleting_topics: list[ShareGroupPartitionMetadataValue.TopicInfo] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class StreamsGroupMetadataKey(Message):
    group_id: str
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class StreamsGroupMetadataValue(Message):
    class LastAssignmentConfig(Structure):
        key: str
        value: str
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            key: str = "",
            value: str = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    epoch: int
    metadata_hash: int
    validated_topology_epoch: int
    last_assignment_configs: list[StreamsGroupMetadataValue.LastAssignmentConfig] | None
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        epoch: int = 0,
        metadata_hash: int = 0,
        validated_topology_epoch: int = -1,
        last_assignment_configs: list[StreamsGroupMetadataValue.LastAssignmentConfig] | None = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class StreamsGroupMemberMetadataKey(Message):
    group_id: str
    member_id: str
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class StreamsGroupMemberMetadataValue(Message):
    class Endpoint(Structure):
        host: str
        port: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            host: str = "",
            port: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class KeyValue(Structure):
        key: str
        value: str
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            key: str = "",
            value: str = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topology_epoch: int
    process_id: str
    user_endpoint: StreamsGroupMemberMetadataValue.Endpoint | None
    client_tags: list[StreamsGroupMemberMetadataValue.KeyValue]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        instance_id: str | None = "",
        rack_id: str | None = "",
        client_id: str = "",
        client_host: str = "",
        rebalance_timeout_ms: int = -1,
        topology_epoch: int = 0,
        process_id: str = "",
        user_endpoint: StreamsGroupMemberMetadataValue.Endpoint | None = None,
        client_tags: list[StreamsGroupMemberMetadataValue.KeyValue] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class StreamsGroupTargetAssignmentMetadataKey(Message):
    group_id: str
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class StreamsGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: int
    assignment_timestamp: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        assignment_epoch: int = 0,
        assignment_timestamp: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class StreamsGroupTargetAssignmentMemberKey(Message):
    group_id: str
    member_id: str
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class StreamsGroupTargetAssignmentMemberValue(Message):
    class TaskIds(Structure):
        subtopology_id: str
        partitions: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            subtopology_id: str = "",
            partitions: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    active_tasks: list[StreamsGroupTargetAssignmentMemberValue.TaskIds]
    standby_tasks: list[StreamsGroupTargetAssignmentMemberValue.TaskIds]
    warmup_tasks: list[StreamsGroupTargetAssignmentMemberValue.TaskIds]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        active_tasks: list[StreamsGroupTargetAssignmentMemberValue.TaskIds] = ...,
        standby_tasks: list[StreamsGroupTargetAssignmentMemberValue.TaskIds] = ...,
        warmup_tasks: list[StreamsGroupTargetAssignmentMemberValue.TaskIds] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class StreamsGroupCurrentMemberAssignmentKey(Message):
    group_id: str
    member_id: str
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class StreamsGroupCurrentMemberAssignmentValue(Message):
    class TaskIds(Structure):
        subtopology_id: str
        partitions: list[int]
        assignment_epochs: list[int] | None
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            subtopology_id: str = "",
            partitions: list[int] = ...,
            assignment_epochs: list[int] | None = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    member_epoch: int
    previous_member_epoch: int
    state: int
    active_tasks: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds]
    standby_tasks: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds]
    warmup_tasks: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds]
    active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds]
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds]
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        member_epoch: int = 0,
        previous_member_epoch: int = 0,
        state: int = 0,
        active_tasks: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...,
        standby_tasks: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...,
        warmup_tasks: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...,
        active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...,
        standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...,
        warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class StreamsGroupTopologyKey(Message):
    group_id: str
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        group_id: str = "",
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class StreamsGroupTopologyValue(Message):
    class TopicConfig(Structure):
        key: str
        value: str
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            key: str = "",
            value: str = "",
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class TopicInfo(Structure):
        name: str
        partitions: int
        replication_factor: int
        topic_configs: list[StreamsGroupTopologyValue.TopicConfig]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            partitions: int = 0,
            replication_factor: int = 0,
            topic_configs: list[StreamsGroupTopologyValue.TopicConfig] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class CopartitionGroup(Structure):
        source_topics: list[int]
        source_topic_regex: list[int]
        repartition_source_topics: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            source_topics: list[int] = ...,
            source_topic_regex: list[int] = ...,
            repartition_source_topics: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class Subtopology(Structure):
        subtopology_id: str
        source_topics: list[str]
        source_topic_regex: list[str]
        state_changelog_topics: list[StreamsGroupTopologyValue.TopicInfo]
        repartition_sink_topics: list[str]
        repartition_source_topics: list[StreamsGroupTopologyValue.TopicInfo]
        copartition_groups: list[StreamsGroupTopologyValue.CopartitionGroup]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            subtopology_id: str = "",
            source_topics: list[str] = ...,
            source_topic_regex: list[str] = ...,
            state_changelog_topics: list[StreamsGroupTopologyValue.TopicInfo] = ...,
            repartition_sink_topics: list[str] = ...,
            repartition_source_topics: list[StreamsGroupTopologyValue.TopicInfo] = ...,
            copartition_groups: list[StreamsGroupTopologyValue.CopartitionGroup] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    epoch: int
    subtopologies: list[StreamsGroupTopologyValue.Subtopology]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        epoch: int = 0,
        subtopologies: list[StreamsGroupTopologyValue.Subtopology] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ConsumerProtocolAssignment(Message):
    class TopicPartition(Structure):
        topic: str
        partitions: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic: str = "",
            partitions: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    assigned_partitions: list[ConsumerProtocolAssignment.TopicPartition]
    user_data: bytes | None
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        assigned_partitions: list[ConsumerProtocolAssignment.TopicPartition] = ...,
        user_data: bytes | None = None,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ConsumerProtocolSubscription(Message):
    class TopicPartition(Structure):
        topic: str
        partitions: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic: str = "",
            partitions: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    topics: list[str]
    user_data: bytes | None
    owned_partitions: list[ConsumerProtocolSubscription.TopicPartition]
    generation_id: int
    rack_id: str | None
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        topics: list[str] = ...,
        user_data: bytes | None = None,
        owned_partitions: list[ConsumerProtocolSubscription.TopicPartition] = ...,
        generation_id: int = -1,
        rack_id: str | None = None,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class ControlRecordTypeSchema(Message):
    type: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        type: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class DefaultPrincipalData(Message):
    type: str
    name: str
    token_authenticated: bool
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        type: str = "",
        name: str = "",
        token_authenticated: bool = False,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class EndTxnMarker(Message):
    coordinator_epoch: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        coordinator_epoch: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class KRaftVersionRecord(Message):
    version: int
    k_raft_version: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        version: int = 0,
        k_raft_version: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class LeaderChangeMessage(Message):
    class Voter(Structure):
        voter_id: int
        voter_directory_id: bytes
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            voter_id: int = 0,
            voter_directory_id: bytes = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    version: int
    leader_id: int
    voters: list[LeaderChangeMessage.Voter]
    granting_voters: list[LeaderChangeMessage.Voter]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        version: int = 0,
        leader_id: int = 0,
        voters: list[LeaderChangeMessage.Voter] = ...,
        granting_voters: list[LeaderChangeMessage.Voter] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class QuorumStateData(Message):
    class Voter(Structure):
        voter_id: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            voter_id: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    cluster_id: str
    leader_id: int
    leader_epoch: int
    voted_id: int
    voted_directory_id: bytes
    applied_offset: int
    current_voters: list[QuorumStateData.Voter] | None
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        cluster_id: str = "",
        leader_id: int = -1,
        leader_epoch: int = -1,
        voted_id: int = -1,
        voted_directory_id: bytes = ...,
        applied_offset: int = 0,
        current_voters: list[QuorumStateData.Voter] | None = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class SnapshotFooterRecord(Message):
    version: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        version: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class SnapshotHeaderRecord(Message):
    version: int
    last_contained_log_timestamp: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        version: int = 0,
        last_contained_log_timestamp: int = 0,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class StickyAssignorUserData(Message):
    class TopicPartition(Structure):
        topic: str
        partitions: list[int]
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            topic: str = "",
            partitions: list[int] = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    topic_partitions: list[StickyAssignorUserData.TopicPartition]
    generation: int
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        topic_partitions: list[StickyAssignorUserData.TopicPartition] = ...,
        generation: int = -1,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...

class VotersRecord(Message):
    class Endpoint(Structure):
        name: str
        host: str
        port: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            name: str = "",
            host: str = "",
            port: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class KRaftVersionFeature(Structure):
        min_supported_version: int
        max_supported_version: int
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            min_supported_version: int = 0,
            max_supported_version: int = 0,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    class Voter(Structure):
        voter_id: int
        voter_directory_id: bytes
        endpoints: list[VotersRecord.Endpoint]
        k_raft_version_feature: VotersRecord.KRaftVersionFeature
        unknown_tagged_fields: Sequence[tuple[int, bytes]]
        def __init__(
            self,
            *,
            voter_id: int = 0,
            voter_directory_id: bytes = ...,
            endpoints: list[VotersRecord.Endpoint] = ...,
            k_raft_version_feature: VotersRecord.KRaftVersionFeature = ...,
            unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
        ) -> None: ...

    version: int
    voters: list[VotersRecord.Voter]
    unknown_tagged_fields: Sequence[tuple[int, bytes]]
    def __init__(
        self,
        *,
        version: int = 0,
        voters: list[VotersRecord.Voter] = ...,
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = (),
    ) -> None: ...
