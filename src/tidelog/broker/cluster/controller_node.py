"""The nodes that name the controller: /controller, ephemeral, and /controller_epoch, the fence of its writes.

Taking the office is one multi: /controller is created, and the epoch raised on the version at which it was read. So
there is one winner for each epoch, and the winner of an earlier one can write no more.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from tidelog.broker.cluster.store_results import results
from tidelog.metadata.image import NO_CONTROLLER_EPOCH
from tidelog.metadata.operations import Create, SetData
from tidelog.metadata.znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    MalformedZnode,
    decode_controller,
    decode_controller_epoch,
    encode_controller,
    encode_controller_epoch,
)
from tidelog.model.identifiers import NO_LEADER, BrokerId, ControllerEpoch
from tidelog.store.client import Stat, StoreClient
from tidelog.store.errors import BadVersion, NodeExists, NoNode

logger = logging.getLogger(__name__)


EPOCH_MAX: Final = (1 << 31) - 1
"""Of a controller: brokers are told it as 32 bits."""


class Claim(NamedTuple):
    """The right to control the cluster, until another broker raises the epoch again."""

    epoch: ControllerEpoch
    version: int
    """Of /controller_epoch with this epoch in it: what the holder's writes check."""


class EpochsUsedUp(Exception):
    """There is no controller epoch after the last one: epochs travel as 32 bits. The message says what mends it."""


async def take_office(store: StoreClient, broker_id: BrokerId, wall_ms: int, known_epoch: int) -> Claim | None:
    """Takes /controller for the session of `store`; None where another one was faster. EpochsUsedUp.

    `known_epoch` is the highest that this broker knows: the next is above it whatever the store says.
    """
    try:
        data, stat = await store.get(CONTROLLER_EPOCH)
    except NoNode:
        data = encode_controller_epoch(0)
        try:
            stat = (await store.create(CONTROLLER_EPOCH, data)).stat
        except NodeExists:
            return None
    epoch = _next_epoch(data, stat, known_epoch)
    claim = encode_controller(broker_id, wall_ms)
    try:
        await store.multi(
            [
                Create(CONTROLLER, claim, ephemeral=True),
                SetData(CONTROLLER_EPOCH, encode_controller_epoch(epoch), stat.version),
            ]
        )
    except (NodeExists, BadVersion):
        return None
    return Claim(epoch, stat.version + 1)


async def claim_of_holder(store: StoreClient, known_epoch: int) -> Claim:
    """The claim of this very session, which holds /controller and does not know with which epoch it took it.

    A tool may have written into the node: then the epoch is counted on, for no other broker can do it. EpochsUsedUp.
    """
    try:
        data, stat = await store.get(CONTROLLER_EPOCH)
    except NoNode:
        data = encode_controller_epoch(0)
        stat = (await store.create(CONTROLLER_EPOCH, data)).stat
    try:
        epoch = decode_controller_epoch(data)
    except MalformedZnode:
        epoch = NO_CONTROLLER_EPOCH
    if epoch >= max(known_epoch, 1):
        return Claim(epoch, stat.version)
    epoch = _next_epoch(data, stat, known_epoch)
    written = await store.set(CONTROLLER_EPOCH, encode_controller_epoch(epoch), stat.version)
    return Claim(epoch, written.version)


async def controller_as_stored(store: StoreClient) -> tuple[BrokerId, ControllerEpoch]:
    """The broker that holds /controller, and the newest epoch; -1 for what is not there or cannot be read."""
    holder, newest = await results([store.get(CONTROLLER), store.get(CONTROLLER_EPOCH)], NoNode)
    try:
        return (
            NO_LEADER if holder is None else decode_controller(holder[0]),
            NO_CONTROLLER_EPOCH if newest is None else decode_controller_epoch(newest[0]),
        )
    except MalformedZnode:
        return NO_LEADER, NO_CONTROLLER_EPOCH


def are_epochs_left(data: bytes | None, known_epoch: int) -> bool:
    """Whether there is an epoch after what /controller_epoch holds, and after what this broker knows."""
    try:
        return max(decode_controller_epoch(data), known_epoch) < EPOCH_MAX
    except MalformedZnode:
        return known_epoch < EPOCH_MAX


def _next_epoch(data: bytes | None, stat: Stat, known_epoch: int) -> ControllerEpoch:
    """One more than the last. A store that is older than what brokers have seen, or unreadable, is mended."""
    if not are_epochs_left(data, known_epoch):
        raise EpochsUsedUp(
            f"controller epoch {EPOCH_MAX} is the last, and {CONTROLLER_EPOCH} holds {data!r}, this broker knows "
            f"{known_epoch}: write the last epoch in which the cluster had a controller into that node; where it was "
            "the last one, write 0 and start all brokers anew"
        )
    try:
        stored: int = decode_controller_epoch(data)
    except MalformedZnode as error:
        logger.error("controller epoch counted on from what this broker knows: reason=%s", error)
        # Each controller has written the node once.
        stored = stat.version
    if stored < known_epoch:
        logger.error(
            "the metadata store has older data than this cluster has seen (controller epoch %d, here %d): "
            "what was changed since is lost",
            stored,
            known_epoch,
        )
    return ControllerEpoch(max(stored, known_epoch) + 1)
