"""A cluster at which somebody types."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.conformance.documents.commands import COMMANDS, Command
from tests.conformance.documents.printing import Assignment, Partition, any_directory, described, differences, plan
from tests.conformance.documents.tools import Printed, Way, run
from tests.waiting import until
from tidelog.testing import Cluster

T = TypeVar("T")
DEADLINE_S: Final = 60.0


class Site:
    """A cluster, a release's tools, and what they are compared with: nodes, Metadata, files."""

    def __init__(self, cluster: Cluster, way: Way, folder: Path, brokers: int) -> None:
        self.cluster = cluster
        self.hosts = cluster.store
        """The store's address, with its chroot: what --zookeeper gets."""
        self.way = way
        self.folder = folder
        """For the files that the commands name."""
        self._brokers = brokers
        self.data: dict[int, Path] = {}
        """Log directories of brokers that are not the cluster's own."""
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        self._tree = KazooClient(self.hosts)
        self._tree.start()

    def close(self) -> None:
        self._tree.stop()
        self._tree.close()

    # Typing.

    def type(self, name: str, **facts: str) -> Printed:
        """Types a command of the documents; what is printed must be what the release prints, given these facts."""
        return self.type_this(COMMANDS[name], **facts)

    def type_this(self, command: Command, **facts: str) -> Printed:
        """A command that may not be in the table."""
        tool, arguments = self.choose(command.instead, (command.tool, command.arguments))
        given = {"server": self.server, "folder": str(self.folder), **facts}
        line = arguments.format(**given)
        printed = run(self.way.release, tool, *shlex.split(line))
        expected = self.choose(command.prints, "").format(**given) if isinstance(command.prints, dict) else ""
        if isinstance(command.prints, str):
            expected = command.prints.format(**given)
        status = command.status if isinstance(command.status, int) else self.choose(command.status, 0)
        says = command.says if isinstance(command.says, str) else self.choose(command.says, "")
        wrong = differences(expected, printed.out)
        if printed.status != status:
            wrong.append(f"exit {printed.status} rather than {status}")
        if says not in printed.err:
            wrong.append(f"expected on standard error: {says}")
        assert not wrong, "\n".join([f"$ {self.way.release} {tool} {line}", *wrong, f"[stderr]\n{printed.err}"])
        return printed

    @property
    def server(self) -> str:
        """The option and its value, without the dashes."""
        return f"{self.way.option} {self.hosts if self.way.by_store else self.cluster.bootstrap}"

    def choose(self, of_ways: Mapping[str, T], otherwise: T) -> T:
        """By the way's name, its release, or what it is pointed at; "" stands for all others."""
        for key in (self.way.name, self.way.release, "zk" if self.way.by_store else "api", ""):
            if key in of_ways:
                return of_ways[key]
        return otherwise

    def write(self, name: str, text: str) -> Path:
        """A file for a command."""
        path = self.folder / name
        path.write_text(text)
        return path

    # What is done by other means.

    def create(
        self, topic: str, assignment: Sequence[Sequence[int]], settings: Mapping[str, str] | None = None
    ) -> None:
        """A topic where it shall be."""
        new = NewTopic(
            topic, len(assignment), replica_assignment=[list(each) for each in assignment], config=dict(settings or {})
        )
        self.admin.create_topics([new])[topic].result(DEADLINE_S)
        self.settle(topic)

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(DEADLINE_S)
        self.until(lambda: self.is_gone(topic))

    def produce(self, topic: str, records: int = 500) -> None:
        """Records into every partition."""
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "acks": "all", "log_level": 0})
        for number in range(records):
            for partition in self.assignment(topic):
                producer.produce(topic, f"{topic} {number}", f"key {number}", partition)
        assert producer.flush(DEADLINE_S) == 0

    def check_replicas(self, topic: str) -> None:
        """The files of a partition's replicas are equal."""
        for number in self.assignment(topic):
            found = {
                broker: b"".join(
                    path.read_bytes() for path in sorted((self.directory(broker) / f"{topic}-{number}").glob("*.log"))
                )
                for broker, name in self.folders(topic)
                if name == f"{topic}-{number}"
            }
            assert len(set(found.values())) == 1, {broker: len(data) for broker, data in found.items()}
            assert all(found.values())

    def directory(self, broker_id: int) -> Path:
        """A broker's log directory."""
        return self.data.get(broker_id) or Path(self.cluster.data_of(broker_id))

    # What tools print of it.

    def described(self, topic: str, partitions: Sequence[Partition] | None = None, configs: str = "") -> str:
        """What describe prints; `partitions` as they are in the store unless said otherwise."""
        shown = self.partitions(topic) if partitions is None else partitions
        return described(self.way.name, topic, self.topic(topic).get("topic_id", ""), shown, configs)

    def current(self, topic: str, assignment: Assignment | None = None) -> str:
        """The plan that would change nothing; `assignment` as it is in the store unless said otherwise."""
        stored = self.assignment(topic) if assignment is None else assignment
        # Today's tool asks the brokers for the directories.
        return plan(topic, stored, self.directory if self.way.release == "4.3.0" else any_directory)

    def moved(self, topic: str) -> dict[str, str]:
        """What execute and verify name: the partitions, in all forms; and the brokers."""
        names = [f"{topic}-{number}" for number in sorted(self.assignment(topic))]
        endings = {"completed_successfully": " completed successfully", "is_complete": " is complete."}
        endings["is_completed"] = " is completed."
        return {
            "topic": topic,
            "partitions": ",".join(names),
            "brokers": ",".join(self.children("/brokers/ids")),
            **{
                form: "\n".join(f"Reassignment of partition {name}{end}" for name in names)
                for form, end in endings.items()
            },
        }

    # What it is.

    def get(self, path: str) -> Any:
        """A node's JSON; None where there is no node."""
        try:
            found, _ = self._tree.get(path)
        except NoNodeError:
            return None
        return json.loads(found) if found else None

    def write_node(self, path: str, text: str) -> None:
        """A node that only a broken tool, or one whose brokers are gone meanwhile, leaves behind."""
        self._tree.create(path, text.encode())

    def children(self, path: str) -> list[str]:
        try:
            return sorted(self._tree.get_children(path))
        except NoNodeError:
            return []

    def topic(self, topic: str) -> dict[str, Any]:
        """Its node."""
        found: dict[str, Any] = self.get(f"/brokers/topics/{topic}")
        return found

    def assignment(self, topic: str) -> dict[int, list[int]]:
        """[partition] -> replicas, as the store has it."""
        return {int(number): replicas for number, replicas in sorted(self.topic(topic)["partitions"].items())}

    def partitions(self, topic: str) -> list[Partition]:
        """What the store has of each partition."""
        found = []
        for number, replicas in sorted(self.assignment(topic).items()):
            state = self.get(f"/brokers/topics/{topic}/partitions/{number}/state")
            found.append(Partition(state["leader"], tuple(replicas), tuple(state["isr"])))
        return found

    def until(self, condition: Callable[[], object], what: str = "") -> None:
        """Waits until it holds."""
        until(condition, what)

    def settle(self, topic: str) -> None:
        """Returns when the topic is as its node says, everywhere: states, Metadata, files, all replicas in sync."""
        self.until(lambda: self._is_settled(topic), f"{topic} is the same everywhere: {self.topic(topic)}")

    def _is_settled(self, topic: str) -> bool:
        node = self.topic(topic)
        if "topic_id" not in node or node.get("adding_replicas") or node.get("removing_replicas"):
            return False
        assignment = self.assignment(topic)
        if set(self.children(f"/brokers/topics/{topic}/partitions")) != {str(number) for number in assignment}:
            return False
        shown = self.metadata(topic)
        try:
            stored = self.partitions(topic)
        except TypeError:  # A state is not there yet.
            return False
        if any(set(each.isr) != set(each.replicas) or each.leader not in each.isr for each in stored):
            return False
        if [(each.leader, set(each.replicas), set(each.isr)) for each in stored] != [
            (each.leader, set(each.replicas), set(each.isr)) for each in shown
        ]:
            return False
        folders = {(broker, f"{topic}-{number}") for number, ids in assignment.items() for broker in ids}
        return self.folders(topic) == folders

    def metadata(self, topic: str) -> list[Partition]:
        """What clients are told."""
        found = self.admin.list_topics(topic, timeout=10).topics[topic].partitions
        return [Partition(each.leader, tuple(each.replicas), tuple(each.isrs)) for _, each in sorted(found.items())]

    def setting(self, topic: str, name: str) -> tuple[str, bool]:
        """What brokers say of a topic's setting: its value, and whether it is set for the topic."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        entry = self.admin.describe_configs([resource])[resource].result(DEADLINE_S)[name]
        return entry.value, not entry.is_default

    def folders(self, topic: str) -> set[tuple[int, str]]:
        """(broker, folder) of the topic's files, without those that are being deleted."""
        return {
            (broker, path.name)
            for broker in [*range(self._brokers), *self.data]
            for path in self.directory(broker).glob(f"{topic}-*")
            if path.name[len(topic) + 1 :].isdecimal()
        }

    def is_gone(self, topic: str) -> bool:
        """Whether nothing is left of a deleted topic: nodes, Metadata, its files but for those that wait to go."""
        nodes = (f"/brokers/topics/{topic}", f"/config/topics/{topic}", f"/admin/delete_topics/{topic}")
        return (
            not any(self._tree.exists(path) for path in nodes)
            and topic not in self.admin.list_topics(timeout=10).topics
            and not self.folders(topic)
        )
