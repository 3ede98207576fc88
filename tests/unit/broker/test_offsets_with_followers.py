"""What clients learn of offsets where followers matter: KIP-207, DeleteRecords, and reads from the closest replica."""

from collections.abc import Callable

import pytest
from tests.unit.broker.followers import Follower, indexes, led, partitions
from tests.unit.broker.harness import Broker
from tests.unit.broker.test_fetch import values

from tidelog.broker.deferred import Deferred
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

Start = Callable[..., Broker]


def list_offset(
    broker: Broker, timestamp: int, *, version: int = 7, replica_id: int = -1, isolation: int = 0
) -> object:
    request = messages.ListOffsetsRequest
    response = broker.ask(
        ApiKey.LIST_OFFSETS,
        version,
        request(
            replica_id=replica_id,
            isolation_level=isolation,
            topics=[
                request.ListOffsetsTopic(
                    name="t",
                    partitions=[
                        request.ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=-1)
                    ],
                )
            ],
        ),
    )
    found = response.topics[0].partitions[0]
    return ErrorCode(found.error_code) if found.error_code else found.offset


class TestAfterAnElection:
    """The new leader knows an older high watermark than its predecessor had told."""

    @pytest.fixture
    def elected(self, start_broker: Start) -> Broker:
        broker = led(start_broker())
        for value in (b"a", b"b"):
            broker.produce("t", [value], acks=1)
        led(broker, leader_epoch=1)
        return broker

    @pytest.mark.parametrize("isolation", [0, 1])
    def test_the_latest_offset_is_not_available(self, elected: Broker, isolation: int) -> None:
        """OFFSET_NOT_AVAILABLE until the high watermark has reached the start of the epoch; then the offset."""
        assert list_offset(elected, LATEST_TIMESTAMP, isolation=isolation) is ErrorCode.OFFSET_NOT_AVAILABLE
        follower = Follower(elected)
        follower.one(offset=1, leader_epoch=1)
        assert list_offset(elected, LATEST_TIMESTAMP, isolation=isolation) is ErrorCode.OFFSET_NOT_AVAILABLE
        follower.fetch({("t", 0): 2}, leader_epoch=1)
        assert list_offset(elected, LATEST_TIMESTAMP, isolation=isolation) == 2

    def test_older_clients_are_told_otherwise(self, elected: Broker) -> None:
        """Before v5 it is LEADER_NOT_AVAILABLE."""
        assert list_offset(elected, LATEST_TIMESTAMP, version=4) is ErrorCode.LEADER_NOT_AVAILABLE

    def test_what_may_yet_be_found_is_not_denied(self, elected: Broker) -> None:
        """A time beyond what is known to be committed: not nothing, but come again; the beginning is certain."""
        assert list_offset(elected, 1_700_000_000_000) is ErrorCode.OFFSET_NOT_AVAILABLE
        assert list_offset(elected, MAX_TIMESTAMP) is ErrorCode.OFFSET_NOT_AVAILABLE
        assert list_offset(elected, EARLIEST_TIMESTAMP) == 0

    def test_followers_ask_for_the_log_end(self, elected: Broker) -> None:
        """They are not consumers: the latest offset is where the log ends."""
        assert list_offset(elected, LATEST_TIMESTAMP, replica_id=1) == 2


class TestDeleteRecords:
    @pytest.fixture
    def leader(self, start_broker: Start) -> Broker:
        """Three committed records; followers 1 and 2 have them, from offset 0 on."""
        broker = led(start_broker(), isr=(0, 1, 2))
        for _ in range(3):
            broker.produce("t", [b"m"], acks=1)
        return broker

    def delete(self, broker: Broker, offset: int, timeout_ms: int = 5_000) -> Deferred[object]:
        request = messages.DeleteRecordsRequest
        topic = request.DeleteRecordsTopic(
            name="t", partitions=[request.DeleteRecordsPartition(partition_index=0, offset=offset)]
        )
        return broker.send(ApiKey.DELETE_RECORDS, 2, request(topics=[topic], timeout_ms=timeout_ms))

    def result(self, broker: Broker, answer: Deferred[object]) -> tuple[int, int]:
        (found,) = broker.decode_any(ApiKey.DELETE_RECORDS, 2, answer.result()).topics[0].partitions
        return found.error_code, found.low_watermark

    def test_it_is_done_when_all_live_followers_have_followed(self, leader: Broker) -> None:
        """The leader's new first offset reaches the followers in an answer; theirs comes back in the next fetch."""
        one, two = Follower(leader), Follower(leader, 2)
        for follower in (one, two):
            follower.fetch({("t", 0): 3})
        for follower in (one, two):
            follower.fetch()
        waiting = one.send(max_wait_ms=10_000)
        answer = self.delete(leader, 2)
        leader.shell.advance(50)
        (data,) = partitions(one.read(waiting)).values()
        assert data.log_start_offset == 2
        one.fetch({("t", 0): 3}, log_start=2)
        assert not answer.done
        two.fetch({("t", 0): 3}, log_start=2)
        assert self.result(leader, answer) == (0, 2)

    def test_a_dead_follower_is_not_waited_for(self, leader: Broker) -> None:
        """Its log will begin where the leader's does when it is back; while it is in sync it may lead next."""
        one, two = Follower(leader), Follower(leader, 2)
        for follower in (one, two):
            follower.fetch({("t", 0): 3})
        leader.tell_brokers(live=(0, 1))
        answer = self.delete(leader, 2)
        assert not answer.done
        one.fetch({("t", 0): 3}, log_start=2)
        assert not answer.done
        led(leader, isr=(0, 1), partition_epoch=1, live=(0, 1))
        assert self.result(leader, answer) == (0, 2)
        leader.tell_brokers(live=(0, 1, 2))
        later = self.delete(leader, 3)
        one.fetch({("t", 0): 3}, log_start=3)
        assert not later.done
        leader.tell_brokers(live=(0, 1))
        assert self.result(leader, later) == (0, 3)

    def test_followers_that_don_t_follow_in_time(self, leader: Broker) -> None:
        """REQUEST_TIMED_OUT; the leader's records are gone nevertheless."""
        for follower in (Follower(leader), Follower(leader, 2)):
            follower.fetch({("t", 0): 3})
        answer = self.delete(leader, 2, timeout_ms=300)
        leader.shell.advance(300)
        assert self.result(leader, answer) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        assert leader.replica("t").log.log_start_offset == 2

    def test_the_leadership_is_lost_meanwhile(self, leader: Broker) -> None:
        """NOT_LEADER_OR_FOLLOWER: the client asks the new leader."""
        for follower in (Follower(leader), Follower(leader, 2)):
            follower.fetch({("t", 0): 3})
        answer = self.delete(leader, 2)
        led(leader, leader=1, leader_epoch=1)
        assert self.result(leader, answer) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    def test_a_leadership_that_begins_again_meanwhile_is_another(self, leader: Broker) -> None:
        """While the new first offset is written down, an unclean election takes records away: what is left is not to be
        deleted, and another request that waits for the disk is answered all the same."""
        followers = Follower(leader), Follower(leader, 2)
        for follower in followers:
            follower.fetch({("t", 0): 3})
        leader.shell.pool_waits = True
        answer = self.delete(leader, 3)
        led(leader, leader=1, leader_epoch=1)
        log = leader.replica("t").log
        log.truncate_to(1)
        led(leader, leader_epoch=2)
        other = self.delete(leader, 0)
        leader.shell.pool_waits = False
        leader.shell.run_pool()
        for follower in followers:
            follower.fetch({("t", 0): 1}, leader_epoch=2)
        assert self.result(leader, answer) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert self.result(leader, other) == (0, 0)
        assert (log.log_start_offset, log.log_end_offset) == (0, 1)

    def test_nothing_waits_for_a_client_that_has_gone(self, leader: Broker) -> None:
        """Neither for the disk nor for followers, for which its request may wait for days; the records go."""
        for follower in (Follower(leader), Follower(leader, 2)):
            follower.fetch({("t", 0): 3})
        leader.shell.pool_waits = True
        before, after = (self.delete(leader, offset, timeout_ms=2**31 - 1) for offset in (1, 2))
        before.abandon()
        leader.shell.run_pool()
        leader.shell.run_pool()
        after.abandon()
        assert len(leader.node.purgatory) == 0
        assert leader.replica("t").log.log_start_offset == 2

    def test_a_disk_that_hangs_is_not_waited_for_longer_than_asked(self, leader: Broker) -> None:
        """REQUEST_TIMED_OUT, though the new first offset is not written down yet; the records go when it is."""
        for follower in (Follower(leader), Follower(leader, 2)):
            follower.fetch({("t", 0): 3})
        leader.shell.pool_waits = True
        answer = self.delete(leader, 2, timeout_ms=3_000)
        leader.shell.advance(2_900)
        assert not answer.done
        leader.shell.advance(100)
        assert self.result(leader, answer) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        assert leader.replica("t").log.log_start_offset == 0
        leader.shell.pool_waits = False
        leader.shell.run_pool()
        assert leader.replica("t").log.log_start_offset == 2
        assert len(leader.node.purgatory) == 0

    def test_the_disk_s_time_counts(self, leader: Broker) -> None:
        """What it has taken is taken off the time that followers have."""
        for follower in (Follower(leader), Follower(leader, 2)):
            follower.fetch({("t", 0): 3})
        leader.shell.pool_waits = True
        answer = self.delete(leader, 2, timeout_ms=3_000)
        leader.shell.advance(2_000)
        leader.shell.pool_waits = False
        leader.shell.run_pool()
        leader.shell.advance(900)
        assert not answer.done
        leader.shell.advance(100)
        assert self.result(leader, answer) == (ErrorCode.REQUEST_TIMED_OUT, -1)

    def test_without_any_time_the_disk_has_some(self, leader: Broker) -> None:
        """A partition that needs no follower is answered as Kafka does, whose checkpoints come later."""
        led(leader, isr=(0,), live=(0,), partition_epoch=1)
        leader.shell.pool_waits = True
        answer = self.delete(leader, 2, timeout_ms=0)
        leader.shell.advance(100)
        assert not answer.done
        leader.shell.pool_waits = False
        leader.shell.run_pool()
        assert self.result(leader, answer) == (0, 2)

    def test_deleting_nothing_is_done_at_once(self, leader: Broker) -> None:
        """All of them begin at 0 already."""
        for follower in (Follower(leader), Follower(leader, 2)):
            follower.fetch({("t", 0): 3})
        answer = self.delete(leader, 0)
        (found,) = leader.decode_any(ApiKey.DELETE_RECORDS, 2, answer).topics[0].partitions
        assert (found.error_code, found.low_watermark) == (0, 0)


class TestClosestReplica:
    """KIP-392, with Kafka's own selector."""

    @pytest.fixture
    def leader(self, start_broker: Start) -> Broker:
        """Broker 0 in rack a leads; 1 in b and 2 in c are in sync and have both records."""
        selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
        broker = start_broker(replica_selector_class=selector)
        broker.tell_brokers(live=(0, 1, 2), racks={0: "a", 1: "b", 2: "c"})
        led(broker, isr=(0, 1, 2))
        for _ in range(2):
            broker.produce("t", [b"m"], acks=1)
        for follower in (Follower(broker), Follower(broker, 2)):
            follower.fetch({("t", 0): 2})
        return broker

    def fetch(self, broker: Broker, rack: str, offset: int = 0, version: int = 12, **fields: object) -> object:
        request = broker.fetch_request("t", offset, version=version, **fields)
        request.rack_id = rack
        return broker.ask(ApiKey.FETCH, version, request).responses[0].partitions[0]

    def test_a_consumer_is_sent_to_the_follower_in_its_rack(self, leader: Broker) -> None:
        """The leader answers at once with the follower's id, and without records."""
        data = self.fetch(leader, "c", max_wait_ms=10_000, min_bytes=1_000_000)
        assert (data.preferred_read_replica, len(data.records), data.high_watermark) == (2, 0, 2)

    @pytest.mark.parametrize("rack", ["a", "d", ""])
    def test_without_a_follower_in_its_rack_it_reads_from_the_leader(self, leader: Broker, rack: str) -> None:
        """The leader's own rack, one without brokers, or none."""
        data = self.fetch(leader, rack)
        assert (data.preferred_read_replica, values(data)) == (-1, [b"m", b"m"])

    def test_versions_that_know_no_racks_read_from_the_leader(self, leader: Broker) -> None:
        """Before v11 there is no field for either."""
        assert values(self.fetch(leader, "", version=10)) == [b"m", b"m"]

    def test_a_follower_outside_the_isr_is_nobodys_choice(self, leader: Broker) -> None:
        """It may lag by any length."""
        led(leader, isr=(0, 1), partition_epoch=1)
        assert self.fetch(leader, "c").preferred_read_replica == -1

    def test_a_follower_that_does_not_have_the_offset_is_not_chosen(self, leader: Broker) -> None:
        """Neither one that is behind it, nor one whose log begins after it."""
        leader.produce("t", [b"m"], acks=1)
        assert self.fetch(leader, "b", offset=3).preferred_read_replica == -1
        Follower(leader).fetch({("t", 0): 3}, log_start=1)
        assert self.fetch(leader, "b", offset=3).preferred_read_replica == 1
        assert self.fetch(leader, "b", offset=0).preferred_read_replica == -1

    def test_of_two_in_the_rack_the_one_that_is_further(self, leader: Broker) -> None:
        """The most caught up of them."""
        leader.tell_brokers(racks={2: "b"})
        leader.produce("t", [b"m"], acks=1)
        Follower(leader, 1).fetch({("t", 0): 3})
        assert self.fetch(leader, "b").preferred_read_replica == 1
        Follower(leader, 2).fetch({("t", 0): 3})
        assert self.fetch(leader, "b").preferred_read_replica == 2

    def test_without_the_setting_everybody_reads_from_the_leader(self, start_broker: Start) -> None:
        """replica.selector.class is not set by default."""
        broker = start_broker()
        broker.tell_brokers(live=(0, 1, 2), racks={0: "a", 1: "b", 2: "c"})
        led(broker, isr=(0, 1, 2))
        assert self.fetch(broker, "b").preferred_read_replica == -1

    def test_a_follower_serves_consumers_up_to_its_high_watermark(self, start_broker: Start) -> None:
        """What it has, and does not know to be committed, it keeps to itself; past its log is out of range."""
        broker = led(start_broker())
        for _ in range(3):
            broker.produce("t", [b"m"], acks=1)
        Follower(broker).fetch({("t", 0): 2})
        led(broker, leader=1, leader_epoch=1)
        data = self.fetch(broker, "")
        assert (values(data), data.high_watermark) == ([b"m", b"m"], 2)
        assert len(self.fetch(broker, "", offset=3).records) == 0
        assert self.fetch(broker, "", offset=4).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert self.fetch(broker, "", version=10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_a_follower_serves_no_follower(self, start_broker: Start) -> None:
        """Replicas fetch from leaders only."""
        broker = led(start_broker(), leader=1)
        data = Follower(broker, 2).one()
        assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_a_consumer_that_waits_at_a_follower_is_woken_by_its_high_watermark(self, start_broker: Start) -> None:
        """Long polls work there too."""
        broker = led(start_broker())
        broker.produce("t", [b"m"], acks=1)
        led(broker, leader=1, leader_epoch=1)
        answer = broker.send(ApiKey.FETCH, 12, broker.fetch_request("t", max_wait_ms=10_000))
        assert not answer.done
        replica = broker.replica("t")
        replica.known_high_watermark = 1
        replica.log.update_high_watermark(1)
        broker.node.purgatory.check(replica)
        response = broker.decode_any(ApiKey.FETCH, 12, answer.result())
        assert indexes(response) == [0]
        assert values(response.responses[0].partitions[0]) == [b"m"]
