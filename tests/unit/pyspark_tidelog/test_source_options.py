"""Options: the connector's names, defaults and precedence, and a clear error for everything else."""

import json
import string
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amount import examples

from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.options import (
    COLUMNS,
    EARLIEST,
    LATEST,
    SourceOptions,
    TimestampStrategy,
    parse_offsets_json,
    parse_options,
)
from tidelog.model.identifiers import TopicPartition

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "flights"}


def parse(streaming: bool | None = False, **options: str) -> SourceOptions:
    return parse_options(BASE | options, streaming=streaming)


def refusal(streaming: bool | None = False, **options: str) -> str:
    with pytest.raises(OptionError) as caught:
        parse(streaming, **options)
    return str(caught.value)


@pytest.mark.row("R38")
def test_a_batch_read_is_everything_unless_told_otherwise() -> None:
    """Without further options a batch goes from the earliest to the latest offset, all columns but headers."""
    options = parse()
    assert options.starting.everywhere == EARLIEST
    assert options.ending.everywhere == LATEST
    assert options.columns == COLUMNS
    assert options.fail_on_data_loss
    assert options.group is None


def test_a_stream_starts_at_the_end() -> None:
    """As the official connector's streams do."""
    assert parse(streaming=True).starting.everywhere == LATEST


def test_names_have_no_case() -> None:
    """Spark hands names over in lower case or as they were typed; both are one option."""
    options = parse_options(
        {"KAFKA.bootstrap.SERVERS": "a:1", "SUBSCRIBE": "t", "includeheaders": "TRUE", "MINPARTITIONS": "7"},
        streaming=False,
    )
    assert options.bootstrap == "a:1"
    assert options.include_headers
    assert options.partitions_min == 7


def test_exactly_one_subscription() -> None:
    """None, or two of the three, is an error that names them."""
    with pytest.raises(OptionError, match="exactly one of them; none of them is set"):
        parse_options({"kafka.bootstrap.servers": "a:1"}, streaming=False)
    assert "assign and subscribe are set" in refusal(assign='{"t": [0]}')


def test_brokers_must_be_named() -> None:
    """The missing option is named with its form."""
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing: give the brokers as host:port"):
        parse_options({"subscribe": "t"}, streaming=False)


def test_subscriptions_of_each_kind() -> None:
    """Lists are split and freed of blanks and repeats; assignments are sorted."""
    brokers = {"kafka.bootstrap.servers": "a:1"}
    listed = parse_options(brokers | {"subscribe": " b, a,b "}, streaming=False).subscription
    assert listed.topics == ("b", "a")
    assigned = parse_options(brokers | {"assign": '{"t": [1, 0], "s": [2]}'}, streaming=False).subscription
    assert assigned.partitions == (TopicPartition("s", 2), TopicPartition("t", 0), TopicPartition("t", 1))
    pattern = parse_options(brokers | {"subscribePattern": "fl.*s"}, streaming=False).subscription
    assert pattern.pattern == "fl.*s"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("subscribe", "", "names no topic"),
        ("subscribe", "a b", "a topic that cannot exist"),
        ("subscribePattern", "(", "is not a regular expression"),
        ("subscribePattern", " ", "is empty"),
        ("assign", "t", "is not JSON"),
        ("assign", "[]", "give a JSON object"),
        ("assign", "{}", "names no partition"),
        ("assign", '{"t": 0}', "give a list of partitions"),
        ("assign", '{"t": [true]}', "give a list of partitions"),
        ("assign", '{"t": [-1]}', "give a list of partitions"),
    ],
)
def test_bad_subscriptions(name: str, value: str, words: str) -> None:
    """Each mistake is told with the option's name and the right form."""
    with pytest.raises(OptionError, match=words) as caught:
        parse_options({"kafka.bootstrap.servers": "a:1", name: value}, streaming=False)
    assert caught.value.option == name


def test_timestamps_come_before_offsets() -> None:
    """startingTimestamp, then startingOffsetsByTimestamp, then startingOffsets; the same for the end."""
    each, offsets = '{"flights": {"0": 5}}', '{"flights": {"0": 7}}'
    all_three = {"startingTimestamp": "1000", "startingOffsetsByTimestamp": each, "startingOffsets": offsets}
    first = parse(**all_three).starting
    assert (first.everywhere, first.by_timestamp) == (1000, True)
    del all_three["startingTimestamp"]
    second = parse(**all_three).starting
    assert (dict(second.each), second.by_timestamp) == ({TopicPartition("flights", 0): 5}, True)
    third = parse(startingOffsets=offsets).starting
    assert (dict(third.each), third.by_timestamp) == ({TopicPartition("flights", 0): 7}, False)
    end = parse(endingTimestamp="9", endingOffsetsByTimestamp=each, endingOffsets=offsets).ending
    assert (end.option, end.everywhere, end.by_timestamp) == ("endingTimestamp", 9, True)


def test_offsets_in_json_know_both_ends() -> None:
    """-2 is earliest and -1 latest, where each makes sense."""
    starting = parse(True, startingOffsets='{"flights": {"0": -2, "1": -1, "2": 23}}').starting
    assert list(starting.each.values()) == [EARLIEST, LATEST, 23]
    assert "cannot start at the end" in refusal(startingOffsets='{"flights": {"0": -1}}')
    assert "cannot end at the start" in refusal(endingOffsets='{"flights": {"0": -2}}')


def test_what_a_checkpoint_says_can_be_pasted_as_starting_offsets() -> None:
    """Positions carry marks under "@" names; as an option they are passed over."""
    text = '{"@topicIds": {"flights": "x"}, "flights": {"0": 4}}'
    assert dict(parse(startingOffsets=text).starting.each) == {TopicPartition("flights", 0): 4}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "latest"}, "a batch read would be empty"),
        ({"startingOffsets": "newest"}, "give earliest, latest, or JSON"),
        ({"startingOffsets": '{"flights": {"0": -3}}'}, "says -3 for flights-0"),
        ({"startingOffsets": '{"flights": {"0": 1.5}}'}, "give a whole number"),
        ({"startingOffsets": '{"flights": {"zero": 1}}'}, "names partition 'zero'"),
        ({"startingOffsets": '{"flights": 1}'}, "says 1 for topic 'flights'"),
        ({"startingOffsets": '{"fl ights": {"0": 1}}'}, "a topic that cannot exist"),
        ({"startingTimestamp": "yesterday"}, "give milliseconds since 1970"),
        ({"startingOffsetsByTimestamp": '{"flights": {"0": -1}}'}, "give milliseconds since 1970"),
        ({"startingOffsetsByTimestampStrategy": "nearest"}, "it can be error or latest"),
        ({"endingOffsets": "earliest"}, "nothing would be read"),
        ({"failOnDataLoss": "maybe"}, "it can be true or false"),
        ({"kafka.bootstrap.servers": "localhost:99999"}, "the port must be a number from 1 to 65535"),
        ({"kafka.max.partition.fetch.bytes": "3000000000"}, "no more than 2147483647"),
        ({"kafka.request.timeout.ms": "99999999999999"}, "no more than 2147483647"),
        ({"maxOffsetsPerTrigger": "9223372036854775808"}, "no more than 9223372036854775807"),
        ({"minPartitions": "0"}, "give a whole number above 0"),
        ({"maxOffsetsPerTrigger": "-5"}, "give a whole number above 0"),
        ({"maxRecordsPerPartition": "9" * 5000}, "give a whole number above 0"),
        ({"maxTriggerDelay": "soon"}, "give a duration such as 15m"),
        ({"columns": "key,vlaue"}, "names 'vlaue'; there are key, value"),
        ({"columns": "key,key"}, "names key twice"),
        ({"progressGroup": " "}, "is empty"),
        ({"kafka.isolation.level": "serializable"}, "it can be read_uncommitted or read_committed"),
        ({"kafka.security.protocol": "SASL_SSL"}, "sasl.mechanism GSSAPI is not supported"),
        ({"kafka.security.protocol": "SECURE"}, "use one of PLAINTEXT, SSL"),
        ({"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}, "user and password are missing"),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "x.jks"}, "type=PEM"),
        ({"kafka.ssl.trustore.location": "x"}, "did you mean kafka.ssl.truststore.location"),
        ({"kafka.sasl.login.callback.handler.class": "x"}, "no Java client"),
        ({"kafka.auto.offset.reset": "earliest"}, "set startingOffsets"),
        ({"kafka.key.deserializer": "x"}, "keys are always binary"),
        ({"kafka.enable.auto.commit": "true"}, "set progressGroup to publish progress"),
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"kafka.max.poll.record": "5"}, "did you mean kafka.max.poll.records"),
    ],
)
def test_bad_values_say_what_to_do(options: dict[str, str], words: str) -> None:
    """Every refusal names the option, what was found and what would be right."""
    message = refusal(**options)
    assert words in message
    assert next(iter(options)).lower() in message.lower()


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_streams_have_no_end(name: str) -> None:
    """The ending options are for batch reads."""
    assert "ends a batch read only" in refusal(True, **{name: "latest"})


def test_what_only_one_kind_of_read_refuses_passes_while_the_kind_is_unknown() -> None:
    """`load()` checks options before Spark says whether it is a stream."""
    assert parse(None, startingOffsets="latest").starting.everywhere == LATEST
    assert parse(None, endingOffsets="latest").ending.everywhere == LATEST


def test_settings_of_the_java_consumer_need_no_edit() -> None:
    """Tuning for the connector is accepted; the fetch size has its effect."""
    options = parse(
        **{
            "kafka.max.poll.records": "10000",
            "kafka.max.partition.fetch.bytes": "1048576",
            "fetchOffset.numRetries": "5",
        }
    )
    assert options.fetch_bytes == 1 << 20


def test_unknown_names_that_resemble_nothing_are_a_warning() -> None:
    """The connector ignores them; a shared set of options still works here."""
    with pytest.warns(UserWarning, match="zebra is not known"):
        parse(zebra="1")


def test_columns_are_chosen_in_any_order() -> None:
    """`columns` prunes; headers can be asked for by either option."""
    assert parse(columns="value, OFFSET").columns == ("value", "offset")
    assert parse(columns="value", includeHeaders="true").columns == ("value", "headers")
    assert parse(columns="headers").include_headers
    assert parse(includeHeaders="true").columns == (*COLUMNS, "headers")


def test_the_largest_number_is_no_limit() -> None:
    """Jobs for the official connector say so: Java's Long.MAX_VALUE."""
    assert parse(True, maxOffsetsPerTrigger=str(2**63 - 1)).offsets_max_per_trigger == 2**63 - 1


def test_groups_for_progress() -> None:
    """Progress goes where it was asked for by name; the groups of the connector's options may be an application's that
    stands still, whose offsets are not to be overwritten."""
    assert parse(progressGroup="g").group == "g"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse(**{"kafka.group.id": "theirs"}).group is None
        assert parse(groupIdPrefix="jobs").group is None


def test_durations() -> None:
    """Spark's short forms; a bare number is milliseconds."""
    assert parse(maxTriggerDelay="2m").trigger_delay_ms_max == 120_000
    assert parse(maxTriggerDelay="1500").trigger_delay_ms_max == 1500
    assert parse().trigger_delay_ms_max == 900_000


def test_strategy() -> None:
    """What happens where no record is as late as the starting timestamp."""
    assert parse(startingOffsetsByTimestampStrategy="LATEST").timestamp_strategy is TimestampStrategy.LATEST


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["t", "0", "1", "@x", ""]), inner, max_size=3)
    ),
    max_leaves=8,
)
VALUES = st.one_of(
    st.text(max_size=30),
    st.text(string.printable, max_size=30),
    JSON.map(json.dumps),
    st.sampled_from(["earliest", "latest", "true", "1", "-1", '{"t": {"0": 1}}', '{"t": [0]}']),
)
NAMES = st.sampled_from(
    [
        *[
            "assign",
            "subscribe",
            "subscribePattern",
            "startingTimestamp",
            "startingOffsetsByTimestamp",
            "startingOffsets",
        ],
        *["startingOffsetsByTimestampStrategy", "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"],
        *["failOnDataLoss", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions"],
        *["maxRecordsPerPartition", "includeHeaders", "progressGroup", "columns", "batchRows"],
        *["kafka.isolation.level", "kafka.bootstrap.servers", "kafka.max.partition.fetch.bytes"],
    ]
)


@settings(max_examples=examples(2000), deadline=None)
@given(st.dictionaries(NAMES, VALUES, max_size=4), st.sampled_from([True, False, None]), st.booleans())
def test_any_options_parse_or_are_refused_by_name(options: dict[str, str], streaming: bool | None, based: bool) -> None:
    """No value makes the parser fail in another way than by saying what is wrong."""
    try:
        parsed = parse_options((BASE if based else {}) | options, streaming=streaming)
    except OptionError:
        return
    assert parsed.bootstrap
    assert len(set(parsed.columns)) == len(parsed.columns)


@settings(max_examples=examples(2000), deadline=None)
@given(VALUES)
def test_any_offsets_json_parses_or_is_refused(text: str) -> None:
    """Offsets that come out are whole numbers of named partitions."""
    try:
        offsets = parse_offsets_json("startingOffsets", text)
    except OptionError:
        return
    assert all(partition.partition >= 0 and isinstance(offset, int) for partition, offset in offsets.items())
