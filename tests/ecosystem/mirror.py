"""MirrorMaker 2: a topic of tidelog's to Apache Kafka, and one of Apache Kafka's to tidelog."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from bench.peers.kafka import KafkaCluster
from confluent_kafka.admin import AdminClient

from tests.ecosystem.java import jars
from tests.ecosystem.judge import DEADLINE_S, Wrong, doubled, fill, judge
from tests.waiting import until

NAME: Final = "mirror"
TITLE: Final = "MirrorMaker 2 of Kafka 4.3, both ways"
OUT: Final = "mirror-out"
BACK: Final = "mirror-back"
_PROPERTIES: Final = """\
clusters=tidelog,apache
tidelog.bootstrap.servers={tidelog}
apache.bootstrap.servers={apache}
tidelog->apache.enabled=true
tidelog->apache.topics={out}
apache->tidelog.enabled=true
apache->tidelog.topics={back}
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
refresh.topics.interval.seconds=5
sync.topic.acls.enabled=false
"""


def run(bootstrap: str, folder: Path) -> None:
    """One broker of Apache Kafka, and one process that mirrors both ways. Wrong, java.Absent."""
    kafka = jars(folder)
    work = folder / "mirror-work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    apache = KafkaCluster(kafka, work / "kafka", {}, nodes=1)
    try:
        apache.start()
        _mirror(bootstrap, apache.bootstrap, kafka, work)
    finally:
        apache.stop()


def _mirror(tidelog: str, apache: str, kafka: Path, work: Path) -> None:
    fill(tidelog, OUT, doubled())
    fill(apache, BACK, doubled(), replicas=1)
    properties = work / "mm2.properties"
    properties.write_text(_PROPERTIES.format(tidelog=tidelog, apache=apache, out=OUT, back=BACK))
    with (work / "log").open("wb") as log:
        command = ["java", "-Xmx384m", "-cp", f"{kafka / 'libs'}/*", "org.apache.kafka.connect.mirror.MirrorMaker"]
        process = subprocess.Popen([*command, properties], stdout=log, stderr=subprocess.STDOUT)
        try:
            for bootstrap, topic in ((apache, f"tidelog.{OUT}"), (tidelog, f"apache.{BACK}")):
                _wait_for_topic(bootstrap, topic)
                judge(bootstrap, topic, lambda: process.poll() is None)
        except Wrong:
            print("\n".join((work / "log").read_text(errors="replace").splitlines()[-30:]))
            raise
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    try:
        until(lambda: topic in admin.list_topics(timeout=30).topics, limit_s=DEADLINE_S, every_s=0.5)
    except AssertionError as error:
        raise Wrong(f"topic {topic} is not made") from error
