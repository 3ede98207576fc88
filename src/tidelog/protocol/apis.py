"""The APIs: their keys, the versions that the codec knows, and those that Kafka 4.3 advertises.

The codec knows more than is advertised: old versions that only Kafka 3.9 has, what its controller sends to brokers, and
versions that 4.3 has not released. An ApiVersions answer is made of the advertised ranges, so that each client finds
what it knows from Kafka itself.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from tidelog.protocol.errors import UnsupportedVersion


class ApiKey(IntEnum):
    """The first field of every request header."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class VersionRange(NamedTuple):
    """Both ends are in it."""

    lowest: int
    highest: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.lowest <= version <= self.highest


class Api(NamedTuple):
    """What the table below says of one API."""

    name: str
    """As in the names of its messages: `Metadata` of `MetadataRequest`."""
    versions: VersionRange
    """That the codec encodes and decodes."""
    advertised: VersionRange | None
    """By a broker or controller of Kafka 4.3; None for what only 3.9 has."""
    first_flexible: int | None


_TABLE: Final = """
Produce                      0-13  0-13  9
Fetch                        0-18  4-18  12
ListOffsets                  0-11  1-11  6
Metadata                     0-13  0-13  9
LeaderAndIsr                 0-7   -     4
StopReplica                  0-4   -     2
UpdateMetadata               0-8   -     6
ControlledShutdown           0-3   -     3
OffsetCommit                 0-10  2-10  8
OffsetFetch                  0-10  1-10  6
FindCoordinator              0-6   0-6   3
JoinGroup                    0-9   0-9   6
Heartbeat                    0-4   0-4   4
LeaveGroup                   0-5   0-5   4
SyncGroup                    0-5   0-5   4
DescribeGroups               0-6   0-6   5
ListGroups                   0-5   0-5   3
SaslHandshake                0-1   0-1   -
ApiVersions                  0-4   0-4   3
CreateTopics                 0-7   2-7   5
DeleteTopics                 0-6   1-6   4
DeleteRecords                0-2   0-2   2
InitProducerId               0-6   0-5   2
OffsetForLeaderEpoch         0-4   2-4   4
AddPartitionsToTxn           0-5   0-5   3
AddOffsetsToTxn              0-4   0-4   3
EndTxn                       0-5   0-5   3
WriteTxnMarkers              0-2   1-2   1
TxnOffsetCommit              0-5   0-5   3
DescribeAcls                 0-3   1-3   2
CreateAcls                   0-3   1-3   2
DeleteAcls                   0-3   1-3   2
DescribeConfigs              0-4   1-4   4
AlterConfigs                 0-2   0-2   2
AlterReplicaLogDirs          0-2   1-2   2
DescribeLogDirs              0-5   1-5   2
SaslAuthenticate             0-2   0-2   2
CreatePartitions             0-3   0-3   2
CreateDelegationToken        0-3   1-3   2
RenewDelegationToken         0-2   1-2   2
ExpireDelegationToken        0-2   1-2   2
DescribeDelegationToken      0-3   1-3   2
DeleteGroups                 0-2   0-2   2
ElectLeaders                 0-2   0-2   2
IncrementalAlterConfigs      0-1   0-1   1
AlterPartitionReassignments  0-1   0-1   0
ListPartitionReassignments   0     0     0
OffsetDelete                 0     0     -
DescribeClientQuotas         0-1   0-1   1
AlterClientQuotas            0-1   0-1   1
DescribeUserScramCredentials 0     0     0
AlterUserScramCredentials    0     0     0
Vote                         0-2   0-2   0
BeginQuorumEpoch             0-1   0-1   1
EndQuorumEpoch               0-1   0-1   1
DescribeQuorum               0-2   0-2   0
AlterPartition               0-3   2-3   0
UpdateFeatures               0-2   0-2   0
Envelope                     0     0     0
FetchSnapshot                0-1   0-1   0
DescribeCluster              0-2   0-2   0
DescribeProducers            0     0     0
BrokerRegistration           0-4   0-4   0
BrokerHeartbeat              0-2   0-2   0
UnregisterBroker             0     0     0
DescribeTransactions         0     0     0
ListTransactions             0-2   0-2   0
AllocateProducerIds          0     0     0
ConsumerGroupHeartbeat       0-1   0-1   0
ConsumerGroupDescribe        0-1   0-1   0
ControllerRegistration       0     0     0
GetTelemetrySubscriptions    0     0     0
PushTelemetry                0     0     0
AssignReplicasToDirs         0     0     0
ListConfigResources          0-1   0-1   0
DescribeTopicPartitions      0     0     0
ShareGroupHeartbeat          0-1   1     0
ShareGroupDescribe           0-1   1     0
ShareFetch                   0-2   1-2   0
ShareAcknowledge             0-2   1-2   0
AddRaftVoter                 0-1   0-1   0
RemoveRaftVoter              0     0     0
UpdateRaftVoter              0     0     0
InitializeShareGroupState    0     0     0
ReadShareGroupState          0     0     0
WriteShareGroupState         0-1   0-1   0
DeleteShareGroupState        0     0     0
ReadShareGroupStateSummary   0-1   0-1   0
StreamsGroupHeartbeat        0     0     0
StreamsGroupDescribe         0     0     0
DescribeShareGroupOffsets    0-1   0-1   0
AlterShareGroupOffsets       0     0     0
DeleteShareGroupOffsets      0     0     0
"""
# A row per key: name, known versions, advertised versions, first flexible version. Produce is advertised from 0 though
# nothing below 3 is served: librdkafka before 2.11.1 turns compression off otherwise.


def _range(text: str) -> VersionRange:
    first, _, last = text.partition("-")
    return VersionRange(int(first), int(last or first))


def _api(row: str) -> Api:
    name, known, advertised, flexible = row.split()
    return Api(
        name,
        _range(known),
        None if advertised == "-" else _range(advertised),
        None if flexible == "-" else int(flexible),
    )


APIS: Final = dict(zip(ApiKey, map(_api, _TABLE.strip().split("\n")), strict=True))
"""[key] -> what is known of the API."""

_FIRST_FLEXIBLE: Final = {
    int(key): 1 << 15 if api.first_flexible is None else api.first_flexible for key, api in APIS.items()
}
_CONTROLLED_SHUTDOWN: Final = int(ApiKey.CONTROLLED_SHUTDOWN)
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)


def name(key: ApiKey) -> str:
    """`Metadata` for `ApiKey.METADATA`."""
    return APIS[key].name


def versions(key: ApiKey) -> VersionRange:
    """What the codec encodes and decodes."""
    return APIS[key].versions


def advertised(key: ApiKey) -> VersionRange | None:
    """What Kafka 4.3 advertises; None for APIs that it no longer has."""
    return APIS[key].advertised


def first_flexible_version(key: ApiKey) -> int:
    """The first version with compact lengths and tagged fields (KIP-482); above every version where there is none."""
    return _FIRST_FLEXIBLE[key]


def request_header_version(key: int, version: int) -> int:
    """The version of the RequestHeader before a request. UnsupportedVersion when the key is unknown."""
    try:
        first_flexible = _FIRST_FLEXIBLE[key]
    except KeyError:
        raise UnsupportedVersion(f"there is no API key {key}") from None
    if version >= first_flexible:
        return 2
    return 0 if version == 0 and key == _CONTROLLED_SHUTDOWN else 1


def response_header_version(key: int, version: int) -> int:
    """The version of the ResponseHeader before a response. UnsupportedVersion when the key is unknown.

    ApiVersions always has the oldest: a client that asks does not know yet whether the broker has flexible headers
    (KIP-511), and librdkafka aborts its process on a byte more.
    """
    try:
        first_flexible = _FIRST_FLEXIBLE[key]
    except KeyError:
        raise UnsupportedVersion(f"there is no API key {key}") from None
    return 1 if version >= first_flexible and key != _API_VERSIONS else 0
