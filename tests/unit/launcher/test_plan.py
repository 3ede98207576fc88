"""What the brokers of a cluster on one machine are given."""

from __future__ import annotations

import pytest

from tidelog.config.properties import ConfigError
from tidelog.launcher.plan import Plan


def test_brokers_differ_in_id_port_and_folder() -> None:
    """And share what was set, unless it was set for one of them."""
    plan = Plan("/d", (9092, 9093), {"num.partitions": "3", "broker.rack": "a"}, {1: {"broker.rack": "b"}})
    assert plan.settings_of(0, 9092) == {
        "broker.id": "0",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "log.dirs": "/d/broker-0",
        "offsets.topic.replication.factor": "2",
        "transaction.state.log.replication.factor": "2",
        "num.partitions": "3",
        "broker.rack": "a",
    }
    own = plan.settings_of(1, 9093)
    assert (own["broker.id"], own["listeners"]) == ("1", "PLAINTEXT://127.0.0.1:9093")
    assert (own["log.dirs"], own["broker.rack"]) == ("/d/broker-1", "b")


@pytest.mark.parametrize(("brokers", "factor"), [(1, None), (2, "2"), (3, "3"), (7, "3")])
def test_internal_topics_fit_the_cluster(brokers: int, factor: str | None) -> None:
    """Kafka's three replicas, or as many as there are brokers; one broker needs no word about it."""
    plan = Plan("/d", (0,) * brokers)
    found = plan.settings_of(0, 0)
    assert found.get("offsets.topic.replication.factor") == factor
    assert found.get("transaction.state.log.replication.factor") == factor


def test_settings_that_several_brokers_cannot_share() -> None:
    """All are named at once; one broker alone may have them."""
    settings = {"broker.id": "7", "log.dirs": "/a,/b", "listeners": "PLAINTEXT://:1", "num.partitions": "2"}
    with pytest.raises(ConfigError) as refused:
        Plan("/d", (0, 0), settings).check()
    assert [str(problem).split()[2] for problem in refused.value.problems] == ["broker.id:", "listeners:", "log.dirs:"]
    Plan("/d", (0,), settings).check()


def test_a_folder_with_a_comma_is_no_place_for_logs() -> None:
    """It would be two in log.dirs, the second of them wherever the broker is started from."""
    with pytest.raises(ConfigError, match=r"--data /d,e: .* comma"):
        Plan("/d,e", (0,)).check()
    elsewhere = Plan("/d,e", (0,), {"log.dirs": "/a"})
    elsewhere.check()
    assert elsewhere.settings_of(0, 0)["log.dirs"] == "/a"


def test_a_store_elsewhere_is_named_by_its_own_option() -> None:
    """Every broker is given it then; as a setting among others it would leave open who serves the store."""
    with pytest.raises(ConfigError, match="--zookeeper HOSTS"):
        Plan("/d", (0,), {"zookeeper.connect": "zoo:2181"}).check()
    plan = Plan("/d", (0, 0), zookeeper="zoo:2181,zoo2:2181/kafka")
    plan.check()
    assert [plan.settings_of(id, 0)["zookeeper.connect"] for id in plan.ids] == ["zoo:2181,zoo2:2181/kafka"] * 2


def test_brokers_of_one_machine_among_several() -> None:
    """Their ids begin where they are told; ports and metrics follow in the same order."""
    plan = Plan("/d", (9092, 9093), first_id=10, metrics_ports=(9404, 9405), zookeeper="zoo:2181")
    assert list(plan.ids) == [10, 11]
    assert [plan.port(id) for id in plan.ids] == [9092, 9093]
    own = plan.settings_of(11, plan.port(11))
    assert (own["broker.id"], own["log.dirs"], own["metrics.listener"]) == ("11", "/d/broker-11", "127.0.0.1:9405")
    with pytest.raises(ValueError, match="its brokers are 10 to 11"):
        plan.require(0)


def test_where_the_machine_says_how_many_one_broker_is_as_several() -> None:
    """What only one broker may have is refused on each machine alike."""
    with pytest.raises(ConfigError, match=r"log\.dirs: each of the brokers has its own"):
        Plan("/d", (0,), {"log.dirs": "/a"}, automatic=True).check()
