"""Certificates for tests, made by openssl's command line: a CA, and what it signs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

DAYS: Final = "2"


class Authority:
    """A CA in a folder of its own."""

    def __init__(self, folder: Path, name: str = "test CA") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("openssl is not there")
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.key, self.certificate = folder / "ca.key", folder / "ca.pem"
        self._run("req", "-x509", *_new_key(self.key), "-out", self.certificate, "-days", DAYS, "-subj", f"/CN={name}")

    def issue(self, name: str, subject: str, host: str = "DNS:localhost,IP:127.0.0.1") -> Path:
        """A PEM file with a private key and the certificate of `subject` (/O=x/CN=y), for `host`."""
        key, request, certificate = (self.folder / f"{name}.{kind}" for kind in ("key", "csr", "crt"))
        self._run("req", *_new_key(key), "-out", request, "-subj", subject, "-addext", f"subjectAltName={host}")
        self._run(
            *("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-out", certificate),
            *("-days", DAYS, "-CAcreateserial", "-copy_extensions", "copy"),
        )
        both = self.folder / f"{name}.pem"
        both.write_text(key.read_text() + certificate.read_text())
        return both

    def _run(self, *arguments: object) -> None:
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def _new_key(path: Path) -> tuple[object, ...]:
    return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path)
