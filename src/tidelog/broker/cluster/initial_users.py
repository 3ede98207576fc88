"""The users of security.initial.users, written into the metadata store once.

    /tidelog_initial_users/ID     the list with that id has been written; later starts leave the users alone

The node and the users are made in one transaction, so that brokers which start together write them once, and a user
that an administrator deletes does not come back.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Final, cast

from tidelog.broker.cluster.stored_security import user_path
from tidelog.broker.failure import BrokerFailed
from tidelog.metadata.operations import Create, Operation, SetData
from tidelog.metadata.znodes import CONFIG_CHANGE_PREFIX, decode_config, encode_config, encode_config_change
from tidelog.security.initial_users import InitialUsers, InvalidInitialUsers
from tidelog.security.scram import MECHANISMS
from tidelog.security.stored import sanitized
from tidelog.store.errors import BadVersion, NodeExists, NoNode

if TYPE_CHECKING:
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.store.client import StoreClient

logger: Final = logging.getLogger(__name__)

SETTING: Final = "security.initial.users"
WRITTEN: Final = "/tidelog_initial_users"


def read_initial_users(config: BrokerConfig) -> InitialUsers | None:
    """What the setting names; None: nothing. BrokerFailed where it cannot be read."""
    text = cast("str | None", config.get(SETTING))
    if not text:
        return None
    try:
        return InitialUsers.decode(text)
    except InvalidInitialUsers as error:
        raise BrokerFailed(f"{SETTING} cannot be read: {error}; write it with `tidelog secure init`") from error


async def write_initial_users(store: StoreClient, initial: InitialUsers) -> None:
    """Writes the users unless that was done before; may be tried again after a StoreError.

    A user that has SCRAM credentials already keeps them. Raises MalformedZnode where a user's node cannot be read.
    """
    marker = f"{WRITTEN}/{initial.id}"
    while True:
        if await store.exists(marker) is not None:
            return
        with contextlib.suppress(NodeExists):
            await store.create(WRITTEN)
        operations: list[Operation] = [Create(marker)]
        for user in initial.users:
            operations += await _operations(store, initial, user)
        try:
            await store.multi(operations)
        except (BadVersion, NodeExists, NoNode):
            # Another broker was faster, or an administrator.
            continue
        logger.info("initial_users_written: users=%s", ",".join(map(sanitized, initial.users)))
        return


async def _operations(store: StoreClient, initial: InitialUsers, user: str) -> list[Operation]:
    """What gives one user its credentials, beside quotas that it may have."""
    path = user_path(user)
    credentials = {mechanism: credential.encode() for mechanism, credential in initial.users[user].items()}
    write: Operation
    try:
        data, stat = await store.get(path)
    except NoNode:
        write = Create(path, encode_config(credentials))
    else:
        values = decode_config(path, data) if data else {}
        if values.keys() & MECHANISMS.keys():
            logger.warning("initial_user_left: user=%s reason=it has credentials in the store", sanitized(user))
            return []
        write = SetData(path, encode_config(values | credentials), stat.version)
    told = encode_config_change(f"users/{sanitized(user)}")
    return [write, Create(CONFIG_CHANGE_PREFIX, told, sequential=True)]
