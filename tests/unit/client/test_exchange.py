"""One connection's conversation as bytes: no socket, both sides played here."""

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amount import examples

from tidelog.client.errors import InvalidResponse, UnsupportedByBroker
from tidelog.client.exchange import FRAME_SIZE_MAX, ByVersion, Exchange
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import codec, framing, messages
from tidelog.protocol.apis import ApiKey


def reply(request: bytes, message: Any, version: int | None = None) -> bytes:
    """The frame that answers a request, without its size."""
    key, asked_version, correlation_id = struct.unpack_from(">hhi", request, 4)
    chunks = framing.encode_response(
        ApiKey(key), asked_version if version is None else version, correlation_id, message
    )
    return b"".join(chunks)[4:]  # type: ignore[arg-type]  # No files here.


def api_versions(ranges: dict[int, tuple[int, int]], error: ErrorCode = ErrorCode.NONE) -> Any:
    """An ApiVersions response."""
    kind = messages.ApiVersionsResponse
    entries = [kind.ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in ranges.items()]
    return kind(error_code=error, api_keys=entries)


def settled(ranges: dict[int, tuple[int, int]]) -> Exchange:
    """A conversation whose versions are negotiated."""
    exchange = Exchange("test", "peer:1")
    assert exchange.hello_answered(reply(exchange.hello(), api_versions(ranges))) is None
    return exchange


def asked_version(request: bytes) -> int:
    """The version in a request's header."""
    return int(struct.unpack_from(">h", request, 6)[0])


def test_opens_with_the_newest_api_versions_and_settles() -> None:
    """The first request is ApiVersions with our name; its answer is what the broker serves."""
    exchange = Exchange("test", "peer:1")
    hello = exchange.hello()
    assert asked_version(hello) == 4
    header, body = framing.decode_request_header(memoryview(hello)[4:])
    request = codec.decode_exactly(messages.ApiVersionsRequest, 4, hello[4 + body :])
    assert header.client_id == "test"
    assert request.client_software_name == "tidelog"
    assert exchange.hello_answered(reply(hello, api_versions({3: (0, 12)}))) is None
    assert exchange.versions == {3: (0, 12)}


@pytest.mark.parametrize(
    ("served", "next_version"), [({18: (0, 2)}, 2), ({18: (0, 3)}, 3), ({}, 0), ({18: (0, 99)}, 3)]
)
def test_an_older_broker_is_asked_again_in_what_it_has(served: dict[int, tuple[int, int]], next_version: int) -> None:
    """UNSUPPORTED_VERSION comes in version 0 with the ranges; a broker without any is asked in version 0."""
    exchange = Exchange("test", "peer:1")
    refusal = reply(exchange.hello(), api_versions(served, ErrorCode.UNSUPPORTED_VERSION), version=0)
    again = exchange.hello_answered(refusal)
    assert again is not None
    assert asked_version(again) == next_version
    assert exchange.hello_answered(reply(again, api_versions({3: (0, 1)}))) is None
    assert exchange.versions == {3: (0, 1)}


def test_a_broker_that_keeps_refusing_is_given_up() -> None:
    """The versions asked for only go down, so the conversation ends even with a broker that always refuses."""
    exchange = Exchange("test", "peer:1")
    request: bytes | None = exchange.hello()
    refusal = api_versions({18: (0, 4)}, ErrorCode.UNSUPPORTED_VERSION)
    for version in (4, 3, 2, 1):
        assert request is not None
        assert asked_version(request) == version
        request = exchange.hello_answered(reply(request, refusal, version=0))
    assert request is not None
    with pytest.raises(KafkaError, match="refuses ApiVersions"):
        exchange.hello_answered(reply(request, refusal, version=0))


def test_takes_the_highest_version_that_both_know() -> None:
    """Whoever is older decides; ranges without a common version are an error that names both."""
    exchange = settled({3: (0, 7), 1: (4, 99), 0: (90, 99)})
    assert exchange.version_for(ApiKey.METADATA) == 7
    assert exchange.version_for(ApiKey.FETCH) == 18
    assert exchange.serves(ApiKey.FETCH)
    assert not exchange.serves(ApiKey.PRODUCE)
    assert not exchange.serves(ApiKey.LIST_OFFSETS)
    with pytest.raises(UnsupportedByBroker, match="serves Produce in versions 90 to 99"):
        exchange.version_for(ApiKey.PRODUCE)
    with pytest.raises(UnsupportedByBroker, match="does not serve ListOffsets"):
        exchange.version_for(ApiKey.LIST_OFFSETS)
    with pytest.raises(UnsupportedByBroker, match="needs one of 8 to 13"):
        exchange.version_for(ApiKey.METADATA, at_least=8)


def test_a_request_may_be_made_for_the_version() -> None:
    """ByVersion hands the settled version to whoever builds the message."""
    exchange = settled({10: (0, 3)})
    seen: list[int] = []

    def build(version: int) -> Any:
        seen.append(version)
        return messages.FindCoordinatorRequest(key="g")

    _, data, _ = exchange.encode(ByVersion(ApiKey.FIND_COORDINATOR, build))
    assert seen == [3]
    assert asked_version(data) == 3


def test_pairs_answers_with_requests_in_any_order() -> None:
    """Two requests in flight, answered the wrong way round, each get their own."""
    exchange = settled({3: (0, 13), 10: (0, 3)})
    first_id, first, _ = exchange.encode(messages.MetadataRequest(topics=None))
    second_id, second, _ = exchange.encode(messages.FindCoordinatorRequest(key="g"))
    assert exchange.awaited == 2
    found_id, found = exchange.decode(reply(second, messages.FindCoordinatorResponse(host="h", port=1)))
    assert (found_id, found.host) == (second_id, "h")
    metadata_id, metadata = exchange.decode(reply(first, messages.MetadataResponse(cluster_id="c")))
    assert (metadata_id, metadata.cluster_id) == (first_id, "c")
    assert exchange.awaited == 0


def test_produce_without_acks_awaits_nothing() -> None:
    """acks=0 has no answer, so nothing is kept for one."""
    exchange = settled({0: (0, 13)})
    _, _, answered = exchange.encode(messages.ProduceRequest(acks=0, timeout_ms=1))
    assert not answered
    assert exchange.awaited == 0
    _, _, answered = exchange.encode(messages.ProduceRequest(acks=1, timeout_ms=1))
    assert answered


def test_an_answer_that_was_not_asked_for_is_no_answer() -> None:
    """A wrong correlation id means that the stream cannot be trusted; the same answer twice too."""
    exchange = settled({3: (0, 13)})
    _, request, _ = exchange.encode(messages.MetadataRequest(topics=None))
    answer = reply(request, messages.MetadataResponse())
    with pytest.raises(InvalidResponse, match="which was not asked"):
        exchange.decode(b"\x7f" + answer[1:])
    exchange.decode(answer)
    with pytest.raises(InvalidResponse, match="which was not asked"):
        exchange.decode(answer)


def test_an_answer_cut_short_names_its_api() -> None:
    """The error says which response in which version was malformed."""
    exchange = settled({3: (0, 13)})
    _, request, _ = exchange.encode(messages.MetadataRequest(topics=None))
    answer = reply(request, messages.MetadataResponse(cluster_id="cluster"))
    with pytest.raises(InvalidResponse, match=r"peer:1 .* Metadata response, version 13"):
        exchange.decode(answer[:-3])


@pytest.mark.parametrize(
    ("prefix", "hint"),
    [
        (b"HTTP", "web server"),
        (b"\x15\x03\x03\x00", "TLS"),
        (struct.pack(">i", -1), "-1 bytes"),
        (struct.pack(">i", 3), "3 bytes"),
        (struct.pack(">i", FRAME_SIZE_MAX + 1), "bytes"),
    ],
)
def test_sizes_that_no_frame_has_are_refused_with_a_guess(prefix: bytes, hint: str) -> None:
    """Nothing is allocated for a size that cannot be; a web server or TLS is recognized."""
    with pytest.raises(InvalidResponse, match=hint):
        Exchange("test", "peer:1").frame_size(prefix)


@settings(max_examples=examples(2000))
@given(st.sampled_from([ApiKey.METADATA, ApiKey.FETCH, ApiKey.LIST_OFFSETS]), st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_invalid(key: ApiKey, garbage: bytes) -> None:
    """Whatever follows the right correlation id, nothing but InvalidResponse comes out."""
    exchange = settled({key: (0, 13)})
    message = {
        ApiKey.METADATA: messages.MetadataRequest(topics=None),
        ApiKey.FETCH: messages.FetchRequest(),
        ApiKey.LIST_OFFSETS: messages.ListOffsetsRequest(replica_id=-1),
    }[key]
    correlation_id, _, _ = exchange.encode(message)
    try:
        exchange.decode(struct.pack(">i", correlation_id) + garbage)
    except InvalidResponse:
        return


@settings(max_examples=examples(500))
@given(st.binary(max_size=60))
def test_any_greeting_is_settled_asked_again_or_invalid(garbage: bytes) -> None:
    """The answer to the first request may be anything too."""
    exchange = Exchange("test", "peer:1")
    exchange.hello()
    try:
        exchange.hello_answered(struct.pack(">i", 1) + garbage)
    except (InvalidResponse, KafkaError, UnsupportedByBroker):
        return
