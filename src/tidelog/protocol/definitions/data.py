"""Messages inside records and fields: the consumer protocol, control records, principals.

The notation is explained in `tidelog.protocol.schema`.
"""

from typing import Final

DEFINITIONS: Final = """
ConsumerProtocolAssignment data versions 0-3
  assigned_partitions  []TopicPartition  0+
    topic              string            0+
    partitions         []int32           0+
  user_data            bytes             0+  null 0+, = null

ConsumerProtocolSubscription data versions 0-3
  topics            []string          0+
  user_data         bytes             0+  null 0+, = null
  owned_partitions  []TopicPartition  1+  ignorable
    topic           string            1+
    partitions      []int32           1+
  generation_id     int32             2+  = -1, ignorable
  rack_id           string            3+  null 3+, = null, ignorable

ControlRecordTypeSchema data versions 0
  type  int16  0+

DefaultPrincipalData data versions 0 flexible 0+
  type                 string  0+
  name                 string  0+
  token_authenticated  bool    0+

EndTxnMarker data versions 0
  coordinator_epoch  int32  0+

KRaftVersionRecord data versions 0 flexible 0+
  version         int16  0+
  k_raft_version  int16  0+

LeaderChangeMessage data versions 0-1 flexible 0+
  struct Voter
    voter_id            int32    0+
    voter_directory_id  uuid     1+
  version               int16    0+
  leader_id             int32    0+
  voters                []Voter  0+
  granting_voters       []Voter  0+

QuorumStateData data versions 0-1 flexible 0+
  cluster_id          string   0
  leader_id           int32    0+  = -1
  leader_epoch        int32    0+  = -1
  voted_id            int32    0+  = -1
  voted_directory_id  uuid     1+
  applied_offset      int64    0
  current_voters      []Voter  0   null 0
    voter_id          int32    0

SnapshotFooterRecord data versions 0 flexible 0+
  version  int16  0+

SnapshotHeaderRecord data versions 0 flexible 0+
  version                       int16  0+
  last_contained_log_timestamp  int64  0+

StickyAssignorUserData data versions 0-1
  topic_partitions  []TopicPartition  0+
    topic           string            0+
    partitions      []int32           0+
  generation        int32             1+  = -1

VotersRecord data versions 0 flexible 0+
  version                    int16                0+
  voters                     []Voter              0+
    voter_id                 int32                0+
    voter_directory_id       uuid                 0+
    endpoints                []Endpoint           0+
      name                   string               0+
      host                   string               0+
      port                   uint16               0+
    k_raft_version_feature   KRaftVersionFeature  0+
      min_supported_version  int16                0+
      max_supported_version  int16                0+
"""
