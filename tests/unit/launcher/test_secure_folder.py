"""The folder of `tidelog secure init`: what is in it, who may read it, and that it is never overwritten."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest
from cryptography import x509

from tidelog.client.security import ClientSecurity
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.properties import parse
from tidelog.launcher.certificates import check_host
from tidelog.launcher.plan import Plan
from tidelog.launcher.secure_folder import SecureFolder, UnusableFolder, add_hosts, make, renew, write_client_files
from tidelog.security.initial_users import InitialUsers
from tidelog.security.scram import MECHANISMS, ScramCredential

HOSTS = ["10.0.0.11", "Broker2.example.com", "fd00::1"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three hosts, users admin and bob."""
    path = tmp_path_factory.mktemp("site") / "secure"
    make(str(path), HOSTS, ["admin", "bob"])
    return path


def settings(path: Path) -> dict[str, str]:
    return {entry.name: entry.value for entry in parse(path.read_text())}


def test_only_the_owner_reads_what_is_secret(made: Path) -> None:
    """All files but the CA's certificate."""
    modes = {str(path.relative_to(made)): stat.S_IMODE(path.stat().st_mode) for path in made.rglob("*")}
    assert modes.pop("ca.pem") == 0o644
    assert {modes.pop("brokers"), modes.pop("clients")} == {0o700}
    assert set(modes.values()) == {0o600}
    assert {"ca.key", "brokers/broker2.example.com.properties", "clients/bob.json"} <= modes.keys()


def test_certificates_name_their_hosts(made: Path) -> None:
    """A host by its name or its address, and this machine, for a cluster that is tried here first."""
    for host in ("10.0.0.11", "broker2.example.com", "fd00::1"):
        chain = settings(made / f"brokers/{host}.properties")["ssl.keystore.certificate.chain"]
        certificate = x509.load_pem_x509_certificate(chain.encode())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        found = {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}
        assert found == {host, "localhost", "127.0.0.1", "::1"}
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate((made / "ca.pem").read_bytes()))


def test_a_brokers_file_is_complete(made: Path) -> None:
    """A broker takes it as it is; a name is told to clients, and all addresses are listened on."""
    config = BrokerConfig.from_text((made / "brokers/10.0.0.11.properties").read_text(), "", {"log.dirs": "/none"})
    assert config.broker_id == 1
    assert [str(each.host) for each in config.listeners] == ["10.0.0.11"] * 2
    assert config.get("super.users") == "User:broker;User:admin"
    named = BrokerConfig.from_text((made / "brokers/broker2.example.com.properties").read_text(), "")
    assert (named.broker_id, [each.host for each in named.listeners]) == (2, ["", ""])
    assert [each.host for each in named.advertised_listeners] == ["broker2.example.com"] * 2
    assert "listeners=SASL_SSL://[fd00::1]:9092" in (made / "brokers/fd00::1.properties").read_text()


def test_a_users_password_is_the_one_that_brokers_know(made: Path) -> None:
    """Both mechanisms; the files of brokers have salted hashes alone."""
    broker = (made / "brokers/10.0.0.11.properties").read_text()
    initial = InitialUsers.decode(settings(made / "brokers/10.0.0.11.properties")["security.initial.users"])
    for user in ("admin", "bob"):
        client = json.loads((made / f"clients/{user}.json").read_text())
        assert client["sasl.username"] == user
        assert client["ssl.ca.pem"] == (made / "ca.pem").read_text()
        assert client["sasl.password"] not in broker
        for name, mechanism in MECHANISMS.items():
            known = initial.users[user][name]
            again = ScramCredential.of_password(mechanism, client["sasl.password"], known.salt, known.iterations)
            assert again == known
        # What Java takes is what our own client takes.
        assert ClientSecurity.from_file(str(made / f"clients/{user}.properties")).protocol == "SASL_SSL"
        assert ClientSecurity.from_properties(client).protocol == "SASL_SSL"


def test_it_is_never_overwritten(made: Path, tmp_path: Path) -> None:
    """Nor is anything left behind by an attempt; an empty folder is taken."""
    before = {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}
    with pytest.raises(UnusableFolder, match="is not overwritten"):
        make(str(made), ["localhost"], [])
    assert {path: path.read_bytes() for path in made.rglob("*") if path.is_file()} == before
    assert list(made.parent.iterdir()) == [made]
    (tmp_path / "file").write_text("")
    with pytest.raises(UnusableFolder, match="is not overwritten"):
        make(str(tmp_path / "file"), ["localhost"], [])
    (tmp_path / "empty").mkdir()
    assert make(f"{tmp_path}/empty", ["localhost"], []).super_user == "admin"


def test_hosts_are_added(tmp_path: Path) -> None:
    """With the next number and a certificate of the same CA; the files that are there stay."""
    make(f"{tmp_path}/s", ["10.0.0.11"], [])
    before = (tmp_path / "s/brokers/10.0.0.11.properties").read_bytes()
    assert add_hosts(f"{tmp_path}/s", ["10.0.0.12"]) == [f"{tmp_path}/s/brokers/10.0.0.12.properties"]
    first, second = (settings(tmp_path / f"s/brokers/10.0.0.1{n}.properties") for n in (1, 2))
    assert second["broker.id"] == "2"
    own = {"broker.id", "listeners", "ssl.keystore.certificate.chain", "ssl.keystore.key"}
    assert {name for name in first if first[name] != second[name]} == own
    assert (tmp_path / "s/brokers/10.0.0.11.properties").read_bytes() == before
    assert SecureFolder.read(f"{tmp_path}/s").hosts == ("10.0.0.11", "10.0.0.12")
    with pytest.raises(UnusableFolder, match="has its file already"):
        add_hosts(f"{tmp_path}/s", ["10.0.0.11"])


def test_an_addition_that_broke_off_is_done_again(tmp_path: Path) -> None:
    """The host after a first one was refused, or the machine stopped before the list of hosts had its name."""
    folder = f"{tmp_path}/s"
    make(folder, ["10.0.0.11"], [])
    (tmp_path / "s" / "brokers" / "10.0.0.13.properties").write_text("by hand")
    with pytest.raises(UnusableFolder, match="is there already"):
        add_hosts(folder, ["10.0.0.12", "10.0.0.13"])
    (tmp_path / "s" / "cluster.json.new").write_text("half")
    add_hosts(folder, ["10.0.0.12"])
    assert SecureFolder.read(folder).hosts == ("10.0.0.11", "10.0.0.12")
    assert (tmp_path / "s" / "brokers" / "10.0.0.13.properties").read_text() == "by hand"


def test_a_full_disk_leaves_no_half_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be found there already by the next attempt, which refuses to overwrite it."""
    folder = f"{tmp_path}/s"
    make(folder, ["10.0.0.11"], [])

    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(UnusableFolder, match="No space left"):
            add_hosts(folder, ["10.0.0.12"])
        with pytest.raises(UnusableFolder, match="No space left"):
            write_client_files(folder, "carol", "secret")
    add_hosts(folder, ["10.0.0.12"])
    assert len(write_client_files(folder, "carol", "secret")) == 2


def test_certificates_are_renewed(tmp_path: Path) -> None:
    """A new key and a certificate of the same CA for the host that is named; what was added to its file stays."""
    make(f"{tmp_path}/s", ["10.0.0.11", "10.0.0.12"], [])
    files = [tmp_path / f"s/brokers/10.0.0.1{number}.properties" for number in (1, 2)]
    with files[0].open("a") as file:
        file.write("log.dirs=/data\n")
    before = [settings(file) for file in files]
    trusted = (tmp_path / "s/ca.pem").read_bytes()
    assert renew(f"{tmp_path}/s", ["10.0.0.11"]) == [str(files[0])]
    after = [settings(file) for file in files]
    assert after[1] == before[1]
    changed = {name for name in after[0] if after[0][name] != before[0].get(name)}
    assert changed == {"ssl.keystore.certificate.chain", "ssl.keystore.key"}
    assert after[0].keys() == before[0].keys()
    certificate = x509.load_pem_x509_certificate(after[0]["ssl.keystore.certificate.chain"].encode())
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(trusted))
    assert (tmp_path / "s/ca.pem").read_bytes() == trusted
    assert stat.S_IMODE(files[0].stat().st_mode) == 0o600
    assert renew(f"{tmp_path}/s") == [str(file) for file in files]
    with pytest.raises(UnusableFolder, match=r"no broker on 10\.0\.0\.13"):
        renew(f"{tmp_path}/s", ["10.0.0.13"])


@pytest.mark.parametrize(
    "host", ["", "a b", "-a", "10.0.0.256", "a..b", "a/b", "*.example.com", "x" * 64, "10.0.0.1:9092"]
)
def test_hosts_that_cannot_be(host: str, tmp_path: Path) -> None:
    """The reason names the host; no folder is left."""
    with pytest.raises(UnusableFolder, match=r"--hosts"):
        make(f"{tmp_path}/s", [host] if host else [], [])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("user", ["broker", "a b", "a/b", "", 'a"b', "../a"])
def test_users_that_cannot_be(user: str, tmp_path: Path) -> None:
    """`broker` is what brokers are: a user with that name would be one."""
    with pytest.raises(UnusableFolder, match=r"--user"):
        make(f"{tmp_path}/s", ["localhost"], ["admin", user])
    assert list(tmp_path.iterdir()) == []


def test_hosts_are_named_alike() -> None:
    """However an address is written."""
    assert check_host("FD00:0::1") == check_host("[fd00::1]") == "fd00::1"
    assert check_host("Broker1.Example.COM") == "broker1.example.com"


def test_what_is_no_folder(tmp_path: Path) -> None:
    """What is not there names the command that makes it."""
    with pytest.raises(UnusableFolder, match="tidelog secure init"):
        SecureFolder.read(f"{tmp_path}/none")
    (tmp_path / "cluster.json").write_text("{}")
    with pytest.raises(UnusableFolder, match="no folder"):
        SecureFolder.read(str(tmp_path))


def test_brokers_on_this_machine(made: Path, tmp_path: Path) -> None:
    """They listen as the first host that is this machine; a cluster of elsewhere is tried on loopback."""
    assert SecureFolder.read(str(made)).here()[0] == "127.0.0.1"
    host, secured = make(f"{tmp_path}/s", ["10.255.0.1", "127.0.0.9", "localhost"], []).here()
    assert host == "127.0.0.9"
    plan = Plan(str(tmp_path), (9092, 9093), host=host, secured=secured)
    listeners = plan.settings_of(1, 9093, 7000)["listeners"]
    assert listeners == "SASL_SSL://127.0.0.9:9093,BROKERS://127.0.0.9:7000"
