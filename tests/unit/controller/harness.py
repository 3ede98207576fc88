"""A controller with a znode tree for a store, and no brokers but in name: every decision is carried out at once."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from tidelog.controller.controller import Controller
from tidelog.controller.events import BrokersChanged, Elected, Event, Submitted, TopicNode, TopicsChanged
from tidelog.controller.requests import CreateTopics, NewTopic, Request
from tidelog.controller.result import Fence, Result
from tidelog.controller.settings import ControllerSettings
from tidelog.controller.state import NodeRead, Record
from tidelog.metadata import znodes
from tidelog.metadata.image import BrokerChanged, BrokerRegistration, Endpoint, PartitionImage
from tidelog.metadata.operations import Check, Create, Delete, Operation, SetData
from tidelog.model.identifiers import BrokerEpoch, BrokerId, ControllerEpoch, TopicPartition
from tidelog.store.tree import SessionRecord, Tree

R = TypeVar("R")
SESSION = 1


class Seeded:
    """Draws the same numbers in every run; `starts` come first."""

    def __init__(self, *starts: int) -> None:
        self.starts = list(starts)
        self.tokens = 0

    def below(self, bound: int) -> int:
        return self.starts.pop(0) % bound if self.starts else 0

    def token(self, size: int) -> bytes:
        self.tokens += 1
        return self.tokens.to_bytes(size, "big")


def broker(id: int, epoch: int = 0, rack: str | None = None) -> BrokerRegistration:
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "localhost", 9092 + id)
    return BrokerRegistration(BrokerId(id), BrokerEpoch(epoch or 100 + id), (endpoint,), rack)


class Cluster:
    """The controller is broker 0, in its first term."""

    def __init__(
        self, *brokers: BrokerRegistration, settings: ControllerSettings | None = None, draws: tuple[int, ...] = ()
    ) -> None:
        self.tree = Tree()
        self.tree.open_session(SESSION, SessionRecord(6000, b"", local=True))
        self.settings = settings or ControllerSettings()
        self.random = Seeded(*draws)
        self.brokers = {registration.id: registration for registration in brokers}
        self.transcript: list[str] = []
        """Every write, one line each."""
        self.last = Result()
        self.now_ms = 0
        """Monotonic."""
        self.fence = 0
        """Version of /controller_epoch at this controller's election."""
        for path in self._containers():
            self.tree.transact(SESSION, [Create(path)], 0)
        self.tree.transact(SESSION, [Create(znodes.CONTROLLER_EPOCH, b"1")], 0)
        self.term(1)

    def term(self, epoch: int) -> None:
        """A new controller loads the store."""
        self.controller = self.loaded(epoch)
        self.run(Elected())

    def loaded(self, epoch: int) -> Controller:
        """What a controller knows that has read the store, and did nothing yet."""
        controller = Controller(BrokerId(0), ControllerEpoch(epoch), self.settings, self.random)
        records: list[Record] = [BrokerChanged(registration) for registration in self.brokers.values()]
        records += [self.node_read(path) for path in self.tree.paths()]
        controller.load(records)
        return controller

    def node_read(self, path: str) -> NodeRead:
        """As a controller reads it."""
        data, stat = self.tree.get(path)
        return NodeRead(path, data, stat.version, stat.mzxid, stat.czxid)

    def run(self, event: Event) -> Result:
        """Handles an event and writes what it wants written."""
        self.last = self.controller.handle(self.now_ms, event)
        for write in self.last.writes:
            fence = [Check(znodes.CONTROLLER_EPOCH, self.fence)] if write.fence is Fence.CONTROLLER_EPOCH else []
            self.tree.transact(SESSION, [*fence, write.operation], 0)
            self.transcript.append(describe(write.operation, fenced=bool(fence)))
        return self.last

    def ask(self, request: Request[R]) -> R:
        """A request that is answered at once; raises what refuses it."""
        [(request_id, answer)] = self.run(Submitted(7, request)).replies
        assert request_id == 7
        if isinstance(answer, Exception):
            raise answer
        return cast(R, answer)

    def live(self, *brokers: BrokerRegistration) -> Result:
        """These are the brokers now."""
        self.brokers = {registration.id: registration for registration in brokers}
        return self.run(BrokersChanged(list(brokers)))

    def make(self, topic: str, *assignment: list[int]) -> None:
        """A topic with these replicas; where their numbers differ, a tool has added the later partitions."""
        self.ask(CreateTopics([NewTopic(topic, assignment=[(0, assignment[0])])]))
        path = znodes.topic_path(topic)
        content = znodes.TopicAssignment(dict(enumerate(assignment)), self.controller.image.topics[topic].topic_id)
        data = znodes.encode_topic(content)
        self.tree.transact(SESSION, [SetData(path, data)], 0)
        self.run(TopicsChanged([self.node(topic)]))
        self.told()

    def node(self, topic: str, *, is_same_node: bool = False) -> TopicNode:
        """The topic's node as a controller reads it."""
        data, stat = self.tree.get(znodes.topic_path(topic))
        return TopicNode(topic, data, is_same_node, stat.version)

    def partition(self, topic: str, index: int = 0) -> PartitionImage:
        image = self.controller.image.partition(TopicPartition(topic, index))
        assert image is not None
        return image

    def sent(self, kind: str) -> dict[int, Any]:
        """The last event's requests of a message class, by broker."""
        found = [send for send in self.last.sends if type(send.message).__name__ == kind]
        assert len({send.broker_id for send in found}) == len(found), "one request of a kind to a broker"
        return {send.broker_id: send.message for send in found}

    def told(self) -> list[str]:
        """The writes since the last call."""
        lines, self.transcript = self.transcript, []
        return lines

    @staticmethod
    def _containers() -> list[str]:
        paths: dict[str, None] = {}
        for path in znodes.PERSISTENT_PATHS:
            names = path.split("/")[1:]
            paths |= {"/" + "/".join(names[: depth + 1]): None for depth in range(len(names))}
        return list(paths)


def describe(operation: Operation, *, fenced: bool) -> str:
    """One write as a line: `*` stands for the fence."""
    mark = "* " if fenced else ""
    match operation:
        case Create(path, data):
            return f"{mark}create {path} {(data or b'').decode()}".rstrip()
        case SetData(path, data):
            return f"{mark}set {path} {(data or b'').decode()}".rstrip()
        case Delete(path):
            return f"{mark}delete {path}"
        case Check(path):
            return f"{mark}check {path}"
