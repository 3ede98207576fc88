"""Bugs of our own client, put in on purpose: each was there once. See `sim.mutants`, whose list they lengthen."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Edit, Mutant

CLIENT_MUTANTS: Final = (
    Mutant(
        "poll-waits-for-nothing",
        "client.fetcher",
        "        self._refreshing.add_done_callback(self._ended_work)\n",
        "",
        "poll does not end when leaders that were away are there again",
    ),
    Mutant(
        "dead-after-one-failure",
        "client.producer.partition_queue",
        "        if batch.base_sequence >= 0:\n"
        "            self.has_gap = self._has_lost = True\n"
        "        if self.is_empty",
        "        if self.is_empty",
        "after a batch that failed, the next ones have sequences that no leader takes",
        (
            Edit(
                "client.producer.sender",
                "        elif code in _OUT_OF_SEQUENCE and queue.is_idempotent",
                "        elif False",
            ),
        ),
    ),
    Mutant(
        "one-stalls-the-others",
        "client.consumer.placement",
        "                self._later([topic_partition], search, None)\n            else:\n",
        "                self._later(partitions, search, None)\n                return\n            else:\n",
        "where to begin is found for no partition while one of them has no leader",
        (
            Edit(
                "client.consumer.placement",
                "            pause_s = self._routing.retry.pause_s(attempts, self._routing.draw)\n",
                "            pause_s = 1.0  # The same for all, so that they are looked for together again.\n",
            ),
        ),
    ),
    Mutant(
        "another-topic-of-the-name",
        "client.fetcher",
        "            if present == ZERO_TOPIC_ID or former == present:\n",
        "            if True:\n",
        "a consumer goes on in a topic that was made again where it was in the one before",
    ),
    Mutant(
        "one-topic-blocks-commits",
        "client.consumer.commits",
        "        errors = await self._cluster.run(self._routing.refresh(unknown, deadline))\n",
        "        await self._cluster.run(self._routing.require_topics(sorted(unknown), deadline))\n"
        "        errors: dict[str, ErrorCode] = {}\n",
        "no offset is committed while one belongs to a topic that is gone",
    ),
    Mutant(
        "nothing-owned-after-a-failure",
        "client.consumer.next_generation",
        "        elif self._tells_all or (owned",
        "        elif (owned",
        "a heartbeat after a lost answer does not say what the member owns, and the coordinator puts it out",
    ),
    Mutant(
        "committed-before-delivered",
        "client.producer.producer",
        "            await self._drain()\n        except (KafkaError, ClientError) as error:\n            if trans",
        "            pass\n        except (KafkaError, ClientError) as error:\n            if trans",
        "a transaction is committed while its records are on their way",
    ),
    Mutant(
        "aborted-are-given",
        "client.consumed",
        "    aborted = AbortedTransactions(data.aborted) if committed_only else None\n"
        "    position, start = 0, data.fetch_offset\n    topic, partition",
        "    aborted = AbortedTransactions(()) if committed_only else None\n"
        "    position, start = 0, data.fetch_offset\n    topic, partition",
        "readers of committed records are given those of aborted transactions",
    ),
    Mutant(
        "keys-go-elsewhere",
        "client.routing",
        "{**topic.partitions, known.partition: dataclasses.replace(known, leader=-1)}",
        "{number: each for number, each in topic.partitions.items() if number != known.partition}",
        "while a partition's leader is being looked for, the partition is not in its topic, and keys go to others",
    ),
    Mutant(
        "failures-untold",
        "client.producer.sender",
        "        self.failure = self.failure or error\n",
        "",
        "flush does not tell that records failed",
    ),
    Mutant(
        "pause-ignored",
        "client.fetcher",
        "if topic_partition in busy or topic_partition in self.paused or topic_partition in self._resume_at:\n",
        "if topic_partition in busy or topic_partition in self._resume_at:\n",
        "a paused partition is fetched",
        (
            Edit(
                "client.fetcher",
                " != wanted.offset or topic_partition in self.paused:\n",
                " != wanted.offset:\n",
            ),
        ),
    ),
    Mutant(
        "seek-keeps-fetched",
        "client.fetcher",
        "        self._ready.forget(topic_partition)\n        self._place(topic_partition, offset, epoch)\n",
        "        self._place(topic_partition, offset, epoch)\n",
        "after a seek what was fetched before comes first",
    ),
    Mutant(
        "resume-wakes-no-reader",
        "client.fetcher",
        "        self.paused.difference_update(partitions)\n        self._wake()\n",
        "        self.paused.difference_update(partitions)\n",
        "what is resumed is fetched when something else happens",
    ),
    Mutant(
        "growth-unseen-by-members",
        "client.consumer.consumer",
        "            self._membership.layout_changed()\n",
        "            pass\n",
        "members do not see that their topics have more partitions",
    ),
    Mutant(
        "commits-batch-in-hand",
        "client.consumer.consumer",
        "commit_quietly(besides=self._in_hand)",
        "commit_quietly()",
        "the automatic commit covers the batch that the caller works on",
    ),
)
