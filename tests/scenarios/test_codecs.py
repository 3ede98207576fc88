"""Batches keep their producer's codec on disk, or get the topic's; every codec is read back."""

from __future__ import annotations

import pytest
from tests.interop.support import CODECS, topic_name
from tests.scenarios.observing import alter, batches, create, folder, read, send

from tidelog.records.batch import Codec
from tidelog.testing import Cluster

pytestmark = pytest.mark.row("R37")

VALUES = [bytes(5000), b"x" * 5000]


def stored(broker: Cluster, topic: str) -> list[Codec]:
    """Codecs of the batches on disk."""
    return [header.codec for _, header in batches(folder(broker, topic) / f"{0:020d}.log")]


@pytest.mark.parametrize("codec", CODECS)
def test_the_producers_codec_is_kept(broker: Cluster, codec: str) -> None:
    """compression.type=producer: the bytes are stored as they came."""
    topic = topic_name("kept")
    create(broker, topic, retention_ms=-1)
    assert not send(broker, topic, VALUES, **{"compression.type": codec})
    assert stored(broker, topic) == [Codec[codec.upper()]] * 2
    assert read(broker, topic, 0, 2) == VALUES


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("sent", ["none", "gzip"])
def test_a_topics_codec_wins(broker: Cluster, codec: str, sent: str) -> None:
    """compression.type of a topic: whatever came is stored so, from the moment it is set."""
    topic = topic_name("wins")
    create(broker, topic, retention_ms=-1)
    assert not send(broker, topic, VALUES, **{"compression.type": sent})
    alter(broker, topic, compression_type="uncompressed" if codec == "none" else codec)
    assert not send(broker, topic, VALUES, **{"compression.type": sent})
    assert stored(broker, topic) == [Codec[sent.upper()]] * 2 + [Codec[codec.upper()]] * 2
    assert read(broker, topic, 0, 4) == VALUES * 2
