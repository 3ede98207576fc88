"""Runs pure coordinators on the partitions of an internal topic: loading, appending, answering.

    ask --> StateMachine.handle --> replay --> this turn's batch --> append --> committed --> replies
                                                                      '--> failed: forget the state, load it anew

A shard is one partition while this broker leads it, once for each leader epoch; until it is loaded, requests are
answered COORDINATOR_LOAD_IN_PROGRESS. What several events write in one turn of the loop is appended as one batch, each
event's writes whole. A state is ahead of what is committed meanwhile, so that every answer waits for the youngest
write before it: an answer is never taken back.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from tidelog.broker.coordinators.appends import Appends
from tidelog.broker.coordinators.internal_topic import InternalTopic, TopicCreation
from tidelog.broker.coordinators.loading import Loading, LoadTimes
from tidelog.broker.coordinators.shard import Marker, Shard
from tidelog.broker.deferred import Deferred, gather
from tidelog.coordinator.partitions import partition_for
from tidelog.coordinator.state_machine import Remaining, StateMachine, TimePassed
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition

if TYPE_CHECKING:
    from tidelog.broker.channels import ControllerChannel
    from tidelog.broker.cluster.metadata_cache import MetadataCache
    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.broker.replicas.replica import Replica
    from tidelog.broker.replicas.replica_manager import ReplicaManager
    from tidelog.coordinator.result import Result
    from tidelog.metadata.image import PartitionImage
    from tidelog.storage.verification import VerificationGuard

logger: Final = logging.getLogger(__name__)

M = TypeVar("M", bound=StateMachine)

LOADS_MAX: Final = 2
"""Partitions that are loaded at once: each holds a buffer, and a slice of each may run in one turn of the loop."""
GRACE_MS: Final = 6_000
"""After a time without appends, in which members could not be heard, until what is due is done: two heartbeats."""
DEADLINES_PER_TURN_MAX: Final = 200
"""Deadlines that are carried out before the loop gets its turn."""
RETRY_MS: Final = 1_000
"""Between two looks at what is due while the partition takes no appends, and before it is loaded anew unasked."""
LOAD_RETRY_MS_MAX: Final = 30_000
"""Between two attempts to read a partition that could not be read; the first comes after RETRY_MS."""
UNREADABLE_AFTER: Final = 2
"""Attempts in a row that have failed, after which a listing leaves the partition out."""


class _Loaded:
    """Stands for an event where a coordinator begins, after its log was read."""


class Shards(Generic[M]):
    """The coordinators of one internal topic on this broker."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        *,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        controller: ControllerChannel,
        topic: InternalTopic,
        make: Callable[[], M],
    ) -> None:
        """`make` gives an empty coordinator."""
        self._environment = environment
        self._clock = environment.clock
        self._shell = environment.shell
        self._metadata = metadata
        self._replicas = replicas
        self.topic = topic
        self._make = make
        self.prepare: Callable[[M], object] | None = None
        """Called before each event: brings what the coordinator is to know beside it, such as metadata."""
        self._appends = Appends[M](environment, replicas, topic, self._abandon)
        self._shards: dict[int, Shard[M]] = {}
        self._creation = TopicCreation(metadata, controller, topic)
        self._last_request = 0
        self._loading: list[Shard[M]] = []
        self._to_load: deque[Shard[M]] = deque()
        self.load_times = LoadTimes()
        """For metrics."""
        self._load_failures: Counter[int] = Counter()
        """[partition] -> attempts to load it that have failed in a row."""
        self._news: dict[int, list[Any]] = {}
        """[partition that is led here] -> events without a reply that came while its coordinator could not handle them:
        it does before it writes anything else."""

    @property
    def on_committed(self) -> Callable[[Shard[M], Any], object] | None:
        """Called with the result of each event once all that it rests on is committed, after its replies."""
        return self._appends.on_committed

    @on_committed.setter
    def on_committed(self, callback: Callable[[Shard[M], Any], object]) -> None:
        self._appends.on_committed = callback

    # Where something is coordinated.

    def partition_of(self, key: str) -> int:
        """The partition of the topic that keeps a group, or a transactional id."""
        topic = self._metadata.image.topics.get(self.topic.name)
        return partition_for(key, self.topic.partitions if topic is None else len(topic.partitions))

    def partition_image(self, key: str) -> PartitionImage | None:
        """That partition with its leader, as far as this broker was told; None while the topic does not exist."""
        return self._metadata.image.partition(TopicPartition(self.topic.name, self.partition_of(key)))

    def ensure_topic(self) -> Deferred[None]:
        """Creates the topic when it does not exist yet; fails with KafkaError COORDINATOR_NOT_AVAILABLE."""
        return self._creation.ensure()

    # Asking.

    def ask(self, key: str, make: Callable[[int], Any]) -> Deferred[Any]:
        """The coordinator's reply to the event `make(request_id)`, once all that it rests on is committed.

        Fails with KafkaError NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, or what became of the append:
        COORDINATOR_NOT_AVAILABLE, INVALID_COMMIT_OFFSET_SIZE, ...
        """
        return self.ask_partition(self.partition_of(key), make)

    def ask_partition(
        self, partition: int, make: Callable[[int], Any], guard: VerificationGuard | None = None
    ) -> Deferred[Any]:
        """As `ask`, of the coordinator of one partition of the topic.

        `guard`: what the transaction's coordinator has said, where the event's writes are part of a transaction. Such
        an append may be refused like any producer's; then only this event has failed, with that error.
        """
        answer: Deferred[Any] = Deferred()
        try:
            shard = self.ready(partition)
            self._last_request += 1
            request_id = self._last_request
            event = make(request_id)
            self._check_appends(shard, event)
        except KafkaError as error:
            answer.fail(error)
            return answer
        shard.requests[request_id] = answer
        try:
            self._handle(shard, event, guard)
        except Exception:
            # The coordinator will not answer this request any more; the dispatcher logs the error and tells the client.
            shard.requests.pop(request_id, None)
            raise
        if not answer.done:
            answer.on_abandoned = lambda: shard.requests.pop(request_id, None)
        return answer

    def touch(self, key: str, change: Callable[[M, int], int | None]) -> bool:
        """Has the coordinator of `key` note something that is not in its log and that nothing follows from but a time.

        `change(machine, now_ms)` is such a note, and gives the only deadline that it has set; None, with nothing
        changed, where it is more than that. False is given then, and where an answer would have to wait, or there is no
        coordinator: `ask` knows all of this.
        """
        shard = self._shards.get(self.partition_of(key))
        if shard is None or not shard.is_loaded or not shard.is_current or shard.replica.log.is_offline:
            return False
        if shard.batch is not None or shard.appends:
            return False
        due_ms = change(shard.machine, self._clock.monotonic_ms())
        if due_ms is None:
            return False
        if shard.timer is None or shard.timer_due_ms > due_ms:
            self._arm(shard)
        return True

    def ask_all(self, make: Callable[[int], Any]) -> Deferred[list[Any]]:
        """The replies of all coordinators here, in the order of their partitions; fails if one of them does.

        One whose partition cannot be read, time and again, is left out: it must not take the others' answers along.
        """
        readable = [partition for partition in self.led_partitions() if not self._is_unreadable(partition)]
        return gather([self.ask_partition(partition, make) for partition in readable])

    def _is_unreadable(self, partition: int) -> bool:
        shard = self._shards.get(partition)
        is_broken = shard is not None and shard.failure is not None
        return is_broken or self._load_failures[partition] >= UNREADABLE_AFTER

    def tell(self, shard: Shard[M], event: Any) -> bool:
        """Hands an event without an answer to a shard that was given out before; nothing happens once it is closed.

        False: the partition takes no appends just now, and the caller must retry.
        """
        if shard.is_current and shard.is_loaded:
            try:
                self._check_appends(shard, event)
            except KafkaError:
                return False
            self._handle(shard, event)
        return True

    def tell_all(self, event: Any) -> None:
        """Something that concerns all coordinators here and has no reply; one that is being loaded, or cannot write
        just now, handles it when it can."""
        for partition in self.led_partitions():
            shard = self._shards.get(partition)
            if shard is not None and shard.is_current and shard.is_loaded:
                self._tell(shard, event)
            else:
                self._news.setdefault(partition, []).append(event)

    def _tell(self, shard: Shard[M], event: Any) -> None:
        try:
            self._check_appends(shard, event)
            self._handle(shard, event)
        except KafkaError as error:
            logger.warning("event handled later: partition=%s error=%s", shard.replica.topic_partition, error)
            self._news.setdefault(shard.replica.topic_partition.partition, []).append(event)
        except Exception:
            # One coordinator's mistake must not keep the news from the others.
            logger.exception("event failed: partition=%s", shard.replica.topic_partition)

    def _tell_news(self, shard: Shard[M]) -> None:
        """Has the coordinator handle what came while it could not."""
        partition = shard.replica.topic_partition.partition
        news = self._news.pop(partition, [])
        while news and shard.is_current:
            self._tell(shard, news.pop(0))
        if news:
            self._news.setdefault(partition, []).extend(news)

    def sweep(self, make: Callable[[int, Any], Any]) -> None:
        """Has all coordinators here do what may take each of them several events; clients have their turns between.

        `make(request_id, rest)`: rest is None first, then that of the `Remaining` which the event before was answered
        by. One that cannot be asked just now is passed over.
        """
        self._sweep_next(deque(self.led_partitions()), make)

    def _sweep_next(self, partitions: deque[int], make: Callable[[int, Any], Any]) -> None:
        if partitions:
            # Before the work: a mistake in one coordinator must not stop the others.
            self._shell.soon(self._sweep_next, partitions, make)
            self._sweep(partitions.popleft(), make, None)

    def _sweep(self, partition: int, make: Callable[[int, Any], Any], rest: Any) -> None:
        def look(outcome: Deferred[Remaining]) -> None:
            try:
                remaining = outcome.result()
            except KafkaError:
                return
            if remaining.rest:
                self._shell.soon(self._sweep, partition, make, remaining.rest)

        self.ask_partition(partition, lambda request_id: make(request_id, rest)).on_complete(look)

    def loaded(self) -> list[Shard[M]]:
        """The partitions whose state is here and holds, to be read only."""
        return [shard for shard in self._shards.values() if shard.is_loaded and shard.is_current]

    def led_partitions(self) -> list[int]:
        """Partitions of the topic that this broker leads, in order; none of a log directory that has failed."""
        return sorted(
            replica.topic_partition.partition
            for replica in self._replicas.of_topic(self.topic.name)
            if replica.leader is not None and not replica.log.is_offline
        )

    def transaction_ended(self, partition: int, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        """A marker in a partition of the topic is committed."""
        shard = self._shards.get(partition)
        if shard is None or not shard.is_current:
            # The broker that loads the partition finds the marker.
            return
        if shard.is_loaded:
            shard.machine.transaction_ended(producer_id, producer_epoch, committed=committed)
        else:
            shard.markers.append(Marker(producer_id, producer_epoch, committed))

    def leadership_changed(self, partition: int) -> None:
        """This broker began or ceased to lead a partition of the topic: loads it ahead of the first question."""
        replica = self._led(partition)
        if replica is None:
            self._drop(partition)
        else:
            self._current(partition, replica)

    # A shard's life.

    def ready(self, partition: int) -> Shard[M]:
        """The loaded state of a partition that this broker leads; raises KafkaError."""
        known = self._shards.get(partition)
        if known is not None and known.is_loaded and known.is_current and not known.replica.log.is_offline:
            return known
        replica = self._led(partition)
        if replica is None:
            self._drop(partition)
            if self._is_to_lead(partition):
                raise KafkaError(
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "This broker begins to lead the partition: try again."
                )
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "This broker does not coordinate that.")
        shard = self._current(partition, replica)
        if shard.failure is not None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, shard.failure)
        if not shard.is_loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The coordinator is loading its state: try again.")
        return shard

    def _led(self, partition: int) -> Replica | None:
        """The partition's replica here, if it leads and can be read."""
        replica = self._replicas.get(TopicPartition(self.topic.name, partition))
        return None if replica is None or replica.leader is None or replica.log.is_offline else replica

    def _is_to_lead(self, partition: int) -> bool:
        """Whether the partition is this broker's to lead, and it has yet to begin: it reads the topic's settings first.

        Clients find their coordinator by the same metadata. librdkafka gives a commit up that is answered
        NOT_COORDINATOR, and repeats one whose coordinator loads.
        """
        topic_partition = TopicPartition(self.topic.name, partition)
        image = self._metadata.image.partition(topic_partition)
        if image is None or image.leader != self._replicas.broker_id:
            return False
        replica = self._replicas.get(topic_partition)
        return replica is None or replica.leader_epoch < image.leader_epoch

    def _current(self, partition: int, replica: Replica) -> Shard[M]:
        shard = self._shards.get(partition)
        if shard is not None and shard.replica is replica and shard.is_current:
            return shard
        former = self._shards.pop(partition, None)
        if former is not None:
            former.close()
        shard = self._shards[partition] = Shard(replica, self._make(), self._clock.monotonic_ms())
        if replica.log.log_start_offset >= replica.log.log_end_offset:
            self._loaded(shard)
        else:
            self._to_load.append(shard)
            self._load_next()
        return shard

    def _load_next(self) -> None:
        while self._to_load and len(self._loading) < LOADS_MAX:
            shard = self._to_load.popleft()
            if shard.is_current:
                self._loading.append(shard)
                Loading(
                    self._environment,
                    self._replicas,
                    shard,
                    self.topic.load_buffer_size,
                    self._has_read,
                    self._load_ended,
                ).begin()

    def _has_read(self, shard: Shard[M]) -> None:
        """Nothing is left to do for it but, perhaps, to wait for followers: that must not hold up the others."""
        if shard in self._loading:
            self._loading.remove(shard)
            self._load_next()

    def _load_ended(self, shard: Shard[M], error: Exception | None) -> None:
        """`error`: ValueError for what is malformed, anything else may be better the next time."""
        self._has_read(shard)
        if error is None:
            self._loaded(shard)
        elif isinstance(error, ValueError):
            shard.failure = str(error)
        else:
            self._load_later(shard, error)

    def _load_later(self, shard: Shard[M], error: Exception) -> None:
        """After the first failure the next question loads the state; after more of them only time does."""
        if not shard.is_current:
            # The leadership has ended, which says nothing of what can be read.
            self._abandon(shard)
            return
        partition = shard.replica.topic_partition.partition
        self._load_failures[partition] += 1
        attempts = self._load_failures[partition]
        if attempts < UNREADABLE_AFTER:
            self._abandon(shard)
            return
        pause_ms = min(RETRY_MS << (attempts - 1), LOAD_RETRY_MS_MAX)
        logger.warning(
            "coordinator_not_loaded: partition=%s attempts=%d again_in_ms=%d error=%s",
            shard.replica.topic_partition,
            attempts,
            pause_ms,
            error,
        )
        self._shell.after(pause_ms, self._load_again, shard)

    def _load_again(self, former: Shard[M]) -> None:
        partition = former.replica.topic_partition.partition
        if self._shards.get(partition) is not former:
            return
        self._shards.pop(partition).close()
        replica = self._led(partition)
        if replica is not None:
            self._current(partition, replica)

    def _loaded(self, shard: Shard[M]) -> None:
        if not shard.is_current:
            return
        shard.is_loaded = True
        self.load_times.loaded(shard.began_ms, self._clock.monotonic_ms())
        self._load_failures.pop(shard.replica.topic_partition.partition, None)
        for marker in shard.markers:
            # What was read may hold them as well: then there is nothing left for them to end.
            shard.machine.transaction_ended(marker.producer_id, marker.producer_epoch, committed=marker.committed)
        shard.markers.clear()
        event = _Loaded()
        result = shard.machine.loaded(self._clock.monotonic_ms(), self._clock.wall_ms())
        if result is None:
            self._arm(shard)
        else:
            self._carry_out(shard, result, event)
        self._tell_news(shard)

    def _drop(self, partition: int) -> None:
        self._load_failures.pop(partition, None)
        self._news.pop(partition, None)
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.close()

    def _abandon(self, shard: Shard[M]) -> None:
        """The state is not to be trusted any more: the next question loads it anew, or the clock, for what is due."""
        partition = shard.replica.topic_partition.partition
        if self._shards.get(partition) is shard:
            del self._shards[partition]
            self._shell.after(RETRY_MS, self.leadership_changed, partition)
        shard.close()

    # Events.

    def _check_appends(self, shard: Shard[M], event: Any) -> None:
        """KafkaError where the event may write, and the partition takes no appends.

        To find out by an append that fails would cost the whole state.
        """
        if type(event) in shard.machine.READS:
            return
        leader = shard.replica.leader
        if leader is not None and not leader.has_enough_replicas:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "Too few replicas are in sync.")
        if self._news:
            self._tell_news(shard)
            if shard.closed:
                raise KafkaError(ErrorCode.NOT_COORDINATOR, "The coordinator begins anew.")

    def _handle(self, shard: Shard[M], event: Any, guard: VerificationGuard | None = None) -> bool:
        """Whether the event was one step of a longer work, and clients are to have their turn."""
        machine = shard.machine
        if self.prepare is not None:
            self.prepare(machine)
        result = machine.handle(self._clock.monotonic_ms(), event)
        self._carry_out(shard, result, event, guard)
        return result.goes_on

    def _carry_out(
        self, shard: Shard[M], result: Result[Any, Any], event: Any, guard: VerificationGuard | None = None
    ) -> None:
        if result.writes:
            batch = self._appends.write(shard, result, event, guard)
            if batch is None:
                return
        else:
            batch = shard.batch or (shard.appends[-1] if shard.appends else None)
        self._arm(shard)
        for request_id, reply in result.replies:
            answer = shard.requests.pop(request_id, None)
            if answer is None:
                continue
            if batch is None:
                answer.complete(reply)
            else:
                batch.replies.append((answer, reply))
        on_committed = self._appends.on_committed
        if on_committed is not None:
            if batch is None:
                on_committed(shard, result)
            else:
                batch.results.append(result)
        if batch is not None:
            self._appends.listen(shard, batch)

    # Time.

    def _arm(self, shard: Shard[M]) -> None:
        """One timer a shard, for what is due first."""
        due_ms = shard.machine.next_due_ms
        if due_ms is None or (shard.timer is not None and shard.timer_due_ms <= due_ms):
            return
        if shard.timer is not None:
            shard.timer.cancel()
        delay_ms = max(due_ms - self._clock.monotonic_ms(), 0)
        shard.timer_due_ms = due_ms
        shard.timer = self._shell.after(delay_ms, self._time_passed, shard)

    def _time_passed(self, shard: Shard[M]) -> None:
        if not shard.is_current:
            return
        event = TimePassed(self._clock.wall_ms())
        try:
            self._check_appends(shard, event)
        except KafkaError:
            shard.is_held = True
            shard.timer = self._shell.after(RETRY_MS, self._time_passed, shard)
            return
        if shard.is_held:
            shard.is_held = False
            shard.timer = self._shell.after(GRACE_MS, self._time_passed, shard)
            return
        # While the timer stands in the past, handling does not arm another.
        shard.timer_due_ms = -1
        for _ in range(DEADLINES_PER_TURN_MAX):
            due_ms = shard.machine.next_due_ms
            if due_ms is None or due_ms > self._clock.monotonic_ms():
                break
            try:
                goes_on = self._handle(shard, event)
            except Exception:
                # No client waits for this, and what else is due must not be given up.
                logger.exception("deadline failed: partition=%s", shard.replica.topic_partition)
                shard.timer = self._shell.after(RETRY_MS, self._time_passed, shard)
                return
            if shard.closed:
                return
            if goes_on:
                break
        shard.timer = None
        self._arm(shard)
