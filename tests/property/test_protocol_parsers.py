"""Random and mutated bytes in front of every decoder: a message, or ProtocolError."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amount import examples
from tests.property.fuzz_protocol import check_frames, check_message, fuzz, mutate
from tests.property.protocol_samples import Sampler

from tidelog.protocol import catalogue, codec, messages

FAMILIES = {
    "hot": [name for name in catalogue.places() if name.startswith(("Produce", "Fetch", "Metadata", "ListOffsets"))],
    "requests": [name for name in catalogue.places() if name.endswith("Request")],
    "responses": [name for name in catalogue.places() if name.endswith("Response")],
    "records": [name for name in catalogue.places() if not name.endswith(("Request", "Response"))],
}


def versions_of(family: str) -> st.SearchStrategy[tuple[str, int]]:
    pairs = []
    for name in FAMILIES[family]:
        schema = catalogue.schema(name)
        pairs += [(name, version) for version in range(schema.lowest, schema.highest + 1)]
    return st.sampled_from(pairs)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_random_bytes_decode_or_are_refused(family: str) -> None:
    """No other exception comes out, and what decodes encodes to something that means the same."""

    @settings(max_examples=examples(2000), deadline=None)
    @given(versions_of(family), st.binary(max_size=200))
    def check(pair: tuple[str, int], data: bytes) -> None:
        check_message(getattr(messages, pair[0]), pair[1], data)

    check()


@pytest.mark.parametrize("family", list(FAMILIES))
def test_mutated_messages_decode_or_are_refused(family: str) -> None:
    """As above, with bytes that are almost right."""

    @settings(max_examples=examples(2000), deadline=None)
    @given(versions_of(family), st.integers(0, 2**32))
    def check(pair: tuple[str, int], seed: int) -> None:
        cls = getattr(messages, pair[0])
        data = codec.encode(Sampler(seed, unknown_tags=True).message(cls, pair[1]), pair[1])
        check_message(cls, pair[1], mutate(data, random.Random(seed)))

    check()


@settings(max_examples=examples(2000), deadline=None)
@given(st.binary(max_size=100))
def test_random_frames_are_read_or_refused(data: bytes) -> None:
    """Headers, responses and coordinators' records."""
    check_frames(data)


@settings(max_examples=examples(2000), deadline=None)
@given(st.sampled_from(list(FAMILIES)).flatmap(versions_of), st.integers(0, 2**32))
def test_messages_survive_the_round_trip(pair: tuple[str, int], seed: int) -> None:
    """Any value of any field, at the edges of its range, with unknown tagged fields."""
    cls = getattr(messages, pair[0])
    message = Sampler(seed, unknown_tags=True).message(cls, pair[1])
    assert codec.decode_exactly(cls, pair[1], codec.encode(message, pair[1])) == message


def test_the_fuzzer_runs() -> None:
    """Briefly here; `make fuzz` gives it time."""
    assert fuzz(0.3, seed=5) > 0
