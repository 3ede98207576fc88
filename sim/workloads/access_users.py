"""Users log in to brokers, and ask both for what ACLs allow them and for what ACLs deny them (see `access`)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sim.checks.access_history import Question
from sim.checks.history import Guarantee
from sim.invariants import require
from sim.secured_brokers import PASSWORDS, SCRAM, USERS_PORT
from sim.workloads.acl_changes import BOB, GROUP, GROUP_PATHS, TOPIC, TOPIC_PATHS
from sim.workloads.client import REQUEST_S_MAX, Client
from sim.world.clock import EPOCH_MS
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import build_batch
from tidelog.records.record import Record
from tidelog.security.mechanisms import AuthenticationFailed
from tidelog.security.sasl_client import Credentials

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.checks.access_history import AccessHistory
    from sim.checks.history import History
    from sim.cluster import Cluster
    from sim.machine import BrokerMachine
    from sim.world.randomness import SeededRandom
    from tidelog.ports.network import Network

PAUSE_S: Final = (0.02, 0.3)
AGAIN_CHANCE: Final = 0.1
"""How often a user connects anew."""
_DENIALS: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED)
_VERSIONS: Final = {ApiKey.SASL_HANDSHAKE: 1, ApiKey.SASL_AUTHENTICATE: 2}


class RefusedLoginError(ConnectionError):
    """A broker does not know the user, or the password."""


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


class _Action(NamedTuple):
    """Something that needs a right."""

    question: Question
    key: ApiKey
    request: Any
    value: bytes | None = None
    """The record that it writes."""


class User:
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
            machine = self._cluster.brokers[self._random.below(len(self._cluster.brokers))]
            try:
                await self._do(machine, self._draw_action())
            except (OSError, TimeoutError) as error:
                self._cluster.trace.record("user_fails", self._name, repr(error))

    async def ask_all(self, brokers: Sequence[BrokerMachine]) -> None:
        """Every action, of each of these brokers. OSError, TimeoutError."""
        for machine in brokers:
            for make in (self._write, self._read, self._alter, self._find):
                try:
                    await self._do(machine, make())
                except RefusedLoginError:
                    break  # Judged where it was refused.

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    async def _do(self, machine: BrokerMachine, action: _Action) -> None:
        client = self._clients[machine.broker_id]
        if action.key is ApiKey.PRODUCE:
            machine = await self._leader(machine)
            client = self._clients[machine.broker_id]
        if self._random.chance(AGAIN_CHANCE):
            client.close()
        if not client.is_connected:
            await self._log_in(client, machine)
        life = machine.broker_id, machine.generation
        floors = self._access.floors(life, action.question)
        try:
            response = await asyncio.wait_for(client.send(action.key, action.request), REQUEST_S_MAX)
        except (OSError, TimeoutError):
            client.close()
            raise
        code = _code_of(action.key, response)
        self._cluster.trace.record("asked", self._name, machine.name, action.key.name, code.name)
        was_denied = code in _DENIALS
        if action.value is not None:
            self._note(action.value, code, response)
        self._access.judge(life, action.question, floors, was_denied=was_denied)

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

    def _draw_action(self) -> _Action:
        makes = (self._write, self._write, self._read, self._alter, self._find)
        return makes[self._random.below(len(makes))]()

    def _question(self, operation: str, paths: tuple[str, ...] = TOPIC_PATHS) -> Question:
        return Question(self._principal, operation, paths)

    def _write(self) -> _Action:
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
        return _Action(self._question("Write"), ApiKey.PRODUCE, request, value)

    def _read(self) -> _Action:
        kind = messages.FetchRequest
        wanted = kind.FetchPartition(partition=0, fetch_offset=0, current_leader_epoch=-1, partition_max_bytes=1_000)
        topic = kind.FetchTopic(topic=TOPIC, partitions=[wanted])
        request = kind(replica_id=-1, max_wait_ms=0, max_bytes=1_000, session_epoch=-1, topics=[topic])
        return _Action(self._question("Read"), ApiKey.FETCH, request)

    def _alter(self) -> _Action:
        kind = messages.IncrementalAlterConfigsRequest
        change = kind.AlterableConfig(
            name="delete.retention.ms", config_operation=0, value=str(2_000 + self._random.below(1_000))
        )
        resource = kind.AlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=[change])
        return _Action(self._question("AlterConfigs"), ApiKey.INCREMENTAL_ALTER_CONFIGS, kind(resources=[resource]))

    def _find(self) -> _Action:
        request = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
        return _Action(self._question("Describe", GROUP_PATHS), ApiKey.FIND_COORDINATOR, request)


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
