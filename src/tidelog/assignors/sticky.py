"""Sticky (KIP-54) and cooperative sticky (KIP-429): balance first, and of all balanced ways one that moves little.

What members own decides, so what they say is judged first. Where two claim one partition the higher generation wins;
within one generation neither claim counts, and the partition is assigned anew. A member that was away for some
generations keeps what no other member claims.

The eager assignor's members give everything up before they join; what they had stands in their user data. Cooperative
members keep consuming meanwhile, so a partition that changes hands is withheld from its next owner: the former one sees
it missing, gives it up and joins again, and the second rebalance hands it over.

    first    a owns 0 1 2 3, b joins          ->  a: 0 1      b: nothing     (2 and 3 are a's to give up)
    second   a owns 0 1, b nothing            ->  a: 0 1      b: 2 3
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.assignors import ownership
from tidelog.assignors.assignor import (
    Assignment,
    MemberId,
    Subscription,
    TopicLayout,
    assignments,
    subscribed_topics,
)
from tidelog.assignors.racks import Racks
from tidelog.assignors.sticky_equal import EqualShares
from tidelog.assignors.sticky_unequal import Kept, UnequalShares
from tidelog.model.identifiers import TopicPartition

NO_GENERATION: Final = -1


@dataclass(frozen=True, slots=True)
class Claim:
    """What one member says it owns, since which generation; `NO_GENERATION` where it doesn't say."""

    partitions: Sequence[TopicPartition]
    generation: int = NO_GENERATION


class StickyAssignor:
    """Kafka's StickyAssignor."""

    name = "sticky"

    def assign(
        self, members: Mapping[MemberId, Subscription], topics: Mapping[str, TopicLayout]
    ) -> dict[MemberId, Assignment]:
        """A balanced assignment that keeps what user data says was owned."""
        claims = {member: _claim_in_user_data(subscription) for member, subscription in members.items()}
        return assignments(members, _Rebalance(members, topics, claims).given)

    def user_data(self, owned: Sequence[TopicPartition], generation: int | None) -> bytes | None:
        """What a member sends along, so that the next leader knows what it owned; None before its first assignment."""
        return None if generation is None else ownership.encode(owned, generation)


class CooperativeStickyAssignor:
    """Kafka's CooperativeStickyAssignor."""

    name = "cooperative-sticky"
    cooperative = True

    def assign(
        self, members: Mapping[MemberId, Subscription], topics: Mapping[str, TopicLayout]
    ) -> dict[MemberId, Assignment]:
        """The same by what members own now, less the partitions that another one must give up first."""
        claims = {member: _claim_in_subscription(subscription) for member, subscription in members.items()}
        rebalance = _Rebalance(members, topics, claims)
        return assignments(members, rebalance.without_transfers())

    def user_data(self, owned: Sequence[TopicPartition], generation: int | None) -> bytes | None:
        """The generation, for leaders that don't read it from the subscription (before KIP-792)."""
        return ownership.encode_generation(NO_GENERATION if generation is None else generation)


class _Rebalance:
    """What becomes of the members' claims."""

    def __init__(
        self,
        members: Mapping[MemberId, Subscription],
        topics: Mapping[str, TopicLayout],
        claims: Mapping[MemberId, Claim],
    ) -> None:
        self._members = members
        self._topics = subscribed_topics(members, topics)
        self._claims = claims
        self._equal = len({subscription.topics for subscription in members.values()}) == 1
        self._racks = Racks.of(members, members, self._topics).if_they_matter()
        self._claimants: dict[TopicPartition, list[MemberId]] = {}
        for member, claim in claims.items():
            for topic_partition in dict.fromkeys(claim.partitions):
                layout = self._topics.get(topic_partition.topic)
                if layout is not None and 0 <= topic_partition.partition < layout.partitions:
                    self._claimants.setdefault(topic_partition, []).append(member)
        self._owner = {each: owner for each in self._claimants if (owner := self._believed(each)) is not None}
        self.given = self._assign()

    def without_transfers(self) -> dict[MemberId, list[TopicPartition]]:
        """`given` less what another member has, and has to give up first."""
        return {
            member: [each for each in partitions if not self._is_transfer(each, member)]
            for member, partitions in self.given.items()
        }

    def _is_transfer(self, topic_partition: TopicPartition, member: MemberId) -> bool:
        claimants = self._claimants.get(topic_partition, ())
        if not claimants:
            return False
        # With unequal subscriptions Kafka lets each of several claimants keep what it gets.
        return self._owner.get(topic_partition) != member if self._equal else member not in claimants

    def _believed(self, topic_partition: TopicPartition) -> MemberId | None:
        """Its owner among those that claim it: the one of the highest generation, if there is just one."""
        claimants = self._claimants[topic_partition]
        highest = max(self._claims[member].generation for member in claimants)
        owners = [member for member in claimants if self._claims[member].generation == highest]
        return owners[0] if len(owners) == 1 else None

    def _assign(self) -> dict[MemberId, list[TopicPartition]]:
        if not self._members:
            return {}
        if self._equal:
            kept: dict[MemberId, list[TopicPartition]] = {member: [] for member in self._members}
            for topic_partition, member in self._owner.items():
                kept[member].append(topic_partition)
            return EqualShares(kept, self._topics, self._racks).assign()
        wanted = {each: owner for each, owner in self._owner.items() if self._wants(owner, each)}
        shares = UnequalShares(self._members, self._topics, self._racks, self._earlier())
        return shares.assign(Kept(wanted, gave_up=len(wanted) < len(self._owner)))

    def _wants(self, member: MemberId, topic_partition: TopicPartition) -> bool:
        is_subscribed = topic_partition.topic in self._members[member].topics
        return is_subscribed and not self._racks.is_far(member, topic_partition)

    def _earlier(self) -> dict[TopicPartition, MemberId]:
        """[partition] -> the last of its claimants that is of an earlier generation than the newest."""
        newest = max(claim.generation for claim in self._claims.values())
        found: dict[TopicPartition, MemberId] = {}
        for topic_partition, claimants in self._claimants.items():
            stale = [member for member in claimants if self._claims[member].generation < newest]
            if stale:
                found[topic_partition] = max(stale, key=lambda member: self._claims[member].generation)
        return found


def _claim_in_user_data(subscription: Subscription) -> Claim:
    if not subscription.user_data:
        return Claim(())
    partitions, generation = ownership.decode(subscription.user_data)
    return Claim(partitions, NO_GENERATION if generation is None else generation)


def _claim_in_subscription(subscription: Subscription) -> Claim:
    generation = subscription.generation
    if (generation is None or generation < 0) and subscription.user_data is not None:
        generation = ownership.decode_generation(subscription.user_data)
    return Claim(subscription.owned, NO_GENERATION if generation is None else generation)
