"""Produce, Fetch, ListOffsets, Metadata, ApiVersions and the headers: what every client calls.

The notation is explained in `tidelog.protocol.schema`.
"""

from typing import Final

DEFINITIONS: Final = """
RequestHeader header versions 0-2 flexible 2+
  request_api_key      int16   0+
  request_api_version  int16   0+
  correlation_id       int32   0+
  client_id            string  1+  null 1+, inflexible

ResponseHeader header versions 0-1 flexible 1+
  correlation_id  int32  0+

ProduceRequest request 0 versions 0-13 flexible 9+
  transactional_id  string                  3+    null 3+, = null
  acks              int16                   0+
  timeout_ms        int32                   0+
  topic_data        []TopicProduceData      0+
    name            string                  0-12  ignorable
    topic_id        uuid                    13+   ignorable
    partition_data  []PartitionProduceData  0+
      index         int32                   0+
      records       records                 0+    null 0+

ProduceResponse response 0 versions 0-13 flexible 9+
  responses                        []TopicProduceResponse       0+
    name                           string                       0-12  ignorable
    topic_id                       uuid                         13+   ignorable
    partition_responses            []PartitionProduceResponse   0+
      index                        int32                        0+
      error_code                   int16                        0+
      base_offset                  int64                        0+
      log_append_time_ms           int64                        2+    = -1, ignorable
      log_start_offset             int64                        5+    = -1, ignorable
      record_errors                []BatchIndexAndErrorMessage  8+    ignorable
        batch_index                int32                        8+
        batch_index_error_message  string                       8+    null 8+, = null
      error_message                string                       8+    null 8+, = null, ignorable
      current_leader               LeaderIdAndEpoch             10+   tag 0
        leader_id                  int32                        10+   = -1
        leader_epoch               int32                        10+   = -1
  throttle_time_ms                 int32                        1+    ignorable
  node_endpoints                   []NodeEndpoint               10+   tag 0
    node_id                        int32                        10+
    host                           string                       10+
    port                           int32                        10+
    rack                           string                       10+   null 10+, = null

FetchRequest request 1 versions 0-18 flexible 12+
  cluster_id                string            12+   null 12+, tag 0, = null, ignorable
  replica_id                int32             0-14  = -1
  replica_state             ReplicaState      15+   tag 1
    replica_id              int32             15+   = -1
    replica_epoch           int64             15+   = -1
  max_wait_ms               int32             0+
  min_bytes                 int32             0+
  max_bytes                 int32             3+    = 2147483647, ignorable
  isolation_level           int8              4+    ignorable
  session_id                int32             7+    ignorable
  session_epoch             int32             7+    = -1, ignorable
  topics                    []FetchTopic      0+
    topic                   string            0-12  ignorable
    topic_id                uuid              13+   ignorable
    partitions              []FetchPartition  0+
      partition             int32             0+
      current_leader_epoch  int32             9+    = -1, ignorable
      fetch_offset          int64             0+
      last_fetched_epoch    int32             12+   = -1
      log_start_offset      int64             5+    = -1, ignorable
      partition_max_bytes   int32             0+
      replica_directory_id  uuid              17+   tag 0, ignorable
      high_watermark        int64             18+   tag 1, = 9223372036854775807, ignorable
  forgotten_topics_data     []ForgottenTopic  7+
    topic                   string            7-12  ignorable
    topic_id                uuid              13+   ignorable
    partitions              []int32           7+
  rack_id                   string            11+   ignorable

FetchResponse response 1 versions 0-18 flexible 12+
  throttle_time_ms            int32                     1+    ignorable
  error_code                  int16                     7+    ignorable
  session_id                  int32                     7+
  responses                   []FetchableTopicResponse  0+
    topic                     string                    0-12  ignorable
    topic_id                  uuid                      13+   ignorable
    partitions                []PartitionData           0+
      partition_index         int32                     0+
      error_code              int16                     0+
      high_watermark          int64                     0+
      last_stable_offset      int64                     4+    = -1, ignorable
      log_start_offset        int64                     5+    = -1, ignorable
      diverging_epoch         EpochEndOffset            12+   tag 0
        epoch                 int32                     12+   = -1
        end_offset            int64                     12+   = -1
      current_leader          LeaderIdAndEpoch          12+   tag 1
        leader_id             int32                     12+   = -1
        leader_epoch          int32                     12+   = -1
      snapshot_id             SnapshotId                12+   tag 2
        end_offset            int64                     0+    = -1
        epoch                 int32                     0+    = -1
      aborted_transactions    []AbortedTransaction      4+    null 4+, ignorable
        producer_id           int64                     4+
        first_offset          int64                     4+
      preferred_read_replica  int32                     11+   = -1
      records                 records                   0+    null 0+
  node_endpoints              []NodeEndpoint            16+   tag 0
    node_id                   int32                     16+
    host                      string                    16+
    port                      int32                     16+
    rack                      string                    16+   null 16+, = null

ListOffsetsRequest request 2 versions 0-11 flexible 6+
  replica_id                int32                   0+
  isolation_level           int8                    2+
  topics                    []ListOffsetsTopic      0+
    name                    string                  0+
    partitions              []ListOffsetsPartition  0+
      partition_index       int32                   0+
      current_leader_epoch  int32                   4+   = -1, ignorable
      timestamp             int64                   0+
      max_num_offsets       int32                   0    = 1
  timeout_ms                int32                   10+  ignorable

ListOffsetsResponse response 2 versions 0-11 flexible 6+
  throttle_time_ms       int32                           2+  ignorable
  topics                 []ListOffsetsTopicResponse      0+
    name                 string                          0+
    partitions           []ListOffsetsPartitionResponse  0+
      partition_index    int32                           0+
      error_code         int16                           0+
      old_style_offsets  []int64                         0
      timestamp          int64                           1+  = -1
      offset             int64                           1+  = -1
      leader_epoch       int32                           4+  = -1

MetadataRequest request 3 versions 0-13 flexible 9+
  topics                                 []MetadataRequestTopic  0+    null 1+
    topic_id                             uuid                    10+   ignorable
    name                                 string                  0+    null 10+
  allow_auto_topic_creation              bool                    4+    = true
  include_cluster_authorized_operations  bool                    8-10
  include_topic_authorized_operations    bool                    8+

MetadataResponse response 3 versions 0-13 flexible 9+
  throttle_time_ms               int32                        3+    ignorable
  brokers                        []MetadataResponseBroker     0+
    node_id                      int32                        0+
    host                         string                       0+
    port                         int32                        0+
    rack                         string                       1+    null 1+, = null, ignorable
  cluster_id                     string                       2+    null 2+, = null, ignorable
  controller_id                  int32                        1+    = -1, ignorable
  topics                         []MetadataResponseTopic      0+
    error_code                   int16                        0+
    name                         string                       0+    null 12+
    topic_id                     uuid                         10+   ignorable
    is_internal                  bool                         1+    ignorable
    partitions                   []MetadataResponsePartition  0+
      error_code                 int16                        0+
      partition_index            int32                        0+
      leader_id                  int32                        0+
      leader_epoch               int32                        7+    = -1, ignorable
      replica_nodes              []int32                      0+
      isr_nodes                  []int32                      0+
      offline_replicas           []int32                      5+    ignorable
    topic_authorized_operations  int32                        8+    = -2147483648
  cluster_authorized_operations  int32                        8-10  = -2147483648
  error_code                     int16                        13+   ignorable

ApiVersionsRequest request 18 versions 0-4 flexible 3+
  client_software_name     string  3+  ignorable
  client_software_version  string  3+  ignorable

ApiVersionsResponse response 18 versions 0-4 flexible 3+
  error_code                int16                  0+
  api_keys                  []ApiVersion           0+
    api_key                 int16                  0+
    min_version             int16                  0+
    max_version             int16                  0+
  throttle_time_ms          int32                  1+  ignorable
  supported_features        []SupportedFeatureKey  3+  tag 0, ignorable
    name                    string                 3+
    min_version             int16                  3+
    max_version             int16                  3+
  finalized_features_epoch  int64                  3+  tag 1, = -1, ignorable
  finalized_features        []FinalizedFeatureKey  3+  tag 2, ignorable
    name                    string                 3+
    max_version_level       int16                  3+
    min_version_level       int16                  3+
  zk_migration_ready        bool                   3+  tag 3, ignorable

OffsetForLeaderEpochRequest request 23 versions 0-4 flexible 4+
  replica_id                int32                       3+  = -2, ignorable
  topics                    []OffsetForLeaderTopic      0+
    topic                   string                      0+
    partitions              []OffsetForLeaderPartition  0+
      partition             int32                       0+
      current_leader_epoch  int32                       2+  = -1, ignorable
      leader_epoch          int32                       0+

OffsetForLeaderEpochResponse response 23 versions 0-4 flexible 4+
  throttle_time_ms  int32                         2+  ignorable
  topics            []OffsetForLeaderTopicResult  0+
    topic           string                        0+
    partitions      []EpochEndOffset              0+
      error_code    int16                         0+
      partition     int32                         0+
      leader_epoch  int32                         1+  = -1, ignorable
      end_offset    int64                         0+  = -1

DescribeClusterRequest request 60 versions 0-2 flexible 0+
  include_cluster_authorized_operations  bool  0+
  endpoint_type                          int8  1+  = 1
  include_fenced_brokers                 bool  2+

DescribeClusterResponse response 60 versions 0-2 flexible 0+
  throttle_time_ms               int32                    0+
  error_code                     int16                    0+
  error_message                  string                   0+  null 0+, = null
  endpoint_type                  int8                     1+  = 1
  cluster_id                     string                   0+
  controller_id                  int32                    0+  = -1
  brokers                        []DescribeClusterBroker  0+
    broker_id                    int32                    0+
    host                         string                   0+
    port                         int32                    0+
    rack                         string                   0+  null 0+, = null
    is_fenced                    bool                     2+
  cluster_authorized_operations  int32                    0+  = -2147483648

DescribeTopicPartitionsRequest request 75 versions 0 flexible 0+
  topics                    []TopicRequest  0+
    name                    string          0+
  response_partition_limit  int32           0+  = 2000
  cursor                    Cursor          0+  null 0+, = null
    topic_name              string          0+
    partition_index         int32           0+

DescribeTopicPartitionsResponse response 75 versions 0 flexible 0+
  throttle_time_ms               int32                                       0+  ignorable
  topics                         []DescribeTopicPartitionsResponseTopic      0+
    error_code                   int16                                       0+
    name                         string                                      0+  null 0+
    topic_id                     uuid                                        0+  ignorable
    is_internal                  bool                                        0+  ignorable
    partitions                   []DescribeTopicPartitionsResponsePartition  0+
      error_code                 int16                                       0+
      partition_index            int32                                       0+
      leader_id                  int32                                       0+
      leader_epoch               int32                                       0+  = -1, ignorable
      replica_nodes              []int32                                     0+
      isr_nodes                  []int32                                     0+
      eligible_leader_replicas   []int32                                     0+  null 0+, = null
      last_known_elr             []int32                                     0+  null 0+, = null
      offline_replicas           []int32                                     0+  ignorable
    topic_authorized_operations  int32                                       0+  = -2147483648
  next_cursor                    Cursor                                      0+  null 0+, = null
    topic_name                   string                                      0+
    partition_index              int32                                       0+
"""
