"""Share groups (KIP-932).

The notation is explained in `tidelog.protocol.schema`.
"""

from typing import Final

DEFINITIONS: Final = """
ShareGroupHeartbeatRequest request 76 versions 0-1 flexible 0+
  group_id                string    0+
  member_id               string    0+
  member_epoch            int32     0+
  rack_id                 string    0+  null 0+, = null
  subscribed_topic_names  []string  0+  null 0+, = null

ShareGroupHeartbeatResponse response 76 versions 0-1 flexible 0+
  struct TopicPartitions
    topic_id             uuid               0+
    partitions           []int32            0+
  throttle_time_ms       int32              0+
  error_code             int16              0+
  error_message          string             0+  null 0+, = null
  member_id              string             0+  null 0+, = null
  member_epoch           int32              0+
  heartbeat_interval_ms  int32              0+
  assignment             Assignment         0+  null 0+, = null
    topic_partitions     []TopicPartitions  0+

ShareGroupDescribeRequest request 77 versions 0-1 flexible 0+
  group_ids                      []string  0+
  include_authorized_operations  bool      0+

ShareGroupDescribeResponse response 77 versions 0-1 flexible 0+
  struct TopicPartitions
    topic_id                  uuid               0+
    topic_name                string             0+
    partitions                []int32            0+
  struct Assignment
    topic_partitions          []TopicPartitions  0+
  throttle_time_ms            int32              0+
  groups                      []DescribedGroup   0+
    error_code                int16              0+
    error_message             string             0+  null 0+, = null
    group_id                  string             0+
    group_state               string             0+
    group_epoch               int32              0+
    assignment_epoch          int32              0+
    assignor_name             string             0+
    members                   []Member           0+
      member_id               string             0+
      rack_id                 string             0+  null 0+, = null
      member_epoch            int32              0+
      client_id               string             0+
      client_host             string             0+
      subscribed_topic_names  []string           0+
      assignment              Assignment         0+
    authorized_operations     int32              0+  = -2147483648

ShareFetchRequest request 78 versions 0-2 flexible 0+
  group_id                     string                  0+  null 0+, = null
  member_id                    string                  0+  null 0+
  share_session_epoch          int32                   0+
  max_wait_ms                  int32                   0+
  min_bytes                    int32                   0+
  max_bytes                    int32                   0+  = 2147483647
  max_records                  int32                   1+
  batch_size                   int32                   1+
  share_acquire_mode           int8                    2+  ignorable
  is_renew_ack                 bool                    2+
  topics                       []FetchTopic            0+
    topic_id                   uuid                    0+
    partitions                 []FetchPartition        0+
      partition_index          int32                   0+
      partition_max_bytes      int32                   0
      acknowledgement_batches  []AcknowledgementBatch  0+
        first_offset           int64                   0+
        last_offset            int64                   0+
        acknowledge_types      []int8                  0+
  forgotten_topics_data        []ForgottenTopic        0+
    topic_id                   uuid                    0+
    partitions                 []int32                 0+

ShareFetchResponse response 78 versions 0-2 flexible 0+
  throttle_time_ms               int32                          0+
  error_code                     int16                          0+
  error_message                  string                         0+  null 0+, = null
  acquisition_lock_timeout_ms    int32                          1+
  responses                      []ShareFetchableTopicResponse  0+
    topic_id                     uuid                           0+
    partitions                   []PartitionData                0+
      partition_index            int32                          0+
      error_code                 int16                          0+
      error_message              string                         0+  null 0+, = null
      acknowledge_error_code     int16                          0+
      acknowledge_error_message  string                         0+  null 0+, = null
      current_leader             LeaderIdAndEpoch               0+
        leader_id                int32                          0+
        leader_epoch             int32                          0+
      records                    records                        0+  null 0
      acquired_records           []AcquiredRecords              0+
        first_offset             int64                          0+
        last_offset              int64                          0+
        delivery_count           int16                          0+
  node_endpoints                 []NodeEndpoint                 0+
    node_id                      int32                          0+
    host                         string                         0+
    port                         int32                          0+
    rack                         string                         0+  null 0+, = null

ShareAcknowledgeRequest request 79 versions 0-2 flexible 0+
  group_id                     string                  0+  null 0+, = null
  member_id                    string                  0+  null 0+
  share_session_epoch          int32                   0+
  is_renew_ack                 bool                    2+
  topics                       []AcknowledgeTopic      0+
    topic_id                   uuid                    0+
    partitions                 []AcknowledgePartition  0+
      partition_index          int32                   0+
      acknowledgement_batches  []AcknowledgementBatch  0+
        first_offset           int64                   0+
        last_offset            int64                   0+
        acknowledge_types      []int8                  0+

ShareAcknowledgeResponse response 79 versions 0-2 flexible 0+
  throttle_time_ms             int32                            0+
  error_code                   int16                            0+
  error_message                string                           0+  null 0+, = null
  acquisition_lock_timeout_ms  int32                            2+  ignorable
  responses                    []ShareAcknowledgeTopicResponse  0+
    topic_id                   uuid                             0+
    partitions                 []PartitionData                  0+
      partition_index          int32                            0+
      error_code               int16                            0+
      error_message            string                           0+  null 0+, = null
      current_leader           LeaderIdAndEpoch                 0+
        leader_id              int32                            0+
        leader_epoch           int32                            0+
  node_endpoints               []NodeEndpoint                   0+
    node_id                    int32                            0+
    host                       string                           0+
    port                       int32                            0+
    rack                       string                           0+  null 0+, = null

InitializeShareGroupStateRequest request 83 versions 0 flexible 0+
  group_id          string                 0+
  topics            []InitializeStateData  0+
    topic_id        uuid                   0+
    partitions      []PartitionData        0+
      partition     int32                  0+
      state_epoch   int32                  0+
      start_offset  int64                  0+

InitializeShareGroupStateResponse response 83 versions 0 flexible 0+
  results            []InitializeStateResult  0+
    topic_id         uuid                     0+
    partitions       []PartitionResult        0+
      partition      int32                    0+
      error_code     int16                    0+
      error_message  string                   0+  null 0+, = null

ReadShareGroupStateRequest request 84 versions 0 flexible 0+
  group_id          string           0+
  topics            []ReadStateData  0+
    topic_id        uuid             0+
    partitions      []PartitionData  0+
      partition     int32            0+
      leader_epoch  int32            0+

ReadShareGroupStateResponse response 84 versions 0 flexible 0+
  results               []ReadStateResult  0+
    topic_id            uuid               0+
    partitions          []PartitionResult  0+
      partition         int32              0+
      error_code        int16              0+
      error_message     string             0+  null 0+, = null
      state_epoch       int32              0+
      start_offset      int64              0+
      state_batches     []StateBatch       0+
        first_offset    int64              0+
        last_offset     int64              0+
        delivery_state  int8               0+
        delivery_count  int16              0+

WriteShareGroupStateRequest request 85 versions 0-1 flexible 0+
  group_id                     string            0+
  topics                       []WriteStateData  0+
    topic_id                   uuid              0+
    partitions                 []PartitionData   0+
      partition                int32             0+
      state_epoch              int32             0+
      leader_epoch             int32             0+
      start_offset             int64             0+
      delivery_complete_count  int32             1+  = -1, ignorable
      state_batches            []StateBatch      0+
        first_offset           int64             0+
        last_offset            int64             0+
        delivery_state         int8              0+
        delivery_count         int16             0+

WriteShareGroupStateResponse response 85 versions 0-1 flexible 0+
  results            []WriteStateResult  0+
    topic_id         uuid                0+
    partitions       []PartitionResult   0+
      partition      int32               0+
      error_code     int16               0+
      error_message  string              0+  null 0+, = null

DeleteShareGroupStateRequest request 86 versions 0 flexible 0+
  group_id       string             0+
  topics         []DeleteStateData  0+
    topic_id     uuid               0+
    partitions   []PartitionData    0+
      partition  int32              0+

DeleteShareGroupStateResponse response 86 versions 0 flexible 0+
  results            []DeleteStateResult  0+
    topic_id         uuid                 0+
    partitions       []PartitionResult    0+
      partition      int32                0+
      error_code     int16                0+
      error_message  string               0+  null 0+, = null

ReadShareGroupStateSummaryRequest request 87 versions 0-1 flexible 0+
  group_id          string                  0+
  topics            []ReadStateSummaryData  0+
    topic_id        uuid                    0+
    partitions      []PartitionData         0+
      partition     int32                   0+
      leader_epoch  int32                   0+

ReadShareGroupStateSummaryResponse response 87 versions 0-1 flexible 0+
  results                      []ReadStateSummaryResult  0+
    topic_id                   uuid                      0+
    partitions                 []PartitionResult         0+
      partition                int32                     0+
      error_code               int16                     0+
      error_message            string                    0+  null 0+, = null
      state_epoch              int32                     0+
      leader_epoch             int32                     0+
      start_offset             int64                     0+
      delivery_complete_count  int32                     1+  = -1, ignorable

DescribeShareGroupOffsetsRequest request 90 versions 0-1 flexible 0+
  groups          []DescribeShareGroupOffsetsRequestGroup  0+
    group_id      string                                   0+
    topics        []DescribeShareGroupOffsetsRequestTopic  0+  null 0+
      topic_name  string                                   0+
      partitions  []int32                                  0+

DescribeShareGroupOffsetsResponse response 90 versions 0-1 flexible 0+
  throttle_time_ms       int32                                         0+
  groups                 []DescribeShareGroupOffsetsResponseGroup      0+
    group_id             string                                        0+
    topics               []DescribeShareGroupOffsetsResponseTopic      0+
      topic_name         string                                        0+
      topic_id           uuid                                          0+
      partitions         []DescribeShareGroupOffsetsResponsePartition  0+
        partition_index  int32                                         0+
        start_offset     int64                                         0+
        leader_epoch     int32                                         0+
        lag              int64                                         1+  = -1, ignorable
        error_code       int16                                         0+
        error_message    string                                        0+  null 0+, = null
    error_code           int16                                         0+
    error_message        string                                        0+  null 0+, = null

AlterShareGroupOffsetsRequest request 91 versions 0 flexible 0+
  group_id             string                                    0+
  topics               []AlterShareGroupOffsetsRequestTopic      0+
    topic_name         string                                    0+
    partitions         []AlterShareGroupOffsetsRequestPartition  0+
      partition_index  int32                                     0+
      start_offset     int64                                     0+

AlterShareGroupOffsetsResponse response 91 versions 0 flexible 0+
  throttle_time_ms     int32                                      0+
  error_code           int16                                      0+
  error_message        string                                     0+  null 0+, = null
  responses            []AlterShareGroupOffsetsResponseTopic      0+
    topic_name         string                                     0+
    topic_id           uuid                                       0+
    partitions         []AlterShareGroupOffsetsResponsePartition  0+
      partition_index  int32                                      0+
      error_code       int16                                      0+
      error_message    string                                     0+  null 0+, = null

DeleteShareGroupOffsetsRequest request 92 versions 0 flexible 0+
  group_id      string                                 0+
  topics        []DeleteShareGroupOffsetsRequestTopic  0+
    topic_name  string                                 0+

DeleteShareGroupOffsetsResponse response 92 versions 0 flexible 0+
  throttle_time_ms  int32                                   0+
  error_code        int16                                   0+
  error_message     string                                  0+  null 0+, = null
  responses         []DeleteShareGroupOffsetsResponseTopic  0+
    topic_name      string                                  0+
    topic_id        uuid                                    0+
    error_code      int16                                   0+
    error_message   string                                  0+  null 0+, = null
"""
