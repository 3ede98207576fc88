"""The folder of a secured cluster, which `tidelog secure init` makes and `tidelog start --secure` takes.

DIR/ca.pem                     the CA's certificate, which clients trust
DIR/ca.key                     its private key: anyone with it can make brokers. `add-hosts` and `renew` need it
DIR/cluster.json               the cluster's hosts, its super user
DIR/brokers/HOST.properties    settings of the broker on that host, with its key, and the users' salted hashes
DIR/clients/USER.json          librdkafka's settings for a user, complete but for bootstrap.servers
DIR/clients/USER.properties    the same for Java and for `tidelog --command-config`

Each file is complete by itself and can be copied elsewhere. All but the CA's certificate can be read by their owner
only.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelog.config.properties import ConfigError, parse, render
from tidelog.security.initial_users import InitialUsers
from tidelog.security.scram import MECHANISMS, ScramCredential

LOOPBACK: Final = "127.0.0.1"
_LOOPBACK_HOSTS: Final = frozenset({"localhost", LOOPBACK, "::1"})
DEFAULT_USER: Final = "admin"
BROKER_USER: Final = "broker"
"""The principal of every broker, by its certificate."""
CLIENT_PORT: Final = 9092
BROKER_PORT: Final = 9093
BROKERS_LISTENER: Final = "BROKERS"
CLIENTS_LISTENER: Final = "SASL_SSL"
ITERATIONS: Final = 8_192
PASSWORD_BYTES: Final = 24
"""Of chance in a password."""
CLIENT_MECHANISM: Final = "SCRAM-SHA-512"
_USER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")
_HEADER: Final = """\
# The broker on {host}, made by `tidelog secure init`. It holds the broker's private key: let nobody else read it.
# What is left to add is this machine's own: log.dirs, and zookeeper.connect for a cluster of several machines.
"""
_PLACES: Final = frozenset({"broker.id", "listeners", "advertised.listeners"})
"""Settings of a broker's file that follow from a place: brokers on one machine have others."""


class UnusableFolder(Exception):
    """The folder cannot be made or read; the text is for the operator."""


@dataclass(frozen=True, slots=True)
class SecureFolder:
    """What is in such a folder, as far as brokers on this machine need it."""

    path: str
    hosts: tuple[str, ...]
    super_user: str
    settings: Mapping[str, Mapping[str, str]] = field(repr=False)
    """[host] -> settings of a broker there, without those that follow from its place."""

    @classmethod
    def read(cls, path: str) -> SecureFolder:
        """UnusableFolder."""
        try:
            told = json.loads(_text(f"{path}/cluster.json"))
            hosts = tuple(str(host) for host in told["hosts"])
            settings = {host: _settings(f"{path}/brokers/{host}.properties") for host in hosts}
            return cls(os.path.abspath(path), hosts, str(told["super_user"]), settings)
        except OSError as error:
            advice = f"make it with `tidelog secure init {path} --hosts HOST,...`"
            raise UnusableFolder(f"{error.filename}: {error.strerror}; {advice}") from error
        except (ConfigError, KeyError, TypeError, ValueError) as error:
            raise UnusableFolder(f"{path} is no folder of `tidelog secure init`: {error}") from error

    def here(self) -> tuple[str, Mapping[str, str]]:
        """Where brokers on this machine listen, and with whose settings: as the first host that is this machine.

        Loopback if none is: every certificate is good for that, too.
        """
        for host in self.hosts:
            if host in _LOOPBACK_HOSTS:
                return LOOPBACK, self.settings[host]
            if _is_here(host):
                return host, self.settings[host]
        return LOOPBACK, self.settings[self.hosts[0]]

    def client(self, user: str) -> dict[str, str]:
        """librdkafka's settings for a user that the folder was made with. UnusableFolder."""
        try:
            settings: dict[str, str] = json.loads(_text(f"{self.path}/clients/{user}.json"))
        except (OSError, ValueError) as error:
            raise UnusableFolder(f"{self.path} has no user {user}: {error}") from error
        return settings


def make(path: str, hosts: Sequence[str], users: Sequence[str]) -> SecureFolder:
    """Makes a folder for a cluster on `hosts` with `users`, the first a super user; whole, or not at all.

    UnusableFolder: there is something already, a name cannot be, the disk refuses.
    """
    from tidelog.launcher.certificates import make_authority

    hosts, users = _checked(hosts), list(dict.fromkeys(users)) or [DEFAULT_USER]
    for user in users:
        _check_user(user)
    id = secrets.token_hex(8)
    now = datetime.datetime.now(datetime.UTC)
    authority = make_authority(id[:8], now)
    passwords = {user: secrets.token_urlsafe(PASSWORD_BYTES) for user in users}
    common = _common_settings(InitialUsers(id, _credentials(passwords)), users[0], authority.certificate)
    files = {"ca.pem": authority.certificate, "ca.key": authority.key, "cluster.json": _cluster(id, hosts, users[0])}
    files |= _broker_files((authority.key, authority.certificate), common, hosts, 1, now)
    for user, password in passwords.items():
        librdkafka, java = _client_settings(user, password, authority.certificate)
        files[f"clients/{user}.json"] = json.dumps(librdkafka, indent=2) + "\n"
        files[f"clients/{user}.properties"] = render(java)
    _write_whole(path, files)
    return SecureFolder.read(path)


def add_hosts(path: str, hosts: Sequence[str]) -> list[str]:
    """Files for further hosts of the cluster, beside those that are there; their paths. UnusableFolder."""
    folder = SecureFolder.read(path)
    added = _checked(hosts)
    for host in added:
        if host in folder.hosts:
            raise UnusableFolder(f"{host} has its file already: {path}/brokers/{host}.properties")
    written: list[str] = []
    try:
        authority = (_text(f"{path}/ca.key"), _text(f"{path}/ca.pem"))
        told = json.loads(_text(f"{path}/cluster.json"))
        common = folder.settings[folder.hosts[0]]
        first_id = len(folder.hosts) + 1
        now = datetime.datetime.now(datetime.UTC)
        for name, text in _broker_files(authority, common, added, first_id, now).items():
            _write(f"{path}/{name}", text)
            written.append(f"{path}/{name}")
        replacement = f"{path}/cluster.json.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(replacement)
        _write(replacement, _cluster(told["id"], [*folder.hosts, *added], folder.super_user))
        os.replace(replacement, f"{path}/cluster.json")
    except (OSError, KeyError, ValueError) as error:
        for each in written:
            os.unlink(each)
        if isinstance(error, FileExistsError):
            raise UnusableFolder(f"{error.filename} is there already, and is not overwritten") from error
        raise UnusableFolder(f"no host can be added to {path}: {error}") from error
    return [f"{path}/brokers/{host}.properties" for host in added]


def renew(path: str, hosts: Sequence[str] = ()) -> list[str]:
    """New keys and certificates of the same CA in the brokers' files, of all hosts if none is named; the files' paths.

    What else is in a file stays, but for its comments; each is replaced whole. UnusableFolder.
    """
    from tidelog.launcher.certificates import Issued, issue

    folder = SecureFolder.read(path)
    chosen = _checked(hosts) if hosts else list(folder.hosts)
    for host in chosen:
        if host not in folder.hosts:
            raise UnusableFolder(f"{path} has no broker on {host}: it has {', '.join(folder.hosts)}")
    renewed = []
    try:
        authority = Issued(_text(f"{path}/ca.key"), _text(f"{path}/ca.pem"))
        now = datetime.datetime.now(datetime.UTC)
        for host in chosen:
            file = f"{path}/brokers/{host}.properties"
            issued = issue(authority, host, now)
            settings = {entry.name: entry.value for entry in parse(_text(file), file)} | {
                "ssl.keystore.certificate.chain": issued.certificate,
                "ssl.keystore.key": issued.key,
            }
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{file}.new")
            _write(f"{file}.new", _HEADER.format(host=host) + render(settings))
            os.replace(f"{file}.new", file)
            renewed.append(file)
    except (OSError, ValueError) as error:
        raise UnusableFolder(f"certificates of {path} cannot be renewed: {error}") from error
    return renewed


def write_client_files(path: str, user: str, password: str, mechanism: str = CLIENT_MECHANISM) -> list[str]:
    """Client files of a further user in the folder; their paths. UnusableFolder, also where there are such already."""
    SecureFolder.read(path)
    _check_user(user)
    written: list[str] = []
    try:
        librdkafka, java = _client_settings(user, password, _text(f"{path}/ca.pem"), mechanism)
        for kind, text in (("json", json.dumps(librdkafka, indent=2) + "\n"), ("properties", render(java))):
            _write(f"{path}/clients/{user}.{kind}", text)
            written.append(f"{path}/clients/{user}.{kind}")
    except OSError as error:
        for each in written:
            os.unlink(each)
        if isinstance(error, FileExistsError):
            raise UnusableFolder(f"{error.filename} is there already, and is not overwritten") from error
        raise UnusableFolder(f"no user can be added to {path}: {error}") from error
    return written


def _check_user(user: str) -> None:
    if not _USER.fullmatch(user) or user == BROKER_USER:
        raise UnusableFolder(
            f"--user {user}: a name has letters, digits and . _ @ -, and is not {BROKER_USER}, which brokers are"
        )


def _checked(hosts: Sequence[str]) -> list[str]:
    from tidelog.launcher.certificates import check_host

    try:
        checked = list(dict.fromkeys(map(check_host, hosts)))
    except ValueError as error:
        raise UnusableFolder(f"--hosts: {error}") from error
    if not checked:
        raise UnusableFolder("--hosts names no host")
    return checked


def _is_here(host: str) -> bool:
    """Whether this machine can listen at a host's address (IPv4)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as attempt:
        try:
            attempt.bind((host, 0))
        except OSError:
            return False
    return True


def _cluster(id: str, hosts: Sequence[str], super_user: str) -> str:
    return json.dumps({"version": 1, "id": id, "hosts": list(hosts), "super_user": super_user}, indent=2) + "\n"


def _credentials(passwords: Mapping[str, str]) -> dict[str, dict[str, ScramCredential]]:
    return {
        user: {
            name: ScramCredential.of_password(mechanism, password, secrets.token_bytes(24), ITERATIONS)
            for name, mechanism in MECHANISMS.items()
        }
        for user, password in passwords.items()
    }


def _common_settings(initial: InitialUsers, super_user: str, trusted: str) -> dict[str, str]:
    """The properties that all brokers of the cluster have."""
    from tidelog.launcher.certificates import BROKER_NAME

    own = f"listener.name.{BROKERS_LISTENER.lower()}"
    return {
        "listener.security.protocol.map": f"{CLIENTS_LISTENER}:SASL_SSL,{BROKERS_LISTENER}:SSL",
        "inter.broker.listener.name": BROKERS_LISTENER,
        f"{own}.ssl.client.auth": "required",
        f"{own}.ssl.principal.mapping.rules": f"RULE:^CN={BROKER_NAME}$/{BROKER_USER}/",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{BROKER_USER};User:{super_user}",
        "security.initial.users": initial.encode(),
        # Brokers' own credentials with a ZooKeeper ensemble; the cluster's own store needs none.
        "zookeeper.digest": f"tidelog:{secrets.token_urlsafe(PASSWORD_BYTES)}",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": trusted,
        "ssl.keystore.type": "PEM",
    }


def _broker_files(
    authority: tuple[str, str], common: Mapping[str, str], hosts: Sequence[str], first_id: int, now: datetime.datetime
) -> dict[str, str]:
    """[name of a file] -> its text, for each host."""
    from tidelog.launcher.certificates import Issued, issue

    files = {}
    for number, host in enumerate(hosts, first_id):
        issued = issue(Issued(*authority), host, now)
        own = {
            "broker.id": str(number),
            **_listeners(host),
            **common,
            "ssl.keystore.certificate.chain": issued.certificate,
            "ssl.keystore.key": issued.key,
        }
        files[f"brokers/{host}.properties"] = _HEADER.format(host=host) + render(own)
    return files


def _listeners(host: str) -> dict[str, str]:
    told = listeners(host, CLIENT_PORT, BROKER_PORT)
    if host.replace(".", "").isdecimal() or ":" in host:
        return {"listeners": told}
    # A name may lead to another address here than elsewhere: Debian's own hosts lead to 127.0.1.1.
    return {"listeners": listeners("", CLIENT_PORT, BROKER_PORT), "advertised.listeners": told}


def listeners(host: str, client_port: int, broker_port: int) -> str:
    """The value of `listeners`: clients come by the first, brokers by the second."""
    shown = f"[{host}]" if ":" in host else host
    return f"{CLIENTS_LISTENER}://{shown}:{client_port},{BROKERS_LISTENER}://{shown}:{broker_port}"


def _client_settings(
    user: str, password: str, trusted: str, mechanism: str = CLIENT_MECHANISM
) -> tuple[dict[str, str], dict[str, str]]:
    """librdkafka's, and Java's, complete but for where the cluster is."""
    librdkafka = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "ssl.ca.pem": trusted,
    }
    java = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{user}" password="{password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": trusted,
    }
    return librdkafka, java


def _write_whole(path: str, files: Mapping[str, str]) -> None:
    """All files in a new folder, which gets its name last."""
    import shutil  # Here alone: it takes half a megabyte, and brokers make no folders.

    path = os.path.abspath(path)
    refusal = f"{path} is there already, and is not overwritten: choose another name, or remove it yourself"
    if os.path.lexists(path) and not (os.path.isdir(path) and not os.listdir(path)):
        raise UnusableFolder(refusal)
    temporary = f"{path}.new-{secrets.token_hex(4)}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        for folder in ("", "/brokers", "/clients"):
            os.mkdir(temporary + folder, 0o700)
        for name, text in files.items():
            _write(f"{temporary}/{name}", text, 0o644 if name == "ca.pem" else 0o600)
        os.chmod(temporary, 0o755)
        os.rename(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            shutil.rmtree(temporary)
        if os.path.isdir(path) and os.listdir(path):
            raise UnusableFolder(refusal) from error
        raise UnusableFolder(f"{path} cannot be made: {error.strerror or error}") from error


def _write(path: str, text: str, mode: int = 0o600) -> None:
    """A new file, on the disk when this returns; whole or not at all. FileExistsError, OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
    except BaseException:
        os.unlink(path)
        raise


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _settings(path: str) -> dict[str, str]:
    return {entry.name: entry.value for entry in parse(_text(path), path) if entry.name not in _PLACES}
