"""Each client once: a record through a secured listener, or why not. What the workers are told, and what they answer.

A worker gets one argument, JSON:

    client       its name; some programs are two
    bootstrap    host:port
    topic
    mechanism    of SASL; "" for TLS alone
    user, password (with OAUTHBEARER a bearer token, for clients that do not make their own)
    ca           PEM file: what is trusted
    certificate  PEM file with the client's key and certificate, or ""

and prints one line: `sent`, or the client's error.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tests.conformance.clients.harness import BUILT, ROOT

KAFKA: Final = ROOT / "build" / "kafka-4.3.0"
ENDS_S_MAX: Final = 60.0
SENT: Final = "sent"


@dataclass(frozen=True)
class Access:
    """How a client comes in."""

    client: str
    bootstrap: str
    topic: str
    ca: str
    mechanism: str = ""
    user: str = ""
    password: str = ""
    certificate: str = ""


class Outcome(NamedTuple):
    """What a client said, and how long it took from the program's start to its end."""

    said: str
    seconds: float


PYTHON: Final = [sys.executable, "-m", "tests.conformance.clients.python.secured"]
THERE: Final = {
    "confluent": True,
    "kafka-python": True,
    "aiokafka": True,
    "tidelog": True,
    "kcat": shutil.which("kcat") is not None,
    "java": KAFKA.exists(),
    "franz-go": (BUILT / "go" / "secured").exists(),
    "sarama": (BUILT / "go" / "secured").exists(),
    "kafkajs": (BUILT / "node" / "secured.js").exists(),
}


def send(access: Access, folder: Path) -> Outcome:
    """Runs the client's program; `folder` is for files that it needs. AssertionError where it does not end."""
    command, text = _command(access, folder)
    began = time.monotonic()
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=ENDS_S_MAX, cwd=ROOT)
    except subprocess.TimeoutExpired as late:
        raise AssertionError(f"{access.client} did not end within {ENDS_S_MAX:g} s: {late.stdout!r}") from late
    seconds = time.monotonic() - began
    if access.client in ("kcat", "java"):
        said = SENT if done.returncode == 0 else done.stdout + done.stderr
    else:
        said = done.stdout.strip() or done.stderr
    return Outcome(said, seconds)


def _command(access: Access, folder: Path) -> tuple[list[str], str]:
    told = json.dumps(asdict(access))
    match access.client:
        case "confluent" | "kafka-python" | "aiokafka" | "tidelog":
            return [*PYTHON, told], ""
        case "franz-go" | "sarama":
            return [str(BUILT / "go" / "secured"), told], ""
        case "kafkajs":
            return ["node", str(BUILT / "node" / "secured.js"), told], ""
        case "kcat":
            settings = {"message.timeout.ms": "10000", **librdkafka(access)}
            options = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
            return ["kcat", "-P", "-E", "-b", access.bootstrap, "-t", access.topic, *options], "x\n"
        case "java":
            properties = folder / "client.properties"
            properties.write_text(_java(access))
            tool = ["java", "-cp", f"{KAFKA}/*:{KAFKA}/libs/*", "org.apache.kafka.tools.TopicCommand"]
            options = ["--bootstrap-server", access.bootstrap, "--command-config", str(properties)]
            return [*tool, *options, "--create", "--if-not-exists", "--topic", access.topic], ""
    raise ValueError(access.client)


def librdkafka(access: Access) -> dict[str, str]:
    """The settings of librdkafka's clients."""
    settings = {"security.protocol": "SASL_SSL" if access.mechanism else "SSL", "ssl.ca.location": access.ca}
    if access.mechanism:
        settings |= {"sasl.mechanisms": access.mechanism}
    if access.mechanism == "OAUTHBEARER":
        settings |= {"sasl.oauthbearer.config": f"principal={access.user}"}
        if access.client != "tidelog":
            settings |= {"enable.sasl.oauthbearer.unsecure.jwt": "true"}
    elif access.mechanism:
        settings |= {"sasl.username": access.user, "sasl.password": access.password}
    if access.certificate:
        settings |= {"ssl.certificate.location": access.certificate, "ssl.key.location": access.certificate}
    return settings


def _java(access: Access) -> str:
    lines = [f"security.protocol={'SASL_SSL' if access.mechanism else 'SSL'}"]
    lines += ["ssl.truststore.type=PEM", f"ssl.truststore.location={access.ca}"]
    if access.certificate:
        lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={access.certificate}"]
    if access.mechanism == "OAUTHBEARER":
        module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        lines.append(f"sasl.mechanism={access.mechanism}")
        lines.append(f'sasl.jaas.config={module} unsecuredLoginStringClaim_sub="{access.user}";')
    elif access.mechanism:
        kind = "plain.PlainLoginModule" if access.mechanism == "PLAIN" else "scram.ScramLoginModule"
        module = f"org.apache.kafka.common.security.{kind} required"
        lines.append(f"sasl.mechanism={access.mechanism}")
        lines.append(f'sasl.jaas.config={module} username="{access.user}" password="{access.password}";')
    return "\n".join(lines)
