"""The striped placement of 4.3.0."""

from __future__ import annotations

from typing import Any

from tests.vectors.draws import Draws
from tidelog.placement.brokers import BrokerRack, InvalidReplicationFactor
from tidelog.placement.striped import striped

FILES = ("striped.json.gz",)


def check(case: dict[str, Any]) -> None:
    given, expected = case["input"], case["expected"]
    turn = {rack: index for index, rack in enumerate(given["rack_draw_order"])}
    brokers = [BrokerRack(broker["id"], broker["rack"], broker["fenced"]) for broker in given["brokers"]]
    brokers.sort(key=lambda broker: turn[broker.rack])
    draws = Draws(given["draws"])
    try:
        assignment = striped(brokers, given["partitions"], given["replication_factor"], random=draws)
    except InvalidReplicationFactor:
        outcome: object = "InvalidReplicationFactorException"
    else:
        outcome = assignment
    assert outcome == (expected["error"]["kind"] if "error" in expected else expected["assignment"])
    draws.check_exhausted()
