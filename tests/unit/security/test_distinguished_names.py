"""Subjects of certificates, printed as Java's X500Principal prints them."""

from __future__ import annotations

import contextlib
import random
import subprocess
from pathlib import Path

import pytest
from tests.certificates import Authority

from tidelog.security.distinguished_names import MalformedCertificate, subject


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """DER of the certificate of which Kafka told its principal (shared vectors, tls.txt)."""
    folder: Path = tmp_path_factory.mktemp("ca")
    pem = Authority(folder).issue("alice", "/C=US/ST=CA/O=Org/OU=Eng, Ops/CN=Alice Q/emailAddress=a@b.c")
    command = ["openssl", "x509", "-in", str(pem), "-outform", "der"]
    return subprocess.run(command, check=True, capture_output=True).stdout


def test_a_subject_is_printed_as_java_does(certificate: bytes) -> None:
    """Last attribute first, commas escaped, what has no short name by number and as hex."""
    expected = r"1.2.840.113549.1.9.1=#16056140622e63,CN=Alice Q,OU=Eng\, Ops,O=Org,ST=CA,C=US"
    assert subject(certificate) == expected


def test_mutated_certificates_raise_nothing_else(certificate: bytes) -> None:
    """Cut, changed and lengthened bytes."""
    draw = random.Random(5)
    for _ in range(3_000):
        mutated = bytearray(certificate)
        for _ in range(draw.randint(1, 5)):
            mutated[draw.randrange(len(mutated))] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
        if draw.random() < 0.3:
            del mutated[draw.randrange(len(mutated)) :]
        with contextlib.suppress(MalformedCertificate):
            assert isinstance(subject(bytes(mutated)), str)
