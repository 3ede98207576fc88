"""Users with passwords, and ACLs that change while brokers die (invariant 23).

Brokers of such a run have a second listener, by which users log in: alice by PLAIN, bob by SCRAM, whose password comes
and goes. They may do what ACLs of the topic `guarded` and of a group allow; an administrator alters these by requests
to any broker, and by transactions in the store, as Kafka's old tool does. Each decision of a broker is compared with
what it must know (`checks/access_history.py`); no record that was refused may ever be read. All other clients come by
the first listener, where everything is allowed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sim.checks.access_history import EVERYBODY, AccessHistory, Question, Rule, is_user, rules_of
from sim.checks.history import Guarantee
from sim.invariants import require
from sim.machine import SESSION_TIMEOUT_MS
from sim.secured_brokers import PASSWORDS, SCRAM, USERS_PORT
from sim.store.client import SimulatedStore
from sim.workloads.client import REQUEST_S_MAX, Client
from sim.world.clock import EPOCH_MS
from tidelog.metadata.operations import Create, SetData
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import build_batch
from tidelog.records.record import Record
from tidelog.security import stored
from tidelog.security.access import Operation, ResourceType
from tidelog.security.acls import AclEntry, PatternType, Permission, ResourcePattern
from tidelog.security.mechanisms import AuthenticationFailed
from tidelog.security.sasl_client import Credentials
from tidelog.security.scram import MECHANISMS, salted_password
from tidelog.store.client import SessionState
from tidelog.store.errors import NoNode, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sim.checks.history import History
    from sim.cluster import Cluster
    from sim.machine import BrokerMachine
    from sim.workloads.client import Router
    from sim.world.randomness import SeededRandom
    from tidelog.ports.network import Network

TOPIC: Final = "guarded"
GROUP: Final = "guarded-group"
BOB: Final = "/config/users/bob"
PAUSE_S: Final = (0.02, 0.3)
CHANGE_PAUSE_S: Final = (0.1, 1.2)
AGAIN_CHANCE: Final = 0.1
"""How often a user connects anew."""
LAST_CHANGES: Final = 5
IN_FORCE_S: Final = 1.0
"""After a change was answered, when nothing is broken any more: every broker goes by it."""
_LITERAL_TOPIC: Final = ResourcePattern(ResourceType.TOPIC, TOPIC)
_PREFIXED_TOPIC: Final = ResourcePattern(ResourceType.TOPIC, TOPIC[:5], PatternType.PREFIXED)
_LITERAL_GROUP: Final = ResourcePattern(ResourceType.GROUP, GROUP)
_TOPIC_PATHS: Final = (stored.acl_path(_LITERAL_TOPIC), stored.acl_path(_PREFIXED_TOPIC))
_GROUP_PATHS: Final = (stored.acl_path(_LITERAL_GROUP),)
_CHANGEABLE: Final = (
    *((pattern, op) for pattern in (_LITERAL_TOPIC, _PREFIXED_TOPIC) for op in (Operation.READ, Operation.WRITE)),
    (_LITERAL_TOPIC, Operation.ALTER_CONFIGS),
    (_LITERAL_TOPIC, Operation.ALL),
    (_LITERAL_GROUP, Operation.READ),
)
_DENIALS: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED)
_VERSIONS: Final = {
    ApiKey.CREATE_ACLS: 3,
    ApiKey.DELETE_ACLS: 3,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 0,
    ApiKey.SASL_HANDSHAKE: 1,
    ApiKey.SASL_AUTHENTICATE: 2,
}


class RefusedLoginError(ConnectionError):
    """A broker does not know the user, or the password."""


class Access:
    """All of it; made for plans that are `secured`."""

    def __init__(
        self,
        make_router: Callable[[str], Router],
        random: SeededRandom,
        cluster: Cluster,
        history: History,
        partitions: Sequence[TopicPartition],
    ) -> None:
        self.history = AccessHistory(cluster.store_history)
        self._cluster = cluster
        cluster.on_start.append(self._starts)
        self._changer = _Changer(make_router("acl changer"), random.stream("changer"), cluster, self.history)
        self._users = [
            _User(name, random.stream(name), cluster, history, self.history, partitions) for name in PASSWORDS
        ]
        self._witnesses = [
            _User(name, random.stream(f"witness {name}"), cluster, history, self.history, partitions, label="witness.")
            for name in PASSWORDS
        ]
        """They ask the broker that has answered a change, at once."""
        self._changer.on_changed = self._bear_witness
        self._tasks: list[asyncio.Task[None]] = []

    async def _bear_witness(self, machine: BrokerMachine) -> None:
        for user in self._witnesses:
            await user.ask_all([machine])

    def _starts(self, machine: BrokerMachine) -> None:
        self.history.starts((machine.broker_id, machine.generation + 1))

    @property
    def counts(self) -> dict[str, int]:
        """What happened, for a run's last line."""
        return {
            "ACL changes": self._changer.done,
            "denied": self.history.denied,
            "allowed": self.history.allowed,
            "logins refused": sum(user.refused_logins for user in (*self._users, *self._witnesses)),
        }

    def start(self) -> Sequence[asyncio.Task[None]]:
        """Begins; the topic is there. A task that fails ends the run."""
        works = [self._changer.run(), *(user.run() for user in self._users)]
        self._tasks = [asyncio.ensure_future(work) for work in works]
        return self._tasks

    def calm(self) -> None:
        """The last fault is over: ACLs and users stay as they are."""
        self._changer.stopping = True
        for user in self._users:
            user.stopping = True

    @property
    def has_ended(self) -> bool:
        """Whether all requests have been answered, or given up."""
        return all(task.done() for task in self._tasks)

    async def prove(self) -> None:
        """Changes, after each of which every broker goes by it a second later. All is well again, and at rest."""
        await asyncio.sleep(IN_FORCE_S)
        for _ in range(LAST_CHANGES):
            await self._changer.until_done()
            self.history.will_be_everywhere()
            await asyncio.sleep(IN_FORCE_S)
            self.history.is_everywhere()
            for user in self._users:
                await user.ask_all(self._cluster.brokers)
        for user in (*self._users, *self._witnesses):
            user.close()
        await self._changer.close()


class _Secured(Client):
    """A connection by the users' listener: it logs in when it connects."""

    def __init__(self, network: Network, user: str, machine: BrokerMachine, nonces: SeededRandom) -> None:
        super().__init__(network, user, (machine.name, USERS_PORT))
        self._nonces = nonces
        mechanism = "PLAIN" if user == "alice" else SCRAM
        self._credentials = Credentials(mechanism, user, PASSWORDS[user])

    async def connect(self) -> None:
        """OSError; RefusedLoginError where the broker does not let it in."""
        await super().connect()
        exchange = self._credentials.begin(self._nonces.token(12).hex())
        try:
            response = await self._ask(ApiKey.SASL_HANDSHAKE, exchange.first())
            while (request := exchange.answered(response)) is not None:
                response = await self._ask(ApiKey.SASL_AUTHENTICATE, request)
        except AuthenticationFailed as error:
            self.close()
            raise RefusedLoginError(str(error)) from error
        except BaseException:
            self.close()
            raise

    async def _ask(self, key: ApiKey, request: Any) -> Any:
        return await self.send(key, request, _VERSIONS[key])


class _Deed(NamedTuple):
    """Something that needs a right."""

    question: Question
    key: ApiKey
    request: Any
    value: bytes | None = None
    """The record that it writes."""


class _User:
    """Asks brokers for what it may do, and for what it may not do."""

    def __init__(
        self,
        name: str,
        random: SeededRandom,
        cluster: Cluster,
        records: History,
        access: AccessHistory,
        partitions: Sequence[TopicPartition],
        *,
        label: str = "",
    ) -> None:
        """`partitions` are those of the topic that is guarded; `label` tells its records from others of the user's."""
        self._name = name
        self._label = label
        self._principal = f"User:{name}"
        self._random = random
        self._cluster = cluster
        self._records = records
        self._access = access
        self._partitions = partitions
        network, nonces = cluster.network.host(name), random.stream("nonces")
        self._clients = {machine.broker_id: _Secured(network, name, machine, nonces) for machine in cluster.brokers}
        self._written = 0
        self.refused_logins = 0
        self.stopping = False
        if not label:
            cluster.client_names.append(name)

    async def run(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self._random.between(*PAUSE_S))
            try:
                await self._do(self._cluster.brokers[self._random.below(len(self._cluster.brokers))], self._deed())
            except (OSError, TimeoutError) as error:
                self._cluster.trace.record("user_fails", self._name, repr(error))

    async def ask_all(self, brokers: Sequence[BrokerMachine]) -> None:
        """Each deed of each of these brokers. OSError, TimeoutError."""
        for machine in brokers:
            for make in (self._write, self._read, self._alter, self._find):
                try:
                    await self._do(machine, make())
                except RefusedLoginError:
                    break  # Judged where it was refused.

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    async def _do(self, machine: BrokerMachine, deed: _Deed) -> None:
        client = self._clients[machine.broker_id]
        if deed.key is ApiKey.PRODUCE:
            machine = await self._leader(machine)
            client = self._clients[machine.broker_id]
        if self._random.chance(AGAIN_CHANCE):
            client.close()
        if not client.is_connected:
            await self._log_in(client, machine)
        life = machine.broker_id, machine.generation
        floors = self._access.floors(life, deed.question)
        try:
            response = await asyncio.wait_for(client.send(deed.key, deed.request), REQUEST_S_MAX)
        except (OSError, TimeoutError):
            client.close()
            raise
        code = _code_of(deed.key, response)
        self._cluster.trace.record("asked", self._name, machine.name, deed.key.name, code.name)
        was_denied = code in _DENIALS
        if deed.value is not None:
            self._note(deed.value, code, response)
        self._access.judge(life, deed.question, floors, was_denied=was_denied)

    async def _log_in(self, client: _Secured, machine: BrokerMachine) -> None:
        generation = machine.generation
        since = self._access.since((machine.broker_id, generation), BOB)
        entered = True
        try:
            await asyncio.wait_for(client.connect(), REQUEST_S_MAX)
        except RefusedLoginError:
            entered = False
            self.refused_logins += 1
            require(23, self._name == "bob", f"{machine.name} refuses {self._name}, a user of its settings")
            raise
        finally:
            if self._name == "bob" and machine.generation == generation and (client.is_connected or not entered):
                self._access.judge_login((machine.broker_id, generation), "bob", BOB, since, entered=entered)
        if machine.generation != generation:
            client.close()
            raise ConnectionResetError("the broker was started anew")

    async def _leader(self, other: BrokerMachine) -> BrokerMachine:
        """The leader of the partition that is written to; now and then another broker, which has to refuse as well."""
        partition = self._partitions[self._written % len(self._partitions)]
        if self._random.chance(0.1):
            return other
        leader = self._cluster.leader(partition)
        if leader is None:
            raise ConnectionError(f"{partition} has no leader")
        return leader

    def _note(self, value: bytes, code: ErrorCode, response: Any) -> None:
        """What becomes of a record that was sent."""
        if code in _DENIALS:
            self._records.refused([value])
        elif code is ErrorCode.NONE:
            ((topic,),) = [response.responses]
            (found,) = topic.partition_responses
            partition = TopicPartition(topic.name, found.index)
            self._records.acknowledged(partition, found.base_offset, [value], Guarantee.ALL)

    # What it asks for.

    def _deed(self) -> _Deed:
        makes = (self._write, self._write, self._read, self._alter, self._find)
        return makes[self._random.below(len(makes))]()

    def _question(self, operation: str, paths: tuple[str, ...] = _TOPIC_PATHS) -> Question:
        return Question(self._principal, operation, paths)

    def _write(self) -> _Deed:
        self._written += 1
        partition = self._partitions[self._written % len(self._partitions)]
        value = f"{self._label}{self._name}.{self._written}:0".encode()
        timestamp = EPOCH_MS + int(asyncio.get_running_loop().time() * 1000)
        kind = messages.ProduceRequest
        data = kind.PartitionProduceData(
            index=partition.partition,
            records=build_batch([Record(0, timestamp, None, value)], base_offset=0),
        )
        topic = kind.TopicProduceData(name=partition.topic, partition_data=[data])
        request = kind(transactional_id=None, acks=-1, timeout_ms=4_000, topic_data=[topic])
        return _Deed(self._question("Write"), ApiKey.PRODUCE, request, value)

    def _read(self) -> _Deed:
        kind = messages.FetchRequest
        wanted = kind.FetchPartition(partition=0, fetch_offset=0, current_leader_epoch=-1, partition_max_bytes=1_000)
        topic = kind.FetchTopic(topic=TOPIC, partitions=[wanted])
        request = kind(replica_id=-1, max_wait_ms=0, max_bytes=1_000, session_epoch=-1, topics=[topic])
        return _Deed(self._question("Read"), ApiKey.FETCH, request)

    def _alter(self) -> _Deed:
        kind = messages.IncrementalAlterConfigsRequest
        change = kind.AlterableConfig(
            name="file.delete.delay.ms", config_operation=0, value=str(2_000 + self._random.below(1_000))
        )
        resource = kind.AlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=[change])
        return _Deed(self._question("AlterConfigs"), ApiKey.INCREMENTAL_ALTER_CONFIGS, kind(resources=[resource]))

    def _find(self) -> _Deed:
        request = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
        return _Deed(self._question("Describe", _GROUP_PATHS), ApiKey.FIND_COORDINATOR, request)


def _code_of(key: ApiKey, response: Any) -> ErrorCode:
    if key is ApiKey.PRODUCE:
        found = response.responses[0].partition_responses[0]
    elif key is ApiKey.FETCH:
        found = response if response.error_code else response.responses[0].partitions[0]
    elif key is ApiKey.INCREMENTAL_ALTER_CONFIGS:
        found = response.responses[0]
    else:
        found = response.coordinators[0]
    return ErrorCode(found.error_code)


class _Changer:
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
            await asyncio.sleep(self._random.between(*CHANGE_PAUSE_S))
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
