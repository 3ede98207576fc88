"""Whether a table's own history contradicts its progress, and the way back where it does.

Delta's RESTORE brings the files of an earlier version back, but not its transaction identifiers: those say still how
far the table had come (`delta`). A job would go on there, and what the restored files lack would stay a hole that no
reader sees. So before a job starts, and before each batch, the commits since the last check are looked at. Where a
RESTORE took records away, the job stops until `rewind` sets the progress back to what the table holds.

A commit of ours says in its metadata up to which version the history was checked when it was made, so that a check
reads a few commits, not all. Commits of versions of tidelog that did not check say nothing.

The last commit also says of which topic the records were, and which query wrote them: a topic that was deleted and made
again is noticed (`check_topic`), and a checkpoint that is behind the table is removed (`forget_outdated`).
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deltalake import CommitProperties, DeltaTable, Transaction

from pyspark_tidelog.errors import DataLoss
from tidelog.model.identifiers import TopicPartition
from tidelog.pipeline.durable import take_in
from tidelog.pipeline.errors import PipelineError, TableMismatch

CHECKED: Final = "tidelog.checked"
"""In the metadata of a batch's commit: `{"topic": version}`, the last version that was checked before it."""
REWOUND: Final = "tidelog.rewound"
"""In the metadata of a rewind's commit: the topic."""
OFFSETS: Final = "tidelog.offsets"
"""In the metadata of a batch's commit: `{"topic-0": [start, end]}`."""
BEGINS: Final = "tidelog.begins"
"""In the metadata of the commit that has a new table stand where it is to begin: `{"topic-0": offset}`."""
QUERY: Final = "tidelog.query"
"""In the metadata of a batch's commit: which job has written it."""
TOPIC_IDS: Final = "tidelog.topic-ids"
"""In the metadata of a batch's commit: `{"topic": "<id>"}`, which of the topics that had this name it was."""
_FIRST_LOOK: Final = 16
"""Commits that are read first; the last one of ours is nearly always among them."""
_GROWTH: Final = 8


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Progress that is ahead of what the table holds, since a RESTORE took records away."""

    restored: int
    """The version that the RESTORE made."""
    held: Mapping[TopicPartition, int]
    """The next offset of each partition by what the table holds."""
    claimed: Mapping[TopicPartition, int]
    """The same by its transaction identifiers."""
    is_overwritten: bool
    """Whether later batches were added behind the hole."""

    def explain(self, topic: str, uri: str) -> str:
        """What happened, and what to do."""
        gaps = ", ".join(
            f"{each} up to offset {self.held[each]}, where its progress says {self.claimed[each]}"
            for each in sorted(self.held)
        )
        text = f"the table at {uri} was restored (version {self.restored}) and holds {gaps}. Nothing was written."
        if self.is_overwritten:
            return (
                f"{text} Batches were added behind the hole since then: restore the table to version {self.restored}"
                f" first, then `tidelog table rewind {topic} {uri}` and another run take all that is missing"
            )
        return f"{text} `tidelog table rewind {topic} {uri}` sets the progress back; the next run takes the rest again"


def find_contradiction(
    table: DeltaTable, apps: Mapping[TopicPartition, str], topic: str, since: int | None = None
) -> Contradiction | None:
    """What the history says against the progress of `apps`, [partition] -> transaction identifier; None if nothing.

    `since` is a version up to which the history is known to be sound: -1 for none, None for what the last commit of
    ours says.
    """
    if not any(_is_restore(each) for each in _unchecked(table, topic, since)):
        return None
    events = [each for each in reversed(table.history()) if _is_restore(each) or each.get(REWOUND) == topic]
    held: dict[TopicPartition, int] = {}
    claimed: dict[TopicPartition, int] = {}
    restored, is_overwritten = -1, False
    for partition, app in apps.items():
        stands = table.transaction_version(app)
        if stands is None:
            continue
        found = _Walk(table, events, partition, app).at(table.version())
        if found.restored is not None:
            held[partition], claimed[partition] = found.progress, stands
            restored = max(restored, found.restored)
            is_overwritten = is_overwritten or found.is_overwritten
    return Contradiction(restored, held, claimed, is_overwritten) if held else None


def rewind(table: DeltaTable, apps: Mapping[TopicPartition, str], topic: str) -> Contradiction | None:
    """Sets the progress back to what the table holds; what was wrong, None if nothing.

    Raises `TableMismatch` where batches were added behind the hole.
    """
    found = find_contradiction(table, apps, topic, since=-1)
    if found is None:
        return None
    if found.is_overwritten:
        raise TableMismatch(found.explain(topic, table.table_uri))
    count = rewinds(table, topic) + 1
    table.create_write_transaction(
        [],
        "append",
        table.schema(),
        commit_properties=CommitProperties(
            app_transactions=[
                *(Transaction(apps[each], offset) for each, offset in sorted(found.held.items())),
                Transaction(_rewinds_id(topic), count),
            ],
            custom_metadata={REWOUND: topic},
        ),
    )
    take_in(table)
    return found


def rewinds(table: DeltaTable, topic: str) -> int:
    """How often the progress of a topic was set back: each time Spark's checkpoint begins anew."""
    return table.transaction_version(_rewinds_id(topic)) or 0


def last_batch(table: DeltaTable, topic: str) -> dict[str, Any] | None:
    """The metadata of the last commit that took records of a topic; None where there is none."""
    limit = _FIRST_LOOK
    while True:
        entries = table.history(limit)
        for each in entries:
            if any(name.rpartition("-")[0] == topic for name in json.loads(each.get(OFFSETS, "{}"))):
                return each
        if len(entries) < limit:
            return None
        limit *= _GROWTH


def known_topic_id(table: DeltaTable, topic: str, told: str) -> str:
    """The id that a cluster tells of a topic; where it tells none, that of the table's last batch: it is missing for a
    while where an old tool has written the topic's node, and progress without one would begin anew."""
    if told:
        return told
    last = last_batch(table, topic)
    return "" if last is None else str(json.loads(last.get(TOPIC_IDS, "{}")).get(topic, ""))


def check_topic(table: DeltaTable, topic: str, topic_id: str, *, fail_on_data_loss: bool) -> None:
    """Raises `DataLoss` where the table has records of another topic that had the same name."""
    last = last_batch(table, topic)
    known = "" if last is None else json.loads(last.get(TOPIC_IDS, "{}")).get(topic, "")
    if known and topic_id and known != topic_id and fail_on_data_loss:
        raise DataLoss(
            f"topic {topic} was deleted and created again since the table at {table.table_uri} took records of it (its"
            f" id was {known}, it is {topic_id}).",
            instead="the table then takes the new topic from its beginning",
        )


def had_another_topic(table: DeltaTable, topic: str, topic_id: str) -> bool:
    """Whether the table has taken records of another topic of that name, as far back as its history goes."""
    known = (json.loads(each.get(TOPIC_IDS, "{}")).get(topic, "") for each in table.history())
    return bool(topic_id) and any(each not in ("", topic_id) for each in known)


def forget_outdated(checkpoint: Path, table: DeltaTable, topic: str) -> None:
    """Removes the checkpoint inside a local table where another query has gone on with the table since.

    It is renamed first, to what is no topic's name: Spark would go on with what a kill left of it.
    """
    outdated = checkpoint.with_name(f"{checkpoint.name}~")
    if outdated.exists():
        shutil.rmtree(outdated)
    try:
        query = json.loads((checkpoint / "metadata").read_text())["id"]
    except (FileNotFoundError, ValueError, KeyError):
        return  # There is none, or Spark says what is wrong with it.
    last = last_batch(table, topic)
    if last is not None and last.get(QUERY, query) != query:
        checkpoint.rename(outdated)
        shutil.rmtree(outdated)


def _rewinds_id(topic: str) -> str:
    return f"tidelog:{topic}:rewinds"


def _unchecked(table: DeltaTable, topic: str, since: int | None) -> list[dict[str, Any]]:
    """The commits after the last check, newest first."""
    if since is not None and since >= 0:
        newer = table.version() - since
        return table.history(newer) if newer > 0 else []
    limit = _FIRST_LOOK
    while True:
        entries = table.history(limit)
        floor = since if since is not None else _checked_until(entries, topic)
        if floor is not None and (entries[-1]["version"] <= floor + 1 or len(entries) < limit):
            return [each for each in entries if each["version"] > floor]
        if len(entries) < limit:
            return entries
        limit *= _GROWTH


def _checked_until(entries: list[dict[str, Any]], topic: str) -> int | None:
    for each in entries:
        checked = json.loads(each.get(CHECKED, "{}"))
        if topic in checked:
            return int(checked[topic])
    return None


def _is_restore(entry: Mapping[str, Any]) -> bool:
    return entry.get("operation") == "RESTORE"


@dataclass(frozen=True, slots=True)
class _Held:
    progress: int
    restored: int | None = None
    """The version of the RESTORE that the transaction identifier does not know of; None: it tells the truth."""
    is_overwritten: bool = False


class _Walk:
    """Finds what a partition's progress was at a version, past restores and rewinds."""

    def __init__(self, table: DeltaTable, events: list[dict[str, Any]], partition: TopicPartition, app: str) -> None:
        self._table = table
        self._events = events
        self._partition = partition
        self._app = app

    def at(self, version: int) -> _Held:
        says = self._says(version)
        event = next((each for each in reversed(self._events) if each["version"] <= version), None)
        if event is None or not _is_restore(event):
            return _Held(self._begins_at(version) if says is None else says)
        target = self.at(self._target(event))
        before = self._says(event["version"])
        if target.restored is None and before == target.progress:
            return _Held(target.progress if says is None else says)
        if says is None:
            return target
        return _Held(target.progress, event["version"], target.is_overwritten or says != before)

    def _says(self, version: int) -> int | None:
        found: int | None = self._version(version).transaction_version(self._app)
        return found

    def _begins_at(self, version: int) -> int:
        """Where the first batch after `version`, which holds nothing of the partition, took it up, or the table was to
        begin."""
        name = str(self._partition)
        for entry in reversed(self._table.history()):
            if entry["version"] <= version:
                continue
            if name in (begins := json.loads(entry.get(BEGINS, "{}"))):
                return int(begins[name])
            if name in (taken := json.loads(entry.get(OFFSETS, "{}"))):
                return int(taken[name][0])
        return 0

    def _target(self, event: Mapping[str, Any]) -> int:
        """The version whose files a RESTORE brought back; by its files, where it names a time."""
        version = event.get("operationParameters", {}).get("version")
        if version not in (None, "null", ""):
            return int(version)
        files = set(self._version(event["version"]).file_uris())
        for candidate in self._versions_before(event["version"]):
            if set(self._version(candidate).file_uris()) == files:
                return candidate
        raise PipelineError(
            f"version {event['version']} of the table restored one that is gone from its history: what it holds of"
            f" {self._partition} cannot be told"
        )

    def _versions_before(self, version: int) -> Iterator[int]:
        return (each["version"] for each in self._table.history() if each["version"] < version)

    def _version(self, version: int) -> DeltaTable:
        return DeltaTable(self._table.table_uri, version=version)
