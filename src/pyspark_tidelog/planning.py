"""From options to offsets: asks the cluster which partitions there are and where reading starts and ends.

Every question about many partitions is one request a leader. What the options promise and the cluster can't keep is
told here, before a task is started: topics that don't exist, offsets that are gone or not there yet.
"""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pyspark_tidelog.errors import DataLoss, OptionError, UnknownTopic
from pyspark_tidelog.filters import Pushed
from pyspark_tidelog.offsets import OffsetRange, Position
from pyspark_tidelog.options import EARLIEST, LATEST, OffsetsAt, SourceOptions, Subscription, TimestampStrategy
from tidelog.client.blocking import BlockingCluster
from tidelog.client.fetching import READ_COMMITTED, READ_UNCOMMITTED
from tidelog.client.offsets import OffsetFound
from tidelog.client.security import ClientSecurity
from tidelog.client.views import TopicView
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicPartition, format_topic_id

logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Partitions:
    """What a subscription selects in the cluster as it is now."""

    partitions: tuple[TopicPartition, ...]
    """Sorted."""
    topic_ids: Mapping[str, str]
    """[topic] -> id in Kafka's 22 characters; a topic without an id (old broker) is left out."""
    missing: tuple[str, ...] = ()
    """Topics that were asked for by name and don't exist."""


class Catalog(Protocol):
    """What a plan asks: a cluster's brokers, or its files (`segments.catalog`)."""

    def topics(self, topics: Iterable[str] | re.Pattern[str]) -> Mapping[str, TopicView]:
        """As `BlockingCluster.topics`."""
        ...

    def offsets(
        self, timestamps: Mapping[TopicPartition, int], *, isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, OffsetFound]:
        """As `BlockingCluster.offsets`."""
        ...


def open_cluster(options: SourceOptions) -> BlockingCluster:
    """A client for these options; connects when first asked something."""
    timeout_s = options.request_timeout_ms / 1000
    return BlockingCluster(
        options.bootstrap,
        client_id=options.client_id,
        call_timeout_s=timeout_s,
        operation_timeout_s=2 * timeout_s,
        security=ClientSecurity.from_properties(dict(options.security)),
    )


def subscribed_partitions(cluster: Catalog, subscription: Subscription) -> Partitions:
    """The partitions of a subscription; topics asked for by name that don't exist are reported, not raised."""
    if subscription.pattern is not None:
        matching = cluster.topics(re.compile(subscription.pattern))
        views: Mapping[str, TopicView] = {
            name: view for name, view in matching.items() if not subscription.leaves_out(name)
        }
        missing: tuple[str, ...] = ()
    else:
        names = subscription.topics or tuple(dict.fromkeys(each.topic for each in subscription.partitions))
        views, missing = _existing_topics(cluster, names)
    partitions = [TopicPartition(name, number) for name, view in views.items() for number in view.partitions]
    if subscription.partitions:
        assigned = {each for each in subscription.partitions if each.topic not in missing}
        if unknown := sorted(assigned.difference(partitions)):
            raise UnknownTopic(f"option assign names partitions that do not exist: {', '.join(map(str, unknown))}")
        partitions = list(assigned)
    ids = {name: format_topic_id(view.topic_id) for name, view in views.items() if view.topic_id != ZERO_TOPIC_ID}
    return Partitions(tuple(sorted(partitions)), ids, missing)


def required_partitions(cluster: Catalog, options: SourceOptions) -> Partitions:
    """As `subscribed_partitions`, for the start of a read: raises `UnknownTopic` where a topic asked for is missing."""
    found = subscribed_partitions(cluster, options.subscription)
    if found.missing:
        names = ", ".join(found.missing)
        raise UnknownTopic(
            f"there is no topic {names} at {options.place}; create it, or correct {options.subscription}"
        )
    if not found.partitions:
        logger.warning("no topic at %s matches %s", options.place, options.subscription)
    return found


def plan_batch(cluster: Catalog, options: SourceOptions, pushed: Pushed | None = None) -> list[OffsetRange]:
    """What a batch read reads, a range a partition, empty ones and those that no filter lets pass left out."""
    found = required_partitions(cluster, options)
    starts = starting_offsets(cluster, options, found)
    ends = ending_offsets(cluster, options, found)
    ranges = []
    for each in found.partitions:
        start, end = starts[each], ends[each]
        if start > end:
            raise OptionError(
                options.ending.option,
                f"ends {each} at offset {end}, before {options.starting.option} starts it at {start}",
            )
        if start < end:
            topic_id = found.topic_ids.get(each.topic, "")
            ranges.append(OffsetRange(each.topic, each.partition, start, end, topic_id))
    if pushed is None:
        return ranges
    since: dict[TopicPartition, int] = {}
    if pushed.since_ms is not None:
        passing = [each.topic_partition for each in ranges if pushed.passes(each.topic_partition)]
        since = _ask(cluster, options, dict.fromkeys(passing, pushed.since_ms))
    return pushed.narrowed(ranges, since)


def initial_position(cluster: Catalog, options: SourceOptions) -> Position:
    """Where a new stream starts."""
    found = required_partitions(cluster, options)
    return Position(starting_offsets(cluster, options, found), found.topic_ids, initial=True)


def latest_offsets(
    cluster: Catalog, options: SourceOptions, partitions: tuple[TopicPartition, ...]
) -> dict[TopicPartition, int]:
    """The end of each partition: its high watermark, or the last stable offset where committed records are read."""
    return _ask(cluster, options, dict.fromkeys(partitions, LATEST))


def earliest_offsets(
    cluster: Catalog, options: SourceOptions, partitions: tuple[TopicPartition, ...]
) -> dict[TopicPartition, int]:
    """The first offset that each partition has."""
    return _ask(cluster, options, dict.fromkeys(partitions, EARLIEST))


def high_watermarks(cluster: Catalog, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """The end of each partition, open transactions included."""
    found = cluster.offsets(dict.fromkeys(partitions, LATEST), isolation=READ_UNCOMMITTED)
    return {each: end.offset for each, end in found.items()}


def starting_offsets(cluster: Catalog, options: SourceOptions, found: Partitions) -> dict[TopicPartition, int]:
    """The first offset to read of each partition; raises `OptionError` or `DataLoss`."""
    at = options.starting
    offsets = _resolve(cluster, options, at, found)
    if late := sorted(each for each, offset in offsets.items() if offset < 0):
        if options.timestamp_strategy is TimestampStrategy.ERROR:
            raise OptionError(
                at.option,
                f"is after the last record of {', '.join(map(str, late))}; set"
                " startingOffsetsByTimestampStrategy to latest to start there at the end",
            )
        offsets |= _ask(cluster, options, dict.fromkeys(late, LATEST))
    return offsets


def ending_offsets(cluster: Catalog, options: SourceOptions, found: Partitions) -> dict[TopicPartition, int]:
    """Where each partition's read ends, exclusive; partitions without a record that late end at their end."""
    offsets = _resolve(cluster, options, options.ending, found)
    if late := [each for each, offset in offsets.items() if offset < 0]:
        offsets |= _ask(cluster, options, dict.fromkeys(late, LATEST))
    return offsets


def _resolve(cluster: Catalog, options: SourceOptions, at: OffsetsAt, found: Partitions) -> dict[TopicPartition, int]:
    """The offsets that an option stands for; -1 where no record is as late as its timestamp."""
    if at.everywhere is not None:
        return _ask(cluster, options, dict.fromkeys(found.partitions, at.everywhere))
    if absent := sorted(set(found.partitions).difference(at.each)):
        raise OptionError(at.option, f"must name every partition that is read; it lacks {', '.join(map(str, absent))}")
    if unknown := sorted(set(at.each).difference(found.partitions)):
        raise OptionError(
            at.option, f"names {', '.join(map(str, unknown))}, which {options.subscription} does not select"
        )
    if at.by_timestamp:
        return _ask(cluster, options, at.each)
    asked = {each: offset for each, offset in at.each.items() if offset < 0}
    given = {each: offset for each, offset in at.each.items() if offset >= 0}
    return _ask(cluster, options, asked) | _within_log(cluster, options, at.option, given)


def _within_log(
    cluster: Catalog, options: SourceOptions, option: str, given: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Offsets from the options, which must lie in the log, or are moved into it if loss is to be tolerated."""
    earliest = _ask(cluster, options, dict.fromkeys(given, EARLIEST))
    latest = _ask(cluster, options, dict.fromkeys(given, LATEST))
    inside: dict[TopicPartition, int] = {}
    for each, offset in given.items():
        first, last = earliest[each], latest[each]
        if not first <= offset <= last:
            what = f"option {option} says offset {offset} for {each}, which has the offsets from {first} to {last}."
            if options.fail_on_data_loss:
                nearest = "first" if offset < first else "end"
                raise DataLoss(what, instead=f"the read then uses its {nearest}, {first if offset < first else last}")
            logger.warning("%s The nearest is used.", what)
        inside[each] = min(max(offset, first), last)
    return inside


def _ask(
    cluster: Catalog, options: SourceOptions, questions: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    if not questions:
        return {}
    isolation = READ_COMMITTED if options.read_committed else READ_UNCOMMITTED
    return {each: found.offset for each, found in cluster.offsets(questions, isolation=isolation).items()}


def _existing_topics(cluster: Catalog, names: tuple[str, ...]) -> tuple[Mapping[str, TopicView], tuple[str, ...]]:
    """Those of the topics that exist, and the names of those that don't."""
    views: dict[str, TopicView] = {}
    missing: list[str] = []
    try:
        views.update(cluster.topics(names))
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        # One of several is missing; which of them is found out one by one, since that is rare.
        for name in names:
            try:
                views.update(cluster.topics([name]))
            except KafkaError as single:
                if single.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                missing.append(name)
    return views, tuple(missing)
