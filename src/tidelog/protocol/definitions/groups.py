"""Consumer groups and their offsets: the classic protocol and that of KIP-848.

The notation is explained in `tidelog.protocol.schema`.
"""

from typing import Final

DEFINITIONS: Final = """
OffsetCommitRequest request 8 versions 0-10 flexible 8+
  group_id                       string                          0+
  generation_id_or_member_epoch  int32                           1+   = -1, ignorable
  member_id                      string                          1+   ignorable
  group_instance_id              string                          7+   null 7+, = null
  retention_time_ms              int64                           2-4  = -1, ignorable
  topics                         []OffsetCommitRequestTopic      0+
    name                         string                          0-9  ignorable
    topic_id                     uuid                            10+  ignorable
    partitions                   []OffsetCommitRequestPartition  0+
      partition_index            int32                           0+
      committed_offset           int64                           0+
      committed_leader_epoch     int32                           6+   = -1, ignorable
      commit_timestamp           int64                           1    = -1
      committed_metadata         string                          0+   null 0+

OffsetCommitResponse response 8 versions 0-10 flexible 8+
  throttle_time_ms     int32                            3+   ignorable
  topics               []OffsetCommitResponseTopic      0+
    name               string                           0-9  ignorable
    topic_id           uuid                             10+  ignorable
    partitions         []OffsetCommitResponsePartition  0+
      partition_index  int32                            0+
      error_code       int16                            0+

OffsetFetchRequest request 9 versions 0-10 flexible 6+
  group_id               string                      0-7
  topics                 []OffsetFetchRequestTopic   0-7  null 2-7
    name                 string                      0-7
    partition_indexes    []int32                     0-7
  groups                 []OffsetFetchRequestGroup   8+
    group_id             string                      8+
    member_id            string                      9+   null 9+, = null, ignorable
    member_epoch         int32                       9+   = -1, ignorable
    topics               []OffsetFetchRequestTopics  8+   null 8+
      name               string                      8-9  ignorable
      topic_id           uuid                        10+  ignorable
      partition_indexes  []int32                     8+
  require_stable         bool                        7+

OffsetFetchResponse response 9 versions 0-10 flexible 6+
  throttle_time_ms              int32                            3+   ignorable
  topics                        []OffsetFetchResponseTopic       0-7
    name                        string                           0-7
    partitions                  []OffsetFetchResponsePartition   0-7
      partition_index           int32                            0-7
      committed_offset          int64                            0-7
      committed_leader_epoch    int32                            5-7  = -1, ignorable
      metadata                  string                           0-7  null 0-7
      error_code                int16                            0-7
  error_code                    int16                            2-7  ignorable
  groups                        []OffsetFetchResponseGroup       8+
    group_id                    string                           8+
    topics                      []OffsetFetchResponseTopics      8+
      name                      string                           8-9  ignorable
      topic_id                  uuid                             10+  ignorable
      partitions                []OffsetFetchResponsePartitions  8+
        partition_index         int32                            8+
        committed_offset        int64                            8+
        committed_leader_epoch  int32                            8+   = -1, ignorable
        metadata                string                           8+   null 8+
        error_code              int16                            8+
    error_code                  int16                            8+

FindCoordinatorRequest request 10 versions 0-6 flexible 3+
  key               string    0-3
  key_type          int8      1+
  coordinator_keys  []string  4+

FindCoordinatorResponse response 10 versions 0-6 flexible 3+
  throttle_time_ms  int32          1+   ignorable
  error_code        int16          0-3
  error_message     string         1-3  null 1-3, ignorable
  node_id           int32          0-3
  host              string         0-3
  port              int32          0-3
  coordinators      []Coordinator  4+
    key             string         4+
    node_id         int32          4+
    host            string         4+
    port            int32          4+
    error_code      int16          4+
    error_message   string         4+   null 4+, ignorable

JoinGroupRequest request 11 versions 0-9 flexible 6+
  group_id              string                      0+
  session_timeout_ms    int32                       0+
  rebalance_timeout_ms  int32                       1+  = -1, ignorable
  member_id             string                      0+
  group_instance_id     string                      5+  null 5+, = null
  protocol_type         string                      0+
  protocols             []JoinGroupRequestProtocol  0+
    name                string                      0+
    metadata            bytes                       0+
  reason                string                      8+  null 8+, = null, ignorable

JoinGroupResponse response 11 versions 0-9 flexible 6+
  throttle_time_ms     int32                      2+  ignorable
  error_code           int16                      0+
  generation_id        int32                      0+  = -1
  protocol_type        string                     7+  null 7+, = null, ignorable
  protocol_name        string                     0+  null 7+
  leader               string                     0+
  skip_assignment      bool                       9+
  member_id            string                     0+
  members              []JoinGroupResponseMember  0+
    member_id          string                     0+
    group_instance_id  string                     5+  null 5+, = null, ignorable
    metadata           bytes                      0+

HeartbeatRequest request 12 versions 0-4 flexible 4+
  group_id           string  0+
  generation_id      int32   0+
  member_id          string  0+
  group_instance_id  string  3+  null 3+, = null

HeartbeatResponse response 12 versions 0-4 flexible 4+
  throttle_time_ms  int32  1+  ignorable
  error_code        int16  0+

LeaveGroupRequest request 13 versions 0-5 flexible 4+
  group_id             string            0+
  member_id            string            0-2
  members              []MemberIdentity  3+
    member_id          string            3+
    group_instance_id  string            3+   null 3+, = null
    reason             string            5+   null 5+, = null, ignorable

LeaveGroupResponse response 13 versions 0-5 flexible 4+
  throttle_time_ms     int32             1+  ignorable
  error_code           int16             0+
  members              []MemberResponse  3+
    member_id          string            3+
    group_instance_id  string            3+  null 3+
    error_code         int16             3+

SyncGroupRequest request 14 versions 0-5 flexible 4+
  group_id           string                        0+
  generation_id      int32                         0+
  member_id          string                        0+
  group_instance_id  string                        3+  null 3+, = null
  protocol_type      string                        5+  null 5+, = null, ignorable
  protocol_name      string                        5+  null 5+, = null, ignorable
  assignments        []SyncGroupRequestAssignment  0+
    member_id        string                        0+
    assignment       bytes                         0+

SyncGroupResponse response 14 versions 0-5 flexible 4+
  throttle_time_ms  int32   1+  ignorable
  error_code        int16   0+
  protocol_type     string  5+  null 5+, = null, ignorable
  protocol_name     string  5+  null 5+, = null, ignorable
  assignment        bytes   0+

DescribeGroupsRequest request 15 versions 0-6 flexible 5+
  groups                         []string  0+
  include_authorized_operations  bool      3+

DescribeGroupsResponse response 15 versions 0-6 flexible 5+
  throttle_time_ms         int32                   1+  ignorable
  groups                   []DescribedGroup        0+
    error_code             int16                   0+
    error_message          string                  6+  null 6+, = null
    group_id               string                  0+
    group_state            string                  0+
    protocol_type          string                  0+
    protocol_data          string                  0+
    members                []DescribedGroupMember  0+
      member_id            string                  0+
      group_instance_id    string                  4+  null 4+, = null, ignorable
      client_id            string                  0+
      client_host          string                  0+
      member_metadata      bytes                   0+
      member_assignment    bytes                   0+
    authorized_operations  int32                   3+  = -2147483648

ListGroupsRequest request 16 versions 0-5 flexible 3+
  states_filter  []string  4+
  types_filter   []string  5+

ListGroupsResponse response 16 versions 0-5 flexible 3+
  throttle_time_ms  int32          1+  ignorable
  error_code        int16          0+
  groups            []ListedGroup  0+
    group_id        string         0+
    protocol_type   string         0+
    group_state     string         4+  ignorable
    group_type      string         5+  ignorable

DeleteGroupsRequest request 42 versions 0-2 flexible 2+
  groups_names  []string  0+

DeleteGroupsResponse response 42 versions 0-2 flexible 2+
  throttle_time_ms  int32                   0+
  results           []DeletableGroupResult  0+
    group_id        string                  0+
    error_code      int16                   0+

OffsetDeleteRequest request 47 versions 0
  group_id             string                          0+
  topics               []OffsetDeleteRequestTopic      0+
    name               string                          0+
    partitions         []OffsetDeleteRequestPartition  0+
      partition_index  int32                           0+

OffsetDeleteResponse response 47 versions 0
  error_code           int16                            0+
  throttle_time_ms     int32                            0+  ignorable
  topics               []OffsetDeleteResponseTopic      0+
    name               string                           0+
    partitions         []OffsetDeleteResponsePartition  0+
      partition_index  int32                            0+
      error_code       int16                            0+

ConsumerGroupHeartbeatRequest request 68 versions 0-1 flexible 0+
  group_id                string             0+
  member_id               string             0+
  member_epoch            int32              0+
  instance_id             string             0+  null 0+, = null
  rack_id                 string             0+  null 0+, = null
  rebalance_timeout_ms    int32              0+  = -1
  subscribed_topic_names  []string           0+  null 0+, = null
  subscribed_topic_regex  string             1+  null 1+, = null
  server_assignor         string             0+  null 0+, = null
  topic_partitions        []TopicPartitions  0+  null 0+, = null
    topic_id              uuid               0+
    partitions            []int32            0+

ConsumerGroupHeartbeatResponse response 68 versions 0-1 flexible 0+
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

ConsumerGroupDescribeRequest request 69 versions 0-1 flexible 0+
  group_ids                      []string  0+
  include_authorized_operations  bool      0+

ConsumerGroupDescribeResponse response 69 versions 0-1 flexible 0+
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
      instance_id             string             0+  null 0+, = null
      rack_id                 string             0+  null 0+, = null
      member_epoch            int32              0+
      client_id               string             0+
      client_host             string             0+
      subscribed_topic_names  []string           0+
      subscribed_topic_regex  string             0+  null 0+, = null
      assignment              Assignment         0+
      target_assignment       Assignment         0+
      member_type             int8               1+  = -1, ignorable
    authorized_operations     int32              0+  = -2147483648
"""
