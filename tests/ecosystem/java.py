"""Apache Kafka's jars for what runs on Java, fetched from Maven Central once."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

VERSION: Final = "4.3.0"


class Absent(Exception):
    """What is needed is not here; the text names it."""


def jars(folder: Path) -> Path:
    """The folder with `libs` in it, made where it is not there. Absent."""
    target = folder / f"kafka-{VERSION}"
    done = target / ".complete"
    if not done.exists():
        for tool in ("java", "mvn"):
            if shutil.which(tool) is None:
                raise Absent(f"{tool} is not installed")
        print(f"fetching Apache Kafka {VERSION} with Connect", flush=True)
        pom = Path(__file__).with_name("pom.xml")
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={target / 'libs'}", f"-Dkafka.version={VERSION}"]
        subprocess.run(["mvn", "-q", "-B", "-f", pom, *goal], check=True)
        done.touch()
    return target
