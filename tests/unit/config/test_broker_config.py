"""A broker's settings: the file, what is wrong with it, the layers of changes, and where a value comes from."""

from __future__ import annotations

import pytest

from tidelog.config.broker_config import BrokerConfig, Source, Synonym, validate_dynamic
from tidelog.config.listeners import Listener
from tidelog.config.properties import ConfigError

KRAFT = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
log.dirs=/var/lib/kafka
"""
ZOOKEEPER = """\
broker.id=0
listeners=PLAINTEXT://127.0.0.1:9092
log.dirs=/a, /b
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""


def refusal(text: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.from_text(text)
    return str(refused.value).splitlines()


def test_defaults() -> None:
    """Without a file, Kafka's defaults hold."""
    config = BrokerConfig()
    assert config.listeners == config.advertised_listeners == [Listener("PLAINTEXT", "PLAINTEXT", "", 9092)]
    assert (config.broker_id, config.num_partitions, config.fetch_max_bytes) == (-1, 1, 57_671_680)
    assert config.inter_broker_listener_name == "PLAINTEXT"
    assert config.warnings() == []


def test_kafkas_file_for_kraft_is_accepted() -> None:
    """The file that Kafka 4 ships starts a broker; its controller's listener is left out."""
    config = BrokerConfig.from_text(KRAFT)
    assert config.broker_id == 1
    assert config.listeners == [Listener("PLAINTEXT", "PLAINTEXT", "", 9092)]
    assert config.advertised_listeners == [Listener("PLAINTEXT", "PLAINTEXT", "localhost", 9092)]
    assert config.log_dirs == ("/var/lib/kafka",)
    assert any(warning.startswith("num.network.threads is accepted without effect") for warning in config.warnings())


def test_kafkas_file_for_zookeeper_is_accepted() -> None:
    """The file that Kafka 3 ships starts a broker, which joins the cluster whose store it names."""
    config = BrokerConfig.from_text(ZOOKEEPER)
    assert (config.broker_id, config.log_dirs) == (0, ("/a", "/b"))
    assert (config.zookeeper_connect, config.zookeeper_connection_timeout_ms) == ("localhost:2181", 18_000)
    assert not any("zookeeper" in warning for warning in config.warnings())


def test_the_stores_connection_timeout_follows_its_session_timeout() -> None:
    """As in Kafka, unless it is set."""
    config = BrokerConfig.from_text(
        "zookeeper.connect=zoo1:2181,[::1]:2182,zoo3/a/b\nzookeeper.session.timeout.ms=6000"
    )
    assert config.zookeeper_connection_timeout_ms == 6_000


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("log.retention.hors=3", "unknown setting log.retention.hors: did you mean log.retention.hours?"),
        ("qqq=1", "unknown setting qqq: remove it"),
        ("log.segment.bytes=1x", "Invalid value 1x for configuration log.segment.bytes: Not a number of type INT"),
        ("num.partitions=0", "Invalid value 0 for configuration num.partitions: Value must be at least 1"),
        ("retention.ms=3", "retention.ms is a topic's setting: for all topics set log.retention.ms"),
        ("port=9092", "port is not supported: use `listeners`"),
        (
            "leader.replication.throttled.rate=1",
            "leader.replication.throttled.rate can only be set while the broker runs: remove it, and use `tidelog "
            "configs`",
        ),
        (
            "listeners=SSL://:9093",
            "listener SSL speaks SSL and needs ssl.keystore.type=PEM and ssl.keystore.location, or "
            "ssl.keystore.certificate.chain and ssl.keystore.key",
        ),
        (
            "listeners=PLAINTEXT:9092",
            "Invalid value PLAINTEXT:9092 for configuration listeners: 'PLAINTEXT:9092' is not NAME://host:port",
        ),
        (
            "listeners=FRONT://:9092",
            "Invalid value FRONT://:9092 for configuration listeners: no security protocol is known for listener "
            "FRONT: "
            "add FRONT:PLAINTEXT to listener.security.protocol.map",
        ),
        (
            "process.roles=controller",
            "process.roles=controller is a server without topics: use broker,controller, or remove it",
        ),
        (
            "advertised.listeners=PLAINTEXT://0.0.0.0:9092",
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0: use a routable IP address or a name",
        ),
        (
            "advertised.listeners=OTHER://a:1",
            "Invalid value OTHER://a:1 for configuration advertised.listeners: no security protocol is known for "
            "listener OTHER: add OTHER:PLAINTEXT to listener.security.protocol.map",
        ),
        (
            "inter.broker.listener.name=INTERNAL",
            "inter.broker.listener.name is INTERNAL, which is not among the listeners",
        ),
        (
            "replica.fetch.wait.max.ms=40000",
            "replica.fetch.wait.max.ms is 40000, above replica.socket.timeout.ms (30000): lower the first or raise "
            "the second",
        ),
        (
            "queued.max.request.bytes=1000",
            "queued.max.request.bytes is 1000, below socket.request.max.bytes (104857600): no request of that size "
            "could ever be read",
        ),
        ("log.dirs=/a,,/b", "log.dirs has an empty member: name at least one directory, and none that is empty"),
        (
            "cordoned.log.dirs=/tmp/tidelog-logs,/tmp/tidelog-logs/,/c",
            "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : "
            "/tmp/tidelog-logs/, /c",
        ),
        (
            "max.connections.per.ip.overrides=localhost",
            "Invalid value localhost for configuration max.connections.per.ip.overrides: 'localhost' is not host:count",
        ),
    ],
)
def test_refusals_say_where_and_what_to_do(line: str, reason: str) -> None:
    """File, line, reason; the lines around are fine."""
    assert f"server.properties, line 2: {reason}" in refusal(f"broker.id=0\n{line}\nbackground.threads=3\n")


def test_all_problems_are_told_at_once() -> None:
    """Nobody fixes a file in five tries."""
    problems = refusal("broker.id=0\nnode.id=1\nnonsense=1\nnum.partitions=x\n")
    assert [problem.partition(":")[0] for problem in problems] == [
        "server.properties, line 1",
        "server.properties, line 3",
        "server.properties, line 4",
    ]


@pytest.mark.parametrize("connect", ["zoo1:2181,zoo2:port/kafka", "zoo1:2181,,zoo2:2181", "zoo 1:2181", "::1:2181"])
def test_an_address_of_the_store_that_is_none_is_refused(connect: str) -> None:
    """The member that is wrong is named, with the line."""
    assert "is not host:port" in refusal(f"zookeeper.connect={connect}")[0]


def test_a_store_and_krafts_roles_exclude_each_other() -> None:
    """A broker that ignored one of them would be in another cluster than the file says."""
    assert "remove one" in refusal("process.roles=broker,controller\nnode.id=1\nzookeeper.connect=localhost:2181")[0]


def test_security_is_never_dropped_silently() -> None:
    """An authorizer that is not there must not be ignored."""
    assert "String must be one of" in refusal("authorizer.class.name=com.acme.Own")[0]
    assert "'alice' is not a principal" in refusal("super.users=alice")[0]
    assert "not supported" in refusal("principal.builder.class=com.acme.Own")[0]


def test_an_assignor_that_is_not_there_is_refused() -> None:
    """A broker without it would assign by another one than the file asks for; Kafka's own go by both of their names."""
    ours = "org.apache.kafka.coordinator.group.assignor.RangeAssignor"
    assert BrokerConfig.from_text(f"group.consumer.assignors={ours}").group_consumer_assignors == (ours,)
    assert "String must be one of: uniform, range" in refusal("group.consumer.assignors=uniform,com.acme.Own")[0]


def test_later_values_win_and_overrides_win_over_the_file() -> None:
    """As in Java, the last line of a name counts; what the command line says goes before the file."""
    config = BrokerConfig.from_text("num.partitions=2\nnum.partitions=3\nbroker.id=1\n", overrides={"broker.id": "7"})
    assert (config.num_partitions, config.broker_id) == (3, 7)


def test_a_problem_of_an_override_names_the_command_line() -> None:
    """Not a line of a file that is innocent."""
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.from_text("broker.id=0\n", overrides={"broker.id": "x"})
    assert str(refused.value) == "command line: Invalid value x for configuration broker.id: Not a number of type INT"


@pytest.mark.row("R07")
def test_changes_while_running_go_over_the_file() -> None:
    """default < file < cluster-wide change < change of this broker; who holds a copy is told what changed."""
    config = BrokerConfig.from_mapping({"log.retention.ms": 1000, "broker.id": 3})
    told: list[frozenset[str]] = []
    config.on_change(told.append)
    assert config.set_dynamic({"log.retention.ms": "2000", "min.insync.replicas": "2"}, {}) == {
        "log.retention.ms",
        "min.insync.replicas",
    }
    assert config.get("log.retention.ms") == 2000
    config.set_dynamic({"log.retention.ms": "2000"}, {"log.retention.ms": "3000"})
    assert (config.get("log.retention.ms"), config.min_insync_replicas) == (3000, 1)
    assert config.set_dynamic({}, {}) == {"log.retention.ms"}
    assert config.get("log.retention.ms") == 1000
    assert len(told) == 3
    assert config.set_dynamic({}, {}) == frozenset()
    assert len(told) == 3


def test_invalid_changes_in_the_store_are_left_out() -> None:
    """Somebody wrote past AlterConfigs: the broker goes on with what it had."""
    config = BrokerConfig()
    assert config.set_dynamic({"log.retention.ms": "soon", "nonsense": "1", "log.dirs": "/x"}, {}) == frozenset()
    assert config.set_dynamic({"max.connections.per.ip.overrides": "10.0.0.1"}, {}) == frozenset()
    assert config.set_dynamic({"max.connections.per.ip.overrides": f"10.0.0.1:{'9' * 5000}"}, {}) == frozenset()
    assert config.max_connections_per_ip_overrides == {}
    for name, text in (("log.cleaner.io.max.bytes.per.second", "NaN"), ("log.cleaner.io.buffer.load.factor", "-1")):
        assert config.set_dynamic({name: text}, {}) == frozenset(), "the cleaner could not go by it"


def test_a_change_for_one_listener_is_told() -> None:
    """As one for all of them: who keeps what follows from settings has to look again, also when it goes."""
    config = BrokerConfig()
    told: list[frozenset[str]] = []
    config.on_change(told.append)
    name = "listener.name.plaintext.max.connection.creation.rate"
    for layer in ({name: "10"}, {name: "20"}, {}):
        assert config.set_dynamic(layer, {}) == {name}
        assert config.set_dynamic(layer, {}) == frozenset()
    assert told == [{name}] * 3


@pytest.mark.parametrize(
    "changes",
    [
        {"listeners": "nonsense"},
        {"listeners": ""},
        {"listeners": "SSL://:1"},
        {"listener.security.protocol.map": "nonsense"},
        {"listener.security.protocol.map": "SSL:SSL"},
    ],
)
def test_listeners_that_are_altered_are_not_those_of_the_running_broker(changes: dict[str, str]) -> None:
    """It goes on with the ports that it has bound, and knows by which of them other brokers come."""
    config = BrokerConfig.from_mapping({"listeners": "PLAINTEXT://:9092"})
    config.set_dynamic({}, changes)
    assert config.listeners == config.advertised_listeners == [Listener("PLAINTEXT", "PLAINTEXT", "", 9092)]
    assert config.inter_broker_listener_name == "PLAINTEXT"
    assert config.altered({}).listeners == config.listeners


def test_synonyms_tell_where_a_value_comes_from() -> None:
    """Every place where a setting or its equivalent is set, the one that counts first."""
    config = BrokerConfig.from_mapping({"log.retention.hours": 1})
    config.set_dynamic({"log.retention.ms": "2000"}, {"log.retention.ms": "3000"})
    assert config.synonyms("log.retention.ms") == [
        Synonym("log.retention.ms", "3000", Source.DYNAMIC_BROKER),
        Synonym("log.retention.ms", "2000", Source.DYNAMIC_DEFAULT_BROKER),
        Synonym("log.retention.hours", "1", Source.STATIC_BROKER),
        Synonym("log.retention.hours", "168", Source.DEFAULT),
    ]


def test_passwords_are_hidden() -> None:
    """Not even where they come from tells them."""
    config = BrokerConfig.from_mapping({"ssl.keystore.password": "secret"})
    assert config.synonyms("ssl.keystore.password") == [Synonym("ssl.keystore.password", None, Source.STATIC_BROKER)]
    assert "secret" not in "".join(config.warnings())


@pytest.mark.parametrize(
    ("changes", "cluster_default", "sentence"),
    [
        ({"log.dirs": "/x"}, False, "Cannot update these configs dynamically: Set(log.dirs)"),
        (
            {"listeners": "PLAINTEXT://:1"},
            True,
            "Cannot update these configs at default cluster level: Set(listeners)",
        ),
        ({"nonsense": "1"}, False, "Unknown broker config name: nonsense"),
        (
            {"log.retention.ms": "x"},
            True,
            "Invalid value x for configuration log.retention.ms: Not a number of type LONG",
        ),
        (
            {"listener.name.sasl_ssl.plain.sasl.jaas.config": "secret"},
            False,
            "listener.name.sasl_ssl.plain.sasl.jaas.config cannot be read: the login module must be followed by "
            "required, requisite, sufficient or optional",
        ),
        (
            {"sasl.enabled.mechanisms": ""},
            False,
            "Invalid value  for configuration sasl.enabled.mechanisms: it must name one of PLAIN, SCRAM-SHA-256, "
            "SCRAM-SHA-512, OAUTHBEARER, or no client could log in",
        ),
        (
            {"listener.name.sasl_ssl.sasl.enabled.mechanisms": "GSSAPI"},
            False,
            "Invalid value GSSAPI for configuration listener.name.sasl_ssl.sasl.enabled.mechanisms: it must name one "
            "of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, or no client could log in",
        ),
        (
            {"log.roll.ms": "-1"},
            True,
            "Invalid value -1 for configuration log.roll.ms: Value must be at least 1",
        ),
        (
            {"max.connections.per.ip.overrides": "10.0.0.1:5,10.0.0.2"},
            True,
            "Invalid value 10.0.0.1:5,10.0.0.2 for configuration max.connections.per.ip.overrides: "
            "'10.0.0.2' is not host:count",
        ),
    ],
)
def test_changes_are_checked(changes: dict[str, str], cluster_default: bool, sentence: str) -> None:
    """In Kafka's words."""
    with pytest.raises(ValueError, match=r".") as refused:
        validate_dynamic(changes, cluster_default=cluster_default)
    assert str(refused.value) == sentence


def test_mechanisms_that_would_keep_brokers_from_one_another() -> None:
    """What is altered must enable that by which brokers log in; other listeners need not."""
    config = BrokerConfig.from_mapping(
        {
            "listeners": "SASL_PLAINTEXT://:9092,CLIENTS://:9093",
            "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram."
            'ScramLoginModule required username="admin" password="x";',
        }
    )
    name = "sasl.enabled.mechanisms"
    reason = (
        "sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms when SASL is used for "
        "inter-broker communication"
    )
    assert config.mechanism_problem is None
    assert config.altered({name: "SCRAM-SHA-512"}).mechanism_problem == reason
    assert config.altered({f"listener.name.sasl_plaintext.{name}": "SCRAM-SHA-512"}).mechanism_problem == reason
    assert config.altered({"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512"}).mechanism_problem == reason
    assert config.altered({f"listener.name.clients.{name}": "SCRAM-SHA-512"}).mechanism_problem is None
    assert config.altered({name: "SCRAM-SHA-512,SCRAM-SHA-256"}).mechanism_problem is None
    # Written past AlterConfigs: what would lock everybody out is left out.
    assert config.altered({name: ""}).of_listener("CLIENTS", name) == ("SCRAM-SHA-256",)


def test_ipv6_listeners() -> None:
    """Brackets are the address's dress, not its name."""
    config = BrokerConfig.from_mapping({"listeners": "PLAINTEXT://[::1]:9092"})
    assert config.listeners == [Listener("PLAINTEXT", "PLAINTEXT", "::1", 9092)]
    assert str(config.listeners[0]) == "PLAINTEXT://[::1]:9092"


def test_connections_of_ipv6_addresses() -> None:
    """However an address is written, connections come from the one that the system names."""
    config = BrokerConfig.from_mapping({"max.connections.per.ip.overrides": "[::1]:5,2001:DB8:0::1:7,10.0.0.1:3,h:2"})
    assert config.max_connections_per_ip_overrides == {"::1": 5, "2001:db8::1": 7, "10.0.0.1": 3, "h": 2}
