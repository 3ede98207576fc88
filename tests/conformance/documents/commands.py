"""Every command that three documents type, and what Kafka's tools print then.

They are about expanding a cluster, growing topics, and brokers in and out of service; a command's name begins with its
document's.

`{server}` in the arguments stands for the option of the way (zookeeper or bootstrap-server) and the address; the
documents have it with one dash and with two, and both are typed. What is printed is a fact of the release, taken from
the documents and from real clusters of those releases. Names in braces are filled in by the test that types the
command: the facts of its cluster.

The documents' commands in a form that no release takes (--replicationfactor) are here with the refusal. Where a
release has no such command, `instead` says what its users type. What the documents do in Java, by KafkaAdminClient, is
done with librdkafka's admin client by the checks themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.conformance.documents.printing import ANY, REST

MANY: Final = 12
"""Topics made by the interface: with the defect that the document on growing topics finds, half of them would get a
broker twice."""
Texts = str | Mapping[str, str]
"""What is printed: in every way, or by the way's name, its release, "zk" or "api", the first that is there."""


@dataclass(frozen=True, slots=True)
class Command:
    """A line of a document."""

    does: str
    """In our own words."""
    tool: str
    arguments: str
    prints: Texts
    instead: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """[way, release, "zk" or "api"] -> tool and arguments."""
    status: int | Mapping[str, int] = 0
    says: Texts = ""
    """Part of what is printed on standard error."""


_GROW_WARNING: Final = (
    "WARNING: If partitions are increased for a topic that has a key, the partition logic or ordering of the messages "
    "will be affected\n"
)
_GROWN: Final = {"zk": f"{_GROW_WARNING}Adding partitions succeeded!", "api": ""}
_DELETED: Final = {
    "zk": "Topic {topic} is marked for deletion.\nNote: This will have no impact if delete.topic.enable is not set to "
    "true.",
    "api": "",
}
_BY_STORE: Final = "Warning: --zookeeper is deprecated, and will be removed in a future version of Kafka.\n"
_INCOMPLETE: Final = (
    "Warning: because you are using the deprecated --zookeeper option, the results may be incomplete.  Use "
    "--bootstrap-server instead for more accurate results.\n"
)
_TOO_FEW: Final = "Replication factor: {factor} larger than available brokers: {brokers}."
_NOT_REACHED: Final = (
    "Error while executing topic command : Unable to replicate the partition {factor} time(s): The target replication "
    "factor of {factor} cannot be reached because only {brokers} broker(s) are registered."
)
_GENERATED: Final = (
    "Current partition replica assignment\n{current}\n\nProposed partition reassignment configuration\n" + ANY
)
_CURRENT: Final = (
    "Current partition replica assignment\n\n{current}\n\n"
    "Save this to use as the --reassignment-json-file option during rollback\n"
)
_STARTED: Final = {
    "2.2.1": _CURRENT + "Successfully started reassignment of partitions.",
    "2.8.2-zk": _BY_STORE + _CURRENT + "Successfully started partition reassignments for {partitions}",
    "api": _CURRENT + "Successfully started partition reassignments for {partitions}",
}
_CLEARED: Final = (
    "\nClearing broker-level throttles on brokers {brokers}\nClearing topic-level throttles on topic {topic}"
)
_VERIFIED: Final = {
    "2.2.1": "Status of partition reassignment:\n{completed_successfully}",
    "2.8.2-zk": _BY_STORE + _INCOMPLETE + "Status of partition reassignment:\n{is_complete}" + _CLEARED,
    # The empty line is for replicas moved between the directories of a broker.
    "2.8.2-api": "Status of partition reassignment:\n{is_complete}\n" + _CLEARED,
    "4.3.0": "Status of partition reassignment:\n{is_completed}\n" + _CLEARED,
}
_ELECTION_STARTED: Final = (
    "Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.\n"
    "Use --bootstrap-server instead to specify a broker to connect to.\n"
    "Created preferred replica election path with {partitions}\n"
    "Successfully started preferred replica election for partitions Set({partitions})"
)


def _create(does: str, arguments: str) -> Command:
    return Command(does, "kafka-topics", "--{server} --create " + arguments, "Created topic {topic}.")


def _describe(does: str, topic: str, dashes: str = "--") -> Command:
    return Command(does, "kafka-topics", f"--describe {dashes}{{server}} --topic {topic}", "{described}")


def _grow(does: str, topic: str, partitions: int, dashes: str = "--") -> Command:
    return Command(
        does, "kafka-topics", f"--alter {dashes}{{server}} --topic {topic} --partitions {partitions}", _GROWN
    )


def _generate(does: str, file: str, brokers: str) -> Command:
    return Command(
        does,
        "kafka-reassign-partitions",
        f"--{{server}} --topics-to-move-json-file {file} --broker-list {brokers} --generate",
        {"2.8.2-zk": _BY_STORE + _GENERATED, "": _GENERATED},
    )


def _execute(does: str, file: str) -> Command:
    tool = "kafka-reassign-partitions"
    return Command(does, tool, f"--{{server}} --reassignment-json-file {file} --execute", _STARTED)


def _verify(does: str, file: str, option: str = "--verify") -> Command:
    tool = "kafka-reassign-partitions"
    return Command(does, tool, f"--{{server}} --reassignment-json-file {file} {option}", _VERIFIED)


COMMANDS: Final[Mapping[str, Command]] = {
    # Document 001, one broker.
    "expanding: create misspelt": Command(
        "two partitions, with an option that no release has",
        "kafka-topics",
        "--{server} --create --topic topicone --partitions 2 --replicationfactor 1",
        REST,
        status=1,
        says="replicationfactor is not a recognized option",
    ),
    "expanding: create": _create(
        "two partitions, one replica", "--topic topicone --partitions 2 --replication-factor 1"
    ),
    "expanding: create too many": Command(
        "more replicas than brokers",
        "kafka-topics",
        "--{server} --create --topic toomany --partitions 1 --replication-factor 2",
        {"zk": f"Error while executing topic command : {_TOO_FEW}\n{REST}", "api": f"{_NOT_REACHED}\n{REST}"},
        status=1,
    ),
    "expanding: list": Command("all topics", "kafka-topics", "--list -{server}", "__consumer_offsets\ntopicone"),
    "expanding: describe": _describe("one topic", "topicone", "-"),
    "expanding: alter config": Command(
        "a setting",
        "kafka-topics",
        "--alter -{server} --topic topicone --config flush.messages=1",
        {
            "zk": "WARNING: Altering topic configuration from this script has been deprecated and may be removed in "
            "future releases.\n         Going forward, please use kafka-configs.sh for this functionality\n"
            "Updated config for topic topicone.",
            "api": "Completed updating config for topic topicone.",
        },
        instead={
            "api": (
                "kafka-configs",
                "--alter --{server} --entity-type topics --entity-name topicone --add-config flush.messages=1",
            )
        },
    ),
    "expanding: describe configured": _describe("the setting shows", "topicone", "-"),
    "expanding: grow": _grow("a third partition", "topicone", 3, "-"),
    "expanding: describe grown": _describe("three partitions", "topicone", "-"),
    "expanding: shrink": Command(
        "fewer partitions than there are",
        "kafka-topics",
        "--alter -{server} --topic topicone --partitions 2",
        {
            "zk": _GROW_WARNING
            + "Error while executing topic command : The number of partitions for a topic can only be increased. "
            "Topic topicone currently has 3 partitions, 2 would not be an increase.\n" + REST,
            "api": "Error while executing topic command : "
            "The topic topicone currently has 3 partition(s); 2 would not be an increase.\n" + REST,
        },
        status=1,
    ),
    "expanding: delete": Command("the topic", "kafka-topics", "--delete -{server} --topic topicone", _DELETED),
    "expanding: delete refused": Command(
        "the topic, where delete.topic.enable=false",
        "kafka-topics",
        "--delete -{server} --topic kept",
        {
            "zk": _DELETED["zk"],
            "api": "Error while executing topic command : Topic deletion is disabled: delete.topic.enable is false.\n"
            + REST,
        },
        status={"zk": 0, "api": 1},
    ),
    # Document 001, three brokers and one more.
    "expanding: cluster create": _create(
        "three partitions, three replicas", "--topic topic-cluster --partitions 3 --replication-factor 3"
    ),
    "expanding: cluster describe": _describe("three partitions", "topic-cluster"),
    "expanding: cluster grow": _grow("a fourth partition", "topic-cluster", 4),
    "expanding: cluster describe grown": _describe("four partitions", "topic-cluster"),
    "expanding: cluster describe joined": _describe("the new broker has none of them", "topic-cluster"),
    "expanding: generate": _generate("a plan over four brokers", "{folder}/reassign.json", "0,1,2,3"),
    "expanding: generate too few": Command(
        "a plan over fewer brokers than replicas",
        "kafka-reassign-partitions",
        "--{server} --topics-to-move-json-file {folder}/reassign.json --broker-list 0 --generate",
        {
            "2.2.1": f"Partitions reassignment failed due to {_TOO_FEW}\n{REST}",
            "2.8.2-zk": f"{_BY_STORE}Error: {_TOO_FEW}\n{REST}",
            "2.8.2-api": f"Error: {_TOO_FEW}\n{REST}",
            "4.3.0": "Error: The target replication factor of {factor} cannot be reached because only {brokers} "
            "broker(s) are registered or some brokers have all their log directories cordoned.\n" + REST,
        },
        status={"2.2.1": 0, "": 1},
    ),
    "expanding: execute": _execute("the document's plan", "{folder}/assignplan.json"),
    "expanding: verify": _verify("how far it is, with one dash", "{folder}/assignplan.json", "-verify"),
    "expanding: cluster describe reassigned": _describe("where the partitions are now", "topic-cluster"),
    "expanding: cluster describe elected": _describe("after a preferred election", "topic-cluster"),
    "expanding: raise factor": _execute("a replication factor of three", "{folder}/replication-factor.json"),
    "expanding: raise factor verify": _verify("how far it is", "{folder}/replication-factor.json"),
    # Document 002, three brokers.
    "growing: create": _create("two partitions by the tool", "--topic {topic} --partitions 2 --replication-factor 1"),
    "growing: grow": _grow("a third partition, of one made by the tool", "by-tool", 3),
    "growing: grow made by the interface": Command(
        f"a third partition, of {MANY} topics made by the interface",
        "kafka-topics",
        "--alter --{server} --topic by-interface.* --partitions 3",
        {way: "\n".join([text] * MANY) for way, text in _GROWN.items()},
    ),
    "growing: describe": _describe("three brokers", "by-tool"),
    # Document 004, four brokers.
    "service: generate service": _generate("a plan onto the fourth broker", "{folder}/topics-to-move.json", "0,1,2,3"),
    "service: execute service": _execute("the document's plan", "{folder}/increase-replication-factor.json"),
    "service: verify service": _verify("how far it is", "{folder}/increase-replication-factor.json"),
    "service: generate retirement": _generate("a plan off the fourth broker", "{folder}/topics-to-move.json", "0,1,2"),
    "service: execute retirement": _execute("the document's plan", "{folder}/increase-replication-factor.json"),
    "service: verify retirement": _verify("how far it is", "{folder}/increase-replication-factor.json"),
    "service: create second": _create(
        "sixteen partitions, three replicas", "--topic second --partitions 16 --replication-factor 3"
    ),
    "service: describe second": _describe("how they are spread", "second"),
    "service: create three": _create(
        "four partitions, two replicas", "--partitions 4 --replication-factor 2 --topic three"
    ),
    "service: describe three": _describe("where they are", "three"),
    "service: execute three": _execute("all onto two brokers", "{folder}/increase-replication-factor.json"),
    "service: verify three": _verify("how far it is", "{folder}/increase-replication-factor.json"),
    "service: describe three moved": _describe("where they are now", "three"),
    "service: create four": _create(
        "three partitions, one replica", "--partitions 3 --replication-factor 1 --topic four"
    ),
    "service: execute four": _execute("a replication factor of three", "{folder}/increase-replication-factor.json"),
    "service: describe four": _describe("three replicas each", "four"),
    "service: dump index": Command("an offset index", "kafka-dump-log", "--files {file}.index", REST),
    "service: dump log": Command("a segment", "kafka-dump-log", "--files {file}.log", REST),
}
"""[document and name] -> the command."""

ELECTION: Final = Command(
    "preferred leaders of some partitions; what happened between 001's last two pictures",
    "kafka-preferred-replica-election",
    "--{server} --path-to-json-file {file}",
    {
        "2.2.1": _ELECTION_STARTED,
        "2.8.2-zk": "This tool is deprecated. Please use kafka-leader-election tool. Tracking issue: KAFKA-8405\n"
        + _ELECTION_STARTED,
        "api": "Successfully completed leader election (PREFERRED) for partitions {partitions}",
    },
    instead={"api": ("kafka-leader-election", "--{server} --election-type preferred --path-to-json-file {file}")},
)
