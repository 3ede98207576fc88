"""Orders to lead, follow or delete that the disk has refused for now, for a lack of descriptors or memory; or whose
folders are not durable yet, since it hangs.

The controller gives an order once. What takes a log directory offline is answered with KAFKA_STORAGE_ERROR, and the
controller counts the replica as failed until the broker registers anew; a shortage passes, so the broker keeps the
order, answers REPLICA_NOT_AVAILABLE, and carries it out itself later; if it was to lead, the controller has another
member of the ISR lead, where one can (`controller.broker_changes.lead_elsewhere`). All orders that wait are tried
together, since they lack the same thing: after one second, then after twice as long each time, up to ten. An order
that failed with an error that nothing foresaw waits with them, and is answered with UNKNOWN_SERVER_ERROR.

An order waits until it is carried out or refused for good, until another order for the partition takes its place,
until the replica is stopped, deleted or assigned to other brokers, or until the broker registers anew: then the
controller gives all orders again.

An order to delete waits beside them. The log that it names is here meanwhile, without a replica. It is dropped when
the same topic's replica is ordered to lead or follow again; a topic of the same name that was made since then takes the
place of the log that waits to be deleted, and the deletion comes first.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.shell import Shell, Timer
    from tidelog.metadata.image import ClusterImage
    from tidelog.model.identifiers import BrokerId
    from tidelog.protocol import messages

logger: Final = logging.getLogger(__name__)

PAUSE_MS_MIN: Final = 1_000
PAUSE_MS_MAX: Final = 10_000


class Order(NamedTuple):
    """What one LeaderAndIsr says of one partition."""

    topic_partition: TopicPartition
    topic_id: TopicId
    state: messages.LeaderAndIsrRequest.LeaderAndIsrPartitionState
    broker_epoch: int
    """Of the registration for which it was meant; -1 for any."""

    def is_older_than(self, other: Order) -> bool:
        """Whether both are for the same topic, and `other` was given later."""
        if ZERO_TOPIC_ID not in (self.topic_id, other.topic_id) and self.topic_id != other.topic_id:
            return False
        mine, others = self.state, other.state
        return (mine.leader_epoch, mine.partition_epoch) < (others.leader_epoch, others.partition_epoch)


class Deletion(NamedTuple):
    """What one StopReplica with delete_partition says of one partition."""

    topic_partition: TopicPartition
    topic_id: TopicId | None
    """Of the log that was here when the order came."""
    broker_epoch: int
    """As in `Order`."""


class PostponedOrders:
    """Those of one broker: of each kind at most one for each partition."""

    def __init__(self, shell: Shell, on_due: Callable[[], object]) -> None:
        """`on_due` is called when the pause is over; it is to `take` the orders."""
        self._shell = shell
        self._on_due = on_due
        self._orders: dict[TopicPartition, Order] = {}
        self._deletions: dict[TopicPartition, Deletion] = {}
        self._pause_ms = PAUSE_MS_MIN
        self._timer: Timer | None = None
        self._stopped = False

    def get(self, topic_partition: TopicPartition) -> Order | None:
        """The order that waits."""
        return self._orders.get(topic_partition)

    def add(self, order: Order, error: Exception | str) -> None:
        """Keeps an order until the pause is over."""
        self._orders[order.topic_partition] = order
        self._wait()
        logger.warning(
            "order postponed: partition=%s leader=%d leader_epoch=%d retry_ms=%d error=%s",
            order.topic_partition,
            order.state.leader,
            order.state.leader_epoch,
            self._pause_ms,
            error,
        )

    def drop(self, topic_partition: TopicPartition) -> None:
        """The order to lead or follow does not hold any more. Idempotent."""
        self._orders.pop(topic_partition, None)
        self._rest()

    def deletion(self, topic_partition: TopicPartition) -> Deletion | None:
        """The order to delete that waits."""
        return self._deletions.get(topic_partition)

    def add_deletion(self, deletion: Deletion, error: Exception) -> None:
        """Keeps an order to delete until the pause is over."""
        self._deletions[deletion.topic_partition] = deletion
        self._wait()
        logger.warning(
            "deletion postponed: partition=%s retry_ms=%d error=%s", deletion.topic_partition, self._pause_ms, error
        )

    def drop_deletion(self, topic_partition: TopicPartition) -> None:
        """The log is deleted, or is not to be any more. Idempotent."""
        if self._deletions.pop(topic_partition, None) is not None:
            self._rest()

    def drop_unassigned(self, image: ClusterImage, broker_id: BrokerId) -> None:
        """Drops orders for replicas that the cluster, whose whole image this is, does not assign to this broker."""
        for order in list(self._orders.values()):
            topic = image.topics.get(order.topic_partition.topic)
            partition = image.partition(order.topic_partition)
            is_same = topic is not None and order.topic_id in (ZERO_TOPIC_ID, topic.topic_id)
            if not is_same or partition is None or broker_id not in partition.replicas:
                self.drop(order.topic_partition)

    def take(self, broker_epoch: int) -> list[Order]:
        """All that wait, to be tried now; those that were meant for an earlier registration are dropped."""
        orders, self._orders = self._orders, {}
        return [order for order in orders.values() if not 0 <= order.broker_epoch < broker_epoch]

    def take_deletions(self, broker_epoch: int) -> list[Deletion]:
        """As `take`, the orders to delete."""
        deletions, self._deletions = self._deletions, {}
        return [deletion for deletion in deletions.values() if not 0 <= deletion.broker_epoch < broker_epoch]

    def tried(self) -> None:
        """What was taken is carried out, or waits again."""
        self._rest()

    def stop(self) -> None:
        """Nothing is tried any more."""
        self._stopped = True
        self._orders.clear()
        self._deletions.clear()
        self._rest()

    def _wait(self) -> None:
        if self._timer is None and not self._stopped:
            self._timer = self._shell.after(self._pause_ms, self._due)

    def _due(self) -> None:
        self._timer = None
        self._pause_ms = min(2 * self._pause_ms, PAUSE_MS_MAX)
        self._on_due()

    def _rest(self) -> None:
        """Begins with the shortest pause again once nothing waits."""
        if not self._orders and not self._deletions:
            self._pause_ms = PAUSE_MS_MIN
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
