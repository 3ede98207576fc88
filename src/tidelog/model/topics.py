"""What a topic may be called, checked on every API and on load from disk or store."""

from typing import Final

MAX_TOPIC_NAME_LENGTH: Final = 249
"""Characters; leaves room for "-<partition>" and ".<id>-delete" in a file name of 255 bytes."""

CONSUMER_OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
"""Of KRaft's controllers. The controller refuses to create it: a broker that starts takes its folder for Kafka's, and
reads no log there."""

_LEGAL: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def invalid_topic_name_reason(name: str) -> str | None:
    """Why `name` cannot be a topic's name, in Kafka's words; None when it can."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_TOPIC_NAME_LENGTH}"
    if not _LEGAL.issuperset(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def collision_key(name: str) -> str:
    """Names with equal keys collide in metric names, so Kafka refuses the second: '.' and '_' are one."""
    return name.replace(".", "_")
