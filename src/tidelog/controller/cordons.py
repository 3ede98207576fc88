"""Brokers that get no replica by placement: new topics and partitions go to the others. What a broker has stays.

An operator sets it on a broker while it runs: `broker.cordoned`, which is ours, or Kafka's `cordoned.log.dirs` for all
of its directories (KIP-1066). The controller sees what is set so, not what stands in the broker's own file.
"""

from __future__ import annotations

from tidelog.metadata.image import ClusterImage
from tidelog.model.identifiers import BrokerId
from tidelog.placement.log_directory import ALL_DIRECTORIES

BROKER_CORDONED = "broker.cordoned"
CORDONED_LOG_DIRS = "cordoned.log.dirs"


def is_cordoned(image: ClusterImage, broker_id: BrokerId) -> bool:
    """Whether a broker is to get no replica by placement; its own settings win over those of all brokers."""
    settings = {**image.broker_config(None), **image.broker_config(broker_id)}
    directories = {each.strip() for each in settings.get(CORDONED_LOG_DIRS, "").split(",")}
    return settings.get(BROKER_CORDONED, "").strip().lower() == "true" or ALL_DIRECTORIES in directories
