"""Keys and values that share groups and streams groups keep in __consumer_offsets and __share_group_state.

The notation is explained in `tidelog.protocol.schema`.
"""

from typing import Final

DEFINITIONS: Final = """
ShareSnapshotKey coordinator-key 0 versions 0
  group_id   string  0+
  topic_id   uuid    0+
  partition  int32   0+

ShareSnapshotValue coordinator-value 0 versions 0 flexible 0+
  snapshot_epoch           int32         0+
  state_epoch              int32         0+
  leader_epoch             int32         0+
  start_offset             int64         0+
  delivery_complete_count  int32         0+  tag 0, = -1
  create_timestamp         int64         0+
  write_timestamp          int64         0+
  state_batches            []StateBatch  0+
    first_offset           int64         0+
    last_offset            int64         0+
    delivery_state         int8          0+
    delivery_count         int16         0+

ShareUpdateKey coordinator-key 1 versions 0
  group_id   string  0+
  topic_id   uuid    0+
  partition  int32   0+

ShareUpdateValue coordinator-value 1 versions 0 flexible 0+
  snapshot_epoch           int32         0+
  leader_epoch             int32         0+
  start_offset             int64         0+
  delivery_complete_count  int32         0+  tag 0, = -1
  state_batches            []StateBatch  0+
    first_offset           int64         0+
    last_offset            int64         0+
    delivery_state         int8          0+
    delivery_count         int16         0+

ShareGroupMemberMetadataKey coordinator-key 10 versions 0
  group_id   string  0+
  member_id  string  0+

ShareGroupMemberMetadataValue coordinator-value 10 versions 0 flexible 0+
  rack_id                 string    0+  null 0+
  client_id               string    0+
  client_host             string    0+
  subscribed_topic_names  []string  0+

ShareGroupMetadataKey coordinator-key 11 versions 0
  group_id  string  0+

ShareGroupMetadataValue coordinator-value 11 versions 0 flexible 0+
  epoch          int32  0+
  metadata_hash  int64  0+

ShareGroupTargetAssignmentMetadataKey coordinator-key 12 versions 0
  group_id  string  0+

ShareGroupTargetAssignmentMetadataValue coordinator-value 12 versions 0 flexible 0+
  assignment_epoch      int32  0+
  assignment_timestamp  int64  0+  tag 0, ignorable

ShareGroupTargetAssignmentMemberKey coordinator-key 13 versions 0
  group_id   string  0+
  member_id  string  0+

ShareGroupTargetAssignmentMemberValue coordinator-value 13 versions 0 flexible 0+
  topic_partitions  []TopicPartition  0+
    topic_id        uuid              0+
    partitions      []int32           0+

ShareGroupCurrentMemberAssignmentKey coordinator-key 14 versions 0
  group_id   string  0+
  member_id  string  0+

ShareGroupCurrentMemberAssignmentValue coordinator-value 14 versions 0 flexible 0+
  struct TopicPartitions
    topic_id             uuid               0+
    partitions           []int32            0+
  member_epoch           int32              0+
  previous_member_epoch  int32              0+
  state                  int8               0+
  assigned_partitions    []TopicPartitions  0+

ShareGroupStatePartitionMetadataKey coordinator-key 15 versions 0
  group_id  string  0+

ShareGroupStatePartitionMetadataValue coordinator-value 15 versions 0 flexible 0+
  struct TopicPartitionsInfo
    topic_id           uuid                   0+
    topic_name         string                 0+
    partitions         []int32                0+
  struct TopicInfo
    topic_id           uuid                   0+
    topic_name         string                 0+
  initializing_topics  []TopicPartitionsInfo  0+
  initialized_topics   []TopicPartitionsInfo  0+
  deleting_topics      []TopicInfo            0+

ShareGroupPartitionMetadataKey old versions 9
  group_id  string  9+

ShareGroupPartitionMetadataValue old versions 0 flexible 0+
  struct TopicPartitionsInfo
    topic_id          uuid                   0+
    topic_name        string                 0+
    partitions        []int32                0+
  struct TopicInfo
    topic_id          uuid                   0+
    topic_name        string                 0+
  initialized_topics  []TopicPartitionsInfo  0+
  deleting_topics     []TopicInfo            0+

StreamsGroupMetadataKey coordinator-key 17 versions 0
  group_id  string  0+

StreamsGroupMetadataValue coordinator-value 17 versions 0 flexible 0+
  struct LastAssignmentConfig
    key                     string                  0+
    value                   string                  0+
  epoch                     int32                   0+
  metadata_hash             int64                   0+
  validated_topology_epoch  int32                   0+  tag 0, = -1
  last_assignment_configs   []LastAssignmentConfig  0+  null 0+, tag 1

StreamsGroupMemberMetadataKey coordinator-key 19 versions 0
  group_id   string  0+
  member_id  string  0+

StreamsGroupMemberMetadataValue coordinator-value 19 versions 0 flexible 0+
  struct Endpoint
    host                string      0+
    port                uint16      0+
  struct KeyValue
    key                 string      0+
    value               string      0+
  instance_id           string      0+  null 0+
  rack_id               string      0+  null 0+
  client_id             string      0+
  client_host           string      0+
  rebalance_timeout_ms  int32       0+  = -1
  topology_epoch        int32       0+
  process_id            string      0+
  user_endpoint         Endpoint    0+  null 0+, = null
  client_tags           []KeyValue  0+

StreamsGroupTargetAssignmentMetadataKey coordinator-key 20 versions 0
  group_id  string  0+

StreamsGroupTargetAssignmentMetadataValue coordinator-value 20 versions 0 flexible 0+
  assignment_epoch      int32  0+
  assignment_timestamp  int64  0+  tag 0, ignorable

StreamsGroupTargetAssignmentMemberKey coordinator-key 21 versions 0
  group_id   string  0+
  member_id  string  0+

StreamsGroupTargetAssignmentMemberValue coordinator-value 21 versions 0 flexible 0+
  struct TaskIds
    subtopology_id  string     0+
    partitions      []int32    0+
  active_tasks      []TaskIds  0+
  standby_tasks     []TaskIds  0+
  warmup_tasks      []TaskIds  0+

StreamsGroupCurrentMemberAssignmentKey coordinator-key 22 versions 0
  group_id   string  0+
  member_id  string  0+

StreamsGroupCurrentMemberAssignmentValue coordinator-value 22 versions 0 flexible 0+
  struct TaskIds
    subtopology_id                  string     0+
    partitions                      []int32    0+
    assignment_epochs               []int32    0+  null 0+, tag 0
  member_epoch                      int32      0+
  previous_member_epoch             int32      0+
  state                             int8       0+
  active_tasks                      []TaskIds  0+
  standby_tasks                     []TaskIds  0+
  warmup_tasks                      []TaskIds  0+
  active_tasks_pending_revocation   []TaskIds  0+
  standby_tasks_pending_revocation  []TaskIds  0+
  warmup_tasks_pending_revocation   []TaskIds  0+

StreamsGroupTopologyKey coordinator-key 23 versions 0
  group_id  string  0+

StreamsGroupTopologyValue coordinator-value 23 versions 0 flexible 0+
  struct TopicConfig
    key                          string              0+
    value                        string              0+
  struct TopicInfo
    name                         string              0+
    partitions                   int32               0+
    replication_factor           int16               0+
    topic_configs                []TopicConfig       0+
  epoch                          int32               0+
  subtopologies                  []Subtopology       0+
    subtopology_id               string              0+
    source_topics                []string            0+
    source_topic_regex           []string            0+
    state_changelog_topics       []TopicInfo         0+
    repartition_sink_topics      []string            0+
    repartition_source_topics    []TopicInfo         0+
    copartition_groups           []CopartitionGroup  0+
      source_topics              []int16             0+
      source_topic_regex         []int16             0+
      repartition_source_topics  []int16             0+
"""
