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
    request_api_key: int = 0
    request_api_version: int = 0
    correlation_id: int = 0
    client_id: str | None = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ResponseHeader(Message):
    correlation_id: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ProduceRequest(Message):
    class PartitionProduceData(Structure):
        index: int = 0
        records: bytes | memoryview | None = b""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TopicProduceData(Structure):
        name: str = ""
        topic_id: TopicId = ...
        partition_data: list[ProduceRequest.PartitionProduceData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    transactional_id: str | None = None
    acks: int = 0
    timeout_ms: int = 0
    topic_data: list[ProduceRequest.TopicProduceData] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ProduceResponse(Message):
    class BatchIndexAndErrorMessage(Structure):
        batch_index: int = 0
        batch_index_error_message: str | None = None
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class LeaderIdAndEpoch(Structure):
        leader_id: int = -1
        leader_epoch: int = -1
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class PartitionProduceResponse(Structure):
        index: int = 0
        error_code: int = 0
        base_offset: int = 0
        log_append_time_ms: int = -1
        log_start_offset: int = -1
        record_errors: list[ProduceResponse.BatchIndexAndErrorMessage] = ...
        error_message: str | None = None
        current_leader: ProduceResponse.LeaderIdAndEpoch = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TopicProduceResponse(Structure):
        name: str = ""
        topic_id: TopicId = ...
        partition_responses: list[ProduceResponse.PartitionProduceResponse] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class NodeEndpoint(Structure):
        node_id: int = 0
        host: str = ""
        port: int = 0
        rack: str | None = None
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    responses: list[ProduceResponse.TopicProduceResponse] = ...
    throttle_time_ms: int = 0
    node_endpoints: list[ProduceResponse.NodeEndpoint] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class FetchRequest(Message):
    class ReplicaState(Structure):
        replica_id: int = -1
        replica_epoch: int = -1
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class FetchPartition(Structure):
        partition: int = 0
        current_leader_epoch: int = -1
        fetch_offset: int = 0
        last_fetched_epoch: int = -1
        log_start_offset: int = -1
        partition_max_bytes: int = 0
        replica_directory_id: bytes = ...
        high_watermark: int = 9223372036854775807
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class FetchTopic(Structure):
        topic: str = ""
        topic_id: TopicId = ...
        partitions: list[FetchRequest.FetchPartition] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class ForgottenTopic(Structure):
        topic: str = ""
        topic_id: TopicId = ...
        partitions: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    cluster_id: str | None = None
    replica_id: int = -1
    replica_state: FetchRequest.ReplicaState = ...
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: list[FetchRequest.FetchTopic] = ...
    forgotten_topics_data: list[FetchRequest.ForgottenTopic] = ...
    rack_id: str = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class FetchResponse(Message):
    class EpochEndOffset(Structure):
        epoch: int = -1
        end_offset: int = -1
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class LeaderIdAndEpoch(Structure):
        leader_id: int = -1
        leader_epoch: int = -1
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class SnapshotId(Structure):
        end_offset: int = -1
        epoch: int = -1
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class AbortedTransaction(Structure):
        producer_id: int = 0
        first_offset: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class PartitionData(Structure):
        partition_index: int = 0
        error_code: int = 0
        high_watermark: int = 0
        last_stable_offset: int = -1
        log_start_offset: int = -1
        diverging_epoch: FetchResponse.EpochEndOffset = ...
        current_leader: FetchResponse.LeaderIdAndEpoch = ...
        snapshot_id: FetchResponse.SnapshotId = ...
        aborted_transactions: list[FetchResponse.AbortedTransaction] | None = ...
        preferred_read_replica: int = -1
        records: bytes | memoryview | list[Chunk] | None = b""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class FetchableTopicResponse(Structure):
        topic: str = ""
        topic_id: TopicId = ...
        partitions: list[FetchResponse.PartitionData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class NodeEndpoint(Structure):
        node_id: int = 0
        host: str = ""
        port: int = 0
        rack: str | None = None
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    responses: list[FetchResponse.FetchableTopicResponse] = ...
    node_endpoints: list[FetchResponse.NodeEndpoint] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ListOffsetsRequest(Message):
    class ListOffsetsPartition(Structure):
        partition_index: int = 0
        current_leader_epoch: int = -1
        timestamp: int = 0
        max_num_offsets: int = 1
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class ListOffsetsTopic(Structure):
        name: str = ""
        partitions: list[ListOffsetsRequest.ListOffsetsPartition] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    replica_id: int = 0
    isolation_level: int = 0
    topics: list[ListOffsetsRequest.ListOffsetsTopic] = ...
    timeout_ms: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ListOffsetsResponse(Message):
    class ListOffsetsPartitionResponse(Structure):
        partition_index: int = 0
        error_code: int = 0
        old_style_offsets: list[int] = ...
        timestamp: int = -1
        offset: int = -1
        leader_epoch: int = -1
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class ListOffsetsTopicResponse(Structure):
        name: str = ""
        partitions: list[ListOffsetsResponse.ListOffsetsPartitionResponse] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    topics: list[ListOffsetsResponse.ListOffsetsTopicResponse] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class MetadataRequest(Message):
    class MetadataRequestTopic(Structure):
        topic_id: TopicId = ...
        name: str | None = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    topics: list[MetadataRequest.MetadataRequestTopic] | None = ...
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class MetadataResponse(Message):
    class MetadataResponseBroker(Structure):
        node_id: int = 0
        host: str = ""
        port: int = 0
        rack: str | None = None
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class MetadataResponsePartition(Structure):
        error_code: int = 0
        partition_index: int = 0
        leader_id: int = 0
        leader_epoch: int = -1
        replica_nodes: list[int] = ...
        isr_nodes: list[int] = ...
        offline_replicas: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class MetadataResponseTopic(Structure):
        error_code: int = 0
        name: str | None = ""
        topic_id: TopicId = ...
        is_internal: bool = False
        partitions: list[MetadataResponse.MetadataResponsePartition] = ...
        topic_authorized_operations: int = -2147483648
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    brokers: list[MetadataResponse.MetadataResponseBroker] = ...
    cluster_id: str | None = None
    controller_id: int = -1
    topics: list[MetadataResponse.MetadataResponseTopic] = ...
    cluster_authorized_operations: int = -2147483648
    error_code: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ApiVersionsRequest(Message):
    client_software_name: str = ""
    client_software_version: str = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ApiVersionsResponse(Message):
    class ApiVersion(Structure):
        api_key: int = 0
        min_version: int = 0
        max_version: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class SupportedFeatureKey(Structure):
        name: str = ""
        min_version: int = 0
        max_version: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class FinalizedFeatureKey(Structure):
        name: str = ""
        max_version_level: int = 0
        min_version_level: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    error_code: int = 0
    api_keys: list[ApiVersionsResponse.ApiVersion] = ...
    throttle_time_ms: int = 0
    supported_features: list[ApiVersionsResponse.SupportedFeatureKey] = ...
    finalized_features_epoch: int = -1
    finalized_features: list[ApiVersionsResponse.FinalizedFeatureKey] = ...
    zk_migration_ready: bool = False
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class OffsetForLeaderEpochRequest(Message):
    class OffsetForLeaderPartition(Structure):
        partition: int = 0
        current_leader_epoch: int = -1
        leader_epoch: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class OffsetForLeaderTopic(Structure):
        topic: str = ""
        partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    replica_id: int = -2
    topics: list[OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class OffsetForLeaderEpochResponse(Message):
    class EpochEndOffset(Structure):
        error_code: int = 0
        partition: int = 0
        leader_epoch: int = -1
        end_offset: int = -1
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class OffsetForLeaderTopicResult(Structure):
        topic: str = ""
        partitions: list[OffsetForLeaderEpochResponse.EpochEndOffset] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    topics: list[OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DescribeClusterRequest(Message):
    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1
    include_fenced_brokers: bool = False
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DescribeClusterResponse(Message):
    class DescribeClusterBroker(Structure):
        broker_id: int = 0
        host: str = ""
        port: int = 0
        rack: str | None = None
        is_fenced: bool = False
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    endpoint_type: int = 1
    cluster_id: str = ""
    controller_id: int = -1
    brokers: list[DescribeClusterResponse.DescribeClusterBroker] = ...
    cluster_authorized_operations: int = -2147483648
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DescribeTopicPartitionsRequest(Message):
    class TopicRequest(Structure):
        name: str = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class Cursor(Structure):
        topic_name: str = ""
        partition_index: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    topics: list[DescribeTopicPartitionsRequest.TopicRequest] = ...
    response_partition_limit: int = 2000
    cursor: DescribeTopicPartitionsRequest.Cursor | None = None
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DescribeTopicPartitionsResponse(Message):
    class DescribeTopicPartitionsResponsePartition(Structure):
        error_code: int = 0
        partition_index: int = 0
        leader_id: int = 0
        leader_epoch: int = -1
        replica_nodes: list[int] = ...
        isr_nodes: list[int] = ...
        eligible_leader_replicas: list[int] | None = None
        last_known_elr: list[int] | None = None
        offline_replicas: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class DescribeTopicPartitionsResponseTopic(Structure):
        error_code: int = 0
        name: str | None = ""
        topic_id: TopicId = ...
        is_internal: bool = False
        partitions: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition] = ...
        topic_authorized_operations: int = -2147483648
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class Cursor(Structure):
        topic_name: str = ""
        partition_index: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    topics: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic] = ...
    next_cursor: DescribeTopicPartitionsResponse.Cursor | None = None
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class CreateTopicsRequest(Message):
    class CreatableReplicaAssignment(Structure):
        partition_index: int = 0
        broker_ids: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class CreatableTopicConfig(Structure):
        name: str = ""
        value: str | None = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class CreatableTopic(Structure):
        name: str = ""
        num_partitions: int = 0
        replication_factor: int = 0
        assignments: list[CreateTopicsRequest.CreatableReplicaAssignment] = ...
        configs: list[CreateTopicsRequest.CreatableTopicConfig] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    topics: list[CreateTopicsRequest.CreatableTopic] = ...
    timeout_ms: int = 60000
    validate_only: bool = False
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class CreateTopicsResponse(Message):
    class CreatableTopicConfigs(Structure):
        name: str = ""
        value: str | None = ""
        read_only: bool = False
        config_source: int = -1
        is_sensitive: bool = False
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class CreatableTopicResult(Structure):
        name: str = ""
        topic_id: TopicId = ...
        error_code: int = 0
        error_message: str | None = ""
        topic_config_error_code: int = 0
        num_partitions: int = -1
        replication_factor: int = -1
        configs: list[CreateTopicsResponse.CreatableTopicConfigs] | None = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    topics: list[CreateTopicsResponse.CreatableTopicResult] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DeleteTopicsRequest(Message):
    class DeleteTopicState(Structure):
        name: str | None = None
        topic_id: TopicId = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    topics: list[DeleteTopicsRequest.DeleteTopicState] = ...
    topic_names: list[str] = ...
    timeout_ms: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DeleteTopicsResponse(Message):
    class DeletableTopicResult(Structure):
        name: str | None = ""
        topic_id: TopicId = ...
        error_code: int = 0
        error_message: str | None = None
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    responses: list[DeleteTopicsResponse.DeletableTopicResult] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DeleteRecordsRequest(Message):
    class DeleteRecordsPartition(Structure):
        partition_index: int = 0
        offset: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class DeleteRecordsTopic(Structure):
        name: str = ""
        partitions: list[DeleteRecordsRequest.DeleteRecordsPartition] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    topics: list[DeleteRecordsRequest.DeleteRecordsTopic] = ...
    timeout_ms: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DeleteRecordsResponse(Message):
    class DeleteRecordsPartitionResult(Structure):
        partition_index: int = 0
        low_watermark: int = 0
        error_code: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class DeleteRecordsTopicResult(Structure):
        name: str = ""
        partitions: list[DeleteRecordsResponse.DeleteRecordsPartitionResult] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    topics: list[DeleteRecordsResponse.DeleteRecordsTopicResult] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class CreatePartitionsRequest(Message):
    class CreatePartitionsAssignment(Structure):
        broker_ids: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class CreatePartitionsTopic(Structure):
        name: str = ""
        count: int = 0
        assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    topics: list[CreatePartitionsRequest.CreatePartitionsTopic] = ...
    timeout_ms: int = 0
    validate_only: bool = False
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class CreatePartitionsResponse(Message):
    class CreatePartitionsTopicResult(Structure):
        name: str = ""
        error_code: int = 0
        error_message: str | None = None
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    results: list[CreatePartitionsResponse.CreatePartitionsTopicResult] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ElectLeadersRequest(Message):
    class TopicPartitions(Structure):
        topic: str = ""
        partitions: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    election_type: int = 0
    topic_partitions: list[ElectLeadersRequest.TopicPartitions] | None = ...
    timeout_ms: int = 60000
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ElectLeadersResponse(Message):
    class PartitionResult(Structure):
        partition_id: int = 0
        error_code: int = 0
        error_message: str | None = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class ReplicaElectionResult(Structure):
        topic: str = ""
        partition_result: list[ElectLeadersResponse.PartitionResult] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    replica_election_results: list[ElectLeadersResponse.ReplicaElectionResult] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class AlterPartitionReassignmentsRequest(Message):
    class ReassignablePartition(Structure):
        partition_index: int = 0
        replicas: list[int] | None = None
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class ReassignableTopic(Structure):
        name: str = ""
        partitions: list[AlterPartitionReassignmentsRequest.ReassignablePartition] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    timeout_ms: int = 60000
    allow_replication_factor_change: bool = True
    topics: list[AlterPartitionReassignmentsRequest.ReassignableTopic] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class AlterPartitionReassignmentsResponse(Message):
    class ReassignablePartitionResponse(Structure):
        partition_index: int = 0
        error_code: int = 0
        error_message: str | None = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class ReassignableTopicResponse(Structure):
        name: str = ""
        partitions: list[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    allow_replication_factor_change: bool = True
    error_code: int = 0
    error_message: str | None = ""
    responses: list[AlterPartitionReassignmentsResponse.ReassignableTopicResponse] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ListPartitionReassignmentsRequest(Message):
    class ListPartitionReassignmentsTopics(Structure):
        name: str = ""
        partition_indexes: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    timeout_ms: int = 60000
    topics: list[ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics] | None = None
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ListPartitionReassignmentsResponse(Message):
    class OngoingPartitionReassignment(Structure):
        partition_index: int = 0
        replicas: list[int] = ...
        adding_replicas: list[int] = ...
        removing_replicas: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class OngoingTopicReassignment(Structure):
        name: str = ""
        partitions: list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    topics: list[ListPartitionReassignmentsResponse.OngoingTopicReassignment] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class AlterReplicaLogDirsRequest(Message):
    class AlterReplicaLogDirTopic(Structure):
        name: str = ""
        partitions: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class AlterReplicaLogDir(Structure):
        path: str = ""
        topics: list[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    dirs: list[AlterReplicaLogDirsRequest.AlterReplicaLogDir] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class AlterReplicaLogDirsResponse(Message):
    class AlterReplicaLogDirPartitionResult(Structure):
        partition_index: int = 0
        error_code: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class AlterReplicaLogDirTopicResult(Structure):
        topic_name: str = ""
        partitions: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    results: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DescribeLogDirsRequest(Message):
    class DescribableLogDirTopic(Structure):
        topic: str = ""
        partitions: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    topics: list[DescribeLogDirsRequest.DescribableLogDirTopic] | None = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DescribeLogDirsResponse(Message):
    class DescribeLogDirsPartition(Structure):
        partition_index: int = 0
        partition_size: int = 0
        offset_lag: int = 0
        is_future_key: bool = False
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class DescribeLogDirsTopic(Structure):
        name: str = ""
        partitions: list[DescribeLogDirsResponse.DescribeLogDirsPartition] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class DescribeLogDirsResult(Structure):
        error_code: int = 0
        log_dir: str = ""
        topics: list[DescribeLogDirsResponse.DescribeLogDirsTopic] = ...
        total_bytes: int = -1
        usable_bytes: int = -1
        is_cordoned: bool = False
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    results: list[DescribeLogDirsResponse.DescribeLogDirsResult] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class OffsetCommitRequest(Message):
    class OffsetCommitRequestPartition(Structure):
        partition_index: int = 0
        committed_offset: int = 0
        committed_leader_epoch: int = -1
        commit_timestamp: int = -1
        committed_metadata: str | None = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class OffsetCommitRequestTopic(Structure):
        name: str = ""
        topic_id: TopicId = ...
        partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    group_id: str = ""
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    retention_time_ms: int = -1
    topics: list[OffsetCommitRequest.OffsetCommitRequestTopic] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class OffsetCommitResponse(Message):
    class OffsetCommitResponsePartition(Structure):
        partition_index: int = 0
        error_code: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class OffsetCommitResponseTopic(Structure):
        name: str = ""
        topic_id: TopicId = ...
        partitions: list[OffsetCommitResponse.OffsetCommitResponsePartition] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    topics: list[OffsetCommitResponse.OffsetCommitResponseTopic] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class OffsetFetchRequest(Message):
    class OffsetFetchRequestTopic(Structure):
        name: str = ""
        partition_indexes: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class OffsetFetchRequestTopics(Structure):
        name: str = ""
        topic_id: TopicId = ...
        partition_indexes: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class OffsetFetchRequestGroup(Structure):
        group_id: str = ""
        member_id: str | None = None
        member_epoch: int = -1
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    group_id: str = ""
    topics: list[OffsetFetchRequest.OffsetFetchRequestTopic] | None = ...
    groups: list[OffsetFetchRequest.OffsetFetchRequestGroup] = ...
    require_stable: bool = False
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class OffsetFetchResponse(Message):
    class OffsetFetchResponsePartition(Structure):
        partition_index: int = 0
        committed_offset: int = 0
        committed_leader_epoch: int = -1
        metadata: str | None = ""
        error_code: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class OffsetFetchResponseTopic(Structure):
        name: str = ""
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartition] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class OffsetFetchResponsePartitions(Structure):
        partition_index: int = 0
        committed_offset: int = 0
        committed_leader_epoch: int = -1
        metadata: str | None = ""
        error_code: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class OffsetFetchResponseTopics(Structure):
        name: str = ""
        topic_id: TopicId = ...
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartitions] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class OffsetFetchResponseGroup(Structure):
        group_id: str = ""
        topics: list[OffsetFetchResponse.OffsetFetchResponseTopics] = ...
        error_code: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    topics: list[OffsetFetchResponse.OffsetFetchResponseTopic] = ...
    error_code: int = 0
    groups: list[OffsetFetchResponse.OffsetFetchResponseGroup] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class FindCoordinatorRequest(Message):
    key: str = ""
    key_type: int = 0
    coordinator_keys: list[str] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class FindCoordinatorResponse(Message):
    class Coordinator(Structure):
        key: str = ""
        node_id: int = 0
        host: str = ""
        port: int = 0
        error_code: int = 0
        error_message: str | None = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    node_id: int = 0
    host: str = ""
    port: int = 0
    coordinators: list[FindCoordinatorResponse.Coordinator] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class JoinGroupRequest(Message):
    class JoinGroupRequestProtocol(Structure):
        name: str = ""
        metadata: bytes = b""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    group_id: str = ""
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str = ""
    protocols: list[JoinGroupRequest.JoinGroupRequestProtocol] = ...
    reason: str | None = None
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class JoinGroupResponse(Message):
    class JoinGroupResponseMember(Structure):
        member_id: str = ""
        group_instance_id: str | None = None
        metadata: bytes = b""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = ""
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: list[JoinGroupResponse.JoinGroupResponseMember] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class HeartbeatRequest(Message):
    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class HeartbeatResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class LeaveGroupRequest(Message):
    class MemberIdentity(Structure):
        member_id: str = ""
        group_instance_id: str | None = None
        reason: str | None = None
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    group_id: str = ""
    member_id: str = ""
    members: list[LeaveGroupRequest.MemberIdentity] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class LeaveGroupResponse(Message):
    class MemberResponse(Structure):
        member_id: str = ""
        group_instance_id: str | None = ""
        error_code: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    members: list[LeaveGroupResponse.MemberResponse] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class SyncGroupRequest(Message):
    class SyncGroupRequestAssignment(Structure):
        member_id: str = ""
        assignment: bytes = b""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: list[SyncGroupRequest.SyncGroupRequestAssignment] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class SyncGroupResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DescribeGroupsRequest(Message):
    groups: list[str] = ...
    include_authorized_operations: bool = False
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DescribeGroupsResponse(Message):
    class DescribedGroupMember(Structure):
        member_id: str = ""
        group_instance_id: str | None = None
        client_id: str = ""
        client_host: str = ""
        member_metadata: bytes = b""
        member_assignment: bytes = b""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class DescribedGroup(Structure):
        error_code: int = 0
        error_message: str | None = None
        group_id: str = ""
        group_state: str = ""
        protocol_type: str = ""
        protocol_data: str = ""
        members: list[DescribeGroupsResponse.DescribedGroupMember] = ...
        authorized_operations: int = -2147483648
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    groups: list[DescribeGroupsResponse.DescribedGroup] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ListGroupsRequest(Message):
    states_filter: list[str] = ...
    types_filter: list[str] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ListGroupsResponse(Message):
    class ListedGroup(Structure):
        group_id: str = ""
        protocol_type: str = ""
        group_state: str = ""
        group_type: str = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    groups: list[ListGroupsResponse.ListedGroup] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DeleteGroupsRequest(Message):
    groups_names: list[str] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DeleteGroupsResponse(Message):
    class DeletableGroupResult(Structure):
        group_id: str = ""
        error_code: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    results: list[DeleteGroupsResponse.DeletableGroupResult] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class OffsetDeleteRequest(Message):
    class OffsetDeleteRequestPartition(Structure):
        partition_index: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class OffsetDeleteRequestTopic(Structure):
        name: str = ""
        partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    group_id: str = ""
    topics: list[OffsetDeleteRequest.OffsetDeleteRequestTopic] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class OffsetDeleteResponse(Message):
    class OffsetDeleteResponsePartition(Structure):
        partition_index: int = 0
        error_code: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class OffsetDeleteResponseTopic(Structure):
        name: str = ""
        partitions: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    error_code: int = 0
    throttle_time_ms: int = 0
    topics: list[OffsetDeleteResponse.OffsetDeleteResponseTopic] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ConsumerGroupHeartbeatRequest(Message):
    class TopicPartitions(Structure):
        topic_id: TopicId = ...
        partitions: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: list[ConsumerGroupHeartbeatRequest.TopicPartitions] | None = None
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ConsumerGroupHeartbeatResponse(Message):
    class TopicPartitions(Structure):
        topic_id: TopicId = ...
        partitions: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class Assignment(Structure):
        topic_partitions: list[ConsumerGroupHeartbeatResponse.TopicPartitions] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: ConsumerGroupHeartbeatResponse.Assignment | None = None
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ConsumerGroupDescribeRequest(Message):
    group_ids: list[str] = ...
    include_authorized_operations: bool = False
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ConsumerGroupDescribeResponse(Message):
    class TopicPartitions(Structure):
        topic_id: TopicId = ...
        topic_name: str = ""
        partitions: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class Assignment(Structure):
        topic_partitions: list[ConsumerGroupDescribeResponse.TopicPartitions] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class Member(Structure):
        member_id: str = ""
        instance_id: str | None = None
        rack_id: str | None = None
        member_epoch: int = 0
        client_id: str = ""
        client_host: str = ""
        subscribed_topic_names: list[str] = ...
        subscribed_topic_regex: str | None = None
        assignment: ConsumerGroupDescribeResponse.Assignment = ...
        target_assignment: ConsumerGroupDescribeResponse.Assignment = ...
        member_type: int = -1
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class DescribedGroup(Structure):
        error_code: int = 0
        error_message: str | None = None
        group_id: str = ""
        group_state: str = ""
        group_epoch: int = 0
        assignment_epoch: int = 0
        assignor_name: str = ""
        members: list[ConsumerGroupDescribeResponse.Member] = ...
        authorized_operations: int = -2147483648
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    groups: list[ConsumerGroupDescribeResponse.DescribedGroup] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class InitProducerIdRequest(Message):
    transactional_id: str | None = ""
    transaction_timeout_ms: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    enable2_pc: bool = False
    keep_prepared_txn: bool = False
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class InitProducerIdResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = 0
    ongoing_txn_producer_id: int = -1
    ongoing_txn_producer_epoch: int = -1
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class AddPartitionsToTxnRequest(Message):
    class AddPartitionsToTxnTopic(Structure):
        name: str = ""
        partitions: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class AddPartitionsToTxnTransaction(Structure):
        transactional_id: str = ""
        producer_id: int = 0
        producer_epoch: int = 0
        verify_only: bool = False
        topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    transactions: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction] = ...
    v3_and_below_transactional_id: str = ""
    v3_and_below_producer_id: int = 0
    v3_and_below_producer_epoch: int = 0
    v3_and_below_topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class AddPartitionsToTxnResponse(Message):
    class AddPartitionsToTxnPartitionResult(Structure):
        partition_index: int = 0
        partition_error_code: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class AddPartitionsToTxnTopicResult(Structure):
        name: str = ""
        results_by_partition: list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class AddPartitionsToTxnResult(Structure):
        transactional_id: str = ""
        topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    results_by_transaction: list[AddPartitionsToTxnResponse.AddPartitionsToTxnResult] = ...
    results_by_topic_v3_and_below: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class AddOffsetsToTxnRequest(Message):
    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    group_id: str = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class EndTxnRequest(Message):
    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    committed: bool = False
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class EndTxnResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class WriteTxnMarkersRequest(Message):
    class WritableTxnMarkerTopic(Structure):
        name: str = ""
        partition_indexes: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class WritableTxnMarker(Structure):
        producer_id: int = 0
        producer_epoch: int = 0
        transaction_result: bool = False
        topics: list[WriteTxnMarkersRequest.WritableTxnMarkerTopic] = ...
        coordinator_epoch: int = 0
        transaction_version: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    markers: list[WriteTxnMarkersRequest.WritableTxnMarker] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class WriteTxnMarkersResponse(Message):
    class WritableTxnMarkerPartitionResult(Structure):
        partition_index: int = 0
        error_code: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class WritableTxnMarkerTopicResult(Structure):
        name: str = ""
        partitions: list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class WritableTxnMarkerResult(Structure):
        producer_id: int = 0
        topics: list[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    markers: list[WriteTxnMarkersResponse.WritableTxnMarkerResult] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class TxnOffsetCommitRequest(Message):
    class TxnOffsetCommitRequestPartition(Structure):
        partition_index: int = 0
        committed_offset: int = 0
        committed_leader_epoch: int = -1
        committed_metadata: str | None = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TxnOffsetCommitRequestTopic(Structure):
        name: str = ""
        partitions: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    transactional_id: str = ""
    group_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topics: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class TxnOffsetCommitResponse(Message):
    class TxnOffsetCommitResponsePartition(Structure):
        partition_index: int = 0
        error_code: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TxnOffsetCommitResponseTopic(Structure):
        name: str = ""
        partitions: list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    topics: list[TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DescribeProducersRequest(Message):
    class TopicRequest(Structure):
        name: str = ""
        partition_indexes: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    topics: list[DescribeProducersRequest.TopicRequest] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DescribeProducersResponse(Message):
    class ProducerState(Structure):
        producer_id: int = 0
        producer_epoch: int = 0
        last_sequence: int = -1
        last_timestamp: int = -1
        coordinator_epoch: int = 0
        current_txn_start_offset: int = -1
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class PartitionResponse(Structure):
        partition_index: int = 0
        error_code: int = 0
        error_message: str | None = None
        active_producers: list[DescribeProducersResponse.ProducerState] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TopicResponse(Structure):
        name: str = ""
        partitions: list[DescribeProducersResponse.PartitionResponse] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    topics: list[DescribeProducersResponse.TopicResponse] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DescribeTransactionsRequest(Message):
    transactional_ids: list[str] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DescribeTransactionsResponse(Message):
    class TopicData(Structure):
        topic: str = ""
        partitions: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TransactionState(Structure):
        error_code: int = 0
        transactional_id: str = ""
        transaction_state: str = ""
        transaction_timeout_ms: int = 0
        transaction_start_time_ms: int = 0
        producer_id: int = 0
        producer_epoch: int = 0
        topics: list[DescribeTransactionsResponse.TopicData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    transaction_states: list[DescribeTransactionsResponse.TransactionState] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ListTransactionsRequest(Message):
    state_filters: list[str] = ...
    producer_id_filters: list[int] = ...
    duration_filter: int = -1
    transactional_id_pattern: str | None = None
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ListTransactionsResponse(Message):
    class TransactionState(Structure):
        transactional_id: str = ""
        producer_id: int = 0
        transaction_state: str = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    unknown_state_filters: list[str] = ...
    transaction_states: list[ListTransactionsResponse.TransactionState] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DescribeConfigsRequest(Message):
    class DescribeConfigsResource(Structure):
        resource_type: int = 0
        resource_name: str = ""
        configuration_keys: list[str] | None = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    resources: list[DescribeConfigsRequest.DescribeConfigsResource] = ...
    include_synonyms: bool = False
    include_documentation: bool = False
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DescribeConfigsResponse(Message):
    class DescribeConfigsSynonym(Structure):
        name: str = ""
        value: str | None = ""
        source: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class DescribeConfigsResourceResult(Structure):
        name: str = ""
        value: str | None = ""
        read_only: bool = False
        is_default: bool = False
        config_source: int = -1
        is_sensitive: bool = False
        synonyms: list[DescribeConfigsResponse.DescribeConfigsSynonym] = ...
        config_type: int = 0
        documentation: str | None = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class DescribeConfigsResult(Structure):
        error_code: int = 0
        error_message: str | None = ""
        resource_type: int = 0
        resource_name: str = ""
        configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    results: list[DescribeConfigsResponse.DescribeConfigsResult] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class AlterConfigsRequest(Message):
    class AlterableConfig(Structure):
        name: str = ""
        value: str | None = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class AlterConfigsResource(Structure):
        resource_type: int = 0
        resource_name: str = ""
        configs: list[AlterConfigsRequest.AlterableConfig] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    resources: list[AlterConfigsRequest.AlterConfigsResource] = ...
    validate_only: bool = False
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class AlterConfigsResponse(Message):
    class AlterConfigsResourceResponse(Structure):
        error_code: int = 0
        error_message: str | None = ""
        resource_type: int = 0
        resource_name: str = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    responses: list[AlterConfigsResponse.AlterConfigsResourceResponse] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class IncrementalAlterConfigsRequest(Message):
    class AlterableConfig(Structure):
        name: str = ""
        config_operation: int = 0
        value: str | None = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class AlterConfigsResource(Structure):
        resource_type: int = 0
        resource_name: str = ""
        configs: list[IncrementalAlterConfigsRequest.AlterableConfig] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    resources: list[IncrementalAlterConfigsRequest.AlterConfigsResource] = ...
    validate_only: bool = False
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class IncrementalAlterConfigsResponse(Message):
    class AlterConfigsResourceResponse(Structure):
        error_code: int = 0
        error_message: str | None = ""
        resource_type: int = 0
        resource_name: str = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    responses: list[IncrementalAlterConfigsResponse.AlterConfigsResourceResponse] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DescribeClientQuotasRequest(Message):
    class ComponentData(Structure):
        entity_type: str = ""
        match_type: int = 0
        match: str | None = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    components: list[DescribeClientQuotasRequest.ComponentData] = ...
    strict: bool = False
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DescribeClientQuotasResponse(Message):
    class EntityData(Structure):
        entity_type: str = ""
        entity_name: str | None = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class ValueData(Structure):
        key: str = ""
        value: float = 0.0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class EntryData(Structure):
        entity: list[DescribeClientQuotasResponse.EntityData] = ...
        values: list[DescribeClientQuotasResponse.ValueData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    entries: list[DescribeClientQuotasResponse.EntryData] | None = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class AlterClientQuotasRequest(Message):
    class EntityData(Structure):
        entity_type: str = ""
        entity_name: str | None = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class OpData(Structure):
        key: str = ""
        value: float = 0.0
        remove: bool = False
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class EntryData(Structure):
        entity: list[AlterClientQuotasRequest.EntityData] = ...
        ops: list[AlterClientQuotasRequest.OpData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    entries: list[AlterClientQuotasRequest.EntryData] = ...
    validate_only: bool = False
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class AlterClientQuotasResponse(Message):
    class EntityData(Structure):
        entity_type: str = ""
        entity_name: str | None = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class EntryData(Structure):
        error_code: int = 0
        error_message: str | None = ""
        entity: list[AlterClientQuotasResponse.EntityData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    entries: list[AlterClientQuotasResponse.EntryData] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class UpdateFeaturesRequest(Message):
    class FeatureUpdateKey(Structure):
        feature: str = ""
        max_version_level: int = 0
        allow_downgrade: bool = False
        upgrade_type: int = 1
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    timeout_ms: int = 60000
    feature_updates: list[UpdateFeaturesRequest.FeatureUpdateKey] = ...
    validate_only: bool = False
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class UpdateFeaturesResponse(Message):
    class UpdatableFeatureResult(Structure):
        feature: str = ""
        error_code: int = 0
        error_message: str | None = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    results: list[UpdateFeaturesResponse.UpdatableFeatureResult] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class UnregisterBrokerRequest(Message):
    broker_id: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class UnregisterBrokerResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class GetTelemetrySubscriptionsRequest(Message):
    client_instance_id: bytes = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class GetTelemetrySubscriptionsResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    client_instance_id: bytes = ...
    subscription_id: int = 0
    accepted_compression_types: list[int] = ...
    push_interval_ms: int = 0
    telemetry_max_bytes: int = 0
    delta_temporality: bool = False
    requested_metrics: list[str] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class PushTelemetryRequest(Message):
    client_instance_id: bytes = ...
    subscription_id: int = 0
    terminating: bool = False
    compression_type: int = 0
    metrics: bytes = b""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class PushTelemetryResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ListConfigResourcesRequest(Message):
    resource_types: list[int] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ListConfigResourcesResponse(Message):
    class ConfigResource(Structure):
        resource_name: str = ""
        resource_type: int = 16
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    config_resources: list[ListConfigResourcesResponse.ConfigResource] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ListClientMetricsResourcesRequest(Message):
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ListClientMetricsResourcesResponse(Message):
    class ClientMetricsResource(Structure):
        name: str = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    client_metrics_resources: list[ListClientMetricsResourcesResponse.ClientMetricsResource] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class SaslHandshakeRequest(Message):
    mechanism: str = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class SaslHandshakeResponse(Message):
    error_code: int = 0
    mechanisms: list[str] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class SaslAuthenticateRequest(Message):
    auth_bytes: bytes = b""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class SaslAuthenticateResponse(Message):
    error_code: int = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DescribeAclsRequest(Message):
    resource_type_filter: int = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int = 0
    permission_type: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DescribeAclsResponse(Message):
    class AclDescription(Structure):
        principal: str = ""
        host: str = ""
        operation: int = 0
        permission_type: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class DescribeAclsResource(Structure):
        resource_type: int = 0
        resource_name: str = ""
        pattern_type: int = 3
        acls: list[DescribeAclsResponse.AclDescription] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    resources: list[DescribeAclsResponse.DescribeAclsResource] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class CreateAclsRequest(Message):
    class AclCreation(Structure):
        resource_type: int = 0
        resource_name: str = ""
        resource_pattern_type: int = 3
        principal: str = ""
        host: str = ""
        operation: int = 0
        permission_type: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    creations: list[CreateAclsRequest.AclCreation] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class CreateAclsResponse(Message):
    class AclCreationResult(Structure):
        error_code: int = 0
        error_message: str | None = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    results: list[CreateAclsResponse.AclCreationResult] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DeleteAclsRequest(Message):
    class DeleteAclsFilter(Structure):
        resource_type_filter: int = 0
        resource_name_filter: str | None = ""
        pattern_type_filter: int = 3
        principal_filter: str | None = ""
        host_filter: str | None = ""
        operation: int = 0
        permission_type: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    filters: list[DeleteAclsRequest.DeleteAclsFilter] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DeleteAclsResponse(Message):
    class DeleteAclsMatchingAcl(Structure):
        error_code: int = 0
        error_message: str | None = ""
        resource_type: int = 0
        resource_name: str = ""
        pattern_type: int = 3
        principal: str = ""
        host: str = ""
        operation: int = 0
        permission_type: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class DeleteAclsFilterResult(Structure):
        error_code: int = 0
        error_message: str | None = ""
        matching_acls: list[DeleteAclsResponse.DeleteAclsMatchingAcl] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    filter_results: list[DeleteAclsResponse.DeleteAclsFilterResult] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class CreateDelegationTokenRequest(Message):
    class CreatableRenewers(Structure):
        principal_type: str = ""
        principal_name: str = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    owner_principal_type: str | None = ""
    owner_principal_name: str | None = ""
    renewers: list[CreateDelegationTokenRequest.CreatableRenewers] = ...
    max_lifetime_ms: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class CreateDelegationTokenResponse(Message):
    error_code: int = 0
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = ""
    token_requester_principal_name: str = ""
    issue_timestamp_ms: int = 0
    expiry_timestamp_ms: int = 0
    max_timestamp_ms: int = 0
    token_id: str = ""
    hmac: bytes = b""
    throttle_time_ms: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class RenewDelegationTokenRequest(Message):
    hmac: bytes = b""
    renew_period_ms: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class RenewDelegationTokenResponse(Message):
    error_code: int = 0
    expiry_timestamp_ms: int = 0
    throttle_time_ms: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ExpireDelegationTokenRequest(Message):
    hmac: bytes = b""
    expiry_time_period_ms: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ExpireDelegationTokenResponse(Message):
    error_code: int = 0
    expiry_timestamp_ms: int = 0
    throttle_time_ms: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DescribeDelegationTokenRequest(Message):
    class DescribeDelegationTokenOwner(Structure):
        principal_type: str = ""
        principal_name: str = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    owners: list[DescribeDelegationTokenRequest.DescribeDelegationTokenOwner] | None = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DescribeDelegationTokenResponse(Message):
    class DescribedDelegationTokenRenewer(Structure):
        principal_type: str = ""
        principal_name: str = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class DescribedDelegationToken(Structure):
        principal_type: str = ""
        principal_name: str = ""
        token_requester_principal_type: str = ""
        token_requester_principal_name: str = ""
        issue_timestamp: int = 0
        expiry_timestamp: int = 0
        max_timestamp: int = 0
        token_id: str = ""
        hmac: bytes = b""
        renewers: list[DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    error_code: int = 0
    tokens: list[DescribeDelegationTokenResponse.DescribedDelegationToken] = ...
    throttle_time_ms: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DescribeUserScramCredentialsRequest(Message):
    class UserName(Structure):
        name: str = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    users: list[DescribeUserScramCredentialsRequest.UserName] | None = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DescribeUserScramCredentialsResponse(Message):
    class CredentialInfo(Structure):
        mechanism: int = 0
        iterations: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class DescribeUserScramCredentialsResult(Structure):
        user: str = ""
        error_code: int = 0
        error_message: str | None = ""
        credential_infos: list[DescribeUserScramCredentialsResponse.CredentialInfo] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    results: list[DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class AlterUserScramCredentialsRequest(Message):
    class ScramCredentialDeletion(Structure):
        name: str = ""
        mechanism: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class ScramCredentialUpsertion(Structure):
        name: str = ""
        mechanism: int = 0
        iterations: int = 0
        salt: bytes = b""
        salted_password: bytes = b""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    deletions: list[AlterUserScramCredentialsRequest.ScramCredentialDeletion] = ...
    upsertions: list[AlterUserScramCredentialsRequest.ScramCredentialUpsertion] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class AlterUserScramCredentialsResponse(Message):
    class AlterUserScramCredentialsResult(Structure):
        user: str = ""
        error_code: int = 0
        error_message: str | None = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    results: list[AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class LeaderAndIsrRequest(Message):
    class LeaderAndIsrPartitionState(Structure):
        topic_name: str = ""
        partition_index: int = 0
        controller_epoch: int = 0
        leader: int = 0
        leader_epoch: int = 0
        isr: list[int] = ...
        partition_epoch: int = 0
        replicas: list[int] = ...
        adding_replicas: list[int] = ...
        removing_replicas: list[int] = ...
        is_new: bool = False
        leader_recovery_state: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class LeaderAndIsrTopicState(Structure):
        topic_name: str = ""
        topic_id: TopicId = ...
        partition_states: list[LeaderAndIsrRequest.LeaderAndIsrPartitionState] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class LeaderAndIsrLiveLeader(Structure):
        broker_id: int = 0
        host_name: str = ""
        port: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    controller_id: int = 0
    is_k_raft_controller: bool = False
    controller_epoch: int = 0
    broker_epoch: int = -1
    type: int = 0
    ungrouped_partition_states: list[LeaderAndIsrRequest.LeaderAndIsrPartitionState] = ...
    topic_states: list[LeaderAndIsrRequest.LeaderAndIsrTopicState] = ...
    live_leaders: list[LeaderAndIsrRequest.LeaderAndIsrLiveLeader] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class LeaderAndIsrResponse(Message):
    class LeaderAndIsrPartitionError(Structure):
        topic_name: str = ""
        partition_index: int = 0
        error_code: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class LeaderAndIsrTopicError(Structure):
        topic_id: TopicId = ...
        partition_errors: list[LeaderAndIsrResponse.LeaderAndIsrPartitionError] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    error_code: int = 0
    partition_errors: list[LeaderAndIsrResponse.LeaderAndIsrPartitionError] = ...
    topics: list[LeaderAndIsrResponse.LeaderAndIsrTopicError] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class StopReplicaRequest(Message):
    class StopReplicaPartitionV0(Structure):
        topic_name: str = ""
        partition_index: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class StopReplicaTopicV1(Structure):
        name: str = ""
        partition_indexes: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class StopReplicaPartitionState(Structure):
        partition_index: int = 0
        leader_epoch: int = -1
        delete_partition: bool = False
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class StopReplicaTopicState(Structure):
        topic_name: str = ""
        partition_states: list[StopReplicaRequest.StopReplicaPartitionState] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    controller_id: int = 0
    is_k_raft_controller: bool = False
    controller_epoch: int = 0
    broker_epoch: int = -1
    delete_partitions: bool = False
    ungrouped_partitions: list[StopReplicaRequest.StopReplicaPartitionV0] = ...
    topics: list[StopReplicaRequest.StopReplicaTopicV1] = ...
    topic_states: list[StopReplicaRequest.StopReplicaTopicState] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class StopReplicaResponse(Message):
    class StopReplicaPartitionError(Structure):
        topic_name: str = ""
        partition_index: int = 0
        error_code: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    error_code: int = 0
    partition_errors: list[StopReplicaResponse.StopReplicaPartitionError] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class UpdateMetadataRequest(Message):
    class UpdateMetadataPartitionState(Structure):
        topic_name: str = ""
        partition_index: int = 0
        controller_epoch: int = 0
        leader: int = 0
        leader_epoch: int = 0
        isr: list[int] = ...
        zk_version: int = 0
        replicas: list[int] = ...
        offline_replicas: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class UpdateMetadataTopicState(Structure):
        topic_name: str = ""
        topic_id: TopicId = ...
        partition_states: list[UpdateMetadataRequest.UpdateMetadataPartitionState] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class UpdateMetadataEndpoint(Structure):
        port: int = 0
        host: str = ""
        listener: str = ""
        security_protocol: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class UpdateMetadataBroker(Structure):
        id: int = 0
        v0_host: str = ""
        v0_port: int = 0
        endpoints: list[UpdateMetadataRequest.UpdateMetadataEndpoint] = ...
        rack: str | None = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    controller_id: int = 0
    is_k_raft_controller: bool = False
    type: int = 0
    controller_epoch: int = 0
    broker_epoch: int = -1
    ungrouped_partition_states: list[UpdateMetadataRequest.UpdateMetadataPartitionState] = ...
    topic_states: list[UpdateMetadataRequest.UpdateMetadataTopicState] = ...
    live_brokers: list[UpdateMetadataRequest.UpdateMetadataBroker] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class UpdateMetadataResponse(Message):
    error_code: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ControlledShutdownRequest(Message):
    broker_id: int = 0
    broker_epoch: int = -1
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ControlledShutdownResponse(Message):
    class RemainingPartition(Structure):
        topic_name: str = ""
        partition_index: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    error_code: int = 0
    remaining_partitions: list[ControlledShutdownResponse.RemainingPartition] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class AlterPartitionRequest(Message):
    class BrokerState(Structure):
        broker_id: int = 0
        broker_epoch: int = -1
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class PartitionData(Structure):
        partition_index: int = 0
        leader_epoch: int = 0
        new_isr: list[int] = ...
        new_isr_with_epochs: list[AlterPartitionRequest.BrokerState] = ...
        leader_recovery_state: int = 0
        partition_epoch: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TopicData(Structure):
        topic_name: str = ""
        topic_id: TopicId = ...
        partitions: list[AlterPartitionRequest.PartitionData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    broker_id: int = 0
    broker_epoch: int = -1
    topics: list[AlterPartitionRequest.TopicData] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class AlterPartitionResponse(Message):
    class PartitionData(Structure):
        partition_index: int = 0
        error_code: int = 0
        leader_id: int = 0
        leader_epoch: int = 0
        isr: list[int] = ...
        leader_recovery_state: int = 0
        partition_epoch: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TopicData(Structure):
        topic_name: str = ""
        topic_id: TopicId = ...
        partitions: list[AlterPartitionResponse.PartitionData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    topics: list[AlterPartitionResponse.TopicData] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class EnvelopeRequest(Message):
    request_data: bytes = b""
    request_principal: bytes | None = b""
    client_host_address: bytes = b""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class EnvelopeResponse(Message):
    response_data: bytes | None = None
    error_code: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class BrokerRegistrationRequest(Message):
    class Listener(Structure):
        name: str = ""
        host: str = ""
        port: int = 0
        security_protocol: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class Feature(Structure):
        name: str = ""
        min_supported_version: int = 0
        max_supported_version: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    broker_id: int = 0
    cluster_id: str = ""
    incarnation_id: bytes = ...
    listeners: list[BrokerRegistrationRequest.Listener] = ...
    features: list[BrokerRegistrationRequest.Feature] = ...
    rack: str | None = ""
    is_migrating_zk_broker: bool = False
    log_dirs: list[bytes] = ...
    previous_broker_epoch: int = -1
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class BrokerRegistrationResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    broker_epoch: int = -1
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class BrokerHeartbeatRequest(Message):
    broker_id: int = 0
    broker_epoch: int = -1
    current_metadata_offset: int = 0
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: list[bytes] = ...
    cordoned_log_dirs: list[bytes] | None = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class BrokerHeartbeatResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class AllocateProducerIdsRequest(Message):
    broker_id: int = 0
    broker_epoch: int = -1
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class AllocateProducerIdsResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id_start: int = 0
    producer_id_len: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ControllerRegistrationRequest(Message):
    class Listener(Structure):
        name: str = ""
        host: str = ""
        port: int = 0
        security_protocol: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class Feature(Structure):
        name: str = ""
        min_supported_version: int = 0
        max_supported_version: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    controller_id: int = 0
    incarnation_id: bytes = ...
    zk_migration_ready: bool = False
    listeners: list[ControllerRegistrationRequest.Listener] = ...
    features: list[ControllerRegistrationRequest.Feature] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ControllerRegistrationResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class AssignReplicasToDirsRequest(Message):
    class PartitionData(Structure):
        partition_index: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TopicData(Structure):
        topic_id: TopicId = ...
        partitions: list[AssignReplicasToDirsRequest.PartitionData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class DirectoryData(Structure):
        id: bytes = ...
        topics: list[AssignReplicasToDirsRequest.TopicData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    broker_id: int = 0
    broker_epoch: int = -1
    directories: list[AssignReplicasToDirsRequest.DirectoryData] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class AssignReplicasToDirsResponse(Message):
    class PartitionData(Structure):
        partition_index: int = 0
        error_code: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TopicData(Structure):
        topic_id: TopicId = ...
        partitions: list[AssignReplicasToDirsResponse.PartitionData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class DirectoryData(Structure):
        id: bytes = ...
        topics: list[AssignReplicasToDirsResponse.TopicData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    directories: list[AssignReplicasToDirsResponse.DirectoryData] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class VoteRequest(Message):
    class PartitionData(Structure):
        partition_index: int = 0
        replica_epoch: int = 0
        replica_id: int = 0
        replica_directory_id: bytes = ...
        voter_directory_id: bytes = ...
        last_offset_epoch: int = 0
        last_offset: int = 0
        pre_vote: bool = False
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TopicData(Structure):
        topic_name: str = ""
        partitions: list[VoteRequest.PartitionData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    cluster_id: str | None = None
    voter_id: int = -1
    topics: list[VoteRequest.TopicData] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class VoteResponse(Message):
    class PartitionData(Structure):
        partition_index: int = 0
        error_code: int = 0
        leader_id: int = 0
        leader_epoch: int = 0
        vote_granted: bool = False
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TopicData(Structure):
        topic_name: str = ""
        partitions: list[VoteResponse.PartitionData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class NodeEndpoint(Structure):
        node_id: int = 0
        host: str = ""
        port: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    error_code: int = 0
    topics: list[VoteResponse.TopicData] = ...
    node_endpoints: list[VoteResponse.NodeEndpoint] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class BeginQuorumEpochRequest(Message):
    class PartitionData(Structure):
        partition_index: int = 0
        voter_directory_id: bytes = ...
        leader_id: int = 0
        leader_epoch: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TopicData(Structure):
        topic_name: str = ""
        partitions: list[BeginQuorumEpochRequest.PartitionData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class LeaderEndpoint(Structure):
        name: str = ""
        host: str = ""
        port: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    cluster_id: str | None = None
    voter_id: int = -1
    topics: list[BeginQuorumEpochRequest.TopicData] = ...
    leader_endpoints: list[BeginQuorumEpochRequest.LeaderEndpoint] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class BeginQuorumEpochResponse(Message):
    class PartitionData(Structure):
        partition_index: int = 0
        error_code: int = 0
        leader_id: int = 0
        leader_epoch: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TopicData(Structure):
        topic_name: str = ""
        partitions: list[BeginQuorumEpochResponse.PartitionData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class NodeEndpoint(Structure):
        node_id: int = 0
        host: str = ""
        port: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    error_code: int = 0
    topics: list[BeginQuorumEpochResponse.TopicData] = ...
    node_endpoints: list[BeginQuorumEpochResponse.NodeEndpoint] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class EndQuorumEpochRequest(Message):
    class ReplicaInfo(Structure):
        candidate_id: int = 0
        candidate_directory_id: bytes = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class PartitionData(Structure):
        partition_index: int = 0
        leader_id: int = 0
        leader_epoch: int = 0
        preferred_successors: list[int] = ...
        preferred_candidates: list[EndQuorumEpochRequest.ReplicaInfo] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TopicData(Structure):
        topic_name: str = ""
        partitions: list[EndQuorumEpochRequest.PartitionData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class LeaderEndpoint(Structure):
        name: str = ""
        host: str = ""
        port: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    cluster_id: str | None = None
    topics: list[EndQuorumEpochRequest.TopicData] = ...
    leader_endpoints: list[EndQuorumEpochRequest.LeaderEndpoint] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class EndQuorumEpochResponse(Message):
    class PartitionData(Structure):
        partition_index: int = 0
        error_code: int = 0
        leader_id: int = 0
        leader_epoch: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TopicData(Structure):
        topic_name: str = ""
        partitions: list[EndQuorumEpochResponse.PartitionData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class NodeEndpoint(Structure):
        node_id: int = 0
        host: str = ""
        port: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    error_code: int = 0
    topics: list[EndQuorumEpochResponse.TopicData] = ...
    node_endpoints: list[EndQuorumEpochResponse.NodeEndpoint] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DescribeQuorumRequest(Message):
    class PartitionData(Structure):
        partition_index: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TopicData(Structure):
        topic_name: str = ""
        partitions: list[DescribeQuorumRequest.PartitionData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    topics: list[DescribeQuorumRequest.TopicData] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DescribeQuorumResponse(Message):
    class ReplicaState(Structure):
        replica_id: int = 0
        replica_directory_id: bytes = ...
        log_end_offset: int = 0
        last_fetch_timestamp: int = -1
        last_caught_up_timestamp: int = -1
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class PartitionData(Structure):
        partition_index: int = 0
        error_code: int = 0
        error_message: str | None = ""
        leader_id: int = 0
        leader_epoch: int = 0
        high_watermark: int = 0
        current_voters: list[DescribeQuorumResponse.ReplicaState] = ...
        observers: list[DescribeQuorumResponse.ReplicaState] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TopicData(Structure):
        topic_name: str = ""
        partitions: list[DescribeQuorumResponse.PartitionData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class Listener(Structure):
        name: str = ""
        host: str = ""
        port: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class Node(Structure):
        node_id: int = 0
        listeners: list[DescribeQuorumResponse.Listener] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    error_code: int = 0
    error_message: str | None = ""
    topics: list[DescribeQuorumResponse.TopicData] = ...
    nodes: list[DescribeQuorumResponse.Node] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class FetchSnapshotRequest(Message):
    class SnapshotId(Structure):
        end_offset: int = 0
        epoch: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class PartitionSnapshot(Structure):
        partition: int = 0
        current_leader_epoch: int = 0
        snapshot_id: FetchSnapshotRequest.SnapshotId = ...
        position: int = 0
        replica_directory_id: bytes = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TopicSnapshot(Structure):
        name: str = ""
        partitions: list[FetchSnapshotRequest.PartitionSnapshot] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    cluster_id: str | None = None
    replica_id: int = -1
    max_bytes: int = 2147483647
    topics: list[FetchSnapshotRequest.TopicSnapshot] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class FetchSnapshotResponse(Message):
    class SnapshotId(Structure):
        end_offset: int = 0
        epoch: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class LeaderIdAndEpoch(Structure):
        leader_id: int = 0
        leader_epoch: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class PartitionSnapshot(Structure):
        index: int = 0
        error_code: int = 0
        snapshot_id: FetchSnapshotResponse.SnapshotId = ...
        current_leader: FetchSnapshotResponse.LeaderIdAndEpoch = ...
        size: int = 0
        position: int = 0
        unaligned_records: bytes | memoryview | list[Chunk] = b""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TopicSnapshot(Structure):
        name: str = ""
        partitions: list[FetchSnapshotResponse.PartitionSnapshot] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class NodeEndpoint(Structure):
        node_id: int = 0
        host: str = ""
        port: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    topics: list[FetchSnapshotResponse.TopicSnapshot] = ...
    node_endpoints: list[FetchSnapshotResponse.NodeEndpoint] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class AddRaftVoterRequest(Message):
    class Listener(Structure):
        name: str = ""
        host: str = ""
        port: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    cluster_id: str | None = ""
    timeout_ms: int = 0
    voter_id: int = 0
    voter_directory_id: bytes = ...
    listeners: list[AddRaftVoterRequest.Listener] = ...
    ack_when_committed: bool = True
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class AddRaftVoterResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class RemoveRaftVoterRequest(Message):
    cluster_id: str | None = ""
    voter_id: int = 0
    voter_directory_id: bytes = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class RemoveRaftVoterResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class UpdateRaftVoterRequest(Message):
    class Listener(Structure):
        name: str = ""
        host: str = ""
        port: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class KRaftVersionFeature(Structure):
        min_supported_version: int = 0
        max_supported_version: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    cluster_id: str | None = ""
    current_leader_epoch: int = 0
    voter_id: int = 0
    voter_directory_id: bytes = ...
    listeners: list[UpdateRaftVoterRequest.Listener] = ...
    k_raft_version_feature: UpdateRaftVoterRequest.KRaftVersionFeature = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class UpdateRaftVoterResponse(Message):
    class CurrentLeader(Structure):
        leader_id: int = -1
        leader_epoch: int = -1
        host: str = ""
        port: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    current_leader: UpdateRaftVoterResponse.CurrentLeader = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ShareGroupHeartbeatRequest(Message):
    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    rack_id: str | None = None
    subscribed_topic_names: list[str] | None = None
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ShareGroupHeartbeatResponse(Message):
    class TopicPartitions(Structure):
        topic_id: TopicId = ...
        partitions: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class Assignment(Structure):
        topic_partitions: list[ShareGroupHeartbeatResponse.TopicPartitions] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: ShareGroupHeartbeatResponse.Assignment | None = None
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ShareGroupDescribeRequest(Message):
    group_ids: list[str] = ...
    include_authorized_operations: bool = False
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ShareGroupDescribeResponse(Message):
    class TopicPartitions(Structure):
        topic_id: TopicId = ...
        topic_name: str = ""
        partitions: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class Assignment(Structure):
        topic_partitions: list[ShareGroupDescribeResponse.TopicPartitions] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class Member(Structure):
        member_id: str = ""
        rack_id: str | None = None
        member_epoch: int = 0
        client_id: str = ""
        client_host: str = ""
        subscribed_topic_names: list[str] = ...
        assignment: ShareGroupDescribeResponse.Assignment = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class DescribedGroup(Structure):
        error_code: int = 0
        error_message: str | None = None
        group_id: str = ""
        group_state: str = ""
        group_epoch: int = 0
        assignment_epoch: int = 0
        assignor_name: str = ""
        members: list[ShareGroupDescribeResponse.Member] = ...
        authorized_operations: int = -2147483648
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    groups: list[ShareGroupDescribeResponse.DescribedGroup] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ShareFetchRequest(Message):
    class AcknowledgementBatch(Structure):
        first_offset: int = 0
        last_offset: int = 0
        acknowledge_types: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class FetchPartition(Structure):
        partition_index: int = 0
        partition_max_bytes: int = 0
        acknowledgement_batches: list[ShareFetchRequest.AcknowledgementBatch] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class FetchTopic(Structure):
        topic_id: TopicId = ...
        partitions: list[ShareFetchRequest.FetchPartition] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class ForgottenTopic(Structure):
        topic_id: TopicId = ...
        partitions: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: int = 0
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    max_records: int = 0
    batch_size: int = 0
    share_acquire_mode: int = 0
    is_renew_ack: bool = False
    topics: list[ShareFetchRequest.FetchTopic] = ...
    forgotten_topics_data: list[ShareFetchRequest.ForgottenTopic] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ShareFetchResponse(Message):
    class LeaderIdAndEpoch(Structure):
        leader_id: int = 0
        leader_epoch: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class AcquiredRecords(Structure):
        first_offset: int = 0
        last_offset: int = 0
        delivery_count: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class PartitionData(Structure):
        partition_index: int = 0
        error_code: int = 0
        error_message: str | None = None
        acknowledge_error_code: int = 0
        acknowledge_error_message: str | None = None
        current_leader: ShareFetchResponse.LeaderIdAndEpoch = ...
        records: bytes | memoryview | list[Chunk] | None = b""
        acquired_records: list[ShareFetchResponse.AcquiredRecords] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class ShareFetchableTopicResponse(Structure):
        topic_id: TopicId = ...
        partitions: list[ShareFetchResponse.PartitionData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class NodeEndpoint(Structure):
        node_id: int = 0
        host: str = ""
        port: int = 0
        rack: str | None = None
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int = 0
    responses: list[ShareFetchResponse.ShareFetchableTopicResponse] = ...
    node_endpoints: list[ShareFetchResponse.NodeEndpoint] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ShareAcknowledgeRequest(Message):
    class AcknowledgementBatch(Structure):
        first_offset: int = 0
        last_offset: int = 0
        acknowledge_types: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class AcknowledgePartition(Structure):
        partition_index: int = 0
        acknowledgement_batches: list[ShareAcknowledgeRequest.AcknowledgementBatch] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class AcknowledgeTopic(Structure):
        topic_id: TopicId = ...
        partitions: list[ShareAcknowledgeRequest.AcknowledgePartition] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: int = 0
    is_renew_ack: bool = False
    topics: list[ShareAcknowledgeRequest.AcknowledgeTopic] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ShareAcknowledgeResponse(Message):
    class LeaderIdAndEpoch(Structure):
        leader_id: int = 0
        leader_epoch: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class PartitionData(Structure):
        partition_index: int = 0
        error_code: int = 0
        error_message: str | None = None
        current_leader: ShareAcknowledgeResponse.LeaderIdAndEpoch = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class ShareAcknowledgeTopicResponse(Structure):
        topic_id: TopicId = ...
        partitions: list[ShareAcknowledgeResponse.PartitionData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class NodeEndpoint(Structure):
        node_id: int = 0
        host: str = ""
        port: int = 0
        rack: str | None = None
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int = 0
    responses: list[ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse] = ...
    node_endpoints: list[ShareAcknowledgeResponse.NodeEndpoint] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class InitializeShareGroupStateRequest(Message):
    class PartitionData(Structure):
        partition: int = 0
        state_epoch: int = 0
        start_offset: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class InitializeStateData(Structure):
        topic_id: TopicId = ...
        partitions: list[InitializeShareGroupStateRequest.PartitionData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    group_id: str = ""
    topics: list[InitializeShareGroupStateRequest.InitializeStateData] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class InitializeShareGroupStateResponse(Message):
    class PartitionResult(Structure):
        partition: int = 0
        error_code: int = 0
        error_message: str | None = None
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class InitializeStateResult(Structure):
        topic_id: TopicId = ...
        partitions: list[InitializeShareGroupStateResponse.PartitionResult] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    results: list[InitializeShareGroupStateResponse.InitializeStateResult] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ReadShareGroupStateRequest(Message):
    class PartitionData(Structure):
        partition: int = 0
        leader_epoch: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class ReadStateData(Structure):
        topic_id: TopicId = ...
        partitions: list[ReadShareGroupStateRequest.PartitionData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    group_id: str = ""
    topics: list[ReadShareGroupStateRequest.ReadStateData] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ReadShareGroupStateResponse(Message):
    class StateBatch(Structure):
        first_offset: int = 0
        last_offset: int = 0
        delivery_state: int = 0
        delivery_count: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class PartitionResult(Structure):
        partition: int = 0
        error_code: int = 0
        error_message: str | None = None
        state_epoch: int = 0
        start_offset: int = 0
        state_batches: list[ReadShareGroupStateResponse.StateBatch] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class ReadStateResult(Structure):
        topic_id: TopicId = ...
        partitions: list[ReadShareGroupStateResponse.PartitionResult] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    results: list[ReadShareGroupStateResponse.ReadStateResult] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class WriteShareGroupStateRequest(Message):
    class StateBatch(Structure):
        first_offset: int = 0
        last_offset: int = 0
        delivery_state: int = 0
        delivery_count: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class PartitionData(Structure):
        partition: int = 0
        state_epoch: int = 0
        leader_epoch: int = 0
        start_offset: int = 0
        delivery_complete_count: int = -1
        state_batches: list[WriteShareGroupStateRequest.StateBatch] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class WriteStateData(Structure):
        topic_id: TopicId = ...
        partitions: list[WriteShareGroupStateRequest.PartitionData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    group_id: str = ""
    topics: list[WriteShareGroupStateRequest.WriteStateData] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class WriteShareGroupStateResponse(Message):
    class PartitionResult(Structure):
        partition: int = 0
        error_code: int = 0
        error_message: str | None = None
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class WriteStateResult(Structure):
        topic_id: TopicId = ...
        partitions: list[WriteShareGroupStateResponse.PartitionResult] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    results: list[WriteShareGroupStateResponse.WriteStateResult] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DeleteShareGroupStateRequest(Message):
    class PartitionData(Structure):
        partition: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class DeleteStateData(Structure):
        topic_id: TopicId = ...
        partitions: list[DeleteShareGroupStateRequest.PartitionData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    group_id: str = ""
    topics: list[DeleteShareGroupStateRequest.DeleteStateData] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DeleteShareGroupStateResponse(Message):
    class PartitionResult(Structure):
        partition: int = 0
        error_code: int = 0
        error_message: str | None = None
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class DeleteStateResult(Structure):
        topic_id: TopicId = ...
        partitions: list[DeleteShareGroupStateResponse.PartitionResult] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    results: list[DeleteShareGroupStateResponse.DeleteStateResult] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ReadShareGroupStateSummaryRequest(Message):
    class PartitionData(Structure):
        partition: int = 0
        leader_epoch: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class ReadStateSummaryData(Structure):
        topic_id: TopicId = ...
        partitions: list[ReadShareGroupStateSummaryRequest.PartitionData] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    group_id: str = ""
    topics: list[ReadShareGroupStateSummaryRequest.ReadStateSummaryData] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ReadShareGroupStateSummaryResponse(Message):
    class PartitionResult(Structure):
        partition: int = 0
        error_code: int = 0
        error_message: str | None = None
        state_epoch: int = 0
        leader_epoch: int = 0
        start_offset: int = 0
        delivery_complete_count: int = -1
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class ReadStateSummaryResult(Structure):
        topic_id: TopicId = ...
        partitions: list[ReadShareGroupStateSummaryResponse.PartitionResult] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    results: list[ReadShareGroupStateSummaryResponse.ReadStateSummaryResult] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DescribeShareGroupOffsetsRequest(Message):
    class DescribeShareGroupOffsetsRequestTopic(Structure):
        topic_name: str = ""
        partitions: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class DescribeShareGroupOffsetsRequestGroup(Structure):
        group_id: str = ""
        topics: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic] | None = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    groups: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DescribeShareGroupOffsetsResponse(Message):
    class DescribeShareGroupOffsetsResponsePartition(Structure):
        partition_index: int = 0
        start_offset: int = 0
        leader_epoch: int = 0
        lag: int = -1
        error_code: int = 0
        error_message: str | None = None
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class DescribeShareGroupOffsetsResponseTopic(Structure):
        topic_name: str = ""
        topic_id: TopicId = ...
        partitions: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class DescribeShareGroupOffsetsResponseGroup(Structure):
        group_id: str = ""
        topics: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic] = ...
        error_code: int = 0
        error_message: str | None = None
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    groups: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class AlterShareGroupOffsetsRequest(Message):
    class AlterShareGroupOffsetsRequestPartition(Structure):
        partition_index: int = 0
        start_offset: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class AlterShareGroupOffsetsRequestTopic(Structure):
        topic_name: str = ""
        partitions: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    group_id: str = ""
    topics: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class AlterShareGroupOffsetsResponse(Message):
    class AlterShareGroupOffsetsResponsePartition(Structure):
        partition_index: int = 0
        error_code: int = 0
        error_message: str | None = None
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class AlterShareGroupOffsetsResponseTopic(Structure):
        topic_name: str = ""
        topic_id: TopicId = ...
        partitions: list[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    responses: list[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DeleteShareGroupOffsetsRequest(Message):
    class DeleteShareGroupOffsetsRequestTopic(Structure):
        topic_name: str = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    group_id: str = ""
    topics: list[DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DeleteShareGroupOffsetsResponse(Message):
    class DeleteShareGroupOffsetsResponseTopic(Structure):
        topic_name: str = ""
        topic_id: TopicId = ...
        error_code: int = 0
        error_message: str | None = None
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    responses: list[DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class StreamsGroupHeartbeatRequest(Message):
    class KeyValue(Structure):
        key: str = ""
        value: str = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TopicInfo(Structure):
        name: str = ""
        partitions: int = 0
        replication_factor: int = 0
        topic_configs: list[StreamsGroupHeartbeatRequest.KeyValue] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class CopartitionGroup(Structure):
        source_topics: list[int] = ...
        source_topic_regex: list[int] = ...
        repartition_source_topics: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class Subtopology(Structure):
        subtopology_id: str = ""
        source_topics: list[str] = ...
        source_topic_regex: list[str] = ...
        state_changelog_topics: list[StreamsGroupHeartbeatRequest.TopicInfo] = ...
        repartition_sink_topics: list[str] = ...
        repartition_source_topics: list[StreamsGroupHeartbeatRequest.TopicInfo] = ...
        copartition_groups: list[StreamsGroupHeartbeatRequest.CopartitionGroup] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class Topology(Structure):
        epoch: int = 0
        subtopologies: list[StreamsGroupHeartbeatRequest.Subtopology] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TaskIds(Structure):
        subtopology_id: str = ""
        partitions: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class Endpoint(Structure):
        host: str = ""
        port: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TaskOffset(Structure):
        subtopology_id: str = ""
        partition: int = 0
        offset: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    endpoint_information_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: StreamsGroupHeartbeatRequest.Topology | None = None
    active_tasks: list[StreamsGroupHeartbeatRequest.TaskIds] | None = None
    standby_tasks: list[StreamsGroupHeartbeatRequest.TaskIds] | None = None
    warmup_tasks: list[StreamsGroupHeartbeatRequest.TaskIds] | None = None
    process_id: str | None = None
    user_endpoint: StreamsGroupHeartbeatRequest.Endpoint | None = None
    client_tags: list[StreamsGroupHeartbeatRequest.KeyValue] | None = None
    task_offsets: list[StreamsGroupHeartbeatRequest.TaskOffset] | None = None
    task_end_offsets: list[StreamsGroupHeartbeatRequest.TaskOffset] | None = None
    shutdown_application: bool = False
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class StreamsGroupHeartbeatResponse(Message):
    class Status(Structure):
        status_code: int = 0
        status_detail: str = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TaskIds(Structure):
        subtopology_id: str = ""
        partitions: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class Endpoint(Structure):
        host: str = ""
        port: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TopicPartition(Structure):
        topic: str = ""
        partitions: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class EndpointToPartitions(Structure):
        user_endpoint: StreamsGroupHeartbeatResponse.Endpoint = ...
        active_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition] = ...
        standby_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    acceptable_recovery_lag: int = 0
    task_offset_interval_ms: int = 0
    status: list[StreamsGroupHeartbeatResponse.Status] | None = ...
    active_tasks: list[StreamsGroupHeartbeatResponse.TaskIds] | None = None
    standby_tasks: list[StreamsGroupHeartbeatResponse.TaskIds] | None = None
    warmup_tasks: list[StreamsGroupHeartbeatResponse.TaskIds] | None = None
    endpoint_information_epoch: int = 0
    partitions_by_user_endpoint: list[StreamsGroupHeartbeatResponse.EndpointToPartitions] | None = None
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class StreamsGroupDescribeRequest(Message):
    group_ids: list[str] = ...
    include_authorized_operations: bool = False
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class StreamsGroupDescribeResponse(Message):
    class KeyValue(Structure):
        key: str = ""
        value: str = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TopicInfo(Structure):
        name: str = ""
        partitions: int = 0
        replication_factor: int = 0
        topic_configs: list[StreamsGroupDescribeResponse.KeyValue] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class Subtopology(Structure):
        subtopology_id: str = ""
        source_topics: list[str] = ...
        repartition_sink_topics: list[str] = ...
        state_changelog_topics: list[StreamsGroupDescribeResponse.TopicInfo] = ...
        repartition_source_topics: list[StreamsGroupDescribeResponse.TopicInfo] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class Topology(Structure):
        epoch: int = 0
        subtopologies: list[StreamsGroupDescribeResponse.Subtopology] | None = None
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class Endpoint(Structure):
        host: str = ""
        port: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TaskOffset(Structure):
        subtopology_id: str = ""
        partition: int = 0
        offset: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TaskIds(Structure):
        subtopology_id: str = ""
        partitions: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class Assignment(Structure):
        active_tasks: list[StreamsGroupDescribeResponse.TaskIds] = ...
        standby_tasks: list[StreamsGroupDescribeResponse.TaskIds] = ...
        warmup_tasks: list[StreamsGroupDescribeResponse.TaskIds] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class Member(Structure):
        member_id: str = ""
        member_epoch: int = 0
        instance_id: str | None = None
        rack_id: str | None = None
        client_id: str = ""
        client_host: str = ""
        topology_epoch: int = 0
        process_id: str = ""
        user_endpoint: StreamsGroupDescribeResponse.Endpoint | None = None
        client_tags: list[StreamsGroupDescribeResponse.KeyValue] = ...
        task_offsets: list[StreamsGroupDescribeResponse.TaskOffset] = ...
        task_end_offsets: list[StreamsGroupDescribeResponse.TaskOffset] = ...
        assignment: StreamsGroupDescribeResponse.Assignment = ...
        target_assignment: StreamsGroupDescribeResponse.Assignment = ...
        is_classic: bool = False
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class DescribedGroup(Structure):
        error_code: int = 0
        error_message: str | None = None
        group_id: str = ""
        group_state: str = ""
        group_epoch: int = 0
        assignment_epoch: int = 0
        topology: StreamsGroupDescribeResponse.Topology | None = None
        members: list[StreamsGroupDescribeResponse.Member] = ...
        authorized_operations: int = -2147483648
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    throttle_time_ms: int = 0
    groups: list[StreamsGroupDescribeResponse.DescribedGroup] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class LegacyOffsetCommitKey(Message):
    group: str = ""
    topic: str = ""
    partition: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class LegacyOffsetCommitValue(Message):
    offset: int = 0
    metadata: str = ""
    commit_timestamp: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class OffsetCommitKey(Message):
    group: str = ""
    topic: str = ""
    partition: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class OffsetCommitValue(Message):
    offset: int = 0
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: int = 0
    expire_timestamp: int = -1
    topic_id: TopicId = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class GroupMetadataKey(Message):
    group: str = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class GroupMetadataValue(Message):
    class MemberMetadata(Structure):
        member_id: str = ""
        group_instance_id: str | None = None
        client_id: str = ""
        client_host: str = ""
        rebalance_timeout: int = -1
        session_timeout: int = 0
        subscription: bytes = b""
        assignment: bytes = b""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    protocol_type: str = ""
    generation: int = 0
    protocol: str | None = ""
    leader: str | None = ""
    current_state_timestamp: int = -1
    members: list[GroupMetadataValue.MemberMetadata] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ConsumerGroupMetadataKey(Message):
    group_id: str = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ConsumerGroupMetadataValue(Message):
    epoch: int = 0
    metadata_hash: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ConsumerGroupPartitionMetadataKey(Message):
    group_id: str = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ConsumerGroupPartitionMetadataValue(Message):
    class PartitionMetadata(Structure):
        partition: int = 0
        racks: list[str] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TopicMetadata(Structure):
        topic_id: TopicId = ...
        topic_name: str = ""
        num_partitions: int = 0
        partition_metadata: list[ConsumerGroupPartitionMetadataValue.PartitionMetadata] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    topics: list[ConsumerGroupPartitionMetadataValue.TopicMetadata] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ConsumerGroupMemberMetadataKey(Message):
    group_id: str = ""
    member_id: str = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ConsumerGroupMemberMetadataValue(Message):
    class ClassicProtocol(Structure):
        name: str = ""
        metadata: bytes = b""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class ClassicMemberMetadata(Structure):
        session_timeout_ms: int = 0
        supported_protocols: list[ConsumerGroupMemberMetadataValue.ClassicProtocol] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    instance_id: str | None = ""
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = ...
    subscribed_topic_regex: str | None = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = ""
    classic_member_metadata: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ConsumerGroupTargetAssignmentMetadataKey(Message):
    group_id: str = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ConsumerGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: int = 0
    assignment_timestamp: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ConsumerGroupTargetAssignmentMemberKey(Message):
    group_id: str = ""
    member_id: str = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ConsumerGroupTargetAssignmentMemberValue(Message):
    class TopicPartition(Structure):
        topic_id: TopicId = ...
        partitions: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    topic_partitions: list[ConsumerGroupTargetAssignmentMemberValue.TopicPartition] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ConsumerGroupCurrentMemberAssignmentKey(Message):
    group_id: str = ""
    member_id: str = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ConsumerGroupCurrentMemberAssignmentValue(Message):
    class TopicPartitions(Structure):
        topic_id: TopicId = ...
        partitions: list[int] = ...
        assignment_epochs: list[int] | None = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: int = 0
    assigned_partitions: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions] = ...
    partitions_pending_revocation: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ConsumerGroupRegularExpressionKey(Message):
    group_id: str = ""
    regular_expression: str = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ConsumerGroupRegularExpressionValue(Message):
    topics: list[str] = ...
    version: int = 0
    timestamp: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class TransactionLogKey(Message):
    transactional_id: str = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class TransactionLogValue(Message):
    class PartitionsSchema(Structure):
        topic: str = ""
        partition_ids: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    producer_id: int = 0
    previous_producer_id: int = -1
    next_producer_id: int = -1
    producer_epoch: int = 0
    next_producer_epoch: int = -1
    transaction_timeout_ms: int = 0
    transaction_status: int = 0
    transaction_partitions: list[TransactionLogValue.PartitionsSchema] | None = ...
    transaction_last_update_timestamp_ms: int = 0
    transaction_start_timestamp_ms: int = 0
    client_transaction_version: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ShareSnapshotKey(Message):
    group_id: str = ""
    topic_id: TopicId = ...
    partition: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ShareSnapshotValue(Message):
    class StateBatch(Structure):
        first_offset: int = 0
        last_offset: int = 0
        delivery_state: int = 0
        delivery_count: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = -1
    create_timestamp: int = 0
    write_timestamp: int = 0
    state_batches: list[ShareSnapshotValue.StateBatch] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ShareUpdateKey(Message):
    group_id: str = ""
    topic_id: TopicId = ...
    partition: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ShareUpdateValue(Message):
    class StateBatch(Structure):
        first_offset: int = 0
        last_offset: int = 0
        delivery_state: int = 0
        delivery_count: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    snapshot_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = -1
    state_batches: list[ShareUpdateValue.StateBatch] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ShareGroupMemberMetadataKey(Message):
    group_id: str = ""
    member_id: str = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ShareGroupMemberMetadataValue(Message):
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ShareGroupMetadataKey(Message):
    group_id: str = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ShareGroupMetadataValue(Message):
    epoch: int = 0
    metadata_hash: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ShareGroupTargetAssignmentMetadataKey(Message):
    group_id: str = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ShareGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: int = 0
    assignment_timestamp: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ShareGroupTargetAssignmentMemberKey(Message):
    group_id: str = ""
    member_id: str = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ShareGroupTargetAssignmentMemberValue(Message):
    class TopicPartition(Structure):
        topic_id: TopicId = ...
        partitions: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    topic_partitions: list[ShareGroupTargetAssignmentMemberValue.TopicPartition] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ShareGroupCurrentMemberAssignmentKey(Message):
    group_id: str = ""
    member_id: str = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ShareGroupCurrentMemberAssignmentValue(Message):
    class TopicPartitions(Structure):
        topic_id: TopicId = ...
        partitions: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: int = 0
    assigned_partitions: list[ShareGroupCurrentMemberAssignmentValue.TopicPartitions] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ShareGroupStatePartitionMetadataKey(Message):
    group_id: str = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ShareGroupStatePartitionMetadataValue(Message):
    class TopicPartitionsInfo(Structure):
        topic_id: TopicId = ...
        topic_name: str = ""
        partitions: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TopicInfo(Structure):
        topic_id: TopicId = ...
        topic_name: str = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    initializing_topics: list[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo] = ...
    initialized_topics: list[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo] = ...
    deleting_topics: list[ShareGroupStatePartitionMetadataValue.TopicInfo] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ShareGroupPartitionMetadataKey(Message):
    group_id: str = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ShareGroupPartitionMetadataValue(Message):
    class TopicPartitionsInfo(Structure):
        topic_id: TopicId = ...
        topic_name: str = ""
        partitions: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TopicInfo(Structure):
        topic_id: TopicId = ...
        topic_name: str = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    initialized_topics: list[ShareGroupPartitionMetadataValue.TopicPartitionsInfo] = ...
    deleting_topics: list[ShareGroupPartitionMetadataValue.TopicInfo] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class StreamsGroupMetadataKey(Message):
    group_id: str = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class StreamsGroupMetadataValue(Message):
    class LastAssignmentConfig(Structure):
        key: str = ""
        value: str = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    epoch: int = 0
    metadata_hash: int = 0
    validated_topology_epoch: int = -1
    last_assignment_configs: list[StreamsGroupMetadataValue.LastAssignmentConfig] | None = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class StreamsGroupMemberMetadataKey(Message):
    group_id: str = ""
    member_id: str = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class StreamsGroupMemberMetadataValue(Message):
    class Endpoint(Structure):
        host: str = ""
        port: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class KeyValue(Structure):
        key: str = ""
        value: str = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    instance_id: str | None = ""
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = 0
    process_id: str = ""
    user_endpoint: StreamsGroupMemberMetadataValue.Endpoint | None = None
    client_tags: list[StreamsGroupMemberMetadataValue.KeyValue] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class StreamsGroupTargetAssignmentMetadataKey(Message):
    group_id: str = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class StreamsGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: int = 0
    assignment_timestamp: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class StreamsGroupTargetAssignmentMemberKey(Message):
    group_id: str = ""
    member_id: str = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class StreamsGroupTargetAssignmentMemberValue(Message):
    class TaskIds(Structure):
        subtopology_id: str = ""
        partitions: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    active_tasks: list[StreamsGroupTargetAssignmentMemberValue.TaskIds] = ...
    standby_tasks: list[StreamsGroupTargetAssignmentMemberValue.TaskIds] = ...
    warmup_tasks: list[StreamsGroupTargetAssignmentMemberValue.TaskIds] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class StreamsGroupCurrentMemberAssignmentKey(Message):
    group_id: str = ""
    member_id: str = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class StreamsGroupCurrentMemberAssignmentValue(Message):
    class TaskIds(Structure):
        subtopology_id: str = ""
        partitions: list[int] = ...
        assignment_epochs: list[int] | None = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: int = 0
    active_tasks: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...
    standby_tasks: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...
    warmup_tasks: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...
    active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class StreamsGroupTopologyKey(Message):
    group_id: str = ""
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class StreamsGroupTopologyValue(Message):
    class TopicConfig(Structure):
        key: str = ""
        value: str = ""
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class TopicInfo(Structure):
        name: str = ""
        partitions: int = 0
        replication_factor: int = 0
        topic_configs: list[StreamsGroupTopologyValue.TopicConfig] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class CopartitionGroup(Structure):
        source_topics: list[int] = ...
        source_topic_regex: list[int] = ...
        repartition_source_topics: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class Subtopology(Structure):
        subtopology_id: str = ""
        source_topics: list[str] = ...
        source_topic_regex: list[str] = ...
        state_changelog_topics: list[StreamsGroupTopologyValue.TopicInfo] = ...
        repartition_sink_topics: list[str] = ...
        repartition_source_topics: list[StreamsGroupTopologyValue.TopicInfo] = ...
        copartition_groups: list[StreamsGroupTopologyValue.CopartitionGroup] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    epoch: int = 0
    subtopologies: list[StreamsGroupTopologyValue.Subtopology] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ConsumerProtocolAssignment(Message):
    class TopicPartition(Structure):
        topic: str = ""
        partitions: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    assigned_partitions: list[ConsumerProtocolAssignment.TopicPartition] = ...
    user_data: bytes | None = None
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ConsumerProtocolSubscription(Message):
    class TopicPartition(Structure):
        topic: str = ""
        partitions: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    topics: list[str] = ...
    user_data: bytes | None = None
    owned_partitions: list[ConsumerProtocolSubscription.TopicPartition] = ...
    generation_id: int = -1
    rack_id: str | None = None
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class ControlRecordTypeSchema(Message):
    type: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class DefaultPrincipalData(Message):
    type: str = ""
    name: str = ""
    token_authenticated: bool = False
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class EndTxnMarker(Message):
    coordinator_epoch: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class KRaftVersionRecord(Message):
    version: int = 0
    k_raft_version: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class LeaderChangeMessage(Message):
    class Voter(Structure):
        voter_id: int = 0
        voter_directory_id: bytes = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    version: int = 0
    leader_id: int = 0
    voters: list[LeaderChangeMessage.Voter] = ...
    granting_voters: list[LeaderChangeMessage.Voter] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class QuorumStateData(Message):
    class Voter(Structure):
        voter_id: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    cluster_id: str = ""
    leader_id: int = -1
    leader_epoch: int = -1
    voted_id: int = -1
    voted_directory_id: bytes = ...
    applied_offset: int = 0
    current_voters: list[QuorumStateData.Voter] | None = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class SnapshotFooterRecord(Message):
    version: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class SnapshotHeaderRecord(Message):
    version: int = 0
    last_contained_log_timestamp: int = 0
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class StickyAssignorUserData(Message):
    class TopicPartition(Structure):
        topic: str = ""
        partitions: list[int] = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    topic_partitions: list[StickyAssignorUserData.TopicPartition] = ...
    generation: int = -1
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

class VotersRecord(Message):
    class Endpoint(Structure):
        name: str = ""
        host: str = ""
        port: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class KRaftVersionFeature(Structure):
        min_supported_version: int = 0
        max_supported_version: int = 0
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    class Voter(Structure):
        voter_id: int = 0
        voter_directory_id: bytes = ...
        endpoints: list[VotersRecord.Endpoint] = ...
        k_raft_version_feature: VotersRecord.KRaftVersionFeature = ...
        unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    version: int = 0
    voters: list[VotersRecord.Voter] = ...
    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()
