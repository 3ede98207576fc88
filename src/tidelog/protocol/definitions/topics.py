"""Creating, changing and deleting topics, partitions and records, and moving replicas.

The notation is explained in `tidelog.protocol.schema`.
"""

from typing import Final

DEFINITIONS: Final = """
CreateTopicsRequest request 19 versions 0-7 flexible 5+
  topics                []CreatableTopic              0+
    name                string                        0+
    num_partitions      int32                         0+
    replication_factor  int16                         0+
    assignments         []CreatableReplicaAssignment  0+
      partition_index   int32                         0+
      broker_ids        []int32                       0+
    configs             []CreatableTopicConfig        0+
      name              string                        0+
      value             string                        0+  null 0+
  timeout_ms            int32                         0+  = 60000
  validate_only         bool                          1+

CreateTopicsResponse response 19 versions 0-7 flexible 5+
  throttle_time_ms           int32                    2+  ignorable
  topics                     []CreatableTopicResult   0+
    name                     string                   0+
    topic_id                 uuid                     7+  ignorable
    error_code               int16                    0+
    error_message            string                   1+  null 0+, ignorable
    topic_config_error_code  int16                    5+  tag 0, ignorable
    num_partitions           int32                    5+  = -1, ignorable
    replication_factor       int16                    5+  = -1, ignorable
    configs                  []CreatableTopicConfigs  5+  null 5+, ignorable
      name                   string                   5+
      value                  string                   5+  null 5+
      read_only              bool                     5+
      config_source          int8                     5+  = -1, ignorable
      is_sensitive           bool                     5+

DeleteTopicsRequest request 20 versions 0-6 flexible 4+
  topics       []DeleteTopicState  6+
    name       string              6+   null 6+, = null
    topic_id   uuid                6+
  topic_names  []string            0-5  ignorable
  timeout_ms   int32               0+

DeleteTopicsResponse response 20 versions 0-6 flexible 4+
  throttle_time_ms  int32                   1+  ignorable
  responses         []DeletableTopicResult  0+
    name            string                  0+  null 6+
    topic_id        uuid                    6+  ignorable
    error_code      int16                   0+
    error_message   string                  5+  null 5+, = null, ignorable

DeleteRecordsRequest request 21 versions 0-2 flexible 2+
  topics               []DeleteRecordsTopic      0+
    name               string                    0+
    partitions         []DeleteRecordsPartition  0+
      partition_index  int32                     0+
      offset           int64                     0+
  timeout_ms           int32                     0+

DeleteRecordsResponse response 21 versions 0-2 flexible 2+
  throttle_time_ms     int32                           0+
  topics               []DeleteRecordsTopicResult      0+
    name               string                          0+
    partitions         []DeleteRecordsPartitionResult  0+
      partition_index  int32                           0+
      low_watermark    int64                           0+
      error_code       int16                           0+

CreatePartitionsRequest request 37 versions 0-3 flexible 2+
  topics          []CreatePartitionsTopic       0+
    name          string                        0+
    count         int32                         0+
    assignments   []CreatePartitionsAssignment  0+  null 0+
      broker_ids  []int32                       0+
  timeout_ms      int32                         0+
  validate_only   bool                          0+

CreatePartitionsResponse response 37 versions 0-3 flexible 2+
  throttle_time_ms  int32                          0+
  results           []CreatePartitionsTopicResult  0+
    name            string                         0+
    error_code      int16                          0+
    error_message   string                         0+  null 0+, = null

ElectLeadersRequest request 43 versions 0-2 flexible 2+
  election_type     int8               1+
  topic_partitions  []TopicPartitions  0+  null 0+
    topic           string             0+
    partitions      []int32            0+
  timeout_ms        int32              0+  = 60000

ElectLeadersResponse response 43 versions 0-2 flexible 2+
  throttle_time_ms          int32                    0+
  error_code                int16                    1+
  replica_election_results  []ReplicaElectionResult  0+
    topic                   string                   0+
    partition_result        []PartitionResult        0+
      partition_id          int32                    0+
      error_code            int16                    0+
      error_message         string                   0+  null 0+

AlterPartitionReassignmentsRequest request 45 versions 0-1 flexible 0+
  timeout_ms                       int32                    0+  = 60000
  allow_replication_factor_change  bool                     1+  = true
  topics                           []ReassignableTopic      0+
    name                           string                   0+
    partitions                     []ReassignablePartition  0+
      partition_index              int32                    0+
      replicas                     []int32                  0+  null 0+, = null

AlterPartitionReassignmentsResponse response 45 versions 0-1 flexible 0+
  throttle_time_ms                 int32                            0+
  allow_replication_factor_change  bool                             1+  = true, ignorable
  error_code                       int16                            0+
  error_message                    string                           0+  null 0+
  responses                        []ReassignableTopicResponse      0+
    name                           string                           0+
    partitions                     []ReassignablePartitionResponse  0+
      partition_index              int32                            0+
      error_code                   int16                            0+
      error_message                string                           0+  null 0+

ListPartitionReassignmentsRequest request 46 versions 0 flexible 0+
  timeout_ms           int32                               0+  = 60000
  topics               []ListPartitionReassignmentsTopics  0+  null 0+, = null
    name               string                              0+
    partition_indexes  []int32                             0+

ListPartitionReassignmentsResponse response 46 versions 0 flexible 0+
  throttle_time_ms       int32                           0+
  error_code             int16                           0+
  error_message          string                          0+  null 0+
  topics                 []OngoingTopicReassignment      0+
    name                 string                          0+
    partitions           []OngoingPartitionReassignment  0+
      partition_index    int32                           0+
      replicas           []int32                         0+
      adding_replicas    []int32                         0+
      removing_replicas  []int32                         0+

AlterReplicaLogDirsRequest request 34 versions 0-2 flexible 2+
  dirs            []AlterReplicaLogDir       0+
    path          string                     0+
    topics        []AlterReplicaLogDirTopic  0+
      name        string                     0+
      partitions  []int32                    0+

AlterReplicaLogDirsResponse response 34 versions 0-2 flexible 2+
  throttle_time_ms     int32                                0+
  results              []AlterReplicaLogDirTopicResult      0+
    topic_name         string                               0+
    partitions         []AlterReplicaLogDirPartitionResult  0+
      partition_index  int32                                0+
      error_code       int16                                0+

DescribeLogDirsRequest request 35 versions 0-5 flexible 2+
  topics        []DescribableLogDirTopic  0+  null 0+
    topic       string                    0+
    partitions  []int32                   0+

DescribeLogDirsResponse response 35 versions 0-5 flexible 2+
  throttle_time_ms       int32                       0+
  error_code             int16                       3+  ignorable
  results                []DescribeLogDirsResult     0+
    error_code           int16                       0+
    log_dir              string                      0+
    topics               []DescribeLogDirsTopic      0+
      name               string                      0+
      partitions         []DescribeLogDirsPartition  0+
        partition_index  int32                       0+
        partition_size   int64                       0+
        offset_lag       int64                       0+
        is_future_key    bool                        0+
    total_bytes          int64                       4+  = -1, ignorable
    usable_bytes         int64                       4+  = -1, ignorable
    is_cordoned          bool                        5+  ignorable
"""
