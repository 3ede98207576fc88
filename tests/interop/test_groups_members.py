"""Unchanged Python clients in groups: they join, rebalance, commit, leave, crash and come back, alone and mixed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.clients import scenarios
from tests.conformance.clients.scenarios import PARTITIONS, Site, fill, finish, name_of
from tests.waiting import until_equal

CLIENTS = ("confluent", "kafka-python", "aiokafka")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with scenarios.site(tmp_path_factory.mktemp("workers")) as site:
        yield site


@pytest.mark.row("R15")
@pytest.mark.parametrize("client", CLIENTS)
def test_three_members_of_a_client(site: Site, client: str) -> None:
    """One leaves, one is killed and comes back; every record is read, no commit lost, no partition with two owners."""
    scenarios.membership(site, [client] * 3)


@pytest.mark.row("R15")
@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_members_of_every_client_in_one_group(site: Site, assignor: str) -> None:
    """Whoever of them leads assigns to the others too."""
    scenarios.membership(site, CLIENTS, assignor=assignor)


@pytest.mark.row("R18")
@pytest.mark.parametrize("mix", [["confluent"] * 3, ["confluent", "kafka-python", "confluent"]], ids=["one", "mixed"])
def test_a_cooperative_group(site: Site, mix: list[str]) -> None:
    """Members of two clients hand partitions over without giving up the others."""
    scenarios.membership(site, mix, assignor="cooperative-sticky")


@pytest.mark.row("R18")
def test_who_joins_a_cooperative_group_takes_no_more_than_its_part(site: Site) -> None:
    """The first member keeps half of what it has all the while."""
    topic = name_of("kept")
    site.observer.create(topic, PARTITIONS)
    with site.group(topic, assignor="cooperative-sticky") as group:
        first = group.join("confluent")
        group.until_stable([first])
        second = group.join("confluent")
        group.until_stable([first, second])
        (revoked,) = first.all("revoked")
        assert len(revoked["partitions"]) == PARTITIONS // 2
        fill(site, topic)
        finish(site, group)


@pytest.mark.parametrize("mix", [["confluent"] * 3], ids=["confluent"])
def test_a_group_of_the_next_generation(site: Site, mix: list[str]) -> None:
    """KIP-848: the coordinator assigns."""
    scenarios.membership(site, mix, protocol="consumer")


@pytest.mark.parametrize("client", ["confluent", "kafka-python"])
def test_a_static_member_that_comes_back_in_time(site: Site, client: str) -> None:
    """Killed and started again it has what it had, and the other member hears nothing of it."""
    topic = name_of("static")
    site.observer.create(topic, PARTITIONS)
    with site.group(topic, session_timeout_ms=120_000) as group:
        first, second = (group.join(client, instance=f"instance-{number}") for number in range(2))
        group.until_stable([first, second])
        fill(site, topic)
        owned, heard = first.owned, (len(second.all("revoked")), len(second.all("assigned")))
        first.kill()
        back = group.join(client, instance="instance-0")
        group.until_stable([back, second])
        assert back.owned == owned
        assert (len(second.all("revoked")), len(second.all("assigned"))) == heard
        finish(site, group)


def test_a_static_member_with_a_double(site: Site) -> None:
    """The later one takes over; the former is fenced, and says so."""
    topic = name_of("doubled")
    site.observer.create(topic, PARTITIONS)
    with site.group(topic) as group:
        first = group.join("confluent", instance="one")
        group.until_stable([first])
        second = group.join("confluent", instance="one")
        group.until(lambda: second.owned == group.places, "the second owns everything")
        fill(site, topic)
        group.until(
            lambda: any("fenced" in str(each["error"]).lower() for each in first.all("error") + first.all("fatal")),
            "the first is fenced",
        )
        first.kill()
        finish(site, group, stalled=[first.name])


@pytest.mark.parametrize("client", CLIENTS)
def test_who_hung_commits_nothing(site: Site, client: str) -> None:
    """Its partitions go to the other one; when it wakes up, what it would commit is refused, or it has found out."""
    topic = name_of("hung")
    site.observer.create(topic, PARTITIONS)
    with site.group(topic) as group:
        first = group.join(client)
        second = group.join("confluent")
        group.until_stable([first, second])
        fill(site, topic)
        first.pause()
        group.until(lambda: second.owned == group.places, "the other one owns everything")
        fill(site, topic)
        site.observer.until_committed(group.group, site.observer.ends(topic, PARTITIONS))
        first.resume()
        group.until_stable([first, second])
        finish(site, group, stalled=[first.name])


@pytest.mark.parametrize("client", ["confluent", "kafka-python"])
def test_commits_without_waiting(site: Site, client: str) -> None:
    """Asynchronous ones arrive in order."""
    topic = name_of("async")
    site.observer.create(topic, PARTITIONS)
    with site.group(topic, commit="async") as group:
        members = [group.join(client) for _ in range(2)]
        group.until_stable(members)
        fill(site, topic, 3000)
        finish(site, group)


def test_a_group_is_described_with_its_lag(site: Site) -> None:
    """Members, what they own, offsets; lag is the log's end less what is committed. Deleted once it is empty."""
    topic = name_of("described")
    site.observer.create(topic, PARTITIONS)
    with site.group(topic) as group:
        members = [group.join(client) for client in ("confluent", "kafka-python")]
        group.until_stable(members)
        fill(site, topic)
        site.observer.until_committed(group.group, site.observer.ends(topic, PARTITIONS))
        described = site.observer.describe(group.group)
        assert described.state == "STABLE"
        assert described.assignor == "range"
        assert {member.client: member.places for member in described.members} == {
            member.name: member.owned for member in members
        }
        assert set(site.observer.lag(group.group, topic, PARTITIONS).values()) == {0}
        finish(site, group)
        fill(site, topic)
        assert set(site.observer.lag(group.group, topic, PARTITIONS).values()) == {600 // PARTITIONS}
        until_equal(lambda: site.observer.describe(group.group).state, "EMPTY")
        site.observer.delete_group(group.group)
        assert site.observer.committed(group.group, topic, PARTITIONS) == {}
