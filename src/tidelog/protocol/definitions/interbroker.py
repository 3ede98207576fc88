"""What controllers and brokers say to each other; keys 4 to 7 are of Kafka 3.9 (ZooKeeper), the rest also of 4.3.

The notation is explained in `tidelog.protocol.schema`.
"""

from typing import Final

DEFINITIONS: Final = """
LeaderAndIsrRequest request 4 versions 0-7 flexible 4+
  struct LeaderAndIsrPartitionState
    topic_name                string                        0-1  ignorable
    partition_index           int32                         0+
    controller_epoch          int32                         0+
    leader                    int32                         0+
    leader_epoch              int32                         0+
    isr                       []int32                       0+
    partition_epoch           int32                         0+
    replicas                  []int32                       0+
    adding_replicas           []int32                       3+   ignorable
    removing_replicas         []int32                       3+   ignorable
    is_new                    bool                          1+   ignorable
    leader_recovery_state     int8                          6+
  controller_id               int32                         0+
  is_k_raft_controller        bool                          7+
  controller_epoch            int32                         0+
  broker_epoch                int64                         2+   = -1, ignorable
  type                        int8                          5+
  ungrouped_partition_states  []LeaderAndIsrPartitionState  0-1
  topic_states                []LeaderAndIsrTopicState      2+
    topic_name                string                        2+
    topic_id                  uuid                          5+   ignorable
    partition_states          []LeaderAndIsrPartitionState  2+
  live_leaders                []LeaderAndIsrLiveLeader      0+
    broker_id                 int32                         0+
    host_name                 string                        0+
    port                      int32                         0+

LeaderAndIsrResponse response 4 versions 0-7 flexible 4+
  struct LeaderAndIsrPartitionError
    topic_name        string                        0-4  ignorable
    partition_index   int32                         0+
    error_code        int16                         0+
  error_code          int16                         0+
  partition_errors    []LeaderAndIsrPartitionError  0-4
  topics              []LeaderAndIsrTopicError      5+
    topic_id          uuid                          5+
    partition_errors  []LeaderAndIsrPartitionError  5+

StopReplicaRequest request 5 versions 0-4 flexible 2+
  controller_id         int32                        0+
  is_k_raft_controller  bool                         4+
  controller_epoch      int32                        0+
  broker_epoch          int64                        1+   = -1, ignorable
  delete_partitions     bool                         0-2
  ungrouped_partitions  []StopReplicaPartitionV0     0
    topic_name          string                       0
    partition_index     int32                        0
  topics                []StopReplicaTopicV1         1-2
    name                string                       1-2
    partition_indexes   []int32                      1-2
  topic_states          []StopReplicaTopicState      3+
    topic_name          string                       3+
    partition_states    []StopReplicaPartitionState  3+
      partition_index   int32                        3+
      leader_epoch      int32                        3+   = -1
      delete_partition  bool                         3+

StopReplicaResponse response 5 versions 0-4 flexible 2+
  error_code         int16                        0+
  partition_errors   []StopReplicaPartitionError  0+
    topic_name       string                       0+
    partition_index  int32                        0+
    error_code       int16                        0+

UpdateMetadataRequest request 6 versions 0-8 flexible 6+
  struct UpdateMetadataPartitionState
    topic_name                string                          0-4  ignorable
    partition_index           int32                           0+
    controller_epoch          int32                           0+
    leader                    int32                           0+
    leader_epoch              int32                           0+
    isr                       []int32                         0+
    zk_version                int32                           0+
    replicas                  []int32                         0+
    offline_replicas          []int32                         4+   ignorable
  controller_id               int32                           0+
  is_k_raft_controller        bool                            8+
  type                        int8                            8+   tag 0
  controller_epoch            int32                           0+
  broker_epoch                int64                           5+   = -1, ignorable
  ungrouped_partition_states  []UpdateMetadataPartitionState  0-4
  topic_states                []UpdateMetadataTopicState      5+
    topic_name                string                          5+
    topic_id                  uuid                            7+   ignorable
    partition_states          []UpdateMetadataPartitionState  5+
  live_brokers                []UpdateMetadataBroker          0+
    id                        int32                           0+
    v0_host                   string                          0    ignorable
    v0_port                   int32                           0    ignorable
    endpoints                 []UpdateMetadataEndpoint        1+   ignorable
      port                    int32                           1+
      host                    string                          1+
      listener                string                          3+   ignorable
      security_protocol       int16                           1+
    rack                      string                          2+   null 0+, ignorable

UpdateMetadataResponse response 6 versions 0-8 flexible 6+
  error_code  int16  0+

ControlledShutdownRequest request 7 versions 0-3 flexible 3+
  broker_id     int32  0+
  broker_epoch  int64  2+  = -1, ignorable

ControlledShutdownResponse response 7 versions 0-3 flexible 3+
  error_code            int16                 0+
  remaining_partitions  []RemainingPartition  0+
    topic_name          string                0+
    partition_index     int32                 0+

AlterPartitionRequest request 56 versions 0-3 flexible 0+
  broker_id                  int32            0+
  broker_epoch               int64            0+   = -1
  topics                     []TopicData      0+
    topic_name               string           0-1  ignorable
    topic_id                 uuid             2+   ignorable
    partitions               []PartitionData  0+
      partition_index        int32            0+
      leader_epoch           int32            0+
      new_isr                []int32          0-2
      new_isr_with_epochs    []BrokerState    3+
        broker_id            int32            3+
        broker_epoch         int64            3+   = -1
      leader_recovery_state  int8             1+
      partition_epoch        int32            0+

AlterPartitionResponse response 56 versions 0-3 flexible 0+
  throttle_time_ms           int32            0+
  error_code                 int16            0+
  topics                     []TopicData      0+
    topic_name               string           0-1  ignorable
    topic_id                 uuid             2+   ignorable
    partitions               []PartitionData  0+
      partition_index        int32            0+
      error_code             int16            0+
      leader_id              int32            0+
      leader_epoch           int32            0+
      isr                    []int32          0+
      leader_recovery_state  int8             1+   ignorable
      partition_epoch        int32            0+

EnvelopeRequest request 58 versions 0 flexible 0+
  request_data         bytes  0+
  request_principal    bytes  0+  null 0+
  client_host_address  bytes  0+

EnvelopeResponse response 58 versions 0 flexible 0+
  response_data  bytes  0+  null 0+, = null
  error_code     int16  0+

BrokerRegistrationRequest request 62 versions 0-4 flexible 0+
  broker_id                int32       0+
  cluster_id               string      0+
  incarnation_id           uuid        0+
  listeners                []Listener  0+
    name                   string      0+
    host                   string      0+
    port                   uint16      0+
    security_protocol      int16       0+
  features                 []Feature   0+
    name                   string      0+
    min_supported_version  int16       0+
    max_supported_version  int16       0+
  rack                     string      0+  null 0+
  is_migrating_zk_broker   bool        1+
  log_dirs                 []uuid      2+  ignorable
  previous_broker_epoch    int64       3+  = -1, ignorable

BrokerRegistrationResponse response 62 versions 0-4 flexible 0+
  throttle_time_ms  int32  0+
  error_code        int16  0+
  broker_epoch      int64  0+  = -1

BrokerHeartbeatRequest request 63 versions 0-2 flexible 0+
  broker_id                int32   0+
  broker_epoch             int64   0+  = -1
  current_metadata_offset  int64   0+
  want_fence               bool    0+
  want_shut_down           bool    0+
  offline_log_dirs         []uuid  1+  tag 0
  cordoned_log_dirs        []uuid  2+  null 2+, tag 1, = null

BrokerHeartbeatResponse response 63 versions 0-2 flexible 0+
  throttle_time_ms  int32  0+
  error_code        int16  0+
  is_caught_up      bool   0+
  is_fenced         bool   0+  = true
  should_shut_down  bool   0+

AllocateProducerIdsRequest request 67 versions 0 flexible 0+
  broker_id     int32  0+
  broker_epoch  int64  0+  = -1

AllocateProducerIdsResponse response 67 versions 0 flexible 0+
  throttle_time_ms   int32  0+
  error_code         int16  0+
  producer_id_start  int64  0+
  producer_id_len    int32  0+

ControllerRegistrationRequest request 70 versions 0 flexible 0+
  controller_id            int32       0+
  incarnation_id           uuid        0+
  zk_migration_ready       bool        0+
  listeners                []Listener  0+
    name                   string      0+
    host                   string      0+
    port                   uint16      0+
    security_protocol      int16       0+
  features                 []Feature   0+
    name                   string      0+
    min_supported_version  int16       0+
    max_supported_version  int16       0+

ControllerRegistrationResponse response 70 versions 0 flexible 0+
  throttle_time_ms  int32   0+
  error_code        int16   0+
  error_message     string  0+  null 0+

AssignReplicasToDirsRequest request 73 versions 0 flexible 0+
  broker_id              int32            0+
  broker_epoch           int64            0+  = -1
  directories            []DirectoryData  0+
    id                   uuid             0+
    topics               []TopicData      0+
      topic_id           uuid             0+
      partitions         []PartitionData  0+
        partition_index  int32            0+

AssignReplicasToDirsResponse response 73 versions 0 flexible 0+
  throttle_time_ms       int32            0+
  error_code             int16            0+
  directories            []DirectoryData  0+
    id                   uuid             0+
    topics               []TopicData      0+
      topic_id           uuid             0+
      partitions         []PartitionData  0+
        partition_index  int32            0+
        error_code       int16            0+
"""
