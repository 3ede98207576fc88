"""What is imported for an event loop: OpenSSL where a broker has a use for it."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

from tidelog.config.broker_config import BrokerConfig
from tidelog.launcher.event_loop import needs_openssl

OWN: Final = {"broker.id": "1", "log.dirs": "/data", "listeners": "PLAINTEXT://:9092"}
TWO: Final = {"listeners": "INTERNAL://:9092,OUTSIDE://:9093", "inter.broker.listener.name": "INTERNAL"}
SASL: Final = {
    **TWO,
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
}
TLS: Final = {
    **TWO,
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,OUTSIDE:SSL",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "/key.pem",
}
TOKENS: Final = {"delegation.token.secret.key": "secret"}
ELSEWHERE: Final = {"zookeeper.connect": "localhost:2181"}
ENCRYPTED: Final = {**ELSEWHERE, "zookeeper.ssl.client.enable": "true"}


@pytest.mark.parametrize(
    ("settings", "needs"),
    [({}, False), (ELSEWHERE, False), (SASL, True), (TLS, True), (TOKENS, True), (ENCRYPTED, True)],
)
def test_openssl_is_for_brokers_that_are_secured(settings: dict[str, str], needs: bool) -> None:
    """By their listeners, any of them, by their store, or by tokens."""
    assert needs_openssl(BrokerConfig.from_mapping(OWN | settings)) is needs


def said(settings: dict[str, str], program: str, before: str = "") -> list[str]:
    """What a fresh process prints that has loaded an event loop for a broker with such settings; no error, too."""
    begin = (
        f"import sys\n{before}"
        "from tidelog.config.broker_config import BrokerConfig\n"
        "from tidelog.launcher.event_loop import load_event_loop\n"
        f"load_event_loop(BrokerConfig.from_mapping({OWN | settings!r}))\n"
    )
    command = [sys.executable, "-c", begin + program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


LOADED: Final = "print(*sorted({'ssl', '_ssl', '_hashlib', 'kazoo'} & sys.modules.keys()))\n"


@pytest.mark.parametrize(
    ("settings", "loaded"),
    [
        ({}, []),
        (ELSEWHERE, ["kazoo"]),
        (SASL, ["_hashlib", "_ssl", "ssl"]),
        (ENCRYPTED, ["_hashlib", "_ssl", "kazoo", "ssl"]),
    ],
)
def test_openssl_is_loaded_where_it_is_of_use(settings: dict[str, str], loaded: list[str]) -> None:
    """Its modules are those that a process has when its event loop is imported."""
    assert said(settings, LOADED) == loaded


def test_without_openssl_hashes_are_there_without_files() -> None:
    """What SCRAM credentials are made of, and what coordinators compare: the same bytes as with it."""
    program = (
        "from importlib.machinery import PathFinder\n"
        "sys.meta_path.remove(PathFinder)\n"
        "import hashlib, hmac\n"
        "for name in 'sha256', 'sha512':\n"
        "    print(hmac.digest(b'key', b'text', name).hex(), hashlib.new(name, b'text').hexdigest())\n"
        "print(hashlib.blake2b(b'text', digest_size=8).hexdigest(), hmac.compare_digest(b'a', b'a'))\n"
    )
    with_openssl = said(TOKENS, program)
    assert len(with_openssl) == 6
    assert said({}, program) == with_openssl


def test_without_openssl_its_module_can_be_imported_later() -> None:
    """It is the real one, whose contexts the event loop refuses: nothing is encrypted by a stand-in."""
    program = (
        "import asyncio, ssl, uvloop\n"
        "context = ssl.create_default_context()\n"
        "async def main():\n"
        "    try:\n"
        "        await asyncio.get_running_loop().create_server(asyncio.Protocol, '127.0.0.1', 0, ssl=context)\n"
        "    except TypeError:\n"
        "        print('refused')\n"
        "print(type(context).__module__)\n"
        "with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:\n"
        "    runner.run(main())\n"
    )
    assert said({}, program) == ["ssl", "refused"]


@pytest.mark.parametrize("absent", ["_md5", "_sha3"])
def test_a_python_without_hashes_of_its_own_takes_those_of_openssl(absent: str) -> None:
    """As Python is built on Fedora and Red Hat: TLS is left out, and every hash is there."""
    program = LOADED + "import hashlib\nprint(hashlib.new('md5', b'text').hexdigest()[:8], hashlib.sha3_256().name)\n"
    found = said({}, program, f"sys.modules[{absent!r}] = None\n")
    assert found == ["_hashlib", "1cb251ec", "sha3_256"]
