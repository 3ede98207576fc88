"""Keys and values of __consumer_offsets and __transaction_state.

The notation is explained in `tidelog.protocol.schema`.
"""

from typing import Final

DEFINITIONS: Final = """
LegacyOffsetCommitKey coordinator-key 0 versions 0
  group      string  0+
  topic      string  0+
  partition  int32   0+

LegacyOffsetCommitValue coordinator-value 0 versions 0
  offset            int64   0+
  metadata          string  0+
  commit_timestamp  int64   0+

OffsetCommitKey coordinator-key 1 versions 0
  group      string  0+
  topic      string  0+
  partition  int32   0+

OffsetCommitValue coordinator-value 1 versions 0-4 flexible 4+
  offset            int64   0+
  leader_epoch      int32   3+  = -1, ignorable
  metadata          string  0+
  commit_timestamp  int64   0+
  expire_timestamp  int64   1   = -1, ignorable
  topic_id          uuid    4+  tag 0, ignorable

GroupMetadataKey coordinator-key 2 versions 0
  group  string  0+

GroupMetadataValue coordinator-value 2 versions 0-4 flexible 4+
  struct MemberMetadata
    member_id              string            0+
    group_instance_id      string            3+  null 3+, = null, ignorable
    client_id              string            0+
    client_host            string            0+
    rebalance_timeout      int32             1+  = -1, ignorable
    session_timeout        int32             0+
    subscription           bytes             0+
    assignment             bytes             0+
  protocol_type            string            0+
  generation               int32             0+
  protocol                 string            0+  null 0+
  leader                   string            0+  null 0+
  current_state_timestamp  int64             2+  = -1, ignorable
  members                  []MemberMetadata  0+

ConsumerGroupMetadataKey coordinator-key 3 versions 0
  group_id  string  0+

ConsumerGroupMetadataValue coordinator-value 3 versions 0 flexible 0+
  epoch          int32  0+
  metadata_hash  int64  0+  tag 0

ConsumerGroupPartitionMetadataKey coordinator-key 4 versions 0
  group_id  string  0+

ConsumerGroupPartitionMetadataValue coordinator-value 4 versions 0 flexible 0+
  topics                []TopicMetadata      0+
    topic_id            uuid                 0+
    topic_name          string               0+
    num_partitions      int32                0+
    partition_metadata  []PartitionMetadata  0+
      partition         int32                0+
      racks             []string             0+

ConsumerGroupMemberMetadataKey coordinator-key 5 versions 0
  group_id   string  0+
  member_id  string  0+

ConsumerGroupMemberMetadataValue coordinator-value 5 versions 0 flexible 0+
  instance_id              string                 0+  null 0+
  rack_id                  string                 0+  null 0+
  client_id                string                 0+
  client_host              string                 0+
  subscribed_topic_names   []string               0+
  subscribed_topic_regex   string                 0+  null 0+
  rebalance_timeout_ms     int32                  0+  = -1
  server_assignor          string                 0+  null 0+
  classic_member_metadata  ClassicMemberMetadata  0+  null 0+, tag 0
    session_timeout_ms     int32                  0+
    supported_protocols    []ClassicProtocol      0+
      name                 string                 0+
      metadata             bytes                  0+

ConsumerGroupTargetAssignmentMetadataKey coordinator-key 6 versions 0
  group_id  string  0+

ConsumerGroupTargetAssignmentMetadataValue coordinator-value 6 versions 0 flexible 0+
  assignment_epoch      int32  0+
  assignment_timestamp  int64  0+  tag 0, ignorable

ConsumerGroupTargetAssignmentMemberKey coordinator-key 7 versions 0
  group_id   string  0+
  member_id  string  0+

ConsumerGroupTargetAssignmentMemberValue coordinator-value 7 versions 0 flexible 0+
  topic_partitions  []TopicPartition  0+
    topic_id        uuid              0+
    partitions      []int32           0+

ConsumerGroupCurrentMemberAssignmentKey coordinator-key 8 versions 0
  group_id   string  0+
  member_id  string  0+

ConsumerGroupCurrentMemberAssignmentValue coordinator-value 8 versions 0 flexible 0+
  struct TopicPartitions
    topic_id                     uuid               0+
    partitions                   []int32            0+
    assignment_epochs            []int32            0+  null 0+, tag 0
  member_epoch                   int32              0+
  previous_member_epoch          int32              0+
  state                          int8               0+
  assigned_partitions            []TopicPartitions  0+
  partitions_pending_revocation  []TopicPartitions  0+

ConsumerGroupRegularExpressionKey coordinator-key 16 versions 0
  group_id            string  0+
  regular_expression  string  0+

ConsumerGroupRegularExpressionValue coordinator-value 16 versions 0 flexible 0+
  topics     []string  0+
  version    int64     0+
  timestamp  int64     0+

TransactionLogKey coordinator-key 0 versions 0
  transactional_id  string  0+

TransactionLogValue coordinator-value 0 versions 0-1 flexible 1+
  producer_id                           int64               0+
  previous_producer_id                  int64               1+  tag 0, = -1
  next_producer_id                      int64               1+  tag 1, = -1
  producer_epoch                        int16               0+
  next_producer_epoch                   int16               1+  tag 3, = -1
  transaction_timeout_ms                int32               0+
  transaction_status                    int8                0+
  transaction_partitions                []PartitionsSchema  0+  null 0+
    topic                               string              0+
    partition_ids                       []int32             0+
  transaction_last_update_timestamp_ms  int64               0+
  transaction_start_timestamp_ms        int64               0+
  client_transaction_version            int16               1+  tag 2
"""
