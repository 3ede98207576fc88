"""The features of the cluster, as ApiVersions tells them: by these, clients choose among protocols.

There is nothing to upgrade here: what this release can do is in force from the start; UpdateFeatures changes nothing.
"""

from __future__ import annotations

from typing import Final

from tidelog.protocol import messages

METADATA_VERSION: Final = 30
"""As Kafka counts its formats of metadata, which tidelog does not have: its own is that of Kafka with ZooKeeper."""
FEATURES: Final = {
    # Consumer groups of KIP-848.
    "group.version": (0, 1, 1),
    # 4.3-IV0: the Kafka whose protocol is spoken, as tools and consoles show it. No client goes by it.
    "metadata.version": (METADATA_VERSION, METADATA_VERSION, METADATA_VERSION),
    # Share groups (KIP-932).
    "share.version": (0, 1, 1),
    # 2: a transactional producer gets another epoch for each transaction (KIP-890).
    "transaction.version": (0, 2, 2),
}
"""name -> (lowest level that is supported, highest, the one in force)"""
EPOCH: Final = 0
"""Counts the changes of what is in force: none."""
LEVEL_ZERO_SINCE: Final = 4
"""Version of ApiVersions whose readers understand features that may be off (KAFKA-17492)."""


def add_features(response: messages.ApiVersionsResponse, version: int) -> None:
    """Completes an answer of that version."""
    response.finalized_features_epoch = EPOCH
    response.supported_features = [
        messages.ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
        for name, (lowest, highest, _) in FEATURES.items()
        if lowest > 0 or version >= LEVEL_ZERO_SINCE
    ]
    response.finalized_features = [
        messages.ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, (_, _, level) in FEATURES.items()
    ]
