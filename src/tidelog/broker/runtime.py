"""Start and stop of a broker: what is around a node, made and ended in order.

    bind -> store -> membership -> logs loaded -> node -> registered -> controller elected -> told the leaders -> ready

Ports are bound first, so that a port in use is found before anything is touched, but connections are not served before
the broker knows the cluster: a client that can connect gets a true answer. What the simulator replaces are the ports
and the executor; this code is the same there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from tidelog.broker.cluster.controller_driver import ControllerDriver
from tidelog.broker.cluster.forwarding import Forwarding
from tidelog.broker.cluster.membership import Membership, generate_broker_id, patiently
from tidelog.broker.cluster.metadata_cache import MetadataCache
from tidelog.broker.cluster.stored_quotas import StoredQuotas
from tidelog.broker.cluster.stored_security import StoredSecurity, make_authorizer
from tidelog.broker.cluster.stored_settings import StoredSettings, broker_resources
from tidelog.broker.connections.peers import Peers
from tidelog.broker.connections.server import Server
from tidelog.broker.controlled_shutdown import hand_over_leaderships
from tidelog.broker.descriptors import allot, raise_file_limit
from tidelog.broker.environment import BrokerEnvironment
from tidelog.broker.failure import BrokerFailed, disk_refused
from tidelog.broker.futures import future_of
from tidelog.broker.handlers import load_handlers
from tidelog.broker.listening import Listening, listeners_tls, refusal
from tidelog.broker.local_controller import ControllerRequests, LocalController
from tidelog.broker.logs.settings import log_manager_settings
from tidelog.broker.loop_shell import LoopShell
from tidelog.broker.metrics.health import BrokerState
from tidelog.broker.node import Node
from tidelog.broker.replicas.topic_settings import log_config
from tidelog.broker.requests.dispatch import Dispatcher
from tidelog.broker.requests.starting import StartingDispatcher
from tidelog.broker.shell import Purpose
from tidelog.broker.telemetry.offer import client_metrics_manager
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.listener_security import SASL_PROTOCOLS
from tidelog.controller.settings import ControllerSettings
from tidelog.metadata.image import BrokerRegistration, ConfigResource, ConfigResourceType
from tidelog.metadata.znodes import MalformedZnode
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import BrokerEpoch, BrokerId, TopicId, TopicPartition
from tidelog.storage.errors import StorageError
from tidelog.storage.log_manager import LogManager
from tidelog.store.errors import SessionExpired, StoreCorrupt, StoreError, StoreLocked

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Executor

    from tidelog.broker.cluster.stored_tokens import StoredTokens
    from tidelog.broker.connections.authentication import Authentication
    from tidelog.broker.connections.bearer_tokens import BearerTokens
    from tidelog.broker.metrics.service import BrokerMetrics
    from tidelog.broker.tracing.exporting import Tracing
    from tidelog.ports.clock import Clock
    from tidelog.ports.disk import Disk
    from tidelog.ports.network import Network
    from tidelog.ports.random import Random
    from tidelog.security.initial_users import InitialUsers
    from tidelog.security.sasl_client import SaslClient
    from tidelog.security.scram import ScramCredential, TokenLogin
    from tidelog.store.client import StoreClient

logger: Final = logging.getLogger(__name__)

T = TypeVar("T")

LEADING_MS_MAX: Final = 5_000
"""How long it waits then until it leads what it is to lead; clients that come before are told to try again."""
READY_MS_MAX: Final = 60_000
"""How long a starting broker waits until the controller's metadata has it as live."""


class Runtime:
    """One broker in the running event loop: `start`, wait for `failed` or whatever else there is, `stop`."""

    def __init__(
        self,
        config: BrokerConfig,
        connect_store: Callable[[], Awaitable[StoreClient]],
        *,
        clock: Clock,
        random: Random,
        disk: Disk,
        network: Network,
        executor: Executor | None = None,
        brokers_here: int = 1,
    ) -> None:
        """`connect_store` opens a session with the metadata store; `executor` runs what blocks, own threads if None.

        `brokers_here`: how many brokers share this process's descriptors. BrokerFailed where those are too few.
        """
        self.config = config
        self._connect_store = connect_store
        self._clock = clock
        self._random = random
        self._disk = disk
        self._network = network
        self._failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._descriptors = allot(raise_file_limit(), brokers_here)
        self._tls = listeners_tls(config)
        self._inter_broker_listener = config.inter_broker_listener_name
        self._peers = Peers(
            network,
            clock,
            self._address_of,
            client_id=f"broker-{config.broker_id}",
            log_in=self._log_in(),
            tls=self._tls[self._inter_broker_listener].client if self._inter_broker_listener in self._tls else None,
            on_reached=self._peer_reached,
            on_broke=self._peer_broke,
        )
        shell = self._shell = LoopShell(self._peers, executor)
        self._server = Server(config, clock, shell, self._descriptors)
        self._server.authorizer = make_authorizer(config, clock)
        self._server.tls = self._tls
        self._listening = Listening(config, self._server, self._tls, network, shell)
        self._bearer_tokens: BearerTokens | None = None
        if self._has_sasl:
            # Before anything is bound: what connects while the broker starts is to authenticate, too.
            self._server.authentication = self._make_authentication()
        self._metrics = self._make_metrics()
        self._initial_users = self._read_initial_users()
        if self._metrics is not None:
            self._connect_store = self._metrics.measured_store(connect_store)
        self._driver: ControllerDriver | None = None
        self._security: StoredSecurity | None = None
        self._quotas = self._server.quotas
        self._tokens: StoredTokens | None = None
        self._logs: LogManager | None = None
        self._tracing: Tracing | None = None
        self._node: Node | None = None
        self._forwarding: Forwarding | None = None
        self._controller_requests = ControllerRequests(config, clock, shell)
        self._handed_over = False
        self._followed: list[StoredSecurity | StoredQuotas | StoredTokens] = []
        """What follows the store by watches."""
        self._stored: dict[ConfigResource, Mapping[str, str]] = {}
        """Settings read from the store before there was a node."""

    @property
    def _has_sasl(self) -> bool:
        """Whether a listener authenticates its clients; a broker without one loads nothing of it."""
        return any(each.security_protocol in SASL_PROTOCOLS for each in self.config.listeners)

    def _log_in(self) -> Callable[[], SaslClient] | None:
        """What begins this broker's authentication to another one; None where their listener has no SASL."""
        if not self._has_sasl:
            return None
        from tidelog.broker.connections.authentication import broker_login

        return broker_login(self.config, self._random, self._clock)

    def _make_authentication(self) -> Authentication:
        from tidelog.broker.connections.authentication import Authentication
        from tidelog.broker.connections.bearer_tokens import BearerTokens

        bearer_tokens = self._bearer_tokens = BearerTokens(self.config, self._shell, self._clock)
        return Authentication(self.config, self._random, self._credential, self._token_login, bearer_tokens.verifier)

    def _read_initial_users(self) -> InitialUsers | None:
        if not self.config.get("security.initial.users"):
            return None
        from tidelog.broker.cluster.initial_users import read_initial_users

        return read_initial_users(self.config)

    def _stored_tokens(self, driver: ControllerDriver) -> StoredTokens | None:
        """Delegation tokens; None where the settings name no secret: there are none then."""
        if not self.config.get("delegation.token.secret.key"):
            return None
        from tidelog.broker.cluster.stored_tokens import stored_tokens

        return stored_tokens(
            self.config, lambda: driver.store, self._clock, self._random, lambda: driver.elections.is_controller
        )

    def _make_metrics(self) -> BrokerMetrics | None:
        address = self.config.metrics_listener
        if address is None:
            return None
        from tidelog.broker.metrics.service import BrokerMetrics  # Most brokers on one machine have none.

        return BrokerMetrics(address, self._shell, self._clock, self._server)

    def _credential(self, mechanism: str, user: str) -> ScramCredential | None:
        return None if self._security is None else self._security.credential(mechanism, user)

    def _token_login(self, mechanism: str, token_id: str) -> TokenLogin | None:
        return None if self._tokens is None else self._tokens.login(mechanism, token_id)

    def _address_of(self, broker_id: int) -> tuple[str, int] | None:
        """Where this broker reaches another one: as the controller knows it, if it runs here, else as it was told.

        A controller knows no brokers before it has read them, which takes as long as its store is away.
        """
        controller = None if self._driver is None else self._driver.elections.image
        told = None if self._node is None else self._node.metadata.image
        for image in (controller, told):
            registration = None if image is None else image.brokers.get(BrokerId(broker_id))
            if registration is not None:
                endpoint = registration.endpoint(self._inter_broker_listener)
                return None if endpoint is None else (endpoint.host, endpoint.port)
        return None

    # Start.

    @property
    def node(self) -> Node:
        """The broker itself, once it is started."""
        assert self._node is not None
        return self._node

    @property
    def addresses(self) -> list[str]:
        """Where it listens, host:port, the first listener first."""
        return self._listening.addresses

    @property
    def metrics_address(self) -> str | None:
        """host:port where metrics and health are served; None where `metrics.listener` is not set."""
        return None if self._metrics is None else self._metrics.address

    async def start(self) -> None:
        """Returns when clients can connect. BrokerFailed says why it cannot start; nothing is left running then."""
        logger.info("descriptors: %s", self._descriptors)
        try:
            await self._start()
        except BaseException as error:
            await self._stop_parts(clean=False)
            match error:
                case StorageError() | StoreError() | StoreCorrupt() | StoreLocked() | MalformedZnode() | KafkaError():
                    raise BrokerFailed(str(error)) from error
                case OSError():
                    raise BrokerFailed(disk_refused(error)) from error
                case _:
                    raise

    async def _start(self) -> None:
        await self._open_ports()
        session = await self._connect_store()
        broker_id = await self._own_id(session)
        driver = self._driver = self._make_driver(session, broker_id)
        self.config.on_change(self._config_changed)
        settings = StoredSettings(driver, self._settings_read, self._clock)
        security = self._security = StoredSecurity(lambda: driver.store, self._clock, self._server.authorizer)
        cluster_id = await self._with_session(lambda: self._read_store(broker_id, settings))
        await self._with_session(lambda: patiently(lambda: self._write_initial_users(driver)))
        await self._follow(security)
        quotas = StoredQuotas(lambda: driver.store, self._clock, self._quotas)
        await self._follow(quotas)
        tokens = self._tokens = self._stored_tokens(driver)
        if tokens is not None:
            await self._follow(tokens)
        logs = await self._open_logs(broker_id, cluster_id, settings)
        environment = BrokerEnvironment(
            broker_id=broker_id,
            cluster_id=cluster_id,
            config=self.config,
            clock=self._clock,
            random=self._random,
            disk=self._disk,
            shell=self._shell,
        )
        metadata = MetadataCache(cluster_id)
        forwarding = self._forwarding = Forwarding(
            environment,
            LocalController(driver),
            metadata=metadata,
            settings=settings,
            known_settings=driver.known_settings,
        )
        self._node = Node(
            environment,
            metadata=metadata,
            logs=logs,
            controller=forwarding,
            settings=settings,
            handlers=load_handlers(),
            known_settings=driver.known_settings,
            security=security,
            quotas=self._quotas,
            stored_quotas=quotas,
            tokens=tokens,
            client_metrics=client_metrics_manager(environment),
        )
        self._tell_of_changes(self._node, logs)
        dispatcher = self._dispatcher(self._node, forwarding, driver)
        # Before it knows its epoch, a broker would obey orders that were meant for it before its restart.
        self._node.broker_epoch = await self._with_session(lambda: self._register(broker_id, settings))
        await self._serve(self._node, forwarding, dispatcher)

    async def _open_ports(self) -> None:
        """Binds what the broker listens on; nothing is answered yet."""
        if self.config.tracing_otlp_endpoint:
            from tidelog.broker.tracing import exporting  # With a setting only: it loads OpenTelemetry's SDK.

            exporting.require_packages()
        if self._bearer_tokens is not None:
            for opened in self._bearer_tokens.open():
                await future_of(opened)
        await self._listening.bind()
        if self._metrics is not None:
            await self._metrics.bind(self._network)

    async def _own_id(self, session: StoreClient) -> BrokerId:
        """`broker.id`; where it is not set, the next one that the store gives."""
        if self.config.broker_id >= 0:
            return BrokerId(self.config.broker_id)
        # A broker that has no id yet makes the containers for the counter itself.
        await patiently(Membership(session, self._clock, self._random, lambda resource, values: None).open)
        return await patiently(lambda: generate_broker_id(session))

    def _make_driver(self, session: StoreClient, broker_id: BrokerId) -> ControllerDriver:
        """What takes part in the cluster by a session with the metadata store."""
        return ControllerDriver(
            store=session,
            registration=BrokerRegistration(
                broker_id, BrokerEpoch(-1), tuple(self._listening.endpoints()), self.config.broker_rack
            ),
            settings=ControllerSettings.of(self.config),
            send=self._controller_requests.send,
            clock=self._clock,
            random=self._random,
            connect_store=self._connect_store,
            known_controller_epoch=lambda: -1 if self._node is None else self._node.metadata.image.controller_epoch,
            known_topic_ids=self._known_topic_ids,
            on_config_changed=self._settings_read,
            on_controller_changed=self._controller_changed,
            on_registered_anew=self._registered_anew,
            write_marks=lambda store: self.node.marks.write(store),
            on_failure=lambda error: self._fail(f"the broker cannot take part in its cluster: {error}"),
        )

    async def _open_logs(self, broker_id: BrokerId, cluster_id: str, settings: StoredSettings) -> LogManager:
        """Loads all logs. Recovery after a crash reads what was not flushed, which takes as long as it takes: off the
        loop, so that the session with the store is kept meanwhile."""
        logs = self._logs = self._log_manager(broker_id, cluster_id)
        logs.maintenance.settings_gate = settings
        self._is_now(BrokerState.RECOVERY)
        if self._metrics is not None:
            self._metrics.opening(logs)
        await future_of(self._shell.in_pool(logs.open))
        return logs

    def _tell_of_changes(self, node: Node, logs: LogManager) -> None:
        """Connects the node's parts with what only the runtime knows."""
        node.marks.on_change = self._marks_changed
        node.refused_settings = lambda values: refusal(self._tls, self.config.altered(values))
        node.marks.on_tails_settled = lambda: self._shell.in_pool(logs.keep_boot_id)
        node.marks.on_losses_told = lambda: self._shell.in_pool(logs.keep_properties)
        node.metadata.on_brokers_changed.append(self._brokers_changed)
        node.config_handler.settings_loaded(self._stored)

    def _dispatcher(self, node: Node, forwarding: Forwarding, driver: ControllerDriver) -> Dispatcher:
        """What handles requests, measured and traced where that is set."""
        dispatcher = Dispatcher(node, node.handlers, forwarding)
        if self._metrics is not None:
            self._metrics.attach(node, driver)
            dispatcher = self._metrics.dispatcher(node, forwarding)
        self._controller_requests.attach(node, dispatcher, driver)
        if self.config.tracing_otlp_endpoint:
            dispatcher = self._traced(dispatcher, self.config.tracing_otlp_endpoint)
        return dispatcher

    async def _serve(self, node: Node, forwarding: Forwarding, dispatcher: Dispatcher) -> None:
        """Takes the controller's requests, which come by a listener like any others; all other requests wait until its
        first ones are carried out."""
        starting = StartingDispatcher(node, node.handlers, forwarding)
        self._server.start(starting)
        await self._wait_for_metadata(node.broker_id)
        node.marks.elected_upon(node.metadata.image)
        node.disk_scheduler.tick()
        node.cleaning.start()
        node.scrubbing.start()
        self._server.dispatcher = dispatcher
        starting.open(dispatcher)
        self._is_now(BrokerState.RUNNING)

    def _traced(self, dispatcher: Dispatcher, endpoint: str) -> Dispatcher:
        """The same with spans of admin operations."""
        from tidelog.broker.tracing.dispatcher import TracedDispatcher
        from tidelog.broker.tracing.exporting import open_tracing

        self._tracing = open_tracing(endpoint, self.node.broker_id, self.node.cluster_id)
        return TracedDispatcher(dispatcher, self._tracing)

    def _is_now(self, state: BrokerState) -> None:
        if self._metrics is not None:
            self._metrics.state = state

    def _driver_of_start(self) -> ControllerDriver:
        """What takes part in the cluster; BrokerFailed where a stop has taken it away in the middle of the start."""
        if self._driver is None:
            raise BrokerFailed("stopped while it was starting")
        return self._driver

    async def _follow(self, stored: StoredSecurity | StoredQuotas | StoredTokens) -> None:
        """Reads what the store says, and follows its changes until the broker stops."""
        self._followed.append(stored)
        await self._with_session(lambda: patiently(stored.open))
        stored.start()

    async def _with_session(self, work: Callable[[], Awaitable[T]]) -> T:
        """Does `work`, which may be done twice, anew with another session where the one with the store has ended."""
        driver = self._driver_of_start()
        while True:
            try:
                return await work()
            except SessionExpired:
                await driver.open_another_session()

    async def _read_store(self, broker_id: BrokerId, settings: StoredSettings) -> str:
        """Follows the cluster's settings, reads those that concern this broker, and returns the cluster's id."""
        driver = self._driver_of_start()
        cluster_id = await driver.open()
        topics = await patiently(driver.stored_topics)
        entities = await patiently(driver.stored_entities)
        await settings.read([*broker_resources(broker_id), *topics, *entities])
        return cluster_id

    async def _register(self, broker_id: BrokerId, settings: StoredSettings) -> BrokerEpoch:
        driver = self._driver_of_start()
        if not driver.is_open:
            # Another session than the one that read the settings, and followed them.
            await self._read_store(broker_id, settings)
        return await driver.register()

    async def _write_initial_users(self, driver: ControllerDriver) -> None:
        if self._initial_users is not None:
            from tidelog.broker.cluster.initial_users import write_initial_users  # Loaded when they were read.

            await write_initial_users(driver.store, self._initial_users)

    def _log_manager(self, broker_id: BrokerId, cluster_id: str) -> LogManager:
        config = self.config
        return LogManager(
            disk=self._disk,
            clock=self._clock,
            log_dirs=config.log_dirs,
            broker_id=broker_id,
            cluster_id=cluster_id,
            default_config=log_config(config, {}),
            topic_config=lambda topic: log_config(
                config, self._stored.get(ConfigResource(ConfigResourceType.TOPIC, topic), {})
            ),
            random=self._random,
            settings=log_manager_settings(config, open_files_max=self._descriptors.log),
            on_directory_failure=self._directory_failing,
        )

    async def _wait_for_metadata(self, broker_id: BrokerId) -> None:
        """Waits until the controller has told this broker that it is alive: then its Metadata answers are true."""
        deadline_ms = self._clock.monotonic_ms() + READY_MS_MAX
        while not self.node.metadata.image.is_live(broker_id):
            if self._clock.monotonic_ms() >= deadline_ms:
                raise BrokerFailed(f"no controller has told this broker of the cluster within {READY_MS_MAX} ms")
            await asyncio.sleep(0.01)
        await self._wait_until_leading(broker_id, min(deadline_ms, self._clock.monotonic_ms() + LEADING_MS_MAX))

    async def _wait_until_leading(self, broker_id: BrokerId, deadline_ms: int) -> None:
        """Waits until this broker leads what it tells clients that it leads; for a while, for it may be much."""
        node = self.node
        waiting = [
            TopicPartition(topic, partition)
            for topic, image in node.metadata.image.topics.items()
            for partition, state in image.partitions.items()
            if state.leader == broker_id
        ]
        while waiting and self._clock.monotonic_ms() < deadline_ms:
            replicas = [(each, node.replicas.get(each)) for each in waiting]
            waiting = [each for each, replica in replicas if replica is None or replica.leader is None]
            if waiting:
                await asyncio.sleep(0.01)

    # Settings.

    def _known_topic_ids(self) -> dict[str, TopicId]:
        """What controllers have told this broker. Its logs may be of deleted topics."""
        if self._node is None:
            return {}
        return {name: topic_id for topic_id, name in self._node.metadata.image.topic_names.items()}

    def _settings_read(self, resource: ConfigResource, values: Mapping[str, str]) -> None:
        if self._node is None:
            self._stored[resource] = values
        else:
            self._node.config_handler.settings_changed(resource, values)

    def _config_changed(self, names: frozenset[str]) -> None:
        if self._driver is not None:
            self._driver.elections.set_settings(ControllerSettings.of(self.config))
        self._server.configure()

    # The other brokers, and the controller.

    def _marks_changed(self) -> None:
        if self._driver is not None:
            self._driver.marks_changed()

    def _brokers_changed(self) -> None:
        """The controller told which brokers are live: connections to all others end."""
        self._peers.retain(self.node.metadata.image.brokers)

    def _peer_reached(self, broker_id: int) -> None:
        if self._node is not None:
            self._node.departures.reached(broker_id)

    def _peer_broke(self, broker_id: int) -> None:
        if self._node is not None:
            self._node.departures.connection_broke(broker_id)

    def _registered_anew(self, broker_epoch: BrokerEpoch) -> None:
        """A later session of this broker: its epoch is another."""
        self.node.broker_epoch = broker_epoch

    def _controller_changed(self, controller_id: int) -> None:
        """Requests that wait at the former controller are asked of the new one."""
        for purpose in (Purpose.REPORT, Purpose.FORWARD):
            self._peers.close_purpose(purpose, but=controller_id)

    # Failure and stop.

    def _directory_failing(self, path: str) -> None:
        """Called from whatever thread saw it."""
        self._shell.soon_from_any_thread(self._directory_failed, path)

    def _directory_failed(self, path: str) -> None:
        """A log directory went offline with its partitions; the last one stops the broker."""
        if self._logs is None or self._node is None:
            return
        if self._logs.has_failed:
            self._fail(f"every log directory has failed, {path} last: see the log for the errors of the disk")
            return
        logger.error("log directory offline: path=%s", path)
        self._node.directory_failed()
        if self._driver is not None:
            self._driver.log_directory_failed()

    def _fail(self, reason: str) -> None:
        logger.critical("broker stops: %s", reason)
        if not self._failed.done():
            self._failed.set_result(reason)

    async def failed(self) -> str:
        """Returns when the broker cannot go on, with the reason."""
        return await asyncio.shield(self._failed)

    async def stop(self, *, hand_over: bool = True) -> None:
        """Stops cleanly: leaderships handed over, connections closed, logs flushed and marked clean, the session ended.

        Without `hand_over` where the whole cluster stops: there is no broker to take them. Idempotent.
        """
        if hand_over:
            await self._hand_over()
        await self._stop_parts(clean=True)

    async def _hand_over(self) -> None:
        node, forwarding = self._node, self._forwarding
        if node is not None and forwarding is not None and node.broker_epoch >= 0 and not self._handed_over:
            await hand_over_leaderships(node, forwarding, self.config, self._handing_over)

    def _handing_over(self) -> None:
        self._handed_over = True
        self._is_now(BrokerState.PENDING_CONTROLLED_SHUTDOWN)

    async def _stop_parts(self, *, clean: bool) -> None:
        if self._metrics is not None:
            self._metrics.stop()
        self._server.stop()
        self._listening.close()
        tracing, self._tracing = self._tracing, None
        if tracing is not None:
            await asyncio.to_thread(tracing.close)
        node = self._node
        if node is not None:
            node.stop()
        self._peers.close()
        followed, self._followed = self._followed, []
        for stored in followed:
            await stored.close()
        driver, self._driver = self._driver, None
        if driver is not None:
            await driver.close()
        await self._shell.stop()
        logs, self._logs = self._logs, None
        if logs is not None:
            # Logs that are still being recovered are not clean, whatever stops the broker.
            if clean and node is not None:
                logs.close(node.broker_epoch, but=self._shell.busy_directories)
            else:
                logs.abandon()
        self._shell.end_threads()
