"""The Raft quorum of KRaft controllers.

The notation is explained in `tidelog.protocol.schema`.
"""

from typing import Final

DEFINITIONS: Final = """
VoteRequest request 52 versions 0-2 flexible 0+
  cluster_id                string           0+  null 0+, = null
  voter_id                  int32            1+  = -1, ignorable
  topics                    []TopicData      0+
    topic_name              string           0+
    partitions              []PartitionData  0+
      partition_index       int32            0+
      replica_epoch         int32            0+
      replica_id            int32            0+
      replica_directory_id  uuid             1+  ignorable
      voter_directory_id    uuid             1+  ignorable
      last_offset_epoch     int32            0+
      last_offset           int64            0+
      pre_vote              bool             2+

VoteResponse response 52 versions 0-2 flexible 0+
  error_code           int16            0+
  topics               []TopicData      0+
    topic_name         string           0+
    partitions         []PartitionData  0+
      partition_index  int32            0+
      error_code       int16            0+
      leader_id        int32            0+
      leader_epoch     int32            0+
      vote_granted     bool             0+
  node_endpoints       []NodeEndpoint   1+  tag 0
    node_id            int32            1+
    host               string           1+
    port               uint16           1+

BeginQuorumEpochRequest request 53 versions 0-1 flexible 1+
  cluster_id              string            0+  null 0+, = null
  voter_id                int32             1+  = -1, ignorable
  topics                  []TopicData       0+
    topic_name            string            0+
    partitions            []PartitionData   0+
      partition_index     int32             0+
      voter_directory_id  uuid              1+  ignorable
      leader_id           int32             0+
      leader_epoch        int32             0+
  leader_endpoints        []LeaderEndpoint  1+  ignorable
    name                  string            1+
    host                  string            1+
    port                  uint16            1+

BeginQuorumEpochResponse response 53 versions 0-1 flexible 1+
  error_code           int16            0+
  topics               []TopicData      0+
    topic_name         string           0+
    partitions         []PartitionData  0+
      partition_index  int32            0+
      error_code       int16            0+
      leader_id        int32            0+
      leader_epoch     int32            0+
  node_endpoints       []NodeEndpoint   1+  tag 0
    node_id            int32            1+
    host               string           1+
    port               uint16           1+

EndQuorumEpochRequest request 54 versions 0-1 flexible 1+
  cluster_id                    string            0+  null 0+, = null
  topics                        []TopicData       0+
    topic_name                  string            0+
    partitions                  []PartitionData   0+
      partition_index           int32             0+
      leader_id                 int32             0+
      leader_epoch              int32             0+
      preferred_successors      []int32           0   ignorable
      preferred_candidates      []ReplicaInfo     1+  ignorable
        candidate_id            int32             1+
        candidate_directory_id  uuid              1+
  leader_endpoints              []LeaderEndpoint  1+  ignorable
    name                        string            1+
    host                        string            1+
    port                        uint16            1+

EndQuorumEpochResponse response 54 versions 0-1 flexible 1+
  error_code           int16            0+
  topics               []TopicData      0+
    topic_name         string           0+
    partitions         []PartitionData  0+
      partition_index  int32            0+
      error_code       int16            0+
      leader_id        int32            0+
      leader_epoch     int32            0+
  node_endpoints       []NodeEndpoint   1+  tag 0
    node_id            int32            1+
    host               string           1+
    port               uint16           1+

DescribeQuorumRequest request 55 versions 0-2 flexible 0+
  topics               []TopicData      0+
    topic_name         string           0+
    partitions         []PartitionData  0+
      partition_index  int32            0+

DescribeQuorumResponse response 55 versions 0-2 flexible 0+
  struct ReplicaState
    replica_id                int32            0+
    replica_directory_id      uuid             2+
    log_end_offset            int64            0+
    last_fetch_timestamp      int64            1+  = -1, ignorable
    last_caught_up_timestamp  int64            1+  = -1, ignorable
  error_code                  int16            0+
  error_message               string           2+  null 2+, ignorable
  topics                      []TopicData      0+
    topic_name                string           0+
    partitions                []PartitionData  0+
      partition_index         int32            0+
      error_code              int16            0+
      error_message           string           2+  null 2+, ignorable
      leader_id               int32            0+
      leader_epoch            int32            0+
      high_watermark          int64            0+
      current_voters          []ReplicaState   0+
      observers               []ReplicaState   0+
  nodes                       []Node           2+
    node_id                   int32            2+
    listeners                 []Listener       2+
      name                    string           2+
      host                    string           2+
      port                    uint16           2+

FetchSnapshotRequest request 59 versions 0-1 flexible 0+
  cluster_id                string               0+  null 0+, tag 0, = null
  replica_id                int32                0+  = -1
  max_bytes                 int32                0+  = 2147483647
  topics                    []TopicSnapshot      0+
    name                    string               0+
    partitions              []PartitionSnapshot  0+
      partition             int32                0+
      current_leader_epoch  int32                0+
      snapshot_id           SnapshotId           0+
        end_offset          int64                0+
        epoch               int32                0+
      position              int64                0+
      replica_directory_id  uuid                 1+  tag 0, ignorable

FetchSnapshotResponse response 59 versions 0-1 flexible 0+
  throttle_time_ms       int32                0+  ignorable
  error_code             int16                0+
  topics                 []TopicSnapshot      0+
    name                 string               0+
    partitions           []PartitionSnapshot  0+
      index              int32                0+
      error_code         int16                0+
      snapshot_id        SnapshotId           0+
        end_offset       int64                0+
        epoch            int32                0+
      current_leader     LeaderIdAndEpoch     0+  tag 0
        leader_id        int32                0+
        leader_epoch     int32                0+
      size               int64                0+
      position           int64                0+
      unaligned_records  records              0+
  node_endpoints         []NodeEndpoint       1+  tag 0
    node_id              int32                1+
    host                 string               1+
    port                 uint16               1+

AddRaftVoterRequest request 80 versions 0-1 flexible 0+
  cluster_id          string      0+  null 0+
  timeout_ms          int32       0+
  voter_id            int32       0+
  voter_directory_id  uuid        0+
  listeners           []Listener  0+
    name              string      0+
    host              string      0+
    port              uint16      0+
  ack_when_committed  bool        1+  = true

AddRaftVoterResponse response 80 versions 0-1 flexible 0+
  throttle_time_ms  int32   0+
  error_code        int16   0+
  error_message     string  0+  null 0+, ignorable

RemoveRaftVoterRequest request 81 versions 0 flexible 0+
  cluster_id          string  0+  null 0+
  voter_id            int32   0+
  voter_directory_id  uuid    0+

RemoveRaftVoterResponse response 81 versions 0 flexible 0+
  throttle_time_ms  int32   0+
  error_code        int16   0+
  error_message     string  0+  null 0+, ignorable

UpdateRaftVoterRequest request 82 versions 0 flexible 0+
  cluster_id               string               0+  null 0+
  current_leader_epoch     int32                0+
  voter_id                 int32                0+
  voter_directory_id       uuid                 0+
  listeners                []Listener           0+
    name                   string               0+
    host                   string               0+
    port                   uint16               0+
  k_raft_version_feature   KRaftVersionFeature  0+
    min_supported_version  int16                0+
    max_supported_version  int16                0+

UpdateRaftVoterResponse response 82 versions 0 flexible 0+
  throttle_time_ms  int32          0+
  error_code        int16          0+
  current_leader    CurrentLeader  0+  tag 0
    leader_id       int32          0+  = -1
    leader_epoch    int32          0+  = -1
    host            string         0+
    port            int32          0+
"""
