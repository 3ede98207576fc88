"""Consumers that wait, at the very end: a record that comes wakes all of them, at leaders and at followers.

A fetch that is not woken is answered when its time is over, and only clients that wait notice: here, when nothing
goes wrong any more, they would wait for very long. So does a producer whose batches are acknowledged when some timer
comes by, and not when the last follower has them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from sim.invariants import require
from sim.world.clock import EPOCH_MS
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import build_batch
from tidelog.records.record import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.workloads.client import Leader, Router
    from sim.world.trace import Trace
    from tidelog.model.identifiers import TopicPartition

WAIT_MS: Final = 30_000
WOKEN_S_MAX: Final = 6.0
"""After the record was acknowledged: a follower hears of it with its next fetch or the one after."""
ASLEEP_S: Final = 0.5
PROMPT_S_MAX: Final = 0.45
"""What acks=all may take then: less than replica.fetch.wait.max.ms, more than some syncs on each replica."""
PIPELINED: Final = 3
"""Batches, of a record each, that are sent at once."""
TRIES: Final = 10
"""Leaders may still be moved back to where they belong."""


async def check_waiters(
    waker: Router, waiters: Sequence[Router], partition: TopicPartition, replicas: Sequence[int], trace: Trace
) -> None:
    """`waiters` wait for `partition`, one at its leader, and the others at `replicas`, its followers, as many as those
    serve consumers; `waker` then writes a record.
    """
    for _ in range(TRIES):
        try:
            await waker.refresh([partition.topic])
            leader = waker.leader(partition)
            if (
                leader is not None
                and leader.broker_id >= 0
                and await _woken(waker, waiters, partition, replicas, leader)
            ):
                trace.record("woken", partition)
                return
        except (OSError, TimeoutError) as error:
            trace.record("not_woken", partition, repr(error))
        await asyncio.sleep(1.0)


async def _woken(
    waker: Router, waiters: Sequence[Router], partition: TopicPartition, replicas: Sequence[int], leader: Leader
) -> bool:
    """False where a leader has just moved: nothing can be said."""
    end = await waker.offset(partition, -1)
    places = [leader.broker_id, leader.broker_id, *(each for each in replicas if each != leader.broker_id)]
    waiting = [
        asyncio.ensure_future(
            waiter.ask(place, ApiKey.FETCH, _fetch(partition, leader, end, place), WAIT_MS / 1000 + 10)
        )
        for waiter, place in zip(waiters, places, strict=False)
    ]
    try:
        await asyncio.sleep(ASLEEP_S)
        response = await waker.ask(leader.broker_id, ApiKey.PRODUCE, _record(partition))
        ((written,),) = [topic.partition_responses for topic in response.responses]
        if written.error_code != ErrorCode.NONE:
            return False
        await asyncio.wait(waiting, timeout=WOKEN_S_MAX)
        for place, task in zip(places, waiting, strict=False):
            told = f"{partition}: who waits at broker {place} is not told of {written.base_offset} in {WOKEN_S_MAX} s"
            require(17, task.done(), told)
            task.result()
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for waiter in waiters:
            waiter.close()
    return True


async def check_prompt(router: Router, partition: TopicPartition, trace: Trace) -> None:
    """Batches that are sent one behind the other are acknowledged as soon as all have them, at least now and then."""
    loop = asyncio.get_running_loop()
    took: list[float] = []
    for _ in range(TRIES):
        try:
            await router.refresh([partition.topic])
            leader = router.leader(partition)
            if leader is not None and leader.broker_id >= 0:
                began = loop.time()
                sent = [router.ask(leader.broker_id, ApiKey.PRODUCE, _record(partition)) for _ in range(PIPELINED)]
                answers = await asyncio.gather(*sent)
                codes = {
                    found.error_code
                    for answer in answers
                    for topic in answer.responses
                    for found in topic.partition_responses
                }
                if codes <= {ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT}:
                    took.append(loop.time() - began)
        except (OSError, TimeoutError) as error:
            trace.record("not_prompt", partition, repr(error))
        if took and min(took) <= PROMPT_S_MAX:
            trace.record("prompt", partition, f"{min(took):.3f}")
            return
        await asyncio.sleep(0.3)
    told = f"{partition}: {PIPELINED} batches sent at once are acknowledged after {min(took, default=0):.2f} s at best"
    require(17, len(took) < TRIES // 2, told)


def _fetch(partition: TopicPartition, leader: Leader, offset: int, place: int) -> messages.FetchRequest:
    wanted = messages.FetchRequest.FetchPartition(
        partition=partition.partition,
        current_leader_epoch=leader.epoch,
        fetch_offset=offset,
        partition_max_bytes=1 << 20,
    )
    return messages.FetchRequest(
        max_wait_ms=WAIT_MS,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=0,
        session_epoch=-1,
        rack_id="" if place == leader.broker_id else "elsewhere",
        topics=[messages.FetchRequest.FetchTopic(topic=partition.topic, partitions=[wanted])],
    )


def _record(partition: TopicPartition) -> Any:
    now_ms = EPOCH_MS + int(asyncio.get_running_loop().time() * 1000)
    data = build_batch([Record(0, now_ms, None, b"waker:0")], base_offset=0)
    return messages.ProduceRequest(
        acks=-1,
        timeout_ms=4_000,
        topic_data=[
            messages.ProduceRequest.TopicProduceData(
                name=partition.topic,
                partition_data=[messages.ProduceRequest.PartitionProduceData(index=partition.partition, records=data)],
            )
        ],
    )
