"""What each of Kafka's error codes says to users of a client, and what they can do about it.

Brokers send most codes without a word. `explain` gives the words: what happened, then what to do, where there is
something to do. Codes that only brokers tell each other are here too, for a tool may ask anything.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from tidelog.model.errors import ErrorCode


class Explanation(NamedTuple):
    """Of one code. Both without a full stop, so that they can be joined."""

    what: str
    advice: str = ""
    """What to do; "" where trying again is all there is, or nothing."""


_UPDATE: Final = "update the client, or ask a broker of its age"
_ALLOW: Final = "ask an administrator for an ACL"
_LOOK: Final = "look into the broker's log"
_STOP: Final = "stop this one: the other goes on"

EXPLANATIONS: Final[Mapping[ErrorCode, Explanation]] = MappingProxyType(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR: Explanation("the broker failed and does not say why", _LOOK),
        ErrorCode.NONE: Explanation("nothing is wrong"),
        ErrorCode.OFFSET_OUT_OF_RANGE: Explanation(
            "the partition does not have that offset", "seek to an offset between its start and its end"
        ),
        ErrorCode.CORRUPT_MESSAGE: Explanation("a batch of records is damaged, or was on its way"),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Explanation(
            "the topic or the partition does not exist, as far as that broker knows", "create it, or correct the name"
        ),
        ErrorCode.INVALID_FETCH_SIZE: Explanation("the size asked for is below 0"),
        ErrorCode.LEADER_NOT_AVAILABLE: Explanation(
            "the partition has no leader now", "bring a broker back that has an in-sync replica"
        ),
        ErrorCode.NOT_LEADER_OR_FOLLOWER: Explanation("the broker that was asked does not lead the partition any more"),
        ErrorCode.REQUEST_TIMED_OUT: Explanation("the broker could not do it in time; it may still be done"),
        ErrorCode.BROKER_NOT_AVAILABLE: Explanation("the broker is not there", "start it, or ask another one"),
        ErrorCode.REPLICA_NOT_AVAILABLE: Explanation("the broker has no replica of the partition now"),
        ErrorCode.MESSAGE_TOO_LARGE: Explanation(
            "the batch is larger than the topic's max.message.bytes", "send smaller records, or raise it"
        ),
        ErrorCode.STALE_CONTROLLER_EPOCH: Explanation("a former controller has asked"),
        ErrorCode.OFFSET_METADATA_TOO_LARGE: Explanation(
            "the note of a committed offset is too long", "shorten it, or raise offset.metadata.max.bytes"
        ),
        ErrorCode.NETWORK_EXCEPTION: Explanation("the connection broke before the broker answered"),
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Explanation("the coordinator is reading its state"),
        ErrorCode.COORDINATOR_NOT_AVAILABLE: Explanation("there is no coordinator now"),
        ErrorCode.NOT_COORDINATOR: Explanation("the broker that was asked is not the coordinator any more"),
        ErrorCode.INVALID_TOPIC_EXCEPTION: Explanation(
            "no topic may be called that, or be written to", "letters, digits, dots, _ and - make a name, 249 at most"
        ),
        ErrorCode.RECORD_LIST_TOO_LARGE: Explanation(
            "the batch is larger than a segment of the topic's log", "send smaller batches, or raise segment.bytes"
        ),
        ErrorCode.NOT_ENOUGH_REPLICAS: Explanation(
            "fewer replicas are in sync than min.insync.replicas asks for; nothing was written",
            "bring brokers back, or lower min.insync.replicas",
        ),
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Explanation(
            "the records are written, to fewer replicas in sync than min.insync.replicas asks for",
            "bring brokers back; without idempotence, sending again doubles the records",
        ),
        ErrorCode.INVALID_REQUIRED_ACKS: Explanation("acks can be -1 (all), 0 or 1"),
        ErrorCode.ILLEGAL_GENERATION: Explanation("the group has gone on to another generation", "join it again"),
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL: Explanation(
            "the group's members have no assignor, or no protocol, in common with this one",
            "give all of them the same assignors",
        ),
        ErrorCode.INVALID_GROUP_ID: Explanation("a group needs an id that is not empty"),
        ErrorCode.UNKNOWN_MEMBER_ID: Explanation("the group has no such member (any more)", "join it again"),
        ErrorCode.INVALID_SESSION_TIMEOUT: Explanation(
            "the session timeout is out of the broker's bounds",
            "choose one within group.min.session.timeout.ms and group.max.session.timeout.ms",
        ),
        ErrorCode.REBALANCE_IN_PROGRESS: Explanation("the group is being rebalanced", "join it again"),
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE: Explanation(
            "the offsets do not fit one batch", "commit fewer at a time, with shorter notes"
        ),
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: Explanation("this user may not do that to the topic", _ALLOW),
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Explanation("this user may not do that to the group", _ALLOW),
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Explanation("this user may not do that to the cluster", _ALLOW),
        ErrorCode.INVALID_TIMESTAMP: Explanation(
            "a record's timestamp is out of the topic's range",
            "correct it, or set message.timestamp.before.max.ms and message.timestamp.after.max.ms",
        ),
        ErrorCode.UNSUPPORTED_SASL_MECHANISM: Explanation("the broker does not serve that SASL mechanism"),
        ErrorCode.ILLEGAL_SASL_STATE: Explanation("this request was not due in the authentication"),
        ErrorCode.UNSUPPORTED_VERSION: Explanation("the broker does not serve that version of the request", _UPDATE),
        ErrorCode.TOPIC_ALREADY_EXISTS: Explanation("there is a topic of that name"),
        ErrorCode.INVALID_PARTITIONS: Explanation("no topic can have that many partitions"),
        ErrorCode.INVALID_REPLICATION_FACTOR: Explanation(
            "there are not that many live brokers, or it is below 1", "lower it, or start brokers"
        ),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT: Explanation("replicas cannot be placed so"),
        ErrorCode.INVALID_CONFIG: Explanation("a setting is unknown, or cannot have that value"),
        ErrorCode.NOT_CONTROLLER: Explanation("the broker that was asked is not the controller any more"),
        ErrorCode.INVALID_REQUEST: Explanation("the broker cannot make sense of the request", _LOOK),
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: Explanation("the partition's message format is too old for that"),
        ErrorCode.POLICY_VIOLATION: Explanation("a policy of the cluster forbids it"),
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: Explanation(
            "records of this producer are missing before these: what was acknowledged may be lost"
        ),
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER: Explanation("the records are in the log already"),
        ErrorCode.INVALID_PRODUCER_EPOCH: Explanation("a later epoch of this producer has written already", _STOP),
        ErrorCode.INVALID_TXN_STATE: Explanation("that is not due in the transaction's state", "abort, and begin anew"),
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: Explanation(
            "the transactional id was not used for long, or has another producer id now", "abort, and begin anew"
        ),
        ErrorCode.INVALID_TRANSACTION_TIMEOUT: Explanation(
            "the transaction timeout is above the broker's transaction.max.timeout.ms", "lower it"
        ),
        ErrorCode.CONCURRENT_TRANSACTIONS: Explanation("the id's last transaction is still being ended"),
        ErrorCode.TRANSACTION_COORDINATOR_FENCED: Explanation("a later coordinator has written there"),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Explanation("this user may not use the id", _ALLOW),
        ErrorCode.SECURITY_DISABLED: Explanation("the cluster has no authorizer"),
        ErrorCode.OPERATION_NOT_ATTEMPTED: Explanation("it was not tried, for another part of the request failed"),
        ErrorCode.KAFKA_STORAGE_ERROR: Explanation("the broker's disk failed", _LOOK),
        ErrorCode.LOG_DIR_NOT_FOUND: Explanation("the broker has no such log directory"),
        ErrorCode.SASL_AUTHENTICATION_FAILED: Explanation("the broker does not take these credentials"),
        ErrorCode.UNKNOWN_PRODUCER_ID: Explanation("the partition does not know the producer (any more)"),
        ErrorCode.REASSIGNMENT_IN_PROGRESS: Explanation(
            "the partition is being reassigned", "wait for it, or cancel it"
        ),
        ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: Explanation("the cluster has no delegation tokens"),
        ErrorCode.DELEGATION_TOKEN_NOT_FOUND: Explanation("there is no such delegation token"),
        ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: Explanation("the delegation token is another one's"),
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: Explanation(
            "delegation tokens are not given over this listener"
        ),
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: Explanation("this user may not use that token", _ALLOW),
        ErrorCode.DELEGATION_TOKEN_EXPIRED: Explanation("the delegation token has expired", "get another one"),
        ErrorCode.INVALID_PRINCIPAL_TYPE: Explanation("only principals of type User can have that"),
        ErrorCode.NON_EMPTY_GROUP: Explanation("the group has members", "stop them first"),
        ErrorCode.GROUP_ID_NOT_FOUND: Explanation("there is no such group"),
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND: Explanation("the broker has forgotten the fetch session"),
        ErrorCode.INVALID_FETCH_SESSION_EPOCH: Explanation("the fetch session is at another epoch"),
        ErrorCode.LISTENER_NOT_FOUND: Explanation("the leader has no listener of this kind"),
        ErrorCode.TOPIC_DELETION_DISABLED: Explanation("topics may not be deleted", "set delete.topic.enable"),
        ErrorCode.FENCED_LEADER_EPOCH: Explanation("the partition has a leader of a later epoch"),
        ErrorCode.UNKNOWN_LEADER_EPOCH: Explanation("the broker does not know of that leader epoch yet"),
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: Explanation("the broker does not take that codec here"),
        ErrorCode.STALE_BROKER_EPOCH: Explanation("the broker has registered anew meanwhile"),
        ErrorCode.OFFSET_NOT_AVAILABLE: Explanation("a new leader does not know the partition's end yet"),
        ErrorCode.MEMBER_ID_REQUIRED: Explanation("the member is to join again with the id that it was given"),
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: Explanation(
            "the preferred replica is not alive, or not in sync", "start its broker, and wait until it has caught up"
        ),
        ErrorCode.GROUP_MAX_SIZE_REACHED: Explanation("the group has as many members as the broker allows"),
        ErrorCode.FENCED_INSTANCE_ID: Explanation("another member has this instance id now", _STOP),
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: Explanation("no replica can be elected now", "start its broker"),
        ErrorCode.ELECTION_NOT_NEEDED: Explanation("the replica leads already"),
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: Explanation("the partition is not being reassigned"),
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: Explanation("the group is reading the topic", "stop its members first"),
        ErrorCode.INVALID_RECORD: Explanation("a record is not as the topic demands"),
        ErrorCode.UNSTABLE_OFFSET_COMMIT: Explanation("a transaction is about to commit the offsets"),
        ErrorCode.THROTTLING_QUOTA_EXCEEDED: Explanation("a quota is used up"),
        ErrorCode.PRODUCER_FENCED: Explanation("another producer has the transactional id now", _STOP),
        ErrorCode.RESOURCE_NOT_FOUND: Explanation("there is no such thing"),
        ErrorCode.DUPLICATE_RESOURCE: Explanation("the request names something twice"),
        ErrorCode.UNACCEPTABLE_CREDENTIAL: Explanation("the cluster does not take these credentials"),
        ErrorCode.INCONSISTENT_VOTER_SET: Explanation("the quorum has other voters"),
        ErrorCode.INVALID_UPDATE_VERSION: Explanation("the version is not the next one"),
        ErrorCode.FEATURE_UPDATE_FAILED: Explanation("the features could not be changed", _LOOK),
        ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: Explanation("the principal of a forwarded request cannot be read"),
        ErrorCode.SNAPSHOT_NOT_FOUND: Explanation("there is no such snapshot"),
        ErrorCode.POSITION_OUT_OF_RANGE: Explanation("the snapshot does not have that position"),
        ErrorCode.UNKNOWN_TOPIC_ID: Explanation("that broker knows no topic of this id", "it may have been deleted"),
        ErrorCode.DUPLICATE_BROKER_REGISTRATION: Explanation("a live broker has that id"),
        ErrorCode.BROKER_ID_NOT_REGISTERED: Explanation("there is no broker of that id"),
        ErrorCode.INCONSISTENT_TOPIC_ID: Explanation(
            "the topic was deleted and created again", "start over on the new one"
        ),
        ErrorCode.INCONSISTENT_CLUSTER_ID: Explanation("that is another cluster", "correct the bootstrap address"),
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: Explanation("there is no such transactional id"),
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: Explanation("the fetch session names topics in another way"),
        ErrorCode.INELIGIBLE_REPLICA: Explanation("the replica cannot be in sync now"),
        ErrorCode.NEW_LEADER_ELECTED: Explanation("another leader was elected meanwhile"),
        ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: Explanation("the records are in tiered storage alone"),
        ErrorCode.FENCED_MEMBER_EPOCH: Explanation("the group has given the member up", "join it again"),
        ErrorCode.UNRELEASED_INSTANCE_ID: Explanation(
            "another member has this instance id, and has not left", "stop it, or choose another id"
        ),
        ErrorCode.UNSUPPORTED_ASSIGNOR: Explanation(
            "the coordinator has no such assignor", "choose one of group.consumer.assignors"
        ),
        ErrorCode.STALE_MEMBER_EPOCH: Explanation("the member has an older epoch than the group knows"),
        ErrorCode.MISMATCHED_ENDPOINT_TYPE: Explanation("that is a broker, or a controller, where the other was meant"),
        ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: Explanation("there are no such endpoints"),
        ErrorCode.UNKNOWN_CONTROLLER_ID: Explanation("there is no such controller"),
        ErrorCode.UNKNOWN_SUBSCRIPTION_ID: Explanation("other metrics are asked for now"),
        ErrorCode.TELEMETRY_TOO_LARGE: Explanation("the metrics are larger than the broker takes"),
        ErrorCode.INVALID_REGISTRATION: Explanation("the controller does not take the broker's registration"),
        ErrorCode.TRANSACTION_ABORTABLE: Explanation("the transaction can only be aborted", "abort, and begin anew"),
        ErrorCode.INVALID_RECORD_STATE: Explanation("the share group has the record in another state"),
        ErrorCode.SHARE_SESSION_NOT_FOUND: Explanation("the broker has forgotten the share session"),
        ErrorCode.INVALID_SHARE_SESSION_EPOCH: Explanation("the share session is at another epoch"),
        ErrorCode.FENCED_STATE_EPOCH: Explanation("the share group's state has a later epoch"),
        ErrorCode.INVALID_VOTER_KEY: Explanation("the voter has another key"),
        ErrorCode.DUPLICATE_VOTER: Explanation("the voter is one already"),
        ErrorCode.VOTER_NOT_FOUND: Explanation("there is no such voter"),
        ErrorCode.INVALID_REGULAR_EXPRESSION: Explanation("the pattern is no regular expression (RE2)", "correct it"),
        ErrorCode.REBOOTSTRAP_REQUIRED: Explanation("the client is to begin again with its bootstrap addresses"),
        ErrorCode.STREAMS_INVALID_TOPOLOGY: Explanation("the topology cannot be run"),
        ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH: Explanation("the topology's epoch is not the next one"),
        ErrorCode.STREAMS_TOPOLOGY_FENCED: Explanation("the group has a later topology"),
        ErrorCode.SHARE_SESSION_LIMIT_REACHED: Explanation("the broker has as many share sessions as it takes"),
    }
)


def explain(code: ErrorCode) -> Explanation:
    """What a code says; also of one that is younger than this client."""
    known = EXPLANATIONS.get(code)
    if known is not None:
        return known
    return Explanation(f"the broker answered error code {int(code)}, which this client does not know", _UPDATE)
