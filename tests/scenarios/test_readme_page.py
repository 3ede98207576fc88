"""README.md: what stands under "Use it" works as it is typed there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.scenarios.documents import python_blocks

from tidelog.client.blocking import BlockingCluster
from tidelog.client.consumed import consumed_records
from tidelog.model.identifiers import LATEST_TIMESTAMP, TopicPartition
from tidelog.testing import Cluster

README: Final = Path(__file__).parents[2] / "README.md"
TYPED_ELSEWHERE: Final = {
    "start": "tests/scenarios/test_security_page.py, with --secure",
    "table": "tests/unit/pipeline/test_table.py; it starts Spark",
    "top": "tests/unit/cli/test_top_command.py; it ends with Ctrl-C",
}
"""Commands of the page that are not typed here -> which test types them."""


def commands() -> list[str]:
    """Lines that begin with a prompt and have `tidelog` in them, without the prompt."""
    section = README.read_text().split("## Use it\n")[1].split("\n## ")[0]
    return re.findall(r"^\$ (.*\btidelog .*)$", section, re.MULTILINE)


def verb(command: str) -> str:
    found = re.search(r"\btidelog (\w+)", command)
    assert found is not None
    return found[1]


def test_the_commands(tmp_path: Path) -> None:
    """In a row, in one folder, on three brokers; the record that is produced is consumed, and is in the file named."""
    program = tmp_path / "bin" / "tidelog"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m tidelog "$@"\n')
    program.chmod(0o755)
    typed = [each for each in commands() if verb(each) not in TYPED_ELSEWHERE]
    assert {verb(each) for each in typed} == {"topics", "produce", "consume", "dump", "plan", "secure"}
    printed: dict[str, str] = {}
    with Cluster(brokers=3, data=str(tmp_path / "data")) as cluster:
        environment = os.environ | {
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "TIDELOG_BOOTSTRAP": cluster.bootstrap,
        }
        for command in typed:
            done = subprocess.run(
                ["bash", "-eu", "-c", command],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=180,
                check=False,
            )
            assert done.returncode == 0, done
            printed[verb(command)] = done.stdout
    assert printed["consume"] == '{"page": "/"}\n'
    assert "key: user7" in printed["dump"]
    assert (tmp_path / "secure" / "clients" / "admin.json").exists()


def test_the_cluster_in_a_with_statement() -> None:
    """The record that the example produces can be consumed while its cluster runs."""
    (code,) = (each for each in python_blocks(README) if "Cluster" in each)
    values: list[bytes | None] = []

    def consume(cluster: Cluster) -> None:
        with BlockingCluster(cluster.bootstrap) as client:
            place = TopicPartition("orders", 0)
            end = client.offsets({place: LATEST_TIMESTAMP})[place].offset
            for data in client.iterate_fetch(place, 0, end):
                values.extend(record.value for record in consumed_records(data, end))

    exec(compile(code + "    consume(cluster)\n", "README.md", "exec"), {"consume": consume})  # Our own page.
    assert values == [b"a record"]
