"""What each broker of a cluster on this machine is: its number, port and folder, and the settings that follow.

DIR/store/                  the metadata store, unless an ensemble has it
DIR/broker-N/               log directory of broker N
DIR/broker-N.properties     its settings, where it is a process of its own: `tidelog broker` takes that file
DIR/broker-N.log            what it logs then
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final

from tidelog.config.metrics_listener import parse_metrics_listener
from tidelog.config.properties import ConfigError, Problem
from tidelog.model.values import value

HOST: Final = "127.0.0.1"
"""A cluster on this machine is for this machine."""
STORE_FOLDER: Final = "store"
"""Name of the embedded store's directory, beside the brokers' own."""
BROKERS_MAX: Final = 100
"""More on one machine is a mistake in typing."""
INTERNAL_REPLICATION_FACTOR_MAX: Final = 3
"""Kafka's default for internal topics; a smaller cluster has as many replicas as brokers."""

OWN: Final = (
    "broker.id",
    "node.id",
    "listeners",
    "advertised.listeners",
    "log.dir",
    "log.dirs",
    "metrics.listener",
)
"""Settings in which several brokers on one machine must differ."""
INTERNAL_REPLICATION_FACTORS: Final = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")


@value
class Plan:
    """A cluster on this machine, before it runs."""

    data: str
    """Folder with everything in it, absolute."""
    ports: tuple[int, ...] = (0,)
    """A port for each broker, whose ids are `first_id`, `first_id` + 1, ...; port 0: any free one."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of every broker, by Kafka's names."""
    of_broker: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """Settings of single brokers, such as broker.rack, by id: they win."""
    zookeeper: str | None = None
    """The ensemble with the cluster's metadata, as in zookeeper.connect; None: an embedded store of its own."""
    metrics_ports: tuple[int, ...] = ()
    """A port for each broker's metrics, on loopback; empty: none but what the settings say."""
    host: str = HOST
    """Where the brokers listen."""
    secured: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What a secured cluster's brokers have (`launcher.secure_folder`); empty: the cluster is open."""
    first_id: int = 0
    """The first broker's id: brokers of one cluster on several machines have different ones."""
    automatic: bool = False
    """Whether the machine says how many: then one broker is refused, too, what several cannot share."""

    @property
    def brokers(self) -> int:
        """How many."""
        return len(self.ports)

    def check(self) -> None:
        """ConfigError for a folder that can hold no logs, and for settings that several brokers cannot share."""
        problems = [Problem("command line", 0, f"{name}: {reason}") for name, reason in self._unshareable()]
        if problems:
            raise ConfigError(problems)

    def _unshareable(self) -> Iterable[tuple[str, str]]:
        if "," in self.data and "log.dirs" not in self.settings:
            yield f"--data {self.data}", "a comma stands between log directories: choose a folder without one"
        if "zookeeper.connect" in self.settings:
            yield "zookeeper.connect", "--zookeeper HOSTS[/CHROOT] says that the metadata is kept there"
        if self.metrics_ports and "metrics.listener" in self.settings:
            yield "metrics.listener", "--metrics PORT says where metrics are served"
        if self.brokers > 1 or self.automatic:
            for name in OWN:
                if name in self.settings and not (name == "metrics.listener" and self._finds_ports):
                    yield name, "each of the brokers has its own, which follows from the data folder and the port"

    @property
    def _finds_ports(self) -> bool:
        """Whether the setting for metrics leaves each broker any port that is free."""
        try:
            return parse_metrics_listener(self.settings["metrics.listener"]).port == 0
        except ValueError:
            # What is wrong with it each broker's settings tell.
            return True

    @property
    def ids(self) -> range:
        """The brokers' ids."""
        return range(self.first_id, self.first_id + self.brokers)

    def require(self, broker_id: int) -> None:
        """ValueError for the id of a broker that is not planned."""
        if broker_id not in self.ids:
            raise ValueError(f"the cluster has no broker {broker_id}: its brokers are {self.ids[0]} to {self.ids[-1]}")

    def port(self, broker_id: int) -> int:
        """Of one of the brokers; 0: any free one."""
        return self.ports[broker_id - self.first_id]

    @property
    def store_folder(self) -> str:
        """Where the metadata store is kept."""
        return f"{self.data}/{STORE_FOLDER}"

    def log_dir(self, broker_id: int) -> str:
        """Where a broker keeps its logs, unless its settings say otherwise."""
        return f"{self.data}/broker-{broker_id}"

    def settings_of(self, broker_id: int, port: int, broker_port: int = 0) -> dict[str, str]:
        """All settings of one broker, which listens on `port`; where brokers have a listener of their own, that one's
        is `broker_port`."""
        listening = f"PLAINTEXT://{self.host}:{port}"
        if self.secured:
            from tidelog.launcher.secure_folder import listeners  # An open cluster does without.

            listening = listeners(self.host, port, broker_port)
        own = {
            "broker.id": str(broker_id),
            "listeners": listening,
            "log.dirs": self.log_dir(broker_id),
            **self.secured,
        }
        if self.metrics_ports:
            own["metrics.listener"] = f"{HOST}:{self.metrics_ports[broker_id - self.first_id]}"
        if self.brokers > 1:
            factor = str(min(self.brokers, INTERNAL_REPLICATION_FACTOR_MAX))
            # Said, not left to how many happen to be there when the topic is first needed.
            own |= dict.fromkeys(INTERNAL_REPLICATION_FACTORS, factor)
        if self.zookeeper is not None:
            own["zookeeper.connect"] = self.zookeeper
            if self.secured:
                own["zookeeper.set.acl"] = "true"
        return {**own, **self.settings, **self.of_broker.get(broker_id, {})}
