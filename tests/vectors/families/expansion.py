"""Partitions added to a topic, as AdminZkClient of 3.9.1 places them."""

from __future__ import annotations

from typing import Any

from tests.vectors.draws import Draws
from tidelog.placement.assignment import expand
from tidelog.placement.brokers import (
    BrokerNotAvailable,
    BrokerRack,
    IncompleteRacks,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    PlacementRefused,
    in_creation_order,
)

FILES = ("expansion.json.gz",)

KINDS: dict[str, type[PlacementRefused]] = {
    "InvalidPartitionsException": InvalidPartitions,
    "InvalidReplicationFactorException": InvalidReplicationFactor,
    "InvalidReplicaAssignmentException": InvalidReplicaAssignment,
    "BrokerNotAvailableException": BrokerNotAvailable,
    "AdminOperationException": IncompleteRacks,
}


def check(case: dict[str, Any]) -> None:
    given, expected = case["input"], case["expected"]
    brokers = [BrokerRack(broker["id"], broker["rack"]) for broker in given["live_brokers"]]
    if given["live_sorted"]:
        brokers = in_creation_order(brokers)
    draws = Draws(given["draws"])
    try:
        added = expand(
            given["topic"],
            dict(given["existing"]),
            brokers,
            given["total_partitions"],
            random=draws,
            manual=None if given["manual_assignment"] is None else dict(given["manual_assignment"]),
        )
    except PlacementRefused as refusal:
        outcome: object = type(refusal)
    else:
        outcome = sorted(map(list, added.items()))
    assert outcome == (KINDS[expected["error"]["kind"]] if "error" in expected else expected["new_assignment"])
    draws.check_exhausted()
