"""Brokers' settings: replicas, the ISR and leaders."""

from typing import Final

from tidelog.config.table import settings

SETTINGS: Final = settings(
    """\
min.insync.replicas | int | 1 | [1,...] | high; cluster-wide | In-sync replicas that acks=all needs.
unclean.leader.election.enable | boolean | false | | high; cluster-wide |
    Whether a replica outside the ISR may lead when none inside is left; records may be lost.
unclean.leader.election.interval.ms | long | 300000 | [1,...] | accepted |
    KRaft: how often leaderless partitions are looked at for an unclean election.
eligible.leader.replicas.enable | boolean | false | | high; accepted |
    Kafka 4: replicas outside the ISR that are known to be complete (KIP-966).
broker.cordoned | boolean | false | | per-broker |
    tidelog's own: whether the broker gets no replica by placement: of new topics, of new partitions, by plans. Set it
    while the broker runs (`tidelog brokers cordon`); what it has stays.
auto.leader.rebalance.enable | boolean | true | | high |
    Whether leadership goes back to the preferred replicas by itself.
leader.imbalance.check.interval.seconds | long | 300 | [1,...] | high |
    How often that balance is looked at; first 5 s after a controller was elected.
leader.imbalance.per.broker.percentage | int | 10 | | high |
    The share of a broker's leaderships in the wrong place, in per cent, above which the balance is restored.
replica.placement | string | ordered | [ordered, striped] | cluster-wide |
    tidelog's own: how replicas of new topics and partitions are placed. ordered: round the brokers by id, racks in
    turn, as Kafka did with ZooKeeper; more partitions continue the order. striped: racks in turn as in Kafka 4, but
    even over the brokers of each topic, and with a look at what stands.
isr.return.wait.ms | int | 30000 | [0,...] | cluster-wide |
    tidelog's own: how long an election waits for members of the ISR that are away, where the machines of all that are
    there were booted anew after an unclean stop (a power cut of all): each may lack what it had not flushed, and of
    those that are back then the one with the longest log leads. 0: none waits.
num.replica.fetchers | int | 1 | [1,...] | high; cluster-wide; accepted |
    Fetchers from each other broker. One is all there is: it is no thread here, and a second would gain nothing.
num.replica.alter.log.dirs.threads | int | null | | high; accepted |
    Threads that move replicas between log directories.
replica.lag.time.max.ms | long | 30000 | [1,...] | high |
    A follower that has not caught up for so long leaves the ISR.
replica.fetch.max.bytes | int | 1048576 | [0,...] | |
    Bytes a partition in a follower's fetch; at least one batch comes always.
replica.fetch.response.max.bytes | int | 10485760 | [0,...] | |
    Bytes in the whole answer to a follower's fetch; at least one batch comes always.
replica.fetch.min.bytes | int | 1 | | high | Bytes that a follower's fetch waits for.
replica.fetch.wait.max.ms | int | 500 | | high | How long a follower's fetch may wait for them.
replica.fetch.backoff.ms | int | 1000 | [0,...] | |
    How long a follower rests after a failed fetch; less at first where the leader may be back at once.
replica.socket.timeout.ms | int | 30000 | | high | How long a follower waits for an answer of its leader.
replica.socket.receive.buffer.bytes | int | 65536 | | high; accepted |
    SO_RCVBUF of a follower's connection; the operating system sizes it.
replica.high.watermark.checkpoint.interval.ms | long | 5000 | | high |
    How often the high watermarks are written to disk.
replica.selector.class | string | null | [org.apache.kafka.common.replica.RackAwareReplicaSelector] | |
    What sends consumers to a follower: Kafka's rack-aware selector is built in, other classes cannot be loaded.
follower.fetch.last.tiered.offset.enable | boolean | false | | cluster-wide; accepted |
    Tiered storage: where a new follower begins.
"""
)
