"""Plans on Apache Kafka 2.4 and 2.8, the first and last releases of ZooKeeper days that plans have to work on.

Three brokers of two directories each, with their metadata in the embedded store. What these releases do not know (sizes
of directories, cordons) is named and done without; the rest is as on a new cluster.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.check_plans import PARTITIONS, THROTTLE, TOPIC, Operator
from tests.conformance.zookeeper import JAVA
from tests.ports import free_port
from tests.unit.store.serving import Served
from tests.waiting import until
from tidelog.client import admin
from tidelog.client.blocking import BlockingCluster
from tidelog.client.errors import ClientError

BUILD = Path(__file__).parents[2] / "build"
RELEASES = ("2.4.1", "2.8.2")
BROKERS = (1, 2, 3)
FIRST_BYTES = 3_000_000
OPENED = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in ("java.lang", "java.nio", "sun.nio.ch")]


class OldKafka:
    """Three brokers of a release."""

    def __init__(self, jars: Path, hosts: str, folder: Path) -> None:
        self.folder = folder
        self.ports = {id: free_port() for id in BROKERS}
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self.ports.values())
        self._processes = [self._start(jars, hosts, id) for id in BROKERS]

    def directories(self, node: int) -> list[str]:
        return [f"{self.folder}/{node}{each}" for each in "ab"]

    def _start(self, jars: Path, hosts: str, broker: int) -> subprocess.Popen[bytes]:
        properties = self.folder / f"{broker}.properties"
        properties.write_text(
            f"broker.id={broker}\nlisteners=PLAINTEXT://127.0.0.1:{self.ports[broker]}\n"
            f"log.dirs={','.join(self.directories(broker))}\nzookeeper.connect={hosts}/old\n"
            "auto.create.topics.enable=false\noffsets.topic.replication.factor=1\noffsets.topic.num.partitions=1\n"
            "log.cleaner.dedupe.buffer.size=2097152\nauto.leader.rebalance.enable=false\n"
        )
        with (self.folder / f"{broker}.log").open("wb") as log:
            command = [*JAVA, f"{jars}/*", *OPENED, "kafka.Kafka", str(properties)]
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def is_there(self) -> bool:
        dead = [process for process in self._processes if process.poll() is not None]
        assert not dead, [path.read_text()[-2000:] for path in self.folder.glob("*.log")]
        try:
            with BlockingCluster(self.bootstrap) as client:
                client.run(admin.list_topics(client.routing))
                return set(client.routing.brokers) == set(BROKERS)
        except ClientError:
            return False

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module", params=RELEASES)
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldKafka]:
    jars = BUILD / f"kafka-{request.param}"
    if not jars.is_dir():
        pytest.skip(f"no Kafka in {jars}: KAFKA_VERSION={request.param} tests/conformance/kafka_jars.sh fetches it")
    with Served() as served:
        kafka = OldKafka(jars, served.hosts, tmp_path_factory.mktemp("old"))
        try:
            until(kafka.is_there, "three brokers", limit_s=120)
            yield kafka
        finally:
            kafka.close()


@pytest.fixture(scope="module")
def operator(kafka: OldKafka) -> Operator:
    """The topic lies on the first two brokers, with some megabytes in it."""
    operator = Operator(kafka, kafka.folder)
    with BlockingCluster(kafka.bootstrap, operation_timeout_s=120) as client:
        assignment = {index: ((1, 2), (2, 1))[index % 2] for index in range(PARTITIONS)}
        outcome = client.run(admin.create_topics(client.routing, [admin.NewTopic(TOPIC, assignment=assignment)]))
        assert isinstance(outcome[TOPIC], admin.CreatedTopic), outcome
    until(lambda: len(operator.replicas()) == PARTITIONS and -1 not in operator.leaders(), "the topic is there")
    lines = f"{'x' * 999}\n" * (FIRST_BYTES // 1000)
    command = ["tidelog", "produce", TOPIC, "-b", kafka.bootstrap]
    subprocess.run(command, input=lines.encode(), check=True, capture_output=True, timeout=120)
    return operator


@pytest.mark.nightly
def test_a_broker_is_taken_in_retired_and_all_of_it_undone(operator: Operator) -> None:
    """Throttled, killed in between, gone on with; no throttle is left, and what the release lacks is named."""
    plan = str(operator.folder / "fill.plan")
    before = operator.replicas()
    made = operator.type("plan", "--fill", "3", "--topic", TOPIC, "--throttle", THROTTLE, "--out", plan)
    assert "older than Kafka 3.3" in made.err
    with operator.start("reassign", "run", plan, "--throttle", THROTTLE) as interrupted:
        until(lambda: any(3 in each for each in operator.replicas()), "the first moves are under way")
        interrupted.send_signal(signal.SIGKILL)
        interrupted.wait()
    filled = operator.json("reassign", "run", plan, "--throttle", THROTTLE)
    assert (filled["status"], filled["left"]) == ("done", [])
    operator.has_no_throttle()
    between = operator.replicas()
    drain = str(operator.folder / "drain.plan")
    operator.type("plan", "--drain", "1", "--topic", TOPIC, "--throttle", THROTTLE, "--out", drain)
    drained = operator.json("reassign", "run", drain, "--throttle", THROTTLE)
    print("drain:", drained["seconds"], "s, predicted", drained["predicted_seconds"])
    assert not any(1 in each for each in operator.replicas())
    operator.type("reassign", "rollback")
    assert operator.replicas() == between
    operator.type("reassign", "rollback", plan)
    assert operator.replicas() == before
    operator.has_no_throttle()


@pytest.mark.nightly
def test_a_disk_is_emptied_and_filled_again(operator: Operator, kafka: OldKafka) -> None:
    """Moves between the directories of a broker, there and back."""
    first, second = kafka.directories(2)

    def places() -> set[str | None]:
        state = operator.state()
        return {
            each.directories[each.replicas.index(2)]
            for key, each in state.partitions.items()
            if key.topic == TOPIC and 2 in each.replicas
        }

    assert places() == {first, second}
    assert operator.json("log-dirs", "move", "--broker", "2", "--from", first, "--topic", TOPIC)["status"] == "done"
    assert places() == {second}
    operator.type("reassign", "rollback")
    assert places() == {first, second}


@pytest.mark.nightly
def test_what_it_does_not_know_is_named(operator: Operator) -> None:
    """Brokers are listed, and cordoning says what works instead."""
    assert [each["broker"] for each in operator.json("brokers")] == list(BROKERS)
    assert "--exclude 1" in operator.type("brokers", "cordon", "1", code=1).err
