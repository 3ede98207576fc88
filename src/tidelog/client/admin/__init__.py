"""Administration as operations: topics, partitions, settings, log directories, groups, transactions, the cluster.

Each function returns an `Operation`, which the blocking and the asyncio cluster carry out with `run`. Calls about
several things answer for each: a result, or the `KafkaError` with which the cluster refused it. What needs the
controller is sent to it, and again when it has moved; what is about a group goes to its coordinator.
"""

from tidelog.client.admin.cluster import ClusterView, LogDirectory, ReplicaOnDisk, describe_cluster, describe_log_dirs
from tidelog.client.admin.configs import (
    CONFIG_TYPES,
    AlterOperation,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ResourceType,
    alter_configs,
    describe_configs,
    list_config_resources,
)
from tidelog.client.admin.groups import (
    GroupDescription,
    GroupListing,
    MemberDescription,
    delete_groups,
    delete_offsets,
    describe_groups,
    list_groups,
)
from tidelog.client.admin.partitions import (
    ElectionType,
    Reassignment,
    alter_reassignments,
    elect_leaders,
    reassignments,
)
from tidelog.client.admin.topics import (
    BROKER_DEFAULT,
    CreatedTopic,
    EligibleReplicas,
    NewTopic,
    create_partitions,
    create_topics,
    delete_topics,
    describe_topics,
    eligible_replicas,
    list_topics,
)
from tidelog.client.admin.transactions import (
    ProducerState,
    TransactionDescription,
    TransactionListing,
    abort_transaction,
    describe_producers,
    describe_transactions,
    find_hanging,
    list_transactions,
)

__all__ = [
    "BROKER_DEFAULT",
    "CONFIG_TYPES",
    "AlterOperation",
    "ClusterView",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConfigSynonym",
    "CreatedTopic",
    "ElectionType",
    "EligibleReplicas",
    "GroupDescription",
    "GroupListing",
    "LogDirectory",
    "MemberDescription",
    "NewTopic",
    "ProducerState",
    "Reassignment",
    "ReplicaOnDisk",
    "ResourceType",
    "TransactionDescription",
    "TransactionListing",
    "abort_transaction",
    "alter_configs",
    "alter_reassignments",
    "create_partitions",
    "create_topics",
    "delete_groups",
    "delete_offsets",
    "delete_topics",
    "describe_cluster",
    "describe_configs",
    "describe_groups",
    "describe_log_dirs",
    "describe_producers",
    "describe_topics",
    "describe_transactions",
    "elect_leaders",
    "eligible_replicas",
    "find_hanging",
    "list_config_resources",
    "list_groups",
    "list_topics",
    "list_transactions",
    "reassignments",
]
