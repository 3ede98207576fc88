"""What a seed makes of a run, before it begins: machines, topics, promises, and which faults may happen."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from tidelog.model.identifiers import TopicPartition

if TYPE_CHECKING:
    from sim.world.randomness import SeededRandom


class FaultKind(Enum):
    """What can go wrong. Which of them a run has is drawn by its seed: few together show more than all at once."""

    RESET = "connections break"
    HOLD = "nothing arrives for a while"
    SLOW = "a machine's network is slow"
    CUT = "two machines don't reach each other"
    CUT_ONE_WAY = "one machine does not reach another, which reaches it"
    ISOLATE = "a machine is cut off from the other brokers and the store, not from clients"
    LAG = "followers don't reach their leaders for longer than they may lag"
    STORE_CUT = "a broker is cut off from the store only"
    PAUSE = "a machine stands still"
    KILL = "kill -9"
    KILL_ALL = "kill -9 of all brokers at once"
    POWER_CUT = "a machine loses its power"
    POWER_CUT_ALL = "all brokers lose their power"
    RESTART = "a clean restart"
    DIE_IN_WRITE = "death in the middle of work for the disk"
    DISK_ERROR = "a write or a sync fails"
    FLIPPED_READ = "a bit read is not the bit written"
    CLOCK_JUMP = "a wall clock jumps"
    SESSION_EXPIRY = "the store ends a session"
    STORE_SLOW = "the store is slow"
    STORE_PAUSE = "the store stands still"
    STORE_KILL = "the store dies and comes back"
    CONTROLLER_DEATH = "the controller dies, or stands still, between two of its writes"
    DEATH_AFTER_JOIN = "as a replica joins an ISR, all others in it die"
    CONTROLLER_MOVED = "a client deletes /controller, and the broker that held it notices late"
    DEATH_IN_MOVE = "as a partition begins to move, a broker that gets it, one that has it, or the controller dies"
    WRITE_UNANSWERED = "a connection to the store breaks in the middle of a write, which is carried out or not"
    QUORUM_LOST = "the servers of the store have no quorum for a while: all sessions wait"
    SERVER_BEHIND = "a server of the store falls behind: its clients read the past"
    SERVER_DOWN = "a server of the store is down: its sessions go on with others"
    SHORTAGE = "descriptors or memory run out for a while"
    DISK_FULL = "there is no room on a disk for a while"
    DISK_HANGS = "an operation of a disk does not return for seconds"
    CONTROLLER_UNHEARD = "what a broker and the controller answer each other is lost for longer than they wait"
    ROT = "a bit of what was synced long ago flips, on one replica of a partition"
    LEADER_LOST_IN_END = "as a transaction ends, the leader of one of its partitions dies, and its whole ISR with it"
    DAMAGED_FIRST = "a bit in the tail of a log flips, all brokers die, and that log's broker is back first"
    REBORN_IN_ELECTION = "an election is on its way while its leader dies and comes back; then a controller begins"
    LEADER_LOST_IN_SHARE = "as records of a share group are acknowledged before earlier ones, their leader dies"
    ANSWERS_LOST = "answers to users of our own client are lost, with their connections"


GROUPS: Final[tuple[str, ...]] = ("classic", "consumer")
TRANSACTIONS: Final[tuple[str, ...]] = ("before", "since")

DRAWN_LATER: Final = (
    FaultKind.CONTROLLER_MOVED,
    FaultKind.DEATH_IN_MOVE,
    FaultKind.WRITE_UNANSWERED,
    FaultKind.CONTROLLER_UNHEARD,
)
"""These, and those of disks, clients and ensembles, are drawn from streams of their own, so that earlier seeds have the
faults that they had. None of them stands in `LONE`."""
OF_DISKS: Final = (FaultKind.SHORTAGE, FaultKind.DISK_FULL, FaultKind.DISK_HANGS, FaultKind.ROT)
OF_CLIENTS: Final = (FaultKind.ANSWERS_LOST,)
DIRECTED: Final = (
    FaultKind.LEADER_LOST_IN_END,
    FaultKind.DAMAGED_FIRST,
    FaultKind.REBORN_IN_ELECTION,
    FaultKind.LEADER_LOST_IN_SHARE,
)
"""Faults that bring a situation about step by step; each is the first fault of its run."""
DIRECTED_CHANCE: Final = 0.3
ANSWERS_LOST_CHANCE: Final = 0.7
LAST_POWER_CUT_CHANCE: Final = 0.15
"""Of runs without flush: what clients were told is not compared in the end then."""
AWAITED: Final[tuple[FaultKind, ...]] = ()
"""Those that brokers do not survive yet: a run has them only where it is asked for them (`--fault`)."""
SHARE_GROUP_CHANCE: Final = 0.3
SECURED_CHANCE: Final = 0.3
MEMBERS: Final = 3
"""Of a group."""
SHARE_MEMBERS_ALONE: Final = 8
"""Of a share group that is the one application."""
SUBSCRIBED: Final = ("kept", "trimmed")
"""Topics that groups read."""
TWO_DIRECTORIES_CHANCE: Final = 0.3
"""Of brokers with two log directories, between which replicas move."""
QUICK_DISK_S: Final = (0.0001, 0.008)
SLOW_DISK_S: Final = (0.002, 0.05)
OF_ENSEMBLES: Final = (FaultKind.QUORUM_LOST, FaultKind.SERVER_BEHIND, FaultKind.SERVER_DOWN)
LONE: Final = (
    FaultKind.RESET,
    FaultKind.HOLD,
    FaultKind.SLOW,
    FaultKind.PAUSE,
    FaultKind.KILL,
    FaultKind.POWER_CUT,
    FaultKind.RESTART,
    FaultKind.DIE_IN_WRITE,
    FaultKind.DISK_ERROR,
    FaultKind.FLIPPED_READ,
    FaultKind.CLOCK_JUMP,
)
"""Those that a broker without others, and with the store in its own process, can have."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """One topic of the load."""

    name: str
    partitions: int
    configs: dict[str, str]
    retains: bool = True
    """Whether only DeleteRecords deletes its records."""
    compacted: bool = False
    """Whether only the last value of each key is promised."""
    unclean: bool = False
    """Whether replicas outside the ISR may lead: records may be lost."""
    transactional: bool = False
    """Whether only transactions are written to it."""
    guarded: bool = False
    """Whether only users write to it, as ACLs allow (`workloads/access.py`)."""

    @property
    def all_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, number) for number in range(self.partitions)]


@dataclass(frozen=True, slots=True)
class Plan:
    """See the module."""

    brokers: int
    is_lone: bool
    """One broker, with the store in its process."""
    store_servers: int
    """Of the ensemble that the store is; 0: it is a machine, or in the broker's process."""
    replication_factor: int
    min_insync_replicas: int
    flushes: bool
    """flush.messages=1: records are on the device before they are acknowledged, so that power may fail anywhere."""
    racks: bool
    disk_latency_s: tuple[float, float]
    """Least and greatest time of what runs on an I/O thread, such as a sync."""
    topics: tuple[TopicPlan, ...]
    groups: tuple[str, ...]
    """The protocols of the groups that there are: "classic", "consumer" (KIP-848)."""
    share_members: int
    """Of a share group (KIP-932); 0: there is none."""
    transactions: tuple[str, ...]
    """The protocols of the transactional producers that there are: "before" or "since" KIP-890."""
    loads_in_pieces: bool
    """Whether coordinators read their partitions a few batches at a time: much can happen before they have all."""
    reassigns: bool
    """Whether partitions are moved, and old tools write into the store."""
    tombstones_go: bool
    """Whether compaction takes tombstones within the run."""
    clients: bool
    """Whether the product's own client is used, too."""
    secured: bool
    """Whether there are users with passwords, and ACLs that change."""
    log_dirs: int
    """Of each broker, on one device; replicas move between two."""
    names_in_order: bool
    """Whether a power cut loses changes of names from the last one on, as with a journal, or any of them."""
    faults: tuple[FaultKind, ...]
    fault_pause_s: tuple[float, float]
    ends_in_power_cut: bool
    """Whether all brokers lose their power at the end, with records that were not flushed (`last_power_cut.py`)."""

    @property
    def partitions(self) -> list[TopicPartition]:
        """Of all topics but the transactions' own, and the users'."""
        common = [topic for topic in self.topics if not (topic.transactional or topic.guarded)]
        return [partition for topic in common for partition in topic.all_partitions]

    @property
    def transactional_partitions(self) -> list[TopicPartition]:
        return [partition for topic in self.topics if topic.transactional for partition in topic.all_partitions]

    @property
    def guarded_partitions(self) -> list[TopicPartition]:
        return [partition for topic in self.topics if topic.guarded for partition in topic.all_partitions]


def draw(
    random: SeededRandom,
    *,
    brokers: int | None = None,
    wished: tuple[FaultKind, ...] = (),
    log_dirs: int | None = None,
    clients: bool = False,
    shares: bool = False,
) -> Plan:
    """A plan for a seed's run; `brokers` and `log_dirs` set their numbers, `wished` are faults that it has anyway.

    `clients`: our own client takes part. `shares`: a share group does, with the topics that it reads, and no other
    group nor transactions.
    """
    drawn = (1, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4, 5)[random.below(15)]
    count = drawn if brokers is None else brokers
    is_lone = count == 1 and random.chance(0.7)
    replication_factor = min(count, 3)
    min_insync = 2 if replication_factor == 3 or (replication_factor == 2 and random.chance(0.3)) else 1
    flushes = random.chance(0.45)
    later = (*DRAWN_LATER, *OF_ENSEMBLES, *OF_DISKS, *OF_CLIENTS, *DIRECTED, *AWAITED)
    possible = LONE if is_lone else tuple(kind for kind in FaultKind if kind not in later)
    wanted = random.between(0.15, 0.6)
    faults: list[FaultKind] = [kind for kind in possible if random.chance(wanted)]
    ensembles = random.stream("ensembles")
    store_servers = 3 if not is_lone and ensembles.chance(0.4) else 0
    if not is_lone and random.stream("moves").chance(wanted):
        faults.append(FaultKind.CONTROLLER_MOVED)
    if not is_lone and random.stream("writes").chance(wanted):
        faults.append(FaultKind.WRITE_UNANSWERED)
    if not is_lone and random.stream("answers").chance(wanted):
        faults.append(FaultKind.CONTROLLER_UNHEARD)
    moves = random.stream("reassignments")
    reassigns = not is_lone and count > 1 and moves.chance(0.35)
    if reassigns and moves.chance(wanted):
        faults.append(FaultKind.DEATH_IN_MOVE)
    if store_servers:
        faults += [kind for kind in OF_ENSEMBLES if ensembles.chance(2 * wanted)]
    devices = random.stream("devices")
    faults += [kind for kind in OF_DISKS if devices.chance(wanted) and kind not in AWAITED]
    if clients and random.stream("clients").chance(ANSWERS_LOST_CHANCE):
        faults.append(FaultKind.ANSWERS_LOST)
    ends_in_power_cut = False
    if not flushes:
        # Then it costs records, and comes when nothing else is to be seen any more.
        faults = [kind for kind in faults if kind is not FaultKind.POWER_CUT_ALL]
        is_wished = FaultKind.POWER_CUT_ALL in wished
        wished = tuple(kind for kind in wished if kind is not FaultKind.POWER_CUT_ALL)
        ends_in_power_cut = count > 1 and (is_wished or random.stream("last power cut").chance(LAST_POWER_CUT_CHANCE))
    pause = random.between(0.8, 4.0)
    racks = count > 1 and random.chance(0.3)
    topics = _topics(random, flushes=flushes, min_insync=min_insync, many=count > 1)
    compaction = random.stream("compaction")
    tombstones_go = False
    if compaction.chance(0.4):
        compact = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "1500"}
        tombstones_go = compaction.chance(0.5)
        if tombstones_go:
            compact["delete.retention.ms"] = "4000"
        topics.append(TopicPlan("keyed", 2, {**topics[0].configs, **compact}, compacted=True))
    grouping, transacting = random.stream("groups"), random.stream("transactions")
    groups = tuple(protocol for protocol in GROUPS if grouping.chance(0.35))
    transactions = tuple(protocol for protocol in TRANSACTIONS if transacting.chance(0.3))
    share_members = MEMBERS if random.stream("share groups").chance(SHARE_GROUP_CHANCE) else 0
    if shares:
        share_members, groups, transactions = SHARE_MEMBERS_ALONE, (), ()
        topics = [topic for topic in topics if topic.name in SUBSCRIBED]
    directed = random.stream("directed")
    needs = {
        FaultKind.LEADER_LOST_IN_END: bool(transactions),
        FaultKind.REBORN_IN_ELECTION: count > 2,
        FaultKind.LEADER_LOST_IN_SHARE: bool(share_members),
    }
    for kind in DIRECTED:
        if directed.chance(DIRECTED_CHANCE) and count > 1 and needs.get(kind, True):
            faults.append(kind)
    if transactions:
        topics.append(TopicPlan("accounts", 3, topics[0].configs, transactional=True))
    secured = not is_lone and random.stream("security").chance(SECURED_CHANCE) and not shares
    if secured:
        topics.append(TopicPlan("guarded", 2, topics[0].configs, guarded=True))
    return Plan(
        # A fourth one, to have somewhere to go.
        brokers=count + (reassigns and brokers is None and count == 3 and moves.chance(0.7)),
        is_lone=is_lone,
        store_servers=store_servers,
        replication_factor=replication_factor,
        min_insync_replicas=min_insync,
        flushes=flushes,
        racks=racks,
        disk_latency_s=(QUICK_DISK_S, QUICK_DISK_S, SLOW_DISK_S)[random.stream("disks").below(3)],
        topics=tuple(topics),
        groups=groups,
        share_members=share_members,
        transactions=transactions,
        loads_in_pieces=random.stream("loading").chance(0.5),
        reassigns=reassigns,
        tombstones_go=tombstones_go,
        clients=clients,
        secured=secured,
        log_dirs=log_dirs or 1 + random.stream("directories").chance(TWO_DIRECTORIES_CHANCE),
        names_in_order=random.stream("file systems").chance(0.5),
        faults=(*faults, *wished) or (FaultKind.RESET, FaultKind.KILL),
        fault_pause_s=(0.1, pause),
        ends_in_power_cut=ends_in_power_cut,
    )


def _topics(random: SeededRandom, *, flushes: bool, min_insync: int, many: bool) -> list[TopicPlan]:
    common = {
        "min.insync.replicas": str(min_insync),
        "flush.messages": "1" if flushes else "1000000",
        "segment.bytes": "4000",
    }
    plain = TopicPlan("kept", 5 if many else 2, common)
    trimmed = TopicPlan("trimmed", 3 if many else 1, {**common, "segment.bytes": "2000"})
    # Less than a run writes.
    retention = {**common, "segment.bytes": "1000", "retention.bytes": str(1_000 + random.below(30_000) // 10)}
    retained = TopicPlan("bounded", 3 if many else 1, retention, retains=False)
    topics = [plain, trimmed, retained]
    if random.stream("retention").chance(0.4):
        topics.append(TopicPlan("aged", 1, {**common, "segment.bytes": "1500", "retention.ms": "7000"}, retains=False))
    if many and random.chance(0.4):
        topics.append(TopicPlan("unclean", 1, {**common, "unclean.leader.election.enable": "true"}, unclean=True))
    return topics
