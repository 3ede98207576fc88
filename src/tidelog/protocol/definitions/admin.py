"""Settings, quotas, features, telemetry and the other administration calls.

The notation is explained in `tidelog.protocol.schema`.
"""

from typing import Final

DEFINITIONS: Final = """
DescribeConfigsRequest request 32 versions 0-4 flexible 4+
  resources              []DescribeConfigsResource  0+
    resource_type        int8                       0+
    resource_name        string                     0+
    configuration_keys   []string                   0+  null 0+
  include_synonyms       bool                       1+
  include_documentation  bool                       3+

DescribeConfigsResponse response 32 versions 0-4 flexible 4+
  throttle_time_ms   int32                            0+
  results            []DescribeConfigsResult          0+
    error_code       int16                            0+
    error_message    string                           0+  null 0+
    resource_type    int8                             0+
    resource_name    string                           0+
    configs          []DescribeConfigsResourceResult  0+
      name           string                           0+
      value          string                           0+  null 0+
      read_only      bool                             0+
      is_default     bool                             0
      config_source  int8                             1+  = -1, ignorable
      is_sensitive   bool                             0+
      synonyms       []DescribeConfigsSynonym         1+  ignorable
        name         string                           1+
        value        string                           1+  null 0+
        source       int8                             1+
      config_type    int8                             3+  ignorable
      documentation  string                           3+  null 0+, ignorable

AlterConfigsRequest request 33 versions 0-2 flexible 2+
  resources        []AlterConfigsResource  0+
    resource_type  int8                    0+
    resource_name  string                  0+
    configs        []AlterableConfig       0+
      name         string                  0+
      value        string                  0+  null 0+
  validate_only    bool                    0+

AlterConfigsResponse response 33 versions 0-2 flexible 2+
  throttle_time_ms  int32                           0+
  responses         []AlterConfigsResourceResponse  0+
    error_code      int16                           0+
    error_message   string                          0+  null 0+
    resource_type   int8                            0+
    resource_name   string                          0+

IncrementalAlterConfigsRequest request 44 versions 0-1 flexible 1+
  resources             []AlterConfigsResource  0+
    resource_type       int8                    0+
    resource_name       string                  0+
    configs             []AlterableConfig       0+
      name              string                  0+
      config_operation  int8                    0+
      value             string                  0+  null 0+
  validate_only         bool                    0+

IncrementalAlterConfigsResponse response 44 versions 0-1 flexible 1+
  throttle_time_ms  int32                           0+
  responses         []AlterConfigsResourceResponse  0+
    error_code      int16                           0+
    error_message   string                          0+  null 0+
    resource_type   int8                            0+
    resource_name   string                          0+

DescribeClientQuotasRequest request 48 versions 0-1 flexible 1+
  components     []ComponentData  0+
    entity_type  string           0+
    match_type   int8             0+
    match        string           0+  null 0+
  strict         bool             0+

DescribeClientQuotasResponse response 48 versions 0-1 flexible 1+
  throttle_time_ms  int32         0+
  error_code        int16         0+
  error_message     string        0+  null 0+
  entries           []EntryData   0+  null 0+
    entity          []EntityData  0+
      entity_type   string        0+
      entity_name   string        0+  null 0+
    values          []ValueData   0+
      key           string        0+
      value         float64       0+

AlterClientQuotasRequest request 49 versions 0-1 flexible 1+
  entries          []EntryData   0+
    entity         []EntityData  0+
      entity_type  string        0+
      entity_name  string        0+  null 0+
    ops            []OpData      0+
      key          string        0+
      value        float64       0+
      remove       bool          0+
  validate_only    bool          0+

AlterClientQuotasResponse response 49 versions 0-1 flexible 1+
  throttle_time_ms  int32         0+
  entries           []EntryData   0+
    error_code      int16         0+
    error_message   string        0+  null 0+
    entity          []EntityData  0+
      entity_type   string        0+
      entity_name   string        0+  null 0+

UpdateFeaturesRequest request 57 versions 0-2 flexible 0+
  timeout_ms           int32               0+  = 60000
  feature_updates      []FeatureUpdateKey  0+
    feature            string              0+
    max_version_level  int16               0+
    allow_downgrade    bool                0
    upgrade_type       int8                1+  = 1
  validate_only        bool                1+

UpdateFeaturesResponse response 57 versions 0-2 flexible 0+
  throttle_time_ms  int32                     0+
  error_code        int16                     0+
  error_message     string                    0+   null 0+
  results           []UpdatableFeatureResult  0-1  ignorable
    feature         string                    0+
    error_code      int16                     0+
    error_message   string                    0+   null 0+

UnregisterBrokerRequest request 64 versions 0 flexible 0+
  broker_id  int32  0+

UnregisterBrokerResponse response 64 versions 0 flexible 0+
  throttle_time_ms  int32   0+
  error_code        int16   0+
  error_message     string  0+  null 0+

GetTelemetrySubscriptionsRequest request 71 versions 0 flexible 0+
  client_instance_id  uuid  0+

GetTelemetrySubscriptionsResponse response 71 versions 0 flexible 0+
  throttle_time_ms            int32     0+
  error_code                  int16     0+
  client_instance_id          uuid      0+
  subscription_id             int32     0+
  accepted_compression_types  []int8    0+
  push_interval_ms            int32     0+
  telemetry_max_bytes         int32     0+
  delta_temporality           bool      0+
  requested_metrics           []string  0+

PushTelemetryRequest request 72 versions 0 flexible 0+
  client_instance_id  uuid   0+
  subscription_id     int32  0+
  terminating         bool   0+
  compression_type    int8   0+
  metrics             bytes  0+

PushTelemetryResponse response 72 versions 0 flexible 0+
  throttle_time_ms  int32  0+
  error_code        int16  0+

ListConfigResourcesRequest request 74 versions 0-1 flexible 0+
  resource_types  []int8  1+

ListConfigResourcesResponse response 74 versions 0-1 flexible 0+
  throttle_time_ms  int32             0+
  error_code        int16             0+
  config_resources  []ConfigResource  0+
    resource_name   string            0+
    resource_type   int8              1+  = 16, ignorable

ListClientMetricsResourcesRequest request 74 versions 0 flexible 0+

ListClientMetricsResourcesResponse response 74 versions 0 flexible 0+
  throttle_time_ms          int32                    0+
  error_code                int16                    0+
  client_metrics_resources  []ClientMetricsResource  0+
    name                    string                   0+
"""
