"""A broker's settings, resolved: the file and the command line, then what was changed while running.

    default  <  server.properties, --override  <  cluster-wide change  <  change of this broker

Changes are kept in the store (/config/brokers/<default>, /config/brokers/N) and come in through `set_dynamic`;
every later `get` returns them, and `on_change` tells parts that hold a copy.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, Generic, NamedTuple, TypeVar, cast

from tidelog.config import jaas, registry
from tidelog.config.checks import check_broker
from tidelog.config.jaas import LoginModule
from tidelog.config.listener_security import MECHANISMS, SASL_PROTOCOLS, listener_of, login_module, resolve
from tidelog.config.listeners import Listener, parse_listeners, parse_protocol_map
from tidelog.config.metrics_listener import MetricsListener, parse_metrics_listener
from tidelog.config.properties import ConfigError, Entry, Problem, entries_of, parse
from tidelog.config.setting import Effect, InvalidValue, UpdateMode, Value, render

T = TypeVar("T")


class Source(IntEnum):
    """Where a value comes from, with its code in DescribeConfigs responses."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


class Synonym(NamedTuple):
    """One place where a setting, or one that means the same, is set."""

    name: str
    value: str | None
    source: Source


class _Setting(Generic[T]):
    """Attribute access to one setting, typed."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name: Final = name

    def __get__(self, config: BrokerConfig, _owner: type[BrokerConfig]) -> T:
        return cast(T, config.values[self.name])


class BrokerConfig:
    """The settings of one broker. Attributes are named after their settings; `get` knows all of them."""

    add_partitions_to_txn_retry_backoff_max_ms = _Setting[int]("add.partitions.to.txn.retry.backoff.max.ms")
    add_partitions_to_txn_retry_backoff_ms = _Setting[int]("add.partitions.to.txn.retry.backoff.ms")
    advertised_listeners_set = _Setting[tuple[str, ...] | None]("advertised.listeners")
    auto_create_topics_enable = _Setting[bool]("auto.create.topics.enable")
    auto_leader_rebalance_enable = _Setting[bool]("auto.leader.rebalance.enable")
    broker_rack = _Setting[str | None]("broker.rack")
    connections_max_idle_ms = _Setting[int]("connections.max.idle.ms")
    controlled_shutdown_enable = _Setting[bool]("controlled.shutdown.enable")
    controlled_shutdown_max_retries = _Setting[int]("controlled.shutdown.max.retries")
    controlled_shutdown_retry_backoff_ms = _Setting[int]("controlled.shutdown.retry.backoff.ms")
    controller_socket_timeout_ms = _Setting[int]("controller.socket.timeout.ms")
    cordoned_log_dirs = _Setting[tuple[str, ...]]("cordoned.log.dirs")
    default_replication_factor = _Setting[int]("default.replication.factor")
    delete_topic_enable = _Setting[bool]("delete.topic.enable")
    fetch_max_bytes = _Setting[int]("fetch.max.bytes")
    group_consumer_assignment_interval_ms = _Setting[int]("group.consumer.assignment.interval.ms")
    group_consumer_assignors = _Setting[tuple[str, ...]]("group.consumer.assignors")
    group_consumer_heartbeat_interval_ms = _Setting[int]("group.consumer.heartbeat.interval.ms")
    group_consumer_max_size = _Setting[int]("group.consumer.max.size")
    group_consumer_migration_policy = _Setting[str]("group.consumer.migration.policy")
    group_consumer_regex_refresh_interval_ms = _Setting[int]("group.consumer.regex.refresh.interval.ms")
    group_consumer_session_timeout_ms = _Setting[int]("group.consumer.session.timeout.ms")
    group_share_assignment_interval_ms = _Setting[int]("group.share.assignment.interval.ms")
    group_share_heartbeat_interval_ms = _Setting[int]("group.share.heartbeat.interval.ms")
    group_share_initialize_retry_interval_ms = _Setting[int]("group.share.initialize.retry.interval.ms")
    group_share_max_share_sessions = _Setting[int]("group.share.max.share.sessions")
    group_share_max_size = _Setting[int]("group.share.max.size")
    group_share_session_timeout_ms = _Setting[int]("group.share.session.timeout.ms")
    replica_placement = _Setting[str]("replica.placement")
    isr_return_wait_ms = _Setting[int]("isr.return.wait.ms")
    leader_imbalance_check_interval_seconds = _Setting[int]("leader.imbalance.check.interval.seconds")
    leader_imbalance_per_broker_percentage = _Setting[int]("leader.imbalance.per.broker.percentage")
    log_cleaner_backoff_ms = _Setting[int]("log.cleaner.backoff.ms")
    log_cleaner_dedupe_buffer_size = _Setting[int]("log.cleaner.dedupe.buffer.size")
    log_cleaner_enable = _Setting[bool]("log.cleaner.enable")
    log_cleaner_io_buffer_load_factor = _Setting[float]("log.cleaner.io.buffer.load.factor")
    log_cleaner_io_buffer_size = _Setting[int]("log.cleaner.io.buffer.size")
    log_cleaner_io_max_bytes_per_second = _Setting[float]("log.cleaner.io.max.bytes.per.second")
    log_cleaner_threads = _Setting[int]("log.cleaner.threads")
    log_flush_offset_checkpoint_interval_ms = _Setting[int]("log.flush.offset.checkpoint.interval.ms")
    log_initial_task_delay_ms = _Setting[int]("log.initial.task.delay.ms")
    log_retention_check_interval_ms = _Setting[int]("log.retention.check.interval.ms")
    log_scrub_interval_ms = _Setting[int]("log.scrub.interval.ms")
    log_scrub_max_bytes_per_second = _Setting[int]("log.scrub.max.bytes.per.second")
    max_connections = _Setting[int]("max.connections")
    max_connections_per_ip = _Setting[int]("max.connections.per.ip")
    max_incremental_fetch_session_cache_slots = _Setting[int]("max.incremental.fetch.session.cache.slots")
    max_request_partition_size_limit = _Setting[int]("max.request.partition.size.limit")
    message_max_bytes = _Setting[int]("message.max.bytes")
    logging_format = _Setting[str]("logging.format")
    metrics_client_series = _Setting[int]("metrics.client.series")
    metrics_groups = _Setting[str]("metrics.groups")
    metrics_partitions = _Setting[bool]("metrics.partitions")
    metrics_topics = _Setting[str]("metrics.topics")
    min_insync_replicas = _Setting[int]("min.insync.replicas")
    num_partitions = _Setting[int]("num.partitions")
    group_initial_rebalance_delay_ms = _Setting[int]("group.initial.rebalance.delay.ms")
    group_min_session_timeout_ms = _Setting[int]("group.min.session.timeout.ms")
    group_max_session_timeout_ms = _Setting[int]("group.max.session.timeout.ms")
    group_max_size = _Setting[int]("group.max.size")
    offset_metadata_max_bytes = _Setting[int]("offset.metadata.max.bytes")
    offsets_commit_timeout_ms = _Setting[int]("offsets.commit.timeout.ms")
    offsets_load_buffer_size = _Setting[int]("offsets.load.buffer.size")
    offsets_retention_check_interval_ms = _Setting[int]("offsets.retention.check.interval.ms")
    offsets_retention_minutes = _Setting[int]("offsets.retention.minutes")
    offsets_topic_compression_codec = _Setting[int]("offsets.topic.compression.codec")
    offsets_topic_num_partitions = _Setting[int]("offsets.topic.num.partitions")
    offsets_topic_replication_factor = _Setting[int]("offsets.topic.replication.factor")
    offsets_topic_segment_bytes = _Setting[int]("offsets.topic.segment.bytes")
    producer_id_expiration_check_interval_ms = _Setting[int]("producer.id.expiration.check.interval.ms")
    producer_id_expiration_ms = _Setting[int]("producer.id.expiration.ms")
    producer_ids_max = _Setting[int]("producer.ids.max")
    replica_fetch_backoff_ms = _Setting[int]("replica.fetch.backoff.ms")
    replica_fetch_max_bytes = _Setting[int]("replica.fetch.max.bytes")
    replica_fetch_min_bytes = _Setting[int]("replica.fetch.min.bytes")
    replica_fetch_response_max_bytes = _Setting[int]("replica.fetch.response.max.bytes")
    replica_fetch_wait_max_ms = _Setting[int]("replica.fetch.wait.max.ms")
    replica_high_watermark_checkpoint_interval_ms = _Setting[int]("replica.high.watermark.checkpoint.interval.ms")
    replica_lag_time_max_ms = _Setting[int]("replica.lag.time.max.ms")
    replica_selector_class = _Setting[str | None]("replica.selector.class")
    replica_socket_timeout_ms = _Setting[int]("replica.socket.timeout.ms")
    request_timeout_ms = _Setting[int]("request.timeout.ms")
    share_coordinator_load_buffer_size = _Setting[int]("share.coordinator.load.buffer.size")
    share_coordinator_snapshot_update_records_per_snapshot = _Setting[int](
        "share.coordinator.snapshot.update.records.per.snapshot"
    )
    share_coordinator_state_topic_compression_codec = _Setting[int]("share.coordinator.state.topic.compression.codec")
    share_coordinator_state_topic_min_isr = _Setting[int]("share.coordinator.state.topic.min.isr")
    share_coordinator_state_topic_num_partitions = _Setting[int]("share.coordinator.state.topic.num.partitions")
    share_coordinator_state_topic_prune_interval_ms = _Setting[int]("share.coordinator.state.topic.prune.interval.ms")
    share_coordinator_state_topic_replication_factor = _Setting[int]("share.coordinator.state.topic.replication.factor")
    share_coordinator_state_topic_segment_bytes = _Setting[int]("share.coordinator.state.topic.segment.bytes")
    share_coordinator_write_timeout_ms = _Setting[int]("share.coordinator.write.timeout.ms")
    socket_request_max_bytes = _Setting[int]("socket.request.max.bytes")
    socket_send_buffer_bytes = _Setting[int]("socket.send.buffer.bytes")
    transaction_abort_timed_out_transaction_cleanup_interval_ms = _Setting[int](
        "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    )
    transaction_max_timeout_ms = _Setting[int]("transaction.max.timeout.ms")
    transaction_partition_verification_enable = _Setting[bool]("transaction.partition.verification.enable")
    transaction_remove_expired_transaction_cleanup_interval_ms = _Setting[int](
        "transaction.remove.expired.transaction.cleanup.interval.ms"
    )
    transaction_state_log_load_buffer_size = _Setting[int]("transaction.state.log.load.buffer.size")
    transaction_state_log_min_isr = _Setting[int]("transaction.state.log.min.isr")
    transaction_state_log_num_partitions = _Setting[int]("transaction.state.log.num.partitions")
    transaction_state_log_replication_factor = _Setting[int]("transaction.state.log.replication.factor")
    transaction_state_log_segment_bytes = _Setting[int]("transaction.state.log.segment.bytes")
    transactional_id_expiration_ms = _Setting[int]("transactional.id.expiration.ms")
    tracing_otlp_endpoint = _Setting[str | None]("tracing.otlp.endpoint")
    slow_request_ms = _Setting[int | None]("slow.request.ms")
    telemetry_max_bytes = _Setting[int]("telemetry.max.bytes")
    unclean_leader_election_enable = _Setting[bool]("unclean.leader.election.enable")
    zookeeper_connect = _Setting[str | None]("zookeeper.connect")
    zookeeper_session_timeout_ms = _Setting[int]("zookeeper.session.timeout.ms")
    zookeeper_digest = _Setting[str | None]("zookeeper.digest")
    zookeeper_set_acl = _Setting[bool]("zookeeper.set.acl")

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        """Later entries of a name win. Raises ConfigError with everything that is wrong, file and line with each."""
        problems: list[Problem] = []
        written: dict[str, Entry] = {}
        for entry in entries:
            written[entry.name] = entry
        static: dict[str, str] = {}
        for entry in written.values():
            reason = _entry_problem(entry)
            if reason is None:
                static[entry.name] = entry.value
            else:
                problems.append(Problem(entry.origin, entry.line, reason))
        self.static: Final[Mapping[str, str]] = MappingProxyType(static)
        """As written in the file and on the command line, by name."""
        self.dynamic_default: Mapping[str, str] = MappingProxyType({})
        """Changes for all brokers."""
        self.dynamic_broker: Mapping[str, str] = MappingProxyType({})
        """Changes for this broker."""
        self._listeners_of_changes: list[Callable[[frozenset[str]], object]] = []
        self._inter_broker_listener: tuple[object, str] = (None, "")
        """The `values` of which it follows, and its name."""
        self.values: dict[str, Value] = self._resolve()
        """What every setting comes to, by name; plugins' and listeners' own are absent."""
        self._written_listeners = cast("tuple[str, ...]", self.values["listeners"])
        self._written_protocols = cast(str, self.values["listener.security.protocol.map"])
        """Ports are bound once, before the changes in the store are known: of these two the file alone counts."""
        for name, reason in check_broker(self.values, static):
            entry = written.get(name, Entry(name, ""))
            problems.append(Problem(entry.origin, entry.line, reason))
        if problems:
            raise ConfigError(sorted(problems, key=lambda problem: (problem.origin, problem.line)))

    @classmethod
    def from_text(
        cls, text: str, origin: str = "server.properties", overrides: Mapping[str, str] | None = None
    ) -> BrokerConfig:
        """From the text of a properties file, and settings that override it; raises ConfigError."""
        return cls([*parse(text, origin), *entries_of(overrides or {}, "command line")])

    @classmethod
    def from_mapping(cls, settings: Mapping[str, object], origin: str = "command line") -> BrokerConfig:
        """From settings by name, such as those of a test; values are written as `str` writes them, bools lower case."""
        return cls(Entry(name, _text(value), origin) for name, value in settings.items())

    def get(self, name: str) -> Value:
        """The value of a setting, with the run-time changes; KeyError for a name that the registry lacks."""
        return self.values[name]

    def is_set(self, name: str) -> bool:
        """Whether it was set, in the file or while running; false where the default stands."""
        return name in self.dynamic_broker or name in self.dynamic_default or name in self.static

    # What several settings make together.

    @property
    def broker_id(self) -> int:
        """-1: take the one of meta.properties, or a new one."""
        broker_id = cast(int, self.values["broker.id"])
        return broker_id if broker_id >= 0 else cast(int, self.values["node.id"])

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """At least one, none twice."""
        several = cast("tuple[str, ...] | None", self.values["log.dirs"])
        return several or (cast(str, self.values["log.dir"]),)

    @property
    def listeners(self) -> list[Listener]:
        """Where to bind; without the controllers' of KRaft."""
        controllers = {name.upper() for name in cast("tuple[str, ...]", self.values["controller.listener.names"])}
        members = [member for member in self._written_listeners if member.partition(":")[0].upper() not in controllers]
        return parse_listeners(members, self._protocols())

    @property
    def metrics_listener(self) -> MetricsListener | None:
        """Where metrics and health are served; None: nowhere."""
        text = cast("str | None", self.values["metrics.listener"])
        return parse_metrics_listener(text) if text else None

    @property
    def advertised_listeners(self) -> list[Listener]:
        """What clients are told, in the order of `listeners`; where the host is empty, the machine's name is due."""
        told = {listener.name: listener for listener in self._advertised()}
        return [told.get(listener.name, listener) for listener in self.listeners]

    def _advertised(self) -> list[Listener]:
        members = self.advertised_listeners_set
        if not members:
            return []
        controllers = {name.upper() for name in cast("tuple[str, ...]", self.values["controller.listener.names"])}
        return parse_listeners(
            [member for member in members if member.partition(":")[0].upper() not in controllers], self._protocols()
        )

    def _protocols(self) -> dict[str, str]:
        return parse_protocol_map(self._written_protocols)

    @property
    def inter_broker_listener_name(self) -> str:
        """The listener that other brokers use; asked for by each of their requests."""
        values, name = self._inter_broker_listener
        if values is not self.values:
            name = self._find_inter_broker_listener()
            self._inter_broker_listener = (self.values, name)
        return name

    def _find_inter_broker_listener(self) -> str:
        named = cast("str | None", self.values["inter.broker.listener.name"])
        if named:
            return named.upper()
        protocol = self.values["security.inter.broker.protocol"]
        listeners = self.listeners
        return next((found.name for found in listeners if found.security_protocol == protocol), listeners[0].name)

    def of_listener(self, listener: str, name: str, mechanism: str = "") -> Value:
        """A setting as a listener has it: its own (`listener.name.<listener>.<name>`), else the one without prefix."""
        return resolve(self._layers, self.values, listener, name, mechanism)

    @property
    def mechanism_problem(self) -> str | None:
        """Why other brokers could not log in here by SASL, in Kafka's words; None where they can, or need not."""
        name = self.inter_broker_listener_name
        listener = next((each for each in self.listeners if each.name == name), None)
        if listener is None or listener.security_protocol not in SASL_PROTOCOLS:
            return None
        enabled = cast("tuple[str, ...]", self.of_listener(name, "sasl.enabled.mechanisms"))
        if self.values["sasl.mechanism.inter.broker.protocol"] in enabled:
            return None
        return (
            "sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms when SASL is used for "
            "inter-broker communication"
        )

    def login_module(self, listener: str, mechanism: str) -> LoginModule | None:
        """What a listener's sasl.jaas.config says for a mechanism; None where it is not set. InvalidJaas."""
        return login_module(self._layers, listener, mechanism)[1]

    @property
    def _layers(self) -> tuple[Mapping[str, str], ...]:
        return (self.dynamic_broker, self.dynamic_default, self.static)

    @property
    def zookeeper_connection_timeout_ms(self) -> int:
        """How long to wait for the metadata store; the session's timeout unless set, as in Kafka."""
        timeout_ms = cast("int | None", self.values["zookeeper.connection.timeout.ms"])
        return self.zookeeper_session_timeout_ms if timeout_ms is None else timeout_ms

    @property
    def max_connections_per_ip_overrides(self) -> dict[str, int]:
        """Connections by host or address."""
        text = cast(str, self.values["max.connections.per.ip.overrides"])
        pairs = (part.rpartition(":") for part in text.split(",") if part.strip())
        return {_as_the_system_writes(host.strip()): int(count) for host, _, count in pairs}

    def warnings(self) -> list[str]:
        """What was set but has no effect here, a sentence each: to be logged once, at the start."""
        sentences = []
        controllers = cast("tuple[str, ...]", self.values["controller.listener.names"])
        named = {name.lower() for name in (*controllers, *(listener.name for listener in self.listeners))}
        for name in sorted(self.static):
            setting = registry.broker_setting(name)
            listener = listener_of(name)
            if listener is not None and listener.lower() not in named:
                sentences.append(f"{name} is accepted without effect: no listener is named {listener}.")
            elif name == "sasl.jaas.config":
                sentences.append(f"{name} is accepted without effect: name its listener and mechanism before it.")
            elif setting is not None and setting.effect is Effect.ACCEPTED:
                sentences.append(f"{name} is accepted without effect: {setting.documentation}")
            elif setting is None:
                sentences.append(f"{name} is accepted without effect: it belongs to a plugin that is not loaded.")
        return sentences

    # Changes while running.

    def set_dynamic(self, cluster_default: Mapping[str, str], broker: Mapping[str, str]) -> frozenset[str]:
        """Takes the changes as they stand in the store; names whose value is another now, after `on_change` was told.

        What is unknown, read-only or invalid there (written past AlterConfigs) is left out.
        """
        of_listeners = self._dynamic_of_listeners()
        self.dynamic_default = MappingProxyType(
            {name: text for name, text in cluster_default.items() if _dynamic_problem(name, text) is None}
        )
        self.dynamic_broker = MappingProxyType(
            {name: text for name, text in broker.items() if _dynamic_problem(name, text) is None}
        )
        before = self.values
        self.values = self._resolve()
        changed = frozenset(
            (
                *(name for name, value in self.values.items() if before[name] != value),
                *(name for name, _ in of_listeners.items() ^ self._dynamic_of_listeners().items()),
            )
        )
        if changed:
            for told in self._listeners_of_changes:
                told(changed)
        return changed

    def _dynamic_of_listeners(self) -> dict[str, str]:
        """The changes for single listeners, which `values` lacks."""
        dynamic = {**self.dynamic_default, **self.dynamic_broker}
        return {name: text for name, text in dynamic.items() if name not in self.values}

    def altered(self, broker: Mapping[str, str]) -> BrokerConfig:
        """As this one will be once `broker` are the changes for this broker; this one stays as it is."""
        other = copy.copy(self)
        other._listeners_of_changes = []
        other.set_dynamic(self.dynamic_default, broker)
        return other

    def on_change(self, told: Callable[[frozenset[str]], object]) -> None:
        """Calls `told(names)` whenever settings got other values, for parts that keep what follows from them."""
        self._listeners_of_changes.append(told)

    def _resolve(self) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for name, setting in registry.BROKER.items():
            for layer in (self.dynamic_broker, self.dynamic_default, self.static):
                if name in layer:
                    values[name] = setting.parse(layer[name])
                    break
            else:
                values[name] = setting.default
        return values

    # For DescribeConfigs.

    def listener_settings(self) -> list[str]:
        """The settings of single listeners that are set, `listener.name.<listener>.<setting>`."""
        names = {name for layer in self._layers for name in layer if name not in registry.BROKER}
        return sorted(name for name in names if registry.broker_setting(name) is not None)

    def synonyms(self, name: str) -> list[Synonym]:
        """Every place where `name`, or one that means the same, is set, the one that counts first; secrets are None."""
        found = []
        names = registry.synonyms(name)
        layers: tuple[tuple[Source, Mapping[str, str]], ...] = (
            (Source.DYNAMIC_BROKER, self.dynamic_broker),
            (Source.DYNAMIC_DEFAULT_BROKER, self.dynamic_default),
            (Source.STATIC_BROKER, self.static),
        )
        for source, layer in layers:
            for synonym in names:
                if synonym in layer:
                    setting = registry.broker_setting(synonym)
                    hidden = setting is not None and setting.is_sensitive
                    found.append(Synonym(synonym, None if hidden else layer[synonym], source))
        for synonym in names:
            setting = registry.broker_setting(synonym)
            if setting is not None and setting.default is not None:
                shown = None if setting.is_sensitive else render(setting.default)
                found.append(Synonym(synonym, shown, Source.DEFAULT))
        return found


def _as_the_system_writes(host: str) -> str:
    """An address as connections have it: IPv6 without brackets, in small letters, shortened. A name stays."""
    if ":" not in host:
        return host
    import ipaddress  # A millisecond of every start, for what few set.

    try:
        return str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")))
    except ValueError:
        return host


def _text(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _entry_problem(entry: Entry) -> str | None:
    """What is wrong with one line of the file by itself, and what to do; None when nothing is."""
    name, text = entry.name, entry.value
    if registry.is_plugin_setting(name):
        return None
    setting = registry.broker_setting(name)
    if setting is None:
        if name in registry.TOPIC:
            return f"{name} is a topic's setting: " + (
                f"for all topics set {registry.TOPIC[name].synonyms[0]}"
                if registry.TOPIC[name].synonyms
                else "set it with `tidelog topics alter`"
            )
        near = registry.nearest(name, registry.BROKER)
        return f"unknown setting {name}" + (f": did you mean {near}?" if near else ": remove it")
    if name in registry.RUNTIME_ONLY:
        return f"{name} can only be set while the broker runs: remove it, and use `tidelog configs`"
    try:
        advice = registry.refusal(setting, text)
        if advice is None:
            setting.parse(text)
    except InvalidValue as error:
        return str(error)
    return f"{name} is not supported: {advice}" if advice else None


def _dynamic_problem(name: str, text: str) -> str | None:
    """Why `name` cannot be changed to `text` while running; None when it can."""
    setting = registry.broker_setting(name)
    if setting is None:
        return f"Unknown broker config name: {name}"
    if not registry.is_dynamic(name):
        return f"Cannot update these configs dynamically: {name}"
    try:
        value = setting.parse(text)
        if setting.name == "sasl.jaas.config" and text:
            jaas.parse(text)
        if setting.name == "sasl.enabled.mechanisms" and not set(MECHANISMS).intersection(
            cast("tuple[str, ...]", value)
        ):
            advice = f"it must name one of {', '.join(MECHANISMS)}, or no client could log in"
            return f"Invalid value {text} for configuration {name}: {advice}"
    except InvalidValue as error:
        return str(error)
    except jaas.InvalidJaas as error:
        return f"{name} cannot be read: {error}"
    return None


def validate_dynamic(changes: Mapping[str, str], *, cluster_default: bool) -> None:
    """Checks changes of brokers' settings as a whole, as they would stand in the store; ValueError in Kafka's words.

    `cluster_default`: for all brokers; settings that only a single broker has are refused then.
    """
    read_only = sorted(name for name in changes if registry.broker_setting(name) and not registry.is_dynamic(name))
    if read_only:
        raise ValueError(f"Cannot update these configs dynamically: Set({', '.join(read_only)})")
    if cluster_default:
        own = sorted(
            name for name in changes if (found := registry.broker_setting(name)) and found.mode is UpdateMode.PER_BROKER
        )
        if own:
            raise ValueError(f"Cannot update these configs at default cluster level: Set({', '.join(own)})")
    for name, text in changes.items():
        problem = _dynamic_problem(name, text)
        if problem is not None:
            raise ValueError(problem)
        setting = registry.broker_setting(name)
        advice = registry.refusal(setting, text) if setting else None
        if advice:
            raise ValueError(f"Invalid value {text} for configuration {name}: {advice}")
