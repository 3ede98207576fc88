"""The product's client on simulated connections, in simulated time, with a seed's chance."""

from __future__ import annotations

import asyncio
import random
import time
import uuid

import pytest
from sim.world.clients import client_process, client_world
from sim.world.clock import EPOCH_MS
from sim.world.loop import VirtualLoop
from sim.world.network import SimulatedNetwork
from sim.world.randomness import SeededRandom
from sim.world.trace import Trace

from tidelog.client import cluster as cluster_module
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import next_generation
from tidelog.client.errors import ConnectionFailed
from tidelog.client.producer import producer


def simulated() -> tuple[VirtualLoop, SimulatedNetwork]:
    """A loop, and hosts on which nothing listens."""
    loop = VirtualLoop(SeededRandom(1, "loop"))
    return loop, SimulatedNetwork(loop, SeededRandom(1, "network"), Trace(loop.time))


def test_time_chance_and_ids_are_the_process_s() -> None:
    """Two runs of a seed draw the same; afterwards the modules have Python's own again."""

    async def work() -> tuple[object, ...]:
        before = cluster_module.time.monotonic()
        await asyncio.sleep(100.0)
        passed = cluster_module.time.monotonic() - before
        wall_ms = producer.time.time_ns() // 1_000_000 - EPOCH_MS
        return passed, wall_ms, next_generation.uuid.uuid4(), producer.random.getrandbits(31)

    drawn = []
    for _ in range(2):
        loop, network = simulated()
        with client_world(loop):
            drawn.append(loop.run_until_complete(client_process("app", loop, network, SeededRandom(7)).spawn(work())))
        loop.close()
    assert drawn[0] == drawn[1]
    assert drawn[0][:2] == (100.0, 100_000)
    assert (cluster_module.time, producer.random, next_generation.uuid) == (time, random, uuid)


def test_connections_go_over_the_simulated_network() -> None:
    """Nothing listens there: the client is refused, as by a machine without a broker."""

    async def work() -> None:
        async with Cluster("broker1:9092", fail_fast=True) as cluster:
            await cluster.run(cluster.routing.refresh(["topic"], cluster.routing.deadline()))

    loop, network = simulated()
    with client_world(loop), pytest.raises(ConnectionFailed, match="nothing listens on broker1:9092"):
        loop.run_until_complete(client_process("app", loop, network, SeededRandom(7)).spawn(work()))
    loop.close()


def test_a_process_without_an_outside_has_no_such_connections() -> None:
    """Brokers are given their network: what they do by the loop would escape the simulation."""
    loop, _ = simulated()
    with pytest.raises(RuntimeError, match="has its network from elsewhere"):
        loop.run_until_complete(loop.create_connection(asyncio.Protocol, "broker1", 9092))
    loop.close()
