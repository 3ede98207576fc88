"""SASL, ACLs, delegation tokens and SCRAM credentials.

The notation is explained in `tidelog.protocol.schema`.
"""

from typing import Final

DEFINITIONS: Final = """
SaslHandshakeRequest request 17 versions 0-1
  mechanism  string  0+

SaslHandshakeResponse response 17 versions 0-1
  error_code  int16     0+
  mechanisms  []string  0+

SaslAuthenticateRequest request 36 versions 0-2 flexible 2+
  auth_bytes  bytes  0+

SaslAuthenticateResponse response 36 versions 0-2 flexible 2+
  error_code           int16   0+
  error_message        string  0+  null 0+
  auth_bytes           bytes   0+
  session_lifetime_ms  int64   1+  ignorable

DescribeAclsRequest request 29 versions 0-3 flexible 2+
  resource_type_filter  int8    0+
  resource_name_filter  string  0+  null 0+
  pattern_type_filter   int8    1+  = 3
  principal_filter      string  0+  null 0+
  host_filter           string  0+  null 0+
  operation             int8    0+
  permission_type       int8    0+

DescribeAclsResponse response 29 versions 0-3 flexible 2+
  throttle_time_ms     int32                   0+
  error_code           int16                   0+
  error_message        string                  0+  null 0+
  resources            []DescribeAclsResource  0+
    resource_type      int8                    0+
    resource_name      string                  0+
    pattern_type       int8                    1+  = 3
    acls               []AclDescription        0+
      principal        string                  0+
      host             string                  0+
      operation        int8                    0+
      permission_type  int8                    0+

CreateAclsRequest request 30 versions 0-3 flexible 2+
  creations                []AclCreation  0+
    resource_type          int8           0+
    resource_name          string         0+
    resource_pattern_type  int8           1+  = 3
    principal              string         0+
    host                   string         0+
    operation              int8           0+
    permission_type        int8           0+

CreateAclsResponse response 30 versions 0-3 flexible 2+
  throttle_time_ms  int32                0+
  results           []AclCreationResult  0+
    error_code      int16                0+
    error_message   string               0+  null 0+

DeleteAclsRequest request 31 versions 0-3 flexible 2+
  filters                 []DeleteAclsFilter  0+
    resource_type_filter  int8                0+
    resource_name_filter  string              0+  null 0+
    pattern_type_filter   int8                1+  = 3
    principal_filter      string              0+  null 0+
    host_filter           string              0+  null 0+
    operation             int8                0+
    permission_type       int8                0+

DeleteAclsResponse response 31 versions 0-3 flexible 2+
  throttle_time_ms     int32                     0+
  filter_results       []DeleteAclsFilterResult  0+
    error_code         int16                     0+
    error_message      string                    0+  null 0+
    matching_acls      []DeleteAclsMatchingAcl   0+
      error_code       int16                     0+
      error_message    string                    0+  null 0+
      resource_type    int8                      0+
      resource_name    string                    0+
      pattern_type     int8                      1+  = 3
      principal        string                    0+
      host             string                    0+
      operation        int8                      0+
      permission_type  int8                      0+

CreateDelegationTokenRequest request 38 versions 0-3 flexible 2+
  owner_principal_type  string               3+  null 3+
  owner_principal_name  string               3+  null 3+
  renewers              []CreatableRenewers  0+
    principal_type      string               0+
    principal_name      string               0+
  max_lifetime_ms       int64                0+

CreateDelegationTokenResponse response 38 versions 0-3 flexible 2+
  error_code                      int16   0+
  principal_type                  string  0+
  principal_name                  string  0+
  token_requester_principal_type  string  3+
  token_requester_principal_name  string  3+
  issue_timestamp_ms              int64   0+
  expiry_timestamp_ms             int64   0+
  max_timestamp_ms                int64   0+
  token_id                        string  0+
  hmac                            bytes   0+
  throttle_time_ms                int32   0+

RenewDelegationTokenRequest request 39 versions 0-2 flexible 2+
  hmac             bytes  0+
  renew_period_ms  int64  0+

RenewDelegationTokenResponse response 39 versions 0-2 flexible 2+
  error_code           int16  0+
  expiry_timestamp_ms  int64  0+
  throttle_time_ms     int32  0+

ExpireDelegationTokenRequest request 40 versions 0-2 flexible 2+
  hmac                   bytes  0+
  expiry_time_period_ms  int64  0+

ExpireDelegationTokenResponse response 40 versions 0-2 flexible 2+
  error_code           int16  0+
  expiry_timestamp_ms  int64  0+
  throttle_time_ms     int32  0+

DescribeDelegationTokenRequest request 41 versions 0-3 flexible 2+
  owners            []DescribeDelegationTokenOwner  0+  null 0+
    principal_type  string                          0+
    principal_name  string                          0+

DescribeDelegationTokenResponse response 41 versions 0-3 flexible 2+
  error_code                        int16                              0+
  tokens                            []DescribedDelegationToken         0+
    principal_type                  string                             0+
    principal_name                  string                             0+
    token_requester_principal_type  string                             3+
    token_requester_principal_name  string                             3+
    issue_timestamp                 int64                              0+
    expiry_timestamp                int64                              0+
    max_timestamp                   int64                              0+
    token_id                        string                             0+
    hmac                            bytes                              0+
    renewers                        []DescribedDelegationTokenRenewer  0+
      principal_type                string                             0+
      principal_name                string                             0+
  throttle_time_ms                  int32                              0+

DescribeUserScramCredentialsRequest request 50 versions 0 flexible 0+
  users   []UserName  0+  null 0+
    name  string      0+

DescribeUserScramCredentialsResponse response 50 versions 0 flexible 0+
  throttle_time_ms    int32                                 0+
  error_code          int16                                 0+
  error_message       string                                0+  null 0+
  results             []DescribeUserScramCredentialsResult  0+
    user              string                                0+
    error_code        int16                                 0+
    error_message     string                                0+  null 0+
    credential_infos  []CredentialInfo                      0+
      mechanism       int8                                  0+
      iterations      int32                                 0+

AlterUserScramCredentialsRequest request 51 versions 0 flexible 0+
  deletions          []ScramCredentialDeletion   0+
    name             string                      0+
    mechanism        int8                        0+
  upsertions         []ScramCredentialUpsertion  0+
    name             string                      0+
    mechanism        int8                        0+
    iterations       int32                       0+
    salt             bytes                       0+
    salted_password  bytes                       0+

AlterUserScramCredentialsResponse response 51 versions 0 flexible 0+
  throttle_time_ms  int32                              0+
  results           []AlterUserScramCredentialsResult  0+
    user            string                             0+
    error_code      int16                              0+
    error_message   string                             0+  null 0+
"""
