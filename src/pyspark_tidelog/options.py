"""The options of `format("tidelog")`: the official Kafka connector's names and meanings, read once and checked whole.

Spark hands options over as strings, their names without regard to case. They become one `SourceOptions` here;
whatever is wrong with them is said here too, with the option's name, what was found and what would be right, before
anything is read. Source of names, defaults and precedence: Spark's "Structured Streaming + Kafka Integration Guide".
"""

import difflib
import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, Self

from pyspark_tidelog import kafka_settings
from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.security_options import parse_security
from tidelog.client.addresses import parse_bootstrap
from tidelog.client.errors import InvalidAddress
from tidelog.model.identifiers import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from tidelog.model.topics import invalid_topic_name_reason

_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_DIGITS_MAX: Final = 19

EARLIEST: Final = EARLIEST_TIMESTAMP
"""-2 in the JSON of offsets: the first offset that the partition has."""
LATEST: Final = LATEST_TIMESTAMP
"""-1 in the JSON of offsets: the end of the partition."""

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS: Final = "headers"

KAFKA_PREFIX: Final = "kafka."
STAGING_PREFIX_DEFAULT: Final = "tidelog-sink-"
"""How the names of the sink's private topics begin."""
FETCH_BYTES_DEFAULT: Final = 8 << 20
"""Bytes of one fetch; the connector's 1 MiB binds it to round trips, and this much is decoded while the next is
fetched."""
BATCH_ROWS_DEFAULT: Final = 50_000
"""Rows of one Arrow batch: below 10,000 the cost of a batch shows, above this the JVM gains nothing more."""


class TimestampStrategy(Enum):
    """What to do where no record has the timestamp asked for, or a later one."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which partitions are read: exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    """`subscribe`: all partitions of these topics, new ones included."""
    pattern: str | None = None
    """`subscribePattern`: all partitions of the topics whose whole name matches this regular expression."""
    partitions: tuple[TopicPartition, ...] = ()
    """`assign`: these partitions."""

    def leaves_out(self, topic: str) -> bool:
        """Whether a topic that the pattern matches is not meant: the sink's private ones hold what attempts at a write
        have staged, many times and of tasks that failed. Only a pattern that begins as their names do finds them."""
        pattern = self.pattern
        return (
            pattern is not None
            and topic.startswith(STAGING_PREFIX_DEFAULT)
            and not pattern.startswith(STAGING_PREFIX_DEFAULT)
        )

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"subscribePattern {self.pattern}"
        if self.partitions:
            return "assign " + ", ".join(map(str, self.partitions))
        return "subscribe " + ", ".join(self.topics)


@dataclass(frozen=True, slots=True)
class OffsetsAt:
    """Where to start or end: one rule for all partitions, or a place for each."""

    option: str
    """The option that said so, for errors."""
    everywhere: int | None = None
    """`EARLIEST` or `LATEST`, or with `by_timestamp` a timestamp in ms; None when each partition has its own."""
    each: Mapping[TopicPartition, int] = field(default_factory=dict)
    """An offset, `EARLIEST` or `LATEST`; with `by_timestamp` a timestamp in ms."""
    by_timestamp: bool = False


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Everything that the options of one `load()` say; immutable and cheap to pickle."""

    bootstrap: str
    """Empty where files are read only (`segments`)."""
    subscription: Subscription
    starting: OffsetsAt
    ending: OffsetsAt
    timestamp_strategy: TimestampStrategy = TimestampStrategy.ERROR
    fail_on_data_loss: bool = True
    columns: tuple[str, ...] = COLUMNS
    """In the order of the DataFrame's columns."""
    has_own_columns: bool = False
    """Whether the option `columns` says them."""
    offsets_max_per_trigger: int | None = None
    offsets_min_per_trigger: int | None = None
    trigger_delay_ms_max: int = 15 * 60 * 1000
    """How long `minOffsetsPerTrigger` may hold a batch back, in ms."""
    partitions_min: int | None = None
    records_max_per_partition: int | None = None
    group: str | None = None
    """The consumer group that progress is published to; None publishes nothing."""
    client_id: str = "tidelog-spark"
    read_committed: bool = False
    fetch_bytes: int = FETCH_BYTES_DEFAULT
    batch_rows: int = BATCH_ROWS_DEFAULT
    request_timeout_ms: int = 30_000
    security: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Kafka's client properties of security, name and value, passwords among them."""
    segments: tuple[str, ...] = ()
    """Log directories, or folders with such, whose files are read before brokers are asked; absolute paths."""

    @property
    def place(self) -> str:
        """Where topics are read, for messages."""
        return self.bootstrap or ", ".join(self.segments)

    @property
    def include_headers(self) -> bool:
        return HEADERS in self.columns

    def with_columns(self, columns: tuple[str, ...]) -> Self:
        """The options with the columns of the DataFrame's schema. OptionError where the options say others."""
        if self.has_own_columns and columns != self.columns:
            raise OptionError("columns", f"says {','.join(self.columns)}, and the schema {','.join(columns)}")
        return replace(self, columns=columns)


_OWN: Final = [
    "assign",
    "subscribe",
    "subscribePattern",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "progressGroup",
    "columns",
    "batchRows",
    "segments",
]
_WITHOUT_EFFECT: Final = frozenset(
    name.lower()
    for name in [
        "groupIdPrefix",
        "kafkaConsumer.pollTimeoutMs",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "kafka.consumer.cache.capacity",
        "kafka.consumer.cache.timeout",
        "kafka.consumer.cache.evictorThreadRunInterval",
    ]
)
"""The connector's, about its Java consumers and their groups; there are none here."""


def parse_options(given: Mapping[str, str], *, streaming: bool | None) -> SourceOptions:
    """The meaning of `given`; raises `OptionError` for the first thing that is wrong.

    Batch reads start at the earliest offset and end at the latest unless told otherwise; streams start at the latest.
    `streaming` None: not known yet, what is wrong for one of the two only is let pass.
    """
    options = {name.lower(): value for name, value in given.items()}
    _check_names(given)
    kafka = {name.removeprefix(KAFKA_PREFIX): value for name, value in options.items() if name.startswith(KAFKA_PREFIX)}
    segments = _parse_segments(options)
    bootstrap = parse_brokers(kafka, required=bool(streaming or not segments))
    if streaming:
        for name in ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"):
            if name.lower() in options:
                raise OptionError(
                    name, "ends a batch read only; a stream runs until it is stopped, or use availableNow"
                )
    subscription = _parse_subscription(options)
    return SourceOptions(
        bootstrap=bootstrap,
        subscription=subscription,
        starting=_parse_starting(options, streaming=streaming),
        ending=_parse_ending(options),
        timestamp_strategy=_parse_strategy(options),
        fail_on_data_loss=_parse_boolean(options, "failOnDataLoss", default=True),
        columns=_parse_columns(options),
        has_own_columns="columns" in options,
        offsets_max_per_trigger=_parse_positive(options, "maxOffsetsPerTrigger"),
        offsets_min_per_trigger=_parse_positive(options, "minOffsetsPerTrigger"),
        trigger_delay_ms_max=_parse_duration_ms(options, "maxTriggerDelay", default=15 * 60 * 1000),
        partitions_min=_parse_positive(options, "minPartitions"),
        records_max_per_partition=_parse_positive(options, "maxRecordsPerPartition"),
        group=_parse_group(options),
        client_id=kafka.get("client.id", "tidelog-spark"),
        read_committed=_parse_isolation(kafka),
        fetch_bytes=_parse_positive(options, "kafka.max.partition.fetch.bytes", most=_INT_MAX) or FETCH_BYTES_DEFAULT,
        batch_rows=_parse_positive(options, "batchRows") or BATCH_ROWS_DEFAULT,
        request_timeout_ms=_parse_positive(options, "kafka.request.timeout.ms", most=_INT_MAX) or 30_000,
        security=parse_security(kafka),
        segments=segments,
    )


def parse_brokers(kafka: Mapping[str, str], *, required: bool = True) -> str:
    """The brokers' addresses as they are given; empty where there are none, unless they are `required`."""
    name, text = "kafka.bootstrap.servers", kafka.get("bootstrap.servers", "").strip()
    if not text:
        if required:
            raise OptionError(name, "is missing: give the brokers as host:port,host:port,...")
        return ""
    try:
        parse_bootstrap(text)
    except InvalidAddress as error:
        raise OptionError(name, f"is wrong: {error}") from None
    return text


def parse_offsets_json(option: str, text: str) -> dict[TopicPartition, int]:
    """`{"topic": {"0": 23, "1": -1}}` as a flat mapping; keys that start with "@" are this source's own marks and
    skipped.

    Raises `OptionError` where a name, a partition or an offset is none.
    """
    document = _parse_json(option, text, example='{"topic": {"0": 23, "1": -1}}')
    offsets: dict[TopicPartition, int] = {}
    for topic, partitions in document.items():
        if topic.startswith("@"):
            continue
        _check_topic(option, topic)
        if not isinstance(partitions, dict):
            raise OptionError(option, f'says {partitions!r} for topic {topic!r}; give {{"partition": number, ...}}')
        for partition, offset in partitions.items():
            number = _parse_whole(partition)
            if number is None or number >= 2**31:
                raise OptionError(
                    option, f"names partition {partition!r} of topic {topic!r}; partitions are numbers from 0"
                )
            if isinstance(offset, bool) or not isinstance(offset, int) or not -(2**63) <= offset < 2**63:
                raise OptionError(option, f"says {offset!r} for {topic}-{partition}; give a whole number of 64 bits")
            offsets[TopicPartition(topic, number)] = offset
    return offsets


def _check_names(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in _OWN}
    for name, value in given.items():
        lower = name.lower()
        if lower in known or lower in _WITHOUT_EFFECT:
            continue
        if lower.startswith(KAFKA_PREFIX):
            setting = lower.removeprefix(KAFKA_PREFIX)
            if reason := kafka_settings.refusal(setting, value):
                raise OptionError(name, f"cannot be set: {reason}")
            of_kafka = kafka_settings.USED | kafka_settings.ACCEPTED | kafka_settings.SECURITY
            if setting in of_kafka | kafka_settings.SECURITY_ACCEPTED or setting == kafka_settings.LOGIN_HANDLER:
                continue
            candidates = {KAFKA_PREFIX + each: KAFKA_PREFIX + each for each in of_kafka}
        else:
            candidates = known | {"kafka.bootstrap.servers": "kafka.bootstrap.servers"}
        close = difflib.get_close_matches(lower, candidates, n=1, cutoff=0.85)
        if close:
            raise OptionError(name, f"is not an option; did you mean {candidates[close[0]]}?")
        warnings.warn(f"option {name} is not known to format('tidelog') and has no effect", stacklevel=4)


def _parse_subscription(options: Mapping[str, str]) -> Subscription:
    given = [name for name in ("assign", "subscribe", "subscribePattern") if name.lower() in options]
    if len(given) != 1:
        found = "none of them is set" if not given else " and ".join(given) + " are set"
        raise OptionError(
            "subscribe", f"or assign or subscribePattern must say what to read, exactly one of them; {found}"
        )
    name = given[0]
    text = options[name.lower()]
    match name:
        case "subscribe":
            topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
            if not topics:
                raise OptionError(name, "names no topic: give topic,topic,...")
            for topic in topics:
                _check_topic(name, topic)
            return Subscription(topics=topics)
        case "subscribePattern":
            if not text.strip():
                raise OptionError(name, "is empty: give a regular expression that whole topic names match")
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # Python's doubts about a pattern that is legal are not the user's.
                    re.compile(text)
            except (re.error, OverflowError, RecursionError) as error:
                raise OptionError(name, f"{text!r} is not a regular expression: {error}") from None
            return Subscription(pattern=text)
        case _:
            return Subscription(partitions=_parse_assign(text))


def _parse_assign(text: str) -> tuple[TopicPartition, ...]:
    document = _parse_json("assign", text, example='{"topic": [0, 1]}')
    partitions: set[TopicPartition] = set()
    for topic, numbers in document.items():
        _check_topic("assign", topic)
        if not isinstance(numbers, list) or not all(type(number) is int and 0 <= number < 2**31 for number in numbers):
            raise OptionError(
                "assign", f"says {numbers!r} for topic {topic!r}; give a list of partitions, as in [0, 1]"
            )
        partitions.update(TopicPartition(topic, number) for number in numbers)
    if not partitions:
        raise OptionError("assign", 'names no partition: give {"topic": [0, 1], ...}')
    return tuple(sorted(partitions))


def _parse_starting(options: Mapping[str, str], *, streaming: bool | None) -> OffsetsAt:
    by_time = _parse_by_timestamp(options, "startingTimestamp", "startingOffsetsByTimestamp")
    if by_time is not None:
        return by_time
    name = "startingOffsets"
    text = options.get(name.lower(), "latest" if streaming else "earliest").strip()
    match text.lower():
        case "earliest":
            return OffsetsAt(name, everywhere=EARLIEST)
        case "latest":
            if streaming is False:
                raise OptionError(
                    name, "is latest: a batch read would be empty; use earliest or offsets, or readStream"
                )
            return OffsetsAt(name, everywhere=LATEST)
    each = _parse_each_offset(name, text)
    if streaming is False and (at_end := [str(partition) for partition, offset in each.items() if offset == LATEST]):
        raise OptionError(name, f"says -1 (latest) for {', '.join(at_end)}: a batch read cannot start at the end")
    return OffsetsAt(name, each=each)


def _parse_ending(options: Mapping[str, str]) -> OffsetsAt:
    by_time = _parse_by_timestamp(options, "endingTimestamp", "endingOffsetsByTimestamp")
    if by_time is not None:
        return by_time
    name = "endingOffsets"
    text = options.get(name.lower(), "latest").strip()
    match text.lower():
        case "latest":
            return OffsetsAt(name, everywhere=LATEST)
        case "earliest":
            raise OptionError(name, "is earliest: nothing would be read; use latest or offsets")
    each = _parse_each_offset(name, text)
    if at_start := [str(partition) for partition, offset in each.items() if offset == EARLIEST]:
        raise OptionError(name, f"says -2 (earliest) for {', '.join(at_start)}: a read cannot end at the start")
    return OffsetsAt(name, each=each)


def _parse_each_offset(option: str, text: str) -> dict[TopicPartition, int]:
    if not text.startswith("{"):
        raise OptionError(
            option, f'is {text!r}; give earliest, latest, or JSON as in {{"topic": {{"0": 23, "1": -1}}}}'
        )
    each = parse_offsets_json(option, text)
    for partition, offset in each.items():
        if offset < EARLIEST:
            raise OptionError(option, f"says {offset} for {partition}; an offset is 0 or more, -1 latest, -2 earliest")
    return each


def _parse_by_timestamp(options: Mapping[str, str], everywhere: str, each: str) -> OffsetsAt | None:
    """Timestamps come before offsets, and the one for all partitions before those for each."""
    if (text := options.get(everywhere.lower())) is not None:
        return OffsetsAt(everywhere, everywhere=_parse_timestamp(everywhere, text), by_timestamp=True)
    if (text := options.get(each.lower())) is None:
        return None
    timestamps = parse_offsets_json(each, text)
    for partition, timestamp in timestamps.items():
        if timestamp < 0:
            raise OptionError(each, f"says {timestamp} for {partition}; give milliseconds since 1970, UTC")
    return OffsetsAt(each, each=timestamps, by_timestamp=True)


def _parse_timestamp(option: str, text: str) -> int:
    timestamp = _parse_whole(text.strip())
    if timestamp is None:
        raise OptionError(option, f"is {text!r}; give milliseconds since 1970, UTC")
    return timestamp


def _parse_strategy(options: Mapping[str, str]) -> TimestampStrategy:
    name = "startingOffsetsByTimestampStrategy"
    text = options.get(name.lower(), "error").strip().lower()
    try:
        return TimestampStrategy(text)
    except ValueError:
        raise OptionError(name, f"is {text!r}; it can be error or latest") from None


def _parse_columns(options: Mapping[str, str]) -> tuple[str, ...]:
    headers = _parse_boolean(options, "includeHeaders", default=False)
    text = options.get("columns")
    if text is None:
        return (*COLUMNS, HEADERS) if headers else COLUMNS
    known = {name.lower(): name for name in (*COLUMNS, HEADERS)}
    columns: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        if part.lower() not in known:
            raise OptionError("columns", f"names {part!r}; there are {', '.join(known.values())}")
        if known[part.lower()] in columns:
            raise OptionError("columns", f"names {part} twice")
        columns.append(known[part.lower()])
    if headers and HEADERS not in columns:
        columns.append(HEADERS)
    return tuple(columns)


def _parse_segments(options: Mapping[str, str]) -> tuple[str, ...]:
    if (text := options.get("segments")) is None:
        return ()
    paths = [part.strip() for part in text.split(",") if part.strip()]
    if not paths:
        raise OptionError("segments", "is empty: give the folders of brokers' logs, DIR,DIR,...")
    for path in paths:
        if not path.startswith("/"):
            raise OptionError("segments", f"names {path!r}; give absolute paths, which are the same on all executors")
    return tuple(paths)


def _parse_group(options: Mapping[str, str]) -> str | None:
    """The group of `progressGroup`.

    The connector's `kafka.group.id` and `groupIdPrefix` name groups too, but nothing is ever committed to those: a job
    that moves here must not overwrite the offsets of an application that stands still.
    """
    if (group := options.get("progressgroup")) is None:
        return None
    if not group.strip():
        raise OptionError("progressGroup", "is empty; leave it out to publish no progress")
    return group.strip()


def _parse_isolation(kafka: Mapping[str, str]) -> bool:
    match kafka.get("isolation.level", "read_uncommitted").strip().lower():
        case "read_uncommitted":
            return False
        case "read_committed":
            return True
        case other:
            raise OptionError("kafka.isolation.level", f"is {other!r}; it can be read_uncommitted or read_committed")


def _parse_boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    match options.get(name.lower(), str(default)).strip().lower():
        case "true":
            return True
        case "false":
            return False
        case other:
            raise OptionError(name, f"is {other!r}; it can be true or false")


def _parse_positive(options: Mapping[str, str], name: str, *, most: int = _LONG_MAX) -> int | None:
    if (text := options.get(name.lower())) is None:
        return None
    number = _parse_whole(text.strip())
    if not number or number > most:
        raise OptionError(name, f"is {text!r}; give a whole number above 0, and no more than {most}")
    return number


def _parse_whole(text: str) -> int | None:
    """The number that ASCII digits stand for, up to 64 bits; None for anything else."""
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        return None
    return number if (number := int(text)) <= _LONG_MAX else None


_DURATION: Final = re.compile(r"(\d{1,12})\s*(ms|s|m|min|h|d)?", re.ASCII)
_UNIT_MS: Final = {None: 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def _parse_duration_ms(options: Mapping[str, str], name: str, *, default: int) -> int:
    """Spark's short form of durations: `15m`, `30s`, `500ms`; a bare number is milliseconds."""
    if (text := options.get(name.lower())) is None:
        return default
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise OptionError(name, f"is {text!r}; give a duration such as 15m, 30s or 500ms")
    return int(found[1]) * _UNIT_MS[found[2]]


def _check_topic(option: str, topic: str) -> None:
    if reason := invalid_topic_name_reason(topic):
        raise OptionError(option, f"names a topic that cannot exist: {reason}")


def _parse_json(option: str, text: str, *, example: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(option, f"is not JSON ({error}); give it as in {example}") from None
    if not isinstance(document, dict):
        raise OptionError(option, f"is {text!r}; give a JSON object as in {example}")
    return document
