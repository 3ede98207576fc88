"""How Kafka names what lies in a log directory.

topicone-0/                                    the folder of a partition
  00000000000000000600.log                     20 digits: the segment's base offset
  00000000000000000600.index .timeindex .txnindex .snapshot
  00000000000000000000.log.deleted             on the way out, gone after file.delete.delay.ms
  00000000000000000600.log.cleaned / .swap     compaction under way / finished, not yet in place
topicone-0.<32 hex digits>-delete/             a deleted partition, removed soon
topicone-0.<32 hex digits>-stray/              a partition that the cluster does not know; never deleted here
topicone-0.<32 hex digits>-future/             a replica on its way from another log directory
"""

import re
from typing import Final

from tidelog.model.identifiers import Offset, TopicPartition
from tidelog.model.topics import invalid_topic_name_reason
from tidelog.storage.errors import InvalidLogFolder

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"

SEGMENT_SUFFIXES: Final = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)
"""Files of one segment; the snapshot belongs to the producer state."""

DELETE_FOLDER: Final = "-delete"
STRAY_FOLDER: Final = "-stray"
FUTURE_FOLDER: Final = "-future"

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
REPLICATION_CHECKPOINT: Final = "replication-offset-checkpoint"
LOG_START_CHECKPOINT: Final = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
SEGMENT_SIZES: Final = "segment-sizes"
BOOT_ID: Final = "boot-id"
DISK_FAILED: Final = "disk-failed"
META_PROPERTIES: Final = "meta.properties"
LOCK: Final = ".lock"

_SEGMENT_FILE: Final = re.compile(r"([0-9]{20})(\.[a-z]+)((?:\.deleted|\.cleaned|\.swap)*)")
_FOLDER: Final = re.compile(r"(.+)-([0-9]+)")
_MARKED_FOLDER: Final = re.compile(r"(.+)\.([0-9a-f]{32})(-delete|-stray|-future)")


def segment_file(base_offset: int, suffix: str) -> str:
    """`00000000000000000600.log` for 600 and ".log"."""
    return f"{base_offset:020d}{suffix}"


def parse_segment_file(name: str) -> tuple[Offset, str, str] | None:
    """Base offset, suffix (".log", ...) and marks (".deleted", ".swap", ... or ""); None for any other name."""
    found = _SEGMENT_FILE.fullmatch(name)
    if found is None:
        return None
    offset = int(found[1])
    return (Offset(offset), found[2], found[3]) if offset < 2**63 else None


def parse_partition_folder(name: str, where: str = "the log directory") -> TopicPartition:
    """The partition whose folder is called `name`; `InvalidLogFolder` when no partition's folder can be called that.

    `where` is the log directory's path, for the message.
    """
    found = _FOLDER.fullmatch(name)
    if found is None:
        raise InvalidLogFolder(f"the folder {name!r} is not in the form of topic-partition: move it out of {where}")
    topic, partition = found[1], int(found[2])
    reason = invalid_topic_name_reason(topic)
    if reason is not None or partition >= 2**31:
        raise InvalidLogFolder(
            f"the folder {name!r} cannot belong to a topic ({reason or 'partition number too large'}): "
            f"move it out of {where}"
        )
    return TopicPartition(topic, partition)


def parse_marked_folder(name: str) -> tuple[str, str] | None:
    """What stands before the unique id, and the mark ("-delete", "-stray", "-future"), of a folder renamed by us or
    Kafka."""
    found = _MARKED_FOLDER.fullmatch(name)
    return (found[1], found[3]) if found else None


def marked_folder(topic_partition: TopicPartition, unique: bytes, mark: str) -> str:
    """The name a partition's folder takes: the topic is cut so that the whole fits into 255 bytes."""
    suffix = f"-{topic_partition.partition}.{unique.hex()}{mark}"
    return topic_partition.topic[: 255 - len(suffix)] + suffix
