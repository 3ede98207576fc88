"""Idempotent and transactional producers.

The notation is explained in `tidelog.protocol.schema`.
"""

from typing import Final

DEFINITIONS: Final = """
InitProducerIdRequest request 22 versions 0-6 flexible 2+
  transactional_id        string  0+  null 0+
  transaction_timeout_ms  int32   0+
  producer_id             int64   3+  = -1
  producer_epoch          int16   3+  = -1
  enable2_pc              bool    6+
  keep_prepared_txn       bool    6+

InitProducerIdResponse response 22 versions 0-6 flexible 2+
  throttle_time_ms            int32  0+  ignorable
  error_code                  int16  0+
  producer_id                 int64  0+  = -1
  producer_epoch              int16  0+
  ongoing_txn_producer_id     int64  6+  = -1
  ongoing_txn_producer_epoch  int16  6+  = -1

AddPartitionsToTxnRequest request 24 versions 0-5 flexible 3+
  struct AddPartitionsToTxnTopic
    name                         string                           0+
    partitions                   []int32                          0+
  transactions                   []AddPartitionsToTxnTransaction  4+
    transactional_id             string                           4+
    producer_id                  int64                            4+
    producer_epoch               int16                            4+
    verify_only                  bool                             4+
    topics                       []AddPartitionsToTxnTopic        4+
  v3_and_below_transactional_id  string                           0-3
  v3_and_below_producer_id       int64                            0-3
  v3_and_below_producer_epoch    int16                            0-3
  v3_and_below_topics            []AddPartitionsToTxnTopic        0-3

AddPartitionsToTxnResponse response 24 versions 0-5 flexible 3+
  struct AddPartitionsToTxnPartitionResult
    partition_index              int32                                0+
    partition_error_code         int16                                0+
  struct AddPartitionsToTxnTopicResult
    name                         string                               0+
    results_by_partition         []AddPartitionsToTxnPartitionResult  0+
  throttle_time_ms               int32                                0+
  error_code                     int16                                4+   ignorable
  results_by_transaction         []AddPartitionsToTxnResult           4+
    transactional_id             string                               4+
    topic_results                []AddPartitionsToTxnTopicResult      4+
  results_by_topic_v3_and_below  []AddPartitionsToTxnTopicResult      0-3

AddOffsetsToTxnRequest request 25 versions 0-4 flexible 3+
  transactional_id  string  0+
  producer_id       int64   0+
  producer_epoch    int16   0+
  group_id          string  0+

AddOffsetsToTxnResponse response 25 versions 0-4 flexible 3+
  throttle_time_ms  int32  0+
  error_code        int16  0+

EndTxnRequest request 26 versions 0-5 flexible 3+
  transactional_id  string  0+
  producer_id       int64   0+
  producer_epoch    int16   0+
  committed         bool    0+

EndTxnResponse response 26 versions 0-5 flexible 3+
  throttle_time_ms  int32  0+
  error_code        int16  0+
  producer_id       int64  5+  = -1, ignorable
  producer_epoch    int16  5+  = -1, ignorable

WriteTxnMarkersRequest request 27 versions 0-2 flexible 1+
  markers                []WritableTxnMarker       0+
    producer_id          int64                     0+
    producer_epoch       int16                     0+
    transaction_result   bool                      0+
    topics               []WritableTxnMarkerTopic  0+
      name               string                    0+
      partition_indexes  []int32                   0+
    coordinator_epoch    int32                     0+
    transaction_version  int8                      2+  ignorable

WriteTxnMarkersResponse response 27 versions 0-2 flexible 1+
  markers                []WritableTxnMarkerResult           0+
    producer_id          int64                               0+
    topics               []WritableTxnMarkerTopicResult      0+
      name               string                              0+
      partitions         []WritableTxnMarkerPartitionResult  0+
        partition_index  int32                               0+
        error_code       int16                               0+

TxnOffsetCommitRequest request 28 versions 0-5 flexible 3+
  transactional_id            string                             0+
  group_id                    string                             0+
  producer_id                 int64                              0+
  producer_epoch              int16                              0+
  generation_id               int32                              3+  = -1
  member_id                   string                             3+
  group_instance_id           string                             3+  null 3+, = null
  topics                      []TxnOffsetCommitRequestTopic      0+
    name                      string                             0+
    partitions                []TxnOffsetCommitRequestPartition  0+
      partition_index         int32                              0+
      committed_offset        int64                              0+
      committed_leader_epoch  int32                              2+  = -1, ignorable
      committed_metadata      string                             0+  null 0+

TxnOffsetCommitResponse response 28 versions 0-5 flexible 3+
  throttle_time_ms     int32                               0+
  topics               []TxnOffsetCommitResponseTopic      0+
    name               string                              0+
    partitions         []TxnOffsetCommitResponsePartition  0+
      partition_index  int32                               0+
      error_code       int16                               0+

DescribeProducersRequest request 61 versions 0 flexible 0+
  topics               []TopicRequest  0+
    name               string          0+
    partition_indexes  []int32         0+

DescribeProducersResponse response 61 versions 0 flexible 0+
  throttle_time_ms                int32                0+
  topics                          []TopicResponse      0+
    name                          string               0+
    partitions                    []PartitionResponse  0+
      partition_index             int32                0+
      error_code                  int16                0+
      error_message               string               0+  null 0+, = null
      active_producers            []ProducerState      0+
        producer_id               int64                0+
        producer_epoch            int32                0+
        last_sequence             int32                0+  = -1
        last_timestamp            int64                0+  = -1
        coordinator_epoch         int32                0+
        current_txn_start_offset  int64                0+  = -1

DescribeTransactionsRequest request 65 versions 0 flexible 0+
  transactional_ids  []string  0+

DescribeTransactionsResponse response 65 versions 0 flexible 0+
  throttle_time_ms             int32               0+
  transaction_states           []TransactionState  0+
    error_code                 int16               0+
    transactional_id           string              0+
    transaction_state          string              0+
    transaction_timeout_ms     int32               0+
    transaction_start_time_ms  int64               0+
    producer_id                int64               0+
    producer_epoch             int16               0+
    topics                     []TopicData         0+
      topic                    string              0+
      partitions               []int32             0+

ListTransactionsRequest request 66 versions 0-2 flexible 0+
  state_filters             []string  0+
  producer_id_filters       []int64   0+
  duration_filter           int64     1+  = -1
  transactional_id_pattern  string    2+  null 2+, = null

ListTransactionsResponse response 66 versions 0-2 flexible 0+
  throttle_time_ms       int32               0+
  error_code             int16               0+
  unknown_state_filters  []string            0+
  transaction_states     []TransactionState  0+
    transactional_id     string              0+
    producer_id          int64               0+
    transaction_state    string              0+
"""
