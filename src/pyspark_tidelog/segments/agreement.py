"""Up to where a folder's records are the leader's: it is asked for the ends of leader epochs (KIP-320).

Each batch names the epoch of the leader that wrote it. It is in the leader's log if that has the epoch, up to behind
the batch at least; and so is then all that lies before it. So most often one batch, the last, is asked about; else the
first one that is not in the log is found by halving. A checkpoint of epochs may be behind a log that a broker writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark_tidelog.segments.epochs import EpochEndOf
from pyspark_tidelog.segments.partition import PartitionFiles
from tidelog.client.blocking import BlockingCluster
from tidelog.client.truncation import UNKNOWN, EpochEnd, Position, epoch_ends, epoch_ends_request
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.records.batch import BatchHeader
from tidelog.records.errors import InvalidBatch


def by_leader(cluster: BlockingCluster, topic_partition: TopicPartition) -> EpochEndOf:
    """What the partition's leader says, asked once for each epoch; KafkaError or ClientError."""
    known: dict[int, EpochEnd] = {}

    def build(group: dict[TopicPartition, int]) -> Any:
        return epoch_ends_request({each: Position(-1, epoch, UNKNOWN) for each, epoch in group.items()})

    def parse(response: Any) -> Iterator[tuple[TopicPartition, ErrorCode, str | None, EpochEnd]]:
        return ((each, code, None, end) for each, code, end in epoch_ends(response))

    def ask(epoch: int) -> EpochEnd:
        if epoch not in known:
            routing = cluster.routing
            answers: Mapping[TopicPartition, EpochEnd | KafkaError] = cluster.run(
                routing.ask_leaders({topic_partition: epoch}, build, parse, routing.deadline(None))
            )
            answer = answers[topic_partition]
            if isinstance(answer, KafkaError):
                raise answer
            known[epoch] = answer
        return known[epoch]

    return ask


def agreed_end(files: PartitionFiles, end_of: EpochEndOf) -> int:
    """Up to where, at most its high watermark, a folder's records are those of the log that `end_of` tells of."""
    agreed, parted = files.start(), files.folder.high_watermark
    probe = parted - 1
    while agreed < parted:
        header = _batch_at(files, probe)
        if header is not None and _is_in(header, end_of):
            agreed = min(header.next_offset, parted)
        else:
            parted = probe if header is None else min(probe, header.base_offset)
        probe = (agreed + parted) // 2
    return min(agreed, parted)


def _is_in(header: BatchHeader, end_of: EpochEndOf) -> bool:
    end = end_of(header.partition_leader_epoch)
    return end.epoch == header.partition_leader_epoch and header.next_offset <= end.offset


def _batch_at(files: PartitionFiles, offset: int) -> BatchHeader | None:
    """The first batch that ends behind `offset`; None where that cannot be read, or there is none."""
    try:
        return next((header for _, _, header in files.headers(offset, files.folder.high_watermark)), None)
    except InvalidBatch:
        return None
