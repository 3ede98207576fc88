"""Runs the pure controller through what Apache Kafka 2.8.2 was put through, and compares what both write to the store.

A flow begins with partitions as the store had them (`given`), then things happen, and `writes` says what Kafka's
controller wrote, copied from a capture of ZooKeeper's transaction log. One write a line, as in the capture:

    data-1 leader 1 epoch 1 isr 1,2 version 1      the partition's state: leader, leader epoch, ISR, the node's version
    delete /admin/delete_topics/t
    create /config/topics/t {"version":1,"config":{}}  (no fence)

Versions and leader epochs are exact; topic ids read ID, counters of sequential nodes are left out. `--` separates what
came in this order: between two of them Kafka goes through a hash map, so only the contents are compared. Kafka sends a
multi a write; ours holds up to 500, which is no difference in order.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.unit.controller.harness import SESSION, Cluster, broker

from tidelog.controller.controller import Controller
from tidelog.controller.events import Elected, Event, ReassignmentsRequested, ReplicasStopped, Submitted, TopicsChanged
from tidelog.controller.requests import (
    AlterPartition,
    ControlledShutdown,
    DeleteTopics,
    IsrMember,
    IsrProposal,
    TopicReference,
)
from tidelog.controller.result import Fence, Write
from tidelog.controller.settings import ControllerSettings
from tidelog.metadata import znodes
from tidelog.metadata.operations import Check, Create, Delete, Operation, SetData
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import ZERO_TOPIC_ID, BrokerId, ControllerEpoch, LeaderEpoch, TopicId, TopicPartition

CAPTURE: Final = Path(
    os.environ.get("TIDELOG_KAFKA_FLOWS", Path(__file__).parents[3] / "shared/reference/zookeeper/flows.json")
)
"""The capture itself, where it is at hand: then the copies are compared with it."""

_NO_FENCE: Final = " (no fence)"
_GIVEN: Final = re.compile(r"(\S+)-(\d+) \((.*)\) leader (-?\d+) epoch (\d+) isr (\S+) version (\d+)")
_STATE: Final = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
_SEQUENCE: Final = re.compile(r"\d{10}$")
_ID: Final = re.compile(r'"topic_id":"[^"]{22}"')
_BROKERS_OWN: Final = ("/brokers/ids", "/controller", "/log_dir_event_notification", "/isr_change_notification")


class Flow:
    """One event in the life of a cluster, as Kafka's capture names it."""

    def __init__(
        self, name: str, *, brokers: Sequence[int], controller: int = 0, epoch: int = 1, settings: Any = None
    ) -> None:
        self.name = name
        self.cluster = Cluster(*map(broker, brokers), settings=settings or ControllerSettings())
        self.cluster.told()
        self._epoch = epoch
        self._assignments: dict[str, dict[int, list[int]]] = {}
        self._copied: list[str] = []
        self._ours: list[str] = []
        self._become(controller, epoch)

    def given(self, text: str) -> Flow:
        """Partitions as they are in the store: `t-0 (1,2) leader 1 epoch 0 isr 1,2 version 0`."""
        for line in _lines(text):
            match = _GIVEN.fullmatch(line)
            assert match, line
            topic, partition, replicas, leader, leader_epoch, isr, version = match.groups()
            assignment = self._assignments.setdefault(topic, {})
            assignment[int(partition)] = _numbers(replicas)
            content = znodes.TopicAssignment(dict(sorted(assignment.items())), TopicId(topic.encode().ljust(16)[:16]))
            self._put(znodes.topic_path(topic), znodes.encode_topic(content))
            self._put(f"/config/topics/{topic}", znodes.encode_config({}), once=True)
            self._put(znodes.partitions_path(topic), None, once=True)
            self._put(znodes.partition_path(topic, int(partition)), None)
            state = znodes.PartitionState(
                BrokerId(int(leader)),
                LeaderEpoch(int(leader_epoch)),
                tuple(map(BrokerId, _numbers(isr))),
                ControllerEpoch(self._epoch),
            )
            for _ in range(int(version) + 1):
                self._put(znodes.state_path(topic, int(partition)), znodes.encode_state(state))
        self._become(self.cluster.controller.image.controller_id, self._epoch)
        return self

    # What happens.

    def run(self, event: Event) -> None:
        """An event, handled and written."""
        self._note(self.cluster.run(event).writes)

    def ask(self, request: Any) -> Any:
        """A request, answered at once."""
        self.run(Submitted(7, request))
        [(_, answer)] = self.cluster.last.replies
        return answer

    def gone(self, *ids: int) -> None:
        """The sessions of these brokers end."""
        live = [registration for id, registration in self.cluster.brokers.items() if id not in ids]
        self._note(self.cluster.live(*live).writes)

    def back(self, id: int) -> None:
        """The broker registers again."""
        registration = broker(id, 1_000 + id)
        self._note(self.cluster.live(*self.cluster.brokers.values(), registration).writes)

    def grow_isr(self, name: str, id: int) -> None:
        """The leader proposes a follower that has caught up, as by AlterPartition (AlterIsr)."""
        image = self._image(name)
        self.propose(name, [*image.isr, id])

    def propose(self, name: str, isr: Sequence[int]) -> None:
        """The leader of a partition proposes an ISR."""
        image, topic_partition = self._image(name), self._partition(name)
        members = [IsrMember(BrokerId(id), self.cluster.brokers[BrokerId(id)].epoch) for id in isr]
        proposal = IsrProposal(topic_partition, ZERO_TOPIC_ID, image.leader_epoch, members, image.partition_epoch)
        [outcome] = self.ask(AlterPartition(image.leader, self.cluster.brokers[image.leader].epoch, [proposal]))
        assert outcome.error is ErrorCode.NONE

    def shut_down(self, id: int) -> list[str]:
        """The broker asks to leave; what it still leads."""
        remaining = self.ask(ControlledShutdown(BrokerId(id), self.cluster.brokers[BrokerId(id)].epoch))
        return [f"{each.topic}-{each.partition}" for each in remaining]

    def elected(self, controller: int, epoch: int) -> None:
        """Another broker takes over, and does what a new controller does."""
        self._epoch = epoch
        self._become(controller, epoch)
        self.run(Elected())

    def delete(self, topic: str) -> None:
        """DeleteTopics, answered when the topic is gone."""
        self.run(Submitted(7, DeleteTopics([TopicReference(topic)])))
        assert self.cluster.last.replies == []

    def stopped(self, id: int, topic: str) -> None:
        """The broker answers that its replicas of a topic are gone."""
        image = self.cluster.controller.image.topics[topic]
        held = [TopicPartition(topic, index) for index, each in image.partitions.items() if id in each.replicas]
        self.run(ReplicasStopped(BrokerId(id), dict.fromkeys(held, ErrorCode.NONE)))

    def tool(self, operation: Operation) -> None:
        """A tool writes into the store by itself."""
        self.cluster.tree.transact(SESSION, [operation], 0)

    def store(self, path: str, data: bytes) -> None:
        """A node as it was before the flow."""
        self._put(path, data)
        self._become(self.cluster.controller.image.controller_id, self._epoch)

    def plan(self, *partitions: tuple[str, list[int]]) -> None:
        """A tool writes /admin/reassign_partitions, and the controller's watch fires."""
        targets = {self._partition(name): replicas for name, replicas in partitions}
        data = znodes.encode_reassignment(targets)
        self.tool(Create(znodes.REASSIGN_PARTITIONS, data))
        self.run(ReassignmentsRequested(data))

    def plan_deleted(self) -> None:
        """Somebody deletes that node."""
        self.tool(Delete(znodes.REASSIGN_PARTITIONS))
        self.run(ReassignmentsRequested(None))

    def topic_seen(self, topic: str) -> None:
        """The controller's watch on a topic's node fires."""
        self.run(TopicsChanged([self.cluster.node(topic)]))

    # What is compared.

    def continues(self, name: str) -> Flow:
        """The next flow of the capture, on the same cluster."""
        self.name = name
        self._copied.clear()
        return self

    def take_first(self) -> str:
        """What ours wrote next, which Kafka does not write."""
        return self._ours.pop(0)

    def writes(self, text: str, *, more: bool = False) -> None:
        """What Kafka's controller wrote since the last call, and so must ours; `more`: ours may have written on.

        Ours may fence what Kafka does not: what writes over the content of a node.
        """
        groups = [[line for line in group if line != "--"] for group in _grouped(_lines(text))]
        before = len(self._copied)
        self._copied += [line for group in groups for line in group]
        count = len(self._copied) - before if more else len(self._ours)
        ours, self._ours = self._ours[:count], self._ours[count:]
        fenced = set(ours)
        groups = [
            [bare if (bare := line.removesuffix(_NO_FENCE)) in fenced else line for line in group] for group in groups
        ]
        expected = [line for group in groups for line in sorted(group)]
        found, at = [], 0
        for group in groups:
            found += sorted(ours[at : at + len(group)])
            at += len(group)
        wrote = "\n".join(ours)
        assert found + ours[at:] == expected, f"Kafka wrote{text}\nours wrote\n{wrote}"

    def forget(self, text: str) -> None:
        """As `writes`, for what another flow shows or the capture does not."""
        self.writes(text)
        self._copied.clear()

    def is_the_capture(self, *, without: str = r"(?!)") -> None:
        """Nothing is left; and the copied lines are those of the capture, where it is at hand, `without` some paths."""
        assert self._ours == []
        if not CAPTURE.exists():
            return
        [flow] = [flow for flow in json.loads(CAPTURE.read_bytes()) if flow["name"] == self.name]
        captured = [line for path, line in _captured(flow) if not re.search(without, path)]
        assert sorted(captured) == sorted(self._copied)

    def _become(self, controller: int, epoch: int) -> None:
        self.cluster.controller = _loaded(self.cluster, controller, epoch)

    def _note(self, writes: Iterable[Write]) -> None:
        self._ours += [
            line(write.operation, fenced=write.fence is Fence.CONTROLLER_EPOCH, epoch=self._epoch) for write in writes
        ]

    def _image(self, name: str) -> Any:
        image = self.cluster.controller.image.partition(self._partition(name))
        assert image is not None
        return image

    @staticmethod
    def _partition(name: str) -> TopicPartition:
        topic, _, index = name.rpartition("-")
        return TopicPartition(topic, int(index))

    def _put(self, path: str, data: bytes | None, *, once: bool = False) -> None:
        exists = self.cluster.tree.exists(path)
        if exists is None:
            self.tool(Create(path, data))
        elif not once:
            self.tool(SetData(path, data))


def line(operation: Operation, *, fenced: bool, epoch: int) -> str:
    """One of our writes as a line."""
    match operation:
        case Create(path, data):
            return _line("create", path, None if data is None else data.decode(), 0, fenced, epoch)
        case SetData(path, data, version):
            return _line("set", path, None if data is None else data.decode(), version + 1, fenced, epoch)
        case Delete(path):
            return _line("delete", path, None, 0, fenced, epoch)
        case Check():
            raise AssertionError("the driver's business")


def _line(kind: str, path: str, data: str | None, version: int, fenced: bool, epoch: int) -> str:
    mark = "" if fenced else _NO_FENCE
    state = _STATE.fullmatch(path)
    if state and data is not None:
        content = json.loads(data)
        assert content["controller_epoch"] == epoch
        isr = ",".join(map(str, content["isr"]))
        return (
            f"{state[1]}-{state[2]} leader {content['leader']} epoch {content['leader_epoch']} isr {isr} "
            f"version {version}{mark}"
        )
    if path == znodes.REASSIGN_PARTITIONS and data is not None:
        # Kafka's plan goes through a hash map.
        plan = znodes.decode_reassignment(data.encode())
        data = znodes.encode_reassignment(dict(sorted(plan.items()))).decode()
    path = _SEQUENCE.sub("", path)
    content = "" if data is None else f" {_ID.sub(chr(34) + 'topic_id' + chr(34) + ':ID', data)}"
    return f"{kind} {path}{content}{mark}"


def _captured(flow: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """(path, line) of what brokers wrote in a flow, but for their own registrations and notices."""
    for write in flow["writes"]:
        fenced = any(each["op"] == "check" for each in write.get("ops", ()))
        for each in write.get("ops", [write]):
            path = each.get("path", "")
            by_broker = write["by"].startswith("broker")
            own = path.startswith(_BROKERS_OWN) and each["op"] != "delete"
            if each["op"] not in ("create", "set", "delete") or not by_broker or own:
                continue
            data = each.get("data")
            is_state = data is not None and _STATE.fullmatch(path) is not None
            epoch = json.loads(data)["controller_epoch"] if is_state else 0
            # With protocol 2.6 leaders wrote states themselves, without a fence; ours ask the controller.
            yield path, _line(each["op"], path, data, each.get("version", 0), fenced or is_state, epoch)


def _loaded(cluster: Cluster, controller: int, epoch: int) -> Controller:
    loaded = cluster.loaded(epoch)
    loaded.state.image.controller_id = BrokerId(controller)
    return loaded


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _grouped(lines: Iterable[str]) -> list[list[str]]:
    groups: list[list[str]] = [[]]
    for each in lines:
        if each == "--":
            groups.append([])
        else:
            groups[-1].append(each)
    return groups


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]
