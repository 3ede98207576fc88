"""One broker's share session (KIP-932) by the side of a member: what its requests name, and when. No I/O.

    epoch 0   --- all partitions ---------------------------------> a session begins, in the place of a former one
    epoch n   --- new ones, forgotten ones, acknowledgements -----> records of any partition of the session
    epoch -1  --- the last acknowledgements ----------------------> the session ends: what is still locked is released

Acknowledgements need a session. It ends with its connection, too, and with any doubt about the broker's epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tidelog.client.errors import UnsupportedByBroker
from tidelog.client.exchange import ByVersion
from tidelog.client.share_consumer.deliveries import Said
from tidelog.client.share_consumer.settings import AcquireMode, ShareConsumerSettings
from tidelog.model.identifiers import TopicId
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.sharing.sessions import FINAL_EPOCH, INITIAL_EPOCH, SharedPlace

RENEWS_SINCE: Final = 2
"""The version of ShareAcknowledge from which on locks are renewed (KIP-1222)."""
_RECORD_LIMIT_SINCE: Final = 2
"""The version of ShareFetch that knows the acquire mode (KIP-1206)."""
_ACQUIRE_MODES: Final = {AcquireMode.BATCH_OPTIMIZED: 0, AcquireMode.RECORD_LIMIT: 1}
_EPOCH_MAX: Final = 0x7FFFFFFF

Acknowledgements = Mapping[SharedPlace, Sequence[Said]]


class LeaderSession:
    """The session with one broker; one request is on its way at a time.

    A request that is not answered, or with an error, is followed by `lost`.
    """

    def __init__(self, group: str, member_id: str, settings: ShareConsumerSettings) -> None:
        self._group = group
        self._member_id = member_id
        self._settings = settings
        self._epoch = INITIAL_EPOCH
        """Of the next request."""
        self._listed: frozenset[SharedPlace] = frozenset()
        """What the broker fetches from for us, as of the last request."""

    @property
    def is_open(self) -> bool:
        """Whether there is a session, as far as is known."""
        return self._epoch != INITIAL_EPOCH

    def fetch(self, wanted: Iterable[SharedPlace], told: Acknowledgements) -> ByVersion:
        """A ShareFetch from exactly the partitions `wanted`; what is `told` is of these, within a session."""
        chosen = frozenset(wanted)
        named = chosen if not self.is_open else (chosen - self._listed) | told.keys()
        kind, settings = messages.ShareFetchRequest, self._settings
        request = kind(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            max_records=settings.max_poll_records,
            batch_size=settings.max_poll_records,
            share_acquire_mode=_ACQUIRE_MODES[settings.acquire_mode],
            topics=[
                kind.FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        kind.FetchPartition(
                            partition_index=place.partition,
                            acknowledgement_batches=_batches(kind.AcknowledgementBatch, told.get(place, ())),
                        )
                        for place in places
                    ],
                )
                for topic_id, places in _by_topic(named)
            ],
            forgotten_topics_data=[
                kind.ForgottenTopic(topic_id=topic_id, partitions=[place.partition for place in places])
                for topic_id, places in _by_topic(self._listed - chosen if self.is_open else ())
            ],
        )
        self._listed = chosen
        self._advance()

        def build(version: int) -> Any:
            if settings.acquire_mode is AcquireMode.RECORD_LIMIT and version < _RECORD_LIMIT_SINCE:
                raise UnsupportedByBroker("the broker does not know acquire_mode record_limit (ShareFetch 2)")
            return request

        return ByVersion(ApiKey.SHARE_FETCH, build)

    def acknowledge(self, told: Acknowledgements, *, renews: bool = False) -> ByVersion:
        """A ShareAcknowledge within the session. `renews`: whether a lock is to be renewed."""
        message = self._acknowledge(told, self._epoch, renews=renews)
        self._advance()
        return message

    def close(self, told: Acknowledgements) -> ByVersion:
        """Ends the session, with the last acknowledgements."""
        message = self._acknowledge(told, FINAL_EPOCH, renews=False)
        self.lost()
        return message

    def lost(self) -> None:
        """There is no session any more, or it is not known of which epoch: the next fetch begins another one."""
        self._epoch = INITIAL_EPOCH
        self._listed = frozenset()

    def _acknowledge(self, told: Acknowledgements, epoch: int, *, renews: bool) -> ByVersion:
        kind = messages.ShareAcknowledgeRequest
        request = kind(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=epoch,
            is_renew_ack=renews,
            topics=[
                kind.AcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=[
                        kind.AcknowledgePartition(
                            partition_index=place.partition,
                            acknowledgement_batches=_batches(kind.AcknowledgementBatch, told[place]),
                        )
                        for place in places
                    ],
                )
                for topic_id, places in _by_topic(told)
            ],
        )

        def build(version: int) -> Any:
            if renews and version < RENEWS_SINCE:
                raise UnsupportedByBroker(f"the broker renews no locks (ShareAcknowledge {RENEWS_SINCE})")
            return request

        return ByVersion(ApiKey.SHARE_ACKNOWLEDGE, build)

    def _advance(self) -> None:
        self._epoch = INITIAL_EPOCH + 1 if self._epoch == _EPOCH_MAX else self._epoch + 1


def _by_topic(places: Iterable[SharedPlace]) -> Iterable[tuple[TopicId, list[SharedPlace]]]:
    topics: dict[TopicId, list[SharedPlace]] = {}
    for place in sorted(places):
        topics.setdefault(place.topic_id, []).append(place)
    return topics.items()


def _batches(kind: Any, said: Sequence[Said]) -> list[Any]:
    """Neighbouring offsets are one batch, with one type for all of it or one for each offset."""
    runs: list[list[Said]] = []
    for each in said:
        if runs and runs[-1][-1].last + 1 == each.first:
            runs[-1].append(each)
        else:
            runs.append([each])
    return [
        kind(
            first_offset=run[0].first,
            last_offset=run[-1].last,
            acknowledge_types=[run[0].type]
            if len(run) == 1
            else [each.type for each in run for _ in range(each.first, each.last + 1)],
        )
        for run in runs
    ]
