"""Which broker is asked, when it is asked again and when that ends: decided here once, without I/O.

An operation is a generator: it yields what to do next, a list of calls or a pause, and receives each call's outcome, a
response or the error that stood in its way. The asyncio and the blocking cluster only carry steps out, so that both
retry, refresh and give up alike, and tests play the brokers' part with plain values.

    operation --- [Call(address, request), ...] ---> driver: sends all of them, waits for all
              <-- [response | ClientError, ...] ----
              --- Pause(seconds) ------------------> driver: sleeps

`Routing` is the memory that operations share: the brokers, the leaders and the topic ids as Metadata told them last.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from tidelog.client.addresses import Address
from tidelog.client.arguments import require_number
from tidelog.client.errors import ClientError, ConnectionFailed, RequestTimedOut, refusal
from tidelog.client.exchange import ByVersion
from tidelog.client.leader_hints import LeaderHint
from tidelog.client.operations import Call, Deadline, Operation, Pause
from tidelog.client.retries import RetryPolicy
from tidelog.client.throttles import Throttles
from tidelog.client.views import Broker, TopicView, partition_error, topic_error, topic_view
from tidelog.model.errors import ErrorCode, KafkaError, error_code
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

T = TypeVar("T")
V = TypeVar("V")
R = TypeVar("R")

UNKNOWN_TOPIC_PATIENCE_S: Final = 1.0
"""How long a topic that no broker knows may still be on its way from the controller to the brokers."""

FORMER_TOPICS_MAX: Final = 1_000
"""Deleted topics, and those that a broker which lags does not show, of which leader epochs are kept: some 100 bytes a
partition."""

COORDINATOR_GROUP: Final = 0
COORDINATOR_TRANSACTION: Final = 1
COORDINATOR_MOVED: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
"""Answers of a broker that no longer, or not yet, is the coordinator."""


class Routing:
    """What a client knows about its cluster, and the operations that use and renew it.

    `now` gives monotonic seconds, `draw` numbers in [0, 1). `call_timeout_s` bounds one request, an operation's
    deadline all its attempts. With `fail_fast` an operation that can reach no broker at all ends at once instead of
    trying until its deadline: right for a command that its user waits for, wrong while brokers may be restarting.
    """

    def __init__(
        self,
        bootstrap: Sequence[Address],
        *,
        now: Callable[[], float],
        draw: Callable[[], float],
        retry: RetryPolicy | None = None,
        call_timeout_s: float = 30.0,
        operation_timeout_s: float = 60.0,
        fail_fast: bool = False,
    ) -> None:
        require_number("call_timeout_s", call_timeout_s, above=0)
        require_number("operation_timeout_s", operation_timeout_s, above=0)
        self.bootstrap = tuple(bootstrap)
        self.now = now
        self.draw = draw
        self.retry = retry or RetryPolicy()
        self.call_timeout_s = call_timeout_s
        self.operation_timeout_s = operation_timeout_s
        self.fail_fast = fail_fast
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: dict[int, Broker] = {}
        self.topics: dict[str, TopicView] = {}
        self.throttles = Throttles(now)
        """Which brokers have asked for a pause: what carries out operations keeps it."""
        self._names_by_id: dict[TopicId, str] = {}
        self._coordinators: dict[tuple[int, str], Address] = {}
        self._leader_epochs: dict[TopicId, dict[int, int]] = {}
        """[topic id][partition] -> the greatest leader epoch that was ever shown; the topic shown last is at the end.
        Of topics that are in view no more `FORMER_TOPICS_MAX` are kept."""
        self._answered_last: Address | None = None
        self._behind: Address | None = None
        """The broker that last showed what is over, or did not know a topic: it is asked last."""
        self._silent: dict[Address, None] = {}
        """Brokers that gave no answer since they were asked last, the latest at the end: they are asked after all
        others, in this order. One whose machine is gone without a word costs all the time of a short deadline."""

    # What is known

    def deadline(self, timeout_s: float | None = None) -> Deadline:
        """A deadline from now on; None takes the routing's own."""
        seconds = self.operation_timeout_s if timeout_s is None else timeout_s
        return Deadline(self.now, self.now() + seconds, seconds)

    def leader(self, topic_partition: TopicPartition) -> Broker | None:
        """The leader of a partition, None where it (or its topic) is not known or has none now."""
        topic = self.topics.get(topic_partition.topic)
        partition = topic.partitions.get(topic_partition.partition) if topic else None
        return self.brokers.get(partition.leader) if partition else None

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        """The epoch of the leader that `leader` gives, -1 where it is not known."""
        topic = self.topics.get(topic_partition.topic)
        partition = topic.partitions.get(topic_partition.partition) if topic else None
        return partition.leader_epoch if partition else -1

    def topic_id(self, topic: str) -> TopicId:
        """The id of a topic, zero where it is not known."""
        view = self.topics.get(topic)
        return view.topic_id if view else ZERO_TOPIC_ID

    def topic_ids(self, topics: Iterable[str]) -> dict[str, TopicId]:
        """[topic] -> its id, zero where it is not known."""
        return {topic: self.topic_id(topic) for topic in topics}

    def is_replaced(self, topic: str, former: TopicId) -> bool:
        """Whether another topic than `former` has the name now; False where one of the two ids is not known."""
        present = self.topic_id(topic)
        return former != present and ZERO_TOPIC_ID not in (former, present)

    def topic_name(self, topic_id: TopicId) -> str | None:
        """The name of a topic seen before under `topic_id`."""
        return self._names_by_id.get(topic_id)

    def forget_leader(self, topic_partition: TopicPartition) -> None:
        """Makes the next operation on the partition ask for its leader again.

        The partition stays in view: keys go by the number of partitions.
        """
        topic = self.topics.get(topic_partition.topic)
        known = topic.partitions.get(topic_partition.partition) if topic else None
        if topic is not None and known is not None and known.leader >= 0:
            partitions = {**topic.partitions, known.partition: dataclasses.replace(known, leader=-1)}
            self.topics[topic.name] = dataclasses.replace(topic, partitions=partitions)

    def take_leader(self, topic_partition: TopicPartition, topic_id: TopicId, hint: LeaderHint | None) -> bool:
        """Takes the leader that a broker has named instead of itself (KIP-951), where the hint is news; whether it was.

        `topic_id` is the topic that the broker was asked about: leader epochs of a former one are not those of the
        present one. The partition can be tried again at once then. Otherwise its leader is to be asked for.
        """
        topic = self.topics.get(topic_partition.topic)
        known = topic.partitions.get(topic_partition.partition) if topic else None
        if topic is None or known is None or hint is None or topic.topic_id != topic_id:
            return False
        broker = hint.broker or self.brokers.get(hint.leader)
        newest = self._leader_epochs.get(topic.topic_id, {}).get(topic_partition.partition, known.leader_epoch)
        if broker is None or hint.leader_epoch <= newest:
            return False
        self.brokers[hint.leader] = broker
        if topic.topic_id != ZERO_TOPIC_ID:
            self._leader_epochs.setdefault(topic.topic_id, {})[topic_partition.partition] = hint.leader_epoch
        present = dataclasses.replace(known, leader=hint.leader, leader_epoch=hint.leader_epoch)
        partitions = {**topic.partitions, topic_partition.partition: present}
        self.topics[topic.name] = dataclasses.replace(topic, partitions=partitions)
        return True

    def _candidates(self) -> list[Address]:
        known = [broker.address for broker in self.brokers.values()]
        if self._answered_last in known:
            known.insert(0, self._answered_last)
        candidates = dict.fromkeys((*known, *self.bootstrap))
        self._silent = {address: None for address in self._silent if address in candidates}
        ranks = {address: rank for rank, address in enumerate(self._silent, 1)}
        return sorted(candidates, key=lambda address: (ranks.get(address, 0), address == self._behind))

    # One answer, from any broker or a certain one

    def ask_any(self, message: Any, deadline: Deadline, *, lost: list[ClientError] | None = None) -> Operation[Any]:
        """The answer of whichever broker gives one; ConnectionFailed or RequestTimedOut when none does.

        `lost` gets why each earlier request had no answer: it may have been carried out.
        """
        attempt = 0
        while True:
            failures: list[ClientError] = []
            for address in self._candidates():
                outcome = yield from self.ask(address, message, deadline)
                if not isinstance(outcome, (ConnectionFailed, RequestTimedOut)):
                    if isinstance(outcome, ClientError):
                        raise outcome
                    self._answered_last = address
                    return outcome
                failures.append(outcome)
                if lost is not None:
                    lost.append(outcome)
            attempt += 1
            if self.fail_fast or not (yield from self.pause(attempt, deadline)):
                raise _none_answers(failures)

    def ask(self, address: Address, message: Any, deadline: Deadline) -> Operation[Any]:
        """One attempt at one broker: its response, or the `ClientError` that stood in the way."""
        if deadline.remaining_s <= 0:
            # A call without time would only cost the connection that others use.
            return RequestTimedOut(f"{address} was not asked: the {deadline.timeout_s:g} s for it had passed")
        outcomes = yield [Call(address, message, min(self.call_timeout_s, deadline.remaining_s))]
        self._silent.pop(address, None)
        if isinstance(outcomes[0], (ConnectionFailed, RequestTimedOut)):
            self._silent[address] = None
        return outcomes[0]

    def pause(self, attempt: int, deadline: Deadline) -> Operation[bool]:
        """Waits before the next attempt; False, at once, when the deadline would pass meanwhile."""
        seconds = self.retry.pause_s(attempt, self.draw)
        if seconds >= deadline.remaining_s:
            return False
        yield Pause(seconds)
        return True

    def ask_controller(
        self,
        message: Any,
        deadline: Deadline,
        errors_of: Callable[[Any], Iterable[int]],
        *,
        lost: list[ClientError] | None = None,
    ) -> Operation[Any]:
        """The controller's answer; `errors_of` gives a response's error codes, so that a deposed one is recognized.

        A KRaft cluster names some broker as its controller and forwards; with ZooKeeper it is the real one. `lost` is
        that of `ask_any`.
        """
        attempt = 0
        while True:
            if self.controller_id not in self.brokers:
                yield from self.refresh((), deadline)
            controller = self.brokers.get(self.controller_id)
            if controller is None:
                outcome = yield from self.ask_any(message, deadline, lost=lost)
            else:
                outcome = yield from self.ask(controller.address, message, deadline)
            attempt += 1
            if not isinstance(outcome, ClientError):
                if ErrorCode.NOT_CONTROLLER not in errors_of(outcome):
                    return outcome
                failure: Exception = KafkaError(ErrorCode.NOT_CONTROLLER, "the controller is moving; try again")
            elif isinstance(outcome, ConnectionFailed):
                failure = outcome
                if lost is not None:
                    lost.append(outcome)
            else:
                raise outcome
            self.controller_id = -1
            if not (yield from self.pause(attempt, deadline)):
                raise failure

    # Metadata

    def refresh(
        self, topics: Collection[str] | None, deadline: Deadline, *, create: bool = False
    ) -> Operation[dict[str, ErrorCode]]:
        """Asks for the brokers and for `topics` (None: all); returns the error of each topic that has one. One that the
        answer leaves out is unknown.

        `create` lets the broker create missing ones where it is so configured (auto.create.topics.enable).
        """
        request = messages.MetadataRequest(
            topics=None
            if topics is None
            else [messages.MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(topics)],
            allow_auto_topic_creation=create,
        )
        attempt = 0
        while True:
            response = yield from self.ask_any(request, deadline)
            if response.brokers:
                return self._take(response, topics)
            # It has just started, and was told nothing yet: its topics are not gone.
            self._behind = self._answered_last
            attempt += 1
            if not (yield from self.pause(attempt, deadline)):
                raise ConnectionFailed(f"{self._answered_last} knows of no brokers yet")

    def _take(self, response: Any, asked: Collection[str] | None) -> dict[str, ErrorCode]:
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.brokers = {
            broker.node_id: Broker(broker.node_id, Address(broker.host, broker.port), broker.rack)
            for broker in response.brokers
        }
        former = dict(self.topics)
        if asked is None:
            self.topics.clear()
            self._names_by_id.clear()
        told = {topic.name for topic in response.topics}
        errors = {name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for name in asked or () if name not in told}
        errors |= {topic.name: error_code(topic.error_code) for topic in response.topics if topic.error_code}
        for name, error in errors.items():
            self.topics.pop(name, None)
            if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._behind = self._answered_last  # Another broker may have heard of it.
        for topic in response.topics:
            if topic.error_code:
                continue
            view = topic_view(topic)
            if view.topic_id != ZERO_TOPIC_ID:
                self._names_by_id[view.topic_id] = view.name
                view = self._without_past(view, former.get(topic.name))
            self.topics[topic.name] = view
        self._forget_former_topics()
        return errors

    def _forget_former_topics(self) -> None:
        """Drops what is known of topics that are in view no more, of those that were shown longest ago.

        The latest are kept: a broker that lags may hide a topic for a while, and then show a leader that was deposed.
        """
        if len(self._leader_epochs) <= len(self.topics) + FORMER_TOPICS_MAX:
            return
        present = {view.topic_id for view in self.topics.values()}
        former = [topic_id for topic_id in self._leader_epochs if topic_id not in present]
        for topic_id in former[:-FORMER_TOPICS_MAX]:
            del self._leader_epochs[topic_id]
            self._names_by_id.pop(topic_id, None)

    def _without_past(self, view: TopicView, former: TopicView | None) -> TopicView:
        """The view, with what is known already of partitions that it lacks, or shows in a leader epoch which is over.

        A broker that was deposed, and has not been told, shows itself as the leader: of a log that may lack what the
        present leader has acknowledged. Where nothing better is known, the partition has no leader for now (KIP-320).
        No topic loses partitions: the partitioner would send keys elsewhere for a while, and no consumer would read the
        partitions that lack.
        """
        known = former.partitions if former and former.topic_id == view.topic_id else {}
        partitions = {**known, **view.partitions}
        if len(partitions) > len(view.partitions):
            self._behind = self._answered_last
        epochs = self._leader_epochs[view.topic_id] = self._leader_epochs.pop(view.topic_id, {})
        for index, partition in view.partitions.items():
            newest = epochs.get(index, -1)
            if partition.leader_epoch >= newest:
                epochs[index] = partition.leader_epoch
                continue
            self._behind = self._answered_last
            partitions[index] = known.get(index) or dataclasses.replace(partition, leader=-1, leader_epoch=newest)
        return dataclasses.replace(view, partitions=partitions)

    def require_topics(
        self, topics: Collection[str], deadline: Deadline, *, create: bool = False
    ) -> Operation[dict[str, TopicView]]:
        """The topics, from memory or from Metadata; raises KafkaError for the first that does not exist.

        A topic unknown to the broker asked is asked for again for a second: it may just have been created.
        """
        started = self.now()
        attempt = 0
        while missing := [name for name in topics if name not in self.topics]:
            errors = yield from self.refresh(missing, deadline, create=create)
            for name, error in errors.items():
                if not _may_pass(error, self.now() - started):
                    raise topic_error(name, error)
            attempt += 1
            if errors and not (yield from self.pause(attempt, deadline)):
                raise topic_error(*next(iter(errors.items())))
        return {name: self.topics[name] for name in topics}

    # Many partitions, each asked of its leader

    def ask_leaders(
        self,
        items: Mapping[TopicPartition, V],
        build: Callable[[dict[TopicPartition, V]], Any],
        parse: Callable[[Any], Iterable[tuple[TopicPartition, ErrorCode, str | None, R]]],
        deadline: Deadline,
        divide: Callable[[dict[TopicPartition, V]], Iterable[dict[TopicPartition, V]]] | None = None,
    ) -> Operation[dict[TopicPartition, R | KafkaError]]:
        """Asks every partition's leader, one request a broker, all at once, until each partition has its answer.

        `build` makes the request for the partitions of one leader, `parse` takes its response apart; `divide` says
        which of a leader's partitions share a request, where there are to be several of them. Retriable errors
        and lost connections are tried again, with fresh metadata, until the deadline; what remains is each
        partition's result or its error, also where its topic does not exist. ConnectionFailed when a leader stays out
        of reach.
        """
        results: dict[TopicPartition, R | KafkaError] = {}
        missing_since: dict[str, float] = {}
        pending = dict(items)
        attempt = 0
        while pending:
            failure: ClientError | None = None
            retriable: dict[TopicPartition, KafkaError] = {}
            groups = yield from self._by_leader(pending, deadline, missing_since, retriable, results)
            parts = [
                (address, part)
                for address, group in groups.items()
                for part in ((group,) if divide is None else divide(group))
            ]
            calls = [
                Call(address, build(part), min(self.call_timeout_s, deadline.remaining_s)) for address, part in parts
            ]
            outcomes = (yield calls) if calls else ()
            for (_, group), outcome in zip(parts, outcomes, strict=True):
                if isinstance(outcome, (ConnectionFailed, RequestTimedOut)):
                    failure = outcome
                    retriable |= {
                        tp: partition_error(tp, ErrorCode.NETWORK_EXCEPTION, f"{tp}: {outcome}") for tp in group
                    }
                elif isinstance(outcome, ClientError):
                    raise outcome
                else:
                    _sort_answers(parse(outcome), results, retriable)
            pending = {tp: value for tp, value in pending.items() if tp not in results}
            for topic_partition in pending:
                self.forget_leader(topic_partition)
            attempt += 1
            if pending and not (yield from self.pause(attempt, deadline)):
                if failure is not None:
                    raise failure
                results |= {
                    tp: retriable.get(tp)
                    or partition_error(tp, ErrorCode.UNKNOWN_SERVER_ERROR, f"{tp}: the broker left it out")
                    for tp in pending
                }
                break
        return results

    def _by_leader(
        self,
        pending: Mapping[TopicPartition, V],
        deadline: Deadline,
        missing_since: dict[str, float],
        retriable: dict[TopicPartition, KafkaError],
        results: dict[TopicPartition, Any],
    ) -> Operation[dict[Address, dict[TopicPartition, V]]]:
        """The partitions that have a leader, under it; the errors of the others go to `retriable` or `results`."""
        stale = {tp.topic for tp in pending if self.leader(tp) is None}
        missing = yield from self._missing_topics(stale, deadline, missing_since)
        groups: dict[Address, dict[TopicPartition, V]] = {}
        for topic_partition, value in pending.items():
            topic, leader = topic_partition.topic, self.leader(topic_partition)
            if leader is not None:
                groups.setdefault(leader.address, {})[topic_partition] = value
            elif topic in missing:
                may_pass = _may_pass(missing[topic], self.now() - missing_since[topic])
                (retriable if may_pass else results)[topic_partition] = topic_error(topic, missing[topic])
            elif topic_partition.partition not in self.topics[topic].partitions:
                results[topic_partition] = partition_error(
                    topic_partition,
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic '{topic}' has no partition {topic_partition.partition}",
                )
            else:
                text = f"{topic_partition} has no leader now"
                retriable[topic_partition] = partition_error(topic_partition, ErrorCode.LEADER_NOT_AVAILABLE, text)
        return groups

    def _missing_topics(
        self, topics: Collection[str], deadline: Deadline, missing_since: dict[str, float]
    ) -> Operation[dict[str, ErrorCode]]:
        """Asks for topics; the error of each that is missing. `missing_since` notes since when."""
        errors = (yield from self.refresh(topics, deadline)) if topics else {}
        missing = {
            name: errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for name in topics if name not in self.topics
        }
        for name in missing_since.keys() - missing.keys():
            del missing_since[name]
        for name in missing:
            missing_since.setdefault(name, self.now())
        return missing

    # A group's or transactional id's coordinator

    def ask_coordinator(
        self,
        key: str,
        message: Any,
        deadline: Deadline,
        errors_of: Callable[[Any], Iterable[int]],
        *,
        key_type: int = COORDINATOR_GROUP,
    ) -> Operation[Any]:
        """The answer of the coordinator of `key`; `errors_of` gives the response's codes, to see that it moved."""
        attempt = 0
        while True:
            outcome = yield from self.find_coordinator(key, key_type, deadline)
            if isinstance(outcome, Address):
                outcome = yield from self.ask(outcome, message, deadline)
                if not isinstance(outcome, ClientError):
                    codes = {error_code(code) for code in errors_of(outcome)}
                    moved = codes & COORDINATOR_MOVED
                    if not moved:
                        return outcome
                    outcome = _of_key(moved.pop(), key, key_type, f"the coordinator of '{key}' is moving or loading")
                elif not isinstance(outcome, (ConnectionFailed, RequestTimedOut)):
                    raise outcome
            self.forget_coordinator(key, key_type)
            attempt += 1
            if not (yield from self.pause(attempt, deadline)):
                raise outcome

    def forget_coordinator(self, key: str, key_type: int = COORDINATOR_GROUP) -> None:
        """Makes the next operation about `key` ask for its coordinator again."""
        self._coordinators.pop((key_type, key), None)

    def find_coordinator(self, key: str, key_type: int, deadline: Deadline) -> Operation[Address | KafkaError]:
        """Where the coordinator of a group or transactional id is, or why that is not known now.

        KafkaError is raised where asking again is of no use.
        """
        known = self._coordinators.get((key_type, key))
        if known is not None:
            return known
        request = ByVersion(
            ApiKey.FIND_COORDINATOR,
            lambda version: (
                messages.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
                if version >= 4
                else messages.FindCoordinatorRequest(key=key, key_type=key_type)
            ),
        )
        response = yield from self.ask_any(request, deadline)
        answer = response.coordinators[0] if response.coordinators else response
        code = error_code(answer.error_code)
        if code is ErrorCode.NONE:
            self._coordinators[key_type, key] = address = Address(answer.host, answer.port)
            return address
        error = _of_key(code, key, key_type, answer.error_message or None)
        if not code.retriable:
            raise error
        return error


def _of_key(code: ErrorCode, key: str, key_type: int, text: str | None) -> KafkaError:
    """What an error code comes to, of a coordinator or of the broker that was to name it."""
    if key_type == COORDINATOR_TRANSACTION:
        return refusal(code, f"the coordinator of transactional id '{key}'", text, transactional_id=key)
    return refusal(code, f"the coordinator of group '{key}'", text, group=key)


def _sort_answers(
    answers: Iterable[tuple[TopicPartition, ErrorCode, str | None, R]],
    results: dict[TopicPartition, R | KafkaError],
    retriable: dict[TopicPartition, KafkaError],
) -> None:
    """What is final goes to `results`, what may succeed later to `retriable`."""
    for topic_partition, code, text, value in answers:
        if code is ErrorCode.NONE:
            results[topic_partition] = value
        elif code.retriable:
            retriable[topic_partition] = partition_error(topic_partition, code, text)
        else:
            results[topic_partition] = partition_error(topic_partition, code, text)


def _may_pass(error: ErrorCode, missing_s: float) -> bool:
    """Whether Metadata may show a topic soon that it has not shown for `missing_s`, with this error."""
    if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return missing_s < UNKNOWN_TOPIC_PATIENCE_S  # It may just have been created.
    return error.retriable


def _none_answers(failures: Sequence[ClientError]) -> ClientError:
    if len(failures) == 1:
        return failures[0]
    reasons = "; ".join(dict.fromkeys(str(failure) for failure in failures))
    kind = RequestTimedOut if all(isinstance(failure, RequestTimedOut) for failure in failures) else ConnectionFailed
    return kind(f"no broker answers: {reasons}")
