"""How far groups have read, and what their offsets are to be reset to."""

from __future__ import annotations

import csv
import dataclasses
import datetime
import enum
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from tidelog.cli.durations import parse_duration
from tidelog.cli.errors import WrongUsage
from tidelog.cli.output import warn
from tidelog.client.admin import GroupDescription, MemberDescription, ShareOffset, describe_share_group_offsets
from tidelog.client.admin.groups import SHARE
from tidelog.client.blocking import BlockingCluster
from tidelog.client.offsets import CommittedOffset, OffsetFound, committed_offsets, list_offsets
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

# How far


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """A partition of a group: None for what is not known, such as a commit that there is not; `member` has it now."""

    topic_partition: TopicPartition
    committed: int | None
    leader_epoch: int | None
    end: int | None
    member: MemberDescription | None
    told_lag: int | None = None
    """Of a share group, as its coordinator tells it."""

    @property
    def lag(self) -> int | None:
        """Offsets between the two; of a share group the records that are still to be done."""
        if self.told_lag is not None:
            return self.told_lag
        return None if self.committed is None or self.end is None else self.end - self.committed


def progress(cluster: BlockingCluster, group: GroupDescription) -> list[Progress]:
    """The partitions that a group has or has committed: members with the most first, then what no member has."""
    lags: dict[TopicPartition, int] = {}
    shared: dict[TopicPartition, ShareOffset] = {}
    if group.type == SHARE:
        shared = share_offsets(cluster, group.group)
        committed = {
            tp: CommittedOffset(each.start_offset, each.leader_epoch)
            for tp, each in shared.items()
            if each.start_offset >= 0
        }
        lags = {tp: each.lag for tp, each in shared.items() if each.lag >= 0}
    else:
        committed = cluster.run(committed_offsets(cluster.routing, group.group))
    owners: dict[TopicPartition, MemberDescription | None] = {}
    for member in sorted(group.members, key=lambda member: -len(member.partitions)):
        for topic_partition in sorted(member.partitions, key=lambda tp: (tp.partition, tp.topic)):
            owners.setdefault(topic_partition, member)
    for topic_partition in sorted(committed.keys() | shared.keys(), key=lambda tp: (tp.partition, tp.topic)):
        owners.setdefault(topic_partition, None)
    ends = _offsets(cluster, owners, LATEST_TIMESTAMP)
    rows: list[Progress] = []
    for topic_partition, owner in owners.items():
        found = committed.get(topic_partition)
        epoch = found.leader_epoch if found is not None and found.leader_epoch >= 0 else None
        end = ends.get(topic_partition)
        offset = None if found is None else found.offset
        rows.append(Progress(topic_partition, offset, epoch, end, owner, lags.get(topic_partition)))
    return rows


def share_offsets(cluster: BlockingCluster, group: str) -> dict[TopicPartition, ShareOffset]:
    """Where a share group is in its partitions, of which it may not have begun in some; KafkaError for the first that
    does not tell."""
    found: dict[TopicPartition, ShareOffset] = {}
    for topic_partition, each in cluster.run(describe_share_group_offsets(cluster.routing, group)).items():
        if isinstance(each, KafkaError):
            raise each
        found[topic_partition] = each
    # The answer has names alone: leaders are needed for the ends.
    names = {tp.topic for tp in found}
    cluster.run(cluster.routing.require_topics(names, cluster.routing.deadline()))
    return found


def _offsets(
    cluster: BlockingCluster, partitions: Collection[TopicPartition], question: int
) -> dict[TopicPartition, int]:
    """The answers that there are; partitions that have gone, or have no leader, are left out."""
    known = {tp for tp in partitions if tp.topic in cluster.routing.topics} if partitions else set()
    found = cluster.run(list_offsets(cluster.routing, dict.fromkeys(sorted(known), question)))
    return {tp: each.offset for tp, each in found.items() if isinstance(each, OffsetFound)}


# Resets


class Target(enum.Enum):
    """What an offset is reset to."""

    EARLIEST = enum.auto()
    LATEST = enum.auto()
    CURRENT = enum.auto()
    OFFSET = enum.auto()
    SHIFT = enum.auto()
    TIMESTAMP = enum.auto()
    PLAN = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True)
class Reset:
    """A target with its number: an offset, a shift, a timestamp in ms; or with a plan, [group] -> offsets."""

    target: Target
    number: int = 0
    plan: Mapping[str, Mapping[TopicPartition, int]] | None = None


def parse_reset(
    *,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    from_file: str | None,
    groups: Sequence[str],
) -> Reset:
    """The one target that options name; WrongUsage for none or several, and for times that are none."""
    chosen: list[Reset] = []
    if to_earliest:
        chosen.append(Reset(Target.EARLIEST))
    if to_latest:
        chosen.append(Reset(Target.LATEST))
    if to_current:
        chosen.append(Reset(Target.CURRENT))
    if to_offset is not None:
        chosen.append(Reset(Target.OFFSET, to_offset))
    if shift_by is not None:
        chosen.append(Reset(Target.SHIFT, shift_by))
    if to_datetime is not None:
        chosen.append(Reset(Target.TIMESTAMP, parse_moment(to_datetime)))
    if by_duration is not None:
        chosen.append(Reset(Target.TIMESTAMP, max(int(time.time() * 1000) - parse_duration(by_duration), 0)))
    if from_file is not None:
        chosen.append(Reset(Target.PLAN, plan=read_plan(from_file, groups)))
    if len(chosen) != 1:
        raise WrongUsage(
            "say to what, once: --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, --to-datetime,"
            " --by-duration or --from-file"
        )
    return chosen[0]


def parse_moment(text: str) -> int:
    """Milliseconds since 1970 of an ISO 8601 moment; without a zone it is UTC, as for Kafka's tool."""
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise WrongUsage(f"--to-datetime {text!r}: {error}") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    # No record is older than 1970.
    return max(int(moment.timestamp() * 1000), 0)


def read_plan(path: str, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """A plan: lines of topic, partition, offset; with a group before them where there are several."""
    plan: dict[str, dict[TopicPartition, int]] = {}
    try:
        rows = list(csv.reader(Path(path).read_text().splitlines()))
    except (UnicodeDecodeError, csv.Error) as error:
        raise WrongUsage(f"{path} is no text of comma-separated values: {error}") from error
    for number, row in enumerate(rows, 1):
        if not row:
            continue
        try:
            if len(row) == 3 and len(groups) == 1:
                row = [groups[0], *row]
            group, topic, partition, offset = row
            plan.setdefault(group, {})[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            wanted = "topic,partition,offset" if len(groups) == 1 else "group,topic,partition,offset"
            raise WrongUsage(f"{path}:{number}: not {wanted}") from None
    return plan


def parse_topic(text: str) -> tuple[str, list[int] | None]:
    """`orders` or `orders:0,1` as a topic and its partitions (None: all)."""
    name, colon, partitions = text.partition(":")
    if not colon:
        return name, None
    try:
        return name, [int(part) for part in partitions.split(",")]
    except ValueError:
        raise WrongUsage(f"--topic {text!r} is not NAME or NAME:0,1,...") from None


def named_partitions(cluster: BlockingCluster, topics: Sequence[str]) -> list[TopicPartition]:
    """The partitions that --topic options name; KafkaError for what does not exist."""
    wanted = [parse_topic(text) for text in topics]
    views = cluster.run(cluster.routing.require_topics({name for name, _ in wanted}, cluster.routing.deadline()))
    found: list[TopicPartition] = []
    for name, partitions in wanted:
        for partition in sorted(views[name].partitions) if partitions is None else partitions:
            if partition not in views[name].partitions:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{name}' has no partition {partition}")
            found.append(TopicPartition(name, partition))
    return list(dict.fromkeys(found))


def planned(
    cluster: BlockingCluster, group: str, reset: Reset, topics: Sequence[str] | None, *, shared: bool = False
) -> dict[TopicPartition, int]:
    """[partition] -> its new offset, of `topics` or (None) of all that the group has committed, in order.

    `shared`: it is a share group.
    """
    if shared:
        offsets = {tp: found.start_offset for tp, found in share_offsets(cluster, group).items()}
    else:
        offsets = {tp: found.offset for tp, found in cluster.run(committed_offsets(cluster.routing, group)).items()}
    committed = {tp: offset for tp, offset in offsets.items() if offset >= 0}
    if reset.target is Target.PLAN:
        wanted = dict((reset.plan or {}).get(group, {}))
        named_partitions(cluster, [f"{tp.topic}:{tp.partition}" for tp in wanted])
        return within(cluster, wanted)
    present = committed if reset.target is Target.SHIFT else offsets
    partitions = sorted(present) if topics is None else named_partitions(cluster, topics)
    return dict(sorted(_targets(cluster, reset, partitions, committed).items()))


def _targets(
    cluster: BlockingCluster,
    reset: Reset,
    partitions: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    match reset.target:
        case Target.EARLIEST:
            return _all_offsets(cluster, partitions, EARLIEST_TIMESTAMP)
        case Target.LATEST:
            return _all_offsets(cluster, partitions, LATEST_TIMESTAMP)
        case Target.CURRENT:
            missing = [tp for tp in partitions if tp not in committed]
            return {tp: committed[tp] for tp in partitions if tp in committed} | _all_offsets(
                cluster, missing, LATEST_TIMESTAMP
            )
        case Target.OFFSET:
            return within(cluster, dict.fromkeys(partitions, reset.number))
        case Target.SHIFT:
            missing = [tp for tp in partitions if tp not in committed]
            if missing:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"{missing[0]} cannot be shifted: the group has committed nothing for it"
                )
            return within(cluster, {tp: committed[tp] + reset.number for tp in partitions})
        case Target.TIMESTAMP:
            found = _all_offsets(cluster, partitions, reset.number)
            late = [tp for tp, offset in found.items() if offset < 0]
            for topic_partition in late:
                warn(f"{topic_partition} has no record from then on: to its end")
            return found | _all_offsets(cluster, late, LATEST_TIMESTAMP)
        case Target.PLAN:
            raise AssertionError("a plan has no targets to find")


def _all_offsets(
    cluster: BlockingCluster, partitions: Collection[TopicPartition], question: int
) -> dict[TopicPartition, int]:
    answers = cluster.run(list_offsets(cluster.routing, dict.fromkeys(partitions, question)))
    found: dict[TopicPartition, int] = {}
    for topic_partition, answer in answers.items():
        if isinstance(answer, KafkaError):
            raise answer
        found[topic_partition] = answer.offset
    return found


def within(cluster: BlockingCluster, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Offsets that their partitions have; what lies before or behind is moved to the nearer end, with a word."""
    starts = _all_offsets(cluster, wanted, EARLIEST_TIMESTAMP)
    ends = _all_offsets(cluster, wanted, LATEST_TIMESTAMP)
    inside: dict[TopicPartition, int] = {}
    for topic_partition, offset in sorted(wanted.items()):
        nearest = min(max(offset, starts[topic_partition]), ends[topic_partition])
        if nearest != offset:
            side = "before the first" if offset < nearest else "behind the last"
            warn(f"{topic_partition}: offset {offset} is {side}: {nearest} is taken")
        inside[topic_partition] = nearest
    return inside
