"""What several of a broker's settings must be to one another, and what would make a server that tidelog is not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, cast

from tidelog.config.listener_security import check_listeners, parse_super_users
from tidelog.config.listeners import Listener, parse_listeners, parse_protocol_map
from tidelog.config.metrics_listener import parse_metrics_listener
from tidelog.config.setting import Value
from tidelog.config.zookeeper_security import check_zookeeper_security

_STORE_HOST: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]/\s]+)(:[0-9]{1,5})?")


def check_broker(values: Mapping[str, Value], written: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields (setting to blame, what is wrong and what to do), for values that are valid by themselves."""
    yield from _check_identity(values)
    yield from _check_metadata(values)
    yield from _check_listeners(values, written)
    yield from _check_authorizer(values)
    yield from _check_log_dirs(values)
    yield from _check_metrics(values)
    yield from _check_relations(values, written)


def _check_identity(values: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    broker_id, node_id = cast(int, values["broker.id"]), cast(int, values["node.id"])
    if broker_id >= 0 and node_id >= 0 and broker_id != node_id:
        yield "broker.id", f"broker.id is {broker_id} and node.id is {node_id}: give only one of them, or both the same"
    if broker_id < 0 and node_id < 0 and not values["broker.id.generation.enable"]:
        yield "broker.id", "broker.id is not set and broker.id.generation.enable is false: set broker.id"


def _check_metadata(values: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    """KRaft's settings are accepted where this one process is the whole of what they describe."""
    roles = set(cast("tuple[str, ...]", values["process.roles"]))
    if roles == {"broker"}:
        yield (
            "process.roles",
            "process.roles=broker needs KRaft controllers elsewhere, whose protocol is not spoken: use "
            "broker,controller, or remove it",
        )
    elif roles == {"controller"}:
        yield (
            "process.roles",
            "process.roles=controller is a server without topics: use broker,controller, or remove it",
        )
    voters = cast("tuple[str, ...]", values["controller.quorum.voters"])
    if len(voters) > 1:
        yield (
            "controller.quorum.voters",
            f"controller.quorum.voters names {len(voters)} controllers, but metadata is kept in the store of this "
            "process: name none, or this node alone",
        )
    connect = cast("str | None", values["zookeeper.connect"])
    if connect and roles:
        yield (
            "zookeeper.connect",
            "zookeeper.connect names the cluster's metadata store, and process.roles says that it has none: remove one",
        )
    yield from check_zookeeper_security(values)
    hosts = connect.partition("/")[0].split(",") if connect else ()
    for host in hosts:
        if not _STORE_HOST.fullmatch(host.strip()):
            yield "zookeeper.connect", f"zookeeper.connect: '{host.strip()}' is not host:port"


def _check_listeners(values: Mapping[str, Value], written: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    try:
        protocols = parse_protocol_map(cast(str, values["listener.security.protocol.map"]))
    except ValueError as error:
        yield (
            "listener.security.protocol.map",
            f"Invalid value {values['listener.security.protocol.map']} for configuration "
            f"listener.security.protocol.map: {error}",
        )
        return
    controllers = {name.upper() for name in cast("tuple[str, ...]", values["controller.listener.names"])}

    def own(members: tuple[str, ...]) -> list[Listener]:
        mine = [member for member in members if member.partition(":")[0].upper() not in controllers]
        return parse_listeners(mine, protocols)

    try:
        listeners = own(cast("tuple[str, ...]", values["listeners"]))
    except ValueError as error:
        yield "listeners", f"Invalid value {written.get('listeners')} for configuration listeners: {error}"
        return
    if not listeners:
        yield "listeners", "no listener is left for clients: add one to listeners, such as PLAINTEXT://:9092"
    bound = [(listener.host, listener.port) for listener in listeners if listener.port]
    if len(set(bound)) != len(bound):
        yield "listeners", "each listener must have a different port: two of them share one"
    yield from _check_advertised(values, written, own, {listener.name for listener in listeners})
    inter_broker = cast("str | None", values["inter.broker.listener.name"])
    if inter_broker and inter_broker.upper() not in {listener.name for listener in listeners}:
        yield (
            "inter.broker.listener.name",
            f"inter.broker.listener.name is {inter_broker}, which is not among the listeners",
        )
    between = cast(str, values["security.inter.broker.protocol"])
    speaking = [listener.name for listener in listeners if listener.security_protocol == between]
    if "security.inter.broker.protocol" in written and not inter_broker and not speaking:
        yield (
            "security.inter.broker.protocol",
            f"security.inter.broker.protocol is {between}, which no listener speaks: add one, or set "
            "inter.broker.listener.name",
        )
    own_listener = inter_broker.upper() if inter_broker else next(iter([*speaking, *names_of(listeners)]), "")
    yield from check_listeners(values, written, listeners, own_listener)
    if inter_broker and "security.inter.broker.protocol" in written:
        yield (
            "security.inter.broker.protocol",
            "only one of inter.broker.listener.name and security.inter.broker.protocol may be set: remove one",
        )


def names_of(listeners: Sequence[Listener]) -> list[str]:
    """The listeners' names, in their order."""
    return [listener.name for listener in listeners]


def _check_advertised(
    values: Mapping[str, Value],
    written: Mapping[str, str],
    own: Callable[[tuple[str, ...]], list[Listener]],
    names: set[str],
) -> Iterator[tuple[str, str]]:
    try:
        advertised = own(cast("tuple[str, ...] | None", values["advertised.listeners"]) or ())
    except ValueError as error:
        yield (
            "advertised.listeners",
            f"Invalid value {written.get('advertised.listeners')} for configuration advertised.listeners: {error}",
        )
        return
    for listener in advertised:
        if listener.name not in names:
            yield (
                "advertised.listeners",
                f"advertised.listeners names {listener.name}, which is not among the listeners",
            )
        if listener.host in ("0.0.0.0", "::"):
            yield (
                "advertised.listeners",
                f"advertised.listeners cannot use the nonroutable meta-address {listener.host}: use a routable IP "
                "address or a name",
            )


def _check_authorizer(values: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    try:
        parse_super_users(cast("str | None", values["super.users"]))
    except ValueError as error:
        yield "super.users", f"super.users: {error}"


def _check_log_dirs(values: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    several = cast("tuple[str, ...] | None", values["log.dirs"])
    if several == () or (several and "" in several):
        yield "log.dirs", "log.dirs has an empty member: name at least one directory, and none that is empty"
    if several is None and not values["log.dir"]:
        yield "log.dir", "log.dir is empty: name a directory"
    missing = unknown_cordons(values)
    if missing is not None:
        yield "cordoned.log.dirs", missing


def unknown_cordons(values: Mapping[str, Value]) -> str | None:
    """Which entries of cordoned.log.dirs are no log directory, in Kafka's words: they would cordon nothing."""
    directories = cast("tuple[str, ...] | None", values["log.dirs"]) or (values["log.dir"],)
    cordoned = cast("tuple[str, ...]", values["cordoned.log.dirs"])
    missing = [path for path in cordoned if path != "*" and path not in directories]
    if not missing:
        return None
    wrong = ", ".join(missing)
    return f"All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : {wrong}"


def _check_metrics(values: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    text = cast("str | None", values["metrics.listener"])
    if text:
        try:
            parse_metrics_listener(text)
        except ValueError as error:
            yield "metrics.listener", f"metrics.listener: {error}"
    endpoint = cast("str | None", values["tracing.otlp.endpoint"])
    if endpoint and not _is_web_address(endpoint):
        yield "tracing.otlp.endpoint", f"tracing.otlp.endpoint is {endpoint}: it must be an http or https URL"


def _check_relations(values: Mapping[str, Value], written: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Bounds that one setting sets another."""

    def number(name: str) -> int:
        return cast(int, values[name])

    for smaller, larger in (
        ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
        ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
        ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
        ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ):
        if number(smaller) > number(larger):
            blamed = smaller if smaller in written else larger
            yield (
                blamed,
                f"{smaller} is {number(smaller)}, above {larger} ({number(larger)}): lower the first or raise the "
                "second",
            )
    queued, largest = number("queued.max.request.bytes"), number("socket.request.max.bytes")
    if "queued.max.request.bytes" in written and 0 < queued < largest:
        yield (
            "queued.max.request.bytes",
            f"queued.max.request.bytes is {queued}, below socket.request.max.bytes ({largest}): no request of that "
            "size could ever be read",
        )
    if number("offsets.commit.required.acks") not in (-1, 0, 1):
        yield "offsets.commit.required.acks", "offsets.commit.required.acks must be -1, 0 or 1"


def _is_web_address(url: str) -> bool:
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    return parts.scheme in ("http", "https") and bool(parts.netloc)
