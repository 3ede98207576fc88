"""Whole trees of Kafka's metadata, copied from a capture of real ensembles, and how a tree is compared with them.

One node a line: its path, its data's version, `ephemeral` where it is, and the data. What differs from cluster to
cluster is one word: ID (of topics and of the cluster), TIME, ADDRESS, PORT, and broker ids by the order of their lives.
JSON is compared by key: releases differ in the order.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE

CAPTURE: Final = Path(
    os.environ.get("TIDELOG_KAFKA_TREES", Path(__file__).parents[3] / "shared/reference/zookeeper/trees.json")
)
"""The capture itself, where it is at hand: then the copies are compared with it."""

_BROKER: Final = (
    '{"endpoints":["ADDRESS"],"features":{},"host":"ADDRESS","jmx_port":-1,'
    '"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"port":"PORT","timestamp":"TIME","version":5}'
)

_T39: Final = (
    '{"adding_replicas":{},"partitions":{"0":[1,0],"1":[0,2]},"removing_replicas":{},"topic_id":"ID","version":3}'
)

AFTER_START: Final = f"""
/admin 0
/admin/delete_topics 0
/brokers 0
/brokers/ids 0
/brokers/ids/0 1 ephemeral {_BROKER}
/brokers/ids/1 1 ephemeral {_BROKER}
/brokers/ids/2 1 ephemeral {_BROKER}
/brokers/seqid 0
/brokers/topics 0
/cluster 0
/cluster/id 0 {{"id":"ID","version":"1"}}
/config 0
/config/brokers 0
/config/changes 0
/config/clients 0
/config/ips 0
/config/topics 0
/config/users 0
/consumers 0
/controller 0 ephemeral {{"brokerid":0,"timestamp":"TIME","version":1}}
/controller_epoch 1 1
/feature 0 {{"features":{{}},"status":1,"version":1}}
/isr_change_notification 0
/log_dir_event_notification 0
"""
"""Three brokers of 2.8.2 started on nothing, without their blocks of producer ids."""

END: Final = f"""
/admin 0
/admin/delete_topics 0
/brokers 0
/brokers/ids 0
/brokers/ids/0 1 ephemeral {_BROKER}
/brokers/ids/1 1 ephemeral {_BROKER}
/brokers/ids/2 1 ephemeral {_BROKER}
/brokers/seqid 0
/brokers/topics 0
/brokers/topics/t39 0 {_T39}
/brokers/topics/t39/partitions 0
/brokers/topics/t39/partitions/0 0
/brokers/topics/t39/partitions/0/state 2 {{"controller_epoch":2,"isr":[1,0],"leader":1,"leader_epoch":1,"version":1}}
/brokers/topics/t39/partitions/1 0
/brokers/topics/t39/partitions/1/state 5 {{"controller_epoch":2,"isr":[2,0],"leader":2,"leader_epoch":3,"version":1}}
/cluster 0
/cluster/id 0 {{"id":"ID","version":"1"}}
/config 0
/config/brokers 0
/config/changes 0
/config/changes/config_change_0000000000 0 {{"entity_path":"topics/old","version":2}}
/config/changes/config_change_0000000001 0 {{"entity_path":"users/bob","version":2}}
/config/clients 0
/config/ips 0
/config/topics 0
/config/topics/t39 0 {{"config":{{"retention.ms":"100000"}},"version":1}}
/config/users 0
/config/users/bob 0 {{"config":{{"SCRAM-SHA-256":"SECRET"}},"version":1}}
/consumers 0
/controller 0 ephemeral {{"brokerid":"THE NEXT","timestamp":"TIME"}}
/controller_epoch 2 2
/feature 0 {{"features":{{}},"status":1}}
/isr_change_notification 0
/latest_producer_id_block 1 {{"block_end":"999","block_start":"0","broker":"SOME","version":1}}
/log_dir_event_notification 0
"""
"""Three brokers of 3.9.1 after a life of topics, tools and crashes; /controller and /feature without their versions."""


def lines(copy: str) -> list[str]:
    """A copy's nodes."""
    return copy.strip().splitlines()


def captured(name: str) -> list[str] | None:
    """The same of the capture; None where it is not at hand."""
    if not CAPTURE.exists():
        return None
    nodes = json.loads(CAPTURE.read_bytes())[name]
    return [
        node_line(node["path"], node["data"], node["version"], ephemeral=bool(node.get("ephemeral"))) for node in nodes
    ]


def dump(client: KazooClient, brokers: Mapping[int, int]) -> list[str]:
    """What a store holds, by path; `brokers`: the number that each broker id has in the copy."""
    found = []
    for path in _paths(client):
        data, stat = client.get(path)
        acl, _ = client.get_acls(path)
        assert acl == OPEN_ACL_UNSAFE, f"{path} is not open to the world"
        text = None if data is None or data == b"" else data.decode()
        found.append(node_line(path, text, stat.version, ephemeral=stat.ephemeralOwner != 0, brokers=brokers))
    return sorted(found)


def node_line(
    path: str, data: str | None, version: int, *, ephemeral: bool = False, brokers: Mapping[int, int] | None = None
) -> str:
    """A node as a line."""
    number = {} if brokers is None else brokers

    def renamed(id: int) -> int:
        return number.get(id, id)

    own = re.fullmatch(r"/brokers/ids/(\d+)", path)
    if own:
        path = f"/brokers/ids/{renamed(int(own[1]))}"
    parts = [path, str(version)]
    if ephemeral:
        parts.append("ephemeral")
    if data is not None:
        content = json.loads(data)
        parts.append(json.dumps(_told(path, content, renamed), separators=(",", ":"), sort_keys=True))
    return " ".join(parts)


def without_versions(found: Iterable[str], *paths: str) -> list[str]:
    """The lines, those of `paths` without what releases put there differently, and without who it happens to be."""
    cut = []
    for line in found:
        path = line.partition(" ")[0]
        if path in paths:
            head, brace, rest = line.partition("{")
            content = json.loads(brace + rest)
            if path != "/latest_producer_id_block":
                content.pop("version", None)
                content.pop("kraftControllerEpoch", None)
            for key, word in (("brokerid", "THE NEXT"), ("broker", "SOME")):
                if key in content:
                    content[key] = word
            line = head + json.dumps(content, separators=(",", ":"), sort_keys=True)
        cut.append(line)
    return cut


def _told(path: str, content: Any, renamed: Callable[[int], int]) -> Any:
    if not isinstance(content, dict):
        return content
    for key, word in (("timestamp", "TIME"), ("topic_id", "ID"), ("host", "ADDRESS"), ("port", "PORT")):
        if key in content:
            content[key] = word
    if path == "/cluster/id":
        content["id"] = "ID"
    if "endpoints" in content:
        assert all(re.fullmatch(r"PLAINTEXT://127\.0\.0\.1:\d+", each) for each in content["endpoints"])
        content["endpoints"] = ["ADDRESS" for _ in content["endpoints"]]
    for key in ("brokerid", "broker", "leader"):
        if key in content:
            content[key] = renamed(content[key])
    if "isr" in content:
        content["isr"] = [renamed(id) for id in content["isr"]]
    if isinstance(content.get("partitions"), dict):
        content["partitions"] = {index: [renamed(id) for id in ids] for index, ids in content["partitions"].items()}
    for name in content.get("config", {}):
        if name.startswith("SCRAM"):
            content["config"][name] = "SECRET"
    return content


def _paths(client: KazooClient, path: str = "") -> Iterable[str]:
    for name in client.get_children(path or "/"):
        below = f"{path}/{name}"
        if below != "/zookeeper":
            yield below
            yield from _paths(client, below)
