"""Every client on a secured listener: each mechanism, certificates, and each way to be refused.

`python -m tests.conformance.check_secured_clients` prints the table.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.clients.secured import SENT, THERE, Access, Outcome, send
from tests.waiting import until
from tidelog.client import admin
from tidelog.client.blocking import BlockingCluster
from tidelog.launcher import certificates
from tidelog.launcher.certificates import Issued, issue, make_authority
from tidelog.security.oauthbearer import unsecured_login
from tidelog.testing import Cluster

NOW: Final = datetime.datetime.now(datetime.UTC)
LONG_AGO: Final = NOW - datetime.timedelta(days=2 * certificates.DAYS)
PASSWORD: Final = "alice-secret"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
AT_ONCE_S: Final = 20.0
"""From a program's start to its end, on a machine that is busy."""
BEARER: Final = "org.apache.kafka.common.security.oauthbearer"
BEARER_LOGIN: Final = f'{BEARER}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
BEARER_VALIDATOR: Final = f"{BEARER}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class Site:
    """A broker with a listener for each case, and files for clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority, self.foreign = make_authority("here", NOW), make_authority("elsewhere", NOW)
        self.ca = self._file("ca.pem", self.authority.certificate)
        self.foreign_ca = self._file("foreign-ca.pem", self.foreign.certificate)
        self.certificate = self._pem("client", issue(self.authority, "client", NOW))
        self.foreign_certificate = self._pem("foreign", issue(self.foreign, "client", NOW))
        self.expired_certificate = self._pem("expired-client", issue(self.authority, "client", LONG_AGO))
        elsewhere = _issue_for_elsewhere(self.authority)
        settings: dict[str, object] = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_SSL,MUTUAL:SSL,EXPIRED:SSL,ELSEWHERE:SSL",
            "listeners": ",".join(
                f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", "SASL", "MUTUAL", "EXPIRED", "ELSEWHERE")
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._pem("broker", issue(self.authority, "localhost", NOW)),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.expired.ssl.keystore.location": self._pem(
                "expired", issue(self.authority, "localhost", LONG_AGO)
            ),
            "listener.name.elsewhere.ssl.keystore.location": self._pem("elsewhere", elsewhere),
            "sasl.enabled.mechanisms": ",".join((*MECHANISMS, "OAUTHBEARER")),
            "listener.name.sasl.oauthbearer.sasl.jaas.config": BEARER_LOGIN,
            "listener.name.sasl.oauthbearer.sasl.server.callback.handler.class": BEARER_VALIDATOR,
            "listener.name.sasl.plain.sasl.jaas.config": f'{PLAIN_MODULE} user_alice="{PASSWORD}";',
        }
        self.cluster = Cluster(settings)

    def start(self) -> None:
        self.cluster.start()
        names = ("plaintext", "sasl", "mutual", "expired", "elsewhere")
        self.addresses = dict(zip(names, self.cluster.runtime.addresses, strict=True))
        with BlockingCluster(self.addresses["plaintext"]) as client:
            for mechanism in MECHANISMS[1:]:
                change = admin.ScramUpsertion("alice", mechanism, PASSWORD)
                assert client.run(admin.alter_scram_users(client.routing, [change])) == {"alice": None}

    def send(self, client: str, case: str) -> Outcome:
        """One record as the case has it; the topic is named for both."""
        return send(self.access(client, case), self.folder)

    def access(self, client: str, case: str) -> Access:
        """How a client comes in a case."""
        topic = f"{client}.{case}".replace(" ", "-")
        sasl, mutual = self.addresses["sasl"], self.addresses["mutual"]
        scram, alice = "SCRAM-SHA-512", ("alice", PASSWORD)
        match case:
            case "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512":
                return Access(client, sasl, topic, self.ca, case, *alice)
            case "OAUTHBEARER":
                token = unsecured_login({"unsecuredLoginStringClaim_sub": "alice"}, int(time.time()) - 1)
                return Access(client, sasl, topic, self.ca, case, "alice", token)
            case "certificate":
                return Access(client, mutual, topic, self.ca, certificate=self.certificate)
            case "wrong password":
                return Access(client, sasl, topic, self.ca, scram, "alice", "wrong")
            case "wrong password by PLAIN":
                return Access(client, sasl, topic, self.ca, "PLAIN", "alice", "wrong")
            case "unknown user":
                return Access(client, sasl, topic, self.ca, scram, "nobody", PASSWORD)
            case "foreign CA":
                return Access(client, sasl, topic, self.foreign_ca, scram, *alice)
            case "expired certificate":
                return Access(client, self.addresses["expired"], topic, self.ca)
            case "wrong host name":
                return Access(client, self.addresses["elsewhere"], topic, self.ca)
            case "foreign client certificate":
                return Access(client, mutual, topic, self.ca, certificate=self.foreign_certificate)
            case "no client certificate":
                return Access(client, mutual, topic, self.ca)
        raise ValueError(case)

    def _file(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return str(self.folder / name)

    def _pem(self, name: str, issued: Issued) -> str:
        return self._file(f"{name}.pem", issued.key + issued.certificate)


def _issue_for_elsewhere(authority: Issued) -> Issued:
    """A certificate that does not name this machine."""
    before, certificates.LOOPBACK = certificates.LOOPBACK, ()  # type: ignore[assignment, misc]
    try:
        return issue(authority, "elsewhere.example.com", NOW)
    finally:
        certificates.LOOPBACK = before  # type: ignore[misc]


WORK: Final = (*MECHANISMS, "OAUTHBEARER", "certificate")
REFUSED: Final = {
    "wrong password": "authentication_failed: .*mechanism=SCRAM-SHA-512 reason=.*alice",
    "wrong password by PLAIN": "authentication_failed: .*mechanism=PLAIN reason=",
    "unknown user": "authentication_failed: .*mechanism=SCRAM-SHA-512 reason=.*nobody",
    "foreign CA": "tls_handshake_failed: .*listener=SASL",
    "expired certificate": "tls_handshake_failed: .*listener=EXPIRED",
    "wrong host name": "",
    "foreign client certificate": "tls_handshake_failed: .*listener=MUTUAL",
    "no client certificate": "tls_handshake_failed: .*listener=MUTUAL",
}
"""[case] -> what the broker's log says; some clients look at the host's name when the handshake is over."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("secured"))
    made.start()
    yield made
    made.cluster.stop()


@pytest.mark.parametrize("client", [client for client, there in THERE.items() if there])
def test_lets_in(site: Site, client: str) -> None:
    """By each mechanism, and by certificate."""
    for case in WORK:
        outcome = site.send(client, case)
        assert outcome.said == SENT, (case, outcome)


@pytest.mark.nightly
@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("client", [client for client, there in THERE.items() if there])
def test_refuses(site: Site, client: str, case: str, caplog: pytest.LogCaptureFixture) -> None:
    """The client ends with an error of its own at once, and the broker's log says why."""
    import re

    with caplog.at_level(logging.INFO, "tidelog"):
        outcome = site.send(client, case)
        assert outcome.said != SENT
        # kcat and kafka-python say why, and end with the time of their record, or of their bootstrap.
        assert "timed out" not in outcome.said.lower() or client in ("kafka-python", "kcat"), outcome
        assert outcome.seconds < AT_ONCE_S, outcome
        until(lambda: re.search(REFUSED[case], caplog.text), lambda: caplog.text)


def main() -> None:
    """Prints a line for each client and case."""
    import tempfile

    logging.basicConfig(level=logging.WARNING, filename="/dev/stderr")
    with tempfile.TemporaryDirectory() as folder:
        site = Site(Path(folder))
        site.start()
        with contextlib.closing(_Stopping(site)):
            for client in (client for client, there in THERE.items() if there):
                for case in (*WORK, *REFUSED):
                    try:
                        outcome = site.send(client, case)
                        print(f"{client:13} {case:28} {outcome.seconds:5.1f} s  {outcome.said[:400]!r}", flush=True)
                    except AssertionError as error:
                        print(f"{client:13} {case:28} HANGS  {str(error)[:300]}", flush=True)


class _Stopping:
    def __init__(self, site: Site) -> None:
        self.close = site.cluster.stop


if __name__ == "__main__":
    main()
