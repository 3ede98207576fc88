"""Metrics of the cluster as its controller knows it, and of topics as a whole.

Every broker shows the controller's metrics, with 0 where it is not the controller: dashboards add them up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tidelog.broker.metrics.selection import Selection
from tidelog.metrics.page import labels_text
from tidelog.model.identifiers import NO_LEADER

if TYPE_CHECKING:
    from tidelog.broker.cluster.controller_driver import ControllerDriver
    from tidelog.broker.node import Node
    from tidelog.controller.state import ControllerState
    from tidelog.metadata.image import PartitionImage, TopicImage
    from tidelog.metrics.page import Page

_CONTROLLER: Final = "kafka_controller_kafkacontroller_"
PARTITIONS_PER_STEP: Final = 2_000
"""Partitions that are counted between two places where the page may be interrupted: less than a millisecond."""
TOPICS_PER_STEP: Final = 200
"""As much work as those partitions, where topics have few."""


def collect_controller(page: Page, driver: ControllerDriver) -> Iterator[None]:
    """What only the controller knows; zeros on other brokers."""
    controller = driver.elections.controller
    counts = dict.fromkeys(
        ("offlinepartitionscount", "preferredreplicaimbalancecount", "globalpartitioncount", "reassigning"), 0
    )
    if controller is not None:
        seen = 0
        for topic in list(controller.image.topics.values()):
            for images in _some_at_once(topic):
                _count_partitions(counts, controller.state, topic, images)
                seen += len(images) + PARTITIONS_PER_STEP // TOPICS_PER_STEP
                if seen >= PARTITIONS_PER_STEP:
                    seen = 0
                    yield
    image = None if controller is None else controller.image
    reassigning = counts.pop("reassigning")
    counts |= {
        "activecontrollercount": int(controller is not None),
        "globaltopiccount": 0 if image is None else len(image.topics),
        "activebrokercount": 0 if image is None else len(image.brokers),
        "topicstodeletecount": 0 if controller is None else len(controller.state.deleting),
        "controllerstate": 0,
    }
    for name, value in counts.items():
        page.family(f"{_CONTROLLER}{name}", "gauge", _HELP[name]).add(value)
    page.family("kafka_controller_controllereventmanager_eventqueuesize", "gauge", "Events that wait.").add(
        driver.elections.controller_queue
    )
    unclean = page.meter("kafka_controller_controllerstats_uncleanleaderelections", "Leaders that were not in sync.")
    unclean.add(0 if controller is None else controller.unclean_elections)
    elections = 0 if controller is None else controller.state.leader_elections
    page.family(
        "kafka_controller_controllerstats_leaderelectionrateandtimems_count", "untyped", "Leaders elected. A counter."
    ).add(elections)
    page.family("tidelog_reassigning_partitions", "gauge", "Partitions that are getting other replicas.").add(
        reassigning
    )
    if image is not None:
        page.family("kafka_brokers", "gauge", "Brokers that are registered; from the controller.").add(
            len(image.brokers)
        )


_HELP: Final = {
    "activecontrollercount": "1 on the controller, 0 elsewhere.",
    "offlinepartitionscount": "Partitions without a leader.",
    "preferredreplicaimbalancecount": "Partitions that another replica leads than the first.",
    "globaltopiccount": "Topics of the cluster.",
    "globalpartitioncount": "Partitions of the cluster.",
    "activebrokercount": "Brokers that are registered.",
    "topicstodeletecount": "Topics that are being deleted.",
    "controllerstate": "0: no event is under way that holds others up.",
}


def _some_at_once(topic: TopicImage) -> Iterator[list[PartitionImage]]:
    """A topic's partitions, so many at a time as a step may count."""
    images = list(topic.partitions.values())
    for start in range(0, len(images), PARTITIONS_PER_STEP):
        yield images[start : start + PARTITIONS_PER_STEP]


def _count_partitions(
    counts: dict[str, int], state: ControllerState, topic: TopicImage, images: list[PartitionImage]
) -> None:
    if topic.name in state.deleting:
        return
    for image in images:
        counts["globalpartitioncount"] += 1
        counts["reassigning"] += image.is_reassigning
        if image.leader == NO_LEADER:
            counts["offlinepartitionscount"] += image.has_state
        elif image.replicas and image.leader != image.replicas[0]:
            counts["preferredreplicaimbalancecount"] += 1


def collect_topics(page: Page, node: Node) -> Iterator[None]:
    """How many partitions each topic has, from the broker that leads the first one with a leader; this broker."""
    selection = Selection(node.config)
    image = node.metadata.image
    partitions = page.family("kafka_topic_partitions", "gauge", "Partitions of the topic.")
    seen = 0
    for topic in list(image.topics.values()):
        seen += len(topic.partitions) + PARTITIONS_PER_STEP // TOPICS_PER_STEP
        if seen >= PARTITIONS_PER_STEP:
            seen = 0
            yield
        led = [partition for partition, each in topic.partitions.items() if each.leader >= 0]
        first = topic.partitions[min(led)] if led else None
        if first is not None and first.leader == node.broker_id and selection.has_topic(topic.name):
            partitions.add(len(topic.partitions), f'{{topic="{topic.name}"}}')
    registration = image.brokers.get(node.broker_id)
    if registration is not None and registration.endpoints:
        endpoint = registration.endpoints[0]
        info = page.family("kafka_broker_info", "gauge", "This broker's id and address; always 1.")
        info.add(1, labels_text(id=node.broker_id, address=f"{endpoint.host}:{endpoint.port}"))
