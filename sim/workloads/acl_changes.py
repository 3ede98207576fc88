"""What changes ACLs and a user's password, by requests to any broker and by the store, as Kafka's old tool does (see
`access`)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from sim.checks.access_history import EVERYBODY, Rule, is_user, rules_of
from sim.machine import SESSION_TIMEOUT_MS
from sim.secured_brokers import PASSWORDS, SCRAM
from sim.store.client import SimulatedStore
from sim.workloads.client import REQUEST_S_MAX, Client
from tidelog.metadata.operations import Create, SetData
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security import stored
from tidelog.security.access import Operation, ResourceType
from tidelog.security.acls import AclEntry, PatternType, Permission, ResourcePattern
from tidelog.security.scram import MECHANISMS, salted_password
from tidelog.store.client import SessionState
from tidelog.store.errors import NoNode, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sim.checks.access_history import AccessHistory
    from sim.cluster import Cluster
    from sim.machine import BrokerMachine
    from sim.workloads.client import Router
    from sim.world.randomness import SeededRandom

TOPIC: Final = "guarded"
GROUP: Final = "guarded-group"
BOB: Final = "/config/users/bob"
PAUSE_S: Final = (0.1, 1.2)
_LITERAL_TOPIC: Final = ResourcePattern(ResourceType.TOPIC, TOPIC)
_PREFIXED_TOPIC: Final = ResourcePattern(ResourceType.TOPIC, TOPIC[:5], PatternType.PREFIXED)
_LITERAL_GROUP: Final = ResourcePattern(ResourceType.GROUP, GROUP)
TOPIC_PATHS: Final = (stored.acl_path(_LITERAL_TOPIC), stored.acl_path(_PREFIXED_TOPIC))
GROUP_PATHS: Final = (stored.acl_path(_LITERAL_GROUP),)
"""Nodes of the ACLs that concern the topic, and the group."""
_CHANGEABLE: Final = (
    *((pattern, op) for pattern in (_LITERAL_TOPIC, _PREFIXED_TOPIC) for op in (Operation.READ, Operation.WRITE)),
    (_LITERAL_TOPIC, Operation.ALTER_CONFIGS),
    (_LITERAL_TOPIC, Operation.ALL),
    (_LITERAL_GROUP, Operation.READ),
)
_VERSIONS: Final = {ApiKey.CREATE_ACLS: 3, ApiKey.DELETE_ACLS: 3, ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 0}


class AclChanger:
    """Adds and removes ACLs, and a user's password."""

    def __init__(self, router: Router, random: SeededRandom, cluster: Cluster, access: AccessHistory) -> None:
        self._router = router
        self._random = random
        self._cluster = cluster
        self._access = access
        self._tool: SimulatedStore | None = None
        self.done = 0
        """Changes that were answered."""
        self.stopping = False
        self.on_changed: Callable[[BrokerMachine], Awaitable[None]] | None = None
        """Called with the broker that has answered a change."""

    async def run(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self._random.between(*PAUSE_S))
            try:
                await self._change()
            except (OSError, TimeoutError, StoreError) as error:
                self._cluster.trace.record("changer_fails", repr(error))

    async def until_done(self) -> None:
        """One change, whatever it takes."""
        before = self.done
        while self.done == before:
            try:
                await self._change()
            except (OSError, TimeoutError, StoreError) as error:
                self._cluster.trace.record("changer_fails", repr(error))
                await asyncio.sleep(0.2)

    async def close(self) -> None:
        self._router.close()
        if self._tool is not None:
            await self._tool.close()

    async def _change(self) -> None:
        kind = self._random.below(10)
        if kind == 0 or not self.done:
            await self._change_user()
            return
        pattern, operation = _CHANGEABLE[self._random.below(len(_CHANGEABLE))]
        principals = (*(f"User:{name}" for name in PASSWORDS), EVERYBODY)
        principal = principals[self._random.below(4) % len(principals)]
        entry = AclEntry(principal, "*", operation, Permission.DENY if self._random.chance(0.15) else Permission.ALLOW)
        present = self._entries(pattern)
        if present and self._random.chance(0.4):
            # What denies goes first, or nothing would be allowed for long.
            present.sort(key=lambda each: each.permission is Permission.ALLOW)
            entry, is_added = present[0], False
        else:
            is_added = True
        if kind == 1:
            await self._by_tool(pattern, entry, is_added=is_added)
        else:
            await self._by_request(pattern, entry, is_added=is_added)

    def _entries(self, pattern: ResourcePattern) -> list[AclEntry]:
        """As the store has them now."""
        path = stored.acl_path(pattern)
        return stored.decode_acls(path, self._cluster.store_history.now(path).data)

    async def _client(self) -> tuple[Client, tuple[int, int]]:
        """A connection that stands, and with which process."""
        machine = self._cluster.brokers[self._random.below(len(self._cluster.brokers))]
        client = self._router.brokers[machine.broker_id]
        if not client.is_connected:
            await asyncio.wait_for(client.connect(), REQUEST_S_MAX)
        return client, (machine.broker_id, machine.generation)

    async def _send(self, client: Client, key: ApiKey, request: Any) -> Any:
        try:
            return await asyncio.wait_for(client.send(key, request, _VERSIONS[key]), REQUEST_S_MAX)
        except (OSError, TimeoutError):
            client.close()
            raise

    async def _by_request(self, pattern: ResourcePattern, entry: AclEntry, *, is_added: bool) -> None:
        client, life = await self._client()
        path, sent = stored.acl_path(pattern), self._cluster.store_history.acknowledged_zxid
        if is_added:
            response = await self._send(client, ApiKey.CREATE_ACLS, _creation(pattern, entry))
            code = response.results[0].error_code
        else:
            response = await self._send(client, ApiKey.DELETE_ACLS, _deletion(pattern, entry))
            (result,) = response.filter_results
            code = result.error_code or next((acl.error_code for acl in result.matching_acls), 0)
        self._cluster.trace.record("acl_changed", life[0], pattern, entry, is_added, ErrorCode(code).name)
        if code:
            return
        rule = Rule(entry.principal, _titled(entry.operation.name), _titled(entry.permission.name))
        self._access.changed(life, path, sent, lambda data: (rule in rules_of(data)) == is_added)
        await self._changed_by(life)

    async def _by_tool(self, pattern: ResourcePattern, entry: AclEntry, *, is_added: bool) -> None:
        """As Kafka's old tool does it, but for one thing: node and notification are written together."""
        store = await self._session()
        path = stored.acl_path(pattern)
        try:
            data, stat = await store.get(path)
        except NoNode:
            data, stat = None, None
        before = stored.decode_acls(path, data)
        after = [each for each in before if each != entry] + [entry] * is_added
        content = stored.encode_acls(after)
        write = Create(path, content) if stat is None else SetData(path, content, stat.version)
        change_path, told = stored.change_node(pattern)
        await store.multi([write, Create(change_path, told, sequential=True)])
        self._cluster.trace.record("acl_changed_by_tool", pattern, entry, is_added)
        self.done += 1

    async def _change_user(self) -> None:
        """Bob gets a password, or loses it."""
        client, life = await self._client()
        sent = self._cluster.store_history.acknowledged_zxid
        has_one = is_user(self._cluster.store_history.now(BOB).data)
        kind = messages.AlterUserScramCredentialsRequest
        mechanism = MECHANISMS[SCRAM]
        if has_one and self._random.chance(0.4):
            request = kind(deletions=[kind.ScramCredentialDeletion(name="bob", mechanism=mechanism.code)])
            is_added = False
        else:
            salt = self._random.token(12)
            salted = salted_password(mechanism, PASSWORDS["bob"], salt, 4096)
            upsertion = kind.ScramCredentialUpsertion(
                name="bob", mechanism=mechanism.code, iterations=4096, salt=salt, salted_password=salted
            )
            request = kind(upsertions=[upsertion])
            is_added = True
        response = await self._send(client, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request)
        code = response.results[0].error_code
        self._cluster.trace.record("user_changed", life[0], is_added, ErrorCode(code).name)
        if code == ErrorCode.NONE:
            self._access.changed(life, BOB, sent, lambda data: is_user(data) == is_added)
            await self._changed_by(life)

    async def _changed_by(self, life: tuple[int, int]) -> None:
        self.done += 1
        if self.on_changed is not None:
            await self.on_changed(next(each for each in self._cluster.brokers if each.broker_id == life[0]))

    async def _session(self) -> SimulatedStore:
        store = self._cluster.store
        assert store is not None
        if self._tool is None or self._tool.state in (SessionState.EXPIRED, SessionState.CLOSED):
            self._tool = await SimulatedStore.connect(
                self._cluster.network.host("acl tool"),
                store.hosts,
                SESSION_TIMEOUT_MS,
                self._random.stream("tool"),
                self._cluster.store_history,
            )
        return self._tool


def _creation(pattern: ResourcePattern, entry: AclEntry) -> messages.CreateAclsRequest:
    kind = messages.CreateAclsRequest
    creation = kind.AclCreation(
        resource_type=pattern.type,
        resource_name=pattern.name,
        resource_pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
    return kind(creations=[creation])


def _deletion(pattern: ResourcePattern, entry: AclEntry) -> messages.DeleteAclsRequest:
    kind = messages.DeleteAclsRequest
    wanted = kind.DeleteAclsFilter(
        resource_type_filter=pattern.type,
        resource_name_filter=pattern.name,
        pattern_type_filter=pattern.pattern_type,
        principal_filter=entry.principal,
        host_filter=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
    return kind(filters=[wanted])


def _titled(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))
