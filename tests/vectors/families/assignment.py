"""Placement with and without racks, as AdminUtils of 3.9.1 does it."""

from __future__ import annotations

from typing import Any

from tests.vectors.draws import Draws
from tidelog.placement.assignment import assign_replicas
from tidelog.placement.brokers import (
    BrokerRack,
    IncompleteRacks,
    InvalidPartitions,
    InvalidReplicationFactor,
    PlacementRefused,
    rack_alternated,
)

FILES = ("assignment.json.gz",)

KINDS: dict[str, type[PlacementRefused]] = {
    "InvalidPartitionsException": InvalidPartitions,
    "InvalidReplicationFactorException": InvalidReplicationFactor,
    "AdminOperationException": IncompleteRacks,
}


def check(case: dict[str, Any]) -> None:
    given, expected = case["input"], case["expected"]
    brokers = [BrokerRack(broker["id"], broker["rack"]) for broker in given["brokers"]]
    if given["kind"] == "rack_alternated":
        assert rack_alternated(brokers) == expected["broker_list"]
        return
    draws = Draws(given["draws"])
    try:
        assignment = assign_replicas(
            brokers,
            given["partitions"],
            given["replication_factor"],
            random=draws,
            fixed_start_index=given["fixed_start_index"],
            start_partition=given["start_partition_id"],
        )
    except PlacementRefused as refusal:
        outcome: object = type(refusal)
    else:
        outcome = [list(item) for item in assignment.items()]
    assert outcome == (KINDS[expected["error"]["kind"]] if "error" in expected else expected["assignment"])
    draws.check_exhausted()
